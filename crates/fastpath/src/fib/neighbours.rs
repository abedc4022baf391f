//! Neighbours, and which of them are in use.

use super::PortIndex;
use crate::mac::MacAddr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A neighbour whose MAC address is known. Consecutive tables share it, so that its mark of use is
/// not lost.
#[derive(Debug)]
pub struct Neighbour {
    mac: MacAddr,
    used: AtomicBool,
}

impl Neighbour {
    /// A neighbour without a mark of use.
    pub fn new(mac: MacAddr) -> Self {
        Self { mac, used: AtomicBool::new(false) }
    }

    /// Its address.
    pub fn mac(&self) -> MacAddr {
        self.mac
    }

    /// Takes the mark of use: true if packets were sent to it since the last call. The kernel does
    /// not see what AF_XDP sends, so it must be told which entries to keep.
    pub fn take_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    pub(super) fn mark_used(&self) {
        // Loading first keeps the cache line shared while many packets go to one neighbour.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }
}

/// Neighbours by port and address. Sorted rather than hashed: a host on the link chooses its
/// addresses, and must not be able to choose hash collisions.
#[derive(Debug, Default)]
pub(super) struct NeighbourTable {
    v4: Vec<((PortIndex, Ipv4Addr), Arc<Neighbour>)>,
    v6: Vec<((PortIndex, Ipv6Addr), Arc<Neighbour>)>,
}

impl NeighbourTable {
    #[inline]
    pub(super) fn find(&self, port: PortIndex, addr: IpAddr) -> Option<&Neighbour> {
        match addr {
            IpAddr::V4(addr) => find(&self.v4, (port, addr)),
            IpAddr::V6(addr) => find(&self.v6, (port, addr)),
        }
    }
}

impl NeighbourTable {
    pub(super) fn keys(&self) -> impl Iterator<Item = (PortIndex, IpAddr)> + '_ {
        let v4 = self.v4.iter().map(|((port, addr), _)| (*port, IpAddr::V4(*addr)));
        v4.chain(self.v6.iter().map(|((port, addr), _)| (*port, IpAddr::V6(*addr))))
    }
}

impl FromIterator<(PortIndex, IpAddr, Arc<Neighbour>)> for NeighbourTable {
    fn from_iter<T: IntoIterator<Item = (PortIndex, IpAddr, Arc<Neighbour>)>>(all: T) -> Self {
        let mut table = Self::default();
        for (port, addr, neighbour) in all {
            match addr {
                IpAddr::V4(addr) => table.v4.push(((port, addr), neighbour)),
                IpAddr::V6(addr) => table.v6.push(((port, addr), neighbour)),
            }
        }
        table.v4.sort_by_key(|(key, _)| *key);
        table.v6.sort_by_key(|(key, _)| *key);
        table
    }
}

fn find<K: Ord + Copy>(sorted: &[(K, Arc<Neighbour>)], key: K) -> Option<&Neighbour> {
    let at = sorted.binary_search_by_key(&key, |(k, _)| *k).ok()?;
    sorted.get(at).map(|(_, neighbour)| &**neighbour)
}
