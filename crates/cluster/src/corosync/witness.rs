//! Checks of the witness's vote, and their log lines.

use std::time::{Duration, Instant};

/// Interval between checks. A node that dies while the vote is missing may leave the other without
/// quorum.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Consecutive checks without a vote before it is logged: a witness takes its time when daemons
/// start.
const LOOKS_TO_BE_SURE: u32 = 3;
const VOTE_GONE: &str = "the witness gives this node no vote: see `corosync-quorumtool -s` here, and corosync-qnetd there. \
    Without it a node of two does not go on alone";
const VOTE_BACK: &str = "the witness gives this node its vote";

/// The results of the checks, over all connections.
#[derive(Debug, Default)]
pub(super) struct Watch {
    looked: Option<Instant>,
    silent: u32,
    told: bool,
}

impl Watch {
    pub(super) fn is_due(&self) -> bool {
        self.looked.is_none_or(|at| at.elapsed() >= LOOK_INTERVAL)
    }

    /// The log line for the result of a check, if it calls for one. `votes` is `None` if there is
    /// no witness, or its vote is not known.
    pub(super) fn looked(&mut self, votes: Option<bool>) -> Option<&'static str> {
        self.looked = Some(Instant::now());
        self.silent = if votes == Some(false) { self.silent.saturating_add(1) } else { 0 };
        match votes {
            Some(false) if self.silent >= LOOKS_TO_BE_SURE && !self.told => {
                self.told = true;
                Some(VOTE_GONE)
            }
            Some(true) if std::mem::take(&mut self.told) => Some(VOTE_BACK),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_hears_once_that_it_is_gone_and_once_that_it_is_back() {
        let mut watch = Watch::default();
        assert!(watch.is_due());
        let mut said = |votes: &[Option<bool>]| -> Vec<_> {
            votes.iter().filter_map(|votes| watch.looked(*votes)).collect()
        };
        assert!(said(&[Some(false), Some(false), Some(true), Some(false), Some(false)]).is_empty());
        assert_eq!(said(&[Some(false), Some(false)]), [VOTE_GONE]);
        // Corosync restarts meanwhile.
        assert!(said(&[None, Some(false), Some(false), Some(false), None]).is_empty());
        assert_eq!(said(&[Some(true), Some(true)]), [VOTE_BACK]);
        assert!(said(&[None, Some(true)]).is_empty());
        assert!(!watch.is_due());
    }
}
