#!/bin/bash
# Builds for release and runs the demo; target/demo/report.json holds the figures.
source "$(dirname "$0")/environment.sh"
build_demo
exec "${CARGO_TARGET_DIR:-target}/release/testudo-demo" --report target/demo/report.json "$@"
