//! A network that loses, doubles, delays and reorders: hundreds of seeds.

use crate::scenarios::common::tunnels::assert_weathered;
use crate::scenarios::common::wire::{assert_ivs_never_repeat, sent};
use crate::scenarios::common::world::handing_out;
use crate::scenarios::common::{Weather, World};
use std::time::Duration;
use testudo_ike::endpoint::EndpointConfig;
use testudo_ike::message::ExchangeType;

/// In the end both have the tunnel, and nothing else. Gives the number of jobs that were handed
/// out.
fn storm(seed: u64, both: bool, config: EndpointConfig) -> u64 {
    let addrs = ["192.0.2.1", "192.0.2.2"];
    let mut world = World::pair_of(addrs, seed, Weather::FOUL, config, |_, connection| {
        connection.keyingtries = 0;
        connection.dpd_delay = Duration::from_secs(30);
    });
    world.initiate(0);
    if both {
        world.initiate(1);
    }
    assert_weathered(&mut world, seed);
    world.jobs
}

/// `make test-all` tries more.
fn seeds(first: u64) -> std::ops::Range<u64> {
    first..first + if std::env::var_os("TESTUDO_THOROUGH").is_some() { 300 } else { 100 }
}

#[test]
fn one_side_initiates() {
    for seed in seeds(0) {
        storm(seed, false, EndpointConfig::default());
    }
}

#[test]
fn both_sides_initiate() {
    for seed in seeds(1000) {
        storm(seed, true, EndpointConfig::default());
    }
}

/// The same, where the computations of the handshakes take their time too, come back in another
/// order, fail or are lost.
#[test]
fn one_side_initiates_and_jobs_are_handed_out() {
    for seed in seeds(0) {
        assert!(storm(seed, false, handing_out()) >= 2);
    }
}

#[test]
fn both_sides_initiate_and_jobs_are_handed_out() {
    for seed in seeds(1000) {
        assert!(storm(seed, true, handing_out()) >= 2);
    }
}

/// The deleter forgets the SA in any case; the peer does as soon as one copy of the delete has
/// arrived, answered or not.
#[test]
fn deletes_get_through() {
    let mut arrived = 0;
    for seed in 0..100 {
        let mut world = World::established(seed, |_, _| {});
        world.network.weather = Weather::FOUL;
        let now = world.now;
        let host = usize::from(seed % 2 == 0);
        world.hosts[host].endpoint.terminate(now, &testudo_ike::endpoint::Target::All, false).unwrap();
        world.settle(host);
        world.run_secs(100);
        assert!(world.hosts[host].installed.is_empty());
        let delete = sent(&world, host, ExchangeType::Informational, false)[0].clone();
        let peer = &world.hosts[1 - host];
        if peer.received.contains(&delete) {
            arrived += 1;
            assert!(peer.installed.is_empty() && peer.sas().is_empty(), "seed {seed}: {:#?}", peer.log());
        }
        assert_ivs_never_repeat(&world);
    }
    assert!(arrived > 90, "three transmissions, of which one in four is lost: {arrived}");
}
