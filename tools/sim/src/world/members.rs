//! Worlds in which operators add nodes to the cluster and remove others, while faults strike.

use super::{Actor, Arrival, What, World};
use crate::checks::Invariant;
use crate::engine::MILLI;
use crate::host::Input;
use crate::trace::Who;
use testudo_cluster::group::{Majorities, NodeChange, Rosters};
use testudo_cluster::node::names;

/// The nodes of testudo.toml in such a world: the others are added.
pub(crate) const FIRST_NODES: usize = 3;
/// Not fewer are left.
const LEAST_NODES: usize = 2;

impl World {
    /// The world begins: only the nodes of testudo.toml are there.
    pub(super) fn begin_changes(&mut self) {
        if self.scenario.changes {
            self.slots.iter_mut().skip(FIRST_NODES).for_each(|slot| slot.away = true);
            self.schedule.at(self.scenario.calm / 2, What::Change);
        }
    }

    /// The newest roster that a node, or its disk, knows.
    fn newest(&self) -> Option<&Rosters> {
        let here = self.slots.iter().filter_map(|slot| slot.host.as_ref()?.rosters());
        let disks = self.slots.iter().filter_map(|slot| slot.disk.rosters.as_ref());
        here.chain(disks).max_by_key(|rosters| (rosters.settled.number, rosters.next.is_some()))
    }

    fn is_node(&self, index: usize) -> bool {
        let id = self.slots[index].id;
        self.newest().is_some_and(|rosters| rosters.settled.has(id))
    }

    /// An operator changes the nodes, and starts those that have been added.
    pub(super) fn change_nodes(&mut self) {
        for index in 0..self.slots.len() {
            if self.slots[index].away && self.is_node(index) {
                self.slots[index].away = false;
                self.boot(index);
            }
        }
        let asked: Vec<usize> =
            (0..self.slots.len()).filter(|index| self.slots[*index].runs() && self.is_node(*index)).collect();
        let asked = self.random.pick(&asked).copied();
        if let (Some(asked), Some(target)) = (asked, self.next_to_change()) {
            let id = self.slots[target].id;
            let change = match self.is_node(target) {
                true => NodeChange::Remove(id),
                false => NodeChange::Add(id, Vec::new()),
            };
            self.arrive(asked, Arrival::Input(Input::Change(change)));
        }
        if self.fate.may_strike || self.slots.iter().any(|slot| slot.away) {
            let next = self.schedule.now + self.random.between(300, 900) * MILLI;
            self.schedule.at(next, What::Change);
        }
    }

    /// The node that is to be removed is drained first, which takes several orders. When the faults
    /// have ended, all nodes are added again.
    fn next_to_change(&mut self) -> Option<usize> {
        let (inside, outside): (Vec<usize>, Vec<usize>) =
            (0..self.slots.len()).partition(|index| self.is_node(*index));
        if !self.fate.may_strike {
            return outside.first().copied();
        }
        let leaving = self.fate.leaving.take().filter(|node| inside.contains(node));
        let adds = inside.len() <= LEAST_NODES || !outside.is_empty() && self.random.permille(600);
        let target = match (leaving, adds) {
            (Some(node), _) => Some(node),
            (None, true) => self.random.pick(&outside).copied(),
            (None, false) => self.random.pick(&inside).copied(),
        };
        self.fate.leaving = target.filter(|node| inside.contains(node));
        target
    }

    /// A node has been told that it is not one of the cluster's: an operator ends it.
    pub(super) fn left(&mut self, index: usize) {
        if self.slots[index].host.is_some() {
            self.crash(index);
            self.slots[index].away = true;
            self.schedule.wake(Actor::Node(index), None);
        }
    }

    /// No ring may be quorate while another one may be, by the newest roster that has been settled
    /// anywhere. A ring without a majority of that roster may be: that of a node that was away,
    /// beside the daemon of a member whose process has ended. The others need that daemon.
    pub(super) fn check_rings(&mut self) {
        for members in self.engines.take_quorate() {
            let Some(settled) = self.newest().map(|rosters| rosters.settled.ids()) else { continue };
            if Majorities::of(&settled).have(|node| !members.contains(&node)) {
                let what = format!("nodes {} are quorate, of {}", names(&members), names(&settled));
                self.checks.violate(Invariant::Accepted, self.schedule.now, Who::World, what);
            }
        }
    }
}
