//! Outdated SAs: their configuration has changed since, and others will replace them.

use super::{IkeSa, Reauth};
use crate::config::IkeChange;
use crate::output::Time;
use serde::{Deserialize, Serialize};

/// Bound on the requests to a peer for an SA by the new configuration. A peer that keeps the old
/// configuration keeps its SAs.
pub(crate) const MAX_TRIES: u8 = 3;

/// State of a Child SA that is to be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outdated {
    /// The next attempt. `None`: it is under way, or there are no more attempts.
    pub(crate) at: Option<Time>,
    /// Failed attempts.
    tries: u8,
}

/// State of an IKE SA that is to be replaced, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OutdatedIke {
    pub(crate) change: IkeChange,
    pub(crate) turn: Outdated,
}

impl IkeSa {
    /// True if it is to be set up anew by the present configuration, and that has not been given
    /// up.
    pub(crate) fn is_outdated(&self) -> bool {
        let anew = self.outdated.as_ref().filter(|outdated| outdated.change == IkeChange::Reauthenticate);
        anew.is_some_and(|outdated| !outdated.turn.is_given_up())
    }

    /// True if another IKE SA is being set up in its place, or will be at a known time.
    pub(crate) fn is_about_to_be_set_up_anew(&self) -> bool {
        let due = self.outdated.as_ref().is_some_and(|outdated| outdated.turn.at.is_some());
        self.reauth == Some(Reauth::Begun) || self.is_outdated() && due
    }

    /// True if it was set up by a configuration that is gone, whether it will still be replaced or
    /// that was given up: rekeying does not prolong its life.
    pub(crate) fn keeps_its_end(&self) -> bool {
        self.outdated.as_ref().is_some_and(|outdated| outdated.change == IkeChange::Reauthenticate)
    }
}

impl OutdatedIke {
    /// It could not be set up this way any more, and nothing is tried until shortly before its end.
    pub(crate) fn given_up() -> Self {
        let mut turn = Outdated::new(None);
        turn.give_up();
        Self { change: IkeChange::Reauthenticate, turn }
    }

    /// Likewise, because the proof of the peer's identity is not valid any more. It is due at once,
    /// so that the time of a reauthentication is set.
    pub(crate) fn distrusted() -> Self {
        let mut distrusted = Self::given_up();
        distrusted.turn.at = Some(Time::default());
        distrusted
    }

    /// True if it is to be rekeyed, and that has not been given up.
    pub(crate) fn is_rekey(&self) -> bool {
        self.change == IkeChange::Rekey && !self.turn.is_given_up()
    }
}

impl Outdated {
    /// To be tried from this time on; `None`: not by itself.
    pub(crate) fn new(at: Option<Time>) -> Self {
        Self { at, tries: 0 }
    }

    /// An attempt has failed. Returns true if there is another one, at `retry`.
    pub(crate) fn failed(&mut self, retry: Time) -> bool {
        self.tries = self.tries.saturating_add(1);
        self.at = Some(retry).filter(|_| !self.is_given_up());
        self.at.is_some()
    }

    /// True if there are no more attempts.
    pub(crate) fn is_given_up(&self) -> bool {
        self.tries >= MAX_TRIES
    }

    /// Gives the attempts up.
    pub(crate) fn give_up(&mut self) {
        *self = Self { at: None, tries: MAX_TRIES };
    }
}
