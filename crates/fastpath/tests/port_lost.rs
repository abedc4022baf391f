//! A port whose interface goes down, comes up, and is deleted under a running worker.

mod support;

use std::process::Command;
use std::time::Duration;
use support::ip;
use support::tunnel::{Options, SERVER, Tunnel};

#[test]
fn a_worker_outlives_its_interface() {
    let tunnel = Tunnel::new(Options::default());
    let left = &tunnel.left;
    let ping = || {
        let arguments = ["-c", "3", "-i", "0.2", "-W", "2", SERVER];
        tunnel.client.run(|| Command::new("ping").args(arguments).output().expect("ping")).status.success()
    };
    assert!(ping());
    left.namespace.run(|| ip("link set wan1 down"));
    assert!(!ping());
    let turns = || left.worker.counters().totals().turns;
    let before = turns();
    std::thread::sleep(Duration::from_secs(1));
    assert!(turns() - before < 200, "{} turns in a second with nothing to do", turns() - before);
    left.namespace.run(|| ip("link set wan1 up"));
    assert!(ping(), "{:?}", left.worker.counters().totals());
    left.namespace.run(|| ip("link delete wan1"));
    assert!(!ping());
    let Tunnel { left, right, .. } = tunnel;
    for gateway in [left, right] {
        assert!(!gateway.worker.is_finished());
        assert_eq!(gateway.worker.stop().unwrap(), 0, "frames leaked");
    }
}
