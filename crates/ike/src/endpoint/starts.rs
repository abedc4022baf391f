//! Children that are to come up by themselves: tried at once and again after a failure, or at the next packet.

use crate::output::{ChildSaId, Reason, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often a lost child is started again at once, before it has to wait. Two tunnels that displace each other would do
/// nothing else otherwise.
const MOST_AT_ONCE: u32 = 3;

/// The children to bring up, by connection and child.
#[derive(Debug, Default)]
pub(crate) struct Starts {
    /// With a time where a try is due.
    wanted: BTreeMap<(String, String), Option<Time>>,
    /// Those that wait for a packet since they were lost.
    trapped: BTreeSet<(String, String)>,
    /// Those that were started again: since when they are counted, and how often.
    restarted: BTreeMap<(String, String), (Time, u32)>,
}

impl Starts {
    /// The child is to be tried at that time.
    pub(crate) fn schedule(&mut self, connection: &str, child: &str, at: Time) {
        self.wanted.insert((connection.to_owned(), child.to_owned()), Some(at));
    }

    /// The child was lost, and is to be tried: at once, unless it was lost too often within `pause`.
    pub(crate) fn restart(&mut self, connection: &str, child: &str, now: Time, pause: Duration) {
        let name = (connection.to_owned(), child.to_owned());
        let (since, count) = self.restarted.entry(name).or_insert((now, 0));
        if now.since(*since) >= pause {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        let at = if *count <= MOST_AT_ONCE { now } else { since.plus(pause) };
        self.schedule(connection, child, at);
    }

    /// The child comes up with the next packet for it.
    pub(crate) fn trap(&mut self, connection: &str, child: &str) {
        self.trapped.insert((connection.to_owned(), child.to_owned()));
    }

    pub(crate) fn is_trapped(&self, connection: &str, child: &str) -> bool {
        self.trapped.contains(&(connection.to_owned(), child.to_owned()))
    }

    /// Forgets the children of a connection.
    pub(crate) fn forget(&mut self, connection: &str) {
        self.wanted.retain(|(name, _), _| name != connection);
        self.trapped.retain(|(name, _)| name != connection);
        self.restarted.retain(|(name, _), _| name != connection);
    }

    /// An initiation ended: what failed is tried again, but not what an operator stopped.
    pub(crate) fn finished(
        &mut self,
        connection: &str,
        child: &str,
        result: &Result<ChildSaId, Reason>,
        retry: Time,
    ) {
        if let Some(next) = self.wanted.get_mut(&(connection.to_owned(), child.to_owned())) {
            *next = match result {
                Ok(_) | Err(Reason::Requested) => None,
                Err(_) => Some(retry),
            };
        }
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.wanted.values().flatten().min().copied()
    }

    /// Takes the children whose time has come.
    pub(crate) fn due(&mut self, now: Time) -> Vec<(String, String)> {
        let due = self.wanted.iter_mut().filter(|(_, at)| at.is_some_and(|at| at <= now));
        due.map(|(name, at)| {
            *at = None;
            name.clone()
        })
        .collect()
    }
}
