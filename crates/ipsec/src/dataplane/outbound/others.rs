//! ESP around those packets of a burst that do not use an AEAD.

use super::Burst;
use super::plan::OutboundPlan;
use crate::dataplane::burst::{Item, Verdict};
use crate::drops::DropReason;
use crate::esp::{Marks, transport};
use crate::sa::SaKey;
use testudo_wire::esp;
use testudo_wire::packet::PacketBuf;
use testudo_wire::seam::Seam;

/// Puts ESP around those planned packets whose key `of` returns, and encrypts them, as
/// [`seal`](super::seal::seal) does with the others. `job` makes a job of the octets from behind
/// the outer header to the packet's end, `work` does them all, and `is_ok` says which are done.
#[cold]
pub(super) fn seal<'b, K: 'b, J>(
    burst: &'b mut [Item<'_>],
    plans: &'b [OutboundPlan<'b>],
    mut id: u16,
    of: impl Fn(&'b SaKey) -> Option<&'b K>,
    job: impl Fn(&'b mut [u8], &OutboundPlan<'b>, &'b K) -> Option<J>,
    work: impl FnOnce(&mut [J]),
    is_ok: impl Fn(&J) -> bool,
) {
    let (mut jobs, mut verdicts) = (Burst::new(), Burst::new());
    let mut left = plans.iter().peekable();
    for (at, item) in burst.iter_mut().enumerate() {
        let Some(plan) = left.next_if(|plan| usize::from(plan.at) == at) else {
            continue;
        };
        id = id.wrapping_add(1);
        let Some(key) = of(&plan.sa.key) else { continue };
        item.verdict = Verdict::Drop(DropReason::NoRoom);
        if let Some(job) = encapsulate(&mut item.buf, plan, id).and_then(|esp| job(esp, plan, key)) {
            jobs.push(job);
            verdicts.push((&mut item.verdict, plan));
        }
    }
    work(&mut jobs);
    for ((verdict, plan), _) in verdicts.into_iter().zip(&jobs).filter(|(_, job)| is_ok(job)) {
        *verdict = plan.sealed();
    }
}

/// Writes outer header and trailer. Returns the octets from behind the outer header to the packet's
/// end. `None` if there is no room, which the planner has ruled out. The number in the IV's place
/// is never used twice; a block cipher derives the IV from it.
#[inline]
fn encapsulate<'a>(buf: &'a mut PacketBuf<'_>, plan: &OutboundPlan<'_>, id: u16) -> Option<&'a mut [u8]> {
    let OutboundPlan { sa, sequence, iv, .. } = *plan;
    let (prefix_len, sizes) = (sa.outer.prefix_len(), sa.outer.sizes());
    let clear = if sa.outer.is_transport() { Seam::find(buf.data()).ok()?.offset() } else { 0 };
    let payload_len = usize::from(plan.len).checked_sub(clear)?;
    let (trailer_len, icv_len) = (sizes.trailer_len(payload_len), usize::from(sizes.icv));
    if !(buf.grow_front(prefix_len) && buf.grow_back(trailer_len + icv_len)) {
        return None;
    }
    let total = buf.len();
    let marks = Marks { class: plan.class, df: plan.df, id, sequence, iv };
    let text_at = if sa.outer.is_transport() {
        transport::encapsulate(buf.data_mut(), &sa.outer, total as u16, &marks)?
    } else {
        sa.outer.write_any(buf.data_mut().get_mut(..prefix_len)?, total as u16, &marks);
        prefix_len
    };
    let icv_at = total.checked_sub(icv_len)?;
    let trailer = buf.data_mut().get_mut(icv_at.checked_sub(trailer_len)?..icv_at)?;
    if !esp::write_trailer(trailer, plan.next_header) {
        return None;
    }
    let esp_at = text_at.checked_sub(usize::from(sizes.before_text))?;
    buf.data_mut().get_mut(esp_at..)
}
