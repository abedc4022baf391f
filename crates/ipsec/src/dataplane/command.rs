//! Commands of control to a worker, and what they displace.

use super::table::{PolicyPlace, Sample};
use super::{Dataplane, LocalAddrs, Note, PolicyBlock, Relay};
use crate::number::{RowClock, Stripes, WorkerId};
use crate::replay::LaneFloor;
use crate::sa::{InboundSa, OutboundSa};
use crate::sad::SlotBlock;
use crate::spd::{PolicyId, Spd};
use std::sync::Arc;
use testudo_base::shard::ShardSet;
use testudo_base::siphash::SipKey;
use testudo_base::spi::{SenderId, Shard, Spi};

/// A change, applied between two bursts. A command brings all memory that it needs: with several
/// workers, control makes a copy for each.
#[derive(Clone, Debug)]
pub enum Command {
    /// Adds slots for inbound SAs. Needed once, before the first SA in one of them.
    AddSlots(Box<SlotBlock>),
    /// Begins to accept packets of an SA.
    AddInbound(Arc<InboundSa>),
    /// Stops accepting packets of an SA.
    RemoveInbound(Spi),
    /// Sends a policy's traffic through this SA from now on; at a worker with an SA of its own, once
    /// that is gone.
    SetOutbound(PolicyId, Arc<OutboundSa>),
    /// Sends what this worker sends of a policy's traffic through this SA, and no other worker's: it
    /// shares sequence numbers with nobody (RFC 9611). Not for spread SAs.
    SetOwnOutbound(WorkerId, PolicyId, Arc<OutboundSa>),
    /// Removes a policy's SA, if the inbound half of that SA has this SPI: a rekeyed SA may have
    /// taken its place. The outbound SPI, which the peer chose, may be that of two SAs for a
    /// moment: after the answer to the peer's request was lost with the node that made the first.
    ClearOutbound(PolicyId, Spi),
    /// Adds places for policies' outbound SAs. Needed once, before the first SA in one of them.
    AddPolicies(Box<PolicyBlock>),
    /// Sets the policies. Those that keep their number keep their SA; the SA of a removed policy
    /// must be cleared.
    SetSpd(Arc<Spd>),
    /// Sets a sender ID that was never used under the present keys.
    SetSenderId(SenderId),
    /// Stops sending packets that need an IV, until there is a sender ID later than any before: the
    /// present one may be in use elsewhere.
    ForgetSenderId,
    /// Sets the gateway's own addresses.
    SetLocalAddrs(Arc<LocalAddrs>),
    /// Sets the shards that this node carries.
    SetShards(ShardSet),
    /// Has packets of these shards, which another node still carries, come back as
    /// [`super::Verdict::Held`].
    Hold(ShardSet),
    /// Notes in the list the clear packets of these shards that are worked on, because the shards
    /// are about to go to another node: the latest, as many as there is room for.
    Note(ShardSet, Box<[Note]>),
    /// Ends noting. The notes come back as garbage.
    TakeNotes,
    /// Clear packets of these shards that others have worked on, by the hashes that they noted,
    /// with false for each. The shards come here with the next [`Command::SetShards`]. Each of
    /// these packets is dropped once.
    Handled(ShardSet, Box<[(u64, bool)]>),
    /// Key of the hash by which one node keeps a packet that reaches all nodes and meets no SA. All
    /// nodes have the same key. A stranger who knows it can choose the node, but nothing more.
    SetHashKey(SipKey),
    /// SAs for which another node has received: all numbers up to these count as seen. To be
    /// applied before their shards are added.
    TakeIn(Box<[(Spi, u64)]>),
    /// Sets the stripes of a policy's spread SA, if the inbound half of that SA has this SPI. They
    /// must be of this SA as it is: one that is built anew has forgotten which rows it has used, and
    /// needs a stripe of its own.
    SetStripes(PolicyId, Spi, Arc<Stripes>),
    /// Sets the clock by which the nodes number the packets of spread SAs. To be applied before the
    /// first of them.
    SetClock(Arc<dyn RowClock>),
    /// Lanes of spread SAs for which another node has received: all numbers of a lane up to its
    /// floor count as seen. To be applied before the lanes' shards are added, or released from
    /// [`Command::Hold`].
    TakeInLanes(Box<[LaneFloor]>),
    /// Sets the home shard of a policy's packets while it has no SA; only the node that carries it
    /// asks for an SA. `None`: this node.
    SetHome(PolicyId, Option<Shard>),
    /// Relays the packets of other nodes' shards to them, and accepts what they relay. Without it
    /// the packets of other nodes are dropped.
    SetRelay(Arc<Relay>),
}

/// What a command has displaced; control frees it.
#[derive(Debug)]
pub enum Garbage {
    /// The slots exist already.
    Slots(Box<SlotBlock>),
    /// An SA that has been removed, or whose slot another SA has taken.
    Inbound(Arc<InboundSa>),
    /// An SA that was not added because its slot does not exist: [`Command::AddSlots`] was
    /// forgotten.
    NotAdded(Arc<InboundSa>),
    /// An SA that its policy no longer uses, and its stripes.
    Outbound(Arc<OutboundSa>, Option<Arc<Stripes>>),
    /// The policies have places already.
    Policies(Box<PolicyBlock>),
    /// An SA that was not set because its policy has no place: [`Command::AddPolicies`] was
    /// forgotten.
    NotSet(Arc<OutboundSa>),
    /// The own SA of another worker.
    NotOwn(Arc<OutboundSa>),
    /// The former policies.
    Spd(Arc<Spd>),
    /// The sender ID was the present one; it was not set again.
    SenderId(SenderId),
    /// The former addresses.
    LocalAddrs(Arc<LocalAddrs>),
    /// The list has been applied.
    TakenIn(Box<[(Spi, u64)]>),
    /// The former stripes; or those of an SA that its policy does not have.
    Stripes(Arc<Stripes>),
    /// The former clock.
    Clock(Arc<dyn RowClock>),
    /// The list has been applied.
    TakenInLanes(Box<[LaneFloor]>),
    /// A former list for notes.
    Notes(Box<[Note]>),
    /// The notes: this many at the front of the list.
    Noted(Box<[Note]>, usize),
    /// A list of handled packets that was replaced.
    Handled(Box<[(u64, bool)]>),
    /// The home was not set because its policy has no place: [`Command::AddPolicies`] was
    /// forgotten.
    Home(PolicyId),
    /// The former table of relay SAs.
    Relay(Arc<Relay>),
}

impl Dataplane {
    /// Applies a command. Returns what it has displaced.
    pub fn apply(&mut self, command: Command) -> Option<Garbage> {
        match command {
            Command::AddSlots(block) => self.sad.add_slots(block).map(Garbage::Slots),
            Command::AddInbound(sa) => self.add_inbound(sa),
            Command::RemoveInbound(spi) => {
                let removed = self.sad.remove(spi)?;
                self.counters.inbound_sas.subtract(1);
                Some(Garbage::Inbound(removed))
            }
            Command::SetOutbound(policy, sa) => self.set_outbound(policy, sa),
            Command::SetOwnOutbound(worker, policy, sa) => self.set_own_outbound(worker, policy, sa),
            Command::ClearOutbound(policy, spi_in) => self.clear_outbound(policy, spi_in),
            Command::AddPolicies(block) => self.outbound.add(block).map(Garbage::Policies),
            Command::SetSpd(spd) => Some(self.set_spd(spd)),
            Command::SetSenderId(sender) => {
                if !self.ivs.set_sender(sender) {
                    return Some(Garbage::SenderId(sender));
                }
                self.iv_low_told = None;
                None
            }
            Command::ForgetSenderId => {
                self.ivs.forget_sender();
                None
            }
            Command::SetLocalAddrs(addrs) => {
                Some(Garbage::LocalAddrs(std::mem::replace(&mut self.local, addrs)))
            }
            Command::SetShards(shards) => {
                self.shards = shards;
                None
            }
            Command::Hold(shards) => {
                self.transit.hold(shards);
                None
            }
            Command::Note(shards, list) => Some(Garbage::Notes(self.transit.note(shards, list))),
            Command::TakeNotes => {
                let (notes, count) = self.transit.take_notes();
                Some(Garbage::Noted(notes, count))
            }
            Command::Handled(shards, digests) => {
                Some(Garbage::Handled(self.transit.handled(shards, digests, self.now)))
            }
            Command::SetHashKey(key) => {
                self.pairs = key;
                None
            }
            Command::TakeIn(floors) => {
                self.take_in(&floors);
                Some(Garbage::TakenIn(floors))
            }
            Command::SetStripes(policy, spi_in, stripes) => self.set_stripes(policy, spi_in, stripes),
            Command::SetClock(clock) => self.clock.replace(clock).map(Garbage::Clock),
            Command::TakeInLanes(floors) => {
                self.take_in_lanes(&floors);
                Some(Garbage::TakenInLanes(floors))
            }
            Command::SetHome(policy, home) => match self.outbound.get_mut(policy) {
                Some(place) => {
                    place.home = home;
                    None
                }
                None => Some(Garbage::Home(policy)),
            },
            Command::SetRelay(relay) => self.relay.replace(relay).map(Garbage::Relay),
        }
    }

    fn take_in(&self, floors: &[(Spi, u64)]) {
        for (spi, floor) in floors {
            // An SA that does not exist has been deleted meanwhile.
            if let Some(sa) = self.sad.get(*spi) {
                sa.window.raise(*floor);
            }
        }
    }

    fn take_in_lanes(&self, floors: &[LaneFloor]) {
        for floor in floors {
            if let Some(sa) = self.sad.get(floor.spi) {
                sa.take_in_lane(*floor);
            }
        }
    }

    fn add_inbound(&mut self, sa: Arc<InboundSa>) -> Option<Garbage> {
        match self.sad.insert(sa) {
            Ok(None) => {
                self.counters.inbound_sas.add(1);
                None
            }
            Ok(replaced) => replaced.map(Garbage::Inbound),
            Err(sa) => Some(Garbage::NotAdded(sa)),
        }
    }

    fn set_outbound(&mut self, policy: PolicyId, sa: Arc<OutboundSa>) -> Option<Garbage> {
        let Some(place) = self.outbound.get_mut(policy) else {
            return Some(Garbage::NotSet(sa));
        };
        if place.is_own {
            let replaced = place.fallback.replace(sa);
            self.counters.outbound_sas.add(u64::from(replaced.is_none()));
            return replaced.map(|sa| Garbage::Outbound(sa, None));
        }
        place.sampled.set(Sample::now(&sa, self.clock.as_deref(), self.now));
        let keeps = place.sa.as_ref().is_some_and(|former| former.shares_rows(&sa));
        let stripes = if keeps { None } else { place.stripes.take() };
        let replaced = place.sa.replace(sa);
        place.told.set(None);
        self.flows.invalidate();
        self.counters.outbound_sas.add(u64::from(replaced.is_none()));
        replaced.map(|sa| Garbage::Outbound(sa, stripes))
    }

    fn set_own_outbound(
        &mut self,
        worker: WorkerId,
        policy: PolicyId,
        sa: Arc<OutboundSa>,
    ) -> Option<Garbage> {
        if worker != self.worker {
            return Some(Garbage::NotOwn(sa));
        }
        let Some(place) = self.outbound.get_mut(policy) else {
            return Some(Garbage::NotSet(sa));
        };
        place.sampled.set(Sample::now(&sa, self.clock.as_deref(), self.now));
        let replaced = place.sa.replace(sa);
        place.told.set(None);
        self.flows.invalidate();
        if std::mem::replace(&mut place.is_own, true) {
            return replaced.map(|sa| Garbage::Outbound(sa, None));
        }
        place.fallback = replaced;
        self.counters.outbound_sas.add(1);
        None
    }

    /// If a worker's own SA goes, the one for all workers has its place again.
    fn clear_outbound(&mut self, policy: PolicyId, spi_in: Spi) -> Option<Garbage> {
        let place = self.outbound.get_mut(policy)?;
        let is_it = |sa: &mut Arc<OutboundSa>| sa.pair == spi_in;
        let from_fallback = place.fallback.take_if(is_it);
        self.counters.outbound_sas.subtract(u64::from(from_fallback.is_some()));
        let Some(sa) = place.sa.take_if(is_it) else {
            return from_fallback.map(|sa| Garbage::Outbound(sa, None));
        };
        if std::mem::take(&mut place.is_own) {
            place.sa = place.fallback.take();
        }
        place.told.set(None);
        self.flows.invalidate();
        self.counters.outbound_sas.subtract(1);
        Some(Garbage::Outbound(sa, place.stripes.take()))
    }

    fn set_stripes(&mut self, policy: PolicyId, spi_in: Spi, stripes: Arc<Stripes>) -> Option<Garbage> {
        let place = self.outbound.get_mut(policy);
        let is_of = |place: &&mut PolicyPlace| place.sa.as_ref().is_some_and(|sa| sa.pair == spi_in);
        match place.filter(is_of) {
            Some(place) => place.stripes.replace(stripes).map(Garbage::Stripes),
            None => Some(Garbage::Stripes(stripes)),
        }
    }

    fn set_spd(&mut self, spd: Arc<Spd>) -> Garbage {
        self.flows.invalidate();
        Garbage::Spd(std::mem::replace(&mut self.spd, spd))
    }
}
