//! A frame memory as the UMEM of a socket: which chunks the kernel has, and the way there and back.
//!
//! A frame becomes an address when it is lent and an address becomes a frame again only if that chunk is on loan.
//! So neither a confused driver nor a doubled completion can make two frames of one chunk.

use crate::frame::{Frame, FrameMemory, FramePool};
use std::sync::Arc;

/// A frame memory and the chunks of it that one socket has on loan.
#[derive(Debug)]
pub(crate) struct Umem {
    memory: Arc<FrameMemory>,
    lent: Vec<u64>,
    count: usize,
}

impl Umem {
    /// Nothing is lent yet.
    pub(crate) fn new(memory: Arc<FrameMemory>) -> Self {
        let words = memory.chunks().div_ceil(64);
        Self { memory, lent: vec![0; words], count: 0 }
    }

    /// The memory behind it.
    pub(crate) fn memory(&self) -> &FrameMemory {
        &self.memory
    }

    /// Chunks on loan.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Turns a frame into the address of its chunk.
    ///
    /// # Panics
    /// If the frame is of another memory.
    #[inline]
    pub(crate) fn lend(&mut self, frame: Frame) -> u64 {
        let index = self.memory.index_of(&frame);
        let Some((word, bit)) = index.map(place) else { panic!("frame lent to a UMEM of other memory") };
        debug_assert_eq!(self.lent[word] & bit, 0, "chunk lent twice");
        self.lent[word] |= bit;
        self.count += 1;
        (u64::from(frame_index(word, bit))) << self.memory.chunk_size().shift()
    }

    /// Turns an address inside a lent chunk into its frame. `None` if the chunk is not on loan.
    #[inline]
    pub(crate) fn redeem(&mut self, address: u64) -> Option<Frame> {
        let index = self.memory.index_at(address)?;
        let (word, bit) = place(index);
        if self.lent[word] & bit == 0 {
            return None;
        }
        self.lent[word] &= !bit;
        self.count -= 1;
        // SAFETY: the index is in range, and the cleared bit was the only thing that stood for the chunk: the frame
        // was given up when it was set. Pools keep the region mapped while frames are away.
        Some(unsafe { self.memory.frame(index) })
    }

    /// Brings every chunk on loan back to the pool. Only for when the kernel cannot touch them any more.
    pub(crate) fn redeem_all(&mut self, pool: &mut FramePool) {
        for word in 0..self.lent.len() {
            while self.lent[word] != 0 {
                let index = frame_index(word, self.lent[word] & self.lent[word].wrapping_neg());
                let address = u64::from(index) << self.memory.chunk_size().shift();
                match self.redeem(address) {
                    Some(frame) => pool.give(frame),
                    None => unreachable!("the bit says that the chunk is on loan"),
                }
            }
        }
    }
}

#[inline]
fn place(index: u32) -> (usize, u64) {
    ((index / 64) as usize, 1 << (index % 64))
}

#[inline]
fn frame_index(word: usize, bit: u64) -> u32 {
    word as u32 * 64 + bit.trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::ChunkSize;

    #[test]
    fn a_chunk_comes_back_once() {
        let mut pool = FramePool::new(200, ChunkSize::K2).unwrap();
        let mut umem = Umem::new(Arc::clone(pool.memory()));
        let frames: Vec<Frame> = std::iter::from_fn(|| pool.take()).collect();
        let addresses: Vec<u64> = frames.into_iter().map(|frame| umem.lend(frame)).collect();
        assert_eq!(umem.count(), 200);
        for &address in &addresses {
            let frame = umem.redeem(address + 384).expect("chunk on loan");
            assert!(umem.redeem(address).is_none(), "a second completion must not make a second frame");
            pool.give(frame);
        }
        assert_eq!((umem.count(), pool.available()), (0, 200));
    }

    #[test]
    fn addresses_that_were_never_lent_give_nothing() {
        let mut pool = FramePool::new(3, ChunkSize::K4).unwrap();
        let mut umem = Umem::new(Arc::clone(pool.memory()));
        for address in [0, 4096, 3 * 4096, u64::MAX] {
            assert!(umem.redeem(address).is_none());
        }
        let address = umem.lend(pool.take().unwrap());
        pool.give(umem.redeem(address).unwrap());
    }

    #[test]
    fn closing_brings_everything_home() {
        let mut pool = FramePool::new(130, ChunkSize::K2).unwrap();
        let mut umem = Umem::new(Arc::clone(pool.memory()));
        for _ in 0..130 {
            umem.lend(pool.take().unwrap());
        }
        umem.redeem_all(&mut pool);
        assert_eq!((umem.count(), pool.available()), (0, 130));
    }

    #[test]
    #[should_panic(expected = "other memory")]
    fn a_foreign_frame_is_refused() {
        let mut pool = FramePool::new(1, ChunkSize::K2).unwrap();
        let other = FramePool::new(1, ChunkSize::K2).unwrap();
        Umem::new(Arc::clone(other.memory())).lend(pool.take().unwrap());
    }
}
