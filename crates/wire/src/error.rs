//! Errors of headers.

use std::fmt;

/// Why a header is refused, or cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// There are fewer octets than the header needs.
    Truncated {
        /// Octets that are there.
        found: usize,
        /// Octets that must be there.
        expected: usize,
    },
    /// The packet has another version of IP.
    Version {
        /// Version field of the packet.
        found: u8,
        /// Version that this parser reads.
        expected: u8,
    },
    /// A length field contradicts the rest of the header.
    Length {
        /// Value of the field.
        found: usize,
        /// The least valid value.
        expected: usize,
    },
    /// An option or extension header extends past its end.
    Options,
    /// There are more extension headers than any real packet has.
    TooManyHeaders,
    /// The header's checksum is wrong.
    Checksum,
    /// The ESP padding is not 1, 2, 3, ... (RFC 4303 §2.4).
    Padding,
    /// The packet must not be fragmented, or not into pieces that small.
    Unfragmentable,
    /// The caller's buffer is too small.
    NoRoom {
        /// Octets of the buffer.
        found: usize,
        /// Octets needed.
        expected: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated { found, expected } => {
                write!(f, "truncated: {found} octets, expected {expected}")
            }
            Self::Version { found, expected } => write!(f, "IP version {found}, expected {expected}"),
            Self::Length { found, expected } => {
                write!(f, "length field says {found}, expected at least {expected}")
            }
            Self::Options => f.write_str("malformed options, expected each to end inside the header"),
            Self::TooManyHeaders => {
                write!(f, "too many extension headers, expected at most {}", crate::ipv6::MAX_EXTENSIONS)
            }
            Self::Checksum => f.write_str("checksum does not fit the header"),
            Self::Padding => f.write_str("ESP padding is not 1, 2, 3, ..."),
            Self::Unfragmentable => f.write_str("packet cannot be fragmented to this size"),
            Self::NoRoom { found, expected } => write!(f, "buffer of {found} octets, expected {expected}"),
        }
    }
}

impl std::error::Error for Error {}
