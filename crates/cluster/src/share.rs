//! Shares and who owns them.

pub use testudo_ipsec::share::{SHARES, ShareSet};

use crate::node::NodeId;
use std::cmp::Reverse;
use testudo_ipsec::spi::Share;

/// Who would own each share among some nodes, by rank: rendezvous hashing, so that when a node leaves only its own shares
/// change hands, and each goes to whom every node knew before as its heir.
pub fn ranks(share: Share, nodes: &[NodeId]) -> Vec<NodeId> {
    let mut ranked: Vec<NodeId> = nodes.to_vec();
    ranked.sort_unstable_by_key(|node| rank(share, *node));
    ranked
}

/// What nodes are ranked by for a share: the least is the first.
pub(crate) fn rank(share: Share, node: NodeId) -> (Reverse<u64>, NodeId) {
    (Reverse(weight(share, node)), node)
}

/// The finaliser of MurmurHash3 over both numbers: it spreads well, and is the same everywhere.
fn weight(share: Share, node: NodeId) -> u64 {
    let mut x = u64::from(share.0) << 8 | u64::from(node.get());
    for factor in [0xff51_afd7_ed55_8ccd_u64, 0xc4ce_b9fe_1a85_ec53] {
        x ^= x >> 33;
        x = x.wrapping_mul(factor);
    }
    x ^ x >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(numbers: impl IntoIterator<Item = u32>) -> Vec<NodeId> {
        numbers.into_iter().filter_map(NodeId::new).collect()
    }

    fn all() -> impl Iterator<Item = Share> {
        (0..=u8::MAX).map(Share)
    }

    #[test]
    fn who_leaves_leaves_its_own_shares_to_their_second_ranks_and_nothing_else_moves() {
        let before = nodes(1..=5);
        let after = nodes([1, 2, 4, 5]);
        for share in all() {
            let old = ranks(share, &before);
            let expected = old.iter().copied().find(|node| node.get() != 3);
            assert_eq!(ranks(share, &after).first().copied(), expected, "share {}", share.0);
        }
    }

    #[test]
    fn shares_spread_evenly() {
        for count in 2..=7 {
            let nodes = nodes(1..=count);
            for node in &nodes {
                let owned = all().filter(|share| ranks(*share, &nodes).first() == Some(node)).count();
                let fair = SHARES / nodes.len();
                assert!((fair * 6 / 10..=fair * 15 / 10).contains(&owned), "{node} of {count} owns {owned}");
            }
        }
    }
}
