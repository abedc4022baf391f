//! DPDK's own benchmark of the bare cipher, run for comparison if it is installed.
//!
//! It reports means, which include every disturbance, while our figures are medians. So each size
//! runs in several short stretches, and the fastest counts.

use super::Suite;
use super::traffic::Traffic;
use std::io;
use std::process::{Command, ExitStatus};
use testudo_crypto::AeadAlgorithm;

/// In Debian's package `dpdk-dev`.
pub(super) const PROGRAM: &str = "dpdk-test-crypto-perf";
/// Packets of a stretch: milliseconds, some of which are undisturbed.
const OPERATIONS: &str = "6400";
/// The most sizes in one run.
const MOST_SIZES: usize = 32;
/// The most stretches of a size.
const STRETCHES: usize = 9;

/// Why it has no figures.
#[derive(Debug, thiserror::Error)]
pub(super) enum DpdkError {
    /// The program cannot be started.
    #[error("{PROGRAM}: {0}")]
    Start(io::Error),
    /// The program failed.
    #[error("{PROGRAM}: {0}")]
    Failed(ExitStatus),
}

/// Its results, by direction, cipher and size.
pub(super) struct Dpdk(Vec<(&'static str, Suite, u16, f64)>);

impl Dpdk {
    /// Runs it on this CPU, for AES-GCM.
    pub(super) fn run(cpu: usize, suites: &[Suite], sizes: &[Traffic]) -> Result<Self, DpdkError> {
        let sizes: Vec<u16> = sizes
            .iter()
            .filter_map(|traffic| match traffic {
                Traffic::Size([size]) => Some(*size),
                Traffic::Imix => None,
            })
            .collect();
        let mut found = Vec::new();
        const GCM: [AeadAlgorithm; 3] =
            [AeadAlgorithm::Aes128Gcm, AeadAlgorithm::Aes192Gcm, AeadAlgorithm::Aes256Gcm];
        let gcm = suites.iter().filter_map(|suite| {
            let algorithm = suite.aead().filter(|algorithm| GCM.contains(algorithm))?;
            Some((suite, algorithm))
        });
        for (suite, algorithm) in gcm.filter(|_| !sizes.is_empty()) {
            for (direction, operation) in [("out", "encrypt"), ("in", "decrypt")] {
                let output = command(cpu, algorithm, operation, &sizes).output().map_err(DpdkError::Start)?;
                if !output.status.success() {
                    return Err(DpdkError::Failed(output.status));
                }
                let text = String::from_utf8_lossy(&output.stdout);
                found
                    .extend(text.lines().filter_map(figures).map(|(size, ns)| (direction, *suite, size, ns)));
            }
        }
        Ok(Self(found))
    }

    /// Nanoseconds per packet.
    pub(super) fn ns(&self, direction: &str, suite: Suite, traffic: Traffic) -> Option<f64> {
        let this = self
            .0
            .iter()
            .filter(|(way, of, size, _)| *way == direction && *of == suite && traffic == Traffic::of(*size));
        this.map(|(.., ns)| *ns).min_by(f64::total_cmp)
    }
}

/// Without huge pages, network cards and files: it leaves nothing behind.
fn command(cpu: usize, algorithm: AeadAlgorithm, operation: &str, sizes: &[u16]) -> Command {
    let key_len = algorithm.key_len().to_string();
    let stretches = (MOST_SIZES / sizes.len().max(1)).clamp(1, STRETCHES);
    let sizes = sizes.repeat(stretches).iter().map(u16::to_string).collect::<Vec<_>>().join(",");
    let mut command = Command::new(PROGRAM);
    command
        .args(["--lcores", &format!("0@{cpu},1@{cpu}"), "-m", "256", "--log-level=4"])
        .args(["--no-huge", "--no-shconf", "--no-pci", "--no-telemetry", "--vdev", "crypto_aesni_gcm0", "--"])
        .args(["--devtype", "crypto_aesni_gcm", "--ptest", "throughput", "--silent", "--csv-friendly"])
        .args(["--optype", "aead", "--aead-algo", "aes-gcm", "--aead-op", operation])
        .args(["--aead-key-sz", &key_len, "--aead-iv-sz", "12", "--aead-aad-sz", "12", "--digest-sz", "16"])
        .args(["--burst-sz", "64", "--desc-nb", "512", "--pool-sz", "1024"])
        .args(["--buffer-sz", &sizes, "--total-ops", OPERATIONS]);
    command
}

/// Parses size and nanoseconds of a line: the core, the size, six more numbers, millions of packets
/// per second, Gb/s, cycles.
fn figures(line: &str) -> Option<(u16, f64)> {
    let cells: Vec<&str> = line.split(',').collect();
    let [_, size, .., millions, _, _] = cells.as_slice() else { return None };
    let millions: f64 = millions.parse().ok()?;
    // Three decimals, as in the rows.
    Some((size.parse().ok()?, (1e6 / millions).round() / 1e3))
}

#[cfg(test)]
mod tests {
    use super::figures;

    #[test]
    fn figures_are_read_from_its_lines() {
        assert_eq!(figures("1,1420,64,1000000,1000000,0,0,2.5,10.562,2796.451"), Some((1420, 400.0)));
        let head = "#lcore id,Buffer Size(B),Burst Size,Enqueued,Dequeued,Failed Enq,Failed Deq,Ops(Millions),Throughput(Gbps),Cycles/Buf";
        assert_eq!(figures(head), None);
        assert_eq!(figures(""), None);
    }
}
