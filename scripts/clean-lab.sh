#!/bin/bash
# Removes what killed labs have left; waits for a running one.
source "$(dirname "$0")/environment.sh"
export PHASES="rust build"
need_root
need_rust
phase build cargo build --package testudo-lab --bin testudo-demo
exec "${CARGO_TARGET_DIR:-target}/debug/testudo-demo" --sweep
