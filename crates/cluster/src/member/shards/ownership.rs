//! The owner and the standby of each shard: a function of the total order alone, so that all
//! members of a view agree at every position. Suspicion has no influence here.

use crate::node::NodeId;
use crate::shard::Ranking;
use std::collections::BTreeSet;
use testudo_base::shard::{SHARDS, ShardSet};
use testudo_base::spi::Shard;

/// The owner table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnerTable {
    /// How the members of the view rank.
    ranking: Ranking,
    /// Nodes of the view that hold the state, sorted. Only these can own shards.
    synced: Vec<NodeId>,
    /// Those of them that have lost a port: they own only shards that no other node can own.
    unfit: BTreeSet<NodeId>,
    /// Those of them that an operator has drained: they own only shards that no other node can own.
    drained: BTreeSet<NodeId>,
    owner: [Option<NodeId>; SHARDS],
    standby: [Option<NodeId>; SHARDS],
    /// The node that should own each shard: the first rank.
    first: [Option<NodeId>; SHARDS],
}

/// A node that may own shards.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    node: NodeId,
    /// It owns only shards that no other node can own.
    last: bool,
}

/// Shards whose owner or standby has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) owner: ShardSet,
    pub(crate) standby: ShardSet,
}

impl OwnerTable {
    /// A table without owners.
    pub(crate) fn new() -> Self {
        Self {
            ranking: Ranking::default(),
            synced: Vec::new(),
            unfit: BTreeSet::new(),
            drained: BTreeSet::new(),
            owner: [None; SHARDS],
            standby: [None; SHARDS],
            first: [None; SHARDS],
        }
    }

    pub(crate) fn owner(&self, shard: Shard) -> Option<NodeId> {
        self.owner.get(usize::from(shard.0)).copied().flatten()
    }

    pub(crate) fn standby(&self, shard: Shard) -> Option<NodeId> {
        self.standby.get(usize::from(shard.0)).copied().flatten()
    }

    pub(crate) fn ranking(&self) -> Ranking {
        self.ranking
    }

    pub(crate) fn synced(&self) -> &[NodeId] {
        &self.synced
    }

    pub(crate) fn owned_by(&self, node: NodeId) -> ShardSet {
        all().filter(|shard| self.owner(*shard) == Some(node)).collect()
    }

    /// The shards whose standby is this node.
    pub(crate) fn standby_of(&self, node: NodeId) -> ShardSet {
        all().filter(|shard| self.standby(*shard) == Some(node)).collect()
    }

    /// The shards whose standby is none of these nodes.
    pub(crate) fn standby_not_of(&self, nodes: &[NodeId]) -> ShardSet {
        all().filter(|shard| self.standby(*shard).is_some_and(|standby| !nodes.contains(&standby))).collect()
    }

    /// A view begins, in which these members hold the state. The shards of an owner that is not
    /// among them go to their first rank among them: the standby, unless it is gone too. If the
    /// members rank otherwise than before, shards move by handover.
    pub(crate) fn view(&mut self, synced: &[NodeId], ranking: Ranking) -> Changes {
        self.ranking = ranking;
        self.synced = synced.to_vec();
        self.synced.sort_unstable();
        self.unfit.retain(|node| synced.contains(node));
        // A node that comes back is not drained any more.
        self.drained.retain(|node| synced.contains(node));
        self.update()
    }

    /// Drains a node, or ends its draining. Its shards get another owner only once it has handed
    /// them over.
    pub(crate) fn set_drained(&mut self, node: NodeId, drained: bool) -> Changes {
        match drained && self.synced.contains(&node) {
            true => self.drained.insert(node),
            false => self.drained.remove(&node),
        };
        self.update()
    }

    /// The drained nodes.
    pub(crate) fn drained(&self) -> &BTreeSet<NodeId> {
        &self.drained
    }

    /// True if the node owns only shards that no other node can own.
    pub(crate) fn is_last(&self, node: NodeId) -> bool {
        self.unfit.contains(&node) || self.drained.contains(&node)
    }

    /// A node has lost a port, or has all of them again. Its shards get another owner only once it
    /// has handed them over.
    pub(crate) fn set_fit(&mut self, node: NodeId, fit: bool) -> Changes {
        match fit {
            true => self.unfit.remove(&node),
            false => self.unfit.insert(node),
        };
        self.update()
    }

    /// Nodes that have lost a port.
    pub(crate) fn unfit(&self) -> &BTreeSet<NodeId> {
        &self.unfit
    }

    /// The nodes that may own shards. An unfit or drained node ranks behind all others.
    fn candidates(&self) -> Vec<Candidate> {
        self.synced.iter().map(|node| Candidate { node: *node, last: self.is_last(*node) }).collect()
    }

    /// More members hold the state now. They become standbys; shards are theirs only once their
    /// owners have handed them over.
    pub(crate) fn synced_too(&mut self, nodes: &[NodeId]) -> Changes {
        self.synced.extend(nodes);
        self.synced.sort_unstable();
        self.synced.dedup();
        self.update()
    }

    /// The owner's number of each shard; 0 if it has none.
    pub(crate) fn owners(&self) -> Vec<u8> {
        self.owner.iter().map(|owner| owner.map_or(0, NodeId::get)).collect()
    }

    /// Adopts the table of the nodes that hold the state, and discards what this node derived by
    /// itself.
    pub(crate) fn adopt(&mut self, owners: &[u8], unfit: &[NodeId], drained: &[NodeId]) {
        self.unfit = unfit.iter().copied().collect();
        self.drained = drained.iter().copied().collect();
        for (owner, number) in self.owner.iter_mut().zip(owners) {
            *owner = NodeId::new(u32::from(*number));
        }
        self.update();
    }

    /// No node holds any state: all shards get their owners anew.
    pub(crate) fn reset(&mut self) {
        *self = Self::new();
    }

    /// Applies a SEG_DROP. `None`, and no change, if the shard was not the sender's, or the
    /// receiver cannot own it (any more).
    pub(crate) fn drop(&mut self, from: NodeId, shard: Shard, to: NodeId) -> Option<Changes> {
        let owner = self.owner.get_mut(usize::from(shard.0))?;
        if *owner != Some(from) || !self.synced.contains(&to) {
            return None;
        }
        *owner = Some(to);
        let mut changes = Changes::default();
        self.update_shard(shard, &self.candidates(), &mut changes);
        changes.owner.insert(shard);
        Some(changes)
    }

    /// The shards of `owner` that another node should own, each with that node: the first rank.
    pub(crate) fn misplaced(&self, owner: NodeId) -> impl Iterator<Item = (Shard, NodeId)> + '_ {
        all().zip(&self.first).filter_map(move |(shard, first)| {
            let first = (*first)?;
            (self.owner(shard) == Some(owner) && first != owner).then_some((shard, first))
        })
    }

    fn update(&mut self) -> Changes {
        let mut changes = Changes::default();
        let candidates = self.candidates();
        all().for_each(|shard| self.update_shard(shard, &candidates, &mut changes));
        changes
    }

    #[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "there is an entry for each shard"))]
    fn update_shard(&mut self, shard: Shard, candidates: &[Candidate], changes: &mut Changes) {
        let (index, ranking) = (usize::from(shard.0), self.ranking);
        let (owner, standby, first) =
            (&mut self.owner[index], &mut self.standby[index], &mut self.first[index]);
        *first = best(ranking, shard, candidates, None);
        if !owner.is_some_and(|owner| candidates.iter().any(|candidate| candidate.node == owner)) {
            *owner = *first;
            changes.owner.insert(shard);
        }
        let next = if *first == *owner { best(ranking, shard, candidates, *owner) } else { *first };
        if *standby != next {
            *standby = next;
            changes.standby.insert(shard);
        }
    }
}

/// The first rank of a shard, leaving one node out.
fn best(ranking: Ranking, shard: Shard, candidates: &[Candidate], without: Option<NodeId>) -> Option<NodeId> {
    let rest = candidates.iter().filter(|candidate| Some(candidate.node) != without);
    rest.min_by_key(|of| (of.last, ranking.rank(shard, of.node))).map(|of| of.node)
}

fn all() -> impl Iterator<Item = Shard> {
    (0..=u8::MAX).map(Shard)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::ranks;
    use proptest::prelude::*;

    fn node(number: u32) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn nodes(numbers: &[u32]) -> Vec<NodeId> {
        numbers.iter().map(|number| node(*number)).collect()
    }

    #[test]
    fn at_first_the_first_rank_owns_and_the_second_is_standby() {
        let mut table = OwnerTable::new();
        let changes = table.view(&nodes(&[3, 1, 2]), Ranking::Balanced);
        assert_eq!((changes.owner, changes.standby), (ShardSet::ALL, ShardSet::ALL));
        for shard in all() {
            let ranked = ranks(shard, &nodes(&[1, 2, 3]));
            assert_eq!((table.owner(shard), table.standby(shard)), (Some(ranked[0]), Some(ranked[1])));
        }
        assert_eq!(table.misplaced(node(1)).count(), 0);
    }

    #[test]
    fn standbys_inherit_and_who_comes_back_gets_its_shards_by_handover_only() {
        let mut table = OwnerTable::new();
        table.view(&nodes(&[1, 2, 3]), Ranking::Balanced);
        let before = table.clone();
        let changes = table.view(&nodes(&[1, 2]), Ranking::Balanced);
        assert_eq!(changes.owner, before.owned_by(node(3)));
        assert!(changes.owner.iter().all(|shard| table.owner(shard) == before.standby(shard)));
        // The node is back, without shards at first.
        let table_of_two = table.clone();
        assert_eq!(table.view(&nodes(&[1, 2]), Ranking::Balanced), Changes::default());
        let changes = table.synced_too(&[node(3)]);
        assert!(
            changes.owner.is_empty() && all().all(|shard| table.owner(shard) == table_of_two.owner(shard))
        );
        assert!(changes.standby.iter().all(|shard| table.standby(shard) == Some(node(3))));
        // Now each owner hands over, and the table is the first one again.
        for owner in nodes(&[1, 2]) {
            let misplaced: Vec<_> = table.misplaced(owner).collect();
            for (shard, to) in misplaced {
                assert_eq!(to, node(3));
                assert_eq!(table.drop(node(3), shard, to), None, "not the sender's to give");
                assert!(table.drop(owner, shard, to).unwrap().owner.contains(shard));
                assert_eq!(table.drop(owner, shard, to), None, "given once");
            }
        }
        assert_eq!(table, before);
    }

    #[test]
    fn a_shard_is_not_given_to_who_is_not_there() {
        let mut table = OwnerTable::new();
        table.view(&nodes(&[1, 2]), Ranking::Balanced);
        let shard = table.owned_by(node(1)).iter().next().unwrap();
        assert_eq!(table.drop(node(1), shard, node(3)), None);
        assert_eq!(table.owner(shard), Some(node(1)));
    }

    #[test]
    fn a_node_that_lost_a_port_gives_its_shards_away_and_gets_them_back() {
        let mut table = OwnerTable::new();
        table.view(&nodes(&[1, 2, 3]), Ranking::Balanced);
        let before = table.clone();
        let changes = table.set_fit(node(2), false);
        assert!(changes.owner.is_empty() && all().all(|shard| table.standby(shard) != Some(node(2))));
        assert_eq!(table.misplaced(node(2)).count(), before.owned_by(node(2)).len());
        assert!(table.misplaced(node(2)).all(|(shard, to)| before.standby(shard) == Some(to)));
        let hand_over = |table: &mut OwnerTable| {
            for owner in nodes(&[1, 2, 3]) {
                let misplaced: Vec<_> = table.misplaced(owner).collect();
                for (shard, to) in misplaced {
                    table.drop(owner, shard, to).unwrap();
                }
            }
        };
        hand_over(&mut table);
        assert!(table.owned_by(node(2)).is_empty());
        // The loss of a port is remembered over views that include the node. It still takes shards
        // for which no other node is left.
        table.view(&nodes(&[1, 2]), Ranking::Balanced);
        assert!(
            table.owned_by(node(2)).is_empty() && all().all(|shard| table.standby(shard) == Some(node(2)))
        );
        table.view(&nodes(&[2]), Ranking::Balanced);
        assert_eq!(table.owned_by(node(2)).len(), SHARDS);
        table.synced_too(&nodes(&[1, 3]));
        table.set_fit(node(2), true);
        hand_over(&mut table);
        assert_eq!(table, before);
        // A node that comes back publishes its fitness again.
        table.set_fit(node(3), false);
        table.view(&nodes(&[1, 2]), Ranking::Balanced);
        assert!(table.unfit().is_empty());
    }

    #[test]
    fn members_that_rank_anew_move_shards_by_handover_only() {
        let three = nodes(&[1, 2, 3]);
        let (mut table, mut fresh) = (OwnerTable::new(), OwnerTable::new());
        table.view(&three, Ranking::Hashed);
        let before = table.owners();
        let changes = table.view(&three, Ranking::Balanced);
        assert!(changes.owner.is_empty() && table.owners() == before);
        for owner in &three {
            let misplaced: Vec<_> = table.misplaced(*owner).collect();
            for (shard, to) in misplaced {
                assert_eq!(table.standby(shard), Some(to), "the standby gets it");
                table.drop(*owner, shard, to).unwrap();
            }
        }
        fresh.view(&three, Ranking::Balanced);
        assert!(table == fresh && table.owners() != before);
    }

    #[test]
    fn alone_there_is_no_standby() {
        let mut table = OwnerTable::new();
        table.view(&nodes(&[2]), Ranking::Balanced);
        assert!(all().all(|shard| table.owner(shard) == Some(node(2)) && table.standby(shard).is_none()));
    }

    proptest! {
        /// Whatever happens, each shard has one owner among the synced nodes, and a standby that is
        /// another of them if there is one.
        #[test]
        fn every_shard_has_an_owner_and_another_as_standby(
            views in prop::collection::vec((prop::collection::btree_set(1_u32..8, 1..7), any::<bool>()), 1..12),
        ) {
            let mut table = OwnerTable::new();
            for (view, grows) in views {
                let view = nodes(&view.into_iter().collect::<Vec<_>>());
                let before = table.clone();
                let changes = if grows { table.synced_too(&view) } else { table.view(&view, Ranking::Balanced) };
                for shard in all() {
                    let owner = table.owner(shard).unwrap();
                    prop_assert!(table.synced().contains(&owner));
                    prop_assert_eq!(table.standby(shard).is_some(), table.synced().len() > 1);
                    prop_assert!(table.standby(shard) != Some(owner));
                    prop_assert_eq!(changes.owner.contains(shard), before.owner(shard) != Some(owner));
                    prop_assert_eq!(changes.standby.contains(shard), before.standby(shard) != table.standby(shard));
                    let first = ranks(shard, table.synced()).first().copied();
                    let expected = first.filter(|first| *first != owner).map(|first| (shard, first));
                    prop_assert_eq!(table.misplaced(owner).find(|(misplaced, _)| *misplaced == shard), expected);
                    if let Some(kept) = before.owner(shard).filter(|kept| table.synced().contains(kept)) {
                        prop_assert_eq!(kept, owner, "who is there keeps what it has");
                    }
                }
                let misplaced: Vec<_> = table.synced().iter().flat_map(|node| table.misplaced(*node)).collect();
                for (shard, to) in misplaced {
                    let owner = table.owner(shard).unwrap();
                    prop_assert!(table.drop(owner, shard, to).is_some());
                }
            }
        }
    }
}
