//! ESP around the packets of a burst, and the cipher.

use super::plan::OutboundPlan;
use super::{Burst, ah, ccm, separate};
use crate::dataplane::burst::{Item, Verdict};
use crate::dataplane::counters::DirectionCounters;
use crate::dataplane::event::{Event, Events};
use crate::drops::DropReason;
use crate::esp::{Marks, transport};
use crate::sa::{SaKey, Sizes};
use testudo_crypto::{Aad, AeadKey, SealJob, TAG_LEN, seal_burst};
use testudo_wire::esp;
use testudo_wire::packet::PacketBuf;

/// Puts ESP around each planned packet and encrypts the burst. Only encrypted packets get a verdict
/// that sends them on. The identifications of the outer headers follow `id`.
pub(super) fn seal(burst: &mut [Item<'_>], plans: &[OutboundPlan<'_>], mut id: u16) {
    let mut jobs = Burst::new();
    let (first_id, mut others) = (id, false);
    let mut left = plans.iter().peekable();
    for (at, item) in burst.iter_mut().enumerate() {
        let Some(plan) = left.next_if(|plan| usize::from(plan.at) == at) else {
            continue;
        };
        id = id.wrapping_add(1);
        let SaKey::Aead(key) = &plan.sa.key else {
            others = true;
            continue;
        };
        item.verdict = match encapsulate(&mut item.buf, plan, key, id) {
            Some(job) => {
                jobs.push(job);
                plan.sealed()
            }
            None => Verdict::Drop(DropReason::NoRoom),
        };
    }
    seal_burst(&mut jobs);
    drop(jobs);
    if others {
        separate::seal(burst, plans, first_id);
        ccm::seal(burst, plans, first_id);
        ah::seal(burst, plans, first_id);
    }
}

/// Writes outer header and trailer. `None` if there is no room, which the planner has ruled out.
#[inline]
fn encapsulate<'a>(
    buf: &'a mut PacketBuf<'_>,
    plan: &OutboundPlan<'a>,
    key: &'a AeadKey,
    id: u16,
) -> Option<SealJob<'a>> {
    let OutboundPlan { sa, sequence, iv, .. } = *plan;
    let prefix_len = sa.outer.prefix_len();
    let trailer_len = Sizes::AEAD.trailer_len(usize::from(plan.len));
    if !(buf.grow_front(prefix_len) && buf.grow_back(trailer_len + TAG_LEN)) {
        return None;
    }
    let total = buf.len() as u16;
    let marks = Marks { class: plan.class, df: plan.df, id, sequence, iv };
    let text_at = if sa.outer.is_transport() {
        transport::encapsulate(buf.data_mut(), &sa.outer, total, &marks)?
    } else {
        sa.outer.write(buf.data_mut().get_mut(..prefix_len)?, total, &marks);
        prefix_len
    };
    let (text, tag) = buf.data_mut().get_mut(text_at..)?.split_last_chunk_mut::<TAG_LEN>()?;
    let payload_len = text.len().checked_sub(trailer_len)?;
    let (_, trailer) = text.split_at_mut_checked(payload_len)?;
    if !esp::write_trailer(trailer, plan.next_header) {
        return None;
    }
    let aad = Aad::of_esp(sa.spi.0, sequence, sa.esn);
    Some(SealJob { key, iv: iv.to_be_bytes(), aad, text, tag })
}

/// Tells control of SAs that are used and have no key schedule.
#[inline]
pub(super) fn want_keys(plans: &[OutboundPlan<'_>], events: &mut Events, now: u64) {
    for run in plans.chunk_by(|a, b| std::ptr::eq(a.sa, b.sa)) {
        if let Some(OutboundPlan { sa, .. }) = run.first()
            && !sa.key.is_expanded()
            && sa.counters().is_unused_since(now)
        {
            events.raise(Event::KeyWanted { spi: sa.pair });
        }
    }
}

/// The work after encryption: checksums over the ciphertext, counters.
pub(super) fn finish(
    burst: &mut [Item<'_>],
    plans: &[OutboundPlan<'_>],
    counters: &DirectionCounters,
    events: &mut Events,
    now: u64,
) {
    let (mut forwarded, mut forwarded_bytes, mut relayed) = (0, 0, 0);
    for run in plans.chunk_by(|a, b| std::ptr::eq(a.sa, b.sa)) {
        let Some(sa) = run.first().map(|plan| plan.sa) else {
            continue;
        };
        let (mut packets, mut bytes, mut outer_bytes) = (0, 0, 0);
        for plan in run {
            let Some(item) = burst.get_mut(usize::from(plan.at)) else {
                continue;
            };
            if !matches!(item.verdict, Verdict::Forward | Verdict::ForwardInPieces { .. }) {
                item.refuse(DropReason::NoRoom, counters);
                continue;
            }
            if sa.outer.needs_checksum() {
                sa.outer.fill_checksum(item.buf.data_mut());
            }
            packets += 1;
            bytes += u64::from(plan.len);
            outer_bytes += item.buf.len() as u64;
        }
        sa.counters().add(packets, bytes, now);
        events.note_mark(sa.counters(), sa.pair);
        if sa.is_relay() {
            relayed += packets;
        } else {
            forwarded += packets;
            forwarded_bytes += outer_bytes;
        }
    }
    counters.relayed.add(relayed);
    counters.forwarded.add(forwarded);
    counters.forwarded_bytes.add(forwarded_bytes);
}
