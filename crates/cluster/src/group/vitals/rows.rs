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

/// Clocks go out each time that one of them has moved by half as many rows as the replay window of
/// a peer holds, but never later than this.
const MOST_ROWS: u64 = 32;
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
    pub(super) fn take_due(
        &mut self,
        config: &GroupConfig,
        nodes: usize,
        now: Time,
    ) -> Option<Vec<(Shard, u64)>> {
        self.due.is_some_and(|due| due <= now).then(|| self.take(config, nodes, now))
    }

    /// Takes the clocks that are to be sent now, in a cluster of `nodes`.
    pub(super) fn take(&mut self, config: &GroupConfig, nodes: usize, now: Time) -> Vec<(Shard, u64)> {
        if config.ingress == Ingress::Routed {
            let moved = |(shard, rows): &(Shard, u64)| Some(rows.saturating_sub(*self.sent.get(shard)?));
            let rows = self.clocks.iter().filter_map(moved).max().unwrap_or(0);
            let pause = pause(now.since(self.sent_at), rows, told_after(config.peer_window, nodes));
            self.due = (pause < config.heartbeat).then(|| now.plus(pause));
            (self.sent_at, self.sent) = (now, self.clocks.iter().copied().collect());
        }
        self.clocks.clone()
    }
}

/// After how many rows the other nodes are told. A row has a number for each node, and the other
/// half of the window is for the way and the scheduler.
fn told_after(peer_window: u64, nodes: usize) -> u64 {
    (peer_window / (2 * nodes.max(1) as u64)).clamp(1, MOST_ROWS)
}

/// How long `most` rows take, if a clock has moved by `rows` in this time.
fn pause(passed: Duration, rows: u64, most: u64) -> Duration {
    let nanoseconds = passed.as_nanos().saturating_mul(most.into()) / u128::from(rows.max(1));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX)).max(SHORTEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::ClusterKey;
    use crate::node::NodeId;

    #[test]
    fn a_pause_lasts_as_long_as_some_rows_take() {
        let ms = Duration::from_millis;
        assert_eq!(pause(ms(10), 0, 32), ms(320));
        assert_eq!(pause(ms(10), 32, 32), ms(10));
        assert_eq!(pause(ms(10), 32, 5), Duration::from_nanos(1_562_500));
        assert_eq!(pause(ms(10), u64::MAX, 32), SHORTEST);
        assert_eq!(pause(Duration::MAX, 1, 1), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn others_are_told_before_half_a_peers_window_has_passed() {
        assert_eq!(told_after(32, 3), 5);
        assert_eq!(told_after(128, 4), 16);
        assert_eq!(told_after(4096, 3), MOST_ROWS);
        assert_eq!(told_after(32, 32), 1);
        assert_eq!(told_after(32, 0), 16);
    }

    #[test]
    fn a_small_window_has_the_others_told_more_often() {
        let told = |peer_window| {
            let config = GroupConfig {
                ingress: Ingress::Routed,
                peer_window,
                ..GroupConfig::new(NodeId::new(1).unwrap(), Vec::new(), ClusterKey::new([7; 32]))
            };
            let (mut clocks, mut now) = (RowClocks::default(), Time::default());
            let mut told = 0;
            // 10 000 rows a second, for 100 ms.
            for tenth in 0..1000 {
                clocks.set(vec![(Shard(1), tenth)]);
                now = now.plus(Duration::from_micros(100));
                let due = clocks.take_due(&config, 4, now).is_some();
                if !due && tenth % 100 == 0 {
                    clocks.take(&config, 4, now);
                }
                told += u32::from(due || tenth % 100 == 0);
            }
            told
        };
        assert_eq!((told(32), told(256)), (100, 40));
    }
}
