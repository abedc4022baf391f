//! testudo: status and benchmarks.
#![forbid(unsafe_code)]

fn main() {}
