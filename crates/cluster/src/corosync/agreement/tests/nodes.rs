//! The nodes of the cluster change while a process is away.

use super::*;
use crate::group::Majorities;

/// The ring of these daemons, which corosync calls quorate by whatever it counts.
fn ring_of(daemons: &[u32]) -> Option<Claim> {
    let daemons = daemons.iter().copied().filter_map(NodeId::new).collect();
    claim(true).map(|claim| Claim { daemons, ..claim })
}

/// Processes of these nodes in a ring of their daemons; each knows so many changes, of these nodes.
fn meet(known: &[(u32, u64, &[u32])]) -> Cluster {
    let daemons: Vec<u32> = known.iter().map(|(node, ..)| *node).collect();
    let mut cluster = Cluster { ring: R1, configured: 3, ..Cluster::default() };
    for (node, number, nodes) in known {
        let nodes: Vec<NodeId> = nodes.iter().copied().filter_map(NodeId::new).collect();
        let electorate =
            Electorate { nodes: Majorities::of(&nodes), number: *number, rule: QuorumRule::Majority };
        cluster.serial += 1_000_000;
        let mut fresh = Agreement::new(process(*node), electorate, cluster.serial);
        fresh.quorum(R1, ring_of(&daemons));
        cluster.nodes.insert(process(*node), fresh);
        cluster.told.insert(process(*node), Vec::new());
    }
    cluster.members();
    cluster.settle();
    cluster
}

fn quorate(cluster: &Cluster) -> Vec<bool> {
    let last = |process: &Process| cluster.views(*process).last().is_some_and(|view| view.quorate);
    cluster.nodes.keys().map(last).collect()
}

#[test]
fn a_ring_is_judged_by_the_newest_nodes_that_a_process_knows() {
    // Node 4 is new, and its testudo.toml is as it was when it was added: two of four.
    let new = meet(&[(3, 5, &[3, 4, 5]), (4, 0, &[1, 2, 3, 4]), (5, 5, &[3, 4, 5])]);
    assert_eq!(quorate(&new), [true; 3]);
    // Node 1 was away when nodes 4 and 5 were added: two of three, and of five.
    let old = meet(&[(1, 0, &[1, 2, 3]), (2, 2, &[1, 2, 3, 4, 5])]);
    assert_eq!(quorate(&old), [false; 2]);
    // Both were away.
    let both = meet(&[(1, 0, &[1, 2, 3]), (2, 0, &[1, 2, 3])]);
    assert_eq!(quorate(&both), [true; 2]);
}

/// One of two processes has been told of the next roster: the former counts, and the next.
#[test]
fn a_change_under_way_counts_if_one_process_knows_of_it() {
    let known = meet(&[(1, 1, &[1, 2, 3]), (2, 1, &[1, 2, 3, 4])]);
    assert_eq!(quorate(&known), [false; 2]);
}

/// A build of before states nothing, and is ready all the same.
#[test]
fn processes_that_state_no_nodes_are_not_waited_for() {
    let mut cluster = Cluster { ring: R1, configured: 3, ..Cluster::default() };
    (1..=2).for_each(|node| cluster.join(process(node)));
    // What process 2 states of its nodes is lost, as if it did not.
    for _ in 0..20 {
        let is_nodes = |framed: &Vec<u8>| {
            use super::super::super::wire::{Incoming, read};
            matches!(read(framed), Incoming::Standing(Standing::Nodes(_)))
        };
        cluster.under_way.entry(process(2)).or_default().retain(|framed| !is_nodes(framed));
        let all: Vec<Process> = cluster.nodes.keys().copied().collect();
        for process in all {
            cluster.order(process);
        }
    }
    assert_eq!(quorate(&cluster), [true; 2]);
}
