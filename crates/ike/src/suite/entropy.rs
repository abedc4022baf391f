//! The source of randomness.

/// A source of secret random octets. Nothing in this crate makes randomness of its own, so that
/// tests and the simulator can repeat a run.
pub trait Entropy {
    /// Fills `out` with unpredictable octets.
    fn fill(&mut self, out: &mut [u8]);
}

impl<T: Entropy + ?Sized> Entropy for Box<T> {
    fn fill(&mut self, out: &mut [u8]) {
        (**self).fill(out);
    }
}
