//! SAs that were made by a configuration that has changed since: others are to take their place.

use super::IkeSa;
use crate::config::IkeChange;
use crate::output::Time;
use serde::{Deserialize, Serialize};

/// How often a peer is asked for an SA by the new configuration. One that has the old one still, or
/// for good, keeps what it has.
pub(crate) const MAX_TRIES: u8 = 3;

/// What a Child SA has that is to be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outdated {
    /// When that is tried next. `None`: it is under way, or there is nothing more to try.
    pub(crate) at: Option<Time>,
    /// Tries that have failed.
    tries: u8,
}

/// The same of an IKE SA, and what it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OutdatedIke {
    pub(crate) change: IkeChange,
    pub(crate) turn: Outdated,
}

impl IkeSa {
    /// It is to be set up anew by the configuration as it is now, and that has not been given up.
    pub(crate) fn is_outdated(&self) -> bool {
        let anew = self.outdated.as_ref().filter(|outdated| outdated.change == IkeChange::Reauthenticate);
        anew.is_some_and(|outdated| !outdated.turn.is_given_up())
    }

    /// It was set up by what is not configured any more, whether another is still to take its place
    /// or that has been given up: by new keys it does not live longer.
    pub(crate) fn keeps_its_end(&self) -> bool {
        self.outdated.as_ref().is_some_and(|outdated| outdated.change == IkeChange::Reauthenticate)
    }
}

impl OutdatedIke {
    /// It could not be set up as it is any more, and nothing is tried until shortly before its end.
    pub(crate) fn given_up() -> Self {
        let mut turn = Outdated::new(None);
        turn.give_up();
        Self { change: IkeChange::Reauthenticate, turn }
    }

    /// It is to have new keys, and that has not been given up.
    pub(crate) fn is_rekey(&self) -> bool {
        self.change == IkeChange::Rekey && !self.turn.is_given_up()
    }
}

impl Outdated {
    /// To be tried from then on; `None`: not of its own accord.
    pub(crate) fn new(at: Option<Time>) -> Self {
        Self { at, tries: 0 }
    }

    /// A try has failed. True if there is another, at that time.
    pub(crate) fn failed(&mut self, retry: Time) -> bool {
        self.tries = self.tries.saturating_add(1);
        self.at = Some(retry).filter(|_| !self.is_given_up());
        self.at.is_some()
    }

    /// It was tried often enough, or can come to nothing.
    pub(crate) fn is_given_up(&self) -> bool {
        self.tries >= MAX_TRIES
    }

    /// Nothing will come of it here.
    pub(crate) fn give_up(&mut self) {
        *self = Self { at: None, tries: MAX_TRIES };
    }
}
