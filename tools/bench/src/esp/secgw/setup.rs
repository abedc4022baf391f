//! The configuration of both programs.

use super::packets::{KEY_OCTET, Packets, SPI};
use super::{Suite, Way};
use crate::esp::gateway::Side;
use crate::esp::traffic::Traffic;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use testudo_crypto::{AeadAlgorithm, SALT_LEN};

/// In Debian's package `dpdk-dev`.
const TESTPMD: &str = "dpdk-testpmd";
/// Megabytes of memory of the gateway: some 20 of buffers, or 80 of jumbo ones, and 256 for routing
/// tables.
const GATEWAY: usize = 384;
/// Megabytes of memory of the forwarding program, which has no tables.
const FORWARDER: usize = 128;
/// Both programs, for both directions: megabytes of huge pages.
const ALL: usize = 2 * (GATEWAY + FORWARDER);
/// Free huge pages of 2 MB.
const FREE_PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
/// Packets received at once; the gateway always uses this number.
const BURST: &str = "32";
/// Buffers of both programs, and how many of them a core caches: the gateway's own choice.
const BUFFERS: [&str; 2] = ["8192", "256"];
/// Octets of a buffer and of the longest packet with jumbo frames.
const JUMBO: [&str; 2] = ["10240", "9000"];

/// The suite's name in the gateway's configuration and the octets of its key, if it is AES-GCM.
pub(super) fn keyword(suite: Suite) -> Option<(&'static str, usize)> {
    let algorithm = suite.aead()?;
    let name = match algorithm {
        AeadAlgorithm::Aes128Gcm => "aes-128-gcm",
        AeadAlgorithm::Aes192Gcm => "aes-192-gcm",
        AeadAlgorithm::Aes256Gcm => "aes-256-gcm",
        _ => return None,
    };
    Some((name, algorithm.key_len()))
}

/// The pages of its memory. Huge pages are used if an administrator has reserved enough; without
/// them it is slower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    /// 2 MB.
    Huge,
    /// 4 KB.
    Small,
}

impl Memory {
    /// The kind that is available now.
    pub(super) fn detect() -> Self {
        let free = std::fs::read_to_string(FREE_PAGES).unwrap_or_default();
        match free.trim().parse::<usize>() {
            Ok(free) if 2 * free >= ALL => Self::Huge,
            _ => Self::Small,
        }
    }

    /// Neither leaves files behind.
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Huge => &["--in-memory"],
            Self::Small => &["--no-huge", "--no-shconf"],
        }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Huge => write!(f, "huge pages"),
            Self::Small => {
                write!(f, "no huge pages (sysctl vm.nr_hugepages={} gives it some)", ALL / 2)
            }
        }
    }
}

/// One case: the task of both programs.
pub(super) struct Case<'a> {
    pub(super) way: Way,
    pub(super) algorithm: (&'static str, usize),
    pub(super) traffic: Traffic,
    pub(super) memory: Memory,
    pub(super) cpu: usize,
    pub(super) dir: &'a Path,
}

impl Case<'_> {
    /// Writes the files for the programs.
    pub(super) fn write(&self, packets: &Packets) -> std::io::Result<()> {
        std::fs::create_dir(self.dir)?;
        std::fs::write(self.capture(), packets.pcap())?;
        std::fs::write(self.config(), config(self.way, self.algorithm))
    }

    fn capture(&self) -> PathBuf {
        self.dir.join("packets.pcap")
    }

    fn config(&self) -> PathBuf {
        self.dir.join("gateway.cfg")
    }

    /// The gateway's command. It is fastest with librte_ipsec and synchronous cipher calls.
    pub(super) fn gateway(&self, program: &Path) -> Command {
        let mut command = self.program(program, &format!("0@{}", self.cpu), GATEWAY);
        command.args(["--vdev", "crypto_aesni_gcm0", "--", "-p", "1", "-l", "--config", "(0,0,0)", "-f"]);
        command.arg(self.config());
        if self.way == Way::In {
            command.args(["-u", "1"]);
        }
        if self.traffic.is_jumbo() {
            let [buffer, mtu] = JUMBO;
            command.args(["-j", buffer, "--mtu", mtu]);
        }
        command
    }

    /// The forwarding program's command. Its first thread waits for a key to be pressed.
    pub(super) fn forwarder(&self) -> Command {
        let mut command =
            self.program(Path::new(TESTPMD), &format!("0@{cpu},1@{cpu}", cpu = self.cpu), FORWARDER);
        let [buffers, cached] = BUFFERS;
        command.args(["--", "--forward-mode=io", "--auto-start"]);
        command.args(["--burst", BURST, "--total-num-mbufs", buffers, "--mbcache", cached]);
        if self.traffic.is_jumbo() {
            let [buffer, _] = JUMBO;
            command.args(["--mbuf-size", buffer]);
        }
        command
    }

    /// Without network cards, with one port that replays the capture and discards what is sent.
    fn program(&self, program: &Path, cores: &str, megabytes: usize) -> Command {
        let mut command = Command::new(program);
        let port = format!("net_pcap0,rx_pcap={},infinite_rx=1", self.capture().display());
        command.args(["--lcores", cores, "-m", &megabytes.to_string()]).args(self.memory.options());
        command.args(["--no-pci", "--log-level=4", "--vdev", &port]);
        command
    }
}

/// One SA for all packets of the port, and the route for the result.
fn config(way: Way, (algorithm, key_len): (&str, usize)) -> String {
    let (direction, routed) = match way {
        Way::Out => ("out", Side::Far.address()),
        Way::In => ("in", Side::Far.host()),
    };
    let key = vec![format!("{KEY_OCTET:x}"); key_len + SALT_LEN].join(":");
    let [inner, src, dst] = [Side::Far.host(), Side::Near.address(), Side::Far.address()];
    format!(
        "sp ipv4 {direction} esp protect {SPI} pri 1 dst {inner}/16 sport 0:65535 dport 0:65535\n\
         sa {direction} {SPI} aead_algo {algorithm} aead_key {key} mode ipv4-tunnel src {src} dst {dst} type cpu-crypto\n\
         rt ipv4 dst {routed}/32 port 0\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_is_of_one_direction() {
        let key = vec!["22"; 20].join(":");
        let expected = format!(
            "sp ipv4 in esp protect 5 pri 1 dst 10.2.0.20/16 sport 0:65535 dport 0:65535\n\
             sa in 5 aead_algo aes-128-gcm aead_key {key} mode ipv4-tunnel src 192.0.2.1 dst 192.0.2.2 type cpu-crypto\n\
             rt ipv4 dst 10.2.0.20/32 port 0\n"
        );
        assert_eq!(config(Way::In, ("aes-128-gcm", 16)), expected);
        assert!(config(Way::Out, ("aes-128-gcm", 16)).ends_with("rt ipv4 dst 192.0.2.2/32 port 0\n"));
    }

    #[test]
    fn only_aes_gcm_is_measured() {
        assert_eq!(keyword(Suite::AES128GCM16), Some(("aes-128-gcm", 16)));
        for other in ["chacha20poly1305", "aes128gmac", "aes128-sha256"] {
            assert_eq!(keyword(other.parse().expect("its name")), None, "{other}");
        }
    }
}
