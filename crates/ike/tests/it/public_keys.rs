//! Public keys without a certificate (RFC 7670): how they are read, and how they stand in CERT and
//! CERTREQ.

use crate::pki::{file, key, public_key, signature};
use testudo_ike::cert::{CertError, KeyKind, MAX_RAW_KEY, RawKey, SignatureScheme};
use testudo_ike::config::Identity;
use testudo_ike::message::{
    CertEncoding, CertPayload, ExchangeType, Header, IkeSpi, Message, MessageBuilder, MessageId, Payload,
};

fn octets(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(octet).collect()
}

/// The SubjectPublicKeyInfo of RFC 7670 appendix A.1.
fn ecdsa_of_the_rfc() -> Vec<u8> {
    octets(
        "3059 3013 0607 2a86 48ce 3d02 0106 082a 8648 ce3d 0301 0703 4200 04cb 28e0 999b
         9c77 15fd 0a80 d8e4 7a77 0797 16cb bf91 7dd7 2e97 566e a1c0 6695 7c2b 57c0 235f
         b748 9768 d058 ff49 11c2 0fdb e71e 3699 d913 39af bb90 3ee1 7255 dc",
    )
}

/// The same of appendix A.2: RSA of 1024 bits.
fn rsa_of_the_rfc() -> Vec<u8> {
    octets(
        "3081 9f30 0d06 092a 8648 86f7 0d01 0101 0500 0381 8d00 3081 8902 8181 00bc 7b43
         4749 c7b3 8600 bfa8 4b44 f881 879a 2dda 08d1 f014 5af5 806c 2aed 6a61 72ff 0dc3
         d4cd 6016 38e8 ca34 8ebd ca57 4231 cadc 9712 e209 b1fd dba5 8a8c 62b3 6903 8a3d
         1eaa 727c 1f39 ae49 ed6e bc30 f8d9 b52e 2338 5a40 1915 858c 59be 72f3 43fb 1eb8
         7b16 ffc5 ab0f 8f8f e9f7 cb3e 663d 8fe9 f9ec fa12 3066 f368 358c eaef d302 0301
         0001",
    )
}

#[test]
fn keys_are_read_from_pem_and_from_der() {
    for (name, kind) in [
        ("moon-rsa", KeyKind::Rsa(2048)),
        ("moon-P-256", KeyKind::P256),
        ("moon-P-384", KeyKind::P384),
        ("moon-P-521", KeyKind::P521),
        ("moon-ed25519", KeyKind::Ed25519),
    ] {
        let read = public_key(name);
        assert_eq!(read.key().kind(), kind);
        assert_eq!(RawKey::parse(read.to_der()), Ok(read.clone()));
        assert!(key(name).belongs_to(read.key()), "{name}");
        assert!(!key("sun-P-256").belongs_to(read.key()), "{name}");
        // As it is in the state of a connection.
        let state = postcard::to_allocvec(&read).unwrap();
        assert_eq!(postcard::from_bytes::<RawKey>(&state), Ok(read));
    }
    let of_rfc = RawKey::from_der(&ecdsa_of_the_rfc()).unwrap();
    assert_eq!(of_rfc.key().kind(), KeyKind::P256);
}

/// Our own keys sign with the hash of their curve; a CA may sign with any (RFC 5758 §3.2).
#[test]
fn an_ecdsa_key_verifies_with_each_hash() {
    let hashes = [
        ("sha256", SignatureScheme::EcdsaSha256),
        ("sha384", SignatureScheme::EcdsaSha384),
        ("sha512", SignatureScheme::EcdsaSha512),
    ];
    for curve in ["P-256", "P-384", "P-521"] {
        let public = public_key(&format!("moon-{curve}"));
        for (hash, signed_by) in hashes {
            let signature = signature(curve, hash);
            let fits = |scheme: &SignatureScheme| public.key().verify(*scheme, b"a message", &signature);
            let fitting: Vec<_> = SignatureScheme::ALL.into_iter().filter(fits).collect();
            assert_eq!(fitting, [signed_by], "{curve}");
        }
    }
}

/// The key of Ed25519 is 32 octets (RFC 8410 §4).
#[test]
fn an_ed25519_key_of_another_length_is_refused() {
    let key = |length: u8| {
        let head = [0x30, length + 10, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, length + 1, 0];
        RawKey::from_der(&[&head[..], &[9; 40][..usize::from(length)]].concat())
    };
    assert_eq!(key(32).unwrap().key().kind(), KeyKind::Ed25519);
    for length in [0, 31, 33] {
        assert_eq!(key(length), Err(CertError::Key("of algorithm 1.3.101.112".into())));
    }
}

/// As `pki --print` of strongSwan shows them: keyid is of the SubjectPublicKeyInfo, subjkey of the
/// key alone.
#[test]
fn a_key_has_names_of_its_own() {
    let read = public_key("moon-P-256");
    let keyid = Identity::KeyId(read.key().info_id().to_vec());
    assert_eq!(read.identity(), keyid);
    assert!(read.confirms(&keyid));
    assert!(read.confirms(&Identity::KeyId(key("moon-P-256").key_id().to_vec())));
    assert!(!read.confirms(&public_key("sun-P-256").identity()));
    assert!(!read.confirms(&Identity::Fqdn("moon".into())));
}

#[test]
fn weak_and_unknown_keys_are_refused_by_name() {
    let expected = "expected RSA of 2048 to 8192 bits, ECDSA on P-256, P-384 or P-521, or Ed25519";
    for (name, why) in [
        ("weak-rsa", "public key is RSA of 1024 bits"),
        ("weak-curve", "public key is ECDSA on curve 1.3.132.0.10"),
        ("weak-ed448", "public key is of algorithm 1.3.101.113"),
        ("weak-compressed", "public key is ECDSA 256 with a point that is not uncompressed"),
    ] {
        let found = RawKey::parse(&file(&format!("{name}.pub"))).unwrap_err().to_string();
        assert_eq!(found, format!("{why}; {expected}"));
    }
    let found = RawKey::from_der(&rsa_of_the_rfc()).unwrap_err().to_string();
    assert!(found.contains("RSA of 1024 bits"), "{found}");
}

#[test]
fn malformed_public_keys_are_refused() {
    let label = |found: &str| Err(CertError::Label { found: found.to_owned(), expected: "PUBLIC KEY" });
    assert_eq!(RawKey::parse(&file("moon-P-256")), label("CERTIFICATE"));
    assert_eq!(RawKey::parse(&file("moon-P-256.key")), label("PRIVATE KEY"));
    let malformed = |data: &[u8]| {
        let found = RawKey::from_der(data).unwrap_err().to_string();
        assert!(
            found.starts_with("SubjectPublicKeyInfo is malformed") || found.starts_with("public key is"),
            "{found}"
        );
    };
    let good = ecdsa_of_the_rfc();
    malformed(&[]);
    malformed(&good[..good.len() - 1]);
    malformed(&[good.as_slice(), &[0]].concat());
    // Another point is not on the curve.
    let mut spoilt = good.clone();
    *spoilt.last_mut().unwrap() ^= 1;
    let found = RawKey::from_der(&spoilt).unwrap_err().to_string();
    assert!(found.starts_with("public key is damaged, ECDSA 256 by what it says"), "{found}");
    // Bits that are not used.
    let mut spoilt = good.clone();
    spoilt[25] = 1;
    malformed(&spoilt);
    let large = vec![0x30; MAX_RAW_KEY + 1];
    let found = RawKey::from_der(&large).unwrap_err().to_string();
    assert_eq!(found, "public key has 2049 octets, at most 2048 are read");
}

#[test]
fn cert_and_certreq_are_written_as_in_rfc_7670() {
    let header = Header {
        initiator_spi: IkeSpi(1),
        responder_spi: IkeSpi(2),
        exchange: ExchangeType::IkeAuth,
        from_initiator: true,
        response: false,
        message_id: MessageId(1),
    };
    let message = MessageBuilder::new(header)
        .with(Payload::Certificate(CertPayload::raw_key(ecdsa_of_the_rfc())))
        .with(Payload::CertificateRequest(CertPayload::raw_key(Vec::new())))
        .finish()
        .unwrap();
    let (cert, request) = message[28..].split_at(0x60);
    // CERTREQ is next.
    assert_eq!(cert[..5], [38, 0, 0, 0x60, 15]);
    assert_eq!(cert[5..], ecdsa_of_the_rfc());
    assert_eq!(request, [0, 0, 0, 5, 15], "the authority is empty");
    let read = Message::parse(&message).unwrap();
    assert!(read.payloads.asks_for_certificates(CertEncoding::RawPublicKey));
    assert!(!read.payloads.asks_for_certificates(CertEncoding::X509Signature));
    let sent = read.payloads.certificates().next().unwrap();
    assert_eq!((sent.encoding, &sent.data), (CertEncoding::RawPublicKey, &ecdsa_of_the_rfc()));
}
