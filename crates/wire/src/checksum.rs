//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624).

use std::net::{Ipv4Addr, Ipv6Addr};

/// A one's complement sum in progress. Kept in native byte order, which does not matter (RFC 1071
/// §2(B)).
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// Nothing summed yet.
    #[inline]
    pub const fn new() -> Self {
        Self(0)
    }

    /// Adds octets that begin at an even offset of what is summed; an odd octet at their end is
    /// padded with zero.
    #[inline]
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        let (eights, rest) = bytes.as_chunks::<8>();
        let mut sum = self.0;
        for eight in eights {
            let value = u64::from_ne_bytes(*eight);
            // Two halves of 32 bits: the carries of 2^31 such additions fit above them.
            sum = sum.wrapping_add(value >> 32).wrapping_add(value & 0xffff_ffff);
        }
        let (pairs, odd) = rest.as_chunks::<2>();
        for pair in pairs {
            sum = sum.wrapping_add(u64::from(u16::from_ne_bytes(*pair)));
        }
        if let [last] = odd {
            sum = sum.wrapping_add(u64::from(u16::from_ne_bytes([*last, 0])));
        }
        Self(fold32(sum))
    }

    /// Adds a header of known length, a multiple of four octets: no loop.
    #[inline]
    #[must_use]
    pub fn words<const LEN: usize>(self, bytes: &[u8; LEN]) -> Self {
        const { assert!(LEN.is_multiple_of(4)) };
        let (words, _) = bytes.as_chunks::<4>();
        let add = |sum: u64, word: &[u8; 4]| sum.wrapping_add(u64::from(u32::from_ne_bytes(*word)));
        Self(words.iter().fold(self.0, add))
    }

    /// Adds one 16-bit field.
    #[inline]
    #[must_use]
    pub const fn u16(self, value: u16) -> Self {
        Self(self.0.wrapping_add(value.to_be() as u64))
    }

    /// Adds one 32-bit field.
    #[inline]
    #[must_use]
    pub const fn u32(self, value: u32) -> Self {
        Self(self.0.wrapping_add(value.to_be() as u64))
    }

    /// Adds the pseudo-header of UDP and TCP over IPv4 (RFC 768).
    #[inline]
    #[must_use]
    pub fn pseudo_v4(self, src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, length: u16) -> Self {
        self.bytes(&src.octets()).bytes(&dst.octets()).u16(u16::from(protocol)).u16(length)
    }

    /// Adds the pseudo-header of upper protocols over IPv6 (RFC 8200 §8.1).
    #[inline]
    #[must_use]
    pub fn pseudo_v6(self, src: Ipv6Addr, dst: Ipv6Addr, protocol: u8, length: u32) -> Self {
        self.bytes(&src.octets()).bytes(&dst.octets()).u32(length).u16(u16::from(protocol))
    }

    /// The sum itself, folded to 16 bits.
    #[inline]
    fn folded(self) -> u16 {
        let mut sum = fold32(self.0);
        sum = (sum >> 16) + (sum & 0xffff);
        sum = (sum >> 16) + (sum & 0xffff);
        sum = (sum >> 16) + (sum & 0xffff);
        u16::from_be(sum as u16)
    }

    /// The value of the checksum field: the complement of the sum.
    #[inline]
    pub fn finish(self) -> u16 {
        !self.folded()
    }

    /// The checksum field for UDP, whose zero means "no checksum" (RFC 768).
    #[inline]
    pub fn finish_udp(self) -> u16 {
        match self.finish() {
            0 => 0xffff,
            value => value,
        }
    }

    /// True if the sum, including its checksum field, is valid.
    #[inline]
    pub fn is_valid(self) -> bool {
        self.folded() == 0xffff
    }
}

/// Folds the carries above 32 bits, so that further additions cannot overflow.
#[inline]
const fn fold32(sum: u64) -> u64 {
    (sum >> 32) + (sum & 0xffff_ffff)
}

/// The checksum after a 16-bit field has changed (RFC 1624 §3, equation 3).
#[inline]
pub fn update_u16(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 1071 §1, octet by octet.
    fn plain(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::new().bytes(&bytes).finish(), !0xddf2);
    }

    #[test]
    fn the_example_of_rfc_1624() {
        // §4: 0xdd2f with 0x5555 changed to 0x3285 must give 0x0000, not 0xffff.
        assert_eq!(update_u16(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn udp_never_sends_zero() {
        assert_eq!(Sum::new().u16(0xffff).finish(), 0);
        assert_eq!(Sum::new().u16(0xffff).finish_udp(), 0xffff);
        assert_eq!(Sum::new().u16(1).finish_udp(), 0xfffe);
    }

    #[test]
    fn carries_are_not_lost_in_a_long_sum() {
        let ones = vec![0xff; 65_535];
        assert_eq!(Sum::new().bytes(&ones).finish(), plain(&ones));
    }

    proptest! {
        #[test]
        fn sums_like_the_plain_model(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            prop_assert_eq!(Sum::new().bytes(&bytes).finish(), plain(&bytes));
        }

        #[test]
        fn parts_sum_like_the_whole(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..100) {
            let (head, tail) = bytes.split_at((at * 2).min(bytes.len() & !1));
            prop_assert_eq!(Sum::new().bytes(head).bytes(tail).finish(), plain(&bytes));
        }

        #[test]
        fn fields_sum_like_bytes(a in any::<u16>(), b in any::<u32>(), c in any::<u128>(), d in any::<u32>()) {
            let mut bytes = a.to_be_bytes().to_vec();
            bytes.extend(b.to_be_bytes());
            prop_assert_eq!(Sum::new().u16(a).u32(b).finish(), plain(&bytes));
            prop_assert_eq!(Sum::new().words(&c.to_be_bytes()).finish(), plain(&c.to_be_bytes()));
            let (src, dst) = (Ipv6Addr::from_bits(c), Ipv6Addr::from_bits(!c));
            let mut pseudo = src.octets().to_vec();
            pseudo.extend(dst.octets());
            pseudo.extend(d.to_be_bytes());
            pseudo.extend([0, 0, 0, 17]);
            prop_assert_eq!(Sum::new().pseudo_v6(src, dst, 17, d).finish(), plain(&pseudo));
            let (src, dst) = (Ipv4Addr::from_bits(b), Ipv4Addr::from_bits(d));
            let mut pseudo = src.octets().to_vec();
            pseudo.extend(dst.octets());
            pseudo.extend([0, 6]);
            pseudo.extend(a.to_be_bytes());
            prop_assert_eq!(Sum::new().pseudo_v4(src, dst, 6, a).finish(), plain(&pseudo));
        }

        #[test]
        fn incremental_update_stays_valid(mut bytes in prop::collection::vec(any::<u8>(), 20), at in 1usize..9, new in any::<u16>()) {
            // The field at 0 is the checksum. The all-zero message is the one case in which RFC
            // 1624 cannot know which of the two zeros is meant.
            bytes[19] |= 1;
            bytes[0] = 0;
            bytes[1] = 0;
            let check = plain(&bytes);
            let at = at * 2;
            let old = u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap());
            bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
            bytes[..2].copy_from_slice(&update_u16(check, old, new).to_be_bytes());
            prop_assert!(Sum::new().bytes(&bytes).is_valid());
        }
    }
}
