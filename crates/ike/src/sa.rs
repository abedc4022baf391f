//! The state of an IKE SA: plain data that serialises, including pending exchanges.
//!
//! Nothing here sends, decides or knows the configuration; `exchange` does that with these types.

mod anchor;
mod child;
mod creating;
mod deadline;
mod ends;
mod lifetime;
mod outdated;
mod phase;
mod proofs;
mod reassembly;
mod reauth;
mod resource;
mod series;
mod snapshot;
mod virtual_ips;
mod window;

pub(crate) use anchor::{Anchor, EarlierRound, EarlierRounds};
pub(crate) use child::{ChildPhase, ChildSa, Outbound};
pub(crate) use creating::{Creating, Offered, Rival, RivalSa, WantedIke, What, lowest};
pub(crate) use ends::Ends;
pub(crate) use lifetime::{ChildLimits, Times, Wear, draw_reauth, earlier};
pub(crate) use outdated::{MAX_TRIES, Outdated, OutdatedIke};
pub(crate) use phase::{
    AskedChild, Attempt, AuthRounds, AuthSent, HalfOpen, HalfOpenSource, HalfProven, InitSent,
    IntermediateSent, OfferedPpk, Opening, Phase, UnauthenticatedError,
};
pub(crate) use proofs::Proofs;
pub(crate) use reassembly::{Collected, FirstDatagram, MessageKind, Reassembly};
pub(crate) use reauth::Reauth;
pub(crate) use resource::{Part, Resources};
pub(crate) use series::{AgreedChild, AgreedIke, Followup, FollowupSa, KeyExchanges, Series};
pub use snapshot::SnapshotVersion;
pub(crate) use snapshot::{decode, encode, translated};
pub(crate) use virtual_ips::{Lease, VirtualIps};
pub(crate) use window::{Answered, Incoming, Outgoing, Pending, RequestKind, Synced, Task, digest};

use crate::cert::Hashes;
use crate::config::Identity;
use crate::endpoint::NatStatus;
use crate::message::{Header, IkeSpi, MessageId};
use crate::output::{ChildSaId, CommitId, IkeSaId, Path, Reason, Time};
use crate::suite::{IkeKeys, IkeSpis, Role, SkOpener, SkSealer};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;
use testudo_base::spi::{SenderId, Spi};

/// An IKE SA, from the first message to the last repetition of its last response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IkeSa {
    pub(crate) id: IkeSaId,
    /// The last change.
    pub(crate) commit: CommitId,
    pub(crate) role: Role,
    pub(crate) spis: IkeSpis,
    /// `connections.<name>`; for a responder that of the proposal's choice until IKE_AUTH names the
    /// peer.
    pub(crate) connection: String,
    pub(crate) path: Path,
    /// The ends in IKE_SA_INIT, if they have moved since. After the rest in a snapshot.
    #[serde(skip)]
    pub(crate) began_at: Option<Box<Ends>>,
    pub(crate) nat: NatStatus,
    pub(crate) extensions: Extensions,
    pub(crate) local_id: Option<Identity>,
    pub(crate) remote_id: Option<Identity>,
    /// The peer's trust anchor, if it has a certificate. After the rest in a snapshot.
    #[serde(skip)]
    pub(crate) anchor: Option<Box<Anchor>>,
    /// The peer's rounds before its last. After the rest in a snapshot.
    #[serde(skip)]
    pub(crate) earlier_rounds: Option<Box<EarlierRounds>>,
    /// Marks of the shared keys on which it rests. After the rest in a snapshot.
    #[serde(skip)]
    pub(crate) proofs: Option<Box<Proofs>>,
    /// Its keys depend on a PPK (RFC 8784).
    pub(crate) ppk: bool,
    pub(crate) phase: Phase,
    pub(crate) keys: Option<Keys>,
    pub(crate) outgoing: Outgoing,
    pub(crate) incoming: Incoming,
    pub(crate) children: Vec<ChildSa>,
    /// The Child SAs that are for one worker each (RFC 9611). After the rest in a snapshot.
    #[serde(skip)]
    pub(crate) resources: Resources,
    pub(crate) virtual_ips: VirtualIps,
    /// The SA that the pending CREATE_CHILD_SA request asks for.
    pub(crate) creating: Option<Box<Creating>>,
    /// The SA that the peer is making in several exchanges.
    pub(crate) followup: Option<Box<Followup>>,
    /// How many times in a row the peer has forgotten an SA that we were making in several
    /// exchanges.
    pub(crate) forgotten: u8,
    /// The IKE SA (by our SPI) that the peer has renewed by this one while we were renewing it too:
    /// it is not decided yet which one stays.
    pub(crate) rival_of: Option<IkeSpi>,
    /// When it is rekeyed, and when it ends.
    pub(crate) times: Times,
    /// When it ends if it has had no child by then. `None` once it has had one: an IKE SA stays
    /// after its last child's delete, as with charon.
    pub(crate) childless: Option<Time>,
    /// Rate-limit deadline (GCRA) for the SAs that the peer creates.
    pub(crate) creations_until: Time,
    /// When the peer must authenticate again; `None`: never, or that has begun.
    pub(crate) reauth_at: Option<Time>,
    /// Its part in a reauthentication.
    pub(crate) reauth: Option<Reauth>,
    /// Set if its configuration has changed since.
    pub(crate) outdated: Option<Box<OutdatedIke>>,
    /// Source and digest of the request that made this SA; a repetition finds the SA by it.
    pub(crate) init: Option<InitKey>,
    pub(crate) created: Time,
    pub(crate) established: Option<Time>,
    /// When the peer last proved to be alive.
    pub(crate) last_heard: Time,
    /// When we last sent something.
    pub(crate) last_sent: Time,
    /// When a forged hint may next cause a liveness check (RFC 7296 §2.21.4).
    pub(crate) next_hint: Time,
    /// Silence before a liveness check; zero: never.
    pub(crate) dpd_delay: Duration,
    /// Set once the SA is to be deleted.
    pub(crate) closing: Option<Box<Closing>>,
}

/// Extensions that both sides have announced, in IKE_SA_INIT unless noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Extensions {
    /// Fragments are accepted (RFC 7383).
    pub(crate) fragmentation: bool,
    /// Fragments may be sent.
    pub(crate) fragment: bool,
    /// Hash algorithms of the peer, for our signatures (RFC 7427).
    pub(crate) hashes: Hashes,
    /// A PPK is used, if the responder has the one that the initiator names (RFC 8784).
    pub(crate) ppk: bool,
    /// The peer requests certificates. An initiator does so later, in IKE_AUTH.
    pub(crate) asked_for_certificate: bool,
    /// The peer requests public keys without a certificate (RFC 7670). Not in a snapshot: a peer
    /// that can use the key has it without a payload.
    #[serde(skip)]
    pub(crate) asked_for_key: bool,
    /// From IKE_AUTH. After the rest in a snapshot.
    #[serde(skip)]
    pub(crate) counter_sync: CounterSync,
}

/// The counters that can be synchronised after a failover (RFC 6311 §5), as both sides have
/// announced in IKE_AUTH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CounterSync {
    /// Message IDs.
    pub(crate) message_ids: bool,
    /// Sequence numbers of Child SAs.
    pub(crate) replay_counters: bool,
}

/// The keys that protect messages, and the root of the children's keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Keys {
    pub(crate) ike: IkeKeys,
    pub(crate) sealer: SkSealer,
    pub(crate) opener: SkOpener,
}

impl Keys {
    /// The keys with which `role` seals its messages and opens the peer's. To be made once: see
    /// [`IkeKeys::sealer`].
    pub(crate) fn new(ike: IkeKeys, role: Role, sender: SenderId) -> Self {
        Self { sealer: ike.sealer(role, sender), opener: ike.opener(role.peer()), ike }
    }

    /// Changes to other keys of the same IKE SA.
    pub(crate) fn renew(&mut self, ike: IkeKeys, role: Role) {
        *self = Self { sealer: self.sealer.with_keys(&ike, role), opener: ike.opener(role.peer()), ike };
    }
}

/// Half of a SHA-256 digest of an IKE_SA_INIT request and its source. Every IKE SA keeps it; a
/// collision would gain nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct InitKey([u8; 16]);

impl InitKey {
    pub(crate) fn of(remote: SocketAddr, request: &[u8]) -> Self {
        let digest = digest(&[format!("{remote} ").as_bytes(), request].concat());
        Self(digest.first_chunk().copied().unwrap_or_default())
    }
}

/// A delete of the IKE SA that is wanted or sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Closing {
    pub(crate) reason: Reason,
    /// When the SA goes without the peer's answer.
    pub(crate) deadline: Time,
}

impl IkeSa {
    /// Message ID of the peer's last request that was answered. `None` if there was none.
    pub(crate) fn last_answered(&self) -> Option<MessageId> {
        self.incoming.expected.0.checked_sub(1).map(MessageId)
    }

    /// A new IKE SA; the caller sets its phase.
    pub(crate) fn new(
        id: IkeSaId,
        role: Role,
        spis: IkeSpis,
        connection: String,
        path: Path,
        now: Time,
    ) -> Self {
        Self {
            id,
            commit: CommitId(0),
            role,
            spis,
            connection,
            path,
            began_at: None,
            nat: NatStatus::default(),
            extensions: Extensions::default(),
            local_id: None,
            remote_id: None,
            anchor: None,
            earlier_rounds: None,
            proofs: None,
            ppk: false,
            phase: Phase::Gone { until: now, source: None },
            keys: None,
            outgoing: Outgoing::default(),
            incoming: Incoming::default(),
            children: Vec::new(),
            resources: Resources::default(),
            virtual_ips: VirtualIps::default(),
            creating: None,
            followup: None,
            forgotten: 0,
            rival_of: None,
            times: Times::default(),
            childless: None,
            creations_until: now,
            reauth_at: None,
            reauth: None,
            outdated: None,
            init: None,
            created: now,
            established: None,
            last_heard: now,
            last_sent: now,
            next_hint: now,
            dpd_delay: Duration::ZERO,
            closing: None,
        }
    }

    /// Our SPI, by which messages find this SA.
    pub(crate) fn our_spi(&self) -> IkeSpi {
        match self.role {
            Role::Initiator => self.spis.initiator,
            Role::Responder => self.spis.responder,
        }
    }

    /// The peer's SPI; zero before it is known.
    pub(crate) fn peer_spi(&self) -> IkeSpi {
        match self.role {
            Role::Initiator => self.spis.responder,
            Role::Responder => self.spis.initiator,
        }
    }

    /// Header of a message of ours.
    pub(crate) fn header(
        &self,
        exchange: crate::message::ExchangeType,
        response: bool,
        message_id: MessageId,
    ) -> Header {
        Header {
            initiator_spi: self.spis.initiator,
            responder_spi: self.spis.responder,
            exchange,
            from_initiator: self.role == Role::Initiator,
            response,
            message_id,
        }
    }

    /// True once both sides are authenticated, until it is gone.
    pub(crate) fn is_established(&self) -> bool {
        matches!(self.phase, Phase::Established)
    }

    /// True if it is in charge of its traffic: not about to end, nor waiting to be chosen.
    pub(crate) fn is_in_charge(&self) -> bool {
        self.is_established() && self.closing.is_none() && self.rival_of.is_none()
    }

    /// True if it is not about to end, and no other has replaced it.
    pub(crate) fn is_live(&self) -> bool {
        self.closing.is_none() && self.reauth != Some(Reauth::Done)
    }

    /// True if an additional key exchange from `place` on is still to come.
    pub(crate) fn has_additional_ke(&self, place: usize) -> bool {
        self.keys.as_ref().is_some_and(|keys| keys.ike.suite().next_additional(place).is_some())
    }

    /// Sets the keys of all further messages.
    pub(crate) fn renew_keys(&mut self, new: IkeKeys) {
        let role = self.role;
        if let Some(keys) = &mut self.keys {
            keys.renew(new, role);
        }
    }

    /// True if only the last response is left, to be repeated.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.phase, Phase::Gone { .. })
    }

    /// Visits every time in the state. Each type is destructured to the last field, so that no new
    /// one can be forgotten.
    pub(crate) fn for_each_time(&mut self, mut visit: impl FnMut(&mut Time)) {
        let Self {
            id: _,
            commit: _,
            role: _,
            spis: _,
            connection: _,
            path: _,
            began_at: _,
            nat: _,
            extensions: _,
            local_id: _,
            remote_id: _,
            anchor: _,
            earlier_rounds: _,
            proofs: _,
            ppk: _,
            phase,
            keys: _,
            outgoing: Outgoing { next: _, pending, tasks: _, later },
            incoming: Incoming { expected: _, last, fragments, sync },
            children,
            resources: _,
            virtual_ips: _,
            creating: _,
            followup,
            forgotten: _,
            rival_of: _,
            times,
            childless,
            creations_until,
            reauth_at,
            reauth: _,
            outdated,
            init: _,
            created,
            established,
            last_heard,
            last_sent,
            next_hint,
            dpd_delay: _,
            closing,
        } = self;
        [created, last_heard, last_sent, next_hint, creations_until].into_iter().for_each(&mut visit);
        established.iter_mut().chain(childless).chain(reauth_at).for_each(&mut visit);
        outdated.iter_mut().flat_map(|outdated| &mut outdated.turn.at).for_each(&mut visit);
        phase.time().into_iter().for_each(&mut visit);
        times.for_each(&mut visit);
        later.iter_mut().for_each(|delayed| visit(&mut delayed.at));
        let synced = sync.as_deref_mut().map(|sync| &mut sync.answered);
        last.iter_mut().chain(synced).for_each(|last| visit(&mut last.repeated_until));
        fragments.iter_mut().for_each(|fragments| visit(&mut fragments.until));
        followup.iter_mut().for_each(|followup| visit(&mut followup.until));
        for pending in pending.iter_mut() {
            visit(&mut pending.next);
            pending.fragments.iter_mut().for_each(|fragments| visit(&mut fragments.until));
        }
        for child in children {
            let ChildSa {
                id: _,
                name: _,
                reqid: _,
                params: _,
                ke: _,
                additional_ke: _,
                installed,
                phase,
                outbound: _,
                limits: ChildLimits { times, bytes: _, packets: _ },
                source: _,
                outdated,
            } = child;
            visit(installed);
            outdated.iter_mut().flat_map(|outdated| &mut outdated.at).for_each(&mut visit);
            times.for_each(&mut visit);
            if let ChildPhase::Deleted(until) = phase {
                visit(until);
            }
        }
        closing.iter_mut().for_each(|closing| visit(&mut closing.deadline));
    }

    /// Visits every field in the state that holds the number of a child.
    pub(crate) fn for_each_child_number(&mut self, mut visit: impl FnMut(&mut ChildSaId)) {
        if let Some(creating) = &mut self.creating {
            creating.for_each_child_number(&mut visit);
        }
        self.followup.iter_mut().filter_map(|followup| followup.sa.child_number()).for_each(&mut visit);
        let later = self.outgoing.later.iter_mut().map(|delayed| &mut delayed.task);
        for task in self.outgoing.tasks.iter_mut().chain(later) {
            if let Task::RekeyChild(id) | Task::ReplaceChild(id) = task {
                visit(id);
            }
        }
    }

    /// True if an additional child of this name is requested, or about to be.
    pub(crate) fn is_asking_for(&self, name: &str) -> bool {
        let wanted = |task: &Task| matches!(task, Task::NewChild { name: waiting, .. } if waiting == name);
        self.creating.as_ref().is_some_and(|creating| creating.is_new_child(name))
            || self.outgoing.is_waiting(wanted)
    }

    /// True if this Child SA is about to be replaced without further cause.
    pub(crate) fn is_renewing(&self, id: ChildSaId) -> bool {
        let wanted = |task: &Task| [Task::RekeyChild(id), Task::ReplaceChild(id)].contains(task);
        let outdated = self.child(id).and_then(|child| child.outdated.as_ref());
        self.creating.as_ref().is_some_and(|creating| creating.renews() == Some(id))
            || self.followup.as_ref().is_some_and(|followup| followup.sa.renews() == Some(id))
            || self.outgoing.is_waiting(wanted)
            || outdated.is_some_and(|outdated| outdated.at.is_some())
            || self.reauth == Some(Reauth::Begun)
    }

    pub(crate) fn child(&self, id: ChildSaId) -> Option<&ChildSa> {
        self.children.iter().find(|child| child.id == id)
    }

    /// The Child SA with this SPI of ours.
    pub(crate) fn child_by_spi(&self, spi_in: Spi) -> Option<&ChildSa> {
        self.children.iter().find(|child| child.params.spi_in == spi_in)
    }

    /// The part of a Child SA in a group with the same selectors (RFC 9611).
    pub(crate) fn part(&self, child: &ChildSa) -> Option<Part> {
        self.resources.part(child.params.spi_in)
    }

    /// True for a Child SA of one worker, beside the fallback SA (RFC 9611).
    pub(crate) fn is_additional(&self, child: &ChildSa) -> bool {
        self.resources.worker(child.params.spi_in).is_some()
    }

    pub(crate) fn child_mut(&mut self, id: ChildSaId) -> Option<&mut ChildSa> {
        self.children.iter_mut().find(|child| child.id == id)
    }
}
