//! Samples of packets that an attacker may have sent, for control.
//!
//! A counter says how many there were, and not whose. So the first few packets of each suspicious
//! reason leave their first octets here, until control takes them. Only packets that are refused
//! come here, and a packet that finds no free slot costs its count and a look at the slots.

use super::counters::Counter;
use crate::drops::DropReason;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use testudo_base::spi::Spi;

/// Octets of a packet that are kept: the outer header, with ESP or AH, or with the ports.
pub const HEAD_OCTETS: usize = 64;
const WORDS: usize = HEAD_OCTETS / 8;
/// Samples of one reason that wait for control.
const SLOTS: usize = 4;
/// The reasons.
const REASONS: [DropReason; 6] = [
    DropReason::ClearButProtected,
    DropReason::UnknownSpi,
    DropReason::SequenceInvalid,
    DropReason::ReplayTooOld,
    DropReason::Replayed,
    DropReason::AuthFailed,
];

/// The beginning of a packet that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The SPI that it came with; 0 if it came in clear.
    pub spi: Spi,
    /// Its length when it was refused.
    pub len: u16,
    head: [u8; HEAD_OCTETS],
}

impl Sample {
    /// A sample of a packet.
    pub fn of(spi: Spi, packet: &[u8]) -> Self {
        let mut head = [0; HEAD_OCTETS];
        for (to, from) in head.iter_mut().zip(packet) {
            *to = *from;
        }
        Self { spi, len: u16::try_from(packet.len()).unwrap_or(u16::MAX), head }
    }

    /// Its first octets: from the outer IP header on; of a packet that was decrypted, from the inner
    /// one on.
    pub fn head(&self) -> &[u8] {
        self.head.get(..usize::from(self.len).min(HEAD_OCTETS)).unwrap_or_default()
    }
}

/// Samples by reason. One worker writes them, and control reads them.
#[derive(Debug)]
pub(super) struct Samples([SampleSlots; REASONS.len()]);

/// Samples of one reason. One worker writes them, and control reads them.
#[derive(Debug, Default)]
pub struct SampleSlots {
    seen: Counter,
    slots: [Slot; SLOTS],
}

/// Belongs to the worker while it is empty, and to control while it is full.
#[derive(Debug, Default)]
struct Slot {
    is_full: AtomicBool,
    /// SPI, and above it the length.
    about: AtomicU64,
    head: [AtomicU64; WORDS],
}

impl Samples {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| SampleSlots::default()))
    }

    /// Counts a packet that is refused or, without an SA, put off; keeps its head if there is room.
    #[cold]
    pub(super) fn offer(&self, reason: DropReason, spi: Spi, packet: &[u8]) {
        if let Some(of_reason) = self.of(reason) {
            of_reason.offer(spi, packet);
        }
    }

    fn of(&self, reason: DropReason) -> Option<&SampleSlots> {
        REASONS.iter().position(|known| *known == reason).and_then(|at| self.0.get(at))
    }

    /// Packets of each reason so far.
    pub(super) fn seen(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        REASONS.into_iter().zip(self.0.iter().map(|of_reason| of_reason.seen.get()))
    }

    /// Takes the samples of a reason, oldest first as far as they were taken in time.
    pub(super) fn take(&self, reason: DropReason) -> impl Iterator<Item = Sample> + '_ {
        self.of(reason).into_iter().flat_map(SampleSlots::take)
    }
}

impl SampleSlots {
    /// Counts a packet, and keeps its head if there is room.
    #[cold]
    pub fn offer(&self, spi: Spi, packet: &[u8]) {
        self.seen.add(1);
        if let Some(slot) = self.slots.iter().find(|slot| !slot.is_full.load(Acquire)) {
            slot.fill(&Sample::of(spi, packet));
        }
    }

    /// Takes the samples, oldest first as far as they were taken in time.
    pub fn take(&self) -> impl Iterator<Item = Sample> + '_ {
        self.slots.iter().filter_map(Slot::take)
    }
}

impl Slot {
    fn fill(&self, sample: &Sample) {
        self.about.store(u64::from(sample.spi.0) | u64::from(sample.len) << 32, Relaxed);
        let (words, _) = sample.head.as_chunks::<8>();
        for (word, octets) in self.head.iter().zip(words) {
            word.store(u64::from_ne_bytes(*octets), Relaxed);
        }
        self.is_full.store(true, Release);
    }

    fn take(&self) -> Option<Sample> {
        if !self.is_full.load(Acquire) {
            return None;
        }
        let about = self.about.load(Relaxed);
        let mut head = [0; HEAD_OCTETS];
        let (words, _) = head.as_chunks_mut::<8>();
        for (octets, word) in words.iter_mut().zip(&self.head) {
            *octets = word.load(Relaxed).to_ne_bytes();
        }
        self.is_full.store(false, Release);
        Some(Sample { spi: Spi(about as u32), len: (about >> 32) as u16, head })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_packets_leave_their_heads_until_they_are_taken() {
        let samples = Samples::new();
        for n in 0..10 {
            samples.offer(DropReason::Replayed, Spi(1000 + n), &[n as u8; 100]);
        }
        samples.offer(DropReason::AuthFailed, Spi(7), &[9; 20]);
        let taken: Vec<Sample> = samples.take(DropReason::Replayed).collect();
        assert_eq!(taken.len(), SLOTS);
        assert_eq!((taken[3].spi, taken[3].len, taken[3].head()), (Spi(1003), 100, &[3; 64][..]));
        assert_eq!(samples.take(DropReason::Replayed).count(), 0);
        samples.offer(DropReason::Replayed, Spi(2000), &[]);
        let taken: Vec<Sample> = samples.take(DropReason::Replayed).collect();
        assert_eq!((taken.len(), taken[0].spi, taken[0].head()), (1, Spi(2000), &[][..]));
        assert_eq!(samples.take(DropReason::AuthFailed).next().unwrap().head(), [9; 20]);
        let seen: Vec<u64> = samples.seen().map(|(_, seen)| seen).collect();
        assert_eq!(seen, [0, 0, 0, 0, 11, 1]);
    }

    #[test]
    fn ordinary_reasons_leave_nothing() {
        let samples = Samples::new();
        samples.offer(DropReason::NoRoom, Spi(1000), &[1]);
        assert_eq!(samples.seen().map(|(_, seen)| seen).sum::<u64>(), 0);
    }

    /// A sample is whole, whichever thread is how fast.
    #[test]
    fn a_sample_is_never_of_two_packets() {
        let samples = Samples::new();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for n in 0..50_000_u32 {
                    samples.offer(DropReason::Replayed, Spi(n & 0xff), &[n as u8; HEAD_OCTETS]);
                }
            });
            while !writer.is_finished() {
                for sample in samples.take(DropReason::Replayed) {
                    assert_eq!(sample.head(), [sample.spi.0 as u8; HEAD_OCTETS]);
                }
            }
        });
    }
}
