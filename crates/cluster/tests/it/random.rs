//! Randomness that is the same in every run.

use testudo_ike::suite::Entropy;

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }
}

impl Entropy for Random {
    fn fill(&mut self, out: &mut [u8]) {
        out.iter_mut().for_each(|octet| *octet = self.next() as u8);
    }
}
