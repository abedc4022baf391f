use super::*;
use std::collections::BTreeMap;

const IN_TURN: [Spread; 2] = [Spread::PacketRr, Spread::PacketSqf];

fn key() -> SipKey {
    SipKey::new([7; 16])
}

/// A datagram of a session, of so many octets, from the IP header on.
fn datagram(session: u16, number: u32, octets: u16) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend(octets.to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 2, 10, 2, 0, 2]);
    packet.extend(session.to_be_bytes());
    packet.extend([0, 53]);
    packet.extend((octets - 20).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(u64::from(number).to_be_bytes());
    packet.resize(octets.into(), 0);
    packet
}

/// Packets of many sessions, large ones and small ones.
fn traffic(count: u32) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(|number| {
        let mixed = number.wrapping_mul(0x9e37_79b1) >> 8;
        datagram((mixed % 997) as u16, number, if mixed % 3 == 0 { 1400 } else { 80 })
    })
}

#[test]
fn hashes_take_no_turns() {
    let mut node = Turns::default();
    let packet = datagram(1, 1, 100);
    assert_eq!([Spread::SessionHash, Spread::PacketHash].map(|by| node.count(key(), by, &packet)), [None; 2]);
    assert!(IN_TURN.iter().all(|by| node.count(key(), *by, &packet).is_some()));
}

#[test]
fn packets_take_the_lanes_one_after_the_other_from_a_mark_on() {
    let mut node = Turns::default();
    let lanes: Vec<u8> =
        traffic(6400).filter_map(|p| node.count(key(), Spread::PacketRr, &p)).map(|l| l.0).collect();
    let jumps = lanes.windows(2).filter(|pair| pair[1] != pair[0].wrapping_add(1)).count();
    assert!((50..=150).contains(&jumps), "about one mark of 64 packets: {jumps}");
}

/// How far the busiest of six nodes is above the mean, in octets.
fn excess(lanes: &BTreeMap<u8, u64>) -> f64 {
    let mut nodes = [0_u64; 6];
    lanes.iter().for_each(|(lane, octets)| nodes[usize::from(lane % 6)] += octets);
    nodes.iter().copied().max().unwrap() as f64 * 6.0 / nodes.iter().sum::<u64>() as f64 - 1.0
}

#[test]
fn octets_are_dealt_out_alike() {
    let of = |spread: Spread| {
        let (mut node, mut octets) = (Turns::default(), BTreeMap::new());
        for packet in traffic(20_000) {
            let lane =
                node.count(key(), spread, &packet).unwrap_or(crate::lane::of_packet(key(), spread, &packet));
            *octets.entry(lane.0).or_insert(0) += packet.len() as u64;
        }
        excess(&octets)
    };
    for spread in [Spread::PacketRr, Spread::PacketSqf] {
        assert!(of(spread) < 0.06, "{spread:?}: {}", of(spread));
    }
}

/// One node does not get every packet. From the next mark on it counts as the others do.
#[test]
fn nodes_that_have_missed_a_packet_agree_again_from_the_next_mark_on() {
    for spread in [Spread::PacketRr, Spread::PacketSqf] {
        let (mut whole, mut lossy) = (Turns::default(), Turns::default());
        let (mut wrong, mut lost) = (0, 0);
        for (number, packet) in traffic(64_000).enumerate() {
            let lane = whole.count(key(), spread, &packet);
            if number % 1000 == 999 {
                lost += 1;
            } else {
                wrong += u32::from(lossy.count(key(), spread, &packet) != lane);
            }
        }
        assert!(wrong > 0 && wrong < 100 * lost, "{spread:?}: {wrong} of {lost} losses");
    }
}

/// No packet of such a flow shows which it is. If its hash is that of a mark, only the first is one.
#[test]
fn packets_that_are_all_alike_take_turns_too() {
    let lanes_of = |session: u16| {
        let mut node = Turns::default();
        let packet = datagram(session, 0, 100);
        let lanes = (0..64).filter_map(|_| node.count(key(), Spread::PacketRr, &packet));
        lanes.map(|lane| lane.0).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert!((0..500).all(|session| lanes_of(session) == 64));
}

#[test]
fn fragments_take_no_turn() {
    let mut fragment = datagram(1, 1, 100);
    fragment[6] = 0x20;
    let mut node = Turns::default();
    assert!(IN_TURN.iter().all(|by| node.count(key(), *by, &fragment).is_none()));
    assert_eq!(node, Turns::default());
    for (next, is_whole) in [(17, true), (0, false), (43, false), (44, false), (60, false)] {
        let mut packet = vec![0x60, 0, 0, 0, 0, 16, next, 64];
        packet.extend([7; 48]);
        assert_eq!(node.count(key(), Spread::PacketRr, &packet).is_some(), is_whole, "{next}");
    }
}
