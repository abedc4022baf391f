//! The figures of `testudo bench setup`: as text and as JSON.

use super::limit::Limit;
use super::shape::Shape;
use super::storm::Storm;
use super::swarm::Round;
use super::usage::Cpu;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use testudo_crypto::{AeadKey, Library};

/// charon 5.9.8's processor time for the same on this kind of machine, without a kernel, in
/// milliseconds. Measured once with its own load-tester; not part of the run.
pub(super) const CHARON_QUOTED_MS: [f64; 2] = [0.54, 0.61];
/// Octets of an IKE SA with a Child SA in charon, measured in the same way.
pub(super) const CHARON_QUOTED_BYTES: u64 = 12_700;

/// Tunnels needed to compute the memory of one: a process gets memory in pages, and has some in
/// reserve.
const ENOUGH: u32 = 50;

/// One round of setups.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Batch {
    /// Tunnels up at its end.
    tunnels: u32,
    setups_per_s: f64,
    /// Processor time of a setup, of all the daemon's threads.
    responder_cpu_ms: f64,
    /// The same by thread.
    threads_ms: BTreeMap<String, f64>,
    /// Messages of the swarm that were lost and retransmitted.
    repeated: u64,
}

impl Batch {
    pub(super) fn new(tunnels: u32, setups: u32, round: Round, cpu: &Cpu) -> Self {
        let each = |time: Duration| round3(time.as_secs_f64() * 1e3 / f64::from(setups));
        Self {
            tunnels,
            setups_per_s: (f64::from(setups) / round.time.as_secs_f64()).round(),
            responder_cpu_ms: each(cpu.total),
            threads_ms: cpu.threads.iter().map(|(name, time)| (name.clone(), each(*time))).collect(),
            repeated: round.repeated,
        }
    }
}

/// The responder's configuration, and how long loading it took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loaded {
    pub(super) shape: Shape,
    pub(super) connections: u32,
    pub(super) time: Duration,
}

/// The whole run.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    suite: &'static str,
    shape: Shape,
    /// Their number, and the time for loading one of them and its secret.
    connections: u32,
    load_ms: f64,
    /// Tunnels held at the end.
    tunnels: u32,
    /// Medians over the rounds.
    setups_per_s: f64,
    responder_cpu_ms: f64,
    /// Processor time of a setup in the last round divided by that in the first: 1 if it does not
    /// grow with the number of tunnels.
    growth: f64,
    limit_cpu_ms: f64,
    limit: Limit,
    /// Memory that the daemon has allocated divided by the tunnels; unknown if they are too few.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_per_tunnel: Option<f64>,
    charon_quoted_cpu_ms: [f64; 2],
    charon_quoted_bytes: u64,
    /// Octets of ipsec-mb's or AWS-LC's key schedules that a tunnel needs once packets have
    /// arrived, in both directions.
    key_schedule_bytes: usize,
    batches: Vec<Batch>,
    #[serde(skip_serializing_if = "Option::is_none")]
    storm: Option<Storm>,
}

impl Row {
    pub(super) fn new(loaded: Loaded, limit: Limit, batches: Vec<Batch>, memory: u64) -> Self {
        let Loaded { shape, connections, time } = loaded;
        let tunnels = batches.last().map_or(0, |batch| batch.tunnels);
        let of = |value: fn(&Batch) -> f64| median(batches.iter().map(value).collect());
        Self {
            suite: "psk-aes128gcm16-prfsha256-x25519",
            shape,
            connections,
            load_ms: round3(time.as_secs_f64() * 1e3 / f64::from(connections.max(1))),
            tunnels,
            setups_per_s: of(|batch| batch.setups_per_s),
            responder_cpu_ms: of(|batch| batch.responder_cpu_ms),
            growth: growth(&batches),
            limit_cpu_ms: round3(limit.total()),
            limit,
            bytes_per_tunnel: (tunnels >= ENOUGH).then(|| (memory as f64 / f64::from(tunnels)).round()),
            charon_quoted_cpu_ms: CHARON_QUOTED_MS,
            charon_quoted_bytes: CHARON_QUOTED_BYTES,
            key_schedule_bytes: 2 * AeadKey::schedule_len(Library::detect()),
            batches,
            storm: None,
        }
    }

    /// Adds the effects of a storm.
    pub(super) fn set_storm(&mut self, storm: Storm) {
        self.storm = Some(storm);
    }
}

fn growth(batches: &[Batch]) -> f64 {
    let ends = batches.last().zip(batches.first());
    ends.map_or(f64::NAN, |(last, first)| round3(last.responder_cpu_ms / first.responder_cpu_ms))
}

fn round3(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    (at(values.len() / 2) + at(values.len().saturating_sub(1) / 2)) / 2.0
}

/// The head of the table of rounds.
pub(super) struct Header;

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8} {:>10} {:>10}  CPU ms by thread", "tunnels", "setups/s", "CPU ms")
    }
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tunnels, setups_per_s, responder_cpu_ms, threads_ms, repeated } = self;
        write!(f, "{tunnels:>8} {setups_per_s:>10.0} {responder_cpu_ms:>10.3} ")?;
        for (name, time) in threads_ms {
            write!(f, " {name} {time:.3}")?;
        }
        if *repeated > 0 {
            write!(f, "  ({repeated} messages sent again)")?;
        }
        Ok(())
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Limit { curve_ms, prf_ms, cipher_ms } = self.limit;
        let [low, high] = self.charon_quoted_cpu_ms;
        writeln!(
            f,
            "shape                     {} ({} loaded, {} ms each)",
            self.shape, self.connections, self.load_ms
        )?;
        writeln!(f, "setups/s (median)         {:>10.0}", self.setups_per_s)?;
        writeln!(
            f,
            "responder, CPU ms a setup {:>10.3}  (last round / first round: {:.2})",
            self.responder_cpu_ms, self.growth
        )?;
        writeln!(
            f,
            "its limit, CPU ms a setup {:>10.3}  (curve {curve_ms:.3}, PRF {prf_ms:.3}, cipher {cipher_ms:.3})",
            self.limit_cpu_ms
        )?;
        match self.bytes_per_tunnel {
            Some(octets) => writeln!(f, "octets a tunnel           {octets:>10.0}")?,
            None => writeln!(f, "octets a tunnel           {:>10}", "too few to tell")?,
        }
        writeln!(f, "key schedules, once used  {:>10}", self.key_schedule_bytes)?;
        write!(
            f,
            "charon 5.9.8 (*)          {low:.2}-{high:.2} CPU ms a setup, {} octets a tunnel\n\
             (*) measured once by this project with charon's own load-tester, not in this run",
            self.charon_quoted_bytes
        )
    }
}

impl fmt::Display for Storm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { quiet_gbps, storm_gbps, ratio, setups_per_s, at_full_width, .. } = self;
        let Self { quiet_worker_ms, storm_worker_ms, .. } = self;
        writeln!(f, "TCP through the gateway   {quiet_gbps:>10.2} Gb/s")?;
        writeln!(
            f,
            "in a storm of handshakes  {storm_gbps:>10.2} Gb/s  ({ratio:.2}, at {setups_per_s:.0} setups/s, {:.0} % of the time at \
             full width)",
            at_full_width * 1e2
        )?;
        write!(f, "worker, CPU ms a gigabit  {quiet_worker_ms:>10.1}, in the storm {storm_worker_ms:.1}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(tunnels: u32, cpu: u64) -> Batch {
        let round = Round { time: Duration::from_millis(500), repeated: 0 };
        let total = Duration::from_micros(cpu);
        let cpu = Cpu { total, threads: BTreeMap::from([("testudod".into(), total)]) };
        Batch::new(tunnels, 10, round, &cpu)
    }

    #[test]
    fn figures_are_those_of_one_setup() {
        let limit = Limit { curve_ms: 0.05, prf_ms: 0.01, cipher_ms: 0.001 };
        let loaded = Loaded { shape: Shape::Each, connections: 30, time: Duration::from_millis(60) };
        let row = Row::new(loaded, limit, vec![batch(20, 1000), batch(40, 3000), batch(60, 2000)], 180_000);
        let json = serde_json::to_value(&row).unwrap();
        for (key, expected) in [
            ("tunnels", 60.0),
            ("setups_per_s", 20.0),
            ("responder_cpu_ms", 0.2),
            ("limit_cpu_ms", 0.061),
            ("bytes_per_tunnel", 3000.0),
            ("growth", 2.0),
            ("load_ms", 2.0),
        ] {
            assert_eq!(json[key].as_f64(), Some(expected), "{key}");
        }
        assert_eq!(json["shape"], "a connection and a secret each");
        assert_eq!(json["batches"][1]["threads_ms"]["testudod"], 0.3);
    }

    #[test]
    fn the_memory_of_a_tunnel_needs_more_than_one() {
        let limit = Limit { curve_ms: 0.05, prf_ms: 0.01, cipher_ms: 0.001 };
        let loaded = Loaded { shape: Shape::Each, connections: 2, time: Duration::from_millis(60) };
        let row = Row::new(loaded, limit, vec![batch(1, 1000)], 0);
        assert_eq!(serde_json::to_value(&row).unwrap().get("bytes_per_tunnel"), None);
        assert!(row.to_string().contains("too few to tell"), "{row}");
    }
}
