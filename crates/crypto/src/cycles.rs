//! The processor's time-stamp counter, for measuring ciphers and the code around them.

/// Reads the counter: on x86-64 the TSC, which advances at a constant rate whatever the clock of
/// the core. `None` on processors that have none. Meant for stretches of many packets: the read is
/// not ordered with its neighbours.
#[inline]
pub fn now() -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: RDTSC has no operands and no effect on memory; Linux leaves it open to user
        // space.
        Some(unsafe { core::arch::x86_64::_rdtsc() })
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        None
    }
}
