//! The home of a packet, if all nodes receive all packets (ingress `flood`). With ingress `routed`
//! each packet reaches one node, which keeps it whatever its home: its worker relays the packet to
//! the node that carries it, and its daemon relays IKE.
//!
//! The XDP filter decides this for real packets (`crates/fastpath/bpf/home.h`). This is the same
//! decision in plain Rust, for the simulator and for a test that compares the two.
//!
//! The packets of a spread tunnel are dealt out to all shards, each by its lane
//! ([`testudo_base::lane`]): ESP by its SPI and number, clear traffic by a hash of the packet.
//!
//! Packets with state have one home, whatever MAC address they came by: ESP, IKE, and clear traffic
//! for protected prefixes. Exactly one node may answer packets to a virtual address (VIP). Other
//! packets have a home only if they were flooded; a packet to a node's own MAC address came to no
//! other node.
//!
//! **Fragments** to a VIP: the first one finds its home by its headers, as a whole packet does. The
//! later ones have no such headers and go up on all nodes. There the kernel reassembles them or,
//! without the first one, drops them silently (RFC 1122 §3.3.2, RFC 8200 §4.5). So one node has the
//! whole packet, and one node reports a timeout. Fragments of ESP go to the workers of all nodes:
//! each reassembles the packet, and the one that carries its shard or lane keeps it.

mod packet;

use crate::group::ClusterKey;
use packet::{Content, Packet};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use testudo_base::lane::{self, Spread};
use testudo_base::shard::ShardSet;
use testudo_base::siphash::SipKey;
use testudo_base::spi::{Shard, Spi};
use testudo_base::turn::InTurn;

/// The home of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// ESP, or clear traffic for a protected prefix: the node that carries the packets of this
    /// shard. Of a spread tunnel it is the packet's lane.
    Packets(Shard),
    /// IKE: the node that speaks for this shard.
    Ike(Shard),
    /// Bypassed traffic, or traffic to a node's own address, by the two addresses: the node that
    /// carries the packets of this shard.
    Pair(Shard),
    /// Clear traffic for a prefix of several homes: the workers of all nodes, which keep only their
    /// own packets.
    Ambiguous,
    /// All nodes: ICMP errors to a VIP, later fragments, and fragments of ESP.
    Everybody,
    /// Everything else to a VIP: the default host.
    DefaultHost,
    /// The node that received it.
    Own,
}

/// How a frame was addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// To the cluster's MAC address: all nodes receive it.
    Flooded,
    /// To the node's own MAC address.
    Own,
}

/// The flooded packets that a node keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    /// Shards whose packets it carries.
    pub packets: ShardSet,
    /// Shards whose packets it keeps back until it owns them: another node carries them until then.
    pub held: ShardSet,
    /// Shards whose IKE it speaks.
    pub ike: ShardSet,
    /// True for the one node that answers for the VIPs where nothing else decides.
    pub default_host: bool,
    /// Which lanes of spread tunnels all nodes of the view let take turns ([`testudo_base::turn`]).
    pub in_turn: InTurn,
}

impl Ownership {
    /// Shards whose packets stay at the node, worked on or kept back.
    pub fn kept(&self) -> ShardSet {
        self.packets.union(self.held)
    }

    /// True if the node keeps packets of this home.
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

/// The home of a prefix in the filter's tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixHome {
    /// Protected by Child SAs of this shard.
    Shard(Shard),
    /// Protected by spread Child SAs of this shard: each packet goes by its lane, and the shard's
    /// row clock counts it. Lanes that take turns depend on what a node has counted
    /// ([`testudo_base::turn`]): here they go by the hash.
    Spread(Shard, Spread),
    /// Protected by Child SAs of several shards, or by none yet.
    Ambiguous,
    /// An exception inside a larger prefix: bypassed.
    Pass,
}

/// The tables by which a home is found.
#[derive(Clone, Debug)]
pub struct Dispatch {
    /// The virtual addresses.
    pub vips: BTreeSet<IpAddr>,
    /// The node's own addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// Prefixes by first address and length.
    pub prefixes: BTreeMap<(IpAddr, u8), PrefixHome>,
    /// Inbound SAs that are spread.
    pub spread: BTreeSet<Spi>,
    /// Key of the hash for packets that show no home.
    pub key: SipKey,
    /// No other node receives the packets that this one receives (ingress `routed`).
    pub routed: bool,
}

/// Octets of an IKE header (RFC 7296 §3.1).
const IKE_HEADER: usize = 28;
const IKE_FLAGS: usize = 19;
/// Flag of the original initiator (RFC 7296 §3.1).
const IKE_INITIATOR: u8 = 1 << 3;

impl Dispatch {
    /// The home of an IP packet. `None` if the filter drops it.
    pub fn home(&self, arrival: Arrival, octets: &[u8]) -> Option<Home> {
        let packet = Packet::parse(octets)?;
        if packet.is_group() {
            return Some(Home::Own);
        }
        if self.vips.contains(&packet.dst) {
            return self.to_vip(&packet.content()?);
        }
        if !self.addresses.contains(&packet.dst) && !packet.is_to_link() {
            match self.prefix(packet.dst) {
                PrefixHome::Shard(shard) => return Some(Home::Packets(shard)),
                PrefixHome::Spread(_, spread) => {
                    return Some(Home::Packets(lane::of_packet(self.key, spread, octets)));
                }
                PrefixHome::Ambiguous => return Some(Home::Ambiguous),
                PrefixHome::Pass => {}
            }
        }
        Some(match arrival {
            Arrival::Flooded => Home::Pair(self.key.pair(packet.src, packet.dst)),
            Arrival::Own => Home::Own,
        })
    }

    /// True if a node with this ownership keeps packets of this home that have reached it. If no
    /// other node has them, it also keeps those that another one carries, to relay them.
    pub fn keeps(&self, ownership: &Ownership, home: Home) -> bool {
        self.routed || ownership.keeps(home)
    }

    /// The shard of an IKE message: that of our SPI or, before we have chosen one, of the hash of
    /// the peer's. `None` if the message has no IKE header.
    pub fn ike(&self, message: &[u8]) -> Option<Shard> {
        ike_shard(self.key, message)
    }

    fn to_vip(&self, content: &Content<'_>) -> Option<Home> {
        match content {
            Content::Esp { spi, number } if self.spread.contains(spi) => {
                Some(Home::Packets(lane::of_number(*spi, *number)))
            }
            Content::Esp { spi, .. } => Some(Home::Packets(spi.shard())),
            // A message without a header goes to the default host, which counts it.
            Content::Ike(message) => Some(self.ike(message).map_or(Home::DefaultHost, Home::Ike)),
            Content::IkeStart(message) => self.ike(message).map(Home::Ike),
            Content::IcmpError | Content::Fragment => Some(Home::Everybody),
            Content::Other => Some(Home::DefaultHost),
        }
    }

    /// The home of the longest matching prefix.
    fn prefix(&self, addr: IpAddr) -> PrefixHome {
        let holding = self.prefixes.iter().filter(|((first, length), _)| holds(*first, *length, addr));
        holding.max_by_key(|((_, length), _)| *length).map_or(PrefixHome::Pass, |(_, home)| *home)
    }
}

/// Key of the hash by which packets without an SPI of the cluster find their homes.
pub fn hash_key(key: &ClusterKey) -> SipKey {
    crate::alloc::hash_key(key.octets())
}

/// The shard of an IKE message, as [`Dispatch::ike`] finds it, for callers that have only the key.
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
