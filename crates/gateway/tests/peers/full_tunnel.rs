//! A tunnel for everything.

use crate::common::{Scenario, Watch};
use testudo_lab::gateway::Kind;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::Side;

/// What side one's network sends goes through the tunnel, wherever it goes.
fn everything(side: Side, connection: &mut Connection) {
    let all = vec!["0.0.0.0/0".into(), "::/0".into()];
    match side {
        Side::One => connection.remote_ts = all,
        Side::Two => connection.local_ts = all,
    }
}

/// What a policy selects and comes in clear all the same is dropped, and counted as such.
#[test]
fn what_a_tunnel_for_everything_selects_does_not_come_in_clear() {
    let pair = Scenario::new("full", Kind::Testudo).start_with(everything);
    pair.up(Side::One);
    let watch = Watch::start(&pair.t);
    pair.ping_both_ways();
    watch.saw_nothing();
    let before = pair.dropped("clear_but_protected");
    pair.t.gw2.ip("route replace table 220 10.1.0.0/24 via 192.0.2.1").unwrap();
    let args = ["-n", "-c", "5", "-i", "0.05", "-W", "1", "-I", "10.2.0.1", "10.1.0.2"];
    let done = pair.t.gw2.cmd("ping").args(args).run_any().unwrap();
    assert!(!done.stdout.contains(" 5 received"), "{}", done.stdout);
    assert_eq!(pair.dropped("clear_but_protected") - before, 5);
}
