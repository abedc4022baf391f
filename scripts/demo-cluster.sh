#!/bin/bash
# Builds for release, kills a node of a cluster and shows what becomes of its traffic:
# target/demo/cluster.json holds the figures, target/demo/cluster.svg the picture.
source "$(dirname "$0")/environment.sh"
build_demo
exec "${CARGO_TARGET_DIR:-target}/release/testudo-demo-cluster" "$@"
