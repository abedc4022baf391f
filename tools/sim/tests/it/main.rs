//! Whole clusters in virtual time: what must always hold does, and the checks of it bite.

mod lone;
// A build without debug assertions has no planted bugs.
#[cfg(debug_assertions)]
mod planted;
mod seeds;
