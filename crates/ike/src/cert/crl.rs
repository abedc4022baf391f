//! CRLs (RFC 5280 §5), as loaded from files: nothing is fetched.

use super::certificate::{Certificate, Signed};
use super::dn::DistinguishedName;
use super::error::CertError;
use super::pem;
use super::public::PublicKey;
use super::scheme::SignatureScheme;
use crate::output::UnixTime;
use der::Decode;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use x509_cert::crl::TbsCertList;
use x509_cert::ext::pkix::AuthorityKeyIdentifier;

const AUTHORITY_KEY_ID: &str = "2.5.29.35";

/// A CRL, cheap to clone: jobs hold what was loaded, and a CRL may have megabytes.
#[derive(Clone)]
pub struct Crl(Arc<List>);

struct List {
    der: Vec<u8>,
    tbs: Vec<u8>,
    scheme: SignatureScheme,
    signature: Vec<u8>,
    issuer: DistinguishedName,
    authority_key: Option<Vec<u8>>,
    this_update: UnixTime,
    next_update: Option<UnixTime>,
    /// Times of revocation, by serial number.
    revoked: BTreeMap<Vec<u8>, UnixTime>,
    /// The key that was found to have signed it, so that megabytes need not be hashed for each
    /// peer.
    signer: OnceLock<Box<PublicKey>>,
}

impl PartialEq for Crl {
    fn eq(&self, other: &Self) -> bool {
        self.0.der == other.0.der
    }
}

impl Eq for Crl {}

/// The CRLs' answer about a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// A current CRL does not list it.
    Good,
    /// A CRL, current or not, lists it.
    Revoked(UnixTime),
    /// A CRL of its issuer does not list it, but the next update is overdue.
    Stale(UnixTime),
    /// There is no CRL of its issuer.
    Unknown,
}

impl Crl {
    /// Decodes DER or PEM, as in a file.
    pub fn parse(data: &[u8]) -> Result<Self, CertError> {
        let der = pem::decode(data, &["X509 CRL", "CRL"], "X509 CRL")?;
        let malformed = |error: der::Error| CertError::malformed("CRL", error);
        let signed = Signed::read(&der).map_err(malformed)?;
        let list: TbsCertList = TbsCertList::from_der(signed.tbs).map_err(malformed)?;
        if list.signature != signed.algorithm {
            return Err(CertError::malformed("CRL", "it names two signature algorithms"));
        }
        let issuer = der::Encode::to_der(&list.issuer).map_err(malformed)?;
        let mut authority_key = None;
        for extension in list.crl_extensions.iter().flatten() {
            if extension.extn_id.to_string() == AUTHORITY_KEY_ID {
                let id =
                    AuthorityKeyIdentifier::from_der(extension.extn_value.as_bytes()).map_err(malformed)?;
                authority_key = id.key_identifier.map(|id| id.as_bytes().to_vec());
            } else if extension.critical {
                // A delta CRL, or one of a part: not all revocations (RFC 5280 §5.2.4, §5.2.5).
                return Err(CertError::malformed(
                    "CRL",
                    format!("critical extension {}: only complete lists are taken", extension.extn_id),
                ));
            }
        }
        let seconds = |time: x509_cert::time::Time| UnixTime(time.to_unix_duration().as_secs());
        let mut revoked = BTreeMap::new();
        for entry in list.revoked_certificates.iter().flatten() {
            // An entry may belong to another issuer, which a critical extension says (RFC 5280
            // §5.3.3).
            if entry.crl_entry_extensions.iter().flatten().any(|extension| extension.critical) {
                return Err(CertError::malformed("CRL", "a critical extension of an entry: not supported"));
            }
            revoked.insert(entry.serial_number.as_bytes().to_vec(), seconds(entry.revocation_date));
        }
        Ok(Self(Arc::new(List {
            tbs: signed.tbs.to_vec(),
            scheme: SignatureScheme::from_identifier(&signed.algorithm)?,
            signature: signed.signature,
            issuer: DistinguishedName::from_der(&issuer)?,
            authority_key,
            this_update: seconds(list.this_update),
            next_update: list.next_update.map(seconds),
            revoked,
            signer: OnceLock::new(),
            der: der.to_vec(),
        })))
    }

    /// The CRL as DER.
    pub fn to_der(&self) -> &[u8] {
        &self.0.der
    }

    /// The issuer.
    pub fn issuer(&self) -> &DistinguishedName {
        &self.0.issuer
    }

    /// True if `newer` is a later CRL of the same issuer, with the same key. A CRL with a valid
    /// signature is replaced only by such a one: the writer of a file with a later date must not
    /// undo a revocation.
    pub(super) fn is_replaced_by(&self, newer: &Self) -> bool {
        self.0.issuer == newer.0.issuer
            && self.0.authority_key == newer.0.authority_key
            && self.0.this_update <= newer.0.this_update
            && self.0.signer.get().is_none_or(|key| newer.is_signed_by(key))
    }

    pub(super) fn is_older_than(&self, other: &Self) -> bool {
        self.0.this_update < other.0.this_update
    }

    /// True if the issuer has made this CRL: by name, by the right to sign CRLs, and by signature.
    pub(super) fn is_of(&self, issuer: &Certificate) -> bool {
        let extensions = issuer.extensions();
        let key_fits = match (&self.0.authority_key, &extensions.subject_key) {
            (Some(wanted), Some(found)) => wanted == found,
            _ => true,
        };
        &self.0.issuer == issuer.subject()
            && key_fits
            && extensions.usage.is_none_or(|usage| usage.crls)
            && self.is_signed_by(issuer.key())
    }

    fn is_signed_by(&self, key: &PublicKey) -> bool {
        if let Some(known) = self.0.signer.get() {
            return **known == *key;
        }
        let is_right = key.verify(self.0.scheme, &self.0.tbs, &self.0.signature);
        if is_right {
            // If another thread was faster, it has found the same.
            let _ = self.0.signer.set(Box::new(key.clone()));
        }
        is_right
    }
}

/// The status of a certificate of this issuer.
pub(super) fn status(crls: &[Crl], certificate: &Certificate, issuer: &Certificate, now: UnixTime) -> Status {
    let mut status = Status::Unknown;
    for crl in crls.iter().filter(|crl| crl.is_of(issuer)) {
        if let Some(when) = crl.0.revoked.get(certificate.serial()) {
            return Status::Revoked(*when);
        }
        // Without a next update it is unknown how long the CRL is current (RFC 5280 §5.1.2.5): it
        // is not.
        let until = crl.0.next_update.unwrap_or(crl.0.this_update);
        if crl.0.this_update <= now && now <= until {
            status = Status::Good;
        } else if status == Status::Unknown {
            status = Status::Stale(until);
        }
    }
    status
}

impl fmt::Debug for Crl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CRL of '{}', {} entries", self.0.issuer, self.0.revoked.len())
    }
}
