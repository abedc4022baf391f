//! What the gateway must be able to do, in typed form.
//!
//! The server calls these methods while it processes a request; they answer at once. What takes
//! time ([`Control::initiate`], [`Control::terminate`]) is only begun here and reported later with
//! the [`JobId`] to [`crate::server::Server::finish_initiate`] and
//! [`crate::server::Server::finish_terminate`].

use crate::children::ChildReport;
use crate::cluster::ClusterReport;
pub use crate::configuration::{ConfigChange, ConfigItem, ConfigItemKind};
use crate::counters::Counters;
use crate::error::CommandError;
use crate::schema::Policy;
pub use crate::selection::Selection;
use crate::shut::{Release, Released, ShutPage};
use crate::view::ChildUsage;
use std::time::{Duration, SystemTime};
use testudo_ike::cert::Credentials;
use testudo_ike::config::{Connection, Pool, SharedSecret};
use testudo_ike::endpoint::{Exchanges, IkeSaStatus, LeaseStatus, PoolStatus};
use testudo_ike::output::{ChildSaId, IkeSaId, Time};
use testudo_ipsec::selector::AddrRange;
use zeroize::Zeroizing;

/// Names a command that completes later. Never used twice by one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// `initiate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Initiate {
    /// Child to bring up; without one the IKE SA alone.
    pub child: Option<String>,
    /// Connection to bring up, or to look for the child in.
    pub ike: Option<String>,
}

/// `terminate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terminate {
    /// Which SAs go.
    pub sas: Selection,
    /// Do not wait for the peer's answer to the delete.
    pub force: bool,
}

/// `install` and `uninstall`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetPolicy {
    /// The child whose policy it is.
    pub child: String,
    /// Connection to look for the child in.
    pub ike: Option<String>,
    /// To install it; else to take it away.
    pub install: bool,
}

/// `rekey`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rekey {
    /// Which SAs are renewed.
    pub sas: Selection,
    /// Set IKE SAs up anew, with authentication, instead of giving them new keys; without effect on
    /// Child SAs.
    pub reauth: bool,
}

/// `testudo-drain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drain {
    /// The node; the one that is asked if there is none.
    pub node: Option<u32>,
    /// To own nothing any more; else to own again.
    pub drained: bool,
}

/// Who we are, for `version`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Name of the daemon.
    pub daemon: String,
    /// Its version.
    pub version: String,
    /// Name of the operating system.
    pub sysname: String,
    /// Its release.
    pub release: String,
    /// The hardware.
    pub machine: String,
}

/// How we are, for `stats`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Since when we run.
    pub since: SystemTime,
    /// For how long.
    pub uptime: Duration,
    /// Worker threads.
    pub workers: u32,
    /// Worker threads without packets.
    pub workers_idle: u32,
    /// Deadlines that wait: retransmissions, liveness checks, ...
    pub scheduled: u32,
    /// IKE SAs.
    pub ike_sas: u32,
    /// IKE SAs not established yet.
    pub ike_sas_half_open: u32,
    /// Names of the parts in use: cipher library, kinds of ports.
    pub plugins: Vec<String>,
}

/// The gateway, as the server sees it.
pub trait Control {
    /// False while the gateway is about to end: commands wait then, since one may take long.
    fn takes_commands(&self) -> bool {
        true
    }

    /// A command of a client that loads or initiates something came to nothing: for the log. The
    /// client is told likewise.
    fn command_refused(&mut self, command: &str, why: &str);

    /// Which algorithms connections may name.
    fn policy(&self) -> Policy;
    /// Adds a connection, or replaces the one of the same name.
    fn load_connection(&mut self, connection: Connection) -> Result<(), CommandError>;
    /// Warns operators of something about a connection that was loaded all the same.
    fn warn(&mut self, connection: &str, message: String);
    /// Removes a connection.
    fn unload_connection(&mut self, name: &str) -> Result<(), CommandError>;
    /// Names of all connections.
    fn connection_names(&self) -> Vec<String>;
    /// A connection by name.
    fn connection(&self, name: &str) -> Option<&Connection>;

    /// Adds a secret, or replaces the one of the same name.
    fn load_secret(&mut self, secret: SharedSecret) -> Result<(), CommandError>;
    /// Removes a secret; one that is not there is gone already.
    fn unload_secret(&mut self, name: &str);
    /// Names of all secrets.
    fn secret_names(&self) -> Vec<String>;
    /// Removes all secrets that are no certificates or private keys.
    fn clear_secrets(&mut self);

    /// Certificates and private keys.
    fn credentials(&self) -> &Credentials;
    /// The same, to be changed.
    fn credentials_mut(&mut self) -> &mut Credentials;

    /// Adds a pool of virtual addresses, or replaces the one of the same name.
    fn load_pool(&mut self, pool: Pool) -> Result<(), CommandError>;
    /// Removes a pool.
    fn unload_pool(&mut self, name: &str) -> Result<(), CommandError>;
    /// All pools.
    fn pools(&self) -> Vec<PoolStatus>;
    /// The leases of a pool.
    fn leases(&self, pool: &str) -> Vec<LeaseStatus>;

    /// Begins to bring something up. An error ends the job at once. The job may be forgotten by the
    /// server (its client left, its time is over) without a word; the initiation goes on.
    fn initiate(&mut self, job: JobId, request: &Initiate) -> Result<(), CommandError>;
    /// Begins to take SAs down and returns how many match; with 0 the job is over.
    fn terminate(&mut self, job: JobId, request: &Terminate) -> Result<u32, CommandError>;

    /// Installs the trap of a child, or its pass or drop policy; or takes it away. It holds until
    /// the connection is loaded again.
    fn set_policy(&mut self, request: &SetPolicy) -> Result<(), CommandError>;

    /// The command that has loaded the connection of such a policy, where the policy is a part of
    /// the configuration that all nodes of a cluster have: then another of its kind takes the place
    /// of [`Control::set_policy`]. `None`: the gateway stands alone.
    fn command_behind(&self, _request: &SetPolicy) -> Result<Option<Zeroizing<Vec<u8>>>, CommandError> {
        Ok(None)
    }

    /// Reads `testudo.toml` again, and follows what a running gateway can follow.
    fn reload_settings(&mut self) -> Result<(), CommandError>;

    /// Begins to renew SAs and returns how many match.
    fn rekey(&mut self, request: &Rekey) -> u32;

    /// A command was carried out that changes the configuration: gives it to the other nodes of a
    /// cluster, which [`crate::server::carry_out`] it. True if
    /// [`crate::server::Server::finish_replication`] will say when they have it; false if no other
    /// node takes it now.
    fn replicate(&mut self, job: JobId, change: ConfigChange, command: Zeroizing<Vec<u8>>) -> bool;

    /// Numbers of all IKE SAs.
    fn ike_sa_ids(&self) -> Vec<IkeSaId>;
    /// An IKE SA by number, `None` if it is gone.
    fn ike_sa(&self, id: IkeSaId) -> Option<IkeSaStatus>;
    /// The node of a cluster that speaks for it.
    fn node_of(&self, id: IkeSaId) -> Option<u32>;
    /// What a Child SA has carried.
    fn child_usage(&self, id: ChildSaId) -> ChildUsage;

    /// The configured children of a connection, and whether each is up.
    fn children(&self, connection: &str, now: Time) -> Vec<ChildReport>;

    /// Who we are.
    fn version(&self) -> Version;
    /// How we are.
    fn stats(&self) -> Stats;
    /// Counters of the data plane.
    fn counters(&self) -> Counters;
    /// The cluster as this node sees it, `None` if the gateway stands alone.
    fn cluster(&self) -> Option<ClusterReport>;
    /// Has a node of the cluster give its shards away, or lets it own some again. It is done when
    /// all have heard of it, and takes its time.
    fn drain(&mut self, request: &Drain) -> Result<(), CommandError>;
    /// Prefixes whose clear traffic is held back although no connection asks for it, in order: the
    /// first ones, or those behind this one.
    fn shut(&self, behind: Option<AddrRange>) -> ShutPage;
    /// Lets clear traffic of one of them pass.
    fn release(&mut self, request: &Release) -> Result<Released, CommandError>;
    /// Counters of the key exchange: messages by exchange.
    fn exchanges(&self) -> &Exchanges;
    /// The same, to be reset.
    fn exchanges_mut(&mut self) -> &mut Exchanges;
}
