//! Shards and their ranks.

use crate::node::NodeId;
use std::cmp::Reverse;
use testudo_base::spi::Shard;

/// The nodes that would own a shard, by rank: rendezvous hashing. When a node leaves, only its own
/// shards change hands, and each goes to the node that all knew before as its standby.
pub fn ranks(shard: Shard, nodes: &[NodeId]) -> Vec<NodeId> {
    let mut ranked: Vec<NodeId> = nodes.to_vec();
    ranked.sort_unstable_by_key(|node| rank(shard, *node));
    ranked
}

/// Sort key of a node for a shard: the least is the first rank.
pub(crate) fn rank(shard: Shard, node: NodeId) -> (Reverse<u64>, NodeId) {
    (Reverse(weight(shard, node)), node)
}

/// The finaliser of MurmurHash3 over both numbers: it spreads well, and is the same everywhere.
fn weight(shard: Shard, node: NodeId) -> u64 {
    let mut x = u64::from(shard.0) << 8 | u64::from(node.get());
    for factor in [0xff51_afd7_ed55_8ccd_u64, 0xc4ce_b9fe_1a85_ec53] {
        x ^= x >> 33;
        x = x.wrapping_mul(factor);
    }
    x ^ x >> 33
}

#[cfg(test)]
mod tests {
    use super::*;
    use testudo_base::shard::SHARDS;

    fn nodes(numbers: impl IntoIterator<Item = u32>) -> Vec<NodeId> {
        numbers.into_iter().filter_map(NodeId::new).collect()
    }

    fn all() -> impl Iterator<Item = Shard> {
        (0..=u8::MAX).map(Shard)
    }

    #[test]
    fn a_leaving_node_moves_only_its_own_shards_to_their_second_ranks() {
        let before = nodes(1..=5);
        let after = nodes([1, 2, 4, 5]);
        for shard in all() {
            let old = ranks(shard, &before);
            let expected = old.iter().copied().find(|node| node.get() != 3);
            assert_eq!(ranks(shard, &after).first().copied(), expected, "shard {}", shard.0);
        }
    }

    #[test]
    fn shards_spread_evenly() {
        for count in 2..=7 {
            let nodes = nodes(1..=count);
            for node in &nodes {
                let owned = all().filter(|shard| ranks(*shard, &nodes).first() == Some(node)).count();
                let fair = SHARDS / nodes.len();
                assert!((fair * 6 / 10..=fair * 15 / 10).contains(&owned), "{node} of {count} owns {owned}");
            }
        }
    }
}
