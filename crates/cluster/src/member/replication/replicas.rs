//! What this node holds of all SAs of the cluster, so that it can go on with them.
//!
//! For its own shards the owner is the only one who changes anything, and changes it here as it
//! says so; for the others it is done as it is delivered. IKE states of others are octets that
//! nobody reads before they are needed.

use crate::group::Position;
use crate::member::numbers::blocks::Ledger;
use crate::update::{ChildState, Secret};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::RangeInclusive;
use testudo_base::spi::{Shard, Spi};
use testudo_ike::config::Identity;
use testudo_ike::endpoint::{Contact, Older, Outline};
use testudo_ike::message::{IkeSpi, MessageId};
use testudo_ike::output::{ChildSaId, IkeSaId, Time};
use testudo_ipsec::sa::ChildSaParams;

/// Of a place: it stays below 2^63.
const MAX_PLACE_NUMBER: u64 = (1 << 31) - 1;

/// An IKE SA of any shard.
#[derive(Debug)]
pub(crate) struct IkeReplica {
    /// Its number on this node, drawn when it was first heard of.
    pub(crate) id: IkeSaId,
    pub(crate) outline: Outline,
    /// Its state as it was last said, and so as all nodes have it; and the moment that it is for,
    /// by the clock here. None: nobody goes on from what was said.
    pub(crate) told: Option<(Time, Secret)>,
    /// This node's endpoint has it, and may be further on; and how far both windows had moved when
    /// it was last told.
    pub(crate) here: Option<(MessageId, MessageId)>,
    /// Where in the total order it was first told, and where as one that is up.
    pub(crate) begun: Option<Position>,
    pub(crate) up: Option<Position>,
    /// Its peer has another since, which was heard of when this one was in no endpoint here: who
    /// reads it heeds that.
    pub(crate) contact: Option<Box<(Contact, Older)>>,
    /// Not named yet by those who bring this node up to date.
    pub(crate) stale: bool,
}

/// A Child SA of any shard. It is in the data plane.
#[derive(Debug)]
pub(crate) struct ChildReplica {
    /// Its number on this node.
    pub(crate) id: ChildSaId,
    pub(crate) ike: IkeSpi,
    pub(crate) connection: String,
    pub(crate) name: String,
    pub(crate) params: Box<ChildSaParams>,
    /// The one whose place it takes.
    pub(crate) replaces: Option<Spi>,
    /// Of several Child SAs that protect the same, such as those of a peer that has come a second
    /// time, the one with the highest place sends: see [`Replicas::new_place`].
    pub(crate) place: u64,
    /// It has begun to send instead of that one.
    pub(crate) switched: bool,
    pub(crate) ledger: Ledger,
    /// Packets were taken in up to here, as far as the owner has told, and when that came.
    pub(crate) mark: u64,
    pub(crate) mark_at: Time,
    /// Packets a second, as the high-water marks that were told show it; and the high-water mark,
    /// and its time, from which on that is measured.
    pub(crate) rate: u64,
    pub(crate) measured: (u64, Time),
    /// Counts them in the order in which they came.
    pub(crate) order: u64,
    pub(crate) stale: bool,
    /// The numbers that the data plane has for it are of before the others went on without this
    /// node, or of when it was standby before. Nobody else has used them, but higher ones: to its
    /// peer they are too old.
    pub(crate) outdated: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Replicas {
    pub(crate) ikes: BTreeMap<IkeSpi, IkeReplica>,
    /// Local numbers of IKE SAs.
    by_ike: BTreeMap<IkeSaId, IkeSpi>,
    /// By what is hashed of who the peer is.
    by_peer: BTreeSet<(u64, IkeSpi)>,
    children: BTreeMap<Spi, ChildReplica>,
    by_child: BTreeMap<ChildSaId, Spi>,
    /// By what is hashed of the connection.
    by_connection: BTreeSet<(u64, Spi)>,
    last_order: u64,
    /// The number in the highest place that any had.
    last_place: u64,
}

impl IkeReplica {
    /// As it is told: where that is in the total order is known when it comes back.
    pub(in crate::member) fn new(
        id: IkeSaId,
        outline: Outline,
        told: Option<(Time, Secret)>,
        here: Option<(MessageId, MessageId)>,
    ) -> Self {
        Self { id, outline, told, here, begun: None, up: None, contact: None, stale: false }
    }
}

impl Replicas {
    /// What is known of it stays: where it was told, and what it has to heed.
    pub(crate) fn insert_ike(&mut self, spi: IkeSpi, mut ike: IkeReplica) {
        // The one of before may name no peer yet.
        if let Some(old) = self.remove_ike(spi) {
            (ike.begun, ike.up, ike.contact) = (old.begun, old.up, old.contact);
        }
        self.by_ike.insert(ike.id, spi);
        self.by_peer.extend(ike.outline.identity.as_ref().map(|peer| (hash_peer(peer), spi)));
        self.ikes.insert(spi, ike);
    }

    pub(crate) fn remove_ike(&mut self, spi: IkeSpi) -> Option<IkeReplica> {
        let ike = self.ikes.remove(&spi)?;
        self.by_ike.remove(&ike.id);
        if let Some(peer) = &ike.outline.identity {
            self.by_peer.remove(&(hash_peer(peer), spi));
        }
        Some(ike)
    }

    pub(crate) fn spi_of_ike(&self, id: IkeSaId) -> Option<IkeSpi> {
        self.by_ike.get(&id).copied()
    }

    /// The IKE SAs with a peer, and those of others whose names are hashed alike.
    pub(in crate::member) fn of_peer(&self, peer: &Identity) -> Vec<IkeSpi> {
        let peer = hash_peer(peer);
        let found = self.by_peer.range((peer, IkeSpi(0))..=(peer, IkeSpi(u64::MAX)));
        found.map(|(_, spi)| *spi).collect()
    }

    /// The IKE SAs of a shard, by SPI.
    pub(crate) fn ikes_of(&self, shard: Shard) -> impl Iterator<Item = (&IkeSpi, &IkeReplica)> {
        self.ikes.range(ikes(shard))
    }

    /// Those of them that the endpoint does not have.
    pub(in crate::member) fn readable(&self, shard: Shard) -> impl Iterator<Item = IkeSpi> {
        self.ikes_of(shard).filter(|(_, ike)| ike.here.is_none() && ike.told.is_some()).map(|(spi, _)| *spi)
    }

    pub(crate) fn child(&self, spi: Spi) -> Option<&ChildReplica> {
        self.children.get(&spi)
    }

    pub(crate) fn child_mut(&mut self, spi: Spi) -> Option<&mut ChildReplica> {
        self.children.get_mut(&spi)
    }

    pub(crate) fn insert_child(&mut self, mut child: ChildReplica) {
        let spi = child.params.spi_in;
        self.last_order += 1;
        self.last_place = self.last_place.max(child.place >> 32);
        child.order = self.last_order;
        self.by_child.insert(child.id, spi);
        let place = (hash(&child.connection), spi);
        if let Some(before) = self.children.insert(spi, child) {
            self.by_connection.remove(&(hash(&before.connection), spi));
        }
        self.by_connection.insert(place);
    }

    /// Where a new Child SA stands: before all that are known, or where the one stands that it
    /// renews.
    ///
    /// The homes of those that protect the same may differ, so all nodes must choose the same one
    /// to send through, in whatever order they have heard of them. Who makes an SA says where it
    /// stands: its number comes first, and its SPI decides where two nodes have taken the same
    /// number at once. A renewed one keeps both, although its SPI is another: a node that comes
    /// later knows nothing of the SPI before, and those that know it go on with the policy of the
    /// old one.
    ///
    /// One that comes with an IKE SA of its own is newer than all: of the older ones its peer may
    /// have forgotten more than the one that it replaces.
    pub(crate) fn new_place(&self, spi: Spi, replaces: Option<Spi>) -> u64 {
        let old = replaces.and_then(|spi| self.child(spi));
        let number = self.last_place.saturating_add(1).min(MAX_PLACE_NUMBER);
        old.map_or(number << 32 | u64::from(spi.0), |old| old.place)
    }

    pub(crate) fn remove_child(&mut self, spi: Spi) -> Option<ChildReplica> {
        let child = self.children.remove(&spi)?;
        self.by_child.remove(&child.id);
        self.by_connection.remove(&(hash(&child.connection), spi));
        Some(child)
    }

    /// The Child SAs of a connection.
    pub(in crate::member) fn children_of_connection(
        &self,
        connection: &str,
    ) -> impl Iterator<Item = (&Spi, &ChildReplica)> {
        let hash = hash(&connection);
        let named = self.by_connection.range((hash, Spi(0))..=(hash, Spi(u32::MAX)));
        let found = named.filter_map(|(_, spi)| self.children.get_key_value(spi));
        found.filter(move |(_, child)| child.connection == connection)
    }

    pub(crate) fn spi_of_child(&self, id: ChildSaId) -> Option<Spi> {
        self.by_child.get(&id).copied()
    }

    /// The Child SAs of a shard, by SPI.
    pub(crate) fn children_of(&self, shard: Shard) -> impl Iterator<Item = (&Spi, &ChildReplica)> {
        self.children.range(shard.spis())
    }

    pub(crate) fn children_mut_of(
        &mut self,
        shard: Shard,
    ) -> impl Iterator<Item = (&Spi, &mut ChildReplica)> {
        self.children.range_mut(shard.spis())
    }

    /// All Child SAs, by SPI.
    pub(crate) fn children(&self) -> impl Iterator<Item = (&Spi, &ChildReplica)> {
        self.children.iter()
    }

    /// How many Child SAs there are.
    pub(crate) fn children_len(&self) -> usize {
        self.children.len()
    }

    /// All are to be named again.
    pub(crate) fn doubt(&mut self) {
        for ike in self.ikes.values_mut() {
            if ike.here.take().is_some() {
                ike.told = None;
            }
            (ike.stale, ike.contact) = (true, None);
        }
        for child in self.children.values_mut() {
            // How fast it is now nobody has told.
            (child.stale, child.outdated, child.rate) = (true, true, 0);
        }
    }

    /// What was not named again.
    pub(crate) fn stale(&self) -> (Vec<IkeSpi>, Vec<Spi>) {
        let ikes = self.ikes.iter().filter(|(_, ike)| ike.stale).map(|(spi, _)| *spi).collect();
        let children = self.children.iter().filter(|(_, child)| child.stale).map(|(spi, _)| *spi).collect();
        (ikes, children)
    }
}

impl ChildReplica {
    /// As others are told of it.
    pub(crate) fn state(&self) -> ChildState {
        ChildState {
            ike: self.ike,
            connection: self.connection.clone(),
            name: self.name.clone(),
            params: (*self.params).clone(),
            replaces: self.replaces,
            place: self.place,
            reserved: self.ledger.reserved,
            log2: self.ledger.log2,
            standby: None,
            mark: self.mark,
        }
    }
}

/// Two peers that are hashed alike are told apart by who reads their IKE SAs.
fn hash_peer(peer: &Identity) -> u64 {
    hash(&peer.canonical())
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The SPIs of a shard: its number is their first octet.
fn ikes(shard: Shard) -> RangeInclusive<IkeSpi> {
    let first = u64::from(shard.0) << 56;
    IkeSpi(first)..=IkeSpi(first | ((1 << 56) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spis_of_a_shard_are_those_that_show_it() {
        for number in [0, 1, 255] {
            let shard = Shard(number);
            let (ikes, children) = (ikes(shard), shard.spis());
            assert!([ikes.start(), ikes.end()].iter().all(|spi| spi.shard() == shard));
            assert!([children.start(), children.end()].iter().all(|spi| spi.shard() == shard));
        }
        assert_eq!(Shard(255).spis().end().0, u32::MAX);
        assert_eq!(ikes(Shard(255)).end().0, u64::MAX);
    }
}
