//! Computations that are handed out.
//!
//! The public-key cryptography of a handshake takes longer than all the rest of it. The endpoint
//! packs it into jobs that depend on nothing but what they hold: the host runs them on whatever
//! thread it likes, in any order, and gives back what came of them. Where it does not want that,
//! the endpoint runs them itself at the end of the call that led to them. The exchanges know no
//! difference.
//!
//! A job is no part of the state of an IKE SA. While one is out the SA stands as if the message
//! that it is for had not come, and does not take the message again. If the job is lost, with the
//! node that had it or because there are too many, the message comes again: nobody has answered it.

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

/// A computation: owned, and bound to no thread. What it holds of keys is wiped with it.
pub struct Job {
    id: JobId,
    takes_long: bool,
    work: Box<dyn FnOnce() -> Then + Send>,
}

/// What came of a [`Job`].
pub struct Done {
    id: JobId,
    then: Then,
}

/// Names a [`Job`] while it runs. Never used twice by one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobId {
    number: u64,
    purpose: Purpose,
}

/// Of the jobs of IKE SAs one peer may have this part out, over all of its IKE SAs.
const PEER_PART: usize = 4;

/// How it goes on.
type Then = Box<dyn FnOnce(&mut Environment, Time) + Send>;

/// What a job is for. There is one at a time for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Purpose {
    /// A request for a new IKE SA.
    Stranger(InitKey),
    /// A message of an IKE SA.
    Sa { ike: IkeSaId, response: bool },
}

/// The jobs that have not come back.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    last: u64,
    out: BTreeMap<Purpose, Out>,
    strangers: usize,
    /// Of peers that have an identity.
    peers: BTreeMap<Peer, usize>,
    /// Of those, the ones that the host has not fetched. Strangers have to wait for peers that have
    /// come further.
    of_sas: Turns,
    of_strangers: VecDeque<Job>,
}

#[derive(Clone, Copy, Debug)]
struct Out {
    number: u64,
    owner: JobOwner,
}

/// Whom a job counts against.
#[derive(Clone, Copy, Debug)]
enum JobOwner {
    /// One that asks for a new IKE SA, as if it were half open.
    Stranger(Claimant),
    /// The peer of an IKE SA.
    Peer(Peer),
}

/// The peer of IKE SAs: an identity, or, before there is one, an address.
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

/// Jobs whose peers take turns: however many one has, another waits for one of them at a time.
#[derive(Debug, Default)]
struct Turns {
    queues: BTreeMap<Peer, VecDeque<Job>>,
    /// The peers that have jobs, each once.
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

    /// True where it may take milliseconds, false where it is some ten microseconds: a host may
    /// want to report what is done before it begins with the former.
    pub fn takes_long(&self) -> bool {
        self.takes_long
    }

    /// Computes.
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
            JobOwner::Stranger(_) => self.strangers = self.strangers.saturating_add(1),
            JobOwner::Peer(peer @ Peer::Identity(_)) => *self.peers.entry(peer).or_default() += 1,
            JobOwner::Peer(Peer::Address(_)) => {}
        }
        self.out.insert(purpose, Out { number, owner });
        JobId { number, purpose }
    }

    /// Takes a job off the list; `None` if what it was for is no more.
    fn end(&mut self, id: JobId) -> Option<Out> {
        self.is_wanted(id).then(|| self.remove(id.purpose)).flatten()
    }

    fn remove(&mut self, purpose: Purpose) -> Option<Out> {
        let out = self.out.remove(&purpose)?;
        match out.owner {
            JobOwner::Stranger(_) => self.strangers = self.strangers.saturating_sub(1),
            JobOwner::Peer(peer) => {
                let count = self.peers.remove(&peer).unwrap_or_default().saturating_sub(1);
                if count > 0 {
                    self.peers.insert(peer, count);
                }
            }
        }
        Some(out)
    }

    fn is_wanted(&self, id: JobId) -> bool {
        self.out.get(&id.purpose).is_some_and(|out| out.number == id.number)
    }

    fn is_full(&self, owner: JobOwner, limit: usize) -> bool {
        match owner {
            JobOwner::Stranger(claimant) if claimant.is_named() => self.strangers >= limit,
            JobOwner::Stranger(_) => self.strangers >= of_strangers(limit),
            JobOwner::Peer(peer) => {
                // Before there is an identity, the limits of half-open IKE SAs hold.
                let of_peer = self.peers.get(&peer).copied().unwrap_or_default();
                let all = self.out.len().saturating_sub(self.strangers);
                of_peer >= (limit / PEER_PART).max(1) || all >= limit
            }
        }
    }

    /// Those that have not come back.
    pub(crate) fn count(&self) -> usize {
        self.out.len()
    }

    pub(crate) fn take(&mut self) -> Option<Job> {
        while let Some(job) = self.of_sas.pop().or_else(|| self.of_strangers.pop_front()) {
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

    /// Hands out a computation for a message of an IKE SA. `then` goes on with the result, unless
    /// [`Environment::forget_jobs`] has come before.
    pub(crate) fn compute_for_sa<T: Send + 'static>(
        &mut self,
        now: Time,
        sa: &IkeSa,
        response: bool,
        work: impl FnOnce() -> T + Send + 'static,
        then: impl FnOnce(&mut Session<'_>, T) -> Result<(), Reason> + Send + 'static,
    ) {
        let (ike, owner) = (sa.id, JobOwner::Peer(Peer::of(sa)));
        self.hand_out(now, Purpose::Sa { ike, response }, true, owner, work, move |env, now, result| {
            env.with_sa(now, ike, |session| then(session, result));
        });
    }

    /// Hands out a computation for a request for a new IKE SA. Until it is done it counts as one
    /// that is half open.
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
                format!("ignored a message of a handshake: {out} are being computed")
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
        match owner {
            JobOwner::Stranger(_) => self.jobs.of_strangers.push_back(job),
            JobOwner::Peer(peer) => self.jobs.of_sas.push(peer, job),
        }
    }

    /// True while a computation for a request, or a response, of the IKE SA is out.
    pub(crate) fn is_computing(&self, ike: IkeSaId, response: bool) -> bool {
        self.jobs.out.contains_key(&Purpose::Sa { ike, response })
    }

    /// The same for a request for a new IKE SA.
    pub(crate) fn is_computing_for(&self, key: InitKey) -> bool {
        self.jobs.out.contains_key(&Purpose::Stranger(key))
    }

    /// What is being computed for the IKE SA is no longer wanted.
    pub(crate) fn forget_jobs(&mut self, ike: IkeSaId) {
        for response in [false, true] {
            self.jobs.remove(Purpose::Sa { ike, response });
        }
    }
}

#[cfg(test)]
mod tests;
