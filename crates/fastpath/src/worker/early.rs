//! Packets that wait for their SA.
//!
//! Who answers an exchange has the keys of the new SA first, and some send through it at once: strongSwan does for every Child
//! SA but a rekeyed one. What overtakes the answer, or our work on it, would be lost, and with it the promise that an SA takes
//! the place of another without a lost packet (RFC 7296 §2.8).
//!
//! Anybody may send packets with an unknown SPI. They cost their way into a short queue, which forgets the oldest.

use super::deliver::Source;
use crate::frame::Frame;
use std::collections::VecDeque;
use testudo_ipsec::spi::Spi;

/// Packets that wait at a time.
pub(super) const PACKETS: usize = 128;
/// How long they wait, in milliseconds: as long as an answer may take on a busy machine.
pub(super) const PATIENCE: u64 = 1000;

/// A packet that waits.
#[derive(Debug)]
struct Waiter {
    frame: Frame,
    spi: Spi,
    source: Source,
    since: u64,
    /// Its SA has come.
    ready: bool,
}

/// All packets that wait, oldest first.
#[derive(Debug)]
pub(super) struct EarlyQueue(VecDeque<Waiter>);

impl EarlyQueue {
    pub(super) fn new() -> Self {
        Self(VecDeque::with_capacity(PACKETS))
    }

    /// Packets that wait.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Lets a packet wait. Gives back the oldest, where there are too many.
    pub(super) fn hold(&mut self, frame: Frame, spi: Spi, source: Source, now: u64) -> Option<Frame> {
        let oldest = if self.0.len() == PACKETS { self.0.pop_front() } else { None };
        self.0.push_back(Waiter { frame, spi, source, since: now, ready: false });
        oldest.map(|waiter| waiter.frame)
    }

    /// The SA with that SPI comes: its packets need not wait any longer.
    pub(super) fn expect(&mut self, spi: Spi) {
        self.0.iter_mut().filter(|waiter| waiter.spi == spi).for_each(|waiter| waiter.ready = true);
    }

    /// Takes the oldest packet whose SA has come.
    pub(super) fn release(&mut self) -> Option<(Frame, Source)> {
        let at = self.0.iter().position(|waiter| waiter.ready)?;
        self.0.remove(at).map(|waiter| (waiter.frame, waiter.source))
    }

    /// Takes a packet that has waited for too long.
    pub(super) fn expire(&mut self, now: u64) -> Option<Frame> {
        self.0.pop_front_if(|waiter| now.saturating_sub(waiter.since) >= PATIENCE).map(|waiter| waiter.frame)
    }

    /// Takes any packet.
    pub(super) fn clear(&mut self) -> Option<Frame> {
        self.0.pop_front().map(|waiter| waiter.frame)
    }
}
