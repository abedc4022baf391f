//! This node's copy of all SAs of the cluster, from which it can go on with them.
//!
//! For its own shards the owner is the only node that changes anything, and applies a change as it
//! publishes it. Changes of other nodes' shards are applied on delivery. The IKE states of other
//! nodes are octets that are not decoded until they are needed.

use crate::group::Position;
use crate::member::numbers::blocks::Ledger;
use crate::update::{ChildState, Secret, Stripe};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::RangeInclusive;
use testudo_base::spi::{Shard, Spi};
use testudo_ike::config::Identity;
use testudo_ike::endpoint::{Contact, Older, Outline};
use testudo_ike::message::{IkeSpi, MessageId};
use testudo_ike::output::{ChildSaId, IkeSaId, Time};
use testudo_ipsec::sa::ChildSaParams;

/// Bound on the number in a place, so that the place stays below 2^63.
const MAX_PLACE_NUMBER: u64 = (1 << 31) - 1;

/// An IKE SA of any shard.
#[derive(Debug)]
pub(crate) struct IkeReplica {
    /// Its number on this node, drawn when it was first heard of.
    pub(crate) id: IkeSaId,
    pub(crate) outline: Outline,
    /// Its state as last published, and so as all nodes have it, with its time on this node's
    /// clock. `None` if the published state must not be used.
    pub(crate) told: Option<(Time, Secret)>,
    /// The IKE SA is in this node's endpoint, which may be ahead of the published state: how far
    /// both windows had moved at the last update.
    pub(crate) here: Option<(MessageId, MessageId)>,
    /// Positions in the total order at which it was first published, and first published as
    /// established.
    pub(crate) begun: Option<Position>,
    pub(crate) up: Option<Position>,
    /// A newer IKE SA of its peer, which became known when this one was in no endpoint here. The
    /// node that reads this IKE SA must consider it.
    pub(crate) contact: Option<Box<(Contact, Older)>>,
    /// The nodes that bring this node up to date have not named it yet.
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
    /// The Child SA that it replaces.
    pub(crate) replaces: Option<Spi>,
    /// Among Child SAs that protect the same traffic, such as those of a peer that has connected a
    /// second time, the one with the highest place sends: see [`Replicas::new_place`].
    pub(crate) place: u64,
    /// It sends in the replaced one's place already.
    pub(crate) switched: bool,
    pub(crate) ledger: Ledger,
    /// The inbound high-water mark that the owner last reported, and when the report came.
    pub(crate) mark: u64,
    pub(crate) mark_at: Time,
    /// Packets a second, measured from reported high-water marks; and the mark, with its time, at
    /// which the current measurement began.
    pub(crate) rate: u64,
    pub(crate) measured: (u64, Time),
    /// Sort key: the order in which Child SAs came.
    pub(crate) order: u64,
    pub(crate) stale: bool,
    /// The data plane's numbers for it date from before the others went on without this node, or
    /// from an earlier time as standby. No other node has used them, but higher ones have been
    /// used, so the peer would reject them as too old.
    pub(crate) outdated: bool,
    /// Set if its packets are spread over all nodes.
    pub(crate) spread: Option<Box<SpreadReplica>>,
}

/// What a spread Child SA has beside.
#[derive(Debug)]
pub(crate) struct SpreadReplica {
    /// Its latest stripe.
    pub(crate) stripe: Stripe,
    /// The highest numbers that were accepted in lanes which their carriers have given away.
    pub(crate) tops: BTreeMap<Shard, u64>,
    /// When this node last told the owner that the peer uses it.
    pub(crate) proof_told: Option<Time>,
}

/// All IKE SAs and Child SAs.
#[derive(Debug, Default)]
pub(crate) struct Replicas {
    pub(crate) ikes: BTreeMap<IkeSpi, IkeReplica>,
    /// Local numbers of IKE SAs.
    by_ike: BTreeMap<IkeSaId, IkeSpi>,
    /// By the hash of the peer's identity.
    by_peer: BTreeSet<(u64, IkeSpi)>,
    children: BTreeMap<Spi, ChildReplica>,
    by_child: BTreeMap<ChildSaId, Spi>,
    /// By the hash of the connection's name.
    by_connection: BTreeSet<(u64, Spi)>,
    /// Those that are spread.
    spread: BTreeSet<Spi>,
    last_order: u64,
    /// The highest number in any place so far.
    last_place: u64,
}

impl SpreadReplica {
    pub(in crate::member) fn new(stripe: Stripe) -> Self {
        Self { stripe, tops: BTreeMap::new(), proof_told: None }
    }
}

impl IkeReplica {
    /// A new replica as it was published. Its position in the total order is known when the update
    /// comes back.
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
    /// Inserts an IKE SA. Its positions and its peer's newer IKE SA are kept from the former state.
    pub(crate) fn insert_ike(&mut self, spi: IkeSpi, mut ike: IkeReplica) {
        // The former state may not name a peer yet.
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

    /// The IKE SAs with a peer, including others' with the same hash.
    pub(in crate::member) fn of_peer(&self, peer: &Identity) -> Vec<IkeSpi> {
        let peer = hash_peer(peer);
        let found = self.by_peer.range((peer, IkeSpi(0))..=(peer, IkeSpi(u64::MAX)));
        found.map(|(_, spi)| *spi).collect()
    }

    /// The IKE SAs of a shard, by SPI.
    pub(crate) fn ikes_of(&self, shard: Shard) -> impl Iterator<Item = (&IkeSpi, &IkeReplica)> {
        self.ikes.range(ikes(shard))
    }

    /// The IKE SAs of a shard that are not in the endpoint.
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
        if child.spread.is_some() {
            self.spread.insert(spi);
        }
        let place = (hash(&child.connection), spi);
        if let Some(before) = self.children.insert(spi, child) {
            self.by_connection.remove(&(hash(&before.connection), spi));
        }
        self.by_connection.insert(place);
    }

    /// The place of a new Child SA: above all known ones, or that of the Child SA that it renews.
    ///
    /// The homes of Child SAs that protect the same traffic may differ. All nodes must choose the
    /// same one to send through, in whatever order they have heard of them. So the maker of an SA
    /// sets its place. The number comes first, and the SPI decides if two nodes have chosen the
    /// same number at once. A renewed SA keeps both, although its SPI is another: a node that joins
    /// later does not know the former SPI, and the others go on with the policy of the old SA.
    ///
    /// A Child SA that comes with an IKE SA of its own is newer than all others: its peer may have
    /// forgotten more of the older ones than the one that it replaces.
    pub(crate) fn new_place(&self, spi: Spi, replaces: Option<Spi>) -> u64 {
        let old = replaces.and_then(|spi| self.child(spi));
        let number = self.last_place.saturating_add(1).min(MAX_PLACE_NUMBER);
        old.map_or(number << 32 | u64::from(spi.0), |old| old.place)
    }

    pub(crate) fn remove_child(&mut self, spi: Spi) -> Option<ChildReplica> {
        let child = self.children.remove(&spi)?;
        self.spread.remove(&spi);
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

    /// The spread Child SAs.
    pub(crate) fn spread(&self) -> impl Iterator<Item = (Spi, &ChildReplica, &SpreadReplica)> {
        self.spread.iter().filter_map(|spi| {
            let child = self.children.get(spi)?;
            Some((*spi, child, child.spread.as_deref()?))
        })
    }

    /// A Child SA is spread from now on, or has its next stripe. It keeps its scheme, whatever an
    /// update for older nodes says.
    pub(crate) fn set_stripe(&mut self, stripe: Stripe) {
        let Some(child) = self.children.get_mut(&stripe.spi) else { return };
        self.spread.insert(stripe.spi);
        match &mut child.spread {
            Some(spread) => spread.stripe = Stripe { by: spread.stripe.by, ..stripe },
            None => child.spread = Some(Box::new(SpreadReplica::new(stripe))),
        }
    }

    /// All Child SAs, by SPI.
    pub(crate) fn children(&self) -> impl Iterator<Item = (&Spi, &ChildReplica)> {
        self.children.iter()
    }

    /// How many Child SAs there are.
    pub(crate) fn children_len(&self) -> usize {
        self.children.len()
    }

    /// All SAs are stale until they are named again.
    pub(crate) fn doubt(&mut self) {
        for ike in self.ikes.values_mut() {
            if ike.here.take().is_some() {
                ike.told = None;
            }
            (ike.stale, ike.contact) = (true, None);
        }
        for child in self.children.values_mut() {
            // Its current rate is unknown.
            (child.stale, child.outdated, child.rate) = (true, true, 0);
        }
    }

    /// The SAs that were not named again.
    pub(crate) fn stale(&self) -> (Vec<IkeSpi>, Vec<Spi>) {
        let ikes = self.ikes.iter().filter(|(_, ike)| ike.stale).map(|(spi, _)| *spi).collect();
        let children = self.children.iter().filter(|(_, child)| child.stale).map(|(spi, _)| *spi).collect();
        (ikes, children)
    }
}

impl ChildReplica {
    /// It does not send yet in the place of the one that it replaces.
    pub(in crate::member) fn waits(&self) -> bool {
        self.replaces.is_some() && !self.switched
    }

    /// The state for an update.
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

/// Peers with equal hashes are told apart when their IKE SAs are decoded.
fn hash_peer(peer: &Identity) -> u64 {
    hash(&peer.canonical())
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The SPIs of a shard: the shard's number is their first octet.
fn ikes(shard: Shard) -> RangeInclusive<IkeSpi> {
    let first = u64::from(shard.0) << 56;
    IkeSpi(first)..=IkeSpi(first | ((1 << 56) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::samples::{START, child, insert};
    use testudo_ike::output::CommitId;
    use zeroize::Zeroizing;

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

    #[test]
    fn a_node_reads_ike_sas_that_it_does_not_have_and_whose_state_it_may_use() {
        let mut replicas = Replicas::default();
        let told = || Some((START, Secret::new(Zeroizing::new(vec![1]))));
        let here = Some((MessageId(0), MessageId(0)));
        for (number, told, here) in [(1, told(), None), (2, told(), here), (3, None, None), (4, None, here)] {
            let spi = IkeSpi(1 << 56 | number);
            let outline = Outline {
                spi,
                commit: CommitId(0),
                established: true,
                connection: "peer".into(),
                identity: None,
                leases: Vec::new(),
            };
            replicas.insert_ike(spi, IkeReplica::new(IkeSaId(number), outline, told, here));
        }
        assert_eq!(replicas.readable(Shard(1)).collect::<Vec<_>>(), [IkeSpi(1 << 56 | 1)]);
    }

    /// All nodes send through the same one of the Child SAs for the same traffic.
    #[test]
    fn a_new_child_sa_has_the_highest_place_and_one_that_renews_another_keeps_its_place() {
        let mut replicas = Replicas::default();
        let mut old = child(Shard(1), 0);
        old.place = 9 << 32 | 5;
        let [renewed] = insert(&mut replicas, [old]);
        assert_eq!(replicas.new_place(Spi(7), None), 10 << 32 | 7);
        assert_eq!(replicas.new_place(Spi(7), Some(renewed)), 9 << 32 | 5);
        assert_eq!(replicas.new_place(Spi(7), Some(Spi(6))), 10 << 32 | 7, "it has gone");
    }
}
