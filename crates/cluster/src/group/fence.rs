//! Self-fencing: until when packets may leave, and what must be proven for that.
//!
//! A heartbeat that a node sent at *t* is heard by another in the same ring. The other then takes
//! no shard of that node's before its own clock has run for the fence and an eighth; it says so in
//! its next heartbeat, and in its STATUS should the ring change. Once enough members have said it,
//! the node's packets may leave until *t* plus the fence. Whatever quorate view comes together
//! without the node has one of them, and every takeover in that view waits for what it has
//! promised.
//!
//! What standbys carry at once, before that, comes twice as long as the departed node does not
//! know. Where its engine alone is cut off it hears the others' heartbeats: the first that tells of
//! such a view ends its packets then and there.

use super::heartbeat::{Heartbeat, mask, within};
use super::peers::{Peers, promise};
use super::views::Stage;
use super::{Group, GroupOutput, NoQuorum};
use crate::node::NodeId;
use std::time::Duration;
use testudo_ike::output::{LogLevel, Time};

impl Group {
    /// How many members, this node included, must have heard it. Any quorate view without this node
    /// has one of them: a majority of all nodes that are configured; in a smaller view, which an
    /// engine may call quorate after others have left, all of it.
    fn needed(&self, members: usize) -> usize {
        (members / 2 + 1).max(self.core.config.majority().min(members))
    }

    /// Extends the deadline as far as it is proven.
    pub(super) fn prove(&mut self) {
        let Some(view) = self.views.view().filter(|view| view.quorate) else { return };
        let members = &view.members;
        let others = self.needed(members.len()) - 1;
        let proven = self.vitals.peers.proven(members, others);
        // What was heard before the others went on proves nothing any more. Should they not have
        // done so, they hear more of this node.
        if let Some(sent) = proven.filter(|sent| self.passed_over.is_none_or(|at| *sent > at)) {
            self.extend(sent.plus(self.core.config.fence));
        }
    }

    /// A heartbeat, no older than what this node has sent lately, tells of a quorate view. If it
    /// has begun, later than any that this node has begun, and is without it, nothing leaves here
    /// from now on. Ending the deadline early is always safe; and should this be the word of a view
    /// that is over, the members of the present one prove as soon as they hear the next heartbeat
    /// that packets may leave.
    pub(super) fn look_for_successors(&mut self, now: Time, from: NodeId, heartbeat: &Heartbeat) {
        let goes_on = heartbeat.stance.quorate && heartbeat.stance.running;
        let held = self.views.history.held();
        let later = match heartbeat.ack.epoch {
            // Its disk does not have the view yet. Rings count up for all who have been in one
            // together.
            0 => heartbeat.ack.ring.seq > held.ring.seq,
            epoch => epoch > held.epoch,
        };
        if !goes_on || !later || within(heartbeat.members, self.core.node()) {
            return;
        }
        self.passed_over = Some(now);
        if self.fence > now {
            self.fence = now;
            self.core.outputs.push_back(GroupOutput::Fence(now));
            self.core.log(
                LogLevel::Warning,
                format!(
                    "node {from} is in a view without this one: nothing leaves here until there is another"
                ),
            );
        }
    }

    /// Extends the deadline by this node's own clock, where there is nobody to prove anything:
    /// alone in a quorate view, or without quorum if so configured. Not before the node has looked
    /// at the world: a process that was stopped and wakes up does not know yet what has become of
    /// its view.
    pub(super) fn extend_alone(&mut self, now: Time) {
        let silent = |at: Time| now.since(at) > self.core.config.suspicion.ceiling;
        let has_begun = self.views.history.held().epoch > 0;
        let alone = match &self.views.stage {
            Stage::Running(running) => running.view.members.len() == 1,
            Stage::Forming(exchange) if !exchange.waits() => exchange.view.members.len() == 1 && has_begun,
            Stage::Forming(_) | Stage::Minority(_) | Stage::Down => {
                // Who has lost its engine, and not its network, hears that the others are a quorum.
                // They may take its shards.
                self.core.config.no_quorum == NoQuorum::Forward
                    && !self.views.is_out
                    && has_begun
                    && self.vitals.peers.last_quorate().is_none_or(silent)
            }
        };
        let alone = alone && self.passed_over.is_none_or(silent);
        if alone && now.since(self.vitals.attentive_since()) >= self.core.config.heartbeat / 2 {
            self.extend(now.plus(self.core.config.fence));
        }
    }

    pub(super) fn extend(&mut self, until: Time) {
        if until > self.fence {
            self.fence = until;
            self.core.outputs.push_back(GroupOutput::Fence(until));
        }
    }

    /// A member's heartbeat was heard: may it rely on that? It must be in the same ring, so that
    /// this node's STATUS of any later one tells of the promise; and it must know already what it
    /// holds in the view, or be sure to be current, or else it could go on while its shards are
    /// given away at this view's start.
    pub(super) fn vouch(&mut self, now: Time, from: NodeId, heartbeat: &Heartbeat) {
        let history = &self.views.history;
        let sure = match &self.views.stage {
            Stage::Down | Stage::Minority(_) => false,
            Stage::Forming(_) => {
                heartbeat.stance.running || history.is_synced() && heartbeat.base == history.digest()
            }
            Stage::Running(running) => {
                heartbeat.stance.running || !running.reset && running.current.contains(&from)
            }
        };
        let ring = self.views.view().map(|view| view.ring);
        let members = self.views.view().map(|view| mask(&view.members));
        let place = (Some(heartbeat.ack.ring), Some(heartbeat.members));
        if !sure || !heartbeat.stance.quorate || (ring, members) != place {
            return;
        }
        if let Some(peer) = self.vitals.peers.all.get_mut(&from) {
            peer.proof = heartbeat.seq;
            peer.promised = peer.promised.max(now.plus(promise(self.core.config.fence)));
        }
    }

    /// What a member says of our own heartbeats.
    pub(super) fn echo(&mut self, from: NodeId, heartbeat: &Heartbeat) {
        let Some(view) = self.views.view().filter(|view| view.quorate) else {
            return;
        };
        if view.ring != heartbeat.ack.ring || !heartbeat.stance.quorate {
            return;
        }
        if let (Some(said), Some(peer)) =
            (self.core.heard_in(heartbeat), self.vitals.peers.all.get_mut(&from))
        {
            peer.echoed = peer.echoed.max(said.proof);
            self.prove();
        }
    }

    /// For how long other nodes may still rely on having been heard here; and this node on what it
    /// has proven or, without quorum, has granted itself, which nobody else knows of: should it not
    /// be current in the view, its shards are taken only thereafter.
    pub(super) fn promises(&self, now: Time) -> Vec<(u8, u32)> {
        let left = |at: Time| u32::try_from(at.since(now).as_micros()).unwrap_or(u32::MAX);
        let own = (self.core.node().get(), left(now.plus(promise(self.fence.since(now)))));
        let promises = self.vitals.peers.all.iter().map(|(node, peer)| (node.get(), left(peer.promised)));
        promises.chain([own]).filter(|(_, left)| *left > 0).collect()
    }
}

/// What was promised is not known any more: it was promised until now at most.
pub(super) fn forget(peers: &mut Peers, now: Time, fence: Duration) {
    for peer in peers.all.values_mut() {
        peer.promised = now.plus(promise(fence));
    }
}
