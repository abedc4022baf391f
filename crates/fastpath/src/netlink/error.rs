//! Errors of rtnetlink.

use netlink_packet_core::DecodeError;
use std::io;

/// Errors of rtnetlink.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetlinkError {
    /// The kernel refused a request.
    #[error("{operation}: {source}{}", hint(source))]
    Request {
        /// The operation that failed.
        operation: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The thread that follows the tables could not be started.
    #[error("cannot start the thread that follows routes and neighbours: {source}")]
    Thread {
        /// The system's answer.
        source: io::Error,
    },
    /// Another program uses our priority among the routing rules.
    #[error(
        "routing rule {priority} ({family}) exists and is not ours; another IPsec daemon may be installed here: \
         remove it, or choose another priority and table"
    )]
    ForeignRule {
        /// Priority of the rule.
        priority: u32,
        /// IPv4 or IPv6.
        family: &'static str,
    },
}

impl NetlinkError {
    /// The kernel's error number, if it gave one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Request { source, .. } | Self::Thread { source } => source.raw_os_error(),
            _ => None,
        }
    }
}

/// Why a message of the kernel cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum MessageError {
    /// Its length is less than its header's, or more than the rest of the datagram's.
    #[error("a message of {claimed} octets where {left} are left")]
    Length {
        /// The length in its header.
        claimed: usize,
        /// Octets from its beginning to the end of the datagram.
        left: usize,
    },
    /// It does not have the form of its type.
    #[error(transparent)]
    Contents(DecodeError),
}

/// Result of rtnetlink functions.
pub type Result<T> = std::result::Result<T, NetlinkError>;

fn hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => " (needs CAP_NET_ADMIN)",
        _ => "",
    }
}
