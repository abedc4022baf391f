//! Wrong public keys without a certificate from a scripted initiator.

use crate::pki::{cert, public_key};
use crate::scenarios::certificates_hostile::{hashes, said, sun_by_certificate};
use crate::scenarios::common::World;
use crate::scenarios::common::peer::{Peer, only_notify};
use testudo_ike::cert::Hashes;
use testudo_ike::config::{Connection, Identity, LocalAuth};
use testudo_ike::message::{CertEncoding, CertPayload, ExchangeType, NotifyType, Payload};

/// Sun, which knows moon's key and proves itself by its own.
fn sun_by_key(edit: impl Fn(&mut Connection)) -> World {
    let mut world = sun_by_certificate();
    let mut connection: Connection = world.hosts[0].endpoint.connections().next().unwrap().clone();
    connection.local = LocalAuth::by_public_key(None, vec![public_key("sun-P-256")]);
    connection.remote.id = Some(Identity::Dn(cert("moon-P-256").subject().clone()));
    connection.remote.pubkeys = vec![public_key("moon-P-256")];
    edit(&mut connection);
    let now = world.now;
    world.hosts[0].load(now, connection);
    world
}

fn raw(name: &str) -> Payload {
    Payload::Certificate(CertPayload::raw_key(public_key(name).to_der().to_vec()))
}

/// The payloads of a moon that has the key of `moon-P-256` and sends it, changed by `spoil`.
fn shown(peer: &Peer, spoil: impl Fn(&mut Vec<Payload>)) -> Vec<Payload> {
    said(peer, |payloads, _| {
        payloads[1] = raw("moon-P-256");
        spoil(payloads);
    })
}

fn refused_by(mut world: World, why: &str, spoil: impl Fn(&mut Vec<Payload>)) {
    let mut peer = Peer::init(&mut world, 1, vec![hashes(Hashes::ALL)]);
    let payloads = shown(&peer, spoil);
    let answer = peer.request(&mut world, ExchangeType::IkeAuth, payloads);
    assert_eq!(only_notify(answer), NotifyType::AuthenticationFailed);
    assert!(world.hosts[0].logged(why), "{why}: {:#?}", world.hosts[0].log());
    assert!(world.hosts[0].sas().is_empty());
}

fn refused(why: &str, spoil: impl Fn(&mut Vec<Payload>)) {
    refused_by(sun_by_key(|_| {}), why, spoil);
}

/// Sun shows its key if it is asked for keys, and not if it is asked for certificates.
#[test]
fn the_script_is_right() {
    for (asked, shows) in [
        (CertPayload::raw_key(Vec::new()), true),
        (CertPayload::x509(cert("root").key().info_id().to_vec()), false),
    ] {
        let mut world = sun_by_key(|_| {});
        let mut peer = Peer::init(&mut world, 1, vec![hashes(Hashes::ALL)]);
        let payloads = shown(&peer, |payloads| payloads.push(Payload::CertificateRequest(asked.clone())));
        let answer = peer.request(&mut world, ExchangeType::IkeAuth, payloads).unwrap();
        let sent: Vec<&Payload> =
            answer.iter().filter(|payload| matches!(payload, Payload::Certificate(_))).collect();
        let expected = raw("sun-P-256");
        assert_eq!(sent, if shows { vec![&expected] } else { vec![] });
        assert_eq!(world.hosts[0].installed.len(), 1);
    }
}

#[test]
fn keys_that_cannot_be_read_or_are_others() {
    refused("the peer has sent several public keys, expected one", |payloads| {
        payloads.push(raw("moon-P-256"));
    });
    refused("public key of the peer: SubjectPublicKeyInfo is malformed", |payloads| {
        payloads[1] = Payload::Certificate(CertPayload::raw_key(vec![0x30, 0]));
    });
    refused("public key of the peer: public key has 4000 octets, at most 2048 are read", |payloads| {
        payloads[1] = Payload::Certificate(CertPayload::raw_key(vec![0x30; 4000]));
    });
    refused("which is not allowed by the connection", |payloads| payloads[1] = raw("sun-P-256"));
}

/// A CERT of another encoding says nothing about the key.
#[test]
fn other_encodings_are_passed_over() {
    let mut world = sun_by_key(|_| {});
    let mut peer = Peer::init(&mut world, 1, vec![hashes(Hashes::ALL)]);
    let payloads = shown(&peer, |payloads| {
        payloads[1] =
            Payload::Certificate(CertPayload { encoding: CertEncoding::HashAndUrl, data: b"url".to_vec() });
    });
    peer.request(&mut world, ExchangeType::IkeAuth, payloads).unwrap();
    assert_eq!(world.hosts[0].installed.len(), 1, "{:#?}", world.hosts[0].log());
}

/// A key that is sent authenticates no peer if a certificate is expected.
#[test]
fn a_key_is_no_certificate() {
    refused_by(
        sun_by_certificate(),
        "the peer has sent a certificate as Raw Public Key, expected X.509",
        |_| {},
    );
}

/// A message cannot have as many keys tried as connections name: one that shows its key needs but
/// one.
#[test]
fn few_of_many_keys_are_tried() {
    let many = |shows: bool| {
        let mut world = sun_by_key(|connection| connection.name = "last".into());
        let now = world.now;
        let last = world.hosts[0].endpoint.connections().find(|c| c.name == "last").unwrap().clone();
        world.hosts[0].endpoint.unload_connection("site");
        for number in 0..40 {
            let mut other = Connection { name: format!("a{number:02}"), ..last.clone() };
            // Keys that differ cost one signature each: these are all of moon's curve.
            other.remote.pubkeys = vec![of_curve(number)];
            world.hosts[0].load(now, other);
        }
        let mut peer = Peer::init(&mut world, 1, vec![hashes(Hashes::ALL)]);
        let payloads = shown(&peer, |payloads| {
            if !shows {
                payloads.remove(1);
            }
        });
        let answer = peer.request(&mut world, ExchangeType::IkeAuth, payloads).unwrap();
        (answer.len() > 1, world)
    };
    assert!(many(true).0, "the right one is found");
    assert!(!many(false).0, "the others use up what may be tried");
}

/// A public key on P-256, another for each number.
fn of_curve(number: u32) -> testudo_ike::cert::RawKey {
    use aws_lc_rs::agreement::{ECDH_P256, PrivateKey};
    let scalar: Vec<u8> = (0..28).map(|_| 0x11).chain(number.to_be_bytes()).collect();
    let private = PrivateKey::from_private_key(&ECDH_P256, &scalar).unwrap();
    let point = private.compute_public_key().unwrap();
    let head = public_key("moon-P-256");
    let info = [&head.to_der()[..26], point.as_ref()].concat();
    testudo_ike::cert::RawKey::from_der(&info).unwrap()
}
