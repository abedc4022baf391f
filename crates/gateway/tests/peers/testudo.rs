//! Testudo to Testudo: all that strongSwan's user-space ESP cannot do.

use crate::common::{Pair, Scenario, UP_LIMIT, Watch};
use testudo_lab::capture::Capture;
use testudo_lab::gateway::Kind;
use testudo_lab::topology::{Family, Side};

/// A tunnel that carries all kinds of traffic, and how tcpdump shows the first packets on the wire.
fn carries_everything(pair: &Pair, tcp: Family) -> String {
    let watch = Watch::start(&pair.t);
    let first = Capture::everything(&pair.t.wire, 40).unwrap();
    pair.up(Side::One);
    pair.ping_both_ways();
    pair.tcp_both_ways(tcp);
    assert!(watch.esp_packets() > 1000);
    watch.saw_nothing();
    first.stop().unwrap().show(40).unwrap()
}

fn child_value(pair: &Pair, side: Side, key: &str) -> Option<String> {
    pair.sas(side)[0].children[0].get(key).map(str::to_owned)
}

fn plain_esp(outer: Family) {
    let pair = Scenario::new("plain", Kind::Testudo)
        .outer(outer)
        .start_with(|_, connection| connection.esp_proposals = "aes128gcm16-esn".into());
    let wire = carries_everything(&pair, outer);
    assert!(wire.contains(": ESP(spi=0x") && !wire.contains("UDP-encap"), "{wire}");
    for side in [Side::One, Side::Two] {
        assert_eq!(child_value(&pair, side, "esn").as_deref(), Some("1"), "{side:?}");
        assert_eq!(child_value(&pair, side, "encap"), None, "{side:?}");
    }
}

#[test]
fn plain_esp_with_extended_numbers_over_ipv4() {
    plain_esp(Family::V4);
}

#[test]
#[ignore = "make test-all: the other family"]
fn plain_esp_with_extended_numbers_over_ipv6() {
    plain_esp(Family::V6);
}

fn forced_encapsulation(outer: Family) {
    let pair = Scenario::new("encap", Kind::Testudo).outer(outer).start_with(|_, connection| {
        connection.encap = true;
        connection.esp_proposals = "aes256gcm16".into();
        connection.proposals = "aes256gcm16-prfsha384-ecp256".into();
    });
    let wire = carries_everything(&pair, outer);
    let esp: Vec<&str> = wire.lines().filter(|line| line.contains("ESP(spi=0x")).collect();
    assert!(!esp.is_empty() && esp.iter().all(|line| line.contains("UDP-encap: ESP(spi=0x")), "{wire}");
    let sas = pair.sas(Side::One);
    for (key, value) in [
        ("encr-alg", "AES_GCM_16"),
        ("encr-keysize", "256"),
        ("prf-alg", "PRF_HMAC_SHA2_384"),
        ("dh-group", "ECP_256"),
        ("nat-fake", "yes"),
    ] {
        assert_eq!(sas[0].get(key), Some(value), "{key}");
    }
    for (key, value) in [("encr-alg", "AES_GCM_16"), ("encr-keysize", "256"), ("encap", "yes")] {
        assert_eq!(sas[0].children[0].get(key), Some(value), "{key}");
    }
    assert_eq!(sas[0].children[0].get("esn"), None);
}

#[test]
fn encapsulation_can_be_forced_over_ipv4() {
    forced_encapsulation(Family::V4);
}

/// RFC 3948 §2.1 leaves the checksum out; IPv6 does not allow that (RFC 8200 §8.1), and the peer
/// would refuse it.
#[test]
#[ignore = "make test-all: the other family"]
fn encapsulation_can_be_forced_over_ipv6() {
    forced_encapsulation(Family::V6);
}

/// Two gateways that initiate at the same moment end up with tunnels that both know, and traffic
/// passes.
#[test]
fn both_may_initiate_at_once() {
    let pair = Scenario::new("both", Kind::Testudo).start();
    let watch = Watch::start(&pair.t);
    std::thread::scope(|scope| {
        for side in [Side::One, Side::Two] {
            let swanctl = pair.swanctl(side);
            scope.spawn(move || swanctl.initiate("lab", UP_LIMIT).unwrap());
        }
    });
    let spis = |side: Side| {
        let mut spis: Vec<_> =
            pair.sas(side).iter().map(|sa| sa.get("initiator-spi").map(str::to_owned)).collect();
        spis.sort();
        spis
    };
    assert_eq!(spis(Side::One), spis(Side::Two));
    assert!(pair.sas(Side::One).iter().all(|sa| sa.is_up()), "{:?}", pair.sas(Side::One));
    pair.ping_both_ways();
    watch.saw_nothing();
}
