//! The node that carries the tunnel is cut off from the other nodes, or from everything.

use super::{FormerOwner, LIMIT, OUTAGE_LIMIT, Seen, Trial, hardly_doubled, not_doubled, others, within};
use testudo_lab::bed::{BedOptions, Failure};
use testudo_lab::cluster::{Cut, Net};
use testudo_lab::topology::Family;
use testudo_lab::wait_until;

/// Cuts the owner off and joins it again, in each of these ways.
fn cut_off(name: &str, ways: &[Cut], failure: fn(Cut) -> Failure, doubled: fn(&str, &Seen)) {
    let mut trial = Trial::start(name, &BedOptions::default());
    for how in ways.iter().copied() {
        let owner = trial.bed.owner(1).unwrap();
        let failure = failure(how);
        let what = format!("{failure:?} of node {owner}");
        let seen = trial.under_traffic(&what, |bed| {
            bed.strike(owner, failure).unwrap();
            // Probes continue until the engine has reported it.
            bed.await_members(&others(owner)).unwrap();
        });
        doubled(&what, &seen);
        within(&what, OUTAGE_LIMIT, &seen);
        trial.all_is_well(&what);

        let what = format!("the end of {what}");
        let seen = trial.under_traffic(&what, |bed| {
            bed.mend(owner, failure).unwrap();
            bed.await_all().unwrap();
        });
        doubled(&what, &seen);
        within(&what, OUTAGE_LIMIT, &seen);
        trial.all_is_well(&what);
    }
}

fn cluster_link(name: &str, ways: &[Cut]) {
    // The engine gives the owner up while it lives: its standby carries with the view, and the
    // owner until it hears of that, by the next heartbeat (`group::tests::heartbeats` shows that it
    // is the first); at the latest until its fence has run out. At a datagram each millisecond that
    // is a few. What a slow machine adds is allowed here.
    let doubled = |what: &str, seen: &Seen| hardly_doubled(what, 300, seen);
    cut_off(name, ways, |how| Failure::Link(Net::Cluster, how), doubled);
}

#[test]
fn the_cluster_link_is_cut() {
    cluster_link("cut-cluster", &[Cut::Silent]);
}

#[test]
#[ignore = "make test-all: a combination of what others prove"]
fn the_cluster_link_is_cut_in_both_ways() {
    cluster_link("cut-cluster-2", &[Cut::Silent, Cut::Carrier]);
}

fn all_links(name: &str, ways: &[Cut]) {
    let doubled = |what: &str, seen: &Seen| not_doubled(what, FormerOwner::PassedOver, seen);
    cut_off(name, ways, Failure::AllLinks, doubled);
}

#[test]
fn all_links_are_cut() {
    all_links("cut-all", &[Cut::Carrier]);
}

#[test]
#[ignore = "make test-all: a combination of what others prove"]
fn all_links_are_cut_in_both_ways() {
    all_links("cut-all-2", &[Cut::Silent, Cut::Carrier]);
}

/// A port alone: the other nodes hear the node on its other links, so it is no suspect, and nothing
/// comes through it. It hands its shards over, and gets them back.
fn port_fails(name: &str, options: &BedOptions, failures: impl IntoIterator<Item = Failure>) {
    let mut trial = Trial::start(name, options);
    for failure in failures {
        let owner = trial.bed.owner(1).unwrap();
        let what = format!("{failure:?} of node {owner}");
        let seen = trial.under_traffic(&what, |bed| bed.strike(owner, failure).unwrap());
        not_doubled(&what, FormerOwner::HandsOver, &seen);
        within(&what, OUTAGE_LIMIT, &seen);
        assert_ne!(trial.bed.owner(1).unwrap(), owner, "{what}");
        trial.all_is_well(&what);

        let what = format!("the end of {what}");
        let seen = trial.under_traffic(&what, |bed| {
            bed.mend(owner, failure).unwrap();
            wait_until("the shard to come back", LIMIT, || {
                let back = bed.owner_among(1, &[owner])?.is_some();
                Ok(if back { Ok(()) } else { Err(format!("node {owner} has not got it")) })
            })
            .unwrap();
        });
        not_doubled(&what, FormerOwner::HandsOver, &seen);
        within(&what, OUTAGE_LIMIT, &seen);
        trial.all_is_well(&what);
    }
}

#[test]
fn a_port_is_cut() {
    let failures = [(Net::Outer, Cut::Silent), (Net::Inner, Cut::Carrier)];
    port_fails("cut-port", &BedOptions::default(), failures.map(|(net, how)| Failure::Link(net, how)));
}

#[test]
#[ignore = "make test-all: a combination of what others prove"]
fn the_other_port_is_cut() {
    let failures = [(Net::Outer, Cut::Carrier), (Net::Inner, Cut::Silent)];
    port_fails("cut-other", &BedOptions::default(), failures.map(|(net, how)| Failure::Link(net, how)));
}

/// A port whose interface is deleted behaves like one that is cut; the daemon continues, and uses
/// the new interface.
#[test]
fn a_port_goes_and_comes_again() {
    port_fails("port-gone", &BedOptions::default(), [Failure::Gone(Net::Outer)]);
}

#[test]
#[ignore = "make test-all: a combination of what others prove"]
fn the_other_port_goes_and_comes_again() {
    port_fails("other-gone", &BedOptions::default(), [Failure::Gone(Net::Inner)]);
}

/// Peers and heartbeats speak IPv6 there.
#[test]
#[ignore = "make test-all: the other family"]
fn a_port_is_cut_where_all_is_ipv6() {
    let options = BedOptions { outside: Family::V6, ..BedOptions::default() };
    port_fails("cut-port-6", &options, [Failure::Link(Net::Outer, Cut::Silent)]);
}
