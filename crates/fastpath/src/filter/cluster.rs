//! What the filter keeps of what all nodes of a cluster see.

use super::error::Result;
use super::layout::{ADDRESS, CLUSTER_DEFAULT_HOST, CLUSTER_ON, ClusterValue, UNSELECTED, VIP, address_key};
use super::{FIRST_KEY, Filter};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// What is the same on all nodes.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterFilter {
    /// The addresses that all nodes have.
    pub vips: BTreeSet<IpAddr>,
    /// Key of SipHash, for packets that show no home.
    pub key: [u64; 2],
}

impl Filter {
    /// Makes the gateway a node that keeps nothing yet, or lets it stand alone.
    pub fn set_cluster(&mut self, cluster: Option<&ClusterFilter>) -> Result<()> {
        let addresses = self.addresses();
        let old = std::mem::take(&mut self.vips);
        match cluster {
            Some(cluster) => {
                self.cluster =
                    ClusterValue { flags: CLUSTER_ON, key: cluster.key, ..ClusterValue::default() };
                self.vips.clone_from(&cluster.vips);
                // From the first packet on, what is a VIP's is known for it.
                self.set_addresses(&addresses.difference(&old).copied().collect())?;
                self.write_cluster()
            }
            None => {
                self.cluster = ClusterValue::default();
                self.write_cluster()?;
                self.set_addresses(&addresses)
            }
        }
    }

    /// What this node keeps from the next packet on: packets of these shards, IKE of those, for the
    /// worker alone packets of those that it holds back (each a set of 256 bits, shard 0 first),
    /// and as default host whatever else is for a VIP.
    pub fn set_shards(&mut self, [packets, ike, held]: [[u64; 4]; 3], default_host: bool) -> Result<()> {
        self.cluster.packets = packets;
        self.cluster.ike = ike;
        self.cluster.held = held;
        self.cluster.flags &= !CLUSTER_DEFAULT_HOST;
        self.cluster.flags |= if default_host { CLUSTER_DEFAULT_HOST } else { 0 };
        self.write_cluster()
    }

    /// Until when the kernel gets anything that all nodes see, in nanoseconds of CLOCK_BOOTTIME: to
    /// be told anew again and again. A daemon that is dead or stopped does not, so that its kernel
    /// answers nobody beside the node that has taken over. Workers keep the deadline themselves.
    pub fn set_fence(&mut self, until: u64) -> Result<()> {
        self.cluster.deadline = until;
        self.write_cluster()
    }

    fn write_cluster(&self) -> Result<()> {
        self.loaded.cluster.set(&FIRST_KEY, &self.cluster.encode(), &"of this node")
    }

    /// Has the highest sequence number recorded that comes to a VIP for an inbound SA while another
    /// node carries its shard; `from` is the first to compare with (its lower half, with ESN). Both
    /// numbers in the machine's byte order.
    pub fn track(&mut self, spi: u32, from: u32) -> Result<()> {
        self.loaded.seen.set(&spi.to_ne_bytes(), &from.to_ne_bytes(), &format_args!("of SA {spi:08x}"))
    }

    /// Forgets an SA.
    pub fn untrack(&mut self, spi: u32) -> Result<()> {
        self.loaded.seen.remove(&spi.to_ne_bytes(), &format_args!("of SA {spi:08x}"))
    }

    /// The highest sequence number that has come for an SA while it was another node's; `None` if
    /// nobody asked to have it recorded.
    pub fn seen(&self, spi: u32) -> Result<Option<u32>> {
        let value = self.loaded.seen.get(&spi.to_ne_bytes(), &format_args!("of SA {spi:08x}"))?;
        Ok(value.as_deref().and_then(<[u8]>::first_chunk).map(|v| u32::from_ne_bytes(*v)))
    }

    /// Sets the addresses that IKE and ESP come to: the gateway's own, beside the cluster's. A
    /// policy may select a new one, until [`Filter::set_unselected`] says otherwise.
    pub fn set_addresses(&mut self, addresses: &BTreeSet<IpAddr>) -> Result<()> {
        for addr in addresses.union(&self.vips) {
            self.write_address(addr, self.unselected.contains(addr))?;
        }
        let gone = self.addresses().into_iter().filter(|a| !addresses.contains(a) && !self.vips.contains(a));
        for addr in gone {
            self.local(&addr).remove(&address_key(addr), &addr)?;
            self.unselected.remove(&addr);
        }
        Ok(())
    }

    /// Sets which of the addresses no policy for everything has on our side.
    pub fn set_unselected(&mut self, unselected: &BTreeSet<IpAddr>) -> Result<()> {
        let changed: Vec<IpAddr> = self.unselected.symmetric_difference(unselected).copied().collect();
        for addr in changed {
            let is_unselected = unselected.contains(&addr);
            self.write_address(&addr, is_unselected)?;
            match is_unselected {
                true => self.unselected.insert(addr),
                false => self.unselected.remove(&addr),
            };
        }
        Ok(())
    }

    /// The addresses that no policy for everything has on our side; after a restart those of the
    /// earlier run.
    pub fn unselected(&self) -> &BTreeSet<IpAddr> {
        &self.unselected
    }

    fn write_address(&self, addr: &IpAddr, is_unselected: bool) -> Result<()> {
        let vip = if self.vips.contains(addr) { VIP } else { 0 };
        let unselected = if is_unselected { UNSELECTED } else { 0 };
        let (map, key, kind) =
            (self.local(addr), address_key(*addr), (ADDRESS | vip | unselected).to_ne_bytes());
        if map.get(&key, addr)?.as_deref() != Some(&kind) {
            map.set(&key, &kind, addr)?;
        }
        Ok(())
    }
}
