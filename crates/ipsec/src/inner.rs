//! The properties of an inner packet, read in one pass over its headers.

use crate::packet_selector::{Direction, PacketSelector};
use crate::sa::MssLimit;
use testudo_wire::ip::{self, Protocol};
use testudo_wire::ipv4::{self, Ipv4, Ipv4Mut};
use testudo_wire::ipv6::{self, Ipv6, Ipv6Mut};
use testudo_wire::packet::PacketBuf;
use testudo_wire::{Error, tcp};

/// The properties of an inner packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inner {
    pub(crate) flow: PacketSelector,
    /// Octets, by the header.
    pub(crate) len: u16,
    /// Offset of the TCP header; 0 if there is none in this packet.
    tcp_at: u16,
    /// DSCP and ECN.
    pub(crate) class: u8,
    pub(crate) ttl: u8,
    /// Set for IPv4 with Don't Fragment, and for IPv6.
    pub(crate) df: bool,
}

impl Inner {
    /// Reads and checks the headers of either family.
    #[inline]
    pub(crate) fn parse(packet: &[u8], way: Direction) -> Result<Self, Error> {
        match ip::version(packet) {
            Some(4) => Self::parse_v4(packet, way),
            _ => Self::parse_v6(packet, way),
        }
    }

    #[inline(always)]
    pub(crate) fn parse_v4(packet: &[u8], way: Direction) -> Result<Self, Error> {
        let ip = Ipv4::parse_verified(packet)?;
        let is_tcp = ip.protocol() == Protocol::TCP && ip.fragment_offset() == 0;
        Ok(Self {
            flow: PacketSelector::of_ipv4(&ip, way)?.of_fragment(ip.is_fragment()),
            len: ip.total_len() as u16,
            tcp_at: if is_tcp { ip.header_len() as u16 } else { 0 },
            class: ip.tos(),
            ttl: ip.ttl(),
            df: ip.df(),
        })
    }

    #[inline]
    pub(crate) fn parse_v6(packet: &[u8], way: Direction) -> Result<Self, Error> {
        let ip = Ipv6::parse(packet)?;
        let upper = ip.upper()?;
        let len = ip.total_len();
        // The outer length has only 16 bits.
        let fits = Error::Length { found: len, expected: usize::from(u16::MAX) };
        let is_tcp = upper.protocol == Protocol::TCP && !upper.is_later_fragment();
        // A fragment that is the whole datagram is none (RFC 6946).
        let is_fragment = upper.fragment.is_some_and(|fragment| fragment.more || fragment.offset != 0);
        Ok(Self {
            flow: PacketSelector::of_ipv6(&ip, &upper, way)?.of_fragment(is_fragment),
            len: u16::try_from(len).map_err(|_| fits)?,
            tcp_at: if is_tcp { (len - upper.payload.len()) as u16 } else { 0 },
            class: ip.traffic_class(),
            ttl: ip.hop_limit(),
            df: true,
        })
    }

    /// True if they differ only in length.
    #[inline]
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let small = |inner: &Self| (inner.tcp_at, inner.class, inner.ttl, inner.df);
        self.flow == other.flow && small(self) == small(other)
    }

    /// The same packet with another length.
    #[inline]
    pub(crate) fn of_len(&self, len: u16) -> Self {
        Self { len, ..*self }
    }

    #[inline]
    pub(crate) fn is_ipv6(&self) -> bool {
        self.flow.is_ipv6()
    }

    /// The next header for this packet in ESP's trailer.
    #[inline]
    pub(crate) fn next_header(&self) -> Protocol {
        if self.is_ipv6() { Protocol::IPV6 } else { Protocol::IPV4 }
    }

    /// Cuts off octets behind the packet's end: Ethernet's padding, or TFC padding (RFC 4303 §2.7).
    #[inline]
    pub(crate) fn trim(&self, buf: &mut PacketBuf<'_>) {
        let surplus = buf.len().saturating_sub(usize::from(self.len));
        // The parser has read that many octets.
        let _shrunk = buf.shrink_back(surplus);
    }

    /// Decrements TTL or hop limit.
    #[inline]
    pub(crate) fn decrement_ttl(&self, packet: &mut [u8]) {
        if self.is_ipv6() {
            if let Some(mut ip) = Ipv6Mut::new(packet) {
                ip.decrement_hop_limit();
            }
        } else if let Some(mut ip) = Ipv4Mut::new(packet) {
            ip.decrement_ttl();
        }
    }

    /// Writes another DSCP and ECN.
    #[inline]
    pub(crate) fn set_class(&self, packet: &mut [u8], class: u8) {
        if self.is_ipv6() {
            if let Some(mut ip) = Ipv6Mut::new(packet) {
                ip.set_traffic_class(class);
            }
        } else if let Some(mut ip) = Ipv4Mut::new(packet) {
            ip.set_tos(class);
        }
    }

    /// Lowers the MSS of a TCP segment that opens a connection as far as `limit` asks for, where
    /// packets of `mtu()` octets fit. Returns true if it changed.
    #[inline]
    pub(crate) fn clamp_mss(&self, packet: &mut [u8], limit: &MssLimit, mtu: impl FnOnce() -> u16) -> bool {
        if self.tcp_at == 0 {
            return false;
        }
        let segment = packet.get_mut(usize::from(self.tcp_at)..).filter(|segment| tcp::is_syn(segment));
        segment.is_some_and(|segment| self.clamp_syn(segment, limit, mtu()))
    }

    #[cold]
    fn clamp_syn(&self, segment: &mut [u8], limit: &MssLimit, mtu: u16) -> bool {
        let headers = tcp::HEADER + if self.is_ipv6() { ipv6::HEADER } else { ipv4::HEADER };
        let fits = mtu.saturating_sub(headers as u16);
        limit.of_path(fits).is_some_and(|limit| tcp::clamp_mss(segment, limit))
    }
}
