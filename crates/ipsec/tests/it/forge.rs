//! Packets that a peer with the right key, or an attacker without, might send.

use crate::harness::Tunnel;
use std::net::IpAddr;
use testudo_crypto::{Aad, AeadAlgorithm, AeadKey, Library};
use testudo_ipsec::sa::{ChildSaParams, Encapsulation};
use testudo_wire::ip::Protocol;
use testudo_wire::{esp, ipv4, ipv6, udp};

/// An outer packet from A to B with anything inside, headers right.
pub(crate) fn outer(tunnel: &Tunnel, protocol: Protocol, payload: &[u8]) -> Vec<u8> {
    match (tunnel.outer(1), tunnel.outer(2)) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let fields = ipv4::Fields {
                tos: 0,
                total_len: (ipv4::HEADER + payload.len()) as u16,
                id: 0,
                df: true,
                ttl: 9,
                protocol,
                src,
                dst,
            };
            [&fields.to_bytes()[..], payload].concat()
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let fields = ipv6::Fields {
                traffic_class: 0,
                payload_len: payload.len() as u16,
                next_header: protocol,
                hop_limit: 9,
                src,
                dst,
            };
            [&fields.to_bytes()[..], payload].concat()
        }
        _ => unreachable!("both ends of a tunnel are of one family"),
    }
}

/// ESP in whatever the tunnel has around it.
pub(crate) fn around(tunnel: &Tunnel, esp: &[u8]) -> Vec<u8> {
    if tunnel.udp {
        outer(tunnel, Protocol::UDP, &datagram(4500, 4500, esp))
    } else {
        outer(tunnel, Protocol::ESP, esp)
    }
}

/// A datagram without checksum.
pub(crate) fn datagram(src_port: u16, dst_port: u16, payload: &[u8]) -> Vec<u8> {
    let len = (udp::HEADER + payload.len()) as u16;
    [&udp::header(src_port, dst_port, len)[..], payload].concat()
}

/// Payload, padding as RFC 4303 §2.4 wants it, and trailer.
pub(crate) fn padded(payload: &[u8], next_header: Protocol) -> Vec<u8> {
    let mut text = payload.to_vec();
    text.resize(payload.len() + esp::pad_len(payload.len(), 4) + esp::TRAILER, 0);
    assert!(esp::write_trailer(&mut text[payload.len()..], next_header));
    text
}

/// ESP that the peer's key authenticates, with any plaintext: `params` are the sender's.
pub(crate) fn sealed(params: &ChildSaParams, sequence: u64, plaintext: &[u8]) -> Vec<u8> {
    let (key, salt) = params.key_out.0.split_last_chunk::<4>().unwrap();
    let key = AeadKey::new(Library::AwsLc, AeadAlgorithm::Aes128Gcm, key, *salt).unwrap();
    let iv = (sequence ^ 0x5a5a_0000_0000_0000).to_be_bytes();
    let spi = params.spi_out.0;
    let aad = if params.esn { Aad::esp_esn(spi, sequence) } else { Aad::esp(spi, sequence as u32) };
    let (mut text, mut tag) = (plaintext.to_vec(), [0; 16]);
    key.seal(iv, aad.as_bytes(), &mut text, &mut tag);
    [&spi.to_be_bytes()[..], &(sequence as u32).to_be_bytes(), &iv, &text, &tag].concat()
}

/// An authentic packet from A to B with any plaintext.
pub(crate) fn authentic(tunnel: &Tunnel, sequence: u64, plaintext: &[u8]) -> Vec<u8> {
    let params = tunnel.params();
    assert_eq!(params.encapsulation == Encapsulation::Udp, tunnel.udp);
    around(tunnel, &sealed(&params, sequence, plaintext))
}
