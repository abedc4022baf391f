//! The headers of a packet, read as the filter reads them (`crates/fastpath/bpf/packet.h`,
//! `local.h`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use testudo_base::spi::Spi;

const UDP: u8 = 17;
const ESP: u8 = 50;
const AH: u8 = 51;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

const PORT_IKE: u16 = 500;
const PORT_NATT: u16 = 4500;

/// Octets of AH before its SPI.
const BEFORE_AH_SPI: usize = 4;
/// Octets of SPI and sequence number.
const ESP_HEADER: usize = 8;
const UDP_HEADER: usize = 8;
/// Bound on the extension headers that the filter reads.
const MAX_EXTENSIONS: usize = 8;

/// An IP packet whose header is consistent.
pub(super) struct Packet<'a> {
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    first: Payload<'a>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fragment {
    Whole,
    First,
    Later,
}

/// The content behind an IP header.
#[derive(Clone, Copy)]
struct Payload<'a> {
    octets: &'a [u8],
    protocol: u8,
    fragment: Fragment,
    /// Protocol number of ICMP in the packet's family.
    icmp: u8,
}

/// The kind of a packet to a VIP.
pub(super) enum Content<'a> {
    /// ESP or AH.
    Esp {
        spi: Spi,
        number: u32,
    },
    /// An IKE message, or its first part.
    Ike(&'a [u8]),
    /// The first fragment of an IKE message, or a part of it.
    IkeStart(&'a [u8]),
    /// An ICMP error.
    IcmpError,
    /// A later fragment, or any fragment of ESP or AH.
    Fragment,
    Other,
}

impl<'a> Packet<'a> {
    pub(super) fn parse(packet: &'a [u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => Self::parse_v4(packet),
            6 => Self::parse_v6(packet),
            _ => None,
        }
    }

    fn parse_v4(packet: &'a [u8]) -> Option<Self> {
        let fixed: &[u8; 20] = packet.first_chunk()?;
        let header = usize::from(fixed[0] & 15) * 4;
        let total = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        let octets = packet.get(..total)?.get(header.max(fixed.len())..)?;
        if header < fixed.len() {
            return None;
        }
        let field = u16::from_be_bytes([fixed[6], fixed[7]]);
        let fragment = match (field & 0x1fff, field & 0x2000) {
            (0, 0) => Fragment::Whole,
            (0, _) => Fragment::First,
            _ => Fragment::Later,
        };
        let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *fixed;
        let first = Payload { octets, protocol: fixed[9], fragment, icmp: ICMP };
        let (src, dst) = (Ipv4Addr::new(s0, s1, s2, s3), Ipv4Addr::new(d0, d1, d2, d3));
        Some(Self { src: src.into(), dst: dst.into(), first })
    }

    fn parse_v6(packet: &'a [u8]) -> Option<Self> {
        let (fixed, rest): (&[u8; 8], _) = packet.split_first_chunk()?;
        let (src, rest): (&[u8; 16], _) = rest.split_first_chunk()?;
        let (dst, rest): (&[u8; 16], _) = rest.split_first_chunk()?;
        let octets = rest.get(..usize::from(u16::from_be_bytes([fixed[4], fixed[5]])))?;
        let first = Payload { octets, protocol: fixed[6], fragment: Fragment::Whole, icmp: ICMPV6 };
        Some(Self { src: Ipv6Addr::from(*src).into(), dst: Ipv6Addr::from(*dst).into(), first })
    }

    /// True if the destination is a multicast or broadcast address.
    pub(super) fn is_group(&self) -> bool {
        match self.dst {
            IpAddr::V4(addr) => addr.is_multicast() || addr.is_broadcast(),
            IpAddr::V6(addr) => addr.is_multicast(),
        }
    }

    /// True if the destination is never forwarded and lies in no prefix.
    pub(super) fn is_to_link(&self) -> bool {
        matches!(self.dst, IpAddr::V6(addr) if addr.is_unicast_link_local())
    }

    /// The kind of a packet to its addressee. `None` if the filter drops it.
    pub(super) fn content(&self) -> Option<Content<'a>> {
        let mut payload = self.first;
        if self.dst.is_ipv6() {
            let mut walked = 0;
            while payload.walk()? {
                walked += 1;
                if walked > MAX_EXTENSIONS {
                    return None;
                }
            }
        }
        payload.content()
    }
}

impl<'a> Payload<'a> {
    /// Skips one extension header. Returns true if there may be more.
    fn walk(&mut self) -> Option<bool> {
        if ![HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION].contains(&self.protocol) {
            return Some(false);
        }
        let header: &[u8; 8] = self.octets.first_chunk()?;
        let [next, length, field @ ..] = *header;
        let mut size = (usize::from(length) + 1) * 8;
        if self.protocol == ROUTING && header[3] != 0 {
            return None;
        }
        if self.protocol == FRAGMENT {
            if self.fragment != Fragment::Whole {
                return None;
            }
            let offset = u16::from_be_bytes([field[0], field[1]]) & 0xfff8;
            self.fragment = if offset == 0 { Fragment::First } else { Fragment::Later };
            size = 8;
        }
        self.octets = self.octets.get(size..)?;
        self.protocol = next;
        Some(self.fragment != Fragment::Later)
    }

    fn content(self) -> Option<Content<'a>> {
        let whole = self.fragment == Fragment::Whole;
        match self.protocol {
            ESP if whole => esp(self.octets),
            AH if whole => esp(self.octets.get(BEFORE_AH_SPI..)?),
            ESP | AH => Some(Content::Fragment),
            _ if self.fragment == Fragment::Later => Some(Content::Fragment),
            UDP if whole => self.udp(),
            UDP => self.udp_start(),
            protocol if protocol == self.icmp && whole => self.icmp(),
            _ => Some(Content::Other),
        }
    }

    fn udp(self) -> Option<Content<'a>> {
        let header: &[u8; UDP_HEADER] = self.octets.first_chunk()?;
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let data = self.octets.get(..length)?.get(UDP_HEADER..)?;
        match u16::from_be_bytes([header[2], header[3]]) {
            PORT_IKE => Some(Content::Ike(data)),
            PORT_NATT => match data.strip_prefix(&[0; 4]) {
                Some(message) => Some(Content::Ike(message)),
                None => esp(data),
            },
            _ => Some(Content::Other),
        }
    }

    /// The kind of the first fragment of a UDP datagram.
    fn udp_start(self) -> Option<Content<'a>> {
        let ports: &[u8; 4] = self.octets.first_chunk()?;
        match u16::from_be_bytes([ports[2], ports[3]]) {
            PORT_IKE => Some(Content::IkeStart(self.octets.get(UDP_HEADER..).unwrap_or_default())),
            PORT_NATT => {
                let (marker, message) = self.octets.get(UDP_HEADER..)?.split_first_chunk()?;
                Some(if *marker == [0; 4] { Content::IkeStart(message) } else { Content::Fragment })
            }
            _ => Some(Content::Other),
        }
    }

    fn icmp(self) -> Option<Content<'a>> {
        let header: &[u8; 8] = self.octets.first_chunk()?;
        let error = match self.icmp {
            ICMP => [3, 11, 12].contains(&header[0]),
            _ => (1..=4).contains(&header[0]),
        };
        Some(if error { Content::IcmpError } else { Content::Other })
    }
}

fn esp<'a>(octets: &[u8]) -> Option<Content<'a>> {
    let header: &[u8; ESP_HEADER] = octets.first_chunk()?;
    let [s0, s1, s2, s3, number @ ..] = *header;
    let spi = Spi(u32::from_be_bytes([s0, s1, s2, s3]));
    Some(Content::Esp { spi, number: u32::from_be_bytes(number) })
}
