//! IKE messages in fragments (RFC 7383), with Debian's strongSwan.

use crate::common::{Pair, Scenario};
use crate::mtu::{headers, ping};
use testudo_lab::capture::Capture;
use testudo_lab::gateway::Kind;
use testudo_lab::topology::{Family, Side};

/// IKE_AUTH of both sides is too large for a datagram, because there is much to select.
#[test]
fn strongswan_and_we_send_fragments() {
    let networks = (0..80).map(|n| format!("172.16.{n}.0/24"));
    let mut pair = Scenario::new("fragments", Kind::Strongswan).start_with(|side, connection| match side {
        Side::One => connection.local_ts.extend(networks.clone()),
        Side::Two => connection.remote_ts.extend(networks.clone()),
    });
    for initiator in [Side::One, Side::Two] {
        let wire = Capture::everything(&pair.t.wire, 60).unwrap();
        pair.up(initiator);
        pair.ping_from(initiator, Family::V4, 56);
        pair.swanctl(initiator).terminate("lab").unwrap();
        let shown = wire.stop().unwrap().show(60).unwrap();
        assert!(!shown.contains("frag"), "no IP datagram is fragmented: {shown}");
    }
    let log = pair.two.process().log().unwrap();
    for (line, times) in [("received fragment #", 2), ("splitting IKE message (", 2)] {
        assert!(log.matches(line).count() >= times, "{line:?}: {log}");
    }
}

/// The way between the gateways takes less than they know: ESP arrives in fragments, whoever made them.
fn esp_arrives_in_fragments(peer: Kind, outer: Family) {
    let pair = Scenario::new("fragments", peer).alone().outer(outer).start();
    pair.up(Side::One);
    // A peer that knows better makes the fragments itself; we would not make them, but ask for smaller packets.
    let to = format!("{}/{}", Side::One.outer(outer), if outer == Family::V4 { 32 } else { 128 });
    let family = if outer == Family::V4 { "-4" } else { "-6" };
    pair.t.gw2.ip(&format!("{family} route add {to} dev outer0 mtu lock 1300")).unwrap();
    let before = counted(&pair, "joined");
    for inner in [Family::V4, Family::V6] {
        for packet in [1200, 1300, 1400] {
            let said = ping(&pair, Side::One, inner, packet - headers(inner), "want", 5);
            assert!(said.contains("5 packets transmitted, 5 received"), "{inner} of {packet}: {said}");
        }
    }
    assert!(counted(&pair, "joined") > before, "no fragment was put together");
}

fn counted(pair: &Pair, name: &str) -> u64 {
    pair.one.status().unwrap()["counters"]["totals"][name].as_u64().unwrap()
}

#[test]
fn esp_in_udp_arrives_in_fragments_over_ipv4() {
    esp_arrives_in_fragments(Kind::Strongswan, Family::V4);
}

#[test]
fn esp_in_udp_arrives_in_fragments_over_ipv6() {
    esp_arrives_in_fragments(Kind::Strongswan, Family::V6);
}
