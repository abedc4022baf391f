//! A shared key or a post-quantum pre-shared key that is replaced, by whatever commands: an IKE SA
//! that rests on the former one does not outlive it by new keys.

use crate::scenarios::common::build::{fqdn, ppk, secret};
use crate::scenarios::common::tunnels::run_lossless;
use crate::scenarios::common::{Weather, World};
use crate::scenarios::reload::{assert_settled, two_children};
use crate::scenarios::rounds::{ALICE, BOB, MOON, Rounds, SUN, pair};
use std::time::Duration;
use testudo_ike::config::{Connection, IkeLifetime, PpkPolicy};
use testudo_ike::endpoint::SnapshotVersion;

const KEY: &[u8] = b"a shared key";
const OTHER: &[u8] = b"another shared key";
const BOTH: [&str; 2] = ["moon", "sun"];

/// The other side renews the keys of the IKE SA several times before `host`'s end of it.
fn renewed_beside(host: usize, index: usize, connection: &mut Connection) {
    let rekey = if index == host { 1000 } else { 200 };
    connection.lifetime = IkeLifetime::new(rekey, Some(100), Some(0));
}

fn left(world: &World) -> usize {
    world.hosts.iter().map(|host| host.sas().len()).sum()
}

fn clear(world: &mut World, host: usize) {
    world.hosts[host].endpoint.secrets_mut().clear();
}

fn load(world: &mut World, host: usize, name: &str, key: &[u8]) {
    world.hosts[host].load_secret(secret(name, key, &BOTH));
}

/// What an operator does at a host, and whether the key is the same after that.
type Case = (&'static str, bool, fn(&mut World, usize));

const CASES: [Case; 7] = [
    ("cleared and loaded anew", true, |world, host| {
        clear(world, host);
        load(world, host, "psk", KEY);
    }),
    ("loaded anew under another name", true, |world, host| {
        assert!(world.hosts[host].endpoint.secrets_mut().unload("psk"));
        load(world, host, "renamed", KEY);
    }),
    ("another one for somebody else", true, |world, host| {
        world.hosts[host].load_secret(secret("carol's", OTHER, &["carol", "sun"]));
    }),
    ("cleared, and another one loaded", false, |world, host| {
        clear(world, host);
        load(world, host, "psk", OTHER);
    }),
    ("another one under another name", false, |world, host| {
        clear(world, host);
        load(world, host, "renamed", OTHER);
    }),
    ("another one beside it that comes first", false, |world, host| load(world, host, "first", OTHER)),
    ("unloaded, then another one loaded", false, |world, host| {
        assert!(world.hosts[host].endpoint.secrets_mut().unload("psk"));
        world.run_secs(20);
        load(world, host, "psk", OTHER);
    }),
];

#[test]
fn a_shared_key_is_compared_however_it_was_loaded() {
    for (case, same, change) in CASES {
        for host in [0, 1] {
            let mut world = World::established(1, |index, connection| {
                renewed_beside(host, index, connection);
            });
            change(&mut world, host);
            world.run_secs(1500);
            let log = world.hosts[host].log();
            assert_eq!(left(&world), if same { 2 } else { 0 }, "{case} at {host}: {log:#?}");
            let said = world.hosts[host].logged("reauthenticating");
            assert_eq!(said, !same, "{case} at {host}: {log:#?}");
        }
    }
}

#[test]
fn a_shared_key_that_is_replaced_on_both_sides_loses_no_tunnel() {
    for (case, _, change) in CASES {
        let mut world = two_children(2, Weather::FAIR, |index, connection| {
            renewed_beside(1, index, connection);
        });
        (0..2).for_each(|host| change(&mut world, host));
        run_lossless(&mut world, Duration::from_secs(1500));
        assert_settled(&world);
        assert!(left(&world) == 2, "{case}");
    }
}

/// Without renewals by the peer, the time of a reauthentication is set when the key is loaded.
#[test]
fn an_ike_sa_that_is_not_renewed_is_noticed_too() {
    let mut world = World::established(3, |_, _| {});
    clear(&mut world, 1);
    load(&mut world, 1, "renamed", OTHER);
    world.settle(1);
    assert_eq!(world.hosts[1].sas()[0].reauth, None, "not before the next turn");
    world.run_secs(1);
    assert!(world.hosts[1].sas()[0].reauth.is_some());
    world.run_secs(5 * 3600);
    assert_eq!(left(&world), 0, "{:#?}", world.hosts[1].log());
}

/// The states of the IKE SAs say which key it was. The owner need not have noticed anything before
/// it died.
#[test]
fn the_node_that_takes_over_compares_the_key() {
    for other in [false, true] {
        let mut world = World::established(4, |index, connection| renewed_beside(1, index, connection));
        world.hosts[1].keep_secret(secret("psk", if other { OTHER } else { KEY }, &BOTH));
        let now = world.now;
        world.hosts[1].take_over(now);
        world.run_secs(1500);
        assert_eq!(left(&world), if other { 0 } else { 2 }, "{:#?}", world.hosts[1].log());
    }
}

/// Of a state from an older build only a key of the same name can be compared.
#[test]
fn a_state_for_older_builds_does_not_say_which_key_it_was() {
    for (version, expected) in [(SnapshotVersion::V30, 2), (SnapshotVersion::V31, 0)] {
        let mut world = World::established(5, |index, connection| renewed_beside(1, index, connection));
        let (now, endpoint) = (world.now, &mut world.hosts[1].endpoint);
        let id = endpoint.sas().next().unwrap().id;
        endpoint.replication_mut().export_as(version);
        let state = endpoint.export_sa(now, id).unwrap();
        endpoint.import_sa(now, &state).unwrap();
        clear(&mut world, 1);
        load(&mut world, 1, "renamed", OTHER);
        world.run_secs(1500);
        assert_eq!(left(&world), expected, "{version:?}: {:#?}", world.hosts[1].log());
    }
}

/// The key of a round of authentication before the last (RFC 4739).
#[test]
fn the_key_of_an_earlier_round_is_compared_too() {
    let cases: [(Rounds, usize); 2] = [([&[MOON, ALICE], &[SUN]], 1), ([&[MOON], &[SUN, BOB]], 0)];
    for (rounds, host) in cases {
        for same in [false, true] {
            let mut world = pair(rounds, |index, connection| renewed_beside(host, index, connection));
            world.establish();
            let (name, secrets) = ("moon and sun", world.hosts[host].endpoint.secrets_mut());
            assert!(secrets.unload("psk") && secrets.unload(name));
            load(&mut world, host, "renamed", if same { name.as_bytes() } else { OTHER });
            world.run_secs(1500);
            let log = world.hosts[host].log();
            assert_eq!(left(&world), if same { 2 } else { 0 }, "{rounds:?}: {log:#?}");
            let said = |world: &World| world.hosts.iter().any(|host| host.logged("reauthenticating"));
            assert_eq!(said(&world), !same, "{rounds:?}: {log:#?}");
        }
    }
}

fn load_ppk(world: &mut World, host: usize, name: &str, key: &[u8]) {
    world.hosts[host].load_secret(ppk(name, key, &["quantum"]));
}

/// The keys of an IKE SA depend on its PPK (RFC 8784), and so do all that follow from them.
#[test]
fn an_ike_sa_does_not_outlive_its_ppk_by_new_keys() {
    let cases: [Case; 6] = [
        ("loaded again", true, |world, host| load_ppk(world, host, "ppk", KEY)),
        ("cleared and loaded anew", true, |world, host| {
            clear(world, host);
            load(world, host, "psk", KEY);
            load_ppk(world, host, "renamed", KEY);
        }),
        ("changed", false, |world, host| load_ppk(world, host, "ppk", OTHER)),
        ("cleared, and another one loaded", false, |world, host| {
            clear(world, host);
            load(world, host, "psk", KEY);
            load_ppk(world, host, "renamed", OTHER);
        }),
        ("unloaded, then another one loaded", false, |world, host| {
            assert!(world.hosts[host].endpoint.secrets_mut().unload("ppk"));
            world.run_secs(20);
            load_ppk(world, host, "ppk", OTHER);
        }),
        ("gone", false, |world, host| {
            assert!(world.hosts[host].endpoint.secrets_mut().unload("ppk"));
        }),
    ];
    for (case, same, change) in cases {
        // On either side, and on both.
        for hosts in [vec![0], vec![1], vec![0, 1]] {
            let mut world = World::pair_with(6, Weather::FAIR, |index, connection| {
                renewed_beside(hosts[0], index, connection);
                connection.ppk = PpkPolicy { id: Some(fqdn("quantum")), required: true };
            });
            (0..2).for_each(|host| load_ppk(&mut world, host, "ppk", KEY));
            world.establish();
            assert!(world.hosts.iter().all(|host| host.sas()[0].ppk));
            hosts.iter().for_each(|host| change(&mut world, *host));
            world.run_secs(1500);
            let stays = same || hosts.len() == 2 && case != "gone";
            let log = world.hosts[hosts[0]].log();
            assert_eq!(left(&world), if stays { 2 } else { 0 }, "{case} at {hosts:?}: {log:#?}");
        }
    }
}
