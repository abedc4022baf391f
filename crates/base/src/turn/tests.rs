use super::*;

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
fn traffic(numbers: std::ops::Range<u32>) -> impl Iterator<Item = Vec<u8>> {
    numbers.map(|number| {
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
        traffic(0..6400).filter_map(|p| node.count(key(), Spread::PacketRr, &p)).map(|l| l.0).collect();
    let jumps = lanes.windows(2).filter(|pair| pair[1] != pair[0].wrapping_add(1)).count();
    assert!((50..=150).contains(&jumps), "about one mark of 64 packets: {jumps}");
}

/// Of few packets it matters which: over many, turns and hashes are even too.
#[test]
fn the_shortest_queue_deals_octets_out_more_evenly_than_turns_and_hashes() {
    let mut sums = [0.0; 3];
    for start in 0..200 {
        let schemes = [Spread::PacketSqf, Spread::PacketRr, Spread::PacketHash];
        for (sum, spread) in sums.iter_mut().zip(schemes) {
            let (mut node, mut queues) = (Turns::default(), [0_u64; QUEUES]);
            for packet in traffic(start * 50..start * 50 + 50) {
                let hashed = || crate::lane::of_packet(key(), spread, &packet);
                let lane = node.count(key(), spread, &packet).unwrap_or_else(hashed);
                queues[usize::from(lane.0.wrapping_sub(node.base) >> 4)] += packet.len() as u64;
            }
            let (most, all) = (queues.iter().max().unwrap(), queues.iter().sum::<u64>());
            *sum += *most as f64 / all as f64;
        }
    }
    let [shortest, turns, hashes] = sums;
    assert!(shortest < turns && shortest < hashes, "{sums:?}");
}

/// One node does not get every packet. From the next mark on it counts as the others do.
#[test]
fn nodes_that_have_missed_a_packet_agree_again_from_the_next_mark_on() {
    for spread in [Spread::PacketRr, Spread::PacketSqf] {
        let (mut whole, mut lossy) = (Turns::default(), Turns::default());
        let (mut wrong, mut lost) = (0, 0);
        for (number, packet) in traffic(0..64_000).enumerate() {
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
/// Two nodes of which one has missed a packet would never agree again, so hashes decide soon.
#[test]
fn packets_that_are_all_alike_take_turns_for_a_while_only() {
    let mut marks = 0;
    for session in 0..500 {
        let (mut whole, mut lossy) = (Turns::default(), Turns::default());
        let packet = datagram(session, 0, 100);
        marks += u32::from((Seen::of(key(), Spread::PacketRr, &packet).hash >> 24).is_multiple_of(ONE_IN));
        let lanes: Vec<_> = (0..64).map(|_| whole.count(key(), Spread::PacketRr, &packet)).collect();
        assert!(lanes.windows(2).all(|pair| pair[0] != pair[1] && pair[0].is_some()));
        for _ in 0..63 {
            lossy.count(key(), Spread::PacketRr, &packet);
        }
        let mut both = || [&mut whole, &mut lossy].map(|node| node.count(key(), Spread::PacketRr, &packet));
        let lanes: Vec<_> = (0..3000).map(|_| both()).collect();
        let differ = lanes.iter().rposition(|[one, other]| one != other);
        assert!(differ.is_some_and(|last| last < LONGEST as usize), "{differ:?}");
        assert_eq!(both(), [None; 2]);
    }
    assert!(marks > 0, "none was a mark");
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
