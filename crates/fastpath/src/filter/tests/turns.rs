//! Spread tunnels whose lanes take turns: the filter counts as `testudo_base::turn` does.

use super::bench::{Bench, Outcome};
use super::cluster::table;
use super::frames::*;
use crate::filter::layout::{
    CLUSTER_IN_TURN, CLUSTER_ON, CLUSTER_SESSIONS_IN_TURN, CLUSTER_SPREAD, ClusterValue,
};
use crate::filter::{Class, PrefixUse, Reason, SessionTable};
use std::sync::atomic::AtomicU64;
use testudo_base::lane::{self, Spread};
use testudo_base::session::{Followed, SLOTS, Sessions, Told, shard_of};
use testudo_base::shard::ShardSet;
use testudo_base::siphash::SipKey;
use testudo_base::spi::Shard;
use testudo_base::turn::Turns;

const HOME: Shard = Shard(0xc0);
const IN_TURN: [Spread; 4] = [Spread::PacketRr, Spread::PacketSqf, Spread::SessionRr, Spread::SessionSqf];
/// All nodes know how to take turns, by packet and by session.
const TURNS: u32 = CLUSTER_IN_TURN | CLUSTER_SESSIONS_IN_TURN;
const EVERY: [u64; 4] = [u64::MAX; 4];

fn key() -> SipKey {
    SipKey::new(*b"0123456789abcdef")
}

fn node(packets: [u64; 4]) -> ClusterValue {
    ClusterValue { packets, flags: CLUSTER_ON | CLUSTER_SPREAD | TURNS, ..table() }
}

/// A filter whose prefixes are spread in this way, and its model.
struct Twins {
    bench: Bench,
    sessions: SessionTable,
    spread: Spread,
    turns: Turns,
    words: Vec<AtomicU64>,
}

impl Twins {
    fn new(spread: Spread) -> Self {
        let bench = Bench::clustered(&node(EVERY)).with_socket();
        let used = PrefixUse { home: Some(HOME), spread: Some(spread), ..PrefixUse::PROTECT };
        ["10.2.0.0/16", "2001:db8:2::/48"].iter().for_each(|prefix| bench.set_prefix(prefix, used));
        let words = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        Self { sessions: bench.sessions(), bench, spread, turns: Turns::default(), words }
    }

    fn tables(&self) -> [Sessions<'_>; 2] {
        [self.sessions.sessions(), Sessions::of(&self.words)]
    }

    fn model(&mut self, packet: &[u8]) -> Option<Shard> {
        self.turns.count(key(), self.spread, packet, Sessions::of(&self.words))
    }

    fn filter(&self, mac: [u8; 6], packet: &[u8]) -> Outcome {
        self.bench.run(&ethernet_to(mac, if packet[0] >> 4 == 4 { 0x0800 } else { 0x86dd }, packet))
    }

    /// Both count a flooded packet, and find the same lane.
    fn assert_alike(&mut self, packet: &[u8]) {
        let (lane, found) = (self.model(packet), self.filter(CLUSTER_MAC, packet));
        assert_eq!(found.reason, Reason::WorkerProtect);
        let stamp = found.stamp.unwrap();
        let found = (stamp.class == Class::ProtectInTurn).then_some(stamp.lane);
        assert_eq!(found, lane, "{:?} {packet:02x?}", self.spread);
    }
}

/// A packet of one of many sessions: TCP, UDP, in one family or the other.
fn packet(number: u32) -> Vec<u8> {
    let mixed = number.wrapping_mul(0x9e37_79b1) >> 4;
    let [a, b, ..] = (mixed % 3001).to_be_bytes()[2..] else { unreachable!() };
    let segment = [&[a, b, 0, 80][..], &number.to_be_bytes(), &vec![0; (mixed % 900 + 12) as usize]].concat();
    let datagram = [&[a, b, 0, 53][..], &[0, 100, 0, 0], &number.to_be_bytes(), &[0; 40]].concat();
    match mixed % 4 {
        0 => ipv4(CLIENT4, REMOTE4, TCP).packet(&segment),
        1 => ipv4(CLIENT4, REMOTE4, UDP).packet(&datagram),
        2 => ipv6_packet(CLIENT6, REMOTE6, TCP, 64, &segment),
        _ => ipv6_packet(CLIENT6, REMOTE6, UDP, 64, &datagram),
    }
}

#[test]
fn the_filter_counts_as_the_model_does() {
    for spread in IN_TURN {
        let mut twins = Twins::new(spread);
        (0..6000).for_each(|number| twins.assert_alike(&packet(number)));
        let [filter, model] = twins.tables();
        let taken = (0..SLOTS).filter(|slot| filter.get(*slot).is_some()).count();
        assert_eq!(taken > 1000, spread.is_by_session(), "{spread:?}: {taken} sessions");
        assert!((0..SLOTS).all(|slot| filter.get(slot) == model.get(slot)));
    }
}

/// What a daemon writes to the table, and what it reads there, while packets come.
#[test]
fn the_filter_and_its_daemon_share_the_sessions() {
    for spread in [Spread::SessionRr, Spread::SessionSqf] {
        let mut twins = Twins::new(spread);
        for number in 0..8000_u32 {
            twins.assert_alike(&packet(number));
            let slot = (number.wrapping_mul(0x9e37_79b1) >> 8) as u16 % SLOTS;
            let word = |told: Option<_>| Told { slot, session: told };
            let [filter, model] = twins.tables();
            let mut moved = filter.get(slot);
            moved.iter_mut().for_each(|session| session.lane.0 ^= 0x55);
            match number % 6 {
                0 => [filter, model].iter().for_each(|table| table.grow_older()),
                1 => assert_eq!(filter.was_seen(slot), model.was_seen(slot), "{number}"),
                2 => [filter, model].iter().for_each(|table| table.forget(slot)),
                3 => assert_eq!(filter.follow(word(moved)), model.follow(word(moved))),
                4 => assert_eq!(filter.follow(word(None)), model.follow(word(None))),
                _ => assert_eq!(filter.get(slot), model.get(slot)),
            }
        }
        let [filter, model] = twins.tables();
        assert!((0..SLOTS).all(|slot| filter.get(slot) == model.get(slot)));
        let mut all = (0..SLOTS).filter(|slot| filter.get(*slot).is_some());
        let slot = all.next().expect("some session is left");
        assert_eq!(shard_of(slot), Shard((slot / 32) as u8));
        assert_eq!(filter.follow(Told { slot, session: filter.get(slot) }), Followed::Nothing);
    }
}

#[test]
fn a_packet_in_turn_is_kept_by_the_carrier_of_its_lane_and_counted_by_all() {
    for spread in IN_TURN {
        let mut twins = Twins::new(spread);
        for number in 0..300 {
            let packet = packet(number);
            // Its slot may be that of another session.
            let Some(lane) = twins.model(&packet) else {
                twins.filter(CLUSTER_MAC, &packet);
                continue;
            };
            let only: ShardSet = [lane].into_iter().collect();
            let (carried, reason) = match number % 3 {
                0 => (node(*only.words()), Reason::WorkerProtect),
                1 => (node(*ShardSet::ALL.without(only).words()), Reason::DropOtherNode),
                // The worker holds back what comes for a lane before this node carries it.
                _ => (ClusterValue { held: *only.words(), ..node([0; 4]) }, Reason::WorkerProtect),
            };
            twins.bench.set_cluster(&carried);
            assert_eq!(twins.filter(CLUSTER_MAC, &packet).reason, reason, "{spread:?} {number}");
        }
    }
}

/// All fragments must find one node, and no node sees what another one gets by its own address.
#[test]
fn what_cannot_be_counted_goes_by_its_hash() {
    for spread in IN_TURN {
        let mut twins = Twins::new(spread);
        (0..100).for_each(|number| twins.assert_alike(&packet(number)));
        let payload = udp(40_000, 53, &[9; 24]);
        let fragment = fragment6(UDP, 3, true, 99, &payload);
        for packet in [
            Ipv4 { fragment: 0x2000, ..ipv4(CLIENT4, REMOTE4, UDP) }.packet(&payload),
            Ipv4 { fragment: 5, ..ipv4(CLIENT4, REMOTE4, UDP) }.packet(&payload),
            ipv6_packet(CLIENT6, REMOTE6, FRAGMENT, 64, &fragment),
            ipv6_packet(CLIENT6, REMOTE6, OPTIONS, 64, &options(UDP, 1, &payload)),
        ] {
            twins.assert_alike(&packet);
        }
        let own = packet(1000);
        let lane = lane::of_packet(key(), spread.by_hash(), &own);
        for (packets, reason) in [
            ([lane].into_iter().collect(), Reason::WorkerProtect),
            (ShardSet::ALL.without([lane].into_iter().collect()), Reason::DropOtherNode),
        ] {
            twins.bench.set_cluster(&node(*packets.words()));
            let found = twins.filter(PORT_MAC, &own);
            assert_eq!(found.reason, reason);
            assert!(found.stamp.is_none_or(|stamp| stamp.class == Class::Protect));
        }
        twins.bench.set_cluster(&node(EVERY));
        (100..200).for_each(|number| twins.assert_alike(&packet(number)));
    }
}

/// Where routers choose the node, no node sees the packets of the others; and a node of an older
/// version counts nothing.
#[test]
fn nothing_takes_a_turn_unless_all_nodes_count() {
    for (spread, older) in [(Spread::PacketRr, 0), (Spread::SessionRr, CLUSTER_IN_TURN)] {
        let twins = Twins::new(spread);
        let older = ClusterValue { flags: CLUSTER_ON | CLUSTER_SPREAD | older, ..node(EVERY) };
        for (mac, cluster) in [(PORT_MAC, node([0; 4]).with_routed(true)), (CLUSTER_MAC, older)] {
            twins.bench.set_cluster(&cluster);
            let found = twins.filter(mac, &packet(1));
            assert_eq!((found.reason, found.stamp.unwrap().class), (Reason::WorkerProtect, Class::Protect));
        }
    }
}
