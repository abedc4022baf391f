use super::*;
use crate::session::{SLOTS, Told};
use std::sync::atomic::AtomicU64;

const IN_TURN: [Spread; 2] = [Spread::PacketRr, Spread::PacketSqf];
const BY_SESSION: [Spread; 2] = [Spread::SessionRr, Spread::SessionSqf];

fn key() -> SipKey {
    SipKey::new([7; 16])
}

fn count(node: &mut Turns, by: Spread, packet: &[u8]) -> Option<Shard> {
    node.count(key(), by, packet, Sessions::NONE)
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
    assert_eq!([Spread::SessionHash, Spread::PacketHash].map(|by| count(&mut node, by, &packet)), [None; 2]);
    assert!(IN_TURN.iter().all(|by| count(&mut node, *by, &packet).is_some()));
}

#[test]
fn packets_take_the_lanes_one_after_the_other_from_a_mark_on() {
    let mut node = Turns::default();
    let lanes: Vec<u8> =
        traffic(0..6400).filter_map(|p| count(&mut node, Spread::PacketRr, &p)).map(|l| l.0).collect();
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
                let lane = count(&mut node, spread, &packet).unwrap_or_else(hashed);
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
            let lane = count(&mut whole, spread, &packet);
            if number % 1000 == 999 {
                lost += 1;
            } else {
                wrong += u32::from(count(&mut lossy, spread, &packet) != lane);
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
        let lanes: Vec<_> = (0..64).map(|_| count(&mut whole, Spread::PacketRr, &packet)).collect();
        assert!(lanes.windows(2).all(|pair| pair[0] != pair[1] && pair[0].is_some()));
        for _ in 0..63 {
            count(&mut lossy, Spread::PacketRr, &packet);
        }
        let mut both = || [&mut whole, &mut lossy].map(|node| count(node, Spread::PacketRr, &packet));
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
    assert!(IN_TURN.iter().all(|by| count(&mut node, *by, &fragment).is_none()));
    assert_eq!(node, Turns::default());
    for (next, is_whole) in [(17, true), (0, false), (43, false), (44, false), (60, false)] {
        let mut packet = vec![0x60, 0, 0, 0, 0, 16, next, 64];
        packet.extend([7; 48]);
        assert_eq!(count(&mut node, Spread::PacketRr, &packet).is_some(), is_whole, "{next}");
    }
}

/// The hash of a session: all of its packets have it, with either scheme.
fn hash(session: u16) -> u64 {
    Seen::of(key(), Spread::SessionRr, &datagram(session, 0, 100)).hash
}

/// True if the first packet of a session is a mark.
fn is_mark(session: &u16) -> bool {
    (hash(*session) >> 24).is_multiple_of(SESSIONS_ONE_IN)
}

/// A node that lets sessions take turns.
struct Node {
    turns: Turns,
    words: Vec<AtomicU64>,
}

impl Node {
    fn new() -> Self {
        Self { turns: Turns::default(), words: (0..SLOTS).map(|_| AtomicU64::new(0)).collect() }
    }

    fn sessions(&self) -> Sessions<'_> {
        Sessions::of(&self.words)
    }

    fn count(&mut self, by: Spread, packet: &[u8]) -> Option<Shard> {
        self.turns.count(key(), by, packet, Sessions::of(&self.words))
    }

    /// Follows another node in all slots. How many that has changed.
    fn follow(&self, authority: &Node) -> usize {
        let told = |slot| Told { slot, session: authority.sessions().get(slot) };
        let followed = (0..SLOTS).map(|slot| self.sessions().follow(told(slot)));
        followed.filter(|followed| *followed != crate::session::Followed::Nothing).count()
    }
}

#[test]
fn a_session_keeps_the_lane_of_its_first_packet() {
    for by in BY_SESSION {
        let mut node = Node::new();
        let lanes: Vec<_> = (0..90).map(|session| node.count(by, &datagram(session, 0, 100))).collect();
        for number in 1..20 {
            let again: Vec<_> =
                (0..90).map(|session| node.count(by, &datagram(session, number, 1000))).collect();
            assert_eq!(again, lanes);
        }
        let mut found: Vec<_> = lanes.into_iter().flatten().collect();
        assert!(found.len() >= 88, "few share a slot: {}", found.len());
        found.sort();
        found.dedup();
        assert!(found.len() > 60, "they take turns: {}", found.len());
    }
}

#[test]
fn a_session_whose_slot_another_one_has_goes_by_its_hash() {
    let mut node = Node::new();
    let slot = |session| hash(session) >> 8 & u64::from(SLOTS - 1);
    let other = (1..60_000).find(|session| slot(*session) == slot(0)).unwrap();
    assert!(node.count(Spread::SessionRr, &datagram(0, 0, 100)).is_some());
    let before = node.turns.clone();
    assert_eq!(node.count(Spread::SessionRr, &datagram(other, 0, 100)), None);
    assert_eq!(node.turns, before, "it takes no turn");
}

#[test]
fn a_new_session_takes_the_lane_with_the_fewest_octets_of_four() {
    let mut node = Node::new();
    let mut chosen = [0; 4];
    for session in 0..2000 {
        let packet = datagram(session, 0, 100);
        let named: [u8; 4] = hash(session).to_le_bytes()[4..].try_into().unwrap();
        let before = if is_mark(&session) { LaneQueues::default() } else { node.turns.lanes.clone() };
        let Some(lane) = node.count(Spread::SessionSqf, &packet) else { continue };
        let least = named.map(|lane| before.0[usize::from(lane)]).into_iter().min();
        assert_eq!(Some(before.0[usize::from(lane.0)]), least, "{session}");
        chosen[named.iter().position(|named| *named == lane.0).unwrap()] += 1;
        // Every tenth goes on with large packets, and all of them count.
        (1..=u32::from(session % 10 == 0) * 9).for_each(|number| {
            node.count(Spread::SessionSqf, &datagram(session, number, 1000));
        });
        let octets = if session % 10 == 0 { 9100 } else { 100 };
        assert_eq!(node.turns.lanes.0[usize::from(lane.0)], before.0[usize::from(lane.0)] + octets);
    }
    assert!(chosen[0] < 1900 && chosen[1] > 20, "others are chosen if the first has octets: {chosen:?}");
}

#[test]
fn the_octets_of_a_lane_stop_at_their_bound() {
    let mut queues = LaneQueues::default();
    (0..2).for_each(|_| queues.add(Shard(7), u32::MAX / 2));
    assert_eq!(queues.0[7], u32::MAX - 1);
    queues.add(Shard(7), 9);
    assert_eq!(queues.0[7], u32::MAX);
    assert_eq!(queues.shortest_of(u64::from_le_bytes([0, 0, 0, 0, 7, 7, 9, 7])), Shard(9));
}

/// A node that has missed packets of sessions that it knows counts their octets otherwise.
#[test]
fn a_mark_puts_the_octets_of_lanes_right() {
    let (mut whole, mut lossy) = (Node::new(), Node::new());
    for session in 0..200 {
        for number in 0..5 {
            let packet = datagram(session, number, 100 * (number as u16 + 1));
            let lane = whole.count(Spread::SessionSqf, &packet);
            if number < 4 {
                assert!(session > 0 || lossy.count(Spread::SessionSqf, &packet) == lane);
                lossy.count(Spread::SessionSqf, &packet);
            }
        }
    }
    assert_ne!(whole.turns, lossy.turns);
    let mark = (1000..2000).find(is_mark).unwrap();
    let both = [&mut whole, &mut lossy].map(|node| {
        node.sessions().clear();
        node.count(Spread::SessionSqf, &datagram(mark, 0, 100))
    });
    assert_eq!(both[0], both[1]);
    assert_eq!(whole.turns, lossy.turns);
}

/// A node that misses the first packet of a session, or has just started, counts on otherwise than
/// the others, until the next mark. What they say puts its sessions right.
#[test]
fn nodes_that_follow_an_authority_agree_about_all_sessions() {
    for by in BY_SESSION {
        let (mut whole, mut lossy) = (Node::new(), Node::new());
        let (mut wrong, mut followed) = (0, 0);
        for number in 0..20_000_u32 {
            let session = (number / 8 + number % 5 * 3) as u16;
            let packet = datagram(session, number, 100);
            let lane = whole.count(by, &packet);
            if number % 500 != 499 {
                wrong += usize::from(lossy.count(by, &packet) != lane);
            }
            if number % 50 == 0 {
                whole.sessions().grow_older();
                lossy.sessions().grow_older();
                followed += lossy.follow(&whole);
            }
        }
        assert!(followed > 0 && wrong < 4000, "{by:?}: {wrong} wrong, {followed} followed");
        // The hash of a session names the lanes among which it goes, whichever packet comes first.
        assert_eq!(wrong > 100, by == Spread::SessionRr, "{by:?}: {wrong} wrong");
        (0..2).for_each(|_| lossy.sessions().grow_older());
        lossy.follow(&whole);
        assert_eq!(lossy.follow(&whole), 0);
        assert!((0..SLOTS).all(|slot| lossy.sessions().get(slot) == whole.sessions().get(slot)));
    }
}

/// All of its packets are, so the count would begin again and again.
#[test]
fn only_the_first_packet_of_a_session_is_a_mark() {
    let mut node = Node::new();
    let marks: Vec<u16> = (0..1000).filter(is_mark).take(2).collect();
    for number in 0..10 {
        for session in &marks {
            node.count(Spread::SessionRr, &datagram(*session, number, 100));
        }
    }
    let begun = node.turns.mark >> 16;
    assert_eq!(node.turns.next.wrapping_sub(begun), 1, "the second mark was the last that counted");
}

/// Some sessions come again and again: if one of them is a mark, it puts nodes right each time.
#[test]
fn a_session_that_comes_again_is_a_mark_again() {
    let mut node = Node::new();
    let mark = (0..1000).find(is_mark).unwrap();
    let first = node.count(Spread::SessionRr, &datagram(mark, 0, 100));
    (1000..1010).filter(|session| !is_mark(session)).for_each(|session| {
        node.count(Spread::SessionRr, &datagram(session, 0, 100));
    });
    node.sessions().clear();
    assert_eq!(node.count(Spread::SessionRr, &datagram(mark, 1, 100)), first);
}
