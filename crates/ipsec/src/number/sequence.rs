//! Sequence numbers of an outbound SA, block by block.
//!
//! A lone gateway has all numbers in one block. In a cluster each node has blocks of its own, which
//! no other node may use: an owner goes from one block to the next, over those in between that were
//! granted to others.

use crate::atomics::Ordering::{Acquire, Relaxed, Release};
use crate::atomics::{AtomicBool, AtomicU64};
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use testudo_planted::{Plant, planted};

/// Sequence numbers that an SA may use: `next..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceBlock {
    /// The first unused number.
    pub next: u64,
    /// The first number that may not be used.
    pub end: u64,
}

impl SequenceBlock {
    /// No number: for an SA that must not send before it is given a block.
    pub const EMPTY: Self = Self { next: 1, end: 1 };

    /// All numbers of a fresh SA: 1 to 2^32 - 1, or nearly to 2^64 with ESN (RFC 4303 §3.3.3).
    pub fn whole(esn: bool) -> Self {
        Self { next: 1, end: limit(esn) }
    }

    /// True if there is no number in it.
    pub fn is_empty(self) -> bool {
        self.next >= self.end
    }

    fn middle(self) -> u64 {
        self.next + self.end.saturating_sub(self.next) / 2
    }

    /// Refuses numbers that an SA cannot use: number 0, and numbers beyond its last one.
    fn check(self, esn: bool) -> Result<Self, Error> {
        let limit = limit(esn);
        if self.end > limit || self.next == 0 {
            return Err(Error::SequenceNumbers { found: self.end, limit: limit - 1 });
        }
        Ok(self)
    }
}

/// The end of an SA's numbers: they must not cycle (RFC 4303 §3.3.3). With ESN some numbers are
/// left unused, so that the counter does not cycle even if many workers push it beyond the end at
/// once.
pub(super) fn limit(esn: bool) -> u64 {
    if esn { u64::MAX - (1 << 32) } else { 1 << 32 }
}

/// Allots the sequence numbers of an SA. Any number of workers may take some at once, while control
/// adds blocks.
///
/// One rule keeps blocks apart: *a thread that sees the end of a block sees a `next` that is not
/// before its beginning.* Code that sets `end` raises `next` first and then publishes `end`
/// (Release). Code that takes numbers reads `end` first (Acquire) and then adds to `next`. The
/// numbers that it takes are in that block, or beyond its end, where they do not count. In the
/// other order a worker could see the new end with the old `next`, and send with the numbers in
/// between. Both only ever grow, so that a late block changes nothing.
#[derive(Debug)]
pub struct SequenceAllocator {
    next: AtomicU64,
    end: AtomicU64,
    low_water: AtomicU64,
    /// Beginning of the present block.
    start: AtomicU64,
    /// The block to use after the present one; there is none if its end is not beyond `end`. The
    /// rule holds here too.
    then_next: AtomicU64,
    then_end: AtomicU64,
    /// True if control was told that the latest block runs low.
    told: AtomicBool,
    esn: bool,
}

/// Consecutive sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The first of them.
    pub first: u64,
    /// Their number. At the end of a block it is less than requested: ask again for the rest, there
    /// may be another block.
    pub count: u64,
    /// True from the middle of the last block on: time to get the next.
    pub low: bool,
}

impl SequenceAllocator {
    /// Starts with this block.
    pub fn new(block: SequenceBlock, esn: bool) -> Result<Self, Error> {
        let block = block.check(esn)?;
        Ok(Self {
            next: AtomicU64::new(block.next),
            end: AtomicU64::new(block.end),
            low_water: AtomicU64::new(block.middle()),
            start: AtomicU64::new(block.next),
            then_next: AtomicU64::new(0),
            then_end: AtomicU64::new(0),
            told: AtomicBool::new(false),
            esn,
        })
    }

    /// Takes up to `count` numbers, with one atomic addition.
    #[inline]
    pub fn reserve(&self, count: u32) -> Reserved {
        let count = u64::from(count);
        loop {
            let mut end = self.end.load(Acquire);
            // Beyond the end nothing is added, so that the counter cannot wrap however often it is
            // asked.
            if self.next.load(Relaxed) >= end {
                end = self.go_on();
                let next = self.next.load(Relaxed);
                if next >= end {
                    return Reserved { first: next, count: 0, low: true };
                }
            }
            // An addition sees the latest `next`, and so one that belongs to `end`.
            let first = self.next.fetch_add(count, Relaxed);
            if first < end {
                let low = first.saturating_add(count) >= self.low_water.load(Relaxed);
                return Reserved { first, count: count.min(end - first), low };
            }
            // Others have taken the last number, or a later block has begun meanwhile, which makes
            // this `end` void.
        }
    }

    /// Leaves the present block for a later one at once. The rest of the present block is never
    /// used, unless the two are adjacent. Nothing happens if the block is not later, so that
    /// numbers never go back.
    pub fn advance(&self, block: SequenceBlock) -> Result<(), Error> {
        let block = block.check(self.esn)?;
        if self.is_later(block) {
            self.jump(block.next, block.end);
            self.note_block(block);
        }
        Ok(())
    }

    /// Goes on with a later block when the present one is used up. A block that already waits is
    /// replaced.
    pub fn follow(&self, block: SequenceBlock) -> Result<(), Error> {
        let block = block.check(self.esn)?;
        if self.is_later(block) {
            self.then_next.fetch_max(block.next, Relaxed);
            self.then_end.fetch_max(block.end, Release);
            self.note_block(block);
        }
        Ok(())
    }

    /// Skips this many numbers. Returns false, and changes nothing, if the block has no more than
    /// that.
    pub fn skip(&self, count: u64) -> bool {
        let end = self.end.load(Acquire);
        let skipped = |next: u64| next.checked_add(count).filter(|next| *next < end);
        self.next.fetch_update(Relaxed, Relaxed, skipped).is_ok()
    }

    fn is_later(&self, block: SequenceBlock) -> bool {
        !block.is_empty() && block.end > self.end.load(Relaxed)
    }

    fn note_block(&self, block: SequenceBlock) {
        let next = block.next.max(self.next.load(Relaxed)).min(block.end);
        self.low_water.store(SequenceBlock { next, ..block }.middle(), Relaxed);
        self.told.store(false, Relaxed);
    }

    fn jump(&self, next: u64, end: u64) {
        if !planted(Plant::BlockGap) {
            self.next.fetch_max(next, Relaxed);
        }
        self.start.fetch_max(next, Relaxed);
        self.end.fetch_max(end, Release);
    }

    /// Begins the block that waits, if there is one. Returns the end that counts then. If control
    /// replaces the waiting block meanwhile, this end may be paired with that block's beginning:
    /// then there is no number before it, and the next caller finds the rest.
    #[cold]
    fn go_on(&self) -> u64 {
        let end = self.then_end.load(Acquire);
        if end > self.end.load(Relaxed) {
            self.jump(self.then_next.load(Relaxed), end);
        }
        self.end.load(Acquire)
    }

    /// True once a block: the first caller that finds it running low must tell control.
    pub(crate) fn take_news(&self) -> bool {
        !self.told.load(Relaxed) && !self.told.swap(true, Relaxed)
    }

    /// Control could not be told.
    pub(crate) fn give_news_back(&self) {
        self.told.store(false, Relaxed);
    }

    /// True if no later block can come: the SA's own numbers end with this one.
    pub fn is_last_block(&self) -> bool {
        self.end.load(Relaxed) >= limit(self.esn)
    }

    /// The used numbers of the present block: those before it belong to others, or are long gone.
    pub(crate) fn used(&self) -> Range<u64> {
        let block = self.block();
        self.start.load(Relaxed)..block.next.min(block.end)
    }

    /// The rest of the present block.
    pub fn block(&self) -> SequenceBlock {
        SequenceBlock { next: self.next.load(Relaxed), end: self.end.load(Relaxed) }
    }
}
