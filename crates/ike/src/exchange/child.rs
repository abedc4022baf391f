//! Negotiation of a Child SA and its life: the responder's choice, the initiator's check, installation and removal.

use super::describe;
use super::narrow::Selectors;
use crate::config::{Child, ChildMode, Connection};
use crate::endpoint::Endpoint;
use crate::endpoint::report::{IMPORTANT, ORDINARY};
use crate::message::{Notify, NotifyType, Payload, Payloads, TsPayload};
use crate::output::{ChildSaId, Event, Output, Path, Reason, Time};
use crate::sa::{ChildPhase, ChildSa, IkeSa};
use crate::suite::{EspSuite, Nonces, Role, SuiteError, accept, offer, select};
use std::sync::Arc;
use testudo_ipsec::sa::{ChildSaParams, Encapsulation};
use testudo_ipsec::spi::Spi;

/// What an initiator needs to judge the answer about its child.
#[derive(Clone, Copy)]
pub(crate) struct Answer<'a> {
    pub(crate) nonces: &'a Nonces,
    pub(crate) spi_in: Spi,
    pub(crate) payloads: &'a Payloads,
}

/// What both sides agreed on.
struct Agreed {
    suite: EspSuite,
    spi_in: Spi,
    spi_out: Spi,
    selectors: Selectors,
}

/// Why a responder makes no child: the notify for the peer and the text for us.
struct NoChild(NotifyType, String);

impl Endpoint {
    /// The initiator's check of the answer. The error is for the log.
    pub(crate) fn accept_child(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        connection: &Connection,
        name: &str,
        answer: &Answer<'_>,
    ) -> Result<ChildSaId, String> {
        let payloads = answer.payloads;
        let (Some(chosen), Some(ts_i), Some(ts_r)) =
            (payloads.sa(), payloads.ts_initiator(), payloads.ts_responder())
        else {
            return Err("the answer has no SA, TSi or TSr".into());
        };
        let child = connection.child(name).ok_or("the child was unloaded meanwhile")?;
        let offered = offer::esp(&child.proposals, answer.spi_in, offer::ChildExchange::IkeAuth);
        let (suite, spi_out) =
            accept::esp(&offered, &child.proposals, chosen).map_err(|error| error.to_string())?;
        let selectors = Selectors { local: ts_i.selectors.clone(), remote: ts_r.selectors.clone() };
        let wanted = Selectors::configured(child, &sa.dynamic_local(), &sa.dynamic_remote());
        let known = ts_i.unknown.is_empty() && ts_r.unknown.is_empty();
        if !known || !selectors.within(&wanted) || selectors.narrow(&wanted).is_none() {
            return Err(format!(
                "the peer's selectors {} === {} do not lie within ours",
                describe::selectors(&selectors.local),
                describe::selectors(&selectors.remote)
            ));
        }
        let agreed = Agreed { suite, spi_in: answer.spi_in, spi_out, selectors };
        self.install(now, sa, child, answer.nonces, agreed).map_err(|error| error.to_string())
    }

    /// The responder's choice among the children of `connections`, and the payloads that answer. Where nothing fits
    /// they are the notify that says why, and the IKE SA goes on without a child for a while (RFC 7296 §1.2).
    pub(crate) fn answer_child(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        connections: &[Arc<Connection>],
        nonces: &Nonces,
        request: &Payloads,
    ) -> Vec<Payload> {
        match self.choose_child(now, sa, connections, nonces, request) {
            Ok(payloads) => payloads,
            Err(NoChild(notify, why)) => vec![self.refuse_child(sa, notify, &why)],
        }
    }

    /// What stands in the place of a child.
    pub(crate) fn refuse_child(&mut self, sa: &IkeSa, notify: NotifyType, why: &str) -> Payload {
        self.stats.failed += 1;
        self.log(sa, IMPORTANT, format!("no CHILD_SA: {why}; the IKE_SA stays for now"));
        Payload::Notify(Notify::new(notify, Vec::new()))
    }

    fn choose_child(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        connections: &[Arc<Connection>],
        nonces: &Nonces,
        request: &Payloads,
    ) -> Result<Vec<Payload>, NoChild> {
        let (Some(offered), Some(ts_i), Some(ts_r)) =
            (request.sa(), request.ts_initiator(), request.ts_responder())
        else {
            return Err(NoChild(NotifyType::InvalidSyntax, "SA, TSi or TSr is missing".into()));
        };
        let asked = Selectors { local: ts_r.selectors.clone(), remote: ts_i.selectors.clone() };
        let (connection, child, selectors) = matching_child(connections, sa, &asked).ok_or_else(|| {
            let (local, remote) = (describe::selectors(&asked.local), describe::selectors(&asked.remote));
            NoChild(NotifyType::TsUnacceptable, format!("no child carries {local} === {remote}"))
        })?;
        sa.connection = connection.name.clone();
        sa.dpd_delay = connection.dpd_delay;
        let choice = select::esp(offered, &child.proposals, offer::ChildExchange::IkeAuth).map_err(|_| {
            let (theirs, ours) = (describe::sa(offered), describe::esp_proposals(&child.proposals));
            let why =
                format!("no common ESP proposal: offered {theirs}, configured for {} {ours}", child.name);
            NoChild(NotifyType::NoProposalChosen, why)
        })?;
        let home = sa.our_spi().share();
        let no_spi = || NoChild(NotifyType::NoAdditionalSas, "no free ESP SPI is left".into());
        let spi_in = self.alloc.esp_spi(now, home).ok_or_else(no_spi)?;
        let answer = vec![
            Payload::Sa(choice.answer(spi_in)),
            Payload::TsInitiator(TsPayload::new(selectors.remote.clone())),
            Payload::TsResponder(TsPayload::new(selectors.local.clone())),
        ];
        let agreed = Agreed { suite: choice.suite, spi_in, spi_out: choice.spi, selectors };
        if let Err(error) = self.install(now, sa, child, nonces, agreed) {
            self.alloc.release_esp_spi(now, spi_in);
            return Err(NoChild(NotifyType::TemporaryFailure, error.to_string()));
        }
        Ok(answer)
    }

    /// Derives the keys and gives the Child SA to the data plane.
    fn install(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        child: &Child,
        nonces: &Nonces,
        agreed: Agreed,
    ) -> Result<ChildSaId, SuiteError> {
        let keys = sa.keys.as_ref().ok_or(SuiteError::Seal)?;
        let keys = keys.ike.child(agreed.suite.algorithm, None, nonces)?;
        let (key_in, key_out) = match sa.role {
            Role::Initiator => (keys.from_responder, keys.from_initiator),
            Role::Responder => (keys.from_initiator, keys.from_responder),
        };
        let (path, encapsulation) = self.esp_path(sa);
        let params = ChildSaParams {
            spi_in: agreed.spi_in,
            spi_out: agreed.spi_out,
            algorithm: agreed.suite.algorithm,
            key_in,
            key_out,
            esn: agreed.suite.esn,
            replay_window: child.replay_window,
            local_ts: agreed.selectors.local,
            remote_ts: agreed.selectors.remote,
            local: path.local,
            remote: path.remote,
            encapsulation,
            copy: child.copy,
        };
        let id = self.new_child_id();
        let reqid = self.reqid(&sa.connection, &child.name);
        let line = format!(
            "CHILD_SA {}{{{}}} established with SPIs {}_i {}_o and TS {} === {}",
            child.name,
            id.0,
            params.spi_in,
            params.spi_out,
            describe::selectors(&params.local_ts),
            describe::selectors(&params.remote_ts)
        );
        self.log(sa, IMPORTANT, line);
        self.outputs.push_back(Output::InstallChild {
            ike: sa.id,
            child: id,
            connection: sa.connection.clone(),
            name: child.name.clone(),
            params: Box::new(params.clone()),
        });
        self.event(Event::ChildUp(sa.id, id));
        let name = child.name.clone();
        let phase = ChildPhase::Installed;
        sa.children.push(ChildSa { id, name, reqid, params, installed: now, phase, source: None });
        Ok(id)
    }

    /// Takes a Child SA away from the data plane.
    pub(crate) fn remove_child(&mut self, now: Time, sa: &mut IkeSa, id: ChildSaId, reason: &Reason) {
        let Some(at) = sa.children.iter().position(|child| child.id == id) else { return };
        let child = sa.children.remove(at);
        let spi_in = child.params.spi_in;
        self.outputs.push_back(Output::RemoveChild { child: id, spi_in });
        self.alloc.release_esp_spi(now, spi_in);
        self.log(sa, ORDINARY, format!("CHILD_SA {}{{{}}} closed: {reason}", child.name, id.0));
        self.event(Event::ChildDown(sa.id, id, reason.clone()));
    }

    /// Where ESP of this IKE SA goes, and how. In UDP it shares the NAT's mapping with IKE (RFC 3948 §2.1).
    fn esp_path(&self, sa: &IkeSa) -> (Path, Encapsulation) {
        let encapsulation = if sa.nat.any() { Encapsulation::Udp } else { Encapsulation::Plain };
        (super::nat::float(sa.path, &self.config), encapsulation)
    }

    /// The peer is somewhere else now: so are the Child SAs.
    pub(crate) fn move_children(&mut self, sa: &mut IkeSa) {
        let (path, _) = self.esp_path(sa);
        for child in &mut sa.children {
            child.params.local = path.local;
            child.params.remote = path.remote;
            let (spi_in, spi_out) = (child.params.spi_in, child.params.spi_out);
            self.outputs.push_back(Output::UpdateChild { child: child.id, spi_in, spi_out, path });
        }
    }
}

/// The child that fits best: one whose selectors are wanted as they stand beats one that must be narrowed.
fn matching_child<'a>(
    connections: &'a [Arc<Connection>],
    sa: &IkeSa,
    asked: &Selectors,
) -> Option<(&'a Connection, &'a Child, Selectors)> {
    let (local, remote) = (sa.dynamic_local(), sa.dynamic_remote());
    let mut narrowed = None;
    for connection in connections {
        for child in connection.children.iter().filter(|child| child.mode == ChildMode::Tunnel) {
            let ours = Selectors::configured(child, &local, &remote);
            let Some(common) = ours.narrow(asked) else { continue };
            if common == ours {
                return Some((connection, child, common));
            }
            narrowed.get_or_insert((&**connection, child, common));
        }
    }
    narrowed
}
