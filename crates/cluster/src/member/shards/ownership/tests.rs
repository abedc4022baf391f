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
    assert!(changes.owner.is_empty() && all().all(|shard| table.owner(shard) == table_of_two.owner(shard)));
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
    assert!(table.owned_by(node(2)).is_empty() && all().all(|shard| table.standby(shard) == Some(node(2))));
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
    // A case asks for the ranks of all shards a dozen times.
    #![proptest_config(ProptestConfig::with_cases(64))]

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
            let of = |node: NodeId| table.misplaced(node).map(move |(shard, to)| (node, shard, to));
            let misplaced: Vec<_> = table.synced().iter().flat_map(|node| of(*node)).collect();
            for shard in all() {
                let owner = table.owner(shard).unwrap();
                prop_assert!(table.synced().contains(&owner));
                prop_assert_eq!(table.standby(shard).is_some(), table.synced().len() > 1);
                prop_assert!(table.standby(shard) != Some(owner));
                prop_assert_eq!(changes.owner.contains(shard), before.owner(shard) != Some(owner));
                prop_assert_eq!(changes.standby.contains(shard), before.standby(shard) != table.standby(shard));
                let first = ranks(shard, table.synced()).first().copied();
                let found = misplaced.iter().find(|(from, misplaced, _)| (*from, *misplaced) == (owner, shard));
                let expected = first.filter(|first| *first != owner);
                prop_assert_eq!(found.map(|(.., to)| *to), expected);
                if let Some(kept) = before.owner(shard).filter(|kept| table.synced().contains(kept)) {
                    prop_assert_eq!(kept, owner, "who is there keeps what it has");
                }
            }
            for (owner, shard, to) in misplaced {
                prop_assert!(table.drop(owner, shard, to).is_some());
            }
        }
    }
}

fn preferred(number: u32) -> Preference {
    Preference { node: Some(node(number)), level: 1 }
}

#[test]
fn a_preferred_node_gets_the_shard_by_handover_while_it_is_there_and_fit() {
    let mut table = OwnerTable::new();
    table.view(&nodes(&[1, 2, 3]), Ranking::Balanced);
    let shard = table.owned_by(node(1)).iter().next().unwrap();
    let (to, third) = match table.standby(shard).unwrap().get() {
        2 => (3, 2),
        _ => (2, 3),
    };
    let changes = table.prefer(shard, preferred(to));
    assert!(changes.owner.is_empty() && changes.standby.contains(shard));
    assert_eq!(table.misplaced(node(1)).collect::<Vec<_>>(), [(shard, node(to))]);
    assert_eq!((table.owner(shard), table.standby(shard)), (Some(node(1)), Some(node(to))));
    table.drop(node(1), shard, node(to)).unwrap();
    assert_eq!((table.owner(shard), table.standby(shard)), (Some(node(to)), Some(node(1))));
    // Drained, it gives the shard to the first rank, and gets it back.
    table.set_drained(node(to), true);
    assert_eq!(table.misplaced(node(to)).find(|(of, _)| *of == shard), Some((shard, node(1))));
    table.set_drained(node(to), false);
    assert!(table.misplaced(node(to)).all(|(of, _)| of != shard));
    // It leaves: its standby owns the shard, until it comes back.
    table.view(&nodes(&[1, third]), Ranking::Balanced);
    assert_eq!(table.owner(shard), Some(node(1)));
    table.synced_too(&nodes(&[to]));
    assert!(table.misplaced(node(1)).any(|misplaced| misplaced == (shard, node(to))));
    // Some member does not know preferences.
    table.forget_preferences();
    table.view(&nodes(&[1, 2, 3]), Ranking::Balanced);
    assert!(table.misplaced(node(1)).all(|(of, _)| of != shard));
}

#[test]
fn a_table_that_is_adopted_has_the_preferences_of_the_others_only() {
    let mut table = OwnerTable::new();
    table.view(&nodes(&[1, 2, 3]), Ranking::Balanced);
    table.prefer(Shard(7), preferred(2));
    table.prefer(Shard(8), Preference { node: None, level: 3 });
    let mut fresh = OwnerTable::new();
    fresh.view(&nodes(&[1, 2, 3]), Ranking::Balanced);
    fresh.prefer(Shard(9), preferred(3));
    fresh.adopt(&table.owners(), &[], &[], &table.preferences());
    assert_eq!(fresh, table);
}
