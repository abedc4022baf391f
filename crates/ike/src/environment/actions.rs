//! `dpd_action` and `close_action`: what happens to a child that has lost its SA without being
//! terminated here.
//!
//! As in strongSwan, except that a `start` retries until the tunnel is up: a peer may be
//! unreachable for long.

use crate::config::{Child, StartAction};
use crate::environment::Environment;
use crate::environment::report::ORDINARY;
use crate::output::{Reason, Time};
use crate::sa::{ChildPhase, ChildSa, IkeSa};

impl Environment {
    /// An IKE SA ends with all its children, because the peer is dead or has deleted it.
    pub(crate) fn act_on_loss(&mut self, now: Time, sa: &IkeSa, reason: &Reason) {
        if !sa.is_established() || sa.closing.is_some() {
            return;
        }
        match reason {
            Reason::Timeout { .. } | Reason::Unsent { .. } => self.act_for_all(now, sa, true),
            Reason::DeletedByPeer => self.act_for_all(now, sa, false),
            _ => {}
        }
    }

    /// We delete an IKE SA that cannot be continued, although the peer is alive.
    pub(crate) fn act_on_hopelessness(&mut self, now: Time, sa: &IkeSa) {
        self.act_for_all(now, sa, true);
    }

    fn act_for_all(&mut self, now: Time, sa: &IkeSa, dead: bool) {
        let Some(connection) = self.loaded.connections.get(&sa.connection) else { return };
        for child in sa.children.iter().filter(|child| child.phase == ChildPhase::Installed) {
            if self.has_standby(sa, child) {
                continue;
            }
            if let Some(config) = connection.child(&child.name) {
                let action = if dead { config.dpd_action } else { config.close_action };
                self.act(now, sa, &child.name, action);
            }
        }
    }

    /// The peer has deleted one Child SA.
    pub(crate) fn act_on_close(&mut self, now: Time, sa: &IkeSa, child: &str) {
        let Some(connection) = self.loaded.connections.get(&sa.connection).filter(|_| sa.closing.is_none())
        else {
            return;
        };
        if let Some(config) = connection.child(child) {
            self.act(now, sa, child, config.close_action);
        }
    }

    /// A Child SA is lost, and another is requested at once. If the peer refuses for good, the
    /// child's action applies as after any loss.
    pub(crate) fn act_on_refusal(&mut self, sa: &IkeSa, child: &str) {
        let connection = self.loaded.connections.get(&sa.connection);
        let Some(config) = connection.as_ref().and_then(|connection| connection.child(child)) else { return };
        let actions = [config.dpd_action, config.close_action];
        if actions.iter().any(|action| action.traps()) {
            self.starts.trap(&sa.connection, child);
        }
        if actions.iter().any(|action| action.starts()) {
            self.starts.want(&sa.connection, child);
        }
    }

    /// True if the IKE SA's end takes a child down that should be up.
    pub(crate) fn is_unexpected_end(&self, sa: &IkeSa, reason: &Reason) -> bool {
        sa.children.iter().any(|child| {
            self.is_unexpected(sa, child, reason)
                && !self.has_standby(sa, child)
                && !self.is_up_elsewhere(sa, &child.name)
        })
    }

    /// True if the peer deletes a Child SA, no delete of ours is under way, and the child comes up
    /// by itself. Of a child that a peer or a packet brings up, the end is ordinary.
    ///
    /// A peer that reauthenticates break-before-make looks like one that leaves for good: nothing
    /// says that it will come again, and until then packets are lost.
    pub(crate) fn is_unexpected(&self, sa: &IkeSa, child: &ChildSa, reason: &Reason) -> bool {
        let starts = |config: &Child| config.start_action.starts() || config.close_action.starts();
        let configured = self.loaded.connections.find(&sa.connection);
        *reason == Reason::DeletedByPeer
            && sa.closing.is_none()
            && child.phase == ChildPhase::Installed
            && configured.and_then(|connection| connection.child(&child.name)).is_some_and(starts)
    }

    /// True if a packet without an SA brings the child up.
    pub(crate) fn is_trapped(&self, connection: &str, child: &str) -> bool {
        let configured = self.loaded.connections.get(connection);
        let action = configured.and_then(|c| c.child(child).map(|child| child.start_action));
        action.is_some_and(|action| action.traps() || self.starts.is_trapped(connection, child))
    }

    fn act(&mut self, now: Time, sa: &IkeSa, child: &str, action: StartAction) {
        let connection = sa.connection.as_str();
        if action.traps() {
            self.effects.log_connection(
                connection,
                ORDINARY,
                format!("the next packet brings {child} up again"),
            );
            self.starts.trap(connection, child);
        }
        if action.starts() {
            self.effects.log_connection(connection, ORDINARY, format!("restarting CHILD_SA {child}"));
            // Not at once, because the IKE SA is still being worked on.
            let shard = sa.our_spi().shard();
            self.starts.restart(connection, child, shard, now, self.config.start_retry);
        }
    }
}
