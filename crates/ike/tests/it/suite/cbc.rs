//! The Encrypted payload with AES-CBC and HMAC-SHA2: padding, IVs, tampering.

use crate::support::entropy::Script;
use testudo_base::spi::SenderId;
use testudo_ike::config::{IkeEncryption, Integrity, KeyExchange, Prf};
use testudo_ike::message::{
    ExchangeType, Header, IkeSpi, Message, MessageBuilder, MessageId, Nonce, Payload, VendorId,
};
use testudo_ike::suite::{IkeKeys, IkeSpis, IkeSuite, Nonces, Role, Secret, SuiteError};

const PAIRS: [(IkeEncryption, Integrity, usize); 3] = [
    (IkeEncryption::Aes128Cbc, Integrity::HmacSha256, 16),
    (IkeEncryption::Aes192Cbc, Integrity::HmacSha384, 24),
    (IkeEncryption::Aes256Cbc, Integrity::HmacSha512, 32),
];

fn keys(encryption: IkeEncryption, integrity: Integrity) -> IkeKeys {
    let integrity = Some(integrity);
    let suite = IkeSuite {
        encryption,
        integrity,
        prf: Prf::HmacSha512,
        ke: KeyExchange::Modp2048,
        additional: [None; 7],
    };
    let nonces =
        Nonces { initiator: Nonce::new(vec![1; 32]).unwrap(), responder: Nonce::new(vec![2; 32]).unwrap() };
    let spis = IkeSpis { initiator: IkeSpi(3), responder: IkeSpi(4) };
    IkeKeys::derive(suite, &Secret::new(vec![5; 256]), &nonces, spis).unwrap()
}

/// A message with so many octets of payloads inside: a Vendor ID, or nothing.
fn message(plaintext: usize) -> MessageBuilder {
    let header = Header {
        initiator_spi: IkeSpi(3),
        responder_spi: IkeSpi(4),
        exchange: ExchangeType::Informational,
        from_initiator: true,
        response: false,
        message_id: MessageId(7),
    };
    let content = plaintext.checked_sub(4).map(|length| Payload::VendorId(VendorId(vec![0x5a; length])));
    content.into_iter().fold(MessageBuilder::new(header), MessageBuilder::with)
}

#[test]
fn any_length_is_padded_to_whole_blocks() {
    for (encryption, integrity, icv) in PAIRS {
        let keys = keys(encryption, integrity);
        let mut sealer = keys.sealer(Role::Initiator, SenderId(1));
        for plaintext in [0].into_iter().chain(5..40) {
            let octets = sealer.seal(&message(plaintext), &mut Script(vec![9; 40])).unwrap();
            let encrypted = Message::parse(&octets).unwrap().encrypted.unwrap();
            assert_eq!(encrypted.body.len(), 16 + (plaintext + 1).next_multiple_of(16) + icv);
            let opened = keys.opener(Role::Initiator).open(&encrypted).unwrap().payloads().unwrap();
            let length = opened.iter().map(|payload| match payload {
                Payload::VendorId(id) => id.0.len() + 4,
                other => panic!("{other:?}"),
            });
            assert_eq!(length.sum::<usize>(), plaintext);
            assert!(!octets.windows(5).any(|window| window == [0x5a; 5]), "encrypted");
        }
    }
}

#[test]
fn the_iv_is_what_the_entropy_gives() {
    let keys = keys(IkeEncryption::Aes128Cbc, Integrity::HmacSha256);
    let mut sealer = keys.sealer(Role::Initiator, SenderId(1));
    let mut entropy = Script((1..=33).collect());
    for first in [1, 17] {
        let octets = sealer.seal(&message(20), &mut entropy).unwrap();
        assert_eq!(octets[32..48], (first..first + 16).collect::<Vec<u8>>());
    }
}

#[test]
fn any_flipped_bit_is_noticed() {
    for (encryption, integrity, _) in PAIRS {
        let keys = keys(encryption, integrity);
        let sealed =
            keys.sealer(Role::Initiator, SenderId(1)).seal(&message(21), &mut Script(vec![3])).unwrap();
        let mut noticed = 0;
        for bit in 0..sealed.len() * 8 {
            let mut damaged = sealed.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let Ok(Message { encrypted: Some(encrypted), .. }) = Message::parse(&damaged) else { continue };
            assert_eq!(keys.opener(Role::Initiator).open(&encrypted), Err(SuiteError::Integrity));
            noticed += 1;
        }
        assert!(noticed > (sealed.len() - 28) * 8, "{noticed}");
        let whole = Message::parse(&sealed).unwrap().encrypted.unwrap();
        assert_eq!(keys.opener(Role::Responder).open(&whole), Err(SuiteError::Integrity));
    }
}

#[test]
fn messages_too_short_for_a_seal_are_refused() {
    for (encryption, integrity, icv) in PAIRS {
        let keys = keys(encryption, integrity);
        let sealed =
            keys.sealer(Role::Initiator, SenderId(1)).seal(&message(0), &mut Script(vec![3])).unwrap();
        let full = Message::parse(&sealed).unwrap().encrypted.unwrap();
        let needed = 16 + 16 + icv;
        assert_eq!(full.body.len(), needed);
        for found in 0..needed {
            let mut short = full;
            short.body = &full.body[..found];
            let result = keys.opener(Role::Initiator).open(&short);
            assert_eq!(result, Err(SuiteError::Short { found, needed }));
        }
    }
}

/// The key of an opener, which only its stored form shows: cipher, integrity algorithm, SK_e, SK_a.
fn stored_keys(keys: &IkeKeys) -> (Vec<u8>, Vec<u8>) {
    let stored = postcard::to_allocvec(&keys.opener(Role::Initiator)).unwrap();
    assert_eq!(stored.len(), 3 + 1 + 16 + 1 + 32);
    (stored[4..20].to_vec(), stored[21..].to_vec())
}

/// The message of a peer that seals whatever it likes.
fn sealed_by_peer(keys: &IkeKeys, ciphertext_of: &[u8], cut: usize) -> Vec<u8> {
    use aws_lc_rs::cipher::{AES_128, EncryptingKey, EncryptionContext, UnboundCipherKey};
    use aws_lc_rs::hmac;
    let (key, integrity_key) = stored_keys(keys);
    let mut text = ciphertext_of.to_vec();
    let iv = [6; 16];
    let cipher = EncryptingKey::cbc(UnboundCipherKey::new(&AES_128, &key).unwrap()).unwrap();
    cipher.less_safe_encrypt(&mut text, EncryptionContext::Iv128((&iv).into())).unwrap();
    text.truncate(text.len() - cut);
    let mut octets = message(0).draft(16 + text.len() + 16).unwrap().aad;
    octets.extend([&iv[..], &text].concat());
    let icv = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &integrity_key), &octets);
    octets.extend(&icv.as_ref()[..16]);
    octets
}

#[test]
fn an_authentic_peer_cannot_make_us_strip_too_much() {
    let keys = keys(IkeEncryption::Aes128Cbc, Integrity::HmacSha256);
    let open = |octets: &[u8]| {
        let encrypted = Message::parse(octets).unwrap().encrypted.unwrap();
        keys.opener(Role::Initiator).open(&encrypted).map(drop)
    };
    let padded = |found: u8| [vec![0; 31], vec![found]].concat();
    // Any padding is taken, to the last octet of the plaintext and not beyond.
    assert_eq!(open(&sealed_by_peer(&keys, &padded(31), 0)), Ok(()));
    for found in [32, 255] {
        let expected = SuiteError::Padding { found: usize::from(found), available: 31 };
        assert_eq!(open(&sealed_by_peer(&keys, &padded(found), 0)), Err(expected));
    }
    assert_eq!(open(&sealed_by_peer(&keys, &padded(0), 15)), Err(SuiteError::Blocks(17)));
}
