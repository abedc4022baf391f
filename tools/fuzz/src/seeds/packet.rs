//! Packets of every shape, from host 2 of network 1 to host 2 of network 2.

use std::net::{Ipv4Addr, Ipv6Addr};
use testudo_wire::ip::Protocol;
use testudo_wire::{ipv4, ipv6, udp};

/// A segment that opens a connection, with an MSS of 1460 behind a NOP.
const SYN: [u8; 28] = [
    0x30, 0x39, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x70, 2, 0xff, 0xff, 0xab, 0xcd, 0, 0, 1, 2, 4, 5, 0xb4, 1, 1,
    0,
];

pub(super) fn v4(change: impl FnOnce(&mut ipv4::Fields), protocol: Protocol, payload: &[u8]) -> Vec<u8> {
    let mut fields = ipv4::Fields {
        tos: 0,
        total_len: (ipv4::HEADER + payload.len()) as u16,
        id: 0x4242,
        df: false,
        ttl: 64,
        protocol,
        src: Ipv4Addr::new(10, 1, 0, 2),
        dst: Ipv4Addr::new(10, 2, 0, 2),
    };
    change(&mut fields);
    [&fields.to_bytes()[..], payload].concat()
}

pub(super) fn v6(change: impl FnOnce(&mut ipv6::Fields), next_header: Protocol, payload: &[u8]) -> Vec<u8> {
    let mut fields = ipv6::Fields {
        traffic_class: 0,
        payload_len: payload.len() as u16,
        next_header,
        hop_limit: 64,
        src: Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 2),
        dst: Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 2),
    };
    change(&mut fields);
    [&fields.to_bytes()[..], payload].concat()
}

/// A UDP datagram of this many octets, without checksum.
pub(super) fn datagram(src_port: u16, dst_port: u16, payload: &[u8]) -> Vec<u8> {
    let len = (udp::HEADER + payload.len()) as u16;
    [&udp::header(src_port, dst_port, len)[..], payload].concat()
}

/// ESP with a trailer that could have been decrypted.
pub(super) fn esp() -> Vec<u8> {
    let header = [0xa1, 0, 4, 1, 0, 0, 0, 1];
    [&header[..], &[7; 20], &[1, 2, 2, 4]].concat()
}

/// A packet of each kind of headers, with its name.
pub(super) fn every() -> Vec<(&'static str, Vec<u8>)> {
    let udp = datagram(1000, 2000, b"payload");
    // Hop-by-hop options, destination options, routing header, then a first fragment.
    let chain = [
        &[60, 0, 1, 4, 0, 0, 0, 0][..],
        &[43, 0, 1, 4, 0, 0, 0, 0],
        &[44, 0, 0, 0, 0, 0, 0, 0],
        &[17, 0, 0, 1, 0, 0, 0, 9],
        &udp,
    ]
    .concat();
    let later = [&[17, 0, 0x10, 0x01, 0, 0, 0, 9], &udp[..]].concat();
    let mut with_options = v4(|_| (), Protocol::UDP, &[]);
    with_options[0] = 0x48;
    with_options[3] = 32 + udp.len() as u8;
    // Record route, router alert (copied into every fragment), end.
    with_options.extend([7, 7, 4, 0, 0, 0, 0, 0x94, 4, 0, 0, 0]);
    with_options.extend(&udp);
    crate::repair::checksum(&mut with_options);
    let mut fragment = v4(|_| (), Protocol::UDP, &[7; 64]);
    fragment[6..8].copy_from_slice(&0x2010u16.to_be_bytes());
    crate::repair::checksum(&mut fragment);
    vec![
        ("v4-udp", v4(|_| (), Protocol::UDP, &udp)),
        ("v4-syn", v4(|fields| fields.df = true, Protocol::TCP, &SYN)),
        ("v4-icmp", v4(|fields| fields.ttl = 1, Protocol::ICMP, &[8, 0, 0, 0, 0, 1, 0, 1])),
        ("v4-esp", v4(|fields| fields.tos = 0xb9, Protocol::ESP, &esp())),
        ("v4-options", with_options),
        ("v4-fragment", fragment),
        ("v4-long", v4(|_| (), Protocol::UDP, &datagram(1000, 2000, &[7; 600]))),
        ("v6-udp", v6(|_| (), Protocol::UDP, &udp)),
        ("v6-syn", v6(|fields| fields.traffic_class = 0x2a, Protocol::TCP, &SYN)),
        ("v6-icmp", v6(|fields| fields.hop_limit = 1, Protocol::ICMPV6, &[128, 0, 0, 0, 0, 1, 0, 1])),
        ("v6-chain", v6(|_| (), Protocol::HOP_BY_HOP, &chain)),
        ("v6-later-fragment", v6(|_| (), Protocol::FRAGMENT, &later)),
        ("v6-nothing", v6(|_| (), Protocol::NO_NEXT, &[])),
    ]
}
