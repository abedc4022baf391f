//! Debian's strongSwan on a Linux kernel as the peer: what is on the wire is the kernel's ESP
//! (XFRM), without UDP.

use crate::common::{Pair, SOON, Scenario, Watch};
use crate::rekeying::{renew, under_traffic};
use testudo_lab::capture::Capture;
use testudo_lab::gateway::{Gateway, Kind};
use testudo_lab::guest::Guest;
use testudo_lab::iperf::Direction;
use testudo_lab::ping::Ping;
use testudo_lab::streams::Streams;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, Side, WIRE_PORTS};
use testudo_lab::wait_until;

/// Sequence numbers of an SA.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Numbers {
    Plain,
    Extended,
}

/// Little enough for an emulated processor, and more than a window of TCP.
const TRANSFER: u64 = 256 << 10;
/// A size that leaves room for ESP: Linux fragments the ESP packet if a packet without DF is too
/// large, instead of the inner packet.
const INNER_MTU: u16 = 1400;

fn guest(pair: &Pair) -> &Guest {
    match &pair.two {
        Gateway::Guest(guest) => guest,
        _ => panic!("side two runs a guest"),
    }
}

/// Loads a connection with those numbers into both sides and brings it up.
fn connect(pair: &Pair, outer: Family, numbers: Numbers, initiator: Side) {
    for side in [Side::One, Side::Two] {
        let mut connection = Connection::of(side, outer);
        connection.esp_proposals = match numbers {
            Numbers::Plain => "aes128gcm16-noesn".into(),
            Numbers::Extended => "aes128gcm16-esn".into(),
        };
        pair.swanctl(side).load(&connection.to_string()).unwrap();
    }
    pair.up(initiator);
}

/// Both sides know the SA as it was asked for.
fn has_numbers(pair: &Pair, numbers: Numbers) {
    let esn = (numbers == Numbers::Extended).then_some("1");
    for side in [Side::One, Side::Two] {
        let sas = pair.sas(side);
        let child = &sas[0].children[0];
        assert_eq!((child.get("esn"), child.get("encap")), (esn, None), "{side:?}: {child:?}");
    }
    let states = guest(pair).run("ip xfrm state").unwrap();
    assert_eq!(states.contains("flag af-unspec esn"), esn.is_some(), "{states}");
    assert!(!states.contains("encap"), "{states}");
}

/// Whole packets, packets in fragments, and TCP, both ways.
fn carries_traffic(pair: &Pair, tcp: Family) {
    pair.ping_both_ways();
    for from in [Side::One, Side::Two] {
        for family in [Family::V4, Family::V6] {
            pair.ping_from(from, family, 4000);
        }
    }
    for direction in [Direction::Up, Direction::Down] {
        let to = Side::Two.host(tcp);
        Streams::one(direction, TRANSFER).carry(&pair.t.client, &pair.t.server, to).unwrap();
    }
}

/// From now on the untrusted network delivers every ESP packet twice.
fn deliver_twice(pair: &Pair) {
    let [one, two] = WIRE_PORTS;
    let chain = |from: &str, to: &str| {
        format!(
            "chain {from} {{
                type filter hook ingress device {from} priority 10; policy accept;
                meta l4proto esp dup to {to}
            }}"
        )
    };
    let table = format!("table netdev twice {{\n{}\n{}\n}}", chain(one, two), chain(two, one));
    pair.t.wire.run("nft", [table]).unwrap();
}

/// RFC 4303 §3.4.3: neither side lets a packet through a second time, and both say so.
fn repetitions_are_refused(pair: &Pair) {
    let refused = |pair: &Pair| guest(pair).xfrm_counter("XfrmInStateSeqError").unwrap();
    let before = (pair.dropped("replayed"), refused(pair));
    deliver_twice(pair);
    for from in [Side::One, Side::Two] {
        let to = from.other().host(Family::V4);
        let pong = Ping::new(to).run(pair.t.host(from)).unwrap();
        assert_eq!((pong.received, pong.duplicates), (pong.sent, 0), "from {from:?}: {pong:?}");
    }
    pair.t.wire.run("nft", ["delete table netdev twice"]).unwrap();
    wait_until("replays to be dropped by us and by the kernel", SOON, || {
        let found = (pair.dropped("replayed") - before.0, refused(pair) - before.1);
        Ok(if found.0 >= 20 && found.1 >= 20 { Ok(()) } else { Err(format!("{found:?}")) })
    })
    .unwrap();
}

/// A tunnel with numbers of each kind, one after the other: we initiate the first, the kernel's
/// charon the second.
fn plain_esp(outer: Family) {
    let pair = Scenario::new("kernel", Kind::Guest).outer(outer).inner_mtu(INNER_MTU).start_empty();
    for (numbers, initiator) in [(Numbers::Extended, Side::One), (Numbers::Plain, Side::Two)] {
        let first = Capture::everything(&pair.t.wire, 40).unwrap();
        connect(&pair, outer, numbers, initiator);
        let watch = Watch::start(&pair.t);
        has_numbers(&pair, numbers);
        carries_traffic(&pair, outer);
        let wire = first.stop().unwrap().show(40).unwrap();
        assert!(wire.contains(": ESP(spi=0x") && !wire.contains("UDP-encap"), "{wire}");
        repetitions_are_refused(&pair);
        watch.saw_nothing();
        pair.swanctl(initiator).terminate("lab").unwrap();
        no_state_is_left(&pair);
    }
}

/// New keys for both kinds of SA, from either side, under traffic: the kernel loses no packet, and
/// neither do we.
#[test]
#[ignore = "make test-all: the other peer"]
fn a_linux_kernel_gets_new_keys() {
    let pair = Scenario::new("kernel-rekey", Kind::Guest).inner_mtu(INNER_MTU).start_empty();
    for (numbers, initiator) in [(Numbers::Extended, Side::One), (Numbers::Plain, Side::Two)] {
        connect(&pair, Family::V4, numbers, initiator);
        let watch = Watch::start(&pair.t);
        under_traffic(&pair, || {
            for side in [Side::One, Side::Two] {
                renew(&pair, side, &["--child", "lab"]);
                renew(&pair, side, &["--ike", "lab"]);
            }
        });
        has_numbers(&pair, numbers);
        carries_traffic(&pair, Family::V4);
        watch.saw_nothing();
        pair.swanctl(initiator).terminate("lab").unwrap();
        no_state_is_left(&pair);
    }
}

/// The kernel has given up what belonged to the tunnel.
fn no_state_is_left(pair: &Pair) {
    wait_until("the end of the kernel's SAs", SOON, || {
        let states = guest(pair).run("ip xfrm state")?;
        Ok(if states.trim().is_empty() { Ok(()) } else { Err(states) })
    })
    .unwrap();
    assert!(pair.sas(Side::One).is_empty());
}

#[test]
fn a_linux_kernel_carries_plain_esp_over_ipv4() {
    plain_esp(Family::V4);
}

#[test]
#[ignore = "make test-all: the other family"]
fn a_linux_kernel_carries_plain_esp_over_ipv6() {
    plain_esp(Family::V6);
}
