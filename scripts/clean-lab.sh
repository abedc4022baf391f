#!/bin/bash
# Removes what killed labs have left; waits for a running one.
source "$(dirname "$0")/environment.sh"
need_root
need_rust
exec cargo run --quiet --package testudo-lab --bin testudo-demo -- --sweep
