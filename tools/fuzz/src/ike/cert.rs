//! The certificate formats of `swanctl` and peers: X.509, CRLs, keys, names, algorithms.

use testudo_ike::cert::{Certificate, Crl, DistinguishedName, Hashes, PrivateKey, SignatureScheme, Trust};
use testudo_ike::config::{Eku, Identity, Revocation};
use testudo_ike::output::UnixTime;

/// The first octet is the type of the others.
pub fn target(input: &[u8]) {
    let Some((kind, rest)) = input.split_first() else { return };
    match kind % 6 {
        0 => certificate(rest),
        1 => crl(rest),
        2 => key(rest),
        3 => name(rest),
        4 => algorithm(rest),
        _ => file(rest),
    }
}

fn certificate(der: &[u8]) {
    let Ok(certificate) = Certificate::from_der(der) else { return };
    assert_eq!(certificate.to_der(), der);
    assert!(certificate.confirms(&Identity::Dn(certificate.subject().clone())));
    assert!(!certificate.subject().to_string().contains(char::is_control));
    let again = Certificate::try_from(Vec::from(certificate.clone()));
    assert_eq!(again, Ok(certificate.clone()));
    let trust = Trust {
        now: UnixTime(1_795_132_800),
        anchors: Vec::new(),
        pinned: Vec::new(),
        intermediates: vec![&certificate],
        ca: None,
        crls: &[],
        revocation: Revocation::IfUri,
        eku: Eku::Ike,
        hashes: Hashes::ALL,
    };
    assert!(trust.verify(&certificate).is_err(), "nobody is trusted");
    // As its own CA, and as a known peer: any result is fine.
    let trust = Trust { anchors: vec![&certificate], pinned: vec![&certificate], ..trust };
    let _ = trust.verify(&certificate);
}

fn crl(der: &[u8]) {
    if let Ok(crl) = Crl::parse(der) {
        assert!(!format!("{crl:?}").contains(char::is_control));
        assert_eq!(Crl::parse(crl.to_der()).as_ref(), Ok(&crl));
    }
}

fn key(data: &[u8]) {
    if let Ok(key) = PrivateKey::parse(data) {
        assert!(SignatureScheme::ALL.iter().any(|scheme| key.sign(*scheme, b"a message").is_ok()));
    }
}

fn name(data: &[u8]) {
    let read = std::str::from_utf8(data).ok().and_then(|text| text.parse::<DistinguishedName>().ok());
    for name in [read, DistinguishedName::from_der(data).ok()].into_iter().flatten() {
        assert_eq!(DistinguishedName::from_der(name.to_der()), Ok(name.clone()));
        assert!(name.covers(&name));
        assert!(!name.to_string().contains(char::is_control));
    }
}

fn algorithm(der: &[u8]) {
    if let Ok(scheme) = SignatureScheme::from_der(der) {
        let written = scheme.algorithm_identifier().expect("what was read can be written");
        assert_eq!(SignatureScheme::from_der(&written), Ok(scheme));
    }
    let hashes = Hashes::from_notify(der);
    assert_eq!(Hashes::from_notify(&hashes.to_notify()), hashes);
}

/// A file, in DER or PEM.
fn file(data: &[u8]) {
    if let Ok(parsed) = Certificate::parse(data) {
        certificate(parsed.to_der());
    }
}
