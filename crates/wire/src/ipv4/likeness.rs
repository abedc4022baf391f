//! Headers that differ only in fields that differ from packet to packet. Packets of a flow come in
//! trains, and the result for one of them holds for the following ones.

use super::{HEADER, MIN_COMPARED, Sum};

/// Length, identification and checksum differ in each packet. Options are not compared, so there
/// must be none.
const FIRST_MASK: u64 = u64::from_ne_bytes([0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff]);
const SECOND_MASK: u64 = u64::from_ne_bytes([0xff, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff]);

/// The common part of a train's packets: a header without options, except for length,
/// identification and checksum, and the four octets behind it, which are ports if the protocol has
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Likeness([u64; 3]);

impl Likeness {
    /// The likeness of a packet that a parser has accepted. `None` if it has options, or fewer than
    /// four octets behind its header.
    #[inline]
    pub fn of(packet: &[u8]) -> Option<Self> {
        let compared = packet.first_chunk::<MIN_COMPARED>()?;
        let is_whole = compared[0] == 0x45 && usize::from(total_len(compared)) >= MIN_COMPARED;
        is_whole.then(|| Self::read(compared))
    }

    #[inline]
    #[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "as many words as are compared"))]
    fn read(compared: &[u8; MIN_COMPARED]) -> Self {
        let (words, _) = compared.as_chunks::<8>();
        let [first, second, third] = std::array::from_fn(|at| u64::from_ne_bytes(words[at]));
        Self([first & FIRST_MASK, second & SECOND_MASK, third])
    }

    /// Total length of a packet that is like this one, if its own length and checksum are valid: a
    /// parser would accept it, with the same result except for length and identification.
    #[inline]
    pub fn accepts(&self, packet: &[u8]) -> Option<u16> {
        let compared = packet.first_chunk::<MIN_COMPARED>()?;
        let (Self(own), Self(other)) = (self, Self::read(compared));
        let total = total_len(compared);
        let is_alike = (own[0] ^ other[0]) | (own[1] ^ other[1]) | (own[2] ^ other[2]) == 0;
        let is_long = (MIN_COMPARED..=packet.len()).contains(&usize::from(total));
        let is_valid =
            || compared.first_chunk::<HEADER>().is_some_and(|fixed| Sum::new().words(fixed).is_valid());
        (is_alike && is_long && is_valid()).then_some(total)
    }
}

#[inline]
fn total_len(compared: &[u8; MIN_COMPARED]) -> u16 {
    u16::from_be_bytes([compared[2], compared[3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::Protocol;
    use crate::ipv4::{Fields, Ipv4};
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    fn fields(total_len: u16, id: u16) -> Fields {
        let (src, dst) = (Ipv4Addr::new(10, 1, 0, 10), Ipv4Addr::new(10, 2, 0, 20));
        Fields { tos: 0x28, total_len, id, df: true, ttl: 64, protocol: Protocol::UDP, src, dst }
    }

    fn packet(fields: Fields) -> Vec<u8> {
        let mut packet = fields.to_bytes().to_vec();
        packet.extend((0..usize::from(fields.total_len) - HEADER).map(|at| at as u8));
        packet
    }

    /// A parser's result, without length and identification.
    fn found(packet: &[u8]) -> Option<impl PartialEq + std::fmt::Debug + use<>> {
        let ip = Ipv4::parse_verified(packet).ok()?;
        let ports = ip.payload().first_chunk::<4>().copied()?;
        let fragment = (packet[6] & 0x80, ip.df(), ip.mf(), ip.fragment_offset());
        Some((ip.header_len(), ip.tos(), fragment, (ip.ttl(), ip.protocol()), (ip.src(), ip.dst()), ports))
    }

    #[test]
    fn another_length_and_identification_are_accepted() {
        let like = Likeness::of(&packet(fields(100, 1))).unwrap();
        for (len, id) in [(100, 1), (24, 2), (1500, 0xffff)] {
            assert_eq!(like.accepts(&packet(fields(len, id))), Some(len));
        }
        let padded = [packet(fields(30, 1)), vec![0; 16]].concat();
        assert_eq!(like.accepts(&padded), Some(30), "octets of the link behind it do not count");
    }

    #[test]
    fn short_packets_and_options_have_no_likeness() {
        let whole = packet(fields(24, 1));
        let like = Likeness::of(&whole).unwrap();
        assert_eq!((Likeness::of(&whole[..23]), like.accepts(&whole[..23])), (None, None));
        let short = [packet(fields(23, 1)), vec![0; 40]].concat();
        assert_eq!((Likeness::of(&short), like.accepts(&short)), (None, None));
        let longer = packet(fields(100, 1));
        assert_eq!(like.accepts(&longer[..99]), None, "it says more than there is");
        let mut options = packet(fields(100, 1));
        options[0] = 0x46;
        assert_eq!((Likeness::of(&options), like.accepts(&options)), (None, None));
    }

    proptest! {
        #[test]
        fn what_is_accepted_is_what_a_parser_would_find(at in 0..24_usize, flip: u8, mend: bool, len in 24_u16..80) {
            let first = packet(fields(60, 1));
            let mut other = packet(fields(len, 2));
            other[at] ^= flip;
            if mend {
                other[10..12].fill(0);
                let sum = Sum::new().bytes(&other[..HEADER]).finish();
                other[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            let accepted = Likeness::of(&first).unwrap().accepts(&other);
            let (own, found) = (found(&first), found(&other));
            let is_alike = own == found;
            prop_assert_eq!(accepted.is_some(), is_alike, "{:?} {:?}", own, found);
            if let Some(total) = accepted {
                prop_assert_eq!(usize::from(total), Ipv4::parse(&other).unwrap().total_len());
            }
        }
    }
}
