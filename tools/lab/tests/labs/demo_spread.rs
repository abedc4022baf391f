//! The demo of a spread tunnel, from its beginning to its end.

use std::fs;
use std::process::Command;

#[test]
#[ignore = "make test-all: a combination of what others prove"]
fn one_tunnel_is_spread_over_more_and_more_nodes() {
    let dir = tempfile::tempdir().unwrap();
    let [report, plot] = ["report.json", "plot.svg"].map(|name| dir.path().join(name));
    let output = Command::new(env!("CARGO_BIN_EXE_testudo-demo-spread"))
        .args(["--seconds", "2", "--report"])
        .arg(&report)
        .arg("--plot")
        .arg(&plot)
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}\n{}", String::from_utf8_lossy(&output.stderr));
    for said in ["one node", "2 nodes", "3 nodes", "killed", "kept"] {
        assert!(shown.contains(said), "{said}: {shown}");
    }
    let report: serde_json::Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    let stages = report["stages"].as_array().unwrap();
    assert_eq!(stages.len(), 4, "{report:#}");
    let works = |rate: &serde_json::Value| rate["packets_per_s"].as_f64().unwrap_or_default() > 1.0;
    let at_work: Vec<usize> = stages
        .iter()
        .map(|stage| stage["rates"].as_array().unwrap().iter().filter(|rate| works(rate)).count())
        .collect();
    assert_eq!(at_work, [1, 2, 3, 2], "{report:#}");
    assert_eq!((&report["tunnels_lost"], &report["duplicates"]), (&0.into(), &0.into()));
    let svg = fs::read_to_string(&plot).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("node 3"), "{svg}");
}
