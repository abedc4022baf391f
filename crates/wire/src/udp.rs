//! UDP headers (RFC 768).

use crate::Error;
use crate::checksum::Sum;
use crate::ip::Protocol;
use std::net::Ipv6Addr;

/// Octets of the header.
pub const HEADER: usize = 8;

/// A datagram whose length has been checked against the octets that are there. The checksum is not
/// verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp<'a> {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// The payload; octets behind the length field's end are ignored.
    pub payload: &'a [u8],
}

impl<'a> Udp<'a> {
    /// Reads the header.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let truncated = Error::Truncated { found: bytes.len(), expected: HEADER };
        let &[s0, s1, d0, d1, l0, l1, _, _] = bytes.first_chunk::<HEADER>().ok_or(truncated)?;
        let len = usize::from(u16::from_be_bytes([l0, l1]));
        if len < HEADER {
            return Err(Error::Length { found: len, expected: HEADER });
        }
        let truncated = Error::Truncated { found: bytes.len(), expected: len };
        let payload = bytes.get(HEADER..len).ok_or(truncated)?;
        Ok(Self { src_port: u16::from_be_bytes([s0, s1]), dst_port: u16::from_be_bytes([d0, d1]), payload })
    }
}

/// The header's octets, checksum zero: over IPv4 that means none (RFC 768).
#[inline]
pub fn header(src_port: u16, dst_port: u16, len: u16) -> [u8; HEADER] {
    let ([s0, s1], [d0, d1], [l0, l1]) = (src_port.to_be_bytes(), dst_port.to_be_bytes(), len.to_be_bytes());
    [s0, s1, d0, d1, l0, l1, 0, 0]
}

/// Computes the checksum of `datagram` (header and payload) over IPv6 and writes it, as RFC 8200
/// §8.1 requires. Returns false, and changes nothing, if there is no header or the datagram is too
/// long for one.
#[inline]
#[must_use]
pub fn fill_checksum_v6(src: Ipv6Addr, dst: Ipv6Addr, datagram: &mut [u8]) -> bool {
    let Ok(len) = u16::try_from(datagram.len()) else {
        return false;
    };
    let Some(field) = datagram.get_mut(6..HEADER) else {
        return false;
    };
    field.fill(0);
    let sum = Sum::new().pseudo_v6(src, dst, Protocol::UDP.0, u32::from(len)).bytes(datagram);
    if let Some(field) = datagram.get_mut(6..HEADER) {
        field.copy_from_slice(&sum.finish_udp().to_be_bytes());
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_it_wrote() {
        let mut bytes = header(4500, 500, 11).to_vec();
        bytes.extend(b"abc, trailing");
        let expected = Udp { src_port: 4500, dst_port: 500, payload: &b"abc"[..] };
        assert_eq!(Udp::parse(&bytes), Ok(expected));
    }

    #[test]
    fn refuses_lengths_that_lie() {
        let short = header(1, 2, 7);
        assert_eq!(Udp::parse(&short), Err(Error::Length { found: 7, expected: 8 }));
        let long = header(1, 2, 9);
        assert_eq!(Udp::parse(&long), Err(Error::Truncated { found: 8, expected: 9 }));
        assert_eq!(Udp::parse(&long[..7]), Err(Error::Truncated { found: 7, expected: 8 }));
    }

    #[test]
    fn no_checksum_without_a_header() {
        let any = Ipv6Addr::LOCALHOST;
        assert!(!fill_checksum_v6(any, any, &mut [0; 7]));
        assert!(!fill_checksum_v6(any, any, &mut vec![0; 65_536]));
    }

    proptest! {
        #[test]
        fn the_checksum_verifies(
            src in any::<u128>(), dst in any::<u128>(), payload in prop::collection::vec(any::<u8>(), 0..1500)
        ) {
            let (src, dst) = (Ipv6Addr::from_bits(src), Ipv6Addr::from_bits(dst));
            let len = (HEADER + payload.len()) as u16;
            let mut bytes = header(4500, 4500, len).to_vec();
            bytes.extend(&payload);
            prop_assert!(fill_checksum_v6(src, dst, &mut bytes));
            prop_assert_ne!(&bytes[6..8], &[0, 0]);
            prop_assert!(Sum::new().pseudo_v6(src, dst, 17, u32::from(len)).bytes(&bytes).is_valid());
        }
    }
}
