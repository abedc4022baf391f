//! Nonce payload (RFC 7296 §3.9).

use super::error::ParseError;
use super::reader::{Reader, bad_value};
use serde::{Deserialize, Serialize};

/// A nonce of 16 to 256 octets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>")]
pub struct Nonce(Vec<u8>);

/// Octets that are no nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nonce has {found} octets, expected 16 to 256")]
pub struct NonceError {
    /// How many there are.
    pub found: usize,
}

impl Nonce {
    /// Length of our nonces: the strength of our longest PRF's key, and more (RFC 7296 §2.10
    /// requires half).
    pub const OUR_LENGTH: usize = 32;

    /// `None` unless there are 16 to 256 octets.
    pub fn new(bytes: Vec<u8>) -> Option<Self> {
        (16..=256).contains(&bytes.len()).then_some(Self(bytes))
    }

    pub(super) fn read(mut reader: Reader<'_>) -> Result<Self, ParseError> {
        let place = reader.place();
        let bytes = reader.rest().to_vec();
        let length = bytes.len() as u64;
        Self::new(bytes).ok_or_else(|| bad_value(place, "length of the nonce", length, "16 to 256"))
    }
}

impl TryFrom<Vec<u8>> for Nonce {
    type Error = NonceError;

    fn try_from(bytes: Vec<u8>) -> Result<Self, NonceError> {
        let found = bytes.len();
        Self::new(bytes).ok_or(NonceError { found })
    }
}

impl AsRef<[u8]> for Nonce {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
