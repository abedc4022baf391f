//! Errors in messages, with their places.

use super::header::Header;
use super::number::{NotifyType, PayloadType};
use std::fmt;

/// The place of an error in the octets. Offsets count from the start of what was parsed: the
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

/// Why octets are not a valid message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// A field is longer than the remaining octets.
    #[error("{place}: {what} needs {needed} octets, {left} are left")]
    Truncated {
        /// Where the field begins.
        place: Place,
        /// The field.
        what: &'static str,
        /// Octets of the field.
        needed: usize,
        /// Octets left.
        left: usize,
    },
    /// Octets behind the last field.
    #[error("{place}: {left} octets are left behind {what}")]
    Trailing {
        /// Where they begin.
        place: Place,
        /// What they follow.
        what: &'static str,
        /// Their number.
        left: usize,
    },
    /// A field has a value that is not allowed.
    #[error("{place}: {what} is {found}, expected {expected}")]
    Value {
        /// Where the field begins.
        place: Place,
        /// The field.
        what: &'static str,
        /// Its value.
        found: u64,
        /// The allowed values.
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
        /// The rest of the header, as far as its meaning can be trusted.
        header: Header,
    },
    /// An unknown payload that must not be ignored: UNSUPPORTED_CRITICAL_PAYLOAD (RFC 7296 §2.5).
    #[error("payload {0} is unknown and marked critical")]
    Critical(PayloadType),
    /// More payloads than any honest message has.
    #[error("more than {limit} payloads")]
    TooManyPayloads {
        /// The bound.
        limit: usize,
    },
    /// A payload that may occur only once occurs twice.
    #[error("payload {0} occurs twice")]
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
    /// The name of the length or number.
    pub what: &'static str,
    /// Its value.
    pub found: usize,
    /// The largest that fits.
    pub limit: usize,
}
