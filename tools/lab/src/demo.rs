//! The parts that the demos share: progress output and reliable cleanup.

pub mod guard;
mod progress;

pub use progress::{Done, Progress};
