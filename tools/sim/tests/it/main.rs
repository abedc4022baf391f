//! Whole clusters in virtual time: the invariants hold, and the checks detect violations.

mod last;
mod lone;
mod members;
// A build without debug assertions has no planted bugs.
#[cfg(debug_assertions)]
mod planted;
mod seeds;

/// Number of worlds: this one, or what TESTUDO_SEEDS asks for, as `make test-all` does.
fn worlds(usual: u64) -> u64 {
    let asked = std::env::var("TESTUDO_SEEDS").ok();
    asked.map_or(usual, |worlds| worlds.parse().expect("TESTUDO_SEEDS is a number of worlds"))
}
