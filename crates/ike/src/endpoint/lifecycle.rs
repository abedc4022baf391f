//! IKE SAs come, are worked on, and go.

use super::Endpoint;
use super::report::{FAILURE, level_of_end};
use crate::output::{ChildSaId, Event, IkeSaId, Reason, Time};
use crate::sa::{Attempt, IkeSa, Phase, What};
use crate::suite::Role;

impl Endpoint {
    /// Works on an IKE SA. Where `work` fails, the SA goes, for that reason.
    pub(crate) fn with_sa(
        &mut self,
        now: Time,
        id: IkeSaId,
        work: impl FnOnce(&mut Self, &mut IkeSa) -> Result<(), Reason>,
    ) {
        let Some(mut sa) = self.table.take(id) else { return };
        if let Err(reason) = work(self, &mut sa) {
            self.retire(now, &mut sa, reason);
        }
        match sa.phase {
            Phase::Gone { until, source: _ } if until <= now => {
                self.changed(id);
                self.half_opens.leave(id);
                self.forget_former(&sa.connection);
            }
            _ => self.put(sa),
        }
    }

    /// Puts an IKE SA into the table.
    pub(crate) fn put(&mut self, sa: impl Into<Box<IkeSa>>) {
        self.table.put(sa.into(), &self.config);
    }

    /// The end of an IKE SA and of all that hangs on it. What is left repeats its last response for a while, because
    /// the peer may have missed it; and it goes on counting as half open if it was, or whoever fails in IKE_AUTH would be
    /// free to fill the table.
    pub(crate) fn retire(&mut self, now: Time, sa: &mut IkeSa, reason: Reason) {
        if sa.is_gone() {
            return;
        }
        self.commit(sa);
        self.forget_jobs(sa.id);
        self.leave_to_rival(now, sa);
        self.act_on_loss(now, sa, &reason);
        match &sa.phase {
            Phase::InitSent(_) | Phase::Intermediate(_) | Phase::AuthSent(_) | Phase::AuthRounds(_) => {
                self.attempt_failed(now, sa, &reason)
            }
            Phase::HalfOpen(_) | Phase::HalfProven(_) => self.stats.failed += 1,
            _ => {}
        }
        self.give_up_creating(now, sa, &reason);
        self.reauth_ended(now, sa, &reason);
        let children: Vec<ChildSaId> = sa.children.iter().map(|child| child.id).collect();
        for child in children {
            self.remove_child(now, sa, child, &reason);
        }
        self.release_addresses(sa);
        if sa.established.is_some() {
            let line = format!("IKE_SA {}[{}] closed: {reason}", sa.connection, sa.id.0);
            self.log(sa, level_of_end(&reason), line);
        }
        // Strangers who never got further are no event.
        if sa.established.is_some() || sa.role == Role::Initiator || reason == Reason::Requested {
            self.event(Event::IkeDown(sa.id, reason));
        }
        let until = if sa.incoming.last.is_some() { now.plus(self.config.linger) } else { now };
        sa.phase = Phase::Gone { until, source: sa.phase.half_open_source() };
        sa.outgoing.pending = None;
        sa.incoming.fragments = None;
        sa.closing = None;
        sa.keys = None;
    }

    /// The end of a half-open IKE SA whose peer needs no answer of ours any more: it is forgotten
    /// at once.
    pub(super) fn end_half_open(&mut self, now: Time, sa: &mut IkeSa, why: &str) {
        self.retire(now, sa, Reason::Refused(why.into()));
        sa.phase = Phase::Gone { until: now, source: sa.phase.half_open_source() };
    }

    /// What we have asked for, or were about to, does not come.
    fn give_up_creating(&mut self, now: Time, sa: &mut IkeSa, reason: &Reason) {
        if let Some(creating) = sa.creating.take()
            && let What::Child { name, spi_in, replaces, .. } = creating.what
        {
            self.alloc.release_esp_spi(now, spi_in);
            if replaces.is_none() {
                self.child_failed(now, sa, &name, reason.clone());
            }
        }
        self.forget_followup(now, sa);
        self.give_up_tasks(now, sa, reason);
    }

    /// What we initiated comes to nothing: says so, and lets go what it had taken.
    pub(crate) fn attempt_failed(&mut self, now: Time, sa: &mut IkeSa, reason: &Reason) {
        let Some(attempt) = self.end_attempt(now, sa) else { return };
        self.stats.failed += 1;
        let what = attempt.describe(&sa.connection);
        self.log(sa, FAILURE, format!("establishing {what} failed: {reason}"));
        self.note_failure(now, &sa.connection, &attempt.child, reason.to_string());
        let connection = sa.connection.clone();
        self.initiate_done(now, &connection, sa.id, &attempt.child, Err(reason.clone()));
    }

    /// Lets go what an attempt has taken. Gives the attempt, if one is under way.
    pub(crate) fn end_attempt(&mut self, now: Time, sa: &IkeSa) -> Option<Attempt> {
        if let Some(asked) = sa.phase.auth_sent().and_then(|sent| sent.asked.as_ref()) {
            self.alloc.release_esp_spi(now, asked.spi_in);
        }
        sa.phase.attempt().cloned()
    }

    /// The peer of a new IKE SA knows of no other: those that we have with it are dead (RFC 7296 §2.4). Not those that
    /// came up while the new one did: the peer may have spoken before it knew of them.
    pub(crate) fn supersede(&mut self, now: Time, sa: &IkeSa) {
        let older = |other: &&IkeSa| other.is_established() && other.established < Some(sa.created);
        let dead: Vec<IkeSaId> = self.between_the_same(sa).filter(older).map(|other| other.id).collect();
        for id in dead {
            self.with_sa(now, id, |_, _| Err(Reason::Replaced));
        }
    }

    pub(crate) fn new_ike_id(&mut self) -> IkeSaId {
        self.last_ike = self.last_ike.saturating_add(1);
        IkeSaId(self.last_ike)
    }

    pub(crate) fn new_child_id(&mut self) -> ChildSaId {
        self.last_child = self.last_child.saturating_add(1);
        ChildSaId(self.last_child)
    }

    /// The number that all SAs of a child shard.
    pub(crate) fn reqid(&mut self, connection: &str, child: &str) -> u32 {
        if let Some(children) = self.reqids.get(connection)
            && let Ok(at) = place_of(children, child)
        {
            return children[at].1;
        }
        let next = self.last_reqid.saturating_add(1);
        self.keep_reqid(connection, child, next)
    }

    /// Gives a child that number, unless it has one.
    pub(crate) fn keep_reqid(&mut self, connection: &str, child: &str, reqid: u32) -> u32 {
        self.last_reqid = self.last_reqid.max(reqid);
        let children = self.reqids.entry(connection.to_owned()).or_insert_with(|| Vec::with_capacity(1));
        match place_of(children, child) {
            Ok(at) => children[at].1,
            Err(at) => {
                children.insert(at, (child.to_owned(), reqid));
                reqid
            }
        }
    }
}

/// Where a child is among those that have a number, or belongs.
fn place_of(children: &[(String, u32)], child: &str) -> Result<usize, usize> {
    children.binary_search_by(|(known, _)| known.as_str().cmp(child))
}
