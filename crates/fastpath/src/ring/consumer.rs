//! The reading half of a ring: ours are RX and COMPLETION.

use super::{Offsets, Ring};
use crate::sys::mmap::Mapping;
use std::sync::atomic::Ordering;

/// Takes entries and gives their places back together.
#[derive(Debug)]
pub(crate) struct Consumer<T> {
    ring: Ring<T>,
    /// Index of the next entry to take.
    next: u32,
    /// Index up to which the producer knows of taken entries.
    released: u32,
    /// The producer's index when last read: entries before it can be taken.
    produced: u32,
}

impl<T: Copy + Send> Consumer<T> {
    /// The reading half of a kernel ring; `None` if the offsets do not make a ring in the mapping.
    ///
    /// # Safety
    /// At these offsets the kernel keeps a ring of `T` that it writes and only this consumer reads.
    pub(crate) unsafe fn in_mapping(mapping: Mapping, at: Offsets, size: u32) -> Option<Self> {
        // SAFETY: the caller guarantees it.
        unsafe { Ring::in_mapping(mapping, at, size) }.map(Self::new)
    }

    pub(super) fn new(ring: Ring<T>) -> Self {
        let next = ring.consumer().load(Ordering::Relaxed);
        let produced = ring.producer().load(Ordering::Acquire);
        Self { ring, next, released: next, produced }
    }

    /// Number of entries that can be taken. Reads the shared index only if none is known.
    #[inline]
    pub(crate) fn ready(&mut self) -> u32 {
        if self.next == self.produced {
            self.produced = self.ring.producer().load(Ordering::Acquire);
        }
        self.produced.wrapping_sub(self.next).min(self.ring.size)
    }

    /// Takes the oldest entry. Its place stays taken until [`Consumer::release`].
    #[inline]
    pub(crate) fn take(&mut self) -> Option<T> {
        if self.ready() == 0 {
            return None;
        }
        // SAFETY: the entry lies between our index and the producer's, so it is written and belongs
        // to this half alone.
        let value = unsafe { self.ring.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        Some(value)
    }

    /// Gives the places of all entries taken back to the producer.
    #[inline]
    pub(crate) fn release(&mut self) {
        if self.released != self.next {
            self.released = self.next;
            self.ring.consumer().store(self.next, Ordering::Release);
        }
    }
}
