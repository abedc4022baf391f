//! Bulk transfer: what brings a fresh node up to date goes to it beside the engine, and has its
//! place in the order all the same.

use super::net::{Net, id};
use super::views::{current_and_fresh, three};
use crate::group::GroupConfig;
use crate::group::datagram::{Body, Datagrams, MessageName, Sender};
use crate::group::frame::{self, Frame, Kind};
use crate::group::{ClusterKey, Ticket};

/// Octets that the engine carries of a message that goes beside it: header, proof and tag.
const BY_ENGINE: usize = 64;

/// Nodes 1 and 2 hold the state, node 3 is fresh.
pub(super) fn fresh() -> Net {
    fresh_among(Net::new(3))
}

fn fresh_among(mut net: Net) -> Net {
    net.view(&[1, 2, 3], true);
    net.settle();
    net.restart(3);
    net.view(&[1, 2, 3], true);
    net.settle();
    assert_eq!(current_and_fresh(&net, 1), (vec![1, 2], vec![3]));
    net
}

pub(super) fn tell(net: &mut Net, number: u8, update: &[u8]) -> Ticket {
    let ticket = net.node(number).group.publish_bulk(update.to_vec());
    net.collect();
    ticket
}

fn heard(net: &mut Net, number: u8) -> Vec<(u8, Vec<u8>)> {
    std::mem::take(&mut net.node(number).updates)
}

/// The lengths of the messages that are under way by the engine.
pub(super) fn under_way(net: &Net) -> Vec<usize> {
    net.order.iter().map(|(.., bytes)| bytes.len()).collect()
}

#[test]
fn only_who_is_fresh_hears_it_and_all_count_it() {
    let mut net = fresh();
    net.publish(1, b"before");
    let ticket = tell(&mut net, 1, &[7; 10_000]);
    net.publish(1, b"behind");
    net.collect();
    assert_eq!(under_way(&net).get(1), Some(&BY_ENGINE), "{:?}", under_way(&net));
    net.settle();
    let all = [(1, b"before".to_vec()), (1, vec![7; 10_000]), (1, b"behind".to_vec())];
    assert_eq!(heard(&mut net, 3), all);
    for number in [1, 2] {
        assert_eq!(heard(&mut net, number), [all[0].clone(), all[2].clone()]);
    }
    assert!(net.node(1).stable > ticket);
    let places = [1, 2, 3].map(|number| net.node(number).group.status().delivered);
    assert_eq!(places[0], places[2]);
    assert_eq!(places[1], places[2]);
}

#[test]
fn who_has_not_got_it_takes_in_nothing_behind_it_and_says_that_it_has_nothing() {
    let mut net = fresh();
    net.lost = [(1, 3)].into();
    let ticket = tell(&mut net, 1, b"state");
    net.publish(2, b"behind");
    net.settle();
    assert_eq!(heard(&mut net, 3), []);
    assert_eq!(heard(&mut net, 2), [(2, b"behind".to_vec())]);
    assert!(net.node(1).stable < ticket, "not all hold it");
    // Node 3 asks, and the engine loses nothing.
    net.pass(12);
    assert_eq!(heard(&mut net, 3), [(1, b"state".to_vec()), (2, b"behind".to_vec())]);
    assert_eq!(net.node(1).stable, ticket);
    assert_eq!(net.node(2).updates, [], "to the others it is nothing new");
}

#[test]
fn it_is_asked_for_until_it_comes() {
    let mut net = fresh();
    net.lost = [(1, 3), (3, 1)].into();
    tell(&mut net, 1, b"state");
    net.pass(100);
    assert_eq!(heard(&mut net, 3), []);
    net.lost.clear();
    net.pass(12);
    assert_eq!(heard(&mut net, 3), [(1, b"state".to_vec())]);
    assert_eq!(under_way(&net), [0; 0]);
}

/// The engine may have a network of its own.
#[test]
fn a_link_that_is_dead_does_not_matter_nor_do_all_of_them() {
    let mut net = fresh_among(Net::tuned(3, |config: &mut GroupConfig| config.links = 2));
    net.lost_links = [0].into();
    tell(&mut net, 1, b"state");
    net.pass(12);
    assert_eq!(heard(&mut net, 3), [(1, b"state".to_vec())]);

    net.lost = [(1, 3), (3, 1)].into();
    tell(&mut net, 1, b"more");
    net.pass(290);
    assert_eq!(heard(&mut net, 3), []);
    net.pass(20);
    assert_eq!(heard(&mut net, 3), [(1, b"more".to_vec())], "nobody could ask");
}

#[test]
fn a_burst_that_is_lost_comes_together() {
    let mut net = fresh();
    net.lost = [(1, 3)].into();
    let updates: Vec<_> = (0..100).map(|number| (1, vec![number; 100])).collect();
    for (_, update) in &updates {
        net.node(1).group.publish_bulk(update.clone());
    }
    net.settle();
    assert_eq!(heard(&mut net, 3), []);
    net.pass(12);
    assert_eq!(heard(&mut net, 3), updates, "all of it was asked for in one go");
}

#[test]
fn what_has_waited_is_taken_in_by_and_by() {
    let mut net = fresh();
    net.lost = [(1, 3)].into();
    tell(&mut net, 1, &[0; 100]);
    net.settle();
    net.lost.clear();
    let updates: Vec<_> = (0..40).map(|number| (1, vec![number; 100])).collect();
    for (_, update) in updates.iter().skip(1) {
        net.node(1).group.publish_bulk(update.clone());
    }
    net.settle();
    net.pass(11);
    let some = heard(&mut net, 3);
    assert!(!some.is_empty() && some.len() < 20, "{}", some.len());
    net.pass(12);
    assert_eq!([some, heard(&mut net, 3)].concat(), updates);
}

/// The other nodes that hold the state need nothing of it.
#[test]
fn that_another_node_is_slow_is_no_reason_to_send_it_again() {
    let mut net = fresh();
    net.lost = [(2, 1)].into();
    for number in 0..20 {
        tell(&mut net, 1, &[number; 100]);
    }
    net.pass(1000);
    assert_eq!(heard(&mut net, 3).len(), 20);
    assert!(net.node(1).group.sends_bulk_directly());
}

#[test]
fn what_has_come_counts_when_the_view_ends() {
    let mut net = fresh();
    net.lost = [(1, 3)].into();
    tell(&mut net, 1, b"state");
    for _ in 0..100 {
        net.publish(2, b"behind");
        net.settle();
    }
    net.pass(10);
    let some = heard(&mut net, 3).len();
    assert!((1..101).contains(&some), "{some}");
    net.view(&[1, 2, 3], true);
    assert_eq!(some + heard(&mut net, 3).len(), 101);
}

#[test]
fn of_two_fresh_nodes_one_may_lose_it() {
    let mut net = Net::new(5);
    net.view(&[1, 2, 3, 4, 5], true);
    net.settle();
    (4..=5).for_each(|number| net.restart(number));
    net.view(&[1, 2, 3, 4, 5], true);
    net.settle();
    net.lost = [(1, 4)].into();
    tell(&mut net, 1, b"state");
    net.settle();
    assert_eq!((heard(&mut net, 4), heard(&mut net, 5)), (vec![], vec![(1, b"state".to_vec())]));
    net.pass(12);
    assert_eq!((heard(&mut net, 4), heard(&mut net, 5)), (vec![(1, b"state".to_vec())], vec![]));
}

/// The view has begun on nodes 1 and 2, and node 3 has yet to hear the last STATUS.
#[test]
fn what_comes_before_the_view_is_kept_for_it() {
    let mut net = three();
    net.restart(3);
    net.view(&[1, 2, 3], true);
    let mut later = Vec::new();
    for told in [false, true] {
        if told {
            tell(&mut net, 1, b"state");
            net.carry();
        }
        while let Some((ring, _, from, bytes)) = net.order.pop_front() {
            [1, 2].into_iter().for_each(|number| net.deliver_to(number, ring, from, &bytes));
            later.push((ring, from, bytes));
            net.collect();
        }
    }
    assert!(!net.node(3).in_view && net.node(1).in_view);
    for (ring, from, bytes) in later {
        net.deliver_to(3, ring, from, &bytes);
        net.collect();
    }
    assert_eq!(heard(&mut net, 3), [(1, b"state".to_vec())], "it need not be asked for");
}

#[test]
fn where_datagrams_of_that_size_do_not_pass_the_engine_does_it_all() {
    let mut net = fresh();
    net.lost = [(1, 3)].into();
    for number in 0..8 {
        tell(&mut net, 1, &[number; 100]);
        assert_eq!(under_way(&net), [BY_ENGINE]);
        net.pass(12);
    }
    tell(&mut net, 1, &[8; 100]);
    assert!(under_way(&net)[0] > 100);
    net.settle();
    let expected: Vec<_> = (0..9).map(|number| (1, vec![number; 100])).collect();
    assert_eq!(heard(&mut net, 3), expected);
}

#[test]
fn it_goes_by_the_engine_where_it_is_too_long_nobody_is_fresh_or_somebody_does_not_know() {
    let mut net = fresh();
    tell(&mut net, 1, &[1; 70_000]);
    assert!(under_way(&net)[0] > 70_000);
    net.settle();
    assert_eq!(heard(&mut net, 3), [(1, vec![1; 70_000])]);

    let mut net = three();
    assert!(!net.node(1).group.sends_bulk_directly());
    tell(&mut net, 1, b"state");
    net.settle();
    assert_eq!(heard(&mut net, 2), [(1, b"state".to_vec())], "as any other");

    let mut net = fresh_among(Net::tuned(3, |config: &mut GroupConfig| config.speaks = 16));
    tell(&mut net, 1, b"state");
    net.settle();
    for number in [2, 3] {
        assert_eq!(heard(&mut net, number), [(1, b"state".to_vec())]);
    }
}

#[test]
fn what_does_not_belong_there_is_not_taken_for_it() {
    let mut net = fresh();
    net.lost = [(1, 3)].into();
    tell(&mut net, 1, b"state");
    let Frame::This(header, _) = frame::parse(&net.order[0].3) else { panic!("a message") };
    assert_eq!(header.kind, Kind::Bulk);
    // A node that has the key may still say anything: node 2 also in the name of node 1.
    let of = MessageName { ring: header.ring, epoch: header.epoch, serial: header.serial };
    let forged = Datagrams::new(&ClusterKey::new(net.key))
        .write(Sender { node: id(1), boot: 0, link: 0 }, &Body::Rest(of, b"sxxxe".to_vec()));
    let now = net.now;
    net.node(3).group.handle_datagram(now, 0, &forged);
    net.settle();
    assert_eq!(heard(&mut net, 3), []);
    net.pass(12);
    assert_eq!(heard(&mut net, 3), [(1, b"state".to_vec())]);
}

/// Any other would lie here until the view ends.
#[test]
fn a_rest_is_kept_for_a_message_of_a_member_that_has_yet_to_come() {
    let mut net = fresh();
    tell(&mut net, 1, b"state");
    let Frame::This(header, _) = frame::parse(&net.order[0].3) else { panic!("a message") };
    net.settle();
    assert_eq!(heard(&mut net, 3), [(1, b"state".to_vec())]);
    let mut is_kept = |from, serial| {
        let of = MessageName { ring: header.ring, epoch: header.epoch, serial };
        net.node(3).group.views.rest_came(id(from), of, b"rest".to_vec())
    };
    assert!(!is_kept(1, header.serial), "it has been taken in");
    assert!(!is_kept(4, header.serial + 1), "node 4 is no member");
    assert!(is_kept(1, header.serial + 1));
}

/// A sender that may multicast, but has no key, makes no node count what was never said, or wait
/// for it.
#[test]
fn a_place_that_nobody_has_proven_is_none() {
    let mut net = fresh();
    let ticket = net.publish(1, b"said");
    net.collect();
    let (ring, members, from, said) = net.order.pop_front().unwrap();
    for cut in [64, said.len()] {
        // Of the same kind, or of another one with one bit changed.
        let mut forged = said[..cut.min(said.len())].to_vec();
        forged[3] ^= 1;
        net.order.push_back((ring, members.clone(), from, forged));
    }
    net.order.push_back((ring, members, from, said));
    net.settle();
    for number in [1, 2, 3] {
        assert_eq!(heard(&mut net, number), [(1, b"said".to_vec())], "node {number}");
        assert!(net.node(number).group.status().counters.unopened >= 1);
    }
    assert_eq!(net.node(1).stable, ticket);
}

#[test]
fn a_view_that_ends_meanwhile_takes_what_waits_with_it() {
    let mut net = fresh();
    net.lost = [(1, 3), (3, 1)].into();
    tell(&mut net, 1, b"state");
    net.publish(2, b"behind");
    net.settle();
    net.lost.clear();
    net.view(&[1, 2, 3], true);
    net.settle();
    net.pass(50);
    assert_eq!(current_and_fresh(&net, 3), (vec![1, 2], vec![3]), "it is fresh still");
    assert_eq!(heard(&mut net, 3), [], "and is told anew by those who know");
    tell(&mut net, 1, b"state again");
    net.settle();
    assert_eq!(heard(&mut net, 3), [(1, b"state again".to_vec())]);
}

#[test]
fn what_was_not_delivered_goes_to_who_is_fresh_in_the_next_view() {
    let mut net = fresh();
    tell(&mut net, 1, b"state");
    net.order.clear();
    net.view(&[1, 2, 3], true);
    net.settle();
    assert_eq!(heard(&mut net, 3), [(1, b"state".to_vec())]);
    assert_eq!(heard(&mut net, 2), []);
}
