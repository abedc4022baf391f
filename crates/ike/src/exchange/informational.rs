//! INFORMATIONAL (RFC 7296 §1.4): is the peer alive, and deletes of both kinds.

use crate::config::EspProposal;
use crate::endpoint::Endpoint;
use crate::endpoint::report::{DETAIL, FAILURE, ORDINARY};
use crate::endpoint::send::Request;
use crate::message::{Delete, ExchangeType, Notify, NotifyType, Payload, Payloads, Protocol};
use crate::output::{Reason, Time};
use crate::sa::{ChildPhase, ChildSa, Closing, IkeSa, Outbound, RequestKind, Task};
use testudo_ipsec::spi::Spi;

impl Endpoint {
    /// A request of the peer. `Err`: the IKE SA is gone, the answer is sent.
    pub(crate) fn informational_request(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        request: &Request,
        payloads: &Payloads,
    ) -> Result<(), Reason> {
        if payloads.deletes().any(|delete| *delete == Delete::IkeSa) {
            self.respond(now, sa, request, Vec::new())?;
            return Err(self.ike_deleted(now, sa));
        }
        if payloads.notify(NotifyType::AuthenticationFailed).is_some() {
            self.respond(now, sa, request, Vec::new())?;
            return Err(Reason::Notify(NotifyType::AuthenticationFailed.to_string()));
        }
        for notify in payloads.notifies() {
            self.log(sa, DETAIL, format!("the peer notifies of {}", notify.kind));
        }
        self.advance_if_asked(now, sa, payloads);
        let (mut esp, mut ah) = (Vec::new(), Vec::new());
        for delete in payloads.deletes() {
            match delete {
                Delete::Esp(spis) => esp.extend(self.deleted_by_peer(now, sa, Protocol::Esp, spis)),
                Delete::Ah(spis) => ah.extend(self.deleted_by_peer(now, sa, Protocol::Ah, spis)),
                Delete::IkeSa => {}
            }
        }
        let named = [Delete::Esp(esp), Delete::Ah(ah)].into_iter().filter(|delete| !delete.is_empty());
        let answer = named.map(Payload::Delete).collect();
        self.respond(now, sa, request, answer)?;
        Ok(())
    }

    /// The peer lets its halves of Child SAs go, and so do we. Gives ours, to be named in the answer; but not where our own
    /// delete is under way, whose answer then finds nothing (RFC 7296 §1.4.1).
    fn deleted_by_peer(&mut self, now: Time, sa: &mut IkeSa, protocol: Protocol, spis: &[Spi]) -> Vec<Spi> {
        let mut ours = Vec::new();
        for spi in spis {
            self.forget_followup_of(now, sa, *spi);
            let is_named = |child: &&ChildSa| child.params.spi_out == *spi && child.protocol() == protocol;
            let Some(child) = sa.children.iter().find(is_named) else { continue };
            let (id, spi_in) = (child.id, child.params.spi_in);
            // Through one that is gone already packets still come in, and no more.
            if matches!(child.phase, ChildPhase::Deleted(_)) {
                continue;
            }
            let lost = (child.is_proven() || child.is_missed()).then(|| child.name.clone());
            let kind = sa.outgoing.pending.as_ref().map(|pending| pending.kind);
            if kind != Some(RequestKind::DeleteSpi(spi_in)) {
                ours.push(spi_in);
            }
            sa.outgoing.forget(&Task::DeleteSpi(spi_in));
            self.close_child(now, sa, id, &Reason::DeletedByPeer);
            lost.iter().for_each(|name| self.act_on_close(now, sa, name));
        }
        ours
    }

    /// Begins to delete the IKE SA: at once, or when the request under way is answered, and at `deadline` without the
    /// peer's consent.
    pub(crate) fn delete_ike(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        reason: Reason,
        deadline: Time,
    ) -> Result<(), Reason> {
        // The wish counts, even where nothing can be sent yet.
        self.commit(sa);
        self.give_up_tasks(now, sa, &reason);
        sa.closing = Some(Box::new(Closing { reason, deadline }));
        sa.outgoing.queue(Task::DeleteIke);
        self.next_task(now, sa)
    }

    /// Begins to delete a Child SA.
    pub(crate) fn delete_child(&mut self, now: Time, sa: &mut IkeSa, spi_in: Spi) -> Result<(), Reason> {
        self.commit(sa);
        if let Some(child) = sa.children.iter_mut().find(|child| child.params.spi_in == spi_in) {
            child.phase = ChildPhase::Deleting;
        }
        sa.outgoing.queue(Task::DeleteSpi(spi_in));
        self.next_task(now, sa)
    }

    /// Asks whether the peer is alive (RFC 7296 §2.4).
    pub(crate) fn check_liveness(&mut self, now: Time, sa: &mut IkeSa) -> Result<(), Reason> {
        self.log(sa, ORDINARY, format!("sending a liveness check to {}", sa.path.remote));
        self.request(now, sa, ExchangeType::Informational, RequestKind::Liveness, Vec::new())?;
        Ok(())
    }

    /// Makes the next request that waits, unless one is under way.
    pub(crate) fn next_task(&mut self, now: Time, sa: &mut IkeSa) -> Result<(), Reason> {
        if sa.outgoing.pending.is_some() {
            return Ok(());
        }
        while let Some(task) = sa.outgoing.tasks.pop_front() {
            let asked = match task {
                Task::DeleteIke => self.ask_delete(now, sa, RequestKind::DeleteIke, vec![Delete::IkeSa])?,
                Task::DeleteSpi(spi) => {
                    let deletes = self.deletes_of(sa, spi);
                    self.ask_delete(now, sa, RequestKind::DeleteSpi(spi), deletes)?
                }
                Task::NewChild { name, tries } => self.create_child(now, sa, name, tries)?,
                Task::RekeyChild(id) => self.ask_new_keys(now, sa, id)?,
                Task::ReplaceChild(id) => self.ask_replacement(now, sa, id)?,
                Task::RekeyIke => self.ask_new_ike_keys(now, sa)?,
                Task::SyncMessageIds => self.ask_sync(now, sa)?,
                Task::SyncReplayCounters(by) => self.ask_replay_sync(now, sa, by)?,
            };
            if asked {
                return Ok(());
            }
        }
        self.end_reauth(now, sa)
    }

    /// What says that the SA goes for which we chose that SPI. Of one that was refused nobody knows what it would have been: it is
    /// named as each that it can be (RFC 7296 §1.4.1).
    fn deletes_of(&self, sa: &IkeSa, spi: Spi) -> Vec<Delete> {
        match sa.child_by_spi(spi).map(ChildSa::protocol) {
            Some(Protocol::Ah) => vec![Delete::Ah(vec![spi])],
            Some(_) => vec![Delete::Esp(vec![spi])],
            None => {
                let connection = self.connections.get(&sa.connection);
                let children = connection.iter().flat_map(|connection| &connection.children);
                let offers_ah = children.flat_map(|child| &child.proposals).any(EspProposal::is_ah);
                let ah = offers_ah.then(|| Delete::Ah(vec![spi]));
                [Delete::Esp(vec![spi])].into_iter().chain(ah).collect()
            }
        }
    }

    fn ask_delete(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        kind: RequestKind,
        deletes: Vec<Delete>,
    ) -> Result<bool, Reason> {
        let payloads = deletes.into_iter().map(Payload::Delete).collect();
        self.request(now, sa, ExchangeType::Informational, kind, payloads)?;
        Ok(true)
    }

    /// What waits will not be asked any more: who waits for it hears so.
    pub(crate) fn give_up_tasks(&mut self, now: Time, sa: &mut IkeSa, reason: &Reason) {
        let later = sa.outgoing.later.drain(..).map(|delayed| delayed.task);
        let waiting: Vec<Task> = sa.outgoing.tasks.drain(..).chain(later).collect();
        for task in waiting {
            if let Task::NewChild { name, .. } = task {
                self.child_failed(now, sa, &name, reason.clone());
            }
        }
    }

    /// The answer to one of our requests. `Err`: the IKE SA is gone.
    pub(crate) fn informational_response(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        kind: RequestKind,
        payloads: &Payloads,
    ) -> Result<(), Reason> {
        let closed = |sa: &IkeSa| sa.closing.as_ref().map_or(Reason::Requested, |c| c.reason.clone());
        match kind {
            RequestKind::DeleteIke | RequestKind::AuthFailed => return Err(closed(sa)),
            RequestKind::DeleteSpi(spi_in) => {
                let child = sa.children.iter().find(|child| child.params.spi_in == spi_in);
                let expired = |child: &ChildSa| child.outbound == Outbound::Expired;
                let reason = if child.is_some_and(expired) { Reason::Expired } else { Reason::Requested };
                if let Some(id) = child.map(|child| child.id) {
                    self.close_child(now, sa, id, &reason);
                }
            }
            RequestKind::Liveness
            | RequestKind::Init
            | RequestKind::Intermediate
            | RequestKind::Auth
            | RequestKind::SyncMessageIds { .. }
            | RequestKind::SyncReplayCounters(_)
            | RequestKind::CreateChild => {}
        }
        // The peer has given the IKE SA up (RFC 7296 §2.21.3).
        let fatal = [NotifyType::InvalidSyntax, NotifyType::AuthenticationFailed];
        if let Some(error) = fatal.iter().find_map(|kind| payloads.notify(*kind)) {
            return Err(Reason::Notify(error.kind.to_string()));
        }
        self.next_task(now, sa)
    }

    /// A protected request that cannot be read: fatal on both sides, except for a critical payload that we do not know
    /// (RFC 7296 §2.21.3, §2.5).
    pub(crate) fn unreadable_request(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        request: &Request,
        error: &crate::message::ParseError,
    ) -> Result<(), Reason> {
        if let crate::message::ParseError::Critical(payload) = error {
            let notify = Payload::Notify(Notify::unsupported_critical(*payload));
            self.log(sa, FAILURE, format!("refused a request of the peer: {error}"));
            self.respond(now, sa, request, vec![notify])?;
            return Ok(());
        }
        let notify = Payload::Notify(Notify::new(NotifyType::InvalidSyntax, Vec::new()));
        self.respond(now, sa, request, vec![notify])?;
        Err(Reason::Refused(format!("the peer sent a malformed request: {error}")))
    }
}
