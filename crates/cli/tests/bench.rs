//! `testudo bench` as a user runs it.

use serde_json::Value;
use std::process::{Command, Output};
use testudo_crypto::Library;

fn testudo(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_testudo")).args(args).output().expect("the binary starts")
}

/// Runs the ESP bench and returns its JSON report.
fn bench_esp(args: &[&str]) -> Value {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("report.json");
    let path = file.to_str().expect("a printable path");
    let output =
        testudo(&[&["bench", "esp", "--seconds", "0.02", "--rounds", "2", "--json", path], args].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read(&file).expect("the report is written");
    serde_json::from_slice(&text).expect("the report is JSON")
}

#[test]
fn both_directions_of_every_case_are_measured() {
    for library in Library::ALL.into_iter().filter(|library| library.available().is_ok()) {
        let ciphers = "aes128gcm16,aes256gcm16";
        let report = bench_esp(&["--library", library.name(), "--sizes", "64,1420", "--ciphers", ciphers]);
        assert_eq!(report["bench"], "esp");
        assert_eq!(report["machine"]["library"], library.name());
        let rows = report["rows"].as_array().expect("rows");
        let cases: Vec<_> = rows
            .iter()
            .map(|row| (row["cipher"].as_str(), row["size"].as_u64(), row["direction"].as_str()))
            .collect();
        let mut expected = Vec::new();
        for cipher in ["aes128gcm16", "aes256gcm16"] {
            for size in [64, 1420] {
                expected.extend(["out", "in"].map(|way| (Some(cipher), Some(size), Some(way))));
            }
        }
        assert_eq!(cases, expected);
        for row in rows {
            for key in ["ns", "cipher_ns", "mpps", "gbps", "packets"] {
                assert!(row[key].as_f64().is_some_and(|value| value > 0.0), "{key} of {row}");
            }
        }
    }
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for (args, expected) in [
        (["--library", "openssl"], "expected \"ipsec-mb\" or \"aws-lc\""),
        (["--sizes", "9000"], "not in 28..=1446"),
        (["--seconds", "0"], "expected seconds"),
        (["--cpu", "1000"], "CPU 1000 is not available"),
        (["--json", "/proc/no/such/file"], "cannot write /proc/no/such/file"),
    ] {
        let quick = ["bench", "esp", "--rounds", "1"];
        let short: &[&str] = if args[0] == "--seconds" { &[] } else { &["--seconds", "0.001"] };
        let output = testudo(&[&quick[..], short, &args[..]].concat());
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{args:?} was accepted");
        assert!(message.contains(expected), "{args:?}: {message}");
    }
}
