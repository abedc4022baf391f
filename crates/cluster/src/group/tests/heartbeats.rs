//! Heartbeats, suspicion, the fence.

use super::net::{Net, id};
use crate::engine::EngineEvent;
use crate::group::{GroupConfig, Ingress, NoQuorum};
use std::time::Duration;
use testudo_base::shard::ShardSet;
use testudo_base::spi::Shard;
use testudo_ike::output::Time;

const FENCE: Duration = Duration::from_millis(50);

pub(super) fn stop(count: u8) -> Net {
    running(Net::tuned(count, |config| {
        config.no_quorum = NoQuorum::Stop;
        config.links = 2;
    }))
}

pub(super) fn forward(count: u8) -> Net {
    running(Net::tuned(count, |config| config.no_quorum = NoQuorum::Forward))
}

/// All nodes have been in one view for five seconds.
fn running(mut net: Net) -> Net {
    let all = net.all.clone();
    net.view(&all, true);
    net.settle();
    net.pass(5000);
    net
}

fn ends_in(net: &Net, node: u8) -> Duration {
    net.nodes[&node].fence.since(net.now)
}

#[test]
fn who_falls_silent_is_suspected_soon_and_trusted_again_when_it_is_heard() {
    let mut net = stop(3);
    assert!(net.nodes.values().all(|node| node.suspicions == 0));
    net.isolate(3);
    net.pass(20);
    assert!(net.node(1).suspects.is_empty());
    net.pass(15);
    assert_eq!(net.node(1).suspects, [3].into());
    assert_eq!(net.node(2).suspects, [3].into());
    net.lost.clear();
    net.pass(10);
    assert_eq!(net.node(1).suspects, [3].into(), "one heartbeat is not enough");
    net.pass(15);
    assert!(net.nodes.values().all(|node| node.suspects.is_empty()));
}

#[test]
fn one_link_of_two_is_enough() {
    let mut net = stop(3);
    net.lost_links = [0].into();
    net.pass(1000);
    assert!(net.nodes.values().all(|node| node.suspicions == 0));
    assert!(net.all.iter().all(|node| ends_in(&net, *node) > FENCE / 2));
    let ticket = net.publish(1, b"update");
    net.pass(11);
    assert_eq!(net.node(1).stable, ticket, "heartbeats acknowledge too");
}

#[test]
fn who_was_stopped_suspects_nobody() {
    let mut net = stop(3);
    net.node(1).stopped = true;
    net.pass(2000);
    assert_eq!(net.node(2).suspects, [1].into());
    net.wake(1);
    net.pass(500);
    assert_eq!(net.node(1).suspicions, 0);
    assert_eq!(net.node(1).group.status().counters.late, 1);
    assert!(net.nodes.values().all(|node| node.suspects.is_empty()));
}

#[test]
fn suspects_are_named_again_in_the_next_view_and_those_who_left_are_not() {
    let mut net = stop(5);
    net.isolate(4);
    net.isolate(5);
    net.pass(100);
    assert_eq!(net.node(1).suspects, [4, 5].into());
    net.node(1).suspects.clear();
    net.view(&[1, 2, 3, 4], true);
    net.pass(1);
    assert_eq!(net.node(1).suspects, [4].into());
}

/// It begins anew also if the view without it never began.
#[test]
fn a_suspect_that_comes_back_begins_anew() {
    let mut net = stop(5);
    net.isolate(5);
    net.pass(100);
    assert_eq!(net.node(1).suspects, [5].into());
    net.view(&[1, 2, 3, 4], true);
    net.lost.clear();
    net.view(&[1, 2, 3, 4, 5], true);
    assert!(net.node(1).suspects.is_empty());
}

#[test]
fn what_a_node_tells_of_itself_arrives() {
    let mut net = stop(2);
    assert!(net.node(2).told.is_empty());
    let now = net.now;
    net.node(1).group.set_link(now, 1, false);
    net.node(1).group.set_load(700, [Shard(3), Shard(4)].into_iter().collect());
    net.pass(20);
    let links = !2;
    assert_eq!(net.node(2).told, [(1, links, 2)]);
    let status = net.node(2).group.status();
    let peer = &status.peers[0];
    assert_eq!((peer.links, peer.load, peer.provisional.len(), peer.suspected), (links, 700, 2, false));
    assert!(net.now.since(peer.heard.unwrap()) <= Duration::from_millis(10));
    assert!(peer.hears.unwrap() <= Duration::from_millis(10));
    net.node(1).group.set_load(700, ShardSet::EMPTY);
    net.pass(20);
    assert_eq!(net.node(2).told.last(), Some(&(1, links, 0)));
}

#[test]
fn row_clocks_go_with_the_heartbeats_until_there_are_none() {
    let mut net = stop(3);
    let clocks = vec![(Shard(3), 77), (Shard(255), u64::MAX)];
    net.node(1).group.set_row_clocks(clocks.clone());
    net.pass(20);
    assert_eq!([2, 3].map(|node| net.node(node).row_clocks.clone()), [clocks.clone(), clocks]);
    assert!(net.node(1).row_clocks.is_empty(), "they are its own");
    net.node(1).group.set_row_clocks(vec![]);
    net.pass(20);
    net.node(2).row_clocks.clear();
    net.pass(50);
    assert!(net.node(2).row_clocks.is_empty());
}

/// How often row clocks of node 1 come to node 2 within 100 ms, if they move by so many rows in each
/// of them.
fn told_rows(ingress: fn(&mut GroupConfig), rows_per_ms: u64) -> usize {
    let mut net = running(Net::tuned(2, ingress));
    let mut told = 0;
    for ms in 1..=100 {
        net.node(1).group.set_row_clocks(vec![(Shard(3), ms * rows_per_ms)]);
        net.pass(1);
        told += usize::from(!std::mem::take(&mut net.node(2).row_clocks).is_empty());
    }
    told
}

/// There the others do not see the packets themselves.
#[test]
fn row_clocks_that_move_fast_go_out_more_often_behind_routers() {
    let routed = |config: &mut GroupConfig| {
        (config.ingress, config.peer_window) = (Ingress::Routed, 1024);
    };
    let flooded = told_rows(|_| {}, 1000);
    assert_eq!(told_rows(routed, 1), flooded);
    let fast = told_rows(routed, 10);
    assert!((2 * flooded..60).contains(&fast), "{fast}");
    let fastest = told_rows(routed, 1000);
    assert!((fast + 20..=100).contains(&fastest), "{fastest}");
    // Half the smallest window, of 32 numbers, is eight rows of two nodes.
    let small = |config: &mut GroupConfig| config.ingress = Ingress::Routed;
    assert!(told_rows(small, 1) > flooded);
}

/// Heartbeats of nodes 2 and 3 to node 1, as somebody on the way keeps them.
pub(super) fn keep_heartbeats_to_1(net: &mut Net) -> Vec<(u8, u8, u8, Vec<u8>)> {
    let mut kept = Vec::new();
    for _ in 0..12 {
        net.pass_without_carrying(1);
        kept.extend(net.datagrams.iter().filter(|(_, to, ..)| *to == 1).cloned());
        net.carry();
    }
    assert!(!kept.is_empty());
    kept
}

#[test]
fn forged_and_repeated_heartbeats_prove_nothing() {
    let mut net = stop(3);
    net.collect();
    let kept = keep_heartbeats_to_1(&mut net);
    let before = net.node(1).group.status().counters;
    net.isolate(1);
    let mut heard = net.now;
    for round in 0..20_u8 {
        net.pass(10);
        for (_, _, link, bytes) in &kept {
            let now = net.now;
            net.node(1).group.handle_datagram(now, *link, bytes);
            let mut forged = bytes.clone();
            forged[usize::from(round) + 14] ^= 1;
            net.node(1).group.handle_datagram(now, *link, &forged);
            net.node(1).group.handle_datagram(now, 1 - *link, bytes);
        }
        net.settle();
        if net.node(1).suspects.is_empty() {
            heard = net.now;
        }
    }
    assert!(net.node(1).suspects.len() == 2 && net.now.since(heard) > Duration::from_millis(100));
    assert_eq!(ends_in(&net, 1), Duration::ZERO);
    let after = net.node(1).group.status().counters;
    assert_eq!(after.forged - before.forged, 20 * kept.len() as u64);
    assert_eq!(after.replayed - before.replayed, 40 * kept.len() as u64);
}

#[test]
fn packets_may_leave_as_long_as_a_majority_hears_the_node() {
    let mut net = stop(3);
    for node in [1, 2, 3] {
        assert!(ends_in(&net, node) > FENCE / 2 && ends_in(&net, node) <= FENCE);
    }
    net.isolate(3);
    net.pass(60);
    assert!(ends_in(&net, 1) > FENCE / 2 && ends_in(&net, 2) > FENCE / 2);
    assert_eq!(ends_in(&net, 3), Duration::ZERO);
    net.view(&[3], false);
    net.pass(1000);
    assert_eq!(ends_in(&net, 3), Duration::ZERO, "stop: nothing leaves");
}

#[test]
fn who_is_heard_but_hears_nothing_is_fenced() {
    let mut net = stop(3);
    net.lost = [(2, 1), (3, 1)].into();
    net.pass(60);
    assert_eq!(ends_in(&net, 1), Duration::ZERO);
    assert!(ends_in(&net, 2) > FENCE / 2);
}

#[test]
fn in_a_view_of_three_of_five_all_must_hear_a_node() {
    let mut net = stop(5);
    net.view(&[1, 2, 3], true);
    net.isolate(4);
    net.isolate(5);
    net.pass(100);
    assert!(ends_in(&net, 1) > FENCE / 2);
    // Node 3 does not hear node 1, and may be in the next quorate view with nodes 4 and 5 without
    // having promised anything.
    net.lost.insert((1, 3));
    net.pass(60);
    assert_eq!(ends_in(&net, 1), Duration::ZERO);
}

#[test]
fn without_quorum_forward_goes_on_after_it_has_looked() {
    let mut net = forward(3);
    net.isolate(3);
    net.pass(200);
    assert_eq!(ends_in(&net, 3), Duration::ZERO);
    net.view(&[3], false);
    assert_eq!(ends_in(&net, 3), Duration::ZERO);
    net.pass(20);
    assert!(ends_in(&net, 3) > FENCE / 2);
    net.node(3).stopped = true;
    net.pass(2000);
    net.wake(3);
    net.pass(1);
    assert_eq!(ends_in(&net, 3), Duration::ZERO, "woken up, it has not looked yet");
    net.pass(20);
    assert!(ends_in(&net, 3) > FENCE / 2);
}

#[test]
fn a_node_that_has_never_been_in_a_quorate_view_has_nothing_to_forward() {
    let mut net = Net::new(3);
    net.view(&[1], false);
    net.pass(1000);
    assert_eq!(net.node(1).fence, Time::default());
}

#[test]
fn who_has_lost_its_engine_only_stays_still_while_the_others_are_a_quorum() {
    let mut net = forward(3);
    let now = net.now;
    net.node(1).group.handle_event(now, EngineEvent::Down { reason: "killed".to_owned() });
    net.node(1).ring = None;
    net.view(&[2, 3], true);
    net.settle();
    net.pass(11);
    assert_eq!(ends_in(&net, 1), Duration::ZERO, "the first heartbeat tells it");
    let until = net.node(1).fence;
    net.pass(2000);
    assert_eq!(net.node(1).fence, until);
    net.isolate(1);
    net.pass(250);
    assert!(ends_in(&net, 1) > FENCE / 2, "nobody tells of a quorum");
}

#[test]
fn who_was_put_out_stays_still_until_a_view_has_it_again() {
    let mut net = forward(3);
    let now = net.now;
    // Being put out tells that the others are in a view without this node, even if no heartbeat
    // does.
    net.isolate(1);
    net.node(1).group.handle_event(now, EngineEvent::PutOut);
    net.node(1).ring = None;
    net.view(&[2, 3], true);
    let until = net.node(1).fence;
    net.pass(2000);
    assert_eq!(net.node(1).fence, until);
    net.view(&[1], false);
    net.pass(500);
    assert!(ends_in(&net, 1) > FENCE / 2, "a view of its own: the configuration has the say again");
}

#[test]
fn alone_in_a_quorate_view_the_own_clock_is_enough_but_not_before_it_has_looked() {
    let mut net = stop(1);
    assert!(ends_in(&net, 1) > FENCE / 2);
    net.node(1).stopped = true;
    net.pass(1000);
    net.wake(1);
    net.pass(1);
    assert_eq!(ends_in(&net, 1), Duration::ZERO);
    net.pass(20);
    assert!(ends_in(&net, 1) > FENCE / 2);
}

#[test]
fn a_member_that_keeps_the_view_from_beginning_fences_nobody() {
    let mut net = stop(3);
    net.restart(3);
    net.node(3).stopped = true;
    net.view(&[1, 2, 3], true);
    net.order.retain(|(_, _, from, _)| *from != 3);
    net.pass(500);
    assert!(!net.node(1).in_view);
    assert!(ends_in(&net, 1) > FENCE / 2 && ends_in(&net, 2) > FENCE / 2);
}

#[test]
fn takeovers_wait_for_what_was_promised() {
    let mut net = stop(3);
    net.view(&[2, 3], true);
    net.settle();
    let wait = net.node(2).last_view().wait_until.since(net.now);
    assert!(wait > FENCE && wait <= FENCE * 9 / 8, "{wait:?}");
    net.pass(1000);
    net.restart(3);
    net.view(&[2, 3], true);
    net.settle();
    let wait = net.node(2).last_view().wait_until.since(net.now);
    assert_eq!(wait, FENCE * 9 / 8, "who has been restarted may have promised anything");
}

/// Without quorum a node extends its fence by itself, and no other node has promised that. Nodes
/// that take its shards when all meet again wait for that too.
#[test]
fn takeovers_wait_for_what_a_node_without_quorum_has_granted_itself() {
    let mut net = forward(3);
    net.publish(1, b"news");
    net.collect();
    // Node 3 does not get a message that the other two get, and each node is alone from then on.
    let (ring, _, from, bytes) = net.order.pop_front().unwrap();
    assert!(net.order.is_empty());
    [1, 2].into_iter().for_each(|node| net.deliver_to(node, ring, from, &bytes));
    for node in [1, 2, 3] {
        net.view(&[node], false);
    }
    net.pass(1000);
    let left = ends_in(&net, 3);
    assert!(left > FENCE / 2, "{left:?}");
    net.view(&[1, 2, 3], true);
    net.settle();
    let start = net.node(1).last_view().clone();
    assert_eq!((start.current, start.fresh), (vec![id(1), id(2)], vec![id(3)]));
    assert!(start.wait_until >= net.now.plus(ends_in(&net, 3)), "node 3 may send until then");
}

/// It may have promised anything after the moment to which it has gone back.
#[test]
fn takeovers_wait_for_what_a_machine_that_has_gone_back_in_time_may_have_promised() {
    let mut net = stop(5);
    net.view(&[1, 2, 3, 4], true);
    net.settle();
    net.isolate(1);
    net.pass(1000);
    let now = net.now;
    net.node(1).group.rolled_back(now);
    net.view(&[1, 2, 3, 4], true);
    net.settle();
    let start = net.node(2).last_view().clone();
    assert_eq!((start.current, start.fresh), ([2, 3, 4].map(id).to_vec(), vec![id(1)]));
    assert_eq!(start.wait_until.since(now), FENCE * 9 / 8, "to node 5: the others hear nothing of both");
}

#[test]
fn a_machine_that_has_gone_back_in_time_is_fenced_at_once() {
    let mut net = forward(3);
    let now = net.now;
    net.node(1).group.rolled_back(now);
    net.pass(300);
    assert_eq!(ends_in(&net, 1), Duration::ZERO);
    net.view(&[1, 2, 3], true);
    net.pass(50);
    assert!(ends_in(&net, 1) > FENCE / 2);
    assert_eq!(net.node(2).last_view().fresh, [id(1)]);
}

/// The engine of one node is cut off, and its ports work. The others' heartbeats tell the node
/// before its engine does.
#[test]
fn who_hears_that_the_others_have_gone_on_stops_at_once() {
    for (net, slow_disk) in [(forward(3), false), (stop(3), true), (forward(5), false)] {
        let mut net = net;
        net.nodes.values_mut().for_each(|node| node.slow_disk = slow_disk);
        let others: Vec<u8> = net.all.iter().copied().filter(|node| *node != 1).collect();
        assert!(ends_in(&net, 1) > FENCE / 2);
        net.view(&others, true);
        net.settle();
        assert_eq!(ends_in(&net, 1), Duration::ZERO, "before the next heartbeat is due");
        let lines = net.node(1).log.iter().filter(|line| line.contains("a view without this one")).count();
        assert_eq!(lines, 1, "whatever number of others says so");
        let until = net.node(1).fence;
        net.pass(1000);
        net.view(&[1], false);
        net.pass(1000);
        assert_eq!(net.node(1).fence, until, "and so it stays, whatever its engine says");
        // It is a member again.
        net.nodes.values_mut().for_each(|node| node.slow_disk = false);
        net.all.clone().into_iter().for_each(|node| net.write(node));
        let all = net.all.clone();
        net.view(&all, true);
        net.settle();
        net.pass(25);
        assert!(net.all.iter().all(|node| ends_in(&net, *node) > FENCE / 2));
    }
}

/// Once no node tells of a quorum any more, the configuration decides.
#[test]
fn who_was_passed_over_goes_on_alone_when_the_others_are_gone() {
    let mut net = forward(3);
    net.view(&[2, 3], true);
    net.view(&[1], false);
    net.settle();
    net.pass(100);
    assert_eq!(ends_in(&net, 1), Duration::ZERO);
    net.isolate(1);
    net.pass(250);
    assert!(ends_in(&net, 1) > FENCE / 2);
}

/// Heartbeats of a view without a node do not stop it when it is back, be they late or kept by
/// somebody.
#[test]
fn heartbeats_of_a_view_that_is_over_stop_nobody() {
    for heard_since in [false, true] {
        let mut net = stop(3);
        net.lost = [(2, 1), (3, 1)].into();
        net.view(&[2, 3], true);
        net.settle();
        let kept = keep_heartbeats_to_1(&mut net);
        net.view(&[1, 2, 3], true);
        net.settle();
        if heard_since {
            net.lost.clear();
            net.pass(25);
        }
        for (_, _, link, bytes) in kept {
            let now = net.now;
            net.node(1).group.handle_datagram(now, link, &bytes);
        }
        net.lost.clear();
        net.settle();
        assert_eq!(net.node(1).group.fence.passed_over(), None, "heard since: {heard_since}");
        net.pass(25);
        assert!(ends_in(&net, 1) > FENCE / 2);
    }
}

/// If a node stopped by mistake, the members of its view prove that with the next heartbeat that
/// they hear.
#[test]
fn who_stopped_by_mistake_goes_on_as_soon_as_a_majority_hears_it_again() {
    let mut net = stop(3);
    let now = net.now;
    let group = &mut net.node(1).group;
    assert!(group.fence.pass_over(&mut group.core, now), "it was open");
    group.fence.prove(&mut group.core, &group.views, &group.vitals.peers);
    assert_eq!(group.fence.until(), now, "what was heard before counts no more");
    net.pass(25);
    assert!(ends_in(&net, 1) > FENCE / 2);
}
