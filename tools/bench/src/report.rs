//! Rows of figures: a table as text, and JSON. Every benchmark writes the same format.

use crate::error::BenchError;
use crate::esp::Rival;
use crate::esp::traffic::Traffic;
use crate::machine::Machine;
use crate::stopwatch::{PerPacket, Stopwatch};
use serde::Serialize;
use std::fmt;
use std::path::Path;
use testudo_terminal::progress::Progress;
use testudo_terminal::table::{Align, Table};

/// One measured case.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    direction: &'static str,
    cipher: &'static str,
    /// Octets of the inner IP packet, the mean if they differ; rates count these.
    size: usize,
    /// The size, or the mixture's name.
    traffic: String,
    /// The whole pipeline, per packet.
    ns: f64,
    /// The same in cycles of the time-stamp counter, if there is one.
    cycles: Option<f64>,
    /// The bare cipher in the same run, per packet.
    cipher_ns: f64,
    /// DPDK's best figure of the bare cipher on this machine, if its benchmark is installed.
    pub(crate) dpdk_ns: Option<f64>,
    /// DPDK's example gateway, per packet, if it is built.
    secgw_ns: Option<f64>,
    secgw_cycles: Option<f64>,
    /// The same without receiving and sending.
    secgw_net_ns: Option<f64>,
    secgw_net_cycles: Option<f64>,
    mpps: f64,
    gbps: f64,
    /// Packets processed in the measured time.
    packets: u64,
}

impl Row {
    /// A row from the measurements of the pipeline and of the bare cipher.
    pub(crate) fn new(case: Labels, pipeline: &Stopwatch, cipher: &Stopwatch) -> Self {
        Self::from_medians(case, pipeline.median(), cipher.median(), pipeline.packets())
    }

    pub(crate) fn is_of(&self, direction: &str, cipher: &str) -> bool {
        self.direction == direction && self.cipher == cipher
    }

    pub(crate) fn direction(&self) -> &'static str {
        self.direction
    }

    /// The size, or the mixture's name.
    pub(crate) fn traffic(&self) -> &str {
        &self.traffic
    }

    pub(crate) fn ns(&self) -> f64 {
        self.ns
    }

    pub(crate) fn cipher_ns(&self) -> f64 {
        self.cipher_ns
    }

    /// Adds another gateway's figures.
    pub(crate) fn set_rival(&mut self, rival: Rival) {
        self.secgw_ns = Some(round(rival.whole.ns));
        self.secgw_cycles = rival.whole.cycles.map(round);
        self.secgw_net_ns = Some(round(rival.net.ns));
        self.secgw_net_cycles = rival.net.cycles.map(round);
    }

    fn from_medians(case: Labels, pipeline: PerPacket, cipher: PerPacket, packets: u64) -> Self {
        let Labels { direction, cipher: name, traffic } = case;
        let size = traffic.mean();
        let mpps = 1e3 / pipeline.ns;
        Self {
            direction,
            cipher: name,
            size: size.round() as usize,
            traffic: traffic.to_string(),
            ns: round(pipeline.ns),
            cycles: pipeline.cycles.map(round),
            cipher_ns: round(cipher.ns),
            dpdk_ns: None,
            secgw_ns: None,
            secgw_cycles: None,
            secgw_net_ns: None,
            secgw_net_cycles: None,
            mpps: round(mpps),
            gbps: round(mpps * size * 8.0 / 1e3),
            packets,
        }
    }
}

/// The subject of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Labels {
    pub(crate) direction: &'static str,
    pub(crate) cipher: &'static str,
    pub(crate) traffic: Traffic,
}

/// Three decimals: more would be noise.
fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// All rows of one run.
#[derive(Debug, Serialize)]
pub(crate) struct Report<R> {
    bench: &'static str,
    machine: Machine,
    rows: Vec<R>,
}

impl<R: Serialize> Report<R> {
    pub(crate) fn new(bench: &'static str, machine: Machine) -> Self {
        Self { bench, machine, rows: Vec::new() }
    }

    pub(crate) fn push(&mut self, row: R) {
        self.rows.push(row);
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Writes the report with these rows, if the user has named a file.
    pub(crate) fn write(mut self, rows: Vec<R>, json: Option<&Path>) -> Result<(), BenchError> {
        self.rows = rows;
        json.map_or(Ok(()), |path| self.write_json(path))
    }

    /// Writes the report as JSON.
    pub(crate) fn write_json(&self, path: &Path) -> Result<(), BenchError> {
        let failed = |source| BenchError::Write { path: path.to_owned(), source };
        let mut text = serde_json::to_vec_pretty(self).map_err(|error| failed(error.into()))?;
        text.push(b'\n');
        std::fs::write(path, text).map_err(failed)
    }
}

/// Writes a picture, if the user has named a file.
pub(crate) fn draw(svg: Option<&Path>, picture: impl FnOnce() -> String) -> Result<(), BenchError> {
    let Some(path) = svg else { return Ok(()) };
    std::fs::write(path, picture()).map_err(|source| BenchError::Write { path: path.to_owned(), source })
}

/// Prints a table of rows.
pub(crate) fn show(columns: &[(&str, Align)], rows: impl Iterator<Item = Vec<String>>, progress: &Progress) {
    let mut table = Table::new(columns);
    rows.for_each(|row| table.row(row));
    let mut text = String::new();
    table.write(&mut text, "");
    progress.aside(|| print!("{text}"));
}

/// The line of an aim behind the table.
pub(crate) fn aim(what: &str, aim: &str, reached: bool) -> String {
    format!("{what} (aim: {aim}): {}\n", if reached { "reached" } else { "NOT REACHED" })
}

/// The table's head.
pub(crate) struct Header;

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<4} {:<12} {:>6} {:>10} {:>10} {:>10} {:>10} {:>8} {:>7} {:>7} {:>8} {:>8}",
            "dir",
            "cipher",
            "octets",
            "ns/packet",
            "cycles",
            "cipher ns",
            "over it",
            "dpdk ns",
            "secgw",
            "net",
            "Mpps",
            "Gb/s"
        )
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |cycles: Option<f64>| cycles.map_or("-".into(), |cycles| format!("{cycles:.0}"));
        let dpdk = self.dpdk_ns.map_or("-".into(), |ns| format!("{ns:.1}"));
        write!(
            f,
            "{:<4} {:<12} {:>6} {:>10.1} {:>10} {:>10.1} {:>10.1} {:>8} {:>7} {:>7} {:>8.2} {:>8.2}",
            self.direction,
            self.cipher,
            self.traffic,
            self.ns,
            whole(self.cycles),
            self.cipher_ns,
            self.ns - self.cipher_ns,
            dpdk,
            whole(self.secgw_cycles),
            whole(self.secgw_net_cycles),
            self.mpps,
            self.gbps
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testudo_crypto::Library;

    fn row() -> Row {
        let case = Labels { direction: "out", cipher: "aes128gcm16", traffic: Traffic::of(500) };
        let at = |ns| PerPacket { ns, cycles: Some(ns * 2.0) };
        Row::from_medians(case, at(100.0), at(60.0), 7)
    }

    #[test]
    fn rates_follow_from_the_time_of_a_packet() {
        let row = row();
        assert_eq!((row.mpps, row.gbps, row.cycles), (10.0, 40.0, Some(200.0)));
    }

    #[test]
    fn json_has_the_agreed_shape() {
        let mut report = Report::new("esp", Machine::here(Library::AwsLc, Some(0)));
        let mut row = row();
        let [whole, net] =
            [(150.0, 300.0), (120.0, 240.0)].map(|(ns, cycles)| PerPacket { ns, cycles: Some(cycles) });
        row.set_rival(Rival { whole, net });
        report.push(row);
        let json = serde_json::to_value(&report).expect("it serialises");
        assert_eq!(json["bench"], "esp");
        assert_eq!(json["machine"]["library"], "aws-lc");
        let row = &json["rows"][0];
        assert_eq!(row["direction"], "out");
        assert_eq!(row["cipher"], "aes128gcm16");
        assert_eq!(row["size"], 500);
        for (key, value) in
            [("ns", 100.0), ("cycles", 200.0), ("cipher_ns", 60.0), ("mpps", 10.0), ("gbps", 40.0)]
        {
            assert_eq!(row[key].as_f64(), Some(value), "{key}");
        }
        for (key, value) in [
            ("secgw_ns", 150.0),
            ("secgw_cycles", 300.0),
            ("secgw_net_ns", 120.0),
            ("secgw_net_cycles", 240.0),
        ] {
            assert_eq!(row[key].as_f64(), Some(value), "{key}");
        }
    }

    #[test]
    fn table_columns_stand_under_their_heads() {
        let (header, mut row) = (Header.to_string(), row());
        assert_eq!(header.len(), row.to_string().len(), "{header}\n{row}");
        let figure = PerPacket { ns: 200.0, cycles: Some(1489.26) };
        row.set_rival(Rival { whole: figure, net: figure });
        assert_eq!(header.len(), row.to_string().len(), "{header}\n{row}");
    }
}
