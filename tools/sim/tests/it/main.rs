//! Whole clusters in virtual time: the invariants hold, and the checks detect violations.

mod last;
mod lone;
mod members;
// A build without debug assertions has no planted bugs.
#[cfg(debug_assertions)]
mod planted;
mod seeds;

/// Number of worlds with faults of all kinds, unless TESTUDO_SEEDS asks for another, as `make
/// test-all` does.
const WORLDS: u64 = 300;

/// Number of worlds of a kind: this one, or as many times more as TESTUDO_SEEDS asks for.
fn worlds(usual: u64) -> u64 {
    let asked = std::env::var("TESTUDO_SEEDS").ok();
    let asked = asked.map(|worlds| worlds.parse::<u64>().expect("TESTUDO_SEEDS is a number of worlds"));
    asked.map_or(usual, |asked| (asked * usual).div_ceil(WORLDS))
}
