#!/bin/bash
# scripts/test.sh run [--all] [TEXT...]
#               | steady [--times N] [--load THREADS] [TEXT...]
#               | list [--labs]
#
# Builds the program that runs the tests, and starts it. The last line of a run is "N passed, N
# failed".
source "$(dirname "$0")/environment.sh"
export PHASES="packages rust runner"
need_root
need_kernel
need_64_bit
need_space debug 4000
need_packages
need_rust
# Nothing is compiled twice in a run of all tests, so a record for the next time only costs.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}
# What cargo gives its own children: a test that builds something has to use the same compiler.
if command -v rustup >/dev/null; then
    RUSTUP_TOOLCHAIN=$(rustup show active-toolchain | cut -d ' ' -f 1)
    export RUSTUP_TOOLCHAIN
fi
# For the line that changes while tests run.
if [[ -t 1 ]]; then
    COLUMNS=$(stty size <&1 | cut -d ' ' -f 2)
    export COLUMNS
fi
# As a part of the workspace: alone it would be built with other features, and all it uses once
# more.
phase "runner: what runs the tests" cargo build --workspace --bin testudo-suite
exec "${CARGO_TARGET_DIR:-target}/debug/testudo-suite" "${@:-run}"
