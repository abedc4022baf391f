//! Sorts packets to our addresses: ESP, ESP in UDP, AH, IKE, keepalives (RFC 3948 §2, §4.2).

use crate::dataplane::LocalAddrs;
use crate::drops::DropReason;
use crate::sa::Mac;
use std::net::{IpAddr, SocketAddr};
use testudo_wire::ip::{self, Protocol};
use testudo_wire::ipv4::Ipv4;
use testudo_wire::ipv6::Ipv6;
use testudo_wire::udp::{self, Udp};
use testudo_wire::{ah::Ah, esp, esp::Esp};

/// The shortest ESP packet that an algorithm makes: header, one word of padding and trailer, the
/// shortest ICV.
const MIN_ESP: usize = esp::HEADER + 4 + Mac::HmacSha1_96.icv_len();
const KEEPALIVE: [u8; 1] = [0xff];
const NON_ESP_MARKER: [u8; 4] = [0; 4];

/// The kind of an outer packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Form {
    #[default]
    Esp,
    EspInUdp,
    Ah,
}

/// The place of ESP or AH in an outer packet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FoundEsp {
    pub(crate) spi: u32,
    /// The low 32 bits of the sequence number.
    pub(crate) sequence: u32,
    /// Offset of the header of ESP or AH in the outer packet.
    pub(crate) at: u16,
    /// Octets of ESP, from header to ICV; or of AH and everything that follows it.
    pub(crate) len: u16,
    /// Outer DSCP and ECN.
    pub(crate) class: u8,
    pub(crate) form: Form,
    /// Outer source port, 0 without UDP. The address stays in the packet until [`source`] reads it.
    pub(crate) source_port: u16,
}

impl FoundEsp {
    /// Offset of the end of ESP in the outer packet.
    #[inline]
    pub(crate) fn end(&self) -> usize {
        usize::from(self.at) + usize::from(self.len)
    }
}

/// The kind of an outer packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OuterKind {
    Esp,
    /// IKE, which should not have come here: the kernel has the socket.
    Ike,
    /// ESP and AH see no fragments (RFC 4303 §3.4.1, RFC 4302 §3.4.1).
    Fragment,
}

/// Reads the outer headers, and writes the place of an ESP packet to `arrived`, where it is to
/// stay: moving it takes longer than finding it. The UDP checksum is not verified: the ICV protects
/// more, and over IPv4 the checksum may be zero (RFC 3948 §2.1).
#[inline(always)]
pub(crate) fn sort(
    packet: &[u8],
    local: &LocalAddrs,
    udp_port: u16,
    arrived: &mut FoundEsp,
) -> Result<OuterKind, DropReason> {
    match ip::version(packet) {
        Some(4) => {
            let ip = Ipv4::parse_verified(packet).map_err(|_| DropReason::Malformed)?;
            if !local.has_v4(ip.dst()) {
                return Err(DropReason::NotLocal);
            }
            if ip.is_fragment() {
                return fragment(ip.protocol());
            }
            let mut outer = OuterPacket {
                protocol: ip.protocol(),
                payload: ip.payload(),
                at: ip.header_len(),
                class: ip.tos(),
                arrived,
            };
            outer.sort(udp_port)
        }
        _ => {
            let ip = Ipv6::parse(packet).map_err(|_| DropReason::Malformed)?;
            if !local.has_v6(ip.dst()) {
                return Err(DropReason::NotLocal);
            }
            let upper = ip.upper().map_err(|_| DropReason::Malformed)?;
            // An "atomic" fragment is whole (RFC 6946).
            if upper.fragment.is_some_and(|fragment| fragment.offset != 0 || fragment.more) {
                return fragment(upper.protocol);
            }
            let mut outer = OuterPacket {
                protocol: upper.protocol,
                payload: upper.payload,
                at: ip.total_len() - upper.payload.len(),
                class: ip.traffic_class(),
                arrived,
            };
            outer.sort(udp_port)
        }
    }
}

/// The next ESP packet of a train: outer header and SPI equal those of the packet before, and it is
/// `total` octets long. `None` if it is too short.
#[inline]
pub(crate) fn next_of_train(packet: &[u8], total: u16, before: &FoundEsp) -> Option<FoundEsp> {
    let len = total.checked_sub(before.at).filter(|len| usize::from(*len) >= MIN_ESP)?;
    let found = Esp::parse(packet.get(usize::from(before.at)..)?).ok()?;
    Some(FoundEsp { sequence: found.sequence, len, ..*before })
}

/// Reads a packet that [`sort`] has found to be for us and not ESP: perhaps AH. A second pass, so
/// that ESP pays nothing for it.
#[cold]
pub(crate) fn sort_ah(packet: &[u8], arrived: &mut FoundEsp) -> Result<(), DropReason> {
    let (protocol, payload, at, class) = match ip::version(packet) {
        Some(4) => {
            let ip = Ipv4::parse(packet).map_err(|_| DropReason::Malformed)?;
            (ip.protocol(), ip.payload(), ip.header_len(), ip.tos())
        }
        _ => {
            let ip = Ipv6::parse(packet).map_err(|_| DropReason::Malformed)?;
            let upper = ip.upper().map_err(|_| DropReason::Malformed)?;
            (upper.protocol, upper.payload, ip.total_len() - upper.payload.len(), ip.traffic_class())
        }
    };
    if protocol != Protocol::AH {
        return Err(DropReason::NotEsp);
    }
    let found = Ah::parse(payload).map_err(|_| DropReason::AhTooShort)?;
    let fits = |value: usize| u16::try_from(value).map_err(|_| DropReason::Malformed);
    *arrived = FoundEsp {
        spi: found.spi,
        sequence: found.sequence,
        at: fits(at)?,
        len: fits(payload.len())?,
        class,
        form: Form::Ah,
        source_port: 0,
    };
    Ok(())
}

/// Only fragments that may be ESP or AH are reassembled.
#[cold]
fn fragment(protocol: Protocol) -> Result<OuterKind, DropReason> {
    let may_be_ours =
        matches!(protocol, Protocol::ESP | Protocol::UDP | Protocol::AH) || protocol.is_extension();
    if may_be_ours { Ok(OuterKind::Fragment) } else { Err(DropReason::NotEsp) }
}

/// The outer source of a packet in which [`sort`] has found ESP.
pub(crate) fn source(packet: &[u8], arrived: &FoundEsp) -> Option<SocketAddr> {
    ends(packet).map(|(source, _)| SocketAddr::new(source, arrived.source_port))
}

/// Source and destination of a packet.
pub(crate) fn ends(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    Some(match ip::version(packet) {
        Some(4) => {
            let ip = Ipv4::parse(packet).ok()?;
            (ip.src().into(), ip.dst().into())
        }
        _ => {
            let ip = Ipv6::parse(packet).ok()?;
            (ip.src().into(), ip.dst().into())
        }
    })
}

/// The fields that both families have.
struct OuterPacket<'a> {
    protocol: Protocol,
    payload: &'a [u8],
    at: usize,
    class: u8,
    arrived: &'a mut FoundEsp,
}

impl OuterPacket<'_> {
    #[inline]
    fn sort(&mut self, udp_port: u16) -> Result<OuterKind, DropReason> {
        match self.protocol {
            Protocol::ESP => self.esp(self.payload, self.at, None),
            Protocol::UDP => self.udp(udp_port),
            _ => Err(DropReason::NotEsp),
        }
    }

    #[inline]
    fn udp(&mut self, udp_port: u16) -> Result<OuterKind, DropReason> {
        let datagram = Udp::parse(self.payload).map_err(|_| DropReason::MalformedUdp)?;
        if datagram.dst_port != udp_port {
            return Err(DropReason::NotEsp);
        }
        if datagram.payload == KEEPALIVE {
            return Err(DropReason::NatKeepalive);
        }
        if datagram.payload.len() < esp::HEADER {
            return Err(DropReason::EspTooShort);
        }
        if datagram.payload.first_chunk() == Some(&NON_ESP_MARKER) {
            return Ok(OuterKind::Ike);
        }
        let at = self.at + udp::HEADER;
        self.esp(datagram.payload, at, Some(datagram.src_port))
    }

    /// `bytes` are the octets at offset `at`; `port` is the source port, if they came in UDP.
    #[inline]
    fn esp(&mut self, bytes: &[u8], at: usize, port: Option<u16>) -> Result<OuterKind, DropReason> {
        if bytes.len() < MIN_ESP {
            return Err(DropReason::EspTooShort);
        }
        let found = Esp::parse(bytes).map_err(|_| DropReason::EspTooShort)?;
        let fits = |value: usize| u16::try_from(value).map_err(|_| DropReason::Malformed);
        *self.arrived = FoundEsp {
            spi: found.spi,
            sequence: found.sequence,
            at: fits(at)?,
            len: fits(bytes.len())?,
            class: self.class,
            form: if port.is_some() { Form::EspInUdp } else { Form::Esp },
            source_port: port.unwrap_or(0),
        };
        Ok(OuterKind::Esp)
    }
}
