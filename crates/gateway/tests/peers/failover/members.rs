//! Nodes are added to a running cluster and removed from it.

use super::planned::{patient, unnoticed};
use super::{LIMIT, Trial};
use testudo_lab::bed::{Bed, BedOptions};
use testudo_lab::{Lab, wait_until};

fn with_spares(spare: u8) -> BedOptions {
    patient(BedOptions { spare, ..BedOptions::default() })
}

/// How many shards a node owns, as it says itself.
fn shards(bed: &Bed, node: u8) -> u64 {
    let shown = bed.nodes[usize::from(node) - 1].cluster().unwrap();
    let nodes = shown["nodes"].as_array().unwrap().clone();
    nodes.iter().find(|one| one["id"] == node).and_then(|one| one["shares"].as_u64()).unwrap()
}

fn await_quorum(bed: &Bed, node: u8, quorate: bool) {
    wait_until(&format!("quorum at node {node}: {quorate}"), LIMIT, || {
        let shown = bed.nodes[usize::from(node) - 1].cluster()?;
        Ok(if shown["view"]["quorate"] == quorate { Ok(()) } else { Err(shown.to_string()) })
    })
    .unwrap();
}

/// The fourth node gets its part of the shards, and is removed again: no datagram is lost, and the
/// peers keep their IKE SAs. Then a majority of the three that are left goes on.
#[test]
fn a_node_is_added_under_traffic_and_another_is_removed() {
    let mut trial = Trial::start("members", &with_spares(1));
    trial.bed.await_nodes(&[1, 2, 3]).unwrap();
    unnoticed(&mut trial, "a fourth node", |bed| {
        let told = bed.add_node(2, 4).unwrap();
        assert_eq!((&told["nodes"], &told["done"]), (&serde_json::json!([1, 2, 3, 4]), &false.into()));
        assert_eq!(told["corosync_behind"], serde_json::json!([1, 2, 3]), "{told}");
        bed.tell_corosync(&[1, 2, 3, 4]).unwrap();
        bed.await_nodes(&[1, 2, 3, 4]).unwrap();
        assert_eq!(bed.start_spare().unwrap(), 4);
        bed.await_all().unwrap();
        bed.await_balance().unwrap();
    });
    assert!(shards(&trial.bed, 4) > 50, "{}", shards(&trial.bed, 4));

    unnoticed(&mut trial, "a node that is removed", |bed| {
        let told = bed.remove_node(1, 4, 0);
        // It waits for the drain, in which nothing is to be done by then.
        assert!(told.is_err(), "{told:?}");
        bed.node(2).drain(&["4"]).unwrap();
        bed.remove_node(1, 4, 0).unwrap();
        bed.await_members(&[1, 2, 3]).unwrap();
        bed.end_last().unwrap();
        bed.tell_corosync(&[1, 2, 3]).unwrap();
        bed.await_nodes(&[1, 2, 3]).unwrap();
        bed.await_balance().unwrap();
    });

    // A majority of three, which of four it would not be.
    let what = "one of the three that are left dies";
    trial.under_traffic(what, |bed| {
        bed.strike(3, testudo_lab::bed::Failure::Corosync).unwrap();
        bed.strike(3, testudo_lab::bed::Failure::Testudod).unwrap();
        bed.await_members(&[1, 2]).unwrap();
    });
    trial.all_is_well(what);
    let removed = trial.bed.remove_node(1, 3, 0).unwrap();
    assert_eq!(removed["nodes"], serde_json::json!([1, 2]), "a dead node is removed");
}

/// Corosync counts by three nodes as long as nobody tells it of the fourth, and calls two of them
/// quorate. The cluster counts by four.
#[test]
fn majorities_are_counted_by_the_clusters_nodes_and_not_by_corosyncs() {
    let options = BedOptions { peers: Vec::new(), ..with_spares(1) };
    let mut bed = Bed::start(&Lab::large("members-quorum", 2).unwrap(), &options).unwrap();
    bed.await_nodes(&[1, 2, 3]).unwrap();
    bed.add_node(1, 4).unwrap();
    let again = bed.add_node(1, 5).unwrap_err().to_string();
    assert!(
        again.contains("corosync of nodes 1, 2, 3 has other nodes than the cluster (1, 2, 3, 4)"),
        "{again}"
    );
    for failure in [testudo_lab::bed::Failure::Corosync, testudo_lab::bed::Failure::Testudod] {
        bed.strike(3, failure).unwrap();
    }
    for node in [1, 2] {
        await_quorum(&bed, node, false);
        assert!(bed.corosyncs[usize::from(node) - 1].is_quorate().unwrap(), "corosync goes by three");
    }
    // After a restart, too, although its testudo.toml has three nodes.
    bed.node(1).stop().unwrap();
    bed.node(1).restart().unwrap();
    await_quorum(&bed, 1, false);
    let said = "cluster.nodes: found nodes 1, 2, 3, expected those of the cluster: 1 (";
    bed.node(1).process().wait_log(said, LIMIT).unwrap();

    for failure in [testudo_lab::bed::Failure::Corosync, testudo_lab::bed::Failure::Testudod] {
        bed.mend(3, failure).unwrap();
    }
    bed.await_members(&[1, 2, 3]).unwrap();
    bed.tell_corosync(&[1, 2, 3, 4]).unwrap();
    bed.await_nodes(&[1, 2, 3, 4]).unwrap();
    bed.start_spare().unwrap();
    bed.await_all().unwrap();
    for failure in [testudo_lab::bed::Failure::Corosync, testudo_lab::bed::Failure::Testudod] {
        bed.strike(3, failure).unwrap();
    }
    bed.await_members(&[1, 2, 4]).unwrap();
}
