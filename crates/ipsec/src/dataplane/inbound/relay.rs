//! Packets that another node has relayed here, and those that this node has to relay.

use super::receive::{Receiver, settle, text_of};
use super::{Burst, InboundPlan};
use crate::dataplane::burst::{Item, Verdict};
use crate::dataplane::counters::DirectionCounters;
use crate::dataplane::outbound::Foreign;
use crate::dataplane::relay::{self, Relay};
use crate::dataplane::transit::Transit;
use crate::demux::{self, FoundEsp, OuterKind};
use crate::drops::DropReason;
use crate::inner::Inner;
use crate::packet_selector::Direction;
use crate::sa::InboundSa;
use testudo_base::spi::{RelayKind, Spi};

/// An SA, and what its window says of a packet's number.
pub(super) type Checked<'s> = (&'s InboundSa, Result<u64, DropReason>);

/// What other nodes have to do with a burst.
pub(super) struct Neighbours<'s, 'a, 'd> {
    pub(super) transit: &'d Transit,
    /// Set if packets of other nodes are relayed.
    pub(super) relay: Option<&'s Relay>,
    pub(super) counters: &'d DirectionCounters,
    /// Packets to be relayed, and their shards.
    pub(super) foreign: Burst<Foreign<'a>>,
    /// True if some packets have come by relay SAs that encrypt the whole packet.
    pub(super) any_relayed: bool,
}

impl<'s, 'a> Neighbours<'s, 'a, '_> {
    /// Looks for an SPI that no Child SA has, and checks the number. Relay SAs belong to no shard; of
    /// all others `here` tells whether this node carries them.
    pub(super) fn look_up(&mut self, spi: Spi, number: u32, here: bool) -> (Option<Checked<'s>>, bool) {
        match self.relay {
            Some(relay) if Spi::RELAY.contains(&spi) => {
                self.any_relayed = true;
                let sa = relay.inbound(spi, RelayKind::Whole);
                (sa.map(|sa| (sa, sa.window.check(number))), true)
            }
            _ => (None, here),
        }
    }

    /// Has a packet that another node carries wait until its shard comes, relays it, or drops it
    /// because the other node has it too.
    #[inline(never)]
    pub(super) fn leave(&mut self, item: &mut Item<'_>, foreign: Foreign<'a>) {
        let Foreign { shard, .. } = foreign;
        if self.transit.holds(shard) {
            self.counters.to_wait.add(1);
            item.verdict = Verdict::Held;
        } else if self.relay.is_some() && !item.ingress.is_relayed_twice() {
            self.foreign.push(foreign);
        } else {
            item.refuse(DropReason::OtherNode, self.counters);
        }
    }
}

impl Receiver<'_> {
    /// Takes the relayed packets out of their SAs, and out of the plans. They come back, to take
    /// the way that they would have taken had they reached this node at first.
    #[inline(never)]
    pub(super) fn take_relayed(
        &mut self,
        burst: &mut [Item<'_>],
        plans: &mut Burst<InboundPlan<'_>>,
        udp_port: u16,
    ) {
        for plan in plans.iter().filter(|plan| plan.sa.is_relay()) {
            let Some(item) = burst.get_mut(usize::from(plan.at)) else { continue };
            match self.open_relayed(item, plan, udp_port) {
                Ok(verdict) => {
                    self.counters.inbound.relayed_in.add(1);
                    item.verdict = verdict;
                }
                Err(reason) => item.refuse(reason, &self.counters.inbound),
            }
        }
        plans.retain(|plan| !plan.sa.is_relay());
    }

    /// Leaves the inner packet in the buffer. Its TTL stays as it is.
    fn open_relayed(
        &self,
        item: &mut Item<'_>,
        plan: &InboundPlan<'_>,
        udp_port: u16,
    ) -> Result<Verdict, DropReason> {
        plan.verdict?;
        // A node relays what it had from another, never what that one sent.
        if item.ingress.is_relayed() {
            return Err(DropReason::RelayedStray);
        }
        let (payload, next_header) = text_of(&mut item.buf, plan)?;
        let ingress = relay::ingress(next_header)?;
        let inner = Inner::parse(payload, Direction::Out).map_err(|_| DropReason::MalformedInner)?;
        settle(&mut item.buf, plan, &inner)?;
        let to_us = self.local.contains(inner.flow.remote());
        if to_us && !self.is_protected(item.buf.data(), udp_port) {
            return Err(DropReason::RelayedStray);
        }
        Ok(Verdict::Relayed { ingress, to_us })
    }

    /// True for whole ESP or AH. The kernel must not get anything that has passed no filter.
    fn is_protected(&self, packet: &[u8], udp_port: u16) -> bool {
        let mut found = FoundEsp::default();
        match demux::sort(packet, self.local, udp_port, &mut found) {
            Ok(OuterKind::Esp) => true,
            Ok(OuterKind::Ike | OuterKind::Fragment) => false,
            Err(_) => demux::sort_ah(packet, &mut found).is_ok(),
        }
    }
}
