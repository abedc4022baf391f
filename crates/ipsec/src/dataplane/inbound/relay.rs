//! Packets that another node has relayed here.

use super::receive::{Receiver, settle, text_of};
use super::{Burst, InboundPlan};
use crate::dataplane::burst::{Item, Verdict};
use crate::dataplane::relay;
use crate::demux::{self, FoundEsp, OuterKind};
use crate::drops::DropReason;
use crate::inner::Inner;
use crate::packet_selector::Direction;

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
        // Nothing is relayed twice, not even inside itself.
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
