//! A cluster falls into two parts, 2|1, on all networks.

use super::{FormerOwner, Trial, hardly_doubled, not_doubled, others};
use testudo_lab::bed::BedOptions;

fn forwarding() -> BedOptions {
    BedOptions { cluster: "no_quorum = \"forward\"".into(), ..BedOptions::default() }
}

/// The owner is alone, and the peers are with the majority, which takes over; when all are in one
/// view again there is no effect.
#[test]
fn the_owner_is_parted_from_the_majority_and_the_peers() {
    let mut trial = Trial::start("part-owner", &forwarding());
    let owner = trial.bed.owner(1).unwrap();
    let what = "a partition 2|1 with the owner alone";
    let seen = trial.under_traffic(what, |bed| bed.split(&[owner]).unwrap());
    not_doubled(what, FormerOwner::PassedOver, &seen);
    trial.all_is_well(what);
    let what = "its end";
    let seen = trial.under_traffic(what, |bed| {
        bed.cluster.heal().unwrap();
        bed.await_all().unwrap();
    });
    not_doubled(what, FormerOwner::PassedOver, &seen);
    trial.all_is_well(what);
}

/// The owner is alone with the peers: with `forward` it continues to carry packets, without IKE.
/// The majority owns everything when the parts join again.
#[test]
#[ignore = "make test-all: a combination of what others prove"]
fn the_majority_is_parted_from_the_owner_and_the_peers() {
    let mut trial = Trial::start("part-others", &forwarding());
    let owner = trial.bed.owner(1).unwrap();
    let what = "a partition 1|2 with the peers at the owner's side";
    let seen = trial.under_traffic(what, |bed| bed.split(&others(owner)).unwrap());
    not_doubled(what, FormerOwner::PassedOver, &seen);
    let what = "its end";
    let seen = trial.under_traffic(what, |bed| {
        bed.cluster.heal().unwrap();
        bed.await_all().unwrap();
    });
    // Until the smaller part has heard of the larger one, both carry what comes.
    hardly_doubled(what, 999, &seen);
    trial.all_is_well(what);
}
