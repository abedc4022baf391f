//! Numbers that must never repeat: sequence numbers of an SA, IVs of a worker.

mod iv;
mod sequence;
#[cfg(test)]
mod sequence_tests;

pub use iv::{IvAllocator, ReservedIvs, WorkerId};
pub use sequence::{Reserved, SequenceAllocator, SequenceBlock};
