//! Two failures at once, and one after another, in five nodes; and what is left without a quorum.

use super::{FormerOwner, LIMIT, OUTAGE_LIMIT, Trial, behind, not_doubled, within};
use std::collections::BTreeSet;
use std::time::Duration;
use testudo_lab::bed::{BedOptions, Failure};
use testudo_lab::cluster::Cut;
use testudo_lab::corosync::Timers;
use testudo_lab::gateway::Kind;
use testudo_lab::ping::Ping;
use testudo_lab::wait_until;

const CUT: Failure = Failure::AllLinks(Cut::Silent);

pub(super) fn five(mode: &str) -> BedOptions {
    BedOptions {
        nodes: 5,
        peers: vec![Kind::Strongswan; 3],
        cluster: format!("no_quorum = \"{mode}\""),
        // Five more daemons, on the same machine.
        timers: Timers { token: Duration::from_millis(300), consensus: Duration::from_millis(360) },
        ..BedOptions::default()
    }
}

/// Two nodes are cut off at once, then a third: the remaining two have no quorum. `forward`: they
/// continue the packets of their own tunnels, and no node takes over the third node's. `stop`:
/// nothing passes. At the end all are in one view again.
fn two_and_another(mode: &str) {
    let mut trial = Trial::start(&format!("five-{mode}"), &five(mode));
    let all: BTreeSet<u8> = (1..=5).collect();
    let first = trial.bed.owner(1).unwrap();
    let second = all.iter().copied().find(|node| *node != first).unwrap();
    let what = "two failures at once";
    let seen = trial.under_traffic(what, |bed| {
        bed.strike(first, CUT).unwrap();
        bed.strike(second, CUT).unwrap();
    });
    not_doubled(what, FormerOwner::PassedOver, &seen);
    within(what, OUTAGE_LIMIT, &seen);
    trial.all_is_well(what);

    let left: Vec<u8> = all.iter().copied().filter(|node| ![first, second].contains(node)).collect();
    trial.bed.await_members(&left).unwrap();
    let owners: Vec<u8> =
        trial.peers().iter().map(|peer| trial.bed.owner_among(*peer, &left).unwrap().unwrap()).collect();
    // The owner of the first tunnel stays.
    let third = left.iter().copied().find(|node| *node != owners[0]).unwrap();
    trial.bed.strike(third, CUT).unwrap();
    let remaining = left.iter().find(|node| **node != third).unwrap();
    wait_until("no quorum", LIMIT, || {
        let shown = trial.bed.node(*remaining).cluster()?;
        Ok(if shown["view"]["quorate"] == false { Ok(()) } else { Err(shown.to_string()) })
    })
    .unwrap();
    for (peer, owner) in trial.peers().into_iter().zip(&owners) {
        let carried = mode == "forward" && *owner != third;
        wait_until(&format!("{mode}: traffic of peer {peer}: {carried}"), LIMIT, || {
            let pong = Ping::new(behind(peer)).brief().run(&trial.bed.cluster.client)?;
            let expected = if carried { pong.sent } else { 0 };
            Ok(if pong.received == expected { Ok(()) } else { Err(format!("{pong:?}")) })
        })
        .unwrap();
    }

    trial.bed.cluster.heal().unwrap();
    trial.whole();
    trial.all_is_well("the end of three failures");
}

#[test]
#[ignore = "make test-all: a long failover"]
fn two_at_once_and_another_with_forward() {
    two_and_another("forward");
}

#[test]
#[ignore = "make test-all: a combination of what others prove"]
fn two_at_once_and_another_with_stop() {
    two_and_another("stop");
}

/// One daemon after another, as long as corosync has its quorum: the last one carries everything.
#[test]
#[ignore = "make test-all: a long failover"]
fn one_daemon_after_another() {
    let mut trial = Trial::start("one-by-one", &five("stop"));
    let mut left: Vec<u8> = (1..=5).collect();
    while left.len() > 1 {
        let owner = trial.bed.owner_among(1, &left).unwrap().unwrap();
        left.retain(|node| *node != owner);
        let what = format!("{} of five daemons dead", 5 - left.len());
        let seen = trial.under_traffic(&what, |bed| bed.strike(owner, Failure::Testudod).unwrap());
        not_doubled(&what, FormerOwner::Silent, &seen);
        within(&what, OUTAGE_LIMIT, &seen);
        trial.bed.await_members(&left).unwrap();
    }
    trial.all_is_well("four of five daemons dead");
}
