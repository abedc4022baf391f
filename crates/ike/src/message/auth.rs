//! Authentication payload (RFC 7296 §3.8).

use super::error::ParseError;
use super::number::AuthMethodId;
use super::reader::Reader;
use serde::{Deserialize, Serialize};

/// Proof of an identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthPayload {
    /// What the data is.
    pub method: AuthMethodId,
    /// The signature or message integrity code.
    pub data: Vec<u8>,
}

impl AuthPayload {
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
