//! Outer packets as the peer sends them, with any content.

use std::net::IpAddr;
use testudo_crypto::ccm::{CcmJob, CcmKey, seal_ccm_burst};
use testudo_crypto::separate::{SeparateJob, SeparateKey, seal_separate_burst};
use testudo_crypto::{Aad, AeadKey, Library};
use testudo_ipsec::sa::{CcmAlgorithm, ChildSaParams, Encapsulation, EspAlgorithm, SeparateAlgorithm};
use testudo_wire::ip::Protocol;
use testudo_wire::{esp, ipv4, ipv6, udp};

/// An outer packet with this traffic class from the sender of `params` to its peer.
pub(super) fn outer(params: &ChildSaParams, class: u8, protocol: Protocol, payload: &[u8]) -> Vec<u8> {
    match (params.local.ip(), params.remote.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let total_len = (ipv4::HEADER + payload.len()) as u16;
            let fields = ipv4::Fields { tos: class, total_len, id: 0, df: true, ttl: 9, protocol, src, dst };
            [&fields.to_bytes()[..], payload].concat()
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let fields = ipv6::Fields {
                traffic_class: class,
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

/// ESP in the encapsulation of the SA.
pub(super) fn around(params: &ChildSaParams, class: u8, esp: &[u8]) -> Vec<u8> {
    match params.encapsulation {
        Encapsulation::Plain => outer(params, class, Protocol::ESP, esp),
        Encapsulation::Udp => {
            let len = (udp::HEADER + esp.len()) as u16;
            let header = udp::header(params.local.port(), params.remote.port(), len);
            outer(params, class, Protocol::UDP, &[&header[..], esp].concat())
        }
    }
}

/// A multiple of every cipher's block, in octets.
const BLOCK: usize = 16;

/// Payload, padding that satisfies RFC 4303 §2.4 for any cipher, and trailer.
pub(super) fn padded(payload: &[u8], next_header: Protocol) -> Vec<u8> {
    let mut text = payload.to_vec();
    text.resize(payload.len() + esp::pad_len(payload.len(), BLOCK) + esp::TRAILER, 0);
    assert!(esp::write_trailer(&mut text[payload.len()..], next_header));
    text
}

/// A plaintext with as many zeros appended as the SA's cipher needs.
pub(super) fn filled(params: &ChildSaParams, mut plaintext: Vec<u8>) -> Vec<u8> {
    if let EspAlgorithm::Separate(algorithm) = params.algorithm {
        let block = algorithm.cipher.block_len();
        let len = if block == 1 { plaintext.len() } else { plaintext.len().max(1).next_multiple_of(block) };
        plaintext.resize(len, 0);
    }
    plaintext
}

/// ESP authenticated with the sender's key, with any plaintext that the cipher accepts.
pub(super) fn sealed(params: &ChildSaParams, sequence: u64, plaintext: &[u8]) -> Vec<u8> {
    if let EspAlgorithm::Separate(algorithm) = params.algorithm {
        return sealed_apart(params, algorithm, sequence, plaintext);
    }
    if let EspAlgorithm::Ccm(algorithm) = params.algorithm {
        return sealed_ccm(params, algorithm, sequence, plaintext);
    }
    let algorithm = params.algorithm.aead().expect("one or the other");
    let (key, salt) = params.key_out.0.split_last_chunk::<4>().expect("key and salt");
    let key = AeadKey::new(Library::AwsLc, algorithm, key, *salt).expect("a key");
    let iv = (sequence ^ 0x5a5a_0000_0000_0000).to_be_bytes();
    let (spi, aad) = (params.spi_out.0, aad(params, sequence));
    let (mut text, mut tag) = (plaintext.to_vec(), [0; 16]);
    key.seal(iv, aad.as_bytes(), &mut text, &mut tag);
    [&spi.to_be_bytes()[..], &(sequence as u32).to_be_bytes(), &iv, &text, &tag].concat()
}

fn aad(params: &ChildSaParams, sequence: u64) -> Aad {
    let spi = params.spi_out.0;
    if params.esn { Aad::esp_esn(spi, sequence) } else { Aad::esp(spi, sequence as u32) }
}

/// The same with AES-CCM.
fn sealed_ccm(params: &ChildSaParams, algorithm: CcmAlgorithm, sequence: u64, plaintext: &[u8]) -> Vec<u8> {
    let (key, salt) = params.key_out.0.split_last_chunk().expect("key and salt");
    let key = CcmKey::new(Library::AwsLc, algorithm, key, *salt).expect("a key");
    let iv = (sequence ^ 0x5a5a_0000_0000_0000).to_be_bytes();
    let (mut text, mut icv) = (plaintext.to_vec(), vec![0; algorithm.icv.octets()]);
    let aad = aad(params, sequence);
    let mut jobs = [CcmJob { key: &key, iv, aad, text: &mut text, icv: &mut icv, ok: false }];
    seal_ccm_burst(&mut jobs);
    [&params.spi_out.0.to_be_bytes()[..], &(sequence as u32).to_be_bytes(), &iv, &text, &icv].concat()
}

/// The same with separate algorithms for encryption and integrity.
fn sealed_apart(
    params: &ChildSaParams,
    algorithm: SeparateAlgorithm,
    sequence: u64,
    plaintext: &[u8],
) -> Vec<u8> {
    let (cipher_key, mac_key) = params.key_out.0.split_at(algorithm.cipher.key_len());
    let key = SeparateKey::new(Library::AwsLc, algorithm, cipher_key, mac_key).expect("a key");
    let header = [params.spi_out.0.to_be_bytes(), (sequence as u32).to_be_bytes()].concat();
    let nonce = (u128::from(sequence) << 64).to_be_bytes();
    let (nonce, icv) = (&nonce[..algorithm.cipher.iv_len()], vec![0; algorithm.mac.icv_len()]);
    let mut packet = [&header, nonce, plaintext, &icv].concat();
    let high = params.esn.then_some((sequence >> 32) as u32);
    let mut jobs = [SeparateJob { key: &key, packet: &mut packet, high, ok: false }];
    seal_separate_burst(&mut jobs);
    assert!(jobs[0].ok, "a plaintext of {} octets", plaintext.len());
    packet
}
