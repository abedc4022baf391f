//! IKE as the gateway drives it: an endpoint that stands alone, or one within a member of a
//! cluster.

use crate::error::LookupError;
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use testudo_cluster::member::{Member, MemberOutput};
use testudo_ike::cert::Credentials;
use testudo_ike::config::{Connection, Pool, SharedSecret};
use testudo_ike::endpoint::{
    Done, Endpoint, EndpointConfig, Exchanges, IkeSaStatus, InitiateError, Job, JobId, LoadError, PacketEnds,
    PoolError, SaNames, Stats, Target, TerminateError, Terminating,
};
use testudo_ike::output::{ChildSaId, IkeSaId, Path, Time, UnixTime};
use testudo_ipsec::selector::AddrRange;

/// Both are read as the endpoint. Every change is a method here, because a member must tell the
/// other nodes of it, at the next [`Ike::pump`].
pub(crate) enum Ike {
    /// Stands alone: all that it does is stable at once.
    Alone(Box<Endpoint>),
    /// A member of a cluster: an output leaves when the other nodes hold what it depends on.
    Member(Box<Member>),
}

impl Deref for Ike {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        match self {
            Self::Alone(endpoint) => endpoint,
            Self::Member(member) => member.endpoint(),
        }
    }
}

impl Ike {
    /// The member of a cluster, if the gateway does not stand alone.
    pub(crate) fn member(&mut self) -> Option<&mut Member> {
        match self {
            Self::Alone(_) => None,
            Self::Member(member) => Some(member),
        }
    }

    /// The same, to look at.
    pub(crate) fn as_member(&self) -> Option<&Member> {
        match self {
            Self::Alone(_) => None,
            Self::Member(member) => Some(member),
        }
    }

    /// Sets the time of day.
    pub(crate) fn set_unix_time(&mut self, now: Time, unix: UnixTime) {
        match self {
            Self::Alone(endpoint) => endpoint.set_unix_time(now, unix),
            Self::Member(member) => member.set_unix_time(now, unix),
        }
    }

    /// An IKE message has come.
    pub(crate) fn handle_datagram(&mut self, now: Time, path: Path, bytes: &[u8]) {
        match self {
            Self::Alone(endpoint) => endpoint.handle_datagram(now, path, bytes),
            Self::Member(member) => member.handle_ike(now, path, bytes),
        }
    }

    /// [`Self::next_timeout`] has come.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        match self {
            Self::Alone(endpoint) => endpoint.handle_timeout(now),
            Self::Member(member) => member.handle_timeout(now),
        }
    }

    /// When something is due.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        match self {
            Self::Alone(endpoint) => endpoint.next_timeout(),
            Self::Member(member) => member.next_timeout(),
        }
    }

    /// An IKE SA of any node.
    pub(crate) fn sa(&self, id: IkeSaId) -> Option<IkeSaStatus> {
        match self {
            Self::Alone(endpoint) => endpoint.sa(id),
            Self::Member(member) => member.sa(id),
        }
    }

    /// The Child SAs of a connection, of all nodes, by their names.
    pub(crate) fn children_of<'a>(
        &'a self,
        connection: &'a str,
    ) -> Box<dyn Iterator<Item = (ChildSaId, &'a str)> + 'a> {
        match self {
            Self::Alone(endpoint) => Box::new(endpoint.children_of(connection)),
            Self::Member(member) => Box::new(member.children_of(connection)),
        }
    }

    /// The numbers of all IKE SAs, of all nodes.
    pub(crate) fn sa_ids(&self) -> Vec<IkeSaId> {
        match self {
            Self::Alone(endpoint) => endpoint.names().map(SaNames::id).collect(),
            Self::Member(member) => member.sa_ids(),
        }
    }

    /// A change is complete: the other nodes may hear of it.
    pub(crate) fn pump(&mut self, now: Time) {
        if let Self::Member(member) = self {
            member.pump(now);
        }
    }

    /// The next thing to do.
    pub(crate) fn poll_output(&mut self) -> Option<MemberOutput> {
        match self {
            Self::Alone(endpoint) => endpoint.poll_output().map(MemberOutput::Ike),
            Self::Member(member) => member.poll_output(),
        }
    }

    /// The endpoint of either. Only the methods that follow may use it.
    fn endpoint_mut(&mut self) -> &mut Endpoint {
        match self {
            Self::Alone(endpoint) => endpoint,
            Self::Member(member) => member.endpoint_mut(),
        }
    }
}

/// What is loaded, and what the host knows.
impl Ike {
    pub(crate) fn load_connection(&mut self, now: Time, connection: Connection) -> Result<(), LoadError> {
        self.endpoint_mut().load_connection(now, connection)
    }

    pub(crate) fn unload_connection(&mut self, name: &str) -> bool {
        self.endpoint_mut().unload_connection(name)
    }

    pub(crate) fn load_secret(&mut self, secret: SharedSecret) {
        self.endpoint_mut().load_secret(secret);
    }

    pub(crate) fn unload_secret(&mut self, name: &str) -> bool {
        self.endpoint_mut().secrets_mut().unload(name)
    }

    pub(crate) fn clear_secrets(&mut self) {
        self.endpoint_mut().secrets_mut().clear();
    }

    pub(crate) fn credentials_mut(&mut self) -> &mut Credentials {
        self.endpoint_mut().credentials_mut()
    }

    pub(crate) fn load_pool(&mut self, pool: Pool) -> Result<(), PoolError> {
        self.endpoint_mut().load_pool(pool)
    }

    pub(crate) fn unload_pool(&mut self, name: &str) -> Result<(), PoolError> {
        self.endpoint_mut().unload_pool(name)
    }

    pub(crate) fn set_trap(&mut self, connection: &str, child: &str, trap: bool) {
        self.endpoint_mut().set_trap(connection, child, trap);
    }

    pub(crate) fn reconfigure(&mut self, change: impl FnOnce(&mut EndpointConfig)) {
        self.endpoint_mut().reconfigure(change);
    }

    pub(crate) fn set_local_addresses(&mut self, addrs: Vec<IpAddr>) {
        self.endpoint_mut().set_local_addresses(addrs);
    }

    pub(crate) fn set_reserved_addresses(&mut self, ranges: Vec<AddrRange>) {
        self.endpoint_mut().set_reserved_addresses(ranges);
    }

    /// The names to resolve.
    pub(crate) fn take_names(&mut self) -> Vec<String> {
        self.endpoint_mut().take_names()
    }

    /// Gives the connections whose addresses have changed.
    pub(crate) fn resolved(
        &mut self,
        now: Time,
        name: &str,
        result: Result<Vec<IpAddr>, LookupError>,
    ) -> Vec<String> {
        self.endpoint_mut().resolved(now, name, result)
    }

    /// Counters, to take the sources of refused datagrams.
    pub(crate) fn stats_mut(&mut self) -> &mut Stats {
        self.endpoint_mut().stats_mut()
    }

    /// Counters of the messages, to be reset.
    pub(crate) fn exchanges_mut(&mut self) -> &mut Exchanges {
        self.endpoint_mut().exchanges_mut()
    }
}

/// What operators ask for, and packets without an SA.
impl Ike {
    pub(crate) fn initiate(
        &mut self,
        now: Time,
        connection: Option<&str>,
        child: &str,
    ) -> Result<IkeSaId, InitiateError> {
        self.endpoint_mut().initiate(now, connection, child)
    }

    pub(crate) fn initiate_alone(&mut self, now: Time, connection: &str) -> Result<IkeSaId, InitiateError> {
        self.endpoint_mut().initiate_alone(now, connection)
    }

    pub(crate) fn acquire_for(
        &mut self,
        now: Time,
        connection: &str,
        child: &str,
        ends: PacketEnds,
    ) -> Result<IkeSaId, InitiateError> {
        self.endpoint_mut().acquire_for(now, connection, child, ends)
    }

    pub(crate) fn terminate(
        &mut self,
        now: Time,
        target: &Target,
        force: bool,
    ) -> Result<Terminating, TerminateError> {
        self.endpoint_mut().terminate(now, target, force)
    }

    pub(crate) fn renew_target(&mut self, now: Time, target: &Target, reauth: bool) -> bool {
        self.endpoint_mut().renew_target(now, target, reauth)
    }

    pub(crate) fn rekey_child(&mut self, now: Time, child: ChildSaId) -> bool {
        self.endpoint_mut().rekey_child(now, child)
    }
}

/// What the data path, the sockets and the crypto threads report.
impl Ike {
    pub(crate) fn traffic_seen(&mut self, now: Time, child: ChildSaId) {
        match self {
            Self::Alone(endpoint) => endpoint.traffic_seen(now, child),
            Self::Member(member) => member.traffic_seen(now, child),
        }
    }

    pub(crate) fn child_used(&mut self, now: Time, child: ChildSaId, bytes: u64, packets: u64) {
        self.endpoint_mut().child_used(now, child, bytes, packets);
    }

    pub(crate) fn esp_source(&mut self, now: Time, child: ChildSaId, remote: SocketAddr) {
        self.endpoint_mut().esp_source(now, child, remote);
    }

    /// The message could not be sent.
    pub(crate) fn not_sent(&mut self, now: Time, ike: Option<IkeSaId>, path: Path, error: &str) {
        self.endpoint_mut().not_sent(now, ike, path, error);
    }

    /// Work for a crypto thread.
    pub(crate) fn take_job(&mut self) -> Option<Job> {
        self.endpoint_mut().take_job()
    }

    pub(crate) fn job_done(&mut self, now: Time, done: Done) {
        self.endpoint_mut().job_done(now, done);
    }

    pub(crate) fn job_failed(&mut self, now: Time, id: JobId, reason: &str) {
        self.endpoint_mut().job_failed(now, id, reason);
    }
}
