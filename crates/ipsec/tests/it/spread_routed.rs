//! Spread SAs behind routers: each packet reaches one node, which sends it if it has numbers.

use crate::cluster::verdicts;
use crate::harness::{Gateway, SPI_A, Tunnel, Way, run};
use crate::relay_nodes::destination;
use crate::spread::{
    Clock, REPLAYED, floor, from_peer, half, in_session, key, member, number, set_stripes, stripe,
};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use testudo_base::lane::{self, Spread};
use testudo_base::shard::{SHARDS, ShardSet};
use testudo_base::spi::{RelayKind, Shard, Spi};
use testudo_ipsec::dataplane::{Command, Ingress, Note, Relay, RelayParams, Verdict};
use testudo_ipsec::replay::LaneFloor;
use testudo_ipsec::sa::KeyMaterial;

const OTHER: u8 = 2;

fn address(node: u8) -> IpAddr {
    IpAddr::from([10, 255, 0, node])
}

/// A node that carries these shards, and relays packets of all others to a second node.
fn routed(by: Spread, shards: ShardSet) -> (Gateway, Arc<Clock>) {
    let tunnel = Tunnel::default();
    let mut node = member(&tunnel, by, shards);
    let key = |from: u8| KeyMaterial(vec![from; RelayParams::KEY_LEN]);
    let params = RelayParams {
        local: address(1),
        remote: address(OTHER),
        spi_in: Spi::of_relay(RelayKind::Whole, 0, OTHER).unwrap(),
        spi_out: Spi::of_relay(RelayKind::Whole, 0, 1).unwrap(),
        key_in: key(OTHER),
        key_out: key(1),
    };
    let (inbound, outbound) = params.build(9000, tunnel.library).unwrap();
    let mut relay = Relay::default();
    relay.set_carriers([Some(OTHER); SHARDS]);
    assert!(relay.send_by(OTHER, Arc::new(outbound)) && relay.accept(Arc::new(inbound)));
    node.plane.apply(Command::SetRelay(Arc::new(relay)));
    let clock = Arc::new(Clock::default());
    node.plane.apply(Command::SetClock(clock.clone()));
    (node, clock)
}

/// For each packet, whether the node has relayed it. It has sent all others.
fn relays(node: &mut Gateway, way: Way, ingress: Ingress, packets: &[Vec<u8>]) -> Vec<bool> {
    let found = run(&mut node.plane, way, ingress, packets);
    assert_eq!(verdicts(&found), vec![Verdict::Forward; packets.len()]);
    found.iter().map(|(_, packet)| destination(packet) == address(OTHER)).collect()
}

/// Ingresses of clear packets that no other node has relayed.
const INGRESSES: [Ingress; 5] =
    [Ingress::Port, Ingress::PortJoined, Ingress::Host, Ingress::HostJoined, Ingress::Piece];

/// Of one flow in a row, which are trains, and of many.
fn packets() -> Vec<Vec<u8>> {
    (0..64).map(|at| in_session(if at < 32 { 0 } else { at as u16 }, at, 100)).collect()
}

#[test]
fn a_node_sends_what_routers_bring_to_it_whatever_the_lane() {
    for by in [Spread::SessionHash, Spread::PacketHash] {
        let (mut node, _) = routed(by, half());
        set_stripes(&mut node, &[stripe(0, 1 << 20, 1)]);
        for (at, ingress) in INGRESSES.into_iter().enumerate() {
            let found = run(&mut node.plane, Way::Outbound, ingress, &packets());
            let rows = 64 * at as u64..64 * (at as u64 + 1);
            let sent: Vec<u64> = found.iter().map(|(_, packet)| number(packet).into()).collect();
            assert_eq!(sent, rows.map(|row| 2 + 3 * row).collect::<Vec<_>>(), "{ingress:?}");
        }
        let totals = node.plane.counters().totals();
        assert_eq!((totals.outbound.relayed, totals.outbound.forwarded), (0, 64 * 5));
        assert!(totals.outbound.is_balanced());
    }
}

/// Its first number lies above those of all other nodes: with it the peer's window would move past
/// theirs. Nor does a node send that carries nothing: it is leaving, or has not come yet.
#[test]
fn a_node_without_numbers_relays_to_the_carrier_of_the_lane() {
    let by = Spread::PacketHash;
    let is_carried = |packet: &Vec<u8>| half().contains(lane::of_packet(key(), by, packet));
    let foreign: Vec<bool> = packets().iter().map(|packet| !is_carried(packet)).collect();
    assert!(foreign.contains(&true) && foreign.contains(&false));
    for ingress in INGRESSES {
        let (mut node, clock) = routed(by, half());
        set_stripes(&mut node, &[stripe(1000, 1 << 20, 1)]);
        let to_others: Vec<_> = packets().into_iter().filter(|packet| !is_carried(packet)).collect();
        let all = vec![true; to_others.len()];
        assert_eq!(relays(&mut node, Way::Outbound, ingress, &to_others), all, "it has not begun");
        clock.0.store(1000, Relaxed);
        assert_eq!(relays(&mut node, Way::Outbound, ingress, &packets()), [false; 64]);
        node.plane.apply(Command::SetShards(ShardSet::EMPTY));
        assert_eq!(relays(&mut node, Way::Outbound, ingress, &packets()), [true; 64], "it carries nothing");
        node.plane.apply(Command::SetShards(half()));
        clock.0.store(1000 + (1 << 20), Relaxed);
        assert_eq!(relays(&mut node, Way::Outbound, ingress, &to_others), all, "they are used up");
        assert!(node.plane.counters().totals().outbound.is_balanced());
    }
    // Not even the lanes that it carries change that a packet is sent by one node.
    let (mut node, _) = routed(by, half());
    set_stripes(&mut node, &[stripe(1000, 1 << 20, 1)]);
    assert_eq!(relays(&mut node, Way::Outbound, Ingress::Port, &packets()), foreign);
}

#[test]
fn the_first_row_is_the_one_that_another_node_has_told() {
    let (mut node, clock) = routed(Spread::SessionHash, half());
    set_stripes(&mut node, &[stripe(0, 1 << 20, 1)]);
    let mut rows = |told, count| {
        clock.0.store(told, Relaxed);
        let found = run(&mut node.plane, Way::Outbound, Ingress::Port, &packets()[..count]);
        found.iter().map(|(_, packet)| u64::from(number(packet) - 2) / 3).collect::<Vec<_>>()
    };
    assert_eq!(rows(0, 3), [0, 1, 2]);
    assert_eq!(rows(500, 3), [500, 501, 502]);
    assert_eq!(rows(501, 2), [503, 504]);
}

/// What a handover is careful about concerns packets that several nodes have.
#[test]
fn clear_packets_do_not_wait_for_a_lane_that_comes() {
    let (mut node, _) = routed(Spread::PacketHash, half());
    set_stripes(&mut node, &[stripe(0, 1 << 20, 1)]);
    node.plane.apply(Command::Hold(ShardSet::ALL.without(half())));
    node.plane.apply(Command::Note(half(), vec![Note { shard: Shard(0), digest: 0 }; 64].into()));
    assert_eq!(relays(&mut node, Way::Outbound, Ingress::Port, &packets()), [false; 64]);
}

/// Lanes do not follow the packets: all that the peer sends on the SA reaches one node.
#[test]
fn a_received_packet_goes_to_the_carrier_of_its_lane_and_does_not_count_for_it() {
    let (mut node, _) = routed(Spread::PacketHash, half());
    let sent = from_peer(&Tunnel::default(), 200);
    let lanes: Vec<Shard> = (1..=200).map(|number| lane::of_number(SPI_A, number)).collect();
    let relayed: Vec<bool> = lanes.iter().map(|lane| !half().contains(*lane)).collect();
    assert_eq!(relays(&mut node, Way::Inbound, Ingress::Port, &sent), relayed);
    let at_home = lanes.iter().zip(relayed).filter(|(lane, relayed)| *relayed && **lane == SPI_A.shard());
    let counted: u64 = node.plane.counters().relayed_by_shard().sum();
    assert_eq!(counted, at_home.count() as u64);
}

/// Behind routers it lies above all that the peer has sent, until the peer has new keys.
#[test]
fn a_floor_far_above_the_peer_concerns_its_lane_alone() {
    let mut node = member(&Tunnel::default(), Spread::PacketHash, ShardSet::ALL);
    let sent = from_peer(&Tunnel::default(), 200);
    let lane = lane::of_number(SPI_A, 17);
    for far in [1 << 31, 1 << 32, 1 << 40] {
        let told = LaneFloor { floor: far, known: 3, ..floor(lane, 0) };
        node.plane.apply(Command::TakeInLanes(Box::new([told])));
    }
    let expected = |number: u64| match lane::of_number(SPI_A, number as u32) == lane {
        true => REPLAYED,
        false => Verdict::Forward,
    };
    assert_eq!(verdicts(&node.inbound(&sent)), (1..=200).map(expected).collect::<Vec<_>>());
    assert_eq!(node.inbound.lane_tops([lane].into_iter().collect()), [(lane, 1 << 40)]);
    assert!(node.inbound.window().high_water_mark() <= 200);
}
