//! Distinguished names (X.501): as DER, in strongSwan's notation, and compared.

use super::error::CertError;
use der::asn1::{ObjectIdentifier, SetOfVec};
use der::{Decode, Encode, Tag, Tagged};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt::{self, Write};
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::name::{Name, RdnSequence};

/// Bound on the octets of a name.
const LIMIT: usize = 4096;
/// Bound on the attributes of a name.
const MAX_ATTRIBUTES: usize = 64;
/// A value that matches any, in a pattern.
const WILDCARD: &[u8] = b"*";
/// Precedes the type of an attribute in canonical form: its value is text, in any encoding, or it
/// is not.
const TEXT: u8 = 0;
const OTHER: u8 = 1;

/// strongSwan's words for attribute types; the first of several for one type is written.
const TYPES: [(&str, &str); 31] = [
    ("UID", "0.9.2342.19200300.100.1.1"),
    ("DC", "0.9.2342.19200300.100.1.25"),
    ("CN", "2.5.4.3"),
    ("S", "2.5.4.4"),
    ("SN", "2.5.4.5"),
    ("serialNumber", "2.5.4.5"),
    ("C", "2.5.4.6"),
    ("L", "2.5.4.7"),
    ("ST", "2.5.4.8"),
    ("STREET", "2.5.4.9"),
    ("O", "2.5.4.10"),
    ("OU", "2.5.4.11"),
    ("T", "2.5.4.12"),
    ("D", "2.5.4.13"),
    ("postalCode", "2.5.4.17"),
    ("userCertificate", "2.5.4.36"),
    ("N", "2.5.4.41"),
    ("G", "2.5.4.42"),
    ("I", "2.5.4.43"),
    ("ID", "2.5.4.45"),
    ("dnQualifier", "2.5.4.46"),
    ("pseudonym", "2.5.4.65"),
    ("E", "1.2.840.113549.1.9.1"),
    ("Email", "1.2.840.113549.1.9.1"),
    ("emailAddress", "1.2.840.113549.1.9.1"),
    ("unstructuredName", "1.2.840.113549.1.9.2"),
    ("UN", "1.2.840.113549.1.9.2"),
    ("unstructuredAddress", "1.2.840.113549.1.9.8"),
    ("UA", "1.2.840.113549.1.9.8"),
    ("EN", "2.16.840.1.113730.3.1.3"),
    ("employeeNumber", "2.16.840.1.113730.3.1.3"),
];
const EMAIL: &str = "1.2.840.113549.1.9.1";
const DOMAIN_COMPONENT: &str = "0.9.2342.19200300.100.1.25";

/// A distinguished name, cheap to clone. Two names are equal regardless of letter case and of the
/// encoding of text (RFC 5280 §7.1).
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct DistinguishedName(Arc<ParsedName>);

struct ParsedName {
    /// The original octets.
    der: Vec<u8>,
    /// Octets that are equal for equal names. A peer sends thousands of names to be compared, so
    /// each is decoded only once.
    canonical: Vec<u8>,
    has_wildcards: bool,
}

/// An attribute in canonical form.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Canonical {
    /// The tag of a value that is no text, then the type.
    kind: Vec<u8>,
    value: Vec<u8>,
}

impl DistinguishedName {
    /// Decodes the DER of a Name.
    pub fn from_der(der: &[u8]) -> Result<Self, CertError> {
        if der.len() > LIMIT {
            return Err(CertError::TooLarge { what: "distinguished name", found: der.len(), limit: LIMIT });
        }
        let name = Name::from_der(der).map_err(|error| CertError::malformed("distinguished name", error))?;
        let rdns: &RdnSequence = name.as_ref();
        let count = rdns.as_ref().iter().map(|rdn| rdn.as_ref().len()).sum();
        if count > MAX_ATTRIBUTES {
            let what = "attributes of a distinguished name";
            return Err(CertError::TooMany { what, found: count, limit: MAX_ATTRIBUTES });
        }
        let mut canonical = Vec::with_capacity(der.len());
        let mut has_wildcards = false;
        for rdn in rdns.as_ref() {
            // A set has no order: the order in DER depends on the encoding of text.
            let mut attributes: Vec<_> = rdn.as_ref().iter().map(Canonical::from).collect();
            attributes.sort();
            for (index, attribute) in attributes.iter().enumerate() {
                has_wildcards |= attribute.is_wildcard();
                canonical.push(u8::from(index == 0));
                put(&mut canonical, &attribute.kind);
                put(&mut canonical, &attribute.value);
            }
        }
        Ok(Self(Arc::new(ParsedName { der: der.to_vec(), canonical, has_wildcards })))
    }

    /// The DER of the Name.
    pub fn to_der(&self) -> &[u8] {
        &self.0.der
    }

    /// True for a name without attributes.
    pub fn is_empty(&self) -> bool {
        self.0.canonical.is_empty()
    }

    /// True if `other` matches this pattern: a value of `*` matches any.
    pub fn covers(&self, other: &Self) -> bool {
        self == other || self.has_wildcards() && fits(&self.0.canonical, &other.0.canonical)
    }

    /// True if a value is `*`.
    pub fn has_wildcards(&self) -> bool {
        self.0.has_wildcards
    }
}

/// Appends the number of octets, and the octets.
fn put(canonical: &mut Vec<u8>, octets: &[u8]) {
    canonical.extend((octets.len() as u64).to_be_bytes());
    canonical.extend(octets);
}

/// Splits off what `put` has appended.
fn take(canonical: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = canonical.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u64::from_be_bytes(*length)).ok()?)
}

/// Takes the first attribute: whether a relative name begins with it, its type and its value.
fn next<'a>(canonical: &mut &'a [u8]) -> Option<(u8, &'a [u8], &'a [u8])> {
    let (begins, rest) = canonical.split_first()?;
    let (kind, rest) = take(rest)?;
    let (value, rest) = take(rest)?;
    *canonical = rest;
    Some((*begins, kind, value))
}

/// True if the names in canonical form agree, except for the wildcards of the first.
fn fits(mut pattern: &[u8], mut name: &[u8]) -> bool {
    loop {
        match (next(&mut pattern), next(&mut name)) {
            (None, None) => return true,
            (Some((begins, kind, value)), Some((other_begins, other_kind, other))) => {
                let is_any = value == WILDCARD && kind.first() == Some(&TEXT);
                if begins != other_begins || kind != other_kind || !(is_any || value == other) {
                    return false;
                }
            }
            _ => return false,
        }
    }
}

impl Canonical {
    fn is_wildcard(&self) -> bool {
        self.value == WILDCARD && self.kind.first() == Some(&TEXT)
    }
}

impl From<&AttributeTypeAndValue> for Canonical {
    fn from(attribute: &AttributeTypeAndValue) -> Self {
        let (tag, value) = match text(attribute) {
            // Several spaces count as one, and outer spaces as none (RFC 5280 §7.1, by RFC 4518).
            Some(text) => {
                let words = text.split_whitespace().collect::<Vec<_>>().join(" ").to_ascii_lowercase();
                (vec![TEXT], words.into_bytes())
            }
            None => {
                let mut tag = vec![OTHER];
                tag.extend(attribute.value.tag().number().value().to_be_bytes());
                (tag, attribute.value.value().to_vec())
            }
        };
        Self { kind: [tag.as_slice(), attribute.oid.as_bytes()].concat(), value }
    }
}

impl PartialEq for DistinguishedName {
    fn eq(&self, other: &Self) -> bool {
        self.0.canonical == other.0.canonical
    }
}

impl Eq for DistinguishedName {}

impl PartialOrd for DistinguishedName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DistinguishedName {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.canonical.cmp(&other.0.canonical)
    }
}

impl Hash for DistinguishedName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.canonical.hash(state);
    }
}

impl TryFrom<Vec<u8>> for DistinguishedName {
    type Error = CertError;

    fn try_from(der: Vec<u8>) -> Result<Self, CertError> {
        Self::from_der(&der)
    }
}

impl From<DistinguishedName> for Vec<u8> {
    fn from(name: DistinguishedName) -> Self {
        name.0.der.clone()
    }
}

/// The value as text, if it is text.
fn text(attribute: &AttributeTypeAndValue) -> Option<&str> {
    let is_text = matches!(
        attribute.value.tag(),
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String | Tag::TeletexString | Tag::NumericString
    );
    std::str::from_utf8(attribute.value.value()).ok().filter(|_| is_text)
}

/// strongSwan's notation: `C=CH, O=strongSwan, CN=moon`. Control characters are replaced.
impl fmt::Display for DistinguishedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(name) = Name::from_der(self.to_der()) else { return f.write_str("(malformed)") };
        let rdns: &RdnSequence = name.as_ref();
        let attributes = rdns.as_ref().iter().flat_map(|rdn| rdn.as_ref().iter());
        for (index, attribute) in attributes.enumerate() {
            let oid = attribute.oid.to_string();
            let known = TYPES.iter().find(|(_, known)| *known == oid).map(|(word, _)| *word);
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{}=", known.unwrap_or(&oid))?;
            match text(attribute) {
                Some(text) => {
                    text.chars().try_for_each(|c| f.write_char(if c.is_control() { '?' } else { c }))?
                }
                None => attribute.value.value().iter().try_for_each(|octet| write!(f, "{octet:02x}"))?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for DistinguishedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Parses strongSwan's notation: attributes separated by commas, or each preceded by a slash. A
/// backslash escapes the next character.
impl FromStr for DistinguishedName {
    type Err = CertError;

    fn from_str(text: &str) -> Result<Self, CertError> {
        let (text, separator) = match text.strip_prefix('/') {
            Some(rest) => (rest, '/'),
            None => (text, ','),
        };
        let mut rdns = Vec::new();
        for part in split(text, separator) {
            let (word, value) = part
                .trim()
                .split_once('=')
                .ok_or_else(|| malformed(format!("'{}' has no '='", part.trim())))?;
            let attribute = attribute(word.trim(), value.trim())?;
            let rdn = SetOfVec::try_from(vec![attribute]);
            rdns.push(rdn.map_err(malformed)?);
        }
        let der = rdns.to_der().map_err(malformed)?;
        Self::from_der(&der)
    }
}

/// Splits at separators that no backslash precedes.
fn split(text: &str, separator: char) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == separator && !escaped {
            parts.push(String::new());
        } else if c == '\\' && !escaped {
            escaped = true;
            continue;
        } else if let Some(part) = parts.last_mut() {
            part.push(c);
        }
        escaped = false;
    }
    parts
}

fn malformed(why: impl ToString) -> CertError {
    CertError::malformed("distinguished name", why)
}

fn attribute(word: &str, value: &str) -> Result<AttributeTypeAndValue, CertError> {
    let known = TYPES.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)).map(|(_, oid)| *oid);
    let oid = known.unwrap_or(word);
    let tag = match oid {
        EMAIL | DOMAIN_COMPONENT => Tag::Ia5String,
        _ if value.chars().all(|c| c.is_ascii_alphanumeric() || " '()+,-./:=?".contains(c)) => {
            Tag::PrintableString
        }
        _ => Tag::Utf8String,
    };
    if value.is_empty() {
        return Err(malformed(format!("{word} has no value")));
    }
    let unknown = |_| malformed(format!("{word} is no attribute that we know"));
    let oid = ObjectIdentifier::new(oid).map_err(unknown)?;
    let value = der::Any::new(tag, value.as_bytes()).map_err(malformed)?;
    Ok(AttributeTypeAndValue { oid, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dn(text: &str) -> DistinguishedName {
        text.parse().unwrap()
    }

    #[test]
    fn names_are_read_and_written_as_strongswan_does() {
        for (given, written) in [
            ("C=CH, O=strongSwan, CN=moon", "C=CH, O=strongSwan, CN=moon"),
            ("c=CH,o=strongSwan,cn=moon", "C=CH, O=strongSwan, CN=moon"),
            ("/C=CH/O=A, Inc./CN=moon", "C=CH, O=A, Inc., CN=moon"),
            ("O=A\\, Inc., CN=moon", "O=A, Inc., CN=moon"),
            ("CN=Zürich, E=me@example.org, DC=org", "CN=Zürich, E=me@example.org, DC=org"),
            ("2.5.4.99=x", "2.5.4.99=x"),
        ] {
            assert_eq!(dn(given).to_string(), written, "{given}");
        }
        for bad in ["", "CN", "CN=", "XX=1", "C=CH, CN", "CN=moon,"] {
            assert!(bad.parse::<DistinguishedName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn case_spaces_and_encodings_do_not_tell_names_apart() {
        let printable = dn("C=CH, O=strongSwan, CN=moon");
        assert_eq!(printable, dn("C=ch, O=STRONGSWAN, CN=Moon"));
        assert_eq!(dn("O=a  b"), dn("O=a b"));
        // The same name in UTF8String, as OpenSSL writes it.
        let mut utf8 = printable.to_der().to_vec();
        for text in [&b"strongSwan"[..], b"moon"] {
            let at = utf8.windows(text.len()).position(|window| window == text).unwrap();
            assert_eq!(std::mem::replace(&mut utf8[at - 2], 0x0c), 0x13);
        }
        assert_eq!(printable, DistinguishedName::from_der(&utf8).unwrap());
        for other in ["C=CH, O=strongSwan", "C=CH, CN=moon, O=strongSwan", "C=CH, O=strongSwan, OU=moon"] {
            assert_ne!(printable, dn(other), "{other}");
        }
    }

    #[test]
    fn a_wildcard_stands_for_one_value() {
        let pattern = dn("C=CH, O=strongSwan, CN=*");
        assert!(pattern.has_wildcards() && !dn("C=CH, O=strongSwan, CN=a*").has_wildcards());
        assert!(pattern.covers(&dn("C=CH, O=strongSwan, CN=sun")));
        assert!(!pattern.covers(&dn("C=CH, O=strongSwan, OU=sun")), "not for one of another type");
        assert!(!pattern.covers(&dn("C=CH, O=other, CN=sun")));
        assert!(!pattern.covers(&dn("C=CH, O=strongSwan")));
        assert!(!pattern.covers(&dn("C=CH, O=strongSwan, OU=a, CN=sun")));
        assert_ne!(pattern, dn("C=CH, O=strongSwan, CN=sun"), "not where names must be the same");
        assert!(!dn("CN=sun").covers(&dn("CN=*")), "a wildcard in what is compared is a letter like others");
    }

    /// The same two attributes in one relative name: the encoding of text decides their order in
    /// DER.
    #[test]
    fn the_order_within_a_relative_name_does_not_count() {
        let pair = |one: (&str, Tag), other: (&str, Tag)| {
            let attribute = |oid: &str, (text, tag): (&str, Tag)| AttributeTypeAndValue {
                oid: ObjectIdentifier::new(oid).unwrap(),
                value: der::Any::new(tag, text.as_bytes()).unwrap(),
            };
            let set = SetOfVec::try_from(vec![attribute("2.5.4.11", one), attribute("2.5.4.11", other)]);
            DistinguishedName::from_der(&vec![set.unwrap()].to_der().unwrap()).unwrap()
        };
        let utf8 = pair(("a", Tag::Utf8String), ("b", Tag::PrintableString));
        assert_eq!(utf8, pair(("b", Tag::Utf8String), ("a", Tag::PrintableString)));
        assert_ne!(utf8, dn("OU=a, OU=b"));
    }

    /// A relative name of two attributes is not two relative names.
    #[test]
    fn a_wildcard_stays_within_its_relative_name() {
        let attribute = |oid: &str, text: &str| AttributeTypeAndValue {
            oid: ObjectIdentifier::new(oid).unwrap(),
            value: der::Any::new(Tag::Utf8String, text.as_bytes()).unwrap(),
        };
        let one = SetOfVec::try_from(vec![attribute("2.5.4.3", "sun"), attribute("2.5.4.11", "a")]);
        let one = DistinguishedName::from_der(&vec![one.unwrap()].to_der().unwrap()).unwrap();
        assert!(dn("CN=*, OU=a").covers(&dn("CN=sun, OU=a")));
        assert!(!dn("CN=*, OU=a").covers(&one) && !dn("CN=sun, OU=*").covers(&one));
    }

    /// RFC 5280 §4.1.2.4, §4.1.2.6: a peer may compare octets.
    #[test]
    fn text_is_encoded_as_certificates_have_it() {
        for (text, tag) in
            [("CN=moon", 0x13), ("CN=Zürich", 0x0c), ("CN=a*", 0x0c), ("E=a@b", 0x16), ("DC=org", 0x16)]
        {
            let value = text.split_once('=').unwrap().1;
            let der = dn(text).to_der().to_vec();
            assert_eq!(der[der.len() - value.len() - 2], tag, "{text}");
        }
    }

    #[test]
    fn names_longer_than_the_limit_are_refused() {
        assert!(format!("CN={}", "a".repeat(LIMIT - 100)).parse::<DistinguishedName>().is_ok());
        let error = format!("CN={}", "a".repeat(LIMIT)).parse::<DistinguishedName>().unwrap_err();
        assert!(matches!(error, CertError::TooLarge { limit: LIMIT, .. }), "{error}");
    }

    #[test]
    fn names_of_more_attributes_than_anybody_has_are_refused() {
        let of = |count: usize| vec!["CN=a"; count].join(",").parse::<DistinguishedName>();
        assert!(of(MAX_ATTRIBUTES).is_ok());
        assert!(of(MAX_ATTRIBUTES + 1).is_err());
    }

    #[test]
    fn a_name_cannot_forge_a_line_of_the_log() {
        let forged = "CN=a\nb".parse::<DistinguishedName>().unwrap();
        assert_eq!(forged.to_string(), "CN=a?b");
    }
}
