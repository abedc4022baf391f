//! Views: which nodes are current in them, which are waited for, and what an engine may do.

use super::net::{Net, id};
use crate::engine::EngineEvent;
use crate::group::{Durable, Phase};
use proptest::prelude::*;

pub(super) fn numbers(nodes: &[crate::node::NodeId]) -> Vec<u8> {
    nodes.iter().map(|node| node.get()).collect()
}

/// Three nodes in their first view.
pub(super) fn three() -> Net {
    let mut net = Net::new(3);
    net.view(&[1, 2, 3], true);
    net.settle();
    net
}

pub(super) fn current_and_fresh(net: &Net, node: u8) -> (Vec<u8>, Vec<u8>) {
    let start = net.nodes[&node].last_view();
    (numbers(&start.current), numbers(&start.fresh))
}

#[test]
fn the_first_view_has_everybody_current_with_nothing() {
    let net = three();
    for node in net.nodes.values() {
        let start = node.last_view();
        assert_eq!((start.epoch, start.reset, start.view.quorate), (1, true, true));
        assert_eq!((numbers(&start.current), start.fresh.len()), (vec![1, 2, 3], 0));
        assert_eq!(node.senders.len(), 1, "and a sender ID");
        assert_eq!((node.disk.incarnation, node.disk.begun.epoch), (1, 1));
    }
}

#[test]
fn a_node_that_joins_is_fresh_until_it_is_brought_up_to_date() {
    let mut net = three();
    net.publish(1, b"state");
    net.settle();
    net.restart(3);
    net.view(&[1, 2], true);
    net.settle();
    net.view(&[1, 2, 3], true);
    net.settle();
    assert_eq!(current_and_fresh(&net, 3), (vec![1, 2], vec![3]));
    assert_eq!(net.node(3).senders, [id(3).sender(2).unwrap()]);
    let status = net.node(1).group.status();
    assert_eq!(status.peers.iter().map(|peer| peer.incarnation).collect::<Vec<_>>(), [1, 2]);
    // It has not been brought up to date, so it is fresh in the next view too.
    net.view(&[1, 2, 3], true);
    net.settle();
    assert_eq!(current_and_fresh(&net, 1), (vec![1, 2], vec![3]));
    net.node(3).group.synced();
    net.publish(2, b"state");
    net.settle();
    net.view(&[3, 2], true);
    net.settle();
    assert_eq!(current_and_fresh(&net, 3), (vec![2, 3], vec![]));
}

#[test]
fn a_restart_between_two_views_is_noticed() {
    let mut net = three();
    net.publish(1, b"state");
    net.settle();
    net.restart(2);
    net.view(&[1, 2, 3], true);
    net.settle();
    assert_eq!(current_and_fresh(&net, 2), (vec![1, 3], vec![2]));
}

#[test]
fn a_fresh_node_is_waited_for_too() {
    let mut net = three();
    net.restart(3);
    net.view(&[1, 2, 3], true);
    net.settle();
    net.lost = [(3, 1)].into();
    let ticket = net.publish(1, b"update");
    net.settle();
    assert!(net.node(1).stable < ticket);
}

/// Nodes 1 and 2 have gone on without node 3. Then node 1 forgets everything, and node 2 is away
/// before it has told anything.
fn forgetful() -> Net {
    let mut net = three();
    net.view(&[1, 2], true);
    net.settle();
    net.restart(1);
    net.publish(2, b"what only node 2 holds");
    net.settle();
    net.view(&[1, 3], true);
    net.settle();
    net
}

#[test]
fn those_who_have_forgotten_wait_for_who_has_not() {
    let mut net = forgetful();
    for node in [1, 3] {
        assert!(!net.node(node).in_view && !net.node(node).last_view().view.quorate);
        assert!(net.node(node).log.iter().any(|line| line.ends_with("waiting for nodes 2")));
        let status = net.node(node).group.status();
        assert_eq!(status.phase, Phase::Exchange);
        let expected = "no view: none of its nodes is known to hold the latest state; waiting for nodes 2";
        assert_eq!(status.obstacle.map(|obstacle| obstacle.to_string()).as_deref(), Some(expected));
    }
    net.pass(10_000);
    assert!(!net.node(1).in_view);
    net.view(&[1, 2, 3], true);
    net.settle();
    assert_eq!(current_and_fresh(&net, 3), (vec![2], vec![1, 3]));
}

#[test]
fn those_who_wait_in_vain_begin_anew() {
    let mut net = forgetful();
    net.pass(20_000);
    // Another view does not make them wait longer.
    net.view(&[3, 1], true);
    net.pass(9_900);
    assert!(!net.node(1).in_view);
    net.pass(300);
    for node in [1, 3] {
        assert!(net.node(node).in_view && net.node(node).last_view().reset);
        assert_eq!(current_and_fresh(&net, node), (vec![1, 3], vec![]));
    }
    // What node 2 holds is void.
    net.view(&[1, 2, 3], true);
    net.settle();
    assert_eq!(current_and_fresh(&net, 2), (vec![1, 3], vec![2]));
}

/// The layer above is told that there is no quorum, and not again when one of the members has
/// become impatient.
#[test]
fn who_waits_is_told_so_once() {
    let mut net = forgetful();
    let told = |net: &Net| [1, 3].map(|node| net.nodes[&node].views.len());
    let before = told(&net);
    net.pass(29_900);
    net.pass_without_carrying(200);
    assert_eq!(net.order.len(), 2, "each says that it has waited for long enough");
    assert!(net.deliver());
    assert_eq!((told(&net), net.node(1).in_view), (before, false));
    net.settle();
    assert_eq!((told(&net), net.node(1).in_view), (before.map(|told| told + 1), true));
}

#[test]
fn who_waits_goes_on_as_without_quorum() {
    let mut net = forgetful();
    net.isolate(2);
    net.pass(400);
    let now = net.now;
    assert!(net.node(3).fence > now, "node 3 forwards what it carried");
    assert!(net.node(1).fence <= now, "node 1 has nothing");
    let ticket = net.publish(3, b"waits");
    net.settle();
    assert!(net.node(3).stable < ticket);
}

/// Its engine is gone, and they decide nothing.
#[test]
fn who_holds_the_state_goes_on_while_others_wait_for_it() {
    let mut net = forgetful();
    let now = net.now;
    net.node(2).group.handle_event(now, EngineEvent::Down { reason: "killed".to_owned() });
    net.node(2).ring = None;
    net.pass(400);
    assert!(!net.node(3).in_view && net.node(3).group.status().obstacle.is_some());
    assert!(net.nodes[&2].fence > net.now);
}

#[test]
fn when_all_who_held_the_state_have_forgotten_nobody_is_waited_for() {
    let mut net = three();
    net.view(&[1, 2], true);
    net.settle();
    net.restart(1);
    net.restart(2);
    net.view(&[1, 2, 3], true);
    net.settle();
    assert!(net.node(3).last_view().reset, "what node 3 holds is older");
    assert_eq!(current_and_fresh(&net, 3), (vec![1, 2, 3], vec![]));
}

#[test]
fn nothing_is_acknowledged_before_the_disk_knows_of_the_view() {
    let mut net = three();
    net.node(3).slow_disk = true;
    net.view(&[1, 2, 3], true);
    net.settle();
    let ticket = net.publish(1, b"update");
    net.settle();
    assert_eq!(net.node(3).updates.len(), 1, "delivered it is");
    assert!(net.node(1).stable < ticket && net.node(3).stable_up_to.epoch < 2);
    // A node that forgets now has never been in the view, so the state of the view before is as
    // good.
    net.write(3);
    assert_eq!(net.node(1).stable, ticket);
    assert_eq!(net.nodes[&3].stable_up_to, net.nodes[&3].group.status().delivered);
}

#[test]
fn without_quorum_nothing_is_published() {
    let mut net = three();
    net.view(&[1], false);
    let ticket = net.publish(1, b"waits");
    net.settle();
    assert!(!net.node(1).last_view().view.quorate);
    assert_eq!((net.order.len(), net.node(1).updates.len()), (0, 0));
    net.view(&[1, 2, 3], true);
    net.settle();
    assert_eq!(net.node(1).stable, ticket, "nothing was missed: it is current, and goes on");
}

#[test]
fn an_engine_that_is_gone_takes_the_view_with_it() {
    let mut net = three();
    let now = net.now;
    net.node(1).group.handle_event(now, EngineEvent::Down { reason: "killed".to_owned() });
    net.settle();
    assert!(!net.node(1).in_view);
    assert_eq!(net.node(1).group.status().phase, Phase::Down);
    let ticket = net.publish(1, b"waits");
    net.view(&[1, 2, 3], true);
    net.settle();
    assert_eq!(net.node(1).stable, ticket);
}

#[test]
fn what_a_busy_engine_refuses_is_kept_in_order() {
    let mut net = three();
    net.node(1).refuse = 7;
    let tickets: Vec<_> = (0..4_u8).map(|n| net.publish(1, &[n; 16_000])).collect();
    net.settle();
    assert_eq!(net.node(2).updates.len(), 0);
    net.pass(30);
    let firsts: Vec<u8> = net.node(2).updates.iter().map(|(_, update)| update[0]).collect();
    assert_eq!(firsts, [0, 1, 2, 3]);
    assert_eq!((net.node(1).stable, net.node(1).group.status().counters.refused), (tickets[3], 7));
}

/// The host may say that the engine takes messages again. Then they do not wait for the next try.
#[test]
fn what_a_busy_engine_refused_goes_out_as_soon_as_it_is_ready() {
    for ready in [false, true] {
        let mut net = three();
        net.node(1).refuse = 1;
        net.publish(1, b"refused once");
        net.settle();
        if ready {
            net.node(1).group.multicast_ready();
        }
        net.settle();
        assert_eq!(net.node(2).updates.len(), usize::from(ready));
        net.pass(2);
        assert_eq!(net.node(2).updates.len(), 1);
    }
}

#[test]
fn a_refused_status_does_not_outlive_its_ring() {
    let mut net = Net::new(2);
    net.node(1).refuse = 1;
    net.view(&[1, 2], true);
    net.view(&[2, 1], true);
    net.settle();
    net.pass(5);
    assert_eq!(net.node(2).views.len(), 1);
    assert_eq!(numbers(&net.node(2).last_view().view.members), [1, 2], "sorted, whatever the engine says");
}

#[test]
fn a_status_that_the_engine_has_lost_is_said_again() {
    let mut net = Net::new(2);
    net.view(&[1, 2], true);
    net.order.clear();
    net.settle();
    assert!(net.node(1).views.is_empty());
    net.pass(1001);
    assert_eq!(net.node(1).views.len(), 1);
}

#[test]
fn who_has_heard_all_others_says_its_own_status_again_until_it_comes_back() {
    let mut net = Net::new(2);
    net.view(&[1, 2], true);
    net.order.retain(|(_, _, from, _)| *from == 2);
    net.pass(999);
    assert!(net.node(1).views.is_empty());
    net.pass(1);
    assert_eq!((net.node(1).views.len(), net.node(2).views.len()), (1, 1));
}

#[test]
fn what_is_published_before_the_first_view_goes_out_in_it() {
    let mut net = Net::new(3);
    let ticket = net.publish(1, b"early");
    net.view(&[1, 2, 3], true);
    net.settle();
    assert!(net.nodes.values().all(|node| node.updates == [(1, b"early".to_vec())]));
    assert_eq!(net.node(1).stable, ticket);
}

#[test]
fn views_in_one_ring_do_not_mix() {
    let mut net = three();
    net.publish(1, b"state");
    net.settle();
    let ring = net.node(1).ring.clone().unwrap().0;
    // The engine tells of two more views in the same ring, while the STATUS of the first are under
    // way.
    for members in [vec![1, 2], vec![1, 2, 3]] {
        for number in &members {
            let view = crate::engine::View {
                ring,
                members: members.iter().map(|number| id(*number)).collect(),
                quorate: true,
            };
            let now = net.now;
            net.node(*number).ring = Some((ring, members.clone()));
            net.node(*number).group.handle_event(now, EngineEvent::View(view));
        }
        net.collect();
    }
    net.order.iter_mut().for_each(|(_, members, ..)| *members = vec![1, 2, 3]);
    net.settle();
    for node in [1, 2, 3] {
        assert_eq!(current_and_fresh(&net, node), (vec![1, 2, 3], vec![]), "node {node}");
    }
    let ticket = net.publish(3, b"more");
    net.settle();
    assert_eq!(net.node(3).stable, ticket);
}

#[test]
fn a_node_with_another_key_is_left_out_and_does_not_rule_itself() {
    let mut net = Net::new(3);
    net.key = [8; 32];
    net.start(3, Durable::default());
    net.view(&[1, 2, 3], true);
    net.settle();
    assert_eq!(numbers(&net.node(1).last_view().view.members), [1, 2]);
    assert!(net.node(3).views.is_empty());
    assert!(net.node(1).log.iter().any(|line| line.contains("nodes 3 are left out")));
    assert!(net.node(3).log.iter().any(|line| line.contains("no view: nodes 1, 2 have another cluster key")));
    let ticket = net.publish(1, b"update");
    net.settle();
    assert_eq!(net.node(1).stable, ticket, "it is not waited for");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever nodes restart, in whatever views.
    #[test]
    fn no_incarnation_is_leased_twice(steps in prop::collection::vec((0_u8..8, 1_u8..4), 1..60)) {
        let mut net = Net::new(3);
        let mut leased = std::collections::HashSet::new();
        for (kind, node) in steps {
            match kind {
                0 => net.view(&[1, 2, 3], true),
                1 => {
                    let others: Vec<u8> = (1..=3).filter(|other| *other != node).collect();
                    net.view(&[node], false);
                    net.view(&others, true);
                }
                2 => { net.deliver(); }
                3 => net.carry(),
                4 => {
                    let now = net.now;
                    net.node(node).group.renew_sender(now);
                }
                5 => {
                    // Nodes 1 and 2 keep their disks, and node 3 its memory.
                    if node != 3 {
                        net.restart(node);
                    }
                }
                _ => net.settle(),
            }
            net.collect();
            for (number, node) in &mut net.nodes {
                for sender in node.senders.drain(..) {
                    prop_assert_eq!(sender.node(), *number);
                    prop_assert!(leased.insert(sender), "{:?} is leased twice", sender);
                }
            }
        }
    }

    /// A node whose disk is lost learns its incarnation from the nodes with which it was in a
    /// majority, as long as they are there. From nodes 1 and 3 alone it could not, because node 1
    /// has forgotten what node 2 knows.
    #[test]
    fn a_lost_disk_is_made_up_for_by_the_others(steps in prop::collection::vec(0_u8..6, 1..40)) {
        let mut net = Net::new(3);
        let mut leased = std::collections::HashSet::new();
        for kind in steps {
            match kind {
                0 => net.view(&[1, 2, 3], true),
                1 => net.view(&[1, 2], true),
                2 => net.view(&[2, 3], true),
                3 => net.start(1, Durable::default()),
                _ => net.settle(),
            }
            net.collect();
            for sender in net.node(1).senders.drain(..) {
                prop_assert!(leased.insert(sender), "{:?} is leased twice", sender);
            }
        }
    }

    #[test]
    fn whatever_comes_does_no_harm(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        cut in any::<prop::sample::Index>(),
        flip in any::<prop::sample::Index>(),
    ) {
        let mut net = three();
        net.publish(2, b"update");
        net.collect();
        let (_, _, from, message) = net.order.front().unwrap().clone();
        let mut broken = message.clone();
        broken[flip.index(message.len())] ^= 1 << (cut.index(8));
        let mut short = message.clone();
        short.truncate(cut.index(message.len()));
        let mut behind = b"Tg\x01".to_vec();
        behind.extend(&bytes);
        let now = net.now;
        for bytes in [bytes.clone(), broken.clone(), short, behind] {
            let message = EngineEvent::Message { from: id(from), bytes: bytes.clone() };
            net.node(1).group.handle_event(now, message);
            for prefix in [&b""[..], b"Tp\x01", b"Tp\x02"] {
                let datagram = [prefix, &bytes].concat();
                net.node(1).group.handle_datagram(now, 0, &datagram);
            }
        }
        net.settle();
        prop_assert_eq!(&net.nodes[&1].updates, &[(2, b"update".to_vec())]);
    }
}
