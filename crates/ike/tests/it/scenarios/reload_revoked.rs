//! A peer that a changed configuration does not admit any more: until its IKE SA ends it keeps what
//! it has, and what the new configuration has for another peer is not given to it.

use crate::scenarios::common::build::{child, fqdn, range, secret, ts};
use crate::scenarios::common::{PACKET, Weather, World};
use crate::scenarios::reload::reload;
use crate::scenarios::rounds::{ALICE, MOON, SUN, pair};
use testudo_ike::config::{Connection, IkeLifetime, Lifetime, TsSpec, Unique};
use testudo_ike::endpoint::EndpointConfig;
use testudo_ike::output::Event;
use testudo_ipsec::selector::TrafficSelector;

/// Networks behind moon, which takes either; sun is configured for one of them.
const BEFORE: &str = "10.109.0.0-10.109.127.255";
const AFTER: &str = "10.109.128.0-10.109.255.255";

fn remote_ts(connection: &mut Connection, range: &str) {
    connection.children[0].remote_ts = vec![TsSpec::Fixed(ts(range))];
}

/// Host 0 is moon, host 1 is sun. `initiator` has set the tunnel up.
fn moon_and_sun(seed: u64, initiator: usize) -> World {
    let mut world = World::pair_with(seed, Weather::FAIR, |index, connection| match index {
        0 => connection.children.push(child("after", AFTER, "10.115.0.0-10.115.255.255")),
        _ => remote_ts(connection, BEFORE),
    });
    world.hosts[1].load_secret(secret("luna", b"key of luna", &["luna", "sun"]));
    world.initiate(initiator);
    world.run_until(|world| world.hosts.iter().all(|host| host.installed.len() == 1));
    world.run_secs(60);
    world
}

/// What sun protects for whoever has the other side.
fn carried(world: &World) -> Vec<TrafficSelector> {
    world.hosts[1].installed.values().flat_map(|params| params.remote_ts.clone()).collect()
}

fn moon_asks_for_more(world: &mut World) {
    let now = world.now;
    world.hosts[0].endpoint.initiate(now, None, "after").unwrap();
    world.settle(0);
    world.run_secs(5);
}

/// The ways in which an operator takes the network from moon and gives it to another.
fn revoke(world: &mut World, case: &str) {
    match case {
        "key gone" => assert!(world.hosts[1].endpoint.secrets_mut().unload("psk")),
        "key changed" => world.hosts[1].load_secret(secret("psk", b"another shared key", &["moon", "sun"])),
        _ => {}
    }
    reload(world, 1, |_, connection| {
        remote_ts(connection, AFTER);
        if case == "renamed" {
            connection.remote.id = Some(fqdn("luna"));
        }
    });
}

#[test]
fn a_peer_that_is_not_admitted_any_more_gets_nothing_new() {
    for (case, initiator) in [("renamed", 0), ("renamed", 1), ("key gone", 0), ("key changed", 1)] {
        let mut world = moon_and_sun(1, initiator);
        revoke(&mut world, case);
        moon_asks_for_more(&mut world);
        assert_eq!(carried(&world), [ts(BEFORE)], "{case}: moon has asked");
        assert!(world.hosts[0].logged("NO_ADDITIONAL_SAS") || world.hosts[0].logged("makes no further"));
        world.run_secs(200);
        assert_eq!(carried(&world), [ts(BEFORE)], "{case}: {:#?}", world.hosts[1].log());
        // Nor when an operator has it rekeyed.
        let (now, old) = (world.now, world.hosts[1].sas()[0].children[0].id);
        world.hosts[1].endpoint.rekey_child(now, old);
        world.settle(1);
        world.run_secs(200);
        assert_eq!(carried(&world), [ts(BEFORE)], "{case}: {:#?}", world.hosts[1].log());
    }
}

/// A shared key has become known, and is changed: whoever holds an IKE SA by the former one does not
/// get what the peer has that proves itself by the new one.
#[test]
fn who_knows_the_former_key_does_not_get_what_the_admitted_peer_has() {
    let mut world = World::pair_with(4, Weather::FAIR, |index, connection| match index {
        0 => connection.children.push(child("after", AFTER, "10.115.0.0-10.115.255.255")),
        _ => {
            remote_ts(connection, BEFORE);
            connection.remote_addrs.clear();
            connection.unique = Unique::Never;
        }
    });
    world.initiate(0);
    world.run_until(|world| world.hosts.iter().all(|host| host.installed.len() == 1));
    revoke(&mut world, "key changed");
    let mut admitted = world.hosts[0].endpoint.connections().next().unwrap().clone();
    admitted.local_addrs = vec![range("192.0.2.3-192.0.2.3")];
    let now = world.now;
    world.add("192.0.2.3", EndpointConfig::default());
    world.hosts[2].load_secret(secret("psk", b"another shared key", &["moon", "sun"]));
    world.hosts[2].load(now, admitted);
    world.hosts[2].endpoint.initiate(now, None, "after").unwrap();
    world.settle(2);
    world.run_until(|world| world.hosts[1].installed.len() == 2);
    moon_asks_for_more(&mut world);
    assert_eq!(world.hosts[0].installed.len(), 1, "{:#?}", world.hosts[1].log());
    assert_eq!(world.hosts[1].installed.len(), 2);
}

/// Without the change of the peer, the change of its traffic is followed.
#[test]
fn a_peer_that_is_still_admitted_gets_what_is_new() {
    let mut world = moon_and_sun(2, 0);
    revoke(&mut world, "neither");
    world.run_secs(60);
    assert_eq!(carried(&world), [ts(AFTER)]);
}

/// A packet, or an operator, gets the new peer an IKE SA of its own, beside that of the old one; and
/// that of the old one is not set up anew any more for what the new one has.
#[test]
fn the_peer_that_is_admitted_now_gets_an_ike_sa_of_its_own() {
    for by_packet in [true, false] {
        let mut world = moon_and_sun(3, 0);
        reload(&mut world, 1, |_, connection| {
            connection.lifetime = IkeLifetime::new(2000, Some(100), Some(0));
        });
        revoke(&mut world, "renamed");
        world.run_secs(300);
        assert!(world.hosts[1].logged("stays as it was made until its time is over"));
        let (old, now) = (world.hosts[1].sas()[0].id, world.now);
        // Luna is at the same address.
        let mut luna = world.hosts[0].endpoint.connections().next().unwrap().clone();
        luna.name = "luna".into();
        luna.local.id = Some(fqdn("luna"));
        luna.children.remove(0);
        world.hosts[0].load(now, luna);
        world.hosts[0].load_secret(secret("luna", b"key of luna", &["luna", "sun"]));
        let endpoint = &mut world.hosts[1].endpoint;
        let begun = match by_packet {
            true => endpoint.acquire_for(now, "site", "net", PACKET).unwrap(),
            false => endpoint.initiate(now, None, "net").unwrap(),
        };
        assert_ne!(begun, old);
        world.settle(1);
        world.run_secs(5);
        let given = |world: &World| carried(world).iter().filter(|found| **found == ts(AFTER)).count();
        assert_eq!(given(&world), 1, "{:#?}", world.hosts[1].log());
        let of_luna = world.hosts[1].sas().into_iter().filter(|sa| sa.remote_id == Some(fqdn("luna")));
        assert!(of_luna.flat_map(|sa| sa.children).any(|child| child.name == "net"));
        world.run_secs(2500);
        assert_eq!(given(&world), 1, "{:#?}", world.hosts[1].log());
        assert!(world.hosts[1].sas().iter().all(|sa| sa.remote_id == Some(fqdn("luna"))));
    }
}

/// A child that has found no successor when its lifetime is over is made on an IKE SA of its own.
#[test]
fn a_child_that_ends_is_made_with_the_peer_that_is_admitted_now() {
    let mut world = moon_and_sun(4, 0);
    reload(&mut world, 1, |_, connection| {
        connection.children[0].lifetime.time = Lifetime::new(800, Some(1000), Some(0));
    });
    revoke(&mut world, "renamed");
    world.run_secs(1200);
    assert_eq!(carried(&world), [], "{:#?}", world.hosts[1].log());
    let moved = |event: &Event| matches!(event, Event::InitiateMoved { child, .. } if child == "net");
    assert!(world.hosts[1].events.iter().any(moved), "{:#?}", world.hosts[1].log());
}

/// In a round of authentication before the last (RFC 4739) too.
#[test]
fn a_peer_that_is_renamed_in_an_earlier_round_gets_nothing_new() {
    for renamed in [false, true] {
        let mut world = pair([&[MOON, ALICE], &[SUN]], |index, connection| match index {
            0 => connection.children.push(child("after", AFTER, "10.115.0.0-10.115.255.255")),
            _ => remote_ts(connection, BEFORE),
        });
        world.initiate(0);
        world.run_until(|world| world.hosts.iter().all(|host| host.installed.len() == 1));
        reload(&mut world, 1, |_, connection| {
            if renamed {
                connection.remote.id = Some(fqdn("luna"));
            }
            let mut after = connection.children[0].clone();
            after.name = "after".into();
            after.remote_ts = vec![TsSpec::Fixed(ts(AFTER))];
            connection.children.push(after);
        });
        moon_asks_for_more(&mut world);
        let expected = if renamed { vec![ts(BEFORE)] } else { vec![ts(BEFORE), ts(AFTER)] };
        assert_eq!(carried(&world), expected, "{:#?}", world.hosts[1].log());
    }
}
