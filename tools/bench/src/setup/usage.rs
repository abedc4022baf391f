//! The usage of a process: processor time in nanoseconds, by thread, and memory.

use crate::error::BenchError;
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Processor time used so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cpu {
    pub(crate) total: Duration,
    /// By the thread name without its number.
    pub(crate) threads: BTreeMap<String, Duration>,
}

impl Cpu {
    /// Of all threads of a process, including those that have ended.
    pub(crate) fn of(pid: u32) -> Result<Self, BenchError> {
        let process = Pid::from_raw(pid.cast_signed());
        let clock = clock_getcpuclockid(process).and_then(|clock| clock.now());
        let total = clock.map_err(|errno| BenchError::Usage { what: "CPU time", source: errno.into() })?;
        let mut threads = BTreeMap::<String, Duration>::new();
        for task in read_dir(pid)? {
            // A thread that has just ended is part of the total.
            if let Some((name, time)) = thread(&task) {
                *threads.entry(name).or_default() += time;
            }
        }
        Ok(Self { total: total.into(), threads })
    }

    /// The usage since an earlier reading.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let before = |name: &String| earlier.threads.get(name).copied().unwrap_or_default();
        Self {
            total: self.total.saturating_sub(earlier.total),
            threads: self
                .threads
                .iter()
                .map(|(name, time)| (name.clone(), time.saturating_sub(before(name))))
                .collect(),
        }
    }
}

fn read_dir(pid: u32) -> Result<Vec<PathBuf>, BenchError> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"));
    let entries = entries.map_err(|source| BenchError::Usage { what: "threads", source })?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

/// Name and time of a thread. Numbered threads share their name: `worker-0`, `crypto-1`.
fn thread(task: &std::path::Path) -> Option<(String, Duration)> {
    let name = fs::read_to_string(task.join("comm")).ok()?;
    let name = name.trim_end().trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('-');
    let times = fs::read_to_string(task.join("schedstat")).ok()?;
    let nanoseconds = times.split_ascii_whitespace().next()?.parse().ok()?;
    Some((name.to_owned(), Duration::from_nanos(nanoseconds)))
}

/// Octets of the process's private memory.
pub(crate) fn memory(pid: u32) -> Result<u64, BenchError> {
    let failed = |source| BenchError::Usage { what: "memory", source };
    let status = fs::read_to_string(format!("/proc/{pid}/status")).map_err(failed)?;
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).and_then(|rest| {
        let number = rest.trim().strip_suffix("kB")?;
        number.trim().parse::<u64>().ok()
    });
    let missing = || failed(std::io::Error::other("no RssAnon in /proc/PID/status"));
    kilobytes.map(|kilobytes| kilobytes * 1024).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[test]
    fn work_and_memory_of_a_process_are_seen() {
        let pid = std::process::id();
        let (cpu, before) = (Cpu::of(pid).unwrap(), memory(pid).unwrap());
        let mut filled = vec![1_u8; 64 << 20];
        while Cpu::of(pid).unwrap().since(&cpu).total < Duration::from_millis(20) {
            filled.iter_mut().for_each(|octet| *octet = octet.wrapping_mul(3));
        }
        black_box(&filled);
        assert!(memory(pid).unwrap() >= before + (60 << 20));
        let used = Cpu::of(pid).unwrap().since(&cpu);
        let by_threads: Duration = used.threads.values().sum();
        assert!(by_threads > Duration::ZERO && !used.threads.is_empty(), "{used:?}");
    }
}
