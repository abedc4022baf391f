//! The IKE endpoint of a node: connections, secrets and all IKE SAs.
//!
//! Sans-IO: the host passes in datagrams and the time, and takes out messages and tasks. All calls
//! are deterministic: the same calls with the same allocator give the same outputs.

mod children;
mod config;
pub(crate) mod dispatch;
mod error;
mod import;
mod initiate;
mod reload;
mod renewal;
pub(crate) mod replication;
mod status;
mod tasks;
mod terminate;
mod timers;
mod traffic;
pub(crate) mod unique;

pub use crate::environment::computing::{Done, Job, JobId};
pub use crate::environment::exchanges::{ExchangeCounter, ExchangeCounters, Exchanges};
pub use crate::environment::pools::{LeaseStatus, PoolStatus, Pools};
pub use crate::environment::record::ChildFailure;
pub use crate::environment::secrets::Secrets;
pub use crate::environment::stats::{Discard, Stats};
pub use children::{ChildState, ChildStatus};
pub use config::{EndpointConfig, RetransmitPolicy};
pub use error::{InitiateError, LoadError, PoolError, SnapshotError, TerminateError};
pub use initiate::PacketEnds;
pub use replication::{Homes, Outline, Replication, ReplicationMut};
pub use status::{AlgorithmName, ChildSaState, ChildSaStatus, IkeSaState, IkeSaStatus, NatStatus, SaNames};
pub use unique::{Contact, Older};

use crate::alloc::Allocator;
use crate::cert::Credentials;
use crate::config::{Connection, Pool, SharedSecret};
use crate::environment::{Environment, connections, distrust, names, pools};
use crate::output::{ChildSaId, CommitId, IkeSaId, Output, Time, UnixTime};
use crate::sa::encode;
use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;
use testudo_ipsec::selector::AddrRange;
use zeroize::Zeroizing;

pub use crate::sa::SnapshotVersion;

/// All of IKE on one node.
pub struct Endpoint {
    pub(crate) env: Environment,
}

/// The SAs to terminate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// One IKE SA with all its children.
    Ike(IkeSaId),
    /// One Child SA; its IKE SA stays.
    Child(ChildSaId),
    /// All IKE SAs of a connection.
    Connection(String),
    /// All Child SAs of this name, of one connection or of all; their IKE SAs stay.
    ChildName {
        /// `connections.<name>`.
        connection: Option<String>,
        /// `children.<name>`.
        child: String,
    },
    /// Every IKE SA.
    All,
}

/// The effect of a termination. The events `IkeDown` and `ChildDown` report when each SA is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terminating {
    /// IKE SAs that end.
    pub ikes: Vec<IkeSaId>,
    /// Child SAs that end alone; those of an IKE SA that ends are not listed.
    pub children: Vec<ChildSaId>,
}

impl Endpoint {
    /// An endpoint without connections, secrets and SAs.
    pub fn new(config: EndpointConfig, alloc: Box<dyn Allocator + Send>) -> Self {
        Self { env: Environment::new(config, alloc) }
    }

    /// Sets the host's own addresses, preferred ones first: if a connection has no `local_addrs`,
    /// it is initiated from the first that fits.
    pub fn set_local_addresses(&mut self, addrs: Vec<IpAddr>) {
        self.env.loaded.local_addrs = addrs;
    }

    /// Sets addresses of others around the host, such as its neighbours, routers and name servers:
    /// no peer may assign them to us as virtual addresses, unless a connection's `vips_within`
    /// allows it.
    pub fn set_reserved_addresses(&mut self, ranges: Vec<AddrRange>) {
        self.env.loaded.reserved = ranges;
    }

    /// Until then responses to this node may be lost, because the way of packets has changed. First
    /// transmissions of requests are repeated soon.
    pub fn expect_losses(&mut self, until: Time) {
        self.env.losses_until = self.env.losses_until.max(until);
    }

    /// Sets the time of day, by which certificates are valid; before the first call none is. The
    /// host may call it at any time; in between the time follows the other clock.
    pub fn set_unix_time(&mut self, now: Time, unix: UnixTime) {
        self.env.loaded.clock = (unix, now);
    }

    /// The time of day, as far as it was set.
    pub fn unix_time(&self, now: Time) -> UnixTime {
        self.env.loaded.unix_time(now)
    }

    /// The loaded certificates and private keys.
    pub fn credentials(&self) -> &Credentials {
        &self.env.loaded.credentials
    }

    /// The loaded certificates and private keys, to be changed.
    pub fn credentials_mut(&mut self) -> &mut Credentials {
        Arc::make_mut(&mut self.env.loaded.credentials)
    }

    /// Checks whether [`Endpoint::load_connection`] accepts the connection, for hosts that prepare
    /// something first.
    pub fn check_connection(connection: &Connection) -> Result<(), LoadError> {
        connections::check(connection)
    }

    /// The connection that made the SAs of this name: the loaded one, or the unloaded one.
    pub fn made_by(&self, name: &str) -> Option<&Connection> {
        self.connection(name).or_else(|| self.env.loaded.former.get(name).map(|former| &**former))
    }

    /// True if a Child SA was made by its connection before that changed.
    pub fn is_outdated(&self, child: ChildSaId) -> bool {
        self.env
            .table
            .by_child(child)
            .and_then(|sa| sa.child(child))
            .is_some_and(|child| child.outdated.is_some())
    }

    /// The loaded connections, by name.
    pub fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.env.loaded.connections.iter().map(|connection| &**connection)
    }

    /// The loaded connection of this name.
    pub fn connection(&self, name: &str) -> Option<&Connection> {
        self.env.loaded.connections.find(name)
    }

    /// Loads a shared key in place of one of the same name. IKE SAs that were authenticated with
    /// the former key must be authenticated again with the new one, or they end.
    pub fn load_secret(&mut self, secret: SharedSecret) {
        distrust::load_secret(&mut self.env, secret);
    }

    /// The loaded shared keys.
    pub fn secrets(&self) -> &Secrets {
        &self.env.loaded.secrets
    }

    /// The same, to be unloaded; [`Endpoint::load_secret`] takes new ones.
    pub fn secrets_mut(&mut self) -> &mut Secrets {
        &mut self.env.loaded.secrets
    }

    /// Loads a pool in place of one of the same name. Addresses of a pool in use cannot be changed.
    pub fn load_pool(&mut self, pool: Pool) -> Result<(), PoolError> {
        let name = pool.name.clone();
        self.env.pools.load(pool)?;
        // SAs may have come from another node before the pool was loaded.
        for sa in self.env.table.iter() {
            pools::claim(&mut self.env.pools, sa, Some(&name));
        }
        Ok(())
    }

    /// Unloads a pool that is not in use.
    pub fn unload_pool(&mut self, name: &str) -> Result<(), PoolError> {
        self.env.pools.unload(name)
    }

    /// The loaded pools.
    pub fn pools(&self) -> &Pools {
        &self.env.pools
    }

    /// Sets or removes the trap of a loaded child's `start_action`, until its connection is loaded
    /// again; likewise a `pass` or `drop` policy.
    pub fn set_trap(&mut self, connection: &str, child: &str, trap: bool) {
        if !trap {
            self.env.starts.untrap(connection, child);
        }
        self.env.loaded.connections.set_trap(connection, child, trap);
    }

    /// True if a packet without an SA brings the child up.
    pub fn is_trapped(&self, connection: &str, child: &str) -> bool {
        self.env.is_trapped(connection, child)
    }

    /// DNS names to resolve: [`Endpoint::resolved`] takes the addresses of each, or the error. No
    /// name is requested again before that.
    pub fn take_names(&mut self) -> Vec<String> {
        self.env.names.take_wanted()
    }

    /// Fills in the known addresses of a connection's names, for hosts that prepare something
    /// before they load it.
    pub fn fill_names(&self, connection: &mut Connection) {
        self.env.names.fill(connection);
    }

    /// A name has been resolved, or the host tells why it cannot be. Gives the connections whose
    /// addresses have changed by that.
    pub fn resolved<E: Display>(
        &mut self,
        now: Time,
        name: &str,
        result: Result<Vec<IpAddr>, E>,
    ) -> Vec<String> {
        names::resolved(&mut self.env, now, name, result)
    }

    /// What a loaded connection lacks to prove who we are and to check who the peer is, and what it
    /// will lack within 30 days: a line for each. Nothing where only the peer's message will tell
    /// which secret it takes.
    pub fn lacks(&self, now: Time, connection: &str) -> Vec<String> {
        self.env.loaded.lacks(now, connection)
    }

    /// Changes settings.
    pub fn reconfigure(&mut self, change: impl FnOnce(&mut EndpointConfig)) {
        change(&mut self.env.config);
    }

    /// The next job for the host to run. To be called until there is none, after every call that
    /// may change something, where [`EndpointConfig::hand_out_jobs`] says that the host runs
    /// them.
    pub fn take_job(&mut self) -> Option<Job> {
        self.env.config.hand_out_jobs.then(|| self.env.jobs.take()).flatten()
    }

    /// Continues with the result of a job. Jobs may come back in any order.
    pub fn job_done(&mut self, now: Time, done: Done) {
        self.env.finish_job(now, done);
        self.env.run_jobs(now);
    }

    /// A job has failed: its handshake fails, unless a repetition by the peer or us leads to
    /// another job.
    pub fn job_failed(&mut self, now: Time, id: JobId, why: &str) {
        self.env.fail_job(now, id, why);
    }

    /// Number of jobs that are out.
    pub fn jobs_out(&self) -> usize {
        self.env.jobs.count()
    }

    /// The next output for the host. Call it until it returns none, after every call that may
    /// change something.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.env.effects.outputs.pop_front()
    }

    /// The IKE SAs, by number.
    pub fn sas(&self) -> impl Iterator<Item = IkeSaStatus> + '_ {
        self.env.table.iter().filter(|sa| !sa.is_gone()).map(IkeSaStatus::from)
    }

    /// Identifying data of the IKE SAs, by number: for a search among many.
    pub fn names(&self) -> impl Iterator<Item = SaNames<'_>> {
        self.env.table.iter().filter(|sa| !sa.is_gone()).map(SaNames)
    }

    /// Identifying data of one IKE SA.
    pub fn names_of(&self, id: IkeSaId) -> Option<SaNames<'_>> {
        self.env.table.get(id).filter(|sa| !sa.is_gone()).map(SaNames)
    }

    /// The IKE SA that a Child SA belongs to.
    pub fn ike_of(&self, child: ChildSaId) -> Option<IkeSaId> {
        self.env.table.by_child(child).map(|sa| sa.id)
    }

    /// The IKE SAs of a connection, by number.
    pub fn sas_of<'a>(&'a self, connection: &'a str) -> impl Iterator<Item = IkeSaStatus> + 'a {
        self.env.table.of_connection(connection).filter(|sa| !sa.is_gone()).map(IkeSaStatus::from)
    }

    /// The Child SAs of a connection, by their names.
    pub fn children_of<'a>(&'a self, connection: &'a str) -> impl Iterator<Item = (ChildSaId, &'a str)> {
        self.env.table.of_connection(connection).flat_map(|sa| SaNames(sa).children())
    }

    /// True if an authenticated peer is at this address.
    pub fn has_peer_at(&self, address: IpAddr) -> bool {
        self.env.table.by_addr(address).any(|sa| sa.is_established())
    }

    /// True if a loaded connection names exactly this address as its peer's.
    pub fn is_named(&self, address: IpAddr) -> bool {
        self.env.loaded.connections.naming(address) > 0
    }

    /// One IKE SA.
    pub fn sa(&self, id: IkeSaId) -> Option<IkeSaStatus> {
        self.env.table.get(id).filter(|sa| !sa.is_gone()).map(IkeSaStatus::from)
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.env.effects.stats
    }

    /// Counters, for [`Stats::take_sources`].
    pub fn stats_mut(&mut self) -> &mut Stats {
        &mut self.env.effects.stats
    }

    /// The counters of exchanges, to be reset.
    pub fn exchanges_mut(&mut self) -> &mut Exchanges {
        &mut self.env.effects.stats.exchanges
    }

    /// IKE SAs that wait for IKE_AUTH, that failed in it and are not forgotten yet, or whose first
    /// answer is being computed.
    pub fn half_open(&self) -> usize {
        self.env.half_opens.total()
    }

    /// All IKE SAs whose state must be kept, with the last change of each. This includes those that
    /// [`Endpoint::sas`] does not list because only their last response is left.
    pub fn states(&self) -> impl Iterator<Item = (IkeSaId, CommitId)> + '_ {
        self.env.table.iter().map(|sa| (sa.id, sa.commit))
    }

    /// Exports the whole state of an IKE SA, including pending exchanges, in a versioned form.
    /// `None` if there is no such IKE SA. It holds keys and must be protected. Times are stored
    /// relative to `now`: two exports for the same `now` differ only in what has changed.
    pub fn export_sa(&self, now: Time, id: IkeSaId) -> Option<Zeroizing<Vec<u8>>> {
        self.env.table.get(id).and_then(|sa| encode(sa, now, self.env.snapshot))
    }
}
