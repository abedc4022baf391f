//! SipHash (Aumasson and Bernstein, 2012): a keyed hash, so that strangers cannot choose a home for
//! their packets. `crates/fastpath/bpf/siphash.h` computes the same.

use crate::spi::Shard;
use std::net::IpAddr;

/// The key by which packets without an SPI of ours find their homes. All nodes have the same key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SipKey {
    k0: u64,
    k1: u64,
}

impl SipKey {
    /// A key from 16 octets that nobody outside the cluster knows.
    pub fn new(octets: [u8; 16]) -> Self {
        let words = u128::from_le_bytes(octets);
        Self { k0: words as u64, k1: (words >> 64) as u64 }
    }

    /// Both halves, in the filter's form.
    pub fn words(self) -> [u64; 2] {
        [self.k0, self.k1]
    }

    /// The home of an IKE SA that a peer begins, by the peer's SPI.
    pub fn initiator(self, spi: [u8; 8]) -> Shard {
        self.shard(&spi)
    }

    /// The home of an initiation, by its name.
    pub fn name(self, name: &str) -> Shard {
        self.shard(name.as_bytes())
    }

    /// The home of the traffic between two addresses, equal in both directions.
    pub fn pair(self, a: IpAddr, b: IpAddr) -> Shard {
        let (low, high) = if a <= b { (a, b) } else { (b, a) };
        match (low, high) {
            (IpAddr::V4(low), IpAddr::V4(high)) => self.shard([low.octets(), high.octets()].as_flattened()),
            (IpAddr::V6(low), IpAddr::V6(high)) => self.shard([low.octets(), high.octets()].as_flattened()),
            // No packet has addresses of two families.
            _ => Shard(0),
        }
    }

    fn shard(self, bytes: &[u8]) -> Shard {
        Shard(self.hash(bytes) as u8)
    }

    /// SipHash-2-4.
    pub fn hash(self, bytes: &[u8]) -> u64 {
        self.rounds::<2, 4>(bytes)
    }

    /// SipHash-1-3, for lanes: every node computes it for every clear packet of a spread tunnel, and
    /// nobody outside sees anything of the result.
    pub fn short_hash(self, bytes: &[u8]) -> u64 {
        self.rounds::<1, 3>(bytes)
    }

    /// `C` rounds for each word, and `D` at the end.
    fn rounds<const C: usize, const D: usize>(self, bytes: &[u8]) -> u64 {
        let mut state = SipState([
            self.k0 ^ 0x736f_6d65_7073_6575,
            self.k1 ^ 0x646f_7261_6e64_6f6d,
            self.k0 ^ 0x6c79_6765_6e65_7261,
            self.k1 ^ 0x7465_6462_7974_6573,
        ]);
        let (words, rest) = bytes.as_chunks();
        words.iter().for_each(|word| state.absorb::<C>(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        last[7] = bytes.len() as u8;
        state.absorb::<C>(u64::from_le_bytes(last));
        state.finish::<D>()
    }
}

impl std::fmt::Debug for SipKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SipKey(..)")
    }
}

struct SipState([u64; 4]);

impl SipState {
    fn absorb<const ROUNDS: usize>(&mut self, word: u64) {
        self.0[3] ^= word;
        (0..ROUNDS).for_each(|_| self.round());
        self.0[0] ^= word;
    }

    fn finish<const ROUNDS: usize>(mut self) -> u64 {
        self.0[2] ^= 0xff;
        (0..ROUNDS).for_each(|_| self.round());
        self.0.iter().fold(0, |hash, word| hash ^ word)
    }

    fn round(&mut self) {
        let [mut v0, mut v1, mut v2, mut v3] = self.0;
        v0 = v0.wrapping_add(v1);
        v1 = v1.rotate_left(13) ^ v0;
        v0 = v0.rotate_left(32);
        v2 = v2.wrapping_add(v3);
        v3 = v3.rotate_left(16) ^ v2;
        v0 = v0.wrapping_add(v3);
        v3 = v3.rotate_left(21) ^ v0;
        v2 = v2.wrapping_add(v1);
        v1 = v1.rotate_left(17) ^ v2;
        v2 = v2.rotate_left(32);
        self.0 = [v0, v1, v2, v3];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::Hasher;

    /// The vector of the paper's appendix A, and those of the reference implementation: message 00
    /// 01 02 ..., key 00 .. 0f.
    #[test]
    fn the_published_vectors() {
        let key = SipKey::new(std::array::from_fn(|i| i as u8));
        let message: Vec<u8> = (0..15).collect();
        assert_eq!(key.hash(&message), 0xa129_ca61_49be_45e5);
        assert_eq!(key.hash(&[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(key.hash(&message[..8]), 0x93f5_f579_9a93_2462);
    }

    /// The first vector of the reference implementation with these rounds; and std's hasher, which
    /// has them too, with a key of zeros.
    #[test]
    fn fewer_rounds_as_others_compute_them() {
        let key = SipKey::new(std::array::from_fn(|i| i as u8));
        assert_eq!(key.short_hash(&[]), 0xabac_0158_050f_c4dc);
        for length in [0, 7, 8, 16, 24, 48] {
            let message: Vec<u8> = (0..length).collect();
            let mut hasher = std::hash::DefaultHasher::new();
            hasher.write(&message);
            assert_eq!(SipKey::new([0; 16]).short_hash(&message), hasher.finish(), "{length} octets");
        }
    }

    #[test]
    fn a_pair_has_one_home_in_both_directions_and_pairs_spread() {
        let key = SipKey::new([7; 16]);
        for (a, b) in [("10.0.0.1", "192.0.2.9"), ("2001:db8::1", "2001:db8::2")] {
            let (a, b): (IpAddr, IpAddr) = (a.parse().unwrap(), b.parse().unwrap());
            assert_eq!(key.pair(a, b), key.pair(b, a));
        }
        let host = |net: u8, host: u8| IpAddr::from([10, net, 0, host]);
        // Even if both ends count up in step.
        let homes: std::collections::BTreeSet<_> =
            (0..=255).map(|n| key.pair(host(1, n), host(2, n))).collect();
        assert!(homes.len() > 128, "{}", homes.len());
    }

    #[test]
    fn a_key_is_not_shown() {
        assert_eq!(format!("{:?}", SipKey::new([7; 16])), "SipKey(..)");
    }
}
