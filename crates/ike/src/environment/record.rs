//! What is remembered of a configured child beside its SAs: since when it is up or not, and what
//! it last failed of.

use crate::output::{Reason, Time};

/// Why a child is not up, or was not renewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildFailure {
    /// When it failed.
    pub at: Time,
    /// Why; the text is for operators.
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

    /// A Child SA of it is gone, and no other has its place.
    pub(crate) fn went_down(&mut self, now: Time) {
        (self.since, self.up) = (now, false);
    }

    /// Something that was tried for it came to nothing.
    pub(crate) fn failed(&mut self, now: Time, why: String) {
        self.failure = Some(Box::new(ChildFailure { at: now, why }));
    }

    /// Since when it is up, or not up. `None`: it is now what it was not when this was last told.
    pub(crate) fn since(&self, up: bool) -> Option<Time> {
        (self.up == up).then_some(self.since)
    }

    pub(crate) fn failure(&self) -> Option<&ChildFailure> {
        self.failure.as_deref()
    }
}

/// True if the end of a Child SA says something about its child: the child is not up now for that
/// reason. Where another SA takes over, the child stays up.
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
    fn it_tells_since_when_it_is_what_it_is() {
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
