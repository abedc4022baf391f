//! Why a connection to corosync does not begin, or ends.

use crate::node::NodeId;
use std::io;
use testudo_corosync::{Error as CallError, Status};

/// The texts are for the log: the host hears them by [`EngineEvent::Down`].
///
/// [`EngineEvent::Down`]: crate::engine::EngineEvent::Down
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// A call into corosync's libraries failed.
    #[error("cannot {action}{}", explain(.source))]
    Call { action: &'static str, source: CallError },
    /// The poller does not take the libraries' descriptors.
    #[error("cannot watch corosync's descriptors: {0}")]
    Watch(#[source] io::Error),
    /// The libraries do not tell their descriptors.
    #[error("corosync's libraries have no descriptor to wait for")]
    NoDescriptor,
    /// The host's corosync is another node's.
    #[error("corosync on this host has nodeid {found}, testudo.toml says that this is node {expected}")]
    NodeId { found: u32, expected: NodeId },
    /// Corosync would call every membership quorate.
    #[error("corosync counts no votes: corosync.conf needs quorum.provider: corosync_votequorum")]
    NoVotes,
    /// This process is no member any more.
    #[error("corosync has removed this process from its group")]
    Removed,
    /// Another process stands for this node.
    #[error("process {pid} of this node is in corosync's group already")]
    Twin { pid: u32 },
    /// The host has asked for it.
    #[error("this node leaves corosync's group, and joins it anew")]
    Rejoining,
}

/// What the connection to corosync answers.
pub(super) type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// For `map_err`: what corosync was called for, behind "cannot".
    pub(super) fn call(action: &'static str) -> impl FnOnce(CallError) -> Self {
        move |source| Self::Call { action, source }
    }
}

/// The library's error, and what an operator can do about it.
fn explain(error: &CallError) -> String {
    let advice = match error {
        CallError::Call(Status::LIBRARY | Status::NOT_EXIST) => "is it running?",
        CallError::Call(Status::ACCESS | Status::SECURITY) => {
            "testudod's user is not allowed to: run it as root, or allow it by a file in /etc/corosync/uidgid.d"
        }
        CallError::Call(Status::TRY_AGAIN) => "it forms a membership, or is starting",
        CallError::Call(Status::EXIST) => "this process is in the group already",
        _ => return format!(": {error}"),
    };
    format!(" ({error}): {advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_call_says_what_to_do() {
        for (status, reason) in [
            (Status::LIBRARY, "cannot connect to corosync (CS_ERR_LIBRARY): is it running?"),
            (
                Status::TRY_AGAIN,
                "cannot connect to corosync (CS_ERR_TRY_AGAIN): it forms a membership, or is starting",
            ),
            (Status::NAME_TOO_LONG, "cannot connect to corosync: CS_ERR_NAME_TOO_LONG"),
        ] {
            assert_eq!(Error::call("connect to corosync")(CallError::Call(status)).to_string(), reason);
        }
    }
}
