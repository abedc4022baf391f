//! A port made of memory.

use super::{Flushed, FrameBurst, Port, PortInfo, PortStatistics};
use crate::frame::{Frame, FramePool};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

/// Two queues of frames: those that the worker will receive, and those that it has sent. It costs a
/// few moves of 16 octets a packet, so that a measurement over it measures the worker.
#[derive(Debug)]
pub struct FakePort {
    info: PortInfo,
    arriving: VecDeque<Frame>,
    sent: VecDeque<Frame>,
    depth: usize,
    down: bool,
}

impl FakePort {
    /// A port whose queues hold `depth` frames each. Sent frames stay until the caller fetches
    /// them.
    pub fn new(info: PortInfo, depth: usize) -> Self {
        let queue = || VecDeque::with_capacity(depth);
        Self { info, arriving: queue(), sent: queue(), depth, down: false }
    }

    /// Lets a frame arrive. Returns the frame if the queue is full.
    pub fn deliver(&mut self, frame: Frame) -> Result<(), Frame> {
        if self.arriving.len() == self.depth {
            return Err(frame);
        }
        self.arriving.push_back(frame);
        Ok(())
    }

    /// The oldest frame that the worker has sent and that was not fetched.
    pub fn sent(&mut self) -> Option<Frame> {
        self.sent.pop_front()
    }

    /// Takes the port down or up. This affects sending only.
    pub fn set_down(&mut self, down: bool) {
        self.down = down;
    }

    /// Number of frames that the worker has not received yet.
    pub fn waiting(&self) -> usize {
        self.arriving.len()
    }
}

impl Port for FakePort {
    fn info(&self) -> &PortInfo {
        &self.info
    }

    fn rx(&mut self, burst: &mut FrameBurst, _pool: &mut FramePool) {
        let count = burst.remaining_capacity().min(self.arriving.len());
        burst.extend(self.arriving.drain(..count));
    }

    fn tx(&mut self, burst: &mut FrameBurst) {
        let count = burst.len().min(self.depth - self.sent.len());
        self.sent.extend(burst.drain(..count));
    }

    fn flush(&mut self) -> Flushed {
        if self.down { Flushed::Down } else { Flushed::All }
    }

    fn refill(&mut self, _pool: &mut FramePool) {}

    fn reclaim(&mut self, _pool: &mut FramePool) {}

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn statistics(&self) -> PortStatistics {
        PortStatistics::default()
    }

    fn held(&self) -> usize {
        self.arriving.len() + self.sent.len()
    }

    fn close(mut self, pool: &mut FramePool) {
        self.sent.drain(..).for_each(|frame| pool.give(frame));
        self.arriving.drain(..).for_each(|frame| pool.give(frame));
    }
}
