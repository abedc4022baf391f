//! A peer that does not answer.

use crate::scenarios::common::wire::sent;
use crate::scenarios::common::{Weather, World};
use std::time::Duration;
use testudo_ike::config::StartAction;
use testudo_ike::endpoint::{EndpointConfig, RetransmitPolicy};
use testudo_ike::message::ExchangeType;
use testudo_ike::output::{Event, Reason};

fn silent(keyingtries: u32, start_action: StartAction) -> World {
    let mut world = World::pair_with(1, Weather::FAIR, |index, connection| {
        connection.keyingtries = keyingtries;
        if index == 0 {
            connection.children[0].start_action = start_action;
        }
    });
    world.network.up = false;
    world
}

#[test]
fn six_transmissions_at_growing_distance_and_a_clear_reason() {
    let mut world = silent(1, StartAction::None);
    let begin = world.now;
    let id = world.initiate(0);
    let mut waits = Vec::new();
    while world.hosts[0].results().is_empty() {
        let before = world.hosts[0].sent.len();
        let end = world.now.plus(Duration::from_secs(1000));
        assert!(world.step(end));
        if world.hosts[0].sent.len() > before {
            waits.push(world.now.since(begin).as_millis());
        }
    }
    assert_eq!(waits, [4000, 11_200, 24_160, 47_488, 89_478]);
    assert_eq!(world.now.since(begin).as_millis(), 165_061);
    let requests = sent(&world, 0, ExchangeType::IkeSaInit, false);
    assert!(requests.iter().all(|request| *request == requests[0]), "octet for octet");
    let remote = "192.0.2.2:500".parse().unwrap();
    let reason = Reason::Timeout { remote, transmissions: 6 };
    assert_eq!(reason.to_string(), "no answer from 192.0.2.2:500 after 6 transmissions");
    assert_eq!(world.hosts[0].results(), [Err(reason.clone())]);
    assert!(world.hosts[0].events.contains(&Event::IkeDown(id, reason)));
    assert!(world.hosts[0].logged("no answer from 192.0.2.2:500"));
    world.assert_nothing_left();
}

#[test]
fn keyingtries_are_attempts_with_everything_new() {
    let mut world = silent(3, StartAction::None);
    let id = world.initiate(0);
    world.run_secs(600);
    assert_eq!(world.hosts[0].results().len(), 1);
    let requests = sent(&world, 0, ExchangeType::IkeSaInit, false);
    assert_eq!(requests.len(), 18);
    let distinct: std::collections::BTreeSet<_> = requests.iter().map(|request| &request[..8]).collect();
    assert_eq!(distinct.len(), 3, "three SPIs");
    assert!(world.hosts[0].logged("trying again (3/3)"));
    assert!(
        world.hosts[0].events.iter().any(|event| matches!(event, Event::IkeDown(down, _) if *down == id))
    );
}

#[test]
fn without_a_limit_it_goes_on_until_the_peer_is_there() {
    let mut world = silent(0, StartAction::None);
    let id = world.initiate(0);
    world.run_secs(3600);
    assert_eq!(world.hosts[0].results(), []);
    world.network.up = true;
    world.run_secs(100);
    world.assert_tunnel();
    assert_eq!(world.hosts[0].sas()[0].id, id, "a waiting command still knows its number");
}

#[test]
fn start_action_start_tries_again_later() {
    let mut world = silent(1, StartAction::Start);
    world.settle(0);
    world.run_secs(400);
    assert!(world.hosts[0].results().len() >= 2, "it failed, and tried again");
    world.network.up = true;
    world.run_secs(200);
    world.assert_tunnel();
    world.run_secs(600);
    world.assert_tunnel();
}

#[test]
fn start_action_start_waits_for_its_key() {
    let mut world = World::pair_with(2, Weather::FAIR, |index, connection| {
        connection.name = format!("unused {index}");
    });
    let now = world.now;
    world.hosts[0].endpoint.secrets_mut().clear();
    let mut connection = crate::scenarios::common::connection(("192.0.2.1", "moon"), ("192.0.2.2", "sun"));
    connection.children[0].start_action = StartAction::Start;
    world.hosts[0].load(now, connection);
    world.settle(0);
    assert!(world.hosts[0].logged("cannot initiate net: no shared key"));
    world.hosts[0].load_secret(crate::scenarios::common::secret("psk", b"a shared key", &["moon", "sun"]));
    world.run_secs(60);
    world.assert_tunnel();
}

#[test]
fn a_child_stopped_by_the_operator_is_not_started_again() {
    let mut world = silent(1, StartAction::Start);
    world.settle(0);
    world.run_secs(10);
    let now = world.now;
    world.hosts[0].endpoint.terminate(now, &testudo_ike::endpoint::Target::All, false).unwrap();
    world.settle(0);
    assert_eq!(world.hosts[0].results(), [Err(Reason::Requested)]);
    world.run_secs(3600);
    world.assert_nothing_left();
}

#[test]
fn the_back_off_is_configurable() {
    let retransmit = RetransmitPolicy {
        timeout: Duration::from_millis(500),
        base_milli: 1000,
        tries: 2,
        ..Default::default()
    };
    let config = EndpointConfig { retransmit, ..EndpointConfig::default() };
    let mut world = World::pair_of(["192.0.2.1", "192.0.2.2"], 3, Weather::FAIR, config, |_, _| {});
    world.network.up = false;
    world.initiate(0);
    world.run(Duration::from_millis(1499));
    assert_eq!(world.hosts[0].results(), []);
    world.run(Duration::from_millis(1));
    assert_eq!(world.hosts[0].results().len(), 1);
}

#[test]
fn a_peer_that_falls_silent_in_ike_auth() {
    let mut world = World::pair(4, Weather::FAIR);
    world.initiate(0);
    world.run_until(|world| !sent(world, 0, ExchangeType::IkeAuth, false).is_empty());
    world.network.up = false;
    world.hosts[1].stopped = true;
    world.run_secs(300);
    let requests = sent(&world, 0, ExchangeType::IkeAuth, false);
    assert_eq!(requests.len(), 6);
    assert!(requests.iter().all(|request| *request == requests[0]), "encrypted once");
    assert!(matches!(world.hosts[0].results()[0], Err(Reason::Timeout { transmissions: 6, .. })));
}

/// The host cannot send: a request that waits for the IKE SA gets the reason at once, and again at
/// the end.
#[test]
fn a_send_error_of_this_host_is_reported() {
    let mut world = silent(1, StartAction::None);
    let here = vec!["192.0.2.9".parse().unwrap()];
    world.hosts[0].endpoint.set_local_addresses(here);
    let id = world.initiate(0);
    let (path, _) = world.hosts[0].sent[0].clone();
    let now = world.now;
    let line = "cannot send from 192.0.2.1:500 to 192.0.2.2:500: Invalid argument; this host has no address 192.0.2.1";
    while world.hosts[0].results().is_empty() {
        let now = world.now;
        world.hosts[0].endpoint.not_sent(now, Some(id), path, "Invalid argument");
        world.settle(0);
        assert!(world.step(now.plus(Duration::from_secs(1000))));
    }
    let told = |event: &&Event| matches!(event, Event::Log { ike: Some(of), message, .. } if *of == id && message == line);
    assert_eq!(world.hosts[0].events.iter().filter(told).count(), 6);
    let [Err(reason)] = &world.hosts[0].results()[..] else { panic!("it failed once") };
    assert_eq!(
        reason.to_string(),
        "no answer from 192.0.2.2:500 after 6 transmissions, the last of which could not be sent: Invalid argument; \
         this host has no address 192.0.2.1"
    );
    // Strangers cannot fill the log with answers that do not get out.
    for _ in 0..100 {
        world.hosts[0].endpoint.not_sent(now, None, path, "Network is unreachable");
    }
    world.settle(0);
    let stats = world.hosts[0].endpoint.stats();
    assert_eq!(stats.discarded(testudo_ike::endpoint::Discard::NotSent), 100);
    assert_eq!(world.hosts[0].log().iter().filter(|line| line.contains("Network is unreachable")).count(), 1);
}

/// Of the addresses that a connection names, the one that the host has.
#[test]
fn an_address_that_the_host_has_is_preferred() {
    let mut world = World::pair_with(6, Weather::FAIR, |index, connection| {
        if index == 0 {
            let named = ["203.0.113.9", "192.0.2.1"];
            connection.local_addrs = named.map(crate::scenarios::common::build::range).to_vec();
        }
    });
    world.hosts[0].endpoint.set_local_addresses(vec!["192.0.2.1".parse().unwrap()]);
    world.establish();
}
