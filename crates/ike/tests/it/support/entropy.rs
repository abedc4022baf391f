//! Repeatable entropy.

use testudo_ike::suite::Entropy;

/// Gives a script of octets, then continues with the last one.
pub(crate) struct Script(pub(crate) Vec<u8>);

impl Entropy for Script {
    fn fill(&mut self, out: &mut [u8]) {
        for octet in out {
            *octet = if self.0.len() > 1 { self.0.remove(0) } else { self.0[0] };
        }
    }
}
