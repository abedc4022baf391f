//! A frame memory as the UMEM of a socket: which chunks the kernel has on loan.
//!
//! A frame becomes addresses when it is lent. An address becomes a frame again only if its chunk is
//! on loan. A jumbo frame is lent as the chunks in which its packet lies, and is a frame again when
//! all of these are back. So neither a faulty driver nor a duplicate completion can make two frames
//! of one chunk.
#![cfg_attr(
    not(test),
    expect(
        clippy::indexing_slicing,
        clippy::panic,
        reason = "each chunk has its bit, and a frame of other memory is a bug that must not go on"
    )
)]

use crate::frame::{Frame, FrameMemory, FramePool};
use std::sync::Arc;

/// A frame memory and the chunks of it that one socket has on loan.
#[derive(Debug)]
pub(crate) struct Umem {
    memory: Arc<FrameMemory>,
    lent: Vec<u64>,
    count: usize,
}

/// The meaning of an address that the kernel returned.
#[derive(Debug)]
pub(crate) enum Redeemed {
    /// A whole frame.
    Frame(Frame),
    /// A chunk of a jumbo frame whose other chunks are still on loan.
    Part,
    /// No chunk on loan.
    Stray,
}

/// A packet on loan, chunk by chunk.
#[derive(Debug)]
pub(crate) struct FrameDescriptors {
    address: u64,
    left: u32,
    chunk: u64,
}

/// The part of a packet in one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameDescriptor {
    pub(crate) address: u64,
    pub(crate) len: u32,
    /// True if it is not the last part.
    pub(crate) more: bool,
}

impl Iterator for FrameDescriptors {
    type Item = FrameDescriptor;

    #[inline]
    fn next(&mut self) -> Option<FrameDescriptor> {
        if self.left == 0 {
            return None;
        }
        let address = self.address;
        let room = (self.chunk - (address & (self.chunk - 1))) as u32;
        let len = room.min(self.left);
        self.address += u64::from(len);
        self.left -= len;
        Some(FrameDescriptor { address, len, more: self.left != 0 })
    }
}

impl Umem {
    /// A UMEM with nothing on loan.
    pub(crate) fn new(memory: Arc<FrameMemory>) -> Self {
        let words = memory.chunks().div_ceil(64);
        Self { memory, lent: vec![0; words], count: 0 }
    }

    /// Chunks on loan.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Number of chunks in which a packet lies.
    #[inline]
    pub(crate) fn chunks_of(&self, frame: &Frame) -> u32 {
        let shift = self.memory.chunk_size().shift();
        let start = u32::from(frame.start());
        let last = start + u32::from(frame.len()).max(1) - 1;
        (last >> shift) - (start >> shift) + 1
    }

    /// Lends a frame of one chunk to be filled. Returns the address of the chunk.
    ///
    /// # Panics
    /// If the frame is of another memory.
    #[inline]
    pub(crate) fn lend_empty(&mut self, frame: Frame) -> u64 {
        self.lend_chunks(&frame, 0, 1)
    }

    /// Lends the packet in a frame. Returns its part in each chunk. The packet must have at least
    /// one octet.
    ///
    /// # Panics
    /// If the frame is of another memory.
    #[inline]
    pub(crate) fn lend(&mut self, frame: Frame) -> FrameDescriptors {
        debug_assert!(!frame.is_empty(), "nothing would come back for a packet without octets");
        let first = u32::from(frame.start()) >> self.memory.chunk_size().shift();
        let address = self.lend_chunks(&frame, first, self.chunks_of(&frame));
        let chunk = self.memory.chunk_size().octets() as u64;
        FrameDescriptors { address: address + u64::from(frame.start()), left: u32::from(frame.len()), chunk }
    }

    /// Lends chunks of a frame. Returns the address of the first one.
    #[inline]
    fn lend_chunks(&mut self, frame: &Frame, first: u32, count: u32) -> u64 {
        let Some(index) = self.memory.index_of(frame) else { panic!("frame lent to a UMEM of other memory") };
        let (word, bits) = place(index + first, count);
        debug_assert_eq!(self.lent[word] & bits, 0, "chunk lent twice");
        self.lent[word] |= bits;
        self.count += count as usize;
        u64::from(index) << self.memory.chunk_size().shift()
    }

    /// Turns an address inside a lent chunk into its frame.
    #[inline]
    #[allow(unsafe_code, reason = "a chunk on loan becomes a frame again")]
    pub(crate) fn redeem(&mut self, address: u64) -> Redeemed {
        let Some(index) = self.memory.index_at(address) else { return Redeemed::Stray };
        let (word, bit) = place(index, 1);
        if self.lent[word] & bit == 0 {
            return Redeemed::Stray;
        }
        self.lent[word] &= !bit;
        self.count -= 1;
        let (first, count) = self.memory.run_of(index);
        if self.lent[word] & place(first, count).1 != 0 {
            return Redeemed::Part;
        }
        // SAFETY: the index is in range and the first of its run. Only the bits of the run stood
        // for its chunks, because the frame was given up when they were set, and all of them are
        // cleared by now. Pools keep the region mapped while frames are away.
        Redeemed::Frame(unsafe { self.memory.frame(first) })
    }

    /// The frame that the kernel has filled as the descriptor says. `None` if the descriptor names
    /// no chunk on loan, or leaves its chunk: half a packet, or one with a hole, must not pass for
    /// a whole one.
    #[inline]
    pub(crate) fn received(&mut self, descriptor: &libc::xdp_desc, pool: &mut FramePool) -> Option<Frame> {
        let Redeemed::Frame(mut frame) = self.redeem(descriptor.addr) else { return None };
        let start = descriptor.addr as usize & (self.memory.chunk_size().octets() - 1);
        if frame.set_extent(start, descriptor.len as usize) {
            return Some(frame);
        }
        pool.give(frame);
        None
    }

    /// Returns every chunk on loan to the pool. Only for when the kernel cannot touch them any
    /// more.
    pub(crate) fn redeem_all(&mut self, pool: &mut FramePool) {
        for word in 0..self.lent.len() {
            while self.lent[word] != 0 {
                let index = word as u64 * 64 + u64::from(self.lent[word].trailing_zeros());
                if let Redeemed::Frame(frame) = self.redeem(index << self.memory.chunk_size().shift()) {
                    pool.give(frame);
                }
            }
        }
    }
}

/// The word and the bits of adjacent chunks that lie in one word, as runs always do.
#[inline]
fn place(index: u32, count: u32) -> (usize, u64) {
    ((index / 64) as usize, ((1 << count) - 1) << (index % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{ChunkSize, JUMBO};

    fn redeemed(umem: &mut Umem, address: u64) -> Frame {
        match umem.redeem(address) {
            Redeemed::Frame(frame) => frame,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_chunk_comes_back_once() {
        let mut pool = FramePool::new(200, ChunkSize::K2).unwrap();
        let mut umem = Umem::new(Arc::clone(pool.memory()));
        let frames: Vec<Frame> = std::iter::from_fn(|| pool.take()).collect();
        let addresses: Vec<u64> = frames.into_iter().map(|frame| umem.lend_empty(frame)).collect();
        assert_eq!(umem.count(), 200);
        for &address in &addresses {
            let frame = redeemed(&mut umem, address + 384);
            let again = umem.redeem(address);
            assert!(matches!(again, Redeemed::Stray), "a second completion must not make a second frame");
            pool.give(frame);
        }
        assert_eq!((umem.count(), pool.available()), (0, 200));
    }

    #[test]
    fn addresses_that_were_never_lent_give_nothing() {
        let mut pool = FramePool::new(3, ChunkSize::K4).unwrap();
        let mut umem = Umem::new(Arc::clone(pool.memory()));
        for address in [0, 4096, 3 * 4096, u64::MAX] {
            assert!(matches!(umem.redeem(address), Redeemed::Stray));
        }
        let address = umem.lend_empty(pool.take().unwrap());
        pool.give(redeemed(&mut umem, address));
    }

    #[test]
    fn a_descriptor_that_leaves_its_chunk_gives_nothing_and_its_frame_comes_home() {
        let mut pool = FramePool::new(2, ChunkSize::K2).unwrap();
        let mut umem = Umem::new(Arc::clone(pool.memory()));
        for (start, len, fits) in
            [(384, 1664, true), (384, 1665, false), (2047, u32::MAX, false), (0, 0, true)]
        {
            let addr = umem.lend_empty(pool.take().unwrap()) + start;
            let received = umem.received(&libc::xdp_desc { addr, len, options: 0 }, &mut pool);
            assert_eq!(received.as_ref().map(|frame| frame.len().into()), fits.then_some(len));
            received.into_iter().for_each(|frame| pool.give(frame));
            assert_eq!((umem.count(), pool.available()), (0, 2));
        }
        assert!(umem.received(&libc::xdp_desc { addr: 384, len: 60, options: 0 }, &mut pool).is_none());
    }

    #[test]
    fn closing_brings_everything_home() {
        let mut pool = FramePool::with_jumbo(130, 5, ChunkSize::K2).unwrap();
        let mut umem = Umem::new(Arc::clone(pool.memory()));
        for _ in 0..130 {
            umem.lend_empty(pool.take().unwrap());
        }
        for len in [1, 3000, 9000, 15_000, 16_000] {
            let mut frame = pool.take_jumbo().unwrap();
            assert!(frame.fill(&vec![7; len]));
            umem.lend(frame);
        }
        umem.redeem_all(&mut pool);
        assert_eq!((umem.count(), pool.available()), (0, 135));
    }

    #[test]
    fn a_jumbo_frame_is_lent_chunk_by_chunk_and_comes_back_with_the_last() {
        for size in [ChunkSize::K2, ChunkSize::K4] {
            let chunk = size.octets();
            let mut pool = FramePool::with_jumbo(1, 20, size).unwrap();
            let mut umem = Umem::new(Arc::clone(pool.memory()));
            for (start, len) in [(0, JUMBO), (384, 9014), (chunk - 1, 2), (chunk, chunk), (5000, 1), (10, 20)]
            {
                let mut frame = pool.take_jumbo().unwrap();
                assert!(frame.set_extent(start, len));
                let pieces: Vec<FrameDescriptor> = umem.lend(frame).collect();
                let wanted = (start + len - 1) / chunk - start / chunk + 1;
                assert_eq!((pieces.len(), umem.count()), (wanted, wanted));
                assert_eq!(pieces.iter().map(|piece| piece.len as usize).sum::<usize>(), len);
                for (at, piece) in pieces.iter().enumerate() {
                    assert_eq!(piece.more, at + 1 < pieces.len());
                    let (first, last) = (piece.address, piece.address + u64::from(piece.len) - 1);
                    assert_eq!(first / chunk as u64, last / chunk as u64, "a descriptor leaves its chunk");
                    assert_eq!(at > 0, pieces.first().unwrap().address != first);
                }
                // In any order.
                for piece in &pieces[1..] {
                    assert!(matches!(umem.redeem(piece.address), Redeemed::Part));
                    assert!(matches!(umem.redeem(piece.address), Redeemed::Stray));
                }
                let frame = redeemed(&mut umem, pieces[0].address);
                assert_eq!((frame.capacity(), umem.count()), (JUMBO, 0));
                pool.give(frame);
            }
            assert_eq!(pool.available(), 21);
        }
    }

    #[test]
    #[should_panic(expected = "other memory")]
    fn a_foreign_frame_is_refused() {
        let mut pool = FramePool::new(1, ChunkSize::K2).unwrap();
        let other = FramePool::new(1, ChunkSize::K2).unwrap();
        Umem::new(Arc::clone(other.memory())).lend_empty(pool.take().unwrap());
    }
}
