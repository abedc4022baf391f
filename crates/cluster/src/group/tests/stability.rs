//! Sealing, positions, and what is stable.

use super::net::{Net, id};
use super::views::{current_and_fresh, three};
use crate::group::views::running::MAX_IN_FLIGHT;

#[test]
fn all_members_get_the_same_updates_in_the_same_order() {
    let mut net = three();
    let tickets: Vec<_> = (0..30_u8).map(|n| (n % 3 + 1, net.publish(n % 3 + 1, &[n; 2000]))).collect();
    net.settle();
    let expected = net.nodes[&1].updates.clone();
    assert_eq!(expected.len(), 30);
    for (number, node) in &net.nodes {
        assert_eq!(node.updates, expected);
        assert_eq!(
            node.stable,
            tickets.iter().filter(|(of, _)| of == number).map(|(_, t)| *t).max().unwrap()
        );
        assert_eq!(node.stable_up_to, node.group.status().delivered);
    }
}

#[test]
fn what_leaves_is_sealed() {
    let mut net = three();
    net.publish(1, b"the key of a tunnel");
    net.collect();
    let (.., bytes) = net.order.back().unwrap();
    assert!(!bytes.windows(7).any(|window| window == b"the key"));
    let output = crate::group::GroupOutput::Delivered {
        from: id(1),
        at: Default::default(),
        update: b"the key".to_vec().into(),
    };
    assert_eq!(format!("{output:?}"), "Delivered(7 octets from node 1 at 0.0)");
}

#[test]
fn own_delivery_is_not_stability() {
    let mut net = three();
    net.lost = [(3, 1)].into();
    let ticket = net.publish(1, b"update");
    net.settle();
    assert_eq!(net.node(1).updates.len(), 1);
    assert!(net.node(1).stable < ticket, "node 3 has it, but has not been heard");
    assert_eq!(net.node(1).group.status().stable.count, net.node(1).group.status().delivered.count - 1);
    net.lost.clear();
    net.publish(2, b"more");
    net.settle();
    assert_eq!(net.node(1).stable, ticket, "acknowledgements are cumulative");
}

#[test]
fn alone_in_a_quorate_view_what_is_delivered_is_stable() {
    let mut net = Net::new(1);
    net.view(&[1], true);
    net.settle();
    let ticket = net.publish(1, b"update");
    net.settle();
    assert_eq!(net.node(1).stable, ticket);
    assert_eq!(net.node(1).senders, [id(1).sender(1).unwrap()]);
}

/// What all members hold is under way no more.
#[test]
fn a_bounded_number_of_messages_is_under_way_however_many_a_view_has_had() {
    let mut net = Net::new(1);
    net.view(&[1], true);
    net.settle();
    for is_stable in [true, false] {
        let stability = &mut net.node(1).group.views.running_mut().unwrap().stability;
        (0..MAX_IN_FLIGHT).for_each(|_| stability.delivered(stability.chain()));
        assert!(!is_stable || stability.advance());
        net.publish(1, b"update");
        net.collect();
        assert_eq!(net.order.len(), usize::from(is_stable));
        net.order.clear();
    }
}

#[test]
fn a_message_that_its_sender_alone_was_delivered_is_void() {
    let mut net = three();
    let first = net.publish(1, b"first");
    net.settle();
    let ticket = net.publish(1, b"alone");
    net.collect();
    let (ring, _, from, bytes) = net.order.pop_front().unwrap();
    net.deliver_to(1, ring, from, &bytes);
    net.collect();
    assert_eq!(net.node(1).updates.last().unwrap().1, b"alone");
    net.view(&[1], false);
    net.settle();
    assert!(!net.node(1).in_view);
    net.view(&[2, 3], true);
    net.settle();
    assert_eq!(current_and_fresh(&net, 2), (vec![2, 3], vec![]));
    net.view(&[1, 2, 3], true);
    net.settle();
    for node in [1, 2, 3] {
        assert_eq!(current_and_fresh(&net, node), (vec![2, 3], vec![1]));
        assert!(!net.node(node).last_view().reset);
    }
    net.publish(2, b"later");
    net.settle();
    assert_eq!(net.node(1).stable, first, "the update {ticket:?} never becomes stable");
    assert!(net.node(2).updates.iter().all(|(_, update)| update != b"alone"));
}

#[test]
fn even_if_all_come_together_again_the_majority_does_not_take_the_sender_as_current() {
    let mut net = three();
    net.publish(1, b"alone");
    net.collect();
    let (ring, _, from, bytes) = net.order.pop_front().unwrap();
    net.deliver_to(1, ring, from, &bytes);
    net.view(&[1, 2, 3], true);
    net.settle();
    assert_eq!(current_and_fresh(&net, 1), (vec![2, 3], vec![1]));
    assert_eq!(net.node(1).stable.0, 0);
}

#[test]
fn what_a_view_change_has_swallowed_is_said_again_in_order_and_once() {
    let mut net = three();
    let mut tickets: Vec<_> = (0..3_u8).map(|n| net.publish(1, &[n; 16_000])).collect();
    net.collect();
    net.deliver();
    net.order.clear();
    net.view(&[1, 2], true);
    tickets.push(net.publish(1, b"while the view is formed"));
    net.settle();
    for node in [1, 2] {
        let firsts: Vec<u8> = net.node(node).updates.iter().map(|(_, update)| update[0]).collect();
        assert_eq!(firsts, [0, 1, 2, b'w']);
    }
    assert_eq!(net.node(1).stable, tickets[3]);
}

#[test]
fn what_was_delivered_to_all_but_not_acknowledged_is_stable_in_the_next_view() {
    let mut net = three();
    net.lost = [(2, 1), (3, 1)].into();
    let ticket = net.publish(1, b"update");
    net.settle();
    assert!(net.node(1).stable < ticket);
    net.view(&[1, 2], true);
    net.settle();
    assert_eq!(current_and_fresh(&net, 1), (vec![1, 2], vec![]));
    assert!(net.node(1).stable < ticket, "node 2 has not said that the view has begun there");
    net.lost.clear();
    net.pass(50);
    assert_eq!(net.node(1).stable, ticket);
}

#[test]
fn a_message_of_an_old_ring_is_ignored_by_everybody() {
    let mut net = three();
    net.publish(1, b"old");
    net.collect();
    let (_, members, from, bytes) = net.order.pop_front().unwrap();
    net.view(&[1, 2, 3], true);
    net.settle();
    let delivered = net.node(1).updates.len();
    let ring = net.node(1).ring.clone().unwrap().0;
    net.order.push_back((ring, members, from, bytes));
    net.settle();
    for node in [1, 2, 3] {
        assert_eq!(net.node(node).updates.len(), delivered);
        assert_eq!(net.node(node).group.status().counters.old_ring, 1);
    }
}

#[test]
fn a_repeated_message_counts_once() {
    let mut net = three();
    let ticket = net.publish(1, b"once");
    net.collect();
    let again = net.order.front().unwrap().clone();
    net.order.push_back(again);
    net.settle();
    assert_eq!((net.node(2).updates.len(), net.node(1).stable), (1, ticket));
    assert_eq!(net.node(2).group.status().counters.replayed, 1);
}

#[test]
fn a_forged_acknowledgement_counts_for_nothing() {
    let mut net = three();
    net.publish(1, b"update");
    net.collect();
    net.deliver();
    let mut forged: Vec<_> = net.datagrams.drain(..).filter(|(_, to, ..)| *to == 1).collect();
    forged.iter_mut().for_each(|(.., bytes)| bytes[30] ^= 1);
    net.datagrams.extend(forged);
    net.settle();
    assert_eq!(net.node(1).stable.0, 0);
    assert_eq!(net.node(1).group.status().counters.forged, 2);
}

#[test]
fn an_acknowledgement_of_an_earlier_boot_or_view_counts_for_nothing() {
    let mut net = three();
    net.publish(1, b"a");
    net.collect();
    net.deliver();
    let old: Vec<_> = net.datagrams.drain(..).filter(|(from, to, ..)| (*from, *to) == (3, 1)).collect();
    net.view(&[1, 2, 3], true);
    net.settle();
    net.lost = [(3, 1)].into();
    let ticket = net.publish(1, b"b");
    net.settle();
    net.lost.clear();
    net.datagrams.extend(old);
    net.settle();
    assert!(net.node(1).stable < ticket);
    assert_eq!(net.node(1).group.status().counters.contradictions, 0, "it is of other messages");
}
