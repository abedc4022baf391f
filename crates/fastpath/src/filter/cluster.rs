//! What the filter keeps of the packets that all nodes of a cluster receive.

use super::error::Result;
use super::layout::{
    ADDRESS, CLUSTER_DEFAULT_HOST, CLUSTER_DROPS_SOURCES, CLUSTER_IN_TURN, CLUSTER_ON, CLUSTER_ROUTED,
    CLUSTER_SESSIONS_IN_TURN, CLUSTER_SPREAD, ClusterValue, UNSELECTED, VIP, seen_number, seen_value,
};
use super::{FIRST_KEY, Filter};
use std::collections::BTreeSet;
use std::net::IpAddr;
use testudo_base::turn::InTurn;

/// The settings that are equal on all nodes.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterFilter {
    /// The VIPs.
    pub vips: BTreeSet<IpAddr>,
    /// Key of SipHash, for packets that show no home.
    pub key: [u64; 2],
    /// Routers bring each packet to one node alone, which keeps it.
    pub routed: bool,
}

/// What this node keeps of the packets that all nodes receive. Each set has 256 bits, shard 0 first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptShards {
    /// Shards whose packets it keeps.
    pub packets: [u64; 4],
    /// Shards whose IKE it keeps.
    pub ike: [u64; 4],
    /// Shards whose packets it keeps for the worker alone.
    pub held: [u64; 4],
    /// It is the default host: it keeps all other packets to a VIP.
    pub default_host: bool,
    /// Which lanes of spread prefixes take turns where the prefix says so.
    pub in_turn: InTurn,
}

impl Filter {
    /// Makes the gateway a node that keeps nothing yet, or a lone gateway.
    pub fn set_cluster(&mut self, cluster: Option<&ClusterFilter>) -> Result<()> {
        let addresses = self.addresses();
        let old = std::mem::take(&mut self.vips);
        match cluster {
            Some(cluster) => {
                let flags = CLUSTER_ON | if cluster.routed { CLUSTER_ROUTED } else { 0 };
                self.cluster = ClusterValue { flags, key: cluster.key, ..ClusterValue::default() };
                self.vips.clone_from(&cluster.vips);
                // A VIP must be known as one from the first packet on.
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

    /// Sets which packets this node keeps from the next packet on.
    pub fn set_shards(&mut self, kept: KeptShards) -> Result<()> {
        let KeptShards { packets, ike, held, default_host, in_turn } = kept;
        self.cluster.packets = packets;
        self.cluster.ike = ike;
        self.cluster.held = held;
        self.cluster.flags &= !(CLUSTER_DEFAULT_HOST | CLUSTER_IN_TURN | CLUSTER_SESSIONS_IN_TURN);
        self.cluster.flags |= if default_host { CLUSTER_DEFAULT_HOST } else { 0 };
        self.cluster.flags |= match in_turn {
            InTurn::Nothing => 0,
            InTurn::Packets => CLUSTER_IN_TURN,
            InTurn::Sessions => CLUSTER_IN_TURN | CLUSTER_SESSIONS_IN_TURN,
        };
        self.write_cluster()
    }

    /// Sets the time until which the kernel gets flooded packets, in nanoseconds of CLOCK_BOOTTIME.
    /// It must be extended again and again. A dead or stopped daemon does not extend it, so its
    /// kernel does not answer beside the node that has taken over. Workers check the deadline
    /// themselves.
    pub fn set_fence(&mut self, until: u64) -> Result<()> {
        self.cluster.deadline = until;
        self.write_cluster()
    }

    pub(super) fn write_cluster(&self) -> Result<()> {
        let spread = if self.spread.is_empty() { 0 } else { CLUSTER_SPREAD };
        let drops = if self.dropped.is_empty() { 0 } else { CLUSTER_DROPS_SOURCES };
        let value = ClusterValue { flags: self.cluster.flags | spread | drops, ..self.cluster.clone() };
        self.loaded.cluster.set(&FIRST_KEY, &value.encode(), &"of this node")
    }

    /// Has the highest sequence number recorded that comes to a VIP for an inbound SA while another
    /// node carries its shard. `from` is the first number to compare with.
    pub fn track(&mut self, spi: u32, from: u64) -> Result<()> {
        self.write_seen(spi, from, false)?;
        self.set_spread(spi, false)
    }

    /// Has the packets of an inbound SA dealt out to all shards by their numbers, and the highest
    /// number recorded that comes to a VIP, whoever carries it. Otherwise like [`Self::track`].
    pub fn track_spread(&mut self, spi: u32, from: u64) -> Result<()> {
        self.write_seen(spi, from, true)?;
        self.set_spread(spi, true)
    }

    /// Forgets an SA.
    pub fn untrack(&mut self, spi: u32) -> Result<()> {
        self.loaded.seen.remove(&spi.to_ne_bytes(), &format_args!("of SA {spi:08x}"))?;
        self.set_spread(spi, false)
    }

    fn write_seen(&self, spi: u32, from: u64, is_spread: bool) -> Result<()> {
        let value = seen_value(from, is_spread);
        self.loaded.seen.set(&spi.to_ne_bytes(), &value, &format_args!("of SA {spi:08x}"))
    }

    /// Without any SPI that is spread, the filter looks up none that is carried here.
    fn set_spread(&mut self, spi: u32, is_spread: bool) -> Result<()> {
        let was_empty = self.spread.is_empty();
        match is_spread {
            true => self.spread.insert(spi),
            false => self.spread.remove(&spi),
        };
        if was_empty == self.spread.is_empty() { Ok(()) } else { self.write_cluster() }
    }

    /// The highest sequence number that has come for an SA, of one that is not spread while another
    /// node carried it; `None` if it is not tracked. A packet carries the low 32 bits: the others
    /// are counted on from the first number, and are lower than the SA's if that was already far.
    pub fn seen(&self, spi: u32) -> Result<Option<u64>> {
        let value = self.loaded.seen.get(&spi.to_ne_bytes(), &format_args!("of SA {spi:08x}"))?;
        Ok(value.as_deref().and_then(seen_number))
    }

    /// Sets the gateway's own addresses for IKE and ESP, beside the VIPs. A new address counts as
    /// selected by a policy, until [`Filter::set_unselected`] says otherwise.
    pub fn set_addresses(&mut self, addresses: &BTreeSet<IpAddr>) -> Result<()> {
        let wanted: Vec<IpAddr> = addresses.union(&self.vips).copied().collect();
        for addr in wanted {
            self.write_address(addr, self.unselected.contains(&addr))?;
        }
        let gone = self.addresses().into_iter().filter(|a| !addresses.contains(a) && !self.vips.contains(a));
        for addr in gone {
            self.loaded.local.remove(addr)?;
            self.unselected.remove(&addr);
        }
        Ok(())
    }

    /// Sets which of the addresses are on our side of no policy for all addresses.
    pub fn set_unselected(&mut self, unselected: &BTreeSet<IpAddr>) -> Result<()> {
        let changed: Vec<IpAddr> = self.unselected.symmetric_difference(unselected).copied().collect();
        for addr in changed {
            let is_unselected = unselected.contains(&addr);
            self.write_address(addr, is_unselected)?;
            match is_unselected {
                true => self.unselected.insert(addr),
                false => self.unselected.remove(&addr),
            };
        }
        Ok(())
    }

    /// The addresses that are on our side of no policy for all addresses; after a restart those of
    /// the earlier run.
    pub fn unselected(&self) -> &BTreeSet<IpAddr> {
        &self.unselected
    }

    fn write_address(&mut self, addr: IpAddr, is_unselected: bool) -> Result<()> {
        let vip = if self.vips.contains(&addr) { VIP } else { 0 };
        let unselected = if is_unselected { UNSELECTED } else { 0 };
        self.loaded.local.set(addr, ADDRESS | vip | unselected)
    }
}
