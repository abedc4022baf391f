//! The state that workers share, in every order of events that the memory model allows: the sources
//! themselves, built on loom's atomics in place of the processor's.
//!
//! A program of its own: those sources stand at its root, and `it` has an allocator that counts.

/// The items that the crate's sources expect at its root.
mod atomics {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
}
mod drops {
    pub(crate) use testudo_ipsec::drops::DropReason;
}
mod error {
    pub(crate) use testudo_ipsec::Error;
}
#[allow(dead_code, unreachable_pub, missing_docs, reason = "the tests do not use all of it")]
#[path = "../../src/replay/window.rs"]
mod replay;
#[allow(dead_code, unreachable_pub, missing_docs, reason = "the tests do not use all of it")]
#[path = "../../src/number/sequence.rs"]
mod sequence;
#[allow(dead_code, unreachable_pub, missing_docs, reason = "the tests do not use all of it")]
#[path = "../../src/number/stripes.rs"]
mod stripes;

mod numbers;
mod rows;
mod window;

/// Three threads with few preemptions find what there is to find; all orders of three would take
/// hours.
fn explore(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(test);
}
