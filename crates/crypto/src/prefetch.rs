//! Prefetching memory.
//!
//! A gateway with tens of thousands of SAs finds none of them in its caches. A burst knows which it
//! will need. Requested all at once, they arrive side by side instead of one after the other.

/// Octets of a cache line.
const CACHE_LINE_LEN: usize = 64;

/// Prefetches the first `octets` of a value, or all of it if it is shorter. Nothing is read.
#[inline(always)]
pub fn prefetch<T>(value: &T, octets: usize) {
    let first = std::ptr::from_ref(value).cast::<i8>();
    for offset in (0..octets.min(size_of::<T>())).step_by(CACHE_LINE_LEN) {
        // The offset lies within the value.
        hint(first.wrapping_add(offset));
    }
}

/// Prefetches a whole slice.
#[inline(always)]
pub fn prefetch_slice<T>(values: &[T]) {
    let first = values.as_ptr().cast::<i8>();
    for offset in (0..size_of_val(values)).step_by(CACHE_LINE_LEN) {
        hint(first.wrapping_add(offset));
    }
}

#[inline(always)]
fn hint(address: *const i8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect that a program could see, whatever the address; SSE is part
    // of x86-64.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
