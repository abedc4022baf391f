use super::*;

const ENDED: Spi = Spi(0x0100_0400);
const OTHER: Spi = Spi(0x0100_0800);

fn grant(spi: Spi, start: u64) -> Option<Grant> {
    Some(Grant { spi, start, log2: 16 })
}

/// One block in each place where a block waits: about to be published, until it is stable, and
/// until the data plane is given it.
fn waiting_for(spis: [Spi; 2]) -> OwnBlocks {
    let mut own = OwnBlocks { budget: 100, ..OwnBlocks::default() };
    for spi in spis {
        own.add(grant(spi, 1), false, true);
    }
    own.published(Ticket(1));
    assert!(own.stable(|_| true).is_empty(), "one of many is due, and waits");
    for spi in spis {
        own.granted(grant(spi, 2), false);
    }
    own.published(Ticket(2));
    for spi in spis {
        own.granted(grant(spi, 3), false);
    }
    own
}

/// Its SPI may come round again: a block of the old Child SA must not be used for the new one.
#[test]
fn of_a_child_sa_that_ends_no_block_is_left() {
    let mut own = waiting_for([ENDED, OTHER]);
    own.forget(ENDED);
    assert_eq!((own.awaits(ENDED), own.awaits(OTHER)), (false, true));
    let mut used = own.take();
    used.extend(own.stable(|_| true));
    own.published(Ticket(3));
    used.extend(own.stable(|_| true));
    used.extend(own.take());
    let used: Vec<_> = used.iter().map(|coming| (coming.spi, coming.block.next)).collect();
    assert_eq!(used, [(OTHER, 1), (OTHER, 2), (OTHER, 3)]);
    assert!(!own.awaits(OTHER));
}

/// Blocks from an earlier time as standby lie below others that have been used since.
#[test]
fn who_becomes_standby_drops_what_it_was_granted_as_one_before_and_nothing_else() {
    let member = &mut crate::member::samples::member();
    let (core, numbers, replicas) =
        (&member.core, &mut member.replication.numbers, &mut member.replication.replicas);
    let shards: Vec<Shard> = core.table.standby_of(core.node).iter().take(2).collect();
    let (now, before) = (shards[0], shards[1]);
    let mut add = |shard, number, own| {
        let child = crate::member::samples::child(shard, number);
        let (spi, block) = (child.params.spi_in, SequenceBlock { next: 5, end: 9 });
        replicas.insert_child(child);
        numbers.own.due.push_back(Coming { spi, block, at_once: true, bulk: true, own });
        numbers.standby.push_back((Position::default(), spi, block));
        spi
    };
    let spis = [add(now, 0, true), add(now, 1, false), add(before, 0, false)];
    numbers.became_standby(core, replicas, crate::member::samples::only(now));
    let due: Vec<Spi> = numbers.own.due.iter().map(|due| due.spi).collect();
    assert_eq!(due, [spis[0], spis[2]], "its own blocks, and those of shards whose standby it was already");
    assert_eq!(numbers.standby.iter().map(|(_, spi, _)| *spi).collect::<Vec<_>>(), [spis[2]]);
    let outdated = spis.map(|spi| replicas.child(spi).unwrap().outdated);
    assert_eq!(outdated, [true, true, false]);
}

/// Heartbeats wait meanwhile.
#[test]
fn in_one_turn_no_more_blocks_are_used_than_its_budget() {
    let mut own = waiting_for([ENDED, OTHER]);
    own.budget = 1;
    assert_eq!([own.take().len(), own.take().len()], [1, 0]);
    own.budget = 9;
    assert_eq!((own.take().len(), own.budget), (1, 8));
}

/// The data plane uses the blocks of a Child SA in the order of their numbers.
#[test]
fn a_block_waits_behind_an_earlier_one_of_its_child_sa() {
    let mut own = waiting_for([ENDED, OTHER]);
    own.due.retain(|due| due.spi == OTHER);
    let now: Vec<Spi> = own.stable(|ticket| ticket == Ticket(2)).iter().map(|coming| coming.spi).collect();
    assert_eq!(now, [ENDED]);
    let due: Vec<_> = own.due.iter().map(|coming| (coming.spi, coming.block.next)).collect();
    assert_eq!(due, [(OTHER, 1), (OTHER, 2)]);
}

/// Its SAs are another node's now, which has numbers of its own.
#[test]
fn a_node_that_has_lost_its_sas_uses_no_block_of_theirs() {
    let mut own = waiting_for([ENDED, OTHER]);
    own.clear();
    assert!(!own.awaits(ENDED) && !own.awaits(OTHER));
    own.budget = 100;
    own.published(Ticket(3));
    assert!(own.stable(|_| true).is_empty() && own.take().is_empty());
}

/// Others wait for their turn.
#[test]
fn before_the_packets_of_a_shard_leave_its_blocks_are_used() {
    let member = &mut crate::member::samples::member();
    let (core, replication) = (&mut member.core, &mut member.replication);
    let (numbers, replicas) = (&mut replication.numbers, &mut replication.replicas);
    let [leaving, staying] = [Shard(1), Shard(2)].map(|shard| {
        let child = crate::member::samples::child(shard, 0);
        let (spi, block) = (child.params.spi_in, SequenceBlock { next: 5, end: 9 });
        replicas.insert_child(child);
        numbers.own.due.push_back(Coming { spi, block, at_once: true, bulk: true, own: true });
        spi
    });
    numbers.use_blocks_of(core, replicas, crate::member::samples::only(leaving.shard()));
    let given = |output| match output {
        MemberOutput::Numbers { spi_in, .. } => Some(spi_in),
        _ => None,
    };
    assert_eq!(core.outputs.drain(..).filter_map(given).collect::<Vec<_>>(), [leaving]);
    assert!(numbers.has_blocks());
    numbers.forget(staying);
    assert!(!numbers.has_blocks());
}
