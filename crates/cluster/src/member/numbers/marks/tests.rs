use super::*;
use crate::member::samples::{START, child, first, id, insert, member, only, spread_child};
use testudo_base::spi::SenderId;

fn seconds(seconds: u64) -> Time {
    START.plus(Duration::from_secs(seconds))
}

/// Those of lanes say nothing of its mark.
#[test]
fn a_shard_is_in_doubt_if_a_mark_of_its_child_sas_is() {
    let mut marks = HighWaterMarks::default();
    let (of_mark, of_lanes) = (Spi(0x0100_0400), Spi(0x0200_0400));
    marks.doubt(START, of_mark, 5000, false);
    marks.doubt(START, of_lanes, 6000, true);
    let doubtful: Vec<u8> = (0..=255).filter(|shard| marks.is_doubtful(Shard(*shard))).collect();
    assert_eq!(doubtful, [1]);
    assert_eq!(marks.doubtful_lanes(ShardSet::ALL).collect::<Vec<_>>(), [(of_lanes, 6000)]);
}

/// The time in which it stood still does not count.
#[test]
fn the_rate_of_a_child_sa_that_has_stood_still_is_measured_from_the_last_report() {
    let mut marks = HighWaterMarks::default();
    let mut child = child(Shard(1), 0);
    marks.moved_to(seconds(1), Shard(1), &mut child, 1000);
    assert_eq!(marks.rate(Shard(1), &child), 1000);
    for at in 1..=9 {
        marks.told_all(seconds(at), std::iter::once(Shard(1)));
    }
    assert_eq!(marks.rate(Shard(1), &child), 0);
    marks.moved_to(seconds(10), Shard(1), &mut child, 3000);
    assert_eq!((marks.rate(Shard(1), &child), child.mark), (2000, 3000));
    marks.moved_to(seconds(12), Shard(1), &mut child, 4000);
    assert_eq!(marks.rate(Shard(1), &child), 500);
}

/// Others would take a floor that may be forged for a mark, and so would the owner itself.
#[test]
fn marks_of_own_shards_are_told_and_those_in_doubt_or_of_shards_that_may_become_own_wait() {
    let member = &mut member();
    let (core, numbers, replicas) =
        (&mut member.core, &mut member.replication.numbers, &mut member.replication.replicas);
    let shards = |node| core.table.owned_by(id(node)).iter().take(3).collect::<Vec<_>>();
    let (own, others) = (shards(1), shards(2));
    let (sure, doubtful, of_lanes, provisional, theirs) = (own[0], own[1], own[2], others[0], others[1]);
    let active = [sure, doubtful, of_lanes].into_iter().collect::<ShardSet>();
    let children = [
        child(sure, 0),
        child(doubtful, 0),
        spread_child(of_lanes, 0),
        child(provisional, 0),
        child(theirs, 0),
    ];
    let spis = insert(replicas, children);
    numbers.marks.doubt(START, spis[1], 9000, false);
    numbers.marks.doubt(START, spis[2], 9000, true);
    let carried = only(provisional);
    numbers.tell_marks(core, replicas, seconds(1), false, active, carried);
    assert!(numbers.marks.all_told.is_empty(), "other marks may have moved");
    numbers.note_marks(&spis.map(|spi| (spi, 70)));
    numbers.tell_marks(core, replicas, seconds(1), true, active, carried);
    assert_eq!(spis.map(|spi| replicas.child(spi).unwrap().mark), [70, 0, 70, 0, 0]);
    let waiting: Vec<Spi> = numbers.marks.moved.keys().copied().collect();
    let mut expected = [spis[1], spis[3]];
    expected.sort_unstable();
    assert_eq!(waiting, expected);
    let sure: Vec<Shard> = numbers.marks.all_told.keys().copied().collect();
    assert_eq!(sure.into_iter().collect::<ShardSet>(), active.without(only(doubtful)));
}

#[test]
fn floors_of_lanes_are_in_doubt_while_they_lie_above_the_mark() {
    let member = &mut member();
    let (core, numbers, replicas) =
        (&member.core, &mut member.replication.numbers, &mut member.replication.replicas);
    let shard = first(core.table.owned_by(id(1)));
    let children = [spread_child(shard, 0), spread_child(shard, 1), child(shard, 2)];
    let spis = insert(replicas, children);
    replicas.child_mut(spis[1]).unwrap().mark = 5000;
    numbers.lane_floors_told(replicas, START, &spis.map(|spi| (spi, 5000)));
    let doubtful: Vec<(Spi, u64)> = numbers.marks.doubtful_lanes(ShardSet::ALL).collect();
    assert_eq!(doubtful, [(spis[0], 5000)], "the peer has passed one, and one has no lanes");
    assert!(!numbers.marks.is_doubtful(shard));
}

/// A peer far below its floor would be heard no more. It gets new keys, by the node that speaks for
/// its Child SA, and as soon as that can be.
#[test]
fn a_child_sa_in_doubt_is_rekeyed_where_its_ike_is_spoken_once_it_is_time() {
    let member = &mut member();
    let (core, numbers, replicas) =
        (&mut member.core, &mut member.replication.numbers, &mut member.replication.replicas);
    let children = [0, 1, 2, 3].map(|shard| child(Shard(shard), 0));
    let [due, later, elsewhere, reached] = insert(replicas, children);
    replicas.child_mut(reached).unwrap().mark = 9000;
    for (spi, at) in [(due, 1), (later, 2), (elsewhere, 1), (reached, 1)] {
        numbers.marks.doubt(seconds(at), spi, 9000, false);
    }
    let spoken: ShardSet = [0, 1, 3].into_iter().map(Shard).collect();
    let at = |numbers: &Numbers| {
        let at = |spi| numbers.marks.doubtful.get(&spi).map(|doubt| doubt.at);
        [due, later, elsewhere, reached].map(at)
    };
    let before = at(numbers);
    numbers.renew_doubtful(core, replicas, seconds(1), spoken);
    assert_eq!(at(numbers), before, "this node may not speak");
    (core.view.running, core.sender, core.fence) = (true, Some(SenderId(1)), seconds(100));
    numbers.renew_doubtful(core, replicas, seconds(1), spoken);
    // No IKE SA here has the Child SA, as when the peer has just made it.
    let again = Some(seconds(1).plus(REKEY_RETRY_INTERVAL));
    assert_eq!(at(numbers), [again, Some(seconds(2)), Some(seconds(1)), None]);
}

/// The windows of the data plane stay as they are, and with them floors that are too high.
#[test]
fn of_a_node_whose_state_is_void_only_doubts_stay() {
    let mut numbers = Numbers::new(1);
    let mut child = child(Shard(1), 0);
    numbers.marks.doubt(START, child.params.spi_in, 9000, false);
    numbers.marks.moved_to(seconds(1), Shard(1), &mut child, 1000);
    numbers.marks.told_all(seconds(1), std::iter::once(Shard(1)));
    numbers.note_marks(&[(child.params.spi_in, 70)]);
    numbers.void_marks();
    let marks = &numbers.marks;
    assert!(marks.is_doubtful(Shard(1)) && marks.all_told.is_empty() && marks.moved.is_empty());
}
