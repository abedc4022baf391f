//! Numbers that must never repeat: sequence numbers of an SA, on one node or spread over
//! several, and IVs of a worker.

mod iv;
mod sequence;
mod stripes;
#[cfg(test)]
mod tests;

pub use iv::{IvAllocator, ReservedIvs, WorkerId};
pub use sequence::{Reserved, SequenceAllocator, SequenceBlock};
pub use stripes::{MAX_STRIPES, ReservedRows, RowClock, Rows, Stripe, Stripes};

/// The upper half of an extended sequence number, which is authenticated but not sent (RFC 4303
/// §2.2.1).
#[inline]
pub(crate) fn high(esn: bool, sequence: u64) -> Option<u32> {
    esn.then_some((sequence >> 32) as u32)
}
