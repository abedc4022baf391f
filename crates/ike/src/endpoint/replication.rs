//! What a cluster needs of an endpoint: which IKE SAs have changed, how one leaves without a word
//! because another node has it now, how it comes with the numbers that were drawn for it, and which
//! connections are this node's to initiate.

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

/// Which shards are this node's, and what is at home where.
pub trait Homes: Send {
    /// The home of a connection that we initiate, as [`Home::Initiating`] draws it.
    fn shard_of(&self, connection: &str) -> Shard;

    /// True if this node owns the shard.
    fn owns(&self, shard: Shard) -> bool;

    /// True if this node hands the address out of a pool. For no address two nodes may say so at a
    /// time.
    fn leases(&self, addr: IpAddr) -> bool;
}

/// What nodes know of an IKE SA that is another's, without reading its state.
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
    /// Who the peer is, once it has said so.
    pub identity: Option<Identity>,
    /// Virtual addresses that the peer has: pool and address.
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
    /// What others need to know of an IKE SA, beside its state. `None`: no such IKE SA.
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

    /// The IKE SA for which we chose that SPI.
    pub fn by_spi(&self, ours: IkeSpi) -> Option<IkeSaId> {
        self.env.table.by_spi(ours).map(|sa| sa.id)
    }

    /// How far both windows of an IKE SA have moved: the number of our next request, and that of
    /// the peer's.
    pub fn message_ids(&self, id: IkeSaId) -> Option<(MessageId, MessageId)> {
        self.env.table.get(id).map(|sa| (sa.outgoing.next, sa.incoming.expected))
    }

    /// The number of the last request of the peer that was answered in the IKE SA for which we
    /// chose that SPI.
    pub fn last_answered(&self, ours: IkeSpi) -> Option<MessageId> {
        self.env.table.by_spi(ours).and_then(IkeSa::last_answered)
    }

    /// The same in a state from [`Endpoint::export_sa`], which nobody here has taken over.
    pub fn last_answered_in(state: &[u8]) -> Option<MessageId> {
        decode(state, Time::default()).ok().as_ref().and_then(IkeSa::last_answered)
    }

    /// What operators see of a state from [`Endpoint::export_sa`] that nobody here has taken over;
    /// `taken`, `ike` and `child` as [`ReplicationMut::import_sa_as`] has them. Of Child SAs without a
    /// number there is nothing.
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

    /// Octets from an [`Endpoint::export_sa`] as one would give them now: for the same moment.
    /// `None`: they are as they should be, or cannot be read.
    pub fn exported_again(&self, bytes: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        translated(bytes, self.env.snapshot)
    }

    /// True if this node initiates the connection.
    pub fn is_home(&self, connection: &str) -> bool {
        self.env.is_home(connection)
    }

    /// The connection that an initiation of the child means; with an empty name that of the IKE SA
    /// alone.
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
    /// there is no [`Replication::outline`] have gone. Costs as much as there are changes. Only with
    /// [`EndpointConfig::track_changes`](super::EndpointConfig::track_changes).
    pub fn take_changed(&mut self) -> Vec<IkeSaId> {
        std::mem::take(&mut self.env.effects.changed).into_iter().collect()
    }

    /// From now on [`Endpoint::export_sa`] gives what builds of before read too, or all that there
    /// is.
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

    /// Like [`Endpoint::import_sa`], under numbers that were drawn before: `ike`, and `child` by
    /// the SPI that we chose. What has none gets a new one, never that of the state. Virtual
    /// addresses of ours are told to the host.
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
        // What was asked for under these SPIs is for the other node to make. Nobody would say here
        // that it came to nothing, so they only rest; once there is a Child SA of theirs, they are
        // claimed again.
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

    /// A Child SA of another node has that SPI.
    pub fn claim_spi(&mut self, spi: Spi) {
        self.env.alloc.claim_esp_spi(spi);
    }

    /// A Child SA of another node is gone: its SPI rests before it is given out again, here as
    /// there.
    pub fn release_spi(&mut self, now: Time, spi: Spi) {
        self.env.alloc.release_esp_spi(now, spi);
    }

    /// The peer of another node's IKE SA has that address of a pool. False: the address is somebody
    /// else's.
    pub fn hold_lease(&mut self, ike: IkeSaId, outline: &Outline, pool: &str, addr: IpAddr) -> bool {
        let Some(identity) = &outline.identity else { return false };
        let owner = LeaseOwner::new(&outline.connection, identity);
        self.env.pools.claim(&Lease { pool: pool.to_owned(), addr }, &owner, ike)
    }

    /// The peer of another node's IKE SA needs its address no more.
    pub fn drop_lease(&mut self, ike: IkeSaId, pool: &str, addr: IpAddr) {
        self.env.pools.release(&Lease { pool: pool.to_owned(), addr }, ike);
    }

    /// Tells which shards this node owns from now on. Children that start by themselves and whose
    /// home it has become are started, unless they are up. Without a word everything is at home
    /// here.
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

/// Who waits for an initiation gets no result from here any more.
fn end_waiting(env: &mut Environment, now: Time, sa: &IkeSa) {
    if let Some(attempt) = sa.phase.attempt() {
        let elsewhere = Reason::Refused("another node goes on with the IKE_SA".into());
        env.initiate_done(now, &sa.connection, sa.id, &attempt.child, Err(elsewhere));
    }
}

/// SPIs that were taken for Child SAs that are not there yet.
pub(super) fn pending_spis(sa: &IkeSa) -> Vec<Spi> {
    let asked = sa.phase.auth_sent().and_then(|sent| sent.asked.as_ref()).map(|asked| asked.spi_in);
    let creating = sa.creating.as_ref().and_then(|creating| creating.spi_in());
    let followup = sa.followup.as_ref().and_then(|followup| followup.sa.spi_in());
    [asked, creating, followup].into_iter().flatten().collect()
}
