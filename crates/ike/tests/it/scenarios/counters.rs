//! The counters of exchanges, by charon's names.

use crate::scenarios::common::World;
use crate::scenarios::common::network::Weather;
use testudo_ike::endpoint::ExchangeCounters;

fn counted(counters: Option<&ExchangeCounters>) -> Vec<(&'static str, u64)> {
    counters.into_iter().flat_map(ExchangeCounters::iter).filter(|(_, value)| *value > 0).collect()
}

#[test]
fn each_message_counts_once_on_each_side() {
    let mut world = World::pair(11, Weather::FAIR);
    let ike = world.initiate(0);
    world.run_secs(1);
    let now = world.now;
    world.hosts[0].endpoint.terminate(now, &testudo_ike::endpoint::Target::Ike(ike), false).unwrap();
    world.settle(0);
    world.run_secs(1);
    let [moon, sun] = [0, 1].map(|host: usize| &world.hosts[host].endpoint.stats().exchanges);
    let asked = [
        ("ike-init-in-resp", 1),
        ("ike-init-out-req", 1),
        ("ike-auth-in-resp", 1),
        ("ike-auth-out-req", 1),
        ("info-in-resp", 1),
        ("info-out-req", 1),
    ];
    assert_eq!(counted(Some(moon.total())), asked);
    assert_eq!(counted(moon.of("site")), asked, "an initiator knows its connection from the start");
    let answered = [
        ("ike-init-in-req", 1),
        ("ike-init-out-resp", 1),
        ("ike-auth-in-req", 1),
        ("ike-auth-out-resp", 1),
        ("info-in-req", 1),
        ("info-out-resp", 1),
    ];
    assert_eq!(counted(Some(sun.total())), answered);
    let known = [("ike-auth-out-resp", 1), ("info-in-req", 1), ("info-out-resp", 1)];
    assert_eq!(counted(sun.of("site")), known, "a responder from its IKE_AUTH response on");
}

#[test]
fn repetitions_do_not_count_and_garbage_does() {
    let mut world = World::pair(12, Weather::FAIR);
    world.network.up = false;
    world.initiate(0);
    world.run_secs(8);
    assert_eq!(counted(Some(world.hosts[0].endpoint.stats().exchanges.total())), [("ike-init-out-req", 1)]);
    world.network.up = true;
    world.forge("203.0.113.9:500", "192.0.2.2:500", &[0; 20]);
    let mut stray = vec![0; 28];
    stray[..8].fill(7);
    stray[8..16].fill(9);
    (stray[17], stray[18], stray[27]) = (0x20, 37, 28);
    stray[19] = 0x08;
    world.forge("203.0.113.9:500", "192.0.2.2:500", &stray);
    world.run_secs(1);
    let strays = counted(Some(world.hosts[1].endpoint.stats().exchanges.total()));
    assert!(strays.starts_with(&[("invalid", 1), ("invalid-spi", 1)]), "{strays:?}");
}

#[test]
fn counters_go_back_to_zero_apart() {
    let mut world = World::pair(13, Weather::FAIR);
    world.initiate(0);
    world.run_secs(1);
    let endpoint = &mut world.hosts[0].endpoint;
    endpoint.exchanges_mut().reset_connection("site");
    assert_eq!(endpoint.stats().exchanges.of("site"), None);
    assert!(!counted(Some(endpoint.stats().exchanges.total())).is_empty());
    endpoint.exchanges_mut().reset_total();
    assert!(counted(Some(endpoint.stats().exchanges.total())).is_empty());
}
