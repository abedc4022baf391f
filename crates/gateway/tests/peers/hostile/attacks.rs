//! An attacker's frames in the untrusted network, and the counter of each.

use testudo_lab::forgeries;
use testudo_lab::frames::{ESP, ETHERNET, Random, Road, UDP, UNASSIGNED, esp, ike, octets};
use testudo_lab::topology::{Family, Side};

/// IKE's discards, all reasons together.
pub(super) const IKE: &str = "(ike)";

/// A frame and the counter that must grow by one for it.
pub(super) struct Attack {
    pub(super) frame: Vec<u8>,
    pub(super) counter: &'static str,
}

/// The knowledge of a capable attacker: captured packets, and their owners.
#[derive(Clone)]
pub(super) struct Knowledge {
    /// Of the SA that the peer sends through.
    pub(super) spi: u32,
    /// A number that the SA has not reached.
    pub(super) fresh: u32,
    /// Of the IKE SA.
    pub(super) ike_spis: (u64, u64),
    /// ESP frames of the peer that we have accepted, addressed to us.
    pub(super) captured: Vec<Vec<u8>>,
}

pub(super) type Maker = fn(&mut Random, Road, &Knowledge) -> Attack;

/// Everything that can be had in both families.
const KINDS: [Maker; 25] = [
    unknown_spi,
    unknown_spi_in_udp,
    without_header,
    too_short,
    forged,
    forged_number_zero,
    forged_in_udp,
    replayed,
    damaged_replay,
    renumbered_replay,
    truncated,
    keepalive,
    short_datagram,
    lying_datagram,
    esp_fragment,
    natt_fragment,
    short_fragment,
    wrong_version,
    longer_than_its_frame,
    clear_from_inside,
    clear_as_if_ours,
    other_host,
    ike_noise,
    ike_headers,
    ike_of_the_sa,
];

/// Attacks that only IPv4, or only IPv6, has.
const OF_IPV4: [Maker; 3] = [wrong_checksum, short_header, no_room_for_header];
const OF_IPV6: [Maker; 3] = [endless_extensions, source_route, broken_extension];

/// `count` of each kind, in both families, in an order of their own.
pub(super) fn all(seed: u64, count: usize, to_mac: [u8; 6], known: &Knowledge) -> Vec<Attack> {
    let mut random = Random::new(seed);
    let mut attacks = Vec::new();
    for _ in 0..count {
        for (family, own) in [(Family::V4, OF_IPV4), (Family::V6, OF_IPV6)] {
            let road = Road::to(Side::One, family, to_mac);
            attacks.extend(KINDS.iter().chain(&own).map(|make| make(&mut random, road, known)));
        }
    }
    // Fisher and Yates. The pieces of datagrams keep no order either: each is dropped for itself.
    for at in (1..attacks.len()).rev() {
        attacks.swap(at, random.range(0, at + 1));
    }
    attacks
}

fn attack(frame: Vec<u8>, counter: &'static str) -> Attack {
    Attack { frame, counter }
}

/// IV, some ciphertext and an ICV, as they look from outside.
fn ciphertext(random: &mut Random) -> Vec<u8> {
    let len = 8 + 16 + 4 * random.range(1, 300);
    random.octets(len)
}

fn strange_spi(random: &mut Random, known: &Knowledge) -> u32 {
    let spi = random.draw() as u32 | 0x100;
    if spi == known.spi { spi ^ 0x200 } else { spi }
}

pub(super) fn unknown_spi(random: &mut Random, road: Road, known: &Knowledge) -> Attack {
    let packet = esp(strange_spi(random, known), random.draw() as u32, &ciphertext(random));
    attack(road.packet(ESP, &packet), "unknown_spi")
}

fn unknown_spi_in_udp(random: &mut Random, road: Road, known: &Knowledge) -> Attack {
    let packet = esp(strange_spi(random, known), random.draw() as u32, &ciphertext(random));
    attack(road.datagram(4500, &packet), "unknown_spi")
}

fn without_header(random: &mut Random, road: Road, known: &Knowledge) -> Attack {
    let packet = esp(known.spi, known.fresh, &[]);
    attack(road.packet(ESP, &packet[..random.range(0, 8)]), "filter_drop_esp_short")
}

/// No room for IV, padding and ICV.
fn too_short(random: &mut Random, road: Road, known: &Knowledge) -> Attack {
    let len = random.range(0, 28);
    attack(road.packet(ESP, &esp(known.spi, known.fresh, &random.octets(len))), "esp_too_short")
}

pub(super) fn forged(random: &mut Random, road: Road, known: &Knowledge) -> Attack {
    let sequence = known.fresh + random.range(0, 1 << 30) as u32;
    attack(road.packet(ESP, &esp(known.spi, sequence, &ciphertext(random))), "auth_failed")
}

fn forged_number_zero(random: &mut Random, road: Road, known: &Knowledge) -> Attack {
    attack(road.packet(ESP, &esp(known.spi, 0, &ciphertext(random))), "sequence_invalid")
}

fn forged_in_udp(random: &mut Random, road: Road, known: &Knowledge) -> Attack {
    let packet = esp(known.spi, known.fresh, &ciphertext(random));
    attack(road.datagram(4500, &packet), "auth_failed")
}

fn any_captured(random: &mut Random, known: &Knowledge) -> Vec<u8> {
    known.captured[random.range(0, known.captured.len())].clone()
}

pub(super) fn replayed(random: &mut Random, _: Road, known: &Knowledge) -> Attack {
    attack(any_captured(random, known), "replayed")
}

/// Where ESP begins in a captured frame.
fn esp_at(frame: &[u8]) -> usize {
    ETHERNET + if frame[12] == 0x08 { 20 } else { 40 }
}

/// A replay stays one with other octets behind the number.
fn damaged_replay(random: &mut Random, _: Road, known: &Knowledge) -> Attack {
    let mut frame = any_captured(random, known);
    let at = random.range(esp_at(&frame) + 8, frame.len());
    frame[at] ^= 1 << random.range(0, 8);
    attack(frame, "replayed")
}

/// A real packet with another number fails to authenticate.
fn renumbered_replay(random: &mut Random, _: Road, known: &Knowledge) -> Attack {
    let mut frame = any_captured(random, known);
    let at = esp_at(&frame) + 4;
    let sequence = known.fresh + random.range(0, 1 << 20) as u32;
    frame[at..at + 4].copy_from_slice(&sequence.to_be_bytes());
    attack(frame, "auth_failed")
}

/// A real packet that ends before its IP header says.
fn truncated(random: &mut Random, _: Road, known: &Knowledge) -> Attack {
    let mut frame = any_captured(random, known);
    frame.truncate(random.range(ETHERNET + 1, frame.len()));
    attack(frame, "filter_drop_malformed")
}

fn keepalive(_: &mut Random, road: Road, _: &Knowledge) -> Attack {
    attack(road.datagram(4500, &[0xff]), "filter_drop_keepalive")
}

fn short_datagram(random: &mut Random, road: Road, _: &Knowledge) -> Attack {
    let len = random.range(0, 8);
    let mut payload = random.octets(len);
    // Neither a keepalive, nor behind a marker.
    payload.iter_mut().take(1).for_each(|first| *first = 0x55);
    attack(road.datagram(4500, &payload), "filter_drop_natt_short")
}

fn lying_datagram(random: &mut Random, road: Road, _: &Knowledge) -> Attack {
    let len = random.range(0, 64);
    let payload = random.octets(len);
    let length =
        if random.range(0, 2) == 0 { random.range(0, 8) } else { 9 + payload.len() + random.range(0, 999) };
    let mut datagram = road.udp(4500, length as u16, &payload);
    if random.range(0, 4) == 0 {
        datagram.truncate(random.range(0, 8));
    }
    attack(road.packet(UDP, &datagram), "filter_drop_malformed")
}

/// A fragment whose end is no multiple of eight octets.
fn esp_fragment(random: &mut Random, road: Road, known: &Knowledge) -> Attack {
    let packet = esp(known.spi, known.fresh, &random.octets(63));
    let offset = [0, 9, 18][random.range(0, 3)];
    let id = random.range(0, 30_000) as u16;
    attack(road.fragment(ESP, id, offset, true, &packet), "fragment_invalid")
}

/// The first piece of a datagram to port 4500, smaller than any link makes them.
fn natt_fragment(random: &mut Random, road: Road, known: &Knowledge) -> Attack {
    let payload = esp(known.spi, known.fresh, &random.octets(24));
    let datagram = road.udp(4500, 1000, &payload);
    let id = random.range(30_000, 60_000) as u16;
    attack(road.fragment(UDP, id, 0, true, &datagram), "fragment_tiny")
}

/// A first piece that does not show its ports.
fn short_fragment(random: &mut Random, road: Road, _: &Knowledge) -> Attack {
    let len = random.range(0, 4);
    attack(road.fragment(UDP, 60_001, 0, true, &random.octets(len)), "filter_drop_fragment_short")
}

fn wrong_version(random: &mut Random, road: Road, known: &Knowledge) -> Attack {
    let mut frame = road.packet(ESP, &esp(known.spi, known.fresh, &ciphertext(random)));
    let right = frame[ETHERNET] >> 4;
    let wrong = (right + random.range(1, 16) as u8) % 16;
    frame[ETHERNET] = wrong << 4 | frame[ETHERNET] & 0x0f;
    attack(frame, "filter_drop_malformed")
}

fn longer_than_its_frame(random: &mut Random, road: Road, known: &Knowledge) -> Attack {
    let mut frame = road.packet(ESP, &esp(known.spi, known.fresh, &ciphertext(random)));
    let at = ETHERNET + if road.family == Family::V4 { 2 } else { 4 };
    let length = u16::from_be_bytes([frame[at], frame[at + 1]]) + random.range(1, 9000) as u16;
    frame[at..at + 2].copy_from_slice(&length.to_be_bytes());
    attack(frame, "filter_drop_malformed")
}

/// In clear, as if from behind the peer: to the client, or to us (RFC 4301 §5.2).
pub(super) fn clear_from_inside(random: &mut Random, road: Road, _: &Knowledge) -> Attack {
    let inside = octets(Side::Two.host(road.family));
    let to = [Side::One.host(road.family), Side::One.inner(road.family), Side::One.outer(road.family)];
    let to = octets(to[random.range(0, to.len())]);
    let payload = [&[0, 80, 0, 80, 0, 16, 0, 0][..], &random.octets(8)].concat();
    let protocol = [UDP, UNASSIGNED][random.range(0, 2)];
    attack(road.between(&inside, &to, protocol, &payload), "filter_drop_clear_inbound")
}

/// In clear, as if from behind us, to be carried into the peer's network.
fn clear_as_if_ours(random: &mut Random, road: Road, _: &Knowledge) -> Attack {
    let from = [Side::One.host(road.family), Side::One.inner(road.family), Side::One.outer(road.family)];
    let from = octets(from[random.range(0, from.len())]);
    let to = octets(Side::Two.host(road.family));
    let payload = [&[0, 80, 0, 80, 0, 16, 0, 0][..], &random.octets(8)].concat();
    let protocol = [UDP, UNASSIGNED][random.range(0, 2)];
    attack(road.between(&from, &to, protocol, &payload), "spoofed_source")
}

/// For a worker by its contents, but in a frame for somebody else.
fn other_host(random: &mut Random, road: Road, known: &Knowledge) -> Attack {
    let elsewhere = Road { to_mac: [2, 0, 0, 0, 0, 0x77], ..road };
    let packet = esp(known.spi, known.fresh, &ciphertext(random));
    attack(elsewhere.packet(ESP, &packet), "filter_drop_other_host")
}

fn wrong_checksum(random: &mut Random, road: Road, known: &Knowledge) -> Attack {
    let mut frame = road.packet(ESP, &esp(known.spi, known.fresh, &ciphertext(random)));
    frame[ETHERNET + 10] ^= 1 << random.range(0, 8);
    attack(frame, "malformed")
}

fn short_header(random: &mut Random, road: Road, known: &Knowledge) -> Attack {
    let mut frame = road.packet(ESP, &esp(known.spi, known.fresh, &ciphertext(random)));
    frame[ETHERNET] = 0x40 | random.range(0, 5) as u8;
    attack(frame, "filter_drop_malformed")
}

fn no_room_for_header(random: &mut Random, road: Road, _: &Knowledge) -> Attack {
    let mut frame = road.packet(ESP, &[]);
    frame.truncate(ETHERNET + random.range(0, 20));
    attack(frame, "filter_drop_malformed")
}

/// Destination options without options: 6 octets of PadN (RFC 8200 §4.2).
fn padding(next: u8) -> [u8; 8] {
    [next, 0, 1, 4, 0, 0, 0, 0]
}

const DESTINATION: u8 = 60;
const ROUTING: u8 = 43;

fn endless_extensions(random: &mut Random, road: Road, known: &Knowledge) -> Attack {
    let count = random.range(10, 60);
    let headers: Vec<u8> = (1..count).flat_map(|_| padding(DESTINATION)).chain(padding(ESP)).collect();
    let payload = [headers, esp(known.spi, known.fresh, &random.octets(64))].concat();
    attack(road.packet(DESTINATION, &payload), "filter_drop_extension_headers")
}

fn source_route(random: &mut Random, road: Road, known: &Knowledge) -> Attack {
    let header = [&[ESP, 2, 0, 1, 0, 0, 0, 0][..], &random.octets(16)].concat();
    let payload = [header, esp(known.spi, known.fresh, &random.octets(64))].concat();
    attack(road.packet(ROUTING, &payload), "filter_drop_routing_header")
}

/// An extension header that is longer than its packet, or that the packet's end cuts.
fn broken_extension(random: &mut Random, road: Road, _: &Knowledge) -> Attack {
    let mut header = padding(ESP);
    header[1] = random.range(1, 256) as u8;
    attack(road.packet(DESTINATION, &header[..random.range(0, 9)]), "filter_drop_malformed")
}

/// Port 500, or 4500 behind the marker.
fn to_ike(random: &mut Random, road: Road, message: &[u8]) -> Vec<u8> {
    match random.range(0, 2) {
        0 => road.datagram(500, message),
        _ => road.datagram(4500, &[&[0; 4], message].concat()),
    }
}

fn ike_noise(random: &mut Random, road: Road, _: &Knowledge) -> Attack {
    let len = random.range(0, 1200);
    let message = random.octets(len);
    attack(to_ike(random, road, &message), IKE)
}

/// Headers that are right, or almost, before noise.
fn ike_headers(random: &mut Random, road: Road, _: &Knowledge) -> Attack {
    let len = random.range(0, 600);
    let body = random.octets(len);
    let version = [0x20, 0x20, 0x20, 0x10, 0x30][random.range(0, 5)];
    let exchange = [34, 35, 36, 37, 200][random.range(0, 5)];
    let flags = [0x08, 0x00, 0x28, 0x20][random.range(0, 4)];
    let responder = if random.range(0, 2) == 0 { 0 } else { random.draw() };
    let next = [33, 34, 40, 41, 46, 0][random.range(0, 6)];
    let mut message = ike((random.draw(), responder), next, version, exchange, flags, 0, &body);
    if random.range(0, 4) == 0 {
        message.truncate(random.range(0, message.len()));
    }
    attack(to_ike(random, road, &message), IKE)
}

/// A request of the peer, well-formed and sealed with a guessed key.
pub(super) fn guessed(random: &mut Random, road: Road, known: &Knowledge) -> Attack {
    attack(forgeries::guessed(random, &road, known.ike_spis), IKE)
}

/// As if it belonged to the IKE SA: sealed with no key of ours, or not sealed at all.
fn ike_of_the_sa(random: &mut Random, road: Road, known: &Knowledge) -> Attack {
    let len = random.range(4, 300);
    let mut body = random.octets(len);
    let [high, low] = (len as u16).to_be_bytes();
    body[..4].copy_from_slice(&[0, 0, high, low]);
    let next = [46, 41, 42][random.range(0, 3)];
    let exchange = [35, 36, 37][random.range(0, 3)];
    let flags = [0x08, 0x00, 0x28, 0x20][random.range(0, 4)];
    let message = ike(known.ike_spis, next, 0x20, exchange, flags, random.range(0, 4) as u32, &body);
    attack(to_ike(random, road, &message), IKE)
}
