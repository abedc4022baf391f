#!/bin/bash
# Lints, builds and runs all tests. The last line is "N passed, N failed".
# Labs wait for each other by themselves, whatever runs in parallel.
source "$(dirname "$0")/environment.sh"
need_root
need_rust

# totals FILE: sums the result lines of all test programs.
totals() {
    awk '/^test result: / {
            for (i = 2; i <= NF; i++) {
                if ($i ~ /^passed/) passed += $(i - 1)
                if ($i ~ /^failed/) failed += $(i - 1)
            }
        }
        END { printf "%d passed, %d failed\n", passed, failed }' "$1"
}

# failures FILE: what each failed test said when it panicked, without the logs around it.
failures() {
    awk '/^thread .* panicked at / { lines = 12 }
        /^(stack backtrace:|note: run with)/ { lines = 0 }
        lines > 0 { print; lines-- }' "$1"
}

output=$(mktemp)
trap 'rm -f "$output"' EXIT
started=$SECONDS
problems=()

echo "== Lints"
scripts/lint.sh || problems+=("lints")
echo "== Build"
# Tests of the lab run the daemon and the tools; cargo builds those by itself only for tests of their own package.
cargo build --workspace --bins || problems+=("build")
echo "== Tests"
cargo test --workspace --no-fail-fast 2>&1 | tee "$output" || problems+=("tests")
echo "== Planted bugs"
# A build of its own: nothing that is used may have bugs compiled in, and the gateway refuses to.
cargo test --package testudo-sim --features plants --test planted 2>&1 | tee -a "$output" || problems+=("planted bugs")

summary=$(totals "$output")
case $summary in
    "0 passed, "*) problems+=("no test has passed") ;;
esac
echo
grep -E '^([0-9]+ seeds, .*violations|planted bugs: .*)$' "$output" || problems+=("the simulator has not run")
echo "Took $((SECONDS - started)) s."
if ((${#problems[@]} > 0)); then
    echo "== Failures"
    grep -E '^test .* \.\.\. FAILED$' "$output" || true
    failures "$output"
    printf 'Not in order: %s\n' "${problems[*]}"
fi
echo "$summary"
((${#problems[@]} == 0))
