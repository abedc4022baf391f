//! The IKE endpoint of a node: connections, secrets and all IKE SAs.
//!
//! Sans-IO: the host hands in datagrams and the time, and takes out what is to be sent and done.
//! All calls are deterministic: the same calls with the same allocator give the same outputs.

mod actions;
pub(crate) mod begin;
mod children;
pub(crate) mod computing;
mod config;
pub(crate) mod connections;
pub(crate) mod dispatch;
mod distrust;
pub(crate) mod environment;
mod error;
pub(crate) mod exchanges;
pub(crate) mod half_open;
mod import;
mod initiate;
mod lacks;
pub(crate) mod loaded;
pub(crate) mod log_limit;
pub(crate) mod names;
pub(crate) mod numbers;
pub(crate) mod pools;
mod record;
mod reload;
pub(crate) mod remotes;
mod renewal;
pub(crate) mod replication;
pub(crate) mod report;
pub(crate) mod secrets;
pub(crate) mod starts;
pub(crate) mod stats;
mod status;
pub(crate) mod table;
mod tasks;
mod terminate;
mod timers;
mod traffic;
pub(crate) mod twins;
pub(crate) mod unique;

pub use children::{ChildState, ChildStatus};
pub use computing::{Done, Job, JobId};
pub use config::{EndpointConfig, RetransmitPolicy};
pub use error::{InitiateError, LoadError, PoolError, SnapshotError, TerminateError};
pub use exchanges::{ExchangeCounter, ExchangeCounters, Exchanges};
pub use pools::{LeaseStatus, PoolStatus, Pools};
pub use record::ChildFailure;
pub use replication::{Homes, Outline, Replication, ReplicationMut};
pub use secrets::Secrets;
pub use stats::{Discard, Stats};
pub use status::{AlgorithmName, ChildSaState, ChildSaStatus, IkeSaState, IkeSaStatus, NatStatus, SaNames};
pub use unique::{Contact, Older};

use crate::alloc::Allocator;
use crate::cert::Credentials;
use crate::config::Connection;
use crate::endpoint::environment::Environment;
use crate::output::{ChildSaId, CommitId, IkeSaId, Output, Time, UnixTime};
use crate::sa::encode;
use std::net::IpAddr;
use std::sync::Arc;
use testudo_ipsec::selector::AddrRange;
use zeroize::Zeroizing;

pub use crate::sa::SnapshotVersion;

/// All of IKE on one node.
pub struct Endpoint {
    pub(crate) env: Environment,
}

/// Which SAs to terminate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// One IKE SA with all its children.
    Ike(IkeSaId),
    /// One Child SA; its IKE SA stays.
    Child(ChildSaId),
    /// All IKE SAs of a connection.
    Connection(String),
    /// All Child SAs of that name, of one connection or of any; their IKE SAs stay.
    ChildName {
        /// `connections.<name>`.
        connection: Option<String>,
        /// `children.<name>`.
        child: String,
    },
    /// Every IKE SA.
    All,
}

/// What a termination set in motion. The events `IkeDown` and `ChildDown` tell when each is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terminating {
    /// IKE SAs that go.
    pub ikes: Vec<IkeSaId>,
    /// Child SAs that go alone; those of an IKE SA that goes are not listed.
    pub children: Vec<ChildSaId>,
}

impl Endpoint {
    /// An endpoint without connections, secrets and SAs.
    pub fn new(config: EndpointConfig, alloc: Box<dyn Allocator + Send>) -> Self {
        Self { env: Environment::new(config, alloc) }
    }

    /// The host's own addresses, preferred ones first: where a connection leaves `local_addrs`
    /// open, an initiation leaves from the first that fits.
    pub fn set_local_addresses(&mut self, addrs: Vec<IpAddr>) {
        self.env.loaded.local_addrs = addrs;
    }

    /// Addresses of others around the host, such as its neighbours, routers and name servers: no
    /// peer may give them to us as virtual ones, unless a connection's `vips_within` says so.
    pub fn set_reserved_addresses(&mut self, ranges: Vec<AddrRange>) {
        self.env.loaded.reserved = ranges;
    }

    /// Tells what time of day it is: certificates are valid by it, and before this is told none is.
    /// It may be told as often as the host likes; in between it goes on with the other clock.
    pub fn set_unix_time(&mut self, now: Time, unix: UnixTime) {
        self.env.loaded.clock = (unix, now);
    }

    /// What time of day it is, as far as it was told.
    pub fn unix_time(&self, now: Time) -> UnixTime {
        self.env.loaded.unix_time(now)
    }

    /// The loaded certificates and private keys.
    pub fn credentials(&self) -> &Credentials {
        &self.env.loaded.credentials
    }

    /// The same, to be changed.
    pub fn credentials_mut(&mut self) -> &mut Credentials {
        Arc::make_mut(&mut self.env.loaded.credentials)
    }

    /// Whether [`Endpoint::load_connection`] takes the connection. For hosts that prepare things
    /// before they load it.
    pub fn check_connection(connection: &Connection) -> Result<(), LoadError> {
        connections::check(connection)
    }

    /// What the SAs of a connection were made by: the connection, or, once it is unloaded, what it
    /// was.
    pub fn made_by(&self, name: &str) -> Option<&Connection> {
        self.connection(name).or_else(|| self.env.loaded.former.get(name).map(|former| &**former))
    }

    /// True if a Child SA was made by what its connection was before it changed.
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

    /// The loaded connection of that name.
    pub fn connection(&self, name: &str) -> Option<&Connection> {
        self.env.loaded.connections.find(name)
    }

    /// The loaded shared keys.
    pub fn secrets(&self) -> &Secrets {
        &self.env.loaded.secrets
    }

    /// The same, to be unloaded; [`Endpoint::load_secret`] takes new ones.
    pub fn secrets_mut(&mut self) -> &mut Secrets {
        &mut self.env.loaded.secrets
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

    /// The next thing for the host to do. To be called until there is none, after every call that
    /// may change something.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.env.effects.outputs.pop_front()
    }

    /// The IKE SAs, by number.
    pub fn sas(&self) -> impl Iterator<Item = IkeSaStatus> + '_ {
        self.env.table.iter().filter(|sa| !sa.is_gone()).map(IkeSaStatus::from)
    }

    /// What tells the IKE SAs apart, by number: for who looks for some among many.
    pub fn names(&self) -> impl Iterator<Item = SaNames<'_>> {
        self.env.table.iter().filter(|sa| !sa.is_gone()).map(SaNames)
    }

    /// The same of one IKE SA.
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

    /// One IKE SA.
    pub fn sa(&self, id: IkeSaId) -> Option<IkeSaStatus> {
        self.env.table.get(id).filter(|sa| !sa.is_gone()).map(IkeSaStatus::from)
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.env.effects.stats
    }

    /// IKE SAs that wait for IKE_AUTH, those that failed in it and are not forgotten yet, and those
    /// whose first answer is being computed.
    pub fn half_open(&self) -> usize {
        self.env.half_opens.total()
    }

    /// All IKE SAs whose state is to be kept, with the last change of each; also those that are not
    /// listed by [`Endpoint::sas`], because nothing is left of them but their last response.
    pub fn states(&self) -> impl Iterator<Item = (IkeSaId, CommitId)> + '_ {
        self.env.table.iter().map(|sa| (sa.id, sa.commit))
    }

    /// The whole state of an IKE SA, exchanges under way included, in a versioned form. `None`: no
    /// such IKE SA. It holds keys: whoever stores or sends it must protect it. Times are kept as
    /// they lie around `now`: of two exports for the same `now`, whenever they are made, only that
    /// differs which has changed.
    pub fn export_sa(&self, now: Time, id: IkeSaId) -> Option<Zeroizing<Vec<u8>>> {
        self.env.table.get(id).and_then(|sa| encode(sa, now, self.env.snapshot))
    }
}
