//! `load-conn`: every key of a connection, by fixture.

mod auth;
mod children;
mod proposals;

use std::net::IpAddr;
use std::time::Duration;
use testudo_ike::config::{
    Child, ChildLifetime, ChildMode, Childless, Connection, EspEncryption, IkeEncryption, IkeLifetime,
    KeyExchange, Lifetime, Prf, StartAction, TsSpec,
};
use testudo_ipsec::sa::{AesKey, CcmAlgorithm, Cipher, HeaderCopy, IcvLen, Mac, Mss};
use testudo_ipsec::selector::AddrRange;
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
    assert_eq!(net.mss, Mss::Auto);
    assert!(!net.icmp);
    let [esp, _] = net.proposals.as_slice() else { panic!("two default proposals") };
    let gcm = [EspEncryption::Aes128Gcm16, EspEncryption::Aes192Gcm16, EspEncryption::Aes256Gcm16];
    assert_eq!(esp.encryption, gcm);
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
        ("192.0.2.1/33", "an address, a subnet, a range, a DNS name or %any"),
        ("192.0.2.1/", "an address, a subnet, a range, a DNS name or %any"),
        ("192.0.2.1/+8", "an address, a subnet, a range, a DNS name or %any"),
        ("192.0.2.9-192.0.2.1", "an address, a subnet, a range, a DNS name or %any"),
        ("192.0.2.9-::1", "an address, a subnet, a range, a DNS name or %any"),
        ("::1/129", "an address, a subnet, a range, a DNS name or %any"),
        ("192.0.2", "an address, a subnet, a range, a DNS name or %any"),
        ("", "an address, a subnet, a range, a DNS name or %any"),
    ] {
        assert_eq!(
            remote(&[text]).unwrap_err(),
            format!("connections.gw.remote_addrs: found {text:?}, expected {why}")
        );
    }
}

#[test]
fn names_in_the_place_of_addresses() {
    let items = ["gw.example.org", "192.0.2.1", "moon", "backup_2.example.org."];
    let conn = with_list("remote_addrs", &items).unwrap();
    assert_eq!(conn.remote_addrs, [range("192.0.2.1", "192.0.2.1")]);
    let names: Vec<(&str, usize)> =
        conn.names.remote.iter().map(|host| (host.name.as_str(), host.place)).collect();
    assert_eq!(names, [("gw.example.org", 0), ("moon", 1), ("backup_2.example.org.", 1)]);
    assert!(!conn.remote_hosts().is_any() && conn.names.local.is_empty());
    let ours = with_list("local_addrs", &["gw.example.org"]).unwrap();
    assert!(!ours.local_hosts().is_any() && ours.local_addrs.is_empty());
    for text in ["gw..example.org", "-gw.example.org", "gw.example.org:500", "gw.example.9", "%defaultroute"]
    {
        assert!(with_list("remote_addrs", &[text]).is_err(), "{text}");
    }
}

#[test]
fn childless_initiation() {
    assert_eq!(with("encap", "no").unwrap().childless, Childless::Allow);
    for (text, childless) in [
        ("allow", Childless::Allow),
        ("prefer", Childless::Prefer),
        ("force", Childless::Force),
        ("never", Childless::Never),
    ] {
        assert_eq!(with("childless", text).unwrap().childless, childless);
    }
    let why = "connections.gw.childless: found \"yes\", expected allow, prefer, force or never";
    assert_eq!(with("childless", "yes").unwrap_err(), why);
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
fn virtual_addresses_have_bounds() {
    let within = with("vips_within", "10.3.0.0/24, 10.4.0.1-10.4.0.9,fd00:3::1").unwrap().vips_within;
    assert_eq!(
        within,
        [range("10.3.0.0", "10.3.0.255"), range("10.4.0.1", "10.4.0.9"), range("fd00:3::1", "fd00:3::1")]
    );
    assert!(with("encap", "no").unwrap().vips_within.is_empty());
    for text in ["", "10.3.0.0/24,", "%any", "10.3.0.0/33", "here"] {
        let why = with("vips_within", text).unwrap_err();
        let expected = "addresses, subnets or ranges such as 10.3.0.0/24, separated by commas";
        assert_eq!(why, format!("connections.gw.vips_within: found {text:?}, expected {expected}"));
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
