//! The IKE endpoint of a node: connections, secrets and all IKE SAs.
//!
//! Sans-IO: the host hands in datagrams and the time, and takes out what is to be sent and done. All calls are
//! deterministic: the same calls with the same allocator give the same outputs.

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
pub use pools::{LeaseStatus, PoolStatus};
pub use record::ChildFailure;
pub use replication::{Homes, Outline};
pub use stats::{Discard, Stats};
pub use status::{AlgorithmName, ChildSaState, ChildSaStatus, IkeSaState, IkeSaStatus, NatStatus, SaNames};
pub use unique::{Contact, Older};

use crate::alloc::Allocator;
use crate::cert::Credentials;
use crate::config::{Connection, SharedSecret};
use crate::endpoint::environment::Environment;
use crate::exchange::receive::Datagram;
use crate::output::{ChildSaId, CommitId, IkeSaId, Output, Path, Time, UnixTime};
use crate::sa::{encode, translated};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use testudo_ipsec::selector::AddrRange;
use zeroize::Zeroizing;

pub use crate::sa::SnapshotVersion;

/// All of IKE on one node.
pub struct Endpoint {
    pub(crate) env: Environment,
    /// The version of what is exported.
    snapshot: SnapshotVersion,
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
        Self { env: Environment::new(config, alloc), snapshot: SnapshotVersion::NEWEST }
    }

    /// The host's own addresses, preferred ones first: where a connection leaves `local_addrs` open, an initiation
    /// leaves from the first that fits.
    pub fn set_local_addresses(&mut self, addrs: Vec<IpAddr>) {
        self.env.loaded.local_addrs = addrs;
    }

    /// Addresses of others around the host, such as its neighbours, routers and name servers: no
    /// peer may give them to us as virtual ones, unless a connection's `vips_within` says so.
    pub fn set_reserved_addresses(&mut self, ranges: Vec<AddrRange>) {
        self.env.loaded.reserved = ranges;
    }

    /// Tells what time of day it is: certificates are valid by it, and before this is told none is. It may be told as often
    /// as the host likes; in between it goes on with the other clock.
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

    /// Whether [`Endpoint::load_connection`] takes the connection. For hosts that prepare things before they load it.
    pub fn check_connection(connection: &Connection) -> Result<(), LoadError> {
        connections::check(connection)
    }

    /// Takes a connection in the place of one of the same name, and initiates its children with `start_action =
    /// start`, again after failures. If nothing has changed, nothing happens. SAs of what has changed are replaced
    /// ([`Difference`](crate::config::Difference) tells which), each as soon as the new one is there.
    pub fn load_connection(&mut self, now: Time, connection: Connection) -> Result<(), LoadError> {
        self.load(now, connection)
    }

    /// Forgets a connection; its SAs stay up, and end with their time. False if there is none of that name.
    pub fn unload_connection(&mut self, name: &str) -> bool {
        self.unload(name)
    }

    /// The Child SAs of a connection that were made by what it was before it changed: others are to take their place.
    pub fn outdated_children(&self, connection: &str) -> Vec<ChildSaId> {
        self.outdated(connection)
    }

    /// What the SAs of a connection were made by: the connection, or, once it is unloaded, what it was.
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

    /// Takes a shared key in the place of one of the same name. IKE SAs by another key of that name
    /// have to prove themselves by the new one before they end.
    pub fn load_secret(&mut self, secret: SharedSecret) {
        self.take_secret(secret);
    }

    /// False if there is none of that name.
    pub fn unload_secret(&mut self, name: &str) -> bool {
        self.env.loaded.secrets.unload(name)
    }

    /// Forgets all shared keys.
    pub fn clear_secrets(&mut self) {
        self.env.loaded.secrets.clear();
    }

    /// Names of the loaded shared keys.
    pub fn secret_names(&self) -> impl Iterator<Item = &str> {
        self.env.loaded.secrets.names()
    }

    /// Brings a child up; `InitiateDone` tells the result. Without a connection's name the first connection that has
    /// such a child is meant.
    ///
    /// A child that is up, or on its way up, is not doubled: its IKE SA is returned, and `InitiateDone` follows all the
    /// same. Another is made on the IKE SA that the connection has. Without one, or where the peer makes no further child
    /// on it (`InitiateMoved` tells so), it gets an IKE SA of its own, whose IKE_AUTH makes it.
    pub fn initiate(
        &mut self,
        now: Time,
        connection: Option<&str>,
        child: &str,
    ) -> Result<IkeSaId, InitiateError> {
        self.bring_up(now, connection, child, true)
    }

    /// Brings the IKE SA of a connection up, without a child (RFC 6023). The events `IkeUp` and
    /// `IkeDown` tell the result; one that is up already is returned. `InitiateDone` with an empty
    /// name of a child tells of a failure before there is an IKE SA.
    pub fn initiate_alone(&mut self, now: Time, connection: &str) -> Result<IkeSaId, InitiateError> {
        self.bring_up_alone(now, connection)
    }

    /// A packet wants a child that has no SA: like [`Endpoint::initiate`], but silent about what is already up.
    pub fn acquire(&mut self, now: Time, connection: &str, child: &str) -> Result<IkeSaId, InitiateError> {
        self.bring_up(now, Some(connection), child, false)
    }

    /// The same, of a packet between these addresses, ours first: where a child takes whatever peer
    /// there is ([`Connection::takes_anybody`]), the packet says which one is meant.
    pub fn acquire_for(
        &mut self,
        now: Time,
        connection: &str,
        child: &str,
        packet: (IpAddr, IpAddr),
    ) -> Result<IkeSaId, InitiateError> {
        self.bring_up_towards(now, connection, child, packet)
    }

    /// Changes settings.
    pub fn reconfigure(&mut self, change: impl FnOnce(&mut EndpointConfig)) {
        change(&mut self.env.config);
    }

    /// Takes SAs down. The events `IkeDown` and `ChildDown` tell when they are gone: when the peer has answered, or
    /// after the timeout. With `force` they are gone at once, and the peer is told as far as that needs no waiting.
    pub fn terminate(
        &mut self,
        now: Time,
        target: &Target,
        force: bool,
    ) -> Result<Terminating, TerminateError> {
        self.take_down(now, target, force)
    }

    /// The end: forgets the connections, so that nothing new comes up, and takes every SA down within that time. There is
    /// no time for the usual patience, so requests, also those under way already, are repeated at short intervals.
    pub fn shut_down(&mut self, now: Time, within: Duration) {
        self.end_all(now, within);
    }

    /// An IKE message arrived (without the non-ESP marker).
    pub fn handle_datagram(&mut self, now: Time, path: Path, bytes: &[u8]) {
        self.env.effects.stats.received += 1;
        self.dispatch(Datagram { now, path, bytes });
        self.run_jobs(now);
    }

    /// A message of [`Output::Send`] did not leave this host. It is repeated as if it had been lost on the way; but who
    /// waits for the IKE SA sees why, and so does the reason if it comes to nothing.
    pub fn not_sent(&mut self, now: Time, ike: Option<IkeSaId>, path: Path, error: &str) {
        self.failed_to_send(now, ike, path, error);
    }

    /// A packet that authenticated arrived on the Child SA: the peer lives, and needs no liveness check for a while.
    /// Unless it came from where ours do not go ([`Endpoint::esp_source`]): then only a check tells whether the peer still
    /// hears us.
    pub fn traffic_seen(&mut self, now: Time, child: ChildSaId) {
        self.heard_on(now, child);
    }

    /// What the Child SA has carried so far, in the busier direction. To be told as soon as it reaches
    /// [`Endpoint::next_limit`]: it is what renews an SA by its volume, and ends it.
    pub fn child_used(&mut self, now: Time, child: ChildSaId, bytes: u64, packets: u64) {
        self.used(now, child, bytes, packets);
    }

    /// At how many octets and packets in the busier direction something is to happen to the Child SA next, once it has carried
    /// so many; `u64::MAX`: never.
    pub fn next_limit(&self, child: ChildSaId, bytes: u64, packets: u64) -> (u64, u64) {
        self.limit_behind(child, bytes, packets)
    }

    /// Makes new keys for a Child SA: because an operator wants it, or because its sequence numbers run low. False if there
    /// is nothing to renew.
    pub fn rekey_child(&mut self, now: Time, child: ChildSaId) -> bool {
        self.renew_child(now, child)
    }

    /// Makes new keys for an IKE SA. False if there is nothing to renew.
    pub fn rekey_ike(&mut self, now: Time, ike: IkeSaId) -> bool {
        self.renew_ike(now, ike)
    }

    /// Renews what an operator means by a number; `reauth`: an IKE SA with authentication. False if there is nothing to renew.
    pub fn renew_target(&mut self, now: Time, target: &Target, reauth: bool) -> bool {
        match *target {
            Target::Ike(id) if reauth => self.reauthenticate_ike(now, id),
            Target::Ike(id) => self.rekey_ike(now, id),
            Target::Child(id) => self.rekey_child(now, id),
            Target::Connection(_) | Target::ChildName { .. } | Target::All => false,
        }
    }

    /// Makes sure that both sides of an IKE SA, which was taken over from a node that died, agree on the next Message IDs (RFC
    /// 6311): as soon as what is under way is answered. Once for each takeover. False if the peer cannot.
    pub fn sync_message_ids(&mut self, now: Time, ike: IkeSaId) -> bool {
        self.want_sync(now, ike)
    }

    /// The IKE SA of a Child SA, if its peer can be asked to leave sequence numbers of it out (RFC 6311). What the peer does not
    /// know yet it would overlook.
    pub fn replay_sync_of(&self, child: ChildSaId) -> Option<IkeSaId> {
        self.may_sync_replay(child)
    }

    /// Asks the peer to leave so many sequence numbers out in all Child SAs of an IKE SA. False if it cannot.
    pub fn sync_replay_counters(&mut self, now: Time, ike: IkeSaId, by: u64) -> bool {
        self.want_replay_sync(now, ike, by)
    }

    /// Authenticates the peer of an IKE SA anew: a new IKE SA with all Child SAs takes its place (RFC 7296 §2.8.3). False if
    /// that cannot be.
    pub fn reauthenticate_ike(&mut self, now: Time, ike: IkeSaId) -> bool {
        self.reauthenticate(now, ike)
    }

    /// Authentic UDP-encapsulated ESP, newer than all before, comes from there now. That is evidence of a move as good as
    /// an IKE message: a peer behind a NAT is followed (RFC 7296 §2.23).
    pub fn esp_source(&mut self, now: Time, child: ChildSaId, remote: SocketAddr) {
        self.found_elsewhere(now, child, remote);
    }

    /// Does what is due. Call it when [`Endpoint::next_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Time) {
        self.env.names.run(now);
        self.run_starts(now);
        self.run_timers(now);
    }

    /// When something is due next.
    pub fn next_timeout(&self) -> Option<Time> {
        [self.env.table.next_deadline(), self.env.starts.next(), self.env.names.next()]
            .into_iter()
            .flatten()
            .min()
    }

    /// The next thing for the host to do. To be called until there is none, after every call that may change something.
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

    /// IKE SAs that wait for IKE_AUTH, those that failed in it and are not forgotten yet, and those whose first answer is being
    /// computed.
    pub fn half_open(&self) -> usize {
        self.env.half_opens.total()
    }

    /// All IKE SAs whose state is to be kept, with the last change of each; also those that are not listed by
    /// [`Endpoint::sas`], because nothing is left of them but their last response.
    pub fn states(&self) -> impl Iterator<Item = (IkeSaId, CommitId)> + '_ {
        self.env.table.iter().map(|sa| (sa.id, sa.commit))
    }

    /// The whole state of an IKE SA, exchanges under way included, in a versioned form. `None`: no such IKE SA. It
    /// holds keys: whoever stores or sends it must protect it. Times are kept as they lie around `now`: of two exports for the
    /// same `now`, whenever they are made, only that differs which has changed.
    pub fn export_sa(&self, now: Time, id: IkeSaId) -> Option<Zeroizing<Vec<u8>>> {
        self.env.table.get(id).and_then(|sa| encode(sa, now, self.snapshot))
    }

    /// From now on [`Endpoint::export_sa`] gives what builds of before read too, or all that there
    /// is.
    pub fn export_as(&mut self, version: SnapshotVersion) {
        self.snapshot = version;
    }

    /// Octets from an [`Endpoint::export_sa`] as one would give them now: for the same moment. `None`: they are as they should be, or
    /// cannot be read.
    pub fn exported_again(&self, bytes: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        translated(bytes, self.snapshot)
    }

    /// Takes over an IKE SA from [`Endpoint::export_sa`] of this or another endpoint. `exported`: when that was, by the
    /// clock here; whoever keeps the octets must keep the time at which they came. What happened before the clock here
    /// began counts as if it had happened then.
    ///
    /// An IKE SA is known by its SPIs: the state takes the place of what is here of the same IKE SA, and must not be older.
    /// Local numbers stay as they are, unless an SA here has them: then the newcomer gets new ones. The data plane is the
    /// host's to prepare, by what [`Endpoint::sa`] then tells.
    pub fn import_sa(&mut self, exported: Time, bytes: &[u8]) -> Result<IkeSaId, SnapshotError> {
        self.take_over(exported, bytes, None)
    }
}
