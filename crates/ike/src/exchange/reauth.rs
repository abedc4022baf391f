//! Reauthentication (RFC 7296 §2.8.3), make-before-break: a new IKE SA is set up from scratch beside the old one, with Child
//! SAs for all of its children, each of which takes over what goes out as soon as it is there. Then the old one goes.

use crate::alloc::Home;
use crate::config::{Childless, Connection};
use crate::endpoint::begin::Beginning;
use crate::endpoint::report::{FAILURE, IMPORTANT, ORDINARY};
use crate::endpoint::{EndpointConfig, InitiateError};
use crate::exchange::session::Session;
use crate::output::{ChildSaId, Event, IkeSaId, Reason, Time};
use crate::sa::{ChildSa, IkeSa, Outbound, Reauth, Task, Times, What};
use crate::suite::Role;
use std::sync::Arc;
use std::time::Duration;
use testudo_ipsec::spi::Spi;

/// How long an IKE SA stays that another has taken the place of: its Child SAs take in what is under way, and a peer that
/// began is given time to move its Child SAs. As in charon.
const OUTLIVED: Duration = Duration::from_secs(10);

impl Session<'_> {
    /// Sets up another IKE SA in the place of this one.
    pub(crate) fn begin_reauth(&mut self) {
        self.commit();
        if self.sa.reauth.is_some() {
            return;
        }
        let renewing = matches!(self.sa.creating.as_ref().map(|creating| &creating.what), Some(What::Ike(_)));
        if renewing {
            // The turn of its successor.
            return self.reauth_later();
        }
        let found = self.env.loaded.connections.get(&self.sa.connection).and_then(|connection| {
            let mut children = self.sa.children.iter().filter(|child| child.is_installed()).peekable();
            if children.peek().is_none() && connection.childless != Childless::Never {
                // The IKE SA alone (RFC 6023).
                return Some((connection, String::new()));
            }
            let name = children.map(|child| &child.name).find(|name| connection.has_sas(name))?.clone();
            Some((connection, name))
        });
        let Some((connection, child)) = found else {
            return self.log(FAILURE, "not reauthenticated: it has no CHILD_SA that is configured");
        };
        if self.sa.role == Role::Responder && !self.sa.virtual_ips.remote.is_empty() {
            // A client with a virtual address has to begin itself (RFC 4478).
            return self.log(FAILURE, "not reauthenticated: that is for the initiator to begin");
        }
        self.log(ORDINARY, format!("reauthenticating IKE_SA {}[{}]", self.sa.connection, self.sa.id.0));
        match self.set_up_anew(&connection, &child) {
            Ok(_) => self.sa.reauth = Some(Reauth::Begun),
            Err(error) => {
                self.reauth_failed(&error.to_string());
            }
        }
    }

    fn set_up_anew(&mut self, connection: &Arc<Connection>, child: &str) -> Result<IkeSaId, InitiateError> {
        // A peer that began is where it is now, whatever stands in the configuration. Roles change
        // with every renewal, so a peer without a configured address is where it is too.
        let path = match self.sa.role {
            Role::Responder if !self.sa.is_outdated() => self.sa.path,
            _ if connection.peer_address().is_none() => self.sa.path,
            _ => self.env.loaded.initial_path(connection)?,
        };
        let home = Home::Renewing(self.sa.our_spi().shard());
        let reauth = Some(Reauth::Of(self.sa.our_spi()));
        self.env.names.look_names_up(connection);
        let beginning = Beginning { id: self.env.numbers.new_ike_id(), child, path, reauth, home };
        self.env.begin_ike_sa_at(self.now, connection, beginning)
    }

    /// The new IKE SA stands, with its first Child SA: the others follow.
    pub(crate) fn ask_other_children(&mut self) {
        let Some(old) = self.env.reauthenticated(self.sa) else { return };
        let there = |name: &String| self.sa.children.iter().any(|child| child.name == *name);
        let connection = self.env.loaded.connections.find(&self.sa.connection);
        let configured = |name: &&String| connection.is_some_and(|connection| connection.has_sas(name));
        let others = old.children.iter().filter(|child| child.is_installed()).map(|child| &child.name);
        let others = others.filter(configured);
        let missing: Vec<String> = others.filter(|name| !there(name)).cloned().collect();
        for name in missing {
            self.env.act_on_refusal(self.sa, &name);
            self.sa.outgoing.queue(Task::NewChild { name, tries: 1 });
        }
    }

    /// Nothing is left to be asked: what could be made anew is there, and the old IKE SA goes.
    pub(crate) fn end_reauth(&mut self) -> Result<(), Reason> {
        let spi = match self.sa.reauth.filter(|_| self.sa.is_in_charge()) {
            Some(Reauth::Of(_))
                if self.sa.outgoing.is_waiting(|task| matches!(task, Task::NewChild { .. })) =>
            {
                return Ok(());
            }
            Some(Reauth::Of(spi)) => {
                // The peer may wait for a sign that we have the answers, which no packet need give; and our delete of the
                // old one may be lost.
                self.sa.reauth = Some(Reauth::Shown(spi));
                return self.check_liveness();
            }
            Some(Reauth::Shown(spi)) => spi,
            _ => return Ok(()),
        };
        self.commit();
        self.sa.reauth = None;
        let Some(old) = self.env.table.by_spi(spi).filter(|old| !old.is_gone()) else { return Ok(()) };
        if old.closing.as_ref().is_some_and(|closing| closing.reason == Reason::Requested) {
            return self.delete_ike(Reason::Requested, self.now.plus(self.env.config.delete_timeout));
        }
        let old = old.id;
        self.env.with_sa(self.now, old, |old| {
            let line = format!(
                "IKE_SA {}[{}] reauthenticated: it is [{}] now",
                self.sa.connection, old.sa.id.0, self.sa.id.0
            );
            old.log(IMPORTANT, line);
            let waiting = std::mem::take(&mut old.sa.outgoing.tasks);
            for task in waiting {
                match &task {
                    Task::NewChild { name, .. } => {
                        let child = name.clone();
                        old.env.effects.event(Event::InitiateMoved {
                            from: old.sa.id,
                            to: self.sa.id,
                            child,
                        });
                        self.sa.outgoing.delay(old.now, task);
                    }
                    Task::DeleteSpi(_) | Task::DeleteIke => old.sa.outgoing.queue(task),
                    Task::RekeyChild(_)
                    | Task::ReplaceChild(_)
                    | Task::RekeyIke
                    | Task::SyncMessageIds
                    | Task::SyncReplayCounters(_) => {}
                }
            }
            old.give_way();
            Ok(())
        });
        Ok(())
    }

    /// Another IKE SA has the place of this one, which goes in a while and is not renewed until then.
    pub(super) fn give_way(&mut self) {
        self.commit();
        self.sa.reauth = Some(Reauth::Done);
        self.sa.reauth_at = None;
        self.sa.outdated = None;
        self.sa.times = Times { rekey: None, end: Some(self.now.plus(OUTLIVED)) };
        self.sa.outgoing.later.clear();
        for child in &mut self.sa.children {
            child.limits.times.rekey = None;
            child.outdated = None;
        }
    }

    /// No other IKE SA has come of it: tried again, as often as that makes sense.
    fn reauth_failed(&mut self, why: &str) {
        self.log(FAILURE, format!("not reauthenticated: {why}"));
        if self.sa.is_outdated() {
            self.change_failed();
        } else {
            self.sa.reauth_at = Some(self.env.retry_at(self.now));
        }
    }

    fn reauth_later(&mut self) {
        let at = Some(self.env.retry_at(self.now));
        match self.sa.outdated.as_mut().filter(|outdated| !outdated.turn.is_given_up()) {
            Some(outdated) => outdated.turn.at = at,
            None => self.sa.reauth_at = at,
        }
    }

    /// An IKE SA ends. If it was to take the place of another, that one stays, and it is tried again; if another was being
    /// set up in its place, an operator who takes it down does not want that either.
    pub(super) fn reauth_ended(&mut self, reason: &Reason) {
        match self.sa.reauth.take() {
            Some(Reauth::Of(spi) | Reauth::Shown(spi)) => {
                let begun = |old: &&IkeSa| old.reauth == Some(Reauth::Begun);
                let Some(old) = self.env.table.by_spi(spi).filter(begun).map(|old| old.id) else { return };
                self.env.with_sa(self.now, old, |old| {
                    old.commit();
                    old.sa.reauth = None;
                    old.reauth_failed(&reason.to_string());
                    Ok(())
                });
            }
            Some(Reauth::Begun) if *reason == Reason::Requested => {
                let spi = self.sa.our_spi();
                let new =
                    |new: &&IkeSa| [Reauth::Of(spi), Reauth::Shown(spi)].map(Some).contains(&new.reauth);
                let new = self.env.table.by_addr(self.sa.path.remote.ip()).find(new).map(|new| new.id);
                if let Some(new) = new {
                    self.env.with_sa(self.now, new, |new| new.terminate_ike(false));
                }
            }
            _ => {}
        }
    }

    /// The peer has shown that it has the whole new IKE SA: what goes out goes through the new Child SAs.
    pub(crate) fn peer_is_ready(&mut self) {
        let elsewhere = |new: ChildSaId| {
            let waits = self.sa.child(new).and_then(ChildSa::waits_for);
            waits.is_some_and(|old| self.sa.child_by_spi(old).is_none())
        };
        let ready: Vec<ChildSaId> = waiting_for_another(self.sa)
            .into_iter()
            .map(|(new, _)| new)
            .filter(|new| elsewhere(*new))
            .collect();
        ready.into_iter().for_each(|new| self.proven(new));
    }

    /// Nor is there a wait for it without an end: the peer may have lost what we still send through.
    pub(super) fn wait_no_longer(&mut self) {
        for (new, installed) in waiting_for_another(self.sa) {
            if sign_due(installed, &self.env.config) > self.now {
                continue;
            }
            self.commit();
            self.proven(new);
            if let Some(place) = self.sa.child(new).and_then(ChildSa::waits_for) {
                // Nobody has the place that it waits for: what goes out must not wait for ever.
                let old = self.child_of_spi(place);
                self.send_through((old, place), new);
            }
        }
    }

    /// What went out through one Child SA goes out through another now. Those of other IKE SAs that waited for its place wait
    /// for that of its successor, if they are newer than that; else their turn is over.
    pub(crate) fn pass_place_on(&mut self, old: Spi, new: ChildSaId) {
        let inherited = self.sa.child_by_spi(old).is_some();
        let Some(new) = self.sa.child(new) else { return };
        while let Some((ike, standby)) = self.env.standby(self.sa, old) {
            let Some(mut other) = self.env.table.take(ike) else { return };
            self.env.commit(&mut other);
            if let Some(child) = other.child_mut(standby) {
                // A renewal leaves the place in its IKE SA, and the others come after that one.
                let newer = inherited || child.installed > new.installed;
                child.outbound = if newer { Outbound::Waiting(new.params.spi_in) } else { Outbound::Retired };
            }
            self.env.put(other);
        }
    }

    /// What went out through a Child SA that ends goes out through the one of another IKE SA that waits for its place.
    pub(crate) fn hand_over(&mut self, old: ChildSaId) {
        let Some(place) = self.sa.child(old).map(|old| old.params.spi_in) else { return };
        let Some((ike, new)) = self.env.standby(self.sa, place) else { return };
        let Some(child) = self.sa.child_mut(old).filter(|child| child.outbound == Outbound::Active) else {
            return;
        };
        child.outbound = Outbound::Retired;
        if let Some(mut other) = self.env.table.take(ike) {
            self.env.commit(&mut other);
            self.beside(&mut other).send_through((Some(old), place), new);
            self.env.put(other);
        }
    }
}

/// How long a responder waits for a sign that the peer has a Child SA in the place of one of another IKE SA: as long as a
/// peer repeats its request because the answer was lost.
fn sign_due(installed: Time, config: &EndpointConfig) -> Time {
    installed.plus(config.retransmit.patience())
}

/// The Child SAs that wait for the place of one that the peer has not renewed by them: mostly one of another IKE SA. And
/// since when.
fn waiting_for_another(sa: &IkeSa) -> Vec<(ChildSaId, Time)> {
    let another = |old| sa.child_by_spi(old).is_none_or(ChildSa::is_installed);
    let waits = |child: &&ChildSa| child.waits_for().is_some_and(another);
    sa.children.iter().filter(waits).map(|child| (child.id, child.installed)).collect()
}

/// When the first of them has waited long enough.
pub(crate) fn patience_ends(sa: &IkeSa, config: &EndpointConfig) -> Option<Time> {
    waiting_for_another(sa).into_iter().map(|(_, installed)| sign_due(installed, config)).min()
}
