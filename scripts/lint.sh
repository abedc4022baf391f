#!/bin/bash
# Formatting, lints and, where cargo-deny is installed, what deny.toml says of dependencies; fails
# on any finding, and prints all of them.
source "$(dirname "$0")/environment.sh"
export PHASES="packages rust format clippy deny advisories"
PHASE_TAIL=1000
need_packages
need_rust
failed=0
# What it prints is source, in which the name of a cause may stand.
PHASE_EXPLAIN=phase_show_end phase format cargo fmt --all --check || failed=1
phase clippy cargo clippy --workspace --all-targets -- -D warnings || failed=1
# Nothing here installs it: that compiles for minutes.
if cargo deny --version >/dev/null 2>&1; then
    phase "deny: licences, duplicates, sources" cargo deny check licenses bans sources || failed=1
    # The data lie at GitHub, which not every machine reaches.
    if cargo deny fetch db >"$LOG_DIR/advisories.log" 2>&1; then
        phase "advisories: RustSec's" cargo deny check --disable-fetch advisories || failed=1
    else
        phase_skip "advisories: left out, their data cannot be fetched ($LOG_DIR/advisories.log)"
    fi
else
    phase_skip "deny: left out, there is no cargo-deny here (cargo install --locked cargo-deny)"
fi
exit "$failed"
