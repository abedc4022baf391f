//! Frames of attackers, made by hand or from frames that they have seen.

use crate::frames::{ESP, ETHERNET, ICMP, Random, Road, UDP, checksum, esp, ike, octets};
use std::net::IpAddr;

/// True for ESP behind an IPv4 header without options.
pub fn is_esp(frame: &[u8]) -> bool {
    frame.get(12..15) == Some(&[8, 0, 0x45]) && frame.get(ETHERNET + 9) == Some(&ESP)
}

/// A packet of ESP with a sequence number so far ahead: its ICV is wrong then.
pub fn ahead(frame: &[u8], by: u32) -> Option<Vec<u8>> {
    let mut forged = frame.to_vec();
    let number = forged.get_mut(ETHERNET + 24..)?.first_chunk_mut::<4>()?;
    *number = u32::from_be_bytes(*number).wrapping_add(by).to_be_bytes();
    Some(forged)
}

/// "Fragmentation needed" (RFC 1191) to the sender of a packet, as if from its destination.
pub fn too_big(frame: &[u8], mtu: u16) -> Option<Vec<u8>> {
    let road = Road::of(frame)?;
    let (victim, other) = (*frame.get(6..)?.first_chunk()?, octets(road.to));
    let quoted = frame.get(ETHERNET..)?;
    let quoted = quoted.get(..500).unwrap_or(quoted);
    let mut message = [&[3, 4, 0, 0, 0, 0][..], &mtu.to_be_bytes(), quoted].concat();
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    Some(Road { to_mac: victim, ..road }.between(&other, &octets(road.from), ICMP, &message))
}

/// An answer that nobody has asked for, to the sender of a frame: its destination is at this MAC
/// address.
pub fn arp_reply(frame: &[u8], mac: [u8; 6]) -> Option<Vec<u8>> {
    let road = Road::of(frame)?;
    let victim: [u8; 6] = *frame.get(6..)?.first_chunk()?;
    let (kinds_and_reply, [from, to]) = ([0, 1, 8, 0, 6, 4, 0, 2], [road.from, road.to].map(octets));
    Some([&victim[..], &mac, &[8, 6], &kinds_and_reply, &mac, &to, &victim, &from].concat())
}

/// A request that the labs' gateways agree to (RFC 7296 §1.2), with an SPI of its own.
pub fn ike_sa_init(random: &mut Random) -> Vec<u8> {
    const SA: u8 = 33;
    const KEY_EXCHANGE: u8 = 34;
    const NONCE: u8 = 40;
    const IKE_SA_INIT: u8 = 34;
    let payload = |next: u8, body: &[u8]| {
        let [high, low] = ((4 + body.len()) as u16).to_be_bytes();
        [&[next, 0, high, low][..], body].concat()
    };
    // aes128gcm16, prfsha256, x25519.
    let transforms = [
        &[3, 0, 0, 12, 1, 0, 0, 20, 0x80, 14, 0, 128][..],
        &[3, 0, 0, 8, 2, 0, 0, 5],
        &[0, 0, 0, 8, 4, 0, 0, 31],
    ]
    .concat();
    let [high, low] = ((8 + transforms.len()) as u16).to_be_bytes();
    let proposal = [&[0, 0, high, low, 1, 1, 0, 3][..], &transforms].concat();
    let key = [&[0, 31, 0, 0][..], &random.octets(32)].concat();
    let body =
        [payload(KEY_EXCHANGE, &proposal), payload(NONCE, &key), payload(0, &random.octets(32))].concat();
    ike((random.draw() | 1, 0), SA, 0x20, IKE_SA_INIT, 0x08, 0, &body)
}

/// A packet with an SPI that no SA has.
pub fn unknown_spi(random: &mut Random, road: &Road) -> Vec<u8> {
    let packet = esp(random.draw() as u32 | 0x100, random.draw() as u32, &random.octets(200));
    road.packet(ESP, &packet)
}

/// In clear, as if it came out of a tunnel.
pub fn in_clear(road: &Road, [from, to]: [IpAddr; 2]) -> Vec<u8> {
    road.between(&octets(from), &octets(to), UDP, &[0, 80, 0, 80, 0, 16, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8])
}

/// Two fragments of a packet of ESP that say different things of the same octets.
pub fn overlapping(road: &Road, spi: u32, id: u16) -> [Vec<u8>; 2] {
    let packet = esp(spi, 1 << 30, &[0x55; 600]);
    [(0, true, &packet[..320]), (20, false, &packet[160..])]
        .map(|(offset, more, part)| road.fragment(ESP, id, offset, more, part))
}

/// "Fragmentation needed" about a packet of ESP that the victim has never sent.
pub fn about_nothing(road: &Road, number: u32) -> Vec<u8> {
    let (us, peer) = (octets(road.to), octets(road.from));
    let quoted = road.between(&us, &peer, ESP, &esp(0x1234_5678, number, &[0; 700]));
    let mut message = [&[3, 4, 0, 0, 0, 0, 2, 0][..], &quoted[ETHERNET..]].concat();
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    road.packet(ICMP, &message)
}

/// A request in an IKE SA, sealed with a guessed key.
pub fn guessed(random: &mut Random, road: &Road, ike_spis: (u64, u64)) -> Vec<u8> {
    const ENCRYPTED: u8 = 46;
    const INFORMATIONAL: u8 = 37;
    let body = [&[0, 0, 0, 64][..], &random.octets(60)].concat();
    let id = random.range(0, 4) as u32;
    let message = ike(ike_spis, ENCRYPTED, 0x20, INFORMATIONAL, 0x08, id, &body);
    road.datagram(500, &message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Family, Side};

    const VICTIM: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 2];

    /// A packet of ESP from gw1 to gw2.
    fn seen() -> Vec<u8> {
        let mut frame = Road::to(Side::Two, Family::V4, OTHER).packet(ESP, &esp(7, 41, &[0x55; 900]));
        frame[6..12].copy_from_slice(&VICTIM);
        frame
    }

    #[test]
    fn a_forged_packet_differs_in_its_number() {
        let frame = seen();
        assert!(is_esp(&frame) && !is_esp(&frame[..20]));
        let forged = ahead(&frame, 1000).unwrap();
        let differ: Vec<usize> = (0..frame.len()).filter(|at| frame[*at] != forged[*at]).collect();
        assert_eq!((differ, &forged[38..42]), (vec![40, 41], &1041_u32.to_be_bytes()[..]));
    }

    #[test]
    fn lies_go_to_the_sender_and_quote_its_packet() {
        let frame = seen();
        let road = Road::of(&frame).unwrap();
        let lie = too_big(&frame, 1200).unwrap();
        assert_eq!(lie[..6], VICTIM);
        let back = Road::of(&lie).unwrap();
        assert_eq!((back.from, back.to), (road.to, road.from));
        assert_eq!(lie[34..36], [3, 4]);
        assert_eq!(lie[40..42], 1200_u16.to_be_bytes());
        assert_eq!((lie[42..].len(), &lie[42..542]), (500, &frame[14..514]));
        assert_eq!(checksum(&lie[34..]), 0);
        let reply = arp_reply(&frame, [6; 6]).unwrap();
        assert_eq!((&reply[..6], &reply[22..28]), (&VICTIM[..], &[6; 6][..]));
        assert_eq!(reply[28..32], octets(road.to));
    }

    #[test]
    fn each_request_has_its_own_spi_and_says_its_length() {
        let mut random = Random::new(1);
        let [one, other] = [(); 2].map(|()| ike_sa_init(&mut random));
        assert_ne!(one[..8], other[..8]);
        assert_eq!(one[24..28], (one.len() as u32).to_be_bytes());
    }
}
