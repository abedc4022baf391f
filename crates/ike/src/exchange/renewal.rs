//! Renewal and end of SAs: by time, by use, and by the operator.

use crate::environment::report::{FAILURE, ORDINARY};
use crate::exchange::change;
use crate::exchange::create_child;
use crate::exchange::reauth;
use crate::exchange::session::Session;
use crate::output::{ChildSaId, Output, Reason, Time};
use crate::sa::{ChildLimits, ChildPhase, IkeSa, Outbound, Reauth, Task, Times, Wear, What};

impl Session<'_> {
    /// Applies the lifetimes.
    pub(crate) fn renew(&mut self) -> Result<(), Reason> {
        create_child::sweep_deleted(self);
        reauth::wait_no_longer(self);
        if self.sa.is_in_charge() {
            self.sa.outgoing.wake(self.now);
            if is_due(self.sa.times.end, self.now) {
                let deadline = self.now.plus(self.env.config.delete_timeout);
                let reauthenticated = self.sa.reauth == Some(Reauth::Done);
                if reauthenticated {
                    // The peer removes its halves before it answers: nothing may be sent through
                    // them then.
                    let children: Vec<ChildSaId> = self.sa.children.iter().map(|child| child.id).collect();
                    children.into_iter().for_each(|child| create_child::switch_to_successor(self, child));
                }
                let reason = if reauthenticated { Reason::Reauthenticated } else { Reason::Expired };
                return self.delete_ike(reason, deadline);
            }
            if is_due(self.sa.reauth_at, self.now) {
                self.sa.reauth_at = None;
                reauth::begin(self);
            }
            change::replace_outdated(self)?;
            if !self.sa.is_in_charge() {
                return Ok(());
            }
            if is_due(self.sa.childless_due(), self.now) {
                let deadline = self.now.plus(self.env.config.delete_timeout);
                return self.delete_ike(Reason::Refused("it carried no CHILD_SA".into()), deadline);
            }
            if is_due(self.sa.times.rekey, self.now) {
                self.want_new_ike_keys()?;
            }
        }
        for (child, wear) in worn(self.sa, self.now) {
            self.worn_child(child, wear, "its time")?;
        }
        self.next_task()
    }

    pub(crate) fn worn_child(&mut self, id: ChildSaId, wear: Wear, what: &str) -> Result<(), Reason> {
        let Some(child) = self.sa.child_mut(id) else { return Ok(()) };
        match wear {
            Wear::Good => Ok(()),
            Wear::Renew => {
                child.limits.times.rekey = None;
                self.want_new_keys(id)
            }
            Wear::Over => self.expire(id, what),
        }
    }

    /// The lifetime of a Child SA is over: it carries nothing from now on, whatever the peer does
    /// (RFC 7296 §2.8). A needed one is renewed all the same.
    fn expire(&mut self, id: ChildSaId, what: &str) -> Result<(), Reason> {
        self.commit();
        // The peer that made it as a replacement has had a whole lifetime to use it.
        create_child::proven(self, id);
        create_child::switch_to_successor(self, id);
        let (closing, replaced) = (self.sa.closing.is_some(), self.sa.reauth == Some(Reauth::Done));
        let Some(child) = self.sa.child_mut(id) else { return Ok(()) };
        let needed = child.is_proven() && !replaced;
        let (phase, spi_in) = (child.phase, child.params.spi_in);
        child.outbound = Outbound::Expired;
        child.limits = ChildLimits::default();
        let line = format!("CHILD_SA {}{{{}}} is not used any more: {what} is over", child.name, id.0);
        let name = child.name.clone();
        self.log(if needed { FAILURE } else { ORDINARY }, line);
        if needed {
            self.env.loaded.connections.note_child_down(
                self.now,
                &self.sa.connection,
                &name,
                &Reason::Expired,
            );
        }
        self.env.effects.outputs.push_back(Output::RemoveChild { child: id, spi_in });
        match phase {
            ChildPhase::Deleting | ChildPhase::Deleted(_) => Ok(()),
            _ if closing => Ok(()),
            ChildPhase::Installed if needed => self.want_new_keys(id),
            ChildPhase::Installed | ChildPhase::Rekeyed => self.delete_child(spi_in),
        }
    }

    /// Rekeys a Child SA, unless that is under way.
    pub(crate) fn want_new_keys(&mut self, id: ChildSaId) -> Result<(), Reason> {
        let under_way = self.sa.creating.as_ref().is_some_and(|creating| creating.renews() == Some(id));
        if under_way
            || self.sa.closing.is_some()
            || !self.sa.child(id).is_some_and(|child| child.is_installed())
        {
            return Ok(());
        }
        self.commit();
        self.sa.outgoing.queue(Task::RekeyChild(id));
        self.next_task()
    }

    /// Rekeys the IKE SA, unless that is under way.
    pub(crate) fn want_new_ike_keys(&mut self) -> Result<(), Reason> {
        self.sa.times.rekey = None;
        let under_way =
            matches!(self.sa.creating.as_ref().map(|creating| &creating.what), Some(What::Ike(_)));
        if under_way || self.sa.closing.is_some() || self.sa.reauth.is_some() {
            return Ok(());
        }
        self.commit();
        self.sa.outgoing.queue(Task::RekeyIke);
        self.next_task()
    }
}

fn is_due(at: Option<Time>, now: Time) -> bool {
    at.is_some_and(|at| at <= now)
}

/// The Child SAs that are due to be rekeyed, or to end.
fn worn(sa: &IkeSa, now: Time) -> Vec<(ChildSaId, Wear)> {
    let wear = |times: &Times, phase| match phase {
        ChildPhase::Installed | ChildPhase::Rekeyed | ChildPhase::Deleting if is_due(times.end, now) => {
            Wear::Over
        }
        ChildPhase::Installed if is_due(times.rekey, now) => Wear::Renew,
        _ => Wear::Good,
    };
    let children = sa.children.iter().map(|child| (child.id, wear(&child.limits.times, child.phase)));
    children.filter(|(_, wear)| *wear != Wear::Good).collect()
}
