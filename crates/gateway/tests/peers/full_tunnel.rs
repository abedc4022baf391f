//! A tunnel for everything beside a gateway that has to do with others too.

use crate::common::{Scenario, Watch};
use testudo_lab::gateway::Kind;
use testudo_lab::iperf::Direction;
use testudo_lab::ping::Ping;
use testudo_lab::streams::Streams;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, Side};

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// What side one's network sends goes through the tunnel, wherever it goes.
fn everything(side: Side, connection: &mut Connection) {
    let all = vec!["0.0.0.0/0".into(), "::/0".into()];
    match side {
        Side::One => connection.remote_ts = all,
        Side::Two => connection.local_ts = all,
    }
}

/// From off-link to the outer address, and from there to others: neither is selected by the policy.
#[test]
fn a_tunnel_for_everything_does_not_cut_the_gateway_off() {
    let pair = Scenario::new("full", Kind::Testudo).start_with(everything);
    for family in FAMILIES {
        pair.t.gw1.route("default", &Side::Two.outer(family).to_string()).unwrap();
    }
    pair.up(Side::One);
    let watch = Watch::start(&pair.t);
    pair.ping_both_ways();
    watch.saw_nothing();
    for family in FAMILIES {
        let (outer, far) = (Side::One.outer(family), Side::Two.host(family));
        let pong = Ping::new(outer).count(5).run(&pair.t.server).unwrap();
        assert_eq!(pong.received, 5, "{family}: drops {:?}", pair.drops(Side::One));
        Streams::one(Direction::Up, 1 << 20).carry(&pair.t.server, &pair.t.gw1, outer).unwrap();
        let (outer, far) = (outer.to_string(), far.to_string());
        let args = ["-n", "-c", "5", "-i", "0.05", "-W", "2", "-I", &outer, &far];
        let done = pair.t.gw1.cmd("ping").args(args).run_any().unwrap();
        assert!(done.stdout.contains(" 5 received"), "{}; drops {:?}", done.stdout, pair.drops(Side::One));
    }
    // What the policy selects is held back as before.
    let before = pair.dropped("clear_but_protected");
    pair.t.gw2.ip("route replace table 220 10.1.0.0/24 via 192.0.2.1").unwrap();
    let args = ["-n", "-c", "5", "-i", "0.05", "-W", "1", "-I", "10.2.0.1", "10.1.0.2"];
    let done = pair.t.gw2.cmd("ping").args(args).run_any().unwrap();
    assert!(!done.stdout.contains(" 5 received"), "{}", done.stdout);
    assert_eq!(pair.dropped("clear_but_protected") - before, 5);
}
