//! Fragments from the receiver's view: their datagram, and their part of it (RFC 791 §3.2, RFC 8200
//! §4.5).

use crate::Error;
use crate::checksum::Sum;
use crate::ip::{self, Ecn, Protocol};
use crate::ipv4::Ipv4;
use crate::ipv6::{self, FRAGMENT_HEADER, Ipv6};

/// The identity of a datagram, which its fragments share. For IPv6 it does not include the protocol
/// (RFC 8200 §4.5), which is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Datagram {
    /// Source address.
    pub src: u128,
    /// Destination address.
    pub dst: u128,
    /// Identification.
    pub id: u32,
    /// Protocol; IPv4 only.
    pub protocol: u8,
    /// True for IPv6.
    pub v6: bool,
}

/// A fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The fragment's datagram.
    pub datagram: Datagram,
    /// Offset in the packet of its part of the datagram.
    pub at: u16,
    /// Offset of that part in the datagram.
    pub offset: u16,
    /// Octets of that part.
    pub len: u16,
    /// True if more fragments follow.
    pub more: bool,
    /// DSCP and ECN.
    pub class: u8,
    /// The protocol after the headers that IPv6 does not fragment, and the offset of the octet that
    /// names it.
    next: (Protocol, u16),
}

impl Fragment {
    /// Reads a packet's headers. `None` if it is whole, which an "atomic" fragment is too (RFC
    /// 6946).
    pub fn parse(packet: &[u8]) -> Result<Option<Self>, Error> {
        match ip::version(packet) {
            Some(4) => {
                let ip = Ipv4::parse_verified(packet)?;
                Ok(ip.is_fragment().then(|| Self::of_ipv4(&ip)))
            }
            _ => Self::of_ipv6(&Ipv6::parse(packet)?),
        }
    }

    // Lengths of a packet fit 16 bits, and an IPv4 offset does.
    fn of_ipv4(ip: &Ipv4<'_>) -> Self {
        let datagram = Datagram {
            src: ip.src().to_bits().into(),
            dst: ip.dst().to_bits().into(),
            id: ip.id().into(),
            protocol: ip.protocol().0,
            v6: false,
        };
        Self {
            datagram,
            at: ip.header_len() as u16,
            offset: ip.fragment_offset() as u16,
            len: ip.payload().len() as u16,
            more: ip.mf(),
            class: ip.tos(),
            next: (ip.protocol(), 0),
        }
    }

    fn of_ipv6(ip: &Ipv6<'_>) -> Result<Option<Self>, Error> {
        let Some(found) = ip.find_fragment()? else { return Ok(None) };
        let ipv6::FragmentHeader { offset, more, id } = found.fragment;
        let total = u16::try_from(ip.total_len());
        let total =
            total.map_err(|_| Error::Length { found: ip.total_len(), expected: usize::from(u16::MAX) })?;
        if offset == 0 && !more {
            return Ok(None);
        }
        let datagram =
            Datagram { src: ip.src().to_bits(), dst: ip.dst().to_bits(), id, protocol: 0, v6: true };
        let at = (found.at + FRAGMENT_HEADER) as u16;
        Ok(Some(Self {
            datagram,
            at,
            offset: offset as u16,
            len: total - at,
            more,
            class: ip.traffic_class(),
            next: (found.next, found.named_at as u16),
        }))
    }

    /// End of its part of the datagram.
    pub fn end(&self) -> usize {
        usize::from(self.offset) + usize::from(self.len)
    }

    /// Octets of the whole datagram before its payload, if this is its first fragment.
    pub fn header_len(&self) -> usize {
        usize::from(self.at) - if self.datagram.v6 { FRAGMENT_HEADER } else { 0 }
    }

    /// Writes the header of the whole datagram with a payload of `payload` octets. This must be the
    /// first fragment, in `packet`. Returns the header's octets.
    #[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "`out` is a header that was parsed"))]
    pub fn write_header(
        &self,
        packet: &[u8],
        payload: usize,
        ecn: Ecn,
        out: &mut [u8],
    ) -> Result<usize, Error> {
        let len = self.header_len();
        let found = Error::NoRoom { found: out.len(), expected: len };
        let (out, header) = (out.get_mut(..len).ok_or(found)?, packet.get(..len));
        out.copy_from_slice(header.ok_or(Error::Truncated { found: packet.len(), expected: len })?);
        let limit = usize::from(u16::MAX);
        let too_long = |found| Error::Length { found, expected: limit };
        if self.datagram.v6 {
            let behind = len - ipv6::HEADER + payload;
            let behind = u16::try_from(behind).map_err(|_| too_long(behind))?;
            out[4..6].copy_from_slice(&behind.to_be_bytes());
            out[1] = out[1] & 0xcf | ecn.bits() << 4;
            let (next, at) = self.next;
            if let Some(named) = out.get_mut(usize::from(at)) {
                *named = next.0;
            }
            return Ok(len);
        }
        let total = u16::try_from(len + payload).map_err(|_| too_long(len + payload))?;
        out[1] = out[1] & 0xfc | ecn.bits();
        out[2..4].copy_from_slice(&total.to_be_bytes());
        // A packet that its sender has fragmented may be fragmented again.
        out[6..8].fill(0);
        out[10..12].fill(0);
        let checksum = Sum::new().bytes(out).finish();
        out[10..12].copy_from_slice(&checksum.to_be_bytes());
        Ok(len)
    }
}

/// The mark of a datagram whose fragments have these marks (RFC 3168 §5.3). `None` if it must be
/// dropped: some fragments were marked for congestion, and others cannot carry the mark.
pub fn joined_ecn(marks: impl IntoIterator<Item = Ecn>) -> Option<Ecn> {
    let (mut first, mut ce, mut incapable) = (None, false, false);
    for mark in marks {
        first.get_or_insert(mark);
        ce |= mark == Ecn::Ce;
        incapable |= mark == Ecn::NotEct;
    }
    match (ce, incapable) {
        (true, true) => None,
        (true, false) => Some(Ecn::Ce),
        (false, true) => Some(Ecn::NotEct),
        (false, false) => Some(first.unwrap_or(Ecn::NotEct)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ipv4, ipv6};
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn whole4(payload: &[u8]) -> Vec<u8> {
        let fields = ipv4::Fields {
            tos: 0x28,
            total_len: (ipv4::HEADER + payload.len()) as u16,
            id: 7,
            df: false,
            ttl: 9,
            protocol: Protocol::UDP,
            src: Ipv4Addr::new(192, 0, 2, 1),
            dst: Ipv4Addr::new(192, 0, 2, 2),
        };
        [&fields.to_bytes()[..], payload].concat()
    }

    fn whole6(payload: &[u8]) -> Vec<u8> {
        let fields = ipv6::Fields {
            traffic_class: 0x28,
            payload_len: payload.len() as u16,
            next_header: Protocol::ESP,
            hop_limit: 9,
            src: Ipv6Addr::LOCALHOST,
            dst: Ipv6Addr::UNSPECIFIED,
        };
        [&fields.to_bytes()[..], payload].concat()
    }

    fn pieces(packet: &[u8]) -> Vec<Vec<u8>> {
        let mut out = [0; 2000];
        let mut pieces = Vec::new();
        if packet[0] >> 4 == 4 {
            let mut fragments = ipv4::fragment(packet, 576).unwrap();
            while let Some(len) = fragments.write_next(&mut out).unwrap() {
                pieces.push(out[..len].to_vec());
            }
        } else {
            let mut fragments = ipv6::fragment(packet, 1280, 99).unwrap();
            while let Some(len) = fragments.write_next(&mut out).unwrap() {
                pieces.push(out[..len].to_vec());
            }
        }
        pieces
    }

    #[test]
    fn the_header_of_the_first_fragment_becomes_the_datagrams() {
        let payload: Vec<u8> = (0..3000).map(|at| at as u8).collect();
        for whole in [whole4(&payload), whole6(&payload)] {
            let pieces = pieces(&whole);
            let parsed: Vec<Fragment> =
                pieces.iter().map(|piece| Fragment::parse(piece).unwrap().expect("a fragment")).collect();
            assert!(parsed.iter().all(|piece| piece.datagram == parsed[0].datagram && piece.class == 0x28));
            let mut joined = vec![0; parsed[0].header_len()];
            for (piece, parsed) in pieces.iter().zip(&parsed) {
                assert_eq!(joined.len() - parsed.header_len(), usize::from(parsed.offset));
                joined.extend(&piece[usize::from(parsed.at)..]);
                assert_eq!(joined.len() - parsed.header_len(), parsed.end());
            }
            assert_eq!(parsed.iter().filter(|piece| !piece.more).count(), 1);
            parsed[0].write_header(&pieces[0], payload.len(), Ecn::NotEct, &mut joined).unwrap();
            assert_eq!(joined, whole);
        }
    }

    #[test]
    fn whole_packets_and_atomic_fragments_are_none() {
        assert_eq!(Fragment::parse(&whole4(&[1; 9])), Ok(None));
        assert_eq!(Fragment::parse(&whole6(&[1; 9])), Ok(None));
        let mut atomic = whole6(&[50, 0, 0, 0, 0, 0, 0, 1, 9, 9]);
        atomic[6] = Protocol::FRAGMENT.0;
        assert_eq!(Fragment::parse(&atomic), Ok(None));
        assert!(Fragment::parse(&[]).is_err());
        assert!(Fragment::parse(&whole6(&[1; 9])[..30]).is_err());
    }

    #[test]
    fn headers_that_are_not_fragmented_stay_in_front() {
        let mut packet = whole6(&[[44, 0, 0, 0, 0, 0, 0, 0], [50, 0, 0, 1, 0, 0, 0, 5], [3; 8]].concat());
        packet[6] = Protocol::HOP_BY_HOP.0;
        let first = Fragment::parse(&packet).unwrap().unwrap();
        assert_eq!((first.at, first.offset, first.len, first.more), (56, 0, 8, true));
        let mut out = vec![0; 48];
        assert_eq!(first.write_header(&packet, 3000, Ecn::Ce, &mut out), Ok(48));
        assert_eq!((out[6], out[40], &out[4..6]), (0, 50, &3008_u16.to_be_bytes()[..]));
        assert_eq!(Ecn::of(out[0] << 4 | out[1] >> 4), Ecn::Ce);
        assert!(first.write_header(&packet, 65_528, Ecn::Ce, &mut out).is_err());
        assert!(first.write_header(&packet, 1, Ecn::Ce, &mut out[..47]).is_err());
    }

    #[test]
    fn marks_of_congestion_are_kept_or_the_datagram_is_not() {
        use Ecn::{Ce, Ect0, Ect1, NotEct};
        assert_eq!(joined_ecn([Ect0, Ect0]), Some(Ect0));
        assert_eq!(joined_ecn([Ect1, Ect0]), Some(Ect1));
        assert_eq!(joined_ecn([Ect0, Ce]), Some(Ce));
        assert_eq!(joined_ecn([NotEct, NotEct]), Some(NotEct));
        assert_eq!(joined_ecn([NotEct, Ect0]), Some(NotEct));
        assert_eq!(joined_ecn([NotEct, Ce]), None);
    }
}
