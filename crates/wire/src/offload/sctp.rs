//! The checksum of SCTP that a sender's kernel has left open: a CRC32c (RFC 9260 §6.8, appendix A).
//!
//! Other than that of TCP it has no pseudo-header, and the open field is zero. One packet in 2^32
//! has a finished checksum of zero; completing it gives the octets that were there. Who has agreed
//! with its peer to send zero (RFC 9653) still has to accept a right checksum.

/// Octets of the common header.
const HEADER: usize = 12;
/// Where the checksum stands in it.
const CHECKSUM: usize = 8;
const FIELD: usize = 4;

/// True if a packet, from its common header on, has an open checksum.
pub(super) fn is_open(packet: &[u8]) -> bool {
    packet.len() >= HEADER && packet.get(CHECKSUM..CHECKSUM + FIELD) == Some(&[0; FIELD])
}

/// Fills it in. True if the packet has changed.
pub(super) fn fill(packet: &mut [u8]) -> bool {
    let checksum = crc32c(packet);
    let Some(field) = packet.get_mut(CHECKSUM..).and_then(<[u8]>::first_chunk_mut) else { return false };
    // Appendix A: the octet of the lowest bits is sent first.
    *field = checksum.to_le_bytes();
    checksum != 0
}

#[expect(clippy::indexing_slicing, reason = "an octet is below the table's length")]
fn crc32c(octets: &[u8]) -> u32 {
    !octets.iter().fold(u32::MAX, |crc, octet| (crc >> 8) ^ TABLE[usize::from(crc as u8 ^ octet)])
}

/// What each value of an octet does to the remainder.
#[expect(clippy::indexing_slicing, reason = "the compiler has checked it")]
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut value = 0;
    while value < 256 {
        table[value] = remainder(value as u32);
        value += 1;
    }
    table
};

const fn remainder(mut crc: u32) -> u32 {
    /// The polynomial of Castagnoli, its lowest power first.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut bit = 0;
    while bit < 8 {
        crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
        bit += 1;
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720, appendix B.4.
    #[test]
    fn published_checksums_come_out() {
        let rising: Vec<u8> = (0..32).collect();
        let falling: Vec<u8> = (0..32).rev().collect();
        let cases = [
            (vec![0; 32], 0x8a91_36aa),
            (vec![0xff; 32], 0x62a8_ab43),
            (rising, 0x46dd_794e),
            (falling, 0x113f_db5c),
        ];
        for (octets, expected) in cases {
            assert_eq!(crc32c(&octets), expected, "{octets:?}");
        }
    }
}
