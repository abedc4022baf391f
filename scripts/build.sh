#!/bin/bash
# The release build.
source "$(dirname "$0")/environment.sh"
export PHASES="packages rust build"
need_64_bit
need_space release 3000
need_packages
need_rust
phase "build: release, takes some minutes the first time" cargo build --workspace --bins --release
