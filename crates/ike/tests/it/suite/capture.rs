//! Key derivation, AUTH, the Encrypted payload, NAT detection and selection against captured
//! negotiations of strongSwan.

use crate::support::capture::{Capture, captures};
use testudo_ike::config::{EspEncryption, EspProposal, IkeEncryption, IkeProposal, KeyExchange};
use testudo_ike::message::{Delete, IkeSpi, NotifyType, SaSpi};
use testudo_ike::suite::offer::ChildExchange;
use testudo_ike::suite::{IkeSpis, Role, SignedOctets, nat_detection_hash, select};
use testudo_ipsec::sa::EspAlgorithm;

/// The pre-shared key of both captures.
const PSK: &[u8] = b"correct horse battery staple";

/// The algorithm of the Child SA; both captures have one as strong as that of the IKE SA.
fn esp_algorithm(capture: &Capture) -> EspAlgorithm {
    match capture.suite.encryption {
        IkeEncryption::Aes128Gcm16 => EspAlgorithm::Aes128Gcm16,
        IkeEncryption::Aes256Gcm16 => EspAlgorithm::Aes256Gcm16,
        other => panic!("no capture has {other:?}"),
    }
}

#[test]
fn skeyseed_is_that_of_charon() {
    for capture in captures() {
        let nonces = capture.nonces();
        let key = [nonces.initiator.as_ref(), nonces.responder.as_ref()].concat();
        let skeyseed = capture.suite.prf.compute(&key, &[capture.field("shared_secret")]).unwrap();
        assert_eq!(skeyseed.expose(), capture.field("skeyseed"));
    }
}

#[test]
fn all_keys_of_the_ike_sa_are_those_of_charon() {
    for capture in captures() {
        let nonces = capture.nonces();
        let spis = capture.spis();
        let seed: [&[u8]; 4] = [
            nonces.initiator.as_ref(),
            nonces.responder.as_ref(),
            &spis.initiator.to_bytes(),
            &spis.responder.to_bytes(),
        ];
        let expected = ["sk_d", "sk_ei", "sk_er", "sk_pi", "sk_pr"].map(|name| capture.field(name)).concat();
        let stream = capture.suite.prf.plus(capture.field("skeyseed"), &seed, expected.len()).unwrap();
        assert_eq!(stream.expose(), expected);
    }
}

#[test]
fn encrypted_messages_of_charon_open() {
    for capture in captures() {
        let request = capture.open("ike_auth_request", Role::Initiator);
        assert!(request.id_initiator().is_some() && request.sa().is_some());
        assert!(request.notify(NotifyType::MessageIdSyncSupported).is_some());
        let response = capture.open("ike_auth_response", Role::Responder);
        assert!(response.id_responder().is_some() && response.ts_responder().is_some());
        let delete = capture.open("informational_request", Role::Initiator);
        assert_eq!(delete.deletes().collect::<Vec<_>>(), [&Delete::IkeSa]);
        assert!(capture.open("informational_response", Role::Responder).is_empty());
    }
}

#[test]
fn auth_of_charon_verifies_and_ours_is_the_same() {
    for capture in captures() {
        let (keys, nonces) = (capture.keys(), capture.nonces());
        let request = capture.open("ike_auth_request", Role::Initiator);
        let response = capture.open("ike_auth_response", Role::Responder);
        let initiator = SignedOctets {
            message: capture.field("ike_sa_init_request"),
            peer_nonce: &nonces.responder,
            id: request.id_initiator().unwrap(),
            int_auth: &[],
        };
        let responder = SignedOctets {
            message: capture.field("ike_sa_init_response"),
            peer_nonce: &nonces.initiator,
            id: response.id_responder().unwrap(),
            int_auth: &[],
        };
        let cases = [
            (Role::Initiator, initiator, request.auth().unwrap(), "auth_initiator"),
            (Role::Responder, responder, response.auth().unwrap(), "auth_responder"),
        ];
        for (signer, octets, auth, name) in cases {
            assert_eq!(auth.data, capture.field(name));
            assert_eq!(&keys.psk_auth(signer, PSK, &octets).unwrap(), auth);
            assert!(keys.psk_verify(signer, PSK, &octets, auth).unwrap());
            assert!(!keys.psk_verify(signer, b"correct horse battery stable", &octets, auth).unwrap());
            assert!(!keys.psk_verify(signer.peer(), PSK, &octets, auth).unwrap());
            let mut damaged = auth.clone();
            damaged.data.pop();
            assert!(!keys.psk_verify(signer, PSK, &octets, &damaged).unwrap());
        }
    }
}

#[test]
fn keys_of_the_child_sa_are_those_of_charon() {
    for capture in captures() {
        let keys = capture.keys().child(esp_algorithm(&capture), &[], &capture.nonces()).unwrap();
        assert_eq!(keys.from_initiator.0, capture.field("child_key_initiator"));
        assert_eq!(keys.from_responder.0, capture.field("child_key_responder"));
    }
}

/// Only of the destination: charon with its user-space ESP fakes the hash of the source, to force
/// UDP encapsulation.
#[test]
fn nat_detection_hash_is_that_of_charon() {
    for capture in captures() {
        let whole = capture.spis();
        let first = IkeSpis { responder: IkeSpi::ZERO, ..whole };
        let cases = [
            ("ike_sa_init_request", first, "192.0.2.2:500", "192.0.2.2:501"),
            ("ike_sa_init_response", whole, "192.0.2.1:500", "192.0.2.2:500"),
        ];
        for (name, spis, addr, other) in cases {
            let message = capture.message(name);
            let hash = &message.payloads.notify(NotifyType::NatDetectionDestinationIp).unwrap().data;
            assert_eq!(hash, &nat_detection_hash(spis, addr.parse().unwrap()));
            assert_ne!(hash, &nat_detection_hash(spis, other.parse().unwrap()));
        }
    }
}

#[test]
fn our_choice_and_answer_are_those_of_charon() {
    for capture in captures() {
        let (suite, algorithm) = (capture.suite, esp_algorithm(&capture));
        let ike = [IkeProposal {
            encryption: vec![suite.encryption],
            prf: vec![suite.prf],
            ke: vec![KeyExchange::X25519, KeyExchange::Ecp256],
            ..IkeProposal::default()
        }];
        let request = capture.message("ike_sa_init_request");
        let response = capture.message("ike_sa_init_response");
        let choice = select::ike(request.payloads.sa().unwrap(), &ike).unwrap();
        assert_eq!(choice.suite, suite);
        assert_eq!(&choice.answer(None), response.payloads.sa().unwrap());

        let encryption = match algorithm {
            EspAlgorithm::Aes128Gcm16 => EspEncryption::Aes128Gcm16,
            _ => EspEncryption::Aes256Gcm16,
        };
        let esp = [EspProposal {
            encryption: vec![encryption],
            ke: vec![suite.ke],
            esn: vec![true, false],
            ..EspProposal::default()
        }];
        let request = capture.open("ike_auth_request", Role::Initiator);
        let response = capture.open("ike_auth_response", Role::Responder);
        let choice = select::esp(request.sa().unwrap(), &esp, ChildExchange::IkeAuth).unwrap();
        assert_eq!((choice.suite.algorithm, choice.suite.esn, choice.suite.ke), (algorithm, false, None));
        let charon = response.sa().unwrap();
        let SaSpi::Child(spi) = charon.proposals[0].spi else { panic!("no ESP SPI in {charon:?}") };
        assert_eq!(&choice.answer(spi), charon);
    }
}
