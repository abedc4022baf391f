//! The nodes of the cluster, for operators who add or remove one. The engine counts votes by a list
//! of nodes of its own, which operators change on each node: all members tell each other theirs, so
//! that each can say where it is still to be changed.

use super::Member;
use super::core::Core;
use crate::group::{ChangeError, GroupConfig, Majorities, NodeChange, Rosters};
use crate::node::{NodeId, names};
use crate::update::Op;
use std::collections::BTreeMap;
use testudo_ike::output::Time;

/// The engines' lists.
#[derive(Debug, Default)]
pub(super) struct EngineNodes {
    own: Option<Vec<NodeId>>,
    /// What this node has published in this view.
    told: Option<Vec<NodeId>>,
    /// The list of each member that has published it in this view.
    members: BTreeMap<NodeId, Vec<NodeId>>,
}

/// Why the nodes of the cluster are not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodesError {
    /// See [`ChangeError`].
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// The engines do not know of the last change yet.
    #[error(
        "another change of the nodes is under way: corosync of nodes {} has other nodes than the cluster ({}); change \
         corosync.conf there and tell corosync to read it (`corosync-cfgtool -R`)",
        names(.behind),
        names(.nodes)
    )]
    EngineBehind {
        /// Those with another list.
        behind: Vec<NodeId>,
        /// The nodes of the cluster.
        nodes: Vec<NodeId>,
    },
    /// A node that owns shards is to be removed.
    #[error("node {0} is in the view, and not drained: `testudo drain {0}` first")]
    NotDrained(NodeId),
    /// This node cannot see to its own removal.
    #[error("node {0} is the one that was asked: ask another one to remove it")]
    Itself(NodeId),
}

impl Member {
    /// Asks all members to add or remove a node. Gives the number of the roster that results; it
    /// counts once the status says so.
    pub fn change_nodes(&mut self, now: Time, change: &NodeChange) -> Result<u64, NodesError> {
        if let NodeChange::Remove(node) = change {
            if *node == self.core.node {
                return Err(NodesError::Itself(*node));
            }
            let is_drained = self.core.table.drained().contains(node);
            let owns = !self.core.table.owned_by(*node).is_empty();
            if self.core.view.members.contains(node) && (!is_drained || owns) {
                return Err(NodesError::NotDrained(*node));
            }
        }
        let behind = self.engines_behind();
        let has_said = |node: &NodeId| self.engine_nodes.members.contains_key(node);
        if !behind.iter().all(has_said) {
            return Err(ChangeError::TooSoon.into());
        }
        if !behind.is_empty() {
            let nodes = self.core.group.rosters().settled.ids();
            return Err(NodesError::EngineBehind { behind, nodes });
        }
        let number = self.core.group.change_nodes(now, change)?;
        self.pump(now);
        Ok(number)
    }

    /// The nodes of the cluster.
    pub fn rosters(&self) -> &Rosters {
        self.core.group.rosters()
    }

    /// The nodes by which the engine judges a ring, and how often they have been changed.
    pub fn counted(&self) -> (u64, Majorities) {
        self.core.group.counted()
    }

    /// The nodes that this node's engine is configured with; `None` if that is not known.
    pub fn set_engine_nodes(&mut self, nodes: Option<Vec<NodeId>>) {
        self.engine_nodes.own = nodes;
        self.engine_nodes.tell(&mut self.core);
    }

    /// The members whose engines are configured with other nodes than the cluster's, or have not
    /// told theirs.
    pub(super) fn engines_behind(&self) -> Vec<NodeId> {
        let nodes = self.core.group.rosters().settled.ids();
        let is_behind = |member: &&NodeId| self.engine_nodes.members.get(member) != Some(&nodes);
        let knows = self.core.view.running && self.core.view.version >= GroupConfig::ROSTERS;
        self.core.view.members.iter().filter(|_| knows).filter(is_behind).copied().collect()
    }
}

impl EngineNodes {
    /// A view begins.
    pub(super) fn begin(&mut self, core: &mut Core) {
        self.told = None;
        self.members.clear();
        self.tell(core);
    }

    fn tell(&mut self, core: &mut Core) {
        let knows = core.view.running && core.view.version >= GroupConfig::ROSTERS;
        if let Some(nodes) = self.own.clone().filter(|own| knows && self.told.as_ref() != Some(own)) {
            self.told = Some(nodes.clone());
            core.publish(vec![Op::EngineNodes { nodes }]);
        }
    }

    /// A node has published its engine's list.
    pub(super) fn told(&mut self, from: NodeId, nodes: Vec<NodeId>) {
        self.members.insert(from, nodes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::samples::{has_published, id, member};

    /// A member whose own engine and cluster have these nodes.
    fn in_view(running: bool, version: u8) -> Member {
        let mut member = member();
        let view = &mut member.core.view;
        (view.running, view.version, view.members) = (running, version, vec![id(1), id(2)]);
        member
    }

    #[test]
    fn engines_are_compared_in_a_view_whose_nodes_tell_theirs() {
        for (running, version, behind) in [
            (true, GroupConfig::ROSTERS, vec![id(1), id(2)]),
            (true, GroupConfig::ROSTERS - 1, Vec::new()),
            (false, GroupConfig::ROSTERS, Vec::new()),
        ] {
            let mut member = in_view(running, version);
            assert_eq!(member.engines_behind(), behind);
            member.set_engine_nodes(Some(vec![id(1), id(2)]));
            assert_eq!(has_published(&mut member.core), !behind.is_empty(), "told in such a view");
        }
    }

    /// What was told in the last one may have changed since, on nodes that this one did not hear.
    #[test]
    fn in_each_view_all_tell_their_engines_nodes_anew() {
        let mut member = in_view(true, GroupConfig::NEWEST);
        let Member { core, engine_nodes, .. } = &mut member;
        let nodes = core.group.rosters().settled.ids();
        engine_nodes.own = Some(nodes.clone());
        engine_nodes.told = Some(nodes.clone());
        engine_nodes.told(id(2), nodes);
        engine_nodes.begin(core);
        assert!(has_published(core) && engine_nodes.members.is_empty());
    }
}
