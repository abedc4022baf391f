//! Fields as packets carry them, in both directions.

use super::*;
use std::net::{Ipv4Addr, Ipv6Addr};
use testudo_wire::{ipv4, ipv6};

const LEFT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

fn v4(protocol: Protocol, payload: &[u8]) -> Vec<u8> {
    let fields = ipv4::Fields {
        tos: 0,
        total_len: (ipv4::HEADER + payload.len()) as u16,
        id: 0,
        df: false,
        ttl: 1,
        protocol,
        src: LEFT,
        dst: RIGHT,
    };
    [&fields.to_bytes()[..], payload].concat()
}

fn v6(next_header: Protocol, payload: &[u8]) -> Vec<u8> {
    let fields = ipv6::Fields {
        traffic_class: 0,
        payload_len: payload.len() as u16,
        next_header,
        hop_limit: 1,
        src: Ipv6Addr::LOCALHOST,
        dst: Ipv6Addr::UNSPECIFIED,
    };
    [&fields.to_bytes()[..], payload].concat()
}

#[test]
fn the_direction_says_who_is_local() {
    let packet = v4(Protocol::TCP, &[0, 80, 1, 1]);
    let out = PacketSelector::of_packet(&packet, Direction::Out).unwrap();
    let expected = PacketSelector::new(LEFT.into(), RIGHT.into(), Protocol::TCP, Some((80, 257)));
    assert_eq!(Some(out), expected);
    assert_eq!((out.local(), out.remote()), (LEFT.into(), RIGHT.into()));
    assert_eq!((out.local_port(), out.remote_port(), out.protocol()), (80, 257, 6));
    let back = PacketSelector::of_packet(&packet, Direction::In).unwrap();
    assert_eq!((back.local(), back.local_port()), (RIGHT.into(), 257));
    assert_eq!((back.remote(), back.remote_port()), (LEFT.into(), 80));
    assert_eq!(
        format!("{back:?}"),
        "PacketSelector { local: 10.0.0.2, remote: 10.0.0.1, protocol: 6, ports: Some((257, 80)) }"
    );
}

#[test]
fn families_do_not_mix() {
    assert!(PacketSelector::new(LEFT.into(), Ipv6Addr::LOCALHOST.into(), Protocol::TCP, None).is_none());
    let four = PacketSelector::new(Ipv4Addr::UNSPECIFIED.into(), LEFT.into(), Protocol::TCP, None);
    let six = PacketSelector::new(
        Ipv6Addr::UNSPECIFIED.into(),
        Ipv6Addr::from_bits(LEFT.to_bits().into()).into(),
        Protocol::TCP,
        None,
    );
    assert_ne!(four, six);
}

#[test]
fn the_port_fields_of_each_protocol() {
    let ports = |packet: &[u8]| {
        let found = PacketSelector::of_packet(packet, Direction::Out).unwrap();
        found.has_ports().then(|| (found.local_port(), found.remote_port()))
    };
    for protocol in [Protocol::TCP, Protocol::UDP, Protocol::SCTP, Protocol::DCCP, Protocol::UDP_LITE] {
        assert_eq!(ports(&v4(protocol, &[1, 2, 3, 4])), Some((0x102, 0x304)));
        assert_eq!(ports(&v6(protocol, &[1, 2, 3, 4])), Some((0x102, 0x304)));
    }
    // Type and code on both sides.
    assert_eq!(ports(&v4(Protocol::ICMP, &[8, 1])), Some((0x801, 0x801)));
    assert_eq!(ports(&v6(Protocol::ICMPV6, &[128, 2])), Some((0x8002, 0x8002)));
    assert_eq!(ports(&v6(Protocol::MOBILITY, &[59, 0, 5])), Some((0x500, 0x500)));
    assert_eq!(ports(&v4(Protocol::ESP, &[1, 2, 3, 4])), None);
    // Port 0 is a port.
    assert_eq!(ports(&v4(Protocol::UDP, &[0; 4])), Some((0, 0)));
}

#[test]
fn packets_too_short_for_their_ports_are_refused() {
    for (protocol, shortest) in [(Protocol::TCP, 4), (Protocol::ICMP, 2), (Protocol::MOBILITY, 3)] {
        for len in 0..shortest {
            let found = PacketSelector::of_packet(&v4(protocol, &vec![1; len]), Direction::Out);
            assert_eq!(found, Err(Error::Truncated { found: len, expected: shortest }));
        }
    }
}

#[test]
fn later_fragments_have_no_ports_and_perhaps_no_protocol() {
    let mut later = v4(Protocol::UDP, &[]);
    later[7] = 1;
    let found = PacketSelector::of_packet(&later, Direction::Out).unwrap();
    assert_eq!((found.has_ports(), found.protocol()), (false, 17));
    let place = [0, 9];
    for (named, known) in [(Protocol::UDP, 17), (Protocol::DEST_OPTIONS, 0)] {
        let later = v6(Protocol::FRAGMENT, &[named.0, 0, place[0], place[1], 0, 0, 0, 1, 7]);
        let found = PacketSelector::of_packet(&later, Direction::Out).unwrap();
        assert_eq!((found.has_ports(), found.protocol()), (false, known));
    }
    let whole = PacketSelector::of_packet(&v4(Protocol::UDP, &[1, 2, 3, 4]), Direction::Out).unwrap();
    let mut later = v4(Protocol::UDP, &[]);
    later[7] = 1;
    assert_eq!(Ok(whole.without_ports()), PacketSelector::of_packet(&later, Direction::Out));
    let first = v6(Protocol::FRAGMENT, &[17, 0, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4]);
    assert!(PacketSelector::of_packet(&first, Direction::Out).unwrap().has_ports());
}
