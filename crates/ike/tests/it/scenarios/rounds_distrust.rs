//! A round of authentication before the last (RFC 4739) whose shared key or CA is not trusted any
//! more: the IKE SA does not outlive it by new keys.

use crate::pki::cert;
use crate::scenarios::common::World;
use crate::scenarios::common::build::secret;
use crate::scenarios::common::network::Nat;
use crate::scenarios::rounds::Round::{Cert, Key};
use crate::scenarios::rounds::{ALICE, BOB, MOON, Rounds, SUN, pair};
use testudo_ike::config::{Connection, Identity, IkeLifetime, SecretKind, SharedSecret};
use testudo_ike::endpoint::SnapshotVersion;

/// Host 0 renews the keys of the IKE SA several times before host 1's end of it.
fn renewed_by_host_0(index: usize, connection: &mut Connection) {
    let rekey = if index == 0 { 200 } else { 1000 };
    connection.lifetime = IkeLifetime::new(rekey, Some(100), Some(0));
}

fn left(world: &World) -> usize {
    world.hosts.iter().map(|host| host.sas().len()).sum()
}

#[test]
fn an_ike_sa_does_not_outlive_the_key_of_an_earlier_round() {
    // What the initiator proves, what the responder does, who knows an earlier round by what, and
    // whether the connection there names the peer of that round.
    let cases: [(Rounds, usize, bool); 5] = [
        ([&[MOON, ALICE], &[SUN]], 1, true),
        ([&[MOON, Key("alice", "moon-P-256")], &[SUN]], 1, true),
        ([&[MOON], &[SUN, BOB]], 0, true),
        ([&[MOON, ALICE], &[SUN]], 1, false),
        ([&[MOON], &[SUN, BOB]], 0, false),
    ];
    for (rounds, host, named) in cases {
        for case in ["as it was", "another key of another name", "changed", "gone"] {
            let mut world = pair(rounds, |index, connection| {
                renewed_by_host_0(index, connection);
                if index == host && !named {
                    connection.remote.id = None;
                }
            });
            if !named && host == 0 {
                // Who does not know the peer's name looks for a key by its address.
                world.hosts[0].load_secret(secret("by address", b"moon and sun", &["moon", "192.0.2.2"]));
            }
            world.establish();
            let (name, owners) = ("moon and sun", ["moon", "sun"]);
            match case {
                "changed" => world.hosts[host].load_secret(secret(name, b"another key", &owners)),
                "gone" => {
                    // With the one for this pair that every world has.
                    assert!(world.hosts[host].endpoint.secrets_mut().unload("psk"));
                    assert!(world.hosts[host].endpoint.secrets_mut().unload(name));
                }
                "as it was" => world.hosts[host].load_secret(secret(name, name.as_bytes(), &owners)),
                _ => world.hosts[host].load_secret(secret("carol's", b"another key", &["carol", "sun"])),
            }
            world.run_secs(1500);
            let expected = if ["changed", "gone"].contains(&case) { 0 } else { 2 };
            let log = world.hosts[host].log();
            assert_eq!(left(&world), expected, "{rounds:?}, {named}, {case}: {log:#?}");
        }
    }
}

const MOON_BY_CA: super::rounds::Round = Cert("moon.example.org", "moon-P-256");
const SUN_BY_CA: super::rounds::Round = Cert("sun.example.org", "sun-P-256");

/// Both sides trust the CA `root`, and another that has signed nothing here.
fn by_ca(rounds: Rounds) -> World {
    let mut world = pair(rounds, renewed_by_host_0);
    for host in &mut world.hosts {
        for ca in ["root", "other"] {
            host.endpoint.credentials_mut().load_certificate(cert(ca), true).unwrap();
        }
    }
    world.establish();
    world
}

#[test]
fn an_ike_sa_does_not_outlive_the_ca_of_an_earlier_round() {
    // What the initiator proves, what the responder does, and who trusts an earlier round's CA.
    let cases: [(Rounds, usize); 5] = [
        ([&[MOON_BY_CA, ALICE], &[SUN]], 1),
        ([&[MOON_BY_CA, Key("alice", "moon-rsa")], &[SUN, BOB]], 1),
        ([&[MOON, MOON_BY_CA, ALICE], &[SUN]], 1),
        ([&[MOON], &[SUN_BY_CA, BOB]], 0),
        ([&[MOON, ALICE], &[SUN, SUN_BY_CA, BOB]], 0),
    ];
    for (rounds, host) in cases {
        // What is unloaded, and whether another node takes the IKE SA over before that.
        for (ca, taken_over) in [("other", false), ("root", false), ("root", true)] {
            let mut world = by_ca(rounds);
            if taken_over {
                let now = world.now;
                world.hosts[host].take_over(now);
            }
            world.hosts[host].endpoint.credentials_mut().unload_certificate(&cert(ca));
            world.run_secs(1500);
            let expected = if ca == "root" { 0 } else { 2 };
            let log = world.hosts[host].log();
            assert_eq!(left(&world), expected, "{rounds:?}, {ca}, {taken_over}: {log:#?}");
        }
    }
}

/// A CA that a connection names, and that is loaded with it.
#[test]
fn an_ike_sa_ends_when_its_connection_names_another_ca_for_an_earlier_round() {
    let rounds: Rounds = [&[MOON_BY_CA, ALICE], &[SUN]];
    let mut world = by_ca(rounds);
    let mut connection = world.hosts[1].endpoint.connections().next().unwrap().clone();
    connection.remote.cacerts = vec![cert("other")];
    let now = world.now;
    world.hosts[1].load(now, connection);
    world.settle(1);
    world.run_secs(1500);
    assert_eq!(left(&world), 0, "{:#?}", world.hosts[1].log());
}

/// A state for builds that do not know of earlier rounds says nothing of them, and the last round
/// alone counts for who reads it.
#[test]
fn a_state_for_older_builds_says_nothing_of_the_ca_of_an_earlier_round() {
    for (version, expected) in [(SnapshotVersion::V28, 2), (SnapshotVersion::V29, 0)] {
        let mut world = by_ca([&[MOON_BY_CA, ALICE], &[SUN]]);
        let (now, endpoint) = (world.now, &mut world.hosts[1].endpoint);
        let id = endpoint.sas().next().unwrap().id;
        endpoint.replication_mut().export_as(SnapshotVersion::V29);
        let whole = endpoint.export_sa(now, id).unwrap();
        endpoint.replication_mut().export_as(version);
        let state = endpoint.export_sa(now, id).unwrap();
        assert_eq!(state == whole, version == SnapshotVersion::V29);
        endpoint.replication_mut().export_as(SnapshotVersion::V29);
        endpoint.import_sa(now, &state).unwrap();
        assert_eq!(endpoint.export_sa(now, id).unwrap() == whole, version >= SnapshotVersion::V29);
        endpoint.replication_mut().export_as(SnapshotVersion::NEWEST);
        endpoint.credentials_mut().unload_certificate(&cert("root"));
        world.run_secs(1500);
        assert_eq!(left(&world), expected, "{version:?}: {:#?}", world.hosts[1].log());
    }
}

/// Host 1 has no name but its address, to which its only shared key belongs, and gets another one.
#[test]
fn an_address_that_has_changed_does_not_make_the_key_of_an_earlier_round_void() {
    let named_by_address = || Identity::Addr("192.0.2.2".parse().unwrap());
    for version in [SnapshotVersion::V28, SnapshotVersion::NEWEST] {
        let mut world = pair([&[MOON, ALICE], &[SUN]], |index, connection| {
            renewed_by_host_0(1 - index, connection);
            match index {
                0 => connection.remote.id = Some(named_by_address()),
                _ => {
                    connection.local.id = None;
                    (connection.local_addrs, connection.remote_addrs) = (vec![], vec![]);
                }
            }
        });
        world.network.nat = Some(Nat::new("192.0.2.1", "198.51.100.7"));
        for host in &mut world.hosts {
            host.endpoint.secrets_mut().clear();
            let (name, owners) = ("by address".to_owned(), vec![named_by_address()]);
            host.endpoint.load_secret(SharedSecret {
                name,
                kind: SecretKind::Ike,
                owners,
                secret: vec![7; 32],
            });
        }
        world.establish();
        let (now, endpoint) = (world.now, &mut world.hosts[1].endpoint);
        let id = endpoint.sas().next().unwrap().id;
        endpoint.replication_mut().export_as(version);
        let state = endpoint.export_sa(now, id).unwrap();
        endpoint.replication_mut().export_as(SnapshotVersion::NEWEST);
        endpoint.import_sa(now, &state).unwrap();
        // What host 0 sends comes to the new address: a new Child SA, and the delete of the old.
        world.hosts[1].addr = "192.0.2.9".parse().unwrap();
        let from = world.hosts[1].sas()[0].remote.to_string();
        let child = world.hosts[0].sas()[0].children[0].id;
        assert!(world.hosts[0].endpoint.rekey_child(now, child));
        world.settle(0);
        for _ in 0..2 {
            let request = world.hosts[0].sent.last().unwrap().1.clone();
            world.forge(&from, "192.0.2.9:4500", &request);
            world.run_secs(1);
        }
        assert_eq!(world.hosts[1].sas()[0].local.ip(), world.hosts[1].addr);
        world.run_secs(1500);
        assert_eq!(left(&world), 2, "{version:?}: {:#?}", world.hosts[1].log());
    }
}
