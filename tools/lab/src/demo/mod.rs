//! What the demos have in common: what they say while they run, and that nothing stays behind
//! however they end.

pub mod guard;
mod progress;

pub use progress::Progress;
