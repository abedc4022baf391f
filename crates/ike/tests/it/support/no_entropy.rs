//! No entropy.

use testudo_ike::suite::Entropy;

/// An AEAD's IVs are counted: no randomness is asked for.
pub(crate) struct NoEntropy;

impl Entropy for NoEntropy {
    fn fill(&mut self, _: &mut [u8]) {
        panic!("no randomness is needed");
    }
}
