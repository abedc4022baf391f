#!/bin/bash
# scripts/build.sh [--all]: the release build of testudod and testudo; with --all of the tools too.
source "$(dirname "$0")/environment.sh"
export PHASES="packages rust build"
what=(--package testudo-gateway --package testudo-cli)
if [[ ${1:-} == --all ]]; then what=(--workspace); fi
need_64_bit
need_space release 3000
need_packages
need_rust
phase "build: release, takes some minutes the first time" cargo build "${what[@]}" --bins --release
