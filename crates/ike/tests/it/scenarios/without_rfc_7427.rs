//! Peers that know no digital signatures (RFC 7427): ECDSA as RFC 4754 has it, RSA with SHA-1 where
//! the operator allows that.

use crate::pki::{cert, key};
use crate::scenarios::certificates_hostile::{asked, hashes, refused, said, sun_by, sun_by_certificate};
use crate::scenarios::common::World;
use crate::scenarios::common::peer::{Peer, only_notify};
use testudo_ike::cert::{Hash, Hashes, Schemes, SignatureScheme};
use testudo_ike::config::{AuthMethod, Connection, Identity};
use testudo_ike::endpoint::EndpointConfig;
use testudo_ike::message::{
    AuthMethodId, AuthPayload, CertPayload, ExchangeType, IdPayload, NotifyType, Payload,
};

fn legacy() -> EndpointConfig {
    EndpointConfig { legacy_signatures: true, ..EndpointConfig::default() }
}

/// Sets what both sides of sun's connection may sign with.
fn narrow(world: &mut World, method: AuthMethod) {
    let mut connection: Connection = world.hosts[0].endpoint.connections().next().unwrap().clone();
    (connection.local.method, connection.remote.method) = (method, method);
    let now = world.now;
    world.hosts[0].load(now, connection);
}

/// A moon that proves itself by RSA with SHA-1.
fn by_sha1(peer: &Peer) -> Vec<Payload> {
    said(peer, |payloads, auth| {
        let id = IdPayload::from(&Identity::Dn(cert("moon-rsa").subject().clone()));
        let signature = key("moon-rsa").sign_sha1(&peer.signed_octets(&id)).unwrap();
        payloads[1] = Payload::Certificate(CertPayload::x509(cert("moon-rsa").to_der().to_vec()));
        *auth = AuthPayload { method: AuthMethodId::RsaSignature, data: signature };
    })
}

/// AUTH in what sun answers to a moon without RFC 7427, and what it covers.
fn auth_of_sun(world: &mut World) -> (AuthPayload, Vec<u8>) {
    let mut peer = Peer::init(world, 1, vec![]);
    let payloads = asked(&peer);
    let answer = peer.request(world, ExchangeType::IkeAuth, payloads).unwrap();
    let id = answer.iter().find_map(|payload| match payload {
        Payload::IdResponder(id) => Some(id.clone()),
        _ => None,
    });
    let auth = answer.iter().find_map(|payload| match payload {
        Payload::Auth(auth) => Some(auth.clone()),
        _ => None,
    });
    (auth.unwrap_or_else(|| panic!("{:#?}", world.hosts[0].log())), peer.octets_of_host(&id.unwrap()))
}

#[test]
fn ecdsa_is_produced_as_rfc_4754_has_it() {
    for (file, method, scheme, length) in [
        ("sun-P-256", AuthMethodId::EcdsaSha256, SignatureScheme::EcdsaSha256, 64),
        ("sun-P-384", AuthMethodId::EcdsaSha384, SignatureScheme::EcdsaSha384, 96),
        ("sun-P-521", AuthMethodId::EcdsaSha512, SignatureScheme::EcdsaSha512, 132),
    ] {
        let mut world = sun_by(file, EndpointConfig::default());
        let (auth, octets) = auth_of_sun(&mut world);
        assert_eq!((auth.method, auth.data.len()), (method, length));
        assert!(cert(file).key().verify_fixed(scheme, &octets, &auth.data), "{file}");
        assert_eq!(world.hosts[0].installed.len(), 1);
    }
}

/// r or s may begin with zeros: each in its full length, however many signatures are made.
#[test]
fn numbers_are_padded() {
    let (key, public) = (key("sun-P-521"), cert("sun-P-521"));
    let scheme = SignatureScheme::EcdsaSha512;
    // The highest of 66 octets has one bit: every second number has a zero there.
    for number in 0..32_u8 {
        let signature = key.sign_fixed(scheme, &[number]).unwrap();
        assert_eq!(signature.len(), 132);
        assert!(public.key().verify_fixed(scheme, &[number], &signature));
    }
}

/// ECDSA of RFC 4754: the signature is r and s, and nothing else.
#[test]
fn signatures_of_rfc_4754_are_verified() {
    let mut world = sun_by_certificate();
    let mut peer = Peer::init(&mut world, 1, vec![hashes(Hashes::ALL)]);
    let payloads = said(&peer, |_, auth| {
        let (_, der) = auth.signature_parts().unwrap();
        *auth = AuthPayload { method: AuthMethodId::EcdsaSha256, data: r_and_s(der) };
    });
    assert!(peer.request(&mut world, ExchangeType::IkeAuth, payloads).unwrap().len() > 1);
    refused("was not made with the key of", |_, auth| {
        let (_, der) = auth.signature_parts().unwrap();
        *auth = AuthPayload { method: AuthMethodId::EcdsaSha384, data: r_and_s(der) };
    });
}

/// The two numbers of an ECDSA signature in DER, 32 octets each.
fn r_and_s(der: &[u8]) -> Vec<u8> {
    let mut rest = &der[2..];
    let mut both = Vec::new();
    for _ in 0..2 {
        let (number, behind) = rest[2..].split_at(usize::from(rest[1]));
        let number = number.iter().skip_while(|octet| **octet == 0).copied().collect::<Vec<_>>();
        both.extend(vec![0; 32 - number.len()]);
        both.extend(number);
        rest = behind;
    }
    both
}

#[test]
fn rsa_with_sha1_is_for_those_who_ask_for_it() {
    let mut world = sun_by("sun-rsa", legacy());
    let (auth, octets) = auth_of_sun(&mut world);
    assert_eq!(auth.method, AuthMethodId::RsaSignature);
    assert!(cert("sun-rsa").key().verify_sha1(&octets, &auth.data));
    assert!(!cert("sun-rsa").key().verify_sha1(b"another message", &auth.data));
    let weak = "'C=CH, O=Testudo, CN=sun' (myself) with RSA_EMSA_PKCS1_SHA1 (weak, allowed by legacy = true)";
    assert!(world.hosts[0].logged(weak), "{:#?}", world.hosts[0].log());

    let mut world = sun_by("sun-rsa", EndpointConfig::default());
    let mut peer = Peer::init(&mut world, 1, vec![]);
    let payloads = asked(&peer);
    let answer = peer.request(&mut world, ExchangeType::IkeAuth, payloads);
    assert_eq!(only_notify(answer), NotifyType::AuthenticationFailed);
    let why = "cannot sign with the RSA 2048 key of 'C=CH, O=Testudo, CN=sun': the peer does not support digital \
               signatures (RFC 7427), and RSA with SHA-1 needs legacy = true in testudo.toml";
    assert!(world.hosts[0].logged(why), "{:#?}", world.hosts[0].log());
}

#[test]
fn rsa_with_sha1_is_verified_for_those_who_ask_for_it() {
    for (config, accepted) in [(legacy(), true), (EndpointConfig::default(), false)] {
        let mut world = sun_by("sun-P-256", config);
        let mut peer = Peer::init(&mut world, 1, vec![]);
        let payloads = by_sha1(&peer);
        peer.request(&mut world, ExchangeType::IkeAuth, payloads).unwrap();
        let line = match accepted {
            true => "with RSA_EMSA_PKCS1_SHA1 (weak, allowed by legacy = true) successful",
            false => {
                "RSA with SHA-1, which is too weak; expected a digital signature (RFC 7427), or, where no \
                      hash is named in auth, legacy = true in testudo.toml"
            }
        };
        assert!(world.hosts[0].logged(line), "{:#?}", world.hosts[0].log());
        assert_eq!(world.hosts[0].installed.len(), usize::from(accepted));
    }
    let mut world = sun_by("sun-P-256", legacy());
    let mut peer = Peer::init(&mut world, 1, vec![]);
    let mut payloads = by_sha1(&peer);
    let auth = payloads.iter_mut().find_map(|payload| match payload {
        Payload::Auth(auth) => Some(auth),
        _ => None,
    });
    auth.unwrap().data[100] ^= 1;
    let answer = peer.request(&mut world, ExchangeType::IkeAuth, payloads);
    assert_eq!(only_notify(answer), NotifyType::AuthenticationFailed);
}

/// `auth = rsa-sha256` rules SHA-1 out, `rsa/pss` and `ecdsa` do too, whatever `legacy` says.
#[test]
fn a_hash_that_is_named_rules_sha1_out() {
    let sha256: Schemes = [SignatureScheme::RsaPkcs1Sha256].into_iter().collect();
    let method = AuthMethod::Pubkey { schemes: sha256, chain: Hashes::default().with(Hash::Sha256) };
    let mut world = sun_by("sun-rsa", legacy());
    narrow(&mut world, method);
    let mut peer = Peer::init(&mut world, 1, vec![]);
    let payloads = by_sha1(&peer);
    let answer = peer.request(&mut world, ExchangeType::IkeAuth, payloads);
    assert_eq!(only_notify(answer), NotifyType::AuthenticationFailed);
    assert!(world.hosts[0].logged("RSA with SHA-1, which is too weak"), "{:#?}", world.hosts[0].log());
}

/// Ed25519 has no method of its own.
#[test]
fn a_key_without_another_form_does_not_sign() {
    let mut world = sun_by("sun-ed25519", legacy());
    let mut peer = Peer::init(&mut world, 1, vec![]);
    let payloads = asked(&peer);
    let answer = peer.request(&mut world, ExchangeType::IkeAuth, payloads);
    assert_eq!(only_notify(answer), NotifyType::AuthenticationFailed);
    let why = "the peer does not support digital signatures (RFC 7427), and this key has no older method";
    assert!(world.hosts[0].logged(why), "{:#?}", world.hosts[0].log());
}
