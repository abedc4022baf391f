//! Counters that a cluster and its peer set right after a failover (RFC 6311).
//!
//! Message IDs are synchronized by an INFORMATIONAL exchange beside the windows, always with Message ID 0: each side says what it
//! will send next and what it expects. So either side here can be the cluster. Nothing that such a message says counts before all
//! of it fits, not even where it comes from: an old one may be replayed by anybody.

use crate::endpoint::dispatch::Datagram;
use crate::endpoint::exchanges::Counted;
use crate::endpoint::report::ORDINARY;
use crate::endpoint::send::{LAST_ID, Request};
use crate::endpoint::{Discard, Endpoint, EndpointConfig};
use crate::message::{
    ExchangeType, Header, MessageId, MessageIdSync, Notify, NotifyType, Payload, Payloads, ReplayCounterSync,
};
use crate::output::{ChildSaId, IkeSaId, Output, Path, Reason, Time};
use crate::sa::{ChildPhase, ChildSa, CounterSync, IkeSa, Outbound, Pending, RequestKind, Synced, Task};
use subtle::ConstantTimeEq;

/// We have one request under way at most. M1 leaves room for one that nobody knows of.
const WINDOW: u32 = 1;

/// Where a message of an IKE SA has its place, by its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the window of whoever asks.
    Window,
    /// Beside it: it synchronizes Message IDs, or it is void.
    BesideWindow,
    /// Nothing has been asked so far: what it holds tells.
    Either,
}

pub(crate) fn place(sa: &IkeSa, header: &Header) -> Place {
    let may_sync = sa.is_established()
        && sa.extensions.counter_sync.message_ids
        && header.exchange == ExchangeType::Informational
        && header.message_id == MessageId(0);
    let pending = sa.outgoing.pending.as_ref().map(|pending| pending.kind);
    match (may_sync, header.response) {
        (false, _) => Place::Window,
        (true, true) if matches!(pending, Some(RequestKind::SyncMessageIds { .. })) => Place::BesideWindow,
        (true, true) => Place::Window,
        (true, false) if sa.incoming.expected == MessageId(0) => Place::Either,
        (true, false) => Place::BesideWindow,
    }
}

/// What an initiator says in IKE_AUTH.
pub(super) fn offer(config: &EndpointConfig) -> impl Iterator<Item = Payload> {
    notifies(ours(config))
}

/// What a responder says to that: never more than the initiator (RFC 6311 §5).
pub(super) fn answer(agreed: CounterSync) -> impl Iterator<Item = Payload> {
    notifies(agreed)
}

/// What follows, on either side, from what the peer has said.
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

/// What a request of a cluster asks.
struct Asked {
    sync: MessageIdSync,
    /// How many numbers are to be left out.
    skip: Option<u64>,
}

impl Endpoint {
    /// An authentic message beside the windows.
    pub(crate) fn sync_message(
        &mut self,
        datagram: Datagram<'_>,
        sa: &mut IkeSa,
        header: Header,
        digest: [u8; 32],
        payloads: &Payloads,
    ) -> Result<(), Reason> {
        let Datagram { now, path, .. } = datagram;
        let request = Request { exchange: header.exchange, id: header.message_id, path, digest };
        let done = match header.response {
            true => answered(sa, payloads).map(|sync| self.synced(now, sa, path, sync)),
            false => asked(sa, payloads).map(|asked| self.answer_sync(now, sa, &request, asked)),
        };
        done.unwrap_or_else(|why| {
            self.discard(now, Discard::CounterSync, || format!("ignored {why} from {}", path.remote));
            Ok(())
        })
    }

    /// A cluster goes on at another node: what is under way either way is not waited for any more (RFC 6311 §5.1, §9).
    fn answer_sync(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        request: &Request,
        asked: Asked,
    ) -> Result<(), Reason> {
        let Asked { sync, skip } = asked;
        self.sync_taken(now, sa, request.path, Counted::InRequest)?;
        sa.incoming.move_to(sync.send);
        sa.outgoing.next = sa.outgoing.next.max(sync.receive);
        self.let_go_pending(now, sa);
        let (send, receive) = (sa.outgoing.next, sa.incoming.expected);
        self.log(sa, ORDINARY, format!("the peer synchronizes Message IDs: ours {send}, its {receive}"));
        if let Some(by) = skip {
            self.advance_sequences(sa, by);
        }
        let reply = MessageIdSync { nonce: sync.nonce, send, receive };
        let answered = self.answer(now, sa, request, vec![Payload::Notify(reply.notify())])?;
        sa.incoming.sync = Some(Box::new(Synced { send: sync.send, answered }));
        self.next_task(now, sa)
    }

    /// The peer has answered: both sides agree on what comes next.
    fn synced(&mut self, now: Time, sa: &mut IkeSa, path: Path, sync: MessageIdSync) -> Result<(), Reason> {
        self.sync_taken(now, sa, path, Counted::InResponse)?;
        sa.outgoing.pending = None;
        sa.outgoing.next = sa.outgoing.next.max(sync.receive);
        sa.incoming.move_to(sync.send);
        let (send, receive) = (sa.outgoing.next, sa.incoming.expected);
        self.log(sa, ORDINARY, format!("Message IDs are synchronized: ours {send}, the peer's {receive}"));
        self.next_task(now, sa)
    }

    /// What every message of the peer shows.
    fn sync_taken(&mut self, now: Time, sa: &mut IkeSa, path: Path, counted: Counted) -> Result<(), Reason> {
        self.heard(now, sa, path);
        self.count_message(sa, ExchangeType::Informational, counted);
        if sa.rival_of.is_some() {
            self.decide_for(now, sa)?;
        }
        self.peer_is_ready(sa);
        Ok(())
    }

    /// The request under way finds no answer any more. What it was for is asked again.
    fn let_go_pending(&mut self, now: Time, sa: &mut IkeSa) {
        // Where both sides are clusters each has a synchronization of its own, beside the windows.
        let in_window = |pending: &mut Box<Pending>| !is_sync(pending.kind);
        let Some(pending) = sa.outgoing.pending.take_if(in_window) else { return };
        match pending.kind {
            RequestKind::DeleteIke => sa.outgoing.queue(Task::DeleteIke),
            RequestKind::DeleteSpi(spi) => sa.outgoing.queue(Task::DeleteSpi(spi)),
            RequestKind::SyncReplayCounters(by) => sa.outgoing.queue(Task::SyncReplayCounters(by)),
            RequestKind::CreateChild => self.creation_lost(now, sa, "the peer has gone on without it"),
            RequestKind::Liveness
            | RequestKind::SyncMessageIds { .. }
            | RequestKind::Init
            | RequestKind::Intermediate
            | RequestKind::Auth
            | RequestKind::AuthFailed => {}
        }
    }

    /// See [`Endpoint::sync_message_ids`].
    pub(crate) fn want_sync(&mut self, now: Time, id: IkeSaId) -> bool {
        let able = |sa: &&IkeSa| sa.is_in_charge() && sa.extensions.counter_sync.message_ids;
        if self.table.get(id).filter(able).is_none() {
            return false;
        }
        self.with_sa(now, id, |endpoint, sa| {
            endpoint.commit(sa);
            // One that the node before has begun may have been answered to that node, and the peer takes none twice.
            sa.outgoing.pending.take_if(|pending| is_sync(pending.kind));
            if !sa.outgoing.tasks.contains(&Task::SyncMessageIds) {
                sa.outgoing.tasks.push_front(Task::SyncMessageIds);
            }
            endpoint.next_task(now, sa)
        });
        true
    }

    /// Says what comes next, by what we know. False: no numbers are left for it.
    pub(super) fn ask_sync(&mut self, now: Time, sa: &mut IkeSa) -> Result<bool, Reason> {
        let send = MessageId(sa.outgoing.next.0.saturating_add(WINDOW));
        let receive = sa.incoming.expected;
        if send >= LAST_ID {
            return Ok(false);
        }
        let mut nonce = [0; 4];
        self.entropy().fill(&mut nonce);
        self.log(sa, ORDINARY, format!("synchronizing Message IDs: ours {send}, the peer's {receive}"));
        sa.outgoing.next = send;
        let kind = RequestKind::SyncMessageIds { nonce, send, receive };
        let sync = MessageIdSync { nonce, send, receive };
        self.request_beside_window(now, sa, kind, Payload::Notify(sync.notify()))?;
        Ok(true)
    }

    /// See [`Endpoint::replay_sync_of`].
    pub(crate) fn may_sync_replay(&self, child: ChildSaId) -> Option<IkeSaId> {
        let sa = self.table.by_child(child)?;
        let proven = sa.child(child).is_some_and(ChildSa::is_proven);
        (proven && sa.is_in_charge() && replay_notify(sa, 0).is_some()).then_some(sa.id)
    }

    /// See [`Endpoint::sync_replay_counters`].
    pub(crate) fn want_replay_sync(&mut self, now: Time, id: IkeSaId, by: u64) -> bool {
        let able = |sa: &&IkeSa| sa.is_in_charge() && replay_notify(sa, by).is_some();
        if self.table.get(id).filter(able).is_none() {
            return false;
        }
        self.with_sa(now, id, |endpoint, sa| {
            endpoint.commit(sa);
            sa.outgoing.queue(Task::SyncReplayCounters(by));
            endpoint.next_task(now, sa)
        });
        true
    }

    /// Asks the peer to leave numbers out. False: it cannot be asked.
    pub(super) fn ask_replay_sync(&mut self, now: Time, sa: &mut IkeSa, by: u64) -> Result<bool, Reason> {
        let Some(notify) = replay_notify(sa, by) else { return Ok(false) };
        self.log(sa, ORDINARY, format!("asking the peer to leave {by} sequence numbers out"));
        let kind = RequestKind::SyncReplayCounters(by);
        self.request(now, sa, ExchangeType::Informational, kind, vec![Payload::Notify(notify)])?;
        Ok(true)
    }

    /// A request of the window may ask for numbers to be left out (RFC 6311 §5). It is answered in any case.
    pub(super) fn advance_if_asked(&mut self, now: Time, sa: &IkeSa, payloads: &Payloads) {
        let Some(notify) = payloads.notify(NotifyType::ReplayCounterSync) else { return };
        match skip_of(sa, notify) {
            Ok(by) => self.advance_sequences(sa, by),
            Err(why) => {
                let remote = sa.path.remote;
                self.discard(now, Discard::CounterSync, || format!("ignored {why} from {remote}"));
            }
        }
    }

    /// In every Child SA: each direction of traffic has its own numbers, and these are ours.
    fn advance_sequences(&mut self, sa: &IkeSa, by: u64) {
        self.log(sa, ORDINARY, format!("the peer wants {by} sequence numbers left out"));
        let sends = |child: &&ChildSa| {
            !matches!(child.phase, ChildPhase::Deleted(_)) && child.outbound != Outbound::Expired
        };
        let children = sa.children.iter().filter(sends).map(|child| child.id);
        self.outputs.extend(children.map(|child| Output::AdvanceSequence { child, by }));
    }
}

fn is_sync(kind: RequestKind) -> bool {
    matches!(kind, RequestKind::SyncMessageIds { .. })
}

/// The rules for a request (RFC 6311 §5.1). The error is for the log.
fn asked(sa: &IkeSa, payloads: &Payloads) -> Result<Asked, &'static str> {
    let (sync, skip) = read(payloads)?;
    if sync.send >= LAST_ID || sync.receive >= LAST_ID {
        return Err("a synchronization that would leave no Message ID");
    }
    if !sa.incoming.is_ahead(sync.send) {
        return Err("a synchronization that is not ahead of what came before");
    }
    Ok(Asked { sync, skip: skip.map(|notify| skip_of(sa, notify)).transpose()? })
}

/// The rules for a response. The error is for the log.
fn answered(sa: &IkeSa, payloads: &Payloads) -> Result<MessageIdSync, &'static str> {
    let pending = sa.outgoing.pending.as_ref().map(|pending| pending.kind);
    let Some(RequestKind::SyncMessageIds { nonce, send, receive }) = pending else {
        return Err("a synchronization that nobody has asked for");
    };
    let (sync, None) = read(payloads)? else {
        return Err("an answer to a synchronization that says more");
    };
    if !bool::from(sync.nonce.ct_eq(&nonce)) {
        return Err("an answer to another synchronization");
    }
    if sync.receive < send || sync.send < receive || sync.receive >= LAST_ID || sync.send >= LAST_ID {
        return Err("an answer to a synchronization that goes back");
    }
    Ok(sync)
}

/// What a message says that says nothing else.
fn read(payloads: &Payloads) -> Result<(MessageIdSync, Option<&Notify>), &'static str> {
    let mut sync = None;
    let mut skip = None;
    for payload in payloads {
        let Payload::Notify(notify) = payload else { return Err("a synchronization that says more") };
        let slot = match notify.kind {
            NotifyType::MessageIdSync => &mut sync,
            NotifyType::ReplayCounterSync => &mut skip,
            _ => return Err("a synchronization that says more"),
        };
        if slot.replace(notify).is_some() {
            return Err("a synchronization that says something twice");
        }
    }
    let sync =
        sync.and_then(MessageIdSync::read).ok_or("a message beside the window that synchronizes nothing")?;
    Ok((sync, skip))
}

/// How many numbers are to be left out. Of Child SAs with extended numbers and others none can be (RFC 6311 §6.4).
fn skip_of(sa: &IkeSa, notify: &Notify) -> Result<u64, &'static str> {
    if !sa.extensions.counter_sync.replay_counters {
        return Err("a synchronization of replay counters, on which we had not agreed,");
    }
    let esn = esn(sa).ok_or("a synchronization of replay counters of different sizes")?;
    let skip =
        ReplayCounterSync::read(notify, esn).ok_or("a malformed synchronization of replay counters")?;
    Ok(skip.0)
}

/// What asks for that many; `None` if the peer cannot, or it would not fit.
fn replay_notify(sa: &IkeSa, by: u64) -> Option<Notify> {
    let able = sa.extensions.counter_sync.replay_counters && !sa.children.is_empty();
    ReplayCounterSync(by).notify(esn(sa).filter(|_| able)?)
}

/// Whether the Child SAs have extended numbers; `None` if only some have.
fn esn(sa: &IkeSa) -> Option<bool> {
    let mut all = sa.children.iter().map(|child| child.params.esn);
    let first = all.next().unwrap_or_default();
    all.all(|esn| esn == first).then_some(first)
}
