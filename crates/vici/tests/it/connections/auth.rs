//! The identities of both sides, and their authentication.

use super::*;
use testudo_ike::config::{Eku, Identity};

#[test]
fn identities() {
    let id = |text: &str| local(psk().with("id", text)).map(|conn| conn.local.id);
    let fqdn = |name: &str| Some(Identity::Fqdn(name.to_owned()));
    let email = |name: &str| Some(Identity::Email(name.to_owned()));
    let addr = |text: &str| Some(Identity::Addr(text.parse::<IpAddr>().unwrap()));
    let keyid = |octets: &[u8]| Some(Identity::KeyId(octets.to_vec()));
    for (text, identity) in [
        ("%any", None),
        ("", None),
        ("0.0.0.0", None),
        ("::", None),
        ("gw.example.org", fqdn("gw.example.org")),
        ("@gw", fqdn("gw")),
        ("fqdn:gw", fqdn("gw")),
        ("FQDN:gw", fqdn("gw")),
        ("dns:gw", fqdn("gw")),
        ("fqdn:#6777", fqdn("gw")),
        ("me@example.org", email("me@example.org")),
        ("@@me", email("me")),
        ("email:me", email("me")),
        ("userfqdn:me", email("me")),
        ("192.0.2.1", addr("192.0.2.1")),
        ("2001:db8::1", addr("2001:db8::1")),
        ("ipv4:192.0.2.1", addr("192.0.2.1")),
        ("ipv4:#c0000201", addr("192.0.2.1")),
        ("ipv6:2001:db8::1", addr("2001:db8::1")),
        ("@#0a:ff", keyid(&[0x0a, 0xff])),
        ("@#0x0aff", keyid(&[0x0a, 0xff])),
        ("keyid:text", keyid(b"text")),
        ("keyid:#00", keyid(&[0])),
        ("some:thing", keyid(b"some:thing")),
    ] {
        assert_eq!(id(text), Ok(identity), "{text}");
    }
    for (text, why) in [
        ("C=CH, XY=gw", "but its distinguished name is malformed: XY is no attribute that we know"),
        ("C=CH, CN=*", "but a wildcard in this identity is not supported"),
        (
            "asn1dn:#30",
            "but its distinguished name is malformed: ASN.1 DER message is incomplete: expected 2, actual 1 at DER \
             byte 1",
        ),
        ("10.0.0.0/8", "but subnets and ranges as identities are not supported"),
        ("{2}:x", "but identities of a numeric type are not supported"),
        ("*.example.org", "but a wildcard in this identity is not supported"),
        ("*@example.org", "but a wildcard in this identity is not supported"),
        ("*x.example.org", "expected a wildcard in front of a domain, such as *.example.org"),
        ("@#0", "expected an even number of hexadecimal digits behind #"),
        ("@#", "expected an even number of hexadecimal digits behind #"),
        ("@#zz", "expected an even number of hexadecimal digits behind #"),
        ("keyid:", "expected at least one octet"),
        ("@", "expected a printable name"),
        ("ipv4:::1", "expected an IPv4 address"),
        ("ipv6:192.0.2.1", "expected an IPv6 address"),
    ] {
        assert_eq!(id(text).unwrap_err(), format!("connections.gw.local.id: found {text:?}, {why}"));
    }
}

#[test]
fn sections_that_are_refused() {
    let suffixed = Message::new().with_section("local-1", psk()).with_section("remote1", psk());
    assert!(connection(&Message::new().with_section("gw", suffixed), Policy::Modern).is_ok());
    for (content, why) in [
        (Message::new(), "connections.gw.local: missing, expected a section"),
        (
            Message::new().with_section("local", Message::new().with("auth", "eap")),
            "connections.gw.local.auth: found \"eap\", but EAP and XAuth are not supported; expected psk, pubkey, rsa, \
             rsa/pss, ecdsa or ed25519",
        ),
        (
            (1..=5).fold(Message::new(), |content, n| content.with_section(&format!("local-{n}"), psk())),
            "connections.gw.local-5: found a further section, expected at most 4 rounds of authentication",
        ),
        (
            Message::new().with_section("local", psk()).with_section("local-2", psk().with("round", "x")),
            "connections.gw.local-2.round: found \"x\", expected a decimal number of at most 4294967295",
        ),
        (
            Message::new().with_section("local", psk().with_list("certs", ["gw.pem"])),
            "connections.gw.local.certs: found entry 1 of 6 octets, but this certificate is malformed: \
             unexpected ASN.1 DER tag: expected SEQUENCE, got APPLICATION [7] (constructed)",
        ),
        (
            Message::new().with_section("local", psk().with_section("cert-1", Message::new())),
            "connections.gw.local.cert-1: found a section, but a certificate that the daemon itself reads (name \
             it in certs instead) is not supported; leave the key out",
        ),
        (
            Message::new().with_section("local", psk()).with("remote", "x"),
            "connections.gw.remote: missing, expected a section",
        ),
    ] {
        let message = Message::new().with_section("gw", content);
        assert_eq!(connection(&message, Policy::Modern).unwrap_err().to_string(), why);
    }
}

#[test]
fn rounds_are_in_their_order() {
    let round = |id: &str, number: Option<&str>| {
        let section = psk().with("id", id);
        number.map_or(section.clone(), |number| section.with("round", number))
    };
    let content = Message::new()
        .with_section("remote-user", round("alice", Some("7")))
        .with_section("remote-host", round("moon", None))
        .with_section("local", round("sun", Some("2")))
        .with_section("local2", round("bob", Some("2")))
        .with_section("local1", round("mars", Some("1")));
    let loaded = connection(&Message::new().with_section("gw", content), Policy::Modern).unwrap();
    let locals: Vec<_> = loaded.local_rounds().map(|local| local.id.clone().unwrap().to_string()).collect();
    let remotes: Vec<_> =
        loaded.remote_rounds().map(|remote| remote.id.clone().unwrap().to_string()).collect();
    assert_eq!(
        (locals, remotes),
        (vec!["mars".into(), "sun".into(), "bob".into()], vec!["moon".into(), "alice".into()] as Vec<String>)
    );
}

/// A SubjectPublicKeyInfo of a key on P-256 (RFC 7670 appendix A.1).
const PUBLIC_KEY: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEyyjgmZucdxX9CoDY5Hp3B5cWy7+R
fdcul1ZuocBmlXwrV8AjX7dIl2jQWP9JEcIP2+ceNpnZEzmvu5A+4XJV3A==
-----END PUBLIC KEY-----
";

#[test]
fn public_keys_stand_for_certificates() {
    let both = |local: Message, remote: Message| {
        let content = Message::new().with_section("local", local).with_section("remote", remote);
        let loaded = connection(&Message::new().with_section("gw", content), Policy::Modern);
        loaded.map_err(|refusal| refusal.to_string())
    };
    let named = || Message::new().with_list("pubkeys", [PUBLIC_KEY]);
    let loaded = both(named(), named().with("id", "gw")).unwrap();
    assert_eq!((loaded.local.pubkeys.len(), loaded.remote.pubkeys.len()), (1, 1));
    assert_eq!(loaded.local.pubkeys, loaded.remote.pubkeys);
    assert!(loaded.local.certs.is_empty() && loaded.local.id.is_none());
    let refused = |remote: Message| both(named(), remote).unwrap_err();
    let malformed = refused(Message::new().with_list("pubkeys", ["gw.pem"]));
    let why = "connections.gw.remote.pubkeys: found entry 1 of 6 octets, but this SubjectPublicKeyInfo is malformed: ";
    assert!(malformed.starts_with(why), "{malformed}");
    let certificate = PUBLIC_KEY.replace("PUBLIC KEY", "CERTIFICATE");
    assert!(
        refused(Message::new().with_list("pubkeys", [certificate]))
            .ends_with("found a PEM block of CERTIFICATE, expected PUBLIC KEY")
    );
    assert_eq!(
        refused(named().with("ca_id", "gw")),
        "connections.gw.remote.ca_id: found a CA, but a CA for a public key without a certificate (pubkeys) is not \
         supported; leave the key out"
    );
}

#[test]
fn an_extended_key_usage_is_demanded_of_the_peer() {
    let remote = |content: Message| {
        let content = Message::new().with_section("local", psk()).with_section("remote", content);
        let loaded = connection(&Message::new().with_section("gw", content), Policy::Modern);
        loaded.map(|conn| conn.remote.eku).map_err(|refusal| refusal.to_string())
    };
    for (text, eku) in [("any", Eku::Any), ("ike", Eku::Ike), ("IKE", Eku::Ike)] {
        assert_eq!(remote(psk().with("eku", text)), Ok(eku));
    }
    assert_eq!(remote(psk()), Ok(Eku::Any));
    assert_eq!(
        remote(psk().with("eku", "serverAuth")).unwrap_err(),
        "connections.gw.remote.eku: found \"serverAuth\", expected any or ike"
    );
    assert_eq!(
        local(psk().with("eku", "ike")).unwrap_err(),
        "connections.gw.local.eku: found a purpose, but a purpose of our own certificate: it belongs in remote \
         is not supported; leave the key out"
    );
}
