//! The XDP filter: loading, attaching, pinning, its policy and its counters.
//!
//! The filter decides for each received frame whether it goes to the kernel, to a worker, or is
//! dropped (`bpf/filter.bpf.c`). Its links and maps are pinned under
//! `/sys/fs/bpf/testudo-INSTANCE/` and outlive the daemon. The sockets do not, so frames for a
//! worker are dropped then. Only [`cleanup`] removes all of it.
//!
//! Open the filter, set addresses and prefixes, attach it to the ports, and set the sockets, in
//! this order: then a port knows from the first packet on which prefixes are protected.
//!
//! Frames with a VLAN tag belong to another interface and go to the kernel. A driver that strips
//! tags by itself hides them: turn that off (`ethtool -K PORT rxvlan off`) where a port also
//! carries VLANs.

mod bpffs;
mod cleanup;
mod clocks;
mod cluster;
mod counters;
mod error;
mod layout;
mod link;
mod netns;
mod object;
mod policy;
mod ports;
mod reason;
mod sources;
mod tables;
#[cfg(test)]
mod tests;

pub use bpffs::{BPFFS, Instance};
pub use cleanup::{Cleaned, cleanup};
pub use clocks::{RowClocks, SessionTable};
pub use cluster::{ClusterFilter, KeptShards};
pub use counters::{CounterSet, FilterCounters};
pub use error::{FilterError, Result};
pub use layout::{Class, MAX_DROPPED, MAX_PORTS, MAX_QUEUES, PrefixUse, STAMP_LEN, STAMP_MAGIC, Stamp};
pub use link::XdpMode;
pub use policy::{PrefixChanges, PrefixUses};
pub use ports::FilterPort;
pub use reason::{FilterAction, Reason};

use crate::fib::PortIndex;
use bpffs::PinDir;
use layout::{ClusterValue, LAYOUT_VERSION, UNSELECTED, VIP, layout_value, prefix_key, read_prefix};
use libbpf_rs::{ProgramInput, ProgramMut};
use link::ClaimLink;
use object::{FilterMap, Loaded};
use policy::PolicyStep;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;
use testudo_base::prefix::Prefix;
use testudo_ipsec::dataplane::Sample;

/// The loaded filter of an instance.
#[derive(Debug)]
pub struct Filter {
    pins: PinDir,
    loaded: Loaded,
    inherited: bool,
    /// Programs behind the filter, on the ports of a cluster's node.
    claims: BTreeMap<u32, ClaimLink>,
    /// The cluster's entry, as last written but for CLUSTER_SPREAD and CLUSTER_DROPS_SOURCES.
    cluster: ClusterValue,
    /// The SPIs that are spread.
    spread: BTreeSet<u32>,
    /// The sources that are dropped.
    dropped: BTreeSet<IpAddr>,
    /// The addresses that all nodes of the cluster have.
    vips: BTreeSet<IpAddr>,
    /// Always equal to what the maps say.
    unselected: BTreeSet<IpAddr>,
}

impl Filter {
    /// Loads the filter. Pinned maps of an earlier run are taken over with their contents, so that
    /// protected prefixes stay protected. [`Self::attach`] replaces the program on the ports.
    pub fn open(instance: &Instance) -> Result<Self> {
        let netns = netns::cookie()?;
        let pins = PinDir::create(instance)?;
        let inherited = cleanup::take_over(instance, &pins, netns)?;
        let loaded = Loaded::pinned(&pins)?;
        loaded.layout.set(&FIRST_KEY, &layout_value(LAYOUT_VERSION, netns), &"version")?;
        let cluster = ClusterValue::default();
        let (vips, unselected) = (BTreeSet::new(), BTreeSet::new());
        let (claims, spread, dropped) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        let mut this = Self { pins, loaded, inherited, claims, cluster, spread, dropped, vips, unselected };
        if inherited {
            this.forget_alarms()?;
        }
        this.unselected = this.addresses_with(UNSELECTED);
        Ok(this)
    }

    /// True if the maps come from an earlier run.
    pub fn is_inherited(&self) -> bool {
        self.inherited
    }

    /// The gateway's own addresses, and the cluster's.
    pub fn addresses(&self) -> BTreeSet<IpAddr> {
        self.loaded.local.known().keys().copied().collect()
    }

    /// The cluster's addresses that the filter knows; after a restart those of the earlier run.
    pub fn vips(&self) -> BTreeSet<IpAddr> {
        self.addresses_with(VIP)
    }

    fn addresses_with(&self, flag: u32) -> BTreeSet<IpAddr> {
        let known = self.loaded.local.known().iter();
        known.filter(|(_, flags)| *flags & flag != 0).map(|(addr, _)| *addr).collect()
    }

    /// The prefixes that the filter knows; after a restart those of the earlier run.
    pub fn prefixes(&self) -> Result<PrefixUses> {
        let mut prefixes = PrefixUses::new();
        for map in [&self.loaded.prefixes4, &self.loaded.prefixes6] {
            for prefix in map.keys().iter().filter_map(|key| read_prefix(key)) {
                let value = map.get(&prefix_key(&prefix), &prefix)?;
                if let Some(value) = value.as_deref().and_then(<[u8]>::first_chunk) {
                    prefixes.insert(prefix, PrefixUse::decode(*value));
                }
            }
        }
        Ok(prefixes)
    }

    /// Sets the prefixes. While they change, every packet is treated as before or as after. If this
    /// fails, call it again with the earlier set.
    pub fn set_prefixes(&mut self, prefixes: &PrefixUses) -> Result<()> {
        self.change_prefixes(&policy::changes(&self.prefixes()?, prefixes))
    }

    /// Changes some prefixes and leaves the others. While they change, every packet is treated as
    /// before or as after.
    pub fn change_prefixes(&mut self, changes: &PrefixChanges) -> Result<()> {
        for step in policy::in_order(changes) {
            match step {
                PolicyStep::Set(prefix, to) => {
                    self.trie(&prefix).set(&prefix_key(&prefix), &to.encode(), &prefix)?;
                }
                PolicyStep::Remove(prefix) => self.trie(&prefix).remove(&prefix_key(&prefix), &prefix)?,
            }
        }
        Ok(())
    }

    fn trie(&self, prefix: &Prefix) -> &FilterMap {
        if prefix.is_ipv4() { &self.loaded.prefixes4 } else { &self.loaded.prefixes6 }
    }

    /// Gives the packets of a queue to an AF_XDP socket that is bound to it. The kernel forgets the
    /// socket when it is closed.
    pub fn set_socket(&mut self, port: PortIndex, queue: u16, socket: BorrowedFd<'_>) -> Result<()> {
        let key = socket_key(port, queue)?;
        let value = socket.as_raw_fd().to_ne_bytes();
        self.loaded.sockets.set(&key, &value, &format_args!("of port {} queue {queue}", port.0))
    }

    /// The counts since the maps were made.
    pub fn counters(&self, set: CounterSet) -> Result<FilterCounters> {
        let mut counters = FilterCounters::default();
        for reason in Reason::ALL {
            counters.set(*reason, &self.counter_by_cpu(set, *reason)?);
        }
        Ok(counters)
    }

    /// One counter: a system call.
    pub fn counter(&self, set: CounterSet, reason: Reason) -> Result<u64> {
        let mut counters = FilterCounters::default();
        counters.set(reason, &self.counter_by_cpu(set, reason)?);
        Ok(counters.get(reason))
    }

    fn counter_by_cpu(&self, set: CounterSet, reason: Reason) -> Result<Vec<Vec<u8>>> {
        self.loaded.counters.get_per_cpu(&set.key(reason), &reason.name())
    }

    /// Takes the first clear packet that each processor has dropped on a port since the last call,
    /// because it must be protected.
    pub fn take_clear(&self, port: PortIndex) -> Result<Vec<Sample>> {
        self.loaded.take_clear(port)
    }

    /// The average time that the filter takes for a frame, over `runs` runs in the kernel
    /// (BPF_PROG_TEST_RUN), without the driver's part. The runs come from interface 1 of the
    /// network namespace, the loopback interface; [`Self::set_port`] makes that a port.
    pub fn cost(&self, frame: &[u8], runs: u32) -> Result<Duration> {
        time_of(&self.loaded.program()?, frame, runs).map_err(|source| FilterError::Run { source })
    }
}

/// The average time of a run in [`Filter::cost`] that is not the filter's: of a program that does
/// nothing. The least of some repeats is taken, because disturbances only ever add time.
pub fn cost_of_a_test_run(frame: &[u8], runs: u32, repeats: u32) -> Result<Duration> {
    object::with_nothing(|program| {
        (0..repeats).try_fold(Duration::MAX, |least, _| Ok(least.min(time_of(&program, frame, runs)?)))
    })
}

fn time_of(program: &ProgramMut<'_>, frame: &[u8], runs: u32) -> libbpf_rs::Result<Duration> {
    // The filter puts a stamp before the frame.
    let mut output = vec![0; frame.len() + STAMP_LEN];
    let input = ProgramInput {
        data_in: Some(frame),
        data_out: Some(&mut output),
        repeat: runs,
        ..Default::default()
    };
    program.test_run(input).map(|done| done.duration)
}

/// Key of the first entry of an array.
const FIRST_KEY: [u8; 4] = [0; 4];

fn socket_key(port: PortIndex, queue: u16) -> Result<[u8; 4]> {
    ports::check_index(port)?;
    if queue >= MAX_QUEUES {
        return Err(FilterError::Range { what: "queue", found: queue, limit: MAX_QUEUES - 1 });
    }
    Ok((u32::from(port.0) * u32::from(MAX_QUEUES) + u32::from(queue)).to_ne_bytes())
}
