//! A share goes from its owner to another node that should have it, with both of them alive: IKE rests, the last is told, the share
//! dropped.
//!
//! Packets go on meanwhile. Their old owner leaves off where SEG_DROP is delivered to it; the new one begins when that is stable,
//! which needs the acknowledgement that the old one sends thereafter. So no packet is taken by both, and none is taken by neither but
//! those that come while one acknowledgement is on its way. Less would need both to agree on a packet instead of a moment.

use super::{Member, MemberOutput};
use crate::node::NodeId;
use crate::share::ShareSet;
use crate::update::Op;
use std::collections::BTreeMap;
use testudo_ike::message::IkeSpi;
use testudo_ike::output::Time;
use testudo_ipsec::spi::{Share, Spi};

/// Shares whose IKE rests at a time: the others go on meanwhile.
const AT_ONCE: usize = 16;

/// Shares on their way out.
#[derive(Debug, Default)]
pub(super) struct Handover(BTreeMap<Share, Stage>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// IKE rests until it is told up to where packets have been taken in.
    Frozen(NodeId),
    /// SEG_DROP has been said, in the view of that epoch. Until it is delivered this node carries the packets.
    Dropped(u64),
}

impl Handover {
    /// Whose IKE is neither here nor there.
    pub(super) fn held(&self) -> ShareSet {
        self.0.keys().copied().collect()
    }

    /// Shares that are another's as soon as SEG_DROP is delivered: what this node says of them now comes too late. Of an earlier view
    /// it is void.
    pub(super) fn given_up(&self, epoch: u64) -> ShareSet {
        let given_up = self.0.iter().filter(|(_, stage)| **stage == Stage::Dropped(epoch));
        given_up.map(|(share, _)| *share).collect()
    }

    pub(super) fn done(&mut self, share: Share) {
        self.0.remove(&share);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Member {
    /// Lets IKE rest in some of the shares that another node should have.
    pub(super) fn hand_over(&mut self, now: Time) {
        if !self.running || !self.handover.0.is_empty() {
            return;
        }
        // While a node is being brought up to date a share changes hands once all of it has been told: what one owner has begun to
        // tell, no other would end.
        let ready = self.active.without(self.imported).without(self.resync.untold());
        let misplaced = self.table.misplaced(self.node).filter(|(share, _)| ready.contains(*share));
        let misplaced: Vec<(Share, NodeId)> = misplaced.take(AT_ONCE).collect();
        if misplaced.is_empty() {
            return;
        }
        self.handover.0.extend(misplaced.iter().map(|(share, to)| (*share, Stage::Frozen(*to))));
        self.update_homes(now);
        self.show(now);
        let shares = misplaced.into_iter().map(|(share, _)| share).collect();
        self.outputs.push_back(MemberOutput::Flush { shares });
    }

    /// Up to here packets were taken in on the SAs of these shares.
    pub fn flushed(&mut self, now: Time, shares: ShareSet, edges: &[(Spi, u64)]) {
        self.note_edges(edges);
        if self.running {
            self.tell_edges(now, false);
        }
        self.turn(now);
        for share in shares.iter() {
            let Some(Stage::Frozen(to)) = self.handover.0.get(&share).copied() else { continue };
            // Who was to have it may have gone meanwhile, and somebody else come who must hear of it first.
            let untold = self.resync.untold().contains(share);
            if !self.running || untold || !self.table.synced().contains(&to) {
                self.not_dropped(now, share);
                continue;
            }
            self.put_away(now, share);
            let mut ops = Vec::new();
            self.grant_share(share, Some(to), true, &mut ops);
            ops.push(Op::SegDrop { share, to, epoch: self.epoch });
            self.handover.0.insert(share, Stage::Dropped(self.epoch));
            self.publish(ops);
        }
    }

    /// The IKE SAs of a share leave the endpoint, and are kept as those of others are. All has been told that there is to tell.
    fn put_away(&mut self, now: Time, share: Share) {
        let spis: Vec<IkeSpi> = self.replicas.ikes_of(share).map(|(spi, _)| *spi).collect();
        for spi in spis {
            let Some(ike) = self.replicas.ikes.get_mut(&spi) else { continue };
            if ike.here.take().is_some() {
                self.commits.forget(ike.id);
                self.endpoint.evict(now, ike.id);
            }
        }
    }

    /// The share stays: it goes on here.
    pub(super) fn not_dropped(&mut self, now: Time, share: Share) {
        self.handover.done(share);
        self.imported.insert(share);
        self.imports.extend(self.replicas.readable(share));
        self.show(now);
    }
}
