//! The figures of a failover in a demo or test, for programs.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// The figures of one failover: the content of `target/demo/cluster.json`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterReport {
    /// Milliseconds from the last datagram of the 1 kHz probe that passed before the failure to the
    /// first one that passed after it.
    pub outage_ms: f64,
    /// Milliseconds from the failure until the first survivor considered the node failed.
    pub detection_ms: f64,
    /// Datagrams of the probe that never arrived.
    pub packets_lost: u64,
    /// Datagrams of the probe that arrived more than once, counting each further copy.
    pub duplicates: u64,
    /// Tunnels that were up before the failure and afterwards carry nothing or had to be set up
    /// again.
    pub tunnels_lost: u64,
}

impl ClusterReport {
    /// Writes it as JSON. A reader finds the whole file or none.
    pub fn write(&self, path: &Path) -> Result<()> {
        for (name, value) in [("outage_ms", self.outage_ms), ("detection_ms", self.detection_ms)] {
            // JSON would contain null.
            if !value.is_finite() {
                return Err(Error::unexpected(name, "a number", value.to_string()));
            }
        }
        write_json(path, self)
    }
}

/// Writes a report as JSON, like [`write_whole`].
pub fn write_json(path: &Path, report: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(report)
        .map_err(|e| Error::unexpected("the report", "JSON", e.to_string()))?;
    write_whole(path, &(text + "\n"))
}

/// Writes to a new file and renames it; creates the directory if necessary.
pub fn write_whole(path: &Path, text: &str) -> Result<()> {
    let action = || Error::io(format!("write {}", path.display()));
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(action())?;
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    fs::write(&beside, text).map_err(action())?;
    fs::rename(&beside, path).map_err(action())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: ClusterReport = ClusterReport {
        outage_ms: 31.25,
        detection_ms: 26.5,
        packets_lost: 29,
        duplicates: 0,
        tunnels_lost: 0,
    };

    #[test]
    fn all_keys_are_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("target/demo/cluster.json");
        REPORT.write(&path).unwrap();
        let json: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let keys = ["detection_ms", "duplicates", "outage_ms", "packets_lost", "tunnels_lost"];
        assert_eq!(json.as_object().unwrap().len(), keys.len());
        assert!(keys.iter().all(|key| json[key].is_number()), "{json}");
        assert_eq!(json["outage_ms"], 31.25);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn missing_measurements_are_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cluster.json");
        let unknown = ClusterReport { detection_ms: f64::NAN, ..REPORT };
        assert!(unknown.write(&path).unwrap_err().to_string().contains("detection_ms"));
        assert!(!path.exists());
    }
}
