//! What can be wrong with a message, and where.

use super::header::Header;
use super::number::{NotifyType, PayloadType};
use std::fmt;

/// Where in the octets a problem was found. Offsets count from the start of what was parsed: the
/// message, or the content of its Encrypted payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The payload being read; `None` stands for the message itself.
    pub payload: PayloadType,
    /// Octets before it.
    pub offset: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.payload {
            PayloadType::None => write!(f, "message, octet {}", self.offset),
            payload => write!(f, "payload {payload}, octet {}", self.offset),
        }
    }
}

/// Why octets are not a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// A field does not fit into what is left.
    #[error("{place}: {what} needs {needed} octets, {left} are left")]
    Truncated {
        /// Where the field begins.
        place: Place,
        /// The field.
        what: &'static str,
        /// Octets of the field.
        needed: usize,
        /// Octets that are there.
        left: usize,
    },
    /// Octets behind the last field.
    #[error("{place}: {left} octets are left behind {what}")]
    Trailing {
        /// Where they begin.
        place: Place,
        /// What they follow.
        what: &'static str,
        /// How many.
        left: usize,
    },
    /// A field has a value that it must not have.
    #[error("{place}: {what} is {found}, expected {expected}")]
    Value {
        /// Where the field begins.
        place: Place,
        /// The field.
        what: &'static str,
        /// Its value.
        found: u64,
        /// The values that it may have.
        expected: &'static str,
    },
    /// A traffic selector whose range ends before it begins.
    #[error("{place}: last address is below the first")]
    AddressRange {
        /// Where the selector begins.
        place: Place,
    },
    /// The length in the header is not that of the datagram.
    #[error("header: message length is {stated}, the datagram has {found} octets")]
    MessageLength {
        /// By the header.
        stated: u32,
        /// By the datagram.
        found: usize,
    },
    /// Not IKEv2: to be answered, if at all, with INVALID_MAJOR_VERSION (RFC 7296 §2.5).
    #[error("header: major version is {found}, expected 2")]
    MajorVersion {
        /// The version found.
        found: u8,
        /// The rest of the header, as far as it can be trusted to mean the same.
        header: Header,
    },
    /// A payload that we do not know and must not ignore: UNSUPPORTED_CRITICAL_PAYLOAD (RFC 7296
    /// §2.5).
    #[error("payload {0} is unknown and marked critical")]
    Critical(PayloadType),
    /// More payloads than any honest message has.
    #[error("more than {limit} payloads")]
    TooManyPayloads {
        /// The most that are read.
        limit: usize,
    },
    /// Two payloads of a kind that stands at most once in a message.
    #[error("payload {0} stands twice")]
    Duplicate(PayloadType),
}

impl ParseError {
    /// The error notify that tells the peer (RFC 7296 §3.10.1).
    pub fn notify(&self) -> NotifyType {
        match self {
            Self::MajorVersion { .. } => NotifyType::InvalidMajorVersion,
            Self::Critical(_) => NotifyType::UnsupportedCriticalPayload,
            _ => NotifyType::InvalidSyntax,
        }
    }
}

/// Why a payload cannot be written: a field of the wire format is too narrow for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} is {found}, the wire format holds at most {limit}")]
pub struct EncodeError {
    /// The length or number that is too large.
    pub what: &'static str,
    /// Its value.
    pub found: usize,
    /// The largest that fits.
    pub limit: usize,
}
