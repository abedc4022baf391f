//! testudod: the gateway daemon.
#![forbid(unsafe_code)]

fn main() {}
