//! Frames: the only packet buffers. They circulate between a worker's pool and its ports and are
//! neither allocated nor freed while packets flow.
//!
//! A worker has one region of memory cut into chunks of equal size. A [`Frame`] is the right to use
//! one chunk. It cannot be copied, so a chunk has one owner at any time: the pool, the worker, or a
//! port that lent it to the kernel. Dropping a frame instead of giving it back loses its chunk
//! until the process ends; the pool counts that.
//!
//! A *jumbo* frame is a run of adjacent chunks, for packets that are larger than a chunk. The
//! kernel takes no chunks above 4096 octets, but takes and gives packets that lie in several. A
//! jumbo frame is sent as it lies, and the chunks of a received packet are joined in one
//! ([`crate::port`]).

mod memory;
mod pool;
#[cfg(test)]
mod tests;

use memory::TRAILER_ROOM;
pub use memory::{ChunkSize, FrameMemory, JUMBO, JUMBO_MTU};
pub use pool::FramePool;

use std::ptr::NonNull;
use testudo_wire::packet::PacketBuf;

/// Octets that the kernel keeps free before a received packet (XDP_PACKET_HEADROOM).
pub const XDP_HEADROOM: u16 = 256;
/// Octets that we ask for in addition, so that outer headers fit however much of its own headroom
/// XDP has used.
pub const EXTRA_HEADROOM: u16 = 128;
/// Where a packet starts in a fresh frame, and where the kernel puts received ones.
pub const HEADROOM: u16 = XDP_HEADROOM + EXTRA_HEADROOM;

/// The right to use one chunk of a [`FrameMemory`] or a run of them, and the packet's place in it.
///
/// Give it back to the [`FramePool`] or to a port: dropping it leaks the chunk.
#[must_use = "a frame that is dropped is lost to its pool"]
pub struct Frame {
    chunk: NonNull<u8>,
    extent: Extent,
}

/// Start, length and size in one word: a frame is two words, which move in registers. Separate
/// fields would be written in parts and read as a whole, which stalls the processor.
#[derive(Clone, Copy)]
struct Extent(u64);

impl Extent {
    #[inline]
    fn new(start: u16, len: u16, shift: u32) -> Self {
        Self(u64::from(start) | u64::from(len) << 16 | u64::from(shift) << 32)
    }

    #[inline]
    fn start(self) -> u16 {
        self.0 as u16
    }

    #[inline]
    fn len(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// Octets of the frame.
    #[inline]
    fn capacity(self) -> usize {
        1 << (self.0 >> 32)
    }

    #[inline]
    fn at(self, start: u16, len: u16) -> Self {
        Self(self.0 & !0xffff_ffff | u64::from(start) | u64::from(len) << 16)
    }
}

// SAFETY: a frame is the only owner of its chunk, and the chunk is plain memory.
unsafe impl Send for Frame {}
// SAFETY: `&Frame` gives shared access to the chunk's bytes only.
unsafe impl Sync for Frame {}

impl Frame {
    /// # Safety
    /// `chunk` is the start of `1 << shift` octets of whole chunks of a live [`FrameMemory`], no
    /// other frame or kernel ring stands for them, and the memory outlives the frame (see
    /// [`FramePool`]'s drop).
    #[inline]
    pub(crate) unsafe fn from_chunk(chunk: NonNull<u8>, shift: u32) -> Self {
        Self { chunk, extent: Extent::new(HEADROOM, 0, shift) }
    }

    /// Address of the first chunk.
    #[inline]
    pub(crate) fn chunk(&self) -> NonNull<u8> {
        self.chunk
    }

    /// Offset of the packet in its frame.
    #[inline]
    pub fn start(&self) -> u16 {
        self.extent.start()
    }

    /// Octets of the packet.
    #[inline]
    pub fn len(&self) -> u16 {
        self.extent.len()
    }

    /// True if the packet has no octets.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Octets of the frame.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.extent.capacity()
    }

    /// True if it is a run of chunks.
    #[inline]
    pub(crate) fn is_jumbo(&self) -> bool {
        self.capacity() == JUMBO
    }

    /// True if a trailer fits behind the packet.
    #[inline]
    pub(crate) fn has_trailer_room(&self) -> bool {
        usize::from(self.start()) + usize::from(self.len()) + usize::from(TRAILER_ROOM) <= self.capacity()
    }

    /// An empty packet behind the usual headroom.
    #[inline]
    fn reset(&mut self) {
        self.extent = self.extent.at(HEADROOM, 0);
    }

    /// Sets where the packet lies. Returns false, and changes nothing, if that is outside the
    /// frame.
    #[inline]
    #[must_use]
    pub fn set_extent(&mut self, start: usize, len: usize) -> bool {
        let fits = start.checked_add(len).is_some_and(|end| end <= self.capacity());
        if fits {
            // A frame has at most `JUMBO` octets, so both fit.
            self.extent = self.extent.at(start as u16, len as u16);
        }
        fits
    }

    /// Copies a packet in behind the usual headroom. Returns false, and changes nothing, if it is
    /// too long.
    #[must_use]
    pub fn fill(&mut self, packet: &[u8]) -> bool {
        let start = usize::from(HEADROOM);
        let fits = self.set_extent(start, packet.len());
        if fits {
            self.data_mut().copy_from_slice(packet);
        }
        fits
    }

    /// The octets of the whole frame.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the frame owns chunks of `capacity` octets, initialised when they were mapped.
        unsafe { std::slice::from_raw_parts(self.chunk.as_ptr(), self.capacity()) }
    }

    /// The octets of the whole frame, to be changed.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.chunk.as_ptr(), self.capacity()) }
    }

    /// The packet's octets.
    #[inline]
    #[cfg_attr(
        not(test),
        expect(clippy::indexing_slicing, reason = "`set_extent` checks that the packet lies in the frame")
    )]
    pub fn data(&self) -> &[u8] {
        let start = usize::from(self.start());
        &self.bytes()[start..start + usize::from(self.len())]
    }

    /// The packet's octets, to be changed.
    #[inline]
    #[cfg_attr(
        not(test),
        expect(clippy::indexing_slicing, reason = "`set_extent` checks that the packet lies in the frame")
    )]
    pub fn data_mut(&mut self) -> &mut [u8] {
        let (start, len) = (usize::from(self.start()), usize::from(self.len()));
        &mut self.bytes_mut()[start..start + len]
    }

    /// The packet with all of the frame around it. Changes of its extent do not reach the frame by
    /// themselves: apply them with [`Frame::set_extent`].
    #[inline]
    pub fn packet(&mut self) -> PacketBuf<'_> {
        let (start, len) = (usize::from(self.start()), usize::from(self.len()));
        match PacketBuf::new(self.bytes_mut(), start, len) {
            Some(packet) => packet,
            None => unreachable!("set_extent keeps the packet inside the frame"),
        }
    }
}

impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Frame({:p}: {}+{})", self.chunk, self.start(), self.len())
    }
}
