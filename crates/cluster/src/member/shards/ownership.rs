//! The owner and the standby of each shard: a function of the total order alone, so that all
//! members of a view agree at every position. Suspicion has no influence here.

use crate::node::NodeId;
use crate::shard::Ranking;
use crate::update::Preference;
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
    /// The node that should own each shard: the preferred one, or the first rank.
    first: [Option<NodeId>; SHARDS],
    preferences: [Preference; SHARDS],
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
            preferences: [Preference::default(); SHARDS],
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

    /// Where a shard should be.
    pub(crate) fn preference(&self, shard: Shard) -> Preference {
        self.preferences.get(usize::from(shard.0)).copied().unwrap_or_default()
    }

    /// All preferences that are not the initial one.
    pub(crate) fn preferences(&self) -> Vec<(Shard, Preference)> {
        let each = all().zip(self.preferences);
        each.filter(|(_, preference)| *preference != Preference::default()).collect()
    }

    /// A shard should be at another node. It gets there only once its owner has handed it over.
    pub(crate) fn prefer(&mut self, shard: Shard, preference: Preference) -> Changes {
        self.note_preference(shard, preference);
        let mut changes = Changes::default();
        self.update_shard(shard, &self.candidates(), &mut changes);
        changes
    }

    fn note_preference(&mut self, shard: Shard, preference: Preference) {
        if let Some(known) = self.preferences.get_mut(usize::from(shard.0)) {
            *known = preference;
        }
    }

    /// Some members do not know preferences: all forget them before the view begins.
    pub(crate) fn forget_preferences(&mut self) {
        self.preferences = [Preference::default(); SHARDS];
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
    pub(crate) fn adopt(
        &mut self,
        owners: &[u8],
        unfit: &[NodeId],
        drained: &[NodeId],
        preferences: &[(Shard, Preference)],
    ) {
        self.unfit = unfit.iter().copied().collect();
        self.drained = drained.iter().copied().collect();
        self.forget_preferences();
        for (shard, preference) in preferences {
            self.note_preference(*shard, *preference);
        }
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

    /// The shards of `owner` that another node should own, each with that node.
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
        let preferred = self.preferences[index].node;
        let best = |without| best(ranking, shard, candidates, preferred, without);
        *first = best(None);
        if !owner.is_some_and(|owner| candidates.iter().any(|candidate| candidate.node == owner)) {
            *owner = *first;
            changes.owner.insert(shard);
        }
        let next = if *first == *owner { best(*owner) } else { *first };
        if *standby != next {
            *standby = next;
            changes.standby.insert(shard);
        }
    }
}

/// The preferred node of a shard, or else its first rank, leaving one node out.
fn best(
    ranking: Ranking,
    shard: Shard,
    candidates: &[Candidate],
    preferred: Option<NodeId>,
    without: Option<NodeId>,
) -> Option<NodeId> {
    let rest = candidates.iter().filter(|candidate| Some(candidate.node) != without);
    let key = |of: &&Candidate| (of.last, Some(of.node) != preferred, ranking.rank(shard, of.node));
    rest.min_by_key(key).map(|of| of.node)
}

fn all() -> impl Iterator<Item = Shard> {
    (0..=u8::MAX).map(Shard)
}

#[cfg(test)]
mod tests;
