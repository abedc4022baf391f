//! The origin of packets, and what else is known of them besides their octets.

use super::classify::Direction;
use crate::frame::Frame;
use testudo_ipsec::dataplane::Ingress;
use testudo_ipsec::spd::PolicyId;

/// Where a packet comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// From the port at this place. `joined`: it came in fragments and was reassembled.
    Port { place: u8, copies: Copies, joined: bool },
    /// From the kernel.
    Tun,
    /// From the kernel, in fragments that were reassembled.
    TunJoined,
    /// From another node, which has relayed it as it had come there: by the port at this place.
    Relayed { place: u8, ingress: Ingress },
    /// From one tunnel, on its way into another. `inside`: what holds if the policies let it pass
    /// in clear instead. `joined`: it came in fragments and was reassembled.
    Tunnel { inside: Option<Inside>, joined: bool },
    /// From the pipeline or the worker: a piece of a packet, or an ICMP error.
    Again,
}

/// Which other nodes of the cluster have a packet from a port too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copies {
    /// The filters of the others have dropped it, or it came to this node alone.
    Here,
    /// All nodes have received it, and none of their filters could decide.
    Flooded,
    /// As [`Copies::Here`], and the octet before the packet is the lane that it has taken in turn.
    InTurn,
}

/// A decrypted packet must not leave by default towards the peer of this policy
/// ([`Item::inside`]), nor by the port by which it came.
///
/// [`Item::inside`]: testudo_ipsec::dataplane::Item::inside
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Inside {
    pub(super) policy: PolicyId,
    /// The place of that port, if it is known.
    pub(super) place: Option<u8>,
}

impl Source {
    /// The ingress that the pipeline is told.
    #[inline]
    pub(super) fn ingress(self) -> Ingress {
        match self {
            Self::Port { copies: Copies::Here, joined: false, .. } => Ingress::Port,
            Self::Port { copies: Copies::InTurn, joined: false, .. } => Ingress::InTurn,
            Self::Port { copies: Copies::Here | Copies::InTurn, joined: true, .. } => Ingress::PortJoined,
            Self::Port { copies: Copies::Flooded, joined: false, .. } => Ingress::Flooded,
            Self::Port { copies: Copies::Flooded, joined: true, .. } => Ingress::FloodedJoined,
            Self::Relayed { ingress, .. } => ingress,
            Self::Tun | Self::Tunnel { joined: false, .. } => Ingress::Host,
            Self::TunJoined | Self::Tunnel { joined: true, .. } => Ingress::HostJoined,
            Self::Again => Ingress::Piece,
        }
    }

    /// The source of the packet that fragments from this source have become.
    pub(super) fn joined(self) -> Self {
        match self {
            Self::Port { place, copies, .. } => Self::Port { place, copies, joined: true },
            Self::Relayed { place, ingress } => Self::Relayed { place, ingress: ingress.joined() },
            Self::Tun | Self::TunJoined => Self::TunJoined,
            Self::Tunnel { inside, .. } => Self::Tunnel { inside, joined: true },
            Self::Again => Self::Again,
        }
    }

    /// The source of a packet that was inside one from this source. `None` unless that came by a
    /// port.
    pub(super) fn relayed(self, ingress: Ingress) -> Option<Self> {
        match self {
            Self::Port { place, .. } => Some(Self::Relayed { place, ingress }),
            _ => None,
        }
    }

    /// What holds for a packet that was decrypted, if it came from here and this is its policy; or
    /// for one that is still in clear after it came out of a tunnel on its way into another.
    #[inline]
    pub(super) fn inside(self, policy: Option<PolicyId>, is_clear: bool) -> Option<Inside> {
        match (policy, self) {
            (Some(policy), Self::Port { place, .. }) => Some(Inside { policy, place: Some(place) }),
            (Some(policy), _) => Some(Inside { policy, place: None }),
            (None, Self::Tunnel { inside, .. }) if is_clear => inside,
            (None, _) => None,
        }
    }

    pub(super) fn is_tun(self) -> bool {
        matches!(self, Self::Tun | Self::TunJoined)
    }
}

/// A packet that is kept for later, with its source and direction.
#[derive(Debug)]
pub(super) struct KeptPacket {
    pub(super) frame: Frame,
    pub(super) source: Source,
    pub(super) direction: Direction,
}

/// What is known of a packet besides its octets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context {
    pub(super) source: Source,
    pub(super) direction: Direction,
    /// It is not encrypted: it was decrypted, or bypassed.
    pub(super) clear: bool,
    /// It was decrypted, and must not leave towards its peer by default.
    pub(super) inside: Option<Inside>,
}
