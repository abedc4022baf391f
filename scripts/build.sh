#!/bin/bash
# The release build.
source "$(dirname "$0")/environment.sh"
need_rust
cargo build --workspace --bins --release
