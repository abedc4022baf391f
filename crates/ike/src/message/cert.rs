//! Certificate and Certificate Request payloads (RFC 7296 §3.6, §3.7).

use super::error::ParseError;
use super::number::CertEncoding;
use super::reader::Reader;
use serde::{Deserialize, Serialize};

/// A certificate, or a request for certificates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertPayload {
    /// The encoding of the data, or the requested one.
    pub encoding: CertEncoding,
    /// The certificate. In a request: SHA-1 hashes of the public keys of CAs, concatenated, or
    /// nothing for a public key without a certificate.
    pub data: Vec<u8>,
}

impl CertPayload {
    /// An X.509 certificate, or a request for one.
    pub fn x509(data: Vec<u8>) -> Self {
        Self { encoding: CertEncoding::X509Signature, data }
    }

    /// A public key without a certificate, a SubjectPublicKeyInfo, or, without data, a request for
    /// one (RFC 7670 §3).
    pub fn raw_key(data: Vec<u8>) -> Self {
        Self { encoding: CertEncoding::RawPublicKey, data }
    }

    pub(super) fn read(mut reader: Reader<'_>) -> Result<Self, ParseError> {
        let encoding = CertEncoding::from(reader.u8("certificate encoding")?);
        Ok(Self { encoding, data: reader.rest().to_vec() })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.encoding));
        out.extend_from_slice(&self.data);
    }
}
