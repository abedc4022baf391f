//! A network that loses, doubles, delays and reorders: hundreds of seeds.

use crate::common::wire::assert_ivs_never_repeat;
use crate::common::world::assert_fit;
use crate::common::{Weather, World};
use std::time::Duration;

/// In the end both have the tunnel, and nothing else.
fn storm(seed: u64, both: bool) {
    let mut world = World::pair_with(seed, Weather::FOUL, |_, connection| {
        connection.keyingtries = 0;
        connection.dpd_delay = Duration::from_secs(30);
    });
    world.initiate(0);
    if both {
        world.initiate(1);
    }
    world.run_secs(200);
    world.network.weather = Weather::FAIR;
    // Time for liveness checks to find what only one side has.
    world.run_secs(400);
    world.initiate(0);
    world.run_secs(60);
    let [moon, sun] = [0, 1].map(|index| &world.hosts[index].installed);
    assert!(!moon.is_empty(), "seed {seed}: {:#?}", world.hosts[0].log());
    assert_eq!(moon.len(), sun.len(), "seed {seed}");
    for params in moon.values() {
        let other = sun.values().find(|other| other.spi_in == params.spi_out);
        assert_fit(params, other.expect("each SA has two ends"));
    }
    assert_eq!(world.hosts[0].endpoint.states().count(), moon.len(), "nothing lingers");
    assert_ivs_never_repeat(&world);
}

#[test]
fn one_side_initiates() {
    for seed in 0..300 {
        storm(seed, false);
    }
}

#[test]
fn both_sides_initiate() {
    for seed in 1000..1200 {
        storm(seed, true);
    }
}

#[test]
fn deletes_get_through() {
    for seed in 0..100 {
        let mut world = World::pair(seed, Weather::FAIR);
        world.initiate(0);
        world.run_secs(1);
        world.assert_tunnel();
        world.network.weather = Weather::FOUL;
        let now = world.now;
        let host = usize::from(seed % 2 == 0);
        world.hosts[host].endpoint.terminate(now, &testudo_ike::endpoint::Target::All, false).unwrap();
        world.settle(host);
        world.run_secs(100);
        assert!(world.hosts[host].installed.is_empty());
        assert_ivs_never_repeat(&world);
    }
}
