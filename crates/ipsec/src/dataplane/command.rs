//! What control asks of a worker, and what comes back.

use super::{Dataplane, LocalAddrs, OutboundTable};
use crate::sa::{InboundSa, OutboundSa};
use crate::sad::SlotTable;
use crate::spd::{PolicyId, Spd};
use crate::spi::{SenderId, Spi};
use std::sync::Arc;

/// A change, applied between two bursts. Everything that needs memory brings it along.
#[derive(Debug)]
pub enum Command {
    /// Gives a share its slots. Needed once, before the first SA of the share.
    AddShare(Box<SlotTable>),
    /// Begins to accept packets of an SA.
    AddInbound(Arc<InboundSa>),
    /// Stops accepting packets of an SA.
    RemoveInbound(Spi),
    /// Sends a policy's traffic through this SA from now on.
    SetOutbound(PolicyId, Arc<OutboundSa>),
    /// Leaves a policy without SA, if it still uses the one with this SPI (a rekeyed SA may have taken its place).
    ClearOutbound(PolicyId, Spi),
    /// Changes the policies. The table is [`OutboundTable::for_spd`] of the same SPD; policies that keep their number keep
    /// their SA.
    SetSpd(Arc<Spd>, Box<OutboundTable>),
    /// Goes on with a sender ID that was never used before under the present keys.
    SetSenderId(SenderId),
    /// Changes the gateway's own addresses.
    SetLocalAddrs(Arc<LocalAddrs>),
}

/// What a command has put out of use, to be freed by control.
#[derive(Debug)]
pub enum Garbage {
    /// The slots were not needed: the share has some.
    Slots(Box<SlotTable>),
    /// An SA that has been removed, or whose slot another has taken.
    Inbound(Arc<InboundSa>),
    /// An SA that was not added, because its share has no slots: [`Command::AddShare`] was forgotten.
    NotAdded(Arc<InboundSa>),
    /// An SA that its policy no longer uses.
    Outbound(Arc<OutboundSa>),
    /// An SA that was not taken, because the SPD has no such policy.
    NotSet(Arc<OutboundSa>),
    /// The former policies, and the SAs of those that are gone.
    Spd(Arc<Spd>, Box<OutboundTable>),
    /// The sender ID is the present one; it was not set again.
    SenderId(SenderId),
    /// The former addresses.
    LocalAddrs(Arc<LocalAddrs>),
}

impl Dataplane {
    /// Applies a command; returns what is no longer needed.
    pub fn apply(&mut self, command: Command) -> Option<Garbage> {
        match command {
            Command::AddShare(table) => self.sad.add_share(table).map(Garbage::Slots),
            Command::AddInbound(sa) => match self.sad.insert(sa) {
                Ok(replaced) => replaced.map(Garbage::Inbound),
                Err(sa) => Some(Garbage::NotAdded(sa)),
            },
            Command::RemoveInbound(spi) => self.sad.remove(spi).map(Garbage::Inbound),
            Command::SetOutbound(policy, sa) => self.set_outbound(policy, sa),
            Command::ClearOutbound(policy, spi) => self.clear_outbound(policy, spi),
            Command::SetSpd(spd, table) => Some(self.set_spd(spd, table)),
            Command::SetSenderId(sender) => {
                if !self.ivs.set_sender(sender) {
                    return Some(Garbage::SenderId(sender));
                }
                self.iv_low_told = None;
                None
            }
            Command::SetLocalAddrs(addrs) => {
                Some(Garbage::LocalAddrs(std::mem::replace(&mut self.local, addrs)))
            }
        }
    }

    fn set_outbound(&mut self, policy: PolicyId, sa: Arc<OutboundSa>) -> Option<Garbage> {
        let Some(place) = self.outbound.get_mut(policy) else {
            return Some(Garbage::NotSet(sa));
        };
        let replaced = place.sa.replace(sa);
        place.told.set(None);
        place.low_told.set(None);
        self.flows.invalidate();
        replaced.map(Garbage::Outbound)
    }

    fn clear_outbound(&mut self, policy: PolicyId, spi: Spi) -> Option<Garbage> {
        let sa = self.outbound.get_mut(policy)?.sa.take_if(|sa| sa.spi() == spi)?;
        self.flows.invalidate();
        Some(Garbage::Outbound(sa))
    }

    fn set_spd(&mut self, spd: Arc<Spd>, mut table: Box<OutboundTable>) -> Garbage {
        table.take_from(&mut self.outbound);
        self.flows.invalidate();
        let spd = std::mem::replace(&mut self.spd, spd);
        Garbage::Spd(spd, std::mem::replace(&mut self.outbound, table))
    }
}
