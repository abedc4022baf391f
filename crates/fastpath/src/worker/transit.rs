//! Packets of shards that are about to come from another node: they wait until the shard has come.
//!
//! Both nodes have each of them. The other one goes on with them for some milliseconds, so most of those that wait are its own to work on;
//! the latest are not.

use super::classify::Direction;
use super::origin::{Kept, Source};
use crate::frame::Frame;
use std::collections::VecDeque;

/// Packets that wait at a time.
const PACKETS: usize = 8192;
/// Of so many frames one at most may wait.
const PART: usize = 4;
/// How long they wait, in milliseconds: a shard that has not come by then has stayed where it was.
pub(super) const PATIENCE: u64 = 500;

#[derive(Debug)]
struct Waiter {
    frame: Frame,
    source: Source,
    direction: Direction,
    since: u64,
}

/// All of them, oldest first.
#[derive(Debug)]
pub(super) struct TransitQueue {
    waiting: VecDeque<Waiter>,
    most: usize,
    jumbo: usize,
    most_jumbo: usize,
}

impl TransitQueue {
    /// Of so many frames, and so many jumbo frames.
    pub(super) fn new(frames: usize, jumbo: usize) -> Self {
        let most = (frames / PART).clamp(1, PACKETS);
        Self { waiting: VecDeque::with_capacity(most), most, jumbo: 0, most_jumbo: (jumbo / PART).max(1) }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Lets a packet wait. Gives back the oldest that must make room: the shard's former node has worked on it, most likely.
    pub(super) fn hold(
        &mut self,
        frame: Frame,
        (source, direction): (Source, Direction),
        now: u64,
    ) -> Option<Frame> {
        let is_jumbo = frame.is_jumbo();
        let at = match is_jumbo && self.jumbo >= self.most_jumbo {
            true => self.waiting.iter().position(|waiter| waiter.frame.is_jumbo()),
            false => (self.waiting.len() >= self.most).then_some(0),
        };
        let oldest = at.and_then(|at| self.waiting.remove(at)).map(|waiter| waiter.frame);
        self.jumbo -= usize::from(oldest.as_ref().is_some_and(Frame::is_jumbo));
        self.jumbo += usize::from(is_jumbo);
        self.waiting.push_back(Waiter { frame, source, direction, since: now });
        oldest
    }

    /// Takes the oldest.
    pub(super) fn take(&mut self) -> Option<Kept> {
        let Waiter { frame, source, direction, .. } = self.waiting.pop_front()?;
        self.jumbo -= usize::from(frame.is_jumbo());
        Some((frame, source, direction))
    }

    /// Takes one that has waited for too long.
    pub(super) fn expire(&mut self, now: u64) -> Option<Frame> {
        let is_late = self.waiting.front().is_some_and(|waiter| now.saturating_sub(waiter.since) >= PATIENCE);
        if is_late { self.take().map(|(frame, ..)| frame) } else { None }
    }
}
