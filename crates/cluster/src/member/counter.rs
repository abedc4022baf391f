//! A source of octets for tests: they differ, and are the same each time.

use testudo_ike::suite::Entropy;

/// Counts on from there.
pub(super) struct Counter(pub(super) u8);

impl Entropy for Counter {
    fn fill(&mut self, out: &mut [u8]) {
        for octet in out {
            self.0 = self.0.wrapping_add(1);
            *octet = self.0;
        }
    }
}
