//! Every header parser, and every change in place.

use crate::input::Input;
use testudo_wire::ah;
use testudo_wire::checksum::Sum;
use testudo_wire::ethernet::Ethernet;
use testudo_wire::ip::Protocol;
use testudo_wire::ipv4::{Ipv4, Ipv4Mut};
use testudo_wire::ipv6::{self, Ipv6, Ipv6Mut};
use testudo_wire::seam::Seam;
use testudo_wire::tcp::{self, Tcp};
use testudo_wire::udp::{self, Udp};
use testudo_wire::{esp, esp::Esp};

/// `flags:8 | value:16 | packet`; the value is a traffic class, an MSS, a port.
pub fn target(data: &[u8]) {
    let mut input = Input::new(data);
    let (flags, value) = (input.u8(), input.u16());
    let packet = super::packet(&mut input, flags);
    if let Ok((_, payload)) = Ethernet::parse(&packet) {
        assert!(packet.ends_with(payload));
    }
    ipv4(&packet, value);
    ipv6(&packet, value);
    seam(&packet, value);
    covered_by_ah(&packet, value);
    // Inside IPsec a transport header may follow anything.
    for protocol in [Protocol::UDP, Protocol::TCP, Protocol::ESP] {
        transport(protocol, &packet, value);
    }
}

fn ipv4(packet: &[u8], value: u16) {
    let Ok(ip) = Ipv4::parse(packet) else {
        assert!(Ipv4::parse_verified(packet).is_err());
        return;
    };
    assert_eq!(ip.payload(), &packet[ip.header_len()..ip.total_len()]);
    assert!(ip.fragment_offset() < 65_536 && (ip.is_fragment() == (ip.mf() || ip.fragment_offset() != 0)));
    transport(ip.protocol(), ip.payload(), value);
    let verified = Ipv4::parse_verified(packet).is_ok();
    assert_eq!(verified, ip.has_valid_checksum());
    let (tos, ttl) = (value as u8, (value >> 8) as u8);
    let mut changed = packet.to_vec();
    let mut header = Ipv4Mut::new(&mut changed).expect("a parsed packet has a header");
    header.set_tos(tos);
    header.set_ttl(ttl);
    header.decrement_ttl();
    let after = Ipv4::parse(&changed).expect("no setter makes a packet malformed");
    assert_eq!((after.tos(), after.ttl()), (tos, ttl.saturating_sub(1)));
    assert_eq!((after.src(), after.dst(), after.payload()), (ip.src(), ip.dst(), ip.payload()));
    assert!(!verified || after.has_valid_checksum(), "every setter keeps the checksum");
}

/// AH inserted into the packet covers all octets, except its own ICV.
fn covered_by_ah(packet: &[u8], value: u16) {
    let _anywhere = ah::cover(packet, (value >> 8).into(), (value & 0xff).into(), |_| ());
    let Ok(seam) = Seam::find(packet) else { return };
    let total = Ipv4::parse(packet)
        .map(|ip| ip.total_len())
        .or_else(|_| Ipv6::parse(packet).map(|ip| ip.total_len()));
    let (head, rest) = packet[..total.expect("only a packet has one")].split_at(seam.offset());
    let mut header = vec![0; ah::header_len(12, true)];
    let next = seam.protocol(head).expect("the headers before it name what follows");
    assert!(ah::write(&mut header, next, 0x1122_3344, value.into()));
    let mut around = [head, &header, rest].concat();
    let Ok(longer) = u16::try_from(around.len()) else { return };
    assert!(seam.name(&mut around, Protocol::AH, longer));
    let cover = |packet: &[u8]| {
        let mut all = Vec::new();
        ah::cover(packet, seam.offset(), 12, |piece| all.extend_from_slice(piece)).map(|()| all)
    };
    let Ok(before) = cover(&around) else { return };
    assert_eq!(before.len(), around.len());
    around[seam.offset() + ah::HEADER..][..12].fill(value as u8);
    assert_eq!(cover(&around).expect("the ICV is no part of it"), before);
}

/// The place of IPsec in transport mode: at a header of the packet; what is inserted there is found
/// again, and removed.
fn seam(packet: &[u8], value: u16) {
    let _anywhere = Seam::at(packet, value.into());
    let Ok(seam) = Seam::find(packet) else { return };
    assert_eq!(Seam::at(packet, seam.offset()), Some(seam));
    let (head, rest) = packet.split_at(seam.offset());
    let next = seam.protocol(head).expect("the headers before it name what follows");
    let total = Ipv4::parse(packet)
        .map(|ip| ip.total_len())
        .or_else(|_| Ipv6::parse(packet).map(|ip| ip.total_len()));
    let total = total.expect("only a packet has one");
    let Ok(longer) = u16::try_from(total + 16) else { return };
    let mut around = [head, &[0xee; 16], rest].concat();
    assert!(seam.name(&mut around, Protocol::ESP, longer));
    assert_eq!(Seam::at(&around, seam.offset()), Some(seam));
    assert_eq!(seam.protocol(&around), Some(Protocol::ESP));
    assert_eq!(Ipv4::parse_verified(&around).is_ok(), Ipv4::parse_verified(packet).is_ok());
    assert!(seam.name(&mut around, next, total as u16));
    around.drain(seam.offset()..seam.offset() + 16);
    if Ipv4::parse(packet).is_err() {
        assert_eq!(around, packet);
    }
}

fn ipv6(packet: &[u8], value: u16) {
    let Ok(ip) = Ipv6::parse(packet) else { return };
    assert_eq!(ip.payload(), &packet[ipv6::HEADER..ip.total_len()]);
    let upper = ip.upper().ok();
    assert_eq!(upper.map(|upper| (upper.protocol, upper.payload)), behind_extensions(&ip));
    if let Some(upper) = upper.filter(|upper| !upper.is_later_fragment()) {
        transport(upper.protocol, upper.payload, value);
    }
    let class = value as u8;
    let mut changed = packet.to_vec();
    let mut header = Ipv6Mut::new(&mut changed).expect("a parsed packet has a header");
    header.set_traffic_class(class);
    header.decrement_hop_limit();
    let after = Ipv6::parse(&changed).expect("no setter makes a packet malformed");
    assert_eq!((after.traffic_class(), after.hop_limit()), (class, ip.hop_limit().saturating_sub(1)));
    assert_eq!((after.src(), after.dst(), after.payload()), (ip.src(), ip.dst(), ip.payload()));
}

/// The walk through the extension headers, implemented independently, in the order of RFC 8200 §4.1
/// where that is not optional.
fn behind_extensions<'a>(ip: &Ipv6<'a>) -> Option<(Protocol, &'a [u8])> {
    let (mut protocol, mut payload, mut fragments) = (ip.next_header(), ip.payload(), 0);
    for count in 0..=ipv6::MAX_EXTENSIONS {
        let len = match protocol {
            Protocol::HOP_BY_HOP if count > 0 => return None,
            Protocol::HOP_BY_HOP | Protocol::ROUTING | Protocol::DEST_OPTIONS => {
                8 + 8 * usize::from(*payload.get(1)?)
            }
            Protocol::FRAGMENT if fragments > 0 => return None,
            Protocol::FRAGMENT => 8,
            upper => return Some((upper, payload)),
        };
        let (header, rest) = payload.split_at_checked(len)?;
        let is_fragment = protocol == Protocol::FRAGMENT;
        (protocol, payload) = (Protocol(header[0]), rest);
        if is_fragment && (header[2] != 0 || header[3] >= 8) {
            // It is not followed by a header but by a later fragment.
            return Some((protocol, payload));
        }
        fragments += usize::from(is_fragment);
    }
    None
}

fn transport(protocol: Protocol, payload: &[u8], value: u16) {
    match protocol {
        Protocol::UDP => datagram(payload),
        Protocol::TCP => segment(payload, value),
        Protocol::ESP => esp(payload),
        _ => (),
    }
}

fn datagram(bytes: &[u8]) {
    let Ok(datagram) = Udp::parse(bytes) else { return };
    let len = udp::HEADER + datagram.payload.len();
    assert_eq!(datagram.payload, &bytes[udp::HEADER..len]);
    let (src, dst) = ([0xfd; 16].into(), [0xfe; 16].into());
    let mut filled = bytes[..len].to_vec();
    assert!(udp::fill_checksum_v6(src, dst, &mut filled));
    assert_ne!(filled[6..8], [0, 0], "RFC 8200 §8.1");
    assert!(Sum::new().pseudo_v6(src, dst, 17, len as u32).bytes(&filled).is_valid());
}

fn segment(bytes: &[u8], limit: u16) {
    let parsed = Tcp::parse(bytes).ok();
    let mut clamped = bytes.to_vec();
    let changed = tcp::clamp_mss(&mut clamped, limit);
    assert_eq!(changed, clamped != bytes);
    if changed {
        let before = parsed.and_then(|tcp| tcp.mss()).expect("only a segment with the option changes");
        let after = Tcp::parse(&clamped).expect("it is still a segment");
        assert!(before > limit && after.mss() == Some(limit) && after.is_syn());
        // A wrong checksum stays wrong by the same amount.
        let off = |bytes: &[u8]| Sum::new().bytes(bytes).finish() % 0xffff;
        assert_eq!(off(bytes), off(&clamped));
    }
}

fn esp(bytes: &[u8]) {
    let Ok(packet) = Esp::parse(bytes) else { return };
    assert_eq!(packet.body, &bytes[esp::HEADER..]);
    let Ok((payload, next_header)) = esp::split_trailer(packet.body) else { return };
    // There is only one way to write the trailer, so it must be the one that was read.
    let mut again = packet.body.to_vec();
    assert!(esp::write_trailer(&mut again[payload.len()..], next_header));
    assert_eq!(again, packet.body);
    let pad = esp::pad_len(payload.len(), 4);
    assert!(pad < 4 && (payload.len() + pad + esp::TRAILER).is_multiple_of(4));
}
