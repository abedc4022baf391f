//! The kernel's random source for the protocol crates, which have none of their own.

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use testudo_ike::suite::Entropy;

/// Random octets from the operating system.
pub(crate) struct OsEntropy;

impl Entropy for OsEntropy {
    fn fill(&mut self, out: &mut [u8]) {
        if SystemRandom::new().fill(out).is_err() {
            // Going on with octets that are not random would give away keys.
            tracing::error!("the system has no random octets: stopping");
            std::process::abort();
        }
    }
}
