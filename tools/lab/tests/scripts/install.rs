//! `make install`: the installed files.

use crate::sandbox::Sandbox;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A sandbox in which both programs are built. This test program, which has symbols, stands in for
/// them.
fn built() -> Sandbox {
    let sandbox = Sandbox::new();
    let release = sandbox.path("src/target/release");
    fs::create_dir_all(&release).unwrap();
    for name in ["testudod", "testudo"] {
        fs::copy(std::env::current_exe().unwrap(), release.join(name)).unwrap();
    }
    fs::create_dir_all(sandbox.path("src/dist")).unwrap();
    let unit = "ExecStart=/usr/local/sbin/testudod --config /etc/testudo/testudo.toml\n";
    fs::write(sandbox.path("src/dist/testudod.service"), unit).unwrap();
    sandbox
}

/// Whether a program has a section.
fn has(program: &Path, section: &str) -> bool {
    let output = Command::new("readelf").args(["--sections", "--wide"]).arg(program).output().unwrap();
    assert!(output.status.success(), "{}", program.display());
    String::from_utf8_lossy(&output.stdout).contains(section)
}

fn install(sandbox: &Sandbox, prefix: Option<&str>) -> Vec<PathBuf> {
    let root = sandbox.path("root");
    let mut command = sandbox.command("install.sh");
    command.env("DESTDIR", &root).envs(prefix.map(|prefix| ("PREFIX", prefix)));
    let outcome = sandbox.finish(command);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
    // "PROGRAM, its symbols in FILE", and the unit.
    outcome.stdout.lines().flat_map(|line| line.split(", its symbols in ")).map(PathBuf::from).collect()
}

#[test]
fn programs_are_stripped_and_their_symbols_lie_where_debuggers_look() {
    let sandbox = built();
    let said = install(&sandbox, None);
    let [daemon, symbols, tool, _, unit] = said.as_slice() else { panic!("{said:?}") };
    assert_eq!(*daemon, sandbox.path("root/usr/local/sbin/testudod"));
    assert_eq!(*tool, sandbox.path("root/usr/local/sbin/testudo"));
    assert!(symbols.starts_with(sandbox.path("root/usr/lib/debug/.build-id")), "{said:?}");
    assert!(!has(daemon, ".symtab") && has(symbols, ".symtab"), "{said:?}");
    assert!(has(&sandbox.path("src/target/release/testudod"), ".symtab"), "what is built stays");
    assert_eq!(fs::metadata(daemon).unwrap().permissions().mode() & 0o7777, 0o755);
    assert_eq!(*unit, sandbox.path("root/etc/systemd/system/testudod.service"));
    assert!(fs::read_to_string(unit).unwrap().contains("=/usr/local/sbin/testudod "));
}

#[test]
fn a_package_has_its_own_prefix_and_the_unit_knows_it() {
    let sandbox = built();
    let said = install(&sandbox, Some("/usr"));
    assert_eq!(said[0], sandbox.path("root/usr/sbin/testudod"));
    let unit = fs::read_to_string(sandbox.path("root/usr/lib/systemd/system/testudod.service")).unwrap();
    assert!(unit.starts_with("ExecStart=/usr/sbin/testudod "), "{unit}");
}

#[test]
fn programs_that_are_not_built_are_not_installed() {
    let sandbox = built();
    fs::remove_file(sandbox.path("src/target/release/testudo")).unwrap();
    let mut command = sandbox.command("install.sh");
    command.env("DESTDIR", sandbox.path("root"));
    let outcome = sandbox.finish(command);
    outcome.is_refusal_at_once("install.sh", &["target/release/testudo is not there", "make build"]);
    assert!(!sandbox.path("root").exists());
}
