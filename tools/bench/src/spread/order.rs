//! What each scheme does to the order of packets, and to TCP: three nodes, and a peer for each
//! scheme. The schemes take turns, so that disturbances affect all alike.

use super::scheme::Scheme;
use super::{Direction, SpreadArgs};
use crate::error::BenchError;
use crate::figures::{Aim, Row};
use std::net::IpAddr;
use std::thread::sleep;
use std::time::Duration;
use testudo_lab::bed::{Bed, BedOptions, replay_window};
use testudo_lab::cluster::Cluster;
use testudo_lab::gateway::Kind;
use testudo_lab::iperf::{self, IperfServer, Throughput};
use testudo_lab::probe::{Probe, Trace};
use testudo_lab::testudo::Testudo;
use testudo_lab::topology::Family;
use testudo_lab::{Lab, Result};
use testudo_terminal::progress::Progress;

/// Time between two datagrams of the stream whose order is measured.
const INTERVAL: Duration = Duration::from_micros(200);
/// A window of this size loses hardly a packet, in per cent of them. A smaller one may: its losses
/// are shown.
const LARGE_WINDOW: u16 = 128;
const MOST_REFUSED: f64 = 0.1;
/// TCP streams at the same time.
const STREAMS: [u32; 2] = [1, 16];

/// The values of one scheme in one direction, one for each repeat.
#[derive(Default)]
struct Values {
    reordered: Vec<f64>,
    extent: Vec<f64>,
    three: Vec<f64>,
    n: Vec<f64>,
    lost: Vec<f64>,
    refused: Vec<f64>,
    doubled: Vec<f64>,
    gbps: [Vec<f64>; STREAMS.len()],
}

/// A scheme and the number of its peer.
struct Subject {
    scheme: Scheme,
    peer: u8,
    values: [Values; 2],
}

pub(super) fn measure(args: &SpreadArgs, progress: &Progress) -> std::result::Result<Vec<Row>, BenchError> {
    progress.begin("spread, order: starting the nodes", 0);
    let subject = |(peer, scheme)| Subject { scheme, peer, values: Default::default() };
    let mut subjects: Vec<Subject> = (1..).zip(Scheme::ALL).map(subject).collect();
    let bed = start("spread-order", args.window, &subjects)?;
    let hosts = bed.cluster.hosts.iter();
    let _servers: Vec<IperfServer> = hosts.map(IperfServer::start).collect::<Result<_>>()?;
    progress.begin("spread, order", u64::from(args.repeats) * subjects.len() as u64);
    let length = Duration::from_secs_f64(args.seconds);
    for _ in 0..args.repeats {
        for subject in &mut subjects {
            progress.doing(format!("spread, order, {}", subject.scheme.name()));
            subject.order(&bed, length)?;
            subject.throughput(&bed, length)?;
            progress.step();
        }
    }
    Ok(subjects.into_iter().flat_map(|subject| subject.rows(args.window)).collect())
}

/// Three nodes with a tunnel for each of these.
fn start(name: &str, window: u16, subjects: &[Subject]) -> Result<Bed> {
    let settings = subjects.iter().map(|one| one.scheme.section(&format!("peer{}", one.peer)));
    let options = BedOptions {
        peers: vec![Kind::Testudo; subjects.len()],
        settings: settings.collect(),
        // On one machine with everything else nodes take longer for a view than a fence lasts.
        cluster: "fence_ms = 300".into(),
        ..BedOptions::default()
    };
    let bed = Bed::start_with(&Lab::new(name)?, &options, replay_window(window))?;
    subjects.iter().try_for_each(|one| bed.bring_up(one.peer))?;
    Ok(bed)
}

impl Subject {
    fn order(&mut self, bed: &Bed, length: Duration) -> Result<()> {
        let before = self.refused(bed)?;
        let probes = bed.probes_of(self.peer, INTERVAL)?;
        sleep(length);
        let traces = probes.into_iter().map(Probe::stop).collect::<Result<Vec<_>>>()?;
        let refused = self.refused(bed)?.into_iter().zip(before).map(|(after, before)| after - before);
        for ((values, trace), refused) in self.values.iter_mut().zip(&traces).zip(refused) {
            values.add(trace, refused);
        }
        Ok(())
    }

    fn throughput(&mut self, bed: &Bed, length: Duration) -> Result<()> {
        let client = &bed.cluster.client;
        let behind: IpAddr = Cluster::behind(self.peer, Family::V4, 2);
        for (values, direction) in self.values.iter_mut().zip([iperf::Direction::Up, iperf::Direction::Down])
        {
            for (gbps, streams) in values.gbps.iter_mut().zip(STREAMS) {
                gbps.push(Throughput::run(client, behind, direction, length, streams)?.gbps());
            }
        }
        Ok(())
    }

    /// Packets that the replay windows of its receivers have refused, by direction: the peer's, and
    /// those of all nodes.
    fn refused(&self, bed: &Bed) -> Result<[u64; 2]> {
        let nodes = bed.nodes.iter().map(Testudo::replays).sum::<Result<u64>>()?;
        Ok([bed.peers[usize::from(self.peer) - 1].replays()?, nodes])
    }

    fn rows(self, window: u16) -> Vec<Row> {
        let name = self.scheme.name();
        let ways = Direction::ALL.into_iter().zip(self.values);
        ways.flat_map(|(direction, values)| values.rows(name, direction, window)).collect()
    }
}

impl Values {
    fn add(&mut self, trace: &Trace, refused: u64) {
        let (summary, order) = (trace.summary(), trace.reordering());
        let percent = |count: u64| count as f64 * 100.0 / summary.sent.max(1) as f64;
        self.reordered.push(order.ratio() * 100.0);
        self.extent.push(order.max_extent as f64);
        self.three.push(order.degree(3) * 100.0);
        self.n.push(order.max_n() as f64);
        self.lost.push(percent(summary.lost));
        self.refused.push(percent(refused));
        self.doubled.push(summary.duplicates as f64);
    }

    fn rows(self, scheme: &str, direction: Direction, window: u16) -> Vec<Row> {
        let way = direction.name();
        let row = |what: &str, unit, values| Row::new(format!("{scheme}, {way}: {what}"), unit, values);
        let refused_by = match direction {
            Direction::Out => "refused by the peer's window",
            Direction::In => "refused by the nodes' windows",
        };
        let refused = row(refused_by, "% of the datagrams", self.refused);
        let mut rows = vec![
            row("reordered", "% of the datagrams", self.reordered),
            row("3-reordered", "% of the datagrams", self.three),
            row("lost", "% of the datagrams", self.lost),
            if window >= LARGE_WINDOW { refused.aim(Aim::none_above(MOST_REFUSED)) } else { refused },
            row("largest extent", "datagrams", self.extent),
            row("largest n of n-reordering", "datagrams", self.n),
            row("doubled", "datagrams", self.doubled).aim(Aim::none_above(0.0)),
        ];
        rows.extend(STREAMS.iter().zip(self.gbps).map(|(streams, gbps)| {
            let plural = if *streams == 1 { "" } else { "s" };
            row(&format!("TCP, {streams} stream{plural}"), "Gb/s", gbps)
        }));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;
    use testudo_lab::probe::Arrival;

    #[test]
    fn a_trace_gives_percentages() {
        let zero = Instant::now();
        let arrivals = [0, 2, 3, 4, 1, 5, 5, 7, 8].map(|number| Arrival { number, at: zero });
        let mut values = Values::default();
        values.add(&Trace::new(INTERVAL, vec![zero; 10], arrivals.to_vec()), 1);
        // Eight of ten have arrived; number 1 after three others.
        assert_eq!((&values.lost, &values.doubled, &values.extent), (&vec![20.0], &vec![1.0], &vec![3.0]));
        assert_eq!((values.reordered[0], values.three[0]), (12.5, 12.5));
        let rows = serde_json::to_value(values.rows("packet-hash", Direction::Out, LARGE_WINDOW));
        let rows = rows.expect("they serialise");
        assert_eq!(rows[0]["what"], "packet-hash, out: reordered");
        assert_eq!(rows[3]["what"], "packet-hash, out: refused by the peer's window");
        assert_eq!((&rows[3]["values"][0], &rows[3]["reached"]), (&10.0.into(), &false.into()));
        assert_eq!(rows[6]["reached"], false, "a doubled datagram");
        assert_eq!(rows.as_array().map(Vec::len), Some(9));
    }

    #[test]
    fn a_small_window_has_no_aim() {
        let rows = Values { refused: vec![2.5], ..Values::default() }.rows("packet-hash", Direction::In, 32);
        let row = serde_json::to_value(&rows[3]).expect("it serialises");
        assert_eq!(
            (&row["what"], &row["aim"]),
            (&"packet-hash, in: refused by the nodes' windows".into(), &().into())
        );
    }
}
