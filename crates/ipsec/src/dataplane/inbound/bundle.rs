//! ESP of our own that came inside AH (RFC 4301 §5.2): AH is taken off, and what is left goes through the same stages again.

use super::receive::{self, Receiver};
use super::{Burst, Plan, put_off};
use crate::dataplane::burst::Item;
use crate::dataplane::counters::DirectionCounters;
use crate::dataplane::{LocalAddrs, OutboundTable};
use crate::demux::{self, Arrived, Form, Kind};
use crate::drops::DropReason;
use crate::sa::{InboundSa, Mode, SaKey};
use crate::sad::Sad;
use crate::spd::Spd;
use crate::spi::Spi;
use testudo_wire::ah::Ah;
use testudo_wire::esp::Esp;
use testudo_wire::ip::Protocol;

/// The SPI of ESP that stands behind AH and is for us.
fn spi_inside(packet: &[u8], plan: &Plan<'_>, (local, udp_port): (&LocalAddrs, u16)) -> Option<Spi> {
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

/// Where ESP stands in a packet for us that has it, and not in UDP.
fn bare_esp(packet: &[u8], local: &LocalAddrs, udp_port: u16) -> Option<Arrived> {
    let mut found = Arrived::default();
    let sorted = demux::sort(packet, local, udp_port, &mut found);
    (matches!(sorted, Ok(Kind::Esp)) && found.form == Form::Esp).then_some(found)
}

/// Puts off AH around ESP whose SA is not there yet, as ESP alone is put off. Of AH's window nothing has been asked but a look.
#[cold]
pub(super) fn put_off_early(
    burst: &mut [Item<'_>],
    plans: &mut Burst<Plan<'_>>,
    (sad, local, udp_port): (&Sad, &LocalAddrs, u16),
    counters: &DirectionCounters,
) {
    plans.retain(|plan| {
        let Some(item) = burst.get_mut(usize::from(plan.at)) else { return false };
        let inside = spi_inside(item.buf.data(), plan, (local, udp_port));
        let unknown = inside.filter(|spi| sad.get(*spi).is_none());
        if let Some(spi) = unknown {
            put_off(item, spi, counters);
        }
        unknown.is_none()
    });
}

/// Refuses ESP that came bare, where a policy puts AH around it. Where it says to come from does not help it past that: what goes
/// back by the same policy shows where its peer is.
#[cold]
pub(super) fn refuse_bare(
    burst: &mut [Item<'_>],
    plans: &mut Burst<Plan<'_>>,
    (spd, outbound): (&Spd, &OutboundTable),
    counters: &DirectionCounters,
) {
    let way_back = |sa: &InboundSa| {
        let out = outbound.sa(sa.policy())?;
        spd.around(out.outer.local(), out.outer.remote())
    };
    plans.retain(|plan| {
        let Some(item) = burst.get_mut(usize::from(plan.at)) else { return false };
        let is_ah = matches!(plan.sa.key, SaKey::Mac(_));
        let ends = || demux::ends(item.buf.data()).and_then(|(remote, local)| spd.around(local, remote));
        let is_bare = !is_ah && way_back(plan.sa).or_else(ends).is_some();
        if is_bare {
            item.refuse(DropReason::NotInAh, counters);
        }
        !is_bare
    });
}

impl Receiver<'_> {
    /// Takes AH from around ESP, and these packets out of the plans; finds where ESP stands in them now, and the least of what their
    /// SAs take.
    #[cold]
    pub(super) fn unwrap(
        &mut self,
        burst: &mut [Item<'_>],
        plans: &mut Burst<Plan<'_>>,
        udp_port: u16,
        (found, within): (&mut Burst<(u8, Arrived)>, &mut Option<u16>),
    ) {
        plans.retain(|plan| {
            let Some(item) = burst.get_mut(usize::from(plan.at)) else { return false };
            let known = (self.local, udp_port);
            if plan.verdict.is_err() || spi_inside(item.buf.data(), plan, known).is_none() {
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
        plan: &Plan<'_>,
        udp_port: u16,
    ) -> Result<Arrived, DropReason> {
        let inner = receive::decapsulate(&mut item.buf, plan)?;
        plan.sa.counters.add(1, u64::from(inner.len), self.now);
        self.events.note_mark(&plan.sa.counters, plan.sa.spi);
        bare_esp(item.buf.data(), self.local, udp_port).ok_or(DropReason::MalformedInner)
    }
}
