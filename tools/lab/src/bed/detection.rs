//! How fast the survivors noticed a failure, from their logs.

use super::Bed;
use crate::Result;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What a node logs when it considers another one failed: because it is silent, or because the
/// membership engine says so. If only a daemon dies, the engine is faster.
const NOTICED: [&str; 2] = ["is suspected", "has left the view"];

impl Bed {
    /// Time from `since` until the first of the other nodes noticed the failure of this one; `None`
    /// if no log says so.
    pub fn detection(&self, failed: u8, since: SystemTime) -> Result<Option<Duration>> {
        let survivors = (1..).zip(&self.nodes).filter(|(node, _)| *node != failed);
        let logs: Vec<String> = survivors.map(|(_, node)| node.log()).collect::<Result<_>>()?;
        let noticed = first_notice(logs.iter().map(String::as_str), failed, since);
        Ok(noticed.and_then(|at| at.duration_since(since).ok()))
    }
}

/// The first time, not before `since`, at which one of these logs says that the node has failed.
fn first_notice<'a>(
    logs: impl IntoIterator<Item = &'a str>,
    node: u8,
    since: SystemTime,
) -> Option<SystemTime> {
    let lines = NOTICED.map(|said| format!("node {node} {said}"));
    let says_it = |line: &&str| lines.iter().any(|said| line.contains(said));
    logs.into_iter()
        .flat_map(str::lines)
        .filter(says_it)
        .filter_map(|line| line.split_whitespace().find_map(time))
        .filter(|at| *at >= since)
        .min()
}

/// Parses the time at the beginning of a log line: `2026-11-22T14:33:21.123456Z`.
fn time(word: &str) -> Option<SystemTime> {
    let (date, clock) = word.strip_suffix('Z')?.split_once('T')?;
    let numbers =
        |text: &str, by: char| -> Option<Vec<i64>> { text.split(by).map(|part| part.parse().ok()).collect() };
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let [year, month, day] = numbers(date, '-')?[..] else { return None };
    let [hour, minute, second] = numbers(clock, ':')?[..] else { return None };
    let nanos: u32 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    Some(UNIX_EPOCH + Duration::new(u64::try_from(seconds).ok()?, nanos))
}

/// Days from 1970 to a date of the Gregorian calendar. Years are counted from March, so that the
/// leap day is the last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let leap = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64, micros: u32) -> SystemTime {
        UNIX_EPOCH + Duration::new(seconds, micros * 1000)
    }

    #[test]
    fn times_of_the_log_are_read() {
        assert_eq!(time("1970-01-01T00:00:00Z"), Some(at(0, 0)));
        // date -u -d 2026-11-22T14:33:21Z +%s
        assert_eq!(time("2026-11-22T14:33:21.123456Z"), Some(at(1_795_358_001, 123_456)));
        assert_eq!(time("2024-02-29T23:59:59.5Z"), Some(at(1_709_251_199, 500_000)));
        for wrong in ["INFO", "2026-11-22", "2026-11-22T14:33Z", "T:Z", "2026-11-22T14:33:21"] {
            assert_eq!(time(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_first_notice_of_the_node_counts() {
        let logs = [
            "2026-11-22T14:33:20.000000Z  WARN node 2 is suspected\n2026-11-22T14:33:25.2Z  WARN node 2 is suspected",
            "2026-11-22T14:33:25.100000Z  WARN node 21 is suspected\n2026-11-22T14:33:25.3Z  INFO node 2 has left the view",
        ];
        let since = at(1_795_358_001, 0);
        assert_eq!(first_notice(logs, 2, since), Some(at(1_795_358_005, 200_000)));
        assert_eq!(first_notice([logs[1]], 2, since), Some(at(1_795_358_005, 300_000)));
        assert_eq!(first_notice(logs, 3, since), None);
    }
}
