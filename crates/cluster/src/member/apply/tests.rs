use super::*;
use crate::member::samples::{START, first, id, member};
use crate::update::{Left, encode};

/// The view has changed before it came back. The others take no shard by what an earlier view said.
#[test]
fn a_shard_that_was_given_away_in_an_earlier_view_goes_on_at_the_node_that_gave_it() {
    for (from, goes_on) in [(1, true), (2, false)] {
        let member = &mut member();
        member.core.view.epoch = 5;
        let shard = first(member.core.table.owned_by(id(from)));
        let drop = Op::SegDrop { shard, to: id(3 - from), epoch: 4, left: Left::default() };
        let update = encode(member.core.view.version, &[drop]);
        member.delivered(START, id(from), Position::default(), &update);
        assert_eq!(member.core.table.owner(shard), Some(id(from)));
        assert_eq!(member.core.counters.not_owner, 1);
        assert_eq!(member.shards.imported.contains(shard), goes_on, "it reads the shard's IKE SAs again");
    }
}
