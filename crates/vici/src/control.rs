//! The gateway's interface for the server, in typed form.
//!
//! The server calls these methods while it processes a request; they return at once. Those that
//! take time ([`Control::initiate`], [`Control::terminate`]) only begin their work. Its end is
//! reported later, with the [`JobId`], to [`crate::server::Server::finish_initiate`] and
//! [`crate::server::Server::finish_terminate`].

use crate::alarms::AlarmPage;
use crate::children::ChildReport;
use crate::cluster::ClusterReport;
pub use crate::configuration::{ConfigChange, ConfigItem, ConfigItemKind, LoadedBy};
use crate::counters::Counters;
use crate::error::CommandError;
use crate::processors::Processors;
use crate::schema::Policy;
pub use crate::selection::Selection;
use crate::shut::{Release, Released, ShutPage};
use crate::view::ChildUsage;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};
use testudo_ike::cert::Credentials;
use testudo_ike::config::{Connection, Pool, SharedSecret};
use testudo_ike::endpoint::{Exchanges, IkeSaStatus, LeaseStatus, PoolStatus};
use testudo_ike::output::{ChildSaId, IkeSaId, Time};
use testudo_ipsec::selector::AddrRange;
use zeroize::Zeroizing;

/// Identifies a command that completes later. A server never uses a number twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// `initiate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Initiate {
    /// The child to bring up; `None` brings up the IKE SA alone.
    pub child: Option<String>,
    /// The connection to bring up, or the one whose child is meant.
    pub ike: Option<String>,
}

/// `terminate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terminate {
    /// The SAs to delete.
    pub sas: Selection,
    /// Do not wait for the peer's answer to the delete.
    pub force: bool,
}

/// The arguments of `install` and `uninstall`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetPolicy {
    /// The child whose policy it is.
    pub child: String,
    /// The connection of the child.
    pub ike: Option<String>,
    /// True to install it, false to remove it.
    pub install: bool,
}

/// `rekey`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rekey {
    /// The SAs to rekey.
    pub sas: Selection,
    /// Reauthenticate IKE SAs instead of rekeying them. Has no effect on Child SAs.
    pub reauth: bool,
}

/// The arguments of `testudo-drain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drain {
    /// The node; `None` is the node that receives the command.
    pub node: Option<u32>,
    /// True to drain the node, false to let it own shards again.
    pub drained: bool,
}

/// The arguments of `testudo-nodes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeNodes {
    /// The node's number.
    pub node: u32,
    /// The addresses of a node that is added; `None` if the node is removed.
    pub addresses: Option<Vec<IpAddr>>,
}

/// The answer to `version`.
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

/// The answer to `stats`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    /// When the daemon started.
    pub since: SystemTime,
    /// How long it has been running.
    pub uptime: Duration,
    /// Worker threads.
    pub workers: u32,
    /// Worker threads that have no packets at the moment.
    pub workers_idle: u32,
    /// Pending deadlines: retransmissions, liveness checks, ...
    pub scheduled: u32,
    /// IKE SAs.
    pub ike_sas: u32,
    /// IKE SAs that are not established yet.
    pub ike_sas_half_open: u32,
    /// Names of the parts in use: cipher library, kinds of ports.
    pub plugins: Vec<String>,
}

/// The gateway, as the server sees it.
pub trait Control {
    /// False while the gateway is shutting down: commands then wait, because one may take long.
    fn takes_commands(&self) -> bool {
        true
    }

    /// Logs that a client's command was refused or failed. The client gets the same text.
    fn command_refused(&mut self, command: &str, why: &str);

    /// The algorithms that connections may name.
    fn policy(&self) -> Policy;
    /// Adds a connection, or replaces the one of the same name.
    fn load_connection(&mut self, connection: Connection) -> Result<(), CommandError>;
    /// Logs a warning about something that was loaded nevertheless, perhaps a connection.
    fn warn(&mut self, connection: Option<&str>, message: String);
    /// Removes a connection.
    fn unload_connection(&mut self, name: &str) -> Result<(), CommandError>;
    /// Names of all connections.
    fn connection_names(&self) -> Vec<String>;
    /// A connection by name.
    fn connection(&self, name: &str) -> Option<&Connection>;

    /// Adds a secret, or replaces the one of the same name.
    fn load_secret(&mut self, secret: SharedSecret) -> Result<(), CommandError>;
    /// Removes a secret; does nothing if there is none of that name.
    fn unload_secret(&mut self, name: &str);
    /// Names of all secrets.
    fn secret_names(&self) -> Vec<String>;
    /// Removes all shared secrets. Certificates and private keys remain.
    fn clear_secrets(&mut self);

    /// Certificates and private keys.
    fn credentials(&self) -> &Credentials;
    /// Certificates and private keys, mutable.
    fn credentials_mut(&mut self) -> &mut Credentials;

    /// Adds a pool of virtual addresses, or replaces the one of the same name.
    fn load_pool(&mut self, pool: Pool) -> Result<(), CommandError>;
    /// Removes a pool.
    fn unload_pool(&mut self, name: &str) -> Result<(), CommandError>;
    /// All pools.
    fn pools(&self) -> Vec<PoolStatus>;
    /// The leases of a pool.
    fn leases(&self, pool: &str) -> Vec<LeaseStatus>;

    /// Begins to bring a child or IKE SA up. An error ends the job at once. The server may drop the
    /// job without notice, when its client disconnects or its timeout is over; the initiation
    /// continues.
    fn initiate(&mut self, job: JobId, request: &Initiate) -> Result<(), CommandError>;
    /// Begins to delete SAs. Returns how many match; with 0 the job is over.
    fn terminate(&mut self, job: JobId, request: &Terminate) -> Result<u32, CommandError>;

    /// Installs or removes the trap of a child, or its pass or drop policy. The setting lasts until
    /// the connection is loaded again.
    fn set_policy(&mut self, request: &SetPolicy) -> Result<(), CommandError>;

    /// The command that has loaded the connection of such a policy, where the policy is a part of
    /// the configuration that all nodes of a cluster have: then another of its kind takes the place
    /// of [`Control::set_policy`]. `None`: the gateway stands alone.
    fn command_behind(&self, _request: &SetPolicy) -> Result<Option<LoadedBy>, CommandError> {
        Ok(None)
    }

    /// Reads `testudo.toml` again, and applies the settings that can change at run time.
    fn reload_settings(&mut self) -> Result<(), CommandError>;

    /// Begins to rekey SAs. Returns how many match.
    fn rekey(&mut self, request: &Rekey) -> u32;

    /// Sends a command that has changed the configuration to the other nodes of a cluster, which
    /// [`crate::server::carry_out`] it. Returns true if
    /// [`crate::server::Server::finish_replication`] will be called when they have it, or
    /// [`crate::server::Server::refuse_replication`] if it comes too late; false if no other node
    /// takes it now.
    fn replicate(&mut self, job: JobId, change: ConfigChange, command: Zeroizing<Vec<u8>>) -> bool;

    /// Numbers of all IKE SAs.
    fn ike_sa_ids(&self) -> Vec<IkeSaId>;
    /// An IKE SA by number, or `None` if it is gone.
    fn ike_sa(&self, id: IkeSaId) -> Option<IkeSaStatus>;
    /// In a cluster, the node that speaks IKE for the SA.
    fn node_of(&self, id: IkeSaId) -> Option<u32>;
    /// The traffic of a Child SA.
    fn child_usage(&self, id: ChildSaId) -> ChildUsage;

    /// The configured children of a connection, and their states.
    fn children(&self, connection: &str, now: Time) -> Vec<ChildReport>;

    /// The answer to `version`.
    fn version(&self) -> Version;
    /// The answer to `stats`.
    fn stats(&self) -> Stats;
    /// Counters of the data plane.
    fn counters(&self) -> Counters;
    /// How long the host's processors have worked.
    fn processors(&self) -> Result<Processors, CommandError>;
    /// Takes it that the path to a peer takes no more than so many octets, for a minute, or until
    /// [`Self::release_path_mtus`] of the same holder.
    fn hold_path_mtu(&mut self, remote: IpAddr, mtu: u16, holder: &str) -> Result<(), CommandError>;
    /// Forgets what this holder has said of paths, if anything.
    fn release_path_mtus(&mut self, holder: &str);
    /// The cluster as this node sees it; `None` if the gateway is not in a cluster.
    fn cluster(&self) -> Option<ClusterReport>;
    /// Drains a node of the cluster, or lets it own shards again. This takes time: it is done when
    /// all nodes have received the order.
    fn drain(&mut self, request: &Drain) -> Result<(), CommandError>;
    /// Adds a node to the cluster, or removes one. Returns the number of the change. This takes
    /// time: it is done when [`Self::cluster`] shows that number.
    fn change_nodes(&mut self, request: &ChangeNodes) -> Result<u64, CommandError>;
    /// Shut prefixes: those whose clear traffic is dropped although no connection protects them. In
    /// order: the first ones, or those after `behind`.
    fn shut(&self, behind: Option<AddrRange>) -> ShutPage;
    /// Lets clear traffic of a shut prefix pass.
    fn release(&mut self, request: &Release) -> Result<Released, CommandError>;
    /// The alarms with higher numbers than this, the first of them.
    fn alarms(&self, above: u64) -> AlarmPage;
    /// Lets packets of a source in again that are dropped because of an alarm; `by` is the user, as
    /// the client says.
    fn accept_source(&mut self, source: IpAddr, by: Option<&str>) -> Result<(), CommandError>;
    /// Counters of the key exchange: messages by exchange.
    fn exchanges(&self) -> &Exchanges;
    /// Counters of the key exchange, mutable.
    fn exchanges_mut(&mut self) -> &mut Exchanges;
}
