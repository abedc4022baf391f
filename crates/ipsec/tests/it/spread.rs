//! Spread SAs: each packet is worked on by the node that carries its lane.

use crate::clear_fragments::fragments;
use crate::cluster::{OTHER_NODE, back, peer, verdicts};
use crate::harness::{Gateway, PATH_MTU, POLICY, SPI_A, SPI_B, Tunnel, Way, forwarded, run};
use crate::packets::{sized, v4_with, v6_with};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use testudo_base::lane::{self, Spread};
use testudo_base::shard::ShardSet;
use testudo_base::siphash::SipKey;
use testudo_base::spi::{SenderId, Shard, Spi};
use testudo_ipsec::dataplane::{Command, Dataplane, Event, Garbage, Ingress, Item, Note, Turn, Verdict};
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::number::{RowClock, SequenceBlock, Stripe, Stripes};
use testudo_ipsec::pmtu::TooBig;
use testudo_ipsec::replay::LaneFloor;
use testudo_ipsec::sa::{InboundSa, OutboundSa};
use testudo_wire::ip::Protocol;
use testudo_wire::packet::PacketBuf;
use testudo_wire::udp;

/// The IV of ESP over IPv4.
const IV: Range<usize> = 28..36;
const NO_BLOCK: Verdict = Verdict::Drop(DropReason::NoBlock);
pub(crate) const REPLAYED: Verdict = Verdict::Drop(DropReason::Replayed);

pub(crate) fn key() -> SipKey {
    SipKey::new([5; 16])
}

/// The clock of one home, which the test moves.
#[derive(Debug, Default)]
pub(crate) struct Clock(pub(crate) AtomicU64);

impl RowClock for Clock {
    fn now(&self, home: Shard) -> u64 {
        assert_eq!(home, SPI_A.shard());
        self.0.load(Relaxed)
    }
}

/// A node that carries these shards.
pub(crate) fn member(tunnel: &Tunnel, by: Spread, shards: ShardSet) -> Gateway {
    let mut node = Gateway::spread(&tunnel.params(), tunnel.library, by);
    node.plane.apply(Command::SetHashKey(key()));
    node.plane.apply(Command::SetShards(shards));
    node
}

pub(crate) fn stripe(first_row: u64, rows: u64, start: u64) -> Stripe {
    Stripe { first_row, rows, start, classes: 3, class: 1 }
}

fn with(stripes: &[Stripe]) -> Arc<Stripes> {
    let add = |known: Stripes, stripe: &Stripe| known.with(*stripe, true).unwrap();
    Arc::new(stripes.iter().fold(Stripes::new(), add))
}

pub(crate) fn set_stripes(node: &mut Gateway, stripes: &[Stripe]) -> Option<Garbage> {
    node.plane.apply(Command::SetStripes(POLICY, SPI_A, with(stripes)))
}

/// A node with numbers enough.
pub(crate) fn sender(tunnel: &Tunnel, by: Spread, shards: ShardSet) -> Gateway {
    let mut node = member(tunnel, by, shards);
    assert!(set_stripes(&mut node, &[stripe(0, 1 << 20, 1)]).is_none());
    node
}

pub(crate) fn half() -> ShardSet {
    (0..=255).filter(|shard| shard % 2 == 1).map(Shard).collect()
}

/// A datagram of a session, with a number at the front of its data.
pub(crate) fn in_session(session: u16, number: u64, len: usize) -> Vec<u8> {
    let data = [&number.to_be_bytes()[..], &[7; 1200]].concat();
    let payload = [&udp::header(1000 + session, 2000, (udp::HEADER + len) as u16)[..], &data[..len]].concat();
    v4_with(|fields| fields.id = number as u16, Protocol::UDP, &payload)
}

pub(crate) fn number(packet: &[u8]) -> u32 {
    u32::from_be_bytes(packet[24..28].try_into().unwrap())
}

fn is_balanced(node: &Gateway) -> bool {
    let totals = node.plane.counters().totals();
    totals.outbound.is_balanced() && totals.inbound.is_balanced()
}

fn both() -> [Spread; 2] {
    [Spread::SessionHash, Spread::PacketHash]
}

#[test]
fn a_packet_goes_by_its_lane_if_all_nodes_have_it() {
    for by in both() {
        let mut node = sender(&Tunnel::default(), by, half());
        for number in 0..300 {
            let packet = [in_session(number as u16, number, 100)];
            let mut send = |ingress| run(&mut node.plane, Way::Outbound, ingress, &packet)[0].0;
            let here = lane::of_packet(key(), by, &packet[0]).0 % 2 == 1;
            let expected = if here { Verdict::Forward } else { OTHER_NODE };
            for ingress in [Ingress::Flooded, Ingress::FloodedJoined, Ingress::Port] {
                assert_eq!(send(ingress), expected, "{ingress:?}");
            }
            for ingress in [Ingress::Host, Ingress::HostJoined, Ingress::Piece, Ingress::PortJoined] {
                assert_eq!(send(ingress), Verdict::Forward, "{ingress:?}");
            }
        }
        assert!(is_balanced(&node));
    }
}

/// What the SA refuses is refused, and answered, by one node.
#[test]
fn a_packet_that_is_refused_goes_by_its_lane_too() {
    let outside = |host| v4_with(|f| f.src = [10, 9, 0, host].into(), Protocol(99), &[7; 50]);
    let too_big =
        |host| v4_with(|f| (f.src, f.df) = ([10, 1, 0, host].into(), true), Protocol(99), &[7; 1490]);
    let last_hop = |host| v4_with(|f| (f.src, f.ttl) = ([10, 1, 0, host].into(), 1), Protocol(99), &[7; 50]);
    let mut nodes = [half(), ShardSet::ALL.without(half())].map(|shards| {
        let mut node = sender(&Tunnel::default(), Spread::SessionHash, shards);
        crate::harness::set_spd(&mut node.plane, vec![crate::cluster::wide()]);
        node
    });
    for packet in (0..40).flat_map(|host| [outside(host), too_big(host), last_hop(host)]) {
        let found = nodes.each_mut().map(|node| {
            run(&mut node.plane, Way::Outbound, Ingress::Flooded, std::slice::from_ref(&packet))[0].0
        });
        let here = lane::of_packet(key(), Spread::SessionHash, &packet).0 % 2 == 1;
        assert_eq!(found.map(|verdict| verdict != OTHER_NODE), [here, !here], "{found:?}");
    }
    assert!(nodes.iter().all(is_balanced));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    /// Trains are a shortcut: each packet of a burst goes by its own lane all the same.
    #[test]
    fn a_packet_of_a_train_goes_by_its_own_lane(
        by in prop::sample::select(both().to_vec()),
        packets in prop::collection::vec((0_u8..6, 0_u16..3, any::<u16>(), 0_usize..40), 1..100),
        runs in 1_usize..20,
    ) {
        let build = |(kind, session, number, len)| match kind {
            // Too short for the octets by which the lane knows the ports.
            0 => v4_with(|f| f.id = number, Protocol::UDP, &[&[3, 232, 7, 208], &[0; 8][..len % 9]].concat()),
            // First and later fragments; of a datagram each.
            1 => [fragments(false)[usize::from(session) % 2].clone()].map(|mut packet| {
                packet[4..6].copy_from_slice(&number.to_be_bytes());
                packet[10..12].fill(0);
                let sum = testudo_wire::checksum::Sum::new().bytes(&packet[..20]).finish();
                packet[10..12].copy_from_slice(&sum.to_be_bytes());
                packet
            })[0].clone(),
            2 => v6_with(|_| (), Protocol::UDP, &in_session(session, number.into(), len)[20..]),
            // IPv6 whose ports stand behind an extension header.
            3 => v6_with(|_| (), Protocol(60), &[&[17, 0, 1, 4, 0, 0, 0, 0], &in_session(session, number.into(), len)[20..]].concat()),
            _ => in_session(session, number.into(), len),
        };
        // Many in a row are of one kind and session.
        let packets: Vec<_> = packets.chunks(runs)
            .flat_map(|run| run.iter().map(|(.., number, len)| (run[0].0, run[0].1, *number, *len)))
            .map(build)
            .collect();
        let mut node = sender(&Tunnel::default(), by, half());
        let found = verdicts(&run(&mut node.plane, Way::Outbound, Ingress::Flooded, &packets));
        for (packet, verdict) in packets.iter().zip(found) {
            let here = lane::of_packet(key(), by, packet).0 % 2 == 1;
            prop_assert_eq!(verdict, if here { Verdict::Forward } else { OTHER_NODE });
        }
        prop_assert!(is_balanced(&node));
    }
}

#[test]
fn clear_packets_of_lanes_that_come_or_go_are_held_and_noted() {
    for by in both() {
        let (mut from, mut to) =
            (sender(&Tunnel::default(), by, ShardSet::ALL), sender(&Tunnel::default(), by, half()));
        let moving: ShardSet = (0..=255).filter(|shard| shard % 4 == 0).map(Shard).collect();
        to.plane.apply(Command::SetShards(ShardSet::ALL.without(moving)));
        from.plane.apply(Command::Note(moving, vec![Note { shard: Shard(0), digest: 0 }; 64].into()));
        to.plane.apply(Command::Hold(moving));
        // In bursts of one flow, which would be trains.
        let packets: Vec<_> = (0..64_u16).map(|at| in_session(at / 8, at.into(), 100)).collect();
        let moves = |packet: &Vec<u8>| moving.contains(lane::of_packet(key(), by, packet));
        assert!(packets.iter().any(moves) && !packets.iter().all(moves));
        let send =
            |node: &mut Gateway, ingress| verdicts(&run(&mut node.plane, Way::Outbound, ingress, &packets));
        assert_eq!(send(&mut from, Ingress::Flooded), [Verdict::Forward; 64]);
        let wait = |packet| if moves(packet) { Verdict::Held } else { Verdict::Forward };
        assert_eq!(send(&mut to, Ingress::Flooded), packets.iter().map(wait).collect::<Vec<_>>());
        assert_eq!(send(&mut to, Ingress::Host), [Verdict::Forward; 64], "no other node has them");
        assert_eq!(send(&mut from, Ingress::PortJoined), [Verdict::Forward; 64]);
        from.plane.apply(Command::SetShards(ShardSet::ALL.without(moving)));
        let Some(Garbage::Noted(notes, count)) = from.plane.apply(Command::TakeNotes) else {
            panic!("notes")
        };
        assert_eq!(count, packets.iter().filter(|packet| moves(packet)).count());
        assert!(notes[..count].iter().all(|note| moving.contains(note.shard)));
        let handled = notes[..count].iter().map(|note| (note.digest, false)).collect();
        to.plane.apply(Command::Handled(moving, handled));
        to.plane.apply(Command::Hold(ShardSet::EMPTY));
        to.plane.apply(Command::SetShards(ShardSet::ALL));
        let met = |packet| {
            if moves(packet) { Verdict::Drop(DropReason::HandledElsewhere) } else { Verdict::Forward }
        };
        assert_eq!(send(&mut to, Ingress::Flooded), packets.iter().map(met).collect::<Vec<_>>());
        assert!(is_balanced(&from) && is_balanced(&to));
    }
}

#[test]
fn a_spread_sa_sends_by_its_stripes_and_the_clock() {
    let mut node = member(&Tunnel::default(), Spread::PacketHash, ShardSet::ALL);
    let packets = |count: usize| vec![sized(false, 100); count];
    // Blocks are for other SAs.
    node.outbound.numbers().advance(SequenceBlock::whole(true)).unwrap();
    assert_eq!(verdicts(&node.outbound(&packets(2))), [NO_BLOCK; 2]);
    assert_eq!(node.outbound.counters().dropped(DropReason::NoBlock), 2);
    assert!(set_stripes(&mut node, &[stripe(0, 10, 1), stripe(10, 30, 101)]).is_none());
    let mut ivs = BTreeSet::new();
    let mut sent = |node: &mut Gateway, count| {
        let found = node.outbound(&packets(count));
        let sent = found.iter().filter(|found| found.0 == Verdict::Forward).map(|found| &found.1);
        sent.map(|packet| {
            assert!(ivs.insert(packet[IV].to_vec()), "each packet has an IV of its own");
            number(packet)
        })
        .collect::<Vec<_>>()
    };
    assert_eq!(sent(&mut node, 12), [2, 5, 8, 11, 14, 17, 20, 23, 26, 29, 102, 105]);
    let clock = Arc::new(Clock::default());
    assert!(node.plane.apply(Command::SetClock(clock.clone())).is_none());
    assert_eq!((sent(&mut node, 1), node.outbound.next_row()), (vec![108], 13));
    // The clock has counted all packets of a burst: the last one takes the row that it shows.
    clock.0.store(38, Relaxed);
    assert_eq!((sent(&mut node, 3), node.outbound.next_row()), (vec![180, 183, 186], 39));
    clock.0.store(41, Relaxed);
    assert_eq!((sent(&mut node, 3), node.outbound.next_row()), (vec![189], 40));
    let garbage = node.plane.apply(Command::SetClock(clock));
    assert!(matches!(garbage, Some(Garbage::Clock(_))));
    assert!(is_balanced(&node));
}

#[test]
fn stripes_are_of_one_sa() {
    let tunnel = Tunnel::default();
    let mut node = member(&tunnel, Spread::PacketHash, ShardSet::ALL);
    let stripes = with(&[stripe(0, 100, 1)]);
    for (policy, spi) in [(POLICY, SPI_B), (testudo_ipsec::spd::PolicyId(9), SPI_A)] {
        let garbage = node.plane.apply(Command::SetStripes(policy, spi, stripes.clone()));
        assert!(matches!(garbage, Some(Garbage::Stripes(given)) if Arc::ptr_eq(&given, &stripes)));
    }
    let send = |node: &mut Gateway| verdicts(&node.outbound(&[sized(false, 100)]))[0];
    assert_eq!(send(&mut node), NO_BLOCK);
    assert!(set_stripes(&mut node, &[stripe(0, 100, 1)]).is_none());
    assert!(matches!(set_stripes(&mut node, &[stripe(0, 100, 1)]), Some(Garbage::Stripes(_))));
    assert_eq!(send(&mut node), Verdict::Forward);
    // With a new address it is the same SA, and counts on.
    let params = tunnel.params();
    let remote = "192.0.2.77:0".parse().unwrap();
    let moved = Arc::new(node.outbound.moved(params.local, remote, PATH_MTU).unwrap());
    let garbage = node.plane.apply(Command::SetOutbound(POLICY, moved.clone()));
    assert!(matches!(garbage, Some(Garbage::Outbound(_, None))));
    assert_eq!((send(&mut node), moved.next_row(), node.outbound.next_row()), (Verdict::Forward, 2, 2));
    assert_eq!(moved.spread_by(), Some(Spread::PacketHash));
    // One that is built anew does not know its used rows.
    let anew = OutboundSa::new(&params, POLICY, SequenceBlock::EMPTY, PATH_MTU, tunnel.library).unwrap();
    let garbage = node.plane.apply(Command::SetOutbound(POLICY, Arc::new(anew.spread(Spread::PacketHash))));
    assert!(matches!(garbage, Some(Garbage::Outbound(_, Some(_)))));
    assert_eq!(send(&mut node), NO_BLOCK);
    set_stripes(&mut node, &[stripe(0, 100, 1000)]);
    assert_eq!(send(&mut node), Verdict::Forward);
    let garbage = node.plane.apply(Command::ClearOutbound(POLICY, SPI_A));
    assert!(matches!(garbage, Some(Garbage::Outbound(_, Some(_)))));
}

#[test]
fn control_learns_before_the_latest_stripe_ends() {
    let mut node = member(&Tunnel::default(), Spread::PacketHash, ShardSet::ALL);
    let clock = Arc::new(Clock(AtomicU64::new(1_000_000)));
    node.plane.apply(Command::SetClock(clock.clone()));
    // The rate counts from when the SA was set.
    node.plane.apply(Command::SetOutbound(POLICY, node.outbound.clone()));
    let send = |node: &mut Gateway, now: u64, row: u64| {
        node.plane.set_now(now);
        clock.0.store(1_000_000 + row, Relaxed);
        let verdict = verdicts(&node.outbound(&[sized(false, 100)]))[0];
        (verdict, node.plane.drain_events().collect::<Vec<_>>())
    };
    let low = |rate| vec![Event::SequenceLow { spi: SPI_A, rate }];
    assert_eq!(send(&mut node, 1000, 100), (NO_BLOCK, low(100)));
    assert_eq!(send(&mut node, 1999, 100), (NO_BLOCK, vec![]));
    assert_eq!(send(&mut node, 2000, 200), (NO_BLOCK, low(100)));
    set_stripes(&mut node, &[stripe(1_000_000, 1000, 1)]);
    assert_eq!(send(&mut node, 2100, 498), (Verdict::Forward, vec![]));
    // Most of these rows are other nodes' packets.
    assert_eq!(send(&mut node, 2200, 500), (Verdict::Forward, low((501 - 200) * 1000 / 200)));
    assert_eq!(send(&mut node, 2201, 600), (Verdict::Forward, vec![]));
    set_stripes(&mut node, &[stripe(1_000_000, 1000, 1), stripe(1_001_000, 1000, 3001)]);
    assert_eq!(send(&mut node, 2202, 1400), (Verdict::Forward, vec![]));
    assert!(matches!(&send(&mut node, 2203, 1500), (Verdict::Forward, told) if told.len() == 1));
}

#[test]
fn own_numbers_of_a_spread_sa_are_recognised() {
    let tunnel = Tunnel::default();
    let mut node = member(&tunnel, Spread::PacketHash, ShardSet::ALL);
    let params = tunnel.params();
    let told = |sequence| TooBig {
        local: params.local.ip(),
        remote: params.remote.ip(),
        spi: SPI_B,
        sequence,
        udp: false,
        mtu: 1300,
    };
    let believed =
        |sa: &OutboundSa| (0..3000).filter(|number| sa.has_sent(&told(*number))).collect::<Vec<_>>();
    // Its numbers do not come from a block, even if it has one.
    node.outbound.numbers().advance(SequenceBlock { next: 1, end: 100 }).unwrap();
    node.outbound.numbers().reserve(50);
    assert!(believed(&node.outbound).is_empty());
    set_stripes(&mut node, &[stripe(0, 100, 1000), stripe(100, 100, 2000)]);
    let sent: Vec<_> =
        forwarded(node.outbound(&vec![sized(false, 100); 5])).iter().map(|p| number(p)).collect();
    assert_eq!(believed(&node.outbound), sent);
    let moved = node.outbound.moved(params.local, params.remote, PATH_MTU).unwrap();
    assert_eq!(believed(&moved), sent);
}

/// Packets from the peer, by their numbers.
pub(crate) fn from_peer(tunnel: &Tunnel, count: usize) -> Vec<Vec<u8>> {
    forwarded(peer(tunnel).outbound(&back(count)))
}

fn is_half(number: u64) -> bool {
    lane::of_number(SPI_A, number as u32).0 % 2 == 1
}

#[test]
fn a_number_is_accepted_by_the_node_that_carries_its_lane() {
    for tunnel in Tunnel::all() {
        // Its home shard has nothing to do with it.
        let shards = half().without([SPI_A.shard()].into_iter().collect());
        let mut node = member(&tunnel, Spread::PacketHash, shards);
        let sent = from_peer(&tunnel, 200);
        let expected = |number: u64| {
            let lane = lane::of_number(SPI_A, number as u32);
            if shards.contains(lane) { Verdict::Forward } else { OTHER_NODE }
        };
        assert_eq!(verdicts(&node.inbound(&sent)), (1..=200).map(expected).collect::<Vec<_>>());
        let again = verdicts(&node.inbound(&sent[150..]));
        assert!(again.iter().all(|verdict| matches!(*verdict, REPLAYED | OTHER_NODE)));
        let tops = node.inbound.lane_tops(ShardSet::ALL);
        let highest = |lane: Shard| (1..=200).rfind(|number| lane::of_number(SPI_A, *number as u32) == lane);
        let all = shards.iter().filter_map(|lane| Some((lane, highest(lane)?)));
        assert_eq!(tops, all.collect::<Vec<_>>());
        let some = [tops[0].0].into_iter().collect();
        assert_eq!(node.inbound.lane_tops(some), tops[..1]);
        assert!(is_balanced(&node));
    }
}

#[test]
fn numbers_of_lanes_that_come_are_held() {
    let mut node = member(&Tunnel::default(), Spread::PacketHash, half());
    let sent = from_peer(&Tunnel::default(), 40);
    node.plane.apply(Command::Hold(ShardSet::ALL.without(half())));
    let expected = |number| if is_half(number) { Verdict::Forward } else { Verdict::Held };
    assert_eq!(verdicts(&node.inbound(&sent)), (1..=40).map(expected).collect::<Vec<_>>());
    node.plane.apply(Command::SetShards(ShardSet::ALL));
    let expected = |number| if is_half(number) { REPLAYED } else { Verdict::Forward };
    assert_eq!(verdicts(&node.inbound(&sent)), (1..=40).map(expected).collect::<Vec<_>>());
}

/// A node has accepted this number of a lane.
pub(crate) fn floor(lane: Shard, floor: u64) -> LaneFloor {
    LaneFloor { spi: SPI_A, lane, floor, known: floor }
}

/// The floors of all lanes, as if one node had accepted the numbers up to that one.
fn floors(upto: u64) -> Box<[LaneFloor]> {
    let highest = |lane| Some(floor(lane, (1..=upto).rfind(|n| lane::of_number(SPI_A, *n as u32) == lane)?));
    ShardSet::ALL.iter().filter_map(highest).collect()
}

#[test]
fn below_a_lanes_floor_nothing_is_accepted_and_above_it_everything() {
    for window in [64, 0] {
        let tunnel = Tunnel { window, ..Tunnel::default() };
        let mut node = member(&tunnel, Spread::PacketHash, ShardSet::ALL);
        let sent = from_peer(&tunnel, 60);
        let mut told = floors(30).to_vec();
        told.push(LaneFloor { spi: Spi(0x7777_7777), ..floor(Shard(3), 1 << 40) });
        let garbage = node.plane.apply(Command::TakeInLanes(told.clone().into()));
        assert!(matches!(&garbage, Some(Garbage::TakenInLanes(done)) if done[..] == told), "{garbage:?}");
        // What was told is passed on to the next node, though nothing was accepted here.
        let passed: Vec<_> = node.inbound.lane_tops(ShardSet::ALL);
        if window == 0 {
            assert_eq!(passed, []);
            assert_eq!(verdicts(&node.inbound(&sent)), [Verdict::Forward; 60], "nothing is ever seen");
            continue;
        }
        assert_eq!(passed, floors(30).iter().map(|told| (told.lane, told.floor)).collect::<Vec<_>>());
        // The floors of some lanes do not touch others, of which late packets may come.
        let found = verdicts(&node.inbound(&sent));
        assert_eq!(found, [[REPLAYED; 30], [Verdict::Forward; 30]].concat());
        assert_eq!(node.dropped_inbound(DropReason::Replayed), (30, 30));
        // A floor that is late takes nothing back.
        node.plane.apply(Command::TakeInLanes(floors(10)));
        assert!(verdicts(&node.inbound(&sent)).iter().all(|verdict| *verdict == REPLAYED));
    }
}

#[test]
fn a_floor_is_of_one_lane() {
    let mut node = member(&Tunnel::default(), Spread::PacketHash, ShardSet::ALL);
    let sent = from_peer(&Tunnel::default(), 60);
    let lane = lane::of_number(SPI_A, 17);
    node.plane.apply(Command::TakeInLanes(Box::new([floor(lane, 40)])));
    let expected = |number: u64| {
        let is_seen = number <= 40 && lane::of_number(SPI_A, number as u32) == lane;
        if is_seen { REPLAYED } else { Verdict::Forward }
    };
    assert_eq!(verdicts(&node.inbound(&sent)), (1..=60).map(expected).collect::<Vec<_>>());
}

/// Raises floors at another worker while this one has packets in hand.
struct Meanwhile<'p>(&'p mut Dataplane);

impl Turn for Meanwhile<'_> {
    fn begin(&mut self) {
        self.0.apply(Command::TakeInLanes(floors(20)));
    }

    fn end(&mut self) {}
}

#[test]
fn a_floor_counts_for_packets_that_another_worker_has_in_hand() {
    let tunnel = Tunnel::default();
    let mut node = member(&tunnel, Spread::PacketHash, ShardSet::ALL);
    let mut other = node.another(&tunnel.params(), 6);
    let sent = from_peer(&tunnel, 30);
    let mut frames: Vec<_> = sent.clone();
    let mut items: Vec<_> = frames
        .iter_mut()
        .map(|frame| {
            let len = frame.len();
            Item::new(PacketBuf::new(frame, 0, len).unwrap(), Ingress::Port)
        })
        .collect();
    node.plane.inbound_in_turn(&mut items, &mut Meanwhile(&mut other));
    let found: Vec<_> = items.iter().map(|item| item.verdict).collect();
    assert_eq!(found, [vec![REPLAYED; 20], vec![Verdict::Forward; 10]].concat());
}

#[test]
fn a_node_that_has_received_nothing_infers_high_bits_from_the_floors() {
    let tunnel = Tunnel::default();
    let first = (5 << 32) - 100;
    let numbers = SequenceBlock { next: first, ..SequenceBlock::whole(true) };
    let mut peer = Gateway::with_numbers(&tunnel.params().mirrored(), tunnel.library, numbers);
    let sent = forwarded(peer.outbound(&back(200)));
    let mut node = member(&tunnel, Spread::PacketHash, ShardSet::ALL);
    let lane = lane::of_number(SPI_A, (first + 50) as u32);
    node.plane.apply(Command::TakeInLanes(Box::new([floor(lane, first + 50)])));
    let expected = |number: u64| {
        let is_seen = number <= first + 50 && lane::of_number(SPI_A, number as u32) == lane;
        if is_seen { REPLAYED } else { Verdict::Forward }
    };
    assert_eq!(verdicts(&node.inbound(&sent)), (first..first + 200).map(expected).collect::<Vec<_>>());
}

#[test]
fn an_sa_with_a_home_has_no_lanes() {
    let tunnel = Tunnel::default();
    let params = tunnel.params();
    let sa = InboundSa::new(&params, POLICY, PATH_MTU, tunnel.library).unwrap();
    assert_eq!(sa.lane_tops(ShardSet::ALL), []);
    let mut node = crate::cluster::node(&tunnel, SequenceBlock::whole(true));
    assert_eq!((node.outbound.spread_by(), node.outbound.next_row()), (None, 0));
    node.plane.apply(Command::SetSenderId(SenderId(9)));
    node.plane.apply(Command::TakeInLanes(floors(30)));
    assert_eq!(verdicts(&node.inbound(&from_peer(&tunnel, 30))), [Verdict::Forward; 30]);
}
