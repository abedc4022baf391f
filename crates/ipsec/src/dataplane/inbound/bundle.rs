//! ESP of our own inside AH (RFC 4301 §5.2): AH is removed, and the rest goes through the same
//! stages again.

use super::receive::{self, Receiver};
use super::{Burst, InboundPlan, Pass, ah, put_off};
use crate::dataplane::burst::Item;
use crate::dataplane::counters::DirectionCounters;
use crate::dataplane::{LocalAddrs, OutboundTable};
use crate::demux::{self, Form, FoundEsp, OuterKind};
use crate::drops::DropReason;
use crate::packet_selector::PacketSelector;
use crate::sa::{InboundSa, Mode, SaKey};
use crate::sad::Sad;
use crate::spd::Spd;
use testudo_base::spi::Spi;
use testudo_wire::ah::Ah;
use testudo_wire::esp::Esp;
use testudo_wire::ip::Protocol;

/// The tables for the checks before any packet is opened.
pub(super) struct BundleContext<'d> {
    pub(super) sad: &'d Sad,
    pub(super) local: &'d LocalAddrs,
    pub(super) udp_port: u16,
    pub(super) spd: &'d Spd,
    pub(super) outbound: &'d OutboundTable,
}

impl BundleContext<'_> {
    /// The way back to an SA's peer, as ESP between us shows it, if a policy puts AH around packets
    /// to it.
    fn way_back(&self, esp: &InboundSa) -> Option<PacketSelector> {
        let out = &self.outbound.sa(esp.policy())?.outer;
        self.spd.around(out.local(), out.remote())?;
        PacketSelector::new(out.local(), out.remote(), Protocol::ESP, None)
    }

    /// True if ESP must come in AH of its own peer, and this AH is of another peer.
    fn is_of_another(&self, ah: &InboundSa, esp: &InboundSa) -> bool {
        self.spd.has_around() && self.way_back(esp).is_some_and(|ends| !ah.selectors.accepts(&ends))
    }
}

/// Refuses or puts off, before any is opened, the packets that did not come in the SAs that they
/// require.
#[cold]
pub(super) fn sort_out(
    burst: &mut [Item<'_>],
    plans: &mut Burst<InboundPlan<'_>>,
    pass: Pass,
    known: &BundleContext<'_>,
    counters: &DirectionCounters,
) {
    if pass.any_ah {
        ah::refuse_others(burst, plans, counters);
        look_inside(burst, plans, known, counters);
    }
    if known.spd.has_around() && !pass.is_inside {
        refuse_bare(burst, plans, known, counters);
    }
}

/// The SPI of ESP that stands behind AH and is for us.
fn spi_inside(packet: &[u8], plan: &InboundPlan<'_>, local: &LocalAddrs, udp_port: u16) -> Option<Spi> {
    if plan.arrived.form != Form::Ah {
        return None;
    }
    let ah = Ah::parse(packet.get(usize::from(plan.arrived.at)..plan.arrived.end())?).ok()?;
    match (plan.sa.mode, ah.next) {
        (Mode::Transport, Protocol::ESP) => Esp::parse(ah.payload).ok().map(|esp| Spi(esp.spi)),
        (Mode::Tunnel, Protocol::IPV4 | Protocol::IPV6) => {
            bare_esp(ah.payload, local, udp_port).map(|esp| Spi(esp.spi))
        }
        _ => None,
    }
}

/// The place of ESP in a packet for us that has it directly, not in UDP.
fn bare_esp(packet: &[u8], local: &LocalAddrs, udp_port: u16) -> Option<FoundEsp> {
    let mut found = FoundEsp::default();
    let sorted = demux::sort(packet, local, udp_port, &mut found);
    (matches!(sorted, Ok(OuterKind::Esp)) && found.form == Form::Esp).then_some(found)
}

/// Puts off AH around ESP whose SA does not exist yet, as ESP alone is put off: AH's window has
/// only been checked. Refuses ESP in the AH of another peer (RFC 4301 §5.2), which might have
/// captured it.
fn look_inside(
    burst: &mut [Item<'_>],
    plans: &mut Burst<InboundPlan<'_>>,
    known: &BundleContext<'_>,
    counters: &DirectionCounters,
) {
    plans.retain(|plan| {
        let Some(item) = burst.get_mut(usize::from(plan.at)) else { return false };
        let Some(spi) = spi_inside(item.buf.data(), plan, known.local, known.udp_port) else { return true };
        match known.sad.get(spi) {
            None => put_off(item, spi, counters),
            Some(esp) if known.is_of_another(plan.sa, esp) => item.refuse(DropReason::NotInAh, counters),
            Some(_) => return true,
        }
        false
    });
}

/// Refuses bare ESP if a policy puts AH around it. A forged source does not avoid this: the return
/// traffic of the same policy shows where the peer is.
fn refuse_bare(
    burst: &mut [Item<'_>],
    plans: &mut Burst<InboundPlan<'_>>,
    known: &BundleContext<'_>,
    counters: &DirectionCounters,
) {
    plans.retain(|plan| {
        let Some(item) = burst.get_mut(usize::from(plan.at)) else { return false };
        let is_ah = matches!(plan.sa.key, SaKey::Mac(_));
        let by_ends =
            || demux::ends(item.buf.data()).and_then(|(remote, local)| known.spd.around(local, remote));
        let is_bare =
            !is_ah && !plan.sa.is_relay() && (known.way_back(plan.sa).is_some() || by_ends().is_some());
        if is_bare {
            item.refuse(DropReason::NotInAh, counters);
        }
        !is_bare
    });
}

impl Receiver<'_> {
    /// Removes AH from around ESP, and these packets from the plans. Finds the place of ESP in
    /// them, and the least packet size that their SAs take.
    #[cold]
    pub(super) fn unwrap(
        &mut self,
        burst: &mut [Item<'_>],
        plans: &mut Burst<InboundPlan<'_>>,
        udp_port: u16,
        found: &mut Burst<(u8, FoundEsp)>,
        within: &mut Option<u16>,
    ) {
        plans.retain(|plan| {
            let Some(item) = burst.get_mut(usize::from(plan.at)) else { return false };
            let esp = || spi_inside(item.buf.data(), plan, self.local, udp_port);
            if plan.verdict.is_err() || esp().is_none() {
                return true;
            }
            match self.take_ah(item, plan, udp_port) {
                Ok(esp) => {
                    found.push((plan.at, esp));
                    let size = plan.sa.inner_mtu();
                    *within = Some(within.map_or(size, |least| least.min(size)));
                }
                Err(reason) => {
                    plan.sa.counters.add_drop(reason);
                    item.refuse(reason, &self.counters.inbound);
                }
            }
            false
        });
    }

    fn take_ah(
        &mut self,
        item: &mut Item<'_>,
        plan: &InboundPlan<'_>,
        udp_port: u16,
    ) -> Result<FoundEsp, DropReason> {
        let inner = receive::decapsulate(&mut item.buf, plan)?;
        plan.sa.counters.add(1, u64::from(inner.len), self.now);
        self.events.note_mark(&plan.sa.counters, plan.sa.spi);
        bare_esp(item.buf.data(), self.local, udp_port).ok_or(DropReason::MalformedInner)
    }
}
