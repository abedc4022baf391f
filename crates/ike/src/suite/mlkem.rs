//! ML-KEM (FIPS 203, draft-ietf-ipsecme-ikev2-mlkem): the initiator sends an encapsulation key, the
//! responder a ciphertext.
//!
//! A key is derived from a seed of the injected source, and only the seed is kept: aws-lc-rs draws
//! its own seeds.

use super::error::SuiteError;
use super::secret::Secret;
use crate::config::KeyExchange;
use ml_kem::kem::Decapsulate;
use ml_kem::{B32, KeyExport, Seed};
use zeroize::{Zeroize, Zeroizing};

/// Octets of a seed, d and z (FIPS 203 §7.1).
pub(super) const SEED: usize = 64;
/// Octets of the encapsulated message, m (FIPS 203 §7.2).
pub(super) const MESSAGE: usize = 32;

/// Runs `$body` with the types of the parameter set of `$method`; `None` if it is not ML-KEM.
macro_rules! in_set {
    ($method:expr, $set:ident, $body:expr) => {
        match $method {
            KeyExchange::MlKem512 => {
                use ml_kem::ml_kem_512 as $set;
                Some($body)
            }
            KeyExchange::MlKem768 => {
                use ml_kem::ml_kem_768 as $set;
                Some($body)
            }
            KeyExchange::MlKem1024 => {
                use ml_kem::ml_kem_1024 as $set;
                Some($body)
            }
            _ => None,
        }
    };
}

/// The encapsulation key of a seed.
pub(super) fn public_value(method: KeyExchange, seed: &Secret) -> Result<Vec<u8>, SuiteError> {
    in_set!(method, set, {
        let key = set::DecapsulationKey::from_seed(*self::seed(method, seed)?);
        Ok(key.encapsulation_key().to_bytes().to_vec())
    })
    .unwrap_or(Err(SuiteError::KePrivate(method.into())))
}

/// The ciphertext of a random message for an encapsulation key, and the shared secret. Refuses a
/// key of another length, and one with a coefficient that is not below the modulus (FIPS 203 §7.2).
pub(super) fn encapsulate(
    method: KeyExchange,
    key: &[u8],
    message: &Secret,
) -> Result<(Vec<u8>, Secret), SuiteError> {
    let invalid = SuiteError::KePublic(method.into());
    in_set!(method, set, {
        let key = key
            .try_into()
            .ok()
            .and_then(|key| set::EncapsulationKey::new(&key).ok())
            .ok_or(invalid.clone())?;
        let message = B32::try_from(message.expose()).map(Zeroizing::new).map_err(|_| invalid.clone())?;
        let (ciphertext, mut shared) = key.encapsulate_deterministic(&message);
        let secret = Secret::new(shared.to_vec());
        shared.as_mut_slice().zeroize();
        Ok((ciphertext.to_vec(), secret))
    })
    .unwrap_or(Err(invalid))
}

/// The shared secret in a ciphertext of the right length. A ciphertext for another key results in
/// an unpredictable secret (FIPS 203 §6.3), so that only the next message shows it.
pub(super) fn decapsulate(
    method: KeyExchange,
    seed: &Secret,
    ciphertext: &[u8],
) -> Result<Secret, SuiteError> {
    let invalid = SuiteError::KePublic(method.into());
    in_set!(method, set, {
        let ciphertext = ciphertext.try_into().map_err(|_| invalid.clone())?;
        let key = set::DecapsulationKey::from_seed(*self::seed(method, seed)?);
        let mut shared = key.decapsulate(&ciphertext);
        let secret = Secret::new(shared.to_vec());
        shared.as_mut_slice().zeroize();
        Ok(secret)
    })
    .unwrap_or(Err(invalid))
}

fn seed(method: KeyExchange, seed: &Secret) -> Result<Zeroizing<Seed>, SuiteError> {
    Seed::try_from(seed.expose()).map(Zeroizing::new).map_err(|_| SuiteError::KePrivate(method.into()))
}
