#!/bin/bash
# Formatting and lints; fails on any finding, and prints all of them.
source "$(dirname "$0")/environment.sh"
export PHASES="packages rust format clippy"
PHASE_TAIL=1000
need_packages
need_rust
failed=0
# What it prints is source, in which the name of a cause may stand.
PHASE_EXPLAIN=phase_show_end phase format cargo fmt --all --check || failed=1
phase clippy cargo clippy --workspace --all-targets -- -D warnings || failed=1
exit "$failed"
