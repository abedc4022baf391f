use super::*;
use crate::group::Ingress;
use crate::member::Member;
use crate::member::samples::{first, id, routed_member};

/// A message of an initiator with these SPIs: the header alone (RFC 7296 §3.1).
fn message(initiator: IkeSpi, responder: IkeSpi) -> Vec<u8> {
    let rest = [46, 0x20, 37, 8, 0, 0, 0, 2, 0, 0, 0, 28];
    [&initiator.to_bytes()[..], &responder.to_bytes(), &rest].concat()
}

fn speaker(member: &Member, message: &[u8]) -> Option<NodeId> {
    member.shards.speaker(&member.core, message)
}

#[test]
fn a_message_is_relayed_to_the_owner_of_its_shard_if_that_is_another_member() {
    let mut member = routed_member();
    let [own, theirs] = [1, 2].map(|node| {
        let shard = first(member.core.table.owned_by(id(node)));
        message(IkeSpi(7), IkeSpi(u64::from(shard.0) << 56 | 1))
    });
    assert_eq!((speaker(&member, &own), speaker(&member, &theirs)), (None, Some(id(2))));
    assert_eq!(speaker(&member, &theirs[..20]), None, "it is none");
    member.core.view.members = vec![id(1)];
    assert_eq!(speaker(&member, &theirs), None, "the owner is gone");
    member.core.view.members = vec![id(1), id(2)];
    member.core.view.running = false;
    assert_eq!(speaker(&member, &theirs), None, "nobody knows who is there");
    member.core.view.running = true;
    member.core.config.group.ingress = Ingress::Flood;
    assert_eq!(speaker(&member, &theirs), None, "all nodes have it");
}

/// Otherwise two nodes would answer it.
#[test]
fn a_first_message_is_relayed_only_by_a_node_that_speaks_for_no_shard() {
    let mut member = routed_member();
    let core = &member.core;
    let owner = |spi: &IkeSpi| core.table.owner(core.key.initiator(spi.to_bytes()));
    let theirs = (1..).map(IkeSpi).find(|spi| owner(spi) == Some(id(2))).unwrap();
    let first = message(theirs, IkeSpi(0));
    assert_eq!(speaker(&member, &first), None);
    member.shards.shown.ike = ShardSet::EMPTY;
    assert_eq!(speaker(&member, &first), Some(id(2)));
}
