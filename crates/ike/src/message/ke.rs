//! Key Exchange payload (RFC 7296 §3.4).

use super::error::ParseError;
use super::number::KeMethod;
use super::reader::Reader;
use serde::{Deserialize, Serialize};

/// A public value of a key exchange.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KePayload {
    /// The method.
    pub method: KeMethod,
    /// The public value; `suite::ke` validates it.
    pub data: Vec<u8>,
}

impl KePayload {
    pub(super) fn read(mut reader: Reader<'_>) -> Result<Self, ParseError> {
        let method = KeMethod::from(reader.u16("key exchange method")?);
        reader.u16("reserved octets of KE")?;
        Ok(Self { method, data: reader.rest().to_vec() })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&u16::from(self.method).to_be_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&self.data);
    }
}
