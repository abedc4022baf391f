//! A peer that has another IKE SA already, which may be another node's.

use crate::config::{of_cluster, of_peer};
use crate::world::{WAN, World};
use std::time::Duration;
use testudo_ike::config::{Connection, Unique};
use testudo_ike::endpoint::IkeSaState;

const PAUSE: Duration = Duration::from_secs(5);

fn world(of_the_cluster: Unique) -> World {
    beating(of_the_cluster, Duration::from_millis(50))
}

/// For minutes, most of which are heartbeats.
fn long_world(of_the_cluster: Unique) -> World {
    beating(of_the_cluster, Duration::from_millis(250))
}

fn beating(of_the_cluster: Unique, heartbeat: Duration) -> World {
    let mut world = World::begun(3, 1, 20, heartbeat);
    let now = world.now;
    for node in &mut world.nodes {
        let endpoint = node.member.as_mut().unwrap().endpoint_mut();
        endpoint.load_connection(now, Connection { unique: of_the_cluster, ..of_cluster(0) }).unwrap();
    }
    world
}

/// The peer starts again until it has been at each node. Returns the number of IKE SAs with it each
/// time, and the node of the last one.
fn come_anew(world: &mut World, of_the_peer: Unique) -> Vec<usize> {
    let mut counts = Vec::new();
    let mut homes = std::collections::BTreeSet::new();
    for seed in 0..20 {
        world.forget(0, seed);
        let connection = Connection { unique: of_the_peer, ..of_peer(0) };
        let now = world.now;
        world.peers[0].endpoint.load_connection(now, connection).unwrap();
        world.initiate(0);
        world.run(PAUSE);
        // All send through what the peer has now, not through what it has forgotten.
        let sends = world.nodes.iter().map(|node| {
            let spis = node.installed.values().map(|(params, _)| params.spi_in);
            spis.max_by_key(|spi| world.places[spi])
        });
        assert_eq!(sends.collect::<Vec<_>>(), [Some(world.spi_of(0)); 3]);
        let speakers = world.speakers(0);
        homes.extend(speakers.iter().copied());
        counts.push(speakers.len());
    }
    assert_eq!(homes.len(), 3);
    counts
}

/// RFC 7296 §2.4: a sender of INITIAL_CONTACT has no other IKE SA, on any node.
#[test]
fn a_peer_that_starts_again_has_one_ike_sa_in_the_cluster() {
    let mut world = world(Unique::No);
    assert_eq!(come_anew(&mut world, Unique::No), [1; 20]);
    world.assert_tunnel(0);
}

#[test]
fn with_never_each_may_have_as_many_as_it_likes() {
    let counts = come_anew(&mut world(Unique::Never), Unique::No);
    assert!(counts.is_sorted() && counts.last() > Some(&5), "{counts:?}");
}

/// Without INITIAL_CONTACT a peer at the same place seems to reauthenticate: the older one goes,
/// but later.
#[test]
fn where_only_one_is_wanted_the_older_one_goes_from_any_node() {
    let mut world = long_world(Unique::Replace);
    let counts = come_anew(&mut world, Unique::Never);
    world.run(Duration::from_secs(600));
    assert_eq!(world.speakers(0).len(), 1, "{counts:?}");
    world.assert_tunnel(0);
}

/// Until the older IKE SA goes, the Child SA of the newer one does not send.
#[test]
fn what_began_to_send_while_a_node_was_away_sends_there_too() {
    for (seed, away) in (0..2).flat_map(|seed| (0..3).map(move |away| (seed, away))) {
        let mut world = long_world(Unique::Replace);
        for (seed, pause) in [(seed, PAUSE), (seed + 100, Duration::from_millis(50))] {
            world.forget(0, seed);
            let now = world.now;
            let connection = Connection { unique: Unique::Never, ..of_peer(0) };
            world.peers[0].endpoint.load_connection(now, connection).unwrap();
            world.initiate(0);
            world.run(pause);
        }
        let others: Vec<usize> = (0..3).filter(|node| *node != away).collect();
        world.view(&[away]);
        world.view(&others);
        world.run(Duration::from_secs(600));
        world.view(&[0, 1, 2]);
        world.run(PAUSE);
        world.assert_tunnel(0);
    }
}

/// The peer begins two IKE SAs, the second so long after the first. True if their homes are
/// different nodes.
fn begin_two(world: &mut World, unique: Unique, between: Duration) -> bool {
    let now = world.now;
    for name in ["cluster", "again"] {
        let connection = Connection { name: name.to_owned(), unique, ..of_peer(0) };
        world.peers[0].endpoint.load_connection(now, connection).unwrap();
    }
    world.initiate(0);
    world.run(between);
    // The first is overtaken.
    world.late_auth = WAN;
    let now = world.now;
    world.peers[0].endpoint.initiate(now, Some("again"), "net").unwrap();
    world.run(PAUSE);
    let speakers = world.speakers(0);
    speakers.len() == 2 && speakers[0] != speakers[1]
}

/// A peer says INITIAL_CONTACT, and that takes long to come. What it has set up meanwhile it has
/// not forgotten.
#[test]
fn an_ike_sa_established_at_the_same_time_stays() {
    let found = (0..20).find(|seed| {
        let mut world = world(Unique::No);
        world.forget(0, *seed);
        world.late_auth = Duration::from_secs(4);
        let apart = begin_two(&mut world, Unique::No, Duration::from_millis(50));
        assert_eq!((world.speakers(0).len(), world.peers[0].endpoint.sas().count()), (2, 2), "{seed}");
        apart
    });
    assert!(found.is_some(), "the two are never at two nodes");
}

/// Two nodes hear of each other's new IKE SA when both have one: one of the two stays. `make
/// test-all` tries more seeds.
#[test]
fn one_of_two_simultaneous_ike_sas_stays() {
    let mut apart = 0;
    let seeds = if crate::is_thorough() { 40 } else { 6 };
    for seed in 0..seeds {
        let mut world = long_world(Unique::Replace);
        world.forget(0, seed);
        apart += usize::from(begin_two(&mut world, Unique::Never, Duration::ZERO));
        world.run(Duration::from_secs(600));
        assert_eq!((world.speakers(0).len(), world.peers[0].endpoint.sas().count()), (1, 1), "{seed}");
    }
    assert!(apart > 0, "the two are never at two nodes");
}

/// An IKE SA without an owner, because its owner is dead and its standby waits, is deleted like any
/// other when its peer starts again.
#[test]
fn an_ike_sa_being_taken_over_is_deleted_too() {
    let mut taken_over = 0;
    for seed in 0..20 {
        let mut world = world(Unique::No);
        world.initiate(0);
        world.run(PAUSE);
        let owner = world.owner_of(0).unwrap();
        let others: Vec<usize> = (0..3).filter(|node| *node != owner).collect();
        world.crash(owner, false);
        world.view(&others);
        world.forget(0, seed);
        world.initiate(0);
        world.run(Duration::from_millis(100));
        taken_over +=
            usize::from(world.peers[0].endpoint.sas().any(|sa| sa.state == IkeSaState::Established));
        world.run(PAUSE);
        assert_eq!(world.speakers(0).len(), 1, "{seed}");
        world.assert_tunnel(0);
    }
    assert!(taken_over > 0, "the new one never comes up before the old one is read");
}

/// Connections of the same identities begin at different nodes: were one to say INITIAL_CONTACT,
/// the peer would end the others.
#[test]
fn no_node_says_that_it_is_the_first_to_come() {
    const CONNECTIONS: usize = 6;
    let mut world = world(Unique::No);
    for number in 0..CONNECTIONS {
        let name = format!("to-{number}");
        let now = world.now;
        for node in &mut world.nodes {
            let member = node.member.as_mut().unwrap();
            let connection = Connection { name: name.clone(), ..of_cluster(0) };
            member.endpoint_mut().load_connection(now, connection).unwrap();
            // Only at its home.
            let _ = member.endpoint_mut().initiate(now, Some(&name), "net");
            member.pump(now);
        }
        world.settle();
        world.run(PAUSE);
    }
    let homes: std::collections::BTreeSet<usize> = world.speakers(0).into_iter().collect();
    assert!(homes.len() > 1, "{homes:?}");
    assert_eq!(world.peers[0].endpoint.sas().count(), CONNECTIONS);
}
