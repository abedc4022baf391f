//! `testudo check`, the program, on files.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const GW: &str = "connections {\n    gw {\n        local {\n            auth = psk\n        }\n        remote {\n            \
                  auth = psk\n        }\n    }\n}\n";

fn check(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_testudo"));
    command.arg("check").args(args).current_dir(dir).output().unwrap()
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn check_reports_faults_by_file_line_and_severity() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("good.conf", GW);
    write("faulty.conf", &GW.replace("gw {", "gw {\n        mobike = yes"));
    write("cut.conf", GW.strip_suffix("}\n").unwrap());
    write("none.conf", "secrets {\n}\n");
    write("includes.conf", "include g*.conf\n");
    let of = |args: &[&str]| said(&check(dir.path(), args));
    assert_eq!(
        of(&["good.conf"]),
        (Some(0), "good.conf: 1 of 1 connections would load.\n".into(), String::new())
    );
    assert_eq!(of(&["-q", "includes.conf"]), (Some(0), String::new(), String::new()));
    let why =
        "faulty.conf:3: connections.gw.mobike: found \"yes\", but MOBIKE is not supported; expected no\n";
    assert_eq!(of(&["-q", "faulty.conf"]), (Some(1), String::new(), why.into()));
    let (code, _, why) = of(&["cut.conf"]);
    assert_eq!(code, Some(2));
    assert!(why.starts_with("cut.conf:10: found the end of the file, expected }"), "{why}");
    let (code, _, why) = of(&["none.conf"]);
    assert!(code == Some(2) && why.contains("names no connection: loading it would unload all"), "{why}");
    assert_eq!(of(&["-q", "--empty", "none.conf"]).0, Some(0));
    let (code, shown, _) = of(&["good.conf", "faulty.conf"]);
    assert!(code == Some(1) && shown.ends_with("1 of 2 files would load.\n"), "{shown}");
    let (code, _, why) = of(&["gone.conf"]);
    assert!(code == Some(2) && why.starts_with("gone.conf:0: No such file"), "{why}");
}

/// Scripts that are loaded but would not be run are warnings.
#[test]
fn check_reports_scripts_that_would_not_be_run() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("updown");
    let child = format!(
        "gw {{\n        children {{\n            net {{\n                updown = {}\n            }}\n        }}",
        script.display()
    );
    std::fs::write(dir.path().join("gw.conf"), GW.replace("gw {", &child)).unwrap();
    let (code, _, why) = said(&check(dir.path(), &["-q", "gw.conf"]));
    let expected =
        format!("gw.conf:5: warning: connections.gw.children.net.updown: {}: No such file", script.display());
    assert!(code == Some(0) && why.starts_with(&expected), "{why}");
    assert_eq!(said(&check(dir.path(), &["-q", "--no-certificates", "gw.conf"])).2, "");
}

/// The files of that name below a directory.
fn files_named(name: &str, dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let found = entries.flat_map(|path| match path.is_dir() {
        true => files_named(name, &path),
        false if path.ends_with(name) => vec![path],
        false => Vec::new(),
    });
    found.collect()
}

#[test]
fn every_example_would_load_without_a_word_of_warning() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let files = files_named("swanctl.conf", &examples);
    assert!(files.len() >= 8, "{files:?}");
    for file in files {
        let file = file.to_str().unwrap();
        let said = said(&check(&examples, &["-q", "--no-certificates", file]));
        assert_eq!(said, (Some(0), String::new(), String::new()), "{file}");
    }
}
