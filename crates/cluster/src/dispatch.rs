//! Which node a packet is for, where all nodes see all packets (ingress `flood`).
//!
//! The XDP filter decides this for real packets (`crates/fastpath/bpf/home.h`); this says the same
//! in plain Rust, for the simulator and for a test that compares the two.
//!
//! What keeps state has one home, whatever MAC address it came by: ESP, IKE, and clear traffic for
//! protected prefixes. All that goes to a virtual address (VIP) has exactly one node that may
//! answer. The rest has a home only where it was flooded; what came by a node's own MAC address
//! came to no other node.
//!
//! **Fragments** to a VIP: the first one finds its home by what stands in it, as a whole packet
//! does. The later ones show nothing and go up everywhere, where the kernel puts them together or,
//! without the first one, forgets them without a word (RFC 1122 §3.3.2, RFC 8200 §4.5). So one node
//! has the whole packet, and one node tells if it never came together. Fragments of ESP go to the
//! workers of all nodes: each puts the packet together, and the one that carries its shard keeps
//! it.

mod packet;

use crate::group::ClusterKey;
use packet::{Content, Packet};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use testudo_base::shard::ShardSet;
use testudo_base::siphash::SipKey;
use testudo_base::spi::Shard;

/// Where a packet belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// ESP, or clear traffic for a protected prefix: the node that carries the packets of this
    /// shard.
    Packets(Shard),
    /// IKE: the node that speaks for this shard.
    Ike(Shard),
    /// Bypassed, or to a node's own address, by the two addresses: the node that carries the
    /// packets of this shard.
    Pair(Shard),
    /// Clear traffic for a prefix of several homes: the workers of all nodes, which keep only what
    /// is theirs.
    Ambiguous,
    /// All nodes: errors of ICMP to a VIP, later fragments, and all of ESP.
    Everybody,
    /// Everything else to a VIP.
    DefaultHost,
    /// The node that received it: the cluster has no say in it.
    Own,
}

/// How a frame came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// To the cluster's MAC address: all nodes have it.
    Flooded,
    /// To the node's own.
    Own,
}

/// What a node keeps of what comes flooded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    /// Shards whose packets it carries.
    pub packets: ShardSet,
    /// Shards whose packets it keeps back until they are its own: another node carries them on
    /// until then.
    pub held: ShardSet,
    /// Shards whose IKE it speaks.
    pub ike: ShardSet,
    /// True for the one node that answers for the VIPs otherwise.
    pub default_host: bool,
}

impl Ownership {
    /// True if a packet of this home is for the node.
    pub fn keeps(&self, home: Home) -> bool {
        match home {
            Home::Packets(shard) => self.packets.contains(shard) || self.held.contains(shard),
            Home::Pair(shard) => self.packets.contains(shard),
            Home::Ike(shard) => self.ike.contains(shard),
            Home::DefaultHost => self.default_host,
            Home::Ambiguous | Home::Everybody | Home::Own => true,
        }
    }
}

/// What the filter's tries say of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixHome {
    /// Protected by Child SAs of this shard.
    Shard(Shard),
    /// Protected by Child SAs of several shards, or by none yet.
    Ambiguous,
    /// An exception inside a larger prefix: bypassed.
    Pass,
}

/// What a home depends on.
#[derive(Clone, Debug)]
pub struct Dispatch {
    /// The virtual addresses.
    pub vips: BTreeSet<IpAddr>,
    /// The node's own addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// By first address and length.
    pub prefixes: BTreeMap<(IpAddr, u8), PrefixHome>,
    /// The key for what has no home by itself.
    pub key: SipKey,
}

/// Octets of an IKE header (RFC 7296 §3.1).
const IKE_HEADER: usize = 28;
const IKE_FLAGS: usize = 19;
/// The sender began the IKE SA (RFC 7296 §3.1).
const IKE_INITIATOR: u8 = 1 << 3;

impl Dispatch {
    /// The home of an IP packet. `None`: no filter lets it in.
    pub fn home(&self, arrival: Arrival, packet: &[u8]) -> Option<Home> {
        let packet = Packet::parse(packet)?;
        if packet.is_group() {
            return Some(Home::Own);
        }
        if self.vips.contains(&packet.dst) {
            return self.to_vip(&packet.content()?);
        }
        if !self.addresses.contains(&packet.dst) && !packet.is_to_link() {
            match self.prefix(packet.dst) {
                PrefixHome::Shard(shard) => return Some(Home::Packets(shard)),
                PrefixHome::Ambiguous => return Some(Home::Ambiguous),
                PrefixHome::Pass => {}
            }
        }
        Some(match arrival {
            Arrival::Flooded => Home::Pair(self.key.pair(packet.src, packet.dst)),
            Arrival::Own => Home::Own,
        })
    }

    /// The shard of an IKE message, by our SPI or, before we have chosen one, by the peer's.
    /// `None`: it has no header.
    pub fn ike(&self, message: &[u8]) -> Option<Shard> {
        ike_shard(self.key, message)
    }

    fn to_vip(&self, content: &Content<'_>) -> Option<Home> {
        match content {
            Content::Esp([shard, ..]) => Some(Home::Packets(Shard(*shard))),
            // One without a header is for whoever counts it.
            Content::Ike(message) => Some(self.ike(message).map_or(Home::DefaultHost, Home::Ike)),
            Content::IkeStart(message) => self.ike(message).map(Home::Ike),
            Content::IcmpError | Content::Fragment => Some(Home::Everybody),
            Content::Other => Some(Home::DefaultHost),
        }
    }

    /// The longest match.
    fn prefix(&self, addr: IpAddr) -> PrefixHome {
        let holding = self.prefixes.iter().filter(|((first, length), _)| holds(*first, *length, addr));
        holding.max_by_key(|((_, length), _)| *length).map_or(PrefixHome::Pass, |(_, home)| *home)
    }
}

/// The key by which what has no SPI of the cluster's finds its home.
pub fn hash_key(key: &ClusterKey) -> SipKey {
    crate::alloc::hash_key(key.octets())
}

/// The shard of an IKE message: [`Dispatch::ike`] for who has only the key.
pub fn ike_shard(key: SipKey, message: &[u8]) -> Option<Shard> {
    let header: &[u8; IKE_HEADER] = message.first_chunk()?;
    let (initiator, rest): (&[u8; 8], _) = header.split_first_chunk()?;
    let responder: &[u8; 8] = rest.first_chunk()?;
    if header[IKE_FLAGS] & IKE_INITIATOR == 0 {
        return Some(Shard(initiator[0]));
    }
    if *responder == [0; 8] {
        return Some(key.initiator(*initiator));
    }
    Some(Shard(responder[0]))
}

fn holds(first: IpAddr, length: u8, addr: IpAddr) -> bool {
    let differ = |a: u128, b: u128, width: u32| match width.checked_sub(u32::from(length)) {
        Some(host) => a.checked_shr(host) != b.checked_shr(host),
        None => true,
    };
    match (first, addr) {
        (IpAddr::V4(a), IpAddr::V4(b)) => !differ(u32::from(a).into(), u32::from(b).into(), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => !differ(a.into(), b.into(), 128),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
