//! The bare cost of a responder's computations in any implementation: the curve, the PRF, the
//! messages' cipher. Measured with the daemon's library, without anything around it.

use crate::stopwatch::Stopwatch;
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey, X25519};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hmac;
use serde::Serialize;
use std::hint::black_box;
use std::time::Duration;

/// Milliseconds of one setup.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Limit {
    /// A key pair and an agreement.
    pub(super) curve_ms: f64,
    /// The calls of [`PRF_CALLS`].
    pub(super) prf_ms: f64,
    /// Opening IKE_AUTH and sealing the answer.
    pub(super) cipher_ms: f64,
}

impl Limit {
    pub(super) fn total(&self) -> f64 {
        self.curve_ms + self.prf_ms + self.cipher_ms
    }
}

/// SKEYSEED; prf+ of 136 octets for SK_d, SK_ei, SK_er, SK_pi, SK_pr; AUTH of both sides, three
/// calls each (RFC 7296 §2.15); prf+ of 40 octets for the Child SA. Each value is the number of
/// input octets.
const PRF_CALLS: [usize; 14] = [32, 81, 113, 113, 113, 113, 17, 24, 450, 17, 24, 330, 65, 97];
/// Approximate octets of the content of IKE_AUTH.
const CONTENT: usize = 200;
/// Calls between two readings of the clock.
const CALLS: usize = 16;
const MEASURE: Duration = Duration::from_millis(300);

/// Measures in this thread.
pub(super) fn measure() -> Result<Limit, Unspecified> {
    Ok(Limit { curve_ms: time(curve)?, prf_ms: time(prf)?, cipher_ms: time(cipher)? })
}

fn time(work: impl Fn() -> Result<(), Unspecified>) -> Result<f64, Unspecified> {
    let mut watch = Stopwatch::new();
    let mut result = Ok(());
    // The first milliseconds do not count: caches and clock are cold.
    for until in [MEASURE / 10, MEASURE] {
        watch.reset();
        while watch.time() < until {
            watch.measure(CALLS, || (0..CALLS).for_each(|_| result = result.and_then(|()| work())));
        }
    }
    result.map(|()| watch.median().ns / 1e6)
}

fn curve() -> Result<(), Unspecified> {
    let ours = PrivateKey::generate(&X25519)?;
    let public = ours.compute_public_key()?;
    // Any point works; one's own is available.
    agreement::agree(&ours, UnparsedPublicKey::new(&X25519, public.as_ref()), Unspecified, |shared| {
        black_box(shared);
        Ok(())
    })
}

fn prf() -> Result<(), Unspecified> {
    let (key, input) = ([7; 32], [9; 512]);
    for length in PRF_CALLS {
        let key = hmac::Key::new(hmac::HMAC_SHA256, black_box(&key));
        black_box(hmac::sign(&key, input.get(..length).unwrap_or(&input)));
    }
    Ok(())
}

fn cipher() -> Result<(), Unspecified> {
    let nonce = || Nonce::assume_unique_for_key([3; 12]);
    let key = || UnboundKey::new(&AES_128_GCM, black_box(&[5; 16])).map(LessSafeKey::new);
    let mut text = vec![1; CONTENT];
    key()?.seal_in_place_append_tag(nonce(), Aad::from([2; 32]), &mut text)?;
    key()?.open_in_place(nonce(), Aad::from([2; 32]), black_box(&mut text))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_costs_something() {
        let limit = measure().unwrap();
        assert!(limit.curve_ms > 0.001 && limit.prf_ms > 0.001 && limit.cipher_ms > 0.0001, "{limit:?}");
        assert!(limit.total() < 50.0, "{limit:?}");
    }
}
