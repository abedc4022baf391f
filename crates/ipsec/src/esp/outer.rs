//! The outer header, prepared once per SA and patched per packet, and the size arithmetic that
//! follows from it.

use crate::error::Error;
use crate::sa::{ChildSaParams, Encapsulation, EspAlgorithm, Mac, Mode, Sizes};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use testudo_crypto::IV_LEN;
use testudo_wire::checksum::Sum;
use testudo_wire::ip::Protocol;
use testudo_wire::ipv6::Ipv6;
use testudo_wire::{esp, ipv4, ipv6, udp};

/// OUTER_TTL and hop limit of outer packets.
const OUTER_TTL: u8 = 64;
/// The longest prefix with an IV of an AEAD: IPv6, UDP, ESP header, IV.
const MAX_AEAD_PREFIX: usize = ipv6::HEADER + udp::HEADER + esp::HEADER + IV_LEN;
/// The longest prefix of any algorithm, with a block for the IV.
const MAX_PREFIX: usize = MAX_AEAD_PREFIX + 8;
/// The smallest inner packet worth a tunnel: what ESP in UDP leaves of the smallest IPv4 path MTU
/// that is believed of a router. So no router can make an SA impossible, whatever its algorithms.
const MIN_INNER_MTU: u16 = 478;

/// The fields of the outer header that differ from packet to packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks {
    /// DSCP and ECN.
    pub(crate) class: u8,
    /// Don't Fragment; only IPv4 has it.
    pub(crate) df: bool,
    /// Identification; only IPv4 has it.
    pub(crate) id: u16,
    pub(crate) sequence: u64,
    pub(crate) iv: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

/// Outer IP header, UDP header if any, and SPI.
#[derive(Debug)]
pub(crate) struct Outer {
    bytes: [u8; MAX_AEAD_PREFIX],
    /// Checksum of the IPv4 header without TOS, length, identification, flags.
    sum: Sum,
    /// Octets before the ciphertext.
    prefix: u8,
    family: Family,
    udp: bool,
    mode: Mode,
    sizes: Sizes,
}

impl Outer {
    pub(crate) fn new(params: &ChildSaParams) -> Result<Self, Error> {
        let udp = params.encapsulation == Encapsulation::Udp;
        let spi = params.spi_out.0.to_be_bytes();
        let sizes = params.algorithm.sizes(params.local.is_ipv6());
        Self::between(params.local, params.remote, udp, params.mode, sizes, spi)
    }

    /// The same header between other ends. `mac` is that of AH, whose header is longer over IPv6.
    pub(crate) fn moved(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        mac: Option<Mac>,
    ) -> Result<Self, Error> {
        let at = self.header_len() + if self.udp { udp::HEADER } else { 0 };
        let spi = self.bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default();
        let sizes = mac.map_or(self.sizes, |mac| EspAlgorithm::Ah(mac).sizes(local.is_ipv6()));
        Self::between(local, remote, self.udp, self.mode, sizes, spi)
    }

    #[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "the longest prefix fits"))]
    fn between(
        local: SocketAddr,
        remote: SocketAddr,
        udp: bool,
        mode: Mode,
        sizes: Sizes,
        spi: [u8; 4],
    ) -> Result<Self, Error> {
        let protocol = carried(udp, sizes)?;
        let (src, dst) = (local.ip(), remote.ip());
        let (header, family): (&[u8], _) = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => (&header_v4(src, dst, protocol), Family::V4),
            (IpAddr::V6(src), IpAddr::V6(dst)) => (&header_v6(src, dst, protocol), Family::V6),
            _ => return Err(Error::OuterFamilies),
        };
        let sum = Sum::new().bytes(header);
        let mut prefix = header.to_vec();
        if udp {
            prefix.extend(udp::header(local.port(), remote.port(), 0));
        }
        prefix.extend(spi);
        prefix.extend([0; 4 + IV_LEN]);
        let mut bytes = [0; MAX_AEAD_PREFIX];
        bytes[..prefix.len()].copy_from_slice(&prefix);
        let before_esp = match (mode, udp) {
            (Mode::Tunnel, true) => header.len() + udp::HEADER,
            (Mode::Tunnel, false) => header.len(),
            (Mode::Transport, true) => udp::HEADER,
            (Mode::Transport, false) => 0,
        };
        let prefix = before_esp as u8 + sizes.before_text;
        Ok(Self { bytes, sum, prefix, family, udp, mode, sizes })
    }

    /// Octets of the outer IP header.
    pub(crate) fn header_len(&self) -> usize {
        if self.family == Family::V6 { ipv6::HEADER } else { ipv4::HEADER }
    }

    /// True if packets keep their own IP header.
    #[inline]
    pub(crate) fn is_transport(&self) -> bool {
        self.mode == Mode::Transport
    }

    /// Octets before the ciphertext: outer header (not in transport mode), UDP, ESP header, IV.
    #[inline]
    pub(crate) fn prefix_len(&self) -> usize {
        usize::from(self.prefix)
    }

    /// The sizes that the algorithms add.
    #[inline(always)]
    pub(crate) fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// The outer source address.
    pub(crate) fn local(&self) -> IpAddr {
        self.ends().0
    }

    /// The outer destination address.
    pub(crate) fn remote(&self) -> IpAddr {
        self.ends().1
    }

    /// Source and destination of the outer header.
    fn ends(&self) -> (IpAddr, IpAddr) {
        #[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "the header has both addresses"))]
        fn addr<const LEN: usize>(bytes: &[u8; MAX_AEAD_PREFIX], at: usize) -> [u8; LEN] {
            std::array::from_fn(|n| bytes[at + n])
        }
        match self.family {
            Family::V4 => (addr::<4>(&self.bytes, 12).into(), addr::<4>(&self.bytes, 16).into()),
            Family::V6 => (addr::<16>(&self.bytes, 8).into(), addr::<16>(&self.bytes, 24).into()),
        }
    }

    /// Octets that the SA adds, without padding.
    pub(crate) fn overhead(&self) -> Overhead {
        let Sizes { icv, align, behind, .. } = self.sizes;
        let trailer = u16::from(behind - icv);
        let octets = u16::from(self.prefix) + u16::from(icv);
        Overhead { octets, clear: self.clear_len() as u16, align: align.into(), trailer }
    }

    /// Octets of a packet that are not encrypted, and so not padded: in transport mode an IP header
    /// without options.
    fn clear_len(&self) -> usize {
        if self.is_transport() { self.header_len() } else { 0 }
    }

    /// The largest packet with this many clear octets, if `mtu` is the largest one without options.
    pub(crate) fn mtu_behind(&self, clear: usize, mtu: u16) -> u16 {
        let trailer = usize::from(self.sizes.behind - self.sizes.icv);
        let room = usize::from(mtu) + trailer;
        let text = room.saturating_sub(clear) & !(usize::from(self.sizes.align) - 1);
        (clear + text).saturating_sub(trailer) as u16
    }

    /// True if there is a UDP header.
    pub(crate) fn is_udp(&self) -> bool {
        self.udp
    }

    /// True if the outer header is IPv6.
    #[inline]
    pub(crate) fn is_ipv6(&self) -> bool {
        self.family == Family::V6
    }

    /// True if the outer header is IPv6 and has a UDP header, whose checksum must be computed at
    /// the end.
    #[inline]
    pub(crate) fn needs_checksum(&self) -> bool {
        self.udp && self.is_ipv6()
    }

    /// Writes the [`Self::prefix_len`] octets behind the IP header in transport mode, for a payload
    /// that makes the datagram `len` octets long.
    pub(crate) fn write_behind_header(&self, prefix: &mut [u8], len: u16, marks: &Marks) {
        let own = self.bytes.get(self.header_len()..).unwrap_or_default();
        prefix.fill(0);
        prefix.iter_mut().zip(own).for_each(|(to, from)| *to = *from);
        if self.udp {
            put_u16(prefix, 4, len);
        }
        let sequence_at = if self.udp { udp::HEADER + 4 } else { 4 };
        let own = [&(marks.sequence as u32).to_be_bytes()[..], &marks.iv.to_be_bytes()];
        let own = own.into_iter().flatten();
        prefix.iter_mut().skip(sequence_at).zip(own).for_each(|(to, from)| *to = *from);
    }

    /// True if it has AH in place of ESP.
    pub(crate) fn is_ah(&self) -> bool {
        self.sizes.is_ah()
    }

    /// The protocol in the IP header.
    pub(crate) fn protocol(&self) -> Protocol {
        match (self.udp, self.is_ah()) {
            (true, _) => Protocol::UDP,
            (false, true) => Protocol::AH,
            (false, false) => Protocol::ESP,
        }
    }

    /// Writes the prefix of an AEAD. `prefix` is [`Self::prefix_len`] octets, `total` those of the
    /// outer packet.
    #[inline(always)]
    pub(crate) fn write(&self, prefix: &mut [u8], total: u16, marks: &Marks) {
        match (self.family, self.udp) {
            (Family::V4, false) => self.write_v4::<{ ipv4::HEADER + 16 }>(prefix, total, marks),
            (Family::V4, true) => self.write_v4::<{ ipv4::HEADER + 24 }>(prefix, total, marks),
            (Family::V6, false) => self.write_v6::<{ ipv6::HEADER + 16 }>(prefix, total, marks),
            (Family::V6, true) => self.write_v6::<{ ipv6::HEADER + 24 }>(prefix, total, marks),
        }
    }

    /// Writes the prefix of any algorithm: an IV longer than an AEAD's ends with zeros, and a
    /// shorter one is cut.
    pub(crate) fn write_any(&self, prefix: &mut [u8], total: u16, marks: &Marks) {
        let mut bytes = [0; MAX_PREFIX];
        self.write(&mut bytes, total, marks);
        prefix.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    }

    /// The prepared octets, ending with sequence number and IV.
    #[inline]
    #[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "the compiler has checked `LEN`"))]
    fn patched<const LEN: usize>(&self, marks: &Marks) -> [u8; LEN] {
        const { assert!(LEN <= MAX_AEAD_PREFIX && LEN > 12) };
        let mut bytes: [u8; LEN] = std::array::from_fn(|at| self.bytes[at]);
        bytes[LEN - 12..LEN - 8].copy_from_slice(&(marks.sequence as u32).to_be_bytes());
        bytes[LEN - 8..].copy_from_slice(&marks.iv.to_be_bytes());
        bytes
    }

    #[inline]
    fn write_v4<const LEN: usize>(&self, prefix: &mut [u8], total: u16, marks: &Marks) {
        const DF: u16 = 0x4000;
        let mut bytes = self.patched::<LEN>(marks);
        let flags = if marks.df { DF } else { 0 };
        let sum = self.sum.u16(u16::from(marks.class)).u16(total).u16(marks.id).u16(flags);
        bytes[1] = marks.class;
        bytes[2..4].copy_from_slice(&total.to_be_bytes());
        bytes[4..6].copy_from_slice(&marks.id.to_be_bytes());
        bytes[6..8].copy_from_slice(&flags.to_be_bytes());
        bytes[10..12].copy_from_slice(&sum.finish().to_be_bytes());
        if self.udp {
            put_u16(&mut bytes, ipv4::HEADER + 4, total.wrapping_sub(ipv4::HEADER as u16));
        }
        copy(prefix, &bytes);
    }

    #[inline]
    fn write_v6<const LEN: usize>(&self, prefix: &mut [u8], total: u16, marks: &Marks) {
        let mut bytes = self.patched::<LEN>(marks);
        let payload = total.wrapping_sub(ipv6::HEADER as u16);
        bytes[0] = 0x60 | marks.class >> 4;
        bytes[1] = marks.class << 4;
        bytes[4..6].copy_from_slice(&payload.to_be_bytes());
        if self.udp {
            put_u16(&mut bytes, ipv6::HEADER + 4, payload);
        }
        copy(prefix, &bytes);
    }

    /// Computes the UDP checksum of a finished outer packet, if IPv6 requires it.
    #[inline]
    pub(crate) fn fill_checksum(&self, packet: &mut [u8]) {
        // In transport mode extension headers may precede it.
        let at = match self.mode {
            Mode::Tunnel => Some(ipv6::HEADER),
            Mode::Transport => udp_at(packet),
        };
        if let (IpAddr::V6(src), IpAddr::V6(dst)) = self.ends()
            && let Some(datagram) = at.and_then(|at| packet.get_mut(at..))
        {
            // The datagram fits: its length was written into 16 bits before.
            let _fits = udp::fill_checksum_v6(src, dst, datagram);
        }
    }
}

/// Octets that an outer packet has around the inner one, without padding and trailer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overhead {
    octets: u16,
    clear: u16,
    align: u16,
    trailer: u16,
}

impl Overhead {
    /// The largest inner packet if other headers stand around the SA's: never less than the
    /// smallest that is worth a tunnel.
    pub(crate) fn inner_mtu_within(self, path_mtu: u16) -> u16 {
        self.inner_mtu(path_mtu).unwrap_or(MIN_INNER_MTU)
    }

    /// The largest inner packet whose outer packet is no larger than `path_mtu`.
    pub(crate) fn inner_mtu(self, path_mtu: u16) -> Result<u16, Error> {
        let Self { octets, clear, align, trailer } = self;
        let text = path_mtu.saturating_sub(octets + clear) & !(align - 1);
        let inner = (clear + text).saturating_sub(trailer);
        if inner < MIN_INNER_MTU {
            let least = MIN_INNER_MTU + trailer - clear;
            let expected = least.next_multiple_of(align) + octets + clear;
            return Err(Error::PathMtu { found: path_mtu, expected });
        }
        Ok(inner)
    }
}

/// The protocol in the IP header.
fn carried(udp: bool, sizes: Sizes) -> Result<Protocol, Error> {
    match (udp, sizes.is_ah()) {
        (true, true) => Err(Error::AhInUdp),
        (true, false) => Ok(Protocol::UDP),
        (false, true) => Ok(Protocol::AH),
        (false, false) => Ok(Protocol::ESP),
    }
}

/// Offset of the UDP datagram in an IPv6 packet.
fn udp_at(packet: &[u8]) -> Option<usize> {
    let ip = Ipv6::parse(packet).ok()?;
    Some(ip.total_len() - ip.upper().ok()?.payload.len())
}

#[inline]
fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(place) = bytes.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

#[inline]
fn copy<const LEN: usize>(to: &mut [u8], from: &[u8; LEN]) {
    if let Some(to) = to.first_chunk_mut::<LEN>() {
        *to = *from;
    }
}

/// The header, with zero in every field that changes from packet to packet.
fn header_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: Protocol) -> [u8; ipv4::HEADER] {
    let fields = ipv4::Fields { tos: 0, total_len: 0, id: 0, df: false, ttl: OUTER_TTL, protocol, src, dst };
    let mut bytes = fields.to_bytes();
    bytes[10..12].fill(0);
    bytes
}

fn header_v6(src: Ipv6Addr, dst: Ipv6Addr, protocol: Protocol) -> [u8; ipv6::HEADER] {
    let fields = ipv6::Fields {
        traffic_class: 0,
        payload_len: 0,
        next_header: protocol,
        hop_limit: OUTER_TTL,
        src,
        dst,
    };
    fields.to_bytes()
}

#[cfg(test)]
mod tests;
