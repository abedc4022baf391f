//! What goes into the pipeline and what comes out.

use super::counters::DirectionCounters;
use crate::drops::DropReason;
use crate::spd::PolicyId;
use testudo_base::spi::Spi;
use testudo_wire::packet::PacketBuf;

/// The most packets of one call.
pub const BURST: usize = 64;

/// How a packet reached us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ingress {
    /// Through a port: we are a hop on its way.
    Port,
    /// The same, and it has reached every node of the cluster, because only the policies tell whose
    /// it is: one node keeps it.
    Flooded,
    /// As [`Ingress::Port`], and it came in fragments that were put together: its sender cannot
    /// make it smaller than they were.
    PortJoined,
    /// As [`Ingress::Flooded`], in such fragments.
    FloodedJoined,
    /// From our own kernel, through the TUN, or made here: the TTL is left alone.
    Host,
    /// As [`Ingress::Host`], in such fragments.
    HostJoined,
    /// A piece of a packet that had to be split ([`Verdict::Fragment`]), what comes behind such
    /// ([`Verdict::Behind`]), or an ICMP error that was made here: as [`Ingress::Host`], but what
    /// becomes of its fragments has been decided.
    Piece,
}

impl Ingress {
    /// True if it was sent here.
    #[inline]
    pub(super) fn is_host(self) -> bool {
        matches!(self, Self::Host | Self::HostJoined | Self::Piece)
    }

    /// True if all nodes of the cluster have it.
    #[inline]
    pub(super) fn is_flooded(self) -> bool {
        matches!(self, Self::Flooded | Self::FloodedJoined)
    }

    /// True if it came in fragments.
    #[inline]
    pub(super) fn is_joined(self) -> bool {
        matches!(self, Self::PortJoined | Self::FloodedJoined | Self::HostJoined)
    }
}

/// What is to be done with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not decided yet.
    Pending,
    /// Route it by the IP destination now in the buffer: the outer one after encryption, the inner
    /// one after decryption.
    Forward,
    /// The same with an IPv6 packet of our own, or with one that came to a gateway in fragments,
    /// that is larger than its path takes, in fragments (`wire::ipv6::fragment`): nobody else on
    /// its way would make them (RFC 8200 §4.5).
    ForwardInPieces {
        /// The largest piece, if the link takes that.
        mtu: u16,
    },
    /// Give it to the kernel, through the TUN.
    ToHost,
    /// The buffer now holds an ICMP error about the packet: send it back to where the packet came
    /// from. After `inbound` that is through the tunnel: give it to `outbound` as
    /// [`Ingress::Host`].
    Reply,
    /// Decrypted, and a policy wants it protected on its way on: we are the hub between two
    /// tunnels. Give it to `outbound`, as [`Ingress::Host`], because the TTL has been taken care
    /// of.
    Onward,
    /// Too big, and its pieces may go: split it (`wire::ipv4::fragment`) and give the pieces to
    /// `outbound` again, as [`Ingress::Piece`].
    Fragment {
        /// The largest piece.
        mtu: u16,
    },
    /// Is to leave behind the pieces of packets before it, which are [`Verdict::Fragment`]: give it
    /// to `outbound` again behind them, as [`Ingress::Piece`]. A datagram whose last fragment came
    /// long before the others would not be put together.
    Behind,
    /// Its shard is about to come from another node ([`super::Command::Hold`]): keep it for a
    /// moment, and give it to the pipeline again, the same way, once the shard has come.
    Held,
    /// A fragment, of which nothing can be said before the others are there: put them together
    /// ([`crate::reassembly`]), and give the whole packet back the same way, as
    /// [`Ingress::PortJoined`] and the like.
    Reassemble,
    /// No inbound SA has this SPI. It may be that its peer has the SA already and we do not yet:
    /// keep it for a moment, and give it to `inbound` again if the SA comes, or else say so by
    /// `Dataplane::give_up_early`.
    Early(Spi),
    /// Let it go. It has been counted.
    Drop(DropReason),
}

/// A packet on its way through the pipeline.
#[derive(Debug)]
pub struct Item<'a> {
    /// From the IP header on; the Ethernet header is stripped. Octets behind the IP packet's end
    /// are cut off.
    pub buf: PacketBuf<'a>,
    /// How it reached us.
    pub ingress: Ingress,
    /// The result.
    pub verdict: Verdict,
    /// Set for a decrypted packet that is to be routed and whose SA has a local side that is not
    /// everything: the SA's policy. Such a packet must not go back towards the peer in clear
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
