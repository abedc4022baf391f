//! What is lost of one tunnel's packets when one of the nodes that work on it dies.

use super::lanes::Carriers;
use super::scheme::Scheme;
use super::{Direction, SpreadArgs};
use crate::error::BenchError;
use crate::failover::crash::Crash;
use crate::figures::{Aim, Row};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};
use testudo_lab::bed::{Bed, BedOptions};
use testudo_lab::cluster::Cluster;
use testudo_lab::gateway::Kind;
use testudo_lab::probe::{Probe, Trace};
use testudo_lab::topology::{Family, Side};
use testudo_lab::{Lab, Result};
use testudo_terminal::progress::Progress;

const NODES: u8 = 3;
const INTERVAL: Duration = Duration::from_micros(200);
/// Before a failure the nodes hear each other for this long: a node that has just started sends its
/// first heartbeats late, and gets more time.
const QUIET: Duration = Duration::from_secs(3);
/// Traffic before the failure, and after it: longer than corosync needs to agree on the survivors.
const BEFORE: Duration = Duration::from_millis(300);
const AFTER: Duration = Duration::from_millis(1500);

/// So many datagrams that arrive one after the other end a takeover: while a third of them is lost,
/// that does not happen.
const FLOWING: usize = 50;

/// The measurements, one for each death.
#[derive(Default)]
struct Takeovers {
    ways: [Way; 2],
    detection: Vec<f64>,
    doubled: Vec<f64>,
    replayed: Vec<f64>,
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
    let window = args.window;
    let bed = &mut Bed::start_with(&Lab::large("spread-takeover", 2)?, &options, |_, connection| {
        connection.more_child.push(format!("replay_window = {window}"));
    })?;
    bed.bring_up(1)?;
    let mut takeovers = Takeovers::default();
    progress.begin("spread, takeover", args.repeats.into());
    for repeat in 0..args.repeats {
        takeovers.repeat(bed, (repeat % u32::from(NODES)) as u8 + 1)?;
        progress.step();
    }
    Ok(takeovers.rows())
}

impl Takeovers {
    fn repeat(&mut self, bed: &mut Bed, victim: u8) -> Result<()> {
        bed.await_balance()?;
        let (tunnel, replayed) = (bed.tunnel_spi(1)?, replayed(bed)?);
        sleep(QUIET);
        let (client, host) = (&bed.cluster.client, &bed.cluster.hosts[0]);
        let probes = [
            Probe::start(client, host, Cluster::behind(1, Family::V4, 2), INTERVAL)?,
            Probe::start(host, client, Side::One.host(Family::V4), INTERVAL)?,
        ];
        sleep(BEFORE);
        let (struck, day) = (Instant::now(), SystemTime::now());
        Crash::Killed.strike(bed, victim)?;
        sleep(AFTER);
        let share = Carriers::of(NODES).shares()[usize::from(victim) - 1];
        let mut doubled = 0;
        for (way, probe) in self.ways.iter_mut().zip(probes) {
            let trace = probe.stop()?;
            doubled += trace.summary().duplicates;
            way.add(&trace, struck, share);
        }
        self.doubled.push(doubled as f64);
        self.replayed.push((self::replayed(bed)? - replayed) as f64);
        self.detection.extend(bed.detection(victim, day)?.map(milliseconds));
        let kept = bed.tunnel_spi(1)? == tunnel && bed.carries(1)?;
        self.tunnels.push(if kept { 0.0 } else { 1.0 });
        Crash::Killed.mend(bed, victim)
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
        rows.push(Row::new("tunnels lost", "tunnels", self.tunnels).aim(none));
        rows
    }
}

impl Way {
    /// Adds a death at that time of a node that worked on this share of the packets.
    fn add(&mut self, trace: &Trace, struck: Instant, share: f64) {
        let after: Vec<(Instant, bool)> = trace
            .delays()
            .filter(|(sent, _)| *sent >= struck)
            .map(|(sent, delay)| (sent, delay.is_none()))
            .collect();
        let Some(takeover) = longest_burst(&after) else {
            self.took.push(0.0);
            self.lost.push(0.0);
            self.later.push(0.0);
            return;
        };
        let lost = |part: &[(Instant, bool)]| part.iter().filter(|(_, is_lost)| *is_lost).count() as f64;
        let (until, later) = after.split_at(takeover + 1);
        self.took.push(milliseconds(after[takeover].0 - struck));
        self.lost.push(lost(until));
        self.later.push(lost(later));
        self.of_share.push(lost(until) / until.len() as f64 / share);
    }
}

/// Losses that are closer together than [`FLOWING`] are a burst. Gives the place of the last loss of
/// the burst with most losses: a single one may have another cause.
fn longest_burst(sent: &[(Instant, bool)]) -> Option<usize> {
    let mut bursts: Vec<(usize, usize)> = Vec::new();
    for (place, _) in sent.iter().enumerate().filter(|(_, (_, is_lost))| *is_lost) {
        match bursts.last_mut() {
            Some((last, count)) if place - *last <= FLOWING => (*last, *count) = (place, *count + 1),
            _ => bursts.push((place, 1)),
        }
    }
    // The first of equal ones.
    bursts.into_iter().rev().max_by_key(|(_, count)| *count).map(|(last, _)| last)
}

/// Packets that the peer took for replays.
fn replayed(bed: &Bed) -> Result<u64> {
    let drops = bed.peers[0].drops()?.unwrap_or_default();
    Ok(drops.get("replayed").copied().unwrap_or_default())
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use testudo_lab::probe::Arrival;

    const MS: Duration = Duration::from_millis(1);

    /// A datagram each millisecond, of which these are lost; the node dies at 10 ms.
    fn way(lost: &[u64], share: f64) -> Way {
        let zero = Instant::now();
        let sent: Vec<Instant> = (0..100).map(|n| zero + MS * n).collect();
        let arrived = (0..100).filter(|n| !lost.contains(n));
        let arrivals = arrived.map(|number| Arrival { number, at: zero + MS * number as u32 }).collect();
        let mut way = Way::default();
        way.add(&Trace::new(MS, sent, arrivals), zero + MS * 10, share);
        way
    }

    #[test]
    fn the_loss_is_compared_with_the_dead_nodes_share() {
        // Of the ten from 10 to 19 five are lost. One before the death does not count, and one much
        // later is not part of the takeover.
        let way = way(&[3, 11, 13, 15, 17, 19, 90], 0.25);
        assert_eq!((way.lost, way.took, way.of_share), (vec![5.0], vec![9.0], vec![2.0]));
        assert_eq!(way.later, [1.0]);
    }

    #[test]
    fn a_loss_before_the_dead_node_has_stopped_is_not_the_takeover() {
        let way = way(&[12, 80, 82, 84], 0.25);
        assert_eq!((way.took, way.lost, way.later), (vec![74.0], vec![4.0], vec![0.0]));
    }

    #[test]
    fn a_death_without_loss_takes_no_time() {
        let way = way(&[], 0.3);
        assert_eq!((way.lost, way.took, way.of_share), (vec![0.0], vec![0.0], vec![]));
    }
}
