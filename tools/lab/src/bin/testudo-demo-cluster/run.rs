//! The traffic, the kill, and the results.

use std::fmt::Write;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};
use testudo_lab::bed::{Bed, Failure};
use testudo_lab::cluster::Cluster;
use testudo_lab::cluster_report::ClusterReport;
use testudo_lab::demo::{Done, Progress};
use testudo_lab::files::Sha256;
use testudo_lab::nginx::Nginx;
use testudo_lab::probe::{Summary, Trace};
use testudo_lab::topology::Family;
use testudo_lab::transfer::{Transfer, Transferred};
use testudo_lab::{Error, Result};

const FILE: &str = "file";
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(300);
/// How long traffic continues after the download.
const AFTER: Duration = Duration::from_secs(1);
/// Part of the file that is received when the node is killed.
const KILL_AT: f64 = 0.4;

/// The observations.
pub(crate) struct Outcome {
    /// The node that was killed.
    pub(crate) victim: u8,
    pub(crate) nodes: usize,
    pub(crate) tunnels: usize,
    pub(crate) kill: Instant,
    /// Time from the kill until the first survivor noticed it; `None` if no log says so.
    pub(crate) detection: Option<Duration>,
    /// From the client to the server, and back.
    pub(crate) probes: [Trace; 2],
    pub(crate) download: Transferred,
    /// The same download before the kill, with all nodes alive.
    undisturbed: Transferred,
    expected: Sha256,
    /// Peers whose tunnel was set up again or carries nothing.
    lost: Vec<u8>,
}

/// Runs traffic through the first peer's tunnel and kills the node that carries it.
pub(crate) fn run(bed: &mut Bed, octets: u64, progress: &mut Progress) -> Result<Outcome> {
    progress.title("Traffic, and a node is killed")?;
    let nginx = Nginx::start(&bed.cluster.hosts[0])?;
    let expected = nginx.add_file(FILE, octets, 1)?;
    let undisturbed = progress.step("download with all nodes alive", || {
        let done = transfer(bed)?.finish(DOWNLOAD_LIMIT)?;
        let said = format!("{:.2} Gb/s", done.gbps());
        Ok(Done::saying(done, said))
    })?;
    let before = (1..).zip(&bed.peers).map(|(peer, _)| bed.tunnel_spi(peer)).collect::<Result<Vec<_>>>()?;
    let probes = bed.probes()?;
    let victim = progress.step("which node carries the tunnel", || {
        let victim = bed.owner(1)?;
        Ok(Done::saying(victim, format!("node {victim}")))
    })?;
    let (kill, day, download) = progress.step("download, and the node is killed", || {
        let transfer = transfer(bed)?;
        transfer.await_received((octets as f64 * KILL_AT).ceil() as u64, DOWNLOAD_LIMIT)?;
        let (kill, day) = (Instant::now(), SystemTime::now());
        bed.strike(victim, Failure::Testudod)?;
        let done = transfer.finish(DOWNLOAD_LIMIT)?;
        let said = format!("{:.2} Gb/s", done.gbps());
        Ok(Done::saying((kill, day, done), said))
    })?;
    sleep(AFTER);
    let [up, down] = probes;
    let probes = [up.stop()?, down.stop()?];
    let lost = progress.step("all tunnels", || {
        let lost = lost_tunnels(bed, &before)?;
        let said = format!("{} of {} lost", lost.len(), before.len());
        Ok(Done::saying(lost, said))
    })?;
    Ok(Outcome {
        victim,
        nodes: bed.nodes.len(),
        tunnels: before.len(),
        kill,
        detection: bed.detection(victim, day)?,
        probes,
        download,
        undisturbed,
        expected,
        lost,
    })
}

impl Outcome {
    /// The direction with the longer outage.
    pub(crate) fn worst(&self) -> (&Trace, Summary) {
        let [up, down] = [0, 1].map(|n| (&self.probes[n], self.probes[n].summary()));
        if down.1.outage.length > up.1.outage.length { down } else { up }
    }

    /// The figures as JSON.
    pub(crate) fn report(&self) -> Result<ClusterReport> {
        let unknown = || {
            let found = format!("no word of node {}", self.victim);
            Error::unexpected("the logs of the survivors", "when the node failed", found)
        };
        let both = self.probes.each_ref().map(Trace::summary);
        Ok(ClusterReport {
            outage_ms: milliseconds(self.worst().1.outage.length),
            detection_ms: milliseconds(self.detection.ok_or_else(unknown)?),
            packets_lost: both.iter().map(|summary| summary.lost).sum(),
            duplicates: both.iter().map(|summary| summary.duplicates).sum(),
            tunnels_lost: self.lost.len() as u64,
        })
    }

    /// The figures as text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::from("== Figures\n");
        let detection = self.detection.map_or("not told".into(), |d| format!("{:.1} ms", milliseconds(d)));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "detected after          {detection}");
        for (way, trace) in ["client to server", "server to client"].iter().zip(&self.probes) {
            let Summary { sent, lost, duplicates, reordered, outage, .. } = trace.summary();
            let length = milliseconds(outage.length);
            let _ = writeln!(
                text,
                "{way:<24}outage {length:.1} ms; of {sent} datagrams {lost} lost, {duplicates} doubled, {reordered} \
                 reordered"
            );
        }
        let extra = self.download.elapsed.as_secs_f64() - self.undisturbed.elapsed.as_secs_f64();
        let megabytes = self.download.bytes as f64 / 1e6;
        let _ = writeln!(text, "download of {megabytes:.0} MB      {extra:+.2} s against undisturbed");
        let _ = writeln!(text, "tunnels lost            {} of {}", self.lost.len(), self.tunnels);
        text
    }

    /// What is wrong with the results.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems: Vec<_> =
            self.lost.iter().map(|peer| format!("the tunnel of peer {peer} is lost")).collect();
        if self.download.sha256 != self.expected || self.undisturbed.sha256 != self.expected {
            problems.push("a download is not the file that the server has".into());
        }
        let duplicates: u64 = self.probes.iter().map(|trace| trace.summary().duplicates).sum();
        if duplicates > 0 {
            problems.push(format!("{duplicates} datagrams arrived twice"));
        }
        problems
    }
}

fn transfer(bed: &Bed) -> Result<Transfer> {
    Transfer::start(&bed.cluster.client, Cluster::behind(1, Family::V4, 2), FILE)
}

fn lost_tunnels(bed: &Bed, before: &[Option<String>]) -> Result<Vec<u8>> {
    let mut lost = Vec::new();
    for (peer, before) in (1..).zip(before) {
        if before.is_none() || bed.tunnel_spi(peer)? != *before || !bed.carries(peer)? {
            lost.push(peer);
        }
    }
    Ok(lost)
}

fn milliseconds(time: Duration) -> f64 {
    // In milliseconds, rounded to a microsecond: the clock is not more exact.
    (time.as_secs_f64() * 1e6).round() / 1e3
}
