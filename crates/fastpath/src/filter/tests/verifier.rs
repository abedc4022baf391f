//! The kernel's verifier, which follows all ways through the filter whenever it is loaded.

use crate::filter::object::Loaded;
use libbpf_rs::Program;
use libbpf_rs::query::ProgInfoIter;

/// Bound on the instructions that the verifier follows: it takes about a microsecond for each,
/// other kernels follow more, and all refuse a program beyond a million.
const MAX_VERIFIED: u32 = 60_000;

#[test]
fn the_verifier_is_far_from_its_limit() {
    let loaded = Loaded::unpinned().expect("load the filter (root, CAP_BPF, CAP_NET_ADMIN)");
    let id = loaded.with_program(Program::id_from_fd).expect("the program").expect("its number");
    let verified = ProgInfoIter::default().find(|info| info.id == id).map(|info| info.verified_insns);
    assert!(verified.is_some_and(|count| (1..MAX_VERIFIED).contains(&count)), "{verified:?}");
}
