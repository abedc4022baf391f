//! What nodes say of sessions, beside their heartbeats.

use super::heartbeats::stop;
use testudo_base::session::{Session, Told};
use testudo_base::spi::Shard;

fn slots(slots: std::ops::Range<u16>) -> Vec<Told> {
    slots.map(|slot| Told { slot, session: Some(Session { tag: 7, lane: Shard(slot as u8) }) }).collect()
}

#[test]
fn what_is_said_of_sessions_goes_with_one_heartbeat() {
    let mut net = stop(3);
    net.node(1).group.set_sessions(slots(0..200));
    net.pass(50);
    let said = vec![(1, slots(0..192)), (1, slots(192..200))];
    assert_eq!([2, 3].map(|node| net.node(node).sessions.clone()), [said.clone(), said]);
    assert!(net.node(1).sessions.is_empty(), "they are its own");
}

/// It would set a node back to what sessions were once.
#[test]
fn what_was_said_of_sessions_counts_once() {
    let mut net = stop(2);
    net.node(1).group.set_sessions(slots(0..3));
    let mut kept = Vec::new();
    for _ in 0..12 {
        net.pass_without_carrying(1);
        kept.extend(net.datagrams.iter().filter(|(_, to, ..)| *to == 2).cloned());
        net.carry();
    }
    assert_eq!(std::mem::take(&mut net.node(2).sessions), [(1, slots(0..3))]);
    for (_, _, link, bytes) in kept {
        let now = net.now;
        net.node(2).group.handle_datagram(now, link, &bytes);
    }
    net.settle();
    assert!(net.node(2).sessions.is_empty());
    net.node(1).group.set_sessions(slots(3..4));
    net.pass(20);
    assert_eq!(net.node(2).sessions, [(1, slots(3..4))]);
}
