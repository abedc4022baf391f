//! Traffic selectors: address range, protocol, port range (RFC 7296 §3.13.1, RFC 4301 §4.4.1).

use crate::packet_selector::PacketSelector;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use testudo_crypto::prefetch;
use testudo_wire::ip::Protocol;

/// An inclusive range of addresses of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AddrRange {
    start: IpAddr,
    end: IpAddr,
}

impl AddrRange {
    /// `None` if the families differ or `end` is below `start`.
    pub fn new(start: IpAddr, end: IpAddr) -> Option<Self> {
        (start.is_ipv4() == end.is_ipv4() && start <= end).then_some(Self { start, end })
    }

    /// First address.
    pub fn start(&self) -> IpAddr {
        self.start
    }

    /// Last address.
    pub fn end(&self) -> IpAddr {
        self.end
    }

    /// True if `addr` is of the family and inside.
    pub fn contains(&self, addr: IpAddr) -> bool {
        addr.is_ipv4() == self.start.is_ipv4() && self.start <= addr && addr <= self.end
    }
}

/// The packets that one side of an SA may carry. Ports are those of that side; for ICMP the "port"
/// is type:8 | code:8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TrafficSelector {
    /// Addresses of that side.
    pub addrs: AddrRange,
    /// IP protocol; 0 means any.
    pub protocol: u8,
    /// First port, 0 for any; `port_start > port_end` (65535 to 0) is OPAQUE.
    pub port_start: u16,
    /// Last port, 65535 for any.
    pub port_end: u16,
}

impl TrafficSelector {
    /// All protocols and ports of these addresses.
    pub fn all(addrs: AddrRange) -> Self {
        Self { addrs, protocol: 0, port_start: 0, port_end: u16::MAX }
    }

    /// True if the selector accepts every port, and packets without one.
    pub fn is_any_port(&self) -> bool {
        self.port_start == 0 && self.port_end == u16::MAX
    }

    /// The packets that both accept; `None` if there are none.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let (a, b) = (&self.addrs, &other.addrs);
        let addrs = AddrRange::new(a.start.max(b.start), a.end.min(b.end))
            .filter(|_| a.start.is_ipv4() == b.start.is_ipv4())?;
        let protocol = match (self.protocol, other.protocol) {
            (0, other) | (other, 0) => other,
            (one, other) if one == other => one,
            _ => return None,
        };
        let (port_start, port_end) = self.common_ports(other)?;
        Some(Self { addrs, protocol, port_start, port_end })
    }

    /// OPAQUE lies within ANY and itself only (RFC 4301 §4.4.1.1).
    fn common_ports(&self, other: &Self) -> Option<(u16, u16)> {
        if self.is_opaque() || other.is_opaque() {
            let takes = |selector: &Self| selector.is_opaque() || selector.is_any_port();
            return (takes(self) && takes(other)).then_some((u16::MAX, 0));
        }
        let (start, end) = (self.port_start.max(other.port_start), self.port_end.min(other.port_end));
        (start <= end).then_some((start, end))
    }

    /// True if the selector accepts only packets that show no port (RFC 4301 §4.4.1.1).
    pub fn is_opaque(&self) -> bool {
        self.port_start > self.port_end
    }
}

/// An address as a number; the family is kept separately.
pub(crate) fn addr_bits(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(addr) => u128::from(addr.to_bits()),
        IpAddr::V6(addr) => addr.to_bits(),
    }
}

/// A traffic selector prepared for comparing.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SideSelector {
    start: u128,
    end: u128,
    v6: bool,
    protocol: u8,
    ports: Ports,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ports {
    Any,
    Opaque,
    Range(u16, u16),
}

impl SideSelector {
    fn new(selector: &TrafficSelector) -> Self {
        let ports = if selector.is_any_port() {
            Ports::Any
        } else if selector.is_opaque() {
            Ports::Opaque
        } else {
            Ports::Range(selector.port_start, selector.port_end)
        };
        let (start, end) = (addr_bits(selector.addrs.start()), addr_bits(selector.addrs.end()));
        Self { start, end, v6: selector.addrs.start().is_ipv6(), protocol: selector.protocol, ports }
    }

    fn selector(&self) -> Option<TrafficSelector> {
        let addr = |bits: u128| match self.v6 {
            true => IpAddr::V6(Ipv6Addr::from_bits(bits)),
            false => IpAddr::V4(Ipv4Addr::from_bits(bits as u32)),
        };
        let (port_start, port_end) = match self.ports {
            Ports::Any => (0, u16::MAX),
            Ports::Opaque => (u16::MAX, 0),
            Ports::Range(start, end) => (start, end),
        };
        let addrs = AddrRange::new(addr(self.start), addr(self.end))?;
        Some(TrafficSelector { addrs, protocol: self.protocol, port_start, port_end })
    }

    #[inline]
    fn is_around(&self, packet: &PacketSelector, addr: u128) -> bool {
        self.start <= addr && addr <= self.end && self.v6 == packet.is_ipv6()
    }

    #[inline]
    fn accepts(&self, packet: &PacketSelector, addr: u128, port: u16) -> bool {
        self.is_around(packet, addr)
            && (self.protocol == 0 || self.protocol == packet.protocol())
            && match self.ports {
                Ports::Any => true,
                Ports::Opaque => !packet.has_ports(),
                Ports::Range(start, end) => packet.has_ports() && start <= port && port <= end,
            }
    }
}

/// The selectors of a policy or an SA, of both sides. Every combination of a local and a remote one
/// is meant (RFC 7296 §2.9). Clones share them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectorPair {
    /// Those of our side, then those of the peer's: in one allocation, because there are very many.
    sides: Arc<[SideSelector]>,
    local: u32,
}

impl SelectorPair {
    /// Prepares the selectors of both sides for comparing.
    pub fn new(local: &[TrafficSelector], remote: &[TrafficSelector]) -> Self {
        let sides = local.iter().chain(remote).map(SideSelector::new).collect();
        Self { sides, local: local.len() as u32 }
    }

    /// True if both contain the same selectors, in any order.
    pub fn is_same_set(&self, other: &Self) -> bool {
        let sides = |pair: &Self| {
            let sorted = |mut side: Vec<TrafficSelector>| {
                side.sort_by_key(|ts| {
                    (ts.addrs.start(), ts.addrs.end(), ts.protocol, ts.port_start, ts.port_end)
                });
                side.dedup();
                side
            };
            [sorted(pair.local_selectors().collect()), sorted(pair.remote_selectors().collect())]
        };
        self == other || sides(self) == sides(other)
    }

    /// Frees its own memory and shares that of an equal pair.
    pub(crate) fn share(&mut self, other: &Self) {
        if self == other {
            self.clone_from(other);
        }
    }

    /// The selectors of our side, as they were given.
    pub fn local_selectors(&self) -> impl Iterator<Item = TrafficSelector> + '_ {
        self.local().iter().filter_map(SideSelector::selector)
    }

    /// The selectors of the peer's side, as they were given.
    pub fn remote_selectors(&self) -> impl Iterator<Item = TrafficSelector> + '_ {
        self.remote().iter().filter_map(SideSelector::selector)
    }

    /// Prefetches the first selector of each side, if there are few, as in most SAs.
    #[inline]
    pub(crate) fn prefetch(&self) {
        if let Some(side) = self.sides.first() {
            prefetch(side, size_of::<SideSelector>());
        }
        if let Some(side) = self.sides.get(self.local as usize) {
            prefetch(side, size_of::<SideSelector>());
        }
    }

    #[inline]
    fn local(&self) -> &[SideSelector] {
        self.sides.get(..self.local as usize).unwrap_or_default()
    }

    #[inline]
    fn remote(&self) -> &[SideSelector] {
        self.sides.get(self.local as usize..).unwrap_or_default()
    }

    /// The width of the narrowest local range that holds the packet's local address: the number of
    /// bits of the distance between its ends.
    pub(crate) fn local_width(&self, packet: &PacketSelector) -> Option<u8> {
        width(self.local(), packet.local, packet.is_ipv6())
    }

    /// The width of the narrowest remote range that holds the packet's remote address.
    pub(crate) fn remote_width(&self, packet: &PacketSelector) -> Option<u8> {
        width(self.remote(), packet.remote, packet.is_ipv6())
    }

    /// True if the ranges of our side leave out no address of the family.
    pub(crate) fn is_local_everything(&self, v6: bool) -> bool {
        let last = if v6 { u128::MAX } else { u32::MAX.into() };
        let family = self.local().iter().filter(|side| side.v6 == v6);
        let mut ranges: Vec<(u128, u128)> = family.map(|side| (side.start, side.end)).collect();
        ranges.sort_unstable();
        // The first address that no range so far holds.
        let mut next = 0;
        for (start, end) in ranges {
            if start > next || end == last {
                return start <= next;
            }
            next = next.max(end + 1);
        }
        false
    }

    /// True if they accept only ESP.
    pub fn take_esp_alone(&self) -> bool {
        self.sides.iter().all(|side| side.protocol == Protocol::ESP.0)
    }

    /// True if a selector examines more than addresses.
    pub(crate) fn asks_for_ports(&self) -> bool {
        self.sides.iter().any(|side| side.protocol != 0 || side.ports != Ports::Any)
    }

    /// True if a packet with these addresses, and this protocol if it is known, would be accepted
    /// with certain ports.
    pub(crate) fn accepts_but_for_ports(&self, packet: &PacketSelector) -> bool {
        let accepts = |side: &SideSelector, addr| {
            // In IPv6 another extension header may hide it.
            let unknown = packet.protocol() == 0 && packet.is_ipv6();
            side.is_around(packet, addr) && (unknown || [0, packet.protocol()].contains(&side.protocol))
        };
        self.local().iter().any(|side| accepts(side, packet.local))
            && self.remote().iter().any(|side| accepts(side, packet.remote))
    }

    /// True if the packet is accepted only because it shows no ports.
    pub(crate) fn wants_no_ports(&self, packet: &PacketSelector) -> bool {
        let opaque = |side: &SideSelector, addr| side.ports == Ports::Opaque && side.accepts(packet, addr, 0);
        self.accepts(packet)
            && (self.local().iter().any(|side| opaque(side, packet.local))
                || self.remote().iter().any(|side| opaque(side, packet.remote)))
    }

    /// True if the packet is inside on both sides.
    #[inline]
    pub fn accepts(&self, packet: &PacketSelector) -> bool {
        self.local().iter().any(|side| side.accepts(packet, packet.local, packet.local_port()))
            && self.remote().iter().any(|side| side.accepts(packet, packet.remote, packet.remote_port()))
    }
}

fn width(sides: &[SideSelector], addr: u128, v6: bool) -> Option<u8> {
    let around = sides.iter().filter(|side| side.v6 == v6 && side.start <= addr && addr <= side.end);
    around.map(|side| (u128::BITS - (side.end - side.start).leading_zeros()) as u8).min()
}
