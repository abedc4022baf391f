//! Why bytes are not what they claim to be.

use std::fmt;

/// Why a header was refused, or could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Fewer octets than the header takes.
    Truncated {
        /// Octets that are there.
        found: usize,
        /// Octets that must be there.
        expected: usize,
    },
    /// Another version of IP.
    Version {
        /// Version field of the packet.
        found: u8,
        /// Version that this parser reads.
        expected: u8,
    },
    /// A length field that contradicts the rest of the header.
    Length {
        /// What the field says.
        found: usize,
        /// The least that it may say.
        expected: usize,
    },
    /// An option or extension header that runs past its end.
    Options,
    /// More extension headers than a sane packet has.
    TooManyHeaders,
    /// The header's checksum does not fit.
    Checksum,
    /// ESP padding that is not 1, 2, 3, ... (RFC 4303 §2.4).
    Padding,
    /// The packet must not be fragmented, or not into pieces that small.
    Unfragmentable,
    /// The caller's buffer is too small.
    NoRoom {
        /// Octets that the buffer has.
        found: usize,
        /// Octets that are needed.
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
