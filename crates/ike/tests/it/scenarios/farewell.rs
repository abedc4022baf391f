//! The endpoint shuts down, and has a few seconds to tell its peers.

use crate::scenarios::common::wire::{assert_ivs_never_repeat, sent};
use crate::scenarios::common::{Weather, World};
use std::time::Duration;
use testudo_ike::message::ExchangeType;
use testudo_ike::output::{Event, Reason};

const WITHIN: Duration = Duration::from_secs(3);

/// Host 0 asks after 30 seconds of silence.
fn established(seed: u64) -> World {
    World::established(seed, |index, connection| {
        if index == 0 {
            connection.dpd_delay = Duration::from_secs(30);
        }
    })
}

fn shut_down(world: &mut World) {
    let now = world.now;
    world.hosts[0].endpoint.shut_down(now, WITHIN);
    world.settle(0);
}

/// The peer was told, and host 0 has nothing left, in time.
fn assert_told(world: &World) {
    let told = |event: &Event| matches!(event, Event::IkeDown(_, Reason::DeletedByPeer));
    assert!(world.hosts[1].events.iter().any(told), "{:?}", world.hosts[0].log());
    assert_nothing_is_up(world);
}

fn assert_nothing_is_up(world: &World) {
    assert!(world.hosts.iter().all(|host| host.sas().is_empty() && host.installed.is_empty()));
    assert_ivs_never_repeat(world);
}

#[test]
fn a_lost_delete_is_repeated_in_time() {
    for lost in 1..=5 {
        let mut world = established(1);
        world.network.up = false;
        shut_down(&mut world);
        let deletes = |world: &World| sent(world, 0, ExchangeType::Informational, false).len();
        assert_eq!(deletes(&world), 1);
        world.run_until(|world| deletes(world) == lost);
        world.network.up = true;
        world.run(WITHIN - Duration::from_millis(500) * (lost as u32 - 1));
        assert_told(&world);
    }
}

#[test]
fn a_liveness_check_without_an_answer_does_not_keep_the_delete_back() {
    // At any time after the check: the next of its usual repetitions is up to 70 seconds away.
    for silence in [31, 50, 100, 150] {
        let mut world = established(2);
        world.network.up = false;
        world.run_secs(silence);
        let before = sent(&world, 0, ExchangeType::Informational, false).len();
        assert!(before > 0, "a check is under way");
        shut_down(&mut world);
        assert_eq!(sent(&world, 0, ExchangeType::Informational, false).len(), before, "the window is one");
        world.run_secs(1);
        world.network.up = true;
        world.run_secs(2);
        assert_told(&world);
    }
}

#[test]
fn an_sa_on_its_way_up_is_taken_down() {
    let mut world = World::pair(3, Weather::FAIR);
    world.initiate(0);
    world.run_until(|world| !sent(world, 0, ExchangeType::IkeAuth, false).is_empty());
    // The answer is lost; the peer has the SA.
    world.run_until(|world| !sent(world, 1, ExchangeType::IkeAuth, true).is_empty());
    world.hosts[0].stopped = true;
    world.run(Duration::from_millis(50));
    world.hosts[0].stopped = false;
    assert_eq!(world.hosts[1].sas().len(), 1);
    shut_down(&mut world);
    world.run(WITHIN);
    // Without its connection the SA cannot come up any more, and the peer hears so.
    assert_nothing_is_up(&world);
}

#[test]
fn a_silent_peer_is_not_waited_for() {
    let mut world = established(4);
    world.hosts[1].stopped = true;
    shut_down(&mut world);
    world.run(WITHIN);
    assert_eq!(world.hosts[0].sas(), []);
    assert!(world.hosts[0].installed.is_empty());
    assert_eq!(sent(&world, 0, ExchangeType::Informational, false).len(), 6);
}

#[test]
fn nothing_comes_up_any_more() {
    let mut world = established(5);
    shut_down(&mut world);
    world.run(WITHIN);
    assert_told(&world);
    let now = world.now;
    assert!(world.hosts[0].endpoint.initiate(now, None, "net").is_err());
    world.initiate(1);
    world.run_secs(10);
    assert!(world.hosts.iter().all(|host| host.installed.is_empty()));
    assert_eq!(world.hosts[0].sas(), []);
}
