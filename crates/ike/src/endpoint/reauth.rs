//! Reauthentication (RFC 7296 §2.8.3), make-before-break: a new IKE SA is set up from scratch beside the old one, with Child
//! SAs for all of its children, each of which takes over what goes out as soon as it is there. Then the old one goes.

use super::initiate::Beginning;
use super::report::{FAILURE, IMPORTANT, ORDINARY};
use super::{Endpoint, EndpointConfig, InitiateError};
use crate::alloc::Home;
use crate::config::{Childless, Connection, Identity};
use crate::output::{ChildSaId, Event, IkeSaId, Reason, Time};
use crate::sa::{ChildSa, IkeSa, Outbound, Reauth, Task, Times, What};
use crate::suite::Role;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use testudo_ipsec::sa::ChildSaParams;
use testudo_ipsec::spi::Spi;

/// How long an IKE SA stays that another has taken the place of: its Child SAs take in what is under way, and a peer that
/// began is given time to move its Child SAs. As in charon.
const OUTLIVED: Duration = Duration::from_secs(10);
/// Of the IKE SAs with the same identity so many are looked at, the newest first. Where many peers share one identity, the
/// time that an SA takes must not grow with them.
const TWINS: usize = 8;

impl Endpoint {
    /// See [`Endpoint::reauthenticate_ike`].
    pub(super) fn reauthenticate(&mut self, now: Time, id: IkeSaId) -> bool {
        let able = self.table.get(id).is_some_and(|sa| sa.is_in_charge() && sa.reauth.is_none());
        if able {
            self.with_sa(now, id, |endpoint, sa| {
                sa.reauth_at = None;
                endpoint.begin_reauth(now, sa);
                Ok(())
            });
        }
        able && self.table.get(id).is_some_and(|sa| sa.reauth == Some(Reauth::Begun))
    }

    /// Sets up another IKE SA in the place of this one.
    pub(super) fn begin_reauth(&mut self, now: Time, sa: &mut IkeSa) {
        self.commit(sa);
        if sa.reauth.is_some() {
            return;
        }
        let renewing = matches!(sa.creating.as_ref().map(|creating| &creating.what), Some(What::Ike(_)));
        if renewing {
            // The turn of its successor.
            return self.reauth_later(now, sa);
        }
        let found = self.connections.get(&sa.connection).and_then(|connection| {
            let mut children = sa.children.iter().filter(|child| child.is_installed()).peekable();
            if children.peek().is_none() && connection.childless != Childless::Never {
                // The IKE SA alone (RFC 6023).
                return Some((connection, String::new()));
            }
            let name = children.map(|child| &child.name).find(|name| connection.has_sas(name))?.clone();
            Some((connection, name))
        });
        let Some((connection, child)) = found else {
            return self.log(sa, FAILURE, "not reauthenticated: it has no CHILD_SA that is configured");
        };
        if sa.role == Role::Responder && !sa.virtual_ips.remote.is_empty() {
            // A client with a virtual address has to begin itself (RFC 4478).
            return self.log(sa, FAILURE, "not reauthenticated: that is for the initiator to begin");
        }
        self.log(sa, ORDINARY, format!("reauthenticating IKE_SA {}[{}]", sa.connection, sa.id.0));
        match self.set_up_anew(now, sa, &connection, &child) {
            Ok(_) => sa.reauth = Some(Reauth::Begun),
            Err(error) => {
                self.reauth_failed(now, sa, &error.to_string());
            }
        }
    }

    fn set_up_anew(
        &mut self,
        now: Time,
        sa: &IkeSa,
        connection: &Arc<Connection>,
        child: &str,
    ) -> Result<IkeSaId, InitiateError> {
        // A peer that began is where it is now, whatever stands in the configuration. Roles change
        // with every renewal, so a peer without a configured address is where it is too.
        let path = match sa.role {
            Role::Responder if !sa.is_outdated() => sa.path,
            _ if connection.peer_address().is_none() => sa.path,
            _ => self.initial_path(connection)?,
        };
        let home = Home::Renewing(sa.our_spi().shard());
        let reauth = Some(Reauth::Of(sa.our_spi()));
        self.look_names_up(connection);
        let beginning = Beginning { id: self.new_ike_id(), child, path, reauth, home };
        self.begin_ike_sa_at(now, connection, beginning)
    }

    /// The virtual addresses that the IKE SA of before has.
    pub(crate) fn held_addresses(&self, sa: &IkeSa) -> Vec<IpAddr> {
        let old = self.reauthenticated(sa).map(|old| old.virtual_ips.local.clone());
        old.unwrap_or_default()
    }

    /// The IKE SA that this one is to take the place of.
    fn reauthenticated(&self, sa: &IkeSa) -> Option<&IkeSa> {
        let Some(Reauth::Of(spi) | Reauth::Shown(spi)) = sa.reauth else { return None };
        self.table.by_spi(spi).filter(|old| !old.is_gone())
    }

    /// The new IKE SA stands, with its first Child SA: the others follow.
    pub(crate) fn ask_other_children(&mut self, sa: &mut IkeSa) {
        let Some(old) = self.reauthenticated(sa) else { return };
        let there = |name: &String| sa.children.iter().any(|child| child.name == *name);
        let connection = self.connections.find(&sa.connection);
        let configured = |name: &&String| connection.is_some_and(|connection| connection.has_sas(name));
        let others = old.children.iter().filter(|child| child.is_installed()).map(|child| &child.name);
        let others = others.filter(configured);
        let missing: Vec<String> = others.filter(|name| !there(name)).cloned().collect();
        for name in missing {
            self.act_on_refusal(sa, &name);
            sa.outgoing.queue(Task::NewChild { name, tries: 1 });
        }
    }

    /// Nothing is left to be asked: what could be made anew is there, and the old IKE SA goes.
    pub(crate) fn end_reauth(&mut self, now: Time, sa: &mut IkeSa) -> Result<(), Reason> {
        let spi = match sa.reauth.filter(|_| sa.is_in_charge()) {
            Some(Reauth::Of(_)) if sa.outgoing.is_waiting(|task| matches!(task, Task::NewChild { .. })) => {
                return Ok(());
            }
            Some(Reauth::Of(spi)) => {
                // The peer may wait for a sign that we have the answers, which no packet need give; and our delete of the
                // old one may be lost.
                sa.reauth = Some(Reauth::Shown(spi));
                return self.check_liveness(now, sa);
            }
            Some(Reauth::Shown(spi)) => spi,
            _ => return Ok(()),
        };
        self.commit(sa);
        sa.reauth = None;
        let Some(old) = self.table.by_spi(spi).filter(|old| !old.is_gone()) else { return Ok(()) };
        if old.closing.as_ref().is_some_and(|closing| closing.reason == Reason::Requested) {
            return self.delete_ike(now, sa, Reason::Requested, now.plus(self.config.delete_timeout));
        }
        let old = old.id;
        self.with_sa(now, old, |endpoint, old| {
            let line =
                format!("IKE_SA {}[{}] reauthenticated: it is [{}] now", sa.connection, old.id.0, sa.id.0);
            endpoint.log(old, IMPORTANT, line);
            let waiting = std::mem::take(&mut old.outgoing.tasks);
            for task in waiting {
                match &task {
                    Task::NewChild { name, .. } => {
                        let child = name.clone();
                        endpoint.event(Event::InitiateMoved { from: old.id, to: sa.id, child });
                        sa.outgoing.delay(now, task);
                    }
                    Task::DeleteSpi(_) | Task::DeleteIke => old.outgoing.queue(task),
                    Task::RekeyChild(_)
                    | Task::ReplaceChild(_)
                    | Task::RekeyIke
                    | Task::SyncMessageIds
                    | Task::SyncReplayCounters(_) => {}
                }
            }
            endpoint.give_way(now, old);
            Ok(())
        });
        Ok(())
    }

    /// Another IKE SA has the place of this one, which goes in a while and is not renewed until then.
    pub(super) fn give_way(&mut self, now: Time, old: &mut IkeSa) {
        self.commit(old);
        old.reauth = Some(Reauth::Done);
        old.reauth_at = None;
        old.outdated = None;
        old.times = Times { rekey: None, end: Some(now.plus(OUTLIVED)) };
        old.outgoing.later.clear();
        for child in &mut old.children {
            child.limits.times.rekey = None;
            child.outdated = None;
        }
    }

    /// No other IKE SA has come of it: tried again, as often as that makes sense.
    fn reauth_failed(&mut self, now: Time, sa: &mut IkeSa, why: &str) {
        self.log(sa, FAILURE, format!("not reauthenticated: {why}"));
        if sa.is_outdated() {
            self.change_failed(now, sa);
        } else {
            sa.reauth_at = Some(self.retry_at(now));
        }
    }

    fn reauth_later(&mut self, now: Time, sa: &mut IkeSa) {
        let at = Some(self.retry_at(now));
        match sa.outdated.as_mut().filter(|outdated| !outdated.turn.is_given_up()) {
            Some(outdated) => outdated.turn.at = at,
            None => sa.reauth_at = at,
        }
    }

    /// An IKE SA ends. If it was to take the place of another, that one stays, and it is tried again; if another was being
    /// set up in its place, an operator who takes it down does not want that either.
    pub(super) fn reauth_ended(&mut self, now: Time, sa: &mut IkeSa, reason: &Reason) {
        match sa.reauth.take() {
            Some(Reauth::Of(spi) | Reauth::Shown(spi)) => {
                let begun = |old: &&IkeSa| old.reauth == Some(Reauth::Begun);
                let Some(old) = self.table.by_spi(spi).filter(begun).map(|old| old.id) else { return };
                self.with_sa(now, old, |endpoint, old| {
                    endpoint.commit(old);
                    old.reauth = None;
                    endpoint.reauth_failed(now, old, &reason.to_string());
                    Ok(())
                });
            }
            Some(Reauth::Begun) if *reason == Reason::Requested => {
                let spi = sa.our_spi();
                let new =
                    |new: &&IkeSa| [Reauth::Of(spi), Reauth::Shown(spi)].map(Some).contains(&new.reauth);
                let new = self.table.by_addr(sa.path.remote.ip()).find(new).map(|new| new.id);
                if let Some(new) = new {
                    self.with_sa(now, new, |endpoint, new| endpoint.terminate_ike(now, new, false));
                }
            }
            _ => {}
        }
    }

    /// The Child SA of another IKE SA with the same peer that a new one takes the place of: what the side that reauthenticates
    /// knows, and the other can see. One that is used, by the same name, and carries some of what the new one does.
    pub(crate) fn predecessor(&self, sa: &IkeSa, name: &str, params: &ChildSaParams) -> Option<ChildSaId> {
        let of = |other: &IkeSa| {
            let same = |child: &&ChildSa| {
                child.name == name && child.is_proven() && self.is_displaced_by(other, child, params)
            };
            other.children.iter().find(same).map(|child| child.id)
        };
        if sa.role == Role::Initiator {
            return self.reauthenticated(sa).and_then(of);
        }
        let older = |other: &&IkeSa| {
            other.is_established()
                && other.closing.is_none()
                && other.established < Some(sa.created)
                && other.connection == sa.connection
        };
        self.twins_of(sa).filter(older).find_map(of)
    }

    /// Through which Child SA goes what `old` is to carry, or will soon. By sending through a new one of its own the peer may
    /// have given that the place already (RFC 7296 §2.8.1). `None`: nothing does, so that there is nothing to wait for.
    pub(crate) fn holder(&self, sa: &IkeSa, old: ChildSaId) -> Option<ChildSaId> {
        let Some(named) = sa.child(old) else { return Some(old) };
        let same = |child: &&ChildSa| {
            child.outbound == Outbound::Active
                && child.name == named.name
                && child.params.local_ts == named.params.local_ts
                && child.params.remote_ts == named.params.remote_ts
        };
        match named.outbound {
            Outbound::Active | Outbound::Waiting(_) => Some(old),
            Outbound::Retired | Outbound::Expired => {
                let here = sa.children.iter().find(same).map(|child| child.id);
                let elsewhere = || self.twins_of(sa).any(|other| other.children.iter().any(|c| same(&c)));
                here.or_else(|| (named.outbound == Outbound::Retired && elsewhere()).then_some(old))
            }
        }
    }

    /// The newest IKE SAs between the same identities; and those of the same connection at the same
    /// place with the same peer, to whom we may have had another name, or whose own name the
    /// configuration has changed. The place alone says nothing: a peer behind a NAT, or one that
    /// says so, has the place that it likes.
    fn twins_of<'a>(&'a self, sa: &'a IkeSa) -> impl Iterator<Item = &'a IkeSa> {
        let named =
            sa.remote_id.iter().flat_map(|identity| self.table.by_identity(identity).rev().take(TWINS));
        let named = named.filter(|other| other.local_id == sa.local_id);
        let placed = self.table.by_addr(sa.path.remote.ip()).rev().take(TWINS);
        let name = sa.remote_id.as_ref().map(Identity::canonical);
        let placed = placed.filter(move |other| {
            other.connection == sa.connection
                && other.path.remote == sa.path.remote
                && (other.remote_id.as_ref().map(Identity::canonical) == name
                    || self.is_renamed(other)
                    || self.is_renamed(sa))
        });
        named.chain(placed).filter(|other| other.id != sa.id)
    }

    /// True if the peer could not have the name any more that it has in this IKE SA.
    fn is_renamed(&self, sa: &IkeSa) -> bool {
        let expected =
            self.connections.find(&sa.connection).and_then(|found| found.last_remote().id.as_ref());
        sa.remote_id.as_ref().zip(expected).is_some_and(|(had, expected)| !expected.covers(had))
    }

    /// The peer has shown that it has the whole new IKE SA: what goes out goes through the new Child SAs.
    pub(crate) fn peer_is_ready(&mut self, sa: &mut IkeSa) {
        let elsewhere = |new: ChildSaId| {
            let waits = sa.child(new).and_then(ChildSa::waits_for);
            waits.is_some_and(|old| sa.child_by_spi(old).is_none())
        };
        let ready: Vec<ChildSaId> =
            waiting_for_another(sa).into_iter().map(|(new, _)| new).filter(|new| elsewhere(*new)).collect();
        ready.into_iter().for_each(|new| self.proven(sa, new));
    }

    /// Nor is there a wait for it without an end: the peer may have lost what we still send through.
    pub(super) fn wait_no_longer(&mut self, now: Time, sa: &mut IkeSa) {
        for (new, installed) in waiting_for_another(sa) {
            if sign_due(installed, &self.config) > now {
                continue;
            }
            self.commit(sa);
            self.proven(sa, new);
            if let Some(place) = sa.child(new).and_then(ChildSa::waits_for) {
                // Nobody has the place that it waits for: what goes out must not wait for ever.
                let old = self.child_of_spi(sa, place);
                self.send_through(sa, (old, place), new);
            }
        }
    }

    /// What went out through one Child SA goes out through another now. Those of other IKE SAs that waited for its place wait
    /// for that of its successor, if they are newer than that; else their turn is over.
    pub(crate) fn pass_place_on(&mut self, sa: &IkeSa, old: Spi, new: ChildSaId) {
        let inherited = sa.child_by_spi(old).is_some();
        let Some(new) = sa.child(new) else { return };
        while let Some((ike, standby)) = self.standby(sa, old) {
            let Some(mut other) = self.table.take(ike) else { return };
            self.commit(&mut other);
            if let Some(child) = other.child_mut(standby) {
                // A renewal leaves the place in its IKE SA, and the others come after that one.
                let newer = inherited || child.installed > new.installed;
                child.outbound = if newer { Outbound::Waiting(new.params.spi_in) } else { Outbound::Retired };
            }
            self.put(other);
        }
    }

    /// What went out through a Child SA of another IKE SA stops. False: that was not so any more.
    pub(crate) fn stop_elsewhere(&mut self, old: ChildSaId) -> bool {
        let id = self.table.by_child(old).map(|sa| sa.id);
        let Some(mut sa) = id.and_then(|id| self.table.take(id)) else { return false };
        let active = sa.child_mut(old).filter(|child| child.outbound == Outbound::Active);
        let stopped = active.map(|child| {
            child.outbound = Outbound::Retired;
            child.params.spi_in
        });
        if stopped.is_some() {
            // A renewal there that the peer has not used yet comes too late.
            let late = sa.children.iter_mut().filter(|child| child.waits_for() == stopped);
            late.for_each(|child| child.outbound = Outbound::Retired);
            self.commit(&mut sa);
        }
        self.put(sa);
        stopped.is_some()
    }

    /// True if a Child SA in use, of another IKE SA or of this one, carries what the new one does not.
    pub(crate) fn stays_beside(&self, sa: &IkeSa, old: ChildSaId, new: &ChildSaParams) -> bool {
        let here = sa.child(old).map(|old| (sa, old));
        let found = here.or_else(|| self.table.by_child(old).and_then(|sa| Some((sa, sa.child(old)?))));
        found.is_some_and(|(sa, old)| old.is_proven() && !self.is_replaced_by(sa, old, new))
    }

    /// True if a Child SA of another IKE SA is sent through.
    pub(crate) fn sends_elsewhere(&self, old: ChildSaId) -> bool {
        let found = self.table.by_child(old).and_then(|sa| sa.child(old));
        found.is_some_and(|child| child.outbound == Outbound::Active)
    }

    /// What went out through a Child SA that ends goes out through the one of another IKE SA that waits for its place.
    pub(crate) fn hand_over(&mut self, sa: &mut IkeSa, old: ChildSaId) {
        let Some(place) = sa.child(old).map(|old| old.params.spi_in) else { return };
        let Some((ike, new)) = self.standby(sa, place) else { return };
        let Some(child) = sa.child_mut(old).filter(|child| child.outbound == Outbound::Active) else {
            return;
        };
        child.outbound = Outbound::Retired;
        if let Some(mut other) = self.table.take(ike) {
            self.commit(&mut other);
            self.send_through(&mut other, (Some(old), place), new);
            self.put(other);
        }
    }

    /// The Child SA of another IKE SA that waits for the place of the one of that SPI.
    fn standby(&self, sa: &IkeSa, old: Spi) -> Option<(IkeSaId, ChildSaId)> {
        let waits = |child: &&ChildSa| child.outbound == Outbound::Waiting(old);
        self.twins_of(sa).find_map(|other| Some((other.id, other.children.iter().find(waits)?.id)))
    }

    /// True if the child has a Child SA in this IKE SA, or in another with the same peer: two that
    /// were made at once, of which one goes.
    pub(crate) fn is_up_otherwise(&self, sa: &IkeSa, name: &str) -> bool {
        let up = |child: &ChildSa| child.name == name && child.is_up();
        let live = |other: &&IkeSa| other.is_in_charge() && other.connection == sa.connection;
        sa.children.iter().any(up)
            || self.twins_of(sa).filter(live).any(|other| other.children.iter().any(up))
    }

    /// True if another Child SA carries what this one did, or is about to.
    pub(crate) fn has_standby(&self, sa: &IkeSa, child: &ChildSa) -> bool {
        child.outbound == Outbound::Retired || self.standby(sa, child.params.spi_in).is_some()
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
