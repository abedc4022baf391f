//! Whole clusters in virtual time: the invariants hold, and the checks detect violations.

mod last;
mod lone;
mod members;
// A build without debug assertions has no planted bugs.
#[cfg(debug_assertions)]
mod planted;
mod seeds;
