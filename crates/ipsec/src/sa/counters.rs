//! What an SA counts.

use crate::drops::DropReason;
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Counters of one SA in one direction, written by workers and read by anybody.
#[derive(Debug)]
#[repr(C)]
pub struct SaCounters {
    packets: AtomicU64,
    bytes: AtomicU64,
    last_use: AtomicU64,
    drops: [AtomicU64; DropReason::COUNT],
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
    pub(super) fn new() -> Self {
        Self {
            packets: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            last_use: AtomicU64::new(0),
            drops: [const { AtomicU64::new(0) }; DropReason::COUNT],
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
        self.drops.get(reason as usize).map_or(0, |drops| drops.load(Relaxed))
    }

    /// Goes on from a snapshot.
    pub(super) fn restore(&mut self, totals: &SaTotals) {
        *self.packets.get_mut() = totals.packets;
        *self.bytes.get_mut() = totals.bytes;
        *self.last_use.get_mut() = totals.last_use;
    }

    /// Counts packets of an SA that only this worker touches: no locked instruction.
    #[inline]
    pub(crate) fn add_owned(&self, packets: u64, bytes: u64, now: u64) {
        self.packets.store(self.packets.load(Relaxed).wrapping_add(packets), Relaxed);
        self.bytes.store(self.bytes.load(Relaxed).wrapping_add(bytes), Relaxed);
        self.last_use.store(now, Relaxed);
    }

    /// Counts packets of an SA that several workers may use.
    #[inline]
    pub(crate) fn add_shared(&self, packets: u64, bytes: u64, now: u64) {
        self.packets.fetch_add(packets, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        self.last_use.store(now, Relaxed);
    }

    #[cold]
    pub(crate) fn add_drop(&self, reason: DropReason) {
        if let Some(drops) = self.drops.get(reason as usize) {
            drops.fetch_add(1, Relaxed);
        }
    }
}
