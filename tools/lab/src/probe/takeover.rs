//! What a takeover costs the datagrams of a path on which only some are lost: those that the dead
//! node worked on.

use super::Trace;
use std::time::{Duration, Instant};

/// So many datagrams that arrive one after the other end a takeover: while a part of them is lost,
/// that does not happen.
const FLOWING: usize = 50;
/// A dead process stops within this time. What is lost later has other causes.
const STOPS: Duration = Duration::from_secs(1);

/// The losses that follow the death of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Takeover {
    /// From the death until the last datagram was sent that was lost before all flowed again.
    pub length: Duration,
    /// Datagrams sent until then.
    pub sent: u64,
    /// Those of them that were lost.
    pub lost: u64,
    /// Datagrams lost afterwards, for whatever reason.
    pub later: u64,
}

impl Takeover {
    /// The part of the datagrams of its time that was lost, of 1.
    pub fn part_lost(&self) -> f64 {
        if self.sent == 0 { 0.0 } else { self.lost as f64 / self.sent as f64 }
    }
}

impl Trace {
    /// The takeover after a death at that time; all zero if nothing was lost.
    pub fn takeover(&self, death: Instant) -> Takeover {
        let after: Vec<(Instant, bool)> = self
            .delays()
            .filter(|(sent, _)| *sent >= death)
            .map(|(sent, delay)| (sent, delay.is_none()))
            .collect();
        let lost = |part: &[(Instant, bool)]| part.iter().filter(|(_, is_lost)| *is_lost).count() as u64;
        let is_early = |first: usize| after[first].0 - death < STOPS;
        let Some(last) = longest_burst(&after, is_early) else {
            return Takeover { later: lost(&after), ..Takeover::default() };
        };
        let (until, later) = after.split_at(last + 1);
        Takeover {
            length: after[last].0 - death,
            sent: until.len() as u64,
            lost: lost(until),
            later: lost(later),
        }
    }
}

/// Losses that are closer together than [`FLOWING`] are a burst. Gives the place of the last loss
/// of the burst with most losses among those that begin at such a place: a single one may have
/// another cause.
fn longest_burst(sent: &[(Instant, bool)], begins: impl Fn(usize) -> bool) -> Option<usize> {
    struct Burst {
        first: usize,
        last: usize,
        count: usize,
    }
    let mut bursts: Vec<Burst> = Vec::new();
    for (place, _) in sent.iter().enumerate().filter(|(_, (_, is_lost))| *is_lost) {
        match bursts.last_mut() {
            Some(burst) if place - burst.last <= FLOWING => {
                (burst.last, burst.count) = (place, burst.count + 1);
            }
            _ => bursts.push(Burst { first: place, last: place, count: 1 }),
        }
    }
    // The first of equal ones.
    let early = bursts.into_iter().filter(|burst| begins(burst.first)).rev();
    early.max_by_key(|burst| burst.count).map(|burst| burst.last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Arrival;

    const MS: Duration = Duration::from_millis(1);

    /// A datagram each millisecond, of which these are lost; the node dies at 10 ms.
    fn takeover(lost: &[u64]) -> Takeover {
        let zero = Instant::now();
        let sent: Vec<Instant> = (0..100).map(|n| zero + MS * n).collect();
        let arrived = (0..100).filter(|n| !lost.contains(n));
        let arrivals = arrived.map(|number| Arrival { number, at: zero + MS * number as u32 }).collect();
        Trace::new(MS, sent, arrivals).takeover(zero + MS * 10)
    }

    #[test]
    fn losses_count_until_all_datagrams_flow_again() {
        // Of the ten from 10 to 19 five are lost. One before the death does not count, and one much
        // later is not part of the takeover.
        let found = takeover(&[3, 11, 13, 15, 17, 19, 90]);
        assert_eq!(found, Takeover { length: MS * 9, sent: 10, lost: 5, later: 1 });
        assert_eq!(found.part_lost(), 0.5);
    }

    #[test]
    fn a_loss_before_the_dead_node_has_stopped_is_not_the_takeover() {
        assert_eq!(takeover(&[12, 80, 82, 84]), Takeover { length: MS * 74, sent: 75, lost: 4, later: 0 });
    }

    #[test]
    fn losses_long_after_the_death_have_other_causes() {
        let zero = Instant::now();
        let sent: Vec<Instant> = (0..3000).map(|n| zero + MS * n).collect();
        let is_lost = |n: &u64| [5, 7].contains(n) || (2000..2100).contains(n);
        let arrived = (0..3000).filter(|n| !is_lost(n));
        let arrivals = arrived.map(|number| Arrival { number, at: zero }).collect();
        let found = Trace::new(MS, sent, arrivals).takeover(zero);
        assert_eq!(found, Takeover { length: MS * 7, sent: 8, lost: 2, later: 100 });
    }

    #[test]
    fn a_death_without_loss_takes_no_time() {
        assert_eq!(takeover(&[3]), Takeover::default());
        assert_eq!(takeover(&[]).part_lost(), 0.0);
    }
}
