//! A changed connection whose peer does not take the change, or not yet, or not in this way.

use crate::common::Weather;
use crate::common::World;
use crate::common::tunnels::run_lossless;
use crate::reload::{
    assert_settled, both_ciphers, other_cipher, reload, sa_of, two_children, two_children_of,
};
use std::time::Duration;
use testudo_ike::config::{Connection, Lifetime, StartAction};
use testudo_ike::endpoint::EndpointConfig;
use testudo_ipsec::sa::EspAlgorithm;

/// What is left of the old one goes with its lifetime, on both sides, and whoever wants the child has it asked for until the peer
/// has followed.
#[test]
fn what_is_refused_to_the_end_of_the_lifetime_begins_anew() {
    for (side, starts) in [(0, false), (1, false), (0, true)] {
        let mut world = two_children(1, Weather::FAIR, |index, connection| {
            if index == side {
                connection.children[0].lifetime.time = Lifetime::new(0, Some(1000), None);
            }
            if index == side && starts {
                connection.children[0].start_action = StartAction::Start;
            }
        });
        reload(&mut world, side, other_cipher);
        run_lossless(&mut world, Duration::from_secs(500));
        assert_settled(&world);
        world.run_secs(700);
        let one = world.hosts.iter().all(|host| host.installed.len() == 1);
        assert!(one, "the peer does not send into nothing: {:#?}", world.hosts[side].log());
        let acquire = |world: &mut World| {
            let now = world.now;
            world.hosts[side].endpoint.acquire(now, "site", "net").unwrap();
            world.settle(side);
        };
        let sent = world.hosts[side].sent.len();
        acquire(&mut world);
        assert!(world.hosts[side].sent.len() > sent, "traffic brings another try");
        world.run_secs(100);
        reload(&mut world, 1 - side, other_cipher);
        if !starts {
            acquire(&mut world);
        }
        world.run_secs(100);
        assert_settled(&world);
        assert_eq!(sa_of(&world, side, "net").1.algorithm, EspAlgorithm::Aes256Gcm16);
    }
}

/// That it is busy does not mean that it does not want to.
#[test]
fn a_busy_peer_is_asked_until_it_has_time() {
    let config = EndpointConfig {
        creation_burst: 1,
        creation_pace: Duration::from_secs(600),
        ..EndpointConfig::default()
    };
    let mut world = two_children_of(config, 2, Weather::FAIR, |index, connection| {
        if index == 1 {
            both_ciphers(index, connection);
        }
    });
    // Two within ten minutes, and that is all that the peer makes.
    let (now, (more, _)) = (world.now, sa_of(&world, 0, "more"));
    assert!(world.hosts[0].endpoint.rekey_child(now, more));
    world.settle(0);
    run_lossless(&mut world, Duration::from_secs(60));
    reload(&mut world, 0, other_cipher);
    run_lossless(&mut world, Duration::from_secs(300));
    assert_settled(&world);
    assert_eq!(sa_of(&world, 0, "net").1.algorithm, EspAlgorithm::Aes128Gcm16);
    let answered = |line: &&&str| line.contains("TEMPORARY_FAILURE");
    assert!(world.hosts[0].log().iter().filter(answered).count() > 3, "{:#?}", world.hosts[0].log());
    run_lossless(&mut world, Duration::from_secs(400));
    assert_settled(&world);
    assert_eq!(sa_of(&world, 0, "net").1.algorithm, EspAlgorithm::Aes256Gcm16);
}

/// A peer that makes no further Child SA on an IKE SA (RFC 7296 §1.3) may make it on another.
#[test]
fn a_peer_without_room_gets_another_ike_sa() {
    let config = EndpointConfig { child_limit: 2, ..EndpointConfig::default() };
    let mut world = two_children_of(config, 3, Weather::FAIR, |index, connection| {
        if index == 1 {
            both_ciphers(index, connection);
        }
    });
    let old = world.hosts[0].sas()[0].id;
    reload(&mut world, 0, other_cipher);
    run_lossless(&mut world, Duration::from_secs(100));
    assert_settled(&world);
    assert!(world.hosts[0].sas()[0].id > old, "{:#?}", world.hosts[0].log());
    assert_eq!(sa_of(&world, 0, "net").1.algorithm, EspAlgorithm::Aes256Gcm16);
}

/// A peer that cannot be reached at the time.
#[test]
fn a_start_that_is_taken_away_is_not_tried_again() {
    let edits: [fn(usize, &mut Connection); 2] =
        [|_, _| {}, |_, connection| connection.children[0].name = "other".into()];
    for edit in edits {
        let mut world = World::pair_with(4, Weather::FAIR, |index, connection| {
            if index == 0 {
                connection.children[0].start_action = StartAction::Start;
            }
        });
        world.hosts[1].stopped = true;
        world.settle(0);
        world.run_secs(180);
        assert!(world.hosts[0].results().iter().all(Result::is_err), "it waits for its next try");
        assert_eq!(world.hosts[0].sas(), []);
        let (sent, tries) = (world.hosts[0].sent.len(), world.hosts[0].results().len());
        assert!(sent > 0 && tries > 0);
        reload(&mut world, 0, |index, connection| {
            edit(index, connection);
            connection.children[0].start_action = StartAction::None;
        });
        world.run_secs(600);
        assert_eq!(world.hosts[0].sent.len(), sent, "{:#?}", world.hosts[0].log());
        assert!(!world.hosts[0].logged("cannot initiate"));
    }
}
