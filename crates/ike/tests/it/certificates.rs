//! Chains, lists of revoked certificates and keys, with the files of `fixtures/pki`.

use crate::pki::{self, NOVEMBER_2026, cert, crl, key, public_key};
use testudo_ike::cert::{
    CertError, Certificate, ChainError, Credentials, Crl, Hash, Hashes, OutOfDate, PrivateKey, Schemes,
    SignatureScheme, Spent, Trust,
};
use testudo_ike::config::{Eku, Identity, Revocation};
use testudo_ike::output::UnixTime;

/// Whether `end` leads to one of `anchors` by way of `intermediates`; `adjust` changes what it is
/// judged by.
pub(crate) fn judge_with(
    end: &str,
    anchors: &[&str],
    intermediates: &[&str],
    crls: &[Crl],
    adjust: impl Fn(&mut Trust<'_>),
) -> Result<String, String> {
    let load = |names: &[&str]| names.iter().map(|name| cert(name)).collect::<Vec<Certificate>>();
    let (anchors, intermediates) = (load(anchors), load(intermediates));
    let mut trust = Trust {
        now: NOVEMBER_2026,
        anchors: anchors.iter().collect(),
        pinned: Vec::new(),
        intermediates: intermediates.iter().collect(),
        ca: None,
        crls,
        revocation: Revocation::Relaxed,
        eku: Eku::Any,
        hashes: Hashes::ALL,
    };
    adjust(&mut trust);
    let verified = trust.verify(&cert(end));
    verified.map(|anchor| anchor.subject().to_string()).map_err(|error| error.to_string())
}

pub(crate) fn judge(end: &str, anchors: &[&str], intermediates: &[&str]) -> Result<String, String> {
    judge_with(end, anchors, intermediates, &[], |_| {})
}

pub(crate) fn assert_refused(result: Result<String, String>, part: &str) {
    let why = result.unwrap_err();
    assert!(why.contains(part), "{why}");
}

const ROOT: &str = "C=CH, O=Testudo, CN=Root";

#[test]
fn chains_lead_to_a_trusted_ca() {
    for end in ["sun-rsa", "sun-P-256", "sun-P-384", "sun-P-521", "sun-ed25519"] {
        assert_eq!(judge(end, &["other", "root"], &[]), Ok(ROOT.to_owned()), "{end}");
    }
    assert_eq!(judge("sun-by-inter", &["root"], &["inter"]), Ok(ROOT.to_owned()));
    assert_eq!(
        judge("sun-by-inter", &["inter"], &[]),
        Ok("C=CH, O=Testudo, CN=Intermediate".to_owned()),
        "a trusted intermediate ends the chain"
    );
}

#[test]
fn a_ca_that_is_not_trusted_vouches_for_nobody() {
    let missing =
        "no issuer certificate is loaded for 'C=CH, O=Testudo, CN=sun', issued by 'C=CH, O=Testudo, CN=Root'";
    assert_refused(judge("sun-P-256", &["other"], &[]), missing);
    assert_refused(
        judge("sun-P-256", &[], &["root"]),
        "root CA 'C=CH, O=Testudo, CN=Root' is not trusted here",
    );
    assert_refused(judge("sun-by-inter", &["root"], &[]), "issued by 'C=CH, O=Testudo, CN=Intermediate'");
}

#[test]
fn validity_is_judged_by_the_time_of_the_host() {
    let at = |now| judge_with("sun-P-256", &["root"], &[], &[], |trust| trust.now = now);
    assert_refused(
        at(UnixTime(0)),
        "is not valid before 2020-01-01T00:00:00Z, now it is 1970-01-01T00:00:00Z",
    );
    assert_refused(at(UnixTime(5_000_000_000)), "is expired at 2100-01-01T00:00:00Z");
    assert!(
        at(UnixTime(1_577_836_800)).is_ok() && at(UnixTime(4_102_444_800)).is_ok(),
        "the ends belong to it"
    );
}

#[test]
fn an_issuer_must_be_a_ca_that_may_sign_certificates() {
    assert_refused(
        judge("sun-by-plain", &["root"], &["plain"]),
        "issuer 'C=CH, O=Testudo, CN=Plain' is no CA",
    );
    assert_refused(judge("sun-by-plain", &["plain"], &[]), "is no CA");
    assert_refused(
        judge("sun-by-useless", &["root"], &["useless"]),
        "does not allow it to sign certificates",
    );
}

#[test]
fn a_path_length_is_kept() {
    assert_refused(
        judge("sun-by-deep", &["root"], &["deep", "inter"]),
        "path length of CA 'C=CH, O=Testudo, CN=Intermediate' is exceeded: 1 CAs below it",
    );
    assert!(judge("sun-by-deep", &["deep"], &[]).is_ok(), "not above the trusted CA");
}

#[test]
fn unsupported_critical_extensions_are_refused() {
    assert_refused(
        judge("sun-critical", &["root"], &[]),
        "critical extension 1.2.3.4, which is not supported",
    );
    assert_refused(
        judge("sun-by-narrow", &["root"], &["narrow"]),
        "name constraints, which is not supported",
    );
    assert_refused(judge("sun-by-narrow", &["narrow"], &[]), "name constraints");
    assert_refused(judge("sun-usage", &["root"], &[]), "does not allow signatures");
}

#[test]
fn an_extended_key_usage_is_kept() {
    let judge = |end: &str, issuers: [&[&str]; 2], eku| {
        judge_with(end, issuers[0], issuers[1], &[], |trust| trust.eku = eku)
    };
    let end = |name: &str, eku| judge(name, [&["purpose"], &[]], eku);
    let other =
        "extended key usage of 'C=CH, O=Testudo, CN=sun' is 1.3.6.1.5.5.7.3.3, expected id-kp-ipsecIKE";
    for eku in [Eku::Any, Eku::Ike] {
        assert_refused(end("sun-code-critical", eku), other);
        assert!(end("sun-ike-critical", eku).is_ok(), "{eku:?}");
        assert!(end("sun-any-critical", eku).is_ok(), "{eku:?}");
        assert!(judge("sun-P-256", [&["root"], &[]], eku).is_ok(), "without one all is allowed");
        let by_ca = judge("sun-by-purpose-code", [&["purpose"], &["purpose-code"]], eku);
        assert_refused(by_ca, "extended key usage of 'C=CH, O=Testudo, CN=Code' is 1.3.6.1.5.5.7.3.3");
    }
    assert!(end("sun-code", Eku::Any).is_ok(), "it is not critical");
    assert_refused(end("sun-code", Eku::Ike), other);
}

#[test]
fn cas_that_vouch_for_each_other_lead_nowhere() {
    assert_refused(judge("sun-by-loop-a", &["root"], &["loop-a", "loop-b"]), "is part of a loop");
    assert!(judge("sun-by-loop-a", &["loop-b"], &["loop-a"]).is_ok());
}

#[test]
fn a_ca_of_the_chain_may_be_demanded_by_its_identity() {
    let by = |name: &str| {
        let name: &'static Identity = Box::leak(Box::new(Identity::Dn(name.parse().unwrap())));
        judge_with("sun-by-inter", &["root"], &["inter"], &[], |trust| trust.ca = Some(name))
    };
    for ca in ["C=CH, O=Testudo, CN=Intermediate", ROOT] {
        assert_eq!(by(ca), Ok(ROOT.to_owned()), "{ca}");
    }
    for other in ["C=CH, O=Testudo, CN=sun", "C=CH, O=Testudo, CN=Other"] {
        assert_refused(by(other), "no CA up to 'C=CH, O=Testudo, CN=Root' has the identity");
    }
}

#[test]
fn a_signature_that_does_not_fit_is_seen() {
    let mut der = cert("sun-P-256").to_der().to_vec();
    let at = der.windows(3).position(|window| window == b"sun").unwrap();
    der[at + 2] = b'm';
    let changed = Certificate::from_der(&der).unwrap();
    let (root, pinned) = (cert("root"), cert("sun-P-256"));
    let trust = Trust {
        now: NOVEMBER_2026,
        anchors: vec![&root],
        pinned: vec![&pinned],
        intermediates: vec![],
        ca: None,
        crls: &[],
        revocation: Revocation::Relaxed,
        eku: Eku::Any,
        hashes: Hashes::ALL,
    };
    let why = trust.verify(&changed).unwrap_err().to_string();
    assert!(why.contains("signature of certificate 'C=CH, O=Testudo, CN=sum' by '"), "{why}");
}

#[test]
fn hash_algorithms_of_the_chain_can_be_narrowed() {
    let only = |hash| {
        judge_with("sun-P-256", &["root"], &[], &[], |trust| trust.hashes = Hashes::default().with(hash))
    };
    assert!(only(Hash::Sha256).is_ok());
    assert_refused(only(Hash::Sha512), "is signed by ECDSA_WITH_SHA256_DER, which is not allowed here");
}

#[test]
fn a_self_signed_certificate_is_trusted_where_it_is_known() {
    let end = cert("sun-self");
    let mut trust = Trust {
        now: NOVEMBER_2026,
        anchors: vec![],
        pinned: vec![],
        intermediates: vec![],
        ca: None,
        crls: &[],
        revocation: Revocation::Strict,
        eku: Eku::Any,
        hashes: Hashes::ALL,
    };
    assert!(trust.verify(&end).is_err());
    trust.pinned = vec![&end];
    assert_eq!(trust.verify(&end), Ok(end.clone()));
    trust.now = UnixTime(5_000_000_000);
    let why = trust.verify(&end).unwrap_err();
    assert!(matches!(why, ChainError::OutOfDate { source: OutOfDate::Late { .. }, .. }), "{why}");
}

#[test]
fn a_key_that_may_not_sign_does_not() {
    assert_refused(judge("root", &["root"], &[]), "key usage of 'C=CH, O=Testudo, CN=Root'");
}

#[test]
fn a_revoked_certificate_is_refused_whatever_the_policy() {
    for list in ["revoked.crl"] {
        for policy in [Revocation::Relaxed, Revocation::IfUri, Revocation::Strict] {
            let crls = [crl(list)];
            let result = judge_with("sun-P-256", &["root"], &[], &crls, |trust| trust.revocation = policy);
            assert_refused(result, "certificate 'C=CH, O=Testudo, CN=sun' was revoked at ");
        }
    }
    // Also by a list that should have been replaced.
    let crls = [crl("revoked.crl")];
    let late = judge_with("sun-P-256", &["root"], &[], &crls, |trust| trust.now = UnixTime(1_900_000_000));
    assert_refused(late, "was revoked at ");
}

#[test]
fn without_a_valid_list_the_policy_decides() {
    let with = |end: &str, lists: &[&str], policy| {
        let crls: Vec<Crl> = lists.iter().map(|list| crl(list)).collect();
        judge_with(end, &["root"], &["inter"], &crls, |trust| trust.revocation = policy)
    };
    for (lists, why) in [
        (&["old.crl"][..], "the CRL of 'C=CH, O=Testudo, CN=Root' was current until 2026-10-31"),
        (&[], "no CRL of"),
    ] {
        assert_refused(with("sun-P-256", lists, Revocation::Strict), why);
        assert_refused(with("sun-uri", lists, Revocation::IfUri), why);
        assert!(with("sun-P-256", lists, Revocation::IfUri).is_ok(), "it names no list");
        assert!(with("sun-uri", lists, Revocation::Relaxed).is_ok());
    }
    assert!(with("sun-P-256", &["old.crl", "empty.crl"], Revocation::Strict).is_ok());
    // A trusted CA may also be an intermediate one, and is not checked for revocation.
    let beyond = judge_with("sun-P-256", &["root"], &["root"], &[], |trust| {
        trust.revocation = Revocation::Strict;
    });
    assert_refused(beyond, "whether certificate 'C=CH, O=Testudo, CN=sun' is revoked");
    assert_refused(
        with("sun-by-inter", &["empty.crl"], Revocation::Strict),
        "no CRL of 'C=CH, O=Testudo, CN=Inter",
    );
    assert!(with("sun-by-inter", &["empty.crl", "inter.crl"], Revocation::Strict).is_ok());
}

#[test]
fn a_list_counts_for_the_ca_that_signed_it_only() {
    // The octets of the root's list, with its revoked certificate, under a wrong signature.
    let mut der = crl("revoked.crl").to_der().to_vec();
    *der.last_mut().unwrap() ^= 1;
    let forged = Crl::parse(&der).unwrap();
    assert!(judge_with("sun-P-256", &["root"], &[], &[forged], |_| {}).is_ok());
}

#[test]
fn a_list_that_nobody_signed_replaces_none() {
    let mut der = crl("revoked.crl").to_der().to_vec();
    *der.last_mut().unwrap() ^= 1;
    let forged = Crl::parse(&der).unwrap();
    for forged_first in [true, false] {
        let mut credentials = Credentials::default();
        credentials.load_certificate(cert("root"), true).unwrap();
        let mut lists = [crl("empty.crl"), forged.clone()];
        if forged_first {
            lists.reverse();
        }
        assert!(lists.into_iter().all(|list| credentials.load_crl(list)));
        assert!(credentials.crls().contains(&crl("empty.crl")), "the forged one is newer");
        assert!(credentials.load_crl(crl("revoked.crl")));
        assert_eq!(credentials.crls(), [crl("revoked.crl")]);
    }
}

/// However many connections, each with its CAs, are tried for one message.
#[test]
fn signatures_of_one_message_are_limited() {
    let (root, end) = (cert("root"), cert("sun-P-256"));
    let trust = Trust {
        now: NOVEMBER_2026,
        anchors: vec![&root],
        pinned: vec![],
        intermediates: vec![],
        ca: None,
        crls: &[],
        revocation: Revocation::Relaxed,
        eku: Eku::Any,
        hashes: Hashes::ALL,
    };
    let spent = Spent::default();
    for _ in 0..32 {
        assert_eq!(trust.verify_within(&end, &spent), Ok(root.clone()));
    }
    assert_eq!(trust.verify_within(&end, &spent), Err(ChainError::TooManySignatures));
}

/// A CRL of CAs that a peer has invented does not matter, and may be expensive.
#[test]
fn no_list_is_looked_for_before_a_trusted_ca_is_reached() {
    let crls = [crl("revoked.crl")];
    let result = judge_with("sun-by-loop-a", &["root"], &["loop-a", "loop-b"], &crls, |trust| {
        trust.revocation = Revocation::Strict;
    });
    assert_refused(result, "is part of a loop");
}

#[test]
fn newer_lists_replace_older_ones() {
    let mut credentials = Credentials::default();
    assert!(credentials.load_crl(crl("empty.crl")));
    assert!(!credentials.load_crl(crl("old.crl")), "a newer one is here");
    assert!(credentials.load_crl(crl("revoked.crl")));
    assert!(credentials.load_crl(crl("inter.crl")), "another CA's");
    assert_eq!(credentials.crls().len(), 2);
}

#[test]
fn a_certificate_confirms_its_names_and_no_others() {
    let sun = cert("sun-P-256");
    let dn = |text: &str| Identity::Dn(text.parse().unwrap());
    for identity in [
        dn("C=CH, O=Testudo, CN=sun"),
        Identity::Fqdn("SUN.example.org".into()),
        Identity::Email("sun@example.org".into()),
        Identity::Addr("192.0.2.2".parse().unwrap()),
    ] {
        assert!(sun.confirms(&identity), "{identity}");
    }
    for identity in [
        dn("C=CH, O=Testudo, CN=moon"),
        dn("C=CH, O=Testudo, CN=*"),
        Identity::Fqdn("example.org".into()),
        Identity::Fqdn("*.example.org".into()),
        Identity::Email("sun.example.org".into()),
        Identity::Addr("192.0.2.1".parse().unwrap()),
        Identity::KeyId(b"sun.example.org".to_vec()),
    ] {
        assert!(!sun.confirms(&identity), "{identity}");
    }
}

#[test]
fn every_kind_of_key_signs_and_verifies() {
    for (name, kind, schemes) in [
        ("rsa", "RSA 2048", 6),
        ("P-256", "ECDSA 256", 1),
        ("P-384", "ECDSA 384", 1),
        ("P-521", "ECDSA 521", 1),
        ("ed25519", "ED25519 256", 1),
    ] {
        let (private, certificate) = (key(&format!("moon-{name}")), cert(&format!("moon-{name}")));
        assert_eq!(
            (private.kind().to_string(), certificate.key().kind().to_string()),
            (kind.into(), kind.into())
        );
        assert!(private.belongs_to(certificate.key()) && !key("sun-rsa").belongs_to(certificate.key()));
        assert_eq!(private.key_id(), certificate.key().key_id());
        let mut worked = 0;
        for scheme in SignatureScheme::ALL {
            let Ok(signature) = private.sign(scheme, b"a message") else { continue };
            worked += 1;
            assert!(certificate.key().verify(scheme, b"a message", &signature), "{scheme}");
            assert!(!certificate.key().verify(scheme, b"another message", &signature), "{scheme}");
            assert!(!cert("sun-rsa").key().verify(scheme, b"a message", &signature), "{scheme}");
            assert!(!certificate.key().verify(scheme, b"a message", &signature[1..]), "{scheme}");
        }
        assert_eq!(worked, schemes, "{name}");
    }
}

#[test]
fn the_scheme_is_what_both_sides_can_and_the_connection_allows() {
    let rsa = key("moon-rsa");
    assert_eq!(rsa.choose(Schemes::ALL, Hashes::ALL), Some(SignatureScheme::RsaPkcs1Sha256));
    let pss = [SignatureScheme::RsaPssSha256, SignatureScheme::RsaPssSha384].into_iter().collect();
    assert_eq!(rsa.choose(pss, Hashes::ALL), Some(SignatureScheme::RsaPssSha256));
    let sha512 = Hashes::default().with(Hash::Sha512);
    assert_eq!(rsa.choose(Schemes::ALL, sha512), Some(SignatureScheme::RsaPkcs1Sha512));
    assert_eq!(rsa.choose(pss, sha512), None);
    assert_eq!(key("moon-P-384").choose(Schemes::ALL, sha512), None, "one hash to a curve");
    assert_eq!(key("moon-ed25519").choose(Schemes::ALL, sha512), None, "it hashes by itself (RFC 8420)");
}

#[test]
fn keys_are_read_in_all_their_formats() {
    for (one, other) in [("moon-rsa.key", "moon-rsa.pkcs1"), ("moon-P-256.key", "moon-P-256.sec1")] {
        let (one, other) = (pki::file(one), pki::file(other));
        assert_eq!(PrivateKey::parse(&one).unwrap().key_id(), PrivateKey::parse(&other).unwrap().key_id());
    }
    let with_parameters = [
        b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n".to_vec(),
        pki::file("moon-P-256.sec1"),
    ]
    .concat();
    assert!(PrivateKey::parse(&with_parameters).is_ok());
    for (data, part) in [
        (pki::file("root"), "found a PEM block of CERTIFICATE, expected PRIVATE KEY"),
        (b"nothing".to_vec(), "no usable private key"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n".to_vec(), "PEM is malformed"),
    ] {
        let error = PrivateKey::parse(&data).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    assert!(!format!("{:?}", key("moon-ed25519")).contains("4"), "nothing of a key is shown");
}

#[test]
fn malformed_certificates_are_refused() {
    assert!(matches!(Certificate::from_der(&[0x30; 20_000]), Err(CertError::TooLarge { .. })));
    let der = cert("sun-rsa").to_der().to_vec();
    for length in 0..der.len() {
        assert!(Certificate::from_der(&der[..length]).is_err(), "{length}");
    }
    let error = Certificate::parse(&pki::file("moon-rsa.key")).unwrap_err().to_string();
    assert!(error.contains("found a PEM block of PRIVATE KEY, expected CERTIFICATE"), "{error}");
    let mut store = Credentials::default();
    let error = store.load_certificate(cert("sun-rsa"), true).unwrap_err().to_string();
    assert_eq!(error, "certificate 'C=CH, O=Testudo, CN=sun' lacks the CA basic constraint");
}

/// Loading something while others still hold the old store copies no CRL: one may have megabytes.
#[test]
fn a_copy_of_the_credentials_shares_their_lists() {
    let mut credentials = Credentials::default();
    credentials.load_certificate(cert("root"), true).unwrap();
    assert!(credentials.load_crl(crl("revoked.crl")));
    let copy = credentials.clone();
    assert!(std::ptr::eq(credentials.crls()[0].to_der(), copy.crls()[0].to_der()));
}

#[test]
fn unloading_removes_one_credential_only() {
    let mut credentials = Credentials::default();
    for name in ["root", "other", "sun-P-256", "moon-P-256"] {
        credentials.load_certificate(cert(name), false).unwrap();
    }
    credentials.unload_certificate(&cert("other"));
    credentials.unload_certificate(&cert("moon-P-256"));
    let subjects = |all: &mut dyn Iterator<Item = &Certificate>| all.cloned().collect::<Vec<_>>();
    assert_eq!(subjects(&mut credentials.cas()), [cert("root")]);
    assert_eq!(subjects(&mut credentials.certificates()), [cert("sun-P-256")]);

    assert!(credentials.load_authority("end", cert("sun-P-256")).is_err(), "it is no CA");
    credentials.load_authority("known", cert("root")).unwrap();
    credentials.load_authority("named", cert("other")).unwrap();
    assert_eq!(subjects(&mut credentials.cas()), [cert("root"), cert("other")], "each once");
    assert!(!credentials.unload_authority("unknown"));
    assert!(credentials.unload_authority("named"));
    assert!(!credentials.unload_authority("named"));
    assert_eq!(subjects(&mut credentials.cas()), [cert("root")]);

    credentials.load_key(key("sun-P-256"));
    let has = |credentials: &Credentials, name| credentials.has_private_key(cert(name).key());
    assert!(has(&credentials, "sun-P-256") && !has(&credentials, "moon-P-256"));

    for name in ["sun-P-256", "moon-P-256"] {
        credentials.load_public_key(public_key(name));
    }
    credentials.unload_public_key(&public_key("sun-P-256"));
    assert_eq!(credentials.public_keys().collect::<Vec<_>>(), [&public_key("moon-P-256")]);

    for name in ["revoked.crl", "inter.crl"] {
        assert!(credentials.load_crl(crl(name)));
    }
    credentials.unload_crl(&crl("revoked.crl"));
    assert_eq!(credentials.crls(), [crl("inter.crl")]);

    credentials.clear();
    assert!(!has(&credentials, "sun-P-256"));
    assert_eq!(subjects(&mut credentials.cas()), [cert("root")], "an authority stays");
}

/// As `openssl x509 -fingerprint -sha1` shows it.
#[test]
fn a_fingerprint_tells_certificates_apart() {
    let shown: String = cert("root").fingerprint().iter().map(|octet| format!("{octet:02X}")).collect();
    assert_eq!(shown, "EE1DC9254C47C9B6664712CD6EF7012D76F9F921");
    assert_eq!(Vec::from(cert("root")), cert("root").to_der());
}
