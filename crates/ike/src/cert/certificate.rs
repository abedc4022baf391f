//! X.509 certificates (RFC 5280), as far as IKE reads them (RFC 4945).

use super::dn::DistinguishedName;
use super::error::{CertError, OutOfDate};
use super::extensions::Extensions;
use super::pem;
use super::public::{PublicKey, sha1};
use super::scheme::SignatureScheme;
use crate::config::Identity;
use crate::output::UnixTime;
use der::asn1::BitString;
use der::{Decode, Reader, SliceReader};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::AlgorithmIdentifierOwned;
use x509_cert::time::Validity;

/// Bound on the octets of a certificate.
pub const MAX_CERTIFICATE: usize = 16 * 1024;

/// A certificate, cheap to clone.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct Certificate(Arc<ParsedCertificate>);

struct ParsedCertificate {
    der: Vec<u8>,
    /// The signed part.
    tbs: Vec<u8>,
    scheme: Result<SignatureScheme, CertError>,
    signature: Vec<u8>,
    serial: Vec<u8>,
    issuer: DistinguishedName,
    subject: DistinguishedName,
    not_before: UnixTime,
    not_after: UnixTime,
    key: PublicKey,
    extensions: Extensions,
}

/// A signed structure of X.509, decoded.
pub(super) struct Signed<'a> {
    pub(super) tbs: &'a [u8],
    pub(super) algorithm: AlgorithmIdentifierOwned,
    pub(super) signature: Vec<u8>,
}

impl<'a> Signed<'a> {
    pub(super) fn read(der: &'a [u8]) -> der::Result<Self> {
        let mut reader = SliceReader::new(der)?;
        let signed = reader.sequence(|reader| {
            let tbs = reader.tlv_bytes()?;
            let algorithm = AlgorithmIdentifierOwned::decode(reader)?;
            let signature = BitString::decode(reader)?;
            let signature = signature.as_bytes().ok_or(der::ErrorKind::Failed)?.to_vec();
            Ok::<_, der::Error>(Self { tbs, algorithm, signature })
        })?;
        reader.finish()?;
        Ok(signed)
    }
}

/// The fields of a TBSCertificate, in their original octets.
struct Fields<'a> {
    serial: SerialNumber,
    algorithm: AlgorithmIdentifierOwned,
    issuer: &'a [u8],
    validity: Validity,
    subject: &'a [u8],
    key: &'a [u8],
    extensions: Vec<x509_cert::ext::Extension>,
}

impl<'a> Fields<'a> {
    fn read(tbs: &'a [u8]) -> der::Result<Self> {
        const VERSION: u8 = 0xa0;
        const EXTENSIONS: u8 = 0xa3;
        let mut reader = SliceReader::new(tbs)?;
        let fields = reader.sequence(|reader| {
            if reader.peek_byte() == Some(VERSION) {
                reader.tlv_bytes()?;
            }
            let mut fields = Fields {
                serial: SerialNumber::decode(reader)?,
                algorithm: AlgorithmIdentifierOwned::decode(reader)?,
                issuer: reader.tlv_bytes()?,
                validity: Validity::decode(reader)?,
                subject: reader.tlv_bytes()?,
                key: reader.tlv_bytes()?,
                extensions: Vec::new(),
            };
            // The unique identifiers between the key and the extensions have no meaning any more.
            while let Some(tag) = reader.peek_byte() {
                let field = reader.tlv_bytes()?;
                if tag == EXTENSIONS {
                    let mut inner = SliceReader::new(field)?;
                    let header = der::Header::decode(&mut inner)?;
                    let body = inner.read_slice(header.length())?;
                    fields.extensions = Vec::from_der(body)?;
                }
            }
            Ok::<_, der::Error>(fields)
        })?;
        reader.finish()?;
        Ok(fields)
    }
}

impl Certificate {
    /// Decodes DER, as in a CERT payload.
    pub fn from_der(der: &[u8]) -> Result<Self, CertError> {
        if der.len() > MAX_CERTIFICATE {
            return Err(CertError::TooLarge {
                what: "certificate",
                found: der.len(),
                limit: MAX_CERTIFICATE,
            });
        }
        let malformed = |error: der::Error| CertError::malformed("certificate", error);
        let signed = Signed::read(der).map_err(malformed)?;
        let fields = Fields::read(signed.tbs).map_err(malformed)?;
        if fields.algorithm != signed.algorithm {
            // RFC 5280 §4.1.1.2.
            return Err(CertError::malformed("certificate", "it names two signature algorithms"));
        }
        let seconds = |time: x509_cert::time::Time| UnixTime(time.to_unix_duration().as_secs());
        Ok(Self(Arc::new(ParsedCertificate {
            der: der.to_vec(),
            tbs: signed.tbs.to_vec(),
            scheme: SignatureScheme::from_identifier(&signed.algorithm),
            signature: signed.signature,
            serial: fields.serial.as_bytes().to_vec(),
            issuer: DistinguishedName::from_der(fields.issuer)?,
            subject: DistinguishedName::from_der(fields.subject)?,
            not_before: seconds(fields.validity.not_before),
            not_after: seconds(fields.validity.not_after),
            key: PublicKey::from_spki(fields.key)?,
            extensions: Extensions::read(&fields.extensions)?,
        })))
    }

    /// Decodes DER or PEM, as in a file.
    pub fn parse(data: &[u8]) -> Result<Self, CertError> {
        const LABELS: [&str; 3] = ["CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE"];
        Self::from_der(&pem::decode(data, &LABELS, "CERTIFICATE")?)
    }

    /// The certificate as DER.
    pub fn to_der(&self) -> &[u8] {
        &self.0.der
    }

    /// SHA-1 of the DER, by which people tell certificates apart.
    pub fn fingerprint(&self) -> [u8; 20] {
        sha1(&self.0.der)
    }

    /// The subject.
    pub fn subject(&self) -> &DistinguishedName {
        &self.0.subject
    }

    /// The issuer.
    pub fn issuer(&self) -> &DistinguishedName {
        &self.0.issuer
    }

    /// The public key.
    pub fn key(&self) -> &PublicKey {
        &self.0.key
    }

    /// The serial number, unique for its issuer.
    pub(super) fn serial(&self) -> &[u8] {
        &self.0.serial
    }

    pub(super) fn extensions(&self) -> &Extensions {
        &self.0.extensions
    }

    /// True if basic constraints mark it as a CA's.
    pub fn is_ca(&self) -> bool {
        self.0.extensions.ca.is_some()
    }

    /// The scheme by which its issuer has signed it.
    pub(super) fn scheme(&self) -> Result<SignatureScheme, CertError> {
        self.0.scheme.clone()
    }

    /// True if the key has signed it.
    pub(super) fn is_signed_by(&self, key: &PublicKey) -> bool {
        self.0.scheme.as_ref().is_ok_and(|scheme| key.verify(*scheme, &self.0.tbs, &self.0.signature))
    }

    /// True if subject and issuer are the same.
    pub(crate) fn is_self_issued(&self) -> bool {
        self.0.subject == self.0.issuer
    }

    /// When it ends.
    pub(crate) fn not_after(&self) -> UnixTime {
        self.0.not_after
    }

    /// Why it is not valid at this time, if it is not.
    pub(crate) fn out_of_date(&self, now: UnixTime) -> Option<OutOfDate> {
        let ParsedCertificate { not_before: from, not_after: until, .. } = *self.0;
        if now < from {
            Some(OutOfDate::Early { from, now })
        } else if now > until {
            Some(OutOfDate::Late { until, now })
        } else {
            None
        }
    }

    /// True if the certificate confirms this identity: by its subject or by one of its alternative
    /// names (RFC 4945 §3.1, §5.1.3.6).
    pub fn confirms(&self, identity: &Identity) -> bool {
        let is_subject = matches!(identity, Identity::Dn(name) if self.0.subject == *name);
        is_subject || self.0.extensions.names.iter().any(|name| name.matches(identity))
    }
}

impl PartialEq for Certificate {
    fn eq(&self, other: &Self) -> bool {
        self.0.der == other.0.der
    }
}

impl Eq for Certificate {}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "certificate '{}'", self.0.subject)
    }
}

impl TryFrom<Vec<u8>> for Certificate {
    type Error = CertError;

    fn try_from(der: Vec<u8>) -> Result<Self, CertError> {
        Self::from_der(&der)
    }
}

impl From<Certificate> for Vec<u8> {
    fn from(certificate: Certificate) -> Self {
        certificate.0.der.clone()
    }
}
