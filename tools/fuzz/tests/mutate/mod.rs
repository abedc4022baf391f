//! Cheap changes to known inputs, the same in every run.

/// Values at which lengths and counters are often wrong.
const INTERESTING: [u8; 8] = [0, 1, 2, 0x7f, 0x80, 0xfe, 0xff, 0x40];

/// Mutates inputs of a corpus (SplitMix64).
pub(crate) struct Mutator(u64);

impl Mutator {
    /// Each name has its own sequence.
    pub(crate) fn new(name: &str) -> Self {
        Self(name.bytes().fold(0, |state, octet| state.wrapping_mul(257).wrapping_add(octet.into())))
    }

    fn random(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.random() % limit.max(1) as u64) as usize
    }

    /// One of the files, changed in one to four places.
    pub(crate) fn next(&mut self, files: &[(String, Vec<u8>)]) -> Vec<u8> {
        let mut input = files[self.below(files.len())].1.clone();
        for _ in 0..1 + self.below(4) {
            let other = &files[self.below(files.len())].1;
            self.change(&mut input, other);
        }
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, other: &[u8]) {
        let at = self.below(input.len() + 1);
        let kind = self.below(7);
        match (kind, input.get_mut(at)) {
            (0, Some(octet)) => *octet ^= 1 << self.below(8),
            (1, Some(octet)) => *octet = self.random() as u8,
            (2, Some(octet)) => *octet = INTERESTING[self.below(INTERESTING.len())],
            (3, _) => input.truncate(at),
            (4, _) => {
                let end = (at + 1 + self.below(8)).min(input.len());
                input.drain(at..end);
            }
            (5, _) => {
                let octets = self.random().to_be_bytes();
                let len = 1 + self.below(octets.len());
                input.splice(at..at, octets[..len].iter().copied());
            }
            _ => {
                // The end of another input.
                let from = self.below(other.len() + 1);
                input.truncate(at);
                input.extend(&other[from..]);
            }
        }
    }
}
