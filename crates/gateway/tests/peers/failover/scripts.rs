//! `updown` scripts are run where the SA is.

use super::{LIMIT, Trial};
use std::os::unix::fs::PermissionsExt;
use testudo_lab::bed::BedOptions;
use testudo_lab::wait_until;

/// A node that takes an SA over runs its script up, and the one that gives it away runs it down.
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
}
