//! What nodes tell each other of their pieces.

use super::super::telling::Hearing;
use crate::group::Ticket;
use crate::member::Member;
use crate::member::core::Unheard;
use crate::member::samples::{START, has_published, id, member};
use crate::update::{Class, Effect, Manifest, PieceName, Secret};

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
    assert!(has_published(core));
}

/// What it had may be older than what the others have.
#[test]
fn a_node_tells_its_pieces_in_a_view_once_it_has_heard_those_of_the_others() {
    let mut member = member();
    let Member { core, configuration, .. } = &mut member;
    let name = PieceName { class: Class::Connection, name: "connection gw".into() };
    let octets = Secret::new(vec![1, 2, 3].into());
    configuration.replicates = true;
    configuration.change_alone(Effect::Set(name), octets);
    let mut tells = |running, is_hearing: bool, knows_owners: bool, said| {
        core.view.running = running;
        configuration.hearing = is_hearing.then(Hearing::default);
        core.unheard_of = (!knows_owners).then(Unheard::default);
        configuration.said = said;
        configuration.tell_untold_pieces(core);
        core.commits.is_waiting()
    };
    assert!(!tells(false, false, true, None), "no view");
    assert!(!tells(true, true, true, None), "the pieces are still to come");
    assert!(!tells(true, false, false, None), "the owners are still to come");
    assert!(!tells(true, false, true, Some(Ticket(9))), "the part before is under way");
    assert!(tells(true, false, true, None));
}
