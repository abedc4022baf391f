//! INFORMATIONAL (RFC 7296 §1.4): liveness checks, and deletes of both kinds.

use crate::config::EspProposal;
use crate::environment::report::{DETAIL, FAILURE, ORDINARY};
use crate::exchange::counter_sync;
use crate::exchange::create_child;
use crate::exchange::reauth;
use crate::exchange::send::Request;
use crate::exchange::session::Session;
use crate::message::{Delete, ExchangeType, Notify, NotifyType, Payload, Payloads, Protocol};
use crate::output::{Reason, Time};
use crate::sa::{ChildPhase, ChildSa, Closing, IkeSa, Outbound, RequestKind, Task};
use testudo_base::spi::Spi;

impl Session<'_> {
    /// A request of the peer. `Err`: the IKE SA is gone, the answer is sent.
    pub(crate) fn informational_request(
        &mut self,
        request: &Request,
        payloads: &Payloads,
    ) -> Result<(), Reason> {
        if payloads.deletes().any(|delete| *delete == Delete::IkeSa) {
            self.respond(request, Vec::new())?;
            return Err(create_child::ike_deleted(self));
        }
        if payloads.notify(NotifyType::AuthenticationFailed).is_some() {
            self.respond(request, Vec::new())?;
            return Err(Reason::Notify(NotifyType::AuthenticationFailed.to_string()));
        }
        for notify in payloads.notifies() {
            self.log(DETAIL, format!("the peer notifies of {}", notify.kind));
        }
        counter_sync::advance_if_asked(self, payloads);
        let (mut esp, mut ah) = (Vec::new(), Vec::new());
        for delete in payloads.deletes() {
            match delete {
                Delete::Esp(spis) => esp.extend(self.deleted_by_peer(Protocol::Esp, spis)),
                Delete::Ah(spis) => ah.extend(self.deleted_by_peer(Protocol::Ah, spis)),
                Delete::IkeSa => {}
            }
        }
        let named = [Delete::Esp(esp), Delete::Ah(ah)].into_iter().filter(|delete| !delete.is_empty());
        let answer = named.map(Payload::Delete).collect();
        self.respond(request, answer)?;
        Ok(())
    }

    /// The peer deletes its halves of Child SAs, and so do we. Returns ours, for the answer; except
    /// those whose delete by us is pending, whose answer will name nothing (RFC 7296 §1.4.1).
    fn deleted_by_peer(&mut self, protocol: Protocol, spis: &[Spi]) -> Vec<Spi> {
        let mut ours = Vec::new();
        for spi in spis {
            create_child::forget_followup_of(self, *spi);
            let is_named = |child: &&ChildSa| child.params.spi_out == *spi && child.protocol() == protocol;
            let Some(child) = self.sa.children.iter().find(is_named) else { continue };
            let (id, spi_in) = (child.id, child.params.spi_in);
            // A Child SA that is gone already still accepts packets, and no more.
            if matches!(child.phase, ChildPhase::Deleted(_)) {
                continue;
            }
            let counts = !self.sa.is_additional(child) && (child.is_proven() || child.is_missed());
            let lost = counts.then(|| child.name.clone());
            let kind = self.sa.outgoing.pending.as_ref().map(|pending| pending.kind);
            if kind != Some(RequestKind::DeleteSpi(spi_in)) {
                ours.push(spi_in);
            }
            self.sa.outgoing.forget(&Task::DeleteSpi(spi_in));
            create_child::close_child(self, id, &Reason::DeletedByPeer);
            lost.iter().for_each(|name| self.env.act_on_close(self.now, self.sa, name));
        }
        ours
    }

    /// Begins to delete the IKE SA: at once, or after the pending request, and at `deadline`
    /// without the peer's answer.
    pub(crate) fn delete_ike(&mut self, reason: Reason, deadline: Time) -> Result<(), Reason> {
        // The decision counts, even if nothing can be sent yet.
        self.commit();
        self.give_up_tasks(&reason);
        self.sa.closing = Some(Box::new(Closing { reason, deadline }));
        self.sa.outgoing.queue(Task::DeleteIke);
        self.next_task()
    }

    /// Begins to delete a Child SA.
    pub(crate) fn delete_child(&mut self, spi_in: Spi) -> Result<(), Reason> {
        self.commit();
        if let Some(child) = self.sa.children.iter_mut().find(|child| child.params.spi_in == spi_in) {
            child.phase = ChildPhase::Deleting;
            let id = child.id;
            create_child::give_back(self, id);
        }
        self.sa.outgoing.queue(Task::DeleteSpi(spi_in));
        self.next_task()
    }

    /// Sends a liveness check (RFC 7296 §2.4).
    pub(crate) fn check_liveness(&mut self) -> Result<(), Reason> {
        self.log(ORDINARY, format!("sending a liveness check to {}", self.sa.path.remote));
        self.request(ExchangeType::Informational, RequestKind::Liveness, Vec::new())?;
        Ok(())
    }

    /// Sends the next waiting request, unless one is pending.
    pub(crate) fn next_task(&mut self) -> Result<(), Reason> {
        if self.sa.outgoing.pending.is_some() {
            return Ok(());
        }
        while let Some(task) = self.sa.outgoing.tasks.pop_front() {
            let asked = match task {
                Task::DeleteIke => self.ask_delete(RequestKind::DeleteIke, vec![Delete::IkeSa])?,
                Task::DeleteSpi(spi) => {
                    let deletes = self.deletes_of(spi);
                    self.ask_delete(RequestKind::DeleteSpi(spi), deletes)?
                }
                Task::NewChild { name, tries } => create_child::ask_new_child(self, name, tries)?,
                Task::RekeyChild(id) => create_child::ask_new_keys(self, id)?,
                Task::ReplaceChild(id) => create_child::ask_replacement(self, id)?,
                Task::RekeyIke => create_child::ask_new_ike_keys(self)?,
                Task::SyncMessageIds => counter_sync::ask_sync(self)?,
                Task::NewResource { fallback, tries } => create_child::ask_resource(self, fallback, tries)?,
                Task::SyncReplayCounters(by) => counter_sync::ask_replay_sync(self, by)?,
            };
            if asked {
                return Ok(());
            }
        }
        reauth::complete(self)
    }

    /// The delete payloads for the SA with this SPI of ours. If it was refused, its protocol is not
    /// known, so each possible one is named (RFC 7296 §1.4.1).
    fn deletes_of(&self, spi: Spi) -> Vec<Delete> {
        match self.sa.child_by_spi(spi).map(ChildSa::protocol) {
            Some(Protocol::Ah) => vec![Delete::Ah(vec![spi])],
            Some(_) => vec![Delete::Esp(vec![spi])],
            None => {
                let connection = self.env.loaded.connections.get(&self.sa.connection);
                let children = connection.iter().flat_map(|connection| &connection.children);
                let offers_ah = children.flat_map(|child| &child.proposals).any(EspProposal::is_ah);
                let ah = offers_ah.then(|| Delete::Ah(vec![spi]));
                [Delete::Esp(vec![spi])].into_iter().chain(ah).collect()
            }
        }
    }

    fn ask_delete(&mut self, kind: RequestKind, deletes: Vec<Delete>) -> Result<bool, Reason> {
        let payloads = deletes.into_iter().map(Payload::Delete).collect();
        self.request(ExchangeType::Informational, kind, payloads)?;
        Ok(true)
    }

    /// The waiting tasks will not be done any more: those that wait for them are told.
    pub(crate) fn give_up_tasks(&mut self, reason: &Reason) {
        let later = self.sa.outgoing.later.drain(..).map(|delayed| delayed.task);
        let waiting: Vec<Task> = self.sa.outgoing.tasks.drain(..).chain(later).collect();
        for task in waiting {
            if let Task::NewChild { name, .. } = task {
                create_child::child_failed(self, &name, reason.clone());
            }
        }
    }

    /// The response to one of our requests. `Err`: the IKE SA is gone.
    pub(crate) fn informational_response(
        &mut self,
        kind: RequestKind,
        payloads: &Payloads,
    ) -> Result<(), Reason> {
        let closed = |sa: &IkeSa| sa.closing.as_ref().map_or(Reason::Requested, |c| c.reason.clone());
        match kind {
            RequestKind::DeleteIke | RequestKind::AuthFailed => return Err(closed(self.sa)),
            RequestKind::DeleteSpi(spi_in) => {
                let child = self.sa.children.iter().find(|child| child.params.spi_in == spi_in);
                let expired = |child: &ChildSa| child.outbound == Outbound::Expired;
                let reason = if child.is_some_and(expired) { Reason::Expired } else { Reason::Requested };
                if let Some(id) = child.map(|child| child.id) {
                    create_child::close_child(self, id, &reason);
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
        self.next_task()
    }

    /// A protected request that cannot be decoded: fatal on both sides, except for an unknown
    /// critical payload (RFC 7296 §2.21.3, §2.5).
    pub(crate) fn unreadable_request(
        &mut self,
        request: &Request,
        error: &crate::message::ParseError,
    ) -> Result<(), Reason> {
        if let crate::message::ParseError::Critical(payload) = error {
            let notify = Payload::Notify(Notify::unsupported_critical(*payload));
            self.log(FAILURE, format!("refused a request of the peer: {error}"));
            self.respond(request, vec![notify])?;
            return Ok(());
        }
        let notify = Payload::Notify(Notify::new(NotifyType::InvalidSyntax, Vec::new()));
        self.respond(request, vec![notify])?;
        Err(Reason::Refused(format!("the peer sent a malformed request: {error}")))
    }
}
