use super::*;
use proptest::prelude::*;

fn marks(count: usize) -> Op {
    Op::HighWaterMarks {
        moved: (0..count).map(|n| (Spi(n as u32), n as u64)).collect(),
        all_of: ShardSet::EMPTY,
        epoch: 1,
    }
}

#[test]
fn an_update_is_what_was_published() {
    let ops = vec![
        marks(300),
        Op::SegOffer(Offer {
            shards: vec![(Shard(7), NodeId::new(3).unwrap())],
            neighbours: vec![(1, "10.1.0.2".parse().unwrap())],
            epoch: 4,
        }),
        Op::SegDrop {
            shard: Shard(7),
            to: NodeId::new(3).unwrap(),
            epoch: 4,
            left: Left { is_exact: true, handled: vec![u64::MAX; 3] },
        },
        Op::Renew(Grants {
            shard: Shard(1),
            standby: NodeId::new(2),
            grants: vec![Grant { spi: Spi(0x0100_0400), start: u64::MAX - 1, log2: 24 }],
        }),
    ];
    let octets = encode(NEWEST, &ops);
    assert_eq!(decode(&octets), Some(ops));
    let mut other = octets.clone();
    other[0] += 1;
    assert_eq!(decode(&other), None, "another version");
    assert_eq!(decode(&octets[..octets.len() - 1]), None, "cut");
    assert_eq!(decode(&[octets, vec![0]].concat()), None, "longer");
}

/// Nodes of older versions encode the outcome of an initiation as a [`Result`].
#[test]
fn the_outcome_of_an_initiation_is_encoded_as_a_result() {
    let reason = || "no answer".to_owned();
    for (outcome, result) in
        [(InitiationOutcome::Up, Ok(())), (InitiationOutcome::Failed { reason: reason() }, Err(reason()))]
    {
        let octets = postcard::to_allocvec(&outcome).unwrap();
        assert_eq!(postcard::from_bytes::<Result<(), String>>(&octets).as_ref(), Ok(&result));
        assert_eq!(postcard::to_allocvec(&result).unwrap(), octets);
    }
}

/// The format that nodes of version 15 read must not change: a view with such a node uses it.
#[test]
fn the_encoding_for_version_15_is_unchanged() {
    let ops = [
        Op::IkeWanted { spi: IkeSpi(1) },
        Op::ChildStart { spi: Spi(2) },
        Op::Drain { node: NodeId::new(3).unwrap(), drained: true },
        Op::Resynced { epoch: 4 },
    ];
    assert_eq!(encode(15, &ops), [15, 4, 4, 1, 8, 2, 18, 3, 1, 20, 4]);
}

#[test]
fn secrets_are_not_shown() {
    assert_eq!(format!("{:?}", Secret::new(Zeroizing::new(vec![1, 2, 3]))), "Secret(3 octets)");
}

proptest! {
    #[test]
    fn any_octets_are_read_without_panic(octets in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = decode(&octets);
    }

    #[test]
    fn what_is_cut_is_whole_together(counts in prop::collection::vec(0_usize..600, 0..20)) {
        let ops: Vec<Op> = counts.into_iter().map(marks).collect();
        let parts: Vec<Vec<Op>> = cut(ops.clone(), 4096).collect();
        prop_assert!(parts.iter().all(|part| part.len() == 1 || encode(NEWEST, part).len() <= 4096 + 64));
        prop_assert_eq!(parts.concat(), ops);
    }
}
