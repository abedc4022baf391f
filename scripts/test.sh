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

summary=$(totals "$output")
case $summary in
    "0 passed, "*) problems+=("no test has passed") ;;
esac
echo
echo "Took $((SECONDS - started)) s."
if ((${#problems[@]} > 0)); then
    printf 'Not in order: %s\n' "${problems[*]}"
fi
echo "$summary"
((${#problems[@]} == 0))
