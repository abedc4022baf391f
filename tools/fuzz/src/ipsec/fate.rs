//! The required fate of an authentic packet: RFC 4301 §5.2, RFC 4303 §3.4 and RFC 6040 implemented
//! independently, as simply as possible.

use super::gateway::Done;
use std::net::IpAddr;
use testudo_ipsec::dataplane::{Ingress, Verdict};
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::packet_selector::{Direction, PacketSelector};
use testudo_ipsec::selector::{SelectorPair, TrafficSelector};
use testudo_ipsec::spd::{Action, Decision, PolicyId, Spd};
use testudo_wire::ip::{self, Ecn, Protocol};
use testudo_wire::ipv4::Ipv4;
use testudo_wire::ipv6::{self, Ipv6};
use testudo_wire::{Error, esp};

/// True for verdicts that only an authentic packet with a fresh number may get.
pub(super) fn after_authentication(verdict: Verdict) -> bool {
    use DropReason::{
        BadNextHeader, BadPadding, Dummy, EcnNotCapable, MalformedInner, SelectorMismatch, TtlExceeded,
    };
    match verdict {
        Verdict::Forward | Verdict::ForwardInPieces { mtu: u16::MAX } => true,
        Verdict::ToHost | Verdict::Onward | Verdict::Reply => true,
        Verdict::Early(_) | Verdict::Reassemble | Verdict::Held => false,
        Verdict::Drop(reason) => matches!(
            reason,
            Dummy
                | BadPadding
                | BadNextHeader
                | MalformedInner
                | SelectorMismatch
                | EcnNotCapable
                | TtlExceeded
        ),
        Verdict::Pending
        | Verdict::ForwardInPieces { .. }
        | Verdict::Fragment { .. }
        | Verdict::Behind
        | Verdict::Relayed { .. } => {
            panic!("{verdict:?} makes no sense here")
        }
    }
}

/// The fate of an authentic packet.
pub(super) enum Fate {
    Dropped(DropReason),
    ToHost(Vec<u8>),
    /// One hop later, if it came through a port.
    Forwarded(Vec<u8>, u8),
    /// To be protected again, for another peer.
    Onward(Vec<u8>, u8),
    /// Answered with an ICMP error, or dropped if that is not allowed.
    Expired(IpAddr),
}

/// The configuration of the receiving gateway.
pub(super) struct Near<'a> {
    pub(super) selectors: &'a SelectorPair,
    pub(super) own: &'a [IpAddr],
    pub(super) spd: &'a Spd,
    /// The SA's policy, and the ranges of its two sides.
    pub(super) policy: PolicyId,
    pub(super) sides: [&'a [TrafficSelector]; 2],
    /// The far sides of all policies.
    pub(super) held: &'a [TrafficSelector],
}

impl Near<'_> {
    /// True if a policy requires that the packet is protected or discarded when it leaves again
    /// (RFC 4301 §5.1). If the SA's own policy matches, or none does, the smallest range around the
    /// destination decides on which side it is.
    fn goes_onward(&self, packet: &[u8]) -> bool {
        let flow = PacketSelector::of_packet(packet, Direction::Out).expect("a packet");
        let [near, far] = self.sides.map(|side| nearest(side, flow.remote()));
        match self.spd.lookup(&flow) {
            Decision::Act(Action::Protect(policy)) if policy == self.policy => far < near,
            Decision::Act(action) => action != Action::Bypass,
            Decision::NoPolicy => nearest(self.held, flow.remote()) < near,
        }
    }
}

/// The size of the smallest of the ranges that hold an address.
fn nearest(ranges: &[TrafficSelector], addr: IpAddr) -> u128 {
    let number = |addr| match addr {
        IpAddr::V4(addr) => u128::from(addr.to_bits()),
        IpAddr::V6(addr) => addr.to_bits(),
    };
    let around = ranges.iter().map(|range| range.addrs).filter(|range| range.contains(addr));
    around.map(|range| number(range.end()) - number(range.start())).min().unwrap_or(u128::MAX)
}

/// The parsed fields of an inner packet.
struct Header {
    len: usize,
    ttl: u8,
    class: u8,
}

fn header(packet: &[u8], next_header: Protocol) -> Result<(Header, PacketSelector), Error> {
    let header = if next_header == Protocol::IPV4 {
        let ip = Ipv4::parse_verified(packet)?;
        Header { len: ip.total_len(), ttl: ip.ttl(), class: ip.tos() }
    } else {
        let ip = Ipv6::parse(packet)?;
        Header { len: ip.total_len(), ttl: ip.hop_limit(), class: ip.traffic_class() }
    };
    Ok((header, PacketSelector::of_packet(packet, Direction::In)?))
}

impl Fate {
    /// The fate of this plaintext, which came in an outer packet of this traffic class.
    pub(super) fn of(text: &[u8], class: u8, ingress: Ingress, near: &Near<'_>) -> Self {
        let Ok((payload, next_header)) = esp::split_trailer(text) else {
            return Self::Dropped(DropReason::BadPadding);
        };
        if next_header == Protocol::NO_NEXT {
            return Self::Dropped(DropReason::Dummy);
        }
        if next_header != Protocol::IPV4 && next_header != Protocol::IPV6 {
            return Self::Dropped(DropReason::BadNextHeader);
        }
        let Ok((header, flow)) = header(payload, next_header) else {
            return Self::Dropped(DropReason::MalformedInner);
        };
        if !near.selectors.accepts(&flow) {
            return Self::Dropped(DropReason::SelectorMismatch);
        }
        if Ecn::of(class) == Ecn::Ce && Ecn::of(header.class) == Ecn::NotEct {
            return Self::Dropped(DropReason::EcnNotCapable);
        }
        let packet = payload[..header.len].to_vec();
        let hops = u8::from(ingress == Ingress::Port);
        if near.own.contains(&flow.local()) {
            Self::ToHost(packet)
        } else if header.ttl <= 1 && ingress == Ingress::Port {
            Self::Expired(flow.remote())
        } else if near.goes_onward(&packet) {
            Self::Onward(packet, hops)
        } else {
            Self::Forwarded(packet, hops)
        }
    }

    pub(super) fn check(&self, (verdict, packet): &Done) {
        match self {
            Self::Dropped(reason) => assert_eq!(*verdict, Verdict::Drop(*reason)),
            Self::ToHost(inner) => {
                assert_eq!(*verdict, Verdict::ToHost);
                same_but_for_routing(inner, packet, 0);
            }
            Self::Forwarded(inner, hops) => {
                // If the SA accepts certain ports only, the datagram arrived whole and may have
                // been larger than any link.
                if *verdict == (Verdict::ForwardInPieces { mtu: u16::MAX }) {
                    assert!(ip::version(inner) == Some(6) && inner.len() > usize::from(ipv6::MIN_MTU));
                } else {
                    assert_eq!(*verdict, Verdict::Forward);
                }
                same_but_for_routing(inner, packet, *hops);
            }
            Self::Onward(inner, hops) => {
                assert_eq!(*verdict, Verdict::Onward);
                same_but_for_routing(inner, packet, *hops);
            }
            Self::Expired(sender) => match verdict {
                Verdict::Reply => assert_eq!(addressed_to(packet), *sender),
                _ => assert_eq!(*verdict, Verdict::Drop(DropReason::TtlExceeded)),
            },
        }
    }
}

/// Asserts that `after` is the packet `before` that many hops later: only traffic class, TTL, IPv4
/// checksum and the MSS of TCP may differ.
pub(super) fn same_but_for_routing(before: &[u8], after: &[u8], hops: u8) {
    assert_eq!(before.len(), after.len());
    let flow = |packet| PacketSelector::of_packet(packet, Direction::In).expect("a packet");
    assert_eq!(flow(before), flow(after));
    let (head, ttl) = match ip::version(after) {
        Some(4) => {
            let (before, after) = (Ipv4::parse(before).expect("it is"), Ipv4::parse_verified(after));
            let after = after.expect("its checksum is right");
            assert!(after.total_len() == before.total_len() && after.options() == before.options());
            (after.header_len(), [before.ttl(), after.ttl()])
        }
        _ => {
            let [before, after] = [before, after].map(|packet| Ipv6::parse(packet).expect("it is"));
            (ipv6::HEADER, [before.hop_limit(), after.hop_limit()])
        }
    };
    assert_eq!(ttl[0].checked_sub(hops), Some(ttl[1]));
    if flow(before).protocol() != Protocol::TCP.0 {
        assert_eq!(before[head..], after[head..]);
    }
}

/// The destination of an ICMP error.
pub(super) fn addressed_to(packet: &[u8]) -> IpAddr {
    match ip::version(packet) {
        Some(4) => {
            let ip = Ipv4::parse_verified(packet).expect("a packet");
            assert_eq!(ip.protocol(), Protocol::ICMP);
            ip.dst().into()
        }
        _ => {
            let ip = Ipv6::parse(packet).expect("a packet");
            assert_eq!(ip.next_header(), Protocol::ICMPV6);
            ip.dst().into()
        }
    }
}
