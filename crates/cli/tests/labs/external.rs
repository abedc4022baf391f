//! `testudo NAME` runs `testudo-NAME`.

use crate::support::install;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Puts a program there that says its own place and what it was given, and ends with a code.
fn program(path: &Path, code: u8) {
    install(format!("#!/bin/sh\necho \"$0\" \"$@\"\nexit {code}\n").as_bytes(), path);
}

/// A testudo in a directory where no other program of the workspace is.
fn alone(dir: &Path) -> PathBuf {
    let testudo = dir.join("own/testudo");
    install(&fs::read(env!("CARGO_BIN_EXE_testudo")).unwrap(), &testudo);
    testudo
}

fn run(testudo: &Path, path: &str, args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(testudo).args(args).env("PATH", path).output().unwrap();
    let text = |octets| String::from_utf8(octets).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn a_program_beside_it_comes_before_one_in_the_path() {
    let dir = tempfile::tempdir().unwrap();
    let testudo = alone(dir.path());
    let in_path = dir.path().join("path/testudo-hello");
    let path = in_path.parent().unwrap().to_str().unwrap();
    program(&in_path, 3);
    let said = |place: &Path| format!("{} world --json -x\n", place.display());
    let args = ["hello", "world", "--json", "-x"];
    assert_eq!(run(&testudo, path, &args), (Some(3), said(&in_path), String::new()));
    let beside = dir.path().join("own/testudo-hello");
    program(&beside, 0);
    assert_eq!(run(&testudo, path, &args), (Some(0), said(&beside), String::new()));
}

#[test]
fn a_missing_program_is_reported_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let testudo = alone(dir.path());
    let (code, _, why) = run(&testudo, "/nowhere", &["bench", "esp"]);
    assert_eq!(code, Some(127));
    assert!(why.contains("no program testudo-bench beside testudo or in PATH"), "{why}");
    assert!(why.contains("cargo build --release --package testudo-bench"), "{why}");
    let (code, _, why) = run(&testudo, "/nowhere", &["statsu"]);
    assert!(code == Some(127) && why.contains("there is no command statsu"), "{why}");
    assert!(why.ends_with("`testudo --help` lists the commands.\n"), "{why}");
}

/// Neither a file that cannot be run, nor a directory with a relative path.
#[test]
fn nothing_else_is_run() {
    let dir = tempfile::tempdir().unwrap();
    let testudo = alone(dir.path());
    program(&dir.path().join("path/testudo-hello"), 0);
    let working = |path: &str, name: &str| {
        let mut command = Command::new(&testudo);
        command.arg(name).env("PATH", path).current_dir(dir.path().join("path"));
        command.output().unwrap().status.code()
    };
    assert_eq!(working("", "hello"), Some(127), "the working directory");
    assert_eq!(working(":.", "hello"), Some(127), "the working directory");
    let path = dir.path().join("path");
    let path = path.to_str().unwrap();
    assert_eq!(working(path, "hello"), Some(0));
    assert_eq!(working(path, "../path/testudo-hello"), Some(127), "a path is no name");
    fs::set_permissions(format!("{path}/testudo-hello"), fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(working(path, "hello"), Some(127), "not executable");
}
