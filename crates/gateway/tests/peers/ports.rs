//! Interfaces that change while a daemon has them as ports.

use crate::common::{ANSWERED, Pair, SOON, UP_LIMIT};
use testudo_lab::gateway::{Gateway, Kind};
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::testudo::Testudo;
use testudo_lab::topology::{Family, HOST, INNER, OUTER, Options, Side, WIRE_PORTS};
use testudo_lab::{Lab, Namespace, Topology, wait_until};

fn set_queues(namespace: &Namespace, interface: &str, count: u32) {
    let count = count.to_string();
    namespace.run("ethtool", ["-L", interface, "rx", &count, "tx", &count]).unwrap();
}

/// Two gateways; the interfaces of ours have four queues, of which they use two at the start.
fn start() -> Pair {
    let towards = [Kind::Testudo.offloads_towards(); 2];
    let options = Options { towards, queues: [4, 1], ..Options::default() };
    let t = Topology::build(&Lab::shared("ports").unwrap(), &options).unwrap();
    for (namespace, interface) in [(&t.client, HOST), (&t.gw1, INNER)] {
        set_queues(namespace, interface, 2);
    }
    let one = Testudo::start(&t.gw1).unwrap();
    let two = Gateway::Testudo(Testudo::start(&t.gw2).unwrap());
    let pair = Pair { one, two, t };
    for side in [Side::One, Side::Two] {
        pair.swanctl(side).load(&Connection::of(side, Family::V4).to_string()).unwrap();
    }
    pair.swanctl(Side::One).initiate("lab", UP_LIMIT).unwrap();
    pair
}

/// What a port cannot follow is said, and what it was opened for goes on.
#[test]
fn an_interface_that_grows_is_warned_of_and_goes_on_with_what_it_had() {
    let mut pair = start();
    let inner = [(&pair.t.gw1.clone(), INNER), (&pair.t.client.clone(), HOST)];
    inner.iter().for_each(|(namespace, interface)| set_queues(namespace, interface, 4));
    pair.await_log("port inner0: 4 receive queues, found 2 at the start");
    inner.iter().rev().for_each(|(namespace, interface)| set_queues(namespace, interface, 2));
    pair.ping_both_ways();
    let (gw1, gw2, wire) = (&pair.t.gw1, &pair.t.gw2, &pair.t.wire);
    for (namespace, interface) in
        [(wire, WIRE_PORTS[0]), (wire, WIRE_PORTS[1]), (wire, "br0"), (gw1, OUTER), (gw2, OUTER)]
    {
        namespace.ip(&format!("link set {interface} mtu 9000")).unwrap();
    }
    pair.await_log("port outer0: MTU 9000, and what was set up at the start takes 1600");
    let tun = format!("link show dev tu-{}", pair.t.gw1.lab().instance("gw1"));
    wait_until("a TUN that takes what ports can send", SOON, || {
        let shown = pair.t.gw1.ip(&tun)?.stdout;
        Ok(if shown.contains("mtu 1600") { Ok(()) } else { Err(shown) })
    })
    .unwrap();
    pair.ping_both_ways();
    // Its ESP is more than a port can send, and less than the link takes.
    let (to, from) = (Side::Two.host(Family::V4).to_string(), Side::One.inner(Family::V4).to_string());
    let words = ["-q", "-c", "5", "-i", "0.2", "-W", ANSWERED, "-M", "dont", "-s", "1560", "-I", &from, &to];
    let said = pair.t.gw1.run("ping", words).unwrap().stdout;
    assert!(said.contains("5 packets transmitted, 5 received"), "{said}");
    assert_eq!(pair.dropped("tx_invalid"), 0);
}
