#!/bin/bash
# Builds for release and runs the demo; target/demo/report.json holds the figures.
source "$(dirname "$0")/environment.sh"
need_root
need_rust
cargo build --release --package testudo-gateway --package testudo-cli --package testudo-lab --bins
exec "${CARGO_TARGET_DIR:-target}/release/testudo-demo" --report target/demo/report.json "$@"
