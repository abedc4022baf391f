//! Single-producer single-consumer rings in memory shared with the kernel
//! (Documentation/networking/af_xdp.rst).
//!
//! A ring has two free-running 32-bit indices and a power of two of entries. The producer writes
//! entries and then its index (release). The consumer reads that index (acquire), then the entries,
//! then writes its own index (release), which gives the entries back. Each half keeps a copy of the
//! other's index and reads the shared one only when the copy says that the ring is full, or empty:
//! a burst costs one shared read and one shared write.
//!
//! Nothing here calls the kernel, so the rings can be tested over plain memory.

mod consumer;
mod producer;
#[cfg(test)]
mod tests;

pub(crate) use consumer::Consumer;
pub(crate) use producer::Producer;

use crate::sys::mmap::Mapping;
use std::any::Any;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where the parts of a ring lie in its memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offsets {
    pub(crate) producer: usize,
    pub(crate) consumer: usize,
    pub(crate) flags: usize,
    pub(crate) entries: usize,
}

/// The memory of a ring, as each of its halves sees it.
struct Ring<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    size: u32,
    /// Keeps the memory alive that the pointers point into.
    _memory: Box<dyn Any + Send + Sync>,
}

// SAFETY: the pointers lead into memory that `_memory` keeps alive. Indices and flags are atomics,
// and an entry is touched only by the half to which the indices give it.
unsafe impl<T: Copy + Send> Send for Ring<T> {}

impl<T: Copy + Send> Ring<T> {
    /// A ring of `size` entries in a mapping of a socket. `None` if the offsets lead outside it or
    /// are misaligned, or `size` is not a power of two.
    ///
    /// # Safety
    /// At these offsets the kernel keeps a ring of `T`, valid for any bits, and there is no other
    /// user of our side.
    unsafe fn in_mapping(mapping: Mapping, at: Offsets, size: u32) -> Option<Self> {
        let entries = std::mem::size_of::<T>().checked_mul(size as usize)?;
        let parts = [(at.producer, 4), (at.consumer, 4), (at.flags, 4), (at.entries, entries)];
        let inside =
            |(offset, len): (usize, usize)| offset.checked_add(len).is_some_and(|end| end <= mapping.len());
        let aligned = [at.producer, at.consumer, at.flags].iter().all(|offset| offset.is_multiple_of(4))
            && at.entries.is_multiple_of(std::mem::align_of::<T>());
        if !size.is_power_of_two() || !aligned || !parts.into_iter().all(inside) {
            return None;
        }
        let base = mapping.base();
        // SAFETY: each offset and the object behind it are inside the mapping, checked above.
        unsafe {
            Some(Self {
                producer: base.add(at.producer).cast(),
                consumer: base.add(at.consumer).cast(),
                flags: base.add(at.flags).cast(),
                entries: base.add(at.entries).cast(),
                size,
                _memory: Box::new(mapping),
            })
        }
    }

    #[inline]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: points to an index inside `_memory`, which is only accessed atomically.
        unsafe { self.producer.as_ref() }
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as for `producer`.
        unsafe { self.consumer.as_ref() }
    }

    #[inline]
    fn needs_wakeup(&self) -> bool {
        // SAFETY: as for `producer`.
        let flags = unsafe { self.flags.as_ref() };
        flags.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// The entry of a free-running index.
    #[inline]
    fn entry(&self, index: u32) -> NonNull<T> {
        // SAFETY: the masked index is below `size`, and `entries` has `size` entries.
        unsafe { self.entries.add((index & (self.size - 1)) as usize) }
    }
}

impl<T> std::fmt::Debug for Ring<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ring({} entries)", self.size)
    }
}
