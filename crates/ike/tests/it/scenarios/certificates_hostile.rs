//! Wrong certificates and signatures of a scripted initiator.

use crate::pki::{NOVEMBER_2026, cert, key};
use crate::scenarios::common::peer::{Peer, only_notify};
use crate::scenarios::common::{Weather, World};
use testudo_ike::cert::{Hash, Hashes, SignatureScheme};
use testudo_ike::config::{AuthMethod, Connection, Identity, LocalAuth};
use testudo_ike::endpoint::EndpointConfig;
use testudo_ike::message::{
    AuthMethodId, AuthPayload, CertEncoding, CertPayload, ExchangeType, IdPayload, Notify, NotifyType,
    Payload,
};

/// Sun, which wants moon's certificate and proves itself by its own.
pub(crate) fn sun_by_certificate() -> World {
    sun_by("sun-P-256", EndpointConfig::default())
}

/// The same with that certificate and those settings.
pub(crate) fn sun_by(file: &str, config: EndpointConfig) -> World {
    let mut world = World::pair_of(["192.0.2.1", "192.0.2.2"], 1, Weather::FAIR, config, |_, _| {});
    world.hosts.remove(0);
    let mut connection: Connection = world.hosts[0].endpoint.connections().next().unwrap().clone();
    connection.local = LocalAuth::by_certificate(None, vec![cert(file)]);
    connection.remote.method = AuthMethod::PUBKEY;
    connection.remote.id = None;
    let now = world.now;
    world.hosts[0].load(now, connection);
    let endpoint = &mut world.hosts[0].endpoint;
    endpoint.set_unix_time(now, NOVEMBER_2026);
    endpoint.credentials_mut().load_certificate(cert("root"), true).unwrap();
    endpoint.credentials_mut().load_key(key(file));
    world
}

pub(crate) fn hashes(hashes: Hashes) -> Payload {
    Payload::Notify(Notify::new(NotifyType::SignatureHashAlgorithms, hashes.to_notify()))
}

fn certificate(name: &str) -> Payload {
    Payload::Certificate(CertPayload::x509(cert(name).to_der().to_vec()))
}

/// The payloads of a moon with the key of `moon-P-256`; `spoil` changes them. AUTH comes last.
pub(crate) fn said(peer: &Peer, spoil: impl Fn(&mut Vec<Payload>, &mut AuthPayload)) -> Vec<Payload> {
    let id = IdPayload::from(&Identity::Dn(cert("moon-P-256").subject().clone()));
    let scheme = SignatureScheme::EcdsaSha256;
    let signature = key("moon-P-256").sign(scheme, &peer.signed_octets(&id)).unwrap();
    let mut auth = AuthPayload::signature(&scheme.algorithm_identifier().unwrap(), &signature).unwrap();
    let mut payloads = vec![Payload::IdInitiator(id), certificate("moon-P-256")];
    spoil(&mut payloads, &mut auth);
    payloads.push(Payload::Auth(auth));
    payloads.extend(peer.auth_payloads().into_iter().skip(2));
    payloads
}

pub(crate) fn asked(peer: &Peer) -> Vec<Payload> {
    let request = CertPayload::x509(cert("root").key().info_id().to_vec());
    said(peer, |payloads, _| payloads.push(Payload::CertificateRequest(request.clone())))
}

pub(crate) fn refused(why: &str, spoil: impl Fn(&mut Vec<Payload>, &mut AuthPayload)) {
    let mut world = sun_by_certificate();
    let mut peer = Peer::init(&mut world, 1, vec![hashes(Hashes::ALL)]);
    let payloads = said(&peer, spoil);
    let answer = peer.request(&mut world, ExchangeType::IkeAuth, payloads);
    assert_eq!(only_notify(answer), NotifyType::AuthenticationFailed);
    assert!(world.hosts[0].logged(why), "{why}: {:#?}", world.hosts[0].log());
    assert!(world.hosts[0].sas().is_empty());
}

#[test]
fn the_script_is_right() {
    let mut world = sun_by_certificate();
    let mut peer = Peer::init(&mut world, 1, vec![hashes(Hashes::ALL)]);
    let payloads = asked(&peer);
    let answer = peer.request(&mut world, ExchangeType::IkeAuth, payloads).unwrap();
    let sent: Vec<&CertPayload> = answer
        .iter()
        .filter_map(|payload| match payload {
            Payload::Certificate(sent) => Some(sent),
            _ => None,
        })
        .collect();
    assert_eq!(sent, [&CertPayload::x509(cert("sun-P-256").to_der().to_vec())]);
    assert_eq!(world.hosts[0].installed.len(), 1);
}

#[test]
fn signatures_that_are_wrong() {
    let wrong = "AUTH of C=CH, O=Testudo, CN=moon was not made with the key of 'C=CH, O=Testudo, CN=moon'";
    refused(wrong, |_, auth| *auth.data.last_mut().unwrap() ^= 1);
    refused(wrong, |payloads, _| payloads[1] = certificate("moon-P-384"));
    // Another's certificate in front of one's own.
    refused("was not made with the key of 'C=CH, O=Testudo, CN=sun'", |payloads, _| {
        payloads.insert(1, certificate("sun-P-256"));
    });
    refused("is too short", |_, auth| auth.data = vec![200, 1, 2]);
    refused("is not acceptable: algorithm identifier is malformed", |_, auth| auth.data[1] = 0xff);
    refused("RSA with SHA-1, which is too weak", |_, auth| auth.method = AuthMethodId::RsaSignature);
    refused("authenticates by NULL Authentication, expected a signature", |_, auth| {
        auth.method = AuthMethodId::Null;
    });
}

#[test]
fn as_many_certificates_as_are_read() {
    let mut world = sun_by_certificate();
    let mut peer = Peer::init(&mut world, 1, vec![hashes(Hashes::ALL)]);
    let payloads = said(&peer, |payloads, _| payloads.extend((0..7).map(|_| certificate("root"))));
    peer.request(&mut world, ExchangeType::IkeAuth, payloads).unwrap();
    assert_eq!(world.hosts[0].installed.len(), 1);
}

#[test]
fn certificates_that_cannot_be_read() {
    refused("the peer has sent 9 certificates, at most 8 are read", |payloads, _| {
        payloads.extend((0..8).map(|_| certificate("root")));
    });
    refused("certificate 1 of the peer: certificate is malformed", |payloads, _| {
        payloads[1] = Payload::Certificate(CertPayload::x509(vec![0x30, 0]));
    });
    refused("a certificate as Hash and URL of X.509 certificate, expected X.509", |payloads, _| {
        let encoding = CertEncoding::HashAndUrl;
        payloads[1] = Payload::Certificate(CertPayload { encoding, data: b"http://example.org/".to_vec() });
    });
    refused("has sent no certificate, and no certificate of that peer is loaded", |payloads, _| {
        payloads.remove(1);
    });
}

/// We sign with nothing that the peer has not said it can hash.
#[test]
fn hashes_that_the_peer_lacks_are_not_used() {
    let sha512 = Hashes::default().with(Hash::Sha512);
    let mut world = sun_by_certificate();
    let mut peer = Peer::init(&mut world, 1, vec![hashes(sha512)]);
    let payloads = asked(&peer);
    let answer = peer.request(&mut world, ExchangeType::IkeAuth, payloads);
    assert_eq!(only_notify(answer), NotifyType::AuthenticationFailed);
    let why = "cannot sign with the ECDSA 256 key of 'C=CH, O=Testudo, CN=sun': \
               the peer supports no hash algorithm that is allowed here";
    assert!(world.hosts[0].logged(why), "{:#?}", world.hosts[0].log());
}
