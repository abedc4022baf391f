//! The free frames of a worker.

use super::{ChunkSize, Frame, FrameMemory};
use crate::error::Result;
use std::sync::Arc;

/// Owns a worker's region of memory and the frames that nobody uses at the moment. Last in, first out, so that the
/// chunk taken next is the one most likely still in the cache.
///
/// When the pool is dropped while frames are elsewhere, the region stays mapped for good, because those frames still
/// point into it: a leak, never a dangling pointer.
#[derive(Debug)]
pub struct FramePool {
    memory: Arc<FrameMemory>,
    free: Vec<Frame>,
}

impl FramePool {
    /// Maps a region of `frames` chunks, all of them free.
    pub fn new(frames: usize, size: ChunkSize) -> Result<Self> {
        let memory = Arc::new(FrameMemory::new(frames, size)?);
        // SAFETY: every index is below `chunks` and is used once; `drop` keeps the region while a frame is away.
        let free = (0..memory.chunks() as u32).rev().map(|index| unsafe { memory.frame(index) }).collect();
        Ok(Self { memory, free })
    }

    /// The region that the frames lie in.
    pub fn memory(&self) -> &Arc<FrameMemory> {
        &self.memory
    }

    /// Frames that the pool has at the moment.
    #[inline]
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// Frames that there are, here or elsewhere.
    pub fn total(&self) -> usize {
        self.memory.chunks()
    }

    /// A free frame, empty, with its packet to start behind the usual headroom.
    #[inline]
    pub fn take(&mut self) -> Option<Frame> {
        self.free.pop()
    }

    /// Takes a frame back.
    ///
    /// # Panics
    /// If the frame is another pool's.
    #[inline]
    pub fn give(&mut self, mut frame: Frame) {
        assert!(self.memory.index_of(&frame).is_some(), "frame given back to another pool than its own");
        frame.reset();
        // Never reallocates: no frame exists twice, so the list cannot outgrow its first length.
        self.free.push(frame);
    }
}

impl Drop for FramePool {
    fn drop(&mut self) {
        if self.available() != self.total() {
            std::mem::forget(Arc::clone(&self.memory));
        }
    }
}
