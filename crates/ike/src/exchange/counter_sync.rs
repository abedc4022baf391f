//! Synchronising counters between a cluster and its peer after a failover (RFC 6311).
//!
//! Message IDs are synchronised by an INFORMATIONAL exchange outside the windows, always with
//! Message ID 0: each side gives its next send and receive numbers. So either side here can be the
//! cluster. No part of such a message counts before all of it is valid, not even its source:
//! anybody may replay an old one.

use crate::endpoint::{Discard, EndpointConfig};
use crate::environment::exchanges::Counted;
use crate::environment::report::ORDINARY;
use crate::exchange::create_child;
use crate::exchange::reauth;
use crate::exchange::receive::Datagram;
use crate::exchange::send::{LAST_ID, Request};
use crate::exchange::session::Session;
use crate::message::{
    ExchangeType, Header, MessageId, MessageIdSync, Notify, NotifyType, Payload, Payloads, ReplayCounterSync,
};
use crate::output::{Output, Path, Reason};
use crate::sa::{ChildPhase, ChildSa, CounterSync, IkeSa, Outbound, Pending, RequestKind, Synced, Task};
use subtle::ConstantTimeEq;

/// We have at most one pending request. M1 leaves room for one that is unknown.
const WINDOW: u32 = 1;

/// The window to which a message belongs, by its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowPlace {
    /// The window of the requester.
    Window,
    /// Outside the windows: it synchronises Message IDs, or is void.
    BesideWindow,
    /// No request has been sent so far: its contents decide.
    Either,
}

pub(crate) fn place(sa: &IkeSa, header: &Header) -> WindowPlace {
    let may_sync = sa.is_established()
        && sa.extensions.counter_sync.message_ids
        && header.exchange == ExchangeType::Informational
        && header.message_id == MessageId(0);
    let pending = sa.outgoing.pending.as_ref().map(|pending| pending.kind);
    match (may_sync, header.response) {
        (false, _) => WindowPlace::Window,
        (true, true) if matches!(pending, Some(RequestKind::SyncMessageIds { .. })) => {
            WindowPlace::BesideWindow
        }
        (true, true) => WindowPlace::Window,
        (true, false) if sa.incoming.expected == MessageId(0) => WindowPlace::Either,
        (true, false) => WindowPlace::BesideWindow,
    }
}

/// The initiator's notifies in IKE_AUTH.
pub(super) fn offer(config: &EndpointConfig) -> impl Iterator<Item = Payload> {
    notifies(ours(config))
}

/// The responder's notifies: never more than the initiator's (RFC 6311 §5).
pub(super) fn answer(agreed: CounterSync) -> impl Iterator<Item = Payload> {
    notifies(agreed)
}

/// The agreed extensions, by what the peer has sent.
pub(super) fn agreed(config: &EndpointConfig, peer: &Payloads) -> CounterSync {
    let ours = ours(config);
    CounterSync {
        message_ids: ours.message_ids && peer.notify(NotifyType::MessageIdSyncSupported).is_some(),
        replay_counters: ours.replay_counters
            && peer.notify(NotifyType::ReplayCounterSyncSupported).is_some(),
    }
}

fn ours(config: &EndpointConfig) -> CounterSync {
    CounterSync { message_ids: config.counter_sync, replay_counters: config.counter_sync }
}

fn notifies(said: CounterSync) -> impl Iterator<Item = Payload> {
    let kinds = [
        said.message_ids.then_some(NotifyType::MessageIdSyncSupported),
        said.replay_counters.then_some(NotifyType::ReplayCounterSyncSupported),
    ];
    kinds.into_iter().flatten().map(|kind| Payload::Notify(Notify::new(kind, Vec::new())))
}

/// The contents of a cluster's request.
struct SyncRequest {
    sync: MessageIdSync,
    /// How many numbers must be skipped.
    skip: Option<u64>,
}

/// Processes an authentic message outside the windows.
pub(crate) fn sync_message(
    session: &mut Session<'_>,
    datagram: Datagram<'_>,
    header: Header,
    digest: [u8; 32],
    payloads: &Payloads,
) -> Result<(), Reason> {
    let Datagram { path, .. } = datagram;
    let request = Request { exchange: header.exchange, id: header.message_id, path, digest };
    let done = match header.response {
        true => answered(session.sa, payloads).map(|sync| synced(session, path, sync)),
        false => asked(session.sa, payloads).map(|asked| answer_sync(session, &request, asked)),
    };
    done.unwrap_or_else(|why| {
        session
            .env
            .effects
            .discard(session.now, Discard::CounterSync, || format!("ignored {why} from {}", path.remote));
        Ok(())
    })
}

/// A cluster continues on another node: pending exchanges in either direction are given up (RFC
/// 6311 §5.1, §9).
fn answer_sync(session: &mut Session<'_>, request: &Request, asked: SyncRequest) -> Result<(), Reason> {
    let SyncRequest { sync, skip } = asked;
    sync_taken(session, request.path, Counted::InRequest)?;
    session.sa.incoming.move_to(sync.send);
    session.sa.outgoing.next = session.sa.outgoing.next.max(sync.receive);
    let_go_pending(session);
    let (send, receive) = (session.sa.outgoing.next, session.sa.incoming.expected);
    session.log(ORDINARY, format!("the peer synchronizes Message IDs: ours {send}, its {receive}"));
    if let Some(by) = skip {
        advance_sequences(session, by);
    }
    let reply = MessageIdSync { nonce: sync.nonce, send, receive };
    let answered = session.answer(request, vec![Payload::Notify(reply.notify())])?;
    session.sa.incoming.sync = Some(Box::new(Synced { send: sync.send, answered }));
    session.next_task()
}

/// The peer has answered: both sides agree on the next numbers.
fn synced(session: &mut Session<'_>, path: Path, sync: MessageIdSync) -> Result<(), Reason> {
    sync_taken(session, path, Counted::InResponse)?;
    session.sa.outgoing.pending = None;
    session.sa.outgoing.next = session.sa.outgoing.next.max(sync.receive);
    session.sa.incoming.move_to(sync.send);
    let (send, receive) = (session.sa.outgoing.next, session.sa.incoming.expected);
    session.log(ORDINARY, format!("Message IDs are synchronized: ours {send}, the peer's {receive}"));
    session.next_task()
}

/// The effects that every message of the peer has.
fn sync_taken(session: &mut Session<'_>, path: Path, counted: Counted) -> Result<(), Reason> {
    session.heard(path);
    session.env.effects.count_message(session.sa, ExchangeType::Informational, counted);
    if session.sa.rival_of.is_some() {
        create_child::decide_for(session)?;
    }
    reauth::peer_is_ready(session);
    Ok(())
}

/// The pending request will not be answered. Its purpose is requested again.
fn let_go_pending(session: &mut Session<'_>) {
    // If both sides are clusters, each has a synchronisation of its own, outside the windows.
    let in_window = |pending: &mut Box<Pending>| !is_sync(pending.kind);
    let Some(pending) = session.sa.outgoing.pending.take_if(in_window) else { return };
    match pending.kind {
        RequestKind::DeleteIke => session.sa.outgoing.queue(Task::DeleteIke),
        RequestKind::DeleteSpi(spi) => session.sa.outgoing.queue(Task::DeleteSpi(spi)),
        RequestKind::SyncReplayCounters(by) => session.sa.outgoing.queue(Task::SyncReplayCounters(by)),
        RequestKind::CreateChild => create_child::creation_lost(session, "the peer has gone on without it"),
        RequestKind::Liveness
        | RequestKind::SyncMessageIds { .. }
        | RequestKind::Init
        | RequestKind::Intermediate
        | RequestKind::Auth
        | RequestKind::AuthFailed => {}
    }
}

/// Sends our next numbers. Returns false if no numbers are left for it.
pub(crate) fn ask_sync(session: &mut Session<'_>) -> Result<bool, Reason> {
    let send = MessageId(session.sa.outgoing.next.0.saturating_add(WINDOW));
    let receive = session.sa.incoming.expected;
    if send >= LAST_ID {
        return Ok(false);
    }
    let mut nonce = [0; 4];
    session.env.entropy().fill(&mut nonce);
    session.log(ORDINARY, format!("synchronizing Message IDs: ours {send}, the peer's {receive}"));
    session.sa.outgoing.next = send;
    let kind = RequestKind::SyncMessageIds { nonce, send, receive };
    let sync = MessageIdSync { nonce, send, receive };
    session.request_beside_window(kind, Payload::Notify(sync.notify()))?;
    Ok(true)
}

/// Asks the peer to skip numbers. Returns false if it cannot be asked.
pub(crate) fn ask_replay_sync(session: &mut Session<'_>, by: u64) -> Result<bool, Reason> {
    let Some(notify) = replay_notify(session.sa, by) else { return Ok(false) };
    session.log(ORDINARY, format!("asking the peer to skip {by} sequence numbers"));
    let kind = RequestKind::SyncReplayCounters(by);
    session.request(ExchangeType::Informational, kind, vec![Payload::Notify(notify)])?;
    Ok(true)
}

/// A request in the window may ask for numbers to be skipped (RFC 6311 §5). It is answered in any
/// case.
pub(crate) fn advance_if_asked(session: &mut Session<'_>, payloads: &Payloads) {
    let Some(notify) = payloads.notify(NotifyType::ReplayCounterSync) else { return };
    match skip_of(session.sa, notify) {
        Ok(by) => advance_sequences(session, by),
        Err(why) => {
            let remote = session.sa.path.remote;
            session
                .env
                .effects
                .discard(session.now, Discard::CounterSync, || format!("ignored {why} from {remote}"));
        }
    }
}

/// Skips numbers in every Child SA: each direction of traffic has its own numbers, and these are
/// ours.
fn advance_sequences(session: &mut Session<'_>, by: u64) {
    session.log(ORDINARY, format!("the peer asks to skip {by} sequence numbers"));
    let sends = |child: &&ChildSa| {
        !matches!(child.phase, ChildPhase::Deleted(_)) && child.outbound != Outbound::Expired
    };
    let children = session.sa.children.iter().filter(sends).map(|child| child.id);
    session.env.effects.outputs.extend(children.map(|child| Output::AdvanceSequence { child, by }));
}

pub(crate) fn is_sync(kind: RequestKind) -> bool {
    matches!(kind, RequestKind::SyncMessageIds { .. })
}

/// The rules for a request (RFC 6311 §5.1). The error is for the log.
fn asked(sa: &IkeSa, payloads: &Payloads) -> Result<SyncRequest, &'static str> {
    let (sync, skip) = read(payloads)?;
    if sync.send >= LAST_ID || sync.receive >= LAST_ID {
        return Err("a synchronization that would leave no Message ID");
    }
    if !sa.incoming.is_ahead(sync.send) {
        return Err("a synchronization that is not ahead of what came before");
    }
    Ok(SyncRequest { sync, skip: skip.map(|notify| skip_of(sa, notify)).transpose()? })
}

/// The rules for a response. The error is for the log.
fn answered(sa: &IkeSa, payloads: &Payloads) -> Result<MessageIdSync, &'static str> {
    let pending = sa.outgoing.pending.as_ref().map(|pending| pending.kind);
    let Some(RequestKind::SyncMessageIds { nonce, send, receive }) = pending else {
        return Err("a synchronization that nobody has asked for");
    };
    let (sync, None) = read(payloads)? else {
        return Err("an answer to a synchronization with other payloads");
    };
    if !bool::from(sync.nonce.ct_eq(&nonce)) {
        return Err("an answer to another synchronization");
    }
    if sync.receive < send || sync.send < receive || sync.receive >= LAST_ID || sync.send >= LAST_ID {
        return Err("an answer to a synchronization that goes back");
    }
    Ok(sync)
}

/// Reads a message that contains nothing else.
fn read(payloads: &Payloads) -> Result<(MessageIdSync, Option<&Notify>), &'static str> {
    let mut sync = None;
    let mut skip = None;
    for payload in payloads {
        let Payload::Notify(notify) = payload else { return Err("a synchronization with other payloads") };
        let slot = match notify.kind {
            NotifyType::MessageIdSync => &mut sync,
            NotifyType::ReplayCounterSync => &mut skip,
            _ => return Err("a synchronization with other payloads"),
        };
        if slot.replace(notify).is_some() {
            return Err("a synchronization with a duplicate notify");
        }
    }
    let sync =
        sync.and_then(MessageIdSync::read).ok_or("a message beside the window that synchronizes nothing")?;
    Ok((sync, skip))
}

/// How many numbers must be skipped. Child SAs with and without extended numbers cannot be mixed
/// (RFC 6311 §6.4).
fn skip_of(sa: &IkeSa, notify: &Notify) -> Result<u64, &'static str> {
    if !sa.extensions.counter_sync.replay_counters {
        return Err("a synchronization of replay counters that was not negotiated");
    }
    let esn = esn(sa).ok_or("a synchronization of replay counters of different sizes")?;
    let skip =
        ReplayCounterSync::read(notify, esn).ok_or("a malformed synchronization of replay counters")?;
    Ok(skip.0)
}

/// The notify that asks for this many; `None` if the peer does not support it, or the number is too
/// large.
pub(crate) fn replay_notify(sa: &IkeSa, by: u64) -> Option<Notify> {
    let able = sa.extensions.counter_sync.replay_counters && !sa.children.is_empty();
    ReplayCounterSync(by).notify(esn(sa).filter(|_| able)?)
}

/// Whether the Child SAs have extended numbers; `None` if only some have.
fn esn(sa: &IkeSa) -> Option<bool> {
    let mut all = sa.children.iter().map(|child| child.params.esn);
    let first = all.next().unwrap_or_default();
    all.all(|esn| esn == first).then_some(first)
}
