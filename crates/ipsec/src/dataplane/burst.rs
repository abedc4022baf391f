//! Input and output of the pipeline.

use super::counters::DirectionCounters;
use crate::drops::DropReason;
use crate::spd::PolicyId;
use testudo_base::spi::Spi;
use testudo_wire::packet::PacketBuf;

/// Bound on the packets of one call.
pub const BURST: usize = 64;

/// How a packet reached us. Their order makes most questions a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ingress {
    /// Through a port: we are a hop on its way.
    Port,
    /// As [`Ingress::Port`], and the filter has counted it: the octet before the packet is the lane
    /// that it has taken in turn ([`testudo_base::turn`]).
    InTurn,
    /// Through a port, and it has reached every node of the cluster, because only the policies show
    /// its home: one node keeps it.
    Flooded,
    /// As [`Ingress::Port`], in fragments that were reassembled: its sender cannot make it smaller
    /// than they were.
    PortJoined,
    /// As [`Ingress::Flooded`], in fragments that were reassembled.
    FloodedJoined,
    /// Through a port of another node, which has relayed it ([`Verdict::Relayed`]).
    Relayed,
    /// As [`Ingress::Relayed`], in fragments that were reassembled there.
    RelayedJoined,
    /// As [`Ingress::Relayed`], and that node had it from another one, which took it for the
    /// carrier: nobody relays it once more.
    RelayedTwice,
    /// As [`Ingress::RelayedTwice`], in fragments that were reassembled at the first node.
    RelayedTwiceJoined,
    /// As [`Ingress::RelayedTwice`], with the TTL of [`Ingress::RelayedHost`].
    RelayedTwiceHost,
    /// As [`Ingress::Relayed`], and the TTL is that of a packet which the other node sends: it was
    /// decremented there, or it is the host's own.
    RelayedHost,
    /// From our own kernel, through the TUN, or made here: the TTL is unchanged.
    Host,
    /// As [`Ingress::Host`], in fragments that were reassembled.
    HostJoined,
    /// A piece of a packet that had to be split ([`Verdict::Fragment`]), a packet behind such
    /// pieces ([`Verdict::Behind`]), or an ICMP error that was made here: as [`Ingress::Host`], but
    /// it is decided how its fragments go.
    Piece,
}

impl Ingress {
    /// True if this host sends it, or another node that has relayed it.
    #[inline]
    pub(super) fn is_host(self) -> bool {
        matches!(
            self,
            Self::RelayedHost | Self::RelayedTwiceHost | Self::Host | Self::HostJoined | Self::Piece
        )
    }

    /// True if another node has relayed it.
    #[inline]
    pub(super) fn is_relayed(self) -> bool {
        matches!(
            self,
            Self::Relayed
                | Self::RelayedJoined
                | Self::RelayedTwice
                | Self::RelayedTwiceJoined
                | Self::RelayedTwiceHost
                | Self::RelayedHost
        )
    }

    /// True if two nodes have relayed it.
    #[inline]
    pub(super) fn is_relayed_twice(self) -> bool {
        matches!(self, Self::RelayedTwice | Self::RelayedTwiceJoined | Self::RelayedTwiceHost)
    }

    /// True if all nodes of the cluster have received it.
    #[inline]
    pub(super) fn is_flooded(self) -> bool {
        matches!(self, Self::Flooded | Self::FloodedJoined)
    }

    /// The ingress of the datagram that fragments of this one make.
    #[must_use]
    pub fn joined(self) -> Self {
        match self {
            Self::Port | Self::InTurn | Self::PortJoined => Self::PortJoined,
            Self::Flooded | Self::FloodedJoined => Self::FloodedJoined,
            Self::Relayed | Self::RelayedJoined | Self::RelayedHost => Self::RelayedJoined,
            Self::RelayedTwice | Self::RelayedTwiceJoined | Self::RelayedTwiceHost => {
                Self::RelayedTwiceJoined
            }
            Self::Host | Self::HostJoined => Self::HostJoined,
            Self::Piece => Self::Piece,
        }
    }

    /// True if it came in fragments.
    #[inline]
    pub(super) fn is_joined(self) -> bool {
        matches!(
            self,
            Self::PortJoined
                | Self::FloodedJoined
                | Self::RelayedJoined
                | Self::RelayedTwiceJoined
                | Self::HostJoined
        )
    }
}

/// The decision on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not decided yet.
    Pending,
    /// Route it by the IP destination now in the buffer: the outer one after encryption, the inner
    /// one after decryption.
    Forward,
    /// Forward it in fragments (`wire::ipv6::fragment`): an IPv6 packet of our own, or one that
    /// came to a gateway in fragments, that is larger than its path's MTU. No other node on its way
    /// would fragment it (RFC 8200 §4.5).
    ForwardInPieces {
        /// The largest piece, if the link takes it.
        mtu: u16,
    },
    /// Give it to the kernel, through the TUN.
    ToHost,
    /// The buffer now holds an ICMP error about the packet: send it back to where the packet came
    /// from. After `inbound` that is through the tunnel: give it to `outbound` as
    /// [`Ingress::Host`].
    Reply,
    /// Decrypted, and a policy wants it protected on its way on: we are the hub between two
    /// tunnels. Give it to `outbound`, as [`Ingress::Host`], because its TTL was decremented.
    Onward,
    /// Too big, and it may be split: split it (`wire::ipv4::fragment`) and give the pieces to
    /// `outbound` again, as [`Ingress::Piece`].
    Fragment {
        /// The largest piece.
        mtu: u16,
    },
    /// It must leave behind the pieces of earlier packets with [`Verdict::Fragment`]: give it to
    /// `outbound` again behind them, as [`Ingress::Piece`]. A datagram whose last fragment arrives
    /// long before the others would not be reassembled.
    Behind,
    /// Another node has relayed it, and the buffer now holds it as it came there: give it to
    /// `inbound` if it is to us, otherwise to `outbound`, with this ingress.
    Relayed {
        /// The ingress.
        ingress: Ingress,
        /// It is addressed to us, and is ESP or AH.
        to_us: bool,
    },
    /// Its shard is about to come from another node ([`super::Command::Hold`]): keep it, and give
    /// it to the pipeline again, the same way, once the shard has come.
    Held,
    /// A fragment on which nothing can be decided without the others: reassemble the datagram
    /// ([`crate::reassembly`]), and give the whole packet back the same way, as
    /// [`Ingress::PortJoined`] and the like.
    Reassemble,
    /// No inbound SA has this SPI. Its peer may have the SA already while we do not: keep the
    /// packet for a moment, and give it to `inbound` again if the SA comes, or else call
    /// `Dataplane::give_up_early`.
    Early(Spi),
    /// Drop it. It has been counted.
    Drop(DropReason),
}

/// A packet on its way through the pipeline.
#[derive(Debug)]
pub struct Item<'a> {
    /// The packet from the IP header on, without the Ethernet header. Octets behind the IP packet's
    /// end are cut off.
    pub buf: PacketBuf<'a>,
    /// How it reached us.
    pub ingress: Ingress,
    /// The decision.
    pub verdict: Verdict,
    /// The SA's policy, set for a decrypted packet that is to be routed, or may be once it has been
    /// reassembled ([`Verdict::Onward`]), and whose SA has a local side that is not all addresses.
    /// Such a packet must not go back towards the peer in clear
    /// ([`Dataplane::peer`](super::Dataplane::peer)).
    pub inside: Option<PolicyId>,
}

impl<'a> Item<'a> {
    /// A packet that waits for its verdict.
    pub fn new(buf: PacketBuf<'a>, ingress: Ingress) -> Self {
        Self { buf, ingress, verdict: Verdict::Pending, inside: None }
    }

    /// Drops the packet, counted.
    #[cold]
    pub(super) fn refuse(&mut self, reason: DropReason, counters: &DirectionCounters) {
        counters.drop(reason);
        self.verdict = Verdict::Drop(reason);
    }
}
