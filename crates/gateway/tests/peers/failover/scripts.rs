//! `updown` scripts are run where the SA is.

use super::{LIMIT, Trial};
use std::os::unix::fs::PermissionsExt;
use testudo_lab::bed::{BedOptions, Failure};
use testudo_lab::wait_until;

/// A node that takes an SA over runs its script up, and the one that gives it away runs it down. One
/// that dies runs nothing, and the next one runs it up.
#[test]
fn scripts_follow_the_owner() {
    let dir = tempfile::tempdir().unwrap();
    let (program, notes) = (dir.path().join("updown"), dir.path().join("notes"));
    // A node is known by its network namespace.
    let body = format!("#!/bin/sh\necho $PLUTO_VERB $(readlink /proc/self/ns/net) >>{}\n", notes.display());
    std::fs::write(&program, body).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut trial = Trial::start_with("scripts", &BedOptions::default(), |from_peer, connection| {
        if !from_peer && connection.name == "peer1" {
            connection.more_child.push(format!("updown = {}", program.display()));
        }
    });
    let runs = || -> Vec<(String, String)> {
        let notes = std::fs::read_to_string(&notes).unwrap_or_default();
        let run = |line: &str| line.split_once(' ').map(|(verb, node)| (verb.to_owned(), node.to_owned()));
        notes.lines().filter_map(run).collect()
    };
    let nodes_of = |direction: &str| -> Vec<String> {
        let mut nodes: Vec<String> = runs()
            .into_iter()
            .filter(|(verb, _)| verb.starts_with(direction))
            .map(|(_, node)| node)
            .collect();
        nodes.dedup();
        nodes
    };
    wait_until("a run at the owner", LIMIT, || {
        let up = nodes_of("up-");
        Ok(if up.len() == 1 { Ok(()) } else { Err(format!("{up:?}")) })
    })
    .unwrap();
    let owner = trial.bed.owner(1).unwrap();
    let asked = owner % 3 + 1;
    trial.bed.node(asked).drain(&[&owner.to_string()]).unwrap();
    wait_until("runs at both owners", LIMIT, || {
        let (up, down) = (nodes_of("up-"), nodes_of("down-"));
        let fits = up.len() == 2 && up[0] != up[1] && down == up[..1];
        Ok(if fits { Ok(()) } else { Err(format!("{:?}", runs())) })
    })
    .unwrap();
    trial.all_is_well("a drain");

    let owner = trial.bed.owner(1).unwrap();
    let before = nodes_of("up-").len();
    trial.bed.strike(owner, Failure::Testudod).unwrap();
    wait_until("a run at the next owner", LIMIT, || {
        let (up, down) = (nodes_of("up-"), nodes_of("down-"));
        let fits = up.len() == before + 1 && up[before] != up[before - 1] && down.len() == 1;
        Ok(if fits { Ok(()) } else { Err(format!("{:?}", runs())) })
    })
    .unwrap();
    trial.bed.mend(owner, Failure::Testudod).unwrap();
    trial.all_is_well("a node's death");
}

/// All nodes get the configuration of one, even nodes without the script: they warn, and carry the
/// tunnel without it.
#[test]
fn a_node_without_the_script_has_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("updown");
    let options = BedOptions { loads_one: true, ..BedOptions::default() };
    let mut trial = Trial::start_with("noscript", &options, |from_peer, connection| {
        if !from_peer {
            connection.more_child.push(format!("updown = {}", missing.display()));
        }
    });
    let warned = format!("{}: No such file or directory", missing.display());
    for node in 1..=3 {
        trial.bed.node(node).process().wait_log(&warned, LIMIT).unwrap();
    }
    let owner = trial.bed.owner(1).unwrap();
    trial.bed.node(owner % 3 + 1).drain(&[&owner.to_string()]).unwrap();
    wait_until("another owner", LIMIT, || {
        let now = trial.bed.owner_among(1, &[1, 2, 3])?;
        Ok(if now.is_some_and(|now| now != owner) { Ok(()) } else { Err(format!("{now:?}")) })
    })
    .unwrap();
    trial.all_is_well("a drain");
}
