//! The Encrypted payload: round trips, every kind of tampering, IVs that never repeat.

use crate::support::no_entropy::NoEntropy;
use std::collections::HashSet;
use testudo_base::spi::SenderId;
use testudo_ike::config::{IkeEncryption, KeyExchange, Prf};
use testudo_ike::message::{
    ExchangeType, Header, IkeSpi, Message, MessageBuilder, MessageId, Nonce, Notify, NotifyType, Payload,
    PayloadType, VendorId,
};
use testudo_ike::suite::{IkeKeys, IkeSpis, IkeSuite, Nonces, Role, Secret, SkOpener, SkSealer, SuiteError};

const SENDER: SenderId = SenderId(0xa55a);

fn keys(encryption: IkeEncryption) -> IkeKeys {
    let suite = IkeSuite {
        encryption,
        integrity: None,
        prf: Prf::HmacSha256,
        ke: KeyExchange::X25519,
        additional: [None; 7],
    };
    let nonces =
        Nonces { initiator: Nonce::new(vec![1; 32]).unwrap(), responder: Nonce::new(vec![2; 32]).unwrap() };
    let spis = IkeSpis { initiator: IkeSpi(3), responder: IkeSpi(4) };
    IkeKeys::derive(suite, &Secret::new(vec![5; 32]), &nonces, spis).unwrap()
}

fn informational() -> MessageBuilder {
    MessageBuilder::new(Header {
        initiator_spi: IkeSpi(3),
        responder_spi: IkeSpi(4),
        exchange: ExchangeType::Informational,
        from_initiator: true,
        response: false,
        message_id: MessageId(7),
    })
}

fn with_payloads() -> MessageBuilder {
    informational()
        .with(Payload::Notify(Notify::new(NotifyType::Cookie2, vec![6; 20])))
        .with(Payload::VendorId(VendorId(b"Testudo".to_vec())))
}

fn open(keys: &IkeKeys, role: Role, message: &[u8]) -> Result<Vec<Payload>, SuiteError> {
    let message = Message::parse(message).unwrap();
    Ok(keys.opener(role).open(&message.encrypted.unwrap())?.payloads().unwrap().into())
}

/// A sealer whose next IV has this counter. The counter is the last field of a stored sealer.
fn sealer_at(keys: &IkeKeys, counter: u64) -> SkSealer {
    let mut stored = postcard::to_allocvec(&keys.sealer(Role::Initiator, SENDER)).unwrap();
    assert_eq!(stored.pop(), Some(0));
    stored.extend(postcard::to_allocvec(&counter).unwrap());
    postcard::from_bytes(&stored).unwrap()
}

#[test]
fn sealed_messages_open() {
    for encryption in IkeEncryption::ALL.into_iter().filter(|encryption| encryption.is_aead()) {
        let keys = keys(encryption);
        for role in [Role::Initiator, Role::Responder] {
            let mut sealer = keys.sealer(role, SENDER);
            let message = sealer.seal(&with_payloads(), &mut NoEntropy).unwrap();
            let payloads = open(&keys, role, &message).unwrap();
            assert_eq!(payloads.len(), 2);
            assert_eq!(payloads[1], Payload::VendorId(VendorId(b"Testudo".to_vec())));
            assert_eq!(
                open(&keys, role, &sealer.seal(&informational(), &mut NoEntropy).unwrap()),
                Ok(Vec::new())
            );
        }
    }
}

#[test]
fn no_plaintext_is_in_the_message() {
    let message = keys(IkeEncryption::Aes128Gcm16)
        .sealer(Role::Initiator, SENDER)
        .seal(&with_payloads(), &mut NoEntropy)
        .unwrap();
    assert!(!message.windows(7).any(|window| window == b"Testudo"));
}

#[test]
fn any_flipped_bit_is_noticed() {
    let keys = keys(IkeEncryption::Aes256Gcm16);
    let message = keys.sealer(Role::Initiator, SENDER).seal(&with_payloads(), &mut NoEntropy).unwrap();
    let (mut integrity, mut syntax) = (0, 0);
    for bit in 0..message.len() * 8 {
        let mut damaged = message.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        match Message::parse(&damaged) {
            // The header's own fields are refused first, and a chain that no longer ends in SK has
            // nothing to open.
            Err(_) => syntax += 1,
            Ok(Message { encrypted: None, .. }) => syntax += 1,
            Ok(Message { encrypted: Some(encrypted), .. }) => {
                assert_eq!(keys.opener(Role::Initiator).open(&encrypted), Err(SuiteError::Integrity));
                integrity += 1;
            }
        }
    }
    assert!(syntax < 28 * 8, "{syntax} of {} were refused before the check", integrity + syntax);
}

#[test]
fn the_keys_of_the_other_direction_do_not_open() {
    let keys = keys(IkeEncryption::Aes128Gcm16);
    let message = keys.sealer(Role::Initiator, SENDER).seal(&with_payloads(), &mut NoEntropy).unwrap();
    assert_eq!(open(&keys, Role::Responder, &message), Err(SuiteError::Integrity));
}

#[test]
fn messages_too_short_for_a_seal_are_refused() {
    let keys = keys(IkeEncryption::Aes128Gcm16);
    let message = keys.sealer(Role::Initiator, SENDER).seal(&informational(), &mut NoEntropy).unwrap();
    let full = Message::parse(&message).unwrap().encrypted.unwrap();
    assert_eq!(full.body.len(), 25);
    for found in 0..25 {
        let mut short = full;
        short.body = &full.body[..found];
        assert_eq!(keys.opener(Role::Initiator).open(&short), Err(SuiteError::Short { found, needed: 25 }));
    }
}

/// Seals any plaintext under the keys of the initiator, pad length included, as only a peer can.
fn seal_raw(keys: &IkeKeys, first: PayloadType, plaintext: &[u8]) -> Vec<u8> {
    use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce as GcmNonce, UnboundKey};
    let stored = postcard::to_allocvec(&keys.opener(Role::Initiator)).unwrap();
    // An opener is stored as cipher, no integrity algorithm, length of the key material, key, salt.
    let (key, salt) = stored[3..23].split_at(16);
    let iv = [9; 8];
    let nonce: [u8; 12] = [salt, &iv].concat().try_into().unwrap();
    let mut sealed = plaintext.to_vec();
    let length = 28 + 4 + 8 + sealed.len() + 16;
    let mut message = informational().draft(8 + sealed.len() + 16).unwrap().aad;
    message[28] = u8::from(first);
    LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key).unwrap())
        .seal_in_place_append_tag(GcmNonce::assume_unique_for_key(nonce), Aad::from(&message), &mut sealed)
        .unwrap();
    message.extend_from_slice(&iv);
    message.extend_from_slice(&sealed);
    assert_eq!(message.len(), length);
    message
}

#[test]
fn any_padding_of_a_peer_is_taken_off() {
    let keys = keys(IkeEncryption::Aes128Gcm16);
    let payload = [0, 0, 0, 5, b'T'];
    for pad in 0..=255_u8 {
        let plaintext = [&payload[..], &vec![0xee; usize::from(pad)], &[pad]].concat();
        let message = seal_raw(&keys, PayloadType::VendorId, &plaintext);
        let expected = vec![Payload::VendorId(VendorId(b"T".to_vec()))];
        assert_eq!(open(&keys, Role::Initiator, &message), Ok(expected), "padding of {pad}");
    }
}

#[test]
fn padding_longer_than_the_content_is_refused() {
    let keys = keys(IkeEncryption::Aes128Gcm16);
    for (plaintext, found) in [(&[1_u8][..], 1), (&[0, 0, 3], 3), (&[0, 255], 255)] {
        let message = seal_raw(&keys, PayloadType::None, plaintext);
        let available = plaintext.len() - 1;
        assert_eq!(open(&keys, Role::Initiator, &message), Err(SuiteError::Padding { found, available }));
    }
}

fn iv(message: &[u8]) -> u64 {
    let encrypted = Message::parse(message).unwrap().encrypted.unwrap();
    u64::from_be_bytes(*encrypted.body.first_chunk().unwrap())
}

#[test]
fn ivs_are_sender_and_counter_and_never_repeat() {
    let mut sealer = keys(IkeEncryption::Aes128Gcm16).sealer(Role::Initiator, SENDER);
    let mut seen = HashSet::new();
    for counter in 0..100 {
        if counter == 50 {
            // As a taker would find it: the same state, and another sender.
            let stored = postcard::to_allocvec(&sealer).unwrap();
            sealer = postcard::from_bytes(&stored).unwrap();
            sealer.set_sender(SenderId(0xa55b));
        }
        let iv = iv(&sealer.seal(&informational(), &mut NoEntropy).unwrap());
        let sender = if counter < 50 { 0xa55a } else { 0xa55b };
        assert_eq!(iv, sender << 48 | counter);
        assert!(seen.insert(iv));
    }
}

#[test]
fn a_message_that_cannot_be_written_still_uses_up_its_iv() {
    let mut sealer = keys(IkeEncryption::Aes128Gcm16).sealer(Role::Initiator, SENDER);
    let too_long = informational().with(Payload::VendorId(VendorId(vec![0; 65_536])));
    assert!(matches!(sealer.seal(&too_long, &mut NoEntropy), Err(SuiteError::Encode(_))));
    assert_eq!(iv(&sealer.seal(&informational(), &mut NoEntropy).unwrap()) & 0xffff_ffff_ffff, 1);
}

#[test]
fn the_last_iv_is_used_and_then_no_more() {
    let mut sealer = sealer_at(&keys(IkeEncryption::Aes128Gcm16), (1 << 48) - 1);
    assert_eq!(
        iv(&sealer.seal(&informational(), &mut NoEntropy).unwrap()),
        u64::from(SENDER.0) << 48 | ((1 << 48) - 1)
    );
    for _ in 0..2 {
        assert_eq!(sealer.seal(&informational(), &mut NoEntropy), Err(SuiteError::IvExhausted));
        sealer.set_sender(SenderId(1));
    }
}

#[test]
fn a_stored_key_of_the_wrong_length_is_refused() {
    let keys = keys(IkeEncryption::Aes128Gcm16);
    let mut stored = postcard::to_allocvec(&keys.sealer(Role::Initiator, SENDER)).unwrap();
    // Says AES-256 of a key for AES-128.
    stored[0] = 2;
    let mut broken: SkSealer = postcard::from_bytes(&stored).unwrap();
    let expected = SuiteError::KeyLength { found: 20, expected: 36 };
    assert_eq!(broken.seal(&informational(), &mut NoEntropy), Err(expected));
}

#[test]
fn debug_shows_no_key() {
    let keys = keys(IkeEncryption::Aes128Gcm16);
    let message = keys.sealer(Role::Initiator, SENDER).seal(&with_payloads(), &mut NoEntropy).unwrap();
    let encrypted = Message::parse(&message).unwrap().encrypted.unwrap();
    let opened = keys.opener(Role::Initiator).open(&encrypted).unwrap();
    assert_eq!(format!("{opened:?}"), "Opened(39 octets)");
    let shown = format!("{keys:?} {:?}", keys.sealer(Role::Initiator, SENDER));
    assert_eq!(shown.matches("Secret(").count(), 4);
    // Lists of algorithms may be shown, octets not.
    let shown = shown.replace(&format!("{:?}", keys.suite()), "");
    assert!(!shown.contains('['), "{shown}");
}

/// RFC 7634, Appendix B: our sealer, put where the example stands, writes the very message.
#[test]
fn the_example_of_rfc7634_is_written_and_read() {
    let expected: Vec<u8> = [
        "c0c1c2c3c4c5c6c7d0d1d2d3d4d5d6d72e20250000000009000000452900002910111213141516176103",
        "94701f8d017f7c12924889",
        "6b71bfe25236efd7cdc67066906315b2",
    ]
    .concat()
    .as_bytes()
    .chunks(2)
    .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
    .collect();
    let header = Header::parse(&expected).unwrap();
    let notify = Notify::new(NotifyType::SetWindowSize, vec![0, 0, 0, 10]);
    let message = MessageBuilder::new(header).with(Payload::Notify(notify.clone()));
    // Cipher, no integrity algorithm, SK_e with the salt, an empty SK_a.
    let mut stored = postcard::to_allocvec(&IkeEncryption::ChaCha20Poly1305).unwrap();
    stored.extend([0, 36].into_iter().chain(0x80..=0x9f).chain(0xa0..=0xa3).chain([0]));
    let opener: SkOpener = postcard::from_bytes(&stored).unwrap();
    let encrypted = Message::parse(&expected).unwrap().encrypted.unwrap();
    let payloads = opener.open(&encrypted).unwrap().payloads().unwrap();
    assert_eq!(Vec::from(payloads), [Payload::Notify(notify)]);
    // The IV of the example is a sender and a counter, too.
    stored.extend(postcard::to_allocvec(&(SenderId(0x1011), 0x1213_1415_1617_u64)).unwrap());
    let mut sealer: SkSealer = postcard::from_bytes(&stored).unwrap();
    assert_eq!(sealer.seal(&message, &mut NoEntropy).unwrap(), expected);
}
