//! Errors between a client and the server, below the level of a command's own `errmsg`.

use std::fmt;
use std::io;

/// Errors of the protocol and of the client's transport.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The length field of a packet is out of bounds.
    #[error("packet of {found} octets announced, expected 1 to {}", crate::codec::MAX_PACKET)]
    PacketLength {
        /// The value of the length field.
        found: u64,
    },
    /// A packet or message ends inside a field.
    #[error("message ends inside {field}")]
    Truncated {
        /// The field that is cut off.
        field: &'static str,
    },
    /// The first octet of a packet is not a known packet type, or not one that this side may
    /// receive.
    #[error("packet type {found} found, expected {expected}")]
    PacketType {
        /// The type found.
        found: u8,
        /// The allowed types.
        expected: &'static str,
    },
    /// Octets after the end of a packet that carries no message.
    #[error("{found} octets found behind a packet that carries no message")]
    TrailingOctets {
        /// Their number.
        found: usize,
    },
    /// An octet that is no element type, or an element in a wrong place.
    #[error("element type {found} found {place}, expected {expected}")]
    ElementType {
        /// The type found.
        found: u8,
        /// Its place.
        place: &'static str,
        /// The allowed types.
        expected: &'static str,
    },
    /// A name is not UTF-8.
    #[error("found the name \"{name}\", expected UTF-8")]
    NameEncoding {
        /// The name; octets that are not ASCII are escaped.
        name: String,
    },
    /// Sections are nested too deeply.
    #[error("sections nested deeper than {}", crate::codec::MAX_DEPTH)]
    TooDeep,
    /// A name, value or message does not fit its length field.
    #[error("{what} of {found} octets does not fit, expected at most {most}")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The longest that fits.
        most: usize,
    },
    /// The client has sent too many requests without waiting for the answers.
    #[error("client sent {found} octets ahead of the answers, expected at most {most}")]
    Flood {
        /// Octets not processed yet.
        found: usize,
        /// The limit.
        most: usize,
    },
    /// The client does not read what the server sends.
    #[error("client left {found} octets unread, expected at most {most}")]
    Backlog {
        /// Octets that wait for the client.
        found: usize,
        /// The limit.
        most: usize,
    },
    /// The server has its maximum of clients.
    #[error("{most} clients are connected already")]
    TooManyClients {
        /// The limit.
        most: usize,
    },
    /// The transport failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The peer closed the connection.
    #[error("connection closed by the peer")]
    Closed,
    /// The server does not know a command.
    #[error("the server knows no command {0:?}")]
    UnknownCommand(String),
    /// The server does not know an event.
    #[error("the server knows no event {0:?}")]
    UnknownEvent(String),
    /// The server answered `success = no`.
    #[error("{0}")]
    Refused(String),
    /// A key of an answer is missing, or its value is wrong.
    #[error("answer: {key} is {found}, expected {expected}")]
    Answer {
        /// The key.
        key: String,
        /// The value found.
        found: String,
        /// The value expected.
        expected: &'static str,
    },
}

/// Why the gateway does not execute a command: a text for operators, which must not hold secrets.
///
/// It does not implement [`std::error::Error`], so that `?` converts any error into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandError(String);

impl CommandError {
    /// An error with that text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for CommandError {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}
