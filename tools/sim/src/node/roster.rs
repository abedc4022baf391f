//! The nodes of the cluster, which operators change.

use super::Node;
use crate::host::Effect;
use testudo_cluster::group::NodeChange;
use testudo_cluster::member::NodesError;
use testudo_ike::output::Time;

impl Node {
    /// Operators have changed the nodes, and corosync's at once.
    pub(super) fn follow_nodes(&mut self) {
        let nodes = self.member.rosters().settled.ids();
        let (number, counted) = self.member.counted();
        self.effects.push(Effect::Majorities(number, counted));
        if self.changes {
            self.member.set_engine_nodes(Some(nodes));
        }
    }

    /// It may be refused, like any command of an operator. A node is drained before it is removed.
    pub(super) fn change_nodes(&mut self, now: Time, change: &NodeChange) {
        let refused = self.member.change_nodes(now, change);
        if let Err(NodesError::NotDrained(node)) = refused {
            let _ = self.member.drain(now, node, true);
        }
    }
}
