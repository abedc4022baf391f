//! Half of the nodes or fewer that the engine calls quorate: one of two with a witness, or members
//! beside daemons without a process.

use super::net::Net;
use super::views::current_and_fresh;
use crate::engine::EngineEvent;

fn two() -> Net {
    let mut net = Net::new(2);
    net.view(&[1, 2], true);
    net.settle();
    net
}

/// The engine says that a node is quorate alone. True if the node goes on.
fn goes_on(net: &mut Net, node: u8) -> bool {
    net.view(&[node], true);
    net.settle();
    let node = net.node(node);
    assert_eq!(node.in_view, node.last_view().view.quorate);
    node.in_view
}

#[test]
fn who_went_on_alone_straight_from_a_view_of_both_is_the_only_one_until_both_are_one_again() {
    let mut net = two();
    net.view(&[2], false);
    assert!(goes_on(&mut net, 1));
    net.publish(1, b"what node 2 does not know");
    net.settle();
    assert!(!goes_on(&mut net, 2), "the witness has changed its mind, as it does when node 1 dies");
    net.view(&[1], false);
    assert!(goes_on(&mut net, 1), "without the witness for a while");
    net.view(&[1, 2], true);
    net.settle();
    assert_eq!(current_and_fresh(&net, 2), (vec![1], vec![2]));
    net.node(2).group.synced();
    net.publish(1, b"more");
    net.settle();
    assert!(goes_on(&mut net, 2));
}

#[test]
fn who_has_just_started_or_has_lost_its_engine_waits_for_the_other() {
    let mut net = Net::new(2);
    assert!(!goes_on(&mut net, 1));
    let mut net = two();
    let (now, reason) = (net.now, "killed".to_owned());
    net.node(1).group.handle_event(now, EngineEvent::Down { reason });
    net.collect();
    assert!(!goes_on(&mut net, 1));
    net.restart(2);
    assert!(!goes_on(&mut net, 2));
    net.view(&[1, 2], true);
    net.settle();
    assert_eq!(current_and_fresh(&net, 1), (vec![1], vec![2]));
}

/// It stood still, and the other may have gone on meanwhile.
#[test]
fn who_was_put_out_is_in_no_view_and_waits_for_the_other() {
    let mut net = two();
    let now = net.now;
    net.node(1).group.handle_event(now, EngineEvent::PutOut);
    net.collect();
    assert!(!net.node(1).in_view);
    assert!(!goes_on(&mut net, 1));
    assert!(goes_on(&mut net, 2));
}

/// A cluster of two that has lost one node for good goes on as a cluster of one.
#[test]
fn whose_neighbour_is_no_longer_configured_begins_with_nothing_after_its_patience() {
    let disk = two().node(1).disk.clone();
    let mut net = Net::new(1);
    net.start(1, disk.clone());
    assert!(!goes_on(&mut net, 1));
    net.pass(31_000);
    let node = net.node(1);
    assert!(node.in_view && node.last_view().reset);
    assert_eq!(node.senders.len(), 1);
    assert!(node.disk.incarnation > disk.incarnation);
}

/// Nodes 2 and 3 have gone on without node 1, and node 3 without node 2, whose process has ended.
#[test]
fn few_that_may_have_missed_a_view_wait_for_more_than_half() {
    let mut net = Net::new(3);
    net.view(&[1, 2, 3], true);
    net.settle();
    net.view(&[1], false);
    net.view(&[2, 3], true);
    net.settle();
    assert!(goes_on(&mut net, 3), "straight from a view");
    net.publish(3, b"what nodes 1 and 2 do not know");
    net.settle();
    assert!(!goes_on(&mut net, 1), "beside the daemon of node 2");
    net.pass(1000);
    let now = net.now;
    assert!(!net.node(1).in_view && net.node(1).fence <= now);
    net.view(&[1, 3], true);
    net.settle();
    assert_eq!(current_and_fresh(&net, 1), (vec![3], vec![1]));
    assert_eq!(net.node(1).updates.last(), None, "node 3 brings it up to date");
}

#[test]
fn few_that_were_the_last_go_on_again_if_the_others_are_no_majority() {
    let mut net = Net::new(4);
    net.view(&[1, 2, 3, 4], true);
    net.settle();
    net.view(&[1, 2], true);
    net.settle();
    net.view(&[3, 4], false);
    net.view(&[1, 2], false);
    net.view(&[3, 4], true);
    net.settle();
    assert!(!net.node(3).in_view && !net.node(4).in_view, "nodes 1 and 2 were the last");
    net.view(&[3, 4], false);
    net.view(&[1, 2], true);
    net.settle();
    assert!(net.node(1).in_view && net.node(2).in_view);
    let mut net = Net::new(3);
    net.view(&[1, 2, 3], true);
    net.settle();
    assert!(goes_on(&mut net, 1));
    net.view(&[1], false);
    assert!(!goes_on(&mut net, 1), "nodes 2 and 3 may have begun with nothing");
    net.pass(31_000);
    let node = net.node(1);
    assert!(node.in_view && node.last_view().reset, "nobody has come");
}
