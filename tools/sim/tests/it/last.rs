//! The last node may go on alone: worlds of `quorum = "last_man_standing"`.

use testudo_ike::config::Unique;
use testudo_sim::checks::Invariant;
use testudo_sim::engine::Votes;
use testudo_sim::runner::{self, Totals};
use testudo_sim::scenario::{Lasting, Scenario};
use testudo_sim::world::Outcome;

/// Number of worlds with random faults.
fn seeds() -> u64 {
    crate::worlds(30)
}

/// Nodes of four die in this order, down to the last.
fn die(seed: u64, order: &[usize]) -> Outcome {
    let mut scenario = Scenario::random(seed);
    // No peer loses its memory.
    scenario.manners.iter_mut().for_each(|manners| manners.unique = [Unique::Never; 2]);
    let clocks = scenario.clocks.iter().copied().cycle().take(4).collect();
    testudo_sim::dying(Scenario { nodes: 4, clocks, votes: Votes::LastManStanding, ..scenario }, order)
}

#[test]
fn all_tunnels_live_while_nodes_of_four_die_one_by_one_down_to_the_last() {
    for seed in 0..4 {
        for order in [[3, 2, 1], [1, 3, 2], [0, 1, 3]] {
            let outcome = die(seed, &order);
            assert!(outcome.violations.is_empty(), "{order:?}: {outcome}");
            assert!(outcome.counters["packets delivered"] > 100, "{:?}", outcome.counters);
        }
    }
}

/// Of the last two the lower one has died. The other cannot know that, and waits.
#[test]
fn the_higher_of_two_nodes_does_not_go_on_alone() {
    let outcome = die(1, &[0, 1, 2]);
    assert!(outcome.violations[0].to_string().contains("do not agree"), "{outcome}");
}

fn run(rollbacks: bool) -> Totals {
    let one = |seed| {
        let scenario = Scenario::random(seed);
        let (votes, lasting) = (Votes::LastManStanding, Lasting::None);
        testudo_sim::cluster(Scenario { votes, lasting, rollbacks, ..scenario })
    };
    runner::run(0..seeds(), 2, false, &one)
}

/// The worlds that broke more than the last rule: that all tunnels are there again at the end.
fn broken(totals: &Totals) -> Vec<&Outcome> {
    let is_broken = |outcome: &&Outcome| {
        outcome.violations.iter().any(|violation| violation.invariant != Invariant::Recovery)
    };
    totals.failed.iter().filter(is_broken).collect()
}

fn assert_none(failed: &[&Outcome], totals: &Totals) {
    let seeds: Vec<u64> = failed.iter().map(|outcome| outcome.seed).collect();
    let first: String = failed.iter().take(3).map(ToString::to_string).collect();
    assert!(failed.is_empty(), "{first}seeds {seeds:?} have failed\n{totals}");
}

/// The lower of the last two nodes may die right after a view has begun there. It does not remember
/// then whether it has gone on alone, and all begin with nothing. That is rare.
#[test]
fn the_invariants_hold_whatever_the_engine_calls_quorate() {
    let totals = run(false);
    assert_none(&broken(&totals), &totals);
    assert!(totals.failed.len() as u64 * 50 <= seeds(), "{totals}");
    for what in ["tunnels", "packets delivered", "views"] {
        assert!(totals.counters[what] > 5 * seeds(), "{what}: {totals}");
    }
}

/// A node that was set back may have been the last, and have forgotten it: then all begin with
/// nothing, and peers may take longer than a world lasts to set their tunnels up again.
#[test]
fn a_node_that_was_set_back_costs_tunnels_at_most() {
    let totals = run(true);
    assert_none(&broken(&totals), &totals);
}
