//! `load-conn`: every key of a connection, by fixture.

use std::net::IpAddr;
use std::time::Duration;
use testudo_ike::config::{
    Child, ChildLifetime, ChildMode, Connection, Identity, IkeEncryption, IkeLifetime, Integrity,
    KeyExchange, Lifetime, Prf, StartAction, TsSpec,
};
use testudo_ipsec::sa::{EspAlgorithm, HeaderCopy};
use testudo_ipsec::selector::{AddrRange, TrafficSelector};
use testudo_vici::message::Message;
use testudo_vici::schema::{Policy, connection};

fn psk() -> Message {
    Message::new().with("auth", "psk")
}

/// A connection with the least that it needs, and what `change` adds.
fn conn(change: impl FnOnce(Message) -> Message) -> Result<Connection, String> {
    let content = change(Message::new().with_section("local", psk()).with_section("remote", psk()));
    connection(&Message::new().with_section("gw", content), Policy::Modern)
        .map_err(|refusal| refusal.to_string())
}

fn with(key: &str, value: &str) -> Result<Connection, String> {
    conn(|message| message.with(key, value))
}

fn with_list(key: &str, items: &[&str]) -> Result<Connection, String> {
    conn(|message| message.with_list(key, items.iter().copied()))
}

fn local(content: Message) -> Result<Connection, String> {
    let content = Message::new().with_section("local", content).with_section("remote", psk());
    connection(&Message::new().with_section("gw", content), Policy::Modern)
        .map_err(|refusal| refusal.to_string())
}

fn child(content: Message) -> Result<Child, String> {
    let children = Message::new().with_section("net", content);
    conn(|message| message.with_section("children", children)).map(|mut conn| conn.children.remove(0))
}

fn child_with(key: &str, value: &str) -> Result<Child, String> {
    child(Message::new().with(key, value))
}

fn ts(text: &str) -> Result<TsSpec, String> {
    child(Message::new().with_list("local_ts", [text])).map(|mut child| child.local_ts.remove(0))
}

fn range(first: &str, last: &str) -> AddrRange {
    AddrRange::new(first.parse().unwrap(), last.parse().unwrap()).unwrap()
}

#[test]
fn defaults_are_filled_in() {
    let conn =
        conn(|message| message.with_section("children", Message::new().with_section("net", Message::new())));
    let conn = conn.unwrap();
    assert_eq!(conn.name, "gw");
    assert!(conn.local_addrs.is_empty() && conn.remote_addrs.is_empty());
    assert_eq!((conn.local_port, conn.remote_port, conn.keyingtries, conn.encap), (500, 500, 1, false));
    assert_eq!(conn.dpd_delay, Duration::ZERO);
    assert_eq!((&conn.local.id, &conn.remote.id), (&None, &None));
    let [aead, cbc] = conn.proposals.as_slice() else { panic!("two default proposals") };
    let aeads = [IkeEncryption::Aes128Gcm16, IkeEncryption::Aes256Gcm16, IkeEncryption::ChaCha20Poly1305];
    assert_eq!((aead.encryption.as_slice(), aead.integrity.len()), (&aeads[..], 0));
    assert_eq!((cbc.encryption.len(), cbc.integrity.len()), (2, 3));
    for proposal in [aead, cbc] {
        assert_eq!(proposal.prf, [Prf::HmacSha256, Prf::HmacSha384, Prf::HmacSha512]);
        assert_eq!(proposal.ke[..2], [KeyExchange::X25519, KeyExchange::Ecp256]);
        assert_eq!(proposal.ke.len(), 7);
    }
    let [net] = conn.children.as_slice() else { panic!("one child") };
    let dynamic = [TsSpec::Dynamic { protocol: 0, port_start: 0, port_end: 65535 }];
    assert_eq!((net.local_ts.as_slice(), net.remote_ts.as_slice()), (&dynamic[..], &dynamic[..]));
    assert_eq!((net.mode, net.start_action), (ChildMode::Tunnel, StartAction::None));
    assert_eq!((net.replay_window, net.priority, net.copy), (1024, 0, HeaderCopy::default()));
    let [esp] = net.proposals.as_slice() else { panic!("one default proposal") };
    assert_eq!(esp.encryption, [EspAlgorithm::Aes128Gcm16, EspAlgorithm::Aes256Gcm16]);
    assert_eq!((esp.ke.len(), esp.esn.as_slice()), (0, &[false][..]));
}

#[test]
fn addresses() {
    let remote = |items: &[&str]| with_list("remote_addrs", items).map(|conn| conn.remote_addrs);
    assert_eq!(remote(&["192.0.2.1"]).unwrap(), [range("192.0.2.1", "192.0.2.1")]);
    assert_eq!(
        remote(&["192.0.2.9/24"]).unwrap(),
        [range("192.0.2.0", "192.0.2.255")],
        "host bits are cleared"
    );
    assert_eq!(remote(&["192.0.2.3-192.0.2.7"]).unwrap(), [range("192.0.2.3", "192.0.2.7")]);
    assert_eq!(
        remote(&["2001:db8::/32"]).unwrap(),
        [range("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff")]
    );
    assert_eq!(remote(&["%any"]).unwrap(), []);
    assert_eq!(remote(&[]).unwrap(), []);
    let (all4, all6) =
        (range("0.0.0.0", "255.255.255.255"), range("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"));
    assert_eq!(remote(&["%any4"]).unwrap(), [all4]);
    assert_eq!(remote(&["%any6"]).unwrap(), [all6]);
    assert_eq!(remote(&["192.0.2.1", "%any"]).unwrap(), [range("192.0.2.1", "192.0.2.1"), all4, all6]);
    for (text, why) in [
        ("gw.example.org", "an address, a subnet, a range or %any (names are not looked up in DNS)"),
        ("192.0.2.1/33", "an address, a subnet, a range or %any"),
        ("192.0.2.1/", "an address, a subnet, a range or %any"),
        ("192.0.2.1/+8", "an address, a subnet, a range or %any"),
        ("192.0.2.9-192.0.2.1", "an address, a subnet, a range or %any"),
        ("192.0.2.9-::1", "an address, a subnet, a range or %any"),
        ("::1/129", "an address, a subnet, a range or %any"),
        ("192.0.2", "an address, a subnet, a range or %any"),
        ("", "an address, a subnet, a range or %any"),
    ] {
        assert_eq!(
            remote(&[text]).unwrap_err(),
            format!("connections.gw.remote_addrs: found {text:?}, expected {why}")
        );
    }
}

#[test]
fn ike_proposals() {
    let one = |text| with_list("proposals", &[text]).map(|mut conn| conn.proposals.remove(0));
    let ike = one("aes128gcm16-prfsha256-x25519").unwrap();
    assert_eq!(ike.encryption, [IkeEncryption::Aes128Gcm16]);
    assert_eq!((ike.prf.as_slice(), ike.ke.as_slice()), (&[Prf::HmacSha256][..], &[KeyExchange::X25519][..]));
    let ike = one("aes256gcm16-ecp256").unwrap();
    assert_eq!(ike.prf, [Prf::HmacSha256, Prf::HmacSha384, Prf::HmacSha512], "the default PRFs");
    let ike = one("aes256gcm16-aes128gcm16-aes256gcm16-sha384-ecp256-curve25519").unwrap();
    assert_eq!(ike.encryption, [IkeEncryption::Aes256Gcm16, IkeEncryption::Aes128Gcm16]);
    assert_eq!(ike.prf, [Prf::HmacSha384], "an integrity algorithm beside an AEAD names the PRF");
    assert_eq!(ike.ke, [KeyExchange::Ecp256, KeyExchange::X25519]);
    assert_eq!(one("AES128GCM128-PRFSHA384-X25519").unwrap().prf, [Prf::HmacSha384]);
    let ike = one("aes128-aes256-sha256-sha512-modp2048").unwrap();
    assert_eq!(ike.encryption, [IkeEncryption::Aes128Cbc, IkeEncryption::Aes256Cbc]);
    assert_eq!(ike.integrity, [Integrity::HmacSha256, Integrity::HmacSha512]);
    assert_eq!(ike.prf, [Prf::HmacSha256, Prf::HmacSha512], "the PRF follows from the integrity algorithm");
    let ike = one("aes192-sha384-prfaesxcbc-ecp521").unwrap();
    assert_eq!((ike.prf, ike.ke), (vec![Prf::AesXcbc], vec![KeyExchange::Ecp521]));
    for (text, encryption) in [
        ("aes256ccm16-prfsha512-modp4096", IkeEncryption::Aes256Ccm16),
        ("aes192ccm128-prfsha512-modp4096", IkeEncryption::Aes192Ccm16),
        ("chacha20poly1305-sha512-modp4096", IkeEncryption::ChaCha20Poly1305),
        ("aes192gcm-sha512-modp4096", IkeEncryption::Aes192Gcm16),
    ] {
        let ike = one(text).unwrap();
        assert_eq!((ike.encryption, ike.integrity), (vec![encryption], vec![]), "{text}");
        assert_eq!((ike.prf, ike.ke), (vec![Prf::HmacSha512], vec![KeyExchange::Modp4096]), "{text}");
    }
}

#[test]
fn ike_proposals_that_cannot_be_used_say_why() {
    let why = |text| with_list("proposals", &[text]).unwrap_err();
    for (text, expected) in [
        ("aes128gcm16-prfsha256-x25519-foo", "but algorithm \"foo\" is not supported; expected aes{128,"),
        ("aes128gcm16--x25519", "but algorithm \"\" is not supported; expected aes{128,"),
        ("aes128gcm16-prfsha256", "but it names no key exchange; expected one such as x25519 or ecp256"),
        ("prfsha256-x25519", "but it names no encryption; expected one such as aes128gcm16"),
        ("aes128-aes128gcm16-sha256-x25519", "but AEADs and other ciphers cannot stand in one proposal"),
        ("aes128-prfsha256-x25519", "but AES-CBC needs an integrity algorithm; expected one such as sha256"),
        (
            "aes128gcm16-prfsha256-x25519-esn",
            "but sequence numbers are not part of IKE proposals; expected no esn",
        ),
        ("3des-sha256-modp2048", "but algorithm \"3des\" is refused as weak: blocks of 64 bits"),
        ("aes128-sha1-modp2048", "but algorithm \"sha1\" is refused as weak: its hash"),
        ("aes128-MD5-modp2048", "but algorithm \"MD5\" is refused as weak: its hash"),
        ("aes128-sha256-modp1024", "but algorithm \"modp1024\" is refused as weak: its group is too small"),
        ("aes128-sha256-modp2048s256", "but algorithm \"modp2048s256\" is refused as weak: nobody knows"),
        (
            "aes128ccm8-prfsha256-x25519",
            "but algorithm \"aes128ccm8\" is refused as weak: its integrity check",
        ),
    ] {
        let why = why(text);
        let expected = format!("connections.gw.proposals: found {text:?}, {expected}");
        assert!(why.starts_with(&expected), "{why}");
    }
}

#[test]
fn weak_algorithms_of_ike_need_the_legacy_policy() {
    let proposals = |text: &str, policy| {
        let content = Message::new().with_section("local", psk()).with_section("remote", psk());
        let content = content.with_list("proposals", [text]);
        connection(&Message::new().with_section("gw", content), policy).map(|connection| connection.proposals)
    };
    for text in [
        "aes128-sha1-modp2048",
        "aes128gcm16-prfsha1-x25519",
        "aes128-sha256-modp1536",
        "aes256-sha-modp1024",
    ] {
        let why = proposals(text, Policy::Modern).unwrap_err().to_string();
        assert!(why.ends_with("; testudo.toml can allow it with legacy = true"), "{why}");
        assert_eq!(proposals(text, Policy::Legacy).unwrap().len(), 1, "{text}");
    }
    let [legacy] = &proposals("aes128-sha1-modp1024", Policy::Legacy).unwrap()[..] else { panic!() };
    assert_eq!((&legacy.integrity[..], &legacy.prf[..]), (&[Integrity::HmacSha1][..], &[Prf::HmacSha1][..]));
    assert_eq!(proposals("default", Policy::Legacy).unwrap(), proposals("default", Policy::Modern).unwrap());
    let why = proposals("3des-sha1-modp1024", Policy::Legacy).unwrap_err().to_string();
    assert!(why.contains("\"3des\" is refused as weak"), "{why}");
}

#[test]
fn esp_proposals() {
    let one = |text: &str| {
        child(Message::new().with_list("esp_proposals", [text])).map(|mut child| child.proposals.remove(0))
    };
    let esp = one("aes256gcm16").unwrap();
    assert_eq!(esp.encryption, [EspAlgorithm::Aes256Gcm16]);
    assert_eq!((esp.ke.len(), esp.esn), (0, vec![false]));
    let esp = one("aes128gcm-x25519-esn-noesn").unwrap();
    assert_eq!((esp.ke.as_slice(), esp.esn.as_slice()), (&[KeyExchange::X25519][..], &[true, false][..]));
    assert_eq!(one("default").unwrap().encryption.len(), 2);
    for text in ["chacha20poly1305", "aes128-sha256", "aes128gcm16-aes192gcm16"] {
        let expected = "but ESP has AES-GCM only; expected aes128gcm16 or aes256gcm16";
        let path = "connections.gw.children.net.esp_proposals";
        assert_eq!(one(text).unwrap_err(), format!("{path}: found {text:?}, {expected}"));
    }
}

#[test]
fn traffic_selectors() {
    let fixed = |addrs, protocol, port_start, port_end| {
        TsSpec::Fixed(TrafficSelector { addrs, protocol, port_start, port_end })
    };
    let net = range("10.1.0.0", "10.1.255.255");
    assert_eq!(ts("10.1.0.0/16").unwrap(), fixed(net, 0, 0, 65535));
    assert_eq!(ts("10.1.7.7/16").unwrap(), fixed(net, 0, 0, 65535));
    assert_eq!(ts("10.1.0.0/16[tcp]").unwrap(), fixed(net, 6, 0, 65535));
    assert_eq!(ts("10.1.0.0/16[tcp/80]").unwrap(), fixed(net, 6, 80, 80));
    assert_eq!(ts("10.1.0.0/16[udp/1000-2000]").unwrap(), fixed(net, 17, 1000, 2000));
    assert_eq!(ts("10.1.0.0/16[89]").unwrap(), fixed(net, 89, 0, 65535));
    assert_eq!(ts("10.1.0.0/16[/53]").unwrap(), fixed(net, 0, 53, 53));
    assert_eq!(ts("10.1.0.0/16[any/any]").unwrap(), fixed(net, 0, 0, 65535));
    assert_eq!(ts("10.1.0.0/16[udp/opaque]").unwrap(), fixed(net, 17, 65535, 0));
    assert_eq!(ts("10.1.0.0/16[icmp/2048]").unwrap(), fixed(net, 1, 0x0800, 0x0800));
    assert_eq!(ts("10.1.0.0/16[icmp/8]").unwrap(), fixed(net, 1, 0x0800, 0x0800), "a type alone");
    assert_eq!(ts("10.0.0.1-10.0.0.9").unwrap(), fixed(range("10.0.0.1", "10.0.0.9"), 0, 0, 65535));
    assert_eq!(ts("10.0.0.1").unwrap(), fixed(range("10.0.0.1", "10.0.0.1"), 0, 0, 65535));
    assert_eq!(
        ts("fd00::/8[ipv6-icmp]").unwrap(),
        fixed(range("fd00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), 58, 0, 65535)
    );
    assert_eq!(
        ts("::/0").unwrap(),
        fixed(range("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), 0, 0, 65535)
    );
    assert_eq!(ts("dynamic").unwrap(), TsSpec::Dynamic { protocol: 0, port_start: 0, port_end: 65535 });
    assert_eq!(ts("dynamic[gre]").unwrap(), TsSpec::Dynamic { protocol: 47, port_start: 0, port_end: 65535 });
    let ports = "the port as a number, a range n-m, opaque or any (service names are not looked up)";
    let protocols = "the protocol as a number of at most 255, or a name such as tcp";
    let addresses = "a subnet, an address, a range or dynamic, with [protocol/port] if wanted";
    for (text, expected) in [
        ("10.1.0.0/16[tcp/http]", ports),
        ("10.1.0.0/16[tcp/70000]", ports),
        ("10.1.0.0/16[tcp/9-1]", ports),
        ("10.1.0.0/16[tcp/1-2-3]", ports),
        ("10.1.0.0/16[xyz]", protocols),
        ("10.1.0.0/16[256]", protocols),
        ("10.1.0.0/16[tcp/80", "a closing ] at the end"),
        ("10.1.0.0/16[tcp]x", "a closing ] at the end"),
        ("lan", addresses),
        ("%any", addresses),
        ("", addresses),
    ] {
        let why = format!("connections.gw.children.net.local_ts: found {text:?}, expected {expected}");
        assert_eq!(ts(text).unwrap_err(), why);
    }
    assert!(ts("fd00::/8[icmp]").unwrap_err().ends_with("this kind of ICMP is not of the addresses' family"));
}

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
fn authentication_is_one_round() {
    let suffixed = Message::new().with_section("local-1", psk()).with_section("remote1", psk());
    assert!(connection(&Message::new().with_section("gw", suffixed), Policy::Modern).is_ok());
    for (content, why) in [
        (Message::new(), "connections.gw.local: missing, expected a section"),
        (
            Message::new().with_section("local", Message::new().with("auth", "eap")),
            "connections.gw.local.auth: found \"eap\", but this method is not supported; expected psk, pubkey, rsa, \
             rsa/pss, ecdsa or ed25519",
        ),
        (
            Message::new().with_section("local-1", psk()).with_section("local-2", psk()),
            "connections.gw.local-2: found a second section, but a second round of authentication (RFC 4739) is \
             not supported; leave the key out",
        ),
        (
            Message::new().with_section("local", psk().with_list("certs", ["gw.pem"])),
            "connections.gw.local.certs: found entry 1 of 6 octets, but this certificate is malformed: \
             unexpected ASN.1 DER tag: expected SEQUENCE, got APPLICATION [7] (constructed)",
        ),
        (
            Message::new().with_section("local", psk().with_section("cert-1", Message::new())),
            "connections.gw.local.cert-1: found a section, but a certificate that the daemon reads from a file or \
             token: use certs is not supported; leave the key out",
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
fn scalars_of_a_connection() {
    assert!(with("encap", "YES").unwrap().encap);
    for (text, seconds) in [("0", 0), ("30", 30), ("30s", 30), ("5m", 300), ("1h", 3600), ("1 d", 86400)] {
        assert_eq!(with("dpd_delay", text).unwrap().dpd_delay, Duration::from_secs(seconds), "{text}");
    }
    assert_eq!(with("keyingtries", "0").unwrap().keyingtries, 0);
    assert_eq!(with("remote_port", "4500").unwrap().remote_port, 4500);
    for (key, value, expected) in [
        ("encap", "maybe", "yes or no"),
        ("dpd_delay", "soon", "a time such as 30s, 5m, 1h or 1d"),
        ("dpd_delay", "30x", "a time such as 30s, 5m, 1h or 1d"),
        ("dpd_delay", "010", "a time such as 30s, 5m, 1h or 1d"),
        ("dpd_delay", "99999999999999999999d", "a time such as 30s, 5m, 1h or 1d"),
        ("dpd_delay", "", "a time such as 30s, 5m, 1h or 1d"),
        ("keyingtries", "%forever", "a decimal number of at most 4294967295"),
        ("local_port", "0", "500 or 4500"),
        ("local_port", "501", "500 or 4500"),
        ("local_port", "070036", "500 or 4500"),
        ("remote_port", "0", "a port from 1 to 65535"),
        ("remote_port", "65536", "a port from 1 to 65535"),
        ("dpd_timeout", "x", "a time"),
        ("send_certreq", "x", "yes or no"),
    ] {
        let why = with(key, value).unwrap_err();
        assert_eq!(why, format!("connections.gw.{key}: found {value:?}, expected {expected}"));
    }
}

/// An IKE SA has one virtual address of each family: another would be dropped without a word.
#[test]
fn virtual_addresses_are_one_of_each_family() {
    let any = ["0.0.0.0", "::"].map(|addr| addr.parse::<IpAddr>().unwrap());
    assert_eq!(with_list("vips", &["0.0.0.0", "::"]).unwrap().vips, any);
    assert_eq!(with_list("vips", &["%config6", "%config"]).unwrap().vips, [any[1], any[0]]);
    for (vips, found) in [
        (["0.0.0.0", "0.0.0.0"], "0.0.0.0"),
        (["10.3.0.1", "10.3.0.2"], "10.3.0.2"),
        (["::", "2001:db8::1"], "2001:db8::1"),
    ] {
        let why = with_list("vips", &vips).unwrap_err();
        let expected = "expected one address of each family at most";
        assert_eq!(why, format!("connections.gw.vips: found {found:?}, {expected}"));
    }
}

#[test]
fn scalars_of_a_child() {
    for (text, mode) in [("tunnel", ChildMode::Tunnel), ("Tunnel", ChildMode::Tunnel)] {
        assert_eq!(child_with("mode", text).unwrap().mode, mode);
    }
    for (text, action) in [
        ("none", StartAction::None),
        ("clear", StartAction::None),
        ("trap", StartAction::Trap),
        ("route", StartAction::Trap),
        ("start", StartAction::Start),
        ("restart", StartAction::Start),
        ("trap|start", StartAction::TrapStart),
    ] {
        assert_eq!(child_with("start_action", text).unwrap().start_action, action);
        assert_eq!(child_with("dpd_action", text).unwrap().dpd_action, action);
        assert_eq!(child_with("close_action", text).unwrap().close_action, action);
    }
    for (text, window) in [("0", 0), ("1", 64), ("32", 64), ("64", 64), ("65", 128), ("8192", 8192)] {
        assert_eq!(child_with("replay_window", text).unwrap().replay_window, window);
    }
    for (text, dscp_out, dscp_in) in
        [("out", true, false), ("in", false, true), ("yes", true, true), ("no", false, false)]
    {
        let copy = child_with("copy_dscp", text).unwrap().copy;
        assert_eq!((copy.dscp_out, copy.dscp_in), (dscp_out, dscp_in));
    }
    assert!(!child_with("copy_df", "no").unwrap().copy.df);
    assert!(!child_with("copy_ecn", "no").unwrap().copy.ecn);
    assert_eq!(child_with("priority", "7").unwrap().priority, 7);
    for (key, value, why) in [
        ("mode", "transport", "but this mode is not supported; expected tunnel, pass or drop"),
        ("mode", "tunel", "expected tunnel, pass or drop"),
        ("start_action", "go", "expected none, trap, start or trap|start"),
        ("dpd_action", "hold", "expected none, trap, start or trap|start"),
        ("replay_window", "8193", "expected a number of packets up to 8192, or 0 for no anti-replay"),
        ("copy_dscp", "both", "expected out, in, yes or no"),
    ] {
        let expected = format!("connections.gw.children.net.{key}: found {value:?}, {why}");
        assert_eq!(child_with(key, value).unwrap_err(), expected);
    }
}

/// strongSwan's words, units and defaults.
#[test]
fn lifetimes() {
    let ike = |pairs: &[(&str, &str)]| {
        conn(|m| pairs.iter().fold(m, |m, (key, value)| m.with(key, *value))).map(|conn| conn.lifetime)
    };
    let hours = |rekey, over, rand| Ok(IkeLifetime { rekey, reauth: 0, over, rand });
    assert_eq!(ike(&[]), hours(14_400, 1440, 1440));
    assert_eq!(ike(&[("rekey_time", "1d"), ("over_time", "5m")]), hours(86_400, 300, 300));
    assert_eq!(ike(&[("rekey_time", "10"), ("over_time", "9"), ("rand_time", "0s")]), hours(10, 9, 0));
    assert_eq!(ike(&[("rekey_time", "0")]), hours(0, 0, 0));
    let reauth = |rekey, reauth, over| Ok(IkeLifetime { rekey, reauth, over, rand: over });
    assert_eq!(ike(&[("reauth_time", "1d")]), reauth(0, 86_400, 8640), "instead of new keys");
    assert_eq!(ike(&[("reauth_time", "1h"), ("rekey_time", "10m")]), reauth(600, 3600, 360));
    let of = |pairs: &[(&str, &str)]| {
        child(pairs.iter().fold(Message::new(), |m, (key, value)| m.with(key, *value)))
            .map(|child| child.lifetime)
    };
    let time = Lifetime { rekey: 3600, life: 3960, rand: 360 };
    assert_eq!(of(&[]), Ok(ChildLifetime { time, ..ChildLifetime::default() }));
    let time = Lifetime { rekey: 1800, life: 7200, rand: 60 };
    assert_eq!(
        of(&[("rekey_time", "30m"), ("life_time", "2h"), ("rand_time", "1 m")]),
        Ok(ChildLifetime { time, ..ChildLifetime::default() })
    );
    let bytes = Lifetime { rekey: 1 << 30, life: 2 << 30, rand: 4096 };
    let packets = Lifetime { rekey: 1000, life: 1100, rand: 100 };
    assert_eq!(
        of(&[
            ("rekey_time", "0"),
            ("rekey_bytes", "1g"),
            ("life_bytes", "2048 M"),
            ("rand_bytes", "4k"),
            ("rekey_packets", "1000"),
        ]),
        Ok(ChildLifetime { time: Lifetime::default(), bytes, packets })
    );
    for (key, value, why) in [
        ("rekey_bytes", "1t", "expected a size such as 500m or 2g"),
        ("life_time", "1w", "expected a time such as 30s, 5m, 1h or 1d"),
        ("rand_packets", "1k", "expected a decimal number"),
        ("life_bytes", "99999999999999g", "expected a size such as 500m or 2g"),
    ] {
        let expected = format!("connections.gw.children.net.{key}: found {value:?}, {why}");
        assert_eq!(child_with(key, value).unwrap_err(), expected);
    }
}

#[test]
fn pass_and_drop_policies_say_what_and_when() {
    let shunt = |mode: &str| Message::new().with("mode", mode).with("start_action", "trap");
    let nets = |message: Message| {
        message.with_list("local_ts", ["10.1.0.0/16"]).with_list("remote_ts", ["0.0.0.0/0"])
    };
    let pass = child(nets(shunt("pass")).with_list("esp_proposals", ["default"])).unwrap();
    assert_eq!((pass.mode, pass.proposals.len()), (ChildMode::Pass, 0));
    assert_eq!(child(nets(shunt("drop"))).unwrap().mode, ChildMode::Drop);
    let path = "connections.gw.children.net";
    for (content, why) in [
        (
            nets(Message::new().with("mode", "pass")),
            ".start_action: missing, expected trap, without which a pass or drop policy is not installed",
        ),
        (
            nets(Message::new().with("mode", "drop").with("start_action", "start")),
            ".start_action: found \"start\", expected trap, without which a pass or drop policy is not installed",
        ),
        (
            shunt("pass"),
            ".local_ts: found dynamic, the default, which has no meaning without a peer; expected subnets such as \
             0.0.0.0/0 or ::/0",
        ),
    ] {
        assert_eq!(child(content).unwrap_err(), format!("{path}{why}"));
    }
}

#[test]
fn shapes_and_names_are_checked() {
    for (result, why) in [
        (with("proposals", "default"), "connections.gw.proposals: found a single value, expected a list"),
        (with_list("encap", &["yes"]), "connections.gw.encap: found a list, expected a single value"),
        (with("children", "net"), "connections.gw.children: found a single value, expected a section"),
        (
            conn(|m| m.with_section("children", Message::new().with("net", "x"))),
            "connections.gw.children.net: unknown key",
        ),
        (conn(|m| m.with("encap", "no").with("encap", "yes")), "connections.gw.encap: given more than once"),
        (with("localhost", "x"), "connections.gw.localhost: unknown key"),
        (with("remote_adrs", "x"), "connections.gw.remote_adrs: unknown key"),
        (with("foo\nbar", "x"), "connections.gw.foo\\nbar: unknown key"),
        (
            conn(|m| m.with("encap", vec![0xff])),
            "connections.gw.encap: found \"\u{fffd}\", expected UTF-8 text",
        ),
    ] {
        assert_eq!(result.unwrap_err(), why);
    }
    for name in ["", "a\nb", &"n".repeat(201)] {
        let message = Message::new().with_section(name, Message::new());
        let why = connection(&message, Policy::Modern).unwrap_err().to_string();
        assert!(why.ends_with("expected a printable name of 1 to 200 octets"), "{why}");
    }
    let two = Message::new().with_section("a", Message::new()).with_section("b", Message::new());
    for message in [Message::new(), two, Message::new().with("a", "b")] {
        let why = connection(&message, Policy::Modern).unwrap_err().to_string();
        assert_eq!(why, "connections: missing, expected exactly one connection");
    }
}
