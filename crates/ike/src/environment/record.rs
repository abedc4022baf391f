//! Records of configured children beside their SAs: since when each is up or not, and its last
//! failure.

use crate::output::{Reason, Time};

/// Why a child is not up, or was not renewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildFailure {
    /// When it failed.
    pub at: Time,
    /// The reason, as a text for operators.
    pub why: String,
}

/// The record of one configured child.
#[derive(Clone, Debug)]
pub(crate) struct ChildRecord {
    /// When it was loaded, came up or went down, whichever was last.
    since: Time,
    up: bool,
    failure: Option<Box<ChildFailure>>,
}

impl ChildRecord {
    /// The child was loaded, and is not up.
    pub(crate) fn new(now: Time) -> Self {
        Self { since: now, up: false, failure: None }
    }

    /// It has a Child SA.
    pub(crate) fn came_up(&mut self, now: Time) {
        if !self.up {
            (self.since, self.up) = (now, true);
        }
    }

    /// A Child SA of the child is gone, and no other takes its place.
    pub(crate) fn went_down(&mut self, now: Time) {
        (self.since, self.up) = (now, false);
    }

    /// An attempt for the child has failed.
    pub(crate) fn failed(&mut self, now: Time, why: String) {
        self.failure = Some(Box::new(ChildFailure { at: now, why }));
    }

    /// Since when it is up, or not up. `None` if its state has changed since the last report.
    pub(crate) fn since(&self, up: bool) -> Option<Time> {
        (self.up == up).then_some(self.since)
    }

    pub(crate) fn failure(&self) -> Option<&ChildFailure> {
        self.failure.as_deref()
    }
}

/// True if the end of a Child SA with this reason means that the child is not up. If another SA
/// takes over, the child stays up.
pub(crate) fn is_loss(reason: &Reason) -> bool {
    match reason {
        Reason::Rekeyed | Reason::Reauthenticated => false,
        Reason::Requested
        | Reason::DeletedByPeer
        | Reason::Timeout { .. }
        | Reason::Unsent { .. }
        | Reason::Notify(_)
        | Reason::Refused(_)
        | Reason::Expired
        | Reason::Replaced => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64) -> Time {
        Time(Duration::from_secs(seconds))
    }

    #[test]
    fn a_record_has_the_time_of_its_last_change() {
        let mut record = ChildRecord::new(at(1));
        assert_eq!((record.since(false), record.since(true)), (Some(at(1)), None));
        record.came_up(at(2));
        record.came_up(at(3));
        assert_eq!((record.since(false), record.since(true)), (None, Some(at(2))), "the first counts");
        record.went_down(at(4));
        assert_eq!(record.since(false), Some(at(4)));
    }

    #[test]
    fn the_last_failure_stays_while_it_is_up() {
        let mut record = ChildRecord::new(at(1));
        record.failed(at(2), "first".into());
        record.failed(at(3), "second".into());
        record.came_up(at(4));
        assert_eq!(record.failure(), Some(&ChildFailure { at: at(3), why: "second".into() }));
    }
}
