//! Children with `start_action = start`: tried when loaded, and again after a failure.

use crate::output::{ChildSaId, Reason, Time};
use std::collections::BTreeMap;

/// The children to bring up, by connection and child; with a time where a try is due.
#[derive(Debug, Default)]
pub(crate) struct Starts(BTreeMap<(String, String), Option<Time>>);

impl Starts {
    /// The child is to be tried at that time.
    pub(crate) fn schedule(&mut self, connection: &str, child: &str, at: Time) {
        self.0.insert((connection.to_owned(), child.to_owned()), Some(at));
    }

    /// Forgets the children of a connection.
    pub(crate) fn forget(&mut self, connection: &str) {
        self.0.retain(|(name, _), _| name != connection);
    }

    /// An initiation ended: what failed is tried again, but not what an operator stopped.
    pub(crate) fn finished(
        &mut self,
        connection: &str,
        child: &str,
        result: &Result<ChildSaId, Reason>,
        retry: Time,
    ) {
        if let Some(next) = self.0.get_mut(&(connection.to_owned(), child.to_owned())) {
            *next = match result {
                Ok(_) | Err(Reason::Requested) => None,
                Err(_) => Some(retry),
            };
        }
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.0.values().flatten().min().copied()
    }

    /// Takes the children whose time has come.
    pub(crate) fn due(&mut self, now: Time) -> Vec<(String, String)> {
        let due = self.0.iter_mut().filter(|(_, at)| at.is_some_and(|at| at <= now));
        due.map(|(name, at)| {
            *at = None;
            name.clone()
        })
        .collect()
    }
}
