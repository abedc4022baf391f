//! The extensions of a certificate that IKE reads. A critical extension that is not read is a
//! reason to refuse the certificate.

use super::dn::DistinguishedName;
use super::error::CertError;
use crate::config::Identity;
use der::{Decode, Encode};
use std::collections::BTreeSet;
use std::net::IpAddr;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::name::{DistributionPointName, GeneralName};
use x509_cert::ext::pkix::{
    AuthorityKeyIdentifier, BasicConstraints, CrlDistributionPoints, ExtendedKeyUsage, KeyUsage,
    SubjectAltName, SubjectKeyIdentifier,
};

const SUBJECT_KEY_ID: &str = "2.5.29.14";
const KEY_USAGE: &str = "2.5.29.15";
const SUBJECT_ALT_NAME: &str = "2.5.29.17";
const BASIC_CONSTRAINTS: &str = "2.5.29.19";
const NAME_CONSTRAINTS: &str = "2.5.29.30";
const CRL_DISTRIBUTION_POINTS: &str = "2.5.29.31";
const CERTIFICATE_POLICIES: &str = "2.5.29.32";
const AUTHORITY_KEY_ID: &str = "2.5.29.35";
const EXTENDED_KEY_USAGE: &str = "2.5.29.37";

/// Purposes that allow IKE (RFC 4945 §5.1.3.12): id-kp-ipsecIKE and anyExtendedKeyUsage.
const ALLOWING_IKE: [&str; 2] = ["1.3.6.1.5.5.7.3.17", "2.5.29.37.0"];

/// Bound on the purposes: they are logged if none of them is IKE.
const MAX_PURPOSES: usize = 32;
/// Bound on the alternative names: each is compared with the peer's identity.
const MAX_NAMES: usize = 64;

/// The rights of a CA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ca {
    /// Bound on the CAs between it and the end of a chain.
    pub(super) path_length: Option<u8>,
}

/// The uses of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    /// True for signatures that prove the signer: digitalSignature or nonRepudiation.
    pub(super) signs: bool,
    pub(super) certificates: bool,
    pub(super) crls: bool,
}

/// An extended key usage (RFC 5280 §4.2.1.12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Purposes {
    pub(super) is_critical: bool,
    pub(super) allow_ike: bool,
    /// The purposes as text, for the log.
    pub(super) named: String,
}

/// The extensions that are read.
#[derive(Debug, Default)]
pub(super) struct Extensions {
    pub(super) ca: Option<Ca>,
    /// `None` allows everything.
    pub(super) usage: Option<Usage>,
    /// `None` allows every purpose.
    pub(super) purposes: Option<Purposes>,
    /// Alternative names of the subject, of the kinds that IKE has.
    pub(super) names: Vec<Identity>,
    pub(super) subject_key: Option<Vec<u8>>,
    pub(super) authority_key: Option<Vec<u8>>,
    /// True if the certificate names a place from which CRLs can be fetched.
    pub(super) has_crl_uri: bool,
    /// A critical extension that is not supported.
    pub(super) unknown_critical: Option<String>,
}

impl Extensions {
    pub(super) fn read(list: &[Extension]) -> Result<Self, CertError> {
        let mut found = Self::default();
        let mut seen = BTreeSet::new();
        for extension in list {
            let oid = extension.extn_id.to_string();
            if !seen.insert(extension.extn_id) {
                return Err(CertError::malformed("certificate", format!("extension {oid} occurs twice")));
            }
            let body = extension.extn_value.as_bytes();
            match oid.as_str() {
                BASIC_CONSTRAINTS => {
                    let constraints: BasicConstraints = decode("basic constraints", body)?;
                    found.ca = constraints.ca.then_some(Ca { path_length: constraints.path_len_constraint });
                }
                KEY_USAGE => {
                    let usage: KeyUsage = decode("key usage", body)?;
                    found.usage = Some(Usage {
                        signs: usage.digital_signature() || usage.non_repudiation(),
                        certificates: usage.key_cert_sign(),
                        crls: usage.crl_sign(),
                    });
                }
                SUBJECT_ALT_NAME => {
                    let names: SubjectAltName = decode("subjectAltName", body)?;
                    let (found_names, limit) = (names.0.len(), MAX_NAMES);
                    if found_names > limit {
                        let what = "alternative names in a certificate";
                        return Err(CertError::TooMany { what, found: found_names, limit });
                    }
                    found.names = names.0.iter().filter_map(identity).collect();
                }
                SUBJECT_KEY_ID => {
                    let id: SubjectKeyIdentifier = decode("subjectKeyIdentifier", body)?;
                    found.subject_key = Some(id.0.as_bytes().to_vec());
                }
                AUTHORITY_KEY_ID => {
                    let id: AuthorityKeyIdentifier = decode("authorityKeyIdentifier", body)?;
                    found.authority_key = id.key_identifier.map(|id| id.as_bytes().to_vec());
                }
                CRL_DISTRIBUTION_POINTS => {
                    let points: CrlDistributionPoints = decode("cRLDistributionPoints", body)?;
                    found.has_crl_uri = points.0.iter().any(|point| {
                        matches!(&point.distribution_point, Some(DistributionPointName::FullName(names))
                            if names.iter().any(|n| matches!(n, GeneralName::UniformResourceIdentifier(_))))
                    });
                }
                EXTENDED_KEY_USAGE => found.purposes = Some(purposes(extension)?),
                // No policy is required, so this restricts nothing.
                CERTIFICATE_POLICIES => {}
                // It restricts the names that the CA may issue. To ignore it would give the CA more
                // than it was given, critical or not.
                NAME_CONSTRAINTS => found.unknown_critical = Some("name constraints".into()),
                _ if extension.critical => {
                    found.unknown_critical.get_or_insert_with(|| format!("critical extension {oid}"));
                }
                _ => {}
            }
        }
        Ok(found)
    }
}

fn purposes(extension: &Extension) -> Result<Purposes, CertError> {
    let usage: ExtendedKeyUsage = decode("extended key usage", extension.extn_value.as_bytes())?;
    let (found, limit) = (usage.0.len(), MAX_PURPOSES);
    if found > limit {
        return Err(CertError::TooMany { what: "purposes in a certificate", found, limit });
    }
    let named: Vec<String> = usage.0.iter().map(ToString::to_string).collect();
    Ok(Purposes {
        is_critical: extension.critical,
        allow_ike: named.iter().any(|oid| ALLOWING_IKE.contains(&oid.as_str())),
        named: named.join(", "),
    })
}

fn decode<'a, T: Decode<'a>>(what: &'static str, body: &'a [u8]) -> Result<T, CertError>
where
    T::Error: std::fmt::Display,
{
    T::from_der(body).map_err(|error| CertError::malformed(what, error))
}

/// A general name as an identity, if IKE has this kind of identity.
fn identity(name: &GeneralName) -> Option<Identity> {
    match name {
        GeneralName::DnsName(name) => Some(Identity::Fqdn(name.to_string())),
        GeneralName::Rfc822Name(address) => Some(Identity::Email(address.to_string())),
        GeneralName::IpAddress(octets) => {
            let octets = octets.as_bytes();
            let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
            v4.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok().map(Identity::Addr)
        }
        GeneralName::DirectoryName(name) => {
            DistinguishedName::from_der(&name.to_der().ok()?).ok().map(Identity::Dn)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use der::asn1::{Ia5String, ObjectIdentifier, OctetString};
    use x509_cert::name::Name;

    fn read(oid: &str, critical: bool, body: Vec<u8>) -> Result<Extensions, CertError> {
        Extensions::read(&[Extension {
            extn_id: ObjectIdentifier::new(oid).unwrap(),
            critical,
            extn_value: OctetString::new(body).unwrap(),
        }])
    }

    fn read_names(names: Vec<GeneralName>) -> Result<Extensions, CertError> {
        read(SUBJECT_ALT_NAME, false, SubjectAltName(names).to_der().unwrap())
    }

    #[test]
    fn more_purposes_than_anybody_has_are_refused() {
        let read = |count: usize| {
            let purpose = ObjectIdentifier::new("1.3.6.1.5.5.7.3.3").unwrap();
            let body = ExtendedKeyUsage(vec![purpose; count]).to_der().unwrap();
            read(EXTENDED_KEY_USAGE, false, body)
        };
        assert!(read(MAX_PURPOSES).is_ok());
        let error = read(MAX_PURPOSES + 1).unwrap_err().to_string();
        assert_eq!(error, "found 33 purposes in a certificate, at most 32 are read");
    }

    #[test]
    fn more_names_than_anybody_has_are_refused() {
        let read = |count: usize| {
            let name = GeneralName::DnsName(Ia5String::new("sun.example.org").unwrap());
            read_names(vec![name; count])
        };
        assert_eq!(read(MAX_NAMES).unwrap().names.len(), MAX_NAMES);
        let error = read(MAX_NAMES + 1).unwrap_err().to_string();
        assert_eq!(error, "found 65 alternative names in a certificate, at most 64 are read");
    }

    /// A directory name is an identity like the subject; a name that IKE cannot carry is none.
    #[test]
    fn a_directory_name_is_an_alternative_name() {
        let dn: DistinguishedName = "C=CH, O=Testudo, CN=sun".parse().unwrap();
        let directory = GeneralName::DirectoryName(Name::from_der(dn.to_der()).unwrap());
        let uri = GeneralName::UniformResourceIdentifier(Ia5String::new("http://example.org/").unwrap());
        assert_eq!(read_names(vec![uri, directory]).unwrap().names, [Identity::Dn(dn)]);
    }

    /// Critical certificate policies are common, and limit nothing for a reader that asks for no
    /// policy (RFC 5280 §6.1.1).
    #[test]
    fn certificate_policies_refuse_nothing() {
        // One policy: anyPolicy.
        let body = vec![0x30, 0x08, 0x30, 0x06, 0x06, 0x04, 0x55, 0x1d, 0x20, 0x00];
        for critical in [true, false] {
            let found = read(CERTIFICATE_POLICIES, critical, body.clone()).unwrap();
            assert_eq!(found.unknown_critical, None);
        }
    }

    /// RFC 4945 §5.1.3.2: either of two bits allows to prove who one is.
    #[test]
    fn a_key_signs_by_either_of_two_usages() {
        // BIT STRING: digitalSignature, nonRepudiation, keyEncipherment.
        for (bits, signs) in
            [([0x03, 0x02, 0x07, 0x80], true), ([3, 2, 6, 0x40], true), ([3, 2, 5, 0x20], false)]
        {
            let usage = read(KEY_USAGE, true, bits.to_vec()).unwrap().usage.unwrap();
            assert_eq!(usage, Usage { signs, certificates: false, crls: false });
        }
    }

    #[test]
    fn what_limits_a_ca_is_refused() {
        for critical in [true, false] {
            let found = read(NAME_CONSTRAINTS, critical, vec![0x30, 0x00]).unwrap();
            assert_eq!(found.unknown_critical.as_deref(), Some("name constraints"));
        }
        // Policy constraints, which nothing here reads.
        let policies = |critical| read("2.5.29.36", critical, vec![0x30, 0x00]).unwrap().unknown_critical;
        assert_eq!(policies(true).as_deref(), Some("critical extension 2.5.29.36"));
        assert_eq!(policies(false), None);
    }
}
