//! What a group does not take in: messages of another ring, and datagrams that are not for it. And
//! by whose clock its packets may leave while a view forms.

use super::bulk::{fresh, tell, under_way};
use super::net::{Net, id};
use super::views::three;
use crate::group::datagram::{Body, Datagrams, MessageName};
use crate::group::frame::{self, Frame};
use crate::group::{ClusterKey, NoQuorum, Phase};
use testudo_ike::output::Time;

/// Time passes, and nothing that is said meanwhile reaches anybody.
fn pass_unheard(net: &mut Net, millis: u64) {
    (0..millis).for_each(|_| net.pass_without_carrying(1));
}

/// The same members may form two rings, one after the other: what was said in the first tells of
/// nobody who is there in the second.
#[test]
fn a_status_of_another_ring_does_not_count() {
    let mut net = three();
    net.view(&[1, 2, 3], true);
    let of_node_2 = |net: &Net| net.order.iter().find(|(_, _, from, _)| *from == 2).unwrap().3.clone();
    let old = of_node_2(&net);
    net.view(&[1, 2, 3], true);
    let new = of_node_2(&net);
    let ring = net.order[0].0;
    for (_, _, from, bytes) in std::mem::take(&mut net.order) {
        if from != 2 {
            net.deliver_to(1, ring, from, &bytes);
        }
    }
    let before = net.node(1).group.status().counters.old_ring;
    net.deliver_to(1, ring, 2, &old);
    net.collect();
    let status = net.node(1).group.status();
    assert_eq!((status.phase, status.counters.old_ring), (Phase::Exchange, before + 1));
    net.deliver_to(1, ring, 2, &new);
    net.collect();
    assert_eq!(net.node(1).group.status().phase, Phase::Running);
}

/// A heartbeat proves a link: it counts on the link that it was sent over. A node's own, come back
/// by a loop in the network, tells it nothing.
#[test]
fn a_datagram_counts_neither_on_another_link_nor_from_its_own_sender() {
    let mut net = Net::tuned(2, |config| config.links = 2);
    net.view(&[1, 2], true);
    net.settle();
    net.pass(100);
    net.pass_without_carrying(10);
    let sent = |net: &Net, from: u8| {
        let over_first = |(of, _, link, _): &&(u8, u8, u8, Vec<u8>)| *of == from && *link == 0;
        net.datagrams.iter().find(over_first).unwrap().3.clone()
    };
    let (theirs, own, now) = (sent(&net, 2), sent(&net, 1), net.now);
    let before = net.node(1).group.status();
    assert!(before.peers[0].heard < Some(now));
    net.node(1).group.handle_datagram(now, 1, &theirs);
    net.node(1).group.handle_datagram(now, 0, &own);
    let after = net.node(1).group.status();
    assert_eq!(after.counters.replayed, before.counters.replayed + 2);
    assert_eq!(after.counters.unproven, before.counters.unproven);
    assert_eq!(after.peers[0].heard, before.peers[0].heard);
    net.node(1).group.handle_datagram(now, 0, &theirs);
    let last = net.node(1).group.status();
    assert_eq!((last.counters.replayed, last.peers[0].heard), (after.counters.replayed, Some(now)));
}

/// A fresh node asks the sender of a message for the rest of it.
#[test]
fn what_another_node_is_asked_for_is_not_sent() {
    let mut net = fresh();
    net.lost = [(1, 3), (3, 1)].into();
    tell(&mut net, 1, b"state");
    let Frame::This(header, _) = frame::parse(&net.order[0].3) else { panic!("a message") };
    net.pass(20);
    net.pass_without_carrying(10);
    let datagrams = Datagrams::new(&ClusterKey::new(net.key));
    let (.., of_node_3) = net.datagrams.iter().find(|(from, ..)| *from == 3).unwrap();
    let (sender, _) = datagrams.read(of_node_3).unwrap();
    let of = MessageName { ring: header.ring, epoch: header.epoch, serial: header.serial };
    let now = net.now;
    for (asked, sends) in [(2, false), (1, true)] {
        let bytes = datagrams.write(sender, &Body::Missing(id(asked), of));
        let before = net.node(1).group.status().counters.replayed;
        net.node(1).group.handle_datagram(now, 0, &bytes);
        net.collect();
        let refused = net.node(1).group.status().counters.replayed - before;
        assert_eq!((under_way(&net).len(), refused), (usize::from(sends), u64::from(!sends)));
    }
}

/// There is nobody who could take its shards: a new view of it alone stops no packet, whatever
/// happens without a quorum. Before its first view it has none.
#[test]
fn alone_a_node_goes_on_by_its_own_clock_while_a_view_forms() {
    let mut net = Net::tuned(1, |config| config.no_quorum = NoQuorum::Stop);
    net.view(&[1], true);
    pass_unheard(&mut net, 200);
    assert_eq!(net.node(1).fence, Time::default());
    net.settle();
    net.pass(100);
    net.view(&[1], true);
    pass_unheard(&mut net, 200);
    assert_eq!(net.node(1).group.status().phase, Phase::Exchange);
    assert!(net.nodes[&1].fence > net.now);
}

/// Nobody has brought it up to date: alone it waits for who holds the state, and sends nothing.
#[test]
fn alone_a_node_that_waits_for_the_state_does_not_go_on() {
    let mut net = Net::tuned(3, |config| config.no_quorum = NoQuorum::Stop);
    net.view(&[1, 2, 3], true);
    net.settle();
    net.restart(1);
    net.view(&[1, 2, 3], true);
    net.settle();
    net.view(&[1], true);
    net.pass(200);
    assert!(!net.node(1).in_view, "it waits");
    assert!(net.nodes[&1].fence <= net.now);
}

/// The others have to say that they are there, in a view that forms as in any other.
#[test]
fn with_others_a_node_needs_their_word_while_a_view_forms() {
    let mut net = three();
    net.pass(100);
    assert!(net.nodes[&1].fence > net.now);
    net.view(&[1, 2, 3], true);
    pass_unheard(&mut net, 200);
    assert_eq!(net.node(1).group.status().phase, Phase::Exchange);
    assert!(net.nodes[&1].fence <= net.now);
}
