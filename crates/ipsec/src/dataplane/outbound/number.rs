//! Sequence numbers and IVs for the packets of a burst.

use super::Burst;
use super::plan::OutboundPlan;
use crate::dataplane::burst::Item;
use crate::dataplane::counters::DirectionCounters;
use crate::dataplane::event::{Event, Events, LOW_INTERVAL_MS, NO_BLOCK_INTERVAL_MS};
use crate::dataplane::table::{OutboundTable, PolicyPlace, Sample, row_now};
use crate::drops::DropReason;
use crate::number::{IvAllocator, ReservedRows, RowClock, Rows};
use crate::sa::OutboundSa;

/// Gives each plan its sequence number and IV: one reservation per run of packets of one SA, and
/// another if a block ends within the run.
#[inline(always)]
pub(super) fn number(plans: &mut [OutboundPlan<'_>], ivs: &mut IvAllocator, low: &mut Low<'_>) {
    for mut run in plans.chunk_by_mut(|a, b| std::ptr::eq(a.sa, b.sa)) {
        while let Some(sa) = run.first().map(|plan| plan.sa) {
            let numbered = number_some(run, sa, ivs, low);
            if numbered == 0 {
                break;
            }
            run = run.get_mut(numbered..).unwrap_or_default();
        }
    }
}

/// Numbers as many packets of an SA as one reservation gives, from the front. None if there are no
/// numbers.
#[inline]
fn number_some(
    run: &mut [OutboundPlan<'_>],
    sa: &OutboundSa,
    ivs: &mut IvAllocator,
    low: &mut Low<'_>,
) -> usize {
    // Without IVs no sequence number must be used up.
    let wanted = ivs.left(run.len() as u32);
    if wanted == 0 {
        low.tell_ivs(ivs);
        return 0;
    }
    if let Some(rows) = sa.rows() {
        return number_rows(run, sa, low.reserve_rows(sa, rows, wanted), ivs, low);
    }
    let numbers = sa.numbers().reserve(wanted);
    let reserved = ivs.reserve(numbers.count as u32);
    for (plan, offset) in run.iter_mut().zip(0..numbers.count) {
        plan.sequence = numbers.first + offset;
        plan.iv = reserved.first + offset;
    }
    if numbers.low {
        low.tell_sequence(sa, numbers.count == 0);
    }
    if reserved.low {
        low.tell_ivs(ivs);
    }
    numbers.count as usize
}

/// Numbers packets of a spread SA.
#[inline(never)]
fn number_rows(
    run: &mut [OutboundPlan<'_>],
    sa: &OutboundSa,
    numbers: ReservedRows,
    ivs: &mut IvAllocator,
    low: &mut Low<'_>,
) -> usize {
    let reserved = ivs.reserve(numbers.count as u32);
    for (plan, offset) in run.iter_mut().zip(0..numbers.count) {
        plan.sequence = numbers.first + offset * u64::from(numbers.step);
        plan.iv = reserved.first + offset;
    }
    if numbers.low {
        low.tell_sequence(sa, numbers.count == 0);
    }
    if reserved.low {
        low.tell_ivs(ivs);
    }
    numbers.count as usize
}

/// Tells control, now and then, that numbers run low.
pub(super) struct Low<'d> {
    pub(super) table: &'d OutboundTable,
    /// The clock of the rows of spread SAs.
    pub(super) clock: Option<&'d dyn RowClock>,
    /// The clock has counted the packets of this burst too: all nodes see all packets.
    pub(super) counts_all: bool,
    pub(super) iv_told: &'d mut Option<u64>,
    pub(super) events: &'d mut Events,
    pub(super) now: u64,
}

impl Low<'_> {
    fn is_due(&self, told: Option<u64>, interval: u64) -> bool {
        told.is_none_or(|told| self.now.saturating_sub(told) >= interval)
    }

    #[cold]
    fn tell_sequence(&mut self, sa: &OutboundSa, out: bool) {
        let Some(place) = self.table.get(sa.policy()) else {
            return;
        };
        let latest = place.stripes.as_ref().and_then(|stripes| stripes.latest()).map_or(0, |last| last.start);
        let (news, may_follow) = match sa.rows() {
            Some(rows) => (rows.take_news(latest), true),
            None => (sa.numbers().take_news(), !sa.numbers().is_last_block()),
        };
        let interval = if out && may_follow { NO_BLOCK_INTERVAL_MS } else { LOW_INTERVAL_MS };
        // At once for each block; again after a time, because the event may have been lost.
        if !news && !self.is_due(place.told.get(), interval) {
            return;
        }
        let sample = Sample::now(sa, self.clock, self.now);
        if self.events.raise(Event::SequenceLow { spi: sa.pair, rate: place.sampled.get().rate(sample) }) {
            place.told.set(Some(self.now));
            place.sampled.set(sample);
        } else if news {
            match sa.rows() {
                Some(rows) => rows.give_news_back(latest),
                None => sa.numbers().give_news_back(),
            }
        }
    }

    /// Takes rows of a spread SA: none if its policy has no stripes, or another SA by now. If the
    /// clock has counted all of the packets, the last of them takes the row that it shows.
    /// Otherwise it shows how far other nodes have come, and the first of them goes on from there.
    fn reserve_rows(&self, sa: &OutboundSa, rows: &Rows, wanted: u32) -> ReservedRows {
        let place = self.table.get(sa.policy());
        let is_of = |place: &&PolicyPlace| place.sa.as_ref().is_some_and(|own| own.shares_rows(sa));
        match place.filter(is_of).and_then(|place| place.stripes.as_deref()) {
            Some(stripes) => {
                let before = if self.counts_all { u64::from(wanted.saturating_sub(1)) } else { 0 };
                rows.reserve(stripes, row_now(sa, self.clock).saturating_sub(before), wanted)
            }
            None => ReservedRows::NONE,
        }
    }

    #[cold]
    fn tell_ivs(&mut self, ivs: &IvAllocator) {
        if ivs.sender().is_some()
            && self.is_due(*self.iv_told, LOW_INTERVAL_MS)
            && self.events.raise(Event::IvLow)
        {
            *self.iv_told = Some(self.now);
        }
    }
}

/// Removes the packets for which there was no sequence number, or no IV.
#[inline]
pub(super) fn refuse_unnumbered(
    burst: &mut [Item<'_>],
    plans: &mut Burst<OutboundPlan<'_>>,
    ivs: &IvAllocator,
    counters: &DirectionCounters,
) {
    if plans.iter().any(|plan| plan.sequence == 0) {
        refuse_unnumbered_of(burst, plans, ivs, counters);
    }
}

#[cold]
fn refuse_unnumbered_of(
    burst: &mut [Item<'_>],
    plans: &mut Burst<OutboundPlan<'_>>,
    ivs: &IvAllocator,
    counters: &DirectionCounters,
) {
    plans.retain(|plan| {
        let numbered = plan.sequence != 0;
        if !numbered && let Some(item) = burst.get_mut(usize::from(plan.at)) {
            let reason = match (ivs.sender(), ivs.left(1)) {
                (None, _) => DropReason::NoSender,
                (Some(_), 0) => DropReason::IvExhausted,
                _ if plan.sa.rows().is_none() && plan.sa.numbers().is_last_block() => {
                    DropReason::SequenceExhausted
                }
                _ => DropReason::NoBlock,
            };
            plan.sa.counters().add_drop(reason);
            item.refuse(reason, counters);
        }
        numbered
    });
}
