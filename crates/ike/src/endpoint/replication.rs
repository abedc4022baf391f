//! The endpoint's interface to a cluster: changed IKE SAs, eviction of an IKE SA that another node
//! owns now, import with numbers drawn before, and the connections that this node initiates.

use crate::config::Identity;
use crate::endpoint::import::{DrawnNumbers, take_over};
use crate::endpoint::{Endpoint, IkeSaStatus, SnapshotError};
use crate::environment::Environment;
use crate::environment::pools::LeaseOwner;
use crate::message::{IkeSpi, MessageId};
use crate::output::{ChildSaId, CommitId, IkeSaId, Output, Reason, Time};
use crate::sa::{IkeSa, Lease, SnapshotVersion, decode, translated};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use testudo_base::spi::{Shard, Spi};
use zeroize::Zeroizing;

/// The homes of connections and addresses, and the shards of this node.
pub trait Homes: Send {
    /// The home of a connection that we initiate, as [`Home::Initiating`] determines it.
    fn shard_of(&self, connection: &str) -> Shard;

    /// True if this node owns the shard.
    fn owns(&self, shard: Shard) -> bool;

    /// True if this node may lease the address. Never true on two nodes at a time.
    fn leases(&self, addr: IpAddr) -> bool;
}

/// What nodes know of another node's IKE SA without decoding its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outline {
    /// The SPI that we chose.
    pub spi: IkeSpi,
    /// The last change.
    pub commit: CommitId,
    /// True once both sides are authenticated, until it is gone.
    pub established: bool,
    /// `connections.<name>`.
    pub connection: String,
    /// The peer's identity, once it is known.
    pub identity: Option<Identity>,
    /// Virtual addresses of the peer: pool and address.
    pub leases: Vec<(String, IpAddr)>,
}

/// What the nodes of a cluster read of an endpoint beside the state of its IKE SAs.
#[derive(Clone, Copy)]
pub struct Replication<'e> {
    pub(super) env: &'e Environment,
}

/// What the nodes of a cluster change in an endpoint: IKE SAs come and go without a word to the
/// peer, and what the IKE SAs of other nodes hold is taken.
pub struct ReplicationMut<'e> {
    pub(super) env: &'e mut Environment,
}

impl Endpoint {
    /// For the nodes of a cluster.
    pub fn replication(&self) -> Replication<'_> {
        Replication { env: &self.env }
    }

    /// The same, to change something.
    pub fn replication_mut(&mut self) -> ReplicationMut<'_> {
        ReplicationMut { env: &mut self.env }
    }
}

impl Replication<'_> {
    /// The outline of an IKE SA. `None` if there is no such IKE SA.
    pub fn outline(&self, id: IkeSaId) -> Option<Outline> {
        self.env.table.get(id).map(|sa| Outline {
            spi: sa.our_spi(),
            commit: sa.commit,
            established: sa.is_established(),
            connection: sa.connection.clone(),
            identity: sa.remote_id.clone(),
            leases: sa.virtual_ips.remote.iter().map(|Lease { pool, addr }| (pool.clone(), *addr)).collect(),
        })
    }

    /// The IKE SA with this SPI of ours.
    pub fn by_spi(&self, ours: IkeSpi) -> Option<IkeSaId> {
        self.env.table.by_spi(ours).map(|sa| sa.id)
    }

    /// How far both windows of an IKE SA have moved: the Message ID of our next request, and that
    /// of the peer's.
    pub fn message_ids(&self, id: IkeSaId) -> Option<(MessageId, MessageId)> {
        self.env.table.get(id).map(|sa| (sa.outgoing.next, sa.incoming.expected))
    }

    /// Message ID of the peer's last request that was answered in the IKE SA with this SPI of ours.
    pub fn last_answered(&self, ours: IkeSpi) -> Option<MessageId> {
        self.env.table.by_spi(ours).and_then(IkeSa::last_answered)
    }

    /// The same from a state of [`Endpoint::export_sa`] that is not imported.
    pub fn last_answered_in(state: &[u8]) -> Option<MessageId> {
        decode(state, Time::default()).ok().as_ref().and_then(IkeSa::last_answered)
    }

    /// What operators see of a state from [`Endpoint::export_sa`] that nobody here has taken over;
    /// `taken`, `ike` and `child` as [`ReplicationMut::import_sa_as`] has them. Of Child SAs
    /// without a number there is nothing.
    pub fn status_in(
        state: &[u8],
        taken: Time,
        ike: IkeSaId,
        child: &dyn Fn(Spi) -> Option<ChildSaId>,
    ) -> Option<IkeSaStatus> {
        let mut sa = decode(state, taken).ok()?;
        sa.id = ike;
        let mut status = IkeSaStatus::from(&sa);
        status.children.retain_mut(|of| child(of.spi_in).map(|id| of.id = id).is_some());
        Some(status)
    }

    /// Re-encodes an export as [`Endpoint::export_sa`] would now, for the same moment. `None` if it
    /// is up to date, or cannot be decoded.
    pub fn exported_again(&self, bytes: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        translated(bytes, self.env.snapshot)
    }

    /// True if this node initiates the connection.
    pub fn is_home(&self, connection: &str) -> bool {
        self.env.is_home(connection)
    }

    /// The connection of an initiation of this child; with an empty name, of the IKE SA alone.
    pub fn connection_to_initiate(&self, connection: Option<&str>, child: &str) -> Option<String> {
        if child.is_empty() {
            return connection
                .filter(|name| self.env.loaded.connections.find(name).is_some())
                .map(str::to_owned);
        }
        self.env.loaded.connections.child(connection, child).ok().map(|found| found.name.clone())
    }
}

impl ReplicationMut<'_> {
    /// The IKE SAs whose state has changed since this was last called, by number; those for which
    /// there is no [`Replication::outline`] have gone. Costs as much as there are changes. Only
    /// with [`EndpointConfig::track_changes`](super::EndpointConfig::track_changes).
    pub fn take_changed(&mut self) -> Vec<IkeSaId> {
        std::mem::take(&mut self.env.effects.changed).into_iter().collect()
    }

    /// Sets the version of [`Endpoint::export_sa`]: one that former builds read too, or the full
    /// one.
    pub fn export_as(&mut self, version: SnapshotVersion) {
        self.env.snapshot = version;
    }

    /// Draws a number for an IKE SA of another node, for [`ReplicationMut::import_sa_as`].
    pub fn new_ike_number(&mut self) -> IkeSaId {
        self.env.numbers.new_ike_id()
    }

    /// Draws a number for a Child SA of another node.
    pub fn new_child_number(&mut self) -> ChildSaId {
        self.env.numbers.new_child_id()
    }

    /// [`Endpoint::import_sa`] under numbers that were drawn before: `ike`, and `child` by our SPI.
    /// An SA without a number gets a new one, never that of the state. The host is told of our
    /// virtual addresses.
    pub fn import_sa_as(
        &mut self,
        exported: Time,
        bytes: &[u8],
        ike: Option<IkeSaId>,
        child: &dyn Fn(Spi) -> Option<ChildSaId>,
    ) -> Result<IkeSaId, SnapshotError> {
        let id = take_over(self.env, exported, bytes, Some(DrawnNumbers { ike, child }))?;
        let ours = self.env.table.get(id).map(|sa| sa.virtual_ips.local.clone()).unwrap_or_default();
        self.env
            .effects
            .outputs
            .extend(ours.into_iter().map(|addr| Output::InstallAddress { ike: id, addr }));
        Ok(id)
    }

    /// Forgets an IKE SA that another node has: no word to the peer, nothing taken from the data
    /// plane. SPIs of its Child SAs stay taken, and so do addresses of its peer, until
    /// [`ReplicationMut::release_spi`] and [`ReplicationMut::drop_lease`]. False: no such IKE SA.
    pub fn evict(&mut self, now: Time, id: IkeSaId) -> bool {
        let Some(sa) = self.env.table.take(id) else { return false };
        self.env.forget_jobs(id);
        self.env.effects.changed.remove(&id);
        self.env.half_opens.leave(id);
        // The other node will make the Child SAs that were requested under these SPIs. This node
        // would not learn of a failure, so the SPIs only rest; a Child SA that is made claims its
        // SPI again.
        for spi in pending_spis(&sa) {
            self.env.alloc.release_esp_spi(now, spi);
        }
        for addr in &sa.virtual_ips.local {
            self.env.effects.outputs.push_back(Output::RemoveAddress { ike: id, addr: *addr });
        }
        end_waiting(self.env, now, &sa);
        self.env.loaded.connections.note_children_elsewhere(now, &sa);
        self.env.forget_former(&sa.connection);
        true
    }

    /// A Child SA of another node has this SPI.
    pub fn claim_spi(&mut self, spi: Spi) {
        self.env.alloc.claim_esp_spi(spi);
    }

    /// A Child SA of another node is gone: its SPI rests here, as on that node, before it is
    /// allotted again.
    pub fn release_spi(&mut self, now: Time, spi: Spi) {
        self.env.alloc.release_esp_spi(now, spi);
    }

    /// Holds a pool's address for the peer of another node's IKE SA. Returns false if another owner
    /// has it.
    pub fn hold_lease(&mut self, ike: IkeSaId, outline: &Outline, pool: &str, addr: IpAddr) -> bool {
        let Some(identity) = &outline.identity else { return false };
        let owner = LeaseOwner::new(&outline.connection, identity);
        self.env.pools.claim(&Lease { pool: pool.to_owned(), addr }, &owner, ike)
    }

    /// The peer of another node's IKE SA does not need its address any more.
    pub fn drop_lease(&mut self, ike: IkeSaId, pool: &str, addr: IpAddr) {
        self.env.pools.release(&Lease { pool: pool.to_owned(), addr }, ike);
    }

    /// Sets the shards of this node. Children that start by themselves and have their home here now
    /// are started, unless they are up. Before the first call this node is the home of everything.
    pub fn set_homes(&mut self, now: Time, homes: Box<dyn Homes>) {
        let before = self.env.homes.replace(homes);
        self.env.pools.begin_again();
        let was_home = |name: &str| before.as_ref().is_none_or(|homes| homes.owns(homes.shard_of(name)));
        let come: Vec<(String, String)> = self
            .env
            .starts
            .wanted()
            .filter(|(connection, _)| !was_home(connection) && self.env.is_home(connection))
            .map(|(connection, child)| (connection.to_owned(), child.to_owned()))
            .collect();
        for (connection, child) in come {
            self.env.starts.schedule(&connection, &child, now);
        }
    }
}

/// Ends the initiations that wait for this IKE SA: no result will come from here.
fn end_waiting(env: &mut Environment, now: Time, sa: &IkeSa) {
    if let Some(attempt) = sa.phase.attempt() {
        let elsewhere = Reason::Refused("another node goes on with the IKE_SA".into());
        env.initiate_done(now, &sa.connection, sa.id, &attempt.child, Err(elsewhere));
    }
}

/// SPIs of Child SAs that are requested and not made yet.
pub(super) fn pending_spis(sa: &IkeSa) -> Vec<Spi> {
    let asked = sa.phase.auth_sent().and_then(|sent| sent.asked.as_ref()).map(|asked| asked.spi_in);
    let creating = sa.creating.as_ref().and_then(|creating| creating.spi_in());
    let followup = sa.followup.as_ref().and_then(|followup| followup.sa.spi_in());
    [asked, creating, followup].into_iter().flatten().collect()
}
