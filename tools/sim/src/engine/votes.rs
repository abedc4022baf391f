//! Votequorum: which ring is quorate.

use super::{Engines, MILLI, Nanos, Node};
use std::collections::BTreeSet;
use testudo_cluster::engine::RingId;
use testudo_cluster::node::NodeId;

/// Corosync's `last_man_standing_window`.
const WINDOW: Nanos = 1000 * MILLI;

/// The rule of quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Votes {
    /// More than half of the votes are needed.
    Majority,
    /// A third party with its own vote (qdevice), which one partition has at a time.
    Witness,
    /// `two_node: 1`: each of two nodes is quorate alone. Both partitions of a split continue.
    TwoNode,
    /// `last_man_standing: 1`, `auto_tie_breaker: 1` and `wait_for_all: 1`: after a while, a
    /// quorate ring counts its own nodes only. Nodes that left before count as they did then, so
    /// two partitions may be quorate.
    LastManStanding,
}

/// What votequorum remembers for [`Votes::LastManStanding`].
#[derive(Debug)]
pub(super) struct LastMan {
    daemons: Vec<Daemon>,
    /// When a ring counts its own nodes only.
    windows: BTreeSet<(Nanos, RingId)>,
}

/// One daemon's count.
#[derive(Clone, Debug)]
struct Daemon {
    expected: usize,
    /// It has not been in a quorate ring since its start.
    waits_for_all: bool,
    /// Its ring, if that is quorate.
    quorate: Option<RingId>,
    /// The members of its last quorate ring.
    previous: Vec<usize>,
}

impl LastMan {
    pub(super) fn new(nodes: usize) -> Self {
        let daemon = Daemon { expected: nodes, waits_for_all: true, quorate: None, previous: Vec::new() };
        Self { daemons: vec![daemon; nodes], windows: BTreeSet::new() }
    }

    /// A daemon starts, without a memory.
    pub(super) fn start(&mut self, node: usize) {
        let all = self.daemons.len();
        self.daemons[node] =
            Daemon { expected: all, waits_for_all: true, quorate: None, previous: Vec::new() };
    }

    /// When a window ends.
    pub(super) fn next(&self) -> Option<Nanos> {
        self.windows.first().map(|(at, _)| *at)
    }

    /// Ends windows: the rings that are still quorate expect no more votes than they have.
    pub(super) fn step(&mut self, now: Nanos) {
        while let Some((at, ring)) = self.windows.first().copied()
            && at <= now
        {
            self.windows.pop_first();
            for daemon in self.daemons.iter_mut().filter(|daemon| daemon.quorate == Some(ring)) {
                daemon.expected = daemon.previous.len();
            }
        }
    }

    /// Whether a ring of these daemons is quorate.
    fn forms(&mut self, now: Nanos, ring: RingId, members: &[usize]) -> bool {
        let of = |filter: fn(&Daemon) -> bool| {
            let counted = members.iter().map(|node| &self.daemons[*node]).filter(|one| filter(one));
            counted.map(|daemon| daemon.expected).max()
        };
        let here = members.len();
        // Nodes that join a quorate ring count as it does.
        let expected = of(|daemon| daemon.quorate.is_some()).or_else(|| of(|_| true)).unwrap_or(0).max(here);
        let previous = members.iter().map(|node| &self.daemons[*node].previous).max_by_key(|all| all.len());
        let has_lowest = previous.and_then(|all| all.iter().min()).is_some_and(|node| members.contains(node));
        let quorate = match members.iter().all(|node| self.daemons[*node].waits_for_all) {
            true => here == self.daemons.len(),
            false => here * 2 > expected || here * 2 == expected && has_lowest,
        };
        for node in members {
            let daemon = &mut self.daemons[*node];
            daemon.quorate = quorate.then_some(ring);
            if quorate {
                (daemon.waits_for_all, daemon.expected) = (false, expected);
                daemon.previous = members.to_vec();
            }
        }
        if quorate {
            self.windows.insert((now + WINDOW, ring));
        }
        quorate
    }
}

impl Engines {
    /// Whether a ring of these daemons, which serve these members, is quorate.
    pub(super) fn is_quorate(
        &mut self,
        now: Nanos,
        members: &[usize],
        daemons: &[usize],
        ring: RingId,
    ) -> bool {
        if self.votes == Votes::LastManStanding {
            return self.is_last_standing(now, members, daemons, ring);
        }
        if !self.majorities.is_empty() {
            let ids: Vec<NodeId> = daemons.iter().map(|node| self.nodes[*node].id).collect();
            let known = || members.iter().filter_map(|node| self.majorities.get(node));
            let newest = known().map(|(number, _)| *number).max().unwrap_or(0);
            let counted = known().filter(|(number, _)| *number == newest);
            return counted.into_iter().all(|(_, nodes)| nodes.have(|id| ids.contains(&id)));
        }
        // The process of an expelled node may wake up at any time, and its daemon votes.
        let is_out = self.nodes.iter().any(|node| node.out);
        let (here, all) = (if is_out { members } else { daemons }.len(), self.nodes.len());
        if here * 2 > all {
            return true;
        }
        if here * 2 < all || is_out {
            return false;
        }
        match self.votes {
            Votes::Majority | Votes::LastManStanding => false,
            Votes::TwoNode => true,
            Votes::Witness => {
                let holds =
                    |node: &Node| node.up && !node.frozen && node.ring.is_some() && node.ring == self.witness;
                let elsewhere =
                    self.nodes.iter().enumerate().any(|(at, node)| !daemons.contains(&at) && holds(node));
                if !elsewhere {
                    self.witness = Some(ring);
                }
                !elsewhere
            }
        }
    }

    /// The daemon of an expelled process votes, and the process may wake up at any time: the others
    /// are more than half of the ring.
    fn is_last_standing(&mut self, now: Nanos, members: &[usize], daemons: &[usize], ring: RingId) -> bool {
        let expelled = || (0..self.nodes.len()).filter(|node| self.nodes[*node].out && self.nodes[*node].up);
        let with_expelled =
            |nodes: &[usize]| -> BTreeSet<usize> { nodes.iter().copied().chain(expelled()).collect() };
        let (group, daemons) = (with_expelled(members), with_expelled(daemons));
        let daemons: Vec<usize> = daemons.into_iter().collect();
        self.last_man.forms(now, ring, &daemons) && members.len() * 2 > group.len()
    }
}
