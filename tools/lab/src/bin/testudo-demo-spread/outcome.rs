//! The results: what each node has done in each stage, and what was lost.

use serde::Serialize;
use std::fmt::Write;
use std::time::{Duration, Instant};
use testudo_lab::probe::{Takeover, Trace};

/// What a node has done so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reading {
    /// Packets of the tunnel, in both directions.
    pub(crate) packets: u64,
    /// Packets dropped because its fence was shut: it did not hear the others in time.
    pub(crate) fenced: u64,
    /// Seconds of processor time.
    pub(crate) cpu: f64,
}

/// The readings of all nodes.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) at: Instant,
    /// `None` of a node that does not answer.
    pub(crate) nodes: Vec<Option<Reading>>,
}

/// What a node does, a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Rate {
    pub(crate) packets_per_s: f64,
    pub(crate) cpu_percent: f64,
}

/// A stretch of the run with the same nodes.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    pub(crate) name: String,
    /// The nodes that should take part.
    nodes: Vec<u8>,
    pub(crate) begin: Instant,
    end: Instant,
    /// Of all nodes; `None` of a dead one.
    rates: Vec<Option<Rate>>,
}

/// All that was observed.
pub(crate) struct Outcome {
    /// From the client to the host behind the peer, and back.
    pub(crate) traces: [Trace; 2],
    pub(crate) samples: Vec<Sample>,
    pub(crate) stages: Vec<Stage>,
    pub(crate) victim: u8,
    pub(crate) kill: Instant,
    /// Time from the kill until the first survivor noticed it; `None` if no log says so.
    pub(crate) detection: Option<Duration>,
    /// The tunnel was not set up again, and still carries packets.
    pub(crate) is_kept: bool,
}

/// The content of `target/demo/spread.json`.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    stages: Vec<StageReport>,
    detection_ms: Option<f64>,
    /// Milliseconds from the kill until no more datagrams were lost, of the slower direction.
    takeover_ms: f64,
    /// Datagrams lost in that time, of both directions, and sent in it.
    takeover_lost: u64,
    takeover_sent: u64,
    packets_lost: u64,
    duplicates: u64,
    tunnels_lost: u64,
}

#[derive(Debug, Serialize)]
struct StageReport {
    name: String,
    nodes: Vec<u8>,
    rates: Vec<Option<Rate>>,
    lost: u64,
    sent: u64,
}

/// The rates of each node between two samples.
pub(crate) fn rates(before: &Sample, after: &Sample) -> Vec<Option<Rate>> {
    let seconds = (after.at - before.at).as_secs_f64();
    let rate = |(before, after): (&Option<Reading>, &Option<Reading>)| {
        let (before, after) = ((*before)?, (*after)?);
        Some(Rate {
            packets_per_s: after.packets.saturating_sub(before.packets) as f64 / seconds,
            cpu_percent: (after.cpu - before.cpu) * 100.0 / seconds,
        })
    };
    before.nodes.iter().zip(&after.nodes).map(rate).collect()
}

impl Stage {
    /// A stage that these samples were taken in: two at least.
    pub(crate) fn between(name: String, nodes: Vec<u8>, samples: &[Sample]) -> Self {
        let (first, last) = (&samples[0], &samples[samples.len() - 1]);
        Self { name, nodes, begin: first.at, end: last.at, rates: rates(first, last) }
    }

    /// In one line: what each node does.
    pub(crate) fn said(&self) -> String {
        let cell = |(node, rate): (u8, &Option<Rate>)| match rate {
            Some(rate) => {
                format!("{node}: {:.0} packets/s, {:.0} % CPU", rate.packets_per_s, rate.cpu_percent)
            }
            None => format!("{node}: dead"),
        };
        (1..).zip(&self.rates).map(cell).collect::<Vec<_>>().join("; ")
    }

    /// The part of all packets that each node has worked on, in percent.
    fn shares(&self) -> Vec<f64> {
        let packets = |rate: &Option<Rate>| rate.map_or(0.0, |rate| rate.packets_per_s);
        let all: f64 = self.rates.iter().map(packets).sum();
        self.rates.iter().map(|rate| packets(rate) * 100.0 / all.max(1.0)).collect()
    }

    /// Datagrams sent in the stage, and those of them that were lost.
    fn losses(&self, traces: &[Trace]) -> (u64, u64) {
        let sent = traces.iter().flat_map(Trace::delays);
        let (mut all, mut lost) = (0, 0);
        for (_, delay) in sent.filter(|(at, _)| (self.begin..self.end).contains(at)) {
            all += 1;
            lost += u64::from(delay.is_none());
        }
        (all, lost)
    }
}

impl Outcome {
    /// The takeover of each direction.
    pub(crate) fn takeovers(&self) -> [Takeover; 2] {
        self.traces.each_ref().map(|trace| trace.takeover(self.kill))
    }

    /// Packets that the fences of all nodes dropped, as far as they have told it.
    fn fenced(&self) -> u64 {
        let nodes = self.samples.first().map_or(0, |sample| sample.nodes.len());
        let of = |node: usize| {
            let told: Vec<u64> = self.samples.iter().filter_map(|s| Some(s.nodes[node]?.fenced)).collect();
            Some(told.last()? - told.first()?)
        };
        (0..nodes).filter_map(of).sum()
    }

    fn duplicates(&self) -> u64 {
        self.traces.iter().map(|trace| trace.summary().duplicates).sum()
    }

    /// The figures for programs.
    pub(crate) fn report(&self) -> Report {
        let stage = |stage: &Stage| {
            let (sent, lost) = stage.losses(&self.traces);
            let Stage { name, nodes, rates, .. } = stage.clone();
            StageReport { name, nodes, rates, lost, sent }
        };
        let takeovers = self.takeovers();
        Report {
            stages: self.stages.iter().map(stage).collect(),
            detection_ms: self.detection.map(milliseconds),
            takeover_ms: takeovers.iter().map(|one| milliseconds(one.length)).fold(0.0, f64::max),
            takeover_lost: takeovers.iter().map(|one| one.lost).sum(),
            takeover_sent: takeovers.iter().map(|one| one.sent).sum(),
            packets_lost: self.traces.iter().map(|trace| trace.summary().lost).sum(),
            duplicates: self.duplicates(),
            tunnels_lost: u64::from(!self.is_kept),
        }
    }

    /// The figures as text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::from("== What each node did: part of the packets, processor\n");
        // Writing to a string cannot fail.
        for stage in &self.stages {
            let _ = write!(text, "{:<16}", stage.name);
            for ((node, rate), share) in (1..).zip(&stage.rates).zip(stage.shares()) {
                let cell = rate.map_or("dead".to_owned(), |rate| {
                    format!("{share:3.0} %, CPU {:3.0} %", rate.cpu_percent)
                });
                let _ = write!(text, "  node {node}: {cell:<17}");
            }
            let (sent, lost) = stage.losses(&self.traces);
            let _ = writeln!(text, "  {lost} of {sent} datagrams lost");
        }
        match self.fenced() {
            0 => {}
            fenced => {
                let _ = writeln!(
                    text,
                    "{fenced} packets were dropped by fences: this machine was too busy for the nodes to hear each \
                     other in time"
                );
            }
        }
        let detection = self.detection.map_or("not told".into(), |d| format!("{:.1} ms", milliseconds(d)));
        let _ = writeln!(text, "\nnode {} killed: noticed after {detection}", self.victim);
        for (way, takeover) in ["client to server", "server to client"].iter().zip(self.takeovers()) {
            let _ = writeln!(
                text,
                "{way:<24}{:.1} ms until no more are lost; {} of the {} datagrams of that time lost ({:.0} %)",
                milliseconds(takeover.length),
                takeover.lost,
                takeover.sent,
                takeover.part_lost() * 100.0
            );
        }
        let reordered: u64 = self.traces.iter().map(|trace| trace.summary().reordered).sum();
        let sent: u64 = self.traces.iter().map(|trace| trace.summary().sent).sum();
        let _ = writeln!(text, "in all                  {sent} datagrams, {reordered} reordered");
        let _ = writeln!(text, "tunnel                  {}", if self.is_kept { "kept" } else { "lost" });
        text
    }

    /// What is wrong with the results.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for stage in &self.stages {
            let shares = stage.shares();
            let idle = stage.nodes.iter().filter(|node| shares[usize::from(**node) - 1] < 5.0);
            problems.extend(idle.map(|node| format!("{}: node {node} took no part", stage.name)));
        }
        if !self.is_kept {
            problems.push("the tunnel is lost".into());
        }
        match self.duplicates() {
            0 => {}
            duplicates => problems.push(format!("{duplicates} datagrams arrived twice")),
        }
        problems
    }
}

fn milliseconds(time: Duration) -> f64 {
    // In milliseconds, rounded to a microsecond: the clock is not more exact.
    (time.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use testudo_lab::probe::Arrival;

    const SECOND: Duration = Duration::from_secs(1);

    fn sample(at: Instant, nodes: &[Option<(u64, f64)>]) -> Sample {
        let reading = |node: &Option<(u64, f64)>| {
            node.map(|(packets, cpu)| Reading { packets, cpu, fenced: packets / 100 })
        };
        Sample { at, nodes: nodes.iter().map(reading).collect() }
    }

    /// Two nodes in two seconds, of which the second one does this many packets.
    fn samples(zero: Instant, packets: u64) -> Vec<Sample> {
        vec![
            sample(zero, &[Some((100, 1.0)), Some((0, 0.0)), None]),
            sample(zero + SECOND * 2, &[Some((700, 1.5)), Some((packets, 0.1)), None]),
        ]
    }

    fn stage(zero: Instant, packets: u64) -> Stage {
        Stage::between("2 nodes".into(), vec![1, 2], &samples(zero, packets))
    }

    fn outcome(zero: Instant, stage: Stage, arrivals: &[u64]) -> Outcome {
        let arrivals: Vec<_> = arrivals.iter().map(|number| Arrival { number: *number, at: zero }).collect();
        let trace = || Trace::new(SECOND, vec![zero; 4], arrivals.clone());
        Outcome {
            traces: [trace(), trace()],
            samples: Vec::new(),
            stages: vec![stage],
            victim: 2,
            kill: zero + SECOND,
            detection: Some(Duration::from_millis(12)),
            is_kept: true,
        }
    }

    #[test]
    fn a_stage_tells_what_each_node_does() {
        let stage = stage(Instant::now(), 200);
        assert_eq!(stage.said(), "1: 300 packets/s, 25 % CPU; 2: 100 packets/s, 5 % CPU; 3: dead");
        assert_eq!(stage.shares(), [75.0, 25.0, 0.0]);
    }

    #[test]
    fn a_good_run_has_no_problems_and_all_its_figures() {
        let zero = Instant::now();
        let outcome = outcome(zero, stage(zero, 200), &[0, 2, 3]);
        assert_eq!(outcome.problems(), Vec::<String>::new());
        let text = outcome.text();
        for said in
            ["node 1:  75 %, CPU  25 %", "node 3: dead", "2 of 8 datagrams lost", "after 12.0 ms", "kept"]
        {
            assert!(text.contains(said), "{said}: {text}");
        }
        let json = serde_json::to_value(outcome.report()).unwrap();
        assert_eq!((&json["packets_lost"], &json["tunnels_lost"]), (&2.into(), &0.into()));
        assert_eq!(json["stages"][0]["rates"][1]["packets_per_s"], 100.0);
        assert!(json["stages"][0]["rates"][2].is_null(), "{json}");
    }

    #[test]
    fn what_fences_dropped_is_told() {
        let zero = Instant::now();
        let outcome =
            Outcome { samples: samples(zero, 200), ..outcome(zero, stage(zero, 200), &[0, 1, 2, 3]) };
        assert!(outcome.text().contains("8 packets were dropped by fences"), "{}", outcome.text());
    }

    #[test]
    fn an_idle_node_a_lost_tunnel_and_duplicates_are_problems() {
        let zero = Instant::now();
        let outcome = Outcome { is_kept: false, ..outcome(zero, stage(zero, 10), &[0, 1, 2, 3, 3]) };
        let expected = ["2 nodes: node 2 took no part", "the tunnel is lost", "2 datagrams arrived twice"];
        assert_eq!(outcome.problems(), expected);
    }
}
