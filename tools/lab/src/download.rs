//! HTTP downloads, verified by digest.

use crate::files::{self, Sha256};
use crate::{Error, Namespace, Result};
use serde::Deserialize;
use std::net::IpAddr;
use std::time::Duration;

/// A finished download.
#[derive(Clone, Debug)]
pub struct Download {
    /// Octets received.
    pub bytes: u64,
    /// Time from the start to the last octet.
    pub elapsed: Duration,
    /// Digest of what was received.
    pub sha256: Sha256,
}

impl Download {
    /// Gets `http://server/name`, within `limit`.
    pub fn run(client: &Namespace, server: IpAddr, name: &str, limit: Duration) -> Result<Self> {
        let host = match server {
            IpAddr::V4(v4) => v4.to_string(),
            IpAddr::V6(v6) => format!("[{v6}]"),
        };
        let file = client.lab().dir().join(format!("download-{name}"));
        let done = client
            .cmd("curl")
            .args(["--silent", "--show-error", "--fail", "--noproxy", "*", "--connect-timeout", "10"])
            .args(["--write-out", "%{json}", "--output"])
            .arg(&file)
            .arg(format!("http://{host}/{name}"))
            .limit(limit)
            .run()?;
        let stats: Stats = serde_json::from_str(&done.stdout)
            .map_err(|e| Error::unexpected("curl's statistics", "JSON", format!("{e} in {}", done.stdout)))?;
        let sha256 = files::sha256(&file)?;
        std::fs::remove_file(&file).map_err(Error::io(format!("remove {}", file.display())))?;
        Ok(Self { bytes: stats.size_download, elapsed: Duration::from_secs_f64(stats.time_total), sha256 })
    }

    /// Gigabits per second of payload.
    pub fn gbps(&self) -> f64 {
        self.gigabits() / self.elapsed.as_secs_f64()
    }

    /// Gigabits of payload.
    pub fn gigabits(&self) -> f64 {
        self.bytes as f64 * 8.0 / 1e9
    }
}

#[derive(Deserialize)]
struct Stats {
    size_download: u64,
    time_total: f64,
}
