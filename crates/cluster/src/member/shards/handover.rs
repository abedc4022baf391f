//! Handover: a shard goes from its owner to another node that should have it, while both are alive.
//! No packet is lost, and none goes twice.
//!
//! 1. SEG_OFFER. When all nodes know of it, the receiver keeps back packets that come for the
//!    shard, and the owner notes the clear packets that it works on.
//! 2. The owner stops: IKE rests, and packets for the shard are only kept back at the receiver.
//! 3. The owner publishes the last state: the inbound high-water marks, and the notes. SEG_DROP
//!    makes the receiver the owner.
//! 4. When all nodes know of that, the receiver starts with the packets that it kept back and the
//!    notes do not name. For inbound protected packets the high-water marks decide that.
//!
//! A handover that a new view interrupts goes on with the former owner, and may lose packets that
//! came during steps 2 to 4.

use super::Shards;
use crate::group::{Position, Ticket};
use crate::member::core::Core;
use crate::member::replication::Replication;
use crate::member::{Flushed, MemberOutput};
use crate::node::NodeId;
use crate::update::{Left, Offer, Op};
use std::collections::BTreeMap;
use std::time::Duration;
use testudo_base::shard::ShardSet;
use testudo_base::spi::Shard;
use testudo_ike::message::IkeSpi;
use testudo_ike::output::Time;
use testudo_planted::{Plant, planted};

/// Bound on the shards whose IKE rests at a time: the others go on meanwhile.
const MAX_SHARDS_AT_ONCE: usize = 16;
/// Bound on the Child SAs of these shards, which may lower their number: packets wait while all of
/// them are given away and taken in.
const MAX_SAS_AT_ONCE: usize = 512;
/// Bound on the notes of a shard; the latest are kept. It is more than several workers of the
/// receiver keep back.
const MAX_HANDLED_DIGESTS: usize = 32 << 10;
/// How long the owner goes on after all nodes know of its offer: a packet may reach it this much
/// later than the node that keeps it back, if a processor of either is busy.
const FREEZE_DELAY: Duration = Duration::from_millis(10);
/// The same where routers give each packet to one node: one that was relayed to the owner before
/// reaches no other node, and a worker of either may get no processor for a while.
const ROUTED_FREEZE_DELAY: Duration = Duration::from_millis(50);
/// An offer is forgotten if nothing more is heard of it for this time.
const OFFER_TIMEOUT: Duration = Duration::from_secs(1);

/// Shards on their way out.
#[derive(Debug, Default)]
pub(in crate::member) struct Handover(BTreeMap<Shard, Departure>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Departure {
    /// SEG_OFFER is published. The owner goes on until all nodes know of it.
    Offered(NodeId, Ticket),
    /// All nodes know of the offer. The owner goes on until this time.
    Known(NodeId, Time),
    /// Packets and IKE rest until the inbound high-water marks are published.
    Frozen(NodeId),
    /// SEG_DROP is published, in the view of this epoch.
    Dropped(u64),
    /// SEG_DROP was published in an earlier view and is void. Packets go on here once that is
    /// certain.
    Void,
}

/// Shards on their way to this node.
#[derive(Debug, Default)]
pub(in crate::member) struct Arrivals(BTreeMap<Shard, Arrival>);

#[derive(Debug)]
struct Arrival {
    until: Time,
    left: Left,
    /// This node is the next owner, and has received the last state.
    has_come: bool,
}

/// How far the handover of a shard is, and what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoverStage {
    /// Until all nodes know that it will go to this node, which keeps its packets back.
    Offered(NodeId),
    /// Until the workers have finished its packets; it goes to this node.
    Stopped(NodeId),
    /// Until the total order gives it to the other node.
    Dropped,
}

/// How many shards are stopped at a time, given the number of Child SAs of each: at least one.
fn at_once(sas: impl Iterator<Item = usize>) -> usize {
    let mut all = 0_usize;
    let fits = |sas: &usize| {
        all = all.saturating_add(*sas);
        all <= MAX_SAS_AT_ONCE
    };
    sas.take_while(fits).count().max(1)
}

impl Departure {
    /// True if its packets and its IKE go on at this node.
    fn goes_on(self) -> bool {
        matches!(self, Self::Offered(..) | Self::Known(..))
    }
}

impl Handover {
    /// The stages, for operators.
    pub(in crate::member) fn stages(&self) -> Vec<(Shard, HandoverStage)> {
        let shown = |stage: &Departure| match *stage {
            Departure::Offered(to, _) | Departure::Known(to, _) => HandoverStage::Offered(to),
            Departure::Frozen(to) => HandoverStage::Stopped(to),
            Departure::Dropped(_) | Departure::Void => HandoverStage::Dropped,
        };
        self.0.iter().map(|(shard, stage)| (*shard, shown(stage))).collect()
    }

    /// Shards whose IKE rests on both nodes.
    pub(in crate::member) fn held(&self) -> ShardSet {
        self.of(|stage| !stage.goes_on())
    }

    /// Shards that this node gives away.
    pub(in crate::member) fn shards(&self) -> ShardSet {
        self.of(|_| true)
    }

    /// Shards whose packets no node works on at present.
    pub(in crate::member) fn stopped(&self) -> ShardSet {
        self.of(|stage| matches!(stage, Departure::Frozen(_) | Departure::Dropped(_)))
    }

    /// Shards that get another owner as soon as SEG_DROP is delivered: updates of this node about
    /// them come too late. A SEG_DROP of an earlier view is void.
    pub(in crate::member) fn given_up(&self, epoch: u64) -> ShardSet {
        self.of(|stage| *stage == Departure::Dropped(epoch))
    }

    fn of(&self, wanted: impl Fn(&Departure) -> bool) -> ShardSet {
        self.0.iter().filter(|(_, stage)| wanted(stage)).map(|(shard, _)| *shard).collect()
    }

    pub(in crate::member) fn done(&mut self, shard: Shard) {
        self.0.remove(&shard);
    }

    pub(in crate::member) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Arrivals {
    pub(in crate::member) fn shards(&self) -> ShardSet {
        self.0.keys().copied().collect()
    }

    /// When something is to be forgotten.
    pub(in crate::member) fn next_timeout(&self) -> Option<Time> {
        self.0.values().map(|arrival| arrival.until).min()
    }

    /// This node becomes the shard's owner as soon as all nodes know of it.
    pub(in crate::member) fn left(&mut self, now: Time, shard: Shard, left: Left) {
        if let Some(arrival) = self.0.get_mut(&shard) {
            (arrival.until, arrival.left) = (now.plus(OFFER_TIMEOUT), left);
        }
    }

    /// This node has become the owner of these shards. Returns those whose packets were kept back,
    /// and the hashes of packets that must not be worked on again.
    pub(in crate::member) fn arrived(&mut self, shards: ShardSet) -> (ShardSet, Vec<u64>) {
        let (mut arrived, mut digests) = (ShardSet::EMPTY, Vec::new());
        for (shard, arrival) in self.0.iter_mut().filter(|(shard, _)| shards.contains(**shard)) {
            arrived.insert(*shard);
            arrival.has_come = true;
            digests.append(&mut arrival.left.handled);
        }
        (arrived, digests)
    }

    /// True if the reported high-water marks of the shard are as far as its former owner got.
    pub(in crate::member) fn is_exact(&self, shard: Shard) -> bool {
        self.0.get(&shard).is_some_and(|arrival| arrival.has_come && arrival.left.is_exact)
    }

    /// Packets of these shards are accepted here.
    pub(in crate::member) fn taken(&mut self, shards: ShardSet) {
        self.0.retain(|shard, _| !shards.contains(*shard));
    }
}

impl Shards {
    /// Offers some of the shards that another node should have.
    pub(in crate::member) fn hand_over(&mut self, core: &mut Core, replication: &mut Replication, now: Time) {
        let waits = self.offers_from.is_some_and(|from| now < from);
        if !core.view.running || !self.handover.0.is_empty() || waits {
            return;
        }
        // While a node is being brought up to date, a shard changes hands only once all of it has
        // been sent: no other owner would finish what one has begun to send.
        let ready = self.active.without(self.imported).without(replication.resync.untold());
        let misplaced = core.table.misplaced(core.node).filter(|(shard, _)| ready.contains(*shard));
        let mut misplaced: Vec<(Shard, NodeId)> = misplaced.take(MAX_SHARDS_AT_ONCE).collect();
        let sas = misplaced.iter().map(|(shard, _)| replication.replicas.children_of(*shard).count());
        misplaced.truncate(at_once(sas));
        if misplaced.is_empty() {
            return;
        }
        let shards = misplaced.iter().map(|(shard, _)| *shard).collect();
        core.outputs.push_back(MemberOutput::Note { shards });
        let (shards, neighbours) = (misplaced.clone(), self.neighbours.clone());
        let offer = Op::SegOffer(Offer { shards, neighbours, epoch: core.view.epoch });
        let Some(ticket) = core.publish(vec![offer]) else { return };
        let offered = misplaced.into_iter().map(|(shard, to)| (shard, Departure::Offered(to, ticket)));
        self.handover.0.extend(offered);
        self.freeze(core, replication, now);
    }

    /// Offers shards once the nodes that have joined send on spread SAs.
    pub(in crate::member) fn hand_over_in_time(
        &mut self,
        core: &mut Core,
        replication: &mut Replication,
        now: Time,
    ) {
        if self.offers_from.is_some_and(|from| from <= now) {
            self.offers_from = None;
            self.hand_over(core, replication, now);
        }
    }

    /// Another node offers shards: packets for those that are to come here are kept back from now
    /// on.
    pub(in crate::member) fn offered(
        &mut self,
        core: &mut Core,
        replication: &mut Replication,
        now: Time,
        at: Position,
        (from, offer): (NodeId, Offer),
    ) {
        if offer.epoch != core.view.epoch || core.unheard_of.is_some() {
            return;
        }
        let theirs = offer.shards.into_iter().filter(|(shard, _)| core.table.owner(*shard) == Some(from));
        let (ours, others): (Vec<_>, Vec<_>) = theirs.partition(|(_, to)| *to == core.node);
        if from != core.node && !others.is_empty() {
            self.carriers.offered(at, now.plus(OFFER_TIMEOUT), others.into_iter());
        }
        if ours.is_empty() {
            return;
        }
        // Neighbours take longer to resolve than the shard takes to come.
        core.outputs.push_back(MemberOutput::Neighbours(offer.neighbours));
        for (shard, _) in ours {
            let arrival = Arrival { until: now.plus(OFFER_TIMEOUT), left: Left::default(), has_come: false };
            self.arrivals.0.insert(shard, arrival);
        }
        self.show(core, replication, now);
    }

    /// Forgets offers of which nothing more was heard.
    pub(in crate::member) fn expire_arrivals(
        &mut self,
        core: &mut Core,
        replication: &mut Replication,
        now: Time,
    ) {
        let before = self.arrivals.0.len();
        self.arrivals.0.retain(|_, arrival| arrival.until > now);
        if self.arrivals.0.len() != before {
            self.show(core, replication, now);
        }
    }

    /// When shards whose offers all nodes know of may be stopped.
    pub(in crate::member) fn next_freeze(&self, core: &Core) -> Option<Time> {
        let known = |stage: &Departure| match *stage {
            Departure::Known(_, until) => Some(until),
            _ => None,
        };
        self.handover.0.values().filter(|_| core.view.running).filter_map(known).min()
    }

    /// Stops packets and IKE in shards whose offers all nodes know of: the receiver keeps their
    /// packets back.
    pub(in crate::member) fn freeze(&mut self, core: &mut Core, replication: &mut Replication, now: Time) {
        if !core.view.running {
            return;
        }
        let commits = &core.commits;
        let delay = if core.is_routed() { ROUTED_FREEZE_DELAY } else { FREEZE_DELAY };
        let mut frozen = ShardSet::EMPTY;
        for (shard, stage) in &mut self.handover.0 {
            match *stage {
                Departure::Offered(to, ticket) if commits.is_stable(ticket) => {
                    *stage = Departure::Known(to, now.plus(delay));
                }
                Departure::Known(to, until) if until <= now => {
                    *stage = Departure::Frozen(to);
                    frozen.insert(*shard);
                }
                _ => {}
            }
        }
        if !frozen.is_empty() {
            self.update_homes(core, now);
            self.show(core, replication, now);
            core.outputs.push_back(MemberOutput::Flush { shards: frozen });
        }
    }

    /// A view begins, whose members may not include the receivers of shards. Offers are void, and
    /// stopped shards go on.
    pub(in crate::member) fn stop_handover(&mut self, core: &mut Core) {
        self.arrivals.0.clear();
        self.carriers.forget_offers();
        let offered = self.handover.0.len();
        self.handover.0.retain(|_, stage| !stage.goes_on());
        if self.handover.0.len() != offered {
            core.outputs.push_back(MemberOutput::Note { shards: ShardSet::EMPTY });
        }
        for stage in self.handover.0.values_mut() {
            if let Departure::Dropped(_) = stage {
                *stage = Departure::Void;
            }
        }
    }

    /// No packet of these shards is being worked on any more.
    pub(in crate::member) fn flushed(
        &mut self,
        core: &mut Core,
        replication: &mut Replication,
        now: Time,
        flushed: &Flushed,
    ) {
        if !planted(Plant::LastEdgesNotTold) {
            replication.numbers.note_marks(&flushed.marks);
        }
        if core.view.running {
            replication.numbers.tell_marks(
                core,
                &mut replication.replicas,
                now,
                false,
                self.active,
                self.provisional,
            );
        }
        if core.view.running && core.can_spread() && !flushed.tops.is_empty() {
            replication.lane_tops_told(&flushed.tops);
            core.publish(vec![Op::LaneTops(flushed.tops.clone())]);
        }
        replication.turn(core, now);
        for shard in flushed.shards.iter() {
            let Some(Departure::Frozen(to)) = self.handover.0.get(&shard).copied() else { continue };
            // The receiver may have gone meanwhile, or a new node may have come that must learn of
            // the shard first.
            let untold = replication.resync.untold().contains(shard);
            if !core.view.running || untold || !core.table.synced().contains(&to) {
                self.not_dropped(core, replication, now, shard);
                continue;
            }
            self.put_away(core, replication, now, shard);
            let mut ops = Vec::new();
            replication.numbers.grant_shard(&mut replication.replicas, shard, Some(to), true, &mut ops);
            let of_shard = flushed.notes.iter().filter(|note| note.shard == shard);
            let handled = of_shard.map(|note| note.digest).take(MAX_HANDLED_DIGESTS).collect();
            let left = Left { is_exact: !replication.numbers.marks.is_doubtful(shard), handled };
            ops.push(Op::SegDrop { shard, to, epoch: core.view.epoch, left });
            self.handover.0.insert(shard, Departure::Dropped(core.view.epoch));
            replication.publish_grants(core, ops);
        }
    }

    /// Moves the IKE SAs of a shard out of the endpoint, to be kept like those of other nodes. All
    /// of their changes have been published.
    fn put_away(&self, core: &mut Core, replication: &mut Replication, now: Time, shard: Shard) {
        let spis: Vec<IkeSpi> = replication.replicas.ikes_of(shard).map(|(spi, _)| *spi).collect();
        for spi in spis {
            let Some(ike) = replication.replicas.ikes.get_mut(&spi) else { continue };
            if ike.here.take().is_some() {
                core.commits.forget(ike.id);
                core.endpoint.replication_mut().evict(now, ike.id);
            }
        }
    }

    /// The shard stays: it goes on here.
    pub(in crate::member) fn not_dropped(
        &mut self,
        core: &mut Core,
        replication: &mut Replication,
        now: Time,
        shard: Shard,
    ) {
        self.handover.done(shard);
        self.imported.insert(shard);
        self.imports.extend(replication.replicas.readable(shard));
        self.show(core, replication, now);
    }
}

#[cfg(test)]
mod tests;
