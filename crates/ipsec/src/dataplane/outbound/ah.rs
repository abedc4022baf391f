//! Packets with AH.

use super::plan::OutboundPlan;
use crate::ah;
use crate::dataplane::burst::{Item, Verdict};
use crate::drops::DropReason;
use crate::esp::Marks;
use crate::number::high;
use crate::sa::SaKey;
use testudo_crypto::mac::MacKey;
use testudo_wire::packet::PacketBuf;

/// Puts AH into those planned packets that use it, as [`seal`](super::seal::seal) does with ESP.
#[cold]
pub(super) fn seal(burst: &mut [Item<'_>], plans: &[OutboundPlan<'_>], id: u16) {
    for (number, plan) in (1_u16..).zip(plans) {
        let SaKey::Mac(key) = &plan.sa.key else { continue };
        let Some(item) = burst.get_mut(usize::from(plan.at)) else { continue };
        item.verdict = match protect(&mut item.buf, plan, key, id.wrapping_add(number)) {
            Some(()) => plan.sealed(),
            None => Verdict::Drop(DropReason::NoRoom),
        };
    }
}

/// Puts AH into one packet. `None` if there is no room for it.
pub(super) fn protect(buf: &mut PacketBuf<'_>, plan: &OutboundPlan<'_>, key: &MacKey, id: u16) -> Option<()> {
    let OutboundPlan { sa, sequence, iv, .. } = *plan;
    if !buf.grow_front(sa.outer.prefix_len()) {
        return None;
    }
    let high = high(sa.esn, sequence);
    let marks = Marks { class: plan.class, df: plan.df, id, sequence, iv };
    ah::protect(buf.data_mut(), &sa.outer, key, high, sa.spi.0, plan.next_header, &marks)
}
