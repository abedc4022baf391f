//! Open checksums filled in, against a plain model of what the sender's device would have done.

use super::*;
use proptest::prelude::*;

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const OPTIONS: u8 = 60;

/// RFC 1071 §1, octet by octet: the complement of the sum.
fn plain(octets: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in octets.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A packet without its checksum.
#[derive(Clone, Debug)]
struct Packet {
    v6: bool,
    /// Of IPv4 the first four octets.
    src: [u8; 16],
    dst: [u8; 16],
    /// Flags and offset of IPv4.
    fragment: u16,
    /// Options of IPv4, or extension headers of IPv6.
    between: Vec<u8>,
    /// The next header of the IPv6 header.
    next: u8,
    protocol: u8,
    segment: Vec<u8>,
    /// Octets behind the packet, as Ethernet fills up short frames.
    padding: usize,
}

impl Packet {
    fn new(v6: bool, protocol: u8, payload: &[u8]) -> Self {
        let mut segment = vec![0x30, 0x39, 0x14, 0x51];
        match protocol {
            UDP => segment.extend([(payload.len() + 8).to_be_bytes()[6..].to_vec(), vec![0, 0]].concat()),
            _ => segment.extend([0, 0, 0, 5, 0, 0, 0, 9, 0x50, 0x10, 1, 0, 0, 0, 0, 0]),
        }
        segment.extend(payload);
        let (src, dst) = ([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], [0xfd; 16]);
        let (fragment, between, padding) = (0, Vec::new(), 0);
        Self { v6, src, dst, fragment, between, next: protocol, protocol, segment, padding }
    }

    fn address_len(&self) -> usize {
        if self.v6 { 16 } else { 4 }
    }

    fn pseudo(&self) -> Vec<u8> {
        let len = self.address_len();
        let mut octets = [&self.src[..len], &self.dst[..len]].concat();
        octets.extend((self.segment.len() as u32).to_be_bytes());
        octets.extend([0, 0, 0, self.protocol]);
        octets
    }

    /// The value of a partial checksum.
    fn open(&self) -> u16 {
        !plain(&self.pseudo())
    }

    /// The value of the completed checksum. Of the two zeros it is the one that UDP may send.
    fn finished(&self) -> u16 {
        match plain(&[self.pseudo(), self.segment.clone()].concat()) {
            0 => 0xffff,
            value => value,
        }
    }

    fn at(&self) -> usize {
        if self.protocol == UDP { 6 } else { 16 }
    }

    /// The octets, with that in the field of the checksum.
    fn with(&self, checksum: u16) -> Vec<u8> {
        let mut segment = self.segment.clone();
        if let Some(field) = segment.get_mut(self.at()..self.at() + 2) {
            field.copy_from_slice(&checksum.to_be_bytes());
        }
        let behind = (self.between.len() + segment.len()) as u16;
        let mut octets = if self.v6 {
            let [high, low] = behind.to_be_bytes();
            vec![0x60, 0, 0, 0, high, low, self.next, 64]
        } else {
            let [high, low] = (behind + 20).to_be_bytes();
            let [flags, offset] = self.fragment.to_be_bytes();
            let words = 5 + self.between.len() / 4;
            vec![0x40 | words as u8, 0, high, low, 0, 7, flags, offset, 64, self.protocol, 0, 0]
        };
        let len = self.address_len();
        octets.extend([&self.src[..len], &self.dst[..len], &self.between, &segment].concat());
        octets.extend(vec![0xee; self.padding]);
        octets
    }
}

fn filled(mut octets: Vec<u8>) -> (bool, Vec<u8>) {
    let changed = fill_open(&mut octets);
    (changed, octets)
}

#[track_caller]
fn is_filled(packet: &Packet) {
    assert_eq!(filled(packet.with(packet.open())), (true, packet.with(packet.finished())), "{packet:?}");
}

#[track_caller]
fn is_untouched(octets: Vec<u8>) {
    assert_eq!(filled(octets.clone()), (false, octets));
}

fn all() -> impl Iterator<Item = Packet> {
    let kinds = [(false, TCP), (false, UDP), (true, TCP), (true, UDP)];
    kinds.into_iter().map(|(v6, protocol)| Packet::new(v6, protocol, b"some text"))
}

#[test]
fn an_open_checksum_is_filled_in() {
    all().for_each(|packet| is_filled(&packet));
}

#[test]
fn a_finished_checksum_and_a_wrong_one_stay() {
    for packet in all() {
        is_untouched(packet.with(packet.finished()));
        is_untouched(packet.with(packet.open() ^ 0x0101));
    }
}

#[test]
fn udp_may_have_no_checksum() {
    for v6 in [false, true] {
        is_untouched(Packet::new(v6, UDP, b"none").with(0));
    }
}

/// In UDP zero means that there is no checksum (RFC 768).
#[test]
fn a_checksum_of_zero_becomes_the_other_zero() {
    for packet in all() {
        let last = packet.segment.len() & !1;
        let mut packet = Packet { segment: packet.segment[..last].to_vec(), ..packet };
        if packet.protocol == UDP {
            packet.segment[4..6].copy_from_slice(&(last as u16).to_be_bytes());
        }
        packet.segment[last - 2..].fill(0);
        let missing = plain(&[packet.pseudo(), packet.segment.clone()].concat());
        packet.segment[last - 2..].copy_from_slice(&missing.to_be_bytes());
        assert_eq!(packet.finished(), 0xffff);
        is_filled(&packet);
    }
}

#[test]
fn fragments_are_untouched() {
    for protocol in [TCP, UDP] {
        for fragment in [0x2000, 0x0001, 0x2001] {
            let packet = Packet { fragment, ..Packet::new(false, protocol, b"a part") };
            is_untouched(packet.with(packet.open()));
        }
        for place in [0, 1, 8, 9] {
            let mut packet = Packet::new(true, protocol, b"a part");
            (packet.next, packet.between) = (FRAGMENT, vec![protocol, 0, 0, place, 0, 0, 0, 7]);
            is_untouched(packet.with(packet.open()));
        }
    }
}

#[test]
fn ipv4_options_stand_before_the_segment() {
    // Router alert; a record of the route; a loose source route that is used up.
    for between in [&[148, 4, 0, 0][..], &[7, 7, 4, 0, 0, 0, 0, 1], &[131, 7, 8, 10, 0, 0, 1, 0]] {
        is_filled(&Packet { between: between.to_vec(), ..Packet::new(false, TCP, b"text") });
    }
}

/// The pseudo-header has the last destination, which is another one.
#[test]
fn a_source_route_that_goes_on_is_untouched() {
    for kind in [131, 137] {
        let between = vec![1, kind, 7, 4, 10, 0, 0, 1];
        let packet = Packet { between, ..Packet::new(false, UDP, b"text") };
        is_untouched(packet.with(packet.open()));
    }
    let mut packet = Packet::new(true, TCP, b"text");
    (packet.next, packet.between) = (ROUTING, [vec![TCP, 2, 2, 1, 0, 0, 0, 0], vec![9; 16]].concat());
    is_untouched(packet.with(packet.open()));
    packet.between[3] = 0;
    is_filled(&packet);
}

#[test]
fn ipv6_extension_headers_stand_before_the_segment() {
    let mut packet = Packet::new(true, UDP, b"text");
    let router_alert = [OPTIONS, 0, 5, 2, 0, 0, 1, 0];
    let padding = [UDP, 0, 0, 0, 1, 2, 0, 0];
    (packet.next, packet.between) = (HOP_BY_HOP, [router_alert, padding].concat());
    is_filled(&packet);
}

/// The pseudo-header has the home address for the source (RFC 6275 §11.3.1).
#[test]
fn a_mobile_nodes_packet_is_untouched() {
    let home = [vec![TCP, 2, 1, 2, 0, 0, HOME_ADDRESS, 16], vec![9; 16]].concat();
    let truncated = vec![TCP, 0, 0, 0, 0, 0, 0, 5];
    for between in [home, truncated] {
        let packet = Packet { next: OPTIONS, between, ..Packet::new(true, TCP, b"text") };
        is_untouched(packet.with(packet.open()));
    }
}

#[test]
fn other_protocols_are_untouched() {
    for v6 in [false, true] {
        for protocol in [33, 1, 58, 136] {
            let packet = Packet::new(v6, protocol, &[0; 20]);
            is_untouched(packet.with(packet.open()));
        }
    }
}

/// Packets of SCTP as scapy builds them: DATA over IPv4, and INIT over IPv6.
const SCTP_PACKETS: [&str; 2] = [
    "4500003c00070000408466310a0100020a020002 1388960c01020304c21fbffe 0003001900000009000100020000003c\
     736f6d652074657874000000",
    "600000000020844020010db800010000000000000000000220010db8000200000000000000000002 1388960c010203041eea6b9d\
     010000140000000700010000000a000a00000005",
];

fn octets(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

#[test]
fn an_open_checksum_of_sctp_is_filled_in() {
    for (hex, header) in SCTP_PACKETS.into_iter().zip([20, 40]) {
        let finished = octets(hex);
        let mut open = finished.clone();
        open[header + 8..header + 12].fill(0);
        assert_eq!(filled(open.clone()), (true, finished.clone()));
        // Ethernet's padding is no part of it.
        let padded = |octets: &[u8]| [octets, &[0xee; 9]].concat();
        assert_eq!(filled(padded(&open)), (true, padded(&finished)));
        is_untouched(finished.clone());
        let mut wrong = finished;
        wrong[header + 8] ^= 1;
        is_untouched(wrong);
        (0..open.len()).for_each(|len| is_untouched(open[..len].to_vec()));
    }
    // A fragment, and one that has no room for its common header.
    for (len, fragment) in [(40, 0x2000), (40, 1), (11, 0)] {
        let segment = vec![0; len];
        is_untouched(Packet { segment, fragment, ..Packet::new(false, SCTP, &[]) }.with(0));
    }
}

/// A datagram may be shorter than what the IP header says; what lies behind it is not covered.
#[test]
fn udp_of_another_length_is_untouched() {
    for v6 in [false, true] {
        for wrong in [7, 11, 13] {
            let mut packet = Packet::new(v6, UDP, b"four");
            packet.segment[4..6].copy_from_slice(&u16::to_be_bytes(wrong));
            is_untouched(packet.with(packet.open()));
        }
    }
}

#[test]
fn truncated_packets_are_not_changed() {
    for whole in all() {
        let octets = whole.with(whole.open());
        (0..octets.len()).for_each(|len| is_untouched(octets[..len].to_vec()));
        // The packet itself is short, and says so.
        let header = if whole.protocol == TCP { 20 } else { 8 };
        for len in 0..header {
            let short = Packet { segment: whole.segment[..len].to_vec(), ..whole.clone() };
            is_untouched(short.with(short.open()));
        }
    }
}

fn packets() -> impl Strategy<Value = Packet> {
    let content = prop::collection::vec(any::<u8>(), 0..1500);
    let (src, dst) = (any::<[u8; 16]>(), any::<[u8; 16]>());
    (any::<bool>(), prop_oneof![Just(TCP), Just(UDP)], src, dst, content, 0..47usize).prop_map(
        |(v6, protocol, src, dst, content, padding)| {
            let mut packet = Packet::new(v6, protocol, &content);
            // Ports and, of TCP, all else may have any value.
            let free = if protocol == TCP { 16 } else { 4 };
            for (to, from) in packet.segment[..free].iter_mut().zip(&content) {
                *to = *from;
            }
            Packet { src, dst, padding, ..packet }
        },
    )
}

proptest! {
    #[test]
    fn the_plain_model_fills_in_the_same(packet in packets()) {
        let (open, finished) = (packet.with(packet.open()), packet.with(packet.finished()));
        let (changed, octets) = filled(open.clone());
        prop_assert_eq!(changed, open != finished);
        prop_assert_eq!(octets, finished);
    }

    /// Whatever the field holds otherwise, right or wrong, it keeps.
    #[test]
    fn all_other_values_stay(packet in packets(), value in any::<u16>()) {
        prop_assume!(value != packet.open());
        let octets = packet.with(value);
        prop_assert_eq!(filled(octets.clone()), (false, octets));
    }

    /// One whose finished checksum is the sum of its pseudo-header is taken for open, and stays.
    #[test]
    fn one_that_only_looks_open_stays_right(packet in packets()) {
        let mut packet = packet;
        packet.segment.truncate(packet.segment.len() & !1);
        packet.segment.extend([0, 0]);
        let last = packet.segment.len() - 2;
        if packet.protocol == UDP {
            packet.segment[4..6].copy_from_slice(&(last as u16 + 2).to_be_bytes());
        }
        // Pseudo-header, field and segment sum up to 0 modulo 65535; field and pseudo-header are
        // equal.
        let rest = u32::from(!plain(&packet.segment));
        let word = (4 * 0xffff - 2 * u32::from(packet.open()) - rest) % 0xffff;
        packet.segment[last..].copy_from_slice(&(word as u16).to_be_bytes());
        prop_assert_eq!(packet.finished(), packet.open());
        let octets = packet.with(packet.open());
        prop_assert_eq!(filled(octets.clone()), (false, octets));
    }

    #[test]
    fn any_octets_are_safe(mut octets in prop::collection::vec(any::<u8>(), 0..120), head in 0..4u8, upper in 0..4u8) {
        // Most would be no packet at all.
        if octets.len() > 10 && head < 3 {
            octets[0] = if head == 0 { 0x60 } else { 0x44 | head };
            let upper = [TCP, UDP, OPTIONS, SCTP][usize::from(upper)];
            let len = octets.len() as u16;
            let (at, len) = if head == 0 { (4, len.saturating_sub(40)) } else { (2, len) };
            octets[at..at + 2].copy_from_slice(&len.to_be_bytes());
            octets[if head == 0 { 6 } else { 9 }] = upper;
        }
        let (changed, after) = filled(octets.clone());
        prop_assert_eq!(after.len(), octets.len());
        let differ = octets.iter().zip(&after).filter(|(a, b)| a != b).count();
        prop_assert!(differ <= 4 && changed == (differ > 0));
        prop_assert_eq!(filled(after.clone()), (false, after));
    }
}
