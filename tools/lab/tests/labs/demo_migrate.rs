//! The demo of a migration, from its beginning to its end.

use serde_json::{Value, json};
use std::fs;
use std::process::Command;

#[test]
#[ignore = "make test-all: a combination of what others prove"]
fn a_virtual_machine_moves_and_an_attack_cancels() {
    let dir = tempfile::tempdir().unwrap();
    let [report, plot] = ["report.json", "plot.svg"].map(|name| dir.path().join(name));
    let mut demo = Command::new(env!("CARGO_BIN_EXE_testudo-demo-migrate"));
    let output = demo.arg("--report").arg(&report).arg("--plot").arg(&plot).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}\n{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    let [plain, protected, attacked] = [0, 1, 2].map(|way| &report[way]);
    let found = [plain, protected, attacked].map(|one| one["secret_found"].as_bool().unwrap());
    assert_eq!(found, [true, false, false], "{report:#}");
    let counts = [plain, protected, attacked].map(|one| &one["counts_at"]);
    assert_eq!(counts, [&json!(["destination"]), &json!(["destination"]), &json!(["source"])], "{report:#}");
    assert!(attacked["cancelled"].as_str().unwrap().contains("forged-packets"), "{report:#}");
    let svg = fs::read_to_string(&plot).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("the attacker begins"), "{svg}");
}
