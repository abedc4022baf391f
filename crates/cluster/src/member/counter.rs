//! A source of octets for tests: they differ from each other, and are the same in each run.

use testudo_ike::suite::Entropy;

/// Counts on from this octet.
pub(super) struct Counter(pub(super) u8);

impl Entropy for Counter {
    fn fill(&mut self, out: &mut [u8]) {
        for octet in out {
            self.0 = self.0.wrapping_add(1);
            *octet = self.0;
        }
    }
}
