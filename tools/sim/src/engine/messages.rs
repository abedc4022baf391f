//! Messages in the order of their ring: who has which, and what of them is delivered.

use super::{Engines, Logged, MILLI, Nanos, Reach, Reception};
use std::collections::BTreeSet;
use testudo_cluster::engine::RingId;

/// Interval of retransmissions of a lost message, while the ring lasts.
const RETRANSMIT_INTERVAL: Nanos = 20 * MILLI;

impl Engines {
    pub(super) fn log(&mut self, now: Nanos, id: RingId, from: usize, bytes: Vec<u8>) {
        let Some(ring) = self.rings.get_mut(&id) else { return };
        let index = ring.log.len();
        let sender = self.nodes[from].id;
        ring.log.push(Logged { from, sender, bytes, holders: BTreeSet::new() });
        for node in ring.members.clone() {
            let delay = self.random.between(MILLI / 5, 2 * MILLI) + self.nodes[node].slow;
            self.schedule(now + delay, Reception { ring: id, index, node });
        }
    }

    fn schedule(&mut self, at: Nanos, reception: Reception) {
        self.count += 1;
        self.receptions.insert((at, self.count, reception));
    }

    pub(super) fn receive(&mut self, now: Nanos, reception: Reception, reach: &dyn Reach) {
        let Reception { ring: id, index, node } = reception;
        if self.nodes[node].ring != Some(id) {
            return;
        }
        let Some(message) = self.rings.get(&id).and_then(|ring| ring.log.get(index)) else { return };
        // From the sender, or from another node that has it: the ring retransmits.
        let from = message.from;
        let mut sources = std::iter::once(from).chain(message.holders.iter().copied());
        let comes = sources.any(|source| source == node || self.linked(source, node, id, reach));
        if self.nodes[node].frozen || !comes {
            self.schedule(now + RETRANSMIT_INTERVAL, reception);
            return;
        }
        if let Some(message) = self.rings.get_mut(&id).and_then(|ring| ring.log.get_mut(index)) {
            message.holders.insert(node);
        }
        self.deliver(id, node);
    }

    /// True if `to` receives what `from` has, both in that ring.
    fn linked(&self, from: usize, to: usize, ring: RingId, reach: &dyn Reach) -> bool {
        let source = &self.nodes[from];
        source.up && !source.frozen && source.ring == Some(ring) && reach.reaches(from, to)
    }

    /// Delivers the next messages in order.
    fn deliver(&mut self, id: RingId, index: usize) {
        let Some(ring) = self.rings.get(&id) else { return };
        let node = &mut self.nodes[index];
        while let Some(message) = ring.log.get(node.cursor)
            && message.holders.contains(&index)
        {
            node.cursor += 1;
            self.delivered.push((index, message.event()));
        }
    }

    /// Nodes that leave a ring together deliver what any of them has.
    pub(super) fn flush(&mut self, members: &[usize]) {
        let old: BTreeSet<RingId> = members.iter().filter_map(|node| self.nodes[*node].ring).collect();
        for id in old {
            let together: Vec<usize> =
                members.iter().copied().filter(|node| self.nodes[*node].ring == Some(id)).collect();
            let Some(ring) = self.rings.get(&id) else { continue };
            // Senders with a missing message: nothing after it is delivered.
            let mut missing = BTreeSet::new();
            for (index, message) in ring.log.iter().enumerate() {
                let held = together.iter().any(|node| message.holders.contains(node));
                if !held {
                    missing.insert(message.from);
                }
                let held = held && !missing.contains(&message.from);
                let only = message.holders.len() == 1 && message.holders.contains(&message.from);
                self.lost += u64::from(held && only && together == [message.from] && ring.members.len() > 1);
                for node in together.iter().filter(|_| held) {
                    if self.nodes[*node].cursor <= index {
                        self.delivered.push((*node, message.event()));
                    }
                }
            }
        }
    }
}
