//! TCP headers (RFC 9293), as far as a gateway reads them: ports, flags, the MSS option.

use crate::Error;
use crate::checksum::update_u16;

/// Octets of a header without options.
pub const HEADER: usize = 20;

pub(crate) const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
pub(crate) const PSH: u8 = 0x08;
pub(crate) const ACK: u8 = 0x10;
pub(crate) const ECE: u8 = 0x40;
pub(crate) const CWR: u8 = 0x80;
const OPTION_END: u8 = 0;
const OPTION_NOP: u8 = 1;
const OPTION_MSS: u8 = 2;

/// A header that has been checked against the octets that are there.
#[derive(Clone, Copy, Debug)]
pub struct Tcp<'a> {
    fixed: &'a [u8; HEADER],
    options: &'a [u8],
}

impl<'a> Tcp<'a> {
    /// Reads the header.
    #[inline]
    pub fn parse(segment: &'a [u8]) -> Result<Self, Error> {
        let truncated = Error::Truncated { found: segment.len(), expected: HEADER };
        let (fixed, rest) = segment.split_first_chunk::<HEADER>().ok_or(truncated)?;
        let header = usize::from(fixed[12] >> 4) * 4;
        let Some(options) = header.checked_sub(HEADER) else {
            return Err(Error::Length { found: header, expected: HEADER });
        };
        let truncated = Error::Truncated { found: segment.len(), expected: header };
        Ok(Self { fixed, options: rest.get(..options).ok_or(truncated)? })
    }

    /// Source port.
    #[inline]
    pub fn src_port(&self) -> u16 {
        u16::from_be_bytes([self.fixed[0], self.fixed[1]])
    }

    /// Destination port.
    #[inline]
    pub fn dst_port(&self) -> u16 {
        u16::from_be_bytes([self.fixed[2], self.fixed[3]])
    }

    /// True if the segment opens a connection.
    #[inline]
    pub fn is_syn(&self) -> bool {
        self.fixed[13] & SYN != 0
    }

    /// The maximum segment size option, if there is one.
    pub fn mss(&self) -> Option<u16> {
        let at = mss_offset(self.options)?;
        self.options.get(at..at + 2).and_then(|mss| mss.try_into().ok()).map(u16::from_be_bytes)
    }
}

/// Octets of the header at the front of `segment`, options included.
#[inline]
pub(crate) fn header_len(segment: &[u8]) -> Result<usize, Error> {
    Tcp::parse(segment).map(|tcp| HEADER + tcp.options.len())
}

/// True if a segment opens a connection. Its header may not be whole.
#[inline]
pub fn is_syn(segment: &[u8]) -> bool {
    segment.get(13).is_some_and(|flags| flags & SYN != 0)
}

/// Lowers the MSS option of a segment with SYN to `limit`, and corrects the checksum. Returns true
/// if the segment changed.
///
/// A segment without the option is not changed: its sender is limited to 536 or 1220 octets (RFC
/// 9293 §3.7.1).
#[inline]
pub fn clamp_mss(segment: &mut [u8], limit: u16) -> bool {
    is_syn(segment) && clamp_syn(segment, limit).is_some()
}

fn clamp_syn(segment: &mut [u8], limit: u16) -> Option<()> {
    let at = HEADER + mss_offset(Tcp::parse(segment).ok()?.options)?;
    let field: &mut [u8; 2] = segment.get_mut(at..)?.first_chunk_mut()?;
    let (old, new) = (*field, limit.to_be_bytes());
    if u16::from_be_bytes(old) <= limit {
        return None;
    }
    *field = new;
    // At an odd offset the two octets belong to different words of the sum: swapped, they add the
    // same.
    let (old, new) = match at % 2 {
        0 => (u16::from_be_bytes(old), u16::from_be_bytes(new)),
        _ => (u16::from_le_bytes(old), u16::from_le_bytes(new)),
    };
    let check: &mut [u8; 2] = segment.get_mut(16..)?.first_chunk_mut()?;
    *check = update_u16(u16::from_be_bytes(*check), old, new).to_be_bytes();
    Some(())
}

/// Offset of the MSS option's value in the options. `None` if there is none, or the options are
/// malformed before it.
fn mss_offset(options: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match options.get(at..)? {
            [] | [OPTION_END, ..] => return None,
            [OPTION_NOP, ..] => at += 1,
            [OPTION_MSS, 4, _, _, ..] => return Some(at + 2),
            [OPTION_MSS, ..] => return None,
            [_, len, ..] if *len >= 2 => at += usize::from(*len),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::Sum;
    use proptest::prelude::*;

    fn segment(flags: u8, options: &[u8]) -> Vec<u8> {
        assert!(options.len().is_multiple_of(4));
        let mut bytes = vec![0; HEADER];
        bytes[..4].copy_from_slice(&[0x30, 0x39, 0, 80]);
        bytes[12] = (((HEADER + options.len()) / 4) << 4) as u8;
        bytes[13] = flags;
        bytes.extend(options);
        bytes.extend(b"payload");
        let checksum = Sum::new().bytes(&bytes).finish();
        bytes[16..18].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    #[test]
    fn reads_ports_flags_and_mss() {
        let bytes = segment(SYN, &[1, 1, 2, 4, 5, 0xb4, 0, 0]);
        let tcp = Tcp::parse(&bytes).unwrap();
        assert_eq!((tcp.src_port(), tcp.dst_port(), tcp.is_syn(), tcp.mss()), (12345, 80, true, Some(1460)));
    }

    #[test]
    fn refuses_offsets_that_lie() {
        let mut bytes = segment(SYN, &[]);
        bytes[12] = 0x40;
        assert_eq!(Tcp::parse(&bytes).unwrap_err(), Error::Length { found: 16, expected: 20 });
        bytes[12] = 0xf0;
        assert_eq!(Tcp::parse(&bytes).unwrap_err(), Error::Truncated { found: 27, expected: 60 });
        assert_eq!(Tcp::parse(&bytes[..19]).unwrap_err(), Error::Truncated { found: 19, expected: 20 });
    }

    #[test]
    fn clamps_at_even_and_odd_offsets() {
        for options in [&[2, 4, 5, 0xb4][..], &[1, 2, 4, 5, 0xb4, 0, 0, 0], &[3, 3, 7, 2, 4, 5, 0xb4, 0]] {
            let mut bytes = segment(SYN | 0x10, options);
            assert!(clamp_mss(&mut bytes, 1300));
            assert_eq!(Tcp::parse(&bytes).unwrap().mss(), Some(1300));
            assert!(Sum::new().bytes(&bytes).is_valid(), "{options:?}");
            assert!(!clamp_mss(&mut bytes, 1300), "already there");
        }
    }

    #[test]
    fn leaves_other_segments_alone() {
        for (flags, options) in [
            (0x10, &[2, 4, 5, 0xb4][..]),
            (SYN, &[]),
            (SYN, &[0, 2, 4, 5, 0xb4, 0, 0, 0]),
            (SYN, &[2, 3, 5, 0xb4]),
            (SYN, &[8, 0, 2, 4]),
            (SYN, &[8, 60, 2, 4]),
            (SYN, &[2, 4, 1, 0]),
        ] {
            let mut bytes = segment(flags, options);
            let before = bytes.clone();
            assert!(!clamp_mss(&mut bytes, 1300), "{options:?}");
            assert_eq!(bytes, before);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_safe(mut bytes in prop::collection::vec(any::<u8>(), 0..80), limit in any::<u16>()) {
            if let Some(flags) = bytes.get_mut(13) {
                *flags |= SYN;
            }
            let before = bytes.clone();
            let len = bytes.len();
            let changed = clamp_mss(&mut bytes, limit);
            prop_assert_eq!(changed, bytes != before);
            if changed {
                prop_assert_eq!(Tcp::parse(&bytes).unwrap().mss(), Some(limit));
                // Whatever error the checksum had, it still has.
                let off = |bytes: &[u8]| Sum::new().bytes(bytes).finish() % 0xffff;
                prop_assert_eq!(off(&before), off(&bytes));
            }
            prop_assert_eq!(bytes.len(), len);
        }
    }
}
