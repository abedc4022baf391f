//! Hub and spoke: Testudo between two peers that reach each other through it. What comes out of one
//! tunnel goes into the other, or nowhere.

use crate::common::{Arrivals, SOON, UP_LIMIT};
use testudo_lab::gateway::{Gateway, Kind};
use testudo_lab::namespace::{Offloads, veth};
use testudo_lab::ping::Ping;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::testudo::Testudo;
use testudo_lab::topology::{Family, INNER, OUTER, Options, Side};
use testudo_lab::{Lab, Namespace, Topology, wait_until};

const HUB_PORT: &str = "port3";
const SIDES: [Side; 2] = [Side::One, Side::Two];

struct Star {
    spokes: [Gateway; 2],
    hub: Testudo,
    hub_ns: Namespace,
    _behind: Namespace,
    /// Packets of the hub that are neither ESP nor IKE.
    clear: Arrivals,
    t: Topology,
}

impl Star {
    fn start(spokes: Kind) -> Self {
        let options = Options { towards: [spokes.offloads_towards(); 2], ..Options::default() };
        let t = Topology::build(&Lab::shared("hub").unwrap(), &options).unwrap();
        let (hub_ns, behind) = join(&t);
        let esp_and_ike = ["ip protocol esp", "ip6 nexthdr esp", "udp dport { 500, 4500 }"];
        let clear = Arrivals::count(&t.wire, HUB_PORT, &esp_and_ike);
        let hub = Testudo::start(&hub_ns).unwrap();
        let [one, two] = SIDES.map(|side| hub_connection(side).to_string());
        hub.swanctl().load(&format!("{one}{two}")).unwrap();
        let spokes = SIDES.map(|side| {
            let spoke = Gateway::start(spokes, t.gateway(side)).unwrap();
            spoke.swanctl().load(&spoke_connection(side).to_string()).unwrap();
            spoke
        });
        Self { spokes, hub, hub_ns, _behind: behind, clear, t }
    }

    fn ping(&self, from: Side, family: Family) -> u32 {
        let pong = Ping::new(from.other().host(family)).run(self.t.host(from)).unwrap();
        assert_eq!(pong.sent, 10);
        pong.received
    }
}

/// A third gateway in the untrusted network, and the host behind it. It has routes to both
/// protected networks, so that it could forward in clear.
fn join(t: &Topology) -> (Namespace, Namespace) {
    let hub = t.wire.lab().namespace("hub").unwrap();
    let behind = t.wire.lab().namespace("behind").unwrap();
    hub.forward().unwrap();
    veth(behind.end("eth0"), hub.end(INNER)).unwrap();
    veth(t.wire.end(HUB_PORT), hub.end(OUTER)).unwrap();
    for (ns, interface) in [(&behind, "eth0"), (&hub, INNER), (&hub, OUTER), (&t.wire, HUB_PORT)] {
        ns.up(interface, 1500).unwrap();
    }
    behind.offloads("eth0", Offloads::None).unwrap();
    t.wire.offloads(HUB_PORT, Offloads::None).unwrap();
    t.wire.ip(&format!("link set {HUB_PORT} master br0")).unwrap();
    hub.address(OUTER, "192.0.2.3/24").unwrap();
    hub.address(OUTER, "2001:db8::3/64").unwrap();
    for side in SIDES {
        for family in [Family::V4, Family::V6] {
            hub.route(&side.network(family), &side.outer(family).to_string()).unwrap();
        }
    }
    (hub, behind)
}

/// The spoke protects its network towards everything that the hub reaches.
fn spoke_connection(side: Side) -> Connection {
    let mut connection = Connection::of(side, Family::V4);
    connection.remote_addr = "192.0.2.3".parse().unwrap();
    connection.remote_id = "hub.lab.example".into();
    connection
}

/// The same, seen from the hub.
fn hub_connection(side: Side) -> Connection {
    let mut connection = Connection::of(side.other(), Family::V4);
    connection.name = match side {
        Side::One => "one".into(),
        Side::Two => "two".into(),
    };
    connection.local_addr = "192.0.2.3".parse().unwrap();
    connection.local_id = "hub.lab.example".into();
    connection
}

fn hub_and_spokes(kind: Kind) {
    let star = Star::start(kind);
    let no_sa = || star.hub.drops().unwrap()["no_sa"];
    // One tunnel up: what comes out of it would have to go into the other.
    star.spokes[0].swanctl().initiate("lab", UP_LIMIT).unwrap();
    for family in [Family::V4, Family::V6] {
        let before = no_sa();
        let pong = Ping::new(Side::Two.host(family)).brief().run(star.t.host(Side::One)).unwrap();
        assert_eq!(pong.received, 0);
        assert_eq!(no_sa() - before, 10, "{family}");
    }
    // Both up.
    star.spokes[1].swanctl().initiate("lab", UP_LIMIT).unwrap();
    for from in SIDES {
        for family in [Family::V4, Family::V6] {
            assert_eq!(star.ping(from, family), 10, "{family} from {from:?}: {:?}", star.hub.drops());
        }
    }
    // One goes under traffic.
    let flood = star.t.client.cmd("ping").args(["-n", "-q", "-i", "0.002", "10.2.0.2"]);
    let _flood = star.t.client.start("flood", flood).unwrap();
    let carried = || star.hub_ns.statistic(OUTER, "tx_packets");
    let begin = carried().unwrap();
    wait_until("the traffic to flow", SOON, || {
        let flown = carried()? - begin;
        Ok(if flown > 100 { Ok(()) } else { Err(format!("{flown} packets")) })
    })
    .unwrap();
    star.spokes[1].swanctl().terminate("lab").unwrap();
    let before = no_sa();
    wait_until("packets without an SA", SOON, || {
        let found = no_sa() - before;
        Ok(if found > 100 { Ok(()) } else { Err(format!("{found}")) })
    })
    .unwrap();
    assert_eq!(star.clear.packets(), 0);

    // The control: the hub's own clear text is seen.
    let own = Ping::new(Side::One.outer(Family::V4)).count(3).run(&star.hub_ns).unwrap();
    assert_eq!(own.received, 3);
    assert_eq!(star.clear.packets(), 3);
}

#[test]
#[ignore = "make test-all: the other peer"]
fn testudos_meet_at_a_testudo() {
    hub_and_spokes(Kind::Testudo);
}

#[test]
fn strongswans_meet_at_a_testudo() {
    hub_and_spokes(Kind::Strongswan);
}
