//! Many queues and many workers.

use crate::common::{Pair, SOON, Scenario, UP_LIMIT, Watch};
use crate::rekeying::under_traffic;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::time::{Duration, Instant};
use testudo_lab::gateway::Kind;
use testudo_lab::iperf::Direction;
use testudo_lab::streams::Streams;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, Side};
use testudo_lab::wait_until;

const QUEUES: u32 = 4;
/// Enough for all queues to see some.
const FLOWS: u8 = 16;

/// The usual networks of a family in a tunnel of their own.
fn tunnel(side: Side, family: Family) -> Connection {
    let mut tunnel = Connection::of(side, Family::V4);
    tunnel.local_ts = vec![side.network(family)];
    tunnel.remote_ts = vec![side.other().network(family)];
    // Packets of one SA overtake each other, the more so where workers are more than processors.
    // TCP takes that for loss, and slows down.
    tunnel.more_child = vec!["replay_window = 8192".into()];
    if family == Family::V6 {
        tunnel.name = "six".into();
        for id in [&mut tunnel.local_id, &mut tunnel.remote_id] {
            *id = format!("six.{id}");
        }
    }
    tunnel
}

/// Two tunnels that all workers carry.
fn start(name: &'static str, peer: Kind, settings: &'static str) -> Pair {
    let pair = Scenario::new(name, peer).queues([QUEUES; 2]).settings(settings).large().start_empty();
    for side in [Side::One, Side::Two] {
        let both = [Family::V4, Family::V6].map(|family| tunnel(side, family).to_string());
        pair.swanctl(side).load(&both.concat()).unwrap();
    }
    for child in ["lab", "six"] {
        pair.swanctl(Side::One).initiate(child, UP_LIMIT).unwrap();
    }
    pair
}

fn tcp(pair: &Pair, family: Family, direction: Direction) {
    let to = Side::Two.host(family);
    let streams = Streams { direction, count: FLOWS, octets: 1 << 20 };
    streams.carry(&pair.t.client, &pair.t.server, to).unwrap();
}

/// TCP and pings through tunnels of ours, by many flows, and nothing in clear.
fn carry_many_flows(pair: &Pair) {
    let watch = Watch::start(&pair.t);
    pair.ping_both_ways();
    tcp(pair, Family::V4, Direction::Up);
    tcp(pair, Family::V4, Direction::Down);
    tcp(pair, Family::V6, Direction::Up);
    pair.ping_both_ways();
    watch.saw_nothing();
}

pub(crate) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn sum<'a>(values: impl IntoIterator<Item = &'a Value>) -> u64 {
    values.into_iter().map(number).sum()
}

/// In + generated + split = out + dropped + merged + joined + held + away, over all workers of that
/// side.
pub(crate) fn is_balanced(pair: &Pair, side: Side) -> Result<(), String> {
    let status = pair.status(side);
    let counters = &status["counters"];
    let (totals, list) = (&counters["totals"], |key: &str| counters[key].as_array().unwrap().clone());
    let ports = |key: &str| sum(list("ports").iter().map(|port| &port[key]));
    let total = |keys: &[&str]| sum(keys.iter().map(|key| &totals[*key]));
    let dropped: u64 = list("workers").iter().map(|w| sum(w["drops"].as_object().unwrap().values())).sum();
    let came = ports("rx_packets") + total(&["from_tun", "icmp_sent", "split"]);
    let went = ports("tx_packets") + total(&["to_tun", "merged", "joined", "held", "away"]) + dropped;
    if came == went { Ok(()) } else { Err(format!("{came} came, {went} went: {counters}")) }
}

/// This many of `all` workers have carried packets, every packet is accounted for, and none was
/// dropped for a reason that only workers interfering with each other could cause.
fn all_have_worked(pair: &Pair, busy: usize, all: usize) {
    wait_until("balanced counters", SOON, || Ok(is_balanced(pair, Side::One))).unwrap();
    let status = pair.status(Side::One);
    let workers = status["counters"]["workers"].as_array().unwrap();
    let packets: Vec<u64> = workers.iter().map(|worker| number(&worker["packets"])).collect();
    assert_eq!(packets.len(), all);
    let worked = packets.iter().filter(|packets| **packets > 100).count();
    assert_eq!(worked, busy, "{packets:?}");
    for reason in ["filter_drop_no_socket", "replayed", "auth_failed", "no_sa", "no_port", "no_frame"] {
        assert_eq!(pair.dropped(reason), 0, "{reason}");
    }
}

#[test]
fn one_worker_serves_all_queues() {
    let pair = start("queues", Kind::Testudo, "\n[worker]\ncpu = 0\n");
    carry_many_flows(&pair);
    all_have_worked(&pair, 1, 1);
}

#[test]
fn two_workers_share_tunnels_with_strongswan() {
    let pair = start("workers-charon", Kind::Strongswan, "\n[worker]\ncount = 2\n");
    carry_many_flows(&pair);
    all_have_worked(&pair, 2, 2);
}

/// The SPIs of both tunnels in use, by which a side takes packets in.
fn spis(pair: &Pair, side: Side) -> testudo_lab::Result<BTreeSet<String>> {
    let sas = pair.swanctl(side).list_sas()?;
    let used = sas.iter().flat_map(|sa| &sa.children).filter(|child| child.state == "INSTALLED");
    Ok(used.filter_map(|child| child.get("spi-in").map(str::to_owned)).collect())
}

/// New keys for both tunnels, by that side.
fn renew_both(pair: &Pair, side: Side) {
    let sides = [Side::One, Side::Two];
    let before = sides.map(|side| spis(pair, side).unwrap());
    for child in ["lab", "six"] {
        pair.swanctl(side).run(["--rekey", "--child", child]).unwrap();
    }
    for (side, before) in sides.iter().zip(&before) {
        wait_until(&format!("new keys at side {side:?}"), SOON, || {
            let now = spis(pair, *side)?;
            let renewed = now.len() == 2 && now.is_disjoint(before);
            Ok(if renewed { Ok(()) } else { Err(format!("{now:?}, before {before:?}")) })
        })
        .unwrap();
    }
}

#[test]
fn four_workers_share_tunnels_with_four() {
    let pair = start("workers", Kind::Testudo, "\n[worker]\ncount = 4\n");
    carry_many_flows(&pair);
    all_have_worked(&pair, 4, 4);
    // All workers on both sides rekey while at most a window of packets is in transit.
    under_traffic(&pair, || {
        for side in [Side::One, Side::Two, Side::One] {
            renew_both(&pair, side);
        }
    });
    all_have_worked(&pair, 4, 4);
}

#[test]
fn workers_without_queues_stand_by() {
    let pair = start("standby", Kind::Strongswan, "\n[worker]\ncount = 6\n");
    carry_many_flows(&pair);
    all_have_worked(&pair, 4, 6);
}

/// Datagrams for a second, one flow of them, as fast as a host sends: more than one worker carries.
fn flood(pair: &Pair) -> testudo_lab::Result<()> {
    let to = (Side::Two.host(Family::V4), 9);
    pair.t.client.enter(move || {
        let socket = UdpSocket::bind(("0.0.0.0", 0)).unwrap();
        socket.connect(to).unwrap();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(1) {
            // Without a listener or buffer: it does not matter.
            (0..1000).for_each(|_| drop(socket.send(&[0; 1000])));
        }
    })
}

/// Waits until neither side receives any more of the flood: while a ring is full, pings are lost.
fn await_calm(pair: &Pair) {
    let received = || {
        let status = [Side::One, Side::Two].map(|side| pair.status(side));
        let ports = status.iter().flat_map(|status| status["counters"]["ports"].as_array().unwrap());
        sum(ports.map(|port| &port["rx_packets"]))
    };
    wait_until("the end of the flood", SOON, || {
        let before = received();
        std::thread::sleep(Duration::from_millis(100));
        let more = received() - before;
        // A question for a neighbour's address may be among them.
        Ok(if more < 10 { Ok(()) } else { Err(format!("{more} packets")) })
    })
    .unwrap();
}

/// One flow of one SA by one queue: two workers carry it together, and its packets keep their
/// order, which a window of 32 would show.
#[test]
fn a_worker_without_a_queue_helps_with_one_sa() {
    two_carry_one_sa("helper", "\n[worker]\ncount = 2\n");
}

#[test]
fn a_worker_without_a_queue_is_chosen_by_hash() {
    two_carry_one_sa("hash", "\n[worker]\ncount = 2\nspread = \"hash\"\n");
}

fn two_carry_one_sa(name: &'static str, settings: &'static str) {
    let scenario = Scenario::new(name, Kind::Testudo).queues([1; 2]);
    let pair = scenario.settings(settings).large().start_empty();
    for side in [Side::One, Side::Two] {
        let mut tunnel = Connection::of(side, Family::V4);
        tunnel.more_child = vec!["replay_window = 32".into()];
        pair.swanctl(side).load(&tunnel.to_string()).unwrap();
    }
    pair.swanctl(Side::One).initiate("lab", UP_LIMIT).unwrap();
    let helped = || number(&pair.status(Side::One)["counters"]["totals"]["helped"]);
    wait_until("a worker that helps", 6 * SOON, || {
        flood(&pair)?;
        Ok(if helped() > 1000 { Ok(()) } else { Err(format!("{} packets", helped())) })
    })
    .unwrap();
    await_calm(&pair);
    pair.ping_both_ways();
    wait_until("balanced counters", SOON, || Ok(is_balanced(&pair, Side::One))).unwrap();
    for side in [Side::One, Side::Two] {
        let drops = pair.drops(side);
        for reason in ["replay_too_old", "replayed", "auth_failed", "no_frame"] {
            assert_eq!(drops.get(reason), Some(&0), "{side:?}, {reason}");
        }
    }
}
