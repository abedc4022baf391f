use super::*;
use crate::group::Ingress;
use crate::member::Member;
use crate::member::core::Unheard;
use crate::member::samples::{
    START, first, has_published, id, insert, millis, only, routed_member, spread_child,
};
use crate::update::{LANE_FLOORS, NEWEST};

/// Node 1 of two. It is drained, and has offered some of its shards to node 2 unless it has no
/// view.
fn giver(running: bool) -> Member {
    let mut member = routed_member();
    member.core.table.set_drained(id(1), true);
    member.core.view.running = running;
    let Member { core, replication, shards, .. } = &mut member;
    shards.hand_over(core, replication, START);
    member
}

/// Node 2 offers a shard to this node.
fn offer(member: &mut Member, shard: Shard, epoch: u64) {
    let Member { core, replication, shards, .. } = member;
    let offer = Offer { shards: vec![(shard, id(1))], neighbours: Vec::new(), epoch };
    shards.offered(core, replication, START, Position::default(), (id(2), offer));
}

#[test]
fn shards_with_many_sas_go_few_at_a_time() {
    for (sas, go) in [
        (vec![0; MAX_SHARDS_AT_ONCE], MAX_SHARDS_AT_ONCE),
        (vec![MAX_SAS_AT_ONCE / 4; 8], 4),
        (vec![1, MAX_SAS_AT_ONCE], 1),
        (vec![10 * MAX_SAS_AT_ONCE, 1], 1),
    ] {
        assert_eq!(at_once(sas.into_iter()), go);
    }
}

/// A SEG_DROP of an earlier view gives the shard to nobody.
#[test]
fn ike_rests_in_a_shard_from_when_it_is_stopped_and_its_numbers_end_with_seg_drop() {
    let stages = [
        Departure::Offered(id(2), Ticket(1)),
        Departure::Known(id(2), START),
        Departure::Frozen(id(2)),
        Departure::Dropped(7),
        Departure::Dropped(6),
        Departure::Void,
    ];
    let mut handover = Handover((0..).map(Shard).zip(stages).collect());
    let numbers = |shards: ShardSet| shards.iter().map(|shard| shard.0).collect::<Vec<_>>();
    assert_eq!(numbers(handover.held()), [2, 3, 4, 5]);
    assert_eq!(numbers(handover.stopped()), [2, 3, 4]);
    assert_eq!(numbers(handover.given_up(7)), [3]);
    handover.clear();
    assert!(handover.shards().is_empty());
}

#[test]
fn a_node_offers_shards_in_a_view_and_the_next_ones_after_these() {
    let mut without_view = giver(false);
    assert!(!has_published(&mut without_view.core));
    let Member { mut core, mut replication, mut shards, .. } = giver(true);
    assert!(has_published(&mut core));
    assert_eq!(shards.handover.0.len(), MAX_SHARDS_AT_ONCE);
    shards.hand_over(&mut core, &mut replication, START);
    assert!(!has_published(&mut core));
}

/// The receiver keeps back its packets by then. One that was relayed before is worked on.
#[test]
fn a_shard_is_stopped_some_time_after_all_nodes_know_of_its_offer() {
    for (ingress, delay) in [(Ingress::Flood, 10), (Ingress::Routed, 50)] {
        let Member { mut core, mut replication, mut shards, .. } = giver(true);
        core.config.group.ingress = ingress;
        let shard = first(shards.handover.shards());
        let mut freeze = |core: &mut Core, at| {
            core.outputs.clear();
            shards.freeze(core, &mut replication, millis(at));
            let flushes = core.outputs.iter().any(|output| matches!(output, MemberOutput::Flush { .. }));
            let stopped = shards.handover.stopped().contains(shard);
            assert_eq!((flushes, shards.shown.packets.contains(shard)), (stopped, !stopped));
            (stopped, shards.next_freeze(core))
        };
        assert_eq!(freeze(&mut core, 0), (false, None));
        assert!(has_published(&mut core));
        assert_eq!(freeze(&mut core, 100), (false, Some(millis(100 + delay))));
        assert_eq!(freeze(&mut core, 99 + delay), (false, Some(millis(100 + delay))));
        assert_eq!(freeze(&mut core, 100 + delay), (true, None));
    }
}

#[test]
fn packets_of_an_offered_shard_are_kept_back_until_its_offer_is_forgotten() {
    let member = &mut routed_member();
    let (shard, epoch) = (first(member.core.table.owned_by(id(2))), member.core.view.epoch);
    let keeps_back = |member: &Member| member.shards.shown.held.contains(shard);
    offer(member, shard, epoch + 1);
    assert!(!keeps_back(member), "the offer is of another view");
    member.core.unheard_of = Some(Unheard::default());
    offer(member, shard, epoch);
    assert!(!keeps_back(member), "it does not know the owner");
    member.core.unheard_of = None;
    offer(member, shard, epoch);
    assert!(keeps_back(member));
    assert_eq!(member.shards.arrivals.next_timeout(), Some(millis(1000)));
    for (at, keeps) in [(999, true), (1000, false)] {
        let Member { core, replication, shards, .. } = &mut *member;
        shards.expire_arrivals(core, replication, millis(at));
        assert_eq!(keeps_back(member), keeps, "after {at} ms");
    }
}

#[test]
fn what_the_former_owner_has_left_counts_from_when_the_shard_is_here() {
    for is_exact in [false, true] {
        let mut member = routed_member();
        let shard = first(member.core.table.owned_by(id(2)));
        let epoch = member.core.view.epoch;
        offer(&mut member, shard, epoch);
        let arrivals = &mut member.shards.arrivals;
        arrivals.left(millis(500), shard, Left { is_exact, handled: vec![7] });
        assert_eq!(arrivals.next_timeout(), Some(millis(1500)));
        assert!(!arrivals.is_exact(shard));
        assert_eq!(arrivals.arrived(only(shard)), (only(shard), vec![7]));
        assert_eq!(arrivals.is_exact(shard), is_exact);
        arrivals.taken(only(shard));
        assert!(arrivals.shards().is_empty());
    }
}

#[test]
fn with_a_new_view_offers_end_and_every_seg_drop_is_void() {
    for (stage, left) in [
        (Departure::Offered(id(2), Ticket(1)), None),
        (Departure::Known(id(2), START), None),
        (Departure::Frozen(id(2)), Some(Departure::Frozen(id(2)))),
        (Departure::Dropped(7), Some(Departure::Void)),
    ] {
        let mut member = routed_member();
        let [own, theirs] = [1, 2].map(|node| first(member.core.table.owned_by(id(node))));
        let epoch = member.core.view.epoch;
        offer(&mut member, theirs, epoch);
        let Member { mut core, mut shards, .. } = member;
        shards.handover.0.insert(own, stage);
        core.outputs.clear();
        shards.stop_handover(&mut core);
        assert_eq!(shards.handover.0.get(&own).copied(), left);
        assert!(shards.arrivals.shards().is_empty());
        let notes_none = core.outputs.contains(&MemberOutput::Note { shards: ShardSet::EMPTY });
        assert_eq!(notes_none, left.is_none(), "{stage:?}");
    }
}

#[test]
fn how_far_it_got_in_lanes_is_told_in_a_view_whose_members_all_spread_alike() {
    for (running, version, sas, told) in [
        (true, NEWEST, 1, true),
        (true, NEWEST, 0, false),
        (true, LANE_FLOORS - 1, 1, false),
        (false, NEWEST, 1, false),
        (false, LANE_FLOORS - 1, 1, false),
    ] {
        let Member { mut core, mut replication, mut shards, .. } = routed_member();
        let [spi] = insert(&mut replication.replicas, [spread_child(Shard(1), 0)]);
        (core.view.running, core.view.version) = (running, version);
        let flushed = Flushed { tops: vec![(spi, vec![(Shard(4), 70)]); sas], ..Flushed::default() };
        shards.flushed(&mut core, &mut replication, START, &flushed);
        assert_eq!(has_published(&mut core), told, "{running} {version} {sas}");
    }
}
