//! Neighbours whose kernels leave checksums to a virtual device: their packets are complete when
//! they leave the tunnel.

use crate::common::{Pair, SOON, Scenario, Watch};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;
use testudo_lab::gateway::Kind;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, INNER, Side};
use testudo_lab::wait_until;

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];
/// A port without a listener.
const CLOSED: u16 = 9;

/// Packets whose checksum our side has completed.
pub(crate) fn filled(pair: &Pair) -> u64 {
    let totals = &pair.status(Side::One)["counters"]["totals"];
    totals["checksum_filled"].as_u64().unwrap_or_else(|| panic!("no checksum_filled: {totals}"))
}

/// TCP segments with a wrong checksum that the server has received.
fn refused_by_server(pair: &Pair) -> u64 {
    pair.t.server.snmp("Tcp", "InCsumErrors").unwrap()
}

fn datagram_arrives(pair: &Pair, family: Family) {
    let server = pair.t.server.enter(|| UdpSocket::bind((Side::Two.host(family), 0))).unwrap().unwrap();
    server.set_read_timeout(Some(SOON)).unwrap();
    let to = server.local_addr().unwrap();
    let client = pair.t.client.enter(|| UdpSocket::bind((Side::One.host(family), 0))).unwrap().unwrap();
    client.send_to(b"a datagram", to).unwrap();
    let mut got = [0; 100];
    let came = server.recv(&mut got).map(|len| &got[..len]);
    assert_eq!(came.ok(), Some(&b"a datagram"[..]), "{family}: {:?}", pair.drops(Side::One));
}

/// Our daemon starts again, and does not complete checksums of inner packets.
fn trust(pair: &mut Pair) {
    pair.one.stop().unwrap();
    let interface = format!("interface = \"{INNER}\"\n");
    let trusted = format!("{interface}checksum = \"trust\"\n");
    pair.one.reconfigure(|text| text.replace(&interface, &trusted)).unwrap();
    pair.one.restart().unwrap();
    pair.await_sas(Side::Two, 0, SOON);
    pair.swanctl(Side::One).load(&Connection::of(Side::One, Family::V4).to_string()).unwrap();
    pair.up(Side::One);
}

/// A container: its host sends through a veth with the kernel's default offloads.
#[test]
fn tcp_of_a_container_crosses_the_tunnel() {
    let mut pair = Scenario::new("checksums", Kind::Strongswan).neighbours_leave_checksums_open().start();
    pair.await_log(&format!("port {INNER}: fills in checksums that its neighbours leave open (driver veth"));
    pair.up(Side::One);
    let watch = Watch::start(&pair.t);
    for family in FAMILIES {
        let before = filled(&pair);
        pair.tcp_both_ways(family);
        datagram_arrives(&pair, family);
        assert!(filled(&pair) > before, "{family}");
    }
    assert_eq!(refused_by_server(&pair), 0);
    watch.saw_nothing();

    // Left as it came, TCP does not get through, while pings do.
    trust(&mut pair);
    let closed = SocketAddr::new(Side::Two.host(Family::V4), CLOSED);
    wait_until("a segment that the server refuses", SOON, || {
        let connecting = || TcpStream::connect_timeout(&closed, Duration::from_millis(100));
        let refused = pair.t.client.enter(connecting)?.err();
        Ok(if refused_by_server(&pair) > 0 { Ok(()) } else { Err(format!("{refused:?}")) })
    })
    .unwrap();
    pair.ping_from(Side::One, Family::V4, 56);
    assert_eq!(filled(&pair), 0);
}
