//! The packets that the gateway receives: those of a host, or of the other gateway, as a pcap
//! capture.

use super::Way;
use super::error::SecgwError;
use crate::esp::gateway::Side;
use crate::esp::traffic::{self, Traffic};
use crate::esp::{Suite, suite::Around};
use testudo_crypto::{Aad, AeadKey, Library, SALT_LEN, TAG_LEN};
use testudo_fastpath::mac::MacAddr;
use testudo_wire::ethernet::{EtherType, Ethernet, HEADER};
use testudo_wire::ip::Protocol;
use testudo_wire::{esp, ipv4};

/// The SPI of the only SA, and its name in the configuration.
pub(super) const SPI: u32 = 5;
/// Value of every octet of the key and of the salt.
pub(super) const KEY_OCTET: u8 = 0x22;
/// Packets of a capture: a multiple of every mixture's length.
const COUNT: usize = 60;
/// Ethernet in the pcap format.
const LINK_TYPE: u32 = 1;

/// Frames to receive, and their lengths.
pub(super) struct Packets {
    frames: Vec<Vec<u8>>,
    /// Mean octets of a received frame.
    pub(super) received: f64,
    /// Mean octets of the frame that is sent for it.
    pub(super) sent: f64,
}

impl Packets {
    /// Plain packets for encryption, encrypted ones for decryption.
    pub(super) fn new(way: Way, suite: Suite, traffic: Traffic) -> Result<Self, SecgwError> {
        let plain: Vec<_> = traffic.sizes().iter().map(|size| traffic::packet(*size, traffic::TTL)).collect();
        let plain = || plain.iter().cycle().take(COUNT);
        let sealed = plain()
            .zip(1..)
            .map(|(packet, sequence)| seal(suite, packet, sequence))
            .collect::<Result<Vec<_>, _>>()?;
        let mean = |packets: &[Vec<u8>]| {
            packets.iter().map(|packet| (HEADER + packet.len()) as f64).sum::<f64>() / COUNT as f64
        };
        let plain: Vec<_> = plain().cloned().collect();
        let (inner, outer) = (mean(&plain), mean(&sealed));
        Ok(match way {
            Way::Out => Self { frames: framed(plain), received: inner, sent: outer },
            Way::In => Self { frames: framed(sealed), received: outer, sent: inner },
        })
    }

    /// The packets as a file.
    pub(super) fn pcap(&self) -> Vec<u8> {
        // Magic number, version 2.4, time zone, accuracy, longest frame, link type.
        let mut file: Vec<u8> = 0xA1B2_C3D4_u32.to_le_bytes().to_vec();
        file.extend([2, 4].map(u16::to_le_bytes).as_flattened());
        file.extend([0, 0, u32::from(u16::MAX), LINK_TYPE].map(u32::to_le_bytes).as_flattened());
        for frame in &self.frames {
            // Seconds, microseconds, captured octets, original octets.
            let len = frame.len() as u32;
            file.extend([0, 0, len, len].map(u32::to_le_bytes).as_flattened());
            file.extend(frame);
        }
        file
    }
}

fn framed(packets: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let [dst, src] = [1, 2].map(|last| MacAddr([2, 0, 0, 0, 0, last]));
    let header = Ethernet { dst, src, ethertype: EtherType::IPV4 }.to_bytes();
    packets.into_iter().map(|packet| [&header[..], &packet].concat()).collect()
}

/// The packet in ESP, from one gateway to the other (RFC 4303 §3.1.2, RFC 4106), without extended
/// sequence numbers: with them the gateway would refuse repeated packets.
fn seal(suite: Suite, packet: &[u8], sequence: u32) -> Result<Vec<u8>, SecgwError> {
    let algorithm = suite.aead().ok_or(SecgwError::NoAead(suite.name()))?;
    let key = vec![KEY_OCTET; algorithm.key_len()];
    let key = AeadKey::new(Library::AwsLc, algorithm, &key, [KEY_OCTET; SALT_LEN])?;
    let Around { align, .. } = suite.around();

    let mut text = packet.to_vec();
    text.resize(packet.len() + esp::pad_len(packet.len(), align) + esp::TRAILER, 0);
    let written = esp::write_trailer(&mut text[packet.len()..], Protocol::IPV4);
    debug_assert!(written, "padding is shorter than a word");
    let iv = u64::from(sequence).to_be_bytes();
    let mut tag = [0; TAG_LEN];
    key.seal(iv, Aad::esp(SPI, sequence).as_bytes(), &mut text, &mut tag);

    let body = [&SPI.to_be_bytes()[..], &sequence.to_be_bytes(), &iv, &text, &tag].concat();
    let outer = ipv4::Fields {
        tos: 0,
        total_len: (ipv4::HEADER + body.len()) as u16,
        id: 0,
        df: true,
        ttl: traffic::TTL,
        protocol: Protocol::ESP,
        src: Side::Near.address(),
        dst: Side::Far.address(),
    };
    Ok([&outer.to_bytes()[..], &body].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_packet_is_opened_to_what_it_was() {
        let packet = traffic::packet(64, traffic::TTL);
        let sealed = seal(Suite::AES128GCM16, &packet, 7).expect("it is an AEAD");
        assert_eq!(sealed.len(), 20 + 8 + 8 + 68 + 16);
        let (head, rest) = sealed.split_at(36);
        assert_eq!(head[20..], [0, 0, 0, 5, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 7]);
        let (mut text, tag) = (rest[..68].to_vec(), rest[68..].try_into().expect("16 octets"));
        let key = [KEY_OCTET; 16];
        let key = AeadKey::new(
            Library::AwsLc,
            testudo_crypto::AeadAlgorithm::Aes128Gcm,
            &key,
            [KEY_OCTET; SALT_LEN],
        )
        .expect("the length is right");
        assert!(key.open(7_u64.to_be_bytes(), &head[20..28], &mut text, &tag));
        assert_eq!(esp::split_trailer(&text), Ok((&packet[..], Protocol::IPV4)));
    }

    #[test]
    fn captures_hold_whole_rounds_of_a_mixture() {
        for way in [Way::Out, Way::In] {
            let packets = Packets::new(way, Suite::AES128GCM16, Traffic::Imix).expect("it is an AEAD");
            assert_eq!(COUNT % Traffic::Imix.sizes().len(), 0);
            let mean = |packets: &Packets| {
                packets.frames.iter().map(|frame| frame.len() as f64).sum::<f64>() / COUNT as f64
            };
            assert_eq!(mean(&packets), packets.received);
            assert_eq!(packets.received < packets.sent, way == Way::Out);
            let octets: usize = packets.frames.iter().map(|frame| 16 + frame.len()).sum();
            assert_eq!(packets.pcap().len(), 24 + octets);
        }
    }
}
