//! What will happen, and the time, which goes from one event to the next.

use super::{Actor, What};
use crate::engine::Nanos;
use std::collections::{BTreeMap, BTreeSet};

/// Events in the order of their time, among equals as they were arranged, and deadlines. Of what is
/// due, events come before deadlines.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    pub(super) now: Nanos,
    queue: BTreeMap<(Nanos, u64), What>,
    queued: u64,
    wakes: BTreeSet<(Nanos, Actor)>,
    wake_of: BTreeMap<Actor, Nanos>,
}

/// What the time has come for.
#[derive(Debug)]
pub(super) enum Due {
    Event(What),
    Deadline(Actor),
}

impl Schedule {
    /// Arranges an event.
    pub(super) fn at(&mut self, at: Nanos, what: What) {
        self.queued += 1;
        self.queue.insert((at.max(self.now), self.queued), what);
    }

    /// An actor has that deadline from now on, or none.
    pub(super) fn wake(&mut self, actor: Actor, at: Option<Nanos>) {
        if let Some(old) = self.wake_of.remove(&actor) {
            self.wakes.remove(&(old, actor));
        }
        if let Some(at) = at {
            self.wakes.insert((at, actor));
            self.wake_of.insert(actor, at);
        }
    }

    /// When something happens next.
    pub(super) fn next(&self) -> Option<Nanos> {
        let queued = self.queue.first_key_value().map(|((at, _), _)| *at);
        let wake = self.wakes.first().map(|(at, _)| *at);
        [queued, wake].into_iter().flatten().min()
    }

    /// Takes what happens now.
    pub(super) fn take_due(&mut self) -> Option<Due> {
        if let Some(event) = self.queue.first_entry().filter(|event| event.key().0 <= self.now) {
            return Some(Due::Event(event.remove()));
        }
        let (at, actor) = self.wakes.pop_first()?;
        debug_assert!(at <= self.now);
        self.wake_of.remove(&actor);
        Some(Due::Deadline(actor))
    }
}
