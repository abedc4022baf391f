//! The fields of a packet that selectors examine (RFC 4301 §4.4.1.1), seen from our side of the
//! tunnel.

use crate::selector::addr_bits;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use testudo_wire::ip::Protocol;
use testudo_wire::ipv4::Ipv4;
use testudo_wire::ipv6::{Ipv6, Upper};
use testudo_wire::{Error, icmp};

/// The direction of a packet, which says which of its addresses is the local one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From our side to the peer's: the source is local.
    Out,
    /// From the peer's side to ours: the destination is local.
    In,
}

/// Addresses, protocol and ports of a packet. Compact, because it is also the key of the flow
/// cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PacketSelector {
    pub(crate) local: u128,
    pub(crate) remote: u128,
    /// local port:16 | remote port:16 | zero:13 | fragment:1 | has ports:1 | IPv6:1 | zero:8 |
    /// protocol:8
    pub(crate) meta: u64,
}

/// Selectors ignore this bit: it makes fragments flows of their own, with a path of their own.
const FRAGMENT: u64 = 1 << 18;
const HAS_PORTS: u64 = 1 << 17;
const IPV6: u64 = 1 << 16;

impl PacketSelector {
    /// Builds a selector from its fields. `ports` (local, remote) is `None` if the packet has none:
    /// in later fragments, and in protocols without ports. `protocol` 0 stands for an unknown one.
    ///
    /// `None` if the addresses are of different families.
    pub fn new(local: IpAddr, remote: IpAddr, protocol: Protocol, ports: Option<(u16, u16)>) -> Option<Self> {
        (local.is_ipv4() == remote.is_ipv4())
            .then(|| Self::from_bits(addr_bits(local), addr_bits(remote), local.is_ipv6(), protocol, ports))
    }

    #[inline]
    fn from_bits(local: u128, remote: u128, v6: bool, protocol: Protocol, ports: Option<(u16, u16)>) -> Self {
        let mut meta = u64::from(protocol.0);
        if v6 {
            meta |= IPV6;
        }
        if let Some((local, remote)) = ports {
            meta |= HAS_PORTS | u64::from(local) << 48 | u64::from(remote) << 32;
        }
        Self { local, remote, meta }
    }

    #[inline]
    fn directed(
        way: Direction,
        src: u128,
        dst: u128,
        v6: bool,
        protocol: Protocol,
        ports: Option<(u16, u16)>,
    ) -> Self {
        match way {
            Direction::Out => Self::from_bits(src, dst, v6, protocol, ports),
            Direction::In => Self::from_bits(dst, src, v6, protocol, ports.map(|(src, dst)| (dst, src))),
        }
    }

    /// The fields of an IPv4 packet.
    ///
    /// # Errors
    /// The packet should have ports, or an ICMP type, and is too short for them.
    #[inline]
    pub fn of_ipv4(packet: &Ipv4<'_>, way: Direction) -> Result<Self, Error> {
        let protocol = packet.protocol();
        let ports = if packet.fragment_offset() == 0 { ports_of(protocol, packet.payload())? } else { None };
        let (src, dst) = (u128::from(packet.src().to_bits()), u128::from(packet.dst().to_bits()));
        Ok(Self::directed(way, src, dst, false, protocol, ports))
    }

    /// The fields of an IPv6 packet and of the part behind its extension headers.
    ///
    /// # Errors
    /// The packet should have ports, or an ICMP type, and is too short for them.
    #[inline]
    pub fn of_ipv6(packet: &Ipv6<'_>, upper: &Upper<'_>, way: Direction) -> Result<Self, Error> {
        let (protocol, ports) = if !upper.is_later_fragment() {
            (upper.protocol, ports_of(upper.protocol, upper.payload)?)
        } else if upper.protocol.is_extension() {
            (Protocol(0), None)
        } else {
            (upper.protocol, None)
        };
        let (src, dst) = (packet.src().to_bits(), packet.dst().to_bits());
        Ok(Self::directed(way, src, dst, true, protocol, ports))
    }

    /// The fields of any IP packet.
    pub fn of_packet(packet: &[u8], way: Direction) -> Result<Self, Error> {
        match testudo_wire::ip::version(packet) {
            Some(4) => Self::of_ipv4(&Ipv4::parse(packet)?, way),
            _ => {
                let packet = Ipv6::parse(packet)?;
                Self::of_ipv6(&packet, &packet.upper()?, way)
            }
        }
    }

    /// The packet that an ICMP error quotes, as it went the other way; `error` are the error's own
    /// fields, and `way` its direction. `None` if it is no such error, or is not for the sender of
    /// the quoted packet.
    pub(crate) fn quoted(packet: &[u8], error: &Self, way: Direction) -> Option<Self> {
        let quote = icmp::quoted(packet)?;
        let (found, is_for_sender) = match way {
            Direction::In => {
                let found = Self::of_cut(quote, Direction::Out).ok()?;
                (found, found.local == error.local)
            }
            Direction::Out => {
                let found = Self::of_cut(quote, Direction::In).ok()?;
                (found, found.remote == error.remote)
            }
        };
        (is_for_sender && found.is_ipv6() == error.is_ipv6()).then_some(found)
    }

    /// The fields of an IP packet whose end may be missing, as ICMP errors quote it.
    ///
    /// # Errors
    /// As for a whole packet: ports must be there if the packet should have them.
    pub(crate) fn of_cut(packet: &[u8], way: Direction) -> Result<Self, Error> {
        match testudo_wire::ip::version(packet) {
            Some(4) => Self::of_ipv4(&Ipv4::parse_cut(packet)?, way),
            _ => {
                let packet = Ipv6::parse_cut(packet)?;
                Self::of_ipv6(&packet, &packet.upper()?, way)
            }
        }
    }

    /// The same packet with the sides exchanged: a packet from one tunnel, as it would go out
    /// through another.
    #[inline]
    pub(crate) fn reversed(&self) -> Self {
        let (local, remote) = (self.meta >> 48, self.meta >> 32 & 0xffff);
        let meta = self.meta & 0xffff_ffff | remote << 48 | local << 32;
        Self { local: self.remote, remote: self.local, meta }
    }

    /// True for IPv6.
    #[inline]
    pub fn is_ipv6(&self) -> bool {
        self.meta & IPV6 != 0
    }

    /// The protocol; 0 if it is unknown.
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.meta as u8
    }

    /// True if the packet has ports, or an ICMP type and code.
    #[inline]
    pub fn has_ports(&self) -> bool {
        self.meta & HAS_PORTS != 0
    }

    /// The same packet as a fragment of a datagram (the first one too), or as no fragment.
    #[inline]
    pub(crate) fn of_fragment(self, is_fragment: bool) -> Self {
        Self { meta: self.meta & !FRAGMENT | u64::from(is_fragment) << FRAGMENT.trailing_zeros(), ..self }
    }

    /// True if [`Self::of_fragment`] has marked it as a fragment.
    #[inline]
    pub(crate) fn is_fragment(&self) -> bool {
        self.meta & FRAGMENT != 0
    }

    /// The fields of the same packet's later fragments.
    pub(crate) fn without_ports(&self) -> Self {
        const PORTS: u64 = !(u32::MAX as u64);
        Self { meta: self.meta & !(PORTS | HAS_PORTS | FRAGMENT), ..*self }
    }

    /// Port on our side; for ICMP type:8 | code:8.
    #[inline]
    pub fn local_port(&self) -> u16 {
        (self.meta >> 48) as u16
    }

    /// Port on the peer's side; for ICMP type:8 | code:8.
    #[inline]
    pub fn remote_port(&self) -> u16 {
        (self.meta >> 32) as u16
    }

    fn addr(&self, bits: u128) -> IpAddr {
        if self.is_ipv6() {
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        } else {
            IpAddr::V4(Ipv4Addr::from_bits(bits as u32))
        }
    }

    /// Address on our side.
    pub fn local(&self) -> IpAddr {
        self.addr(self.local)
    }

    /// Address on the peer's side.
    pub fn remote(&self) -> IpAddr {
        self.addr(self.remote)
    }
}

impl fmt::Debug for PacketSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports = self.has_ports().then(|| (self.local_port(), self.remote_port()));
        f.debug_struct("PacketSelector")
            .field("local", &self.local())
            .field("remote", &self.remote())
            .field("protocol", &self.protocol())
            .field("ports", &ports)
            .finish()
    }
}

/// Source and destination port, or what takes their place: type and code of ICMP, type of the
/// mobility header (RFC 4301 §4.4.1.1).
#[inline]
fn ports_of(protocol: Protocol, payload: &[u8]) -> Result<Option<(u16, u16)>, Error> {
    let truncated = |expected| Error::Truncated { found: payload.len(), expected };
    if protocol.has_ports() {
        let &[s0, s1, d0, d1] = payload.first_chunk().ok_or(truncated(4))?;
        return Ok(Some((u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1]))));
    }
    let value = match protocol {
        Protocol::ICMP | Protocol::ICMPV6 => *payload.first_chunk().ok_or(truncated(2))?,
        Protocol::MOBILITY => [*payload.get(2).ok_or(truncated(3))?, 0],
        _ => return Ok(None),
    };
    let value = u16::from_be_bytes(value);
    Ok(Some((value, value)))
}

#[cfg(test)]
mod tests;
