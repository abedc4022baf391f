//! Migrations with attackers on the wire, whom both testudods watch for.

use super::hosts::{Hosts, ended, report};
use super::{FAST, PAUSE, SLOW, at_the_source_after};
use serde_json::json;
use testudo_lab::topology::{Family, Side};

/// With `--cancel-on never` nobody asks for alarms: the daemons raise them all the same, and none
/// of the attacks keeps the virtual machine from moving. The sender of its memory is lied to about
/// the path and about the destination's MAC address, and its receiver gets all that is forged.
#[test]
fn no_attack_disturbs_a_migration() {
    let hosts = Hosts::start("migrate-attacked");
    // Long enough for all attacks, in the one round that an emulated virtual machine moves in.
    hosts.slow("16mbit");
    let migration = hosts.begin(FAST, &["--cancel-on", "never", "--downtime", PAUSE]);
    let attackers = ["replay", "forge", "flood", "arp", "pmtu"].map(|kind| hosts.attack(kind, Side::One));
    hosts.await_alarms(Side::One, &["address-spoofing", "path-mtu"]);
    hosts.await_alarms(Side::Two, &["replay-burst", "forged-packets", "half-open-flood"]);
    hosts.hurry();
    let (report, succeeded) = ended(migration);
    assert!(succeeded, "{report:#}");
    assert_eq!(report["requirements"][3]["found"], "not asked for (--cancel-on never)");
    assert_eq!((&report["runs_at"], &report["actions"]), (&json!("destination"), &json!([])), "{report:#}");
    hosts.run_at_destination();
    for mut attacker in attackers {
        attacker.alive().unwrap();
    }
}

#[test]
fn an_alarm_cancels() {
    let mut hosts = Hosts::start("migrate-alarm");
    let migration = hosts.begin(SLOW, &["--cancel-on", "warning"]);
    let mut attacker = hosts.attack("forge", Side::One);
    let cancelled = at_the_source_after("cancelled", migration);
    let reason = cancelled["reason"].as_str().unwrap();
    let expected = "alarm at the destination: forged-packets, CHILD_SA #";
    assert!(reason.starts_with(expected) && reason.contains("sequence number"), "{reason}");
    hosts.run_at_source();
    // The attack goes on, and no further alarm comes.
    hosts.start_destination_anew();
    let refused = report(&hosts.command(&["--cancel-on", "warning"]).run_any().unwrap());
    attacker.alive().unwrap();
    assert_eq!(refused["result"], "refused", "{refused:#}");
    let found = refused["requirements"][3]["found"].as_str().unwrap();
    assert!(found.starts_with("an alarm goes on at the destination: forged-packets, CHILD_SA #"), "{found}");
    drop(attacker);
    a_critical_alarm_at_the_source_cancels(&hosts);
}

/// By default. The other one, which may still go on, is a warning.
fn a_critical_alarm_at_the_source_cancels(hosts: &Hosts) {
    let migration = hosts.begin(SLOW, &[]);
    let _attacker = hosts.attack("arp", Side::One);
    let cancelled = at_the_source_after("cancelled", migration);
    let reason = cancelled["reason"].as_str().unwrap();
    let peer = Side::Two.outer(Family::V4);
    assert!(reason.starts_with(&format!("alarm at the source: address-spoofing, {peer}: ")), "{reason}");
    let watched = cancelled["requirements"][3]["found"].as_str().unwrap();
    assert!(watched.contains("alarms that do not cancel: replay-burst (warning), "), "{watched}");
    hosts.run_at_source();
}

/// A daemon that does not watch is no protection.
#[test]
fn a_migration_that_nobody_watches_is_refused() {
    let hosts = Hosts::start_unwatched("migrate-unwatched");
    let done = hosts.command(&[]).run_any().unwrap();
    let report = report(&done);
    assert!(!done.status.success());
    let requirements = report["requirements"].as_array().unwrap();
    let met = requirements.iter().map(|one| &one["ok"]);
    assert_eq!(met.collect::<Vec<_>>(), [true, true, true, false], "{report:#}");
    assert_eq!(report["result"], "refused");
    assert_eq!(requirements[3]["found"], "the destination's testudod does not watch", "{report:#}");
    hosts.run_at_source();
}
