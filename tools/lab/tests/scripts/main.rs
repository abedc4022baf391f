//! Wrong conditions for the scripts (no root, no network, wrong system, full disk) end with one
//! clear line before anything else is done. No test here needs a lab or a network.
#![allow(missing_docs)]

mod install;
mod packages;
mod sandbox;
mod tools;

use sandbox::Sandbox;
use std::fs;
use std::os::unix::fs::PermissionsExt;

pub(crate) const DEMOS: [&str; 4] = ["demo.sh", "demo-cluster.sh", "demo-spread.sh", "demo-migrate.sh"];

/// The scripts that need root, and a kernel for labs.
fn of_labs() -> impl Iterator<Item = &'static str> {
    DEMOS.into_iter().chain(["test.sh"])
}

#[test]
fn a_user_other_than_root_is_refused() {
    let sandbox = Sandbox::new();
    for script in of_labs().chain(["clean-lab.sh"]) {
        sandbox.run_as_nobody(script).is_refusal_at_once(script, &["must run as root"]);
    }
}

#[test]
fn an_old_kernel_is_told_and_a_new_one_is_not() {
    let sandbox = Sandbox::new();
    for script in of_labs() {
        for old in ["6.1.0-18-amd64", "5.10.0", "6.5"] {
            sandbox.program("uname", &format!("echo {old}"));
            sandbox.run(script).is_refusal_at_once(script, &["needs Linux 6.6", old]);
        }
    }
    let uses = sandbox.path("src/target/release/testudo-demo");
    fs::create_dir_all(uses.parent().unwrap()).unwrap();
    fs::write(&uses, "#!/bin/bash\n").unwrap();
    fs::set_permissions(&uses, fs::Permissions::from_mode(0o755)).unwrap();
    for new in ["6.6.0", "6.12+deb13-amd64", "7.0.0-rc1"] {
        sandbox.program("uname", &format!("echo {new}"));
        let outcome = sandbox.run("demo.sh");
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    }
}

#[test]
fn a_word_that_means_nothing_is_refused_before_anything_is_installed() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command("test.sh");
    command.arg("stedy");
    sandbox.finish(command).is_refusal_at_once("test.sh", &["\"stedy\" is none of run, steady and list"]);
}

#[test]
fn a_32_bit_system_is_told() {
    let sandbox = Sandbox::new();
    sandbox.program("getconf", "echo 32");
    for script in of_labs().chain(["build.sh", "install-packages.sh"]) {
        sandbox.run(script).is_refusal_at_once(script, &["needs a 64-bit system"]);
    }
}

#[test]
fn a_small_disk_is_told_before_it_is_full() {
    let sandbox = Sandbox::new();
    for script in of_labs().chain(["build.sh"]) {
        let outcome = sandbox.run_with_small_disk(script, 5120);
        outcome.is_refusal_at_once(script, &[" MB at target, but only 5 MB are free", "CARGO_TARGET_DIR"]);
    }
}

#[test]
fn an_existing_build_needs_no_more_room() {
    let sandbox = Sandbox::new();
    sandbox.program("du", "printf '2990\\ttarget/release\\n'");
    sandbox.program("df", "printf 'Avail\\n20\\n'");
    fs::create_dir_all(sandbox.path("src/target/release")).unwrap();
    let outcome = sandbox.run("build.sh");
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
}

#[test]
fn a_target_directory_of_another_user_is_told() {
    let sandbox = Sandbox::new();
    let outcome = sandbox.run_as_nobody("build.sh");
    outcome.is_refusal(
        "build.sh",
        &["cannot write target/log/build.log: nobody may not; run as the owner of ", "CARGO_TARGET_DIR"],
    );
}

#[test]
fn a_phase_is_a_line_and_the_demo_speaks_for_itself() {
    let sandbox = Sandbox::new();
    sandbox.cargo(
        "for ((i = 0; i < 300; i++)); do echo \"   Compiling crate$i\"; printf '    Building [=> ] %d/300: a\\r' $i; done >&2\n\
         echo '    Finished' >&2\nmkdir -p target/release\n\
         printf '#!/bin/bash\\necho \"The demo: $*\"\\n' >target/release/testudo-demo; chmod +x target/release/testudo-demo",
    );
    let mut command = sandbox.command("demo.sh");
    command.arg("--quick");
    let outcome = sandbox.finish(command);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
    let lines: Vec<_> = outcome.stdout.lines().collect();
    assert_eq!(lines.len(), 5, "{lines:#?}");
    assert_eq!(lines[..2], ["[1/3] packages: all installed", "[2/3] rust: 1.95.0"]);
    assert!(lines[2].starts_with("[3/3] build: "), "{lines:#?}");
    assert!(lines[3].starts_with("[3/3] build: done, "), "{lines:#?}");
    assert_eq!(lines[4], "The demo: --report target/demo/report.json --quick");
    let log = fs::read_to_string(sandbox.path("src/target/log/build.log")).unwrap();
    assert!(log.contains("   Compiling crate299\n") && !log.contains("Building"), "{log}");
}

#[test]
fn progress_is_read_from_the_logs_of_cargo_and_apt() {
    let summary = "0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded.\n";
    let logs = [
        (
            "   Compiling a\n    Building [=>   ] 3/120: a, b\r    Building [==>  ] 12/120: c(build)  \r"
                .into(),
            "12 of 120 compiled",
        ),
        ("Get:1 http://deb.debian.org/debian bookworm InRelease\n".into(), "1 fetched"),
        (format!("{summary}Get:1 http://x\nUnpacking a (1) ...\nSetting up a (1) ...\n"), "1 of 2 unpacked"),
        (
            format!("{summary}Unpacking a (1) ...\nUnpacking b (1) ...\nSetting up a (1) ...\n"),
            "1 of 2 set up",
        ),
        (
            "Waiting for cache lock: Could not get lock /x. It is held by process 7 (apt-get)...\n".into(),
            "waiting for process 7 (apt-get)",
        ),
        ("nothing known\n".into(), ""),
    ];
    let sandbox = Sandbox::new();
    let log = sandbox.path("log");
    for (text, progress) in logs {
        fs::write(&log, text).unwrap();
        let mut command = sandbox.tool("bash");
        command
            .args(["-c", "source \"$1\" && phase_progress \"$2\"", "bash"])
            .arg(sandbox.path("src/scripts/phases.sh"))
            .arg(&log);
        let outcome = sandbox.finish(command);
        assert_eq!((outcome.stdout.trim_end(), outcome.stderr.as_str()), (progress, ""));
    }
}
