//! Fragments: IKE messages in such (RFC 7383) with Debian's strongSwan, ESP in such, and what hosts
//! send in such.

use crate::common::{Pair, SOON, Scenario, Watch};
use crate::mtu::{headers, pings_pass};
use std::net::{IpAddr, UdpSocket};
use testudo_lab::Namespace;
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
    for line in ["received fragment #", "splitting IKE message ("] {
        pair.two.process().wait_log_times(line, 2, SOON).unwrap();
    }
}

/// The MTU between the gateways is smaller than they know: ESP arrives in fragments, made by a
/// gateway or a router.
fn esp_arrives_in_fragments(peer: Kind, outer: Family) {
    let pair = Scenario::new("fragments", peer).outer(outer).start();
    pair.up(Side::One);
    // A peer that knows better makes the fragments itself; we would not make them, but ask for
    // smaller packets.
    let to = format!("{}/{}", Side::One.outer(outer), if outer == Family::V4 { 32 } else { 128 });
    let family = if outer == Family::V4 { "-4" } else { "-6" };
    pair.t.gw2.ip(&format!("{family} route add {to} dev outer0 mtu lock 1300")).unwrap();
    let before = counted(&pair, "joined");
    for inner in [Family::V4, Family::V6] {
        for packet in [1200, 1300, 1400] {
            pings_pass(&pair, Side::One, inner, packet - headers(inner), "want");
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
#[ignore = "make test-all: the other family"]
fn esp_in_udp_arrives_in_fragments_over_ipv6() {
    esp_arrives_in_fragments(Kind::Strongswan, Family::V6);
}

/// A port of a server, and one beside it that no tunnel is for.
const PORTS: [u16; 2] = [5000, 5001];
const OCTETS: usize = 5000;

fn socket(host: &Namespace, address: (IpAddr, u16)) -> UdpSocket {
    let socket = host.enter(move || UdpSocket::bind(address).unwrap()).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    socket
}

/// Hosts send fragments, of which only the first has ports, through a tunnel for one port; there is
/// none for others.
#[test]
fn datagrams_in_fragments_go_through_a_tunnel_for_one_port() {
    let pair = Scenario::new("frag-ports", Kind::Testudo).start_with(|side, connection| {
        let [ours, theirs] = match side {
            Side::One => ["udp", "udp/5000"],
            Side::Two => ["udp/5000", "udp"],
        };
        let only =
            |list: &mut Vec<String>, what| list.iter_mut().for_each(|ts| ts.push_str(&format!("[{what}]")));
        only(&mut connection.local_ts, ours);
        only(&mut connection.remote_ts, theirs);
    });
    pair.up(Side::One);
    let watch = Watch::start(&pair.t);
    let sent: Vec<u8> = (0..OCTETS).map(|at| (at * 7) as u8).collect();
    let mut got = vec![0; OCTETS + 1];
    for family in [Family::V4, Family::V6] {
        let client = socket(&pair.t.client, (Side::One.host(family), 4000));
        let server = PORTS.map(|port| socket(&pair.t.server, (Side::Two.host(family), port)));
        for _ in 0..20 {
            // First a packet that no policy passes: it may not affect the following ones.
            client.send_to(&sent, (Side::Two.host(family), PORTS[1])).unwrap();
            client.send_to(&sent, (Side::Two.host(family), PORTS[0])).unwrap();
            let (len, from) = server[0].recv_from(&mut got).unwrap();
            assert_eq!((&got[..len], from), (&sent[..], client.local_addr().unwrap()));
            server[0].send_to(&sent, from).unwrap();
            let (len, from) = client.recv_from(&mut got).unwrap();
            assert_eq!((&got[..len], from), (&sent[..], server[0].local_addr().unwrap()));
        }
        server[1].set_nonblocking(true).unwrap();
        assert!(server[1].recv_from(&mut got).is_err(), "a datagram that no policy lets pass");
    }
    watch.saw_nothing();
    // Four fragments each: of IPv4 and IPv6 twenty for the port and twenty for the other.
    assert!(counted(&pair, "joined") >= 2 * 40 * 3, "{}", counted(&pair, "joined"));
}
