#!/bin/bash
# Builds for release, and moves a virtual machine between two hosts: in clear, by testudo migrate, and
# under attack. target/demo/migrate.json holds the figures, target/demo/migrate.svg the picture.
source "$(dirname "$0")/environment.sh"
build_demo
exec "${CARGO_TARGET_DIR:-target}/release/testudo-demo-migrate" "$@"
