//! The figures of one way over one link.

use super::hosts::{STAGES, Trip};
use super::way::Way;
use crate::report;
use serde::Serialize;
use std::fmt;
use testudo_lab::stats::Statistics;
use testudo_lab::topology::Side;
use testudo_terminal::table::Align::{self, Left, Right};

/// A migration through Testudo may take so many times as long as one in clear, at the best MTU.
const MOST_TIME: f64 = 1.15;
/// A ping may take so many times as long.
const MOST_LATENCY: f64 = 1.2;

/// The link between the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Link {
    pub(super) mtu: u16,
    /// TCP's segments have at most so many octets; none: what fits the MTU.
    pub(super) segment: Option<u16>,
    /// Further connections by which QEMU sends memory.
    pub(super) multifd: u8,
}

/// What is left of an MTU of 8000 behind the headers of IPv4 and TCP.
pub(super) const MAX_SEGMENT: u16 = 8000 - 40;
/// The link on which segments of several sizes are compared, with the largest, as in [MIG].
pub(super) const LARGEST: Link = Link { mtu: 8000, segment: Some(MAX_SEGMENT), multifd: 0 };

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MTU {}", self.mtu)?;
        if let Some(octets) = self.segment {
            write!(f, ", MSS {octets}")?;
        }
        if self.multifd > 0 { write!(f, ", {} connections more", self.multifd) } else { Ok(()) }
    }
}

/// All migrations of one way over one link, in the order in which they were made.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) way: Way,
    #[serde(flatten)]
    pub(super) link: Link,
    /// Seconds from the first host to the second, and back.
    pub(super) seconds: [Vec<f64>; 2],
    /// Packets that the source has sent, there and back.
    pub(super) packets: [Vec<f64>; 2],
    /// Octets that it has sent, in millions.
    pub(super) megabytes: Vec<f64>,
    /// Processor time of each of [`STAGES`].
    pub(super) stage_seconds: [Vec<f64>; STAGES.len()],
    /// The most of it in 0.2 s, in percent of one processor, there and back.
    pub(super) peak_cpu: [Vec<f64>; 2],
    /// The mean round-trip time of pings, in microseconds.
    pub(super) ping_us: Option<f64>,
    /// The cipher suite on which QEMU's TLS has agreed.
    pub(super) suite: Option<&'static str>,
    /// Of testudod at both hosts. Nobody attacks.
    pub(super) alarms: u64,
    /// The median time, divided by that of a migration in clear over the same link.
    pub(super) times_none: Option<f64>,
    /// The time of a ping, likewise.
    pub(super) ping_times_none: Option<f64>,
}

pub(super) const COLUMNS: [(&str, Align); 13] = [
    ("MTU", Right),
    ("MSS", Right),
    ("multifd", Right),
    ("way", Left),
    ("there s", Right),
    ("back s", Right),
    ("x none", Right),
    ("packets", Right),
    ("MB", Right),
    ("busiest s", Right),
    ("CPU there %", Right),
    ("CPU back %", Right),
    ("ping us", Right),
];

impl Row {
    pub(super) fn new(way: Way, link: Link, ping_us: Option<f64>) -> Self {
        Self {
            way,
            link,
            seconds: Default::default(),
            packets: Default::default(),
            megabytes: Vec::new(),
            stage_seconds: Default::default(),
            peak_cpu: Default::default(),
            ping_us,
            suite: None,
            alarms: 0,
            times_none: None,
            ping_times_none: None,
        }
    }

    pub(super) fn add(&mut self, trip: Trip) {
        let direction = usize::from(trip.from == Side::Two);
        self.seconds[direction].push(trip.seconds);
        self.packets[direction].push(trip.packets as f64);
        self.megabytes.push(trip.octets as f64 / 1e6);
        self.stage_seconds.iter_mut().zip(trip.stage_seconds).for_each(|(all, time)| all.push(time));
        self.peak_cpu[direction].push(trip.peak * 100.0);
    }

    /// The median of both directions.
    pub(super) fn time(&self) -> Option<f64> {
        median(&self.seconds.concat())
    }

    /// The stage that takes most processor time, and that time: if each had a processor of its own,
    /// no migration would be faster.
    fn busiest(&self) -> Option<(&'static str, f64)> {
        let times = STAGES.into_iter().zip(&self.stage_seconds);
        let times = times.filter_map(|(stage, times)| Some((stage, median(times)?)));
        times.max_by(|(_, one), (_, other)| one.total_cmp(other))
    }

    pub(super) fn cells(&self) -> Vec<String> {
        let with = |digits: usize, figure: Option<f64>| {
            figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.digits$}"))
        };
        vec![
            self.link.mtu.to_string(),
            self.link.segment.map_or_else(|| "-".to_owned(), |octets| octets.to_string()),
            self.link.multifd.to_string(),
            self.way.name().to_owned(),
            with(3, median(&self.seconds[0])),
            with(3, median(&self.seconds[1])),
            with(2, self.times_none),
            with(0, median(&self.packets.concat())),
            with(1, median(&self.megabytes)),
            with(3, self.busiest().map(|(_, time)| time)),
            with(0, median(&self.peak_cpu[0])),
            with(0, median(&self.peak_cpu[1])),
            with(0, self.ping_us),
        ]
    }
}

pub(super) fn median(values: &[f64]) -> Option<f64> {
    Some(Statistics::of(values)?.median)
}

/// Divides the times by those in clear.
pub(super) fn compare(rows: &mut [Row]) {
    let clear = rows.iter().filter(|row| row.way == Way::None);
    let clear: Vec<_> = clear.map(|row| (row.link, row.time(), row.ping_us)).collect();
    let divide = |one: Option<f64>, other: Option<f64>| Some(one? / other?);
    for row in rows {
        let Some((_, time, ping_us)) = clear.iter().find(|(link, ..)| *link == row.link) else { continue };
        row.times_none = divide(row.time(), *time);
        row.ping_times_none = divide(row.ping_us, *ping_us);
    }
}

/// A line for each aim that the rows let one judge.
pub(super) fn aims(rows: &[Row]) -> String {
    let by_mtu = |way: Way| {
        rows.iter().filter(move |row| row.way == way && row.link.segment.is_none() && row.link.multifd == 0)
    };
    let at = |way: Way, link: Link| by_mtu(way).find(|row| row.link == link);
    let mut lines = Vec::new();
    let best =
        by_mtu(Way::Esp).min_by(|a, b| a.time().unwrap_or(f64::MAX).total_cmp(&b.time().unwrap_or(f64::MAX)));
    if let Some((best, times)) = best.and_then(|best| Some((best, best.times_none?))) {
        let what = format!("esp takes {times:.2} times as long as none at its best MTU, {}", best.link.mtu);
        lines.push((
            what,
            format!("at most {MOST_TIME}; [MIG]: 10 times less throughput"),
            times <= MOST_TIME,
        ));
    }
    let alone = best.and_then(|best| Some((best.busiest()?, at(Way::None, best.link)?.busiest()?)));
    if let Some(((stage, time), (_, none))) = alone {
        let times = time / none;
        let what = format!(
            "with a processor for each process at either host esp would take at least {times:.2} times as \
             long as none, because of the {stage}"
        );
        lines.push((what, format!("at most {MOST_TIME}"), times <= MOST_TIME));
    }
    for esp in by_mtu(Way::Esp) {
        let tls = at(Way::Tls, esp.link);
        if let Some(faster) = esp.time().zip(tls.and_then(Row::time)).map(|(esp, tls)| tls / esp) {
            let suite = tls.and_then(|tls| tls.suite).map(|suite| format!(" ({suite})")).unwrap_or_default();
            let what = format!("tls{suite} takes {faster:.2} times as long as esp, MTU {}", esp.link.mtu);
            lines.push((what, "above 1".to_owned(), faster > 1.0));
        }
        if let Some(times) = esp.ping_times_none {
            let what = format!("a ping through esp takes {times:.2} times as long, MTU {}", esp.link.mtu);
            lines.push((what, format!("at most {MOST_LATENCY}; [MIG]: 2"), times <= MOST_LATENCY));
        }
    }
    let watched = || rows.iter().filter(|row| matches!(row.way, Way::Esp | Way::AhEsp));
    let moves: usize = watched().map(|row| row.packets.concat().len()).sum();
    if moves > 0 {
        let alarms: u64 = watched().map(|row| row.alarms).sum();
        let what = format!("{alarms} alarms in {moves} migrations that nobody attacked");
        lines.push((what, "0".to_owned(), alarms == 0));
    }
    lines.into_iter().map(|(what, aim, reached)| report::aim(&what, &aim, reached)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(way: Way, mtu: u16, seconds: f64, ping_us: Option<f64>) -> Row {
        let mut row = Row::new(way, Link { mtu, segment: None, multifd: 0 }, ping_us);
        let stage_seconds = if way == Way::None { [0.4, 0.0, 0.0, 0.5] } else { [0.3, 0.4, 0.6, 0.5] };
        for from in [Side::One, Side::Two] {
            row.add(Trip { from, seconds, packets: 10, octets: 3_000_000, stage_seconds, peak: 0.9 });
        }
        row
    }

    #[test]
    fn times_are_compared_with_those_in_clear_over_the_same_link() {
        let mut rows = [
            row(Way::None, 1500, 2.0, None),
            row(Way::None, 9000, 1.0, None),
            row(Way::Esp, 9000, 1.5, None),
        ];
        compare(&mut rows);
        assert_eq!(rows.each_ref().map(|row| row.times_none), [Some(1.0), Some(1.0), Some(1.5)]);
        assert_eq!(
            rows[2].cells(),
            ["9000", "-", "0", "esp", "1.500", "1.500", "1.50", "10", "3.0", "0.600", "90", "90", "-"]
        );
    }

    #[test]
    fn an_aim_that_is_missed_is_told() {
        let mut rows = [
            row(Way::None, 9000, 1.0, Some(100.0)),
            row(Way::Esp, 9000, 1.1, Some(150.0)),
            row(Way::Tls, 9000, 2.2, None),
        ];
        rows[2].suite = Some("TLS_AES_128_GCM_SHA256");
        compare(&mut rows);
        let text = aims(&rows);
        for said in [
            "esp takes 1.10 times",
            "at least 1.20 times as long as none, because of the gateway at the destination",
            "tls (TLS_AES_128_GCM_SHA256) takes 2.00 times",
            "ping through esp takes 1.50 times",
            "0 alarms in 2 migrations",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
        let judged = |text: &str| (text.matches(": reached").count(), text.matches("NOT REACHED").count());
        assert_eq!(judged(&text), (3, 2), "{text}");
        rows[1].alarms = 1;
        assert_eq!(judged(&aims(&rows)), (2, 3));
        assert_eq!(aims(&[]), "");
    }
}
