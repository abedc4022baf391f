//! Whether this node's ports work: it must hear others there, and be heard.
//!
//! Link 0 is the cluster's own; the others are ports, and a node that has lost one of them carries
//! nobody's packets through. What the driver says (carrier) counts at once. A switch that swallows
//! everything says nothing; but then others hear each other on that link, and this node is not
//! among them. Where nobody hears anybody the fault is nobody's.

use super::heartbeat::Heard;
use super::peers::Peer;
use super::{Group, GroupOutput};
use crate::node::NodeId;
use std::time::Duration;
use testudo_ike::output::Time;

/// Who was heard on a link so lately is heard there.
const HEARD_WITHIN: Duration = Duration::from_millis(300);
/// A port counts as well again after so long without complaint.
const PORT_TRIAL: Duration = Duration::from_secs(1);
/// One that fails again and again has shards go to and fro: each time it must do without complaint
/// for twice as long, up to this.
const MAX_PORT_TRIAL: Duration = Duration::from_secs(60);
/// After so long without complaint all of that is forgotten.
const TRIAL_RESET_AFTER: Duration = Duration::from_secs(300);

/// What is known of the ports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    /// Since when others hear each other on one of them, and not this node.
    left_out: Option<Time>,
    /// When one of them last was not well.
    ill: Option<Time>,
    /// How long they must do without complaint to count as well.
    trial: Duration,
    /// What the layer above knows.
    told: bool,
}

impl Ports {
    /// All is well.
    pub(super) const WELL: Self = Self { left_out: None, ill: None, trial: PORT_TRIAL, told: true };

    /// One of them is not well.
    fn complain(&mut self, now: Time) {
        if let Some(last) = self.ill.replace(now).filter(|_| self.told) {
            let calm = now.since(last) >= TRIAL_RESET_AFTER;
            self.trial = if calm { PORT_TRIAL } else { (self.trial * 2).min(MAX_PORT_TRIAL) };
        }
    }
}

/// Those links on which a node was heard since then, as bits.
pub(super) fn hearing(peer: &Peer, since: Time) -> u8 {
    let lately = peer.on.iter().enumerate().filter(|(_, at)| at.is_some_and(|at| at >= since));
    lately.fold(0, |bits, (link, _)| bits | 1_u8.checked_shl(link as u32).unwrap_or(0))
}

/// On which links the sender of a heartbeat hears a node, and on which it hears others.
pub(super) fn of(heard: &[Heard], node: NodeId) -> (u8, u8) {
    heard.iter().fold((0, 0), |(us, others), heard| match heard.node == node.get() {
        true => (us | heard.links, others),
        false => (us, others | heard.links),
    })
}

impl Group {
    /// Looks at the ports, and tells what has changed.
    pub(super) fn look_at_ports(&mut self, now: Time) {
        if self.ails(now) {
            self.ports.complain(now);
        }
        let well = self.ports.ill.is_none_or(|at| now.since(at) >= self.ports.trial);
        if std::mem::replace(&mut self.ports.told, well) != well {
            self.core.outputs.push_back(GroupOutput::Ports { well });
        }
    }

    /// Who was heard since then was heard lately.
    pub(super) fn lately(&self, now: Time) -> Time {
        let span = HEARD_WITHIN.max(self.core.config.heartbeat.saturating_mul(10));
        Time(now.0.saturating_sub(span))
    }

    fn ails(&mut self, now: Time) -> bool {
        let since = self.lately(now);
        if self.links.lacks_port() {
            return true;
        }
        let mut ports = 1..self.core.config.links;
        // Who was late itself, or has come into another view, has not heard yet what it will.
        let left_out = self.attentive < since && ports.any(|link| self.is_left_out(since, link));
        self.ports.left_out = left_out.then(|| self.ports.left_out.unwrap_or(now));
        // Not all find at the same moment that one has fallen silent.
        self.ports.left_out.is_some_and(|at| at < since)
    }

    /// Others hear each other on a link, and this node hears nobody there, or nobody hears it.
    fn is_left_out(&self, since: Time, link: u8) -> bool {
        let bit = 1_u8.checked_shl(link.into()).unwrap_or(0);
        let (mut hears, mut heard, mut others) = (false, false, false);
        for peer in self.peers.all.values().filter(|peer| peer.at.is_some_and(|at| at >= since)) {
            hears |= hearing(peer, since) & bit != 0;
            heard |= peer.hearing.0 & bit != 0;
            others |= peer.hearing.1 & bit != 0;
        }
        others && !(hears && heard)
    }
}
