//! A connection is loaded, loaded again, or unloaded, and what becomes of the SAs that it made.
//!
//! What [`Difference`] finds is followed SA by SA, make-before-break: the SAs that are to go are marked ([`Outdated`]), and
//! their IKE SA replaces them in its own time, so that a renewal under way, a peer that is busy or another reload do no harm.
//! Nothing is computed while the connection is loaded, and one with many peers has its turn with each after the other.
//! A peer that refuses what is new is asked a few times; then the old SA stays until its end.

use crate::alloc::Home;
use crate::config::{ChildChange, Connection, Difference, IkeChange, Lifetime};
use crate::endpoint::report::{FAILURE, IMPORTANT, ORDINARY};
use crate::exchange::session::Session;
use crate::output::{ChildSaId, Reason, Time};
use crate::sa::{
    Attempt, ChildPhase, FollowupSa, IkeSa, MAX_TRIES, Outdated, OutdatedIke, Phase, Task, Times, What,
    draw_reauth, earlier,
};
use crate::suite::Role;
use std::sync::Arc;
use std::time::Duration;

impl Session<'_> {
    /// `turn`: when what is to be asked of the peer is asked.
    pub(crate) fn follow_on(
        &mut self,
        turn: Time,
        connection: &Arc<Connection>,
        difference: &Difference,
    ) -> Result<(), Reason> {
        self.commit();
        let changed = |child: &str| {
            let change = difference.children.get(child);
            matches!(change, Some(ChildChange::Replace | ChildChange::Remove))
        };
        let is_live = self.sa.is_live();
        match &mut self.sa.phase {
            Phase::InitSent(_) | Phase::Intermediate(_) | Phase::AuthRounds(_) => {
                let child = self.sa.phase.attempt().map(|attempt| attempt.child.clone()).unwrap_or_default();
                if difference.ike == IkeChange::None && !changed(&child) {
                    return Ok(());
                }
                self.end_attempt();
                let line = "the configuration has changed: the IKE_SA is initiated again";
                self.begin_again(connection, (child, 1), line)
            }
            Phase::AuthSent(sent) => {
                // The peer may have made it already: it is replaced as soon as it is there.
                sent.attempt.outdated |= changed(&sent.attempt.child);
                self.outdate_ike(turn, difference.ike);
                Ok(())
            }
            Phase::Established if is_live => {
                self.follow_on_established(turn, connection, difference);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Nobody is authenticated yet: the attempt begins again, by the configuration as it is now.
    pub(crate) fn begin_again(
        &mut self,
        connection: &Connection,
        (child, number): (String, u32),
        why: &str,
    ) -> Result<(), Reason> {
        let path = self
            .env
            .loaded
            .path_again(connection, self.sa)
            .map_err(|error| Reason::Refused(error.to_string()))?;
        self.log(ORDINARY, why);
        let home = Home::Renewing(self.sa.our_spi().shard());
        self.begin_attempt(connection, Attempt { child, number, outdated: false }, path, home)
    }

    fn follow_on_established(&mut self, turn: Time, connection: &Connection, difference: &Difference) {
        self.sa.dpd_delay = connection.dpd_delay;
        if difference.retime {
            self.retime_ike(connection);
        }
        self.outdate_ike(turn, difference.ike);
        // Where the IKE SA is set up anew, the children come with it.
        let at = Some(turn).filter(|_| !self.sa.is_outdated());
        let lifetime =
            |name: &str| connection.child(name).map(|child| child.lifetime.time).unwrap_or_default();
        let children: Vec<(ChildSaId, String)> = self
            .sa
            .children
            .iter()
            .filter(|child| child.is_installed())
            .map(|c| (c.id, c.name.clone()))
            .collect();
        for (id, name) in children {
            match difference.children.get(&name) {
                Some(ChildChange::Replace) => outdate_child(self.sa, id, at),
                Some(ChildChange::Remove) => self.drop_child(turn, id),
                Some(ChildChange::Retime) => self.retime_child(id, &lifetime(&name)),
                Some(ChildChange::Rekey) => {
                    self.retime_child(id, &lifetime(&name));
                    // Should nothing come of another IKE SA, it has to have them on this one.
                    rekey_child(
                        self.sa,
                        id,
                        at.unwrap_or(turn.plus(self.env.config.start_retry * u32::from(MAX_TRIES))),
                    );
                }
                Some(ChildChange::Add | ChildChange::None) | None => {}
            }
        }
        self.follow_on_what_is_being_made(difference);
    }

    /// What we are making was offered by what the connection was: it is replaced once it is there. What the peer is making in
    /// several exchanges it begins once more, and it is agreed on anew.
    fn follow_on_what_is_being_made(&mut self, difference: &Difference) {
        let replaced = |child: &str| {
            let change = difference.children.get(child);
            matches!(change, Some(ChildChange::Replace | ChildChange::Remove))
        };
        let rekey = difference.ike == IkeChange::Rekey;
        if let Some(creating) = &mut self.sa.creating {
            creating.outdated |= match &creating.what {
                What::Child { name, .. } => replaced(name),
                What::Ike(_) => rekey,
            };
        }
        let outdated = self.sa.followup.as_ref().is_some_and(|followup| match &followup.sa {
            FollowupSa::Child { name, .. } => replaced(name),
            FollowupSa::Ike(_) => rekey,
        });
        if outdated {
            self.forget_followup();
        }
    }

    /// The IKE SA is not as the connection wants it.
    pub(crate) fn outdate_ike(&mut self, now: Time, change: IkeChange) {
        if change == IkeChange::None {
            return;
        }
        let before = self.sa.outdated.as_ref().map(|outdated| outdated.change).unwrap_or_default();
        let change = change.max(before);
        // Where both sides have a new configuration, two IKE SAs would be one too many: the peer that began begins again.
        let at = match (change, self.sa.role) {
            (IkeChange::Reauthenticate, Role::Responder) => self.env.retry_at(now),
            _ => now,
        };
        self.sa.outdated = Some(Box::new(OutdatedIke { change, turn: Outdated::new(Some(at)) }));
    }

    /// The child is not configured any more, so its Child SA goes.
    fn drop_child(&mut self, turn: Time, id: ChildSaId) {
        let Some(child) = self.sa.child_mut(id) else { return };
        child.phase = ChildPhase::Deleting;
        let (name, spi_in) = (child.name.clone(), child.params.spi_in);
        self.log(IMPORTANT, format!("CHILD_SA {name}{{{}}} is deleted: it is not configured any more", id.0));
        self.sa.outgoing.delay(turn, Task::DeleteSpi(spi_in));
    }

    fn retime_child(&mut self, id: ChildSaId, lifetime: &Lifetime) {
        let renewing = is_rekeying(self.sa, id);
        let Some(child) = self.sa.child_mut(id) else { return };
        let times = Times::again(lifetime, child.installed, self.now, &mut *self.env.alloc);
        child.limits.times = Times { rekey: times.rekey.filter(|_| !renewing), end: times.end };
    }

    fn retime_ike(&mut self, connection: &Connection) {
        if self.sa.reauth.is_some() {
            // One of the two goes soon.
            return;
        }
        let lifetime = &connection.lifetime;
        let came_up = self.sa.established.unwrap_or(self.now);
        let due = |seconds: u64| {
            let earliest = Duration::from_secs(seconds.saturating_sub(lifetime.rand));
            came_up.max(Time(self.now.since(Time(earliest))))
        };
        let drawn = draw_reauth(lifetime, due(lifetime.reauth), &mut *self.env.alloc);
        // New keys do not prove anew who the peer is: what was to come earlier does.
        let drawn = drawn.map(|drawn| self.sa.reauth_at.map_or(drawn, |before| before.min(drawn)));
        let (reauth_before, end_before) = (self.sa.reauth_at, self.sa.times.end);
        self.sa.reauth_at = drawn;
        let renewing = matches!(self.sa.creating.as_ref().map(|creating| &creating.what), Some(What::Ike(_)))
            || self.sa.outgoing.is_waiting(|task| *task == Task::RekeyIke);
        let times = Times::of_ike(lifetime, self.sa.reauth_at, due(lifetime.rekey), &mut *self.env.alloc);
        self.sa.times = Times { rekey: times.rekey.filter(|_| !renewing), end: times.end };
        if self.sa.keeps_its_end() {
            self.sa.reauth_at = earlier(self.sa.reauth_at, reauth_before);
            self.sa.times.end = earlier(self.sa.times.end, end_before);
        }
    }

    /// Does what the change of a configuration asks for, where its time has come.
    pub(super) fn replace_outdated(&mut self) -> Result<(), Reason> {
        let now = self.now;
        let is_due = |outdated: &Outdated| outdated.at.is_some_and(|at| at <= now);
        if let Some(outdated) = self.sa.outdated.as_mut().filter(|outdated| is_due(&outdated.turn)) {
            outdated.turn.at = None;
            match outdated.change {
                IkeChange::None => self.sa.outdated = None,
                IkeChange::Rekey => self.want_new_ike_keys()?,
                IkeChange::Reauthenticate => self.set_up_by_new_configuration()?,
            }
        }
        let installed = self.sa.children.iter_mut().filter(|child| child.is_installed());
        let due = installed.filter_map(|child| {
            let outdated = child.outdated.as_mut().filter(|outdated| is_due(outdated))?;
            outdated.at = None;
            Some(child.id)
        });
        let due: Vec<ChildSaId> = due.collect();
        if !due.is_empty() {
            self.commit();
        }
        due.into_iter().for_each(|id| self.sa.outgoing.queue(Task::ReplaceChild(id)));
        Ok(())
    }

    /// Another IKE SA takes the place of one whose connection has changed; if that is for us to begin.
    fn set_up_by_new_configuration(&mut self) -> Result<(), Reason> {
        let Some(connection) = self.env.loaded.connections.get(&self.sa.connection) else { return Ok(()) };
        if self.sa.reauth.is_some() {
            let at = self.env.retry_at(self.now);
            self.sa.outdated.iter_mut().for_each(|outdated| outdated.turn.at = Some(at));
            return Ok(());
        }
        if let Some(why) = unreachable(self.sa, &connection) {
            let line = format!(
                "IKE_SA {}[{}] stays as it was set up until the peer sets it up anew: {why}",
                self.sa.connection, self.sa.id.0
            );
            self.log(FAILURE, line);
            self.settle_for_old();
            return Ok(());
        }
        if !self.sa.children.iter().any(|child| child.is_installed() && connection.has_sas(&child.name)) {
            let reason = Reason::Refused("its connection has changed, and it carries nothing of it".into());
            return self.delete_ike(reason, self.now.plus(self.env.config.delete_timeout));
        }
        self.begin_reauth();
        Ok(())
    }

    /// There are no new keys by the new proposals. strongSwan rekeys an IKE SA by the configuration that it was made by: another
    /// IKE SA may succeed all the same.
    pub(crate) fn rekey_is_not_enough(&mut self) {
        self.outdate_ike(self.now, IkeChange::Reauthenticate);
        if let Some(connection) = self.env.loaded.connections.get(&self.sa.connection) {
            self.retime_ike(&connection);
        }
    }

    /// What the new configuration asks of an IKE SA could not be had: tried again for a while.
    pub(crate) fn change_failed(&mut self) {
        let retry = self.now.plus(self.env.config.start_retry);
        let Some(outdated) = &mut self.sa.outdated else { return };
        if outdated.turn.failed(retry) {
            return;
        }
        let line = format!(
            "IKE_SA {}[{}] stays as it was made until its time is over: the peer does not take its new configuration",
            self.sa.connection, self.sa.id.0
        );
        self.log(FAILURE, line);
        self.settle_for_old();
    }

    /// The IKE SA stays, with its times; before they are over another is tried once more. Its
    /// children change on it, as far as they have to.
    fn settle_for_old(&mut self) {
        self.sa.outdated.iter_mut().for_each(|outdated| outdated.turn.give_up());
        if let Some(connection) = self.env.loaded.connections.get(&self.sa.connection) {
            self.retime_ike(&connection);
        }
        self.env.reauthenticate_before_end(self.sa);
        for outdated in self.sa.children.iter_mut().filter_map(|child| child.outdated.as_mut()) {
            if !outdated.is_given_up() {
                outdated.at = Some(self.now);
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
