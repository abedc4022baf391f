//! All SAs of the cluster, as operators see them on any node.

use super::Member;
use super::replication::replicas::IkeReplica;
use crate::node::NodeId;
use crate::update::Sa;
use std::collections::{BTreeMap, BTreeSet};
use testudo_base::spi::Spi;
use testudo_ike::endpoint::{IkeSaStatus, Replication};
use testudo_ike::output::{ChildSaId, IkeSaId};

/// Other nodes' SAs of a child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteSas {
    /// IKE SAs with a Child SA of it.
    pub sas: usize,
    /// A node that speaks for one of them.
    pub node: Option<NodeId>,
}

impl Member {
    /// The numbers of all IKE SAs, including those of other nodes.
    pub fn sa_ids(&self) -> Vec<IkeSaId> {
        let mut ids: Vec<IkeSaId> = self.replication.replicas.ikes.values().map(|ike| ike.id).collect();
        let known = |id: &IkeSaId| self.replication.replicas.spi_of_ike(*id).is_some();
        ids.extend(self.core.endpoint.names().map(|names| names.id()).filter(|id| !known(id)));
        ids.sort_unstable();
        ids
    }

    /// The status of an IKE SA of any node, here as its owner last published it.
    pub fn sa(&self, id: IkeSaId) -> Option<IkeSaStatus> {
        let replica = || self.replication.replicas.ikes.get(&self.replication.replicas.spi_of_ike(id)?);
        self.core.endpoint.sa(id).or_else(|| self.status_of(replica()?))
    }

    /// The owner of an IKE SA.
    pub fn node_of(&self, id: IkeSaId) -> Option<NodeId> {
        self.replication
            .replicas
            .spi_of_ike(id)
            .map_or(Some(self.core.node), |spi| self.core.table.owner(spi.shard()))
    }

    fn status_of(&self, ike: &IkeReplica) -> Option<IkeSaStatus> {
        let (at, state) = ike.told.as_ref()?;
        let number =
            |spi: Spi| -> Option<ChildSaId> { self.replication.replicas.child(spi).map(|child| child.id) };
        Replication::status_in(state.octets(), *at, ike.id, &number)
    }

    /// The IKE SAs in other nodes' endpoints, by number and connection, in the form of
    /// [`Ask`](super::Ask).
    pub fn remote_ikes(&self) -> impl Iterator<Item = (IkeSaId, &str, Sa)> {
        let remote = self
            .replication
            .replicas
            .ikes
            .iter()
            .filter(|(_, ike)| ike.here.is_none() && ike.outline.established);
        remote.map(|(spi, ike)| (ike.id, &*ike.outline.connection, Sa::Ike(*spi)))
    }

    /// The Child SAs in other nodes' endpoints, each with its IKE SA and its name, in the form of
    /// [`Ask`](super::Ask).
    pub fn remote_children(&self) -> impl Iterator<Item = (IkeSaId, &str, ChildSaId, &str, Sa)> {
        self.replication.replicas.children().filter_map(|(spi, child)| {
            let ike = self.replication.replicas.ikes.get(&child.ike).filter(|ike| ike.here.is_none())?;
            Some((ike.id, &*child.connection, child.id, &*child.name, Sa::Child(*spi)))
        })
    }

    /// The Child SAs of a connection, of all nodes, by their names.
    pub fn children_of<'a>(&'a self, connection: &'a str) -> impl Iterator<Item = (ChildSaId, &'a str)> {
        let found = self.replication.replicas.children_of_connection(connection);
        found.map(|(_, child)| (child.id, &*child.name))
    }

    /// Other nodes' SAs of each child of a connection, by name.
    pub fn remote_sas_of(&self, connection: &str) -> BTreeMap<&str, RemoteSas> {
        let mut found: BTreeMap<&str, RemoteSas> = BTreeMap::new();
        let mut ikes = BTreeSet::new();
        for (spi, child) in self.replication.replicas.children_of_connection(connection) {
            let there = self.replication.replicas.ikes.get(&child.ike).is_some_and(|ike| ike.here.is_none());
            // A renewed one may exist twice.
            if there && ikes.insert((&*child.name, child.ike)) {
                let of = found.entry(&child.name).or_default();
                of.sas += 1;
                of.node = of.node.or(self.core.table.owner(spi.shard()));
            }
        }
        found
    }

    /// The node that initiates a connection by itself, if there is one now.
    pub fn home_of(&self, connection: &str) -> Option<NodeId> {
        self.core.table.owner(self.asks.home_shard(&self.core, connection))
    }

    /// True if another node has an IKE SA of the connection, or is its home.
    pub fn is_remote(&self, connection: &str) -> bool {
        let (mut here, mut there) = (false, false);
        for ike in self.replication.replicas.ikes.values().filter(|ike| ike.outline.established) {
            if ike.outline.connection == connection {
                *(if ike.here.is_some() { &mut here } else { &mut there }) = true;
            }
        }
        !here && (there || !self.core.endpoint.replication().is_home(connection))
    }
}
