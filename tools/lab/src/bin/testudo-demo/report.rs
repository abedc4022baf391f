//! The figures as JSON, and the conditions that they must meet.

use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use testudo_lab::cluster_report::write_json;
use testudo_lab::gateway::Kind;
use testudo_lab::{Error, Result};

/// Goal for one TCP stream between Testudos, relative to one between strongSwans.
pub(crate) const WANTED_SPEEDUP: f64 = 4.0;
/// Goal for Testudo's CPU time per gigabit, relative to strongSwan's.
pub(crate) const WANTED_CPU: f64 = 0.25;
/// The strongSwan used for comparison.
const BASELINE: &str = "Debian's strongSwan with its ESP in user space (kernel-libipsec)";

/// All runs.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Testudo's version.
    version: &'static str,
    /// The units of the figures, by name.
    units: BTreeMap<&'static str, &'static str>,
    /// Description of the baseline.
    baseline_is: &'static str,
    /// strongSwan to strongSwan, for comparison.
    pub(crate) baseline: RunReport,
    /// Testudo to each peer.
    pub(crate) runs: Vec<RunReport>,
    /// The comparison with the goals.
    pub(crate) comparison: Comparison,
}

/// One run.
#[derive(Debug, Serialize)]
pub(crate) struct RunReport {
    /// The daemon measured.
    pub(crate) gateway: Kind,
    /// The daemon on the other side.
    pub(crate) peer: Kind,
    /// Size of the file to download, in octets.
    pub(crate) download_wanted: u64,
    /// The error that ended the run early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// The figures up to the end of the run.
    #[serde(flatten)]
    pub(crate) measured: Measured,
}

/// The figures of a run. `out` is from the measured gateway's network to the peer's.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Measured {
    pub(crate) tunnel_established: bool,
    pub(crate) ping_sent: u32,
    pub(crate) ping_received: u32,
    pub(crate) download_bytes: u64,
    pub(crate) download_sha256_ok: bool,
    pub(crate) download_gbps: f64,
    pub(crate) iperf_gbps_in: f64,
    pub(crate) iperf_gbps_out: f64,
    pub(crate) cpu_s_per_gbit: f64,
    pub(crate) peer_cpu_s_per_gbit: f64,
    pub(crate) esp_packets: u64,
    pub(crate) cleartext_packets: Option<u64>,
    pub(crate) capture_lost: u64,
    /// The data of an echo request was readable in a packet on the untrusted network.
    pub(crate) ping_data_seen: bool,
    /// Dropped packets by reason; none if the daemon does not report them.
    pub(crate) drops: Option<BTreeMap<String, u64>>,
    #[serde(skip)]
    pub(crate) list_sas: String,
    #[serde(skip)]
    pub(crate) setup: String,
    #[serde(skip)]
    pub(crate) clear_packets_shown: String,
}

/// Ratios to strongSwan.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    /// Testudo to Testudo divided by strongSwan to strongSwan; in the slower direction.
    pub(crate) speedup: f64,
    /// Its goal: at least.
    wanted_speedup: f64,
    /// The same for the download.
    pub(crate) download_speedup: f64,
    /// Testudo's CPU time per gigabit divided by strongSwan's.
    pub(crate) cpu_ratio: f64,
    /// Its goal: at most.
    wanted_cpu_ratio: f64,
}

impl RunReport {
    pub(crate) fn new(gateway: Kind, peer: Kind, download_wanted: u64) -> Self {
        Self { gateway, peer, download_wanted, error: None, measured: Measured::default() }
    }

    /// What is wrong with the run.
    pub(crate) fn problems(&self) -> Vec<String> {
        let title = format!("{} to {}", self.gateway, self.peer);
        if let Some(error) = &self.error {
            // Everything else would only repeat that the run ended early.
            return vec![format!("{title}: {}", error.trim_end())];
        }
        let m = &self.measured;
        let checks = [
            (m.tunnel_established, "no tunnel".to_owned()),
            (
                m.ping_sent > 0 && m.ping_received == m.ping_sent,
                format!("{} of {} pings answered", m.ping_received, m.ping_sent),
            ),
            (
                m.download_bytes == self.download_wanted,
                format!("{} of {} octets downloaded", m.download_bytes, self.download_wanted),
            ),
            (m.download_sha256_ok, "the download's checksum is not that of the file".to_owned()),
            (m.iperf_gbps_out > 0.0 && m.iperf_gbps_in > 0.0, "iperf3 moved nothing".to_owned()),
            (m.esp_packets > 0, "no ESP packet on the untrusted network".to_owned()),
            (
                m.cleartext_packets == Some(0),
                format!("clear packets on the untrusted network: {}", known(m.cleartext_packets)),
            ),
            (!m.ping_data_seen, "the data of echo requests can be read on the untrusted network".to_owned()),
            (m.capture_lost == 0, format!("the capture lost {} packets", m.capture_lost)),
        ];
        let failed = checks.into_iter().filter(|(right, _)| !right).map(|(_, problem)| problem);
        failed.map(|problem| format!("{title}: {problem}")).collect()
    }
}

fn known(count: Option<u64>) -> String {
    count.map_or_else(|| "unknown".into(), |count| count.to_string())
}

impl Report {
    pub(crate) fn new(baseline: RunReport, runs: Vec<RunReport>) -> Self {
        let comparison = compare(&baseline.measured, &runs);
        let units = BTreeMap::from([
            ("_gbps", "gigabits of TCP payload a second"),
            ("cpu_s_per_gbit", "CPU seconds, user and system, per gigabit of TCP payload"),
            ("out", "from the measured gateway's network to the peer's"),
        ]);
        Self { version: env!("CARGO_PKG_VERSION"), units, baseline_is: BASELINE, baseline, runs, comparison }
    }

    /// What is wrong with any run.
    pub(crate) fn problems(&self) -> Vec<String> {
        [&self.baseline].into_iter().chain(&self.runs).flat_map(RunReport::problems).collect()
    }

    /// Writes the whole file or nothing.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        write_json(path, self)
    }
}

/// Removes the report of an earlier demo, so that it is not mistaken for that of this one.
pub(crate) fn discard(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(Error::io(format!("remove the old {}", path.display()))),
    }
}

fn compare(baseline: &Measured, runs: &[RunReport]) -> Comparison {
    let testudos = runs.iter().find(|run| run.gateway == Kind::Testudo && run.peer == Kind::Testudo);
    let measured = testudos.map(|run| &run.measured);
    let ratio = |of: fn(&Measured) -> f64| measured.map_or(0.0, |m| of(m) / of(baseline));
    Comparison {
        speedup: ratio(|m| m.iperf_gbps_out).min(ratio(|m| m.iperf_gbps_in)),
        wanted_speedup: WANTED_SPEEDUP,
        download_speedup: ratio(|m| m.download_gbps),
        cpu_ratio: ratio(|m| m.cpu_s_per_gbit),
        wanted_cpu_ratio: WANTED_CPU,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn perfect() -> RunReport {
        let mut run = RunReport::new(Kind::Testudo, Kind::Testudo, 1000);
        run.measured = Measured {
            tunnel_established: true,
            ping_sent: 20,
            ping_received: 20,
            download_bytes: 1000,
            download_sha256_ok: true,
            iperf_gbps_in: 2.0,
            iperf_gbps_out: 3.0,
            cpu_s_per_gbit: 0.25,
            esp_packets: 10,
            cleartext_packets: Some(0),
            ..Measured::default()
        };
        run
    }

    #[test]
    fn a_perfect_run_has_no_problem_and_each_flaw_is_one() {
        assert_eq!(perfect().problems(), Vec::<String>::new());
        let flaws: [fn(&mut Measured); 9] = [
            |m| m.tunnel_established = false,
            |m| m.ping_received = 19,
            |m| m.download_bytes = 999,
            |m| m.download_sha256_ok = false,
            |m| m.iperf_gbps_in = 0.0,
            |m| m.esp_packets = 0,
            |m| m.cleartext_packets = Some(1),
            |m| m.capture_lost = 1,
            |m| m.ping_data_seen = true,
        ];
        for (number, flaw) in flaws.into_iter().enumerate() {
            let mut run = perfect();
            flaw(&mut run.measured);
            assert_eq!(run.problems().len(), 1, "flaw {number}: {:?}", run.problems());
        }
    }

    #[test]
    fn clear_packets_that_nobody_counted_are_a_problem() {
        let mut run = perfect();
        run.measured.cleartext_packets = None;
        assert_eq!(run.problems(), ["Testudo to Testudo: clear packets on the untrusted network: unknown"]);
    }

    #[test]
    fn the_slower_direction_decides_the_speedup() {
        let mut baseline = perfect();
        baseline.measured.iperf_gbps_in = 0.5;
        baseline.measured.iperf_gbps_out = 0.5;
        baseline.measured.cpu_s_per_gbit = 1.0;
        let report = Report::new(baseline, vec![perfect()]);
        assert_eq!((report.comparison.speedup, report.comparison.cpu_ratio), (4.0, 0.25));
    }
}
