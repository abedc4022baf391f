//! Numbers that must never repeat: sequence numbers of an SA, IVs of a worker.

use crate::error::Error;
use crate::spi::SenderId;
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Sequence numbers that an SA may use: `next..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceBlock {
    /// The first unused number.
    pub next: u64,
    /// The first number that may not be used.
    pub end: u64,
}

impl SequenceBlock {
    /// All numbers of a fresh SA: 1 to 2^32 - 1, or nearly to 2^64 with ESN (RFC 4303 §3.3.3).
    pub fn whole(esn: bool) -> Self {
        Self { next: 1, end: limit(esn) }
    }
}

/// The end of an SA's numbers: they must not cycle (RFC 4303 §3.3.3). With ESN some numbers are left unused, so that a
/// counter that many workers push beyond the end at once does not cycle either.
fn limit(esn: bool) -> u64 {
    if esn { u64::MAX - (1 << 32) } else { 1 << 32 }
}

/// Hands out the sequence numbers of an SA. Any number of workers may ask at once.
#[derive(Debug)]
pub struct SequenceAllocator {
    next: AtomicU64,
    end: AtomicU64,
    low_water: AtomicU64,
    esn: bool,
}

/// Consecutive sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The first of them.
    pub first: u64,
    /// How many there are; fewer than asked for at the end of the block.
    pub count: u64,
    /// True from the middle of the block on: time to get the next.
    pub low: bool,
}

impl SequenceAllocator {
    /// Begins with the given block.
    pub fn new(block: SequenceBlock, esn: bool) -> Result<Self, Error> {
        if block.end > limit(esn) || block.next == 0 {
            return Err(Error::SequenceNumbers { found: block.end, limit: limit(esn) - 1 });
        }
        Ok(Self {
            next: AtomicU64::new(block.next),
            end: AtomicU64::new(block.end),
            low_water: AtomicU64::new(middle(block)),
            esn,
        })
    }

    /// Takes up to `count` numbers, with one atomic addition.
    #[inline]
    pub fn reserve(&self, count: u32) -> Reserved {
        let count = u64::from(count);
        let end = self.end.load(Relaxed);
        // Beyond the end nothing is added, so that the counter cannot wrap however often it is asked.
        let next = self.next.load(Relaxed);
        if next >= end {
            return Reserved { first: next, count: 0, low: true };
        }
        let first = self.next.fetch_add(count, Relaxed);
        let low_water = self.low_water.load(Relaxed);
        Reserved {
            first,
            count: count.min(end.saturating_sub(first)),
            low: first.saturating_add(count) >= low_water,
        }
    }

    /// Appends numbers to the block. It never shrinks: an `end` below the present one changes nothing.
    pub fn extend(&self, end: u64) -> Result<(), Error> {
        if end > limit(self.esn) {
            return Err(Error::SequenceNumbers { found: end, limit: limit(self.esn) - 1 });
        }
        let end = self.end.fetch_max(end, Relaxed).max(end);
        let next = self.next.load(Relaxed);
        self.low_water.store(middle(SequenceBlock { next, end }), Relaxed);
        Ok(())
    }

    /// The numbers that are left.
    pub fn block(&self) -> SequenceBlock {
        SequenceBlock { next: self.next.load(Relaxed), end: self.end.load(Relaxed) }
    }
}

fn middle(block: SequenceBlock) -> u64 {
    block.next + block.end.saturating_sub(block.next) / 2
}

/// Which of the workers of a node: six bits of the IV.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WorkerId(u8);

impl WorkerId {
    /// `None` from 64 on: the IV has no room.
    pub fn new(number: u8) -> Option<Self> {
        (number < 64).then_some(Self(number))
    }

    /// The number.
    pub fn get(self) -> u8 {
        self.0
    }
}

const COUNTER_BITS: u32 = 42;
const WORKER_BITS: u32 = 6;
const COUNTER_END: u64 = 1 << COUNTER_BITS;
/// When seven eighths of the counter are used, control should ask for a new sender ID.
const COUNTER_LOW: u64 = COUNTER_END / 8 * 7;

/// Hands out the IVs of one worker (RFC 6054): sender ID:16 | worker:6 | counter:42, for all SAs together.
#[derive(Debug)]
pub struct IvAllocator {
    sender: SenderId,
    worker: WorkerId,
    next: u64,
}

/// Consecutive IVs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservedIvs {
    /// The first of them; the others follow by adding one.
    pub first: u64,
    /// How many there are; fewer than asked for at the end of the counter.
    pub count: u64,
    /// True from the low-water mark on.
    pub low: bool,
}

impl IvAllocator {
    /// Begins at counter 0 of a sender ID that no one, not even this worker, has used before under the present keys.
    pub fn new(sender: SenderId, worker: WorkerId) -> Self {
        Self { sender, worker, next: 0 }
    }

    /// Takes up to `count` IVs.
    #[inline]
    pub fn reserve(&mut self, count: u32) -> ReservedIvs {
        let prefix = u64::from(self.sender.0) << WORKER_BITS | u64::from(self.worker.0);
        let first = self.next;
        let count = u64::from(count).min(COUNTER_END - first);
        self.next = first + count;
        ReservedIvs { first: prefix << COUNTER_BITS | first, count, low: self.next >= COUNTER_LOW }
    }

    /// Goes on with a new sender ID. False, and nothing changed, if it is the present one: its counter must not begin again.
    #[must_use]
    pub fn set_sender(&mut self, sender: SenderId) -> bool {
        let fresh = sender != self.sender;
        if fresh {
            self.sender = sender;
            self.next = 0;
        }
        fresh
    }

    /// The sender ID in use.
    pub fn sender(&self) -> SenderId {
        self.sender
    }
}

#[cfg(test)]
#[path = "number_tests.rs"]
mod tests;
