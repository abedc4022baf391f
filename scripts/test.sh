#!/bin/bash
# scripts/test.sh run [--all] [TEXT...]
#               | steady [--times N] [--load THREADS] [TEXT...]
#               | list [--labs]
#
# Builds the program that runs the tests, and starts it. The last line of a run is "N passed, N
# failed".
source "$(dirname "$0")/environment.sh"
export PHASES="packages rust runner"
case ${1:-run} in
    run | steady | list | help | -h | --help) ;;
    *) fail "\"$1\" is none of run, steady and list; scripts/test.sh --help tells what they do" ;;
esac
need_root
need_kernel
need_64_bit
need_space debug 4000
# Nothing is compiled twice in a run of all tests, so a record for the next time only costs.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}

# As a part of the workspace: alone it would be built with other features, and all it uses once
# more.
runner=(cargo build --workspace --bin testudo-suite)

# While apt installs what is missing, the compiler works, if it is there. The phase below waits for
# it, and tells why the build fails.
if command -v cargo >/dev/null && command -v cc >/dev/null; then
    RUSTUP_AUTO_INSTALL=0 "${runner[@]}" >/dev/null 2>&1 </dev/null &
    ahead=$!
    trap 'kill "$ahead" 2>/dev/null || true' EXIT
fi
need_packages
need_rust
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
phase "runner: what runs the tests" "${runner[@]}"
exec "${CARGO_TARGET_DIR:-target}/debug/testudo-suite" "${@:-run}"
