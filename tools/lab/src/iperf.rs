//! TCP throughput by iperf3.

use crate::process::Process;
use crate::{Error, Namespace, Result, wait_until};
use serde::Deserialize;
use std::net::IpAddr;
use std::time::Duration;

const START_LIMIT: Duration = Duration::from_secs(60);
const BUSY_LIMIT: Duration = Duration::from_secs(60);
/// What a client says if the server still has another one.
const BUSY: &str = "the server is busy running a test";

/// A running `iperf3 --server`.
#[derive(Debug)]
pub struct IperfServer {
    _process: Process,
}

impl IperfServer {
    /// Starts it in the namespace and waits until it listens.
    pub fn start(namespace: &Namespace) -> Result<Self> {
        let mut process =
            namespace.start("iperf3", namespace.cmd("iperf3").args(["--server", "--forceflush"]))?;
        process.wait_log("Server listening", START_LIMIT)?;
        Ok(Self { _process: process })
    }
}

/// Direction of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// A measured run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throughput {
    /// Octets of payload that arrived.
    pub bytes: u64,
    /// Time that they took.
    pub elapsed: Duration,
    /// Segments that the sender retransmitted.
    pub retransmits: u64,
    /// Processor time of iperf3 at both ends, and of the kernel on its behalf.
    pub cpu: Duration,
}

impl Throughput {
    /// Runs one client for `length`, with that many TCP streams. Waits for the server if that has
    /// not seen the end of an earlier test yet.
    pub fn run(
        client: &Namespace,
        server: IpAddr,
        direction: Direction,
        length: Duration,
        streams: u32,
    ) -> Result<Self> {
        wait_until("a free iperf3 server", BUSY_LIMIT, || {
            match parse(&Self::report(client, server, direction, length, streams)?) {
                Err(error) if error.to_string().contains(BUSY) => Ok(Err(error.to_string())),
                done => done.map(Ok),
            }
        })
    }

    /// iperf3's report of one run.
    fn report(
        client: &Namespace,
        server: IpAddr,
        direction: Direction,
        length: Duration,
        streams: u32,
    ) -> Result<String> {
        let (time, streams) = (length.as_secs().max(1).to_string(), streams.to_string());
        let mut cmd = client.cmd("iperf3").args(["--json", "--connect-timeout", "5000", "--client"]);
        cmd = cmd.arg(server.to_string()).args(["--time", &time, "--parallel", &streams]);
        if direction == Direction::Down {
            cmd = cmd.arg("--reverse");
        }
        Ok(cmd.limit(length + Duration::from_secs(20)).run_any()?.stdout)
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
struct Report {
    error: Option<String>,
    end: Option<End>,
}

#[derive(Deserialize)]
struct End {
    sum_sent: Option<Sum>,
    sum_received: Option<Sum>,
    cpu_utilization_percent: Option<Cpu>,
}

#[derive(Deserialize)]
struct Cpu {
    host_total: f64,
    remote_total: f64,
}

#[derive(Deserialize)]
struct Sum {
    bytes: u64,
    seconds: f64,
    #[serde(default)]
    retransmits: u64,
}

fn parse(output: &str) -> Result<Throughput> {
    let report: Report = serde_json::from_str(output)
        .map_err(|e| Error::unexpected("iperf3's report", "JSON", format!("{e} in \"{output}\"")))?;
    if let Some(error) = report.error {
        return Err(Error::unexpected("iperf3", "a finished test", error));
    }
    let end =
        report.end.and_then(|end| Some((end.sum_sent?, end.sum_received?, end.cpu_utilization_percent)));
    let (sent, received, cpu) =
        end.ok_or_else(|| Error::unexpected("iperf3's report", "sums of both ends", output))?;
    let percent = cpu.map_or(0.0, |cpu| cpu.host_total + cpu.remote_total);
    Ok(Throughput {
        bytes: received.bytes,
        elapsed: Duration::from_secs_f64(received.seconds),
        retransmits: sent.retransmits,
        cpu: Duration::from_secs_f64((percent / 100.0 * received.seconds).max(0.0)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_read() {
        let output = r#"{"end": {"sum_sent": {"bytes": 1100, "seconds": 2.0, "retransmits": 3},
            "sum_received": {"bytes": 1000, "seconds": 2.5},
            "cpu_utilization_percent": {"host_total": 50.0, "remote_total": 30.0}}}"#;
        let expected = Throughput {
            bytes: 1000,
            elapsed: Duration::from_millis(2500),
            retransmits: 3,
            cpu: Duration::from_secs(2),
        };
        assert_eq!(parse(output).unwrap(), expected);
    }

    #[test]
    fn its_own_error_is_told() {
        let output = r#"{"start": {}, "end": {}, "error": "unable to connect to server"}"#;
        let error = parse(output).unwrap_err().to_string();
        assert!(error.contains("unable to connect to server"), "{error}");
        let busy = r#"{"error": "the server is busy running a test. try again later"}"#;
        assert!(parse(busy).unwrap_err().to_string().contains(BUSY));
    }
}
