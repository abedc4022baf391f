//! What control asks of a worker, and what comes back.

use super::table::Sample;
use super::{Dataplane, LocalAddrs, Note, PolicyBlock};
use crate::sa::{InboundSa, OutboundSa};
use crate::sad::SlotBlock;
use crate::spd::{PolicyId, Spd};
use std::sync::Arc;
use testudo_base::shard::ShardSet;
use testudo_base::siphash::SipKey;
use testudo_base::spi::{SenderId, Shard, Spi};

/// A change, applied between two bursts. Everything that needs memory brings it along: where there
/// are several workers, control makes a copy for each.
#[derive(Clone, Debug)]
pub enum Command {
    /// Adds slots for inbound SAs. Needed once, before the first SA of one of them.
    AddSlots(Box<SlotBlock>),
    /// Begins to accept packets of an SA.
    AddInbound(Arc<InboundSa>),
    /// Stops accepting packets of an SA.
    RemoveInbound(Spi),
    /// Sends a policy's traffic through this SA from now on.
    SetOutbound(PolicyId, Arc<OutboundSa>),
    /// Leaves a policy without SA, if it still uses the one whose inbound half has this SPI: a
    /// rekeyed SA may have taken its place. Of the outbound SPI, which the peer chose, there may be
    /// two for a moment: the answer to its request was lost with the node that made the first.
    ClearOutbound(PolicyId, Spi),
    /// Gives policies their places for outbound SAs. Needed once, before the first SA of one of
    /// them.
    AddPolicies(Box<PolicyBlock>),
    /// Changes the policies. Those that keep their number keep their SA; that of one that goes must
    /// be cleared.
    SetSpd(Arc<Spd>),
    /// Goes on with a sender ID that was never used before under the present keys.
    SetSenderId(SenderId),
    /// Stops sending what needs an IV, until there is a sender ID later than any before: the
    /// present one may be in use elsewhere.
    ForgetSenderId,
    /// Changes the gateway's own addresses.
    SetLocalAddrs(Arc<LocalAddrs>),
    /// From now on this node carries these shards and no others.
    SetShards(ShardSet),
    /// Packets of these shards, which another node still carries, come back as
    /// [`super::Verdict::Held`].
    Hold(ShardSet),
    /// Of these shards, which are to go to another node, clear packets that are worked on are noted
    /// in the list: the latest, as many as there is room for.
    Note(ShardSet, Box<[Note]>),
    /// Ends that; the notes come back.
    TakeNotes,
    /// Clear packets of these shards that others have worked on, by the hashes that they noted,
    /// false for each: the shards come here with the next [`Command::SetShards`]. None of the
    /// packets is worked on again.
    Handled(ShardSet, Box<[(u64, bool)]>),
    /// By which a packet that reaches all nodes and meets no SA is one node's. The same key on all
    /// of them; one that strangers know lets them choose the node, no more.
    SetHashKey(SipKey),
    /// SAs that another node has received for: all numbers up to these count as seen. To be applied
    /// before their shards are added.
    TakeIn(Box<[(Spi, u64)]>),
    /// In which shard packets of a policy are at home while it has no SA; only the node that
    /// carries it asks for one. `None`: here.
    SetHome(PolicyId, Option<Shard>),
}

/// What a command has put out of use, to be freed by control.
#[derive(Debug)]
pub enum Garbage {
    /// The slots were not needed: they are there.
    Slots(Box<SlotBlock>),
    /// An SA that has been removed, or whose slot another has taken.
    Inbound(Arc<InboundSa>),
    /// An SA that was not added, because its slot is not there: [`Command::AddSlots`] was
    /// forgotten.
    NotAdded(Arc<InboundSa>),
    /// An SA that its policy no longer uses.
    Outbound(Arc<OutboundSa>),
    /// The places were not needed: the policies have some.
    Policies(Box<PolicyBlock>),
    /// An SA that was not taken, because its policy has no place: [`Command::AddPolicies`] was
    /// forgotten.
    NotSet(Arc<OutboundSa>),
    /// The former policies.
    Spd(Arc<Spd>),
    /// The sender ID is the present one; it was not set again.
    SenderId(SenderId),
    /// The former addresses.
    LocalAddrs(Arc<LocalAddrs>),
    /// The list has been worked off.
    TakenIn(Box<[(Spi, u64)]>),
    /// A former list for notes.
    Notes(Box<[Note]>),
    /// What was noted: so many at the front.
    Noted(Box<[Note]>, usize),
    /// What others have worked on has been put out of use by what is told later.
    Handled(Box<[(u64, bool)]>),
    /// The home was not set, because its policy has no place: [`Command::AddPolicies`] was
    /// forgotten.
    Home(PolicyId),
}

impl Dataplane {
    /// Applies a command; returns what is no longer needed.
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
            Command::SetHome(policy, home) => match self.outbound.get_mut(policy) {
                Some(place) => {
                    place.home = home;
                    None
                }
                None => Some(Garbage::Home(policy)),
            },
        }
    }

    fn take_in(&self, floors: &[(Spi, u64)]) {
        for (spi, floor) in floors {
            // One that is not there has been deleted meanwhile.
            if let Some(sa) = self.sad.get(*spi) {
                sa.window.raise(*floor);
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
        place.sampled.set(Sample::now(&sa, self.now));
        let replaced = place.sa.replace(sa);
        place.told.set(None);
        self.flows.invalidate();
        self.counters.outbound_sas.add(u64::from(replaced.is_none()));
        replaced.map(Garbage::Outbound)
    }

    fn clear_outbound(&mut self, policy: PolicyId, spi_in: Spi) -> Option<Garbage> {
        let place = self.outbound.get_mut(policy)?;
        let sa = place.sa.take_if(|sa| sa.pair == spi_in)?;
        place.told.set(None);
        self.flows.invalidate();
        self.counters.outbound_sas.subtract(1);
        Some(Garbage::Outbound(sa))
    }

    fn set_spd(&mut self, spd: Arc<Spd>) -> Garbage {
        self.flows.invalidate();
        Garbage::Spd(std::mem::replace(&mut self.spd, spd))
    }
}
