//! Many queues and many workers.

use crate::common::{Pair, Scenario, Watch};
use std::time::Duration;
use testudo_lab::gateway::Kind;
use testudo_lab::iperf::{Direction, IperfServer, Throughput};
use testudo_lab::topology::{Family, Side};

const QUEUES: u32 = 4;
/// With so many all queues see some.
const FLOWS: u32 = 16;

/// TCP and pings through a tunnel of ours, every queue in use, and nothing in clear.
fn carries_many_flows(pair: &Pair) {
    let watch = Watch::start(&pair.t);
    pair.up(Side::One);
    pair.ping_both_ways();
    let _server = IperfServer::start(&pair.t.server).unwrap();
    for direction in [Direction::Up, Direction::Down] {
        let to = Side::Two.host(Family::V4);
        let run = Throughput::run(&pair.t.client, to, direction, Duration::from_secs(2), FLOWS).unwrap();
        assert!(run.bytes > 1 << 20, "{direction:?}: {run:?}");
    }
    pair.ping_both_ways();
    watch.saw_nothing();
}

#[test]
fn one_worker_serves_all_queues() {
    for peer in [Kind::Strongswan, Kind::Testudo] {
        let pair =
            Scenario::new("queues", peer).queues(QUEUES).settings("\n[worker]\nframes = 32768\n").start();
        carries_many_flows(&pair);
        assert_eq!(pair.dropped("filter_drop_no_socket"), 0);
    }
}
