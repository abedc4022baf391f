//! Identities of peers.

use crate::cert::DistinguishedName;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Write};
use std::net::IpAddr;

/// Identification payload data (RFC 7296 §3.5).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Identity {
    /// ID_IPV4_ADDR or ID_IPV6_ADDR.
    Addr(IpAddr),
    /// ID_FQDN.
    Fqdn(String),
    /// ID_RFC822_ADDR.
    Email(String),
    /// ID_KEY_ID.
    KeyId(Vec<u8>),
    /// ID_DER_ASN1_DN.
    Dn(DistinguishedName),
}

impl Identity {
    /// True if both name the same party: names and mail addresses are compared without regard to
    /// letter case.
    pub fn matches(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Fqdn(a), Self::Fqdn(b)) | (Self::Email(a), Self::Email(b)) => a.eq_ignore_ascii_case(b),
            _ => self == other,
        }
    }

    /// The canonical form, equal for all identities of the same party: SAs and leases are found by
    /// it. Otherwise letter case would let one peer count as two, avoid its limits, and empty a
    /// pool.
    pub fn canonical(&self) -> Self {
        match self {
            Self::Fqdn(name) => Self::Fqdn(name.to_ascii_lowercase()),
            Self::Email(address) => Self::Email(address.to_ascii_lowercase()),
            // DER names are equal if they name the same party.
            Self::Dn(_) | Self::Addr(_) | Self::KeyId(_) => self.clone(),
        }
    }

    /// True if `other` matches this pattern (`*.example.org`, `*@example.org`, `C=CH, CN=*`), or is
    /// the same party.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Fqdn(a), Self::Fqdn(b)) | (Self::Email(a), Self::Email(b)) if a.starts_with('*') => {
                let end = a.strip_prefix('*').unwrap_or_default().as_bytes();
                let found = b.len().checked_sub(end.len()).filter(|more| *more > 0);
                found
                    .and_then(|at| b.as_bytes().get(at..))
                    .is_some_and(|found| found.eq_ignore_ascii_case(end))
            }
            (Self::Dn(a), Self::Dn(b)) => a.covers(b),
            _ => self.matches(other),
        }
    }

    /// True if it matches more than one party.
    pub fn has_wildcards(&self) -> bool {
        match self {
            Self::Fqdn(name) | Self::Email(name) => name.starts_with('*'),
            Self::Dn(name) => name.has_wildcards(),
            Self::Addr(_) | Self::KeyId(_) => false,
        }
    }
}

/// The form of `swanctl`. Control characters from the wire are replaced, so that a peer cannot
/// forge log lines.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Addr(addr) => write!(f, "{addr}"),
            Self::Fqdn(name) | Self::Email(name) => {
                name.chars().try_for_each(|c| f.write_char(if c.is_control() { '?' } else { c }))
            }
            Self::KeyId(octets) if octets.iter().all(|o| o.is_ascii_graphic()) && !octets.is_empty() => {
                octets.iter().try_for_each(|&o| f.write_char(char::from(o)))
            }
            Self::KeyId(octets) => octets.iter().try_for_each(|o| write!(f, "{o:02x}")),
            Self::Dn(name) => write!(f, "{name}"),
        }
    }
}
