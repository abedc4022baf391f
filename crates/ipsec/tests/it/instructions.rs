//! Instructions that the pipeline takes for a packet, counted by callgrind and held against
//! `instructions.txt`, so that none creeps in unseen.
//!
//! What is counted is `examples/pipeline.rs`, optimised like a release: the pipeline's own
//! functions, not the cipher's, of which every processor runs others. So the numbers depend on the
//! compiler, and hardly on the machine.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Growth of the numbers that needs no attention, in percent.
const TOLERANCE: f64 = 3.0;
const BURST: u64 = 64;
const BURSTS: u64 = 20;
const UPDATE: &str = "TESTUDO_INSTRUCTIONS=write cargo test -p testudo-ipsec --test it instructions";

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/instructions.txt")
}

/// Runs a command to its end; what it has written to standard error is the reason why it failed.
fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The counted code is optimised like a release and has no debug checks. Everything else is the
/// workspace's own build for tests, which already exists: another profile would compile all
/// dependencies again.
const COUNTED: [&str; 4] = ["testudo-ipsec", "testudo-crypto", "testudo-planted", "testudo-wire"];
const LIKE_A_RELEASE: [&str; 4] =
    ["opt-level=3", "codegen-units=1", "debug-assertions=false", "overflow-checks=false"];

/// Builds what is counted, without what the machine may add: flags, the smaller units of an
/// incremental build, and a cipher library that it may lack.
fn build() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let settings = COUNTED.iter().flat_map(|package| {
        LIKE_A_RELEASE.map(|setting| format!("--config=profile.dev.package.{package}.{setting}"))
    });
    run(Command::new(env!("CARGO"))
        // Of the whole workspace: a package alone has dependencies with other features.
        .args(["build", "--quiet", "--workspace", "--example", "pipeline"])
        .args(settings)
        .arg("--target-dir")
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env("CARGO_INCREMENTAL", "0")
        .env("TESTUDO_IPSEC_MB", "no"));
    target.join("debug/examples/pipeline")
}

/// Instructions a packet.
fn count(program: &Path, case: &str) -> f64 {
    let profile = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("callgrind {case}"));
    run(Command::new("valgrind")
        .args(["--tool=callgrind", "--compress-strings=no", "--compress-pos=no"])
        .arg("--toggle-collect=pipeline::counted_*")
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(program)
        .args(case.split(' '))
        .arg(BURSTS.to_string()));
    let instructions = own_instructions(&std::fs::read_to_string(profile).unwrap());
    assert!(instructions > 0, "callgrind has counted nothing: have the functions other names?");
    instructions as f64 / (BURST * BURSTS) as f64
}

/// The sum over Rust's functions, without the cipher library and what they call in C.
fn own_instructions(profile: &str) -> u64 {
    let (mut own, mut is_call, mut sum) = (false, false, 0);
    for line in profile.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            own = name.contains("::") && !name.contains("aws_lc");
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            // The line behind a call is what the callee took.
            let cost: u64 = line.split(' ').nth(1).and_then(|cost| cost.parse().ok()).unwrap_or(0);
            if own && !is_call {
                sum += cost;
            }
            is_call = false;
        }
    }
    sum
}

/// A row is direction, octets, packets of a flow one after another, and instructions a packet.
fn rows(text: &str) -> Vec<(&str, f64)> {
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    rows.filter_map(|row| row.rsplit_once(' ')).map(|(case, count)| (case, count.parse().unwrap())).collect()
}

#[test]
fn the_pipeline_takes_no_more_instructions_than_it_did() {
    let text = std::fs::read_to_string(file()).unwrap();
    let program = build();
    let rows = rows(&text);
    assert!(rows.len() >= 4, "{}: {} rows", file().display(), rows.len());
    let mut new: String = text
        .lines()
        .filter(|line| line.starts_with('#'))
        .fold(String::new(), |text, line| text + line + "\n");
    let mut grown = String::new();
    for (case, before) in rows {
        let now = count(&program, case);
        writeln!(new, "{case} {now:.1}").unwrap();
        let more = (now / before - 1.0) * 100.0;
        if more > TOLERANCE {
            writeln!(grown, "{case}: {now:.1} instructions a packet, {before:.1} before: {more:+.1} %")
                .unwrap();
        }
    }
    if std::env::var("TESTUDO_INSTRUCTIONS").as_deref() == Ok("write") {
        return std::fs::write(file(), new).unwrap();
    }
    assert!(
        grown.is_empty(),
        "the pipeline takes more than {TOLERANCE} % more instructions than {} says:\n{grown}\
         If that is worth it, or the compiler is another one, write the file anew: {UPDATE}",
        file().display()
    );
}

#[test]
fn a_profile_is_read_without_calls_and_without_the_cipher() {
    let profile = "version: 1\npositions: line\nevents: Ir\nfn=testudo_ipsec::a\n1 10\ncfn=aws_lc_0_1_seal\ncalls=1 0 \n2 500\n\
                   3 5\n\nfn=aws_lc_0_1_seal\n0 500\nfn=memcpy\n0 7\ntotals: 522\n";
    assert_eq!(own_instructions(profile), 15);
}
