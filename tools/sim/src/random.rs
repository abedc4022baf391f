//! The only source of randomness: SplitMix64. It is reproducible and not secret.

use std::sync::{Arc, Mutex, PoisonError};
use testudo_ike::suite::Entropy;

/// Gives the same numbers for the same seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A source with this seed.
    pub fn new(seed: u64) -> Self {
        // Neighbouring seeds must not begin with the same numbers.
        let mut random = Self(seed ^ 0x5851_f42d_4c95_7f2d);
        random.number();
        Self(random.number())
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `limit`, which must not be zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }

    /// One of `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in that many of a thousand cases.
    pub fn permille(&mut self, chance: u64) -> bool {
        self.below(1000) < chance
    }

    /// An independent source.
    pub fn fork(&mut self) -> Self {
        Self::new(self.number())
    }

    /// A random element.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        if all.is_empty() { None } else { all.get(self.below(all.len() as u64) as usize) }
    }
}

/// The random source of a host. Its kernel reseeds after a rollback, so that no random number is
/// repeated.
#[derive(Clone, Debug)]
pub struct HostEntropy {
    seed: u64,
    state: Arc<Mutex<Random>>,
}

impl HostEntropy {
    /// A source with this seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, state: Arc::new(Mutex::new(Random::new(seed))) }
    }

    /// A source that repeats this one from its beginning.
    pub fn begin_again(&self) -> Self {
        Self::new(self.seed)
    }

    /// The kernel has noticed the rollback.
    pub fn reseed(&self, seed: u64) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = Random::new(seed);
    }
}

impl Entropy for Random {
    fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let word = self.number().to_be_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

impl Entropy for HostEntropy {
    fn fill(&mut self, out: &mut [u8]) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).fill(out);
    }
}
