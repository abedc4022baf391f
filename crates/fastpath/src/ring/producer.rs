//! The writing half of a ring: ours are FILL and TX.

use super::{Offsets, Ring};
use crate::sys::mmap::Mapping;
use std::sync::atomic::Ordering;

/// Stages entries and publishes them together.
#[derive(Debug)]
pub(crate) struct Producer<T> {
    ring: Ring<T>,
    /// Index of the next entry to stage.
    next: u32,
    /// Index up to which the consumer knows of entries.
    published: u32,
    /// The consumer's index when last read: entries before it are free.
    consumed: u32,
}

impl<T: Copy + Send> Producer<T> {
    /// The writing half of a kernel ring; `None` if the offsets do not make a ring in the mapping.
    ///
    /// # Safety
    /// At these offsets the kernel keeps a ring of `T` that it reads and only this producer writes.
    pub(crate) unsafe fn in_mapping(mapping: Mapping, at: Offsets, size: u32) -> Option<Self> {
        // SAFETY: the caller guarantees it.
        unsafe { Ring::in_mapping(mapping, at, size) }.map(Self::new)
    }

    pub(super) fn new(ring: Ring<T>) -> Self {
        let next = ring.producer().load(Ordering::Relaxed);
        let consumed = ring.consumer().load(Ordering::Acquire);
        Self { ring, next, published: next, consumed }
    }

    /// Entries of the ring.
    pub(crate) fn size(&self) -> u32 {
        self.ring.size
    }

    /// Free entries. Reads the shared index only if fewer than `wanted` are known to be free.
    #[inline]
    pub(crate) fn room(&mut self, wanted: u32) -> u32 {
        let known = self.ring.size - self.used();
        if known >= wanted {
            return known;
        }
        self.consumed = self.ring.consumer().load(Ordering::Acquire);
        self.ring.size - self.used()
    }

    /// Entries that the consumer had not taken when its index was last read. Bounded, so that a
    /// broken consumer cannot make us write outside the free entries.
    #[inline]
    fn used(&self) -> u32 {
        self.next.wrapping_sub(self.consumed).min(self.ring.size)
    }

    /// Writes an entry that the consumer does not see yet. The value comes back if the ring is
    /// full.
    #[inline]
    pub(crate) fn stage(&mut self, value: T) -> Result<(), T> {
        if self.room(1) == 0 {
            return Err(value);
        }
        // SAFETY: the entry lies between the consumer's index and ours, so it belongs to this half
        // alone.
        unsafe { self.ring.entry(self.next).write(value) };
        self.next = self.next.wrapping_add(1);
        Ok(())
    }

    /// Shows the staged entries to the consumer.
    #[inline]
    pub(crate) fn publish(&mut self) {
        if self.published != self.next {
            self.published = self.next;
            self.ring.producer().store(self.next, Ordering::Release);
        }
    }

    /// Published entries that the consumer has not taken, read fresh.
    #[inline]
    pub(crate) fn outstanding(&mut self) -> u32 {
        self.consumed = self.ring.consumer().load(Ordering::Acquire);
        self.published.wrapping_sub(self.consumed).min(self.ring.size)
    }

    /// True if the kernel waits for a system call before it looks at the ring.
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}
