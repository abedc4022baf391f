//! Whose word keeps a fence open: of which view, and of which life.

use super::heartbeats::{forward, keep_heartbeats_to_1, stop};
use super::net::{Net, id};
use crate::group::Phase;

/// A view of all three begins on nodes 2 and 3, and node 1 hears no STATUS. True if node 2 tells
/// node 1 that it may rely on having been heard.
fn vouches_for_who_has_yet_to_begin(net: &mut Net) -> bool {
    net.view(&[1, 2, 3], true);
    for (ring, _, from, bytes) in std::mem::take(&mut net.order) {
        [2, 3].into_iter().for_each(|node| net.deliver_to(node, ring, from, &bytes));
    }
    net.collect();
    net.pass(20);
    let phases = [1, 2].map(|node| net.node(node).group.status().phase);
    assert_eq!(phases, [Phase::Exchange, Phase::Running]);
    net.nodes[&2].group.vitals.peers.all[&id(1)].proof > 0
}

/// Its shards may be given away at the start of a view that it does not know yet.
#[test]
fn who_has_yet_to_begin_a_view_is_vouched_for_only_if_it_is_current_there() {
    let mut net = stop(3);
    assert!(vouches_for_who_has_yet_to_begin(&mut net), "it is current");
    net.restart(1);
    assert!(!vouches_for_who_has_yet_to_begin(&mut net), "it is fresh");
    assert!(!vouches_for_who_has_yet_to_begin(&mut Net::new(3)), "all begin with nothing");
}

#[test]
fn what_was_heard_in_a_ring_that_is_over_proves_nothing_in_the_next() {
    for is_over in [false, true] {
        let mut net = stop(3);
        net.pass_without_carrying(10);
        let heartbeats = std::mem::take(&mut net.datagrams);
        if is_over {
            net.view(&[1, 2, 3], true);
        }
        let until = net.nodes[&1].fence;
        for (_, to, link, bytes) in heartbeats {
            let now = net.now;
            net.node(to).group.handle_datagram(now, link, &bytes);
        }
        net.collect();
        assert_eq!(net.nodes[&1].fence > until, !is_over);
    }
}

/// There was no quorum for a while. Nodes 3, 4 and 5 may have gone on meanwhile without nodes 1 and
/// 2, whatever the engine calls quorate now. Nodes 4 and 5 alone cannot have gone on.
#[test]
fn members_prove_nothing_to_each_other_while_others_may_have_gone_on() {
    for (members, may_go_on) in [(&[1, 2][..], false), (&[1, 2, 3], true)] {
        let mut net = stop(5);
        net.view(&[1, 2, 3, 4, 5], false);
        net.pass(200);
        assert!(net.nodes[&1].fence <= net.now);
        net.view(members, true);
        net.order.clear();
        net.pass(200);
        assert_eq!(net.node(1).group.status().phase, Phase::Exchange);
        assert_eq!(net.nodes[&1].fence > net.now, may_go_on, "{members:?}");
    }
}

/// Whether their view begins is not known yet.
#[test]
fn others_that_have_yet_to_begin_a_view_without_a_node_do_not_stop_it() {
    let mut net = stop(3);
    net.view(&[2, 3], true);
    net.order.clear();
    net.pass(12);
    assert_eq!(net.nodes[&1].group.fence.passed_over(), None);
    assert!(net.nodes[&1].fence > net.now);
}

/// Somebody on the way has kept heartbeats of a quorate view. Their senders have begun anew since.
#[test]
fn what_a_former_life_said_long_ago_tells_of_no_quorum() {
    let mut net = forward(3);
    let kept = keep_heartbeats_to_1(&mut net);
    [2, 3].into_iter().for_each(|node| net.restart(node));
    net.view(&[1, 2, 3], true);
    net.settle();
    net.isolate(1);
    net.view(&[1], false);
    net.pass(1500);
    for _ in 0..10 {
        for (_, _, link, bytes) in &kept {
            let now = net.now;
            net.node(1).group.handle_datagram(now, *link, bytes);
        }
        net.pass(10);
        assert!(net.nodes[&1].fence > net.now, "node 1 goes on alone");
    }
}
