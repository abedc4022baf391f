//! The anti-replay window (RFC 4303 §3.4.3) and the inference of extended sequence numbers
//! (appendix A2).
//!
//! The bits form a ring of words, a block longer than the window, so that no number inside the
//! window is forgotten before its word stands for another block (the idea of RFC 6479, but exact).
//! Any number of workers accept at once, without a lock. A word holds 32 bits and the *round* of
//! the ring to which they belong, in one atomic. A worker accepts a number by setting its bit, or
//! begins a new round in place of an old one, by one compare-exchange. So of all workers that try
//! the same number, one succeeds. Nothing clears words ahead of the high-water mark: a word of an
//! earlier round counts as clear.
//!
//! Two rules make that exact. *The high-water mark goes first*: it is raised, and then the word is
//! changed (Release). So a worker that finds a word of another round (Acquire) can tell by the mark
//! whether that round is earlier, and may be replaced, or later, and its own number has become too
//! old meanwhile. *Rounds only grow*, so that a bit which was set once is never found clear.
//!
//! Packets of one burst are accepted by the run: those of one block cost two locked instructions
//! together.

use crate::atomics::AtomicU64;
use crate::atomics::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::drops::DropReason;
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
// A statistic that nothing depends on: loom need not try its orders.
use std::sync::atomic::AtomicU32;
use testudo_crypto::prefetch;
use testudo_planted::{Plant, planted};

/// The largest window, in packets.
pub const MAX_WINDOW: u32 = 8192;

/// Without a window, how many numbers behind the high-water mark an extended number may lie: as
/// many as appendix A2 allows.
const UNCHECKED_REACH: u64 = 1 << 31;
/// Numbers of a block, whose bits share a word.
const NUMBERS_PER_BLOCK: u64 = 32;

/// The sequence numbers that have been accepted.
#[derive(Debug)]
pub struct ReplayWindow {
    /// The highest number accepted, or about to be.
    high_water_mark: AtomicU64,
    /// Numbers that the window spans; without a check, how far the inference of high bits reaches
    /// back.
    size: u64,
    esn: bool,
    checked: bool,
    /// How many more bits a block's number has than its round's.
    ring_bits: u8,
    /// See [`Self::late`].
    late: AtomicU32,
    /// A power of two of words: round << 32 | bits.
    words: Box<[AtomicU64]>,
    /// The highest floor of [`Self::raise`]. Only snapshots read it, because the words contain it
    /// too.
    floor: AtomicU64,
}

/// The window as plain data. Restoring it never makes a number acceptable that was accepted before
/// the snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSnapshot {
    /// The highest number accepted.
    pub high_water_mark: u64,
    /// The bits of 64 numbers each, as a ring: the bit of number n is in word n / 64, modulo their
    /// count.
    pub words: Vec<u64>,
}

impl ReplayWindow {
    /// A window of `size` packets, rounded up to a multiple of 64. 0 accepts every number, repeated
    /// ones too.
    pub fn new(size: u32, esn: bool) -> Result<Self, Error> {
        if size > MAX_WINDOW {
            return Err(Error::ReplayWindow { found: size });
        }
        let checked = size != 0;
        let size = u64::from(size.next_multiple_of(64));
        let words = if checked { (size / NUMBERS_PER_BLOCK + 1).next_power_of_two() } else { 2 };
        Ok(Self {
            high_water_mark: AtomicU64::new(0),
            size: if checked { size } else { UNCHECKED_REACH },
            esn,
            checked,
            // At most 9: a window has 8192 numbers at most.
            ring_bits: words.trailing_zeros() as u8,
            late: AtomicU32::new(0),
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            floor: AtomicU64::new(0),
        })
    }

    /// Prefetches the bits around the high-water mark.
    #[inline]
    pub(crate) fn prefetch(&self) {
        if let Some(word) = self.word(self.high_water_mark.load(Relaxed) / NUMBERS_PER_BLOCK) {
            prefetch(word, size_of_val(word));
        }
    }

    /// The highest number accepted so far.
    pub fn high_water_mark(&self) -> u64 {
        self.high_water_mark.load(Acquire)
    }

    /// Packets, not all of them accepted, that came behind a later packet of an earlier burst. They
    /// are counted by the group of neighbouring numbers, so that packets in order cost nothing. The
    /// count begins at 0 again after 2^32.
    pub fn late(&self) -> u32 {
        self.late.load(Relaxed)
    }

    /// The whole sequence number of a packet that carries `low`, if it may be accepted. To be
    /// called before decryption. Nothing changes, because the packet may be forged.
    #[inline]
    pub fn check(&self, low: u32) -> Result<u64, DropReason> {
        let top = self.high_water_mark.load(Relaxed);
        let sequence = if self.esn { self.infer(top, low)? } else { u64::from(low) };
        // The first packet of an SA has number 1 (RFC 4303 §3.3.3).
        if sequence == 0 {
            return Err(DropReason::SequenceInvalid);
        }
        self.judge(top, sequence)?;
        Ok(sequence)
    }

    /// The drop reason for a packet that is not authentic although its number could be accepted.
    /// With ESN a packet that comes too late is taken for one almost 2^32 numbers ahead (appendix
    /// A2), and fails; a real jump of that length is far less likely.
    #[cold]
    pub fn blame(&self, sequence: u64) -> DropReason {
        let ahead = sequence.saturating_sub(self.high_water_mark.load(Relaxed));
        if self.esn && ahead > 1 << 31 { DropReason::ReplayTooOld } else { DropReason::AuthFailed }
    }

    /// Marks the number of an authentic packet as seen. Checks it again first: its duplicate may
    /// have come in the same burst, or at another worker.
    #[inline]
    pub fn accept(&self, sequence: u64) -> Result<(), DropReason> {
        let mut verdict = Ok(());
        self.accept_run(&mut [sequence], |number| Some(*number), |_, reason| verdict = Err(reason));
        verdict
    }

    /// Accepts the numbers of a run of packets, in their order. `refuse` is called for those that
    /// cannot be accepted. Packets without a number are skipped.
    #[inline]
    pub fn accept_run<T>(
        &self,
        run: &mut [T],
        number: impl Fn(&T) -> Option<u64>,
        mut refuse: impl FnMut(&mut T, DropReason),
    ) {
        let block = |packet: &T| number(packet).map(|number| number / NUMBERS_PER_BLOCK);
        for group in run.chunk_by_mut(|a, b| block(a) == block(b)) {
            if let Some(block) = group.first().and_then(block) {
                self.accept_group(block, group, &number, &mut refuse);
            }
        }
    }

    /// Accepts numbers of one block. A window is longer than a block, so the newest of them puts
    /// none of the others out of it.
    #[inline]
    fn accept_group<T>(
        &self,
        block: u64,
        group: &mut [T],
        number: impl Fn(&T) -> Option<u64>,
        mut refuse: impl FnMut(&mut T, DropReason),
    ) {
        let newest = group.iter().filter_map(&number).max().unwrap_or_default();
        let mut top = self.high_water_mark.load(Relaxed);
        if newest > top {
            self.high_water_mark.fetch_max(newest, Relaxed);
            top = newest;
        } else if newest > 0 {
            self.late.fetch_add(group.len() as u32, Relaxed);
        }
        if !self.checked {
            return;
        }
        let in_window = |number: &u64| top - number < self.size;
        let wanted = group.iter().filter_map(&number).filter(in_window).fold(0, |all, n| all | bit(n));
        let mut seen = self.mark(block, wanted);
        if seen == Some(0) && wanted.count_ones() as usize == group.len() {
            return;
        }
        for packet in group {
            let number = number(packet).unwrap_or_default();
            match seen.as_mut().filter(|_| in_window(&number)) {
                None => refuse(packet, DropReason::ReplayTooOld),
                Some(seen) if *seen & bit(number) != 0 => refuse(packet, DropReason::Replayed),
                Some(seen) => *seen |= bit(number),
            }
        }
    }

    /// Sets bits of a block. Returns those that were set before, or none if a later round has
    /// begun. The high-water mark must have passed all of them.
    #[inline]
    fn mark(&self, block: u64, wanted: u32) -> Option<u32> {
        let place = self.word(block)?;
        let mut word = place.load(Acquire);
        loop {
            let seen = if self.is_of(word, block) {
                word as u32
            } else if self.high_water_mark.load(Relaxed) / NUMBERS_PER_BLOCK
                >= block + self.words.len() as u64
            {
                return None;
            } else {
                0
            };
            if wanted & !seen == 0 {
                return Some(seen);
            }
            match place.compare_exchange_weak(word, self.filled(block, seen | wanted), AcqRel, Acquire) {
                Ok(_) => return Some(seen),
                Err(now) => word = now,
            }
        }
    }

    /// Makes all numbers up to `floor` count as seen: once this returns, no worker accepts one of
    /// them. A node that takes an SA over does not know which of them another node has accepted.
    pub fn raise(&self, floor: u64) {
        if planted(Plant::NoFloor) {
            return;
        }
        let floor = if self.esn { floor } else { floor.min(u32::MAX.into()) };
        // A snapshot with the new high-water mark has the floor, though not all words show it yet.
        self.floor.fetch_max(floor, Release);
        self.high_water_mark.fetch_max(floor, Release);
        if self.checked {
            let last = floor / NUMBERS_PER_BLOCK;
            // Every word, so that a worker that has checked a number against the old mark finds its
            // round over.
            for block in (last + 1).saturating_sub(self.words.len() as u64)..=last {
                self.mark(block, seen_up_to(floor, block));
            }
        }
    }

    /// Follows the numbers that other nodes have accepted up to this one, from a distance, and
    /// counts none as seen. Otherwise a node that has received nothing of an SA for long would infer
    /// the wrong high bits.
    pub(crate) fn follow(&self, number: u64) {
        /// As far ahead of the high-water mark numbers are still inferred, and not blamed for being
        /// late.
        const DISTANCE: u64 = 1 << 30;
        if self.esn {
            self.high_water_mark.fetch_max(number.saturating_sub(DISTANCE), Release);
        }
    }

    /// True unless every number is accepted.
    pub(crate) fn is_checked(&self) -> bool {
        self.checked
    }

    /// Appendix A2.2: the high bits that put the number closest to the window.
    #[inline]
    fn infer(&self, top: u64, low: u32) -> Result<u64, DropReason> {
        let (top_high, top_low) = (top >> 32, u64::from(top as u32));
        let low = u64::from(low);
        let high = if top_low >= self.size - 1 {
            // The window lies within one subspace of 2^32 numbers.
            if low + self.size > top_low { Some(top_high) } else { top_high.checked_add(1) }
        } else if low >= (top_low + (1 << 32) + 1 - self.size) {
            // The window spans two subspaces and this number lies in the lower one, if there is
            // one.
            match top_high {
                0 => return Err(DropReason::ReplayTooOld),
                high => Some(high - 1),
            }
        } else {
            Some(top_high)
        };
        match high {
            Some(high) if high >> 32 == 0 => Ok(high << 32 | low),
            _ => Err(DropReason::SequenceInvalid),
        }
    }

    #[inline]
    fn judge(&self, top: u64, sequence: u64) -> Result<(), DropReason> {
        if sequence > top || !self.checked {
            return Ok(());
        }
        if top - sequence >= self.size {
            return Err(DropReason::ReplayTooOld);
        }
        let word = self.word(sequence / NUMBERS_PER_BLOCK).map_or(0, |word| word.load(Relaxed));
        let seen = self.is_of(word, sequence / NUMBERS_PER_BLOCK) && word as u32 & bit(sequence) != 0;
        if seen { Err(DropReason::Replayed) } else { Ok(()) }
    }

    #[inline]
    fn word(&self, block: u64) -> Option<&AtomicU64> {
        self.words.get(block as usize & (self.words.len() - 1))
    }

    /// The round of the ring to which the block belongs. Another round with the same 32 bits is
    /// further away than an SA's numbers go without touching the word. It would cost a number, not
    /// accept one twice.
    #[inline]
    fn round(&self, block: u64) -> u32 {
        (block >> self.ring_bits) as u32
    }

    #[inline]
    fn is_of(&self, word: u64, block: u64) -> bool {
        (word >> 32) as u32 == self.round(block)
    }

    #[inline]
    fn filled(&self, block: u64, bits: u32) -> u64 {
        u64::from(self.round(block)) << 32 | u64::from(bits)
    }

    /// The window now, with everything that was accepted before this call.
    pub fn snapshot(&self) -> WindowSnapshot {
        let words: Vec<u64> = self.words.iter().map(|word| word.load(Acquire)).collect();
        // Read after the words, so that no word is of a later round than this mark implies.
        let top = self.high_water_mark.load(Acquire);
        let floor = self.floor.load(Relaxed);
        let bits = |block: u64| {
            let word = words.get(block as usize & (words.len() - 1)).filter(|word| self.is_of(**word, block));
            u64::from(word.map_or(0, |word| *word as u32) | seen_up_to(floor, block))
        };
        let pairs = words.len() / 2;
        let both = |place: usize| {
            latest(top / (2 * NUMBERS_PER_BLOCK), place, pairs)
                .map_or(0, |pair| bits(2 * pair + 1) << 32 | bits(2 * pair))
        };
        WindowSnapshot { high_water_mark: top, words: (0..pairs).map(both).collect() }
    }

    /// Sets the state from a snapshot of a window of the same size.
    pub fn restore(&mut self, snapshot: &WindowSnapshot) -> Result<(), Error> {
        let (found, expected) = (snapshot.words.len(), self.words.len() / 2);
        if found != expected {
            return Err(Error::Snapshot { found, expected });
        }
        let top = snapshot.high_water_mark;
        for (at, word) in self.words.iter().enumerate() {
            let pair = snapshot.words.get(at / 2).copied().unwrap_or(u64::MAX);
            let bits = if at % 2 == 0 { pair as u32 } else { (pair >> 32) as u32 };
            let value = match latest(top / NUMBERS_PER_BLOCK, at, self.words.len()) {
                None => 0,
                // The snapshot may fall between the mark and the bit of its number. No bit beyond
                // the mark may be set.
                Some(block) if block == top / NUMBERS_PER_BLOCK => {
                    self.filled(block, (bits | bit(top)) & seen_up_to(top, block))
                }
                // The other half of the mark's pair: the numbers that it stood for are behind the
                // window.
                Some(block) if latest(top / (2 * NUMBERS_PER_BLOCK), at / 2, found) != Some(block / 2) => {
                    self.filled(block, u32::MAX)
                }
                Some(block) => self.filled(block, bits),
            };
            word.store(value, Relaxed);
        }
        self.high_water_mark.store(top, Relaxed);
        self.floor.store(0, Relaxed);
        Ok(())
    }
}

/// The last number up to `last` that has this place in a ring of `len`, a power of two.
fn latest(last: u64, place: usize, len: usize) -> Option<u64> {
    last.checked_sub(last.wrapping_sub(place as u64) & (len as u64 - 1))
}

#[inline]
fn bit(number: u64) -> u32 {
    1 << (number % NUMBERS_PER_BLOCK)
}

/// The bits of a block for the numbers up to this one. Without a floor there is none, not even 0.
fn seen_up_to(number: u64, block: u64) -> u32 {
    match block.cmp(&(number / NUMBERS_PER_BLOCK)) {
        _ if number == 0 => 0,
        Ordering::Less => u32::MAX,
        Ordering::Equal => u32::MAX >> (NUMBERS_PER_BLOCK - 1 - number % NUMBERS_PER_BLOCK),
        Ordering::Greater => 0,
    }
}
