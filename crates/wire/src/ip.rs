//! Common parts of IPv4 and IPv6: protocol numbers, the bits of TTL and traffic class.

/// An IP protocol number, or next header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Protocol(pub u8);

impl Protocol {
    /// IPv6 hop-by-hop options.
    pub const HOP_BY_HOP: Self = Self(0);
    /// ICMP for IPv4.
    pub const ICMP: Self = Self(1);
    /// IPv4 in IP.
    pub const IPV4: Self = Self(4);
    /// TCP.
    pub const TCP: Self = Self(6);
    /// UDP.
    pub const UDP: Self = Self(17);
    /// IPv6 in IP.
    pub const IPV6: Self = Self(41);
    /// IPv6 routing header.
    pub const ROUTING: Self = Self(43);
    /// IPv6 fragment header.
    pub const FRAGMENT: Self = Self(44);
    /// ESP (RFC 4303).
    pub const ESP: Self = Self(50);
    /// AH (RFC 4302).
    pub const AH: Self = Self(51);
    /// ICMPv6.
    pub const ICMPV6: Self = Self(58);
    /// Nothing follows; in ESP, a dummy packet (RFC 4303 §2.6).
    pub const NO_NEXT: Self = Self(59);
    /// IPv6 destination options.
    pub const DEST_OPTIONS: Self = Self(60);
    /// DCCP.
    pub const DCCP: Self = Self(33);
    /// SCTP.
    pub const SCTP: Self = Self(132);
    /// Mobility header (RFC 6275).
    pub const MOBILITY: Self = Self(135);
    /// UDP-Lite.
    pub const UDP_LITE: Self = Self(136);

    /// True for protocols that begin with a source and a destination port.
    #[inline]
    pub fn has_ports(self) -> bool {
        matches!(self, Self::TCP | Self::UDP | Self::DCCP | Self::SCTP | Self::UDP_LITE)
    }

    /// True for the IPv6 extension headers that stand between the IPv6 header and the upper
    /// protocol.
    #[inline]
    pub fn is_extension(self) -> bool {
        matches!(self, Self::HOP_BY_HOP | Self::ROUTING | Self::FRAGMENT | Self::DEST_OPTIONS)
    }
}

/// Explicit congestion notification (RFC 3168 §5), the low two bits of TOS or traffic class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// The transport does not take part.
    NotEct,
    /// ECN-capable transport, codepoint 1.
    Ect1,
    /// ECN-capable transport, codepoint 0.
    Ect0,
    /// Congestion experienced.
    Ce,
}

impl Ecn {
    /// The codepoint in the low two bits of a TOS or traffic class octet.
    #[inline]
    pub fn of(traffic_class: u8) -> Self {
        match traffic_class & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// The two bits.
    #[inline]
    pub fn bits(self) -> u8 {
        match self {
            Self::NotEct => 0,
            Self::Ect1 => 1,
            Self::Ect0 => 2,
            Self::Ce => 3,
        }
    }
}

/// The version field of a packet; `None` if there is no octet.
#[inline]
pub fn version(packet: &[u8]) -> Option<u8> {
    packet.first().map(|first| first >> 4)
}
