//! Nodes that may go on down to the last one, whatever the engine calls quorate.

use super::net::{Net, id};
use super::views::current_and_fresh;
use crate::group::{NoQuorum, Phase, QuorumRule};

fn running(count: u8) -> Net {
    let mut net = Net::tuned(count, |config| {
        config.quorum = QuorumRule::LastManStanding;
        config.no_quorum = NoQuorum::Stop;
    });
    let all = net.all.clone();
    net.view(&all, true);
    net.settle();
    net.pass(100);
    net
}

/// The engine calls these nodes quorate. True if they go on, and their fences are open.
fn go_on(net: &mut Net, members: &[u8]) -> bool {
    net.view(members, true);
    net.settle();
    net.pass(200);
    let open = members.iter().all(|node| net.nodes[node].fence > net.now);
    let status = net.node(members[0]).group.status();
    assert_eq!(open, status.phase == Phase::Running, "{:?}", net.node(members[0]).log);
    assert_eq!(!open, status.phase == Phase::NoQuorum);
    assert_eq!(status.view.map(|view| view.quorate), Some(open), "as operators see it");
    open
}

#[test]
fn nodes_of_four_leave_one_by_one_down_to_the_last_and_come_back() {
    let mut net = running(4);
    for left in [&[1, 2, 3][..], &[1, 3], &[1]] {
        assert!(go_on(&mut net, left), "{left:?}");
    }
    net.publish(1, b"what only the last node knows");
    net.settle();
    net.restart(4);
    assert!(go_on(&mut net, &[1, 4]));
    assert_eq!(current_and_fresh(&net, 4), (vec![1], vec![4]));
    assert_eq!(net.node(4).senders, [id(4).sender(2).unwrap()], "although two of four are there");
    assert!(go_on(&mut net, &[1, 2, 3, 4]));
    assert_eq!(current_and_fresh(&net, 2), (vec![1], vec![2, 3, 4]));
}

#[test]
fn of_two_halves_the_one_with_the_lowest_node_goes_on() {
    let mut net = running(4);
    assert!(go_on(&mut net, &[1, 4]));
    assert!(!go_on(&mut net, &[2, 3]));
    assert!(!go_on(&mut net, &[4]));
    assert!(go_on(&mut net, &[1]));
    assert!(!go_on(&mut net, &[2, 3, 4]), "three of four that were left behind");
}

/// Before a view has begun everywhere, another may go on from the view before.
#[test]
fn a_view_that_one_node_never_began_does_not_hold_up_the_others() {
    let mut net = running(4);
    net.node(2).slow_disk = true;
    net.view(&[1, 2], true);
    net.settle();
    net.pass(200);
    let status = net.node(1).group.status();
    assert_eq!((status.phase, status.stable.count), (Phase::Running, 0));
    net.start(2, net.nodes[&2].disk.clone());
    assert!(go_on(&mut net, &[2, 3, 4]), "node 2 says that it never began it");
    assert!(!go_on(&mut net, &[1]), "it cannot know that");
}

/// Any view after a formed one has half of its nodes. Beside a view that has not formed another may
/// go on, with any one of them.
#[test]
fn half_of_the_members_keep_a_fence_open_once_the_view_has_formed() {
    for formed in [true, false] {
        let mut net = running(4);
        net.node(3).slow_disk = !formed;
        net.view(&[1, 2, 3], true);
        net.settle();
        net.pass(200);
        assert!(net.nodes[&1].fence > net.now, "all hear it");
        net.lost = [(1, 3), (3, 1)].into();
        net.pass(500);
        assert_eq!(net.nodes[&1].fence > net.now, formed, "node 2 alone hears it");
        assert!(net.nodes[&2].fence > net.now);
    }
}

/// Node 3 has begun a view of nodes 1 and 3, and forgotten what it began before. Node 1 says that
/// there was no such view: nodes 4 and 5, which are away, cannot have been in another.
#[test]
fn members_that_may_go_on_do_not_wait_for_what_one_of_them_has_forgotten() {
    let mut net = running(5);
    assert!(go_on(&mut net, &[1, 2, 3]));
    net.view(&[1, 3], true);
    for (ring, _, from, bytes) in std::mem::take(&mut net.order) {
        net.deliver_to(3, ring, from, &bytes);
    }
    net.collect();
    assert!(net.nodes[&3].in_view && !net.nodes[&1].in_view);
    net.restart(3);
    assert!(go_on(&mut net, &[1, 2, 3]));
    assert_eq!(current_and_fresh(&net, 1), (vec![1, 2], vec![3]));
}

#[test]
fn a_node_that_starts_anew_waits_for_all() {
    let mut net = running(3);
    (1..=3).for_each(|node| net.restart(node));
    assert!(!go_on(&mut net, &[1, 2]));
    net.pass(60_000);
    assert!(!net.node(1).in_view, "however long it takes");
    assert!(net.node(1).log.iter().any(|line| line.contains("all configured nodes have to be here")));
    assert!(go_on(&mut net, &[1, 2, 3]));
    assert!(net.node(1).last_view().reset);
}

#[test]
fn who_was_alone_last_begins_anew_alone() {
    let mut net = running(3);
    assert!(go_on(&mut net, &[1, 2]) && go_on(&mut net, &[1]));
    net.restart(1);
    assert!(go_on(&mut net, &[1]), "no other node can have gone on");
    assert!(net.node(1).last_view().reset, "and the state is lost");
}

#[test]
fn a_node_with_another_rule_is_left_out() {
    let mut net = running(3);
    net.tune = |config| config.quorum = QuorumRule::Majority;
    net.restart(3);
    net.view(&[1, 2, 3], true);
    net.settle();
    assert_eq!(net.node(1).last_view().view.members, [id(1), id(2)]);
    assert!(!net.node(3).in_view);
    let expected = "`quorum` in testudo.toml of node 3 is \"majority\", and \"last_man_standing\" here";
    assert!(net.node(1).log.iter().any(|line| line.contains(expected)), "{:?}", net.node(1).log);
}
