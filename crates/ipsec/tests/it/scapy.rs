//! Against another implementation, scapy's: what we protect it opens, and what it protects we open,
//! octet by octet.

use crate::harness::{Gateway, POLICY, Tunnel, Way, run};
use crate::transport;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::slice::from_ref;
use std::sync::Arc;
use testudo_crypto::AeadAlgorithm;
use testudo_ipsec::dataplane::{Command as Change, Ingress, Verdict};
use testudo_ipsec::number::SequenceBlock;
use testudo_ipsec::sa::{
    CcmAlgorithm, ChildSaParams, Cipher, EspAlgorithm, IcvLen, InboundSa, Mac, Mode, SeparateAlgorithm,
};
use testudo_wire::ip::Protocol;
use testudo_wire::{ipv4, ipv6};

/// The content is not readable.
const NOBODYS: Protocol = Protocol(253);
/// The path takes the largest frames that there are.
const PATH: u16 = 9200;
/// The IP packet of them.
const LARGEST: usize = 9000;
/// Number of packets per kind of SA and direction, besides the smallest and the largest, unless
/// `TESTUDO_RANDOM_SIZES` sets another number. Without it each algorithm meets one of the ways of
/// numbering, in turn: neither changes what the other does.
const RANDOM_SIZES: usize = 1;
/// Whether sequence numbers are extended, and the first number.
const NUMBERINGS: [(bool, u64); 3] = [(false, 1), (true, 1), (true, (3 << 32) | 5)];

/// scapy in a process of its own.
struct Scapy {
    process: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Scapy {
    fn start() -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/scapy_peer.py");
        let mut command = Command::new("/usr/bin/python3");
        command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("python3 and python3-scapy are installed");
        let (stdin, stdout) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Self { process, stdin, stdout: BufReader::new(stdout) }
    }

    /// Its result for a packet: `params` are those of the sender.
    fn ask(&mut self, what: &str, params: &ChildSaParams, number: u64, packet: &[u8]) -> Vec<u8> {
        let mode = if params.mode == Mode::Transport { "transport" } else { "tunnel" };
        let esn = if params.esn { "esn" } else { "short" };
        let (src, dst) = (params.local.ip(), params.remote.ip());
        let (spi, (cipher, mac, cipher_key)) = (params.spi_out.0, names(params.algorithm));
        let (key, mac_key) = params.key_out.0.split_at(cipher_key);
        let algorithms = format!("{cipher} {}- {mac} {}-", hex(key), hex(mac_key));
        let packet = hex(packet);
        let line = format!("{what} {mode} {src} {dst} {spi:08x} {algorithms} {esn} {number} {packet}\n");
        self.stdin.write_all(line.as_bytes()).unwrap();
        let mut answer = String::new();
        self.stdout.read_line(&mut answer).unwrap();
        let octets = answer.trim().as_bytes().chunks(2);
        octets.map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }
}

impl Drop for Scapy {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// Scapy's names of the algorithms, and the length of the cipher's part of the key.
fn names(algorithm: EspAlgorithm) -> (&'static str, &'static str, usize) {
    let (cipher, mac, cipher_key) = match algorithm {
        EspAlgorithm::Separate(SeparateAlgorithm { cipher: Cipher::Null, mac }) => ("NULL", mac, 0),
        EspAlgorithm::Separate(SeparateAlgorithm { cipher: Cipher::TripleDesCbc, mac }) => ("3DES", mac, 24),
        EspAlgorithm::Separate(SeparateAlgorithm { cipher, mac }) => ("AES-CBC", mac, cipher.key_len()),
        EspAlgorithm::Ah(mac) => ("AH", mac, 0),
        EspAlgorithm::Ccm(CcmAlgorithm { icv, .. }) => {
            let name = match icv {
                IcvLen::Eight => "AES-CCM-8",
                IcvLen::Twelve => "AES-CCM-12",
                IcvLen::Sixteen => "AES-CCM-16",
            };
            return (name, "NULL", algorithm.key_len());
        }
        EspAlgorithm::ChaCha20Poly1305 => return ("CHACHA20-POLY1305", "NULL", algorithm.key_len()),
        _ => return ("AES-GCM", "NULL", algorithm.key_len()),
    };
    let mac = match mac {
        Mac::HmacSha1_96 => "HMAC-SHA1-96",
        Mac::HmacSha256_128 => "SHA2-256-128",
        Mac::HmacSha384_192 => "SHA2-384-192",
        Mac::HmacSha512_256 => "SHA2-512-256",
        Mac::AesCmac96 => "AES-CMAC-96",
        Mac::HmacMd5_96 => "HMAC-MD5-96",
        Mac::AesXcbc96 => unreachable!("scapy has none"),
    };
    (cipher, mac, cipher_key)
}

pub(crate) fn hex(octets: &[u8]) -> String {
    octets.iter().fold(String::new(), |mut text, octet| {
        let _fits = write!(text, "{octet:02x}");
        text
    })
}

/// A packet of so many octets between two addresses.
fn packet(src: IpAddr, dst: IpAddr, len: usize) -> Vec<u8> {
    let header = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let total_len = len as u16;
            let fields =
                ipv4::Fields { tos: 0xb8, total_len, id: 7, df: true, ttl: 64, protocol: NOBODYS, src, dst };
            fields.to_bytes().to_vec()
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let payload_len = (len - ipv6::HEADER) as u16;
            let fields = ipv6::Fields {
                traffic_class: 0xb8,
                payload_len,
                next_header: NOBODYS,
                hop_limit: 64,
                src,
                dst,
            };
            fields.to_bytes().to_vec()
        }
        _ => unreachable!("of one family"),
    };
    let payload = (header.len()..len).map(|at| (at * 7) as u8);
    header.iter().copied().chain(payload).collect()
}

/// A random address of a side of the SA, of that family.
fn address(runner: &mut TestRunner, side: &[testudo_ipsec::selector::TrafficSelector], v6: bool) -> IpAddr {
    let range = side.iter().map(|ts| ts.addrs).find(|range| range.start().is_ipv6() == v6).unwrap();
    match (range.start(), range.end()) {
        (IpAddr::V4(start), IpAddr::V4(end)) => {
            let bits = (start.to_bits()..=end.to_bits()).new_tree(runner).unwrap().current();
            IpAddr::V4(bits.into())
        }
        (IpAddr::V6(start), IpAddr::V6(end)) => {
            let bits = (start.to_bits()..=end.to_bits()).new_tree(runner).unwrap().current();
            IpAddr::V6(bits.into())
        }
        _ => unreachable!("of one family"),
    }
}

fn asked_sizes() -> Option<usize> {
    let asked = std::env::var("TESTUDO_RANDOM_SIZES").ok();
    asked.map(|sizes| sizes.parse().expect("TESTUDO_RANDOM_SIZES is a number of packets"))
}

fn sizes(runner: &mut TestRunner, v6: bool) -> Vec<usize> {
    let least = if v6 { ipv6::HEADER } else { ipv4::HEADER };
    let random = prop::collection::vec(least..=LARGEST, asked_sizes().unwrap_or(RANDOM_SIZES))
        .new_tree(runner)
        .unwrap()
        .current();
    [least, least + 1, 1500, LARGEST].into_iter().chain(random).collect()
}

/// One kind of SA, packets of one family inside, both ways.
fn compare(scapy: &mut Scapy, runner: &mut TestRunner, params: &ChildSaParams, inner_v6: bool, first: u64) {
    let library = testudo_crypto::Library::detect();
    let numbers = SequenceBlock { next: first, end: first + 1000 };
    let mut a = Gateway::with_numbers(params, library, numbers);
    a.outbound.set_path_mtu(PATH).unwrap();
    // A has heard from B up to here.
    let mut snapshot = a.inbound.snapshot();
    snapshot.window.high_water_mark = first - 1;
    a.inbound = Arc::new(InboundSa::restore(params, POLICY, PATH, &snapshot, library).unwrap());
    a.inbound.expand_key().unwrap();
    a.plane.apply(Change::AddInbound(a.inbound.clone()));
    let back = params.mirrored();
    for (number, len) in (first..).zip(sizes(runner, inner_v6)) {
        let mut address = |side: &_| address(runner, side, inner_v6);
        let (here, there) = (address(&params.local_ts), address(&params.remote_ts));
        let what = format!("{params:?}, number {number}, {len} octets between {here} and {there}");
        let packet_out = packet(here, there, len);
        let sent = run(&mut a.plane, Way::Outbound, Ingress::Host, from_ref(&packet_out));
        assert_eq!(sent[0].0, Verdict::Forward, "{what}");
        assert_eq!(hex(&scapy.ask("open", params, number, &sent[0].1)), hex(&packet_out), "{what}");

        let packet_in = packet(there, here, len);
        let protected = scapy.ask("protect", &back, number, &packet_in);
        // From the TUN, so that no hop is counted.
        let got = run(&mut a.plane, Way::Inbound, Ingress::Host, &[protected]);
        let fits = matches!(got[0].0, Verdict::Forward | Verdict::ToHost);
        assert!(fits, "{:?}: {what}", got[0].0);
        assert_eq!(hex(&got[0].1), hex(&packet_in), "{what}");
    }
}

#[test]
fn scapy_opens_what_we_protect_and_we_what_it_does() {
    let (mut scapy, mut runner) = (Scapy::start(), TestRunner::deterministic());
    // Debian's scapy has neither GMAC nor AES-XCBC.
    let known = EspAlgorithm::all().filter(|algorithm| algorithm.aead().is_none_or(AeadAlgorithm::encrypts));
    let all = known.chain(Mac::ALL.map(EspAlgorithm::Ah));
    let all = all.filter(|algorithm| algorithm.integrity() != Some(Mac::AesXcbc96));
    for (place, algorithm) in all.enumerate() {
        // Each cipher and each MAC meets all of them.
        let turn = (place + place / Mac::ALL.len()) % NUMBERINGS.len();
        let numberings = if asked_sizes().is_some() { &NUMBERINGS[..] } else { &NUMBERINGS[turn..=turn] };
        for (esn, first) in numberings.iter().copied() {
            for outer_v6 in [false, true] {
                let tunnel = Tunnel { outer_v6, esn, algorithm, ..Tunnel::default() };
                let params = ChildSaParams { copy: Default::default(), ..tunnel.params() };
                for inner_v6 in [false, true] {
                    compare(&mut scapy, &mut runner, &params, inner_v6, first);
                }
                compare(&mut scapy, &mut runner, &transport::params(&tunnel), outer_v6, first);
            }
        }
    }
}
