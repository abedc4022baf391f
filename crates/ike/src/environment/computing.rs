//! Jobs: computations for the host to run.
//!
//! The public-key cryptography of a handshake takes longer than all the rest. The endpoint packs it
//! into jobs that depend only on what they hold. The host runs them on any thread, in any order,
//! and returns the results. If the host does not run them, the endpoint does at the end of the call
//! that led to them. The exchanges do not see the difference.
//!
//! A job is not part of an IKE SA's state. While a job is out, the SA stays as if the job's message
//! had not arrived, and does not take that message again. If the job is lost, with its node or
//! because there are too many, the message is sent again: it was not answered.

use crate::endpoint::Discard;
use crate::environment::Environment;
use crate::environment::half_open::{Claimant, of_strangers};
use crate::environment::table::hash;
use crate::exchange::session::Session;
use crate::output::{IkeSaId, Reason, Time};
use crate::sa::{IkeSa, InitKey};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::IpAddr;

/// A computation that owns its data and is bound to no thread. Its keys are wiped with it.
pub struct Job {
    id: JobId,
    takes_long: bool,
    work: Box<dyn FnOnce() -> Then + Send>,
}

/// The result of a [`Job`].
pub struct Done {
    id: JobId,
    then: Then,
}

/// Identifies a [`Job`] while it runs. An endpoint never reuses a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobId {
    number: u64,
    purpose: Purpose,
}

/// One authenticated peer may have one in this many of such peers' jobs out, over all of its IKE
/// SAs.
const PEER_PART: usize = 4;

/// The continuation.
type Then = Box<dyn FnOnce(&mut Environment, Time) + Send>;

/// The purpose of a job. There is at most one job for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Purpose {
    /// A request for a new IKE SA.
    Stranger(InitKey),
    /// A message of an IKE SA.
    Sa { ike: IkeSaId, response: bool },
}

/// The jobs that are out.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    last: u64,
    out: BTreeMap<Purpose, Out>,
    /// Jobs for requests for new IKE SAs, and those of half-open ones: apart, so that neither takes
    /// the place of the other, or of other peers.
    strangers: Handshakes,
    half_open: Handshakes,
    /// Jobs of peers with an identity.
    peers: BTreeMap<Peer, usize>,
    /// The jobs of IKE SAs that the host has not taken. Jobs of strangers wait behind them.
    of_sas: Turns,
    of_strangers: Turns,
}

/// Numbers of jobs of peers that have not authenticated.
#[derive(Debug, Default)]
struct Handshakes {
    total: usize,
    networks: BTreeMap<IpAddr, usize>,
}

impl Handshakes {
    fn begin(&mut self, claimant: Claimant) {
        self.total = self.total.saturating_add(1);
        *self.networks.entry(claimant.network()).or_default() += 1;
    }

    fn end(&mut self, claimant: Claimant) {
        self.total = self.total.saturating_sub(1);
        one_less(&mut self.networks, claimant.network());
    }

    /// A network of strangers may have as many jobs as there are free places: one network gets half
    /// of all, and several leave places for others too.
    fn is_full(&self, claimant: Claimant, limit: usize) -> bool {
        if claimant.is_named() {
            return self.total >= limit;
        }
        let free = of_strangers(limit).saturating_sub(self.total);
        let of_network = self.networks.get(&claimant.network()).copied().unwrap_or_default();
        free == 0 || of_network > free
    }
}

/// Takes one from a count, and forgets a count of nothing.
fn one_less<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) {
    let count = counts.remove(&key).unwrap_or_default().saturating_sub(1);
    if count > 0 {
        counts.insert(key, count);
    }
}

#[derive(Clone, Copy, Debug)]
struct Out {
    number: u64,
    owner: JobOwner,
}

/// The group that a job counts for.
#[derive(Clone, Copy, Debug)]
enum JobOwner {
    /// A requester of a new IKE SA, as if it were half-open.
    Stranger(Claimant),
    /// The peer of a half-open IKE SA.
    HalfOpen(Claimant),
    /// The peer of an IKE SA that is established, or that we initiate.
    Peer(Peer),
}

impl JobOwner {
    /// The peer whose jobs take turns with those of others: before it has authenticated, its
    /// network.
    fn in_turn(self) -> Peer {
        match self {
            Self::Stranger(claimant) | Self::HalfOpen(claimant) => Peer::Address(claimant.network()),
            Self::Peer(peer) => peer,
        }
    }
}

/// The peer of IKE SAs: an identity or, before there is one, an address or a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Peer {
    /// By the hash of its canonical form.
    Identity(u64),
    Address(IpAddr),
}

impl Peer {
    fn of(sa: &IkeSa) -> Self {
        match &sa.remote_id {
            Some(identity) => Self::Identity(hash(&identity.canonical())),
            None => Self::Address(sa.path.remote.ip()),
        }
    }
}

/// Jobs whose peers take turns: however many one peer has, another waits for at most one of them.
#[derive(Debug, Default)]
struct Turns {
    queues: BTreeMap<Peer, VecDeque<Job>>,
    /// The peers with jobs, each once.
    order: VecDeque<Peer>,
}

impl Turns {
    fn push(&mut self, peer: Peer, job: Job) {
        let queue = self.queues.entry(peer).or_default();
        if queue.is_empty() {
            self.order.push_back(peer);
        }
        queue.push_back(job);
    }

    fn pop(&mut self) -> Option<Job> {
        let peer = self.order.pop_front()?;
        let queue = self.queues.get_mut(&peer)?;
        let job = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&peer);
        } else {
            self.order.push_back(peer);
        }
        job
    }
}

impl Job {
    /// To tell the endpoint if nothing comes of it: see
    /// [`Endpoint::job_failed`](crate::endpoint::Endpoint::job_failed).
    pub fn id(&self) -> JobId {
        self.id
    }

    /// True if it may take milliseconds, false if it takes some ten microseconds: a host may want
    /// to return results before it begins with a long one.
    pub fn takes_long(&self) -> bool {
        self.takes_long
    }

    /// Runs the computation.
    pub fn run(self) -> Done {
        Done { id: self.id, then: (self.work)() }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("id", &self.id).finish_non_exhaustive()
    }
}

impl fmt::Debug for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Done").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Jobs {
    fn begin(&mut self, purpose: Purpose, owner: JobOwner) -> JobId {
        self.last = self.last.saturating_add(1);
        let number = self.last;
        match owner {
            JobOwner::Stranger(claimant) => self.strangers.begin(claimant),
            JobOwner::HalfOpen(claimant) => self.half_open.begin(claimant),
            JobOwner::Peer(peer @ Peer::Identity(_)) => *self.peers.entry(peer).or_default() += 1,
            JobOwner::Peer(Peer::Address(_)) => {}
        }
        self.out.insert(purpose, Out { number, owner });
        JobId { number, purpose }
    }

    /// Puts a job at the end of its peer's queue.
    fn push(&mut self, owner: JobOwner, job: Job) {
        let queue = match owner {
            JobOwner::Stranger(_) => &mut self.of_strangers,
            JobOwner::HalfOpen(_) | JobOwner::Peer(_) => &mut self.of_sas,
        };
        queue.push(owner.in_turn(), job);
    }

    /// Removes a job from the list. `None` if its purpose is gone.
    fn end(&mut self, id: JobId) -> Option<Out> {
        self.is_wanted(id).then(|| self.remove(id.purpose)).flatten()
    }

    fn remove(&mut self, purpose: Purpose) -> Option<Out> {
        let out = self.out.remove(&purpose)?;
        match out.owner {
            JobOwner::Stranger(claimant) => self.strangers.end(claimant),
            JobOwner::HalfOpen(claimant) => self.half_open.end(claimant),
            JobOwner::Peer(peer) => one_less(&mut self.peers, peer),
        }
        Some(out)
    }

    fn is_wanted(&self, id: JobId) -> bool {
        self.out.get(&id.purpose).is_some_and(|out| out.number == id.number)
    }

    fn is_full(&self, owner: JobOwner, limit: usize) -> bool {
        match owner {
            JobOwner::Stranger(claimant) => self.strangers.is_full(claimant, limit),
            JobOwner::HalfOpen(claimant) => self.half_open.is_full(claimant, limit),
            JobOwner::Peer(peer) => {
                let of_peer = self.peers.get(&peer).copied().unwrap_or_default();
                let of_handshakes = self.strangers.total.saturating_add(self.half_open.total);
                let all = self.out.len().saturating_sub(of_handshakes);
                of_peer >= (limit / PEER_PART).max(1) || all >= limit
            }
        }
    }

    /// Those that have not come back.
    pub(crate) fn count(&self) -> usize {
        self.out.len()
    }

    pub(crate) fn take(&mut self) -> Option<Job> {
        while let Some(job) = self.of_sas.pop().or_else(|| self.of_strangers.pop()) {
            if self.is_wanted(job.id) {
                return Some(job);
            }
        }
        None
    }
}

impl Environment {
    /// Runs the jobs, unless the host does.
    pub(crate) fn run_jobs(&mut self, now: Time) {
        while !self.config.hand_out_jobs
            && let Some(job) = self.jobs.take()
        {
            self.finish_job(now, job.run());
        }
    }

    pub(crate) fn finish_job(&mut self, now: Time, Done { id, then }: Done) {
        if let Some(out) = self.jobs.end(id) {
            self.no_longer_computing(out.owner);
            then(self, now);
        }
    }

    pub(crate) fn fail_job(&mut self, now: Time, id: JobId, why: &str) {
        if let Some(out) = self.jobs.end(id) {
            self.no_longer_computing(out.owner);
            self.effects
                .discard(now, Discard::Computation, || format!("a computation of a handshake failed: {why}"));
        }
    }

    fn no_longer_computing(&mut self, owner: JobOwner) {
        if let JobOwner::Stranger(claimant) = owner {
            self.half_opens.end(claimant);
        }
    }

    /// Hands out a computation for a message of an IKE SA. `then` continues with the result, unless
    /// [`Environment::forget_jobs`] was called before.
    pub(crate) fn compute_for_sa<T: Send + 'static>(
        &mut self,
        now: Time,
        sa: &IkeSa,
        response: bool,
        work: impl FnOnce() -> T + Send + 'static,
        then: impl FnOnce(&mut Session<'_>, T) -> Result<(), Reason> + Send + 'static,
    ) {
        let ike = sa.id;
        let owner = match sa.phase.half_open_source() {
            Some(source) => JobOwner::HalfOpen(self.claimant(source)),
            None => JobOwner::Peer(Peer::of(sa)),
        };
        self.hand_out(now, Purpose::Sa { ike, response }, true, owner, work, move |env, now, result| {
            env.with_sa(now, ike, |session| then(session, result));
        });
    }

    /// Hands out a computation for a request for a new IKE SA. Until it is done, it counts as a
    /// half-open IKE SA.
    pub(crate) fn compute_for_stranger<T: Send + 'static>(
        &mut self,
        takes_long: bool,
        now: Time,
        key: InitKey,
        claimant: Claimant,
        work: impl FnOnce() -> T + Send + 'static,
        then: impl FnOnce(&mut Self, Time, T) + Send + 'static,
    ) {
        self.hand_out(now, Purpose::Stranger(key), takes_long, JobOwner::Stranger(claimant), work, then);
    }

    fn hand_out<T: Send + 'static>(
        &mut self,
        now: Time,
        purpose: Purpose,
        takes_long: bool,
        owner: JobOwner,
        work: impl FnOnce() -> T + Send + 'static,
        then: impl FnOnce(&mut Self, Time, T) + Send + 'static,
    ) {
        if self.jobs.is_full(owner, self.config.job_limit) {
            let out = self.jobs.out.len();
            return self.effects.discard(now, Discard::Overload, || {
                format!("ignored a message of a handshake: {out} computations are under way")
            });
        }
        if let JobOwner::Stranger(claimant) = owner {
            if !self.make_room(now, claimant) {
                return self.effects.stats.discard(Discard::HalfOpenLimit);
            }
            self.half_opens.begin(claimant);
        }
        let id = self.jobs.begin(purpose, owner);
        let work = move || -> Then {
            let result = work();
            Box::new(move |env, now| then(env, now, result))
        };
        let job = Job { id, takes_long, work: Box::new(work) };
        self.jobs.push(owner, job);
    }

    /// True while a computation for a request, or a response, of the IKE SA is out.
    pub(crate) fn is_computing(&self, ike: IkeSaId, response: bool) -> bool {
        self.jobs.out.contains_key(&Purpose::Sa { ike, response })
    }

    /// True while a computation for this request for a new IKE SA is out.
    pub(crate) fn is_computing_for(&self, key: InitKey) -> bool {
        self.jobs.out.contains_key(&Purpose::Stranger(key))
    }

    /// Cancels the computations for the IKE SA.
    pub(crate) fn forget_jobs(&mut self, ike: IkeSaId) {
        for response in [false, true] {
            self.jobs.remove(Purpose::Sa { ike, response });
        }
    }
}

#[cfg(test)]
mod tests;
