//! Message IDs, pending requests and kept responses: windows of one (RFC 7296 §2.1 to §2.3).

use super::Reassembly;
use crate::message::{ExchangeType, MessageId};
use crate::output::{ChildSaId, Time};
use aws_lc_rs::digest::{SHA256, digest as sha};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;
use testudo_base::spi::Spi;

/// Our requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outgoing {
    /// Message ID of the next request.
    pub(crate) next: MessageId,
    /// The request that waits for its response.
    pub(crate) pending: Option<Box<Pending>>,
    /// Tasks to be done after that one is answered.
    pub(crate) tasks: VecDeque<Task>,
    /// Tasks to be done again after a while.
    pub(crate) later: Vec<Delayed>,
}

/// A request that waits for its response. Its octets are repeated unchanged, never encrypted again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pending {
    pub(crate) id: MessageId,
    pub(crate) exchange: ExchangeType,
    pub(crate) kind: RequestKind,
    /// One datagram, or one for each fragment.
    pub(crate) datagrams: Vec<Vec<u8>>,
    pub(crate) transmissions: u32,
    /// Why the last transmission could not be sent, if it could not.
    pub(crate) unsent: Option<String>,
    /// When to repeat it, or to give up.
    pub(crate) next: Time,
    /// Fragments of its response.
    pub(crate) fragments: Option<Box<Reassembly>>,
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RequestKind {
    Init,
    Intermediate,
    Auth,
    Liveness,
    DeleteIke,
    /// Delete the Child SA with this SPI of ours.
    DeleteSpi(Spi),
    /// Make the SA that [`super::Creating`] describes.
    CreateChild,
    /// Report AUTHENTICATION_FAILED of the responder (RFC 7296 §2.21.2).
    AuthFailed,
    /// Synchronise the next Message IDs (RFC 6311 §5.1): outside the windows, with Message ID 0.
    SyncMessageIds {
        nonce: [u8; 4],
        /// The Message ID of our next request: M1.
        send: MessageId,
        /// The Message ID of the peer's next request: P1.
        receive: MessageId,
    },
    /// Ask the peer to skip this many numbers in all Child SAs (RFC 6311 §5.2).
    SyncReplayCounters(u64),
}

/// A task to be done as soon as no request is pending.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Task {
    DeleteIke,
    DeleteSpi(Spi),
    /// Request an additional Child SA.
    NewChild {
        /// `children.<name>`.
        name: String,
        /// Number of the attempt, from 1.
        tries: u8,
    },
    RekeyChild(ChildSaId),
    /// Replace a Child SA whose configuration has changed.
    ReplaceChild(ChildSaId),
    RekeyIke,
    SyncMessageIds,
    /// See [`RequestKind::SyncReplayCounters`].
    SyncReplayCounters(u64),
    /// Request a Child SA for one worker, beside the fallback SA with this SPI of ours (RFC 9611).
    NewResource {
        fallback: Spi,
        /// Number of the attempt, from 1.
        tries: u8,
    },
}

impl Task {
    /// The name of the child, if it requests an additional Child SA.
    pub(crate) fn new_child(&self) -> Option<&str> {
        match self {
            Self::NewChild { name, .. } => Some(name),
            _ => None,
        }
    }
}

/// A task that the peer could not take, to be done again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Delayed {
    pub(crate) at: Time,
    pub(crate) task: Task,
}

impl Outgoing {
    /// The request that a response answers; it stays pending.
    pub(crate) fn asked(&self, exchange: ExchangeType, id: MessageId) -> Option<RequestKind> {
        let pending =
            self.pending.as_ref().filter(|pending| (pending.id, pending.exchange) == (id, exchange));
        pending.map(|pending| pending.kind)
    }

    /// Takes the request that a response answers.
    pub(crate) fn answered(&mut self, exchange: ExchangeType, id: MessageId) -> Option<Box<Pending>> {
        self.pending.take_if(|pending| pending.id == id && pending.exchange == exchange)
    }

    /// Adds a task that is not waiting yet.
    pub(crate) fn queue(&mut self, task: Task) {
        self.later.retain(|delayed| delayed.task != task);
        if !self.tasks.contains(&task) {
            self.tasks.push_back(task);
        }
    }

    /// Delays the task until this time, unless it waits already.
    pub(crate) fn delay(&mut self, at: Time, task: Task) {
        if !self.is_waiting(|waiting| *waiting == task) {
            self.later.push(Delayed { at, task });
        }
    }

    /// The task is done, or has become pointless.
    pub(crate) fn forget(&mut self, task: &Task) {
        self.tasks.retain(|waiting| waiting != task);
        self.later.retain(|delayed| delayed.task != *task);
    }

    /// Queues the delayed tasks whose time has come.
    pub(crate) fn wake(&mut self, now: Time) {
        let due: Vec<Delayed> = self.later.extract_if(.., |delayed| delayed.at <= now).collect();
        due.into_iter().for_each(|delayed| self.queue(delayed.task));
    }

    /// True if such a task waits, in the queue or for its time.
    pub(crate) fn is_waiting(&self, wanted: impl Fn(&Task) -> bool) -> bool {
        self.tasks.iter().chain(self.later.iter().map(|delayed| &delayed.task)).any(wanted)
    }
}

/// The peer's requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Incoming {
    /// Message ID of the next request.
    pub(crate) expected: MessageId,
    /// The last request, with our response.
    pub(crate) last: Option<Answered>,
    /// Fragments of the next request.
    pub(crate) fragments: Option<Box<Reassembly>>,
    /// The last synchronisation after a failover of the peer. After the rest in a snapshot.
    #[serde(skip)]
    pub(crate) sync: Option<Box<Synced>>,
}

/// An answered synchronisation (RFC 6311 §5.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Synced {
    /// M1: a later one must be higher.
    pub(crate) send: MessageId,
    pub(crate) answered: Answered,
}

impl Incoming {
    /// The last answer to a request of the window, or outside it.
    pub(crate) fn answered(&mut self, digest: &[u8; 32]) -> Option<&mut Answered> {
        let synced = self.sync.as_deref_mut().map(|sync| &mut sync.answered);
        self.last.iter_mut().chain(synced).find(|answered| answered.digest == *digest)
    }

    /// True if M1 is higher than all that the peer has used, including earlier synchronisations and
    /// their Message ID 0.
    pub(crate) fn is_ahead(&self, send: MessageId) -> bool {
        let synced = self.sync.as_ref().map_or(MessageId(0), |sync| sync.send);
        send >= self.expected && send > synced
    }

    /// Earlier requests are neither awaited nor answered again.
    pub(crate) fn move_to(&mut self, expected: MessageId) {
        if expected > self.expected {
            (self.expected, self.last, self.fragments) = (expected, None, None);
        }
    }
}

/// An answered request. The same octets get the same octets back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answered {
    pub(crate) id: MessageId,
    /// Digest of the request, or of its first fragment.
    pub(crate) digest: [u8; 32],
    pub(crate) response: Response,
    /// Rate-limit deadline (GCRA) for its repetitions.
    pub(crate) repeated_until: Time,
}

impl Answered {
    /// Repetitions at once to the peer's address: more than an honest peer can need.
    const BURST: u32 = 16;
    /// Repetitions at once to another address. A peer may have moved, but seldom still waits for an
    /// answer then.
    const BURST_ELSEWHERE: u32 = 3;
    /// Interval after which there may be one more.
    const PACE: Duration = Duration::from_secs(10);

    /// Any host that has seen the request can send it from any address, and the answer may be much
    /// larger: without a limit that would be an amplifier.
    pub(crate) fn is_repeated_too_often(&self, now: Time, elsewhere: bool) -> bool {
        let burst = if elsewhere { Self::BURST_ELSEWHERE } else { Self::BURST };
        self.repeated_until.since(now) > Self::PACE.saturating_mul(burst.saturating_sub(1))
    }

    /// The answer is sent again.
    pub(crate) fn repeated(&mut self, now: Time) {
        self.repeated_until = self.repeated_until.max(now).plus(Self::PACE);
    }
}

/// The datagrams of an answer. Every IKE SA keeps its last one, which usually is not in fragments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Response {
    Whole(Box<[u8]>),
    Fragments(Box<[Box<[u8]>]>),
}

impl From<&[Vec<u8>]> for Response {
    fn from(datagrams: &[Vec<u8>]) -> Self {
        match datagrams {
            [whole] => Self::Whole(whole.as_slice().into()),
            fragments => {
                Self::Fragments(fragments.iter().map(|fragment| fragment.as_slice().into()).collect())
            }
        }
    }
}

impl Response {
    pub(crate) fn to_vec(&self) -> Vec<Vec<u8>> {
        match self {
            Self::Whole(whole) => vec![whole.to_vec()],
            Self::Fragments(fragments) => fragments.iter().map(|fragment| fragment.to_vec()).collect(),
        }
    }
}

/// SHA-256 of a message.
pub(crate) fn digest(message: &[u8]) -> [u8; 32] {
    sha(&SHA256, message).as_ref().try_into().unwrap_or_default()
}
