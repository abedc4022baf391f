//! `testudo-shut` and `testudo-release`: what stays shut, and letting it go.

use crate::support::{TestServer, message};
use std::time::Duration;
use testudo_ipsec::selector::AddrRange;
use testudo_vici::client::Client;
use testudo_vici::message::Message;
use testudo_vici::shut::{Cause, ClearFrom, Release, Released, ShutPage, ShutPrefix};

fn range(first: &str, last: &str) -> AddrRange {
    AddrRange::new(first.parse().unwrap(), last.parse().unwrap()).unwrap()
}

fn shut(prefix: &str, cause: Cause, from: ClearFrom, protected_by: &[&str]) -> ShutPrefix {
    ShutPrefix {
        prefix: prefix.to_owned(),
        own_side: false,
        cause,
        since: "2026-11-26T21:00:00Z".to_owned(),
        from,
        protected_by: protected_by.iter().map(|name| (*name).to_owned()).collect(),
    }
}

fn page() -> ShutPage {
    ShutPage {
        clustered: true,
        more: true,
        prefixes: vec![
            shut("10.2.0.0/16", Cause::ConnectionUnloaded("gw".into()), ClearFrom::Dropped, &[]),
            shut(
                "10.3.0.0/16",
                Cause::ConnectionChanged("gw".into()),
                ClearFrom::Passed,
                &["connection b", "x"],
            ),
            shut("10.4.0.0/16", Cause::PoolChanged("road".into()), ClearFrom::Dropped, &[]),
            shut("::/0", Cause::EarlierRun, ClearFrom::Judged, &[]),
            ShutPrefix {
                own_side: true,
                ..shut("fd00::/64", Cause::ConnectionUnloaded("gw".into()), ClearFrom::Dropped, &[])
            },
        ],
    }
}

fn client(server: &TestServer) -> Client {
    let mut client = Client::connect(&server.socket()).unwrap();
    client.set_timeout(Some(Duration::from_secs(20))).unwrap();
    client
}

#[test]
fn a_page_comes_back_as_it_was_written() {
    assert_eq!(ShutPage::from_message(&page().to_message()).unwrap(), page());
    let empty = ShutPage::default();
    assert_eq!(ShutPage::from_message(&empty.to_message()).unwrap(), empty);
    let released = Released { clustered: true, inside: 7 };
    assert_eq!(Released::from_message(&released.to_message()).unwrap(), released);
    let why: Vec<_> = page().prefixes.iter().map(|shut| shut.cause.to_string()).collect();
    assert_eq!(why[0], "connection gw was unloaded");
    assert_eq!(why[3], "left by an earlier testudod run");
}

#[test]
fn missing_and_wrong_values_are_named() {
    let one = |pairs: &[(&str, &str)]| {
        let prefixes = Message::new().with_section("10.2.0.0/16", message(pairs));
        message(&[("clustered", "no"), ("more", "no")]).with_section("prefixes", prefixes)
    };
    for (answer, complaint) in [
        (message(&[("clustered", "no"), ("more", "no")]), "prefixes"),
        (message(&[("more", "no")]).with_section("prefixes", Message::new()), "clustered"),
        (one(&[("since", "x"), ("from", "judged")]), "reason"),
        (one(&[("reason", "whim"), ("since", "x"), ("from", "judged")]), "earlier-run"),
        (one(&[("reason", "pool-changed"), ("since", "x"), ("from", "judged")]), "name"),
        (one(&[("reason", "earlier-run"), ("from", "judged")]), "since"),
        (one(&[("reason", "earlier-run"), ("since", "x"), ("from", "opened")]), "dropped, judged or passed"),
    ] {
        let error = ShutPage::from_message(&answer).expect_err(complaint).to_string();
        assert!(error.contains(complaint), "{error}, expected {complaint}");
    }
}

#[test]
fn the_server_tells_what_is_shut_page_by_page() {
    let server = TestServer::start();
    let mut client = client(&server);
    server.gateway.lock().unwrap().shut = page();
    for pairs in [&[][..], &[("behind", "10.2.0.0/16")], &[("behind", "fd00::/8")]] {
        let answer = client.request("testudo-shut", message(pairs)).unwrap();
        assert_eq!(ShutPage::from_message(&answer).unwrap(), page());
    }
    let expected = [
        None,
        Some(range("10.2.0.0", "10.2.255.255")),
        Some(range("fd00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")),
    ];
    assert_eq!(*server.gateway.lock().unwrap().pages.borrow(), expected);
    for (key, value) in [("behind", "x"), ("all", "yes")] {
        let refused = client.request("testudo-shut", message(&[(key, value)])).unwrap();
        assert_eq!(refused.text("success"), Some("no"));
        assert!(refused.text("errmsg").unwrap().contains(key), "{refused:?}");
    }
}

#[test]
fn the_gateway_gets_the_prefix_to_release() {
    let server = TestServer::start();
    let mut client = client(&server);
    let site = range("10.2.0.0", "10.2.255.255");
    let host = range("fd00::1", "fd00::1");
    for (pairs, expected) in [
        (&[("prefix", "10.2.0.0/16")][..], Release { prefix: site, check: false, by: None }),
        (&[("prefix", "10.2.0.0/16"), ("check", "yes")], Release { prefix: site, check: true, by: None }),
        (
            &[("prefix", "fd00::1"), ("by", "alice")],
            Release { prefix: host, check: false, by: Some("alice".into()) },
        ),
    ] {
        let answer = client.command("testudo-release", message(pairs)).unwrap();
        assert_eq!(Released::from_message(&answer).unwrap(), Released { clustered: true, inside: 2 });
        assert_eq!(server.gateway.lock().unwrap().releases.pop(), Some(expected));
    }
    let long = "a".repeat(65);
    for (pairs, complaint) in [
        (&[][..], "prefix: missing"),
        (&[("prefix", "")], "an address or a subnet"),
        (&[("prefix", "10.2.0.0/33")], "an address or a subnet"),
        (&[("prefix", "10.2.0.1/16")], "no bits set after the prefix length"),
        (&[("prefix", "10.2.0.0-10.2.0.255")], "an address or a subnet"),
        (&[("prefix", "%any")], "an address or a subnet"),
        (&[("prefix", "10.2.0.0/16"), ("check", "maybe")], "check"),
        (&[("prefix", "10.2.0.0/16"), ("by", long.as_str())], "1 to 64 octets"),
        (&[("prefix", "10.2.0.0/16"), ("by", "a\nb")], "control characters"),
        (&[("prefix", "10.2.0.0/16"), ("force", "yes")], "force"),
        (&[("prefix", "10.9.0.0/16")], "is not shut"),
    ] {
        let refused = client.request("testudo-release", message(pairs)).unwrap();
        assert_eq!(refused.text("success"), Some("no"), "{pairs:?}");
        assert!(refused.text("errmsg").unwrap_or_default().contains(complaint), "{refused:?}");
    }
    assert!(server.gateway.lock().unwrap().releases.is_empty());
}
