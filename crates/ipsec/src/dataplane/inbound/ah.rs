//! Packets with AH.

use super::{Burst, InboundPlan};
use crate::ah;
use crate::dataplane::burst::Item;
use crate::dataplane::counters::DirectionCounters;
use crate::demux::Form;
use crate::drops::DropReason;
use crate::number::high;
use crate::sa::SaKey;

/// Removes packets with AH whose SPI is that of an ESP SA. ESP packets with the SPI of an AH SA are
/// refused by [`open`].
#[cold]
pub(super) fn refuse_others(
    burst: &mut [Item<'_>],
    plans: &mut Burst<InboundPlan<'_>>,
    counters: &DirectionCounters,
) {
    plans.retain(|plan| {
        let fits = plan.arrived.form != Form::Ah || matches!(plan.sa.key, SaKey::Mac(_));
        if !fits && let Some(item) = burst.get_mut(usize::from(plan.at)) {
            item.refuse(DropReason::OtherProtocol, counters);
        }
        fits
    });
}

/// Verifies those plans that use AH.
#[cold]
pub(super) fn open(burst: &mut [Item<'_>], plans: &mut [InboundPlan<'_>]) {
    for plan in plans {
        let SaKey::Mac(key) = &plan.sa.key else { continue };
        let Some(item) = burst.get(usize::from(plan.at)) else { continue };
        let high = high(plan.sa.esn, plan.sequence);
        let found = match plan.arrived.form {
            Form::Ah => ah::is_authentic(item.buf.data(), plan.arrived, key, high),
            Form::Esp | Form::EspInUdp => Err(DropReason::OtherProtocol),
        };
        plan.verdict = match found {
            Ok(true) => Ok(()),
            Ok(false) => Err(plan.sa.window.blame(plan.sequence)),
            Err(reason) => Err(reason),
        };
    }
}
