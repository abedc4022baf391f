//! Seeds of the pipeline targets.

use super::{Seed, chunk, packet};
use testudo_wire::ip::Protocol;

/// Every combination of outer family, encapsulation and ESN; DSCP, ECN and DF are copied.
const SHAPES: std::ops::Range<u8> = 0xd0..0xd8;
/// A plain tunnel over IPv4.
const PLAIN: [u8; 2] = [0xd0, 0];
/// After a packet: the burst continues, or it ends.
const MORE: u8 = 1;
const END: u8 = 0;

/// `flags:8 | to:8 | packet`, and the octet that decides whether the burst ends.
fn given(flags: u8, to: u8, packet: &[u8], then: u8) -> Vec<u8> {
    [&[flags, to][..], &chunk(packet), &[then]].concat()
}

/// `shape:16 | numbers:8 | packets`.
pub(super) fn outbound() -> Vec<Seed> {
    let every: Vec<u8> = packet::every().iter().flat_map(|(_, packet)| given(0, 0, packet, MORE)).collect();
    let mut seeds: Vec<Seed> =
        SHAPES.map(|shape| (format!("shape-{shape:x}"), [&[shape, 0, 0][..], &every].concat())).collect();
    let udp = packet::v4(|_| (), Protocol::UDP, &packet::datagram(1000, 2000, b"payload"));
    let first = [&PLAIN[..], &[0]].concat();
    let mut one = |name: &str, head: &[u8], packets: &[Vec<u8>]| {
        seeds.push((name.to_owned(), [head, &packets.concat()].concat()));
    };
    let networks: Vec<_> = (0..8).map(|to| given(7, to, &udp, MORE)).collect();
    one("networks", &first, &networks);
    one("twice", &first, &[given(0, 0, &udp, END), given(0, 0, &udp, END)]);
    one("tight", &first, &[given(0x10, 0, &udp, END)]);
    one("from-host", &first, &[given(8, 0, &udp, END)]);
    one("few-numbers", &[PLAIN[0], PLAIN[1], 2], &vec![given(0, 0, &udp, MORE); 4]);
    // Lengths beyond the input are filled up with zeros: a fragment, a refusal, a refusal of IPv6.
    for (name, head) in [
        ("long", packet::v4(|_| (), Protocol::UDP, &[])),
        ("long-df", packet::v4(|fields| fields.df = true, Protocol::UDP, &[])),
        ("long-v6", packet::v6(|_| (), Protocol::UDP, &[])),
    ] {
        one(name, &first, &[[&[6, 0, 6, 0][..], &head].concat()]);
    }
    one("burst", &first, &vec![given(0, 0, &udp, MORE); 70]);
    seeds
}

/// The head of a sealed packet: kind, class; the number is the next one.
fn sealed(kind: u8, class: u8, rest: &[&[u8]]) -> Vec<u8> {
    [&[kind, class][..], &rest.concat(), &[MORE]].concat()
}

/// `shape:16 | packets`.
pub(super) fn inbound() -> Vec<Seed> {
    let udp = packet::v4(|_| (), Protocol::UDP, &packet::datagram(1000, 2000, b"payload"));
    let inner = |class, packet: &[u8]| sealed(5, class, &[&[2], &chunk(packet)]);
    let plain = |packets: &[Vec<u8>]| [&PLAIN[..], &packets.concat()].concat();
    let every: Vec<_> = packet::every().iter().map(|(_, packet)| inner(0, packet)).collect();
    let mut seeds: Vec<Seed> = SHAPES
        .map(|shape| (format!("shape-{shape:x}"), [&[shape, 0][..], &every.concat()].concat()))
        .collect();
    let repeat = vec![7, 0, MORE];
    let damage = |at: u8, mask: u8| vec![6, 0, 0, at, mask, MORE];
    // The first number outside the window, and the last inside it.
    let ahead = sealed(0x15, 0, &[&[0, 100, 2], &chunk(&udp)]);
    let at = |number: u8| sealed(0x25, 0, &[&[0, number, 2], &chunk(&udp)]);
    let more: [(&str, Vec<u8>); 13] = [
        ("edge", plain(&[ahead.clone(), at(37), at(38)])),
        ("onward", plain(&[0x42, 0x82, 0x22].map(|to| sealed(5, 0, &[&[to], &chunk(&udp)])))),
        ("congested", plain(&[inner(3, &udp)])),
        ("repeated", plain(&[inner(0, &udp), repeat.clone(), repeat])),
        ("damaged", plain(&[inner(0, &udp), damage(30, 1), inner(0, &udp), damage(4, 0x80)])),
        ("cut", plain(&[inner(0, &udp), damage(40, 0), inner(0, &udp), damage(3, 0)])),
        ("ahead", plain(&[ahead.clone(), inner(0, &udp)])),
        ("late", plain(&[ahead, at(3)])),
        (
            "far",
            [&[0xd4, 0][..], &sealed(0x35, 0, &[&(1u64 << 33).to_be_bytes(), &[2], &chunk(&udp)])].concat(),
        ),
        ("dummy", plain(&[sealed(4, 0, &[&[59], &chunk(&[7; 8])]), sealed(4, 0, &[&[6], &chunk(&[7; 8])])])),
        ("bad-padding", plain(&[sealed(3, 0, &[&chunk(&[1, 2, 4, 3, 4])]), sealed(3, 0, &[&chunk(&[9])])])),
        (
            "garbage",
            plain(&[
                sealed(2, 0, &[&[0, 0, 0, 1], &chunk(&[7; 40])]),
                sealed(1, 0, &[&[50], &chunk(&[7; 40])]),
            ]),
        ),
        ("to-us", plain(&[sealed(5, 0, &[&[1], &chunk(&udp)]), sealed(0xd, 0, &[&[2], &chunk(&udp)])])),
    ];
    seeds.extend(more.map(|(name, seed)| (name.to_owned(), seed)));
    // Raw: IKE, a keepalive, ESP in UDP and a fragment, addressed to us.
    let raw = |packet: &[u8]| [&[0, 0, 7][..], &chunk(packet), &[MORE]].concat();
    let to_4500 = |payload: &[u8]| packet::v4(|_| (), Protocol::UDP, &packet::datagram(4500, 4500, payload));
    let mut cut = packet::v4(|_| (), Protocol::ESP, &packet::esp());
    cut[6] = 0x20;
    let packets = [raw(&to_4500(&[0; 32])), raw(&to_4500(&[0xff])), raw(&to_4500(&[7; 64])), raw(&cut)];
    seeds.push(("raw".to_owned(), plain(&packets)));
    seeds
}

/// Steps of reassembly.
pub(super) fn reassembly() -> Vec<Seed> {
    let payload: Vec<u8> = (0..2500).map(|at| at as u8).collect();
    let v4 = packet::v4(|_| (), Protocol::ESP, &payload);
    let v6 = packet::v6(|_| (), Protocol::ESP, &payload);
    let split = |id: u8, mtu: u16, which: u8, packet: &[u8]| {
        [&[1, id][..], &mtu.to_be_bytes(), &[which], &chunk(packet)].concat()
    };
    let forged = |packet: &[u8]| [&[0, 3][..], &chunk(packet)].concat();
    let mut seeds: Vec<Seed> = Vec::new();
    for (name, packet) in [("v4", &v4), ("v6", &v6)] {
        let mut seed = |what: &str, steps: &[Vec<u8>]| seeds.push((format!("{name}-{what}"), steps.concat()));
        seed("whole", &[split(1, 1280, 0x7f, packet)]);
        seed("backwards", &[split(1, 1280, 0xff, packet)]);
        seed("twice", &[split(1, 1280, 1, packet), split(1, 1280, 0x7f, packet)]);
        seed("overlap", &[split(1, 1280, 1, packet), split(1, 1400, 2, packet)]);
        seed("again", &[split(1, 1280, 2, packet), vec![2, 10], split(1, 1280, 0x7f, packet)]);
        seed("late", &[split(1, 1280, 1, packet), vec![2, 100], split(1, 1280, 0x7e, packet)]);
        seed("many", &(0..6).map(|id| split(id, 1280, 1, packet)).collect::<Vec<_>>());
    }
    let mut fragment = packet::v4(|_| (), Protocol::ESP, &[7; 64]);
    fragment[6..8].copy_from_slice(&0x2000u16.to_be_bytes());
    let mut last = fragment.clone();
    last[6..8].copy_from_slice(&8u16.to_be_bytes());
    seeds.push(("forged".to_owned(), [forged(&fragment), forged(&last)].concat()));
    seeds
}

/// `shape:16`, then packets of the host, `flags:8 | packet`, and of its peer, `flags:8 | next:8 |
/// payload`.
pub(super) fn transport() -> Vec<Seed> {
    const RIGHT: u8 = 7;
    const JOINED: u8 = 8;
    const FROM_A_PORT: u8 = 16;
    const SEALED: u8 = 0x80;
    let own = |flags: u8, packet: &[u8]| [&[RIGHT | flags][..], &chunk(packet)].concat();
    let every: Vec<u8> = packet::every().iter().flat_map(|(_, packet)| own(0, packet)).collect();
    let mut seeds: Vec<Seed> =
        SHAPES.map(|shape| (format!("shape-{shape:x}"), [&[shape, 0][..], &every].concat())).collect();
    let udp = [
        packet::v4(|_| (), Protocol::UDP, &packet::datagram(1, 2, b"payload")),
        packet::v6(|_| (), Protocol::UDP, &[]),
    ];
    // Lengths beyond the input are filled up with zeros.
    let long = |flags: u8, head: &[u8]| [&[RIGHT | flags, 6, 0][..], head].concat();
    let sealed = |next: u8, payload: &[u8]| [&[SEALED, next][..], &chunk(payload)].concat();
    for (shape, packet) in (0xd0..0xd2).zip(&udp) {
        let mut one = |name: &str, steps: &[Vec<u8>]| {
            seeds.push((format!("{name}-{shape:x}"), [&[shape, 0][..], &steps.concat()].concat()));
        };
        one("long", &[long(0, packet)]);
        one("joined", &[long(JOINED, packet)]);
        one("forwarded", &[own(FROM_A_PORT, packet)]);
        let pieces = [17, 6, 44, 59, 0, 60].map(|next| sealed(next, &[17, 0, 0, 1, 0, 0, 0, 7, 1, 2, 3, 4]));
        one("sealed", &pieces);
    }
    seeds
}

/// `shape:16 | kind:8`, then packets of a host, `flags:8 | packet | at:16 | mask:8 | noise`, of a
/// sender with the right keys, `flags:8 | packet | class:8 | next:8 | payload`, and any others,
/// `flags:8 | repairs:8 | packet`.
pub(super) fn ah() -> Vec<Seed> {
    const DAMAGED: u8 = 1;
    const FROM_A_PORT: u8 = 4;
    const SEALED: u8 = 2;
    const RAW: u8 = 3;
    let sent =
        |flags: u8, packet: &[u8]| [&[flags][..], &chunk(packet), &[0, 30, 1], &chunk(&[0xff; 64])].concat();
    let sealed = |head: &[u8], next: u8, payload: &[u8]| {
        [&[SEALED | 8][..], &chunk(head), &[0, next], &chunk(payload)].concat()
    };
    let raw = |packet: &[u8]| [&[RAW, 7][..], &chunk(packet)].concat();
    let udp = packet::datagram(1000, 2000, b"payload");
    // An option that routers may change and one that they may not, then a route that has ended.
    let way = [43, 1, 0x3e, 4, 1, 2, 3, 4, 0x1e, 4, 1, 2, 3, 4, 1, 0, 17, 0, 0, 0, 0, 0, 0, 0];
    let routed = packet::v6(|_| (), Protocol::HOP_BY_HOP, &[&way[..], &udp].concat());
    let mut packets: Vec<Vec<u8>> = packet::every().into_iter().map(|(_, packet)| packet).collect();
    packets.push(routed.clone());
    let each = |step: &dyn Fn(&[u8]) -> Vec<u8>| packets.iter().flat_map(|packet| step(packet)).collect();
    // Every mode of AH alone, and of both, each with its own MAC.
    let kinds = [0, 1, 2, 3, 6, 7].map(|modes: u8| (modes, modes | modes << 3));
    let mut seeds = Vec::new();
    for ((modes, kind), family) in kinds.into_iter().flat_map(|kind| [(kind, 0), (kind, 1)]) {
        let mut one = |name: &str, steps: Vec<u8>| {
            let esn = (modes & 1) << 2;
            let head = [0xd0 | family | esn, 0, kind];
            seeds.push((format!("{name}-{modes}-{family}"), [&head[..], &steps].concat()));
        };
        let port = if matches!(modes, 0 | 2 | 3) { FROM_A_PORT } else { 0 };
        let (head, next) = if family == 0 { (&packets[4], 4) } else { (&routed, 41) };
        one("sent", each(&|packet| sent(DAMAGED | port, packet)));
        one("sealed", each(&|packet| sealed(head, next, packet)));
        one("into", each(&|packet| sealed(packet, 17, &udp)));
    }
    seeds.push(("raw".to_owned(), [&[0xd0, 0, 1][..], &each(&raw)].concat()));
    seeds
}
