//! The compiler of this program's builds: clippy-driver, which is rustc with lints. Cargo starts
//! this program in its place (`RUSTC_WORKSPACE_WRAPPER`), with rustc's path and arguments.
//!
//! Tests are not optimised, whatever their package says: most run for a moment, and optimising them
//! takes minutes. The libraries and programs that they use are.

use crate::error::Error;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Names the crates whose tests are optimised all the same, with spaces between them.
pub(crate) const OPTIMISED: &str = "TESTUDO_SUITE_OPTIMISED";

/// The arguments of a compiler, if this program was started as one.
pub(crate) fn arguments() -> Option<Vec<OsString>> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let is_rustc = |first: &OsString| Path::new(first).file_name() == Some(OsStr::new("rustc"));
    arguments.first().is_some_and(is_rustc).then_some(arguments)
}

/// Becomes clippy-driver. Returns only if there is none.
pub(crate) fn run(arguments: &[OsString]) -> Error {
    let optimised = std::env::var(OPTIMISED).unwrap_or_default();
    let mut clippy = Command::new("clippy-driver");
    clippy.args(arguments);
    if is_quick(arguments, &optimised) {
        clippy.args(["-C", "opt-level=0"]);
    }
    Error::io("run clippy-driver")(clippy.exec())
}

/// True for tests that are not to be optimised, and for benchmarks: they are compiled for their
/// lints only.
fn is_quick(arguments: &[OsString], optimised: &str) -> bool {
    let has = |option: &str, value: &str| arguments.windows(2).any(|pair| pair == [option, value]);
    let is_test = arguments.iter().any(|argument| argument == "--test") || has("--cfg", "test");
    is_test && !optimised.split(' ').any(|name| has("--crate-name", name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quick(arguments: &str) -> bool {
        let arguments: Vec<OsString> = arguments.split(' ').map(Into::into).collect();
        is_quick(&arguments, "loom testudo_sim")
    }

    #[test]
    fn tests_and_benchmarks_are_not_optimised_unless_they_are_named() {
        assert!(quick("rustc --crate-name it --edition=2024 tests/it/main.rs --test -C opt-level=1"));
        assert!(quick("rustc --crate-name filter --crate-type bin -C opt-level=1 --cfg test"));
        assert!(!quick("rustc --crate-name loom tests/loom/main.rs -C opt-level=1 --test"));
        assert!(!quick("rustc --crate-name it src/lib.rs --cfg feature=\"test\" -C opt-level=1"));
    }
}
