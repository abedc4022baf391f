//! Written messages read as the same, in clear and sealed.

use crate::support::arbitrary::{header, payloads};
use crate::support::entropy::Script;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use testudo_base::spi::SenderId;
use testudo_ike::config::{Identity, IkeEncryption, Integrity, KeyExchange, Prf};
use testudo_ike::message::{
    Attribute, AuthMethodId, ExchangeType, Header, IdPayload, IdType, IkeSpi, KeMethod, Message,
    MessageBuilder, Nonce, Notify, NotifyType, Payload, PayloadType, Payloads, Proposal, Protocol, SaPayload,
    SaSpi, Transform, TransformId, TransformType, VendorId,
};
use testudo_ike::suite::{IkeKeys, IkeSpis, IkeSuite, Nonces, Role, Secret};

fn builder(header: Header, payloads: &[Payload]) -> MessageBuilder {
    payloads.iter().cloned().fold(MessageBuilder::new(header), MessageBuilder::with)
}

fn keys(encryption: IkeEncryption) -> IkeKeys {
    let integrity = match encryption.key_bits() {
        _ if encryption.is_aead() => None,
        128 => Some(Integrity::HmacSha256),
        192 => Some(Integrity::HmacSha384),
        _ => Some(Integrity::HmacSha512),
    };
    let suite = IkeSuite {
        encryption,
        integrity,
        prf: Prf::HmacSha384,
        ke: KeyExchange::X25519,
        additional: [None; 7],
    };
    let nonces =
        Nonces { initiator: Nonce::new(vec![1; 32]).unwrap(), responder: Nonce::new(vec![2; 32]).unwrap() };
    let spis = IkeSpis { initiator: IkeSpi(3), responder: IkeSpi(4) };
    IkeKeys::derive(suite, &Secret::new(vec![5; 32]), &nonces, spis).unwrap()
}

fn config() -> ProptestConfig {
    let persistence = FileFailurePersistence::WithSource("regressions");
    ProptestConfig { failure_persistence: Some(Box::new(persistence)), ..ProptestConfig::with_cases(512) }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_message_in_clear_reads_as_written(header in header(), payloads in payloads()) {
        let octets = builder(header, &payloads).finish().unwrap();
        let message = Message::parse(&octets).unwrap();
        prop_assert_eq!(message.header, header);
        prop_assert_eq!(Header::parse(&octets).unwrap(), header);
        prop_assert!(message.encrypted.is_none());
        prop_assert_eq!(Vec::from(message.payloads), payloads);
    }

    #[test]
    fn a_sealed_message_reads_as_written(
        header in header(),
        payloads in payloads(),
        encryption in prop::sample::select(IkeEncryption::ALL.to_vec()),
        sender in any::<u16>(),
    ) {
        let keys = keys(encryption);
        let octets =
            keys
                .sealer(Role::Responder, SenderId(sender))
                .seal(&builder(header, &payloads), &mut Script(vec![1, 2, 3]))
                .unwrap();
        let message = Message::parse(&octets).unwrap();
        prop_assert_eq!(message.header, header);
        prop_assert!(message.payloads.is_empty());
        let opened = keys.opener(Role::Responder).open(&message.encrypted.unwrap()).unwrap();
        prop_assert_eq!(Vec::from(opened.payloads().unwrap()), payloads);
    }

    #[test]
    fn payloads_survive_storing(payloads in payloads()) {
        let stored = postcard::to_allocvec(&payloads).unwrap();
        prop_assert_eq!(postcard::from_bytes::<Vec<Payload>>(&stored).unwrap(), payloads);
    }
}

#[test]
fn numbers_read_as_written() {
    for number in 0..=u8::MAX {
        assert_eq!(u8::from(ExchangeType::from(number)), number);
        assert_eq!(u8::from(PayloadType::from(number)), number);
        assert_eq!(u8::from(Protocol::from(number)), number);
        assert_eq!(u8::from(TransformType::from(number)), number);
        assert_eq!(u8::from(IdType::from(number)), number);
        assert_eq!(u8::from(AuthMethodId::from(number)), number);
    }
    for number in 0..=u16::MAX {
        assert_eq!(u16::from(KeMethod::from(number)), number);
        assert_eq!(u16::from(NotifyType::from(number)), number);
        assert_eq!(NotifyType::from(number).is_error(), number < 16384);
    }
    assert_eq!(NotifyType::from(14).to_string(), "NO_PROPOSAL_CHOSEN");
    assert_eq!(NotifyType::from(9999).to_string(), "(9999)");
}

#[test]
fn a_stored_nonce_keeps_its_bounds() {
    for (length, good) in [(15, false), (16, true), (256, true), (257, false)] {
        let stored = postcard::to_allocvec(&vec![7_u8; length]).unwrap();
        assert_eq!(postcard::from_bytes::<Nonce>(&stored).is_ok(), good, "{length} octets");
    }
}

#[test]
fn identities_read_as_written() {
    let identities = [
        Identity::Addr("192.0.2.1".parse().unwrap()),
        Identity::Addr("2001:db8::1".parse().unwrap()),
        Identity::Fqdn("gw.example.net".to_owned()),
        Identity::Email("ops@example.net".to_owned()),
        Identity::KeyId(vec![0, 255, 1]),
    ];
    for identity in identities {
        assert_eq!(IdPayload::from(&identity).identity(), Some(identity));
    }
    for (kind, data) in [(1, vec![1; 5]), (5, vec![1; 4]), (2, vec![0xff]), (9, vec![0x30]), (200, vec![])] {
        assert_eq!(IdPayload::new(kind.into(), data).identity(), None, "ID type {kind}");
    }
}

#[test]
fn reserved_octets_of_an_identity_stay_part_of_what_auth_covers() {
    let content = [0, 0, 0, 12, 2, 0xaa, 0xbb, 0xcc, b't', b'e', b's', b't'];
    let payloads = Payloads::parse(PayloadType::IdInitiator, &content).unwrap();
    let id = payloads.id_initiator().unwrap();
    assert_eq!(id.body(), content[4..]);
    assert_eq!(id.identity(), Some(Identity::Fqdn("test".to_owned())));
}

#[test]
fn an_invalid_ke_notify_names_the_method() {
    assert_eq!(Notify::invalid_ke(KeMethod::Ecp256).wanted_ke(), Some(KeMethod::Ecp256));
    for data in [vec![], vec![19], vec![0, 19, 0]] {
        assert_eq!(Notify::new(NotifyType::InvalidKePayload, data).wanted_ke(), None);
    }
    assert_eq!(Notify::new(NotifyType::Cookie, vec![0, 19]).wanted_ke(), None);
}

/// RFC 9611 §5: protocol and SPI size are ignored.
#[test]
fn a_resource_has_an_identifier_or_none() {
    let octets: [&[u8]; 3] = [
        &[0, 0, 0, 8, 0, 0, 0x40, 0x3c],
        &[0, 0, 0, 12, 0, 0, 0x40, 0x3c, 0, 0, 0, 7],
        &[0, 0, 0, 16, 3, 4, 0x40, 0x3c, 1, 2, 3, 4, 0, 0, 0, 7],
    ];
    for (content, identifier) in octets.into_iter().zip([&[][..], &[0, 0, 0, 7], &[0, 0, 0, 7]]) {
        let payloads = Payloads::parse(PayloadType::Notify, content).unwrap();
        assert_eq!(payloads.notify(NotifyType::SaResourceInfo).unwrap().data, identifier);
        assert!(payloads.error().is_none());
    }
    let full = Payloads::parse(PayloadType::Notify, &[0, 0, 0, 8, 0, 0, 0, 48]).unwrap();
    assert_eq!(full.error().map(|error| error.kind), Some(NotifyType::TsMaxQueue));
    assert_eq!(NotifyType::TsMaxQueue.to_string(), "TS_MAX_QUEUE");
}

#[test]
fn values_that_do_not_fit_are_refused() {
    let header = Header::parse(&[
        0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0x20, 37, 0, 0, 0, 0, 0, 0, 0, 0, 28,
    ])
    .unwrap();
    let write = |payload: Payload| MessageBuilder::new(header).with(payload).finish();
    let vendor = |length: usize| Payload::VendorId(VendorId(vec![0; length]));
    let most = 65_535 - 28 - 4;
    assert_eq!(Message::parse(&write(vendor(most)).unwrap()).unwrap().header, header);
    assert_eq!(write(vendor(most + 1)).unwrap_err().what, "length of the message");
    assert_eq!(write(vendor(65_532)).unwrap_err().what, "length of a payload");

    let gcm = Transform::cipher(TransformId::ENCR_AES_GCM_16, 128);
    let sa = |transforms: Vec<Transform>| {
        let proposal = Proposal { number: 1, protocol: Protocol::Ike, spi: SaSpi::None, transforms };
        Payload::Sa(SaPayload { proposals: vec![proposal] })
    };
    assert!(write(sa(vec![gcm.clone(); 255])).is_ok());
    assert_eq!(write(sa(vec![gcm; 256])).unwrap_err().what, "number of transforms");
    let mut strange = Transform::new(TransformType::Encryption, TransformId(1));
    strange.attributes.push(Attribute::Short { kind: 0x8000, value: 0 });
    assert_eq!(write(sa(vec![strange])).unwrap_err().what, "attribute type");
}
