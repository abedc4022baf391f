//! Commands get to one worker before the other, while bursts of the SA that they are about come in.
//! Its window is as large as one burst.

use super::pool::Gateway;
use super::replay::{accepted, esp_packets, newcomer};
use super::*;
use crate::worker::steal::work;

const WINDOW: u32 = 64;
const OWNER: usize = 0;
const HELPER: usize = 1;

fn tell_all(gateway: &mut Gateway, worker: usize) {
    while gateway.pass_on(worker) {}
    gateway.turn(worker);
}

/// Two bursts come in; the helper takes one, if it may, and the owner that before it or behind it.
/// Answers whether it did.
fn two_bursts(gateway: &mut Gateway, packets: &[Vec<u8>], owner_first: bool) -> bool {
    packets.iter().for_each(|packet| gateway.arrive(OWNER, WAN, packet, Class::Esp));
    let owner = &mut gateway.workers[OWNER];
    owner.receive(WAN);
    owner.receive(WAN);
    let slot = owner.slot.as_mut().unwrap();
    if owner_first && let Some(mut task) = slot.dequeue() {
        work(&mut task, slot, OWNER, &mut owner.pipeline, &mut owner.delivery);
        slot.finish(task);
    }
    let helped = gateway.workers[HELPER].steal();
    gateway.turn(OWNER);
    helped
}

/// Nothing is lost, and nothing has overtaken anything.
fn check(mut gateway: Gateway, mut got: Vec<u32>, expected: u32) {
    got.extend(accepted(&mut gateway, OWNER));
    assert!(got.iter().copied().eq(0..expected), "{got:?}");
    for worker in gateway.workers {
        let totals = worker.counters().totals();
        assert!(totals.is_balanced(), "{totals:?}");
        assert_eq!((totals.dropped_by_pipeline, totals.held), (0, 0), "{totals:?}");
    }
}

#[test]
fn a_worker_without_the_sa_steals_no_burst() {
    let packets = esp_packets();
    let mut gateway = newcomer(2, WINDOW);
    tell_all(&mut gateway, OWNER);
    gateway.turn(HELPER);
    assert!(!two_bursts(&mut gateway, &packets[..2 * BURST], false), "the helper has not heard");
    tell_all(&mut gateway, HELPER);
    let got = accepted(&mut gateway, OWNER);
    assert!(two_bursts(&mut gateway, &packets[2 * BURST..4 * BURST], false), "now it has");
    check(gateway, got, 4 * BURST as u32);
}

#[test]
fn a_worker_ahead_of_the_owner_steals_no_burst() {
    let packets = esp_packets();
    let mut gateway = newcomer(2, WINDOW);
    tell_all(&mut gateway, HELPER);
    gateway.turn(HELPER);
    // As many as may wait for their SA.
    assert!(!two_bursts(&mut gateway, &packets[..2 * BURST], true), "the owner has not heard");
    tell_all(&mut gateway, OWNER);
    let got = accepted(&mut gateway, OWNER);
    assert!(two_bursts(&mut gateway, &packets[2 * BURST..4 * BURST], true), "now both have");
    check(gateway, got, 4 * BURST as u32);
}

#[test]
fn a_worker_that_has_ended_is_not_waited_for() {
    let packets = esp_packets();
    let mut gateway = newcomer(3, WINDOW);
    let gone = gateway.workers.pop().unwrap();
    tell_all(&mut gateway, OWNER);
    tell_all(&mut gateway, HELPER);
    gateway.turn(HELPER);
    assert!(!two_bursts(&mut gateway, &packets[..2 * BURST], false), "one has not heard");
    assert_eq!(gone.close(), 0);
    let got = accepted(&mut gateway, OWNER);
    assert!(two_bursts(&mut gateway, &packets[2 * BURST..4 * BURST], false));
    check(gateway, got, 4 * BURST as u32);
}
