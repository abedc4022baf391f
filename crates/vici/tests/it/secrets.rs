//! `load-shared`.

use crate::support::message;
use testudo_ike::config::Identity;
use testudo_vici::message::Message;
use testudo_vici::schema::shared_secret;

fn psk(owners: &[&str]) -> Message {
    message(&[("id", "ike-1"), ("type", "IKE"), ("data", "key")]).with_list("owners", owners.iter().copied())
}

#[test]
fn owners_are_identities() {
    let secret =
        shared_secret(&psk(&["@gw", "me@example.org", "192.0.2.1", "keyid:#0aff", "@#0b", "dns:x"])).unwrap();
    assert_eq!(secret.name, "ike-1");
    assert_eq!(secret.secret, b"key");
    assert_eq!(
        secret.owners,
        [
            Identity::Fqdn("gw".to_owned()),
            Identity::Email("me@example.org".to_owned()),
            Identity::Addr("192.0.2.1".parse().unwrap()),
            Identity::KeyId(vec![0x0a, 0xff]),
            Identity::KeyId(vec![0x0b]),
            Identity::Fqdn("x".to_owned()),
        ]
    );
    assert!(shared_secret(&psk(&["%any"])).unwrap().owners.is_empty());
    assert!(shared_secret(&psk(&[])).unwrap().owners.is_empty());
}

#[test]
fn a_secret_without_name_is_named_by_its_owners() {
    let named = |owners: &[&str]| {
        let message = message(&[("type", "ike"), ("data", "key")]);
        shared_secret(&message.with_list("owners", owners.iter().copied())).unwrap().name.clone()
    };
    assert_eq!(named(&["a", "b"]), "ike-of-a,b");
    assert_eq!(named(&[]), "ike-of-anybody");
}

#[test]
fn errors_name_the_fault_and_never_the_key() {
    for (message, why) in [
        (message(&[("type", "ike")]), "secrets.data: missing, expected the key"),
        (message(&[("id", "x"), ("data", "key")]), "secrets.x.type: missing, expected ike or ppk"),
        (message(&[("id", "x"), ("type", "ike"), ("data", "")]), "secrets.x.data: missing, expected the key"),
        (
            message(&[("id", "x\ny"), ("type", "ike"), ("data", "key")]),
            "secrets: found \"x\\ny\", expected a printable name of 1 to 200 octets",
        ),
        (
            message(&[("id", "x"), ("type", "EAP"), ("data", "key")]),
            "secrets.x.type: found \"EAP\", but secrets of this type are not supported; expected ike or ppk",
        ),
        (
            psk(&["%any", "gw"]),
            "secrets.ike-1.owners: found %any beside other identities, which makes it the key of every peer; \
             expected either identities or %any alone",
        ),
        (
            psk(&["*.example.org"]),
            "secrets.ike-1.owners: found \"*.example.org\", but a wildcard in this identity is not supported",
        ),
        (psk(&[]).with("extra", "key"), "secrets.ike-1.extra: unknown key"),
        (psk(&[]).with_list("data", ["key"]), "secrets.ike-1.data: given more than once"),
        (
            message(&[("type", "ike")]).with_list("data", ["key"]),
            "secrets.data: found a list, expected a single value",
        ),
    ] {
        assert_eq!(shared_secret(&message).unwrap_err().to_string(), why);
    }
}

/// RFC 7296 §2.15: 64 octets at least must be possible.
#[test]
fn a_long_secret_is_taken_whole() {
    let long: Vec<u8> = (0..=255).cycle().take(1000).collect();
    let secret = message(&[("id", "ike-1"), ("type", "IKE")]).with("data", long.as_slice());
    assert_eq!(shared_secret(&secret).unwrap().secret, long);
}
