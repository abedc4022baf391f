//! Self-fencing: until when packets may leave, and what must be proven for that.
//!
//! A node sends a heartbeat at *t*, and another one in the same ring hears it. The other then takes
//! no shard of that node before its own clock has run for the fence and an eighth. It says so in
//! its next heartbeat; if the ring changes, also in its STATUS. Once enough members have said it,
//! the node's packets may leave until *t* plus the fence. Every quorate view without the node has
//! one of these members, and every takeover in that view waits for what that member has promised.
//!
//! Standbys carry packets before that, provisionally. Such packets come twice for as long as the
//! departed node goes on. If only its engine is cut off, it hears the others' heartbeats, and the
//! first that tells of a view without it ends its packets at once.

use super::core::Core;
use super::heartbeat::{Heartbeat, mask, within};
use super::views::history::History;
use super::views::{Stage, Views};
use super::vitals::Vitals;
use super::vitals::peers::{Peers, promise};
use super::{GroupOutput, NoQuorum, QuorumRule};
use crate::node::NodeId;
use testudo_ike::output::{LogLevel, Time};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Fence {
    /// Packets may leave until then.
    until: Time,
    /// When this node last heard that a later quorate view goes on without it.
    passed_over: Option<Time>,
}

impl Fence {
    /// Packets may leave until then.
    pub(super) fn until(&self) -> Time {
        self.until
    }

    /// When this node last heard that a later quorate view goes on without it.
    #[cfg(test)]
    pub(super) fn passed_over(&self) -> Option<Time> {
        self.passed_over
    }

    /// How many members, this node included, must have heard it, so that every quorate view without
    /// this node has one of them. That is a majority of the nodes of the roster; in a smaller view,
    /// which an engine may call quorate after others have left, all members.
    ///
    /// Where views are counted by the view before, any view after a formed one has half of its
    /// nodes. Beside a view that has not formed yet, another may go on from the view before, with
    /// any one of its nodes.
    fn needed(core: &Core, views: &Views, members: usize) -> usize {
        match core.config.quorum {
            QuorumRule::Majority => core.rosters.majority().min(members),
            QuorumRule::LastManStanding if views.is_formed() => members / 2 + 1,
            QuorumRule::LastManStanding => members,
        }
    }

    /// Extends the deadline as far as it is proven.
    pub(super) fn prove(&mut self, core: &mut Core, views: &Views, peers: &Peers) {
        let Some(view) = views.view().filter(|view| view.quorate && views.may_go_on(core)) else { return };
        let counts = |node: &NodeId| match core.config.quorum {
            QuorumRule::Majority => core.rosters.counts(*node),
            QuorumRule::LastManStanding => true,
        };
        let counted: Vec<NodeId> = view.members.iter().copied().filter(counts).collect();
        // A node that is being removed cannot prove anything by itself.
        let itself = usize::from(counted.contains(&core.node()));
        let others = Self::needed(core, views, counted.len()) - itself;
        let proven = peers.proven(&counted, others);
        // What was heard before the others went on proves nothing any more. If they have not gone
        // on, they hear more of this node.
        if let Some(sent) = proven.filter(|sent| self.passed_over.is_none_or(|at| *sent > at)) {
            self.extend(core, sent.plus(core.config.fence));
        }
    }

    /// Looks for a later view without this node in a recent heartbeat. If a quorate view has begun
    /// that is later than any that this node has begun, and this node is not in it, nothing leaves
    /// here from now on. Ending the deadline early is always safe. If the heartbeat is of a view
    /// that is over, the next heartbeats of the present view prove that packets may leave.
    pub(super) fn look_for_successors(
        &mut self,
        core: &mut Core,
        history: &History,
        now: Time,
        from: NodeId,
        heartbeat: &Heartbeat,
    ) {
        let goes_on = heartbeat.stance.quorate && heartbeat.stance.running;
        let held = history.held();
        let is_later = match heartbeat.ack.epoch {
            // The sender's disk does not have the view yet. Rings count up for all nodes that have
            // been in one together.
            0 => heartbeat.ack.ring.seq > held.ring.seq,
            epoch => epoch > held.epoch,
        };
        if !goes_on || !is_later || within(heartbeat.members, core.node()) {
            return;
        }
        if self.pass_over(core, now) {
            core.log(
                LogLevel::Warning,
                format!(
                    "node {from} is in a view without this one: nothing leaves here until there is another"
                ),
            );
        }
    }

    /// A later view goes on without this node. True if packets could have left until now.
    pub(super) fn pass_over(&mut self, core: &mut Core, now: Time) -> bool {
        self.passed_over = Some(now);
        let was_open = self.until > now;
        if was_open {
            self.shut(core, now);
        }
        was_open
    }

    /// No packet may leave from now on.
    pub(super) fn shut(&mut self, core: &mut Core, now: Time) {
        self.until = now;
        core.outputs.push_back(GroupOutput::Fence(now));
    }

    /// Extends the deadline by this node's own clock, where no other node can prove anything: alone
    /// in a quorate view, or without quorum if so configured. Not before the node has looked at the
    /// world: a process that was stopped and wakes up does not know yet what has become of its
    /// view.
    pub(super) fn extend_alone(&mut self, core: &mut Core, views: &Views, vitals: &Vitals, now: Time) {
        if !core.rosters.has(core.node()) {
            return;
        }
        let silent = |at: Time| now.since(at) > core.config.suspicion.ceiling;
        let has_begun = views.history.held().epoch > 0;
        let is_alone = match &views.stage {
            Stage::Running(running) => running.view.members.len() == 1,
            Stage::Forming(exchange) if !exchange.waits() => {
                exchange.view.members.len() == 1 && has_begun && views.may_go_on(core)
            }
            Stage::Forming(_) | Stage::Minority(_) | Stage::Down => {
                // A node that has lost its engine, and not its network, hears that the others are a
                // quorum. They may take its shards.
                core.config.no_quorum == NoQuorum::Forward
                    && !views.is_out
                    && has_begun
                    && vitals.peers.last_quorate().is_none_or(silent)
            }
        };
        let has_looked = now.since(vitals.attentive_since()) >= core.config.heartbeat / 2;
        if is_alone && self.passed_over.is_none_or(silent) && has_looked {
            self.extend(core, now.plus(core.config.fence));
        }
    }

    fn extend(&mut self, core: &mut Core, until: Time) {
        if until > self.until {
            self.until = until;
            core.outputs.push_back(GroupOutput::Fence(until));
        }
    }

    /// A member says which of this node's heartbeats it has heard.
    pub(super) fn echo(
        &mut self,
        core: &mut Core,
        views: &Views,
        peers: &mut Peers,
        from: NodeId,
        heartbeat: &Heartbeat,
    ) {
        let Some(view) = views.view().filter(|view| view.quorate) else { return };
        if view.ring != heartbeat.ack.ring || !heartbeat.stance.quorate {
            return;
        }
        if let (Some(said), Some(peer)) = (core.heard_in(heartbeat), peers.all.get_mut(&from)) {
            peer.echoed = peer.echoed.max(said.proof);
            self.prove(core, views, peers);
        }
    }

    /// For how many microseconds more each other node may rely on having been heard here. This node
    /// is in the list too: no other node knows how far it has extended its own fence, and if it is
    /// not current in the view, its shards are taken only thereafter.
    pub(super) fn promises(&self, core: &Core, peers: &Peers, now: Time) -> Vec<(u8, u32)> {
        let left = |at: Time| u32::try_from(at.since(now).as_micros()).unwrap_or(u32::MAX);
        let own = (core.node().get(), left(now.plus(promise(self.until.since(now)))));
        let promises = peers.all.iter().map(|(node, peer)| (node.get(), left(peer.promised)));
        promises.chain([own]).filter(|(_, left)| *left > 0).collect()
    }
}

impl Peers {
    /// A member's heartbeat was heard: may it rely on that? It must be in the same ring, so that
    /// this node's STATUS of any later one tells of the promise. And it must know already what it
    /// holds in the view, or be sure to be current: otherwise it could go on while its shards are
    /// given away at this view's start.
    pub(super) fn vouch(
        &mut self,
        core: &Core,
        views: &Views,
        now: Time,
        from: NodeId,
        heartbeat: &Heartbeat,
    ) {
        let history = &views.history;
        let is_sure = match &views.stage {
            Stage::Down | Stage::Minority(_) => false,
            Stage::Forming(_) => {
                heartbeat.stance.running || history.is_synced() && heartbeat.base == history.digest()
            }
            Stage::Running(running) => {
                heartbeat.stance.running || !running.reset && running.current.contains(&from)
            }
        };
        let is_in_view = views
            .view()
            .is_some_and(|view| (view.ring, mask(&view.members)) == (heartbeat.ack.ring, heartbeat.members));
        if !is_sure || !heartbeat.stance.quorate || !is_in_view {
            return;
        }
        if let Some(peer) = self.all.get_mut(&from) {
            peer.proof = heartbeat.seq;
            peer.promised = peer.promised.max(now.plus(promise(core.config.fence)));
        }
    }

    /// This node does not know any more what it has promised: at most from now on for a whole
    /// fence.
    pub(super) fn forget_promises(&mut self, core: &Core, now: Time) {
        for peer in self.all.values_mut() {
            peer.promised = now.plus(promise(core.config.fence));
        }
    }
}
