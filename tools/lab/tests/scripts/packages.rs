//! Tests of scripts/install-packages.sh.

use crate::sandbox::Sandbox;
use std::fs;
use std::os::unix::fs::symlink;

const SCRIPT: &str = "install-packages.sh";
const LOG: &str = "target/log/packages.log";

/// A Debian 12 without two packages, which apt knows; `arms` are the commands of apt.
fn lacking(arms: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.installed_but(&["nginx", "tshark"]);
    sandbox.apt(&["nginx", "tshark"], arms);
    sandbox
}

#[test]
fn another_distribution_is_refused_by_name() {
    let sandbox = Sandbox::new();
    sandbox.without_program("dpkg-query");
    sandbox.os_release("arch", "1", "Arch Linux");
    let parts = ["needs Debian 12, but this is Arch Linux", "TESTUDO_PACKAGES=present"];
    sandbox.run(SCRIPT).is_refusal_at_once(SCRIPT, &parts);
    sandbox.run("demo.sh").is_refusal_at_once(SCRIPT, &parts);
    // Follows the suggestion of the message.
    let mut command = sandbox.command("build.sh");
    command.env("TESTUDO_PACKAGES", "present");
    let outcome = sandbox.finish(command);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
}

#[test]
fn a_system_without_os_release_is_told_too() {
    let sandbox = Sandbox::new();
    sandbox.without_program("dpkg-query");
    fs::remove_file(sandbox.path("system/etc/os-release")).unwrap();
    sandbox.run(SCRIPT).is_refusal_at_once(SCRIPT, &["this is unknown"]);
}

#[test]
fn an_old_debian_is_told() {
    let sandbox = lacking("*) echo must not be asked >&2; exit 1 ;;");
    sandbox.os_release("debian", "11", "Debian GNU/Linux 11 (bullseye)");
    sandbox
        .run(SCRIPT)
        .is_refusal_at_once(SCRIPT, &["needs Debian 12, but this is Debian GNU/Linux 11 (bullseye)"]);
}

#[test]
fn packages_that_apt_does_not_know_are_named() {
    let sandbox = lacking("update) echo Hit:1 ;;\n*) echo must not be asked >&2; exit 1 ;;");
    sandbox.installed_but(&["nginx", "tshark", "wireguard-go", "libipsec-mb-dev"]);
    sandbox.os_release("ubuntu", "20.04", "Ubuntu 20.04.6 LTS");
    sandbox
        .run(SCRIPT)
        .is_refusal(SCRIPT, &["apt on Ubuntu 20.04.6 LTS does not know libipsec-mb-dev wireguard-go;", LOG]);
}

#[test]
fn only_root_may_install() {
    let sandbox = lacking("*) echo must not be asked >&2; exit 1 ;;");
    sandbox.run_as_nobody(SCRIPT).is_refusal_at_once(SCRIPT, &["2 packages are missing", "as root"]);
}

#[test]
fn no_network_and_no_lists_is_no_network() {
    let sandbox = lacking(
        "update) echo \"E: Failed to fetch http://deb.debian.org/debian/dists/bookworm/InRelease  \
         Temporary failure resolving 'deb.debian.org'\" >&2; exit 100 ;;\n*) echo must not be asked >&2; exit 1 ;;",
    );
    sandbox.program("apt-cache", "");
    let parts = [
        "cannot download (Failed to fetch http://deb.debian.org",
        "resolving 'deb.debian.org')",
        "check the network",
        LOG,
    ];
    sandbox.run(SCRIPT).is_refusal(SCRIPT, &parts);
}

#[test]
fn an_archive_that_is_not_needed_may_be_away() {
    let sandbox =
        lacking("update) echo 'E: Failed to fetch http://third.example' >&2; exit 100 ;;\ninstall) ;;");
    let outcome = sandbox.run(SCRIPT);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
}

#[test]
fn a_known_failure_of_apt_is_one_line() {
    let failures = [
        ("E: dpkg was interrupted, you must manually run 'dpkg --configure -a'", "run 'dpkg --configure -a'"),
        (
            "E: You don't have enough free space in /var/cache/apt/archives/.",
            "the disk is full (You don't have enough free space",
        ),
        (
            "dpkg: error processing archive x.deb: cannot copy: No space left on device",
            "the disk is full (dpkg: error",
        ),
        (
            "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)",
            "another package manager is at work (lock held by process 7 (apt-get))",
        ),
        (
            "E: Unable to acquire the dpkg frontend lock (/x), is another process using it?",
            "another package manager is at work;",
        ),
        (
            "E: Failed to fetch http://deb.debian.org/x.deb  Could not connect to debian.org:80",
            "cannot download (Failed to fetch",
        ),
    ];
    for (said, expected) in failures {
        let sandbox = lacking(&format!("update) ;;\ninstall) echo \"{said}\" >&2; exit 100 ;;"));
        sandbox.run(SCRIPT).is_refusal(SCRIPT, &[expected, LOG]);
    }
}

#[test]
fn a_small_disk_is_told_before_apt_fills_it() {
    let sandbox = lacking("update) ;;\n*) echo must not be asked >&2; exit 1 ;;");
    sandbox.program("df", "printf 'Avail\\n    2\\n'");
    sandbox.run(SCRIPT).is_refusal(SCRIPT, &["need 4 MB at /usr, but only 2 MB are free"]);
}

#[test]
fn no_service_is_started_or_left_enabled() {
    let sandbox = Sandbox::new();
    sandbox.installed_but(&["nginx"]);
    let wants = sandbox.path("system/etc/systemd/system/multi-user.target.wants");
    let policy = sandbox.path("system/usr/sbin/policy-rc.d");
    // iperf3 was enabled before, so it must stay enabled.
    symlink("/dev/null", wants.join("iperf3.service")).unwrap();
    sandbox.program("ln", "exec /bin/ln \"$@\"");
    sandbox.apt(
        &["nginx"],
        &format!(
            "update) ;;\ninstall) ln -s /dev/null {0}/nginx.service; ln -s /lib/nginx.service {0}/../web.service; \
             bash {1}; echo policy $? ;;",
            wants.display(),
            policy.display()
        ),
    );
    let outcome = sandbox.run(SCRIPT);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(fs::read_to_string(sandbox.path("src").join(LOG)).unwrap().contains("policy 101"));
    assert!(!policy.exists());
    assert!(fs::symlink_metadata(wants.join("../web.service")).is_err(), "an alias is left");
    let left: Vec<_> = fs::read_dir(wants).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["iperf3.service"]);
}

#[test]
fn a_failed_installation_leaves_no_policy() {
    let sandbox = lacking("update) ;;\ninstall) exit 100 ;;");
    assert_eq!(sandbox.run(SCRIPT).code, Some(100));
    assert!(!sandbox.path("system/usr/sbin/policy-rc.d").exists());
}
