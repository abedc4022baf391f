//! The region of memory behind a worker's frames.

use super::{Frame, HEADROOM};
use crate::error::{Error, Result};
use crate::sys::mmap::{HUGE_PAGE, Mapping};
use std::ptr::NonNull;

/// Size of a chunk, as AF_XDP accepts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkSize {
    /// 2048 octets, for an MTU of up to 1600.
    K2,
    /// 4096 octets.
    K4,
}

impl ChunkSize {
    /// The smallest chunk for packets of an interface with this MTU. `None` if none is large
    /// enough: they need jumbo frames.
    pub fn for_mtu(mtu: u32) -> Option<Self> {
        [Self::K2, Self::K4].into_iter().find(|size| mtu <= size.largest_mtu())
    }

    /// Chunks of a jumbo frame.
    pub(crate) const fn in_jumbo(self) -> usize {
        JUMBO >> self.shift()
    }

    /// Octets.
    #[inline]
    pub const fn octets(self) -> usize {
        1 << self.shift()
    }

    /// Largest MTU whose packets leave room for headroom and trailer.
    pub const fn largest_mtu(self) -> u32 {
        let reserved = HEADROOM as u32 + TAILROOM;
        match self {
            Self::K2 => 2048 - reserved,
            Self::K4 => 4096 - reserved,
        }
    }

    #[inline]
    pub(crate) const fn shift(self) -> u32 {
        match self {
            Self::K2 => 11,
            Self::K4 => 12,
        }
    }
}

/// Room kept behind a packet for ESP's padding and ICV, in octets.
pub(super) const TRAILER_ROOM: u16 = 50;
/// Room kept for a trailer, and for the Ethernet header, which the MTU does not count.
const TAILROOM: u32 = 14 + TRAILER_ROOM as u32;

const JUMBO_SHIFT: u32 = 14;
/// Octets of a jumbo frame: adjacent chunks, of either size, used as one frame.
pub const JUMBO: usize = 1 << JUMBO_SHIFT;
/// Largest MTU whose packets leave room for headroom and trailer in a jumbo frame.
pub const JUMBO_MTU: u32 = JUMBO as u32 - HEADROOM as u32 - TAILROOM;

/// One region of memory, cut into chunks: first the jumbo frames, each a run of chunks, then frames
/// of one chunk. It is registered as a UMEM on every socket of its worker, so that a worker moves
/// frames between ports without copying them. The kernel does copy, because sockets are in copy
/// mode.
#[derive(Debug)]
pub struct FrameMemory {
    mapping: Mapping,
    size: ChunkSize,
    chunks: u32,
    /// Chunks below this number belong to jumbo frames.
    jumbo_chunks: u32,
    huge: bool,
}

impl FrameMemory {
    /// Bound on the frames of one chunk in a region, and on the chunks of its jumbo frames.
    pub const MAX_FRAMES: usize = 1 << 20;

    pub(super) fn new(frames: usize, jumbo: usize, size: ChunkSize) -> Result<Self> {
        let jumbo_chunks = jumbo.saturating_mul(size.in_jumbo());
        let most = frames.max(jumbo_chunks);
        if frames == 0 || most > Self::MAX_FRAMES {
            return Err(Error::FrameCount { found: most, limit: Self::MAX_FRAMES });
        }
        let chunks = frames + jumbo_chunks;
        let octets = (chunks * size.octets()).next_multiple_of(HUGE_PAGE);
        let (mapping, huge) =
            Mapping::anonymous(octets).map_err(|source| Error::System { call: "mmap of frames", source })?;
        Ok(Self { mapping, size, chunks: chunks as u32, jumbo_chunks: jumbo_chunks as u32, huge })
    }

    /// Largest MTU whose packets fit into the frames.
    pub fn largest_mtu(&self) -> u32 {
        if self.jumbo_chunks == 0 { self.size.largest_mtu() } else { JUMBO_MTU }
    }

    /// Numbers of the first chunks of jumbo frames.
    pub(super) fn jumbo_starts(&self) -> impl Iterator<Item = u32> + use<> {
        (0..self.jumbo_chunks).step_by(self.size.in_jumbo())
    }

    /// Numbers of the chunks that are a frame each.
    pub(super) fn singles(&self) -> std::ops::Range<u32> {
        self.jumbo_chunks..self.chunks
    }

    /// The run of chunks that forms one frame with this chunk: its first chunk, and its length.
    #[inline]
    pub(crate) fn run_of(&self, index: u32) -> (u32, u32) {
        if index < self.jumbo_chunks {
            let count = self.size.in_jumbo() as u32;
            (index & !(count - 1), count)
        } else {
            (index, 1)
        }
    }

    /// Octets of a chunk.
    #[inline]
    pub fn chunk_size(&self) -> ChunkSize {
        self.size
    }

    /// Chunks in the region.
    #[inline]
    pub fn chunks(&self) -> usize {
        self.chunks as usize
    }

    /// Octets of the region, and how many of them lie on huge pages: reserved ones, or pages that
    /// the kernel has joined.
    pub fn pages(&self) -> (usize, usize) {
        let len = self.mapping.len();
        (len, if self.huge { len } else { self.mapping.transparent().min(len) })
    }

    /// First octet.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.mapping.base()
    }

    /// Number of the frame's first chunk. `None` if the frame is another region's.
    #[inline]
    pub(crate) fn index_of(&self, frame: &Frame) -> Option<u32> {
        let offset = (frame.chunk().as_ptr() as usize).wrapping_sub(self.mapping.base().as_ptr() as usize);
        let index = offset >> self.size.shift();
        (index < self.chunks as usize).then_some(index as u32)
    }

    /// Number of the chunk that an address of the UMEM lies in. `None` if it is outside.
    #[inline]
    pub(crate) fn index_at(&self, address: u64) -> Option<u32> {
        let index = address >> self.size.shift();
        (index < u64::from(self.chunks)).then_some(index as u32)
    }

    /// The frame that begins with this chunk.
    ///
    /// # Safety
    /// `index` is below [`FrameMemory::chunks`] and the first of its run ([`FrameMemory::run_of`]),
    /// no other frame or kernel ring stands for a chunk of the run, and the region outlives the
    /// frame.
    #[inline]
    pub(crate) unsafe fn frame(&self, index: u32) -> Frame {
        debug_assert!(index < self.chunks && self.run_of(index).0 == index);
        let shift = if index < self.jumbo_chunks { JUMBO_SHIFT } else { self.size.shift() };
        // SAFETY: the offset is inside the mapping because `index` is below `chunks`, and so is the
        // whole run, which begins there; the rest is the caller's word.
        unsafe { Frame::from_chunk(self.mapping.base().add((index as usize) << self.size.shift()), shift) }
    }
}
