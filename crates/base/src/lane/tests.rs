use super::*;
use std::collections::BTreeSet;

const KEY: [u8; 16] = [7; 16];

fn key() -> SipKey {
    SipKey::new(KEY)
}

/// An IPv4 packet between fixed addresses. `fragment`: flags and offset.
fn ipv4(protocol: u8, identification: u16, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend((20 + payload.len() as u16).to_be_bytes());
    packet.extend(identification.to_be_bytes());
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0, 10, 1, 0, 2, 10, 2, 0, 2]);
    packet.extend(payload);
    packet
}

fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next, 64]);
    packet.extend([[0xfd; 16], [0xfe; 16]].as_flattened());
    packet.extend(payload);
    packet
}

fn tcp(sequence: u32) -> Vec<u8> {
    [&[0x9c, 0x40, 0, 80][..], &sequence.to_be_bytes(), &[0; 12]].concat()
}

fn udp(checksum: u16, data: &[u8]) -> Vec<u8> {
    let length = 8 + data.len() as u16;
    [&[0x9c, 0x40, 0, 53][..], &length.to_be_bytes(), &checksum.to_be_bytes(), data].concat()
}

/// Lanes of a series of packets.
fn lanes(spread: Spread, packets: impl Iterator<Item = Vec<u8>>) -> usize {
    packets.map(|packet| of_packet(key(), spread, &packet)).collect::<BTreeSet<_>>().len()
}

#[test]
fn consecutive_numbers_meet_all_lanes_alike() {
    for (spi, first) in [(0x1234_5678, 1_u32), (0xfe00_0001, u32::MAX - 100)] {
        for stride in [1, 2, 3, 4, 6] {
            let mut met = [0_u32; 256];
            for i in 0..2560_u32 {
                let lane = of_number(Spi(spi), first.wrapping_add(i * stride));
                met[usize::from(lane.0)] += 1;
            }
            assert!(met.iter().all(|times| (7..=13).contains(times)), "stride {stride}: {met:?}");
        }
    }
}

#[test]
fn a_session_takes_one_lane_and_its_packets_take_many() {
    let v4 = |sequence: u32| ipv4(TCP, sequence as u16, 0x4000, &tcp(sequence));
    let v6 = |sequence: u32| ipv6(TCP, &tcp(sequence));
    assert_eq!(
        [lanes(Spread::SessionHash, (0..100).map(v4)), lanes(Spread::SessionHash, (0..100).map(v6))],
        [1, 1]
    );
    assert!(lanes(Spread::PacketHash, (0..100).map(v4)) > 60);
    assert!(lanes(Spread::PacketHash, (0..100).map(v6)) > 60);
    let other = ipv4(TCP, 0, 0x4000, &[&[0x9c, 0x41][..], &tcp(0)[2..]].concat());
    assert_ne!(of_packet(key(), Spread::SessionHash, &other), of_packet(key(), Spread::SessionHash, &v4(0)));
}

#[test]
fn a_datagram_without_an_identification_shows_what_it_carries() {
    let datagram = |number: u32| ipv6(UDP, &udp(0, &[&number.to_be_bytes()[..], &[0; 4]].concat()));
    assert!(lanes(Spread::PacketHash, (0..100).map(datagram)) > 60);
    let short = |number: u32| ipv6(UDP, &udp(0, &number.to_be_bytes()));
    assert_eq!(lanes(Spread::PacketHash, (0..100).map(short)), 1, "it carries too little");
}

/// A worker completes an open checksum after the filter has seen the packet.
#[test]
fn checksums_do_not_count() {
    for spread in [Spread::SessionHash, Spread::PacketHash] {
        let of = |checksum| ipv4(UDP, 9, 0x4000, &udp(checksum, b"some data"));
        assert_eq!(lanes(spread, [0, 0xbeef].map(of).into_iter()), 1);
    }
}

#[test]
fn fragments_of_a_datagram_take_one_lane() {
    for spread in [Spread::SessionHash, Spread::PacketHash] {
        let v4 = |offset: u16| ipv4(UDP, 4711, 0x2000 | offset, &udp(offset, &[offset as u8; 64]));
        assert_eq!(lanes(spread, (0..10).map(v4)), 1);
        let v6 =
            |offset: u8| ipv6(FRAGMENT, &[&[UDP, 0, 0, offset << 3, 1, 2, 3, 4][..], &[offset; 64]].concat());
        assert_eq!(lanes(spread, (0..10).map(v6)), 1);
    }
}

/// Octets behind the packet are the link layer's, and a worker does not see them.
#[test]
fn octets_behind_the_packet_do_not_count() {
    for whole in [ipv4(UDP, 9, 0, &udp(0, b"abc")), ipv6(UDP, &udp(0, b"abc")), ipv4(1, 9, 0, &[8, 0, 1])] {
        let padded = [&whole[..], &[0xaa; 20]].concat();
        for spread in [Spread::SessionHash, Spread::PacketHash] {
            assert_eq!(of_packet(key(), spread, &whole), of_packet(key(), spread, &padded));
        }
    }
}

#[test]
fn what_is_no_packet_has_a_lane_too() {
    for octets in [&[][..], &[0x45; 19], &[0x60; 39], &[0x50; 64], &[0x4f; 24]] {
        of_packet(key(), Spread::PacketHash, octets);
    }
}
