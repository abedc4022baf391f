//! Two nodes: with a witness, whose vote makes one of them a quorum, and without.

use super::{Trial, hardly_doubled, not_doubled, within};
use std::time::Duration;
use testudo_lab::bed::{BedOptions, Failure, Votes};
use testudo_lab::cluster::Cut;

fn two(votes: Votes) -> BedOptions {
    BedOptions { nodes: 2, votes, ..BedOptions::default() }
}

/// As docs/cluster.md has it.
const DEVICE_TIMEOUT: Duration = Duration::from_secs(2);

fn witnessed() -> BedOptions {
    two(Votes::Witness(DEVICE_TIMEOUT))
}

fn other(node: u8) -> u8 {
    3 - node
}

/// A daemon, or a node, is gone: the other one carries on alone, with the vote of the witness, and gives back what it took.
fn survived(name: &str, failure: Failure, limit: Duration) {
    let mut trial = Trial::start(name, &witnessed());
    let owner = trial.bed.owner(1).unwrap();
    let what = format!("two and a witness: {failure:?}");
    let seen = trial.under_traffic(&what, |bed| bed.strike(owner, failure).unwrap());
    not_doubled(&what, &seen);
    within(&what, limit, &seen);
    trial.bed.await_members(&[other(owner)]).unwrap();
    assert_eq!(trial.bed.owner_among(1, &[other(owner)]).unwrap(), Some(other(owner)), "it speaks IKE");
    trial.all_is_well(&what);

    let what = format!("the end of {failure:?}");
    let seen = trial.under_traffic(&what, |bed| {
        bed.mend(owner, failure).unwrap();
        bed.await_all().unwrap();
    });
    // Who was cut off carries what it had until it has heard of the other's view.
    hardly_doubled(&what, 999, &seen);
    trial.all_is_well(&what);
}

#[test]
fn testudod_is_killed_with_a_witness() {
    survived("two-testudod", Failure::Testudod, Duration::from_secs(5));
}

#[test]
fn corosync_is_killed_with_a_witness() {
    survived("two-corosync", Failure::Corosync, Duration::from_secs(5));
}

#[test]
fn all_links_are_cut_with_a_witness() {
    survived("two-links", Failure::AllLinks(Cut::Silent), Duration::from_secs(15));
}
