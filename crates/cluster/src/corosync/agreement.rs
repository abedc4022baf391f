//! When a view begins: agreed within the total order, so that it begins at the same place for all
//! of its members.
//!
//! Corosync tells a membership on one descriptor and its quorum on another, up to 30 ms later, and
//! the members of a group may change while the ring stays: a daemon of ours that starts again. So
//! the order is divided into *epochs*. One ends, for all who see it, with every change of members
//! or ring, and where a member says that quorum is gone. The first member (the lowest number) opens
//! the next; each then says, once corosync's quorum is that of CPG's ring, that it is *ready*, and
//! quotes the opening: what somebody said before the last change counts for nothing, however late
//! it comes. When the last member is ready the view begins. It has a name of its own: the low bits
//! of [`RingId::seq`] count the views of a ring, and in the place of the ring's representative
//! stands what its epoch was opened with, so that a group of which everybody has started again
//! meets no old name.
//!
//! A process that stands still is put out by the [`Roll`], at one place for all: an epoch ends
//! there, and who is out counts for nothing in the next ones. Those who remain are quorate only as
//! more than half of all nodes, whatever corosync says: its daemons vote, and the one beside the
//! process that stands still does too.

use super::error::{Error, Result};
use super::roll::Roll;
use super::wire::{Process, Ready, Ring, Standing};
use crate::engine::{EngineEvent, RingId, View};
use crate::node::NodeId;
use std::collections::BTreeMap;
use std::mem;

/// Bits of [`RingId::seq`] that count the views of a ring.
const GENERATION_BITS: u32 = 24;

/// What one connection to corosync has told, and what follows from it.
#[derive(Debug)]
pub(super) struct Agreement {
    me: Process,
    /// How many nodes are configured.
    nodes: usize,
    /// The next epoch that this process opens.
    serial: u64,
    /// The processes of the group, sorted; empty until this one has joined.
    members: Vec<Process>,
    roll: Roll,
    /// The ring that CPG's order has come to. Who joins is told of the next one only.
    ring: Option<Ring>,
    quorum: Option<(Ring, bool)>,
    /// Quorum was gone, of whatever ring, and the host does not know.
    untold: bool,
    epoch: Epoch,
    /// The last view that has begun: its ring, and how many have begun there.
    begun: (Ring, u32),
    /// Members and ring of which the host has been told that they are not quorate.
    told_lost: Option<(Ring, Vec<Process>)>,
    announcements: Vec<Standing>,
    events: Vec<EngineEvent>,
}

/// From one change to the next.
#[derive(Debug, Default)]
struct Epoch {
    opened: Option<u64>,
    /// What this process has said, and not taken back: that this ring is quorate.
    promised: Option<Ring>,
    ready: BTreeMap<Process, Ready>,
    /// The view that has begun.
    view: Option<View>,
}

impl Agreement {
    /// That of a process that has not joined yet, in a cluster of so many nodes. No two connections
    /// of a node may have the same `serial`, nor one soon after.
    pub(super) fn new(me: Process, nodes: usize, serial: u64) -> Self {
        Self {
            me,
            nodes,
            serial,
            members: Vec::new(),
            roll: Roll::default(),
            ring: None,
            quorum: None,
            untold: false,
            epoch: Epoch::default(),
            begun: (Ring::default(), 0),
            told_lost: None,
            announcements: Vec::new(),
            events: Vec::new(),
        }
    }

    /// This process.
    pub(super) fn me(&self) -> Process {
        self.me
    }

    /// What this process has to say to the others, in order.
    pub(super) fn take_announcements(&mut self) -> Vec<Standing> {
        mem::take(&mut self.announcements)
    }

    /// What the host has to hear, in order.
    pub(super) fn take_events(&mut self) -> Vec<EngineEvent> {
        mem::take(&mut self.events)
    }

    /// The members of the group have changed. `Err` tells why this process cannot stay with them.
    pub(super) fn members(&mut self, mut members: Vec<Process>) -> Result<()> {
        members.sort_unstable();
        members.dedup();
        if !members.contains(&self.me) {
            return Err(Error::Removed);
        }
        let twin = members.iter().find(|other| other.node == self.me.node && other.pid != self.me.pid);
        if let (Some(twin), true) = (twin, self.members.is_empty()) {
            return Err(Error::Twin { pid: twin.pid });
        }
        self.members = members;
        self.roll.begin();
        self.next_epoch();
        Ok(())
    }

    /// CPG's order has come to another ring.
    pub(super) fn ring(&mut self, ring: Ring) {
        self.ring = Some(ring);
        self.roll.begin();
        self.next_epoch();
    }

    /// Quorum of a ring.
    pub(super) fn quorum(&mut self, ring: Ring, quorate: bool) {
        self.quorum = Some((ring, quorate));
        self.untold |= !quorate;
        self.reconsider();
    }

    /// The host's message of a member. Outside of a quorate view it belongs to none, and is dropped
    /// by all who see it: so members that come from the same view have had the same messages,
    /// although they learn at different times how it goes on.
    pub(super) fn message(&mut self, from: Process, bytes: Vec<u8>) {
        let view = self.epoch.view.as_ref().filter(|_| !self.roll.is_out(from));
        if let Some(from) = from.number().filter(|from| view.is_some_and(|view| view.members.contains(from)))
        {
            self.events.push(EngineEvent::Message { from, bytes });
        }
    }

    /// What a member says of itself.
    pub(super) fn standing(&mut self, from: Process, standing: Standing) {
        if !self.members.contains(&from) || self.roll.is_out(from) {
            return;
        }
        match standing {
            Standing::Alive => {
                if self.roll.alive(from, &self.members) {
                    self.next_epoch();
                }
            }
            Standing::Open(serial) => {
                if self.present().next() == Some(from) {
                    self.epoch.opened.get_or_insert(serial);
                }
            }
            Standing::Ready(ready) => {
                if self.epoch.opened == Some(ready.epoch) {
                    self.epoch.ready.insert(from, ready);
                    self.begin();
                }
            }
            Standing::NotQuorate => {
                if let Some(view) = self.epoch.view.take() {
                    self.told_lost = Some((self.begun.0, self.present().collect()));
                    self.untold = false;
                    self.events.push(EngineEvent::View(View { quorate: false, ..view }));
                }
                self.next_epoch();
            }
        }
        self.reconsider();
    }

    fn next_epoch(&mut self) {
        self.epoch = Epoch::default();
        if self.present().next() == Some(self.me) {
            self.announcements.push(Standing::Open(self.serial));
            self.serial = self.serial.wrapping_add(1);
        }
        self.reconsider();
    }

    /// Says what follows from what is known here, if it has not been said.
    fn reconsider(&mut self) {
        let ring = self.ring.or(self.quorum.map(|(ring, _)| ring));
        // Quorum of another ring says nothing about this one: its own is still to come.
        let matched = self.quorum.filter(|(of, _)| Some(*of) == ring && !self.members.is_empty());
        match matched {
            Some((ring, true)) if self.is_enough() => self.promise(ring),
            Some((ring, _)) => self.renounce(ring),
            None => {}
        }
    }

    /// The members that have not been put out, sorted.
    fn present(&self) -> impl Iterator<Item = Process> + '_ {
        self.members.iter().copied().filter(|member| !self.roll.is_out(*member))
    }

    /// The others have put this process out.
    pub(super) fn is_out(&self) -> bool {
        self.roll.is_out(self.me)
    }

    /// Without those who stand still, and may wake up any time, there must be more than half.
    fn is_enough(&self) -> bool {
        self.roll.is_complete() || self.present().count() * 2 > self.nodes
    }

    fn promise(&mut self, ring: Ring) {
        let Some(epoch) = self.epoch.opened else { return };
        if self.epoch.promised != Some(ring) && self.numbers().is_some() {
            self.epoch.promised = Some(ring);
            self.announcements.push(Standing::Ready(Ready {
                epoch,
                ring,
                generation: self.generation(ring),
            }));
        }
    }

    fn renounce(&mut self, ring: Ring) {
        // A promise of this epoch counts, or will. Whatever begins or has begun with it ends for
        // all members at one place: where this comes to stand.
        if self.epoch.promised.take().is_some() {
            self.announcements.push(Standing::NotQuorate);
        }
        let present: Vec<Process> = self.present().collect();
        let told = self.told_lost.as_ref().is_some_and(|told| told.0 == ring && told.1 == present);
        self.untold &= !told;
        if self.epoch.view.is_none()
            && !told
            && let Some(members) = self.numbers()
        {
            self.told_lost = Some((ring, present));
            self.tell_lost(ring, members);
        }
    }

    fn tell_lost(&mut self, ring: Ring, members: Vec<NodeId>) {
        self.untold = false;
        let ring = identity(ring, self.generation(ring), 0);
        self.events.push(EngineEvent::View(View { ring, members, quorate: false }));
    }

    /// Begins the view if its last member has become ready. Only what stands in the order decides.
    fn begin(&mut self) {
        let mut rings = self.epoch.ready.values().map(|ready| ready.ring);
        let Some(ring) = rings.next().filter(|first| rings.all(|ring| ring == *first)) else { return };
        let complete = self.epoch.ready.len() == self.present().count() && self.epoch.view.is_none();
        let Some(members) = self.numbers().filter(|_| complete) else { return };
        // Who has no more than half by itself may be quorate by a vote that was another's before:
        // the host must know of that.
        if mem::take(&mut self.untold) && members.len() * 2 <= self.nodes {
            self.tell_lost(ring, members.clone());
        }
        let last = self.epoch.ready.values().map(|ready| ready.generation).max().unwrap_or(0);
        self.begun = (ring, last.saturating_add(1));
        self.told_lost = None;
        let opened = self.epoch.opened.unwrap_or_default();
        let view = View { ring: identity(ring, self.begun.1, opened), members, quorate: true };
        self.epoch.view = Some(view.clone());
        self.events.push(EngineEvent::View(view));
    }

    /// How many views have begun in that ring.
    fn generation(&self, ring: Ring) -> u32 {
        if self.begun.0 == ring { self.begun.1 } else { 0 }
    }

    /// The members' node numbers, if each is one and stands for one process.
    fn numbers(&self) -> Option<Vec<NodeId>> {
        let numbers: Vec<NodeId> = self.present().map(Process::number).collect::<Option<_>>()?;
        // Sorted by node, twins stand side by side.
        numbers.is_sorted_by(|one, next| one < next).then_some(numbers)
    }

    /// Why there can be no view of these members, for the log.
    pub(super) fn obstacle(&self) -> Option<String> {
        let present: Vec<Process> = self.present().collect();
        if let Some(strange) = present.iter().find(|member| member.number().is_none()) {
            let max = NodeId::MAX;
            return Some(format!(
                "corosync's group has a member with nodeid {}, and node numbers are 1 to {max}: no view is formed until it has left",
                strange.node,
            ));
        }
        let twin = present.windows(2).find_map(|pair| match pair {
            [one, other] if one.node == other.node => Some((one, other)),
            _ => None,
        });
        twin.map(|(one, other)| {
            format!(
                "processes {} and {} of node {} are both in corosync's group: no view is formed until one has left",
                one.pid, other.pid, one.node,
            )
        })
    }
}

fn identity(ring: Ring, generation: u32, opened: u64) -> RingId {
    let generation = u64::from(generation).min((1 << GENERATION_BITS) - 1);
    RingId { seq: ring.seq << GENERATION_BITS | generation, node: opened as u32 }
}

#[cfg(test)]
#[path = "agreement_tests.rs"]
mod tests;
