//! When SAs are renewed and when they end: by time, by use, and by word of the operator.

use super::Endpoint;
use super::report::{FAILURE, ORDINARY};
use crate::output::{ChildSaId, IkeSaId, Output, Reason, Time};
use crate::sa::{ChildLimits, ChildPhase, IkeSa, Outbound, Reauth, Task, Times, Wear, What};

impl Endpoint {
    /// Does what the lifetimes ask for.
    pub(crate) fn renew(&mut self, now: Time, sa: &mut IkeSa) -> Result<(), Reason> {
        self.sweep_deleted(now, sa);
        self.wait_no_longer(now, sa);
        if sa.is_in_charge() {
            sa.outgoing.wake(now);
            if is_due(sa.times.end, now) {
                let deadline = now.plus(self.config.delete_timeout);
                let reauthenticated = sa.reauth == Some(Reauth::Done);
                if reauthenticated {
                    // The peer lets its halves go before it answers: nothing may go out through them then.
                    let children: Vec<ChildSaId> = sa.children.iter().map(|child| child.id).collect();
                    children.into_iter().for_each(|child| self.switch_to_successor(sa, child));
                }
                let reason = if reauthenticated { Reason::Reauthenticated } else { Reason::Expired };
                return self.delete_ike(now, sa, reason, deadline);
            }
            if is_due(sa.reauth_at, now) {
                sa.reauth_at = None;
                self.begin_reauth(now, sa);
            }
            self.replace_outdated(now, sa)?;
            if !sa.is_in_charge() {
                return Ok(());
            }
            if is_due(sa.childless_due(), now) {
                let deadline = now.plus(self.config.delete_timeout);
                return self.delete_ike(now, sa, Reason::Refused("it carried no CHILD_SA".into()), deadline);
            }
            if is_due(sa.times.rekey, now) {
                self.want_new_ike_keys(now, sa)?;
            }
        }
        for (child, wear) in worn(sa, now) {
            self.worn_child(now, sa, child, wear, "its time")?;
        }
        self.next_task(now, sa)
    }

    fn worn_child(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        id: ChildSaId,
        wear: Wear,
        what: &str,
    ) -> Result<(), Reason> {
        let Some(child) = sa.child_mut(id) else { return Ok(()) };
        match wear {
            Wear::Good => Ok(()),
            Wear::Renew => {
                child.limits.times.rekey = None;
                self.want_new_keys(now, sa, id)
            }
            Wear::Over => self.expire(now, sa, id, what),
        }
    }

    /// The lifetime of a Child SA is over: nothing is carried by it from now on, whatever the peer says to that (RFC 7296 §2.8).
    /// One that is still needed is renewed all the same.
    fn expire(&mut self, now: Time, sa: &mut IkeSa, id: ChildSaId, what: &str) -> Result<(), Reason> {
        self.commit(sa);
        // Who made it in the place of another has had a lifetime to show that it uses it.
        self.proven(sa, id);
        self.switch_to_successor(sa, id);
        let (closing, replaced) = (sa.closing.is_some(), sa.reauth == Some(Reauth::Done));
        let Some(child) = sa.child_mut(id) else { return Ok(()) };
        let needed = child.is_proven() && !replaced;
        let (phase, spi_in) = (child.phase, child.params.spi_in);
        child.outbound = Outbound::Expired;
        child.limits = ChildLimits::default();
        let line = format!("CHILD_SA {}{{{}}} carries nothing any more: {what} is over", child.name, id.0);
        let name = child.name.clone();
        self.log(sa, if needed { FAILURE } else { ORDINARY }, line);
        if needed {
            self.note_child_down(now, &sa.connection, &name, &Reason::Expired);
        }
        self.outputs.push_back(Output::RemoveChild { child: id, spi_in });
        match phase {
            ChildPhase::Deleting | ChildPhase::Deleted(_) => Ok(()),
            _ if closing => Ok(()),
            ChildPhase::Installed if needed => self.want_new_keys(now, sa, id),
            ChildPhase::Installed | ChildPhase::Rekeyed => self.delete_child(now, sa, spi_in),
        }
    }

    /// Renews a Child SA, unless that is on its way.
    fn want_new_keys(&mut self, now: Time, sa: &mut IkeSa, id: ChildSaId) -> Result<(), Reason> {
        let under_way = sa.creating.as_ref().is_some_and(|creating| creating.renews() == Some(id));
        if under_way || sa.closing.is_some() || !sa.child(id).is_some_and(|child| child.is_installed()) {
            return Ok(());
        }
        self.commit(sa);
        sa.outgoing.queue(Task::RekeyChild(id));
        self.next_task(now, sa)
    }

    /// Renews the IKE SA, unless that is on its way.
    pub(super) fn want_new_ike_keys(&mut self, now: Time, sa: &mut IkeSa) -> Result<(), Reason> {
        sa.times.rekey = None;
        let under_way = matches!(sa.creating.as_ref().map(|creating| &creating.what), Some(What::Ike(_)));
        if under_way || sa.closing.is_some() || sa.reauth.is_some() {
            return Ok(());
        }
        self.commit(sa);
        sa.outgoing.queue(Task::RekeyIke);
        self.next_task(now, sa)
    }

    /// See [`Endpoint::rekey_ike`].
    pub(crate) fn renew_ike(&mut self, now: Time, id: IkeSaId) -> bool {
        let able = self.table.get(id).is_some_and(IkeSa::is_in_charge);
        if able {
            self.with_sa(now, id, |endpoint, sa| endpoint.want_new_ike_keys(now, sa));
        }
        able
    }

    /// See [`Endpoint::rekey_child`].
    pub(crate) fn renew_child(&mut self, now: Time, id: ChildSaId) -> bool {
        let Some(sa) = self.table.by_child(id) else { return false };
        let able = sa.closing.is_none() && sa.child(id).is_some_and(|child| child.is_proven());
        let ike = sa.id;
        if able {
            self.with_sa(now, ike, |endpoint, sa| endpoint.want_new_keys(now, sa, id));
        }
        able
    }

    /// See [`Endpoint::child_used`].
    pub(crate) fn used(&mut self, now: Time, id: ChildSaId, bytes: u64, packets: u64) {
        let Some((sa, child)) = self.table.by_child(id).and_then(|sa| Some((sa, sa.child(id)?))) else {
            return;
        };
        let ike = sa.id;
        let wear = child.limits.wear(bytes, packets);
        let due = match child.phase {
            ChildPhase::Installed => {
                let waits = sa.outgoing.is_waiting(|task| *task == Task::RekeyChild(id));
                wear == Wear::Over || wear == Wear::Renew && !waits
            }
            ChildPhase::Rekeyed | ChildPhase::Deleting => wear == Wear::Over,
            ChildPhase::Deleted(_) => false,
        };
        if due {
            self.with_sa(now, ike, |endpoint, sa| endpoint.worn_child(now, sa, id, wear, "its volume"));
        }
    }

    /// See [`Endpoint::next_limit`].
    pub(crate) fn limit_behind(&self, id: ChildSaId, bytes: u64, packets: u64) -> (u64, u64) {
        let child = self.table.by_child(id).and_then(|sa| sa.child(id));
        child.map_or((u64::MAX, u64::MAX), |child| child.limits.next(bytes, packets))
    }
}

fn is_due(at: Option<Time>, now: Time) -> bool {
    at.is_some_and(|at| at <= now)
}

/// The Child SAs whose time to be renewed, or to end, has come.
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
