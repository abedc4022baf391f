//! AH in ESP's place, between two of us and with a Linux kernel's XFRM.

use crate::common::{Pair, SOON, Scenario};
use crate::esp_suites::{INNER_MTU, sizes_are_answered};
use crate::rekeying::renew;
use crate::transport::between_hosts;
use testudo_lab::capture::Capture;
use testudo_lab::gateway::{Gateway, Kind};
use testudo_lab::ping::Ping;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, Side};

const SIDES: [Side; 2] = [Side::One, Side::Two];

fn with_ah(connection: &mut Connection, proposal: &str) {
    connection.esp_proposals = String::new();
    connection.more_child.push(format!("ah_proposals = {proposal}"));
}

/// Both sides say that it is AH, with that algorithm.
fn is_agreed(pair: &Pair, (mode, integrity, esn): (&str, &str, bool)) {
    for side in SIDES {
        let sas = pair.sas(side);
        let child = &sas[0].children[0];
        let found = ["protocol", "mode", "encr-alg", "integ-alg", "esn"].map(|key| child.get(key));
        let expected = [Some("AH"), Some(mode), None, Some(integrity), esn.then_some("1")];
        assert_eq!(found, expected, "{side:?}: {child:?}");
    }
}

fn between_ourselves(outer: Family) {
    let pair = Scenario::new("ah", Kind::Testudo)
        .outer(outer)
        .start_with(|_, connection| with_ah(connection, "sha256-esn"));
    let first = Capture::everything(&pair.t.wire, 40).unwrap();
    pair.up(Side::One);
    is_agreed(&pair, ("TUNNEL", "HMAC_SHA2_256_128", true));
    pair.ping_both_ways();
    pair.tcp_both_ways(outer);
    let wire = first.stop().unwrap().show(40).unwrap();
    assert!(wire.contains("AH(spi=0x") && !wire.contains("ESP(spi=0x"), "{wire}");
    assert_eq!(pair.dropped("auth_failed"), 0);
}

#[test]
fn tunnels_of_ah_over_ipv4() {
    between_ourselves(Family::V4);
}

#[test]
#[ignore = "make test-all: the other family"]
fn tunnels_of_ah_over_ipv6() {
    between_ourselves(Family::V6);
}

/// A proposal, and what `--list-sas` and `ip xfrm state` call its algorithm.
const SUITES: [(&str, &str, &str); 4] = [
    ("sha256-esn", "HMAC_SHA2_256_128", "hmac(sha256)"),
    ("sha1-noesn", "HMAC_SHA1_96", "hmac(sha1)"),
    ("sha512-esn", "HMAC_SHA2_512_256", "hmac(sha512)"),
    ("aesxcbc-noesn", "AES_XCBC_96", "xcbc(aes)"),
];

fn states(pair: &Pair) -> testudo_lab::Result<String> {
    match &pair.two {
        Gateway::Guest(guest) => guest.run("ip xfrm state"),
        _ => panic!("side two runs a guest"),
    }
}

/// The kernel has them, and no others.
fn has_states(pair: &Pair, mode: &str, (proposal, _, kernels): (&str, &str, &str)) {
    let shown = states(pair).unwrap();
    for part in ["proto ah", kernels, &format!("mode {mode}")] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("proto esp"), "{shown}");
    assert_eq!(
        shown.contains("flag af-unspec esn") || shown.contains(" esn"),
        proposal.ends_with("-esn"),
        "{shown}"
    );
}

/// New keys, asked for by either side.
fn renew_by_both(pair: &Pair) {
    for side in SIDES {
        renew(pair, side, &["--child", "lab"]);
    }
}

#[test]
#[ignore = "make test-all: the other peer"]
fn a_linux_kernel_takes_tunnels_of_ah() {
    let pair = Scenario::new("ah-kernel", Kind::Guest).inner_mtu(INNER_MTU).start_empty();
    for (suite, initiator) in SUITES.into_iter().zip(SIDES.into_iter().cycle()) {
        for side in SIDES {
            let mut connection = Connection::of(side, Family::V4);
            with_ah(&mut connection, suite.0);
            pair.swanctl(side).load(&connection.to_string()).unwrap();
        }
        pair.up(initiator);
        has_states(&pair, "tunnel", suite);
        for family in [Family::V4, Family::V6] {
            sizes_are_answered(&pair, family);
        }
        renew_by_both(&pair);
        pair.ping_both_ways();
        assert_eq!(pair.dropped("auth_failed"), 0, "{suite:?}");
        pair.swanctl(initiator).terminate("lab").unwrap();
        for side in SIDES {
            pair.await_sas(side, 0, SOON);
        }
    }
}

/// Between the gateways themselves: of IPv6 AH is one of the extension headers.
fn a_linux_kernel_talks(outer: Family) {
    let suite = SUITES[0];
    let pair = Scenario::new("ah-hosts", Kind::Guest).outer(outer).start_with(|side, connection| {
        between_hosts(outer, side, connection);
        with_ah(connection, suite.0);
    });
    pair.up(Side::One);
    has_states(&pair, "transport", suite);
    for renewed in [false, true] {
        if renewed {
            renew_by_both(&pair);
        }
        let to = Side::Two.outer(outer);
        for size in [1, 2, 3, 56, 1200, 1300, 4000] {
            let pong = Ping::new(to).size(size).count(3).run(&pair.t.gw1).unwrap();
            assert_eq!(pong.received, pong.sent, "{size} octets: {:?}", pair.drops(Side::One));
        }
    }
    assert_eq!(pair.dropped("auth_failed"), 0);
}

#[test]
#[ignore = "make test-all: a combination of what others prove"]
fn a_linux_kernel_talks_through_ah_over_ipv4() {
    a_linux_kernel_talks(Family::V4);
}

#[test]
#[ignore = "make test-all: the other family"]
fn a_linux_kernel_talks_through_ah_over_ipv6() {
    a_linux_kernel_talks(Family::V6);
}
