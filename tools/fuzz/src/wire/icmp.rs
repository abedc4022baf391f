//! ICMP errors built around any packet.

use crate::input::{Input, bit};
use testudo_wire::checksum::Sum;
use testudo_wire::icmp::{self, Kind, Sources};
use testudo_wire::ip::{self, Protocol};
use testudo_wire::ipv4::Ipv4;
use testudo_wire::ipv6::{self, Ipv6};
use testudo_wire::packet::PacketBuf;

/// `flags:8 | mtu:16 | headroom:8 | packet`.
pub fn target(data: &[u8]) {
    let mut input = Input::new(data);
    let (flags, mtu, headroom) = (input.u8(), input.u16(), usize::from(input.u8()));
    let packet = super::packet(&mut input, flags);
    let kind = if bit(flags, 2) { Kind::TimeExceeded } else { Kind::TooBig { mtu } };
    let sources = if bit(flags, 3) {
        Sources { v4: Some([192, 0, 2, 1].into()), v6: Some([0x20; 16].into()) }
    } else {
        Sources::default()
    };
    let may_answer = icmp::may_answer(&packet, kind);
    let mut frame = vec![0xee; headroom];
    frame.extend(&packet);
    let mut buf = PacketBuf::new(&mut frame, headroom, packet.len()).expect("it fits");
    if icmp::answer(&mut buf, kind, &sources).is_err() {
        assert_eq!((buf.data(), buf.headroom()), (packet.as_slice(), headroom), "a refusal changes nothing");
        return;
    }
    let (protocol, message) = match ip::version(buf.data()) {
        Some(4) => answer_v4(buf.data(), &packet, &sources),
        _ => answer_v6(buf.data(), &packet, &sources),
    };
    assert!(packet.starts_with(&message[8..]), "it quotes the packet");
    assert!(!may_answer || message.len() > 8);
    // An error is never answered with an error, in either direction.
    assert!(!icmp::may_answer(buf.data(), kind), "{protocol:?}");
}

fn answer_v4<'a>(answer: &'a [u8], packet: &[u8], sources: &Sources) -> (Protocol, &'a [u8]) {
    let about = Ipv4::parse(packet).expect("only a packet is answered");
    let ip = Ipv4::parse_verified(answer).expect("the answer is a packet");
    assert_eq!((ip.total_len(), ip.dst()), (answer.len(), about.src()));
    assert_eq!(ip.src(), sources.v4.unwrap_or(about.dst()));
    assert!(answer.len() <= 576 && ip.protocol() == Protocol::ICMP);
    assert!(Sum::new().bytes(ip.payload()).is_valid());
    (ip.protocol(), ip.payload())
}

fn answer_v6<'a>(answer: &'a [u8], packet: &[u8], sources: &Sources) -> (Protocol, &'a [u8]) {
    let about = Ipv6::parse(packet).expect("only a packet is answered");
    let ip = Ipv6::parse(answer).expect("the answer is a packet");
    assert_eq!((ip.total_len(), ip.dst()), (answer.len(), about.src()));
    assert_eq!(ip.src(), sources.v6.unwrap_or(about.dst()));
    assert!(answer.len() <= usize::from(ipv6::MIN_MTU) && ip.next_header() == Protocol::ICMPV6);
    let pseudo = Sum::new().pseudo_v6(ip.src(), ip.dst(), Protocol::ICMPV6.0, ip.payload().len() as u32);
    assert!(pseudo.bytes(ip.payload()).is_valid());
    (ip.next_header(), ip.payload())
}
