//! Agreement on the beginning of a view, within the total order, so that the view begins at the
//! same position for all of its members.
//!
//! Corosync reports a membership on one descriptor and its quorum on another, up to 30 ms later,
//! and the members of a group may change while the ring stays: a daemon of ours that restarts. So
//! the order is divided into *epochs*. An epoch ends, for all that see it, with every change of
//! members or ring, and where a member states that quorum is gone. The first member (the lowest
//! number) opens the next one. Once corosync's quorum is that of CPG's ring, each member states
//! that it is *ready*, and quotes the opening: statements from before the last change do not count,
//! however late they come. When the last member is ready, the view begins. It has a name of its
//! own: the low bits of [`RingId::seq`] count the views of a ring, and the epoch's opening number
//! takes the place of the ring's representative. So a group whose members have all restarted meets
//! no old name.
//!
//! Whether a ring that corosync calls quorate is the only one depends on the nodes of the cluster,
//! which operators change. So each process also states, in each epoch, which nodes it knows. All
//! judge the ring by the newest of these: a process that was away during a change does not hold the
//! others up, and learns of the change in the view.
//!
//! A process that stands still is put out by the [`Roll`], at one position for all: an epoch ends
//! there, and the process does not count in the next ones. The remaining processes are quorate only
//! if they are more than half of all nodes (or of the group, see `is_enough`), whatever corosync
//! says: its daemons vote, including the one beside the process that stands still.

use super::error::{Error, Result};
use super::roll::Roll;
use super::rule::{Claim, Electorate};
use super::wire::{KnownNodes, Process, Ready, Ring, Standing};
use crate::engine::{EngineEvent, RingId, View};
use crate::group::{QuorumRule, is_most};
use crate::node::NodeId;
use std::collections::BTreeMap;
use std::mem;

/// Bits of [`RingId::seq`] that count the views of a ring.
const GENERATION_BITS: u32 = 24;

/// The reports of one connection to corosync, and the conclusions from them.
#[derive(Debug)]
pub(super) struct Agreement {
    me: Process,
    electorate: Electorate,
    /// Number of the next epoch that this process opens.
    serial: u64,
    /// The processes of the group, sorted; empty until this one has joined.
    members: Vec<Process>,
    roll: Roll,
    /// The ring that CPG's order has reached. A process that joins learns only of the next one.
    ring: Option<Ring>,
    /// What corosync says of a ring; `None` if it does not call it quorate.
    quorum: Option<(Ring, Option<Claim>)>,
    /// True if quorum was gone, in any ring, and the host does not know.
    untold: bool,
    epoch: Epoch,
    /// The last view that has begun: its ring, and how many have begun in that ring.
    begun: (Ring, u32),
    /// Members and ring that the host knows not to be quorate.
    told_lost: Option<(Ring, Vec<Process>)>,
    announcements: Vec<Standing>,
    events: Vec<EngineEvent>,
}

/// The time between two changes.
#[derive(Debug, Default)]
struct Epoch {
    opened: Option<u64>,
    /// The ring that this process has promised to be quorate, and not taken back.
    promised: Option<Ring>,
    ready: BTreeMap<Process, Ready>,
    /// The view that has begun.
    view: Option<View>,
    /// The nodes of the cluster that each process knows, and whether this one has stated its own.
    known: BTreeMap<Process, KnownNodes>,
    has_stated: bool,
}

impl Agreement {
    /// The state of a process that has not joined yet, in a cluster of this electorate. Two
    /// connections of a node must not have equal or close values of `serial`.
    pub(super) fn new(me: Process, electorate: Electorate, serial: u64) -> Self {
        Self {
            me,
            electorate,
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

    /// Takes the statements of this process for the others, in order.
    pub(super) fn take_announcements(&mut self) -> Vec<Standing> {
        mem::take(&mut self.announcements)
    }

    /// Takes the events for the host, in order.
    pub(super) fn take_events(&mut self) -> Vec<EngineEvent> {
        mem::take(&mut self.events)
    }

    /// The members of the group have changed. `Err` says why this process cannot stay with them.
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

    /// CPG's order has reached another ring.
    pub(super) fn ring(&mut self, ring: Ring) {
        self.ring = Some(ring);
        self.roll.begin();
        self.next_epoch();
    }

    /// The quorum of a ring has been reported; `None` if there is none.
    pub(super) fn quorum(&mut self, ring: Ring, claim: Option<Claim>) {
        self.untold |= claim.as_ref().is_none_or(|claim| !self.trusts(claim));
        self.quorum = Some((ring, claim));
        self.reconsider();
    }

    /// The nodes of the cluster have changed, as this process knows by now.
    pub(super) fn set_electorate(&mut self, electorate: Electorate) {
        if std::mem::replace(&mut self.electorate, electorate) != electorate {
            self.reconsider();
        }
    }

    /// A message of a member's host. Outside of a quorate view all that see it drop it: so members
    /// that come from the same view have had the same messages, although they learn of its end at
    /// different times.
    pub(super) fn message(&mut self, from: Process, bytes: Vec<u8>) {
        let view = self.epoch.view.as_ref().filter(|_| !self.roll.is_out(from));
        if let Some(from) = from.number().filter(|from| view.is_some_and(|view| view.members.contains(from)))
        {
            self.events.push(EngineEvent::Message { from, bytes });
        }
    }

    /// A statement of a member.
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
            Standing::Nodes(known) => {
                if self.epoch.opened == Some(known.epoch) {
                    self.epoch.known.insert(from, known);
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

    /// Makes the statements that follow from the present state, unless they were made already.
    fn reconsider(&mut self) {
        self.state_nodes();
        let Some((of, claim)) = &self.quorum else { return };
        // The quorum of another ring says nothing about this one; its own is still to come.
        if self.ring.is_some_and(|ring| ring != *of) || self.members.is_empty() {
            return;
        }
        let (ring, trusts) = (*of, claim.as_ref().is_some_and(|claim| self.trusts(claim)));
        match trusts && self.is_enough() {
            true if self.knows_all_nodes() => self.promise(ring),
            true => {}
            false => self.renounce(ring),
        }
    }

    /// States the nodes that this process knows, once in each epoch.
    fn state_nodes(&mut self) {
        if let Some(epoch) = self.epoch.opened.filter(|_| !self.epoch.has_stated) {
            self.epoch.has_stated = true;
            let Electorate { nodes, number, .. } = self.electorate;
            self.announcements.push(Standing::Nodes(KnownNodes { epoch, number, nodes }));
        }
    }

    /// True if each process has stated which nodes it knows, or is ready without that: then it runs
    /// a build of before.
    fn knows_all_nodes(&self) -> bool {
        let has_said = |process: &Process| {
            *process == self.me
                || self.epoch.known.contains_key(process)
                || self.epoch.ready.contains_key(process)
        };
        self.present().all(|process| has_said(&process))
    }

    /// True if that holds by the newest nodes of the cluster that a process knows, in whatever way
    /// they may change next.
    fn holds(&self, by: impl Fn(Electorate) -> bool) -> bool {
        let rule = self.electorate.rule;
        let others = self.present().filter_map(|process| self.epoch.known.get(&process));
        let others = others.map(|known| Electorate { nodes: known.nodes, number: known.number, rule });
        let all: Vec<Electorate> = others.chain([self.electorate]).collect();
        let newest = all.iter().map(|one| one.number).max().unwrap_or_default();
        all.into_iter().filter(|one| one.number == newest).all(by)
    }

    fn trusts(&self, claim: &Claim) -> bool {
        self.holds(|electorate| electorate.trusts(&claim.info, &claim.daemons))
    }

    /// The members that have not been put out, sorted.
    fn present(&self) -> impl Iterator<Item = Process> + '_ {
        self.members.iter().copied().filter(|member| !self.roll.is_out(*member))
    }

    /// True if the others have put this process out.
    pub(super) fn is_out(&self) -> bool {
        self.roll.is_out(self.me)
    }

    /// Without the processes that stand still, and may wake up at any time, there must be more than
    /// half. Where the last node may go on alone, that is half of the group, with its first process
    /// if it is exactly half; then the members vote.
    fn is_enough(&self) -> bool {
        self.roll.is_complete()
            || match self.electorate.rule {
                QuorumRule::Majority => {
                    let present: Vec<NodeId> = self.present().filter_map(Process::number).collect();
                    self.holds(|electorate| electorate.nodes.have(|node| present.contains(&node)))
                }
                QuorumRule::LastManStanding => {
                    is_most(self.members.iter(), |member| !self.roll.is_out(*member))
                }
            }
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
        // A promise of this epoch counts, or will. A view of this epoch ends for all members at one
        // position: where this statement is delivered.
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

    /// Begins the view if its last member has become ready. Only delivered statements decide.
    fn begin(&mut self) {
        let mut rings = self.epoch.ready.values().map(|ready| ready.ring);
        let Some(ring) = rings.next().filter(|first| rings.all(|ring| ring == *first)) else { return };
        let complete = self.epoch.ready.len() == self.present().count() && self.epoch.view.is_none();
        let Some(members) = self.numbers().filter(|_| complete) else { return };
        // A view of no more than half of the nodes may be quorate by a vote that another one had
        // before: the host must know of that.
        let is_most = self.holds(|electorate| electorate.nodes.have(|node| members.contains(&node)));
        if mem::take(&mut self.untold) && !is_most {
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

    /// How many views have begun in this ring.
    fn generation(&self, ring: Ring) -> u32 {
        if self.begun.0 == ring { self.begun.1 } else { 0 }
    }

    /// The members' node numbers, if each is valid and stands for one process.
    fn numbers(&self) -> Option<Vec<NodeId>> {
        let numbers: Vec<NodeId> = self.present().map(Process::number).collect::<Option<_>>()?;
        // Sorted by node, so that twins are adjacent.
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
mod tests;
