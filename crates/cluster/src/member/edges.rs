//! Up to where packets were taken in: what an owner tells of it, so that whoever takes over accepts none of them again.
//!
//! The taker knows what its own filter has seen pass, too, but has not verified that. What a forged packet can do is bounded by how
//! far the owner can have got since it last told; so it tells often, and says when nothing else has moved. A taker that may have
//! been led astray even so makes new keys at once, and with them a new window.

use super::{Member, replicas::ChildReplica};
use crate::node::NodeId;
use crate::update::Op;
use std::collections::{BTreeMap, BTreeSet};
use testudo_ike::output::Time;
use testudo_ipsec::spi::{Share, Spi};

/// Edges of one update: what is about a batch.
const EDGES: usize = 512;
/// A floor so far above what the owner was expected to reach is as good as any: so many packets may fall under it.
const LOST: u64 = 256;
/// A peer may have become so many times as fast as it was.
const FASTER: u64 = 4;

/// What this node knows of edges beside those of each Child SA.
#[derive(Debug, Default)]
pub(super) struct Edges {
    /// Edges that have moved here and that no other node has been told.
    moved: BTreeMap<Spi, u64>,
    /// When the owner of a share had last told all that had moved.
    all_told: BTreeMap<Share, Time>,
    /// Child SAs whose floor here may be beyond all that their peers have sent.
    doubtful: BTreeSet<Spi>,
}

impl Edges {
    /// As of when the edge of a Child SA is known.
    fn known_at(&self, share: Share, child: &ChildReplica) -> Time {
        self.all_told.get(&share).copied().unwrap_or_default().max(child.edge_at)
    }
}

impl Member {
    /// Up to where packets were taken in on SAs of this node: about once a second, those that have moved since.
    pub fn report_edges(&mut self, now: Time, edges: &[(Spi, u64)]) {
        self.note_edges(edges);
        // Without a view they would pile up; the next ones say it again.
        if self.running {
            self.tell_edges(now, true);
        }
    }

    pub(super) fn note_edges(&mut self, edges: &[(Spi, u64)]) {
        self.edges.moved.extend(edges.iter().copied());
    }

    /// Tells the others what has moved. `all`: nothing else has.
    pub(super) fn tell_edges(&mut self, now: Time, all: bool) {
        let mut told = Vec::new();
        for (spi, edge) in std::mem::take(&mut self.edges.moved) {
            let share = spi.share();
            if self.provisional.contains(share) {
                // It may become this node's.
                self.edges.moved.insert(spi, edge);
            }
            let Some(child) = self.replicas.child_mut(spi).filter(|_| self.active.contains(share)) else {
                continue;
            };
            child.edge_at = now;
            if edge > child.edge {
                child.edge = edge;
                told.push((spi, edge));
            }
        }
        let mut ops: Vec<Op> =
            told.chunks(EDGES).map(|moved| Op::Edges { moved: moved.to_vec(), all: false }).collect();
        if all {
            self.edges.all_told.extend(self.active.iter().map(|share| (share, now)));
            match ops.last_mut() {
                Some(Op::Edges { all, .. }) => *all = true,
                _ => ops.push(Op::Edges { moved: Vec::new(), all }),
            }
        }
        self.publish(ops);
    }

    /// Another node has told edges of its shares.
    pub(super) fn edges_told(&mut self, now: Time, from: NodeId, moved: &[(Spi, u64)], all: bool) {
        for (spi, edge) in moved {
            let share = spi.share();
            if !self.may_say(from, share) {
                continue;
            }
            let Some(child) = self.replicas.child_mut(*spi) else { continue };
            let millis = now.since(self.edges.known_at(share, child)).as_millis().max(1);
            let passed = u128::from(edge.saturating_sub(child.edge)) * 1000 / millis;
            child.rate = u64::try_from(passed).unwrap_or(u64::MAX);
            (child.edge, child.edge_at) = (child.edge.max(*edge), now);
        }
        // Who has not heard whose the shares are does not know of which this is said.
        if all && self.unheard_of.is_none() {
            self.edges.all_told.extend(self.table.owned_by(from).iter().map(|share| (share, now)));
        }
    }

    /// How far the owner of a share can have got since it told the edge of a Child SA.
    pub(super) fn reach(&self, now: Time, share: Share, child: &ChildReplica) -> u64 {
        let passed = now.since(self.edges.known_at(share, child)).saturating_add(self.config.detection);
        let reach = u128::from(self.config.line_rate) * passed.as_millis() / 1000;
        u64::try_from(reach).unwrap_or(u64::MAX)
    }

    /// Child SAs that are taken in here now count as seen up to these floors.
    pub fn taken_in(&mut self, now: Time, floors: &[(Spi, u64)]) {
        for (spi, floor) in floors {
            let Some(child) = self.replicas.child(*spi) else { continue };
            let passed =
                now.since(self.edges.known_at(spi.share(), child)).saturating_add(self.config.detection);
            let millis = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
            let expected = child.rate.saturating_mul(FASTER).saturating_mul(millis) / 1000;
            if floor.saturating_sub(child.edge) > expected.saturating_add(LOST) {
                self.edges.doubtful.insert(*spi);
            }
        }
    }

    /// New keys for those Child SAs of this node whose peers may be far below the floor: RFC 4303 knows no way to lower it.
    pub(super) fn renew_doubtful(&mut self, now: Time) {
        if self.edges.doubtful.is_empty() || !self.may_speak(now) {
            return;
        }
        let carried = self.shown.packets;
        self.edges.doubtful.retain(|spi| carried.contains(spi.share()));
        let speaks = self.shown.ike.without(self.imported);
        let ready = |spi: &Spi| speaks.contains(spi.share());
        let ready: Vec<Spi> = self.edges.doubtful.iter().copied().filter(ready).collect();
        for spi in ready {
            self.edges.doubtful.remove(&spi);
            let Some(id) = self.replicas.child(spi).map(|child| child.id) else { continue };
            if self.endpoint.rekey_child(now, id) {
                let line = format!(
                    "a packet far ahead was seen on Child SA {spi} before it was taken over: new keys"
                );
                self.log(1, line);
            }
        }
    }
}
