//! A view change: what each part does when the engine has a new view, or none, and when the group's
//! view begins.

use super::views::exchange::Heard;
use super::{Group, GroupOutput, Ingress, relays};
use crate::engine::View;
use crate::node::NodeId;
use testudo_ike::output::{LogLevel, Time};
use testudo_planted::{Plant, planted};

impl Group {
    /// The engine has a new view.
    pub(super) fn view(&mut self, now: Time, mut view: View) {
        if !planted(Plant::UnsortedView) {
            view.members.sort_unstable();
            view.members.dedup();
        }
        if !view.members.contains(&self.core.node()) {
            return self.down(now, "the engine's view does not hold this node");
        }
        let before = self.views.members().to_vec();
        self.leave(now);
        let view = self.views.believe(&mut self.core, view);
        self.vitals.change_ring(&mut self.core, now, &before, &view.members);
        self.views.enter(&mut self.core, now, view);
        self.say_status(now);
    }

    /// The engine is gone.
    pub(super) fn down(&mut self, now: Time, reason: &str) {
        self.core.log(LogLevel::Error, format!("the cluster's engine is gone: {reason}"));
        self.lose_view(now);
    }

    /// The others have gone on without this node. Whether what it holds still counts, the next
    /// view's exchange tells.
    pub(super) fn put_out(&mut self, now: Time) {
        let line = "this node stood still, and the others have gone on without it";
        self.core.log(LogLevel::Warning, line.to_owned());
        self.lose_view(now);
        self.views.is_out = true;
    }

    fn lose_view(&mut self, now: Time) {
        self.views.history.interrupt();
        self.leave(now);
        self.vitals.change_ring(&mut self.core, now, &[], &[]);
    }

    /// There is no view from now on.
    pub(super) fn leave(&mut self, now: Time) {
        self.views.leave(&mut self.core);
        self.vitals.leave_view(now);
        self.queue.clear();
        self.change_asked = false;
    }

    /// Says STATUS, if a quorate view is forming.
    pub(super) fn say_status(&mut self, now: Time) {
        let promises = self.fence.promises(&self.core, &self.vitals.peers, now);
        let status = self.views.status(&mut self.core, now, &self.leases, promises);
        if let Some(status) = status {
            self.queue.push_first(status);
        }
    }

    /// A member's STATUS has come; `None` if it cannot be read. With the last one the view begins.
    pub(super) fn heard(&mut self, now: Time, from: NodeId, heard: Option<Heard>) {
        let node = self.core.node();
        let Some(outcome) = self.views.heard(&mut self.core, now, from, heard) else { return };
        if outcome.strangers.contains(&node) {
            if let Some(rosters) = outcome.rosters {
                self.core.rosters = rosters;
            }
            return self.removed(now);
        }
        if !outcome.view.members.contains(&node) {
            return;
        }
        if let Some(rosters) = outcome.rosters.clone() {
            self.follow_rosters(now, rosters);
        }
        let holds = self.views.history.has_state_of(node, &outcome);
        let delivered = self.outbox.last_delivered().filter(|_| holds);
        let start = self.views.begin(&mut self.core, now, &outcome, delivered);
        self.leases.merge(&outcome.leases);
        let trusted = self.vitals.peers.pin(&outcome.boots, now, self.core.config.heartbeat);
        // Before anything is carried: a node that is passed over, and may hear this one, stops now
        // and not when the next heartbeat is due.
        self.vitals.send(&mut self.core, &self.views, now);
        self.core.outputs.extend(trusted.into_iter().map(GroupOutput::Trusted));
        self.core.outputs.push_back(GroupOutput::View(start));
        if self.core.config.ingress == Ingress::Routed {
            let keys = relays::of_view(&self.core, &outcome);
            self.core.outputs.push_back(GroupOutput::RelayKeys(keys));
        }
        match holds {
            true => self.outbox.again(),
            false => self.outbox.clear(),
        }
        let suspects = self.vitals.peers.suspects().filter(|node| self.views.members().contains(node));
        self.core.outputs.extend(suspects.map(GroupOutput::Suspected));
        if !self.lease(true) {
            let durable = self.views.history.durable();
            self.core.outputs.push_back(GroupOutput::Persist(durable));
        }
    }

    /// Asks for a lease, if one is wanted and there is a view to ask in. True if that had to be
    /// written to the disk.
    pub(super) fn lease(&mut self, begun: bool) -> bool {
        if self.views.running().is_none() {
            return false;
        }
        self.leases.request(&mut self.core, &mut self.views.history, &mut self.outbox, begun)
    }
}
