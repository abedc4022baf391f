//! Child SAs: the responder's choice, the initiator's check, installation and removal.

use crate::config::{Child, ChildMode, Connection};
use crate::environment::report::{FAILURE, IMPORTANT, level_of_end};
use crate::exchange::create_child;
use crate::exchange::error::AnswerError;
use crate::exchange::narrow::Selectors;
use crate::exchange::session::Session;
use crate::exchange::{describe, mode};
use crate::message::{Notify, NotifyType, Payload, Payloads, SaPayload, TsPayload};
use crate::output::{ChildSaId, Event, Output, Path, Reason};
use crate::sa::{AgreedChild, ChildLimits, ChildPhase, ChildSa, IkeSa, Outbound, Part};
use crate::suite::{EspChoice, EspSuite, Nonces, Role, Secret, SuiteError, accept, offer, select};
use std::num::NonZeroU32;
use std::sync::Arc;
use testudo_base::spi::Spi;
use testudo_ipsec::sa::{ChildSaParams, Encapsulation, Mode};

/// What an initiator needs for judging the answer about its child.
#[derive(Clone, Copy)]
pub(crate) struct Answer<'a> {
    pub(crate) nonces: &'a Nonces,
    pub(crate) spi_in: Spi,
    pub(crate) payloads: &'a Payloads,
}

/// The exchange that made a child, from which its keys come.
#[derive(Clone, Copy)]
pub(crate) struct ChildOrigin<'a> {
    /// Our role in that exchange.
    pub(crate) role: Role,
    pub(crate) nonces: &'a Nonces,
    /// The results of its key exchanges, if it had any.
    pub(crate) shared: &'a [Secret],
    /// The SA that it renews.
    pub(crate) replaces: Option<ChildSaId>,
    /// False if the peer has renewed the same SA, and its new one stays (RFC 7296 §2.8.1).
    pub(crate) stays: bool,
}

/// Why a responder makes no child: the notify for the peer and the text for the log.
pub(crate) struct NoChild(pub(crate) Notify, pub(crate) String);

impl NoChild {
    pub(crate) fn new(kind: NotifyType, why: impl Into<String>) -> Self {
        Self(Notify::new(kind, Vec::new()), why.into())
    }

    /// No child covers the requested selectors.
    pub(crate) fn without_child(asked: &Selectors) -> Self {
        let (local, remote) = (describe::selectors(&asked.local), describe::selectors(&asked.remote));
        Self::new(NotifyType::TsUnacceptable, format!("no child carries {local} === {remote}"))
    }
}

/// The initiator's check of the answer against the child as it was offered: an operator may have
/// loaded another one meanwhile.
pub(crate) fn accept(
    session: &mut Session<'_>,
    connection: &Connection,
    offered: &Child,
    answer: &Answer<'_>,
) -> Result<ChildSaId, AnswerError> {
    let child = connection.child(&offered.name).filter(|child| child.mode.is_negotiated());
    let child = child.ok_or(AnswerError::Unloaded)?;
    let wanted = Selectors::configured(offered, &session.sa.dynamic_local(), &session.sa.dynamic_remote());
    let asked = mode::to_ask(session.sa, offered, &wanted, None);
    let agreed =
        judge(offered, answer.spi_in, answer.payloads, offer::ChildExchange::IkeAuth, &wanted, asked)?;
    if create_child::is_invited(session, child, answer.payloads) {
        session.sa.resources.set(answer.spi_in, &child.name, Part::Fallback);
    }
    let origin = ChildOrigin {
        role: Role::Initiator,
        nonces: answer.nonces,
        shared: &[],
        replaces: None,
        stays: true,
    };
    Ok(install(session, child, &origin, agreed)?)
}

/// The responder's choice among the children of the connection, and the answer's payloads. If none
/// matches, the payload is the notify with the reason, and the IKE SA goes on without a child for a
/// while (RFC 7296 §1.2).
pub(crate) fn answer(
    session: &mut Session<'_>,
    connection: &Connection,
    nonces: &Nonces,
    request: &Payloads,
) -> Vec<Payload> {
    match choose(session, connection, nonces, request) {
        Ok(payloads) => payloads,
        Err(NoChild(notify, why)) => vec![refuse(session, notify.kind, &why)],
    }
}

/// The payload in place of a child.
pub(crate) fn refuse(session: &mut Session<'_>, notify: NotifyType, why: &str) -> Payload {
    session.env.effects.stats.failed += 1;
    session.log(FAILURE, format!("no CHILD_SA: {why}; the IKE_SA stays for now"));
    Payload::Notify(Notify::new(notify, Vec::new()))
}

fn choose(
    session: &mut Session<'_>,
    connection: &Connection,
    nonces: &Nonces,
    request: &Payloads,
) -> Result<Vec<Payload>, NoChild> {
    let (Some(offered), Some(asked)) = (request.sa(), Selectors::asked(request)) else {
        return Err(NoChild::new(NotifyType::InvalidSyntax, "SA, TSi or TSr is missing"));
    };
    let Match { child, selectors, .. } =
        matching_child(connection, session.sa, &asked).ok_or_else(|| NoChild::without_child(&asked))?;
    session.env.explain(session.sa, || {
        let text = |selectors: &Selectors| {
            format!(
                "{} === {}",
                describe::selectors(&selectors.local),
                describe::selectors(&selectors.remote)
            )
        };
        let (wanted, agreed) = (text(&asked), text(&selectors));
        format!("child {} of {} is for {wanted}: narrowed to {agreed}", child.name, connection.name)
    });
    let choice = choose_suite(child, offered, offer::ChildExchange::IkeAuth)?;
    let mode = mode::to_answer(session.sa, child, &selectors, request);
    let (agreed, mut answer) = agree(session, &choice, selectors, mode)?;
    if create_child::is_invited(session, child, request) {
        session.sa.resources.set(agreed.spi_in, &child.name, Part::Fallback);
        answer.extend(create_child::invite(session, child));
    }
    let origin = ChildOrigin { role: Role::Responder, nonces, shared: &[], replaces: None, stays: true };
    make(session, child, &origin, agreed)?;
    Ok(answer)
}

/// The responder's agreement: takes an SPI, and returns the payloads of the answer.
pub(crate) fn agree(
    session: &mut Session<'_>,
    choice: &EspChoice,
    selectors: Selectors,
    mode: Mode,
) -> Result<(AgreedChild, Vec<Payload>), NoChild> {
    let home = session.sa.our_spi().shard();
    let no_spi = || NoChild::new(NotifyType::NoAdditionalSas, "no free ESP SPI is left");
    let spi_in = session.env.alloc.esp_spi(session.now, home).ok_or_else(no_spi)?;
    session.sa.resources.forget(spi_in);
    let mut answer = vec![
        Payload::Sa(choice.answer(spi_in)),
        Payload::TsInitiator(TsPayload::new(selectors.remote.clone())),
        Payload::TsResponder(TsPayload::new(selectors.local.clone())),
    ];
    answer.extend(mode::notify(mode));
    let Selectors { local: local_ts, remote: remote_ts } = selectors;
    Ok((AgreedChild { suite: choice.suite, mode, spi_in, spi_out: choice.spi, local_ts, remote_ts }, answer))
}

/// Installs the child that a responder has agreed to.
pub(crate) fn make(
    session: &mut Session<'_>,
    child: &Child,
    origin: &ChildOrigin<'_>,
    agreed: AgreedChild,
) -> Result<ChildSaId, NoChild> {
    let spi_in = agreed.spi_in;
    install(session, child, origin, agreed).map_err(|error| {
        session.env.alloc.release_esp_spi(session.now, spi_in);
        let notify = match error {
            SuiteError::AhBehindNat => NotifyType::NoProposalChosen,
            _ => NotifyType::TemporaryFailure,
        };
        NoChild::new(notify, error.to_string())
    })
}

/// Derives the keys and installs the Child SA. A renewed one is used inbound only, until
/// [`Endpoint::switch_outbound`].
pub(crate) fn install(
    session: &mut Session<'_>,
    child: &Child,
    origin: &ChildOrigin<'_>,
    agreed: AgreedChild,
) -> Result<ChildSaId, SuiteError> {
    let EspSuite { ke, additional, .. } = agreed.suite;
    let params = params(session, child, origin, agreed)?;
    session.sa.childless = None;
    let id = session.env.numbers.new_child_id();
    let reqid = child.reqid.map(NonZeroU32::get);
    let reqid = reqid.unwrap_or_else(|| session.env.numbers.reqid(&session.sa.connection, &child.name));
    // If it replaces one in another IKE SA, or one beside which the peer made it, it is a Child SA
    // of its own for all but the data plane.
    if let Some(old) = origin.replaces.and_then(|old| session.sa.child(old)).map(|old| old.params.spi_in) {
        session.sa.resources.pass_on(old, params.spi_in);
    }
    let is_alone = origin.replaces.is_none() && session.sa.resources.worker(params.spi_in).is_none();
    let beside = sibling(session, &child.name, &params).filter(|_| origin.role == Role::Responder);
    let elsewhere = session.env.predecessor(session.sa, &child.name, &params).or(beside);
    let elsewhere = elsewhere.filter(|_| is_alone);
    let named = origin.replaces.or(elsewhere);
    let replaces = named
        .and_then(|old| session.env.holder(session.sa, old))
        .and_then(|old| Some((old, create_child::spi_of(session, old)?)));
    let missed = named.is_some() && replaces.is_none();
    let fallback = create_child::fallback_of_new(session, &child.name, &params, replaces.is_some());
    // Our answer may be lost, and the peer does not have the SA before it comes.
    let beside = fallback.filter(|_| origin.role == Role::Responder);
    let place = replaces.map(|(_, old)| old).or(beside.and_then(|id| create_child::spi_of(session, id)));
    let (phase, outbound) = match place {
        // Until the peer knows of it, it may send through it.
        _ if !origin.stays => (ChildPhase::Rekeyed, Outbound::Retired),
        Some(old) => (ChildPhase::Installed, Outbound::Waiting(old)),
        None => (ChildPhase::Installed, Outbound::Active),
    };
    let old = named.map(|old| format!(", in the place of {{{}}}", old.0)).unwrap_or_default();
    let line = format!(
        "CHILD_SA {}{{{}}} established with SPIs {}_i {}_o and TS {} === {}{old}",
        child.name,
        id.0,
        params.spi_in,
        params.spi_out,
        describe::selectors(&params.local_ts),
        describe::selectors(&params.remote_ts)
    );
    session.log(IMPORTANT, line);
    if child.mode == ChildMode::Transport && params.mode == Mode::Tunnel {
        session.log(IMPORTANT, mode::why_tunnel(session.sa, &Selectors::of(&params)));
    }
    session.env.effects.outputs.push_back(Output::InstallChild {
        ike: session.sa.id,
        child: id,
        connection: session.sa.connection.clone(),
        name: child.name.clone(),
        params: Box::new(params.clone()),
        replaces: replaces.map(|(old, _)| old).or(fallback),
    });
    let limits = ChildLimits::draw(&child.lifetime, session.now, session.env.entropy());
    // Usually it stays the only one, so no room for more is taken.
    session.sa.children.reserve_exact(1);
    session.sa.children.push(ChildSa {
        id,
        name: child.name.clone(),
        reqid,
        params,
        ke,
        additional_ke: additional,
        installed: session.now,
        phase,
        outbound,
        limits,
        source: None,
        outdated: None,
    });
    match origin.replaces {
        Some(_) if !origin.stays => {}
        None => session.env.effects.event(Event::ChildUp(session.sa.id, id)),
        Some(old) => session.env.effects.event(Event::ChildRekeyed(session.sa.id, old, id)),
    }
    create_child::note_installed(session, id, origin.role, fallback.is_some());
    session.env.loaded.connections.note_child_up(session.now, &session.sa.connection, &child.name);
    if missed {
        // Initiations that have asked for it meanwhile have it now.
        let connection = session.sa.connection.clone();
        session.env.initiate_done(session.now, &connection, session.sa.id, &child.name, Ok(id));
    }
    match (elsewhere, origin.role) {
        // The peer has answered, so it is ready for both directions.
        (Some(_), Role::Initiator) => create_child::proven(session, id),
        (Some(old), Role::Responder) => session.env.leave_to_peer(old),
        (None, _) => {}
    }
    Ok(id)
}

/// The Child SA beside which the peer has made another of the same name: it sends until the peer
/// shows that it has the other.
fn sibling(session: &Session<'_>, name: &str, new: &ChildSaParams) -> Option<ChildSaId> {
    let alike = |child: &&ChildSa| {
        child.name == name
            && child.is_proven()
            && !session.sa.is_additional(child)
            && session.env.loaded.is_displaced_by(session.sa, child, new)
    };
    session.sa.children.iter().find(alike).map(|child| child.id)
}

fn params(
    session: &Session<'_>,
    child: &Child,
    origin: &ChildOrigin<'_>,
    agreed: AgreedChild,
) -> Result<ChildSaParams, SuiteError> {
    let keys = session.sa.keys.as_ref().ok_or(SuiteError::Seal)?;
    let keys = keys.ike.child(agreed.suite.algorithm, origin.shared, origin.nonces)?;
    let (key_in, key_out) = match origin.role {
        Role::Initiator => (keys.from_responder, keys.from_initiator),
        Role::Responder => (keys.from_initiator, keys.from_responder),
    };
    let (path, encapsulation) = esp_path(session);
    if agreed.suite.algorithm.is_ah() && encapsulation == Encapsulation::Udp {
        return Err(SuiteError::AhBehindNat);
    }
    Ok(ChildSaParams {
        spi_in: agreed.spi_in,
        spi_out: agreed.spi_out,
        algorithm: agreed.suite.algorithm,
        key_in,
        key_out,
        esn: agreed.suite.esn,
        replay_window: child.replay_window,
        local_ts: agreed.local_ts,
        remote_ts: agreed.remote_ts,
        local: path.local,
        remote: path.remote,
        encapsulation,
        mode: agreed.mode,
        copy: child.copy,
    })
}

/// Removes a Child SA from the data plane. Its outbound traffic moves to its successor, if there is
/// one.
pub(crate) fn remove(session: &mut Session<'_>, id: ChildSaId, reason: &Reason) {
    create_child::switch_to_successor(session, id);
    let Some(at) = session.sa.children.iter().position(|child| child.id == id) else { return };
    let child = session.sa.children.remove(at);
    let spi_in = child.params.spi_in;
    if child.outbound != Outbound::Expired {
        session.env.effects.outputs.push_back(Output::RemoveChild { child: id, spi_in });
    }
    let worker = session.sa.resources.worker(spi_in);
    session.sa.resources.forget(spi_in);
    session.env.alloc.release_esp_spi(session.now, spi_in);
    if let Outbound::Waiting(old) = child.outbound
        && session.sa.resources.worker(old) == worker
    {
        reinstate(session.sa, old);
    }
    let reason = if matches!(child.phase, ChildPhase::Deleted(_)) { &Reason::Rekeyed } else { reason };
    let is_down =
        !session.env.has_standby(session.sa, &child) && !session.env.is_up_otherwise(session.sa, &child.name);
    let is_unexpected = is_down && session.env.is_unexpected(session.sa, &child, reason);
    let level = level_of_end(reason, is_unexpected);
    session.log(level, format!("CHILD_SA {}{{{}}} closed: {reason}", child.name, id.0));
    if is_down {
        session.env.loaded.connections.note_child_down(
            session.now,
            &session.sa.connection,
            &child.name,
            reason,
        );
    }
    session.env.effects.event(Event::ChildDown(session.sa.id, id, reason.clone()));
}

/// The path and encapsulation of ESP of this IKE SA. In UDP it shares the NAT's mapping with IKE
/// (RFC 3948 §2.1).
fn esp_path(session: &Session<'_>) -> (Path, Encapsulation) {
    let encapsulation = if session.sa.nat.any() { Encapsulation::Udp } else { Encapsulation::Plain };
    (super::nat::float(session.sa.path, &session.env.config), encapsulation)
}

/// Moves the Child SAs to the peer's new address.
pub(crate) fn move_all(session: &mut Session<'_>) {
    let (path, _) = esp_path(session);
    for child in &mut session.sa.children {
        // In transport mode the packets themselves have these addresses.
        let ips = (child.params.local.ip(), child.params.remote.ip());
        if child.params.mode == Mode::Transport && ips != (path.local.ip(), path.remote.ip()) {
            continue;
        }
        child.params.local = path.local;
        child.params.remote = path.remote;
        if matches!(child.outbound, Outbound::Retired | Outbound::Expired) {
            continue;
        }
        let (spi_in, spi_out) = (child.params.spi_in, child.params.spi_out);
        session.env.effects.outputs.push_back(Output::UpdateChild { child: child.id, spi_in, spi_out, path });
    }
}

/// The successor of a Child SA is gone before it was used: the old one sends on.
fn reinstate(sa: &mut IkeSa, old: Spi) {
    let old = sa.children.iter_mut().find(|child| child.params.spi_in == old);
    let old = old.filter(|old| old.is_sending());
    if let Some(old) = old.filter(|old| old.phase == ChildPhase::Rekeyed) {
        old.phase = ChildPhase::Installed;
    }
}

/// The initiator's check that the answer is a choice from its offer, and no wider than `wanted`.
pub(crate) fn judge(
    child: &Child,
    spi_in: Spi,
    payloads: &Payloads,
    exchange: offer::ChildExchange,
    wanted: &Selectors,
    asked: Mode,
) -> Result<AgreedChild, AnswerError> {
    let (Some(chosen), Some(ts_i), Some(ts_r)) =
        (payloads.sa(), payloads.ts_initiator(), payloads.ts_responder())
    else {
        return Err(AnswerError::NoSaOrSelectors);
    };
    let offered = offer::esp(&child.proposals, spi_in, exchange);
    let (suite, spi_out) = accept::esp(&offered, &child.proposals, chosen)?;
    let selectors = Selectors { local: ts_i.selectors.clone(), remote: ts_r.selectors.clone() };
    let known = ts_i.unknown.is_empty() && ts_r.unknown.is_empty();
    if !known || !selectors.within(wanted) || selectors.narrow(wanted).is_none() {
        return Err(AnswerError::Selectors(selectors));
    }
    let mode = mode::answered(asked, payloads)?;
    let Selectors { local: local_ts, remote: remote_ts } = selectors;
    Ok(AgreedChild { suite, mode, spi_in, spi_out, local_ts, remote_ts })
}

/// The responder's choice of algorithms.
pub(crate) fn choose_suite(
    child: &Child,
    offered: &SaPayload,
    exchange: offer::ChildExchange,
) -> Result<EspChoice, NoChild> {
    select::esp(offered, &child.proposals, exchange).map_err(|_| {
        let (theirs, ours) = (describe::sa(offered), describe::esp_proposals(&child.proposals, exchange));
        let why = format!("no common ESP proposal: offered {theirs}, configured for {} {ours}", child.name);
        NoChild::new(NotifyType::NoProposalChosen, why)
    })
}

/// A child that covers the requested selectors, or a part of them.
pub(crate) struct Match<'a> {
    pub(crate) child: &'a Child,
    /// The selectors that both sides have in common.
    pub(crate) selectors: Selectors,
    /// True if they are everything that the child is configured for.
    whole: bool,
}

/// The best matching child: one that needs no narrowing is better than one that does.
pub(crate) fn matching_child<'a>(
    connection: &'a Connection,
    sa: &IkeSa,
    asked: &Selectors,
) -> Option<Match<'a>> {
    let (local, remote) = (sa.dynamic_local(), sa.dynamic_remote());
    let mut narrowed = None;
    for child in connection.children.iter().filter(|child| child.mode.is_negotiated()) {
        let ours = Selectors::configured(child, &local, &remote);
        let Some(selectors) = ours.narrow(asked) else { continue };
        if selectors == ours {
            return Some(Match { child, selectors, whole: true });
        }
        narrowed.get_or_insert(Match { child, selectors, whole: false });
    }
    narrowed
}

/// Among connections that match equally well, the one whose child best matches the peer's request;
/// if none has any, the first.
pub(crate) fn wanted_connection<'a>(
    connections: &'a [Arc<Connection>],
    sa: &IkeSa,
    request: &Payloads,
) -> Option<&'a Arc<Connection>> {
    let asked = Selectors::asked(request);
    let carries_whole = |connection: &Connection| -> Option<bool> {
        matching_child(connection, sa, asked.as_ref()?).map(|found| found.whole)
    };
    let whole = connections.iter().find(|connection| carries_whole(connection) == Some(true));
    whole
        .or_else(|| connections.iter().find(|connection| carries_whole(connection).is_some()))
        .or(connections.first())
}
