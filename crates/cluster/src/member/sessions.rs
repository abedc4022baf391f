//! What nodes tell each other of sessions that take turns ([`testudo_base::session`]).
//!
//! Each node is the authority for the slots of its own shards. Beside each heartbeat it tells those
//! that have changed, each of them twice, and some of the others in turn. A session is told when
//! it is a heartbeat old. So a node that has missed a message soon has all of them. When a view
//! begins, and when a node that has come holds the state, all sessions are told at once. The
//! authority moves with the shards.

use super::core::Core;
use super::replication::replicas::Replicas;
use super::{Member, MemberOutput};
use crate::node::NodeId;
use std::time::Duration;
use testudo_base::session::{SLOTS, Session, Sessions, Told, shard_of, slots_of};
use testudo_base::shard::ShardSet;
use testudo_base::spi::Shard;
use testudo_ike::output::Time;
use testudo_planted::{Plant, planted};

/// A session without a packet for so long is over. So is each of them once there was no tunnel for
/// so long whose sessions take turns: the gap of a reauthentication forgets none.
const LIFETIME: Duration = Duration::from_secs(10);
/// In this time a node looks at all slots, and tells them in turn, or in one heartbeat if that is
/// longer.
const ROUND: Duration = Duration::from_millis(800);

/// How much goes with a heartbeat.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Slots that are looked at, and told, in turn.
    in_turn: usize,
    /// Slots that are told because they have changed. More wait for the next heartbeat. A node that
    /// has come gets no shard for 100 ms, and has heard of all slots by then.
    changed: usize,
    /// In this time a node has heard of all slots, or nobody knows of them.
    all_heard: Duration,
}

impl Pace {
    fn of(heartbeat: Duration) -> Self {
        let all = usize::from(SLOTS);
        let part = (u128::from(SLOTS) * heartbeat.as_micros()).div_ceil(ROUND.as_micros());
        let in_turn = usize::try_from(part).unwrap_or(all).min(all);
        Self { in_turn, changed: (10 * in_turn).min(all), all_heard: ROUND + 3 * heartbeat }
    }
}

/// What a node has said, and heard, of the slots.
#[derive(Debug, Default)]
pub(super) struct SessionsTold {
    /// By slot. Empty as long as nothing was told or heard.
    slots: Vec<Slot>,
    /// How many nodes held the state at the last heartbeat.
    synced: usize,
    /// Since when there has been no tunnel whose sessions take turns.
    idle: Option<Time>,
    /// When this node has first told something.
    begun: Option<Time>,
    /// Where the slots begin that are told next, because they have changed or in turn.
    changed_from: usize,
    in_turn_from: usize,
}

/// A slot.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// What its authority has said last. `None`: nothing yet.
    told: Option<Option<Session>>,
    /// It is to be said once more.
    again: bool,
    /// When this node has last seen a packet of its session, while it was the authority.
    seen: Time,
}

impl SessionsTold {
    /// A heartbeat is due. What goes with it.
    fn tell(&mut self, pace: Pace, own: ShardSet, now: Time, sessions: Sessions<'_>) -> Vec<Told> {
        self.slots.resize(SLOTS.into(), Slot::default());
        sessions.grow_older();
        let own: Vec<u16> = own.iter().flat_map(slots_of).collect();
        let from = self.in_turn_from;
        self.in_turn_from = (from + pace.in_turn).checked_rem(own.len()).unwrap_or(0);
        let in_turn: Vec<u16> = around(&own, from).take(pace.in_turn).copied().collect();
        // What is forgotten now is told now, so that all nodes forget it at nearly the same time.
        in_turn.iter().for_each(|slot| self.look(*slot, now, sessions));
        let has_heard = now.since(*self.begun.get_or_insert(now)) >= pace.all_heard;
        let mut told = self.changed(pace, &own, has_heard, sessions);
        let known = in_turn.into_iter().filter(|slot| has_heard || self.knows(*slot));
        told.extend(known.filter_map(|slot| sessions.tell(slot)));
        told
    }

    /// Forgets the session of an own slot if no packet of it has come for long.
    fn look(&mut self, slot: u16, now: Time, sessions: Sessions<'_>) {
        let Some(known) = self.slots.get_mut(usize::from(slot)) else { return };
        if sessions.was_seen(slot) {
            known.seen = now;
        } else if now.since(known.seen) >= LIFETIME {
            sessions.forget(slot);
        }
    }

    /// True if the slot was told before. A node that has come back, is the authority for the slot
    /// already, and has missed what the former one said, says nothing of it for a while: what it has
    /// there is its own invention.
    fn knows(&self, slot: u16) -> bool {
        self.slots.get(usize::from(slot)).is_some_and(|slot| slot.told.is_some())
    }

    /// Own slots that are not as they were told, or were told only once.
    fn changed(&mut self, pace: Pace, own: &[u16], has_heard: bool, sessions: Sessions<'_>) -> Vec<Told> {
        let mut told = Vec::new();
        let mut passed = 0;
        for slot in around(own, self.changed_from) {
            if told.len() == pace.changed {
                break;
            }
            passed += 1;
            let Some(known) = self.slots.get_mut(usize::from(*slot)) else { continue };
            let Some(word) = sessions.tell(*slot) else { continue };
            if known.told.is_none() && !has_heard {
                continue;
            }
            let is_new = known.told.unwrap_or_default() != word.session;
            if is_new || known.again {
                (known.told, known.again) = (Some(word.session), is_new);
                told.push(word);
            }
        }
        self.changed_from = (self.changed_from + passed).checked_rem(own.len()).unwrap_or(0);
        told
    }

    /// Some node may know of none, and is to learn of all before it owns a shard, and so is the
    /// authority for some of them.
    pub(super) fn tell_all(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.again |= slot.told.flatten().is_some());
    }

    /// An authority has said this.
    fn heard(&mut self, told: &[Told]) {
        self.slots.resize(SLOTS.into(), Slot::default());
        for Told { slot, session } in told {
            if let Some(known) = self.slots.get_mut(usize::from(*slot)) {
                (known.told, known.again) = (Some(*session), false);
            }
        }
    }
}

/// All of them, beginning at this place.
fn around(slots: &[u16], from: usize) -> impl Iterator<Item = &u16> {
    let (before, after) = slots.split_at(from.min(slots.len()));
    after.iter().chain(before)
}

/// True if some tunnel lets its sessions take turns.
fn has_sessions(replicas: &Replicas) -> bool {
    replicas.spread().any(|(_, _, spread)| spread.stripe.by.has_sessions())
}

impl Member {
    /// The sessions of this node: what has changed goes to the others with the next heartbeat, and
    /// sessions of which no packet has come for long are forgotten. To be called before each
    /// [`Self::handle_timeout`].
    pub fn show_sessions(&mut self, now: Time, sessions: Sessions<'_>) {
        let core = &mut self.core;
        // A node that comes back hears of sessions before it knows the tunnels.
        let knows_tunnels = core.view.running && core.table.synced().contains(&core.node);
        if !knows_tunnels || !core.group.is_heartbeat_due(now) {
            return;
        }
        if !core.has_sessions_in_turn() || !has_sessions(&self.replication.replicas) {
            return self.idle(now);
        }
        self.sessions.idle = None;
        let synced = core.table.synced().len();
        if std::mem::replace(&mut self.sessions.synced, synced) < synced {
            self.sessions.tell_all();
        }
        let pace = Pace::of(core.config.group.heartbeat);
        let told = self.sessions.tell(pace, core.table.owned_by(core.node), now, sessions);
        core.group.set_sessions(if planted(Plant::SessionsNotTold) { Vec::new() } else { told });
    }

    /// No tunnel has sessions that take turns.
    fn idle(&mut self, now: Time) {
        let is_over = now.since(*self.sessions.idle.get_or_insert(now)) >= LIFETIME;
        if is_over && !self.sessions.slots.is_empty() {
            self.forget_sessions();
        }
    }

    /// What is in the table is of another time.
    pub(super) fn forget_sessions(&mut self) {
        self.sessions = SessionsTold::default();
        self.core.group.set_sessions(Vec::new());
        self.core.outputs.push_back(MemberOutput::ForgetSessions);
    }

    /// Another node has said this of its slots.
    pub(super) fn sessions_told(&mut self, from: NodeId, told: Vec<Told>) {
        let core = &mut self.core;
        let is_authority = |told: &Told| is_authority(core, from, shard_of(told.slot));
        let told: Vec<Told> = told.into_iter().filter(is_authority).collect();
        if !told.is_empty() && core.has_sessions_in_turn() {
            self.sessions.heard(&told);
            core.outputs.push_back(MemberOutput::Sessions(told));
        }
    }
}

/// A node that does not know the owners yet believes every node that holds the state.
fn is_authority(core: &Core, from: NodeId, shard: Shard) -> bool {
    core.view.running && core.may_say(from, shard)
}

#[cfg(test)]
mod tests;
