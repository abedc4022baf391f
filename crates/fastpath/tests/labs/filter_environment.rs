//! Where the fast path cannot work, it says why.

use crate::support::namespace::Namespace;
use std::process::Command;
use testudo_fastpath::filter::{self, BPFFS, Filter, FilterError, Instance};
use testudo_fastpath::netlink::{Guard, GuardConfig};
use testudo_fastpath::tun::Tun;

/// A test starts itself with this variable set, in the environment that it is about.
const INSIDE: &str = "TESTUDO_TEST_INSIDE";

/// Runs `test` once more, behind a command that changes the environment. It has to pass there, too.
fn run_inside(test: &str, command: &[&str]) {
    let (program, arguments) = command.split_first().expect("a command");
    let instance = Instance::new(&format!("ttbp-{program}-{}", std::process::id())).expect("name");
    let output = Namespace::new().run(|| {
        Command::new(program)
            .args(arguments)
            .arg(std::env::current_exe().expect("this program"))
            .args(["--exact", test])
            .env(INSIDE, instance.name())
            .output()
            .expect(program)
    });
    filter::cleanup(&instance).expect("cleanup");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// The instance's name, inside.
fn inside() -> Option<Instance> {
    std::env::var(INSIDE).ok().map(|name| Instance::new(&name).expect("name"))
}

#[test]
fn missing_rights_are_named() {
    let Some(instance) = inside() else {
        let powerless = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"];
        return run_inside("filter_environment::missing_rights_are_named", &powerless);
    };
    let filter = Filter::open(&instance).map(drop).expect_err("no right to load").to_string();
    assert!(filter.contains("loading the XDP filter") && filter.contains("CAP_BPF"), "{filter}");
    let tun = Tun::open("ttbp2", 1400).map(drop).expect_err("no right to make a TUN").to_string();
    assert!(tun.contains("TUN ttbp2") && tun.contains("CAP_NET_ADMIN"), "{tun}");
    let guard =
        Guard::open(GuardConfig::default(), 1).map(drop).expect_err("no right to make rules").to_string();
    assert!(guard.contains("routing rule 220") && guard.contains("CAP_NET_ADMIN"), "{guard}");
}

#[test]
fn pins_that_would_vanish_with_the_process_are_refused() {
    let Some(instance) = inside() else {
        // As `ip netns exec` does it: a mount namespace of its own, with a /sys without the BPF
        // file system.
        let script = "umount -l /sys && mount -t sysfs sysfs /sys && exec \"$@\"";
        let private = ["unshare", "--mount", "sh", "-c", script, "sh"];
        return run_inside(
            "filter_environment::pins_that_would_vanish_with_the_process_are_refused",
            &private,
        );
    };
    let error = Filter::open(&instance).map(drop).expect_err("a private mount namespace");
    assert!(matches!(error, FilterError::PrivateMount { .. }), "{error}");
    assert!(error.to_string().contains(BPFFS) && error.to_string().contains("nsenter"), "{error}");
}
