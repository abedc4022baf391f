//! Serialised states on other clocks, beside other SAs, and behind the times.

use crate::scenarios::common::allocator::Watched;
use crate::scenarios::common::wire::sent;
use crate::scenarios::common::{Weather, World};
use std::time::Duration;
use testudo_base::spi::SenderId;
use testudo_ike::endpoint::{Endpoint, EndpointConfig, SnapshotError, SnapshotVersion, Target};
use testudo_ike::message::ExchangeType;
use testudo_ike::output::{Event, IkeSaId, Output, Reason, Time};

/// Host 0 asks after 30 seconds of silence.
fn established(seed: u64) -> (World, IkeSaId) {
    let mut world = World::pair_with(seed, Weather::FAIR, |index, connection| {
        if index == 0 {
            connection.dpd_delay = Duration::from_secs(30);
        }
    });
    let id = world.establish();
    (world, id)
}

fn successor() -> Endpoint {
    let (alloc, _) = Watched::new(5, SenderId(9));
    Endpoint::new(EndpointConfig::default(), Box::new(alloc))
}

fn outputs(endpoint: &mut Endpoint) -> Vec<Output> {
    std::iter::from_fn(|| endpoint.poll_output()).collect()
}

/// The clock of the node that continues began long after, or long before, that of the node that
/// died.
#[test]
fn deadlines_do_not_depend_on_whose_clock_it_is() {
    for (theirs, ours) in [(500_000, 200), (200, 500_000)] {
        let (mut world, id) = established(1);
        world.run_secs(theirs);
        let state = world.hosts[0].endpoint.export_sa(world.now, id).unwrap();
        let before = world.hosts[0].endpoint.next_timeout().unwrap().since(world.now);
        let established = world.now.since(world.hosts[0].sas()[0].established.unwrap());

        let mut now = Time(Duration::from_secs(ours));
        let mut successor = successor();
        successor.import_sa(now, &state).unwrap();
        assert_eq!(
            successor.next_timeout().unwrap().since(now),
            before,
            "the liveness check is due as it was"
        );
        let age = now.since(successor.sa(id).unwrap().established.unwrap());
        assert_eq!(age, established.min(now.0), "as old as this clock can tell");

        // The peer is silent: the check goes out, is repeated, and ends it.
        let begun = now;
        let mut messages = 0;
        let down = loop {
            now = successor.next_timeout().expect("it does not wait for ever");
            successor.handle_timeout(now);
            let outputs = outputs(&mut successor);
            messages += outputs.iter().filter(|output| matches!(output, Output::Send { .. })).count();
            let down = outputs.into_iter().find_map(|output| match output {
                Output::Event(Event::IkeDown(_, reason)) => Some(reason),
                _ => None,
            });
            if let Some(down) = down {
                break down;
            }
        };
        assert!(matches!(down, Reason::Timeout { transmissions: 6, .. }), "{down}");
        assert_eq!(messages, 6);
        assert_eq!(now.since(begun).as_secs(), (before + Duration::from_secs(165)).as_secs());
    }
}

#[test]
fn a_request_under_way_is_repeated_when_it_would_have_been() {
    let mut world = World::pair(2, Weather::FAIR);
    world.network.up = false;
    let id = world.initiate(0);
    world.run_secs(1);
    let state = world.hosts[0].endpoint.export_sa(world.now, id).unwrap();
    let now = Time(Duration::from_secs(7));
    let mut successor = successor();
    successor.import_sa(now, &state).unwrap();
    assert_eq!(successor.next_timeout(), Some(now.plus(Duration::from_secs(3))), "4 s after it was sent");
}

/// Every node counts from 1: equal numbers say nothing, and an SA goes only with a word to the
/// host.
#[test]
fn an_unrelated_sa_of_the_same_number_stays() {
    let (mut ours, id) = established(3);
    let (theirs, same) = established(4);
    assert_eq!(id, same);
    let state = theirs.hosts[0].endpoint.export_sa(theirs.now, id).unwrap();
    let now = ours.now;
    let host = &mut ours.hosts[0];
    let before = host.sas();
    let taken = host.endpoint.import_sa(now, &state).unwrap();
    assert_ne!(taken, id);
    let [kept, new] = host.sas().try_into().expect("two IKE SAs");
    assert_eq!(before, std::slice::from_ref(&kept));
    assert_eq!((new.id, new.spi_i), (taken, theirs.hosts[0].sas()[0].spi_i));
    assert_ne!(new.children[0].id, kept.children[0].id);
    // Each goes by its own number.
    ours.hosts[0].endpoint.terminate(now, &Target::Child(kept.children[0].id), true).unwrap();
    let [kept, new] = ours.hosts[0].sas().try_into().expect("two IKE SAs");
    assert_eq!((kept.children.len(), new.children.len()), (0, 1));
    // And the newcomer is known when it comes again.
    assert_eq!(ours.hosts[0].endpoint.import_sa(now, &state), Ok(taken));
    assert_eq!(ours.hosts[0].sas().len(), 2);
}

/// A Child SA may wait for the place of one of another IKE SA. It finds it under whatever number
/// that has here, and in whatever order the two come.
#[test]
fn a_child_sa_waiting_for_another_ike_sa_finds_it_by_its_new_number() {
    for reversed in [false, true] {
        let (mut world, old) = established(7);
        let (now, ike) = (world.now, world.hosts[1].sas()[0].id);
        assert!(world.hosts[1].endpoint.reauthenticate_ike(now, ike));
        world.settle(1);
        world.run_until(|world| world.hosts[0].installed.len() == 2);
        let host = &world.hosts[0];
        let spi = |id| host.sas().iter().find(|sa| sa.id == id).unwrap().children[0].spi_in;
        let new = host.sas().iter().map(|sa| sa.id).find(|id| *id != old).unwrap();
        let spis = [old, new].map(spi);
        let mut states = [old, new].map(|id| host.endpoint.export_sa(world.now, id).unwrap());
        if reversed {
            states.reverse();
        }
        // Another node, where the numbers are those of others.
        let mut other = established(8).0;
        let now = other.now;
        let host = &mut other.hosts[0];
        for state in &states {
            host.endpoint.import_sa(now, state).unwrap();
        }
        let child = |spi| {
            let sas = host.endpoint.sas().flat_map(|sa| sa.children);
            sas.into_iter().find(|child| child.spi_in == spi).unwrap().id
        };
        let [from, to] = spis.map(child);
        outputs(&mut host.endpoint);
        host.endpoint.traffic_seen(now, to);
        let switched = outputs(&mut host.endpoint);
        assert!(switched.contains(&Output::SwitchChild { from, to }), "{switched:?}");
    }
}

fn assert_stale(world: &mut World, old: &[u8]) {
    let now = world.now;
    let refused = world.hosts[0].endpoint.import_sa(now, old);
    assert!(matches!(refused, Err(SnapshotError::Stale { .. })), "{refused:?}");
}

/// An older state does not undo an operator's request, even if nothing could be sent yet.
#[test]
fn a_termination_that_waits_is_a_change() {
    let child = || Target::ChildName { connection: None, child: "net".into() };
    for target in [Target::All, child()] {
        let (mut world, id) = established(5);
        world.network.up = false;
        world.run_secs(31);
        assert_eq!(sent(&world, 0, ExchangeType::Informational, false).len(), 1, "a check is under way");
        let now = world.now;
        let old = world.hosts[0].endpoint.export_sa(now, id).unwrap();
        world.hosts[0].endpoint.terminate(now, &target, false).unwrap();
        world.settle(0);
        assert_stale(&mut world, &old);
    }
}

#[test]
fn a_repetition_is_a_change() {
    let mut world = World::pair(6, Weather::FAIR);
    world.network.up = false;
    let id = world.initiate(0);
    let old = world.hosts[0].endpoint.export_sa(world.now, id).unwrap();
    world.run_secs(5);
    assert_eq!(sent(&world, 0, ExchangeType::IkeSaInit, false).len(), 2);
    assert_stale(&mut world, &old);
}

/// Nodes of two versions may have one cluster: what the older do not read is left out for them.
#[test]
fn a_state_for_older_builds_says_less_and_is_read_by_all() {
    let (mut world, id) = established(1);
    let endpoint = &mut world.hosts[0].endpoint;
    let whole = endpoint.export_sa(world.now, id).unwrap();
    let versions = [
        SnapshotVersion::V30,
        SnapshotVersion::V29,
        SnapshotVersion::V28,
        SnapshotVersion::V27,
        SnapshotVersion::V26,
    ];
    let [last, recent, old, older, oldest] = versions.map(|version| {
        endpoint.replication_mut().export_as(version);
        let state = endpoint.export_sa(world.now, id).unwrap();
        assert_eq!(endpoint.replication().exported_again(&whole), Some(state.clone()));
        assert_eq!(endpoint.replication().exported_again(&state), None);
        state
    });
    let states = [&whole, &last, &recent, &old, &older, &oldest];
    assert_eq!(
        states.map(|state| [state[0], state[1]]),
        [31, 30, 29, 28, 27, 26].map(|version| [0, version])
    );
    for (more, less) in states.into_iter().zip(&states[1..]) {
        assert_eq!(more[2..less.len()], less[2..], "what is new stands behind it");
        assert!(more.len() > less.len());
    }
    for state in states {
        successor().import_sa(world.now, state).unwrap();
        let (cut, longer) = (&state[..state.len() - 1], [&state[..], &[0]].concat());
        for damaged in [cut, &longer] {
            let refused = successor().import_sa(world.now, damaged);
            assert_eq!(refused, Err(SnapshotError::Damaged(damaged.len())));
        }
    }
}
