//! Sequence numbers of a spread outbound SA, whose packets several nodes send.
//!
//! The peer's window must see the numbers of all nodes close together, and no two nodes may use the
//! same one. Both follow from *rows*. All nodes see all clear packets of the SA's tunnel, and count
//! them: the count is the clock of the rows. A node sends each packet in a row of its own, which is
//! not below the clock. A *stripe* gives each row one number for each node: that of the node's
//! class. So the nodes share nothing but the stripe, and none gets ahead of the others by more than
//! the clock does.
//!
//! Where routers give each packet to one node, a node counts the rows that it uses, and the clock
//! shows how far the others have come, as they say from time to time.

use super::sequence::limit;
use crate::atomics::AtomicU64;
use crate::atomics::Ordering::Relaxed;
use crate::error::Error;
use arrayvec::ArrayVec;
use serde::{Deserialize, Serialize};
use std::fmt::Debug;
use std::ops::Range;
use testudo_base::spi::Shard;
use testudo_planted::{Plant, planted};

/// How many stripes of an SA a node keeps: the one in use, and later ones that have been granted.
pub const MAX_STRIPES: usize = 4;

/// Numbers of an SA for the rows `first_row .. first_row + rows`, one for each class in each row. A
/// node must be granted a class of a stripe only once: after a restart it no longer knows which of
/// its rows it has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stripe {
    /// The first row.
    pub first_row: u64,
    /// Number of rows.
    pub rows: u64,
    /// The first number of the first row.
    pub start: u64,
    /// Numbers of each row.
    pub classes: u8,
    /// Which of them this node uses, from 0.
    pub class: u8,
}

impl Stripe {
    /// Refuses numbers that an SA cannot use, and rows that cannot be counted.
    fn check(self, esn: bool) -> Result<Self, Error> {
        let Self { first_row, rows, start, classes, class } = self;
        if class >= classes {
            return Err(Error::StripeClass { class, classes });
        }
        first_row.checked_add(rows).ok_or(Error::StripeRows { first_row, rows })?;
        let limit = limit(esn);
        let end = rows.checked_mul(classes.into()).and_then(|numbers| start.checked_add(numbers));
        match end {
            Some(end) if end <= limit && start != 0 => Ok(self),
            _ => Err(Error::SequenceNumbers { found: end.unwrap_or(u64::MAX), limit: limit - 1 }),
        }
    }

    /// The first number behind it, of any class.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.rows.saturating_mul(self.classes.into()))
    }

    /// The first row behind it.
    fn end_row(&self) -> u64 {
        self.first_row.saturating_add(self.rows)
    }

    /// This node's number in a row of the stripe.
    fn number(&self, row: u64) -> u64 {
        let before = row.saturating_sub(self.first_row).saturating_mul(self.classes.into());
        let class = if planted(Plant::SameStripe) { 0 } else { self.class };
        self.start.saturating_add(before).saturating_add(class.into())
    }
}

/// The latest stripes of an SA. Rows, and numbers, rise from each to the next. Where the rows of
/// two overlap, the later one counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stripes(ArrayVec<Stripe, MAX_STRIPES>);

impl Stripes {
    /// None: the SA cannot send.
    pub fn new() -> Self {
        Self::default()
    }

    /// With one more stripe, which replaces those that begin no earlier by their rows. Of more than
    /// [`MAX_STRIPES`], the oldest is left out. An empty stripe changes nothing, nor does one
    /// before the latest by its numbers, which is late.
    pub fn with(&self, stripe: Stripe, esn: bool) -> Result<Self, Error> {
        let stripe = stripe.check(esn)?;
        if let Some(latest) = self.latest() {
            if stripe == *latest || stripe.end() <= latest.start {
                return Ok(self.clone());
            }
            if stripe.start < latest.end() {
                return Err(Error::StripeOverlap { start: stripe.start, expected: latest.end() });
            }
        }
        let mut stripes = self.clone();
        if stripe.rows == 0 {
            return Ok(stripes);
        }
        stripes.0.retain(|earlier| earlier.first_row < stripe.first_row);
        if stripes.0.is_full() {
            stripes.0.remove(0);
        }
        stripes.0.push(stripe);
        Ok(stripes)
    }

    /// The stripe that was granted last.
    pub fn latest(&self) -> Option<&Stripe> {
        self.0.last()
    }

    /// True if the first stripe has begun at this row, and the last one has not ended.
    pub fn cover(&self, row: u64) -> bool {
        let begins = self.0.first().is_some_and(|first| first.first_row <= row);
        begins && self.latest().is_some_and(|latest| row < latest.end_row())
    }

    /// The stripes, by their rows.
    pub fn iter(&self) -> impl Iterator<Item = &Stripe> {
        self.0.iter()
    }

    /// The first rows from `row` on that have numbers, and the stripe that they belong to.
    #[inline]
    fn rows_from(&self, row: u64) -> Option<(&Stripe, Range<u64>)> {
        let nexts = self.0.iter().skip(1).map(|next| next.first_row).chain([u64::MAX]);
        self.0.iter().zip(nexts).find_map(|(stripe, next)| {
            let end = stripe.end_row().min(next);
            (row < end).then(|| (stripe, row.max(stripe.first_row)..end))
        })
    }

    /// The middle of the latest stripe: from this row on it is time for the next.
    fn low_water(&self) -> u64 {
        self.latest().map_or(0, |latest| latest.first_row.saturating_add(latest.rows / 2))
    }
}

/// The clock of the rows. All nodes of a cluster read about the same time: all of them see the
/// packets that it counts, or tell each other how many they have sent.
pub trait RowClock: Debug + Send + Sync {
    /// How many packets have been counted so far of the spread tunnels with this home; where
    /// routers give each packet to one node, the latest row that another node has told. It never
    /// falls.
    fn now(&self, home: Shard) -> u64;
}

/// The rows of an SA that this node has used. All workers of the node share them, and none uses a
/// row twice: whichever stripes each of them knows at a moment, its numbers are its own.
#[derive(Debug)]
pub struct Rows {
    /// Above all used rows.
    next: AtomicU64,
    /// The latest stripe that control was told of as running low, by its first number.
    told: AtomicU64,
    /// The stripe in use: its first number, its first row, and class * 256 + classes. It only
    /// serves to recognise own numbers, so parts of two stripes do no harm.
    start: AtomicU64,
    first_row: AtomicU64,
    shape: AtomicU64,
}

/// Sequence numbers of consecutive rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservedRows {
    /// The first of the numbers; each next one is higher by `step`.
    pub first: u64,
    /// Numbers of a row.
    pub step: u8,
    /// How many numbers. At the end of a stripe it is less than requested: ask again for the rest,
    /// there may be another stripe.
    pub count: u64,
    /// True from the middle of the latest stripe on: time to get the next.
    pub low: bool,
}

impl ReservedRows {
    /// No number.
    pub(crate) const NONE: Self = Self { first: 0, step: 1, count: 0, low: true };
}

impl Default for Rows {
    fn default() -> Self {
        Self::new()
    }
}

impl Rows {
    /// None is used.
    pub fn new() -> Self {
        Self {
            next: AtomicU64::new(0),
            told: AtomicU64::new(0),
            start: AtomicU64::new(0),
            first_row: AtomicU64::new(0),
            shape: AtomicU64::new(0),
        }
    }

    /// The first row above all that are used.
    pub fn next_row(&self) -> u64 {
        self.next.load(Relaxed)
    }

    /// Takes up to `count` rows, not below `clock`, with one compare-exchange. Nothing but `next`
    /// is shared, so no order with other memory is needed: the exchange alone gives each row out
    /// once.
    #[inline]
    pub fn reserve(&self, stripes: &Stripes, clock: u64, count: u32) -> ReservedRows {
        let mut next = self.next.load(Relaxed);
        loop {
            let Some((stripe, rows)) = stripes.rows_from(next.max(clock)) else {
                return ReservedRows::NONE;
            };
            let count = u64::from(count).min(rows.end - rows.start);
            let behind = rows.start + count;
            match self.next.compare_exchange_weak(next, behind, Relaxed, Relaxed) {
                Ok(_) => {
                    if self.start.load(Relaxed) != stripe.start {
                        self.begin(stripe);
                    }
                    let low = behind >= stripes.low_water();
                    let first = stripe.number(rows.start);
                    return ReservedRows { first, step: stripe.classes, count, low };
                }
                Err(now) => next = now,
            }
        }
    }

    /// A stripe is in use for the first time. Another worker may still use an earlier one, because
    /// it does not know this one yet.
    #[cold]
    fn begin(&self, stripe: &Stripe) {
        if self.start.fetch_max(stripe.start, Relaxed) < stripe.start {
            self.first_row.store(stripe.first_row, Relaxed);
            self.shape.store(u64::from(stripe.class) << 8 | u64::from(stripe.classes), Relaxed);
        }
    }

    /// True once a stripe, for the latest one's first number: the first caller that finds it
    /// running low must tell control.
    pub(crate) fn take_news(&self, latest: u64) -> bool {
        self.told.load(Relaxed) < latest && self.told.fetch_max(latest, Relaxed) < latest
    }

    /// Control could not be told.
    pub(crate) fn give_news_back(&self, latest: u64) {
        // Unless it has been told of a later stripe meanwhile.
        let _ = self.told.compare_exchange(latest, 0, Relaxed, Relaxed);
    }

    /// The used numbers of the stripe in use, with those of other nodes among them.
    pub(crate) fn used(&self) -> Range<u64> {
        let (start, shape) = (self.start.load(Relaxed), self.shape.load(Relaxed));
        let rows = self.next_row().saturating_sub(self.first_row.load(Relaxed));
        start..start.saturating_add(rows.saturating_mul(shape & 0xff))
    }

    /// True if numbers with these low bits, the last one below `end`, are of this node's class.
    pub(crate) fn is_own(&self, low: u32, end: u64) -> bool {
        let (start, shape) = (self.start.load(Relaxed), self.shape.load(Relaxed));
        let number = end.wrapping_sub((end as u32).wrapping_sub(low).into());
        number.wrapping_sub(start).checked_rem(shape & 0xff) == Some(shape >> 8)
    }
}
