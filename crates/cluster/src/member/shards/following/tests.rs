use super::*;
use crate::member::core::Unheard;
use crate::member::samples::{START, first, id, member, routed_member};
use std::ops::RangeInclusive;

const RATE: u32 = 100;
/// What other nodes said before this time does not count.
const FRESH: Duration = Duration::from_secs(2);

fn at(seconds: u64) -> Time {
    START.plus(Duration::from_secs(seconds))
}

fn place(shard: Shard) -> usize {
    usize::from(shard.0)
}

/// For these seconds all packets of these shards reach that node. Gives the shards that node 1
/// wants elsewhere at the end, and where.
fn wanted(
    member: &mut Member,
    seconds: RangeInclusive<u64>,
    of: &[Shard],
    reached: u32,
) -> Vec<(Shard, Option<NodeId>)> {
    let Member { core, shards, .. } = member;
    let mut rates = ShardPackets::default();
    of.iter().for_each(|shard| rates.carried[place(*shard)] = RATE.into());
    let mut wanted = Vec::new();
    for second in seconds {
        let relayed = of.iter().filter(|_| reached == 2).map(|shard| (*shard, RATE));
        shards.following.heard(at(second), id(2), relayed.collect());
        wanted = shards.wanted(core, at(second), FRESH, &rates);
    }
    wanted.into_iter().map(|wanted| (wanted.shard, wanted.preference.node)).collect()
}

fn prefer(member: &mut Member, second: u64, shard: Shard, preference: Preference) {
    let Member { core, replication, shards, .. } = member;
    shards.told_preference(core, replication, at(second), shard, preference);
}

#[test]
fn shards_follow_their_packets_behind_routers_if_all_members_know_how() {
    assert!(!member().follows());
    let mut member = routed_member();
    assert!(member.follows());
    member.core.view.version = crate::update::FOLLOWING - 1;
    assert!(!member.follows());
}

#[test]
fn a_node_moves_only_shards_that_it_knows_to_be_its_own() {
    let member = &mut routed_member();
    let [own, theirs] = [1, 2].map(|node| first(member.core.table.owned_by(id(node))));
    assert_eq!(wanted(member, 0..=10, &[own, theirs], 2), [(own, Some(id(2)))]);
    member.core.unheard_of = Some(Unheard::default());
    assert_eq!(wanted(member, 11..=30, &[own, theirs], 2), []);
}

/// The shard would go to and fro.
#[test]
fn a_shard_that_is_being_handed_over_is_not_wanted_elsewhere() {
    let member = &mut routed_member();
    let shard = first(member.core.table.owned_by(id(1)));
    prefer(member, 0, shard, Preference { node: Some(id(2)), level: 1 });
    assert_eq!(member.shards.handover.stages().len(), 1);
    assert_eq!(wanted(member, 1..=60, &[shard], 1), []);
    member.shards.handover.done(shard);
    assert_eq!(wanted(member, 61..=81, &[shard], 1), [(shard, Some(id(1)))]);
}

#[test]
fn what_was_seen_before_a_preference_was_changed_does_not_count() {
    let member = &mut routed_member();
    let own: Vec<Shard> = member.core.table.owned_by(id(1)).iter().take(2).collect();
    assert_eq!(wanted(member, 0..=9, &own, 2), []);
    prefer(member, 9, own[0], Preference::default());
    assert_eq!(wanted(member, 10..=10, &own, 2), [(own[1], Some(id(2)))]);
}

#[test]
fn rates_are_of_one_second_however_long_ago_the_last_count_was() {
    let packets = |relayed, carried| {
        let mut packets = ShardPackets::default();
        (packets.relayed[7], packets.carried[7]) = (relayed, carried);
        packets
    };
    let mut following = Following::new();
    assert_eq!(following.rates(at(0), &packets(1000, 2000)), None, "the first count says nothing");
    let rates = following.rates(at(2), &packets(1200, 2500));
    assert_eq!(rates, Some((Duration::from_secs(2), packets(100, 250))));
    assert_eq!(following.rates(at(2), &packets(1300, 2600)), None, "no time has passed");
}

#[test]
fn only_what_members_have_said_of_late_counts() {
    let mut following = Following::new();
    following.heard(at(0), id(2), vec![(Shard(7), 30), (Shard(8), 70)]);
    following.heard(at(0), id(3), vec![(Shard(7), 70), (Shard(8), 30)]);
    let samples = |second, members: &[u32]| {
        let members: Vec<NodeId> = members.iter().map(|node| id(*node)).collect();
        let samples = following.samples(at(second), FRESH, &members);
        [7, 8].map(|shard: usize| samples[shard])
    };
    let sample = |relayed, node, most| Sample { carried: 0, relayed, most: Some((id(node), most)) };
    assert_eq!(samples(1, &[1, 2, 3]), [sample(100, 3, 70), sample(100, 2, 70)]);
    assert_eq!(samples(1, &[1, 2]), [sample(30, 2, 30), sample(70, 2, 70)]);
    assert_eq!(samples(2, &[1, 2, 3]), [Sample::default(); 2]);
}

/// A node that relays packets says so once a second. One of its messages may be late or lost.
#[test]
fn what_another_node_has_relayed_counts_for_two_and_a_half_counts_of_this_node() {
    for (last, moves) in [(9, true), (8, false)] {
        let Member { mut core, mut shards, .. } = routed_member();
        let shard = first(core.table.owned_by(id(1)));
        let mut packets = ShardPackets::default();
        for second in 0..=11 {
            if second <= last {
                shards.following.heard(at(second), id(2), vec![(shard, RATE)]);
            }
            packets.carried[place(shard)] += u64::from(RATE);
            shards.report_packets(&mut core, at(second), &packets);
            assert!(second == 11 || !core.commits.is_waiting());
        }
        assert_eq!(core.commits.is_waiting(), moves, "the preference is published");
    }
}
