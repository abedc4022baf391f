//! A connection is loaded, loaded again, or unloaded, and what becomes of the SAs that it made.
//!
//! What [`Difference`] finds is followed SA by SA, make-before-break: the SAs that are to go are marked ([`Outdated`]), and
//! their IKE SA replaces them in its own time, so that a renewal under way, a peer that is busy or another reload do no harm.
//! Nothing is computed while the connection is loaded, and one with many peers has its turn with each after the other.
//! A peer that refuses what is new is asked a few times; then the old SA stays until its end.

use super::report::{FAILURE, IMPORTANT, ORDINARY};
use super::{Endpoint, LoadError};
use crate::alloc::Home;
use crate::config::{ChildChange, Connection, Difference, IkeChange, Lifetime};
use crate::output::{ChildSaId, IkeSaId, Reason, Time};
use crate::sa::{
    Attempt, ChildPhase, FollowupSa, IkeSa, MAX_TRIES, Outdated, OutdatedIke, Phase, Task, Times, What,
    draw_reauth, earlier,
};
use crate::suite::Role;
use std::sync::Arc;
use std::time::Duration;

impl Endpoint {
    /// See [`Endpoint::load_connection`].
    pub(super) fn load(&mut self, now: Time, mut connection: Connection) -> Result<(), LoadError> {
        let name = connection.name.clone();
        self.fill_names(&mut connection);
        let before = self.connections.load(now, connection)?;
        self.follow_names(&name);
        let made_by = before.clone().or(self.former.remove(&name));
        let Some(loaded) = self.connections.get(&name).filter(|loaded| before.as_ref() != Some(loaded))
        else {
            return Ok(());
        };
        self.starts.keep(&loaded);
        if let Some(made_by) = made_by.filter(|made_by| *made_by != loaded) {
            self.follow_change(now, &made_by, &loaded);
        }
        for child in &loaded.children {
            if child.mode.is_negotiated() && child.start_action.starts() {
                self.starts.schedule(&name, &child.name, now);
            }
        }
        self.run_starts(now);
        Ok(())
    }

    /// See [`Endpoint::unload_connection`].
    pub(super) fn unload(&mut self, name: &str) -> bool {
        self.starts.forget(name);
        let Some(connection) = self.connections.unload(name) else { return false };
        self.names.forget(name);
        if self.has_made_sas(name) {
            self.former.insert(name.to_owned(), connection);
        }
        true
    }

    /// The connection of that name: as it is, or as it was, if it was unloaded and there are SAs
    /// that it made.
    pub(super) fn known_connection(&self, name: &str) -> Option<&Connection> {
        self.connections.find(name).or_else(|| self.former.get(name).map(|former| &**former))
    }

    fn has_made_sas(&self, connection: &str) -> bool {
        self.table.of_connection(connection).next().is_some()
    }

    /// An IKE SA of the connection is gone: after the last one, nobody asks what an unloaded connection was.
    pub(super) fn forget_former(&mut self, connection: &str) {
        if !self.former.is_empty() && !self.has_made_sas(connection) {
            self.former.remove(connection);
        }
    }

    /// See [`Endpoint::outdated_children`].
    pub(super) fn outdated(&self, connection: &str) -> Vec<ChildSaId> {
        let children = self.table.of_connection(connection).flat_map(|sa| &sa.children);
        children
            .filter(|child| child.is_installed() && child.outdated.is_some())
            .map(|child| child.id)
            .collect()
    }

    fn follow_change(&mut self, now: Time, before: &Connection, connection: &Arc<Connection>) {
        let difference = Difference::between(before, connection);
        self.log_connection(&connection.name, IMPORTANT, difference.describe(&connection.name));
        let of_it = self.table.of_connection(&connection.name).filter(|sa| !sa.is_gone());
        let ids: Vec<IkeSaId> = of_it.map(|sa| sa.id).collect();
        for (place, id) in (0..).zip(ids) {
            let turn = now.plus(self.config.replacement_pace.saturating_mul(place));
            self.with_sa(now, id, |endpoint, sa| {
                endpoint.follow_on((now, turn), sa, connection, &difference)
            });
        }
    }

    /// `turn`: when what is to be asked of the peer is asked.
    fn follow_on(
        &mut self,
        (now, turn): (Time, Time),
        sa: &mut IkeSa,
        connection: &Arc<Connection>,
        difference: &Difference,
    ) -> Result<(), Reason> {
        self.commit(sa);
        let changed = |child: &str| {
            let change = difference.children.get(child);
            matches!(change, Some(ChildChange::Replace | ChildChange::Remove))
        };
        let is_live = sa.is_live();
        match &mut sa.phase {
            Phase::InitSent(_) | Phase::Intermediate(_) | Phase::AuthRounds(_) => {
                let child = sa.phase.attempt().map(|attempt| attempt.child.clone()).unwrap_or_default();
                if difference.ike == IkeChange::None && !changed(&child) {
                    return Ok(());
                }
                self.end_attempt(now, sa);
                let line = "the configuration has changed: the IKE_SA is initiated again";
                self.begin_again(now, sa, connection, (child, 1), line)
            }
            Phase::AuthSent(sent) => {
                // The peer may have made it already: it is replaced as soon as it is there.
                sent.attempt.outdated |= changed(&sent.attempt.child);
                self.outdate_ike(turn, sa, difference.ike);
                Ok(())
            }
            Phase::Established if is_live => {
                self.follow_on_established((now, turn), sa, connection, difference);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Nobody is authenticated yet: the attempt begins again, by the configuration as it is now.
    pub(super) fn begin_again(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        connection: &Connection,
        (child, number): (String, u32),
        why: &str,
    ) -> Result<(), Reason> {
        let path = self.path_again(connection, sa).map_err(|error| Reason::Refused(error.to_string()))?;
        self.log(sa, ORDINARY, why);
        let home = Home::Renewing(sa.our_spi().shard());
        self.begin_attempt(now, sa, connection, Attempt { child, number, outdated: false }, path, home)
    }

    fn follow_on_established(
        &mut self,
        (now, turn): (Time, Time),
        sa: &mut IkeSa,
        connection: &Connection,
        difference: &Difference,
    ) {
        sa.dpd_delay = connection.dpd_delay;
        if difference.retime {
            self.retime_ike(now, sa, connection);
        }
        self.outdate_ike(turn, sa, difference.ike);
        // Where the IKE SA is set up anew, the children come with it.
        let at = Some(turn).filter(|_| !sa.is_outdated());
        let lifetime =
            |name: &str| connection.child(name).map(|child| child.lifetime.time).unwrap_or_default();
        let children: Vec<(ChildSaId, String)> =
            sa.children.iter().filter(|child| child.is_installed()).map(|c| (c.id, c.name.clone())).collect();
        for (id, name) in children {
            match difference.children.get(&name) {
                Some(ChildChange::Replace) => outdate_child(sa, id, at),
                Some(ChildChange::Remove) => self.drop_child(turn, sa, id),
                Some(ChildChange::Retime) => self.retime_child(now, sa, id, &lifetime(&name)),
                Some(ChildChange::Rekey) => {
                    self.retime_child(now, sa, id, &lifetime(&name));
                    // Should nothing come of another IKE SA, it has to have them on this one.
                    rekey_child(
                        sa,
                        id,
                        at.unwrap_or(turn.plus(self.config.start_retry * u32::from(MAX_TRIES))),
                    );
                }
                Some(ChildChange::Add | ChildChange::None) | None => {}
            }
        }
        self.follow_on_what_is_being_made(now, sa, difference);
    }

    /// What we are making was offered by what the connection was: it is replaced once it is there. What the peer is making in
    /// several exchanges it begins once more, and it is agreed on anew.
    fn follow_on_what_is_being_made(&mut self, now: Time, sa: &mut IkeSa, difference: &Difference) {
        let replaced = |child: &str| {
            let change = difference.children.get(child);
            matches!(change, Some(ChildChange::Replace | ChildChange::Remove))
        };
        let rekey = difference.ike == IkeChange::Rekey;
        if let Some(creating) = &mut sa.creating {
            creating.outdated |= match &creating.what {
                What::Child { name, .. } => replaced(name),
                What::Ike(_) => rekey,
            };
        }
        let outdated = sa.followup.as_ref().is_some_and(|followup| match &followup.sa {
            FollowupSa::Child { name, .. } => replaced(name),
            FollowupSa::Ike(_) => rekey,
        });
        if outdated {
            self.forget_followup(now, sa);
        }
    }

    /// The IKE SA is not as the connection wants it.
    pub(crate) fn outdate_ike(&mut self, now: Time, sa: &mut IkeSa, change: IkeChange) {
        if change == IkeChange::None {
            return;
        }
        let before = sa.outdated.as_ref().map(|outdated| outdated.change).unwrap_or_default();
        let change = change.max(before);
        // Where both sides have a new configuration, two IKE SAs would be one too many: the peer that began begins again.
        let at = match (change, sa.role) {
            (IkeChange::Reauthenticate, Role::Responder) => self.retry_at(now),
            _ => now,
        };
        sa.outdated = Some(Box::new(OutdatedIke { change, turn: Outdated::new(Some(at)) }));
    }

    /// The child is not configured any more, so its Child SA goes.
    fn drop_child(&mut self, turn: Time, sa: &mut IkeSa, id: ChildSaId) {
        let Some(child) = sa.child_mut(id) else { return };
        child.phase = ChildPhase::Deleting;
        let (name, spi_in) = (child.name.clone(), child.params.spi_in);
        self.log(
            sa,
            IMPORTANT,
            format!("CHILD_SA {name}{{{}}} is deleted: it is not configured any more", id.0),
        );
        sa.outgoing.delay(turn, Task::DeleteSpi(spi_in));
    }

    fn retime_child(&mut self, now: Time, sa: &mut IkeSa, id: ChildSaId, lifetime: &Lifetime) {
        let renewing = is_rekeying(sa, id);
        let Some(child) = sa.child_mut(id) else { return };
        let times = Times::again(lifetime, child.installed, now, &mut *self.alloc);
        child.limits.times = Times { rekey: times.rekey.filter(|_| !renewing), end: times.end };
    }

    fn retime_ike(&mut self, now: Time, sa: &mut IkeSa, connection: &Connection) {
        if sa.reauth.is_some() {
            // One of the two goes soon.
            return;
        }
        let lifetime = &connection.lifetime;
        let came_up = sa.established.unwrap_or(now);
        let due = |seconds: u64| {
            let earliest = Duration::from_secs(seconds.saturating_sub(lifetime.rand));
            came_up.max(Time(now.since(Time(earliest))))
        };
        let drawn = draw_reauth(lifetime, due(lifetime.reauth), &mut *self.alloc);
        // New keys do not prove anew who the peer is: what was to come earlier does.
        let drawn = drawn.map(|drawn| sa.reauth_at.map_or(drawn, |before| before.min(drawn)));
        let (reauth_before, end_before) = (sa.reauth_at, sa.times.end);
        sa.reauth_at = drawn;
        let renewing = matches!(sa.creating.as_ref().map(|creating| &creating.what), Some(What::Ike(_)))
            || sa.outgoing.is_waiting(|task| *task == Task::RekeyIke);
        let times = Times::of_ike(lifetime, sa.reauth_at, due(lifetime.rekey), &mut *self.alloc);
        sa.times = Times { rekey: times.rekey.filter(|_| !renewing), end: times.end };
        if sa.keeps_its_end() {
            sa.reauth_at = earlier(sa.reauth_at, reauth_before);
            sa.times.end = earlier(sa.times.end, end_before);
        }
    }

    /// Does what the change of a configuration asks for, where its time has come.
    pub(super) fn replace_outdated(&mut self, now: Time, sa: &mut IkeSa) -> Result<(), Reason> {
        let is_due = |outdated: &Outdated| outdated.at.is_some_and(|at| at <= now);
        if let Some(outdated) = sa.outdated.as_mut().filter(|outdated| is_due(&outdated.turn)) {
            outdated.turn.at = None;
            match outdated.change {
                IkeChange::None => sa.outdated = None,
                IkeChange::Rekey => self.want_new_ike_keys(now, sa)?,
                IkeChange::Reauthenticate => self.set_up_by_new_configuration(now, sa)?,
            }
        }
        let installed = sa.children.iter_mut().filter(|child| child.is_installed());
        let due = installed.filter_map(|child| {
            let outdated = child.outdated.as_mut().filter(|outdated| is_due(outdated))?;
            outdated.at = None;
            Some(child.id)
        });
        let due: Vec<ChildSaId> = due.collect();
        if !due.is_empty() {
            self.commit(sa);
        }
        due.into_iter().for_each(|id| sa.outgoing.queue(Task::ReplaceChild(id)));
        Ok(())
    }

    /// Another IKE SA takes the place of one whose connection has changed; if that is for us to begin.
    fn set_up_by_new_configuration(&mut self, now: Time, sa: &mut IkeSa) -> Result<(), Reason> {
        let Some(connection) = self.connections.get(&sa.connection) else { return Ok(()) };
        if sa.reauth.is_some() {
            let at = self.retry_at(now);
            sa.outdated.iter_mut().for_each(|outdated| outdated.turn.at = Some(at));
            return Ok(());
        }
        if let Some(why) = unreachable(sa, &connection) {
            let line = format!(
                "IKE_SA {}[{}] stays as it was set up until the peer sets it up anew: {why}",
                sa.connection, sa.id.0
            );
            self.log(sa, FAILURE, line);
            self.settle_for_old(now, sa);
            return Ok(());
        }
        if !sa.children.iter().any(|child| child.is_installed() && connection.has_sas(&child.name)) {
            let reason = Reason::Refused("its connection has changed, and it carries nothing of it".into());
            return self.delete_ike(now, sa, reason, now.plus(self.config.delete_timeout));
        }
        self.begin_reauth(now, sa);
        Ok(())
    }

    /// The peer sets up another IKE SA in the place of that of a Child SA: then we need not.
    pub(crate) fn leave_to_peer(&mut self, displaced: ChildSaId) {
        let outdated = self.table.by_child(displaced).filter(|sa| sa.is_outdated()).map(|sa| sa.id);
        if let Some(mut sa) = outdated.and_then(|id| self.table.take(id)) {
            self.commit(&mut sa);
            sa.outdated.iter_mut().for_each(|outdated| outdated.turn.at = None);
            self.put(sa);
        }
    }

    /// There are no new keys by the new proposals. strongSwan rekeys an IKE SA by the configuration that it was made by: another
    /// IKE SA may succeed all the same.
    pub(crate) fn rekey_is_not_enough(&mut self, now: Time, sa: &mut IkeSa) {
        self.outdate_ike(now, sa, IkeChange::Reauthenticate);
        if let Some(connection) = self.connections.get(&sa.connection) {
            self.retime_ike(now, sa, &connection);
        }
    }

    /// What the new configuration asks of an IKE SA could not be had: tried again for a while.
    pub(crate) fn change_failed(&mut self, now: Time, sa: &mut IkeSa) {
        let retry = now.plus(self.config.start_retry);
        let Some(outdated) = &mut sa.outdated else { return };
        if outdated.turn.failed(retry) {
            return;
        }
        let line = format!(
            "IKE_SA {}[{}] stays as it was made until its time is over: the peer does not take its new configuration",
            sa.connection, sa.id.0
        );
        self.log(sa, FAILURE, line);
        self.settle_for_old(now, sa);
    }

    /// The IKE SA stays, with its times; before they are over another is tried once more. Its
    /// children change on it, as far as they have to.
    fn settle_for_old(&mut self, now: Time, sa: &mut IkeSa) {
        sa.outdated.iter_mut().for_each(|outdated| outdated.turn.give_up());
        if let Some(connection) = self.connections.get(&sa.connection) {
            self.retime_ike(now, sa, &connection);
        }
        self.reauthenticate_before_end(sa);
        for outdated in sa.children.iter_mut().filter_map(|child| child.outdated.as_mut()) {
            if !outdated.is_given_up() {
                outdated.at = Some(now);
            }
        }
    }
}

fn outdate_child(sa: &mut IkeSa, id: ChildSaId, at: Option<Time>) {
    if let Some(child) = sa.child_mut(id) {
        child.outdated = Some(Box::new(Outdated::new(at)));
    }
}

fn is_rekeying(sa: &IkeSa, id: ChildSaId) -> bool {
    sa.creating.as_ref().is_some_and(|creating| creating.renews() == Some(id))
        || sa.outgoing.is_waiting(|task| *task == Task::RekeyChild(id))
}

/// It gets new keys at that time, unless that is on its way.
fn rekey_child(sa: &mut IkeSa, id: ChildSaId, at: Time) {
    let renewing = is_rekeying(sa, id);
    if let Some(child) = sa.child_mut(id).filter(|_| !renewing) {
        child.limits.times.rekey = Some(at);
    }
}

/// Why it is not for us to set the IKE SA up anew.
fn unreachable(sa: &IkeSa, connection: &Connection) -> Option<&'static str> {
    if !connection.remote_hosts().has_single() {
        return Some("remote_addrs names no address to begin at");
    }
    match sa.role {
        Role::Responder if !sa.virtual_ips.remote.is_empty() => Some("it has a virtual IP"),
        Role::Responder if sa.nat.remote => Some("it is behind a NAT"),
        _ => None,
    }
}
