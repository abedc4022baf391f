//! A port whose interface goes down, comes up, and is deleted under a running worker.

use crate::hosts::eventually;
use crate::support::ip;
use crate::support::tunnel::{Options, SERVER, Tunnel};
use std::process::Command;
use std::time::{Duration, Instant};

/// Turns a second. A worker that sleeps while it has nothing to do makes some tens, and one that
/// does not some hundred thousands.
const MANY: f64 = 20_000.0;

#[test]
fn a_worker_outlives_its_interface() {
    let tunnel = Tunnel::new(Options::default());
    let left = &tunnel.left;
    // True if one of three is answered within a second.
    let ping = || {
        let arguments = ["-c", "3", "-i", "0.2", "-W", "1", SERVER];
        tunnel.client.run(|| Command::new("ping").args(arguments).output().expect("ping")).status.success()
    };
    eventually("the tunnel carries", ping);
    left.namespace.run(|| ip("link set wan1 down"));
    assert!(!ping());
    let turns = || left.worker.counters().totals().turns;
    let (begun, before) = (Instant::now(), turns());
    std::thread::sleep(Duration::from_secs(1));
    let (made, took) = (turns() - before, begun.elapsed());
    assert!(made as f64 / took.as_secs_f64() < MANY, "{made} turns in {took:?} with nothing to do");
    left.namespace.run(|| ip("link set wan1 up"));
    eventually("the tunnel carries again", ping);
    left.namespace.run(|| ip("link delete wan1"));
    assert!(!ping());
    let Tunnel { left, right, .. } = tunnel;
    for gateway in [left, right] {
        assert!(!gateway.worker.is_finished());
        assert_eq!(gateway.worker.stop().unwrap(), 0, "frames leaked");
    }
}
