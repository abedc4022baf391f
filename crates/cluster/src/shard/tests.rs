use super::*;
use std::collections::BTreeSet;
use testudo_base::shard::SHARDS;

fn nodes(numbers: impl IntoIterator<Item = u32>) -> Vec<NodeId> {
    numbers.into_iter().filter_map(NodeId::new).collect()
}

fn all() -> impl Iterator<Item = Shard> {
    (0..=u8::MAX).map(Shard)
}

/// How many shards each of these nodes has.
fn owned(ranking: Ranking, nodes: &[NodeId]) -> Vec<usize> {
    let firsts: Vec<_> = all().map(|shard| ranking.ranks(shard, nodes)[0]).collect();
    nodes.iter().map(|node| firsts.iter().filter(|first| *first == node).count()).collect()
}

#[test]
fn a_leaving_node_moves_only_its_own_shards_to_their_second_ranks() {
    for ranking in [Ranking::Hashed, Ranking::Balanced] {
        for before in [nodes(1..=5), nodes([1, 3, 8, 9, 20])] {
            let after: Vec<_> = before.iter().copied().filter(|node| node.get() != 3).collect();
            for shard in all() {
                let old = ranking.ranks(shard, &before);
                let expected = old.iter().copied().find(|node| node.get() != 3);
                assert_eq!(ranking.ranks(shard, &after).first().copied(), expected, "shard {}", shard.0);
            }
        }
    }
}

#[test]
fn all_nodes_have_ranks_and_no_two_have_one() {
    let nodes = nodes(1..=u32::from(NodeId::MAX));
    for shard in all() {
        let ranks: BTreeSet<_> = nodes.iter().map(|node| Ranking::Balanced.rank(shard, *node).0).collect();
        assert_eq!(ranks.len(), nodes.len(), "shard {}", shard.0);
    }
}

#[test]
fn each_row_of_the_table_has_each_of_eight_nodes() {
    for row in PLACES {
        let members: BTreeSet<u32> = (0..8).map(|place| row >> (4 * place) & 15).collect();
        assert_eq!(members, (1..=8).collect(), "{row:#x}");
    }
}

#[test]
fn shards_are_spread_evenly_over_any_of_the_first_eight_nodes() {
    // By the number of nodes: the most shards of a node, whichever nodes there are.
    let most = [0, 256, 128, 86, 65, 52, 44, 38, 33];
    for set in 1_u32..1 << 8 {
        let nodes = nodes((1..=8).filter(|node| set >> (node - 1) & 1 == 1));
        let owned = owned(Ranking::Balanced, &nodes);
        let fair = SHARDS / nodes.len();
        assert!(
            owned.iter().all(|owned| (fair - 2..=most[nodes.len()]).contains(owned)),
            "{nodes:?}: {owned:?}"
        );
    }
}

#[test]
fn the_next_eight_nodes_share_as_evenly_and_mixed_ones_as_by_the_hash() {
    let owned_by_next = owned(Ranking::Balanced, &nodes(9..=14));
    assert!(owned_by_next.iter().all(|owned| (41..=44).contains(owned)), "{owned_by_next:?}");
    for ranking in [Ranking::Hashed, Ranking::Balanced] {
        for numbers in [vec![1, 9], vec![1, 2, 3, 9, 10], vec![5, 12, 17, 31]] {
            let nodes = nodes(numbers);
            let fair = SHARDS / nodes.len();
            let owned = owned(ranking, &nodes);
            assert!(
                owned.iter().all(|owned| (fair * 6 / 10..=fair * 15 / 10).contains(owned)),
                "{nodes:?}: {owned:?}"
            );
        }
    }
}
