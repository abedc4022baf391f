//! Where the last node may go on alone.

use super::*;

/// The members vote on the rest: two nodes may be more than half of those that were left.
#[test]
fn where_the_last_may_go_on_those_who_remain_are_half_of_the_group_with_its_first() {
    for (stays, quorate) in [(1, true), (2, false)] {
        let rule = QuorumRule::LastManStanding;
        let mut cluster = Cluster { ring: R1, configured: 4, rule, ..Cluster::default() };
        (1..=2).for_each(|node| cluster.join(process(node)));
        cluster.settle();
        assert!(cluster.views(process(1)).last().unwrap().quorate);
        cluster.alive(&[stays], 5);
        let view = *cluster.views(process(stays)).last().unwrap();
        assert_eq!((numbers(view), view.quorate), (vec![stays as u8], quorate));
    }
}
