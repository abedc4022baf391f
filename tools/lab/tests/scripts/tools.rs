//! Tests of the handling of Rust and cargo.

use crate::DEMOS;
use crate::sandbox::Sandbox;

/// What cargo prints without a network.
const UNREACHABLE: &str = "cat >&2 <<'END'
    Updating crates.io index
warning: spurious network error (1 try remaining): [6] Could not resolve hostname (Could not resolve host: index.crates.io)
error: failed to get `aws-lc-rs` as a dependency of package `testudo-gateway v0.1.0`

Caused by:
  failed to download from `https://index.crates.io/config.json`
END
exit 101";

#[test]
fn an_old_cargo_is_told() {
    let sandbox = Sandbox::new();
    sandbox.program("cargo", "echo 'cargo 1.65.0'");
    for script in ["build.sh", "demo.sh", "lint.sh", "clean-lab.sh"] {
        let outcome = sandbox.run(script);
        outcome.is_refusal(script, &["needs cargo 1.", "bin/cargo is 1.65.0; remove it"]);
    }
}

#[test]
fn without_rust_and_without_curl_there_is_no_way() {
    let sandbox = Sandbox::new();
    sandbox.without_program("cargo");
    sandbox
        .run("build.sh")
        .is_refusal("build.sh", &["no Rust here, and no curl", "https://rustup.rs", "target/log/rust.log"]);
}

#[test]
fn a_machine_that_rustup_has_nothing_for_is_told() {
    let sandbox = Sandbox::new();
    sandbox.without_program("cargo");
    sandbox.program("curl", "exit 1");
    sandbox.program("uname", "echo mips64");
    sandbox.run("build.sh").is_refusal("build.sh", &["no rustup for mips64"]);
}

#[test]
fn no_network_for_rustup_is_one_line() {
    let sandbox = Sandbox::new();
    sandbox.without_program("cargo");
    sandbox.program("curl", "echo 'curl: (6) Could not resolve host: static.rust-lang.org' >&2; exit 6");
    let reason = "cannot download (curl: (6) Could not resolve host: static.rust-lang.org)";
    sandbox.run("build.sh").is_refusal("build.sh", &["rust failed: ", reason, "target/log/rust.log"]);
    sandbox.program(
        "rustup",
        "echo \"error: could not download file from 'https://static.rust-lang.org/x' to '/x'\" >&2; exit 1",
    );
    sandbox
        .run("build.sh")
        .is_refusal("build.sh", &["cannot download (could not download file from 'https://static"]);
}

#[test]
fn no_network_for_cargo_is_one_line() {
    let sandbox = Sandbox::new();
    sandbox.cargo(UNREACHABLE);
    let reason = "cannot download ([6] Could not resolve hostname (Could not resolve host: index.crates.io))";
    for script in DEMOS.into_iter().chain(["build.sh", "clean-lab.sh"]) {
        sandbox.run(script).is_refusal(script, &["build failed: ", reason, "target/log/build.log"]);
    }
}

#[test]
fn a_disk_that_runs_full_is_one_line() {
    let sandbox = Sandbox::new();
    // There is room at the start, and it is used up later.
    sandbox.program(
        "df",
        "if [[ -e target/log/build.log ]]; then exec /bin/df \"$@\"; fi; printf 'Avail\\n5000\\n'",
    );
    sandbox.cargo(
        "printf '    Building [=> ] 1/2: a\\rerror: failed to write: No space left on device (os error 28)\\n' >&2\n\
         head --bytes=2M /dev/zero >target/full; exit 101",
    );
    let outcome = sandbox.run_with_small_disk("build.sh", 1024);
    outcome.is_refusal("build.sh", &["the disk is full (error: failed to write: No space left on device)"]);
    // Even the log has no room for cargo's output.
    sandbox.cargo("head --bytes=2M /dev/zero >target/full; echo 'No space left on device' >&2; exit 101");
    let outcome = sandbox.run_with_small_disk("build.sh", 1024);
    outcome.is_refusal("build.sh", &["build failed: the disk is full (nothing is free at target/log)"]);
}

#[test]
fn a_compiler_that_is_killed_is_one_line() {
    let sandbox = Sandbox::new();
    sandbox.cargo(
        "echo '  process did not exit successfully: `rustc` (signal: 9, SIGKILL: kill)' >&2; exit 101",
    );
    sandbox.run("build.sh").is_refusal("build.sh", &["lack of memory; repeat with CARGO_BUILD_JOBS=1"]);
}

#[test]
fn another_failure_shows_the_end_of_its_log() {
    let sandbox = Sandbox::new();
    sandbox.cargo(
        "for ((i = 0; i < 90; i++)); do echo \"line $i\"; echo \"   Compiling crate$i\"; done >&2; exit 101",
    );
    let outcome = sandbox.run("build.sh");
    assert_eq!(outcome.code, Some(101));
    let lines: Vec<_> = outcome.stderr.lines().collect();
    assert_eq!(lines.len(), 21, "{lines:#?}");
    assert_eq!((lines[0], lines[19]), ("line 70", "line 89"));
    assert_eq!(
        lines[20],
        "build.sh: build failed with exit code 101, see above; all that it printed is in target/log/build.log"
    );
}

#[test]
fn lints_show_every_finding() {
    let sandbox = Sandbox::new();
    // Source code that mentions a cause is not a cause.
    sandbox.cargo(
        r#"if [[ $1 == fmt ]]; then echo '-    text("No space left on device");'; fi
        if [[ $1 == clippy ]]; then for ((i = 0; i < 90; i++)); do echo "finding $i"; echo '9 | "No space left on device"'; done; fi
        exit 1"#,
    );
    let outcome = sandbox.run("lint.sh");
    assert_eq!(outcome.code, Some(1));
    assert_eq!(outcome.stderr.lines().filter(|line| line.starts_with("finding ")).count(), 90);
    assert!(
        outcome.stderr.contains("-    text(") && !outcome.stderr.contains("disk is full"),
        "{}",
        outcome.stderr
    );
}

/// The texts after "[5/6] " of the phases about dependencies.
fn said_of_dependencies(stdout: &str) -> Vec<&str> {
    let lines = stdout.lines().filter_map(|line| line.split_once("] ")).map(|(_, line)| line);
    lines.filter(|line| line.starts_with("deny: ") || line.starts_with("advisories: ")).collect()
}

#[test]
fn without_cargo_deny_lints_say_so_in_a_line() {
    let sandbox = Sandbox::new();
    sandbox.cargo("[[ $1 != deny ]]");
    let outcome = sandbox.run("lint.sh");
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
    let said = said_of_dependencies(&outcome.stdout);
    assert_eq!(said, ["deny: left out, there is no cargo-deny here (cargo install --locked cargo-deny)"]);
}

#[test]
fn a_dependency_that_is_refused_fails_the_lints() {
    let sandbox = Sandbox::new();
    // It exists, cannot fetch, and finds something.
    sandbox.cargo(
        r#"case "$*" in "deny fetch db") exit 1 ;; "deny check "*) echo "error[rejected]: of $*"; exit 4 ;; esac"#,
    );
    let outcome = sandbox.run("lint.sh");
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains("rejected]: of deny check licenses bans sources"), "{}", outcome.stderr);
    let said = said_of_dependencies(&outcome.stdout);
    assert!(said.last().unwrap().starts_with("advisories: left out"), "{said:?}");
}
