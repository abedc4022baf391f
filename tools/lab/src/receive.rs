//! Receiving in kernel threads (threaded NAPI).
//!
//! On a veth all processing of a packet runs in the sender's system call: a gateway would execute,
//! and be charged for, the receiving of the switch and of the next gateway, one packet at a time,
//! and wait for it. On a real wire the receiver does its own receiving. A thread for each interface
//! restores that, and lets packets come in bursts.

use crate::command::Cmd;
use crate::{Error, Namespace, Result};
use std::collections::BTreeSet;
use std::fs;

/// Gives each interface a thread. The interfaces must have NAPI (on a veth: an XDP program or GRO).
/// Returns the threads' ids; they live as long as the interfaces keep NAPI.
pub(crate) fn in_threads(namespace: &Namespace, interfaces: &[&str]) -> Result<Vec<u32>> {
    // Threads can only be told apart by their names, which repeat in each namespace. Such labs run
    // one at a time.
    let before = threads()?;
    for interface in interfaces {
        let script = format!("echo 1 > /sys/class/net/{interface}/threaded");
        // Unlike setns(2) alone it shows the /sys of the namespace.
        Cmd::new("ip").args(["netns", "exec", namespace.name(), "sh", "-c", &script]).run()?;
    }
    let new: Vec<_> = threads()?.difference(&before).copied().collect();
    if new.len() == interfaces.len() {
        return Ok(new);
    }
    let expected = format!("{} new threads of NAPI", interfaces.len());
    Err(Error::unexpected("/proc", expected, new.len().to_string()))
}

fn threads() -> Result<BTreeSet<u32>> {
    let entries = fs::read_dir("/proc").map_err(Error::io("read /proc"))?;
    let is_napi = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("napi/"))
    };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(pids.filter(is_napi).collect())
}
