//! How long the host's processors have worked, by proc_stat(5).

use nix::unistd::{SysconfVar, sysconf};
use std::io;
use std::time::Duration;
use testudo_vici::processors::Processors;

const FILE: &str = "/proc/stat";
/// The places of the time that counts: user, nice, system, irq, softirq. Between them are the times
/// of waiting: idle and iowait. Behind them is what other machines on the hardware had (steal), and
/// what virtual machines had, which is in user and nice already.
const BUSY: [usize; 5] = [0, 1, 2, 5, 6];
/// What all architectures of Linux have today.
const USUAL_TICKS: u32 = 100;

/// Why that is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProcessorsError {
    #[error("cannot read {FILE}: {0}")]
    Unreadable(io::Error),
    #[error("{FILE}: found no line \"cpu\" with seven numbers, expected one")]
    Unknown,
}

/// Reads it.
pub(crate) fn read() -> Result<Processors, ProcessorsError> {
    let text = std::fs::read_to_string(FILE).map_err(ProcessorsError::Unreadable)?;
    let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten().and_then(|ticks| u32::try_from(ticks).ok());
    parse(&text, ticks.unwrap_or(USUAL_TICKS)).ok_or(ProcessorsError::Unknown)
}

/// The first line is the sum of all processors, in so many ticks a second; each has its own line
/// behind it.
fn parse(text: &str, ticks_a_second: u32) -> Option<Processors> {
    let sum = text.lines().next()?.strip_prefix("cpu ")?;
    let times: Vec<u64> = sum.split_ascii_whitespace().map_while(|time| time.parse().ok()).collect();
    let ticks = BUSY.into_iter().map(|place| times.get(place)).sum::<Option<u64>>()?;
    let milliseconds = ticks.saturating_mul(1000) / u64::from(ticks_a_second.max(1));
    let of_one = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let count = text.lines().filter(of_one).count() as u64;
    Some(Processors { count, busy: Duration::from_millis(milliseconds) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  100 20 30 5000 400 5 6 7 90 0\ncpu0 50 10 15 2500 200 3 3 4 45 0\n\
                        cpu1 50 10 15 2500 200 2 3 3 45 0\nintr 5 4 3\nctxt 77\n";

    #[test]
    fn waiting_does_not_count_and_a_guest_counts_once() {
        let expected = Processors { count: 2, busy: Duration::from_millis(1610) };
        assert_eq!(parse(STAT, 100), Some(expected));
        assert_eq!(parse(STAT, 1000).map(|found| found.busy), Some(Duration::from_millis(161)));
    }

    #[test]
    fn what_is_no_such_file_is_not_read() {
        for text in ["", "cpu", "cpu  1 2 3 4 5 6\n", "cpu0 1 2 3 4 5 6 7\n", "cpu  1 2 x 4 5 6 7\n"] {
            assert_eq!(parse(text, 100), None, "{text:?}");
        }
    }

    #[test]
    fn this_host_has_worked() {
        let found = read().unwrap();
        assert!(found.count > 0 && !found.busy.is_zero(), "{found:?}");
    }
}
