//! ARP (RFC 826) for VIPs.

use super::VipLink;
use crate::mac::MacAddr;
use std::net::{IpAddr, Ipv4Addr};
use testudo_wire::ethernet::{EtherType, Ethernet};

const PACKET_LEN: usize = 28;
/// Hardware type, protocol type and address lengths of Ethernet and IPv4.
pub(crate) const ADDRESS_KINDS: [u8; 6] = [0, 1, 8, 0, 6, 4];
const REQUEST: [u8; 2] = [0, 1];
const REPLY: [u8; 2] = [0, 2];

/// What ARP says.
pub(crate) struct Packet {
    operation: [u8; 2],
    pub(crate) sender: MacAddr,
    pub(crate) sender_address: Ipv4Addr,
    target_address: Ipv4Addr,
}

impl Packet {
    /// Reads ARP of Ethernet and IPv4, behind the Ethernet header.
    pub(crate) fn parse(packet: &[u8]) -> Option<Self> {
        let packet: &[u8; PACKET_LEN] = packet.first_chunk()?;
        let (kinds, rest) = packet.split_first_chunk()?;
        let (operation, rest) = rest.split_first_chunk()?;
        let (sender, rest) = rest.split_first_chunk()?;
        let (sender_address, rest): (&[u8; 4], _) = rest.split_first_chunk()?;
        let target_address = Ipv4Addr::from(*rest.last_chunk::<4>()?);
        let (sender, sender_address) = (MacAddr(*sender), Ipv4Addr::from(*sender_address));
        let operation = *operation;
        (*kinds == ADDRESS_KINDS).then_some(Self { operation, sender, sender_address, target_address })
    }
}

/// The reply to a request for one of the link's VIPs, as a frame.
pub(super) fn answer(link: &VipLink, frame: &[u8]) -> Option<Vec<u8>> {
    let (ethernet, packet) = Ethernet::parse(frame).ok()?;
    if ethernet.ethertype != EtherType::ARP {
        return None;
    }
    let Packet { operation, sender, sender_address, target_address: wanted } = Packet::parse(packet)?;
    if operation != REQUEST || !link.has(IpAddr::V4(wanted)) {
        return None;
    }
    // An announcement is a request too, but no question: it comes from another node, or from a
    // thief of the address.
    if sender_address == wanted {
        return None;
    }
    Some(frame_of(link, ethernet.src, REPLY, wanted, sender, sender_address))
}

/// An announcement (RFC 5227 §3) that the VIP is at the cluster's MAC.
pub(super) fn announcement(link: &VipLink, vip: Ipv4Addr) -> Vec<u8> {
    frame_of(link, MacAddr::BROADCAST, REQUEST, vip, MacAddr([0; 6]), vip)
}

/// A packet whose sender is the VIP at the cluster's MAC.
fn frame_of(
    link: &VipLink,
    to: MacAddr,
    operation: [u8; 2],
    vip: Ipv4Addr,
    target: MacAddr,
    target_address: Ipv4Addr,
) -> Vec<u8> {
    let ethernet = Ethernet { dst: to, src: link.mac, ethertype: EtherType::ARP }.to_bytes();
    [
        &ethernet[..],
        &ADDRESS_KINDS,
        &operation,
        &link.cluster_mac.0,
        &vip.octets(),
        &target.0,
        &target_address.octets(),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{CLUSTER, OWN, VIP, link};
    use super::*;

    const ASKER: [u8; 6] = [2, 0, 0, 0, 0, 0x77];

    fn request(asker: [u8; 4], wanted: [u8; 4]) -> Vec<u8> {
        let to = MacAddr::BROADCAST;
        let ethernet = Ethernet { dst: to, src: MacAddr(ASKER), ethertype: EtherType::ARP }.to_bytes();
        [&ethernet[..], &ADDRESS_KINDS, &REQUEST, &ASKER, &asker, &[0; 6], &wanted, &[0; 18]].concat()
    }

    #[test]
    fn a_request_for_a_vip_is_answered_with_the_clusters_address() {
        let reply = answer(&link(), &request([192, 0, 2, 9], VIP)).unwrap();
        let expected =
            [&ASKER[..], &OWN, &[8, 6], &ADDRESS_KINDS, &REPLY, &CLUSTER, &VIP, &ASKER, &[192, 0, 2, 9]];
        assert_eq!(reply, expected.concat());
        assert!(
            answer(&link(), &request([0; 4], VIP)).is_some(),
            "a probe (RFC 5227) learns that it is taken"
        );
    }

    #[test]
    fn nothing_else_is_answered() {
        let good = request([192, 0, 2, 9], VIP);
        assert_eq!(answer(&link(), &request([192, 0, 2, 9], [192, 0, 2, 2])), None);
        assert_eq!(answer(&link(), &request(VIP, VIP)), None, "an announcement is no question");
        for length in 0..14 + PACKET_LEN {
            assert_eq!(answer(&link(), &good[..length]), None);
        }
        for at in (12..22).filter(|at| *at != 21) {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert_eq!(answer(&link(), &bad), None, "octet {at}");
        }
        let reply = answer(&link(), &good).unwrap();
        assert_eq!(answer(&link(), &reply), None);
        assert_eq!(answer(&link(), &announcement(&link(), VIP.into())), None);
    }
}
