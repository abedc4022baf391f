//! Who claims which addresses on the links: the senders of ARP (RFC 826) and the targets of Neighbour
//! Advertisements (RFC 4861 §4.4).
//!
//! The kernel tells nobody that another host claims an address of this one.

use crate::error::{Error, Result};
use crate::fib::PortLink;
use crate::mac::MacAddr;
use crate::vip::PacketSocket;
use crate::vip::arp::Packet;
use crate::vip::nd::{ADVERTISEMENT, HOP_LIMIT, TARGET_LINK_LAYER, last_option};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use testudo_wire::ethernet::{EtherType, Ethernet};
use testudo_wire::ip::Protocol;
use testudo_wire::ipv6::Ipv6;

/// Bound on the frames of a socket that are read at a time.
const MAX_FRAMES: usize = 64;
/// Longer than any ARP packet or advertisement with its options of use.
const MAX_LEN: usize = 256;

/// Somebody says that an address is theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Name of the interface.
    pub interface: String,
    /// The address.
    pub address: IpAddr,
    /// Where it is said to be.
    pub mac: MacAddr,
}

/// Listens on the links of ports.
#[derive(Debug, Default)]
pub struct ClaimListener(Vec<Link>);

#[derive(Debug)]
struct Link {
    interface: String,
    ifindex: u32,
    arp: PacketSocket,
    nd: PacketSocket,
}

impl ClaimListener {
    /// Listens on the links of these ports and on no others. A link that has failed is tried again with
    /// the next call.
    pub fn follow(&mut self, ports: &[PortLink]) -> Result<()> {
        self.0.retain(|link| ports.iter().any(|port| port.ifindex == link.ifindex));
        let mut result = Ok(());
        for port in ports.iter().filter(|port| port.ifindex != 0) {
            if self.0.iter().any(|link| link.ifindex == port.ifindex) {
                continue;
            }
            match Link::open(port) {
                Ok(link) => self.0.push(link),
                Err(error) => result = Err(error),
            }
        }
        result
    }

    /// Takes what has been claimed since the last call. Of a flood, a part.
    pub fn take(&self) -> Vec<Claim> {
        self.0.iter().flat_map(Link::take).collect()
    }
}

impl Link {
    fn open(port: &PortLink) -> Result<Self> {
        let failed = |source| Error::Interface {
            interface: port.name.clone(),
            call: "listening for claims of addresses",
            source,
        };
        let arp = PacketSocket::open(port.ifindex, EtherType::ARP, None).map_err(failed)?;
        let nd = PacketSocket::open(port.ifindex, EtherType::IPV6, Some(ADVERTISEMENT)).map_err(failed)?;
        Ok(Self { interface: port.name.clone(), ifindex: port.ifindex, arp, nd })
    }

    fn take(&self) -> Vec<Claim> {
        let mut claims = Vec::new();
        for (socket, claimed) in [(&self.arp, of_arp as Claimed), (&self.nd, of_advertisement)] {
            let mut buffer = [0; MAX_LEN];
            for _ in 0..MAX_FRAMES {
                // A link that is down says nothing.
                let frame: io::Result<Option<&[u8]>> = socket.receive(&mut buffer);
                let Ok(Some(frame)) = frame else { break };
                if let Some((address, mac)) = claimed(frame) {
                    claims.push(Claim { interface: self.interface.clone(), address, mac });
                }
            }
        }
        claims
    }
}

type Claimed = fn(&[u8]) -> Option<(IpAddr, MacAddr)>;

/// The sender of a request or reply. A probe (RFC 5227 §2.1.1) has none: it only asks.
fn of_arp(frame: &[u8]) -> Option<(IpAddr, MacAddr)> {
    let (_, packet) = Ethernet::parse(frame).ok()?;
    let Packet { sender, sender_address, .. } = Packet::parse(packet)?;
    (!sender_address.is_unspecified()).then_some((sender_address.into(), sender))
}

/// The target of an advertisement. Without an option it is where the frame came from.
fn of_advertisement(frame: &[u8]) -> Option<(IpAddr, MacAddr)> {
    let (ethernet, packet) = Ethernet::parse(frame).ok()?;
    let ip = Ipv6::parse(packet).ok()?;
    let (fixed, rest): (&[u8; 8], _) = ip.payload().split_first_chunk()?;
    let (target, options): (&[u8; 16], _) = rest.split_first_chunk()?;
    if ip.next_header() != Protocol::ICMPV6 || ip.hop_limit() != HOP_LIMIT || fixed[0] != ADVERTISEMENT {
        return None;
    }
    let told = last_option(TARGET_LINK_LAYER, options)?.and_then(<[u8]>::first_chunk);
    let mac = told.map_or(ethernet.src, |told| MacAddr(*told));
    Some((Ipv6Addr::from(*target).into(), mac))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vip::arp::ADDRESS_KINDS;
    use testudo_wire::ipv6::Fields;

    const THIEF: [u8; 6] = [2, 0, 0, 0, 0, 0x66];
    const FRAME: [u8; 6] = [2, 0, 0, 0, 0, 0x77];

    fn arp(operation: u8, sender: [u8; 4]) -> Vec<u8> {
        let (dst, src) = (MacAddr::BROADCAST, MacAddr(FRAME));
        let ethernet = Ethernet { dst, src, ethertype: EtherType::ARP }.to_bytes();
        [&ethernet[..], &ADDRESS_KINDS, &[0, operation], &THIEF, &sender, &[0; 6], &[192, 0, 2, 1], &[0; 18]]
            .concat()
    }

    fn advertisement(hop_limit: u8, target: &str, options: &[u8]) -> Vec<u8> {
        let target: Ipv6Addr = target.parse().unwrap();
        let message = [&[ADVERTISEMENT, 0, 0, 0, 0x20, 0, 0, 0][..], &target.octets(), options].concat();
        let ip = Fields {
            traffic_class: 0,
            payload_len: message.len() as u16,
            next_header: Protocol::ICMPV6,
            hop_limit,
            src: target,
            dst: target,
        };
        let (dst, src) = (MacAddr::BROADCAST, MacAddr(FRAME));
        let ethernet = Ethernet { dst, src, ethertype: EtherType::IPV6 }.to_bytes();
        [&ethernet[..], &ip.to_bytes(), &message].concat()
    }

    #[test]
    fn the_sender_of_arp_claims_its_address() {
        let claim = Some((IpAddr::from([192, 0, 2, 9]), MacAddr(THIEF)));
        for operation in [1, 2] {
            assert_eq!(of_arp(&arp(operation, [192, 0, 2, 9])), claim);
        }
        assert_eq!(of_arp(&arp(1, [0; 4])), None, "a probe");
        let whole = arp(2, [192, 0, 2, 9]);
        for length in 0..14 + 18 {
            assert_eq!(of_arp(&whole[..length]), None);
        }
        for at in 14..20 {
            let mut bad = whole.clone();
            bad[at] ^= 0x10;
            assert_eq!(of_arp(&bad), None, "octet {at}");
        }
    }

    #[test]
    fn the_target_of_an_advertisement_is_claimed() {
        let target = "2001:db8:1::9";
        let claim = |mac| Some((target.parse().unwrap(), MacAddr(mac)));
        let option = [&[TARGET_LINK_LAYER, 1][..], &THIEF].concat();
        assert_eq!(of_advertisement(&advertisement(255, target, &option)), claim(THIEF));
        let other = [&[14, 1, 0, 0, 0, 0, 0, 0][..], &option].concat();
        assert_eq!(of_advertisement(&advertisement(255, target, &other)), claim(THIEF));
        assert_eq!(of_advertisement(&advertisement(255, target, &[])), claim(FRAME));
        assert_eq!(of_advertisement(&advertisement(64, target, &option)), None, "it has crossed a router");
        assert_eq!(of_advertisement(&advertisement(255, target, &[2, 0, 0])), None);
        assert_eq!(of_advertisement(&advertisement(255, target, &[2, 9, 0])), None);
        let mut solicitation = advertisement(255, target, &option);
        solicitation[14 + 40] = 135;
        assert_eq!(of_advertisement(&solicitation), None);
        let whole = advertisement(255, target, &option);
        for length in 0..whole.len() {
            assert_eq!(of_advertisement(&whole[..length]), None);
        }
    }
}
