//! The region of memory behind a worker's frames.

use super::{Frame, HEADROOM};
use crate::error::{Error, Result};
use crate::mmap::{HUGE_PAGE, Mapping};
use std::ptr::NonNull;

/// Octets of a chunk; those that AF_XDP accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkSize {
    /// 2048 octets, for an MTU of up to 1600.
    K2,
    /// 4096 octets.
    K4,
}

impl ChunkSize {
    /// The smallest chunk for packets of an interface with this MTU. `None` if none is large enough.
    pub fn for_mtu(mtu: u32) -> Option<Self> {
        [Self::K2, Self::K4].into_iter().find(|size| mtu <= size.largest_mtu())
    }

    /// Octets.
    #[inline]
    pub const fn octets(self) -> usize {
        1 << self.shift()
    }

    /// Largest MTU whose packets leave room before and behind.
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

/// Room kept for the Ethernet header, which the MTU does not count, and for ESP padding and ICV behind the packet.
const TAILROOM: u32 = 64;

/// One region of memory, cut into chunks. It is registered as a UMEM on every socket of its worker, so that frames
/// move between ports without a copy.
#[derive(Debug)]
pub struct FrameMemory {
    mapping: Mapping,
    size: ChunkSize,
    chunks: u32,
    huge: bool,
}

impl FrameMemory {
    /// Most chunks of a region.
    pub const LIMIT: usize = 1 << 20;

    pub(super) fn new(chunks: usize, size: ChunkSize) -> Result<Self> {
        if chunks == 0 || chunks > Self::LIMIT {
            return Err(Error::FrameCount { found: chunks, limit: Self::LIMIT });
        }
        let octets = (chunks * size.octets()).next_multiple_of(HUGE_PAGE);
        let (mapping, huge) =
            Mapping::anonymous(octets).map_err(|source| Error::System { call: "mmap of frames", source })?;
        Ok(Self { mapping, size, chunks: chunks as u32, huge })
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

    /// True if the region lies on huge pages.
    pub fn is_huge(&self) -> bool {
        self.huge
    }

    /// First octet.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.mapping.base()
    }

    /// Number of the frame's chunk. `None` if the frame is another region's.
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

    /// The frame of a chunk.
    ///
    /// # Safety
    /// `index` is below [`FrameMemory::chunks`], no other frame or kernel ring stands for the chunk, and the region
    /// outlives the frame.
    #[inline]
    pub(crate) unsafe fn frame(&self, index: u32) -> Frame {
        debug_assert!(index < self.chunks);
        // SAFETY: the offset is inside the mapping because `index` is below `chunks`; the rest is the caller's word.
        unsafe {
            Frame::from_chunk(self.mapping.base().add((index as usize) << self.size.shift()), self.size)
        }
    }
}
