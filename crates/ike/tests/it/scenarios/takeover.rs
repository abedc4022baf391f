//! Another node continues after any event, with only the serialised states.

use crate::scenarios::common::allocator::Watched;
use crate::scenarios::common::wire::{assert_ivs_never_repeat, sent};
use crate::scenarios::common::world::handing_out;
use crate::scenarios::common::{Random, Weather, World};
use std::time::Duration;
use testudo_base::spi::SenderId;
use testudo_ike::alloc::SingleNodeAllocator;
use testudo_ike::endpoint::{Endpoint, EndpointConfig, SnapshotError, Target};
use testudo_ike::message::{ExchangeType, Message};

/// The whole life of a tunnel, with a takeover of host `host` after event number `at`. Gives the
/// number of events.
fn life(host: usize, at: Option<usize>) -> usize {
    let mut world = World::pair_with(1, Weather::FAIR, |index, connection| {
        if index == 0 {
            connection.dpd_delay = Duration::from_secs(30);
        }
    });
    world.initiate(0);
    let mut events = 0;
    let mut step = |world: &mut World, seconds: u64| {
        let end = world.now.plus(Duration::from_secs(seconds));
        while world.step(end) {
            events += 1;
            if at == Some(events) {
                let now = world.now;
                world.hosts[host].take_over(now);
            }
        }
        world.now = end;
    };
    step(&mut world, 100);
    world.assert_tunnel();
    assert!(world.hosts[0].results()[0].is_ok());
    let now = world.now;
    world.hosts[1].endpoint.terminate(now, &Target::All, false).unwrap();
    world.settle(1);
    step(&mut world, 100);
    world.assert_nothing_left();
    assert_ivs_never_repeat(&world);
    events
}

#[test]
fn at_every_event_on_either_side() {
    let events = life(0, None);
    assert!(events > 10);
    for host in 0..2 {
        for at in 1..=events {
            life(host, Some(at));
        }
    }
}

#[test]
fn at_random_in_foul_weather() {
    (0..100).for_each(|seed| foul_weather(seed, EndpointConfig::default()));
}

/// A running computation is lost with its node.
#[test]
fn at_random_in_foul_weather_with_jobs_out() {
    (0..100).for_each(|seed| foul_weather(seed, handing_out()));
}

fn foul_weather(seed: u64, config: EndpointConfig) {
    let addrs = ["192.0.2.1", "192.0.2.2"];
    let mut world = World::pair_of(addrs, seed, Weather::FOUL, config, |_, connection| {
        connection.keyingtries = 0;
        connection.dpd_delay = Duration::from_secs(30);
    });
    world.initiate(0);
    let end = world.now.plus(Duration::from_secs(200));
    while world.step(end) {
        if world.network.random.percent(10) {
            let (host, now) = (world.network.random.below(2) as usize, world.now);
            world.hosts[host].take_over(now);
        }
    }
    world.network.weather = Weather::FAIR;
    world.run_secs(400);
    world.initiate(0);
    world.run_secs(60);
    world.assert_tunnel();
    assert_ivs_never_repeat(&world);
}

#[test]
fn an_older_state_of_an_ike_sa_is_refused() {
    let mut world = World::pair(2, Weather::FAIR);
    let id = world.initiate(0);
    world.run_until(|world| !sent(world, 0, ExchangeType::IkeAuth, false).is_empty());
    let old = world.hosts[0].endpoint.export_sa(world.now, id).unwrap();
    world.run_secs(1);
    let now = world.now;
    let refused = world.hosts[0].endpoint.import_sa(now, &old);
    assert!(matches!(refused, Err(SnapshotError::Stale { .. })), "{refused:?}");
    world.assert_tunnel();
}

#[test]
fn a_successor_makes_ivs_of_its_own_and_new_numbers() {
    let mut world = World::pair_with(5, Weather::FAIR, |index, connection| {
        let nets = ["10.50.0.0-10.50.0.255", "10.60.0.0-10.60.0.255"];
        let child = crate::scenarios::common::build::child("more", nets[index], nets[1 - index]);
        connection.children.push(child);
    });
    let old = world.initiate(0);
    world.run_secs(1);
    let now = world.now;
    world.hosts[0].take_over(now);
    let ivs = |world: &World| -> Vec<[u8; 2]> {
        let messages = world.hosts[0].sent.iter().map(|(_, bytes)| Message::parse(bytes).unwrap());
        messages.filter_map(|m| m.encrypted?.body.first_chunk().copied()).collect()
    };
    let before = ivs(&world);
    let new = world.hosts[0].endpoint.initiate(now, Some("site"), "more").unwrap();
    world.settle(0);
    world.run_secs(1);
    let [first, second] = [0, 1].map(|index| world.hosts[0].sas()[0].children[index].clone());
    assert!(old == new && first.id < second.id && first.reqid != second.reqid);
    let now = world.now;
    world.hosts[0].endpoint.terminate(now, &Target::Ike(old), false).unwrap();
    world.settle(0);
    let after = ivs(&world).split_off(before.len());
    assert!(before.iter().all(|sender| *sender == [0, 1]), "{before:?}");
    assert!(after.len() == 2 && after.iter().all(|sender| *sender == [0, 2]), "{after:?}");
}

#[test]
fn octets_that_are_no_state_are_refused() {
    let mut world = World::pair(3, Weather::FAIR);
    let id = world.initiate(0);
    world.run_secs(1);
    let now = world.now;
    let state = world.hosts[0].endpoint.export_sa(now, id).unwrap().to_vec();
    let alloc = SingleNodeAllocator::new(Random::new(5), SenderId(9));
    let mut other = Endpoint::new(EndpointConfig::default(), Box::new(alloc));
    for length in 0..state.len() {
        assert!(other.import_sa(now, &state[..length]).is_err(), "cut to {length} octets");
    }
    let longer = [state.as_slice(), &[0]].concat();
    assert_eq!(other.import_sa(now, &longer), Err(SnapshotError::Damaged(longer.len())));
    let mut newer = state.clone();
    newer[1] += 1;
    let Err(SnapshotError::Version { found, expected }) = other.import_sa(now, &newer) else {
        panic!("a newer format is named");
    };
    assert_eq!(found, expected + 1);
    assert_eq!(other.states().count(), 0);
    assert_eq!(other.import_sa(now, &state), Ok(id));
    let sas: Vec<_> = other.sas().collect();
    assert_eq!(sas, world.hosts[0].sas());
}

#[test]
fn debug_and_logs_show_no_key() {
    let mut world = World::pair(4, Weather::FAIR);
    world.initiate(0);
    world.run_secs(1);
    let shown = format!("{:?}{:?}", world.hosts[0].events, world.hosts[0].sas());
    assert!(!shown.contains("a shared key"));
    let installed = format!("{:?}", world.hosts[0].installed);
    assert!(installed.contains("KeyMaterial(20 octets)"), "{installed}");
}

#[test]
fn a_successor_learns_which_spis_are_in_use() {
    let mut world = World::pair(6, Weather::FAIR);
    let id = world.initiate(0);
    world.run_until(|world| !sent(world, 0, ExchangeType::IkeAuth, false).is_empty());
    let offered = world.hosts[0].endpoint.export_sa(world.now, id).unwrap();
    world.run_secs(1);
    let up = world.hosts[0].endpoint.export_sa(world.now, id).unwrap();
    let spi = world.hosts[0].installed.values().next().unwrap().spi_in;
    for state in [offered, up] {
        let (alloc, in_use) = Watched::new(5, SenderId(9));
        let mut successor = Endpoint::new(EndpointConfig::default(), Box::new(alloc));
        successor.import_sa(world.now, &state).unwrap();
        assert_eq!(in_use.lock().unwrap().iter().collect::<Vec<_>>(), [&spi]);
    }
}
