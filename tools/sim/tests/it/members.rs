//! Operators add nodes to the cluster and remove others, while faults strike.

use testudo_sim::runner::{self, Totals};
use testudo_sim::scenario::Scenario;

/// Number of worlds.
fn seeds() -> u64 {
    crate::worlds(20)
}

#[test]
fn no_change_of_the_nodes_breaks_an_invariant() {
    let totals: Totals =
        runner::run(0..seeds(), 2, false, &|seed| testudo_sim::cluster(Scenario::changing(seed)));
    let failed: Vec<u64> = totals.failed.iter().map(|outcome| outcome.seed).collect();
    let first: String = totals.failed.iter().take(3).map(ToString::to_string).collect();
    assert!(failed.is_empty(), "{first}seeds {failed:?} have failed\n{totals}");
    // Of five nodes, each tells how many changes it knows.
    for (what, each) in
        [("tunnels", 4), ("packets delivered", 500), ("views", 10), ("changes of the nodes", 15)]
    {
        assert!(totals.counters[what] > each * seeds(), "{what}: {totals}");
    }
}
