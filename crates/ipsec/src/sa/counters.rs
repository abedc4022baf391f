//! The counters of an SA.

use crate::drops::DropReason;
use crate::packet_selector::Direction;
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Bound on the reasons that one half counts. The other reasons occur before there is an SA to
/// count for: with tens of thousands of SAs, room for them would be megabytes, and so would be room
/// in each half for the reasons of the other half.
const MAX_REASONS: usize = INBOUND_REASONS.len();

/// Reasons for which an SA refuses an inbound packet. Reasons of both halves come first, at the
/// same index in both.
const INBOUND_REASONS: [DropReason; 16] = [
    DropReason::Dummy,
    DropReason::AhNotCovered,
    DropReason::SequenceInvalid,
    DropReason::ReplayTooOld,
    DropReason::Replayed,
    DropReason::AuthFailed,
    DropReason::EspTooShort,
    DropReason::AhTooShort,
    DropReason::OtherProtocol,
    DropReason::BadPadding,
    DropReason::BadNextHeader,
    DropReason::FragmentInside,
    DropReason::MalformedInner,
    DropReason::SelectorMismatch,
    DropReason::EcnNotCapable,
    DropReason::TtlExceeded,
];

/// Reasons for which an SA refuses an outbound packet.
const OUTBOUND_REASONS: [DropReason; 11] = [
    DropReason::Dummy,
    DropReason::AhNotCovered,
    DropReason::OutsideSa,
    DropReason::NotFromHost,
    DropReason::Malformed,
    DropReason::TooBig,
    DropReason::NoRoom,
    DropReason::SequenceExhausted,
    DropReason::NoBlock,
    DropReason::IvExhausted,
    DropReason::NoSender,
];
const _: () = assert!(OUTBOUND_REASONS.len() <= MAX_REASONS);

fn place_in(reasons: &[DropReason], reason: DropReason) -> Option<usize> {
    reasons.iter().position(|counted| *counted == reason)
}

/// Index of a reason's counter, in whichever half counts it: so the index is known where the reason
/// is a constant.
fn place(reason: DropReason) -> Option<usize> {
    place_in(&INBOUND_REASONS, reason).or_else(|| place_in(&OUTBOUND_REASONS, reason))
}

/// Counters of one SA in one direction. Workers write them, and any thread may read them.
#[derive(Debug)]
#[repr(C)]
pub struct SaCounters {
    packets: AtomicU64,
    bytes: AtomicU64,
    last_use: AtomicU64,
    /// Control wants an event when `packets` or `bytes` reach these.
    mark_packets: AtomicU64,
    mark_bytes: AtomicU64,
    /// The direction whose packets are counted.
    half: Direction,
    /// Saturating: counters as large as the others would take as much memory as the rest.
    drops: [AtomicU32; MAX_REASONS],
}

/// The values of an SA's counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaTotals {
    /// Packets protected, or verified and accepted.
    pub packets: u64,
    /// Octets of the inner packets.
    pub bytes: u64,
    /// When the last packet passed, in the worker's milliseconds; 0 if none did.
    pub last_use: u64,
}

impl SaCounters {
    pub(super) fn new(half: Direction) -> Self {
        Self {
            packets: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            last_use: AtomicU64::new(0),
            mark_packets: AtomicU64::new(u64::MAX),
            mark_bytes: AtomicU64::new(u64::MAX),
            half,
            drops: [const { AtomicU32::new(0) }; MAX_REASONS],
        }
    }

    /// Packets, octets and time of the last use.
    pub fn totals(&self) -> SaTotals {
        SaTotals {
            packets: self.packets.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            last_use: self.last_use.load(Relaxed),
        }
    }

    /// Packets of this SA dropped for the given reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        let at = self.place(reason);
        at.and_then(|at| self.drops.get(at)).map_or(0, |drops| drops.load(Relaxed).into())
    }

    /// Index of a reason that this half counts.
    fn place(&self, reason: DropReason) -> Option<usize> {
        match self.half {
            Direction::In => place_in(&INBOUND_REASONS, reason),
            Direction::Out => place_in(&OUTBOUND_REASONS, reason),
        }
    }

    /// Asks for [`Event::Carried`] once the SA has carried this much.
    ///
    /// [`Event::Carried`]: crate::dataplane::Event::Carried
    pub fn set_mark(&self, packets: u64, bytes: u64) {
        self.mark_packets.store(packets, Relaxed);
        self.mark_bytes.store(bytes, Relaxed);
    }

    /// Control is being told. In case the event is lost, it is told again when some more has
    /// passed: a limit must not depend on one event.
    #[cold]
    pub(crate) fn move_mark(&self) {
        /// Packets and octets, so that the first few do not each make an event.
        const STEPS: (u64, u64) = (64, 1 << 16);
        let move_on = |mark: &AtomicU64, total: &AtomicU64, step: u64| {
            let total = total.load(Relaxed);
            if total >= mark.load(Relaxed) {
                mark.store(total.saturating_add(total / 8).saturating_add(step), Relaxed);
            }
        };
        move_on(&self.mark_packets, &self.packets, STEPS.0);
        move_on(&self.mark_bytes, &self.bytes, STEPS.1);
    }

    /// True once the SA has carried as much as control asked for.
    #[inline]
    pub(crate) fn is_at_mark(&self) -> bool {
        self.packets.load(Relaxed) >= self.mark_packets.load(Relaxed)
            || self.bytes.load(Relaxed) >= self.mark_bytes.load(Relaxed)
    }

    /// True if no packet has passed since that time, or none ever.
    #[inline]
    pub(crate) fn is_unused_since(&self, now: u64) -> bool {
        self.last_use.load(Relaxed) != now
    }

    /// Sets the counters from a snapshot.
    pub(super) fn restore(&mut self, totals: &SaTotals) {
        *self.packets.get_mut() = totals.packets;
        *self.bytes.get_mut() = totals.bytes;
        *self.last_use.get_mut() = totals.last_use;
    }

    /// Counts packets: all of a burst at once, because the instructions are locked ones.
    #[inline]
    pub(crate) fn add(&self, packets: u64, bytes: u64, now: u64) {
        self.packets.fetch_add(packets, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        self.last_use.store(now, Relaxed);
    }

    #[cold]
    pub(crate) fn add_drop(&self, reason: DropReason) {
        let at = place(reason);
        debug_assert!(
            at.is_some() && at == self.place(reason),
            "{reason:?} is not counted of {:?}",
            self.half
        );
        if let Some(drops) = at.and_then(|at| self.drops.get(at)) {
            // At its largest value it stays.
            let _ = drops.fetch_update(Relaxed, Relaxed, |count| count.checked_add(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_half_counts_its_reasons_and_no_other() {
        for (half, counted) in [(Direction::In, &INBOUND_REASONS[..]), (Direction::Out, &OUTBOUND_REASONS)] {
            let counters = SaCounters::new(half);
            for (times, reason) in (1..).zip(counted) {
                (0..times).for_each(|_| counters.add_drop(*reason));
            }
            for reason in DropReason::ALL {
                let expected = place_in(counted, reason).map_or(0, |at| at as u64 + 1);
                assert_eq!(counters.dropped(reason), expected, "{reason:?} of {half:?}");
            }
        }
    }
}
