//! Pseudo-random functions and prf+ (RFC 7296 §2.13, RFC 4868, RFC 4434).

use super::error::SuiteError;
use super::secret::Secret;
use super::xcbc;
use crate::config::Prf;
use aws_lc_rs::hmac;
use zeroize::Zeroizing;

impl Prf {
    /// Octets of the output, which is also the preferred length of a key.
    pub fn length(self) -> usize {
        match self {
            Self::HmacSha1 => 20,
            Self::HmacSha256 => 32,
            Self::HmacSha384 => 48,
            Self::HmacSha512 => 64,
            Self::AesXcbc => 16,
        }
    }

    /// prf(key, the concatenated parts).
    pub fn compute(self, key: &[u8], parts: &[&[u8]]) -> Result<Secret, SuiteError> {
        // With its final capacity at once, so that no copy of a secret part stays behind in freed
        // memory.
        let mut input = Zeroizing::new(Vec::with_capacity(
            parts.iter().fold(0, |sum, part| part.len().saturating_add(sum)),
        ));
        for part in parts {
            input.extend_from_slice(part);
        }
        let algorithm = match self {
            Self::HmacSha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Self::HmacSha256 => hmac::HMAC_SHA256,
            Self::HmacSha384 => hmac::HMAC_SHA384,
            Self::HmacSha512 => hmac::HMAC_SHA512,
            Self::AesXcbc => return Ok(xcbc::prf(key, &input)),
        };
        let mut output = vec![0; self.length()];
        hmac::sign_to_buffer(&hmac::Key::new(algorithm, key), &input, &mut output)
            .map_err(|_| SuiteError::Prf)?;
        Ok(Secret::new(output))
    }

    /// The first `length` octets of prf+(key, the concatenated parts of the seed).
    pub fn plus(self, key: &[u8], seed: &[&[u8]], length: usize) -> Result<Secret, SuiteError> {
        let limit = self.length().saturating_mul(usize::from(u8::MAX));
        if length > limit {
            return Err(SuiteError::PrfPlus { asked: length, limit });
        }
        let mut stream = Vec::with_capacity(length.next_multiple_of(self.length()));
        let mut block = Secret::new(Vec::new());
        for round in 1..=u8::MAX {
            if stream.len() >= length {
                break;
            }
            let mut parts = vec![block.expose()];
            parts.extend_from_slice(seed);
            let round = [round];
            parts.push(&round);
            block = self.compute(key, &parts)?;
            stream.extend_from_slice(block.expose());
        }
        let mut stream = Zeroizing::new(stream);
        let excess = stream.split_off(length);
        drop(Zeroizing::new(excess));
        Ok(Secret::new(std::mem::take(&mut *stream)))
    }
}
