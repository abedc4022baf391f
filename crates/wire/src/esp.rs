//! ESP's header and trailer (RFC 4303 §2). The cipher between them is applied elsewhere.

use crate::Error;
use crate::ip::Protocol;

/// Octets of SPI and sequence number.
pub const HEADER: usize = 8;
/// Octets of pad length and next header.
pub const TRAILER: usize = 2;
/// The most padding that the pad length can express.
pub const MAX_PAD: usize = 255;

/// 1, 2, 3, ... (RFC 4303 §2.4).
#[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "worked out by the compiler"))]
const PADDING: [u8; MAX_PAD] = {
    let mut padding = [0; MAX_PAD];
    let mut at = 0;
    while at < MAX_PAD {
        padding[at] = at as u8 + 1;
        at += 1;
    }
    padding
};

/// SPI, low sequence number, and body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Esp<'a> {
    /// Security Parameters Index.
    pub spi: u32,
    /// The low 32 bits of the sequence number.
    pub sequence: u32,
    /// IV, ciphertext, ICV.
    pub body: &'a [u8],
}

impl<'a> Esp<'a> {
    /// Reads the header.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let truncated = Error::Truncated { found: bytes.len(), expected: HEADER };
        let (&[s0, s1, s2, s3, n0, n1, n2, n3], body) =
            bytes.split_first_chunk::<HEADER>().ok_or(truncated)?;
        let (spi, sequence) = (u32::from_be_bytes([s0, s1, s2, s3]), u32::from_be_bytes([n0, n1, n2, n3]));
        Ok(Self { spi, sequence, body })
    }
}

/// Octets of padding that bring payload and trailer to a multiple of `align`, a power of two.
#[inline]
pub const fn pad_len(payload: usize, align: usize) -> usize {
    payload.wrapping_add(TRAILER).wrapping_neg() & align.wrapping_sub(1)
}

/// Fills `trailer`: its last two octets become pad length and next header, the others padding.
/// Returns false, and changes nothing, if it is shorter than two octets or has too much padding.
#[inline]
#[must_use]
pub fn write_trailer(trailer: &mut [u8], next_header: Protocol) -> bool {
    let Some((padding, last)) = trailer.split_last_chunk_mut::<TRAILER>() else {
        return false;
    };
    let Ok(pad) = u8::try_from(padding.len()) else {
        return false;
    };
    let mut value = 0;
    for octet in padding {
        value += 1;
        *octet = value;
    }
    *last = [pad, next_header.0];
    true
}

/// Splits decrypted octets into payload and next header, and checks the padding (RFC 4303 §2.4).
#[inline]
pub fn split_trailer(plaintext: &[u8]) -> Result<(&[u8], Protocol), Error> {
    let truncated = Error::Truncated { found: plaintext.len(), expected: TRAILER };
    let (rest, &[pad, next_header]) = plaintext.split_last_chunk::<TRAILER>().ok_or(truncated)?;
    let pad_len = usize::from(pad);
    let Some(payload) = rest.len().checked_sub(pad_len) else {
        return Err(Error::Length { found: rest.len(), expected: pad_len });
    };
    let (payload, padding) = rest.split_at_checked(payload).ok_or(Error::Padding)?;
    if padding.iter().zip(&PADDING).all(|(found, expected)| found == expected) {
        Ok((payload, Protocol(next_header)))
    } else {
        Err(Error::Padding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_the_header() {
        let bytes = [0xc0, 0, 1, 0, 0, 0, 0, 7, 0xaa];
        let esp = Esp { spi: 0xc000_0100, sequence: 7, body: &[0xaa][..] };
        assert_eq!(Esp::parse(&bytes), Ok(esp));
        assert_eq!(Esp::parse(&bytes[..7]), Err(Error::Truncated { found: 7, expected: 8 }));
    }

    #[test]
    fn padding_fills_up_to_the_alignment() {
        for align in [1, 4, 16] {
            for payload in 0..100 {
                let pad = pad_len(payload, align);
                assert!(pad < align && (payload + pad + TRAILER).is_multiple_of(align));
            }
        }
    }

    #[test]
    fn every_pad_length_is_read_back() {
        for pad in 0..=MAX_PAD {
            let mut bytes = b"payload".to_vec();
            bytes.resize(7 + pad + TRAILER, 0xee);
            assert!(write_trailer(&mut bytes[7..], Protocol::IPV4));
            assert_eq!(split_trailer(&bytes), Ok((&b"payload"[..], Protocol::IPV4)));
        }
    }

    #[test]
    fn refuses_trailers_that_cannot_be() {
        assert!(!write_trailer(&mut [0], Protocol::IPV4));
        assert!(!write_trailer(&mut [0; 258], Protocol::IPV4));
        assert_eq!(split_trailer(&[4]), Err(Error::Truncated { found: 1, expected: 2 }));
        assert_eq!(split_trailer(&[1, 2, 3, 4]), Err(Error::Length { found: 2, expected: 3 }));
        assert_eq!(split_trailer(&[1, 2, 4, 3, 4]), Err(Error::Padding));
        assert_eq!(split_trailer(&[0, 4]), Ok((&[][..], Protocol::IPV4)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            if let Ok((payload, next)) = split_trailer(&bytes) {
                let mut again = bytes.clone();
                prop_assert!(write_trailer(&mut again[payload.len()..], next));
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
