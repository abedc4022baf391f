//! The observations of a probe, and the figures derived from them.

use super::Reordering;
use crate::series::Series;
use std::ops::Range;
use std::time::{Duration, Instant};

/// A datagram that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its number; the first one is 0.
    pub number: u64,
    /// When the receiver's kernel got it.
    pub at: Instant,
}

/// When each datagram was sent, and when each arrived.
#[derive(Clone, Debug)]
pub struct Trace {
    interval: Duration,
    sent: Vec<Instant>,
    /// First arrivals in order.
    arrivals: Vec<Arrival>,
    /// Time of the first arrival of each number.
    first: Vec<Option<Instant>>,
    duplicates: u64,
}

/// The figures of a probe.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Datagrams sent, including those that the sender's kernel refused: that is the network's
    /// fault.
    pub sent: u64,
    /// Datagrams that arrived, each counted once.
    pub received: u64,
    /// Datagrams that never arrived.
    pub lost: u64,
    /// Arrivals of a datagram that had already arrived.
    pub duplicates: u64,
    /// First arrivals after one with a higher number (RFC 4737 §3.3).
    pub reordered: u64,
    /// The longest outage.
    pub outage: Outage,
}

/// A time without arrivals that should have had some.
///
/// It reaches from one arrival to the next. A sender without CPU time causes such a gap too: if the
/// sender itself was silent at the edge of the gap, next to a datagram that did arrive, that
/// silence is subtracted. Silence between two lost datagrams is not: the network was out before and
/// after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// The last arrival before it.
    pub from: Instant,
    /// Its length.
    pub length: Duration,
    /// The silence subtracted: the outage may have been longer by up to this.
    pub silence: Duration,
    /// Datagrams lost in it.
    pub lost: u64,
}

/// An end of a gap: the number of a datagram and its arrival. At the ends of a trace no datagram
/// has arrived, and the number is unknown.
#[derive(Clone, Copy)]
struct Edge {
    number: Option<usize>,
    at: Instant,
}

impl Trace {
    /// A trace from the times of sending, by number, and the arrivals in order. Arrivals with
    /// numbers that were never sent are ignored.
    pub fn new(interval: Duration, sent: Vec<Instant>, arrivals: Vec<Arrival>) -> Self {
        let mut trace =
            Self { interval, first: vec![None; sent.len()], sent, arrivals: Vec::new(), duplicates: 0 };
        for arrival in arrivals {
            match trace.first.get_mut(index(arrival.number)) {
                Some(first @ None) => {
                    *first = Some(arrival.at);
                    trace.arrivals.push(arrival);
                }
                Some(Some(_)) => trace.duplicates += 1,
                None => {}
            }
        }
        trace
    }

    /// The trace of the arrivals until then, and how many of its datagrams arrived again later.
    pub(super) fn until(
        end: Instant,
        interval: Duration,
        sent: Vec<Instant>,
        arrivals: Vec<Arrival>,
    ) -> (Self, u64) {
        let (before, after): (Vec<_>, Vec<_>) = arrivals.into_iter().partition(|arrival| arrival.at <= end);
        let trace = Self::new(interval, sent, before);
        let had_arrived =
            |arrival: &&Arrival| matches!(trace.first.get(index(arrival.number)), Some(Some(_)));
        let again = after.iter().filter(had_arrived).count() as u64;
        (trace, again)
    }

    /// The figures.
    pub fn summary(&self) -> Summary {
        Summary {
            sent: self.sent.len() as u64,
            received: self.arrivals.len() as u64,
            lost: (self.sent.len() - self.arrivals.len()) as u64,
            duplicates: self.duplicates,
            reordered: self.reordering().reordered,
            outage: self.longest_outage(),
        }
    }

    /// The reordering of the first arrivals.
    pub fn reordering(&self) -> Reordering {
        Reordering::of(self.arrivals.iter().map(|arrival| arrival.number))
    }

    /// All outages of at least that length, in order of time.
    pub fn outages(&self, at_least: Duration) -> Vec<Outage> {
        self.gaps().into_iter().filter(|outage| outage.length >= at_least).collect()
    }

    /// Ranges of the numbers of lost datagrams.
    pub fn lost(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (number, arrived) in (0_u64..).zip(&self.first) {
            match ranges.last_mut() {
                _ if arrived.is_some() => {}
                Some(last) if last.end == number => last.end += 1,
                _ => ranges.push(number..number + 1),
            }
        }
        ranges
    }

    /// Every datagram: when it was sent, and its delay if it arrived.
    pub fn delays(&self) -> impl Iterator<Item = (Instant, Option<Duration>)> {
        let delay = |(sent, arrived): (&Instant, &Option<Instant>)| {
            (*sent, arrived.map(|at| at.saturating_duration_since(*sent)))
        };
        self.sent.iter().zip(&self.first).map(delay)
    }

    /// First arrivals over time, at least up to the end of sending.
    pub fn received_over_time(&self, slot: Duration) -> Option<Series> {
        let mut series = Series::new(*self.sent.first()?, slot);
        self.arrivals.iter().for_each(|arrival| series.add(arrival.at, 1));
        series.reach(*self.sent.last()?);
        Some(series)
    }

    /// The sender's longest pause. A pause longer than the interval means that it had no CPU time.
    pub fn sender_pause(&self) -> Duration {
        self.sent.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    }

    fn longest_outage(&self) -> Outage {
        let nothing_sent =
            Outage { from: Instant::now(), length: Duration::ZERO, silence: Duration::ZERO, lost: 0 };
        self.gaps().into_iter().max_by_key(|outage| outage.length).unwrap_or(nothing_sent)
    }

    /// The times between all arrivals. The first gap begins with the first sending; the last gap
    /// ends with the end of sending, if anything after the last arrival was lost.
    fn gaps(&self) -> Vec<Outage> {
        let begin = self.sent.first().map(|at| Edge { number: None, at: *at });
        let arrived = self.arrivals.iter().map(|a| Edge { number: Some(index(a.number)), at: a.at });
        let end = self.sent.last().map(|at| Edge { number: None, at: *at + self.interval });
        let tail_lost = self.first.last().is_some_and(Option::is_none);
        let edges: Vec<_> = begin.into_iter().chain(arrived).chain(end.filter(|_| tail_lost)).collect();
        edges.windows(2).map(|pair| self.gap(pair[0], pair[1])).collect()
    }

    fn gap(&self, before: Edge, after: Edge) -> Outage {
        let between = before.number.map_or(0, |n| n + 1)..after.number.unwrap_or(self.sent.len());
        let mut silence = Duration::ZERO;
        if let Some(number) = before.number {
            silence += self.silence_after(number);
        }
        // If nothing between the two was lost or late, both edges are the same pause.
        if let Some(number) = after.number.filter(|n| *n > 0 && !between.is_empty()) {
            silence += self.silence_after(number - 1);
        }
        if after.number.zip(before.number).is_some_and(|(after, before)| after < before) {
            // The later arrival was sent before the earlier one: the network has delayed it,
            // whatever the sender did.
            silence = Duration::ZERO;
        }
        let length = after.at.saturating_duration_since(before.at).saturating_sub(silence);
        let lost = self.first.get(between).unwrap_or_default().iter().filter(|at| at.is_none()).count();
        Outage { from: before.at, length, silence, lost: lost as u64 }
    }

    /// The sender's silence after a number, beyond its interval.
    fn silence_after(&self, number: usize) -> Duration {
        match self.sent.get(number..number + 2) {
            Some([this, next]) => next.saturating_duration_since(*this).saturating_sub(self.interval),
            _ => Duration::ZERO,
        }
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
