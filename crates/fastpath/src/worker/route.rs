//! From a destination to the Ethernet header that takes a packet there.
//!
//! The forwarding table answers; a small direct-mapped cache keeps the answers that can be used as they are. The cache
//! is emptied when a new table comes, and every second, so that the table hears which neighbours are in use.

use super::drops::WorkerDrop;
use crate::fib::{Fib, NextHop, Out, PortIndex, Route};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use testudo_wire::ethernet::{EtherType, Ethernet, HEADER};

/// Where a packet goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hop {
    /// Out of a port.
    Send(SendHop),
    /// To the kernel.
    Host,
    /// To a neighbour whose MAC address is not known yet.
    Wait { port: PortIndex, neighbour: IpAddr },
    /// Nowhere.
    Discard(WorkerDrop),
}

/// The way out of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SendHop {
    /// Place of the port among the worker's ports.
    pub(super) slot: u8,
    /// Largest IP packet that may go there.
    pub(super) mtu: u16,
    /// Destination, source and EtherType.
    pub(super) header: [u8; HEADER],
}

/// Entries of the cache, a power of two.
const ENTRIES: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The entry counts only in this epoch. 0 is none.
    epoch: u64,
    destination: IpAddr,
    hop: Hop,
}

/// Finds the next hop.
#[derive(Debug)]
pub(super) struct Router {
    fib: Arc<Fib>,
    /// The worker's ports in the order of their places.
    ports: Box<[PortIndex]>,
    cache: Box<[Entry; ENTRIES]>,
    epoch: u64,
}

impl Router {
    pub(super) fn new(fib: Arc<Fib>, ports: Box<[PortIndex]>) -> Self {
        let nothing = Entry { epoch: 0, destination: IpAddr::V4(Ipv4Addr::UNSPECIFIED), hop: Hop::Host };
        Self { fib, ports, cache: Box::new([nothing; ENTRIES]), epoch: 1 }
    }

    /// Takes a new table; returns the former one.
    pub(super) fn replace(&mut self, fib: Arc<Fib>) -> Arc<Fib> {
        self.forget();
        std::mem::replace(&mut self.fib, fib)
    }

    /// Empties the cache.
    pub(super) fn forget(&mut self) {
        self.epoch += 1;
    }

    /// True if the MAC address of a neighbour is known now.
    pub(super) fn knows(&self, port: PortIndex, neighbour: IpAddr) -> bool {
        self.fib.neighbour(port, neighbour).is_some()
    }

    /// The next hop of an IP packet. `None` if it is none.
    #[inline]
    pub(super) fn hop_of(&mut self, packet: &[u8]) -> Option<Hop> {
        Some(self.hop_to(destination(packet)?))
    }

    #[inline]
    fn hop_to(&mut self, destination: IpAddr) -> Hop {
        let place = place(destination);
        let entry = &self.cache[place];
        if entry.epoch == self.epoch && entry.destination == destination {
            return entry.hop;
        }
        let hop = self.resolve(destination);
        if matches!(hop, Hop::Send(_) | Hop::Host) {
            self.cache[place] = Entry { epoch: self.epoch, destination, hop };
        }
        hop
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
        let slot = self.ports.iter().position(|&own| own == port);
        let (Some(slot), Some(link)) = (slot, self.fib.port(port)) else {
            return Hop::Discard(WorkerDrop::NoPort);
        };
        let Some(mac) = self.fib.neighbour(port, neighbour) else {
            return Hop::Wait { port, neighbour };
        };
        let ethertype = if destination.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
        let header = Ethernet { dst: mac, src: link.mac, ethertype }.to_bytes();
        // A worker has at most as many ports as `PortIndex` and the filter allow, which is below 256.
        Hop::Send(SendHop { slot: slot as u8, mtu: mtu.min(link.mtu), header })
    }
}

/// The destination in an IP header.
#[inline]
pub(super) fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => Some(Ipv4Addr::from(*packet.get(16..)?.first_chunk::<4>()?).into()),
        6 => Some(Ipv6Addr::from(*packet.get(24..)?.first_chunk::<16>()?).into()),
        _ => None,
    }
}

#[inline]
fn place(destination: IpAddr) -> usize {
    let mixed = match destination {
        IpAddr::V4(addr) => u64::from(addr.to_bits()),
        IpAddr::V6(addr) => (addr.to_bits() >> 64) as u64 ^ addr.to_bits() as u64,
    };
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % ENTRIES
}
