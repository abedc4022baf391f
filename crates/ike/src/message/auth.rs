//! Authentication payload (RFC 7296 §3.8).

use super::error::ParseError;
use super::number::AuthMethodId;
use super::reader::Reader;
use serde::{Deserialize, Serialize};

/// Proof of an identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthPayload {
    /// The method, which determines the data.
    pub method: AuthMethodId,
    /// The signature or message integrity code.
    pub data: Vec<u8>,
}

impl AuthPayload {
    /// A digital signature, preceded by the DER of its AlgorithmIdentifier (RFC 7427 §3). `None` if
    /// that is too long for its length octet.
    pub fn signature(algorithm: &[u8], signature: &[u8]) -> Option<Self> {
        let length = u8::try_from(algorithm.len()).ok()?;
        Some(Self {
            method: AuthMethodId::DigitalSignature,
            data: [&[length], algorithm, signature].concat(),
        })
    }

    /// The DER of the AlgorithmIdentifier of a digital signature, and the signature. `None` if the
    /// data is too short.
    pub fn signature_parts(&self) -> Option<(&[u8], &[u8])> {
        let (length, rest) = self.data.split_first()?;
        rest.split_at_checked(usize::from(*length))
    }

    pub(super) fn read(mut reader: Reader<'_>) -> Result<Self, ParseError> {
        let method = AuthMethodId::from(reader.u8("authentication method")?);
        reader.take(3, "reserved octets of AUTH")?;
        Ok(Self { method, data: reader.rest().to_vec() })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[u8::from(self.method), 0, 0, 0]);
        out.extend_from_slice(&self.data);
    }
}
