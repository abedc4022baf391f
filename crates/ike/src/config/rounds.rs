//! Several rounds of authentication (RFC 4739).

use super::{Connection, LocalAuth, RemoteAuth};
use serde::{Deserialize, Serialize};
use std::iter::once;

/// Bound on the rounds of a side: a peer must not be able to go on forever.
pub const MAX_ROUNDS: usize = 4;

/// The further `local` and `remote` sections, in the order of `round`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FurtherRounds {
    /// How we authenticate in further rounds.
    pub local: Vec<LocalAuth>,
    /// How the peer must authenticate in further rounds.
    pub remote: Vec<RemoteAuth>,
}

impl Connection {
    /// True if a side has to authenticate more than once.
    pub fn has_rounds(&self) -> bool {
        !self.rounds.local.is_empty() || !self.rounds.remote.is_empty()
    }

    /// Our rounds, in order.
    pub fn local_rounds(&self) -> impl Iterator<Item = &LocalAuth> + Clone {
        once(&self.local).chain(&self.rounds.local)
    }

    /// The peer's rounds, in order.
    pub fn remote_rounds(&self) -> impl Iterator<Item = &RemoteAuth> + Clone {
        once(&self.remote).chain(&self.rounds.remote)
    }

    /// Our round of that number, counted from 0.
    pub(crate) fn local_round(&self, number: usize) -> Option<&LocalAuth> {
        self.local_rounds().nth(number)
    }

    /// The peer's round of that number, counted from 0.
    pub(crate) fn remote_round(&self, number: usize) -> Option<&RemoteAuth> {
        self.remote_rounds().nth(number)
    }

    /// Our round that goes with a round of the peer: that of the same number, or else our last.
    pub(crate) fn local_beside(&self, number: usize) -> &LocalAuth {
        let last = || self.rounds.local.last().unwrap_or(&self.local);
        self.local_round(number).unwrap_or_else(last)
    }

    /// The peer's last round, which gives the IKE SA the peer's identity.
    pub(crate) fn last_remote(&self) -> &RemoteAuth {
        self.rounds.remote.last().unwrap_or(&self.remote)
    }

    /// The peer's round that goes with a round of ours: that of the same number, or else its last.
    pub(crate) fn remote_beside(&self, number: usize) -> &RemoteAuth {
        self.remote_round(number).unwrap_or_else(|| self.last_remote())
    }
}
