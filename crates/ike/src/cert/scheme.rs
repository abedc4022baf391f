//! Signature algorithms: their identifiers in X.509 and RFC 7427, and sets of them.

use super::error::CertError;
use der::asn1::ObjectIdentifier;
use der::{Decode, Encode, Sequence};
use serde::{Deserialize, Serialize};
use std::fmt;
use x509_cert::spki::AlgorithmIdentifierOwned;

/// Hash algorithms of SIGNATURE_HASH_ALGORITHMS (RFC 7427 §4). SHA-1 is not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Hash {
    /// SHA2-256.
    Sha256,
    /// SHA2-384.
    Sha384,
    /// SHA2-512.
    Sha512,
    /// The message itself, which Ed25519 signs (RFC 8420).
    Identity,
}

impl Hash {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Sha256, Self::Sha384, Self::Sha512, Self::Identity];

    /// The number of IANA's registry "IKEv2 Hash Algorithms".
    pub fn number(self) -> u16 {
        match self {
            Self::Sha256 => 2,
            Self::Sha384 => 3,
            Self::Sha512 => 4,
            Self::Identity => 5,
        }
    }

    fn oid(self) -> Option<ObjectIdentifier> {
        let oid = match self {
            Self::Sha256 => "2.16.840.1.101.3.4.2.1",
            Self::Sha384 => "2.16.840.1.101.3.4.2.2",
            Self::Sha512 => "2.16.840.1.101.3.4.2.3",
            Self::Identity => return None,
        };
        ObjectIdentifier::new(oid).ok()
    }

    /// Octets of its output, which is also the salt of RSASSA-PSS.
    fn length(self) -> u8 {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 | Self::Identity => 64,
        }
    }
}

/// A set of hash algorithms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Hashes(u8);

impl Hashes {
    /// All supported ones.
    pub const ALL: Self = Self(0b1111);

    /// Adds one.
    #[must_use]
    pub fn with(self, hash: Hash) -> Self {
        Self(self.0 | 1 << hash as u8)
    }

    /// True if it is in the set.
    pub fn contains(self, hash: Hash) -> bool {
        self.0 & (1 << hash as u8) != 0
    }

    /// True without any.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Reads the data of a SIGNATURE_HASH_ALGORITHMS notify; unknown numbers are skipped.
    pub fn from_notify(data: &[u8]) -> Self {
        let numbers = data.as_chunks::<2>().0.iter().map(|pair| u16::from_be_bytes(*pair));
        numbers.filter_map(|n| Hash::ALL.into_iter().find(|h| h.number() == n)).fold(Self(0), Self::with)
    }

    /// The data of a SIGNATURE_HASH_ALGORITHMS notify.
    pub fn to_notify(self) -> Vec<u8> {
        Hash::ALL
            .into_iter()
            .filter(|hash| self.contains(*hash))
            .flat_map(|h| h.number().to_be_bytes())
            .collect()
    }
}

/// A signature algorithm with its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SignatureScheme {
    /// RSASSA-PKCS1-v1_5 with SHA2-256.
    RsaPkcs1Sha256,
    /// RSASSA-PKCS1-v1_5 with SHA2-384.
    RsaPkcs1Sha384,
    /// RSASSA-PKCS1-v1_5 with SHA2-512.
    RsaPkcs1Sha512,
    /// RSASSA-PSS with SHA2-256, MGF1 of the same and a salt of its length.
    RsaPssSha256,
    /// RSASSA-PSS with SHA2-384, MGF1 of the same and a salt of its length.
    RsaPssSha384,
    /// RSASSA-PSS with SHA2-512, MGF1 of the same and a salt of its length.
    RsaPssSha512,
    /// ECDSA with SHA2-256.
    EcdsaSha256,
    /// ECDSA with SHA2-384.
    EcdsaSha384,
    /// ECDSA with SHA2-512.
    EcdsaSha512,
    /// Ed25519.
    Ed25519,
}

const SHA256_WITH_RSA: &str = "1.2.840.113549.1.1.11";
const SHA384_WITH_RSA: &str = "1.2.840.113549.1.1.12";
const SHA512_WITH_RSA: &str = "1.2.840.113549.1.1.13";
const RSASSA_PSS: &str = "1.2.840.113549.1.1.10";
const MGF1: &str = "1.2.840.113549.1.1.8";
const ECDSA_WITH_SHA256: &str = "1.2.840.10045.4.3.2";
const ECDSA_WITH_SHA384: &str = "1.2.840.10045.4.3.3";
const ECDSA_WITH_SHA512: &str = "1.2.840.10045.4.3.4";
const ED25519: &str = "1.3.101.112";
/// Names for schemes that are refused.
const REFUSED: [(&str, &str); 6] = [
    ("1.2.840.113549.1.1.4", "RSA with MD5"),
    ("1.2.840.113549.1.1.5", "RSA with SHA-1"),
    ("1.2.840.113549.1.1.14", "RSA with SHA-224"),
    ("1.2.840.10045.4.1", "ECDSA with SHA-1"),
    ("1.2.840.10045.4.3.1", "ECDSA with SHA-224"),
    ("1.3.101.113", "Ed448"),
];

/// `RSASSA-PSS-params` (RFC 4055 §3.1). A missing field stands for SHA-1.
#[derive(Sequence)]
struct PssParameters {
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT", optional = "true")]
    hash: Option<AlgorithmIdentifierOwned>,
    #[asn1(context_specific = "1", tag_mode = "EXPLICIT", optional = "true")]
    mask: Option<AlgorithmIdentifierOwned>,
    #[asn1(context_specific = "2", tag_mode = "EXPLICIT", optional = "true")]
    salt: Option<u16>,
    #[asn1(context_specific = "3", tag_mode = "EXPLICIT", optional = "true")]
    trailer: Option<u16>,
}

impl SignatureScheme {
    /// All of them, in order of preference.
    pub const ALL: [Self; 10] = [
        Self::RsaPkcs1Sha256,
        Self::RsaPkcs1Sha384,
        Self::RsaPkcs1Sha512,
        Self::RsaPssSha256,
        Self::RsaPssSha384,
        Self::RsaPssSha512,
        Self::EcdsaSha256,
        Self::EcdsaSha384,
        Self::EcdsaSha512,
        Self::Ed25519,
    ];

    /// The hash algorithm.
    pub fn hash(self) -> Hash {
        match self {
            Self::RsaPkcs1Sha256 | Self::RsaPssSha256 | Self::EcdsaSha256 => Hash::Sha256,
            Self::RsaPkcs1Sha384 | Self::RsaPssSha384 | Self::EcdsaSha384 => Hash::Sha384,
            Self::RsaPkcs1Sha512 | Self::RsaPssSha512 | Self::EcdsaSha512 => Hash::Sha512,
            Self::Ed25519 => Hash::Identity,
        }
    }

    /// The DER of the AlgorithmIdentifier that precedes the signature (RFC 7427 §3 and appendix A).
    pub fn algorithm_identifier(self) -> Result<Vec<u8>, CertError> {
        self.identifier()
            .and_then(|id| id.to_der())
            .map_err(|e| CertError::malformed("algorithm identifier", e))
    }

    fn identifier(self) -> der::Result<AlgorithmIdentifierOwned> {
        let null = || Some(der::asn1::Null.into());
        let (oid, parameters) = match self {
            Self::RsaPkcs1Sha256 => (SHA256_WITH_RSA, null()),
            Self::RsaPkcs1Sha384 => (SHA384_WITH_RSA, null()),
            Self::RsaPkcs1Sha512 => (SHA512_WITH_RSA, null()),
            Self::EcdsaSha256 => (ECDSA_WITH_SHA256, None),
            Self::EcdsaSha384 => (ECDSA_WITH_SHA384, None),
            Self::EcdsaSha512 => (ECDSA_WITH_SHA512, None),
            Self::Ed25519 => (ED25519, None),
            Self::RsaPssSha256 | Self::RsaPssSha384 | Self::RsaPssSha512 => {
                let hash = self.hash();
                let hash_id = AlgorithmIdentifierOwned {
                    oid: hash.oid().ok_or(der::ErrorKind::Failed)?,
                    parameters: null(),
                };
                let mask = AlgorithmIdentifierOwned {
                    oid: ObjectIdentifier::new(MGF1)?,
                    parameters: Some(der::Any::encode_from(&hash_id)?),
                };
                let parameters = PssParameters {
                    hash: Some(hash_id),
                    mask: Some(mask),
                    salt: Some(hash.length().into()),
                    trailer: None,
                };
                (RSASSA_PSS, Some(der::Any::encode_from(&parameters)?))
            }
        };
        Ok(AlgorithmIdentifierOwned { oid: ObjectIdentifier::new(oid)?, parameters })
    }

    /// The scheme of an AlgorithmIdentifier.
    pub(super) fn from_identifier(id: &AlgorithmIdentifierOwned) -> Result<Self, CertError> {
        let oid = id.oid.to_string();
        let bare = id.parameters.is_none();
        let null = id.parameters.as_ref().is_none_or(|any| any.is_null());
        Ok(match oid.as_str() {
            // The parameters should be NULL, and are often left out (RFC 7427 appendix A.1).
            SHA256_WITH_RSA if null => Self::RsaPkcs1Sha256,
            SHA384_WITH_RSA if null => Self::RsaPkcs1Sha384,
            SHA512_WITH_RSA if null => Self::RsaPkcs1Sha512,
            ECDSA_WITH_SHA256 if null => Self::EcdsaSha256,
            ECDSA_WITH_SHA384 if null => Self::EcdsaSha384,
            ECDSA_WITH_SHA512 if null => Self::EcdsaSha512,
            ED25519 if bare => Self::Ed25519,
            RSASSA_PSS => pss(id)?,
            _ => {
                let name = REFUSED.iter().find(|(refused, _)| *refused == oid).map(|(_, name)| *name);
                let found = name.map_or_else(|| format!("algorithm {oid}"), str::to_owned);
                return Err(CertError::Algorithm(format!("signature is by {found}")));
            }
        })
    }

    /// The scheme of an AlgorithmIdentifier in DER.
    pub fn from_der(der: &[u8]) -> Result<Self, CertError> {
        let id = AlgorithmIdentifierOwned::from_der(der)
            .map_err(|error| CertError::malformed("algorithm identifier", error))?;
        Self::from_identifier(&id)
    }
}

/// RSASSA-PSS with matching parameters.
fn pss(id: &AlgorithmIdentifierOwned) -> Result<SignatureScheme, CertError> {
    let refuse = |what: &str| CertError::Algorithm(format!("signature is by RSASSA-PSS with {what}"));
    let parameters = id.parameters.as_ref().ok_or_else(|| refuse("SHA-1"))?;
    let parameters: PssParameters =
        parameters.decode_as().map_err(|error| CertError::malformed("RSASSA-PSS parameters", error))?;
    let named = |id: Option<&AlgorithmIdentifierOwned>| {
        let id = id?;
        Hash::ALL.into_iter().find(|hash| hash.oid() == Some(id.oid))
    };
    let hash = named(parameters.hash.as_ref()).ok_or_else(|| refuse("another hash"))?;
    let mask = parameters.mask.as_ref().filter(|mask| mask.oid.to_string() == MGF1);
    let inner = mask.and_then(|mask| mask.parameters.as_ref()?.decode_as::<AlgorithmIdentifierOwned>().ok());
    if named(inner.as_ref()) != Some(hash) {
        return Err(refuse("a mask of another hash"));
    }
    if parameters.salt.unwrap_or(20) != u16::from(hash.length()) {
        return Err(refuse("a salt of another length than its hash"));
    }
    if parameters.trailer.unwrap_or(1) != 1 {
        return Err(refuse("an unknown trailer"));
    }
    Ok(match hash {
        Hash::Sha256 => SignatureScheme::RsaPssSha256,
        Hash::Sha384 => SignatureScheme::RsaPssSha384,
        Hash::Sha512 | Hash::Identity => SignatureScheme::RsaPssSha512,
    })
}

/// strongSwan's notation.
impl fmt::Display for SignatureScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RsaPkcs1Sha256 => "RSA_EMSA_PKCS1_SHA2_256",
            Self::RsaPkcs1Sha384 => "RSA_EMSA_PKCS1_SHA2_384",
            Self::RsaPkcs1Sha512 => "RSA_EMSA_PKCS1_SHA2_512",
            Self::RsaPssSha256 => "RSA_EMSA_PSS_SHA2_256_SALT_32",
            Self::RsaPssSha384 => "RSA_EMSA_PSS_SHA2_384_SALT_48",
            Self::RsaPssSha512 => "RSA_EMSA_PSS_SHA2_512_SALT_64",
            Self::EcdsaSha256 => "ECDSA_WITH_SHA256_DER",
            Self::EcdsaSha384 => "ECDSA_WITH_SHA384_DER",
            Self::EcdsaSha512 => "ECDSA_WITH_SHA512_DER",
            Self::Ed25519 => "ED25519",
        })
    }
}

/// A set of signature schemes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Schemes(u16);

impl Schemes {
    /// All supported ones.
    pub const ALL: Self = Self(0b11_1111_1111);

    /// Adds one.
    #[must_use]
    pub fn with(self, scheme: SignatureScheme) -> Self {
        Self(self.0 | 1 << scheme as u16)
    }

    /// True if it is in the set.
    pub fn contains(self, scheme: SignatureScheme) -> bool {
        self.0 & (1 << scheme as u16) != 0
    }

    /// True without any.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if RSA is allowed and no hash is named: then nothing here excludes the SHA-1 of peers
    /// without RFC 7427.
    pub(crate) fn is_rsa_with_any_hash(self) -> bool {
        use SignatureScheme::{RsaPkcs1Sha256, RsaPkcs1Sha384, RsaPkcs1Sha512};
        [RsaPkcs1Sha256, RsaPkcs1Sha384, RsaPkcs1Sha512].into_iter().all(|scheme| self.contains(scheme))
    }

    /// The schemes in the set.
    pub fn iter(self) -> impl Iterator<Item = SignatureScheme> {
        SignatureScheme::ALL.into_iter().filter(move |scheme| self.contains(*scheme))
    }
}

impl FromIterator<SignatureScheme> for Schemes {
    fn from_iter<I: IntoIterator<Item = SignatureScheme>>(schemes: I) -> Self {
        schemes.into_iter().fold(Self(0), Self::with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octets(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(|c| !c.is_ascii_whitespace()).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    /// The octets printed in RFC 7427 appendix A and RFC 8420 §2.
    #[test]
    fn algorithm_identifiers_are_those_of_the_rfcs() {
        let printed = [
            (SignatureScheme::RsaPkcs1Sha256, "300d06092a864886f70d01010b0500"),
            (SignatureScheme::RsaPkcs1Sha384, "300d06092a864886f70d01010c0500"),
            (SignatureScheme::RsaPkcs1Sha512, "300d06092a864886f70d01010d0500"),
            (SignatureScheme::EcdsaSha256, "300a06082a8648ce3d040302"),
            (SignatureScheme::EcdsaSha384, "300a06082a8648ce3d040303"),
            (SignatureScheme::EcdsaSha512, "300a06082a8648ce3d040304"),
            (SignatureScheme::Ed25519, "300506032b6570"),
            (
                SignatureScheme::RsaPssSha256,
                "304106092a864886f70d01010a3034a00f300d06096086480165030402010500a11c301a06092a864886f70d010108
                 300d06096086480165030402010500a203020120",
            ),
        ];
        for (scheme, hex) in printed {
            assert_eq!(scheme.algorithm_identifier().unwrap(), octets(hex), "{scheme}");
        }
        for scheme in SignatureScheme::ALL {
            assert_eq!(SignatureScheme::from_der(&scheme.algorithm_identifier().unwrap()), Ok(scheme));
        }
    }

    #[test]
    fn weak_and_unknown_schemes_are_refused_by_name() {
        for (hex, text) in [
            ("300d06092a864886f70d0101050500", "RSA with SHA-1"),
            ("300906072a8648ce3d0401", "ECDSA with SHA-1"),
            ("300b06092a864886f70d01010a", "RSASSA-PSS with SHA-1"),
            ("300d06092a864886f70d01010a3000", "RSASSA-PSS with another hash"),
            ("300506032b6571", "Ed448"),
            ("300506032b6572", "algorithm 1.3.101.114"),
            ("300706032b65700500", "algorithm 1.3.101.112"),
            // With a parameter that is not NULL: a number.
            ("300e06092a864886f70d01010b020100", "algorithm 1.2.840.113549.1.1.11"),
            ("300e06092a864886f70d01010c020100", "algorithm 1.2.840.113549.1.1.12"),
            ("300e06092a864886f70d01010d020100", "algorithm 1.2.840.113549.1.1.13"),
            ("300d06082a8648ce3d040302020100", "algorithm 1.2.840.10045.4.3.2"),
            ("300d06082a8648ce3d040303020100", "algorithm 1.2.840.10045.4.3.3"),
            ("300d06082a8648ce3d040304020100", "algorithm 1.2.840.10045.4.3.4"),
        ] {
            let error = SignatureScheme::from_der(&octets(hex)).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
        let mut salted = SignatureScheme::RsaPssSha256.algorithm_identifier().unwrap();
        *salted.last_mut().unwrap() = 20;
        assert!(SignatureScheme::from_der(&salted).unwrap_err().to_string().contains("a salt"));
    }

    #[test]
    fn hash_lists_pass_over_what_we_do_not_have() {
        let list = [0, 1, 0, 4, 0, 5, 0, 9, 7];
        let hashes = Hashes::from_notify(&list);
        assert_eq!(hashes, Hashes::default().with(Hash::Sha512).with(Hash::Identity));
        assert_eq!(hashes.to_notify(), [0, 4, 0, 5]);
        assert_eq!(Hashes::ALL.to_notify(), [0, 2, 0, 3, 0, 4, 0, 5]);
        assert_eq!(Hashes::from_notify(&[0, 4, 0, 5, 0, 4]), hashes, "what is named twice is there");
    }

    #[test]
    fn a_scheme_that_is_named_twice_is_in_the_set() {
        let set: Schemes = [SignatureScheme::Ed25519; 2].into_iter().collect();
        assert!(set.contains(SignatureScheme::Ed25519) && !set.contains(SignatureScheme::EcdsaSha256));
        assert!(!set.is_empty() && Schemes::default().is_empty());
    }
}
