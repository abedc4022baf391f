//! When an IKE SA next needs attention.

use super::{ChildPhase, ChildSa, IkeSa, Phase, Reassembly, Task};
use crate::endpoint::EndpointConfig;
use crate::exchange::reauth::patience_ends;
use crate::output::Time;
use std::time::Duration;

impl IkeSa {
    /// The earliest of all deadlines.
    pub(crate) fn deadline(&self, config: &EndpointConfig) -> Option<Time> {
        if let Phase::Gone { until, .. } = self.phase {
            return Some(until);
        }
        let stage = match &self.phase {
            Phase::InitSent(init) => init.error.as_ref().map(|error| error.until),
            phase => phase.half_open().map(|half| half.until),
        };
        let due = [
            stage,
            self.outgoing.pending.as_ref().map(|pending| pending.next),
            self.fragments_due(),
            self.followup.as_ref().map(|followup| followup.until),
            self.closing.as_ref().map(|closing| closing.deadline),
            self.liveness_due(),
            self.keepalive_due(config.keepalive_interval),
            self.childless_due(),
            self.renewal_due(config),
        ];
        due.into_iter().flatten().min()
    }

    /// When the first waiting fragments are given up.
    fn fragments_due(&self) -> Option<Time> {
        let of_response = self.outgoing.pending.as_ref().and_then(|pending| pending.fragments.as_ref());
        [of_response, self.incoming.fragments.as_ref()].into_iter().flatten().map(|found| found.until).min()
    }

    /// Drops fragments that have waited long enough. Returns true if there were any.
    pub(crate) fn expire_fragments(&mut self, now: Time) -> bool {
        let expired = |found: &mut Box<Reassembly>| found.until <= now;
        let of_response =
            self.outgoing.pending.as_mut().and_then(|pending| pending.fragments.take_if(expired));
        let of_request = self.incoming.fragments.take_if(expired);
        of_response.is_some() || of_request.is_some()
    }

    /// When a liveness check is due: after silence, unless a request is pending.
    pub(crate) fn liveness_due(&self) -> Option<Time> {
        let wanted = self.is_established()
            && !self.dpd_delay.is_zero()
            && self.outgoing.pending.is_none()
            && self.closing.is_none();
        wanted.then(|| self.last_heard.plus(self.dpd_delay))
    }

    /// When an SA is due to be renewed, to end, to be forgotten, or to have a delayed task done.
    fn renewal_due(&self, config: &EndpointConfig) -> Option<Time> {
        let of_child = |child: &ChildSa| match child.phase {
            ChildPhase::Installed => child.limits.times.first(),
            ChildPhase::Rekeyed | ChildPhase::Deleting => child.limits.times.end,
            ChildPhase::Deleted(until) => Some(until),
        };
        let children = self.children.iter().filter_map(of_child);
        let later = self.outgoing.later.iter().map(|delayed| delayed.at);
        let live = later.chain(self.times.first()).chain(self.reauth_at).chain(self.replacement_due());
        let live = live.filter(|_| self.is_in_charge());
        children.chain(live).chain(patience_ends(self, config)).min()
    }

    /// When an SA is due to be replaced because its configuration has changed.
    fn replacement_due(&self) -> Option<Time> {
        let installed = self.children.iter().filter(|child| child.is_installed());
        let children = installed.filter_map(|child| child.outdated.as_ref()?.at);
        children.chain(self.outdated.as_ref().and_then(|outdated| outdated.turn.at)).min()
    }

    /// When an IKE SA that has never had a child is due to end. Not while we are making one.
    pub(crate) fn childless_due(&self) -> Option<Time> {
        let asking = self.outgoing.is_waiting(|task| matches!(task, Task::NewChild { .. }));
        let making = self.creating.is_some() || self.followup.is_some();
        self.childless.filter(|_| self.is_in_charge() && !making && !asking)
    }

    /// When the NAT before us needs a keepalive (RFC 3948 §4).
    pub(crate) fn keepalive_due(&self, interval: Duration) -> Option<Time> {
        let wanted = self.is_established() && self.nat.local && !interval.is_zero();
        wanted.then(|| self.last_sent.plus(interval))
    }
}
