//! Messages of a real strongSwan, read and written again.

use crate::support::capture::captures;
use testudo_ike::config::Identity;
use testudo_ike::message::{
    Attribute, ExchangeType, Header, KeMethod, Message, MessageBuilder, MessageId, NotifyType, Protocol,
    SaSpi, TransformId, TransformType,
};
use testudo_ike::suite::Role;

#[test]
fn ike_sa_init_request_reads_as_it_was_configured() {
    let [capture, _] = captures();
    let message = capture.message("ike_sa_init_request");
    let header = message.header;
    assert_eq!((header.exchange, header.message_id), (ExchangeType::IkeSaInit, MessageId(0)));
    assert!(header.from_initiator && !header.response && header.responder_spi.is_zero());
    assert_eq!(header.initiator_spi.to_string(), "102c54cd49676d19");
    assert!(message.encrypted.is_none());

    let proposals = &message.payloads.sa().unwrap().proposals;
    assert!(proposals.iter().all(|proposal| proposal.protocol == Protocol::Ike));
    assert!(proposals.iter().all(|proposal| proposal.spi == SaSpi::None));
    let first = &proposals[0];
    assert_eq!((first.number, first.transforms.len()), (1, 3));
    assert_eq!(first.transforms[0].id, TransformId::ENCR_AES_GCM_16);
    assert_eq!(first.transforms[0].attributes, [Attribute::KeyLength(128)]);
    let ke: Vec<_> = proposals[1].transforms_of(TransformType::KeyExchange).map(|t| t.id).collect();
    assert_eq!(ke, [KeMethod::Ecp256.into(), KeMethod::Modp2048.into()]);
    let integrity: Vec<_> = proposals[2].transforms_of(TransformType::Integrity).map(|t| t.id).collect();
    assert_eq!(integrity, [TransformId(12)], "AUTH_HMAC_SHA2_256_128, which we have no word for");

    let ke = message.payloads.ke().unwrap();
    assert_eq!((ke.method, ke.data.len()), (KeMethod::X25519, 32));
    assert_eq!(message.payloads.nonce().unwrap().as_ref().len(), 32);
    assert!(message.payloads.notify(NotifyType::FragmentationSupported).is_some());
    assert!(message.payloads.notify(NotifyType::SignatureHashAlgorithms).is_some());
    assert!(message.payloads.error().is_none());
}

#[test]
fn ike_auth_reads_as_it_was_configured() {
    let [capture, _] = captures();
    let request = capture.open("ike_auth_request", Role::Initiator);
    let fqdn = |name: &str| Some(Identity::Fqdn(name.to_owned()));
    assert_eq!(request.id_initiator().unwrap().identity(), fqdn("gw1.example.net"));
    assert_eq!(request.id_responder().unwrap().identity(), fqdn("gw2.example.net"));
    let selectors = &request.ts_initiator().unwrap().selectors;
    assert_eq!(selectors.len(), 1);
    assert_eq!(selectors[0].addrs.start().to_string(), "10.1.0.0");
    assert_eq!(selectors[0].addrs.end().to_string(), "10.1.255.255");
    assert_eq!((selectors[0].protocol, selectors[0].port_start, selectors[0].port_end), (0, 0, 65535));
}

#[test]
fn messages_in_clear_are_written_as_strongswan_writes_them() {
    for capture in captures() {
        for name in ["ike_sa_init_request", "ike_sa_init_response"] {
            let message = capture.message(name);
            let mut builder = MessageBuilder::new(message.header);
            for payload in &message.payloads {
                builder.push(payload.clone());
            }
            assert_eq!(builder.finish().unwrap(), capture.field(name));
        }
    }
}

#[test]
fn draft_of_an_encrypted_message_has_the_header_of_strongswan() {
    for capture in captures() {
        for (name, role) in [("ike_auth_request", Role::Initiator), ("ike_auth_response", Role::Responder)] {
            let octets = capture.field(name);
            let mut builder = MessageBuilder::new(Header::parse(octets).unwrap());
            for payload in &capture.open(name, role) {
                builder.push(payload.clone());
            }
            let draft = builder.draft(8 + 1 + 16).unwrap();
            let encrypted = Message::parse(octets).unwrap().encrypted.unwrap();
            assert_eq!(draft.aad, encrypted.aad);
            assert_eq!(draft.plaintext.len() + 8 + 1 + 16, encrypted.body.len());
        }
    }
}
