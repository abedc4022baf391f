//! The clock of a cluster's node, and the time of day.

use std::time::{Duration, SystemTime};
use testudo_fastpath::worker::boottime;
use testudo_ike::output::{Time, UnixTime};

/// What the clock shows when the machine starts. Other nodes report times from before that start,
/// and a [`Time`] cannot be negative. No SA lives that long.
const CLOCK_OFFSET: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// From CLOCK_BOOTTIME: what nodes grant each other must run out while the machine sleeps, too.
pub(crate) fn cluster_time() -> Time {
    Time(CLOCK_OFFSET + boottime())
}

/// A time of the cluster's clock on the clock of [`boottime`]. A time before the machine's start
/// becomes that start.
pub(crate) fn on_boottime(time: Time) -> Duration {
    time.0.saturating_sub(CLOCK_OFFSET)
}

/// The time of day. It may be set while the daemon runs.
pub(crate) fn time_of_day() -> UnixTime {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    UnixTime(since_1970.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_has_just_started_knows_of_years_ago() {
        let (before, now) = (boottime(), cluster_time());
        assert!(on_boottime(now) >= before && on_boottime(now) <= boottime());
        let years = Duration::from_secs(9 * 365 * 24 * 3600);
        assert_eq!(now.since(Time(now.0.saturating_sub(years))), years);
        assert_eq!(on_boottime(Time::default()), Duration::ZERO, "a fence that is shut stays shut");
    }
}
