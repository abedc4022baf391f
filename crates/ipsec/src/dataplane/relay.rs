//! Relaying: where routers bring each packet to one node of a cluster only, perhaps the wrong one,
//! that node passes it on to the node that carries its shard.
//!
//! A relayed packet is the inner packet of a *relay SA*: ESP in tunnel mode from one node to
//! another, which no policy and no IKE SA belongs to. It goes unchanged, TTL included, so that the
//! carrier treats it as if it had come there. While a shard moves, a node may take the former
//! carrier for the present one, or the next one for it too soon: that node relays the packet once
//! more. It is not relayed a third time.
//!
//! There are two kinds ([`RelayKind`]). One encrypts the whole packet. The other carries nothing but
//! ESP and AH: the SA that such a packet belongs to protects it, and the carrier opens that SA next.
//! A gateway that follows a peer behind a NAT believes one field more: the source of ESP in UDP. So
//! of ESP in UDP the first [`HEAD_LEN`] octets are encrypted. Of other ESP, and of AH, nothing is:
//! they go *bare*, by an SPI of their own, because the carrier believes nothing of them that it
//! would not believe of a packet from a port. Neither has a trailer:
//!
//! ```text
//! IP | SPI, sequence number | IV | first 64 octets, encrypted | the rest, as it came | ICV
//! IP | SPI, 0               | 0  | the packet, as it came
//! ```
//!
//! The ICV covers the header of ESP and the first 64 octets.
//!
//! Sequence numbers begin at 1 with the fresh key of each SA, and with ESN they do not end. IVs come
//! from the worker's counter under the node's sender ID, as for all SAs. They differ under each key
//! however long the SA lives, so it needs no limit. A node without a sender ID relays nothing.

use super::burst::Ingress;
use crate::drops::DropReason;
use crate::error::Error;
use crate::inner::Inner;
use crate::number::SequenceBlock;
use crate::replay::MAX_WINDOW;
use crate::sa::{
    ChildSaParams, Encapsulation, EspAlgorithm, HeaderCopy, InboundSa, KeyMaterial, Mode, OutboundSa,
};
use crate::selector::{AddrRange, TrafficSelector};
use crate::spd::PolicyId;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use testudo_base::shard::SHARDS;
use testudo_base::spi::{RelayKind, SenderId, Shard, Spi};
use testudo_crypto::{IV_LEN, Library};
use testudo_wire::esp;
use testudo_wire::ip::Protocol;

/// Kinds with SAs of their own.
const KINDS: usize = RelayKind::SAS.len();
/// Numbers of nodes, and 0.
const NODES: usize = SenderId::LAST_NODE as usize + 1;
/// SPIs of relay SAs of one kind.
const SPIS: usize = Spi::RELAY_SPIS as usize;
/// Octets of a packet that a relay SA of the kind [`RelayKind::Head`] encrypts: IPv6 and UDP, and
/// SPI, sequence number and IV of ESP.
pub(super) const HEAD_LEN: usize = 64;
/// Octets between the outer IP header and a packet whose head is encrypted, or that is bare.
pub(super) const BEFORE_PACKET: usize = esp::HEADER + IV_LEN;
/// The policy of relay SAs: there is no such number, so no table has a place for it.
const NO_POLICY: PolicyId = PolicyId(u32::MAX);
/// Next header of a relayed packet that was reassembled from fragments. Two nodes of one cluster
/// alone read these numbers. RFC 3692 leaves 253 and 254 to such uses; the others are not assigned.
const JOINED: Protocol = Protocol(253);
/// Next header of a relayed packet whose TTL the first node has decremented, or which it sends
/// itself.
const HOST: Protocol = Protocol(254);
/// Next header of a packet that is relayed once more.
const TWICE: Protocol = Protocol(250);
/// [`JOINED`], once more.
const TWICE_JOINED: Protocol = Protocol(251);
/// [`HOST`], once more.
const TWICE_HOST: Protocol = Protocol(252);

/// Where packets go that another node carries. Immutable: a change replaces the table.
#[derive(Clone, Debug)]
pub struct Relay {
    /// Number of the node that carries each shard.
    carriers: [Option<u8>; SHARDS],
    /// SAs to the other nodes, by kind and node.
    outbound: [[Option<Arc<OutboundSa>>; NODES]; KINDS],
    /// SAs from the other nodes, by kind and SPI. Those of former views are still accepted for a
    /// while.
    inbound: [[Option<Arc<InboundSa>>; SPIS]; KINDS],
}

/// Both relay SAs of one kind between this node and another. The SPIs show the kind.
#[derive(Clone, Debug)]
pub struct RelayParams {
    /// This node's address on the cluster network.
    pub local: IpAddr,
    /// The other node's.
    pub remote: IpAddr,
    /// The SPI of packets to this node ([`Spi::of_relay`]).
    pub spi_in: Spi,
    /// The SPI of packets from this node.
    pub spi_out: Spi,
    /// Key of packets to this node, with 4 octets of salt.
    pub key_in: KeyMaterial,
    /// Key of packets from this node, with 4 octets of salt.
    pub key_out: KeyMaterial,
}

impl RelayParams {
    /// Octets of a key and its salt.
    pub const KEY_LEN: usize = 36;

    /// Builds both SAs, with the schedules of their keys. `path_mtu` is the MTU towards the other
    /// node.
    pub fn build(&self, path_mtu: u16, library: Library) -> Result<(InboundSa, OutboundSa), Error> {
        let params = self.child();
        let inbound = InboundSa::new(&params, NO_POLICY, path_mtu, library)?;
        let numbers = SequenceBlock::whole(params.esn);
        let outbound = OutboundSa::new(&params, NO_POLICY, numbers, path_mtu, library)?;
        inbound.expand_key()?;
        outbound.expand_key()?;
        Ok((inbound, outbound))
    }

    fn child(&self) -> ChildSaParams {
        ChildSaParams {
            spi_in: self.spi_in,
            spi_out: self.spi_out,
            algorithm: EspAlgorithm::Aes256Gcm16,
            key_in: self.key_in.clone(),
            key_out: self.key_out.clone(),
            esn: true,
            // All workers of the other node send by one SA, and a burst may overtake another.
            replay_window: MAX_WINDOW,
            local_ts: everything(),
            remote_ts: everything(),
            local: SocketAddr::new(self.local, 0),
            remote: SocketAddr::new(self.remote, 0),
            encapsulation: Encapsulation::Plain,
            mode: Mode::Tunnel,
            // What is too big for the cluster network is fragmented outside: nobody learns of a
            // smaller MTU.
            copy: HeaderCopy { df: false, ..HeaderCopy::default() },
        }
    }
}

/// All packets: nothing is negotiated for a relay SA, and its selectors are not asked.
fn everything() -> Vec<TrafficSelector> {
    let v4 = AddrRange::new(Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into());
    let v6 = AddrRange::new(Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::from_bits(u128::MAX).into());
    [v4, v6].into_iter().flatten().map(TrafficSelector::all).collect()
}

impl Default for Relay {
    fn default() -> Self {
        Self {
            carriers: [None; SHARDS],
            outbound: [const { [const { None }; NODES] }; KINDS],
            inbound: [const { [const { None }; SPIS] }; KINDS],
        }
    }
}

impl Relay {
    /// Sets the number of the node that carries each shard.
    pub fn set_carriers(&mut self, carriers: [Option<u8>; SHARDS]) {
        self.carriers = carriers;
    }

    /// Relays by this SA to the node with this number. Returns false if there is no such number, or
    /// the SPI is not one of relay SAs.
    #[must_use]
    pub fn send_by(&mut self, node: u8, sa: Arc<OutboundSa>) -> bool {
        let nodes = sa.spi().relay_kind().and_then(|kind| self.outbound.get_mut(kind as usize));
        let place = nodes.and_then(|nodes| nodes.get_mut(usize::from(node)));
        place.map(|place| *place = Some(sa)).is_some()
    }

    /// Accepts packets of this SA. Returns false if its SPI is not one of relay SAs.
    #[must_use]
    pub fn accept(&mut self, sa: Arc<InboundSa>) -> bool {
        let spis = sa.spi().relay_kind().and_then(|kind| self.inbound.get_mut(kind as usize));
        let place = spis.and_then(|spis| spis.get_mut(index(sa.spi())));
        place.map(|place| *place = Some(sa)).is_some()
    }

    /// The SPIs of the SAs whose packets are accepted.
    pub fn spis(&self) -> impl Iterator<Item = Spi> {
        self.inbound.iter().flatten().flatten().map(|sa| sa.spi())
    }

    /// The SA of a kind to the node that carries the shard.
    pub(super) fn way(&self, shard: Shard, kind: RelayKind) -> Option<&OutboundSa> {
        let node = (*self.carriers.get(usize::from(shard.0))?)?;
        self.outbound.get(kind as usize)?.get(usize::from(node))?.as_deref()
    }

    /// The inbound SA of a kind with this SPI.
    pub(super) fn inbound(&self, spi: Spi, kind: RelayKind) -> Option<&InboundSa> {
        let is_of_kind = spi.relay_kind() == Some(kind);
        self.inbound.get(kind as usize)?.get(index(spi))?.as_deref().filter(|_| is_of_kind)
    }
}

/// The place of a relay SA among those of its kind.
fn index(spi: Spi) -> usize {
    (spi.0 % Spi::RELAY_SPIS) as usize
}

impl InboundSa {
    /// True if it is a relay SA.
    pub(crate) fn is_relay(&self) -> bool {
        self.policy() == NO_POLICY
    }
}

impl OutboundSa {
    /// True if it is a relay SA.
    #[inline]
    pub(crate) fn is_relay(&self) -> bool {
        self.policy() == NO_POLICY
    }
}

/// The next header that tells the carrier how a packet has reached this node.
pub(super) fn next_header(ingress: Ingress, inner: &Inner) -> Protocol {
    match (ingress.is_relayed(), ingress.is_joined(), ingress.is_host()) {
        (false, false, false) => inner.next_header(),
        // If this host sends it, the carrier takes one hop off its TTL.
        (false, true, _) => JOINED,
        (false, false, true) => HOST,
        (true, false, false) => TWICE,
        (true, true, _) => TWICE_JOINED,
        (true, false, true) => TWICE_HOST,
    }
}

/// The ingress of a packet that came with this next header.
pub(super) fn ingress(next_header: Protocol) -> Result<Ingress, DropReason> {
    match next_header {
        Protocol::IPV4 | Protocol::IPV6 => Ok(Ingress::Relayed),
        JOINED => Ok(Ingress::RelayedJoined),
        HOST => Ok(Ingress::RelayedHost),
        TWICE => Ok(Ingress::RelayedTwice),
        TWICE_JOINED => Ok(Ingress::RelayedTwiceJoined),
        TWICE_HOST => Ok(Ingress::RelayedTwiceHost),
        Protocol::NO_NEXT => Err(DropReason::Dummy),
        _ => Err(DropReason::BadNextHeader),
    }
}
