//! Why a connection to corosync does not begin, or ends.

use crate::node::NodeId;
use rust_corosync::CsError;
use std::io;

/// The texts are for the log: the host hears them by [`EngineEvent::Down`].
///
/// [`EngineEvent::Down`]: crate::engine::EngineEvent::Down
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// A call into corosync's libraries failed.
    #[error("cannot {action}{}", explain(.source))]
    Call { action: &'static str, source: CsError },
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
    pub(super) fn call(action: &'static str) -> impl FnOnce(CsError) -> Self {
        move |source| Self::Call { action, source }
    }
}

/// The library's error, and what an operator can do about it.
fn explain(error: &CsError) -> String {
    let advice = match error {
        CsError::CsErrLibrary | CsError::CsErrNotExist => "is it running?",
        CsError::CsErrAccess | CsError::CsErrSecurity => {
            "testudod's user is not allowed to: run it as root, or allow it by a file in /etc/corosync/uidgid.d"
        }
        CsError::CsErrTryAgain => "it forms a membership, or is starting",
        CsError::CsErrExist => "this process is in the group already",
        _ => return format!(": {error}"),
    };
    format!(" ({error}): {advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_call_says_what_to_do() {
        let shown = |source| Error::call("connect to corosync")(source).to_string();
        let library = shown(CsError::CsErrLibrary);
        assert!(
            library.starts_with("cannot connect to corosync (") && library.ends_with("): is it running?")
        );
        let other = shown(CsError::CsErrNoMemory);
        assert_eq!(other, format!("cannot connect to corosync: {}", CsError::CsErrNoMemory));
    }
}
