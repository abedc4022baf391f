//! A worker's counters. One writer, any number of readers, no locked instruction.

use super::MAX_PORTS_PER_WORKER;
use super::drops::WorkerDrop;
use crate::fib::PortIndex;
use crate::port::PortStatistics;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use testudo_base::spi::Spi;
use testudo_ipsec::dataplane::{Sample, SampleSlots};

/// A counter that only the worker's thread writes.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(super) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    #[inline]
    pub(super) fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    #[inline]
    pub(super) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Counters of one port.
#[derive(Debug, Default)]
pub(super) struct PortCounters {
    /// The port's number plus one; 0 while the place is unused.
    port: Counter,
    pub(super) rx_packets: Counter,
    pub(super) rx_bytes: Counter,
    pub(super) tx_packets: Counter,
    pub(super) tx_bytes: Counter,
    below: [Counter; 9],
}

impl PortCounters {
    /// Publishes the kernel's counters of losses below the port.
    pub(super) fn set_below(&self, statistics: &PortStatistics) {
        for (counter, value) in self.below.iter().zip(to_array(statistics)) {
            counter.set(value);
        }
    }

    /// The totals of the port. `None` if the place is unused.
    fn totals(&self) -> Option<PortTotals> {
        let port = PortIndex(u16::try_from(self.port.get().checked_sub(1)?).ok()?);
        Some(PortTotals {
            port,
            rx_packets: self.rx_packets.get(),
            rx_bytes: self.rx_bytes.get(),
            tx_packets: self.tx_packets.get(),
            tx_bytes: self.tx_bytes.get(),
            below: from_array(std::array::from_fn(|at| self.below[at].get())),
        })
    }
}

fn to_array(from: &PortStatistics) -> [u64; 9] {
    let PortStatistics { rx_dropped, rx_ring_full, fill_ring_empty, rx_invalid, rx_not_joined, .. } = *from;
    let PortStatistics { tx_invalid, tx_ring_empty, tx_refused, stray, .. } = *from;
    [
        rx_dropped,
        rx_ring_full,
        fill_ring_empty,
        rx_invalid,
        tx_invalid,
        tx_ring_empty,
        tx_refused,
        stray,
        rx_not_joined,
    ]
}

fn from_array(from: [u64; 9]) -> PortStatistics {
    let [rx_dropped, rx_ring_full, fill_ring_empty, rx_invalid, sent @ .., rx_not_joined] = from;
    let [tx_invalid, tx_ring_empty, tx_refused, stray] = sent;
    PortStatistics {
        rx_dropped,
        rx_ring_full,
        fill_ring_empty,
        rx_invalid,
        tx_invalid,
        tx_ring_empty,
        tx_refused,
        stray,
        rx_not_joined,
    }
}

/// Counters of one worker.
#[derive(Debug)]
#[repr(align(128))]
pub struct WorkerCounters {
    /// By place. There are as many as a worker may ever have ports, because ports may be opened
    /// later.
    pub(super) ports: Box<[PortCounters]>,
    pub(super) from_tun: Counter,
    pub(super) to_tun: Counter,
    pub(super) generated: Counter,
    pub(super) split: Counter,
    pub(super) joined: Counter,
    pub(super) merged: Counter,
    pub(super) checksum_filled: Counter,
    pub(super) dropped_by_pipeline: Counter,
    pub(super) held: Counter,
    pub(super) away: Counter,
    pub(super) helped_by_others: Counter,
    pub(super) helped_others: Counter,
    pub(super) turns: Counter,
    pub(super) sleeps: Counter,
    pub(super) events_lost: Counter,
    overlaps: SampleSlots,
    drops: [Counter; WorkerDrop::COUNT],
}

/// Packets and octets of one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortTotals {
    /// Number of the port. Several queues of one interface have the same number.
    pub port: PortIndex,
    /// Packets received.
    pub rx_packets: u64,
    /// Octets received, Ethernet header included.
    pub rx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Octets sent, Ethernet header included.
    pub tx_bytes: u64,
    /// Losses below the port, at most a second old, whether the worker is busy or idle.
    pub below: PortStatistics,
}

/// A worker's totals at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerTotals {
    /// One entry a port, in the order in which the worker was given them.
    pub ports: Vec<PortTotals>,
    /// Packets that the kernel gave us through the TUN. A TCP segment of up to 64 kB counts as one.
    pub from_tun: u64,
    /// Packets given to the kernel through the TUN. Merged packets count as one.
    pub to_tun: u64,
    /// Packets made here: ICMP errors.
    pub generated: u64,
    /// Packets added by splitting packets and by cutting TCP segments.
    pub split: u64,
    /// Packets that went to the kernel as part of another packet.
    pub merged: u64,
    /// Fragments that reassembly has removed: all but one of each packet.
    pub joined: u64,
    /// Clear packets that came in by a port with an open checksum, which the worker filled in.
    pub checksum_filled: u64,
    /// Packets that wait now: for their neighbour, for their SA, or for their remaining fragments.
    pub held: u64,
    /// Packets in tasks that have not ended, here or at other workers.
    pub away: u64,
    /// Packets that another worker has taken through the pipeline.
    pub helped_by_others: u64,
    /// Packets of other workers that this one has taken through the pipeline.
    pub helped_others: u64,
    /// Packets dropped by the IPsec pipeline; its own counters have the reasons.
    pub dropped_by_pipeline: u64,
    /// Packets dropped by the worker itself; [`WorkerCounters::dropped`] has the reasons.
    pub dropped: u64,
    /// Turns of the loop.
    pub turns: u64,
    /// Times that the worker went to sleep because it had no work.
    pub sleeps: u64,
    /// Events that were lost because control did not take them in time.
    pub events_lost: u64,
}

impl WorkerTotals {
    /// True if every packet is accounted for (ARCHITECTURE.md, "The life of a packet"). It holds
    /// between two turns.
    pub fn is_balanced(&self) -> bool {
        let rx: u64 = self.ports.iter().map(|port| port.rx_packets).sum();
        let tx: u64 = self.ports.iter().map(|port| port.tx_packets).sum();
        rx + self.from_tun + self.generated + self.split
            == tx
                + self.to_tun
                + self.dropped
                + self.dropped_by_pipeline
                + self.merged
                + self.joined
                + self.held
                + self.away
    }
}

impl WorkerCounters {
    pub(super) fn new(ports: impl IntoIterator<Item = PortIndex>) -> Self {
        let this = Self {
            ports: (0..MAX_PORTS_PER_WORKER).map(|_| PortCounters::default()).collect(),
            from_tun: Counter::default(),
            to_tun: Counter::default(),
            generated: Counter::default(),
            split: Counter::default(),
            joined: Counter::default(),
            merged: Counter::default(),
            checksum_filled: Counter::default(),
            dropped_by_pipeline: Counter::default(),
            held: Counter::default(),
            away: Counter::default(),
            helped_by_others: Counter::default(),
            helped_others: Counter::default(),
            turns: Counter::default(),
            sleeps: Counter::default(),
            events_lost: Counter::default(),
            overlaps: SampleSlots::default(),
            drops: std::array::from_fn(|_| Counter::default()),
        };
        ports.into_iter().enumerate().for_each(|(place, port)| this.name(place, port));
        this
    }

    /// Names the port of the counters at a place. Places are taken one after the other.
    pub(super) fn name(&self, place: usize, port: PortIndex) {
        if let Some(counters) = self.ports.get(place) {
            counters.port.set(u64::from(port.0) + 1);
        }
    }

    #[inline]
    pub(super) fn count_drop(&self, reason: WorkerDrop) {
        self.drops[reason as usize].add(1);
    }

    /// Counts a fragment that was lost. One that contradicts others may be an attacker's: its first
    /// octets are kept.
    pub(super) fn count_lost_fragment(&self, reason: WorkerDrop, fragment: &[u8]) {
        self.count_drop(reason);
        if reason == WorkerDrop::FragmentOverlap {
            self.overlaps.offer(Spi(0), fragment);
        }
    }

    /// Takes samples of fragments that contradict others: a few since the last call.
    pub fn take_overlaps(&self) -> impl Iterator<Item = Sample> + '_ {
        self.overlaps.take()
    }

    /// Packets that the worker itself dropped for this reason.
    pub fn dropped(&self, reason: WorkerDrop) -> u64 {
        self.drops[reason as usize].get()
    }

    /// The totals now. Those of a busy worker may be a burst apart from each other.
    pub fn totals(&self) -> WorkerTotals {
        WorkerTotals {
            ports: self.ports.iter().map_while(PortCounters::totals).collect(),
            from_tun: self.from_tun.get(),
            to_tun: self.to_tun.get(),
            generated: self.generated.get(),
            split: self.split.get(),
            joined: self.joined.get(),
            merged: self.merged.get(),
            checksum_filled: self.checksum_filled.get(),
            held: self.held.get(),
            away: self.away.get(),
            helped_by_others: self.helped_by_others.get(),
            helped_others: self.helped_others.get(),
            dropped_by_pipeline: self.dropped_by_pipeline.get(),
            dropped: self.drops.iter().map(Counter::get).sum(),
            turns: self.turns.get(),
            sleeps: self.sleeps.get(),
            events_lost: self.events_lost.get(),
        }
    }
}
