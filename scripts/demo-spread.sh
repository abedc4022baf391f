#!/bin/bash
# Builds for release, spreads one tunnel over one node, two and three, kills one, and shows what each
# of them does: target/demo/spread.json holds the figures, target/demo/spread.svg the picture.
source "$(dirname "$0")/environment.sh"
build_demo
exec "${CARGO_TARGET_DIR:-target}/release/testudo-demo-spread" "$@"
