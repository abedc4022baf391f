//! What nodes tell each other of their pieces.

use super::super::telling::Hearing;
use crate::member::Member;
use crate::member::core::Unheard;
use crate::member::samples::{START, id, member};
use crate::update::Manifest;

/// One that is away, or has not heard all yet, knows only what it had.
#[test]
fn a_node_shows_whether_it_knows_the_pieces_of_the_others() {
    let mut member = member();
    let Member { core, configuration, .. } = &mut member;
    assert!(!configuration.configuration_status(core).is_current);
    core.view.running = true;
    assert!(configuration.configuration_status(core).is_current);
    core.unheard_of = Some(Unheard::default());
    assert!(!configuration.configuration_status(core).is_current);
    core.unheard_of = None;
    configuration.hearing = Some(Hearing::default());
    assert!(!configuration.configuration_status(core).is_current);
}

/// Whose digest differed, and is not there any more, is not shown.
#[test]
fn a_view_begins_without_the_digests_of_nodes_that_have_left_and_all_are_told_anew() {
    let mut member = member();
    let Member { core, configuration, .. } = &mut member;
    (core.view.running, core.view.members) = (true, vec![id(1), id(2), id(3)]);
    configuration.begin_manifests(core, START);
    assert_eq!(configuration.next_manifest(core), None, "nobody has any pieces");
    for node in [2, 3] {
        configuration.manifest_told(core, START, id(node), Manifest { whole: 7, pieces: None });
    }
    assert_eq!(configuration.configuration_status(core).differ, [id(2), id(3)]);
    core.view.members.pop();
    configuration.begin_manifests(core, START);
    assert_eq!(configuration.configuration_status(core).differ, [id(2)]);
    let due = configuration.next_manifest(core).expect("another node has pieces");
    assert!(due > START);
    configuration.tell_manifest(core, due);
    assert!(core.commits.is_waiting());
}
