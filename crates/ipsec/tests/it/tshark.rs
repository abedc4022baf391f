//! Against tshark, which gets what was on the wire and the keys, and tells what was inside and
//! whether the ICV is right.

use crate::harness::{Gateway, Tunnel, Way, run};
use crate::packets::{datagram, v4, v6};
use crate::scapy::hex;
use crate::transport;
use std::io::Write;
use std::process::{Command, Stdio};
use std::slice::from_ref;
use testudo_base::spi::Spi;
use testudo_ipsec::dataplane::{Ingress, Verdict};
use testudo_ipsec::sa::{ChildSaParams, Cipher, EspAlgorithm, Mac, SeparateAlgorithm};
use testudo_wire::ip::Protocol;
use testudo_wire::{ipv4, ipv6};

/// Raw IP, as libpcap calls it.
const LINKTYPE_RAW: u32 = 101;
/// Octets of the UDP datagrams inside.
const SIZES: [usize; 6] = [8, 9, 23, 24, 100, 1300];

/// The input of tshark, and the expected output.
#[derive(Default)]
struct Trace {
    pcap: Vec<u8>,
    /// Its table of SAs.
    sas: Vec<String>,
    /// Of each packet: SPI, number, what ESP contains.
    expected: Vec<String>,
}

impl Trace {
    fn new() -> Self {
        let header = [0xa1b2_c3d4_u32, 0x0002_0004, 0, 0, 65535, LINKTYPE_RAW];
        Self { pcap: header.iter().flat_map(|word| word.to_ne_bytes()).collect(), ..Self::default() }
    }

    /// The outbound SA of a gateway, as A sees it.
    fn know(&mut self, params: &ChildSaParams, (cipher, mac, cipher_key): (&str, &str, usize)) {
        let family = if params.local.is_ipv6() { "IPv6" } else { "IPv4" };
        let (src, dst, spi) = (params.local.ip(), params.remote.ip(), params.spi_out.0);
        let written =
            |octets: &[u8]| if octets.is_empty() { String::new() } else { format!("0x{}", hex(octets)) };
        let (key, mac_key) = params.key_out.0.split_at(cipher_key);
        let [key, mac_key] = [key, mac_key].map(written);
        self.sas.push(format!(
            "uat:esp_sa:\"{family}\",\"{src}\",\"{dst}\",\"{spi:#010x}\",\"{cipher}\",\"{key}\",\"{mac}\",\"{mac_key}\""
        ));
    }

    /// A packet of the wire, and what is in it.
    fn push(&mut self, packet: &[u8], spi: Spi, number: usize, inside: &[u8]) {
        let len = packet.len() as u32;
        self.pcap.extend([0, 0, len, len].iter().flat_map(|word| word.to_ne_bytes()));
        self.pcap.extend(packet);
        self.expected.push(format!("{:#010x}\t{number}\t1\t{}", spi.0, hex(inside)));
    }

    /// The output of tshark for each packet.
    fn read(&self) -> Vec<String> {
        let mut command = Command::new("tshark");
        command.args(["-n", "-r", "-", "-o", "esp.enable_encryption_decode:TRUE"]);
        command.args(["-o", "esp.enable_authentication_check:TRUE", "-T", "fields"]);
        for sa in &self.sas {
            command.args(["-o", sa]);
        }
        for field in ["esp.spi", "esp.sequence", "esp.icv_good", "esp.contained_data"] {
            command.args(["-e", field]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("tshark is installed");
        let mut stdin = process.stdin.take().unwrap();
        let output = std::thread::scope(|scope| {
            // A file that it does not like it does not read to its end; what it printed tells.
            scope.spawn(move || stdin.write_all(&self.pcap).map_or((), |()| drop(stdin)));
            process.wait_with_output().unwrap()
        });
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }
}

/// tshark's names of the algorithms, and the length of the cipher's part of the key; `None` for
/// those that Debian's does not support.
fn names(algorithm: EspAlgorithm) -> Option<(&'static str, &'static str, usize)> {
    let SeparateAlgorithm { cipher, mac } = match algorithm {
        EspAlgorithm::Separate(separate) => separate,
        EspAlgorithm::Aes128Gcm16 | EspAlgorithm::Aes192Gcm16 | EspAlgorithm::Aes256Gcm16 => {
            return Some(("AES-GCM with 16 octet ICV [RFC4106]", "NULL", algorithm.key_len()));
        }
        _ => return None,
    };
    let name = match cipher {
        Cipher::Null => "NULL",
        Cipher::TripleDesCbc => "TripleDES-CBC [RFC2451]",
        Cipher::Aes128Cbc | Cipher::Aes192Cbc | Cipher::Aes256Cbc => "AES-CBC [RFC3602]",
    };
    let mac = match mac {
        Mac::HmacSha1_96 => "HMAC-SHA-1-96 [RFC2404]",
        Mac::HmacSha256_128 => "HMAC-SHA-256-128 [RFC4868]",
        Mac::HmacSha384_192 => "HMAC-SHA-384-192 [RFC4868]",
        Mac::HmacSha512_256 => "HMAC-SHA-512-256 [RFC4868]",
        Mac::HmacMd5_96 => "HMAC-MD5-96 [RFC2403]",
        Mac::AesXcbc96 | Mac::AesCmac96 => return None,
    };
    Some((name, mac, cipher.key_len()))
}

/// Datagrams of all sizes through an SA. `inside` makes a packet of each, and what ESP contains of
/// that packet.
fn carry(trace: &mut Trace, params: &ChildSaParams, inside: impl Fn(&[u8]) -> (Vec<u8>, Vec<u8>)) {
    let mut a = Gateway::new(params, testudo_crypto::Library::detect());
    for (at, size) in SIZES.into_iter().enumerate() {
        let (packet, contained) = inside(&datagram(size));
        let sent = run(&mut a.plane, Way::Outbound, Ingress::Host, from_ref(&packet));
        assert_eq!(sent[0].0, Verdict::Forward, "{params:?}, {size}");
        trace.push(&sent[0].1, params.spi_out, at + 1, &contained);
    }
}

#[test]
fn tshark_finds_inside_what_was_sent_and_every_icv_right() {
    let (mut trace, mut spi) = (Trace::new(), 0x7e50_0000);
    for (algorithm, names) in EspAlgorithm::all().filter_map(|algorithm| Some((algorithm, names(algorithm)?)))
    {
        // Debian's tshark knows no extended sequence numbers.
        for tunnel in Tunnel::all().filter(|tunnel| !tunnel.esn).map(|tunnel| Tunnel { algorithm, ..tunnel })
        {
            for transport in [false, true] {
                spi += 1;
                let params = if transport { transport::params(&tunnel) } else { tunnel.params() };
                let params = ChildSaParams { spi_out: Spi(spi), ..params };
                trace.know(&params, names);
                if transport {
                    let header = if tunnel.outer_v6 { ipv6::HEADER } else { ipv4::HEADER };
                    let own = |udp: &[u8]| transport::own(&tunnel, Protocol::UDP, udp);
                    carry(&mut trace, &params, |udp| (own(udp), own(udp)[header..].to_vec()));
                } else {
                    for make in [v4, v6] {
                        carry(&mut trace, &params, |udp| {
                            (make(Protocol::UDP, udp), make(Protocol::UDP, udp))
                        });
                    }
                }
            }
        }
    }
    let found = trace.read();
    assert_eq!(found.len(), trace.expected.len());
    for (found, expected) in found.iter().zip(&trace.expected) {
        assert_eq!(found, expected);
    }
}
