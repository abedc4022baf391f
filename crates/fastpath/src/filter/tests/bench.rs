//! The filter in the kernel, run on one frame at a time (BPF_PROG_TEST_RUN).

use super::frames::{CLUSTER_MAC, PORT_MAC, US4, US6};
use crate::fib::PortIndex;
use crate::filter::layout::{
    ADDRESS, ClusterValue, VIP, port_value, prefix_key, seen_number, seen_value, source_key,
};
use crate::filter::object::Loaded;
use crate::filter::{
    CounterSet, FilterCounters, FilterPort, PrefixUse, Reason, RowClocks, STAMP_LEN, SessionTable, Stamp,
};
use crate::mac::MacAddr;
use libbpf_rs::{ProgramInput, ProgramMut};
use std::os::fd::{AsRawFd, OwnedFd};
use testudo_ipsec::dataplane::Sample;

pub(super) const XDP_DROP: u32 = 1;
pub(super) const XDP_PASS: u32 = 2;
pub(super) const XDP_REDIRECT: u32 = 4;

pub(super) const PORT: PortIndex = PortIndex(5);

/// Test runs come from the loopback interface of the network namespace, queue 0.
const LOOPBACK: u32 = 1;

/// The outcome of a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) action: u32,
    /// The one reason that was counted.
    pub(super) reason: Reason,
    pub(super) stamp: Option<Stamp>,
    /// The frame, as the filter left it.
    pub(super) frame: Vec<u8>,
}

pub(super) struct Bench {
    loaded: Loaded,
    socket: Option<OwnedFd>,
}

impl Bench {
    /// A gateway with two addresses, a protected prefix of each family, and an exception inside
    /// each.
    pub(super) fn new() -> Self {
        let loaded = Loaded::unpinned().expect("load the filter (root, CAP_BPF, CAP_NET_ADMIN)");
        let mut bench = Self { loaded, socket: None };
        bench.set_port(true);
        for addr in [US4, US6] {
            bench.set_address(addr, ADDRESS);
        }
        for (prefix, to) in [
            ("10.2.0.0/16", PrefixUse::PROTECT),
            ("10.2.9.0/24", PrefixUse::PASS),
            ("2001:db8:2::/48", PrefixUse::PROTECT),
            ("2001:db8:2:9::/64", PrefixUse::PASS),
        ] {
            bench.set_prefix(prefix, to);
        }
        bench
    }

    pub(super) fn set_port(&self, check_source: bool) {
        let port = FilterPort {
            index: PORT,
            name: "lo".to_owned(),
            ifindex: LOOPBACK,
            mac: MacAddr(PORT_MAC),
            cluster_mac: Some(MacAddr(CLUSTER_MAC)),
            check_source,
            allow_generic: false,
        };
        self.loaded.ports.set(LOOPBACK, &port_value(&port), &"lo").unwrap();
    }

    pub(super) fn set_address(&mut self, addr: &str, flags: u32) {
        self.loaded.local.set(addr.parse().unwrap(), flags).unwrap();
    }

    pub(super) fn remove_address(&mut self, addr: &str) {
        self.loaded.local.remove(addr.parse().unwrap()).unwrap();
    }

    /// A node of a cluster whose VIPs are the gateway's two addresses.
    pub(super) fn clustered(cluster: &ClusterValue) -> Self {
        let mut bench = Self::new();
        [US4, US6].iter().for_each(|addr| bench.set_address(addr, ADDRESS | VIP));
        bench.set_cluster(cluster);
        bench
    }

    pub(super) fn set_cluster(&self, cluster: &ClusterValue) {
        self.loaded.cluster.set(&[0; 4], &cluster.encode(), &"cluster").unwrap();
    }

    /// Drops a source until this nanosecond of CLOCK_BOOTTIME, if the table's flag says so.
    pub(super) fn drop_source(&self, source: &str, until: u64) {
        let key = source_key(source.parse().unwrap());
        self.loaded.dropped.set(&key, &until.to_ne_bytes(), &source).unwrap();
    }

    /// The beginnings of clear packets that were dropped.
    pub(super) fn take_clear(&self) -> Vec<Sample> {
        self.loaded.take_clear(PORT).unwrap()
    }

    /// Has the highest number of an SPI recorded from now on.
    pub(super) fn track(&self, spi: u32, from: u64) {
        self.loaded.seen.set(&spi.to_ne_bytes(), &seen_value(from, false), &"seen").unwrap();
    }

    /// The same, and has the packets of the SPI dealt out by their numbers.
    pub(super) fn track_spread(&self, spi: u32, from: u64) {
        self.loaded.seen.set(&spi.to_ne_bytes(), &seen_value(from, true), &"seen").unwrap();
    }

    pub(super) fn clocks(&self) -> RowClocks {
        RowClocks::of(&self.loaded.clocks).expect("row clocks")
    }

    pub(super) fn sessions(&self) -> SessionTable {
        SessionTable::of(&self.loaded.sessions).expect("sessions")
    }

    pub(super) fn seen(&self, spi: u32) -> Option<u64> {
        let value = self.loaded.seen.get(&spi.to_ne_bytes(), &"seen").unwrap()?;
        seen_number(&value)
    }

    pub(super) fn remove_port(&self) {
        self.loaded.ports.remove(LOOPBACK, &"lo").unwrap();
    }

    pub(super) fn set_prefix(&self, prefix: &str, to: PrefixUse) {
        let prefix = prefix.parse().unwrap();
        let maps = &self.loaded;
        let map = if prefix_key(&prefix).len() == 8 { &maps.prefixes4 } else { &maps.prefixes6 };
        map.set(&prefix_key(&prefix), &to.encode(), &prefix).unwrap();
    }

    /// Lets a worker listen; without one, what is for it is dropped.
    pub(super) fn with_socket(mut self) -> Self {
        let socket = crate::sys::socket::xdp().expect("AF_XDP socket");
        let key = (u32::from(PORT.0) * 64).to_ne_bytes();
        self.loaded.sockets.set(&key, &socket.as_raw_fd().to_ne_bytes(), &"queue 0").unwrap();
        self.socket = Some(socket);
        self
    }

    pub(super) fn counters(&self, set: CounterSet) -> FilterCounters {
        let mut counters = FilterCounters::default();
        for reason in Reason::ALL {
            let values = self.loaded.counters.get_per_cpu(&set.key(*reason), &reason.name()).unwrap();
            counters.set(*reason, &values);
        }
        counters
    }

    fn all_counters(&self) -> [FilterCounters; 2] {
        [CounterSet::Port(PORT), CounterSet::Unknown].map(|set| self.counters(set))
    }

    pub(super) fn program(&self) -> ProgramMut<'_> {
        self.loaded.program().unwrap()
    }

    pub(super) fn run(&self, frame: &[u8]) -> Outcome {
        let before = self.all_counters();
        let (action, output) = self.run_uncounted(frame);
        let after = self.all_counters();
        let counted: Vec<_> = after
            .iter()
            .zip(&before)
            .flat_map(|(a, b)| a.since(b).iter().filter(|(_, n)| *n > 0).collect::<Vec<_>>())
            .collect();
        let [(reason, 1)] = counted[..] else { panic!("a frame counts once, for one reason: {counted:?}") };
        // The output begins with the metadata, if the filter made room for any.
        let grown = output.len() == frame.len() + STAMP_LEN;
        let (stamp, rest) = output.split_at(if grown { STAMP_LEN } else { 0 });
        let stamp = stamp.first_chunk().map(|s| Stamp::read(*s).expect("a stamp"));
        Outcome { action, reason, stamp, frame: rest.to_vec() }
    }

    /// Only what the filter answers, and the frame with its metadata.
    pub(super) fn run_uncounted(&self, frame: &[u8]) -> (u32, Vec<u8>) {
        let mut output = vec![0; frame.len() + 256];
        let input = ProgramInput { data_in: Some(frame), data_out: Some(&mut output), ..Default::default() };
        let result = self.program().test_run(input);
        let result = result.expect("BPF_PROG_TEST_RUN");
        let (action, length) = (result.return_value, result.data.map_or(0, |d| d.len()));
        output.truncate(length);
        (action, output)
    }
}
