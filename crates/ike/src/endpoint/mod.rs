//! The IKE endpoint of a node: connections, secrets and all IKE SAs.
//!
//! Sans-IO: the host hands in datagrams and the time, and takes out what is to be sent and done. All calls are
//! deterministic: the same calls with the same allocator give the same outputs.

mod config;
mod connections;
mod error;
mod secrets;
mod stats;
mod status;

pub use config::{EndpointConfig, RetransmitPolicy};
pub use error::{InitiateError, LoadError, SnapshotError, TerminateError};
pub use stats::{Discard, Stats};
pub use status::{AlgorithmName, ChildSaState, ChildSaStatus, IkeSaState, IkeSaStatus, NatStatus};

use crate::alloc::Allocator;
use crate::config::{Connection, SharedSecret};
use crate::output::{ChildSaId, IkeSaId, Output, Path, Time};
use connections::Connections;
use secrets::Secrets;
use std::collections::VecDeque;
use std::net::IpAddr;

/// All of IKE on one node.
pub struct Endpoint {
    config: EndpointConfig,
    alloc: Box<dyn Allocator + Send>,
    local_addrs: Vec<IpAddr>,
    connections: Connections,
    secrets: Secrets,
    outputs: VecDeque<Output>,
    stats: Stats,
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
        Self {
            config,
            alloc,
            local_addrs: Vec::new(),
            connections: Connections::default(),
            secrets: Secrets::default(),
            outputs: VecDeque::new(),
            stats: Stats::default(),
        }
    }

    /// The host's own addresses, preferred ones first: where a connection leaves `local_addrs` open, an initiation
    /// leaves from the first that fits.
    pub fn set_local_addresses(&mut self, addrs: Vec<IpAddr>) {
        self.local_addrs = addrs;
    }

    /// Takes a connection in the place of one of the same name, and initiates its children with `start_action =
    /// start`. SAs that are up stay as they are.
    pub fn load_connection(&mut self, now: Time, connection: Connection) -> Result<(), LoadError> {
        let _ = now;
        self.connections.load(connection)?;
        Ok(())
    }

    /// Forgets a connection; its SAs stay up. False if there is none of that name.
    pub fn unload_connection(&mut self, name: &str) -> bool {
        self.connections.unload(name)
    }

    /// The loaded connections, by name.
    pub fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.connections.iter()
    }

    /// Takes a shared key in the place of one of the same name.
    pub fn load_secret(&mut self, secret: SharedSecret) {
        self.secrets.load(secret);
    }

    /// False if there is none of that name.
    pub fn unload_secret(&mut self, name: &str) -> bool {
        self.secrets.unload(name)
    }

    /// Forgets all shared keys.
    pub fn clear_secrets(&mut self) {
        self.secrets.clear();
    }

    /// Names of the loaded shared keys.
    pub fn secret_names(&self) -> impl Iterator<Item = &str> {
        self.secrets.names()
    }

    /// Brings a child up; `InitiateDone` tells the result. Without a connection's name the first connection that has
    /// such a child is meant. A child that is up, or on its way up, is not doubled: its IKE SA is returned, and
    /// `InitiateDone` follows all the same. A second child of a connection gets an IKE SA of its own.
    pub fn initiate(
        &mut self,
        now: Time,
        connection: Option<&str>,
        child: &str,
    ) -> Result<IkeSaId, InitiateError> {
        let _ = now;
        self.connections.child(connection, child)?;
        Err(InitiateError::NoSpi)
    }

    /// A packet wants a child that has no SA: like [`Endpoint::initiate`], but without an `InitiateDone` for what is
    /// already up.
    pub fn acquire(&mut self, now: Time, connection: &str, child: &str) -> Result<IkeSaId, InitiateError> {
        self.initiate(now, Some(connection), child)
    }

    /// Takes SAs down. With `force` the peer is told once and not waited for.
    pub fn terminate(
        &mut self,
        now: Time,
        target: &Target,
        force: bool,
    ) -> Result<Terminating, TerminateError> {
        let _ = (now, target, force);
        Err(TerminateError::NotFound)
    }

    /// An IKE message arrived (without the non-ESP marker).
    pub fn handle_datagram(&mut self, now: Time, path: Path, bytes: &[u8]) {
        let _ = (now, path, bytes);
        self.stats.received += 1;
    }

    /// A packet that authenticated arrived on the Child SA: the peer lives, and needs no liveness check for a while.
    pub fn traffic_seen(&mut self, now: Time, child: ChildSaId) {
        let _ = (now, child);
    }

    /// Does what is due. Call it when [`Endpoint::next_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Time) {
        let _ = now;
    }

    /// When something is due next.
    pub fn next_timeout(&self) -> Option<Time> {
        None
    }

    /// The next thing for the host to do; call until there is none after every other call.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The IKE SAs, by number.
    pub fn sas(&self) -> impl Iterator<Item = IkeSaStatus> + '_ {
        std::iter::empty()
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The whole state of an IKE SA, pending exchanges included, in a versioned form. `None`: no such IKE SA. It
    /// holds keys: whoever stores or sends it must protect it.
    pub fn export_sa(&self, id: IkeSaId) -> Option<Vec<u8>> {
        let _ = id;
        None
    }

    /// Takes over an IKE SA from [`Endpoint::export_sa`] of this or another endpoint, in the place of one of the
    /// same number.
    pub fn import_sa(&mut self, now: Time, bytes: &[u8]) -> Result<IkeSaId, SnapshotError> {
        let _ = now;
        Err(SnapshotError::Damaged(bytes.len()))
    }
}
