//! Packets that wait for their SA.
//!
//! The responder of an exchange has the keys of the new SA first, and some responders send through
//! it at once: strongSwan does so for every Child SA but a rekeyed one. Packets that overtake the
//! response, or our work on it, would be lost, and an SA would not be replaced without loss (RFC
//! 7296 §2.8).
//!
//! Anybody may send packets with an unknown SPI. Such packets only reach a short queue, which drops
//! the oldest.

use super::origin::Source;
use crate::frame::Frame;
use std::collections::VecDeque;
use testudo_base::spi::Spi;

/// Bound on the packets that wait at a time.
pub(super) const MAX_EARLY_PACKETS: usize = 128;
/// How long packets wait, in milliseconds: as long as an answer may take on a busy machine.
pub(super) const EARLY_TIMEOUT_MS: u64 = 1000;

/// A waiting packet.
#[derive(Debug)]
struct SaWaiter {
    frame: Frame,
    spi: Spi,
    source: Source,
    since: u64,
    /// True if its SA has been installed.
    ready: bool,
}

/// All waiting packets, oldest first.
#[derive(Debug)]
pub(super) struct EarlyQueue {
    waiting: VecDeque<SaWaiter>,
    /// Waiting packets in jumbo frames, and their bound.
    jumbo: usize,
    max_jumbo: usize,
}

impl EarlyQueue {
    /// A queue with at most `max_jumbo` packets in jumbo frames: there may be few, and other
    /// packets need them.
    pub(super) fn new(max_jumbo: usize) -> Self {
        Self { waiting: VecDeque::with_capacity(MAX_EARLY_PACKETS), jumbo: 0, max_jumbo }
    }

    /// The number of waiting packets.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Keeps a packet. Returns the oldest one if there are too many.
    pub(super) fn hold(&mut self, frame: Frame, spi: Spi, source: Source, now: u64) -> Option<Frame> {
        let is_jumbo = frame.is_jumbo();
        let oldest = if is_jumbo && self.jumbo == self.max_jumbo {
            let Some(at) = self.waiting.iter().position(|waiter| waiter.frame.is_jumbo()) else {
                return Some(frame);
            };
            self.take(at)
        } else if self.waiting.len() == MAX_EARLY_PACKETS {
            self.take(0)
        } else {
            None
        };
        self.jumbo += usize::from(is_jumbo);
        self.waiting.push_back(SaWaiter { frame, spi, source, since: now, ready: false });
        oldest.map(|waiter| waiter.frame)
    }

    /// The SA with this SPI has been installed: its packets need not wait any longer.
    pub(super) fn expect(&mut self, spi: Spi) {
        self.waiting.iter_mut().filter(|waiter| waiter.spi == spi).for_each(|waiter| waiter.ready = true);
    }

    /// Takes the oldest packet whose SA has been installed.
    pub(super) fn release(&mut self) -> Option<(Frame, Source)> {
        let at = self.waiting.iter().position(|waiter| waiter.ready)?;
        self.take(at).map(|waiter| (waiter.frame, waiter.source))
    }

    /// Takes a packet that has waited for too long.
    pub(super) fn expire(&mut self, now: u64) -> Option<Frame> {
        let late = |waiter: &SaWaiter| now.saturating_sub(waiter.since) >= EARLY_TIMEOUT_MS;
        if self.waiting.front().is_some_and(late) { self.clear() } else { None }
    }

    /// Takes any packet.
    pub(super) fn clear(&mut self) -> Option<Frame> {
        self.take(0).map(|waiter| waiter.frame)
    }

    fn take(&mut self, at: usize) -> Option<SaWaiter> {
        let waiter = self.waiting.remove(at)?;
        self.jumbo -= usize::from(waiter.frame.is_jumbo());
        Some(waiter)
    }
}
