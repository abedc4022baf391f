//! Whom each connection trusts: peers of a CA, those that some certificates name, or those whose
//! own certificates are loaded.

use super::{comes_up, dn, initiator_refuses, pair, responder_refuses};
use crate::pki::cert;
use crate::scenarios::common::build::{fqdn, secret};
use testudo_ike::config::{AuthMethod, Connection, LocalAuth, RemoteAuth, Unique};
use testudo_ike::endpoint::Target;
use testudo_ike::output::Event;

#[test]
fn a_connection_for_one_ca_takes_no_certificate_of_another() {
    let mut world = pair(["moon-P-256", "sun-P-256"], |index, connection| {
        if index == 1 {
            connection.remote.cacerts = vec![cert("other")];
        }
    });
    responder_refuses(&mut world, "root CA 'C=CH, O=Testudo, CN=Root' is not trusted here");
    // Another connection, for the right CA, takes the peer.
    let mut world = pair(["moon-P-256", "sun-P-256"], |index, connection| {
        if index == 1 {
            connection.remote.cacerts = vec![cert("other")];
        }
    });
    let now = world.now;
    let mut right = crate::scenarios::common::connection(("192.0.2.2", "sun"), ("192.0.2.1", "moon"));
    right.name = "the right CA".into();
    right.local = LocalAuth::by_certificate(None, vec![cert("sun-P-256")]);
    right.remote.method = AuthMethod::PUBKEY;
    right.remote.id = None;
    right.remote.cacerts = vec![cert("root")];
    world.hosts[1].load(now, right);
    comes_up(&mut world);
    assert_eq!(world.hosts[1].sas()[0].connection.as_deref(), Some("the right CA"));
}

/// Each connection is for another peer of the same CA: which is right shows late, and does not use
/// up what is allowed.
#[test]
fn a_connection_is_found_among_many() {
    let mut world = pair(["moon-P-256", "sun-P-256"], |_, _| {});
    let now = world.now;
    let site = world.hosts[1].endpoint.connections().next().unwrap().clone();
    for number in 0..40 {
        let mut other = Connection { name: format!("other-{number:02}"), ..site.clone() };
        let certs = ["moon-P-384", "moon-P-521", "moon-rsa", "moon-ed25519", "sun-P-384", "sun-rsa"];
        let differs = |bit: usize| number >> bit & 1 == 1;
        other.remote.certs =
            certs.into_iter().enumerate().filter(|(bit, _)| differs(*bit)).map(|(_, c)| cert(c)).collect();
        other.remote.certs.push(cert("sun-ed25519"));
        world.hosts[1].load(now, other);
    }
    comes_up(&mut world);
    assert_eq!(world.hosts[1].sas()[0].connection.as_deref(), Some("site"));
}

/// Both CAs are trusted, so both tunnels come up. A CA that vouches for another's peer may have been
/// deceived.
#[test]
fn the_host_hears_when_another_ca_vouches_for_a_peer() {
    let mut world = pair(["moon-P-256", "sun-P-256"], |index, connection| {
        if index == 0 {
            connection.remote.cacerts = vec![cert("root"), cert("other")];
        }
    });
    let mut misled = world.hosts[1].endpoint.connections().next().unwrap().clone();
    (misled.name, misled.local.certs) = ("misled".into(), vec![cert("sun-by-other")]);
    let now = world.now;
    world.hosts[1].load(now, misled);
    let mut heard = Vec::new();
    for connection in ["site", "site", "misled", "misled"] {
        let now = world.now;
        world.hosts[1].endpoint.initiate(now, Some(connection), "net").unwrap();
        world.run_secs(5);
        world.assert_tunnel();
        let now = world.now;
        world.hosts[1].endpoint.terminate(now, &Target::All, false).unwrap();
        world.run_secs(5);
        let events = world.hosts[0].events.iter();
        let vouchers = events.filter_map(|event| match event {
            Event::OtherVoucher { identity, line, .. } => Some(format!("{identity}: {line}")),
            _ => None,
        });
        heard.push(vouchers.collect::<Vec<_>>());
    }
    let heard: Vec<&[String]> = heard.iter().map(Vec::as_slice).collect();
    let [[], [], [told], [told_again]] = heard[..] else { panic!("{heard:?}") };
    assert!(told == told_again && told.contains("by certificate"), "{told}");
}

/// Two connections, for a CA each. The other CA vouches for the name of a peer of the first, and
/// this one says that it knows of no other IKE SA: the tunnel that the first CA vouched for stays.
#[test]
fn a_peer_trusted_for_one_connection_cannot_replace_sas_of_another() {
    for unique in [Unique::No, Unique::Replace, Unique::Keep] {
        let mut world = pair(["moon-P-256", "sun-P-256"], |index, connection| {
            connection.unique = unique;
            if index == 0 {
                connection.remote.cacerts = vec![cert("root")];
            }
        });
        let [mut guests, mut forged] =
            [0, 1].map(|host| world.hosts[host].endpoint.connections().next().unwrap().clone());
        (guests.name, guests.remote.cacerts) = ("guests".into(), vec![cert("other")]);
        (forged.name, forged.local.certs) = ("forged".into(), vec![cert("sun-by-other")]);
        let now = world.now;
        world.hosts[0].load(now, guests);
        world.hosts[1].load(now, forged);
        for connection in ["site", "forged"] {
            let now = world.now;
            world.hosts[1].endpoint.initiate(now, Some(connection), "net").unwrap();
            world.settle(1);
            world.run_secs(5);
            // It forgets what it has, so that it says so with the next.
            world.hosts[1].stopped = true;
            world.hosts[1].endpoint.terminate(now, &Target::All, true).unwrap();
            world.settle(1);
            world.hosts[1].stopped = false;
        }
        let sas = world.hosts[0].sas();
        let names: Vec<_> = sas.iter().map(|sa| sa.connection.as_deref().unwrap()).collect();
        assert_eq!(names, ["site", "guests"], "{unique:?}");
    }
}

#[test]
fn a_certificate_without_a_ca_is_trusted_where_it_is_loaded() {
    let known = |edit: fn(&mut Connection)| {
        let mut world = pair(["moon-P-256", "sun-self"], move |index, connection| {
            if index == 0 {
                edit(connection);
            }
        });
        world.hosts[0].endpoint.credentials_mut().load_certificate(cert("sun-self"), false).unwrap();
        world
    };
    comes_up(&mut known(|_| {}));
    // Not if the connection names a CA, nor if no side announces one.
    let mut world = known(|connection| connection.remote.cacerts = vec![cert("root")]);
    initiator_refuses(&mut world, "no issuer certificate is loaded for 'C=CH, O=Testudo, CN=sun'");
    initiator_refuses(
        &mut pair(["moon-P-256", "sun-self"], |_, _| {}),
        "no issuer certificate is loaded for 'C=CH, O=Testudo, CN=sun'",
    );
}

#[test]
fn a_connection_for_one_certificate_takes_no_other() {
    let mut world = pair(["moon-P-256", "sun-P-256"], |index, connection| {
        if index == 1 {
            connection.remote.certs = vec![cert("moon-P-384")];
        }
    });
    responder_refuses(&mut world, "is not allowed by the connection");
}

/// A connection with exactly the peer's name comes before one with a pattern, whichever is first
/// otherwise.
#[test]
fn a_name_is_better_than_a_pattern() {
    for (name, served) in [("CN=moon", "a-first"), ("CN=*", "site")] {
        let mut world = pair(["moon-P-256", "sun-P-256"], |index, connection| {
            if index == 1 {
                connection.remote.id = Some(dn("C=CH, O=Testudo, CN=moon"));
            }
        });
        let now = world.now;
        let site = world.hosts[1].endpoint.connections().next().unwrap().clone();
        let mut other = Connection { name: "a-first".into(), ..site };
        other.remote.id = Some(dn(&format!("C=CH, O=Testudo, {name}")));
        world.hosts[1].load(now, other);
        comes_up(&mut world);
        assert_eq!(world.hosts[1].sas()[0].connection.as_deref(), Some(served));
    }
}

/// Two connections for one peer, by its key and by its certificate: how it proves itself decides.
#[test]
fn a_peer_is_served_by_the_connection_of_its_method() {
    let moon = fqdn("moon.example.org");
    for (signs, served) in [(true, "z-last"), (false, "site")] {
        let mut world = pair(["moon-P-256", "sun-P-256"], |index, connection| match index {
            0 if signs => connection.local.id = Some(moon.clone()),
            0 => connection.local = LocalAuth::psk(Some(moon.clone())),
            _ => connection.remote = RemoteAuth::psk(Some(moon.clone())),
        });
        for host in &mut world.hosts {
            host.load_secret(secret("moon's", b"a key of both", &["moon.example.org"]));
        }
        let now = world.now;
        let site = world.hosts[1].endpoint.connections().next().unwrap().clone();
        let mut other = Connection { name: "z-last".into(), ..site };
        other.remote.method = AuthMethod::PUBKEY;
        world.hosts[1].load(now, other);
        comes_up(&mut world);
        assert_eq!(world.hosts[1].sas()[0].connection.as_deref(), Some(served));
    }
}
