//! Children that come up by themselves: initiated at once and again after a failure, or at the next
//! packet.

use crate::config::{Child, Connection};
use crate::output::{ChildSaId, Reason, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use testudo_base::spi::Shard;

/// Bound on the immediate restarts of a lost child before it has to wait. Otherwise two tunnels
/// that displace each other would do nothing else.
const MOST_AT_ONCE: u32 = 3;

/// Bound on the initiations in one turn. Each takes the first half of a key exchange, and with
/// thousands everything else would wait.
const MAX_IN_ONE_GO: usize = 64;

/// The children to initiate, by connection and child.
#[derive(Debug, Default)]
pub(crate) struct Starts {
    /// Each with a time, if an attempt is due.
    wanted: BTreeMap<Name, Option<Time>>,
    /// The due attempts, the next one first.
    due: BTreeSet<(Time, Name)>,
    /// Children that have waited for a packet since they were lost.
    trapped: BTreeSet<Name>,
    /// Children that were restarted.
    restarted: BTreeMap<Name, Restarted>,
}

/// Connection and child.
type Name = (String, String);

/// A child that was lost and started again.
#[derive(Clone, Copy, Debug)]
struct Restarted {
    /// Start of the counting period, and the number of restarts in it.
    since: Time,
    count: u32,
    /// The home shard of its IKE SA.
    shard: Shard,
}

impl Starts {
    /// Schedules an attempt for the child.
    pub(crate) fn schedule(&mut self, connection: &str, child: &str, at: Time) {
        let name = (connection.to_owned(), child.to_owned());
        self.due.insert((at, name.clone()));
        if let Some(Some(before)) = self.wanted.insert(name.clone(), Some(at)).filter(|was| *was != Some(at))
        {
            self.due.remove(&(before, name));
        }
    }

    /// The child is being requested. It is tried again if that fails.
    pub(crate) fn want(&mut self, connection: &str, child: &str) {
        self.wanted.entry((connection.to_owned(), child.to_owned())).or_insert(None);
    }

    /// Restarts a child that was lost in this shard: at once, unless it was lost too often within
    /// `pause`.
    pub(crate) fn restart(
        &mut self,
        connection: &str,
        child: &str,
        shard: Shard,
        now: Time,
        pause: Duration,
    ) {
        let name = (connection.to_owned(), child.to_owned());
        let lost = self.restarted.entry(name).or_insert(Restarted { since: now, count: 0, shard });
        lost.shard = shard;
        if now.since(lost.since) >= pause {
            (lost.since, lost.count) = (now, 0);
        }
        lost.count = lost.count.saturating_add(1);
        let at = if lost.count <= MOST_AT_ONCE { now } else { lost.since.plus(pause) };
        self.schedule(connection, child, at);
    }

    /// The home shard of the child when it was last lost.
    pub(crate) fn lost_in(&self, connection: &str, child: &str) -> Option<Shard> {
        let name = (connection.to_owned(), child.to_owned());
        self.restarted.get(&name).map(|lost| lost.shard)
    }

    /// All wanted children, whether an attempt is due or not.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = (&str, &str)> {
        self.wanted.keys().map(|(connection, child)| (connection.as_str(), child.as_str()))
    }

    /// True if the child is wanted, whether an attempt is due or not.
    pub(crate) fn is_wanted(&self, connection: &str, child: &str) -> bool {
        self.wanted.contains_key(&(connection.to_owned(), child.to_owned()))
    }

    /// When the child is tried next, if that is scheduled.
    pub(crate) fn due_at(&self, connection: &str, child: &str) -> Option<Time> {
        self.wanted.get(&(connection.to_owned(), child.to_owned())).copied().flatten()
    }

    /// The next packet initiates the child.
    pub(crate) fn trap(&mut self, connection: &str, child: &str) {
        self.trapped.insert((connection.to_owned(), child.to_owned()));
    }

    /// The next packet does not initiate the child any more.
    pub(crate) fn untrap(&mut self, connection: &str, child: &str) {
        self.trapped.remove(&(connection.to_owned(), child.to_owned()));
    }

    pub(crate) fn is_trapped(&self, connection: &str, child: &str) -> bool {
        self.trapped.contains(&(connection.to_owned(), child.to_owned()))
    }

    /// Forgets the starts and traps that the connection does not want any more, and its restarts. A
    /// child whose `start_action` trapped before and does not now has lost the trap of its other
    /// actions too, as by [`Starts::untrap`].
    pub(crate) fn keep(&mut self, before: Option<&Connection>, connection: &Connection) {
        let wanted = |name: &str, wanted: &dyn Fn(&Child) -> bool| {
            let child = connection.child(name).filter(|child| child.mode.is_negotiated());
            child.is_some_and(wanted)
        };
        let started = |child: &Child| {
            [child.start_action, child.dpd_action, child.close_action].iter().any(|action| action.starts())
        };
        let trapped_before = |child: &Child| {
            before
                .and_then(|before| before.child(&child.name))
                .is_some_and(|child| child.start_action.traps())
        };
        let trapped = |child: &Child| {
            let is_untrapped = trapped_before(child) && !child.start_action.traps();
            !is_untrapped && [child.dpd_action, child.close_action].iter().any(|action| action.traps())
        };
        self.forget_those(&connection.name, |child| (!wanted(child, &started), !wanted(child, &trapped)));
    }

    /// Forgets the children of a connection.
    pub(crate) fn forget(&mut self, connection: &str) {
        self.forget_those(connection, |_| (true, true));
    }

    /// Forgets children of a connection: their starts, their traps, and their restarts.
    fn forget_those(&mut self, connection: &str, which: impl Fn(&str) -> (bool, bool)) {
        for name in of(connection, self.wanted.range(first(connection)..).map(|(name, _)| name)) {
            if which(&name.1).0
                && let Some(Some(at)) = self.wanted.remove(&name)
            {
                self.due.remove(&(at, name));
            }
        }
        for name in of(connection, self.trapped.range(first(connection)..)) {
            if which(&name.1).1 {
                self.trapped.remove(&name);
            }
        }
        for name in of(connection, self.restarted.range(first(connection)..).map(|(name, _)| name)) {
            self.restarted.remove(&name);
        }
    }

    /// An initiation has ended: a failed one is repeated, but not one that an operator stopped.
    pub(crate) fn finished(
        &mut self,
        connection: &str,
        child: &str,
        result: &Result<ChildSaId, Reason>,
        retry: Time,
    ) {
        let name = (connection.to_owned(), child.to_owned());
        let Some(next) = self.wanted.get_mut(&name) else { return };
        if let Some(at) = next.take() {
            self.due.remove(&(at, name));
        }
        match result {
            Ok(_) | Err(Reason::Requested) => {}
            Err(_) => self.schedule(connection, child, retry),
        }
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes children whose time has come; those beyond the bound of one turn stay due.
    pub(crate) fn due(&mut self, now: Time) -> Vec<Name> {
        let mut taken = Vec::new();
        while taken.len() < MAX_IN_ONE_GO && self.due.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, name)) = self.due.pop_first() else { break };
            self.wanted.insert(name.clone(), None);
            taken.push(name);
        }
        taken
    }
}

fn first(connection: &str) -> Name {
    (connection.to_owned(), String::new())
}

/// The names of this connection among those of sorted names that begin with it.
fn of<'a>(connection: &str, names: impl Iterator<Item = &'a Name>) -> Vec<Name> {
    names.take_while(|(name, _)| name == connection).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time(Duration::from_secs(seconds))
    }

    fn name(connection: &str, child: &str) -> Name {
        (connection.into(), child.into())
    }

    #[test]
    fn due_starts_come_in_time_and_once() {
        let mut starts = Starts::default();
        starts.schedule("b", "net", at(20));
        starts.schedule("a", "net", at(10));
        starts.schedule("a", "net", at(30));
        assert_eq!(starts.next(), Some(at(20)), "the last word counts");
        assert_eq!(starts.due(at(19)), []);
        assert_eq!(starts.due(at(40)), [name("b", "net"), name("a", "net")]);
        assert_eq!((starts.next(), starts.due(at(40))), (None, vec![]));
        starts.finished("a", "net", &Err(Reason::Refused("no".into())), at(50));
        starts.finished("b", "net", &Ok(ChildSaId(1)), at(50));
        starts.finished("c", "net", &Err(Reason::Refused("no".into())), at(50));
        assert_eq!(
            starts.due(at(50)),
            [name("a", "net")],
            "what failed is tried again, what nobody wanted is not"
        );
    }

    #[test]
    fn thousands_are_begun_in_several_goes() {
        let mut starts = Starts::default();
        (0..1000).for_each(|n| starts.schedule(&format!("c{n}"), "net", at(10)));
        let mut begun = BTreeSet::new();
        while starts.next() == Some(at(10)) {
            let go = starts.due(at(10));
            assert!((1..=MAX_IN_ONE_GO).contains(&go.len()));
            begun.extend(go);
        }
        assert_eq!(begun.len(), 1000);
    }

    #[test]
    fn a_connection_is_forgotten_and_its_neighbours_are_not() {
        let mut starts = Starts::default();
        for connection in ["a", "ab", "b"] {
            starts.restart(connection, "net", Shard(7), at(1), Duration::from_secs(60));
            starts.trap(connection, "net");
        }
        starts.forget("ab");
        assert!(
            starts.is_trapped("a", "net") && starts.is_trapped("b", "net") && !starts.is_trapped("ab", "net")
        );
        assert_eq!(starts.due(at(1)), [name("a", "net"), name("b", "net")]);
        assert_eq!(starts.restarted.len(), 2);
    }
}
