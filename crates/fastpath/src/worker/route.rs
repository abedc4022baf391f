//! From a destination to the Ethernet header of the next hop.
//!
//! The forwarding table answers. A small direct-mapped cache keeps the answers that can be used
//! without a further check. The cache is emptied when a new table comes, and every second, so that
//! the table learns which neighbours are in use.

use super::drops::WorkerDrop;
use super::source::SourceCache;
use crate::fib::{Fib, NextHop, Out, PortIndex, Route};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use testudo_wire::ethernet::{EtherType, Ethernet, HEADER};
use testudo_wire::icmp::Sources;

/// Where a packet goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hop {
    /// Out of a port.
    Send(SendHop),
    /// To the kernel.
    Host,
    /// To a neighbour whose MAC address is not known yet.
    Wait { port: PortIndex, neighbour: IpAddr, by_default: bool },
    /// The packet is dropped.
    Discard(WorkerDrop),
}

/// The way out of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SendHop {
    /// Place of the port among the worker's ports.
    pub(super) place: u8,
    /// Largest IP packet that may go there.
    pub(super) mtu: u16,
    /// Only the default route leads there.
    pub(super) by_default: bool,
    /// Destination, source and EtherType.
    pub(super) header: [u8; HEADER],
}

impl Hop {
    /// True if the packet leaves by the default route of a port.
    #[inline]
    pub(super) fn is_by_default(&self) -> bool {
        matches!(self, Self::Send(SendHop { by_default: true, .. }) | Self::Wait { by_default: true, .. })
    }
}

/// Entries of a cache, a power of two.
pub(super) const CACHE_ENTRIES: usize = 256;

/// An address in words. An [`IpAddr`] is written in parts and read as a whole, which stalls the
/// processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AddressKey {
    pub(super) v6: bool,
    pub(super) high: u64,
    pub(super) low: u64,
}

impl AddressKey {
    /// The key of no packet.
    pub(super) const NONE: Self = Self { v6: false, high: 0, low: 0 };

    /// Reads the destination in an IP header.
    #[inline]
    fn destination(packet: &[u8]) -> Option<Self> {
        Self::read(packet, 16, 24)
    }

    /// Reads the source in an IP header.
    #[inline]
    pub(super) fn source(packet: &[u8]) -> Option<Self> {
        Self::read(packet, 12, 8)
    }

    /// Reads the address at the offset for the packet's IP version.
    #[inline]
    fn read(packet: &[u8], v4_at: usize, v6_at: usize) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => {
                let low = u32::from_be_bytes(*packet.get(v4_at..)?.first_chunk()?);
                Some(Self { v6: false, high: 0, low: low.into() })
            }
            6 => {
                let (high, rest) = packet.get(v6_at..)?.split_first_chunk()?;
                let (high, low) = (u64::from_be_bytes(*high), u64::from_be_bytes(*rest.first_chunk()?));
                Some(Self { v6: true, high, low })
            }
            _ => None,
        }
    }

    /// True for `0.0.0.0` and `::`.
    #[inline]
    pub(super) fn is_unspecified(self) -> bool {
        self.high == 0 && self.low == 0
    }

    pub(super) fn addr(self) -> IpAddr {
        if self.v6 {
            Ipv6Addr::from_bits(u128::from(self.high) << 64 | u128::from(self.low)).into()
        } else {
            Ipv4Addr::from_bits(self.low as u32).into()
        }
    }

    /// Place in a cache of this many entries.
    #[inline]
    pub(super) fn place(self) -> usize {
        let mixed = (self.high ^ self.low).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 56) as usize % CACHE_ENTRIES
    }
}

#[derive(Clone, Copy, Debug)]
struct HopEntry {
    /// The epoch in which alone the entry counts. 0 is no entry.
    epoch: u64,
    key: AddressKey,
    hop: Hop,
}

/// Finds the next hop.
#[derive(Debug)]
pub(super) struct Router {
    fib: Arc<Fib>,
    /// The worker's ports in the order of their places.
    ports: Vec<PortIndex>,
    /// Largest IP packet that each port can send, even if its interface takes more by now.
    limits: Vec<u16>,
    /// An address of each port in either family.
    addresses: Vec<Sources>,
    cache: Box<[HopEntry; CACHE_ENTRIES]>,
    sources: SourceCache,
    /// The last answer that is not cached.
    other: Hop,
    epoch: u64,
}

impl Router {
    /// A router for ports in the order of their places, each with its largest IP packet.
    pub(super) fn new(fib: Arc<Fib>, ports: impl IntoIterator<Item = (PortIndex, u16)>) -> Self {
        let (ports, limits): (Vec<_>, Vec<_>) = ports.into_iter().unzip();

        let nothing = HopEntry { epoch: 0, key: AddressKey::NONE, hop: Hop::Host };
        let cache = Box::new([nothing; CACHE_ENTRIES]);
        let addresses = ports.iter().map(|port| fib.sources(*port)).collect();
        Self { fib, ports, limits, addresses, cache, sources: SourceCache::new(), other: Hop::Host, epoch: 1 }
    }

    /// Installs a new table. Returns the former one.
    pub(super) fn replace(&mut self, fib: Arc<Fib>) -> Arc<Fib> {
        self.forget();
        for (sources, port) in self.addresses.iter_mut().zip(&self.ports) {
            *sources = fib.sources(*port);
        }
        std::mem::replace(&mut self.fib, fib)
    }

    /// Sets the port at a place: one of those that exist, or the next.
    pub(super) fn set_port(&mut self, place: usize, port: PortIndex, limit: u16) {
        if place == self.ports.len() {
            self.ports.push(port);
            self.limits.push(limit);
            self.addresses.push(self.fib.sources(port));
        } else if let Some(known) = self.limits.get_mut(place) {
            *known = limit;
        }
        self.forget();
    }

    /// Empties the cache.
    pub(super) fn forget(&mut self) {
        self.epoch += 1;
    }

    /// The port at a place among the worker's ports.
    pub(super) fn port(&self, place: usize) -> Option<PortIndex> {
        self.ports.get(place).copied()
    }

    /// Source addresses for ICMP errors about packets that came in by the port at this place.
    #[inline]
    pub(super) fn error_sources(&self, place: u8) -> &Sources {
        &self.addresses[usize::from(place)]
    }

    /// True if the route to the source of an IP packet leads out of the port by which it came in.
    /// True for a frame that is no IP packet: the pipeline drops that with a reason of its own.
    #[inline]
    pub(super) fn leads_back(&mut self, packet: &[u8], port: PortIndex) -> bool {
        let Some(key) = AddressKey::source(packet) else { return true };
        self.sources.knows(self.epoch, key, port) || self.sources.learn(self.epoch, key, port, &self.fib)
    }

    /// The port of a next hop, if the default route leads there.
    pub(super) fn default_port(&self, hop: &Hop) -> Option<PortIndex> {
        match *hop {
            Hop::Send(SendHop { place, by_default: true, .. }) => self.port(place.into()),
            Hop::Wait { port, by_default: true, .. } => Some(port),
            _ => None,
        }
    }

    /// True if the route to an address leads out of this port.
    pub(super) fn leads_through(&self, port: PortIndex, addr: IpAddr) -> bool {
        self.fib.leads_through(port, addr)
    }

    /// True if the MAC address of a neighbour is known now.
    pub(super) fn knows(&self, port: PortIndex, neighbour: IpAddr) -> bool {
        self.fib.neighbour(port, neighbour).is_some()
    }

    /// The next hop of an IP packet. `None` if the octets are no IP packet.
    #[inline]
    pub(super) fn hop_of(&mut self, packet: &[u8]) -> Option<&Hop> {
        let key = AddressKey::destination(packet)?;
        let place = key.place();
        let entry = &self.cache[place];
        if entry.epoch == self.epoch && entry.key == key {
            return Some(&self.cache[place].hop);
        }
        Some(self.learn(key))
    }

    /// Asks the table, and caches the answer if it can be used again.
    #[cold]
    fn learn(&mut self, key: AddressKey) -> &Hop {
        let hop = self.resolve(key.addr());
        let entry = &mut self.cache[key.place()];
        if matches!(hop, Hop::Send(_) | Hop::Host) {
            *entry = HopEntry { epoch: self.epoch, key, hop };
            &entry.hop
        } else {
            self.other = hop;
            &self.other
        }
    }

    fn resolve(&self, destination: IpAddr) -> Hop {
        match self.fib.lookup(destination) {
            Route::Forward(NextHop { out: Out::Port(port), gateway, mtu }) => {
                self.through(port, gateway.unwrap_or(destination), mtu, destination)
            }
            Route::Forward(NextHop { out: Out::Other { .. }, .. }) | Route::Local => Hop::Host,
            Route::NoRoute => Hop::Discard(WorkerDrop::NoRoute),
            Route::Unreachable => Hop::Discard(WorkerDrop::Unreachable),
            Route::Prohibit => Hop::Discard(WorkerDrop::Prohibited),
            Route::Blackhole => Hop::Discard(WorkerDrop::Blackhole),
        }
    }

    fn through(&self, port: PortIndex, neighbour: IpAddr, mtu: u16, destination: IpAddr) -> Hop {
        // If the port has several queues, the first one.
        let place = self.ports.iter().position(|&own| own == port);
        let (Some(place), Some(link)) = (place, self.fib.port(port)) else {
            return Hop::Discard(WorkerDrop::NoPort);
        };
        let by_default = self.fib.is_by_default(destination);
        let Some(mac) = self.fib.neighbour(port, neighbour) else {
            return Hop::Wait { port, neighbour, by_default };
        };
        let ethertype = if destination.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
        let header = Ethernet { dst: mac, src: link.mac, ethertype }.to_bytes();
        // A worker has at most `MAX_PORTS_PER_WORKER`.
        let mtu = mtu.min(link.mtu).min(self.limits[place]);
        Hop::Send(SendHop { place: place as u8, mtu, by_default, header })
    }
}

/// The destination in an IP header.
pub(super) fn destination(packet: &[u8]) -> Option<IpAddr> {
    AddressKey::destination(packet).map(AddressKey::addr)
}
