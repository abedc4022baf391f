//! Some hundred worlds, each with its own faults: the invariants hold.

use std::io::Write;
use testudo_sim::faults::Kind;
use testudo_sim::world::Outcome;
use testudo_sim::{
    cluster, runner,
    scenario::{Lasting, Scenario},
};

/// Number of worlds.
fn seeds() -> u64 {
    crate::worlds(crate::WORLDS)
}

fn one(seed: u64) -> Outcome {
    cluster(Scenario::random(seed))
}

/// The same, and says how far it is: a test that says nothing for twenty minutes counts as one that
/// hangs, and 2000 worlds beside labs take longer.
fn one_of_many(seed: u64) -> Outcome {
    if seed % 200 == 199 {
        let _ = writeln!(std::io::stdout(), "\nworld {}", seed + 1);
    }
    one(seed)
}

#[test]
fn the_invariants_hold_in_hundreds_of_worlds() {
    let totals = runner::run(0..seeds(), 2, false, &one_of_many);
    // Directly to stdout, because the harness hides the output of tests that pass.
    let _ = writeln!(std::io::stdout(), "\n{totals}");
    let failed: Vec<u64> = totals.failed.iter().map(|outcome| outcome.seed).collect();
    let first: String = totals.failed.iter().take(3).map(Outcome::to_string).collect();
    let told =
        format!("{first}seeds {failed:?} have failed; testudo-sim --seeds 1 --from SEED shows one\n{totals}");
    assert!(failed.is_empty(), "{told}");
    // All nodes have the same octets of each IKE SA, whatever happens.
    assert_eq!(totals.counters["changes that do not fit"], 0, "{told}");
    // Worlds in which nothing happens prove nothing.
    for what in ["changes told", "tunnels", "rekeyings", "packets delivered", "packets relayed", "views"] {
        assert!(totals.counters[what] > 1000, "{what}: {told}");
    }
    // These are rare, and should be.
    assert!(totals.counters["unseen doubles"] > 100, "{told}");
    // The engine has delivered messages to their senders only, and then lost them.
    assert!(totals.counters["messages lost with their senders"] > 100, "{told}");
    assert!(
        totals.faults.values().all(|count| *count > 0) && totals.faults.len() == Kind::ALL.len(),
        "{totals}"
    );
}

/// A node cannot tell the death of another from a partition, and carries its shards at once.
#[test]
fn in_partitions_two_nodes_accept_a_few_packets_provisionally() {
    let partitions = |seed| cluster(Scenario { only: vec![Kind::Partition], ..Scenario::random(seed) });
    let totals = runner::run(0..seeds() / 5, 2, false, &partitions);
    assert!(totals.failed.is_empty(), "{totals}");
    assert!(totals.counters["provisional doubles"] > 5, "{totals}");
}

/// Worlds with a permanent fault, after faults of one kind: a thirtieth of the others.
fn for_good(lasting: Lasting, nodes: usize, kind: Kind) {
    let worlds =
        (0..seeds() / 30).map(|seed| Scenario { lasting, only: vec![kind], ..Scenario::random(seed) });
    for scenario in worlds.filter(|scenario| scenario.nodes >= nodes) {
        let outcome = cluster(scenario);
        assert!(outcome.violations.is_empty(), "{outcome}");
    }
}

#[test]
fn a_permanently_stopped_node_blocks_no_other() {
    for_good(Lasting::Stopped, 3, Kind::PauseProcess);
}

#[test]
fn a_node_with_a_permanently_failed_port_gives_its_shards_away() {
    for_good(Lasting::Carrier, 2, Kind::Port);
    for_good(Lasting::Silent, 3, Kind::Port);
}

#[test]
fn a_world_does_the_same_again() {
    for seed in [3, 20] {
        let [first, second] = [0, 1].map(|_| one(seed));
        assert_eq!((first.steps, first.digest), (second.steps, second.digest), "seed {seed}");
    }
}
