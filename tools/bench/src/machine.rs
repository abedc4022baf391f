//! A description of the machine for the report, without which figures mean nothing.

use serde::Serialize;
use testudo_crypto::Library;

/// The properties of the machine that determine the figures.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    cpu: String,
    cpus: usize,
    kernel: String,
    /// The CPU that the measuring thread was pinned to, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pinned_to: Option<usize>,
    library: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    library_version: Option<&'static str>,
    /// Other labs were running: the figures mean nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    beside_others: bool,
}

impl Machine {
    /// Describes this machine.
    pub(crate) fn here(library: Library, pinned_to: Option<usize>) -> Self {
        Self {
            cpu: cpu_model(),
            cpus: online_cpus(),
            kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")
                .map_or_else(|_| "unknown".into(), |release| release.trim().to_owned()),
            pinned_to,
            library: library.name(),
            library_version: library.version(),
            // An invalid value prevents the lab from starting.
            beside_others: testudo_lab::places_beside_others().is_ok_and(|places| places.is_some()),
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let version = self.library_version.map(|version| format!(" {version}")).unwrap_or_default();
        let pinned = self.pinned_to.map(|cpu| format!(", pinned to {cpu}")).unwrap_or_default();
        let Self { cpu, cpus, kernel, library, .. } = self;
        let beside = if self.beside_others { ", beside other labs: the figures mean nothing" } else { "" };
        write!(f, "{cpu} ({cpus} CPUs{pinned}), Linux {kernel}, {library}{version}{beside}")
    }
}

/// CPUs of the machine, not only those of this thread, which is pinned to one.
fn online_cpus() -> usize {
    let online = nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_ONLN);
    online.ok().flatten().and_then(|cpus| usize::try_from(cpus).ok()).unwrap_or(1)
}

/// The first `model name` of /proc/cpuinfo; other architectures have other keys, or none.
fn cpu_model() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    model_name(&info).unwrap_or(std::env::consts::ARCH).to_owned()
}

fn model_name(info: &str) -> Option<&str> {
    info.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| matches!(key.trim(), "model name" | "Processor" | "cpu model"))
        .map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_found_among_other_lines() {
        let info = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 207\nmodel name\t: Xeon : Gold\n\n";
        assert_eq!(model_name(info), Some("Xeon : Gold"));
        assert_eq!(model_name("BogoMIPS\t: 50.00\n"), None);
    }
}
