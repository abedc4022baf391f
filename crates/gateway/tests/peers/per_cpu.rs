//! `per_cpu_sas`: an SA for each worker beside one for all (RFC 9611), and peers without it.

use crate::common::{Pair, SOON, Scenario, UP_LIMIT, Watch};
use std::collections::BTreeMap;
use testudo_lab::gateway::Kind;
use testudo_lab::iperf::Direction;
use testudo_lab::streams::Streams;
use testudo_lab::swanctl::ChildSa;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, Side};
use testudo_lab::wait_until;

const TWO_WORKERS: &str = "\n[worker]\ncount = 2\n";
const SIDES: [Side; 2] = [Side::One, Side::Two];

fn for_each_worker(side: Side) -> Connection {
    let mut connection = Connection::of(side, Family::V4);
    connection.more_child = vec!["per_cpu_sas = yes".into(), "replay_window = 8192".into()];
    connection
}

/// The Child SAs of that side that are not on their way out, by worker; none is that for all.
fn by_worker(pair: &Pair, side: Side) -> testudo_lab::Result<BTreeMap<Option<String>, ChildSa>> {
    let sas = pair.swanctl(side).list_sas()?;
    let children = sas.into_iter().flat_map(|sa| sa.children).filter(|child| child.state == "INSTALLED");
    Ok(children.map(|child| (child.get("cpu").map(str::to_owned), child)).collect())
}

/// Waits until both sides have an SA for each of two workers, and one for all; gives the inbound SPIs
/// of side one.
fn await_three(pair: &Pair) -> Vec<String> {
    for side in SIDES {
        wait_until(&format!("SAs of two workers at side {side:?}"), SOON, || {
            let found: Vec<_> = by_worker(pair, side)?.into_keys().collect();
            let expected = [None, Some("0".to_owned()), Some("1".to_owned())];
            Ok(if found == expected { Ok(()) } else { Err(format!("{found:?}")) })
        })
        .unwrap();
    }
    let children = by_worker(pair, Side::One).unwrap();
    children.values().filter_map(|child| child.get("spi-in").map(str::to_owned)).collect()
}

/// TCP by many flows, until the SA of each worker has carried packets each way, at both sides.
fn carry_by_each(pair: &Pair) {
    let to = Side::Two.host(Family::V4);
    wait_until("packets through the SA of each worker", SOON, || {
        for direction in [Direction::Up, Direction::Down] {
            Streams { direction, count: 16, octets: 1 << 18 }.carry(&pair.t.client, &pair.t.server, to)?;
        }
        let mut idle = Vec::new();
        for side in SIDES {
            for (worker, child) in by_worker(pair, side)?.into_iter().filter(|(worker, _)| worker.is_some()) {
                let (sent, received) = (child.number("packets-out")?, child.number("packets-in")?);
                if sent < 20 || received < 20 {
                    idle.push(format!("{side:?} {worker:?}: {sent} sent, {received} received"));
                }
            }
        }
        Ok(if idle.is_empty() { Ok(()) } else { Err(idle.join("; ")) })
    })
    .unwrap();
}

#[test]
fn each_worker_sends_by_its_own_sa() {
    let scenario = Scenario::new("per-cpu", Kind::Testudo).queues([2; 2]).settings(TWO_WORKERS).large();
    let pair = scenario.start_with(|side, connection| *connection = for_each_worker(side));
    let watch = Watch::start(&pair.t);
    pair.swanctl(Side::One).initiate("lab", UP_LIMIT).unwrap();
    await_three(&pair);
    assert!(pair.sas(Side::One)[0].children.iter().all(|child| child.get("per-cpu-sas") == Some("yes")));
    carry_by_each(&pair);
    // New keys for all three, each for the same worker.
    let before = await_three(&pair);
    pair.swanctl(Side::Two).run(["--rekey", "--child", "lab"]).unwrap();
    wait_until("new keys", SOON, || {
        let now = await_three(&pair);
        let old: Vec<_> = now.iter().filter(|spi| before.contains(spi)).collect();
        Ok(if old.is_empty() { Ok(()) } else { Err(format!("{old:?} of {now:?}")) })
    })
    .unwrap();
    carry_by_each(&pair);
    pair.ping_both_ways();
    for reason in ["no_sa", "auth_failed", "replayed", "unknown_spi"] {
        assert_eq!(pair.drops(Side::One).get(reason).copied().unwrap_or_default(), 0, "{reason}");
    }
    watch.saw_nothing();
}

/// strongSwan 5.9 does not know the notify.
#[test]
fn a_strongswan_without_it_has_one_sa() {
    for initiator in SIDES {
        let scenario = Scenario::new("per-cpu-5.9", Kind::Strongswan).settings(TWO_WORKERS).large();
        let pair = scenario.start_with(|side, connection| {
            if side == Side::One {
                connection.more_child = vec!["per_cpu_sas = yes".into()];
            }
        });
        let watch = Watch::start(&pair.t);
        pair.up(initiator);
        pair.ping_both_ways();
        pair.tcp_both_ways(Family::V4);
        let sas = pair.sas(Side::One);
        assert_eq!(sas[0].children.len(), 1, "{sas:?}");
        assert_eq!((sas[0].children[0].get("cpu"), sas[0].children[0].get("per-cpu-sas")), (None, None));
        watch.saw_nothing();
    }
}
