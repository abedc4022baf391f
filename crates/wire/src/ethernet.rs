//! Ethernet II frames.

use crate::Error;
use std::fmt;

/// Octets of the header, without tags.
pub const HEADER: usize = 14;

/// A MAC address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// All ones.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// True for multicast, of which broadcast is one.
    #[inline]
    pub fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The payload type of an Ethernet frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: Self = Self(0x0800);
    /// ARP.
    pub const ARP: Self = Self(0x0806);
    /// IEEE 802.1Q tag.
    pub const VLAN: Self = Self(0x8100);
    /// IPv6.
    pub const IPV6: Self = Self(0x86dd);

    /// The type for a packet with this first octet; `None` if it is no IP.
    #[inline]
    pub fn of_packet(packet: &[u8]) -> Option<Self> {
        match crate::ip::version(packet)? {
            4 => Some(Self::IPV4),
            6 => Some(Self::IPV6),
            _ => None,
        }
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ethernet {
    /// Destination.
    pub dst: MacAddr,
    /// Source.
    pub src: MacAddr,
    /// Type of the payload.
    pub ethertype: EtherType,
}

impl Ethernet {
    /// Reads the header. Returns it and the payload.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<(Self, &[u8]), Error> {
        let truncated = Error::Truncated { found: frame.len(), expected: HEADER };
        let (&[d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1], payload) =
            frame.split_first_chunk::<HEADER>().ok_or(truncated)?;
        let dst = MacAddr([d0, d1, d2, d3, d4, d5]);
        let src = MacAddr([s0, s1, s2, s3, s4, s5]);
        Ok((Self { dst, src, ethertype: EtherType(u16::from_be_bytes([t0, t1])) }, payload))
    }

    /// The header's octets.
    #[inline]
    pub fn to_bytes(self) -> [u8; HEADER] {
        let ([d0, d1, d2, d3, d4, d5], [s0, s1, s2, s3, s4, s5]) = (self.dst.0, self.src.0);
        let [t0, t1] = self.ethertype.0.to_be_bytes();
        [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_wrote() {
        let header = Ethernet {
            dst: MacAddr([2, 0, 0, 0, 0, 1]),
            src: MacAddr([2, 0, 0, 0, 0, 2]),
            ethertype: EtherType::IPV6,
        };
        let mut frame = header.to_bytes().to_vec();
        frame.extend(b"abc");
        assert_eq!(Ethernet::parse(&frame), Ok((header, &b"abc"[..])));
        assert_eq!(&frame[12..14], [0x86, 0xdd]);
        let truncated = Error::Truncated { found: 13, expected: 14 };
        assert_eq!(Ethernet::parse(&frame[..13]), Err(truncated));
    }

    #[test]
    fn knows_group_addresses() {
        assert!(MacAddr::BROADCAST.is_group());
        assert!(MacAddr([0x33, 0x33, 0, 0, 0, 1]).is_group());
        assert!(!MacAddr([0x02, 0, 0, 0, 0, 1]).is_group());
        assert_eq!(MacAddr([2, 0, 0, 0xa, 0, 1]).to_string(), "02:00:00:0a:00:01");
    }

    #[test]
    fn the_type_follows_the_version() {
        assert_eq!(EtherType::of_packet(&[0x45]), Some(EtherType::IPV4));
        assert_eq!(EtherType::of_packet(&[0x60]), Some(EtherType::IPV6));
        assert_eq!(EtherType::of_packet(&[0x50]), None);
        assert_eq!(EtherType::of_packet(&[]), None);
    }
}
