//! Shards and their ranks.

mod places;

use crate::node::NodeId;
use places::PLACES;
use std::cmp::Reverse;
use testudo_base::spi::Shard;

/// How the nodes rank for a shard. All members of a view rank alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ranking {
    /// By weights that are hashes of shard and node.
    Hashed,
    /// The same, but the nodes 1 to 8 exchange their weights so that each of them gets as many
    /// shards as the others, whichever of them are there. So do 9 to 16, and the next eight.
    #[default]
    Balanced,
}

/// Nodes that exchange their weights.
const GROUP: u8 = 8;

impl Ranking {
    /// Sort key of a node for a shard: the least is the first rank.
    pub(crate) fn rank(self, shard: Shard, node: NodeId) -> (Reverse<u64>, NodeId) {
        let own = weight(shard, node.get());
        let weight = match self {
            Self::Hashed => own,
            Self::Balanced => balanced(shard, node).unwrap_or(own),
        };
        (Reverse(weight), node)
    }

    /// The nodes that would own a shard, by rank. When a node leaves, only its own shards change
    /// hands, and each goes to the node that all knew before as its standby.
    pub fn ranks(self, shard: Shard, nodes: &[NodeId]) -> Vec<NodeId> {
        let mut ranked: Vec<NodeId> = nodes.to_vec();
        // A weight costs more than the comparison.
        ranked.sort_by_cached_key(|node| self.rank(shard, *node));
        ranked
    }
}

/// The nodes that would own a shard, by rank, in a cluster whose nodes all have this version.
pub fn ranks(shard: Shard, nodes: &[NodeId]) -> Vec<NodeId> {
    Ranking::default().ranks(shard, nodes)
}

/// The weight that a node gets by its place among its group: the table deals out the weights of
/// the group. Between nodes of different groups the hash decides, as if there were no table.
fn balanced(shard: Shard, node: NodeId) -> Option<u64> {
    let index = node.get().checked_sub(1)?;
    let (group, member) = (index / GROUP, u32::from(index % GROUP + 1));
    let row = *PLACES.get(usize::from(shard.0))?;
    let place = (0..usize::from(GROUP)).find(|place| row << (4 * place) >> 28 == member)?;
    let mut weights: [u64; GROUP as usize] =
        std::array::from_fn(|of| weight(shard, group * GROUP + of as u8 + 1));
    weights.sort_unstable_by_key(|weight| Reverse(*weight));
    weights.get(place).copied()
}

/// The finaliser of MurmurHash3 over both numbers: it spreads well, and is the same everywhere.
fn weight(shard: Shard, node: u8) -> u64 {
    let mut x = u64::from(shard.0) << 8 | u64::from(node);
    for factor in [0xff51_afd7_ed55_8ccd_u64, 0xc4ce_b9fe_1a85_ec53] {
        x ^= x >> 33;
        x = x.wrapping_mul(factor);
    }
    x ^ x >> 33
}

#[cfg(test)]
mod tests;
