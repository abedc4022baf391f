//! What is lost of one tunnel's packets when one of the nodes that work on it dies.

use super::lanes::Carriers;
use super::scheme::Scheme;
use super::wire::{self, Frames, Used, Wire};
use super::{Direction, SpreadArgs};
use crate::error::BenchError;
use crate::failover::crash::Crash;
use crate::figures::{Aim, Row};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};
use testudo_lab::bed::{Bed, BedOptions, replay_window};
use testudo_lab::gateway::Kind;
use testudo_lab::probe::{Probe, Trace};
use testudo_lab::testudo::Testudo;
use testudo_lab::{Lab, Result};
use testudo_terminal::progress::Progress;

const NODES: u8 = 3;
const INTERVAL: Duration = Duration::from_micros(400);
/// Before a failure the nodes hear each other for this long: a node that has just started sends its
/// first heartbeats late, and gets more time.
const QUIET: Duration = Duration::from_secs(3);
/// Traffic before the failure, and after it: longer than corosync needs to agree on the survivors.
const BEFORE: Duration = Duration::from_millis(300);
const AFTER: Duration = Duration::from_millis(1500);

/// The measurements, one for each death.
#[derive(Default)]
struct Takeovers {
    ways: [Way; 2],
    detection: Vec<f64>,
    doubled: Vec<f64>,
    replayed: Vec<f64>,
    /// Sequence numbers that the nodes have sent twice, and IVs that they used twice with a key.
    repeats: [Vec<f64>; 2],
    /// Packets of the peer that were sent to the nodes once more: refused, and accepted.
    refused: Vec<f64>,
    accepted: Vec<f64>,
    fenced: Vec<f64>,
    tunnels: Vec<f64>,
}

/// Those of one direction.
#[derive(Default)]
struct Way {
    /// Milliseconds from the death to the last datagram that was lost before they flowed again.
    took: Vec<f64>,
    /// Datagrams lost until then, and afterwards.
    lost: Vec<f64>,
    later: Vec<f64>,
    /// The part of the datagrams until then that was lost, relative to the part that the dead node
    /// worked on.
    of_share: Vec<f64>,
}

pub(super) fn measure(args: &SpreadArgs, progress: &Progress) -> std::result::Result<Vec<Row>, BenchError> {
    progress.begin("spread, takeover: starting the nodes", 0);
    let options = BedOptions {
        peers: vec![Kind::Testudo],
        settings: Scheme::PacketHash.section("peer1"),
        ..BedOptions::default()
    };
    let lab = Lab::new("spread-takeover")?;
    let bed = &mut Bed::start_with(&lab, &options, replay_window(args.window))?;
    bed.bring_up(1)?;
    let (mut takeovers, mut used) = (Takeovers::default(), Used::default());
    progress.begin("spread, takeover", args.repeats.into());
    for repeat in 0..args.repeats {
        takeovers.repeat(bed, (repeat % u32::from(NODES)) as u8 + 1, &mut used)?;
        progress.step();
    }
    Ok(takeovers.rows())
}

impl Takeovers {
    fn repeat(&mut self, bed: &mut Bed, victim: u8, used: &mut Used) -> Result<()> {
        bed.await_balance()?;
        let (tunnel, replayed) = (bed.tunnel_spi(1)?, replayed(bed)?);
        let fenced = fenced(bed, victim)?;
        let wire = Wire::capture(&bed.cluster)?;
        sleep(QUIET);
        let probes = bed.probes_of(1, INTERVAL)?;
        sleep(BEFORE);
        let (struck, day) = (Instant::now(), SystemTime::now());
        Crash::Killed.strike(bed, victim)?;
        sleep(AFTER);
        let share = Carriers::of(NODES).shares()[usize::from(victim) - 1];
        let [out, back] = probes;
        let out = out.stop()?;
        let back = self.replay(bed, victim, back, wire, used)?;
        self.doubled.push((out.summary().duplicates + back.summary().duplicates) as f64);
        for (way, trace) in self.ways.iter_mut().zip([out, back]) {
            way.add(&trace, struck, share);
        }
        self.replayed.push((self::replayed(bed)? - replayed) as f64);
        self.fenced.push((self::fenced(bed, victim)? - fenced) as f64);
        self.detection.extend(bed.detection(victim, day)?.map(milliseconds));
        let kept = bed.tunnel_spi(1)? == tunnel && bed.carries(1)?;
        self.tunnels.push(if kept { 0.0 } else { 1.0 });
        Crash::Killed.mend(bed, victim)
    }

    /// Ends the probe from the peer, whose packets are then sent to the nodes that are left once
    /// more, and looks at what all nodes have sent.
    fn replay(&mut self, bed: &Bed, victim: u8, probe: Probe, wire: Wire, used: &mut Used) -> Result<Trace> {
        let refused = refused(bed, victim)?;
        let mut sent = None;
        let (trace, accepted) = probe.stop_after(|| {
            let Frames { of_nodes, of_peer } = wire.stop()?;
            sent = of_nodes;
            wire::replay(&bed.cluster, &of_peer)
        })?;
        self.accepted.push(accepted as f64);
        self.refused.push((self::refused(bed, victim)? - refused) as f64);
        if let Some(repeats) = sent.map(|frames| used.add(&frames)) {
            for (values, count) in self.repeats.iter_mut().zip([repeats.numbers, repeats.ivs]) {
                values.push(count as f64);
            }
        }
        Ok(trace)
    }

    fn rows(self) -> Vec<Row> {
        let mut rows = vec![Row::new("detection", "ms", self.detection)];
        for (way, direction) in self.ways.into_iter().zip(Direction::ALL) {
            let of = |what: &str| format!("{}: {what}", direction.name());
            rows.push(
                Row::new(of("from the death until packets flow"), "ms", way.took)
                    .aim(Aim::median_at_most(40.0)),
            );
            rows.push(Row::new(of("lost until then"), "datagrams", way.lost));
            rows.push(Row::new(of("lost later"), "datagrams", way.later));
            rows.push(
                Row::new(of("lost of that time's datagrams"), "dead node's shares", way.of_share)
                    .aim(Aim::median_at_most(1.0)),
            );
        }
        let none = Aim::none_above(0.0);
        rows.push(Row::new("datagrams doubled", "datagrams", self.doubled).aim(none));
        rows.push(Row::new("numbers that the peer got twice", "packets", self.replayed).aim(none));
        for (what, values) in ["numbers sent twice", "(key, IV) pairs repeated"].into_iter().zip(self.repeats)
        {
            rows.push(Row::new(what, "packets", values).aim(none));
        }
        rows.push(Row::new("replays refused", "packets", self.refused));
        rows.push(Row::new("replays accepted", "packets", self.accepted).aim(none));
        rows.push(Row::new("dropped by shut fences of the others", "packets", self.fenced));
        rows.push(Row::new("tunnels lost", "tunnels", self.tunnels).aim(none));
        rows
    }
}

impl Way {
    /// Adds a death at that time of a node that worked on this share of the packets.
    fn add(&mut self, trace: &Trace, struck: Instant, share: f64) {
        let takeover = trace.takeover(struck);
        self.took.push(milliseconds(takeover.length));
        self.lost.push(takeover.lost as f64);
        self.later.push(takeover.later as f64);
        self.of_share.push(takeover.part_lost() / share);
    }
}

/// Packets that the peer took for replays.
fn replayed(bed: &Bed) -> Result<u64> {
    let drops = bed.peers[0].drops()?.unwrap_or_default();
    Ok(drops.get("replayed").copied().unwrap_or_default())
}

/// Packets that the nodes beside this one have taken for replays.
fn refused(bed: &Bed, victim: u8) -> Result<u64> {
    others(bed, victim).map(Testudo::replays).sum()
}

fn others(bed: &Bed, victim: u8) -> impl Iterator<Item = &Testudo> {
    (1..).zip(&bed.nodes).filter(move |(node, _)| *node != victim).map(|(_, node)| node)
}

/// Packets that the nodes beside this one have dropped because their fences were shut: the machine
/// was too busy for them to hear each other in time.
fn fenced(bed: &Bed, victim: u8) -> Result<u64> {
    let drops = others(bed, victim).map(Testudo::drops).collect::<Result<Vec<_>>>()?;
    Ok(drops.iter().flat_map(|drops| ["fenced", "fenced_late"].map(|name| drops.get(name))).flatten().sum())
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use testudo_lab::probe::Arrival;

    #[test]
    fn the_loss_is_compared_with_the_dead_nodes_share() {
        let zero = Instant::now();
        let sent: Vec<Instant> = (0..100).map(|n| zero + Duration::from_millis(n)).collect();
        let arrived = (0..100).filter(|n| ![11, 13, 15, 17, 19, 90].contains(n));
        let arrivals = arrived.map(|number| Arrival { number, at: zero }).collect();
        let mut way = Way::default();
        way.add(&Trace::new(INTERVAL, sent, arrivals), zero + Duration::from_millis(10), 0.25);
        assert_eq!((way.lost, way.took, way.of_share), (vec![5.0], vec![9.0], vec![2.0]));
        assert_eq!(way.later, [1.0]);
    }
}
