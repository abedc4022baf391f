//! Authentication with public keys that have no certificate (RFC 7670): what brings a tunnel up,
//! and what does not, with a reason in the log alone.

use crate::pki::{NOVEMBER_2026, cert, key, public_key};
use crate::scenarios::certificates::{comes_up, initiator_refuses, responder_refuses};
use crate::scenarios::common::build::fqdn;
use crate::scenarios::common::wire::sent;
use crate::scenarios::common::{Weather, World};
use testudo_ike::cert::{Schemes, SignatureScheme};
use testudo_ike::config::{AuthMethod, Connection, Identity, LocalAuth, SendCert};
use testudo_ike::endpoint::InitiateError;
use testudo_ike::message::ExchangeType;

const NAMES: [&str; 2] = ["moon", "sun"];

/// Both sides by the keys of these files, which the other side has; they are called moon and sun.
fn pair(files: [&str; 2], edit: impl Fn(usize, &mut Connection)) -> World {
    let mut world = World::pair_with(1, Weather::FAIR, |index, connection| {
        connection.local = LocalAuth::by_public_key(Some(fqdn(NAMES[index])), vec![public_key(files[index])]);
        connection.remote.method = AuthMethod::PUBKEY;
        connection.remote.pubkeys = vec![public_key(files[1 - index])];
        edit(index, connection);
    });
    for (index, file) in files.into_iter().enumerate() {
        let now = world.now;
        let endpoint = &mut world.hosts[index].endpoint;
        endpoint.set_unix_time(now, NOVEMBER_2026);
        endpoint.credentials_mut().load_key(key(file));
    }
    world
}

#[test]
fn every_kind_of_key() {
    for (kind, scheme) in [
        ("rsa", SignatureScheme::RsaPkcs1Sha256),
        ("P-256", SignatureScheme::EcdsaSha256),
        ("P-384", SignatureScheme::EcdsaSha384),
        ("P-521", SignatureScheme::EcdsaSha512),
        ("ed25519", SignatureScheme::Ed25519),
    ] {
        let moon = format!("moon-{kind}");
        let mut world = pair([&moon, &format!("sun-{kind}")], |_, _| {});
        comes_up(&mut world);
        let key = public_key(&moon);
        let line = format!("authentication of 'moon' with {scheme} successful, by public key {key}");
        assert!(world.hosts[1].logged(&line), "{:#?}", world.hosts[1].log());
        assert_eq!(world.hosts[0].sas()[0].remote_id, Some(fqdn("sun")));
    }
}

#[test]
fn a_signature_that_is_not_allowed() {
    let pss: Schemes = [SignatureScheme::RsaPssSha256].into_iter().collect();
    let method = AuthMethod::Pubkey { schemes: pss, chain: testudo_ike::cert::Hashes::ALL };
    let mut world = pair(["moon-rsa", "sun-rsa"], |index, connection| {
        if index == 1 {
            connection.remote.method = method;
        }
    });
    responder_refuses(&mut world, "signs by RSA_EMSA_PKCS1_SHA2_256, which is not allowed here");
}

#[test]
fn another_key_proves_nothing() {
    let why = "AUTH of moon was not made with a public key allowed by the connection";
    let other = |index: usize, connection: &mut Connection| {
        if index == 1 {
            connection.remote.pubkeys = vec![public_key("moon-P-384")];
        }
    };
    let mut world = pair(["moon-P-256", "sun-P-256"], |index, connection| {
        other(index, connection);
        connection.send_cert = SendCert::Never;
    });
    responder_refuses(&mut world, why);
    let why = "AUTH of sun was not made with a public key allowed by the connection";
    let mut world = pair(["moon-P-256", "sun-P-256"], |index, connection| {
        if index == 0 {
            connection.remote.pubkeys = vec![public_key("moon-P-256")];
        }
        connection.send_cert = SendCert::Never;
    });
    initiator_refuses(&mut world, why);
    // Where the peer has sent its key, that one is named.
    let mut world = pair(["moon-P-256", "sun-P-256"], other);
    let key = public_key("moon-P-256");
    responder_refuses(
        &mut world,
        &format!("moon has sent public key {key}, which is not allowed by the connection"),
    );
}

#[test]
fn one_of_several_keys_is_enough() {
    let mut world = pair(["moon-P-256", "sun-ed25519"], |index, connection| {
        let names = [["moon-rsa", "moon-P-256"], ["sun-P-521", "sun-ed25519"]];
        connection.local.pubkeys = names[index].map(public_key).to_vec();
        connection.remote.pubkeys = names[1 - index].map(public_key).to_vec();
    });
    comes_up(&mut world);
}

/// As in charon: only the key matters.
#[test]
fn a_certificate_of_the_key_is_as_good_as_the_key() {
    let mut world = pair(["moon-P-256", "sun-P-256"], |index, connection| {
        if index == 0 {
            connection.local = LocalAuth::by_certificate(Some(fqdn("moon")), vec![cert("moon-P-256")]);
            connection.send_cert = SendCert::Always;
        }
    });
    comes_up(&mut world);
    let mut world = pair(["moon-P-256", "sun-P-256"], |index, connection| match index {
        0 => {
            connection.local = LocalAuth::by_certificate(Some(fqdn("moon")), vec![cert("moon-P-256")]);
            connection.send_cert = SendCert::Always;
        }
        _ => connection.remote.pubkeys = vec![public_key("moon-P-384")],
    });
    // A CA that is trusted does not help.
    world.hosts[1].endpoint.credentials_mut().load_certificate(cert("root"), true).unwrap();
    responder_refuses(&mut world, "AUTH of moon was not made with a public key allowed by the connection");
}

#[test]
fn a_key_or_a_certificate_where_both_are_named() {
    for by_key in [true, false] {
        let mut world = pair(["moon-P-256", "sun-P-256"], |index, connection| match (index, by_key) {
            (0, true) => {}
            (0, false) => {
                let id = Identity::Dn(cert("moon-P-256").subject().clone());
                connection.local = LocalAuth::by_certificate(Some(id), vec![cert("moon-P-256")]);
            }
            _ => {
                connection.remote.id = Some(if by_key {
                    fqdn("moon")
                } else {
                    Identity::Dn(cert("moon-P-256").subject().clone())
                });
                connection.remote.certs = vec![cert("moon-P-256")];
                let file = if by_key { "moon-P-256" } else { "moon-P-384" };
                connection.remote.pubkeys = vec![public_key(file)];
            }
        });
        world.hosts[1].endpoint.credentials_mut().load_certificate(cert("root"), true).unwrap();
        comes_up(&mut world);
        let how = if by_key { "by public key" } else { "by certificate" };
        assert!(world.hosts[1].logged(how), "{:#?}", world.hosts[1].log());
    }
}

/// Without `remote.id` a peer could otherwise claim any identity.
#[test]
fn without_an_identity_a_peer_has_the_name_of_its_key() {
    let anybody = |index: usize, connection: &mut Connection| {
        if index == 1 {
            connection.remote.id = None;
        }
    };
    let mut world = pair(["moon-P-256", "sun-P-256"], anybody);
    responder_refuses(&mut world, "no public key allowed by the connection has the name moon");
    // As by default.
    let mut world = pair(["moon-P-256", "sun-P-256"], |index, connection| {
        (connection.local.id, connection.remote.id) = (None, None);
        if index == 1 {
            connection.remote.pubkeys.push(public_key("moon-P-384"));
        }
    });
    comes_up(&mut world);
    assert_eq!(world.hosts[1].sas()[0].remote_id, Some(public_key("moon-P-256").identity()));
    // The name of another key that may connect.
    let mut world = pair(["moon-P-256", "sun-P-256"], |index, connection| match index {
        0 => connection.local.id = Some(public_key("moon-P-384").identity()),
        _ => {
            connection.remote.id = None;
            connection.remote.pubkeys.push(public_key("moon-P-384"));
            connection.send_certreq = false;
        }
    });
    responder_refuses(&mut world, "was not made with a public key allowed by the connection");
}

#[test]
fn a_pattern_is_an_identity() {
    let mut world = pair(["moon-P-256", "sun-P-256"], |index, connection| match index {
        0 => connection.local.id = Some(fqdn("moon.example.org")),
        _ => connection.remote.id = Some(fqdn("*.example.org")),
    });
    comes_up(&mut world);
}

#[test]
fn a_shared_key_one_way_and_a_public_key_the_other() {
    for by_key in [0, 1] {
        let mut world = pair(["moon-P-256", "sun-ed25519"], |index, connection| {
            if index == by_key {
                connection.local = LocalAuth::psk(Some(fqdn(NAMES[index])));
            } else {
                connection.remote.method = AuthMethod::Psk;
                connection.remote.pubkeys.clear();
            }
        });
        comes_up(&mut world);
        assert!(world.hosts[1 - by_key].logged("with pre-shared key successful"));
        assert!(world.hosts[by_key].logged("by public key"));
    }
}

#[test]
fn without_its_private_key_a_public_key_proves_nothing() {
    let mut world = pair(["moon-P-256", "sun-P-256"], |_, _| {});
    let id = key("moon-P-256").key_id();
    world.hosts[0].endpoint.credentials_mut().unload_key(&id);
    let now = world.now;
    let error = world.hosts[0].endpoint.initiate(now, Some("site"), "net").unwrap_err();
    assert_eq!(error, InitiateError::NoPrivateKey("site".into()));
    let lacks = world.hosts[0].endpoint.lacks(now, "site");
    let key_of_moon = public_key("moon-P-256");
    assert_eq!(lacks, [format!("the private key of our public key {key_of_moon} is not loaded")]);
    let mut world = pair(["moon-P-256", "sun-P-256"], |_, _| {});
    let id = key("sun-P-256").key_id();
    world.hosts[1].endpoint.credentials_mut().unload_key(&id);
    responder_refuses(&mut world, "no public key with its private key is loaded for 'sun'");
}

/// A key that is loaded opens nothing: a connection must name it.
#[test]
fn a_loaded_key_is_trusted_by_no_connection() {
    let mut world = pair(["moon-P-256", "sun-P-256"], |index, connection| match index {
        0 => connection.local.id = Some(public_key("moon-P-256").identity()),
        _ => {
            connection.remote.id = None;
            connection.remote.pubkeys.clear();
        }
    });
    world.hosts[1].endpoint.credentials_mut().load_public_key(public_key("moon-P-256"));
    responder_refuses(&mut world, "no certificate of that peer is loaded");
}

#[test]
fn another_node_takes_the_tunnel_over() {
    let mut world = pair(["moon-P-256", "sun-P-256"], |_, _| {});
    comes_up(&mut world);
    let now = world.now;
    world.hosts[1].take_over(now);
    world.run_secs(2);
    world.assert_tunnel();
    assert_eq!(sent(&world, 0, ExchangeType::IkeAuth, false).len(), 1);
}
