#!/bin/bash
# Formatting and lints; fails on any finding.
source "$(dirname "$0")/environment.sh"
need_rust
failed=0
cargo fmt --all --check || failed=1
cargo clippy --workspace --all-targets --quiet -- -D warnings || failed=1
exit "$failed"
