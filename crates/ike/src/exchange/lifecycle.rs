//! The end of IKE SAs, and of what was begun on them.

use crate::environment::report::{FAILURE, level_of_end};
use crate::exchange::session::Session;
use crate::exchange::{child, configuration, create_child, reauth};
use crate::output::{ChildSaId, Event, IkeSaId, Reason};
use crate::sa::{Attempt, IkeSa, Phase, RequestKind, What};
use crate::suite::Role;

impl Session<'_> {
    /// Ends an IKE SA and everything that depends on it. The rest repeats its last response for a
    /// while, because the peer may have missed it. It continues to count as half-open if it was:
    /// otherwise a peer that fails in IKE_AUTH would be free to fill the table.
    pub(crate) fn retire(&mut self, reason: Reason) {
        if self.sa.is_gone() {
            return;
        }
        self.commit();
        self.env.forget_jobs(self.sa.id);
        create_child::leave_to_rival(self);
        let is_unexpected = self.env.is_unexpected_end(self.sa, &reason);
        self.env.act_on_loss(self.now, self.sa, &reason);
        match &self.sa.phase {
            Phase::InitSent(_) | Phase::Intermediate(_) | Phase::AuthSent(_) | Phase::AuthRounds(_) => {
                self.attempt_failed(&reason)
            }
            Phase::HalfOpen(_) | Phase::HalfProven(_) => self.env.effects.stats.failed += 1,
            _ => {}
        }
        self.give_up_creating(&reason);
        reauth::ended(self, &reason);
        let children: Vec<ChildSaId> = self.sa.children.iter().map(|child| child.id).collect();
        for child in children {
            child::remove(self, child, &reason);
        }
        configuration::release_addresses(self);
        if self.sa.established.is_some() {
            let line = format!("IKE_SA {}[{}] closed: {reason}", self.sa.connection, self.sa.id.0);
            self.log(level_of_end(&reason, is_unexpected), line);
        }
        // A stranger that never got further is no event.
        if self.sa.established.is_some() || self.sa.role == Role::Initiator || reason == Reason::Requested {
            self.env.effects.event(Event::IkeDown(self.sa.id, reason));
        }
        let until =
            if self.sa.incoming.last.is_some() { self.now.plus(self.env.config.linger) } else { self.now };
        self.sa.phase = Phase::Gone { until, source: self.sa.phase.half_open_source() };
        self.sa.outgoing.pending = None;
        self.sa.incoming.fragments = None;
        self.sa.closing = None;
        self.sa.keys = None;
    }

    /// Ends a half-open IKE SA whose peer needs no answer any more: it is forgotten at once.
    pub(crate) fn end_half_open(&mut self, why: &str) {
        self.retire(Reason::Refused(why.into()));
        self.sa.phase = Phase::Gone { until: self.now, source: self.sa.phase.half_open_source() };
    }

    /// Our pending or waiting request for an SA will not be answered.
    fn give_up_creating(&mut self, reason: &Reason) {
        if let Some(creating) = self.sa.creating.take()
            && let What::Child { name, spi_in, replaces, .. } = creating.what
        {
            self.env.alloc.release_esp_spi(self.now, spi_in);
            if replaces.is_none() && self.sa.resources.worker(spi_in).is_none() {
                create_child::child_failed(self, &name, reason.clone());
            }
        }
        create_child::forget_followup(self);
        self.give_up_tasks(reason);
    }

    /// Our initiation has failed: reports it, and frees what it had taken.
    pub(crate) fn attempt_failed(&mut self, reason: &Reason) {
        let Some(attempt) = self.end_attempt() else { return };
        let what = attempt.describe(&self.sa.connection);
        self.initiation_failed(&what, &attempt.child, reason.clone());
    }

    /// A child, or the IKE SA itself, could not be made: those that wait for it are told.
    pub(crate) fn initiation_failed(&mut self, what: &str, child: &str, reason: Reason) {
        self.log(FAILURE, format!("establishing {what} failed: {reason}"));
        self.env.initiation_failed(self.now, &self.sa.connection, self.sa.id, child, reason);
    }

    /// Frees what an attempt has taken. Returns the attempt, if one is under way.
    pub(crate) fn end_attempt(&mut self) -> Option<Attempt> {
        if let Some(asked) = self.sa.phase.auth_sent().and_then(|sent| sent.asked.as_ref()) {
            self.env.alloc.release_esp_spi(self.now, asked.spi_in);
        }
        self.sa.phase.attempt().cloned()
    }

    /// The peer of a new IKE SA knows of no other: our others with it are dead (RFC 7296 §2.4). Not
    /// those that came up at the same time: the peer may have sent INITIAL_CONTACT before it knew
    /// of them.
    pub(crate) fn supersede(&mut self) {
        let older = |other: &&IkeSa| other.is_established() && other.established < Some(self.sa.created);
        let dead: Vec<IkeSaId> =
            self.env.between_the_same(self.sa).filter(older).map(|other| other.id).collect();
        for id in dead {
            self.env.with_sa(self.now, id, |_| Err(Reason::Replaced));
        }
    }

    /// Terminates an IKE SA: with a delete if the peer may know it, else at once.
    pub(crate) fn terminate_ike(&mut self, force: bool) -> Result<(), Reason> {
        if self.has_only_its_delete() {
            return Err(Reason::Rekeyed);
        }
        match self.sa.phase {
            Phase::Established | Phase::AuthSent(_) | Phase::AuthRounds(_) => {
                let deadline = if force { self.now } else { self.now.plus(self.env.config.delete_timeout) };
                self.delete_ike(Reason::Requested, deadline)?;
                if force { Err(Reason::Requested) } else { Ok(()) }
            }
            Phase::InitSent(_)
            | Phase::Intermediate(_)
            | Phase::HalfOpen(_)
            | Phase::HalfProven(_)
            | Phase::Rejecting => Err(Reason::Requested),
            Phase::Gone { .. } => Ok(()),
        }
    }

    /// True if its successor is in charge, and the peer has been sent the delete. A peer that has
    /// answered, as strongSwan, forgets the SA: if the answer is lost, no retransmission brings
    /// another.
    fn has_only_its_delete(&self) -> bool {
        let is_rekeyed = self.sa.closing.as_ref().is_some_and(|closing| closing.reason == Reason::Rekeyed);
        let pending = self.sa.outgoing.pending.as_ref();
        is_rekeyed && pending.is_some_and(|pending| pending.kind == RequestKind::DeleteIke)
    }

    pub(crate) fn terminate_child(&mut self, id: ChildSaId, force: bool) -> Result<(), Reason> {
        let Some(spi_in) = self.sa.child(id).map(|child| child.params.spi_in) else { return Ok(()) };
        self.delete_child(spi_in)?;
        if force {
            child::remove(self, id, &Reason::Requested);
        }
        Ok(())
    }
}
