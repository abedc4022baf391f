//! CPU time of processes, from /proc.

use crate::{Error, Result};
use nix::unistd::{SysconfVar, sysconf};
use std::collections::HashMap;
use std::fs;
use std::iter::Sum;
use std::ops::Sub;
use std::time::Duration;

/// CPU time used, in user mode and in the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// utime: in the program itself.
    pub user: Duration,
    /// stime: in system calls, and in the network stack on behalf of them.
    pub system: Duration,
}

impl CpuTime {
    /// Both together, in seconds.
    pub fn seconds(self) -> f64 {
        (self.user + self.system).as_secs_f64()
    }
}

impl Sub for CpuTime {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }
}

impl Sum for CpuTime {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |sum, part| Self {
            user: sum.user + part.user,
            system: sum.system + part.system,
        })
    }
}

/// CPU time of a process, all its threads and all its living descendants.
pub fn of_tree(root: u32) -> Result<CpuTime> {
    let mut all = HashMap::new();
    for entry in fs::read_dir("/proc").map_err(Error::io("read /proc"))?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process that has just ended adds nothing.
        if let Ok(stat) = fs::read_to_string(entry.path().join("stat"))
            && let Some(stat) = Stat::parse(&stat)
        {
            all.insert(pid, stat);
        }
    }
    if !all.contains_key(&root) {
        return Err(Error::unexpected("/proc", format!("process {root}"), "none"));
    }
    Ok(all.iter().filter(|(pid, _)| descends(&all, **pid, root)).map(|(_, stat)| stat.cpu()).sum())
}

fn descends(all: &HashMap<u32, Stat>, pid: u32, root: u32) -> bool {
    let mut at = pid;
    // Bounded, because parents may change meanwhile.
    for _ in 0..all.len() {
        if at == root {
            return true;
        }
        match all.get(&at) {
            Some(stat) => at = stat.parent,
            None => return false,
        }
    }
    false
}

#[derive(Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    user_ticks: u64,
    system_ticks: u64,
}

impl Stat {
    /// Parses fields 4 (ppid), 14 (utime) and 15 (stime) of proc(5); the name before them may
    /// contain any character.
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<_> = line.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self { parent: number(4)?.try_into().ok()?, user_ticks: number(14)?, system_ticks: number(15)? })
    }

    fn cpu(&self) -> CpuTime {
        let hertz = ticks_per_second();
        let time = |ticks: u64| Duration::from_secs_f64(ticks as f64 / hertz);
        CpuTime { user: time(self.user_ticks), system: time(self.system_ticks) }
    }
}

fn ticks_per_second() -> f64 {
    sysconf(SysconfVar::CLK_TCK).ok().flatten().map_or(100.0, |hertz| hertz as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Cmd;
    use std::time::Instant;

    #[test]
    fn a_name_with_spaces_and_brackets_does_not_shift_the_fields() {
        let line = "12 (a ) b) S 7 12 12 0 -1 4194560 100 0 0 0 33 44 0 0 20 0 1 0 55 1000 10";
        assert_eq!(Stat::parse(line), Some(Stat { parent: 7, user_ticks: 33, system_ticks: 44 }));
    }

    #[test]
    fn a_busy_grandchild_counts() {
        let dir = tempfile::tempdir().unwrap();
        let cmd = Cmd::new("sh").args(["-c", "sh -c 'while :; do :; done' & wait"]);
        let busy = cmd.start("busy", &dir.path().join("busy.log")).unwrap();
        let start = Instant::now();
        let before = busy.cpu().unwrap();
        while (busy.cpu().unwrap() - before).seconds() < 0.2 {
            assert!(start.elapsed() < Duration::from_secs(60), "the loop's CPU time is not seen");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
