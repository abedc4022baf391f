//! Changes of the [roster](super::roster) in the total order: the request, its two steps, and what
//! follows them on this node.

use super::config::GroupConfig;
use super::roster::{Majorities, NodeChange, Roster, Rosters};
use super::views::stability::Position;
use super::vitals::peers::promise;
use super::{Group, GroupOutput, QuorumRule};
use crate::node::{NodeId, names};
use serde::{Deserialize, Serialize};
use testudo_ike::output::{LogLevel, Time};
use testudo_planted::{Plant, planted};

/// What a change of the roster tells the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Step {
    /// This is the next roster.
    Next(Roster),
    /// The next roster with this number is stable, and counts alone.
    Settled(u64),
}

/// Why the roster is not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// This node is in no quorate view, or that has not begun at all members yet.
    #[error("there is no quorum: the nodes cannot agree on it")]
    NoView,
    /// The view is so young that a node that was left out may still rely on having been heard.
    #[error("the nodes have only just come together: try again in a second")]
    TooSoon,
    /// A member does not know of changes.
    #[error(
        "the nodes {} agree on version {found} of the replication protocol, expected {} or higher: \
         upgrade the others first",
        names(.members),
        GroupConfig::ROSTERS
    )]
    OldVersion {
        /// The version of the view.
        found: u8,
        /// Its members.
        members: Vec<NodeId>,
    },
    /// One change after the other.
    #[error("another change of the nodes is under way")]
    Underway,
    /// The number is a node's.
    #[error("found node {node}, expected a number that no node has; the nodes are {}", names(.nodes))]
    Taken {
        /// The number.
        node: NodeId,
        /// The nodes.
        nodes: Vec<NodeId>,
    },
    /// No node has the number.
    #[error("found node {node}, expected one of the nodes {}", names(.nodes))]
    Unknown {
        /// The number.
        node: NodeId,
        /// The nodes.
        nodes: Vec<NodeId>,
    },
    /// A cluster has a node.
    #[error("node {0} is the last one, and cannot be removed")]
    Last(NodeId),
    /// A majority is needed before and after the change.
    #[error(
        "the nodes that take part are {}, expected more than half of {} (the nodes now) and of {} (the nodes then): \
         start further nodes first",
        names(.members),
        names(.now),
        names(.then)
    )]
    NoMajority {
        /// The members of the view.
        members: Vec<NodeId>,
        /// The nodes that count now.
        now: Vec<NodeId>,
        /// The nodes that would count.
        then: Vec<NodeId>,
    },
}

impl Group {
    /// The nodes of the cluster, as far as this node has been told.
    pub fn rosters(&self) -> &Rosters {
        &self.core.rosters
    }

    /// The nodes by which the engine judges a ring, and how often they have been changed.
    pub fn counted(&self) -> (u64, Majorities) {
        let rosters =
            if planted(Plant::RosterIgnored) { &self.core.config.roster } else { &self.core.rosters };
        (rosters.settled.number, rosters.majorities())
    }

    /// Asks all members to change the roster by one node. Gives the number of the next roster,
    /// which counts when [`Self::rosters`] says so.
    pub fn change_nodes(&mut self, now: Time, change: &NodeChange) -> Result<u64, ChangeError> {
        let next = self.next_roster(now, change)?;
        let number = next.number;
        self.publish_step(&Step::Next(next));
        Ok(number)
    }

    fn next_roster(&self, now: Time, change: &NodeChange) -> Result<Roster, ChangeError> {
        let running = self.views.recorded().filter(|_| self.views.is_formed()).ok_or(ChangeError::NoView)?;
        let members = running.view.members.clone();
        if running.version < GroupConfig::ROSTERS {
            return Err(ChangeError::OldVersion { found: running.version, members });
        }
        // A node that is not in the view may rely on members of an earlier one until then.
        if now.since(running.since) < promise(self.core.config.fence) * 2 {
            return Err(ChangeError::TooSoon);
        }
        let Rosters { settled, next } = &self.core.rosters;
        if next.is_some() || self.change_asked {
            return Err(ChangeError::Underway);
        }
        let nodes = settled.ids();
        match change {
            NodeChange::Add(node, _) if settled.has(*node) => {
                return Err(ChangeError::Taken { node: *node, nodes });
            }
            NodeChange::Remove(node) if !settled.has(*node) => {
                return Err(ChangeError::Unknown { node: *node, nodes });
            }
            NodeChange::Remove(node) if nodes.len() == 1 => return Err(ChangeError::Last(*node)),
            _ => {}
        }
        let next = settled.changed(change);
        let here = |node| members.contains(&node);
        // One of two is quorate only where the other cannot have gone on: see `History`.
        let is_enough = settled.is_majority(here) || nodes.len() == 2;
        // Where the members vote, each view goes on from the one before, whatever the roster is.
        let votes = self.core.config.quorum == QuorumRule::LastManStanding;
        if votes || is_enough && next.is_majority(here) {
            return Ok(next);
        }
        Err(ChangeError::NoMajority { members, now: nodes, then: next.ids() })
    }

    fn publish_step(&mut self, step: &Step) {
        match postcard::to_allocvec(step) {
            Ok(octets) => {
                self.change_asked = true;
                self.outbox.roster(&octets);
            }
            Err(_) => self.core.log(LogLevel::Error, "a change of the nodes cannot be written".to_owned()),
        }
    }

    /// A step has been delivered. All members take it, or none.
    pub(super) fn roster_step(&mut self, now: Time, from: NodeId, at: Position, step: &[u8]) {
        if from == self.core.node() {
            self.change_asked = false;
        }
        let Ok(step) = postcard::from_bytes(step) else {
            self.core.counters.malformed += 1;
            return;
        };
        let mut rosters = self.core.rosters.clone();
        let is_taken = match step {
            Step::Next(next) => rosters.take_next(next),
            Step::Settled(number) => rosters.settle(number),
        };
        if !is_taken {
            return;
        }
        if let Some(running) = self.views.running_mut() {
            running.roster_at = at.count;
        }
        self.follow_rosters(now, rosters);
        self.core.outputs.push_back(GroupOutput::Persist(self.views.history.durable()));
    }

    /// These rosters count from now on. The caller has them written to the disk.
    pub(super) fn follow_rosters(&mut self, now: Time, rosters: Rosters) {
        if rosters == self.core.rosters {
            return;
        }
        let node = self.core.node();
        let was_in = self.core.rosters.has(node);
        let line = match &rosters.next {
            Some(next) => {
                format!("the nodes of the cluster will be {} (roster {})", names(&next.ids()), next.number)
            }
            None => {
                let Roster { number, .. } = rosters.settled;
                format!("the nodes of the cluster are {} (roster {number})", names(&rosters.settled.ids()))
            }
        };
        self.core.log(LogLevel::Notice, line);
        self.views.history.set_rosters(rosters.clone());
        self.vitals.peers.follow(&self.core.config, &rosters, now);
        let is_in = rosters.has(node);
        self.core.rosters = rosters;
        self.core.outputs.push_back(GroupOutput::Rosters);
        if was_in && !is_in {
            self.removed(now);
        }
    }

    /// This node is not, or no more, one of the cluster's: it takes no part.
    pub(super) fn removed(&mut self, now: Time) {
        let nodes = names(&self.core.rosters.settled.ids());
        let node = self.core.node();
        let line = format!(
            "node {node} is not one of the cluster's nodes ({nodes}), and takes no part any more: stop corosync and \
             testudod here, or add it (`testudo cluster add {node}` on another node) and start testudod again"
        );
        self.core.log(LogLevel::Error, line);
        self.leave(now);
        self.vitals.peers.forget_promises(&self.core, now);
        self.fence.shut(&mut self.core, now);
        self.core.outputs.push_back(GroupOutput::Leave);
    }

    /// Settles the next roster once it is stable. The lowest member does so for all: the node that
    /// asked for the change may be gone.
    pub(super) fn settle_roster(&mut self) {
        let Some(next) = &self.core.rosters.next else { return };
        let Some(running) = self.views.recorded() else { return };
        let is_lowest = running.view.members.first() == Some(&self.core.node());
        let is_stable =
            running.stability.has_begun_everywhere() && running.stability.stable() >= running.roster_at;
        if is_lowest && is_stable && running.version >= GroupConfig::ROSTERS && !self.change_asked {
            let step = Step::Settled(next.number);
            self.publish_step(&step);
        }
    }
}
