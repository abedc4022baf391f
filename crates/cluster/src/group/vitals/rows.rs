//! Row clocks of shards with spread SAs, on their way to the other nodes.
//!
//! They go out with each heartbeat. Where routers give each packet to one node, a node learns only
//! from them how far the others have come, and what it sends meanwhile lies below their numbers. So
//! they go out more often there while they move fast, in between the heartbeats.

use super::super::GroupConfig;
use super::super::config::Ingress;
use std::collections::BTreeMap;
use std::time::Duration;
use testudo_base::spi::Shard;
use testudo_ike::output::Time;

/// Clocks go out each time that one of them has moved by about this many rows. The replay window of
/// many peers has no more than some hundred numbers, and a row has one for each node.
const ROWS: u64 = 32;
/// But not more often than this: the control thread has more to do.
const SHORTEST: Duration = Duration::from_millis(1);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct RowClocks {
    clocks: Vec<(Shard, u64)>,
    /// What was last sent, and when, behind routers.
    sent: BTreeMap<Shard, u64>,
    sent_at: Time,
    /// When to send them before the next heartbeat, if they move fast.
    due: Option<Time>,
}

impl RowClocks {
    pub(super) fn set(&mut self, clocks: Vec<(Shard, u64)>) {
        self.clocks = clocks;
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.due
    }

    /// Takes the clocks that are to be sent in between the heartbeats, if it is time.
    pub(super) fn take_due(&mut self, config: &GroupConfig, now: Time) -> Option<Vec<(Shard, u64)>> {
        self.due.is_some_and(|due| due <= now).then(|| self.take(config, now))
    }

    /// Takes the clocks that are to be sent now.
    pub(super) fn take(&mut self, config: &GroupConfig, now: Time) -> Vec<(Shard, u64)> {
        if config.ingress == Ingress::Routed {
            let moved = |(shard, rows): &(Shard, u64)| Some(rows.saturating_sub(*self.sent.get(shard)?));
            let rows = self.clocks.iter().filter_map(moved).max().unwrap_or(0);
            let pause = pause(now.since(self.sent_at), rows);
            self.due = (pause < config.heartbeat).then(|| now.plus(pause));
            (self.sent_at, self.sent) = (now, self.clocks.iter().copied().collect());
        }
        self.clocks.clone()
    }
}

/// How long [`ROWS`] take, if a clock has moved by `rows` in this time.
fn pause(passed: Duration, rows: u64) -> Duration {
    let nanoseconds = passed.as_nanos().saturating_mul(ROWS.into()) / u128::from(rows.max(1));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX)).max(SHORTEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_lasts_as_long_as_some_rows_take() {
        let ms = Duration::from_millis;
        assert_eq!(pause(ms(10), 0), ms(320));
        assert_eq!(pause(ms(10), ROWS), ms(10));
        assert_eq!(pause(ms(10), 4 * ROWS), Duration::from_micros(2500));
        assert_eq!(pause(ms(10), u64::MAX), SHORTEST);
        assert_eq!(pause(Duration::MAX, 1), Duration::from_nanos(u64::MAX));
    }
}
