//! The cost of a packet for the nodes that do not own it: the switch copies it to every node, and
//! the filter of each examines it.
//!
//! Datagrams are sent from the client through the tunnel, with the other nodes at the switch and
//! without them. All copying and filtering happens in the system call of the sender, so the
//! sender's processor time is the measure. The filters' own time is the kernel's statistics.

use super::site::{NODES, Site};
use crate::error::BenchError;
use crate::figures::Row;
use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;
use testudo_lab::cluster::{Cluster, Cut, Net};
use testudo_lab::gateway::Kind;
use testudo_lab::topology::Family;
use testudo_lab::{Error, Namespace, Result};
use testudo_terminal::progress::Progress;

/// Datagrams of a repeat, with and without the other nodes.
const COUNT: u32 = 20_000;
const OCTETS: usize = 160;
/// A port without a listener.
const PORT: u16 = 9;
/// BPF_PROG_TYPE_XDP.
const XDP: &str = "6";

/// Enables the kernel's statistics of BPF programs until dropped.
struct Accounting;

/// The statistics of a daemon's filters.
#[derive(Clone, Copy, Default)]
struct Filtered {
    time: Duration,
    frames: u64,
}

pub(super) fn measure(repeats: u32, progress: &Progress) -> std::result::Result<Vec<Row>, BenchError> {
    progress.begin("failover, copies of a packet: starting the nodes", 0);
    let mut site = Site::start(Kind::Strongswan)?;
    site.bed.bring_up(1)?;
    let _accounting = Accounting::begin()?;
    let owner = site.bed.owner(1)?;
    let others: Vec<u8> = (1..=NODES).filter(|node| *node != owner).collect();
    let client = site.bed.cluster.client.clone();
    let [mut own, mut theirs, mut copy] = [const { Vec::new() }; 3];
    progress.begin("failover, copies of a packet", repeats.into());
    for _ in 0..repeats {
        let before = all(&mut site)?;
        let together = send(&client)?;
        let after = all(&mut site)?;
        others.iter().try_for_each(|node| site.bed.cluster.cut(*node, Net::Inner, Cut::Silent))?;
        let alone = send(&client)?;
        others.iter().try_for_each(|node| site.bed.cluster.join(*node, Net::Inner))?;
        let of = |node: u8| {
            let (before, after) = (before[usize::from(node) - 1], after[usize::from(node) - 1]);
            let frames = after.frames.saturating_sub(before.frames);
            nanoseconds(after.time.saturating_sub(before.time)) / frames as f64
        };
        own.push(of(owner));
        theirs.push(others.iter().map(|node| of(*node)).sum::<f64>() / others.len() as f64);
        copy.push((nanoseconds(together) - nanoseconds(alone)) / f64::from(COUNT) / others.len() as f64);
        progress.step();
    }
    Ok(vec![
        Row::new("filter: a packet for this node", "ns", own),
        Row::new("filter: a packet for another node (Q)", "ns", theirs),
        Row::new("copy of a packet to another node, its filter included", "ns", copy),
    ])
}

impl Accounting {
    const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";

    fn begin() -> Result<Self> {
        fs::write(Self::SWITCH, "1").map_err(Error::io(format!("write {}", Self::SWITCH)))?;
        Ok(Self)
    }
}

impl Drop for Accounting {
    fn drop(&mut self) {
        // Writing succeeded before.
        let _ = fs::write(Self::SWITCH, "0");
    }
}

fn all(site: &mut Site) -> Result<Vec<Filtered>> {
    site.bed.nodes.iter_mut().map(|node| filtered(node.process().pid())).collect()
}

/// The statistics of the XDP programs that a process has open.
fn filtered(pid: u32) -> Result<Filtered> {
    let directory = format!("/proc/{pid}/fdinfo");
    let entries = fs::read_dir(&directory).map_err(Error::io(format!("read {directory}")))?;
    let mut sum = Filtered::default();
    // A descriptor closed meanwhile is not one of them.
    for text in entries.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok()) {
        if let Some(one) = parse(&text) {
            sum.time += one.time;
            sum.frames += one.frames;
        }
    }
    if sum.frames > 0 {
        return Ok(sum);
    }
    Err(Error::unexpected(directory, "an XDP program with run_time_ns and run_cnt", "none that has run"))
}

fn parse(text: &str) -> Option<Filtered> {
    let value = |key: &str| {
        let found = text.lines().filter_map(|line| line.split_once(':')).find(|(name, _)| *name == key);
        found.map(|(_, value)| value.trim())
    };
    (value("prog_type") == Some(XDP)).then_some(())?;
    let time = Duration::from_nanos(value("run_time_ns")?.parse().ok()?);
    Some(Filtered { time, frames: value("run_cnt")?.parse().ok()? })
}

/// Sends the datagrams through the tunnel; returns the processor time.
fn send(client: &Namespace) -> Result<Duration> {
    let server: IpAddr = Cluster::behind(1, Family::V4, 2);
    client
        .enter(|| {
            // The processing that sending causes runs on the same processor.
            let mut only = CpuSet::new();
            only.set(sched_getcpu()?)?;
            sched_setaffinity(Pid::from_raw(0), &only)?;
            let socket = UdpSocket::bind(("0.0.0.0", 0))?;
            socket.connect((server, PORT))?;
            let start = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
            for _ in 0..COUNT {
                // Refused without a listener or buffer: it took the same path nevertheless.
                let _ = socket.send(&[0; OCTETS]);
            }
            let end = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
            Ok::<_, std::io::Error>(Duration::from(end) - Duration::from(start))
        })?
        .map_err(Error::io("send datagrams through the tunnel"))
}

fn nanoseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_of_a_program_is_read() {
        let text = "pos:\t0\nprog_type:\t6\nprog_jited:\t1\nrun_time_ns:\t7000\nrun_cnt:\t100\n";
        let found = parse(text).expect("it is one");
        assert_eq!((found.time, found.frames), (Duration::from_micros(7), 100));
        assert!(parse(&text.replace("\t6", "\t3")).is_none(), "not XDP");
        assert!(parse("pos:\t0\nflags:\t02\n").is_none(), "no program");
    }
}
