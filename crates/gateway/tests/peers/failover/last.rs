//! All nodes but one may die: `quorum = "last_man_standing"`.

use super::{FormerOwner, LIMIT, OUTAGE_LIMIT, Trial, not_doubled, within};
use std::time::Duration;
use testudo_lab::bed::{Bed, BedOptions, Failure, Votes};
use testudo_lab::corosync::Timers;
use testudo_lab::gateway::Kind;
use testudo_lab::{Lab, wait_until};

const WINDOW: Duration = Duration::from_secs(1);

fn four() -> BedOptions {
    BedOptions {
        nodes: 4,
        peers: vec![Kind::Strongswan; 2],
        cluster: "no_quorum = \"stop\"\nquorum = \"last_man_standing\"".into(),
        timers: Timers { token: Duration::from_millis(300), consensus: Duration::from_millis(360) },
        votes: Votes::LastManStanding(WINDOW),
        ..BedOptions::default()
    }
}

/// Both daemons of a node die.
fn kill(bed: &mut Bed, node: u8) {
    bed.strike(node, Failure::Corosync).unwrap();
    bed.strike(node, Failure::Testudod).unwrap();
}

/// A node's daemons start again.
fn revive(bed: &mut Bed, node: u8) {
    bed.mend(node, Failure::Corosync).unwrap();
    bed.mend(node, Failure::Testudod).unwrap();
}

/// The owner of a tunnel dies each time, until the last node carries everything. Of the last two
/// the higher has to die. One that returns gets the state, and then all do.
#[test]
fn nodes_of_four_die_one_by_one_down_to_the_last() {
    let mut trial = Trial::start("last-man", &four());
    let mut left: Vec<u8> = (1..=4).collect();
    let mut dead = Vec::new();
    while let [first, .., last] = left[..] {
        let owner = trial.bed.owner_among(1, &left).unwrap().unwrap();
        let victim = if left == [first, last] { last } else { owner };
        left.retain(|node| *node != victim);
        dead.push(victim);
        let what = format!("{dead:?} of four nodes dead");
        let seen = trial.under_traffic(&what, |bed| kill(bed, victim));
        not_doubled(&what, FormerOwner::Silent, &seen);
        within(&what, OUTAGE_LIMIT, &seen);
        trial.bed.await_members(&left).unwrap();
        trial.bed.corosync(left[0]).wait_for_expected(left.len(), LIMIT).unwrap();
        trial.all_is_well(&what);
    }

    let back = dead.pop().unwrap();
    revive(&mut trial.bed, back);
    let mut two = vec![left[0], back];
    two.sort_unstable();
    trial.bed.await_members(&two).unwrap();
    trial.all_is_well("one of them returns");
    dead.iter().for_each(|node| revive(&mut trial.bed, *node));
    trial.whole();
    trial.all_is_well("all of them return");
}

/// Two of four nodes are cut off from the others. The half with the lowest node takes all tunnels
/// over; the other has no quorum.
#[test]
fn of_two_halves_the_one_with_the_lowest_node_goes_on() {
    let what = "a split in two halves";
    let mut trial = Trial::start("last-man-split", &four());
    let seen = trial.under_traffic(what, |bed| bed.split(&[3, 4]).unwrap());
    not_doubled(what, FormerOwner::PassedOver, &seen);
    within(what, OUTAGE_LIMIT, &seen);
    trial.bed.await_members(&[1, 2]).unwrap();
    for node in [3, 4] {
        wait_until(&format!("no quorum at node {node}"), LIMIT, || {
            let shown = trial.bed.node(node).cluster()?;
            Ok(if shown["view"]["quorate"] == false { Ok(()) } else { Err(shown.to_string()) })
        })
        .unwrap();
    }
    trial.all_is_well(what);
    trial.bed.cluster.heal().unwrap();
    trial.whole();
    trial.all_is_well("both halves together");
}

/// Corosync's votes may be counted by another rule than testudo.toml says.
#[test]
fn a_rule_that_corosync_does_not_have_is_told() {
    let options = BedOptions { nodes: 2, peers: vec![], votes: Votes::Nodes, ..four() };
    let bed = Bed::start(&Lab::new("last-man-misfit").unwrap(), &options).unwrap();
    for node in &bed.nodes {
        wait_until("the diagnosis", LIMIT, || {
            let why = node.cluster()?["why"].to_string();
            let told = why.contains("the section quorum of corosync.conf lacks last_man_standing: 1");
            Ok(if told { Ok(()) } else { Err(why) })
        })
        .unwrap();
    }
}
