//! The anti-replay window (RFC 4303 §3.4.3) and the inference of extended sequence numbers (appendix A2).
//!
//! The bits form a ring of words, one word longer than the window, so that sliding clears whole words and still no number
//! inside the window is forgotten (the idea of RFC 6479, but exact). One worker writes; anybody may read.

use crate::drops::DropReason;
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};
use testudo_crypto::prefetch;
use testudo_planted::{Plant, planted};

/// The largest window, in packets.
pub const MAX_WINDOW: u32 = 8192;

/// How far behind an extended number may lie where no window is kept: as far as appendix A2 allows.
const UNCHECKED_REACH: u64 = 1 << 31;
/// How often a snapshot is tried while the window moves.
const SNAPSHOT_TRIES: usize = 4;

/// Which sequence numbers have been accepted.
#[derive(Debug)]
pub struct ReplayWindow {
    /// The highest number accepted.
    top: AtomicU64,
    /// Numbers that the window spans; for an unchecked SA, how far the inference of high bits reaches back.
    size: u64,
    esn: bool,
    checked: bool,
    /// A power of two.
    words: Box<[AtomicU64]>,
}

/// The window as plain data. Restoring it never makes a number acceptable again that was accepted before the snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSnapshot {
    /// The highest number accepted.
    pub top: u64,
    /// The ring of bits.
    pub words: Vec<u64>,
}

impl ReplayWindow {
    /// A window of `size` packets, rounded up to a multiple of 64; 0 accepts every number, repeated ones too.
    pub fn new(size: u32, esn: bool) -> Result<Self, Error> {
        if size > MAX_WINDOW {
            return Err(Error::ReplayWindow { found: size });
        }
        let checked = size != 0;
        let size = u64::from(size.next_multiple_of(64));
        let words = if checked { (size as usize / 64 + 1).next_power_of_two() } else { 1 };
        Ok(Self {
            top: AtomicU64::new(0),
            size: if checked { size } else { UNCHECKED_REACH },
            esn,
            checked,
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    /// Asks for the bits around the edge.
    #[inline]
    pub(crate) fn prefetch(&self) {
        if let Some(word) = self.word(self.top.load(Relaxed) / 64) {
            prefetch(word, size_of_val(word));
        }
    }

    /// The highest number accepted so far.
    pub fn top(&self) -> u64 {
        self.top.load(Relaxed)
    }

    /// The whole sequence number of a packet that carries `low`, if it may be accepted. To be asked before decryption;
    /// nothing changes, because the packet may be forged.
    #[inline]
    pub fn check(&self, low: u32) -> Result<u64, DropReason> {
        let top = self.top.load(Relaxed);
        let sequence = if self.esn { self.infer(top, low)? } else { u64::from(low) };
        // The first packet of an SA has number 1 (RFC 4303 §3.3.3).
        if sequence == 0 {
            return Err(DropReason::SequenceInvalid);
        }
        self.judge(top, sequence)?;
        Ok(sequence)
    }

    /// Why a packet whose number could be accepted is not authentic. With ESN a packet that comes too late is taken for
    /// one that is almost 2^32 numbers ahead (appendix A2), and fails; a real leap that long is far less likely.
    #[cold]
    pub fn blame(&self, sequence: u64) -> DropReason {
        let ahead = sequence.saturating_sub(self.top.load(Relaxed));
        if self.esn && ahead > 1 << 31 { DropReason::ReplayTooOld } else { DropReason::AuthFailed }
    }

    /// Marks the number of an authentic packet as seen. Asks again first: its double may have come in the same burst.
    #[inline]
    pub fn accept(&self, sequence: u64) -> Result<(), DropReason> {
        let top = self.top.load(Relaxed);
        self.judge(top, sequence)?;
        if sequence > top {
            self.slide(top, sequence);
        }
        if self.checked
            && let Some(word) = self.word(sequence / 64)
        {
            word.store(word.load(Relaxed) | 1 << (sequence % 64), Relaxed);
        }
        Ok(())
    }

    /// All numbers up to `floor` count as seen from now on. Whoever takes an SA over does not know which of them another node has
    /// accepted. Like [`Self::accept`] for the SA's worker alone.
    pub fn raise(&self, floor: u64) {
        if planted(Plant::NoFloor) {
            return;
        }
        let floor = if self.esn { floor } else { floor.min(u32::MAX.into()) };
        let top = self.top.load(Relaxed);
        if self.checked && floor > top {
            // A reader that still sees the old edge finds more numbers seen than there were, never fewer.
            self.words.iter().for_each(|word| word.store(u64::MAX, Relaxed));
        }
        if floor > top {
            // As in `slide`: first the edge, then what is beyond it is cleared.
            self.top.store(floor, Release);
            fence(Release);
            if self.checked
                && let Some(word) = self.word(floor / 64)
            {
                word.store(upto(floor), Relaxed);
            }
        } else if self.checked {
            let (first, last) = (top.saturating_sub(self.size) / 64, floor / 64);
            for number in first..=last {
                if let Some(word) = self.word(number) {
                    let seen = if number == last { upto(floor) } else { u64::MAX };
                    word.store(word.load(Relaxed) | seen, Relaxed);
                }
            }
        }
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
            // The window spans two subspaces and this number lies in the lower one, if there is one.
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
        let word = self.word(sequence / 64).map_or(u64::MAX, |word| word.load(Relaxed));
        if word >> (sequence % 64) & 1 == 1 { Err(DropReason::Replayed) } else { Ok(()) }
    }

    #[inline]
    fn word(&self, number: u64) -> Option<&AtomicU64> {
        self.words.get(number as usize & (self.words.len() - 1))
    }

    /// Moves the right edge. The edge is published before the bits are cleared: see [`Self::snapshot`].
    #[inline]
    fn slide(&self, top: u64, sequence: u64) {
        // Who sees the new edge sees the bits of all earlier numbers.
        self.top.store(sequence, Release);
        let (from, to) = (top / 64, sequence / 64);
        if from == to {
            return;
        }
        fence(Release);
        let steps = (to - from).min(self.words.len() as u64);
        for step in 0..steps {
            if let Some(word) = self.word(to - step) {
                word.store(0, Relaxed);
            }
        }
    }

    /// The window now. If it moves too fast to be read, all numbers up to its edge count as seen.
    pub fn snapshot(&self) -> WindowSnapshot {
        for _ in 0..SNAPSHOT_TRIES {
            let top = self.top.load(Acquire);
            let words = self.words.iter().map(|word| word.load(Relaxed)).collect();
            // If a bit was cleared under us, we now see the edge that cleared it.
            fence(Acquire);
            if self.top.load(Relaxed) == top {
                return WindowSnapshot { top, words };
            }
        }
        WindowSnapshot { top: self.top.load(Relaxed), words: vec![u64::MAX; self.words.len()] }
    }

    /// Puts a snapshot of a window of the same size in place.
    pub fn restore(&mut self, snapshot: &WindowSnapshot) -> Result<(), Error> {
        let (found, expected) = (snapshot.words.len(), self.words.len());
        if found != expected {
            return Err(Error::Snapshot { found, expected });
        }
        for (word, value) in self.words.iter_mut().zip(&snapshot.words) {
            *word.get_mut() = *value;
        }
        *self.top.get_mut() = snapshot.top;
        // The snapshot may fall between the edge and the bit of its number. Beyond the edge nothing may be set.
        if let Some(word) = self.word(snapshot.top / 64) {
            let bit = 1 << (snapshot.top % 64);
            word.store((word.load(Relaxed) | bit) & upto(snapshot.top), Relaxed);
        }
        Ok(())
    }
}

/// The bits of a word up to that of the number.
fn upto(number: u64) -> u64 {
    u64::MAX >> (63 - number % 64)
}

/// Up to where numbers count as seen for a node that takes an inbound SA over: as far as its former owner has told (`edge`), and
/// as far as the highest number goes that this node itself has seen pass, of which it knows the low 32 bits. It has not verified
/// that packet: one that claims to be more than `reach` ahead counts as that far ahead, which is more than the former owner can
/// have accepted since it told, and all that a forged one can cost.
pub fn floor(edge: u64, seen: Option<u32>, reach: u64, esn: bool) -> u64 {
    let Some(low) = seen else { return edge };
    let whole = if esn {
        // Of the numbers with these low bits the one that is nearest to the edge.
        let ahead = low.wrapping_sub(edge as u32) as i32;
        edge.saturating_add_signed(ahead.into())
    } else {
        u64::from(low)
    };
    whole.clamp(edge, edge.saturating_add(reach))
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
