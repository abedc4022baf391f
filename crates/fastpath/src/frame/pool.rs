//! The free frames of a worker.

use super::{ChunkSize, Frame, FrameMemory, JUMBO_MTU};
use crate::error::Result;
use std::sync::Arc;

/// Jumbo frames of a pool that needs them only for reassembled packets: half a MiB.
const JUMBO_FRAMES_FOR_REASSEMBLY: usize = 32;

/// Owns a worker's region of memory and the unused frames. Last in, first out, so that the chunk
/// taken next is the one most likely still in the cache. Ports receive into frames of one chunk;
/// jumbo frames, if there are any, are for packets that need them.
///
/// If the pool is dropped while frames are elsewhere, the region stays mapped for good, because
/// those frames still point into it: a leak, never a dangling pointer.
#[derive(Debug)]
pub struct FramePool {
    memory: Arc<FrameMemory>,
    free: Vec<Frame>,
    jumbo: Vec<Frame>,
}

impl FramePool {
    /// Maps a region of `frames` chunks, all of them free.
    pub fn new(frames: usize, size: ChunkSize) -> Result<Self> {
        Self::with_jumbo(frames, 0, size)
    }

    /// A pool for the packets of interfaces with MTUs up to `mtu`. It has `jumbo` jumbo frames if a
    /// chunk is too small for that MTU, else a few for packets that come in fragments.
    pub fn for_mtu(mtu: u32, frames: usize, jumbo: usize) -> Result<Self> {
        match ChunkSize::for_mtu(mtu) {
            Some(size) => Self::with_jumbo(frames, JUMBO_FRAMES_FOR_REASSEMBLY, size),
            None => Self::with_jumbo(frames, jumbo, ChunkSize::K4),
        }
    }

    /// Maps a region of `frames` chunks and `jumbo` frames of several chunks, all of them free.
    pub fn with_jumbo(frames: usize, jumbo: usize, size: ChunkSize) -> Result<Self> {
        let memory = Arc::new(FrameMemory::new(frames, jumbo, size)?);
        // SAFETY: every index is below `chunks`, the first of its run, and used once; `drop` keeps
        // the region while a frame is away.
        let frame = |index| unsafe { memory.frame(index) };
        let free = memory.singles().rev().map(frame).collect();
        let jumbo = memory.jumbo_starts().map(frame).collect();
        Ok(Self { memory, free, jumbo })
    }

    /// The region that the frames lie in.
    pub fn memory(&self) -> &Arc<FrameMemory> {
        &self.memory
    }

    /// Free frames of both kinds.
    #[inline]
    pub fn available(&self) -> usize {
        self.free.len() + self.jumbo.len()
    }

    /// All frames of both kinds, free or in use.
    pub fn total(&self) -> usize {
        self.memory.singles().len() + self.jumbo_total()
    }

    /// All jumbo frames, free or in use.
    pub fn jumbo_total(&self) -> usize {
        self.memory.jumbo_starts().count()
    }

    /// A free frame, empty, whose packet will start behind the usual headroom.
    #[inline]
    pub fn take(&mut self) -> Option<Frame> {
        self.free.pop()
    }

    /// A free jumbo frame, empty, whose packet will start behind the usual headroom.
    #[inline]
    pub fn take_jumbo(&mut self) -> Option<Frame> {
        self.jumbo.pop()
    }

    /// The smallest free frame with room for an IP packet of `packet` octets and for the headers
    /// and trailers that it may get. `None` if there is none.
    #[inline]
    pub fn take_for(&mut self, packet: usize) -> Option<Frame> {
        if packet <= self.memory.chunk_size().largest_mtu() as usize {
            self.take()
        } else if packet <= JUMBO_MTU as usize {
            self.take_jumbo()
        } else {
            None
        }
    }

    /// Takes a frame back.
    ///
    /// # Panics
    /// If the frame is another pool's.
    #[inline]
    pub fn give(&mut self, mut frame: Frame) {
        assert!(self.memory.index_of(&frame).is_some(), "frame given back to another pool than its own");
        frame.reset();
        // Never reallocates: no frame exists twice, so the lists cannot outgrow their first
        // lengths.
        if frame.capacity() == self.memory.chunk_size().octets() {
            self.free.push(frame);
        } else {
            self.jumbo.push(frame);
        }
    }
}

impl Drop for FramePool {
    fn drop(&mut self) {
        if self.available() != self.total() {
            std::mem::forget(Arc::clone(&self.memory));
        }
    }
}
