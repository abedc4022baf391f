//! Neighbour Discovery (RFC 4861) for VIPs.

use super::VipLink;
use crate::mac::MacAddr;
use std::net::{IpAddr, Ipv6Addr};
use testudo_wire::checksum::Sum;
use testudo_wire::ethernet::{EtherType, Ethernet};
use testudo_wire::ip::Protocol;
use testudo_wire::ipv6::{Fields, Ipv6};

pub(super) const SOLICITATION: u8 = 135;
pub(crate) const ADVERTISEMENT: u8 = 136;
/// A message with another hop limit has crossed a router (RFC 4861 §7.1).
pub(crate) const HOP_LIMIT: u8 = 255;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const SOURCE_LINK_LAYER: u8 = 1;
pub(crate) const TARGET_LINK_LAYER: u8 = 2;
const ROUTER: u8 = 0x80;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;

/// The advertisement that answers a solicitation of one of the link's VIPs, as a frame.
pub(super) fn answer(link: &VipLink, frame: &[u8]) -> Option<Vec<u8>> {
    let (ethernet, packet) = Ethernet::parse(frame).ok()?;
    if ethernet.ethertype != EtherType::IPV6 {
        return None;
    }
    let ip = Ipv6::parse(packet).ok()?;
    let target = solicited(&ip).filter(|target| link.has(IpAddr::V6(*target)))?;
    if ip.src() == target {
        return None;
    }
    if ip.src().is_unspecified() {
        // The sender is about to take the address (RFC 4862 §5.4.3), so every host must hear the
        // answer.
        return Some(advertisement(link, target, multicast(ALL_NODES), ALL_NODES, 0));
    }
    Some(advertisement(link, target, ethernet.src, ip.src(), SOLICITED))
}

/// An unsolicited advertisement (RFC 4861 §7.2.6) that the VIP is at the cluster's MAC.
pub(super) fn announcement(link: &VipLink, vip: Ipv6Addr) -> Vec<u8> {
    advertisement(link, vip, multicast(ALL_NODES), ALL_NODES, 0)
}

/// The multicast group in which an address is solicited (RFC 4291 §2.7.1).
pub(super) fn solicited_node(addr: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = addr.octets();
    Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// The target of a valid solicitation (RFC 4861 §7.1.1).
fn solicited(ip: &Ipv6<'_>) -> Option<Ipv6Addr> {
    let message = ip.payload();
    let (fixed, options): (&[u8; 8], _) = message.split_first_chunk()?;
    let (target, options): (&[u8; 16], _) = options.split_first_chunk()?;
    if ip.next_header() != Protocol::ICMPV6 || ip.hop_limit() != HOP_LIMIT {
        return None;
    }
    if fixed[0] != SOLICITATION || fixed[1] != 0 || !checksum(ip.src(), ip.dst(), message)?.is_valid() {
        return None;
    }
    let target = Ipv6Addr::from(*target);
    let has_source = last_option(SOURCE_LINK_LAYER, options)?.is_some();
    let fits = !ip.src().is_unspecified() || (ip.dst() == solicited_node(target) && !has_source);
    fits.then_some(target)
}

/// The last option of this kind, without its kind and length. `None` if the options are malformed.
pub(crate) fn last_option(wanted: u8, mut options: &[u8]) -> Option<Option<&[u8]>> {
    let mut found = None;
    while let [kind, length, content @ ..] = options {
        let size = usize::from(*length) * 8;
        if size == 0 {
            return None;
        }
        options = options.get(size..)?;
        if *kind == wanted {
            found = content.get(..size - 2);
        }
    }
    options.is_empty().then_some(found)
}

fn checksum(src: Ipv6Addr, dst: Ipv6Addr, message: &[u8]) -> Option<Sum> {
    let length = u32::try_from(message.len()).ok()?;
    Some(Sum::new().pseudo_v6(src, dst, Protocol::ICMPV6.0, length).bytes(message))
}

fn multicast(group: Ipv6Addr) -> MacAddr {
    let [.., a, b, c, d] = group.octets();
    MacAddr([0x33, 0x33, a, b, c, d])
}

/// An advertisement with the VIP as its sender and the cluster's MAC as its option.
#[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "the message begins with a header"))]
fn advertisement(link: &VipLink, vip: Ipv6Addr, mac: MacAddr, to: Ipv6Addr, flags: u8) -> Vec<u8> {
    let mut message = vec![ADVERTISEMENT, 0, 0, 0, ROUTER | OVERRIDE | flags, 0, 0, 0];
    message.extend(vip.octets());
    message.extend([TARGET_LINK_LAYER, 1]);
    message.extend(link.cluster_mac.0);
    if let Some(sum) = checksum(vip, to, &message) {
        message[2..4].copy_from_slice(&sum.finish().to_be_bytes());
    }
    let ip = Fields {
        traffic_class: 0,
        payload_len: message.len() as u16,
        next_header: Protocol::ICMPV6,
        hop_limit: HOP_LIMIT,
        src: vip,
        dst: to,
    };
    let ethernet = Ethernet { dst: mac, src: link.mac, ethertype: EtherType::IPV6 }.to_bytes();
    [&ethernet[..], &ip.to_bytes(), &message].concat()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{CLUSTER, OWN, VIP6, link};
    use super::*;

    const ASKER: &str = "2001:db8:1::9";
    const ASKER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x77];

    fn addr(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    /// An IPv6 frame with the right checksum.
    fn message(src: &str, dst: Ipv6Addr, hop_limit: u8, message: &[u8]) -> Vec<u8> {
        let mut message = message.to_vec();
        let sum = checksum(addr(src), dst, &message).unwrap();
        message[2..4].copy_from_slice(&sum.finish().to_be_bytes());
        let ip = Fields {
            traffic_class: 0,
            payload_len: message.len() as u16,
            next_header: Protocol::ICMPV6,
            hop_limit,
            src: addr(src),
            dst,
        };
        let ethernet =
            Ethernet { dst: multicast(dst), src: MacAddr(ASKER_MAC), ethertype: EtherType::IPV6 }.to_bytes();
        [&ethernet[..], &ip.to_bytes(), &message].concat()
    }

    fn solicitation(target: &str, options: &[u8]) -> Vec<u8> {
        [&[SOLICITATION, 0, 0, 0, 0, 0, 0, 0][..], &addr(target).octets(), options].concat()
    }

    fn source_option() -> Vec<u8> {
        [&[SOURCE_LINK_LAYER, 1][..], &ASKER_MAC].concat()
    }

    #[test]
    fn a_solicitation_of_a_vip_is_answered_with_the_clusters_address() {
        let group = solicited_node(addr(VIP6));
        let asked = message(ASKER, group, 255, &solicitation(VIP6, &source_option()));
        let answer = answer(&link(), &asked).unwrap();
        assert_eq!((&answer[..6], &answer[6..12]), (&ASKER_MAC[..], &OWN[..]));
        let ip = Ipv6::parse(&answer[14..]).unwrap();
        assert_eq!((ip.src(), ip.dst(), ip.hop_limit()), (addr(VIP6), addr(ASKER), 255));
        assert!(checksum(ip.src(), ip.dst(), ip.payload()).unwrap().is_valid());
        let body = [&[0xe0, 0, 0, 0][..], &addr(VIP6).octets(), &[2, 1], &CLUSTER].concat();
        assert_eq!((&ip.payload()[..2], &ip.payload()[4..]), (&[136, 0][..], &body[..]));
    }

    #[test]
    fn a_probe_for_a_vip_is_answered_to_all_nodes() {
        let group = solicited_node(addr(VIP6));
        let answer_to =
            |dst, options: &[u8]| answer(&link(), &message("::", dst, 255, &solicitation(VIP6, options)));
        let told = answer_to(group, &[]).unwrap();
        assert_eq!(told, announcement(&link(), addr(VIP6)));
        assert_eq!((&told[..6], told[14 + 40 + 4]), (&[0x33, 0x33, 0, 0, 0, 1][..], ROUTER | OVERRIDE));
        assert_eq!(answer_to(addr(VIP6), &[]), None);
        assert_eq!(answer_to(group, &source_option()), None);
    }

    #[test]
    fn nothing_else_is_answered() {
        let ask =
            |hops, body: &[u8]| answer(&link(), &message(ASKER, solicited_node(addr(VIP6)), hops, body));
        let good = solicitation(VIP6, &source_option());
        assert!(ask(255, &good).is_some());
        assert_eq!(ask(254, &good), None, "it has crossed a router");
        assert_eq!(ask(255, &solicitation("2001:db8:1::2", &[])), None);
        assert_eq!(ask(255, &solicitation(VIP6, &[1, 0, 0, 0, 0, 0, 0, 0])), None, "an option of no length");
        assert_eq!(
            ask(255, &solicitation(VIP6, &[1, 2, 0, 0, 0, 0, 0, 0])),
            None,
            "an option beyond the end"
        );
        assert_eq!(ask(255, &solicitation(VIP6, &[1])), None);
        assert_eq!(ask(255, &[&[ADVERTISEMENT][..], &good[1..]].concat()), None);
        assert_eq!(ask(255, &[&[SOLICITATION, 1][..], &good[2..]].concat()), None);
        let frame = message(ASKER, solicited_node(addr(VIP6)), 255, &good);
        for length in 0..frame.len() {
            assert_eq!(answer(&link(), &frame[..length]), None);
        }
        let mut forged = frame.clone();
        forged[14 + 40 + 2] ^= 1;
        assert_eq!(answer(&link(), &forged), None, "a wrong checksum");
        assert_eq!(answer(&link(), &announcement(&link(), addr(VIP6))), None);
    }
}
