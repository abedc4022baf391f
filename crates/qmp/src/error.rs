//! What can go wrong between the client and the emulator.

use std::io;
use std::time::Duration;

/// Errors of the connection, and refusals by the emulator.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket does not exist, or nobody listens there.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// The connection cannot be read or written.
    #[error("connection failed: {0}")]
    Io(#[from] io::Error),
    /// The emulator has closed the connection, usually by its end.
    #[error("QEMU closed the connection")]
    Closed,
    /// No answer in time.
    #[error("QEMU did not answer {command} within {} seconds{}", limit.as_secs_f32(), hint(command))]
    Timeout {
        /// The command, or the greeting.
        command: String,
        /// The time limit.
        limit: Duration,
    },
    /// A line is longer than the client accepts.
    #[error("line of more than {} octets received", crate::MAX_LINE)]
    LineTooLong,
    /// A line is not what the protocol allows.
    #[error("{expected} expected, found {found}")]
    Protocol {
        /// The line, or its beginning.
        found: String,
        /// What the protocol has here.
        expected: &'static str,
    },
    /// The emulator has refused a command.
    #[error("{command} refused ({class}): {desc}")]
    Refused {
        /// The command.
        command: String,
        /// The class of the error, such as `GenericError`.
        class: String,
        /// The reason, for people.
        desc: String,
    },
}

/// A monitor serves one client at a time, and leaves the next one without a greeting.
fn hint(command: &str) -> &'static str {
    if command == crate::client::GREETING {
        "; another client may be connected to this monitor, which serves one at a time"
    } else {
        ""
    }
}

impl Error {
    /// Whether the emulator is gone: there is no socket, nobody listens there, or the connection
    /// has ended.
    pub fn is_gone(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound};
        match self {
            Self::Closed => true,
            Self::Connect(error) => matches!(error.kind(), ConnectionRefused | NotFound),
            Self::Io(error) => matches!(error.kind(), BrokenPipe | ConnectionReset),
            _ => false,
        }
    }
}
