//! The counters of a pipeline. One writer, any number of readers.

use super::burst::Ingress;
use super::sample::{Sample, Samples};
use crate::drops::DropReason;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use testudo_base::shard::SHARDS;
use testudo_base::spi::Shard;

/// A counter that only one thread writes: no locked instruction.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(super) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    pub(super) fn subtract(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_sub(n), Relaxed);
    }

    #[inline]
    pub(super) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Counters of one direction.
#[derive(Debug)]
pub(super) struct DirectionCounters {
    pub(super) received: Counter,
    pub(super) received_bytes: Counter,
    pub(super) generated: Counter,
    pub(super) forwarded: Counter,
    pub(super) forwarded_bytes: Counter,
    pub(super) to_host: Counter,
    pub(super) replies: Counter,
    pub(super) to_split: Counter,
    pub(super) to_wait: Counter,
    pub(super) to_join: Counter,
    pub(super) onward: Counter,
    pub(super) early: Counter,
    pub(super) relayed: Counter,
    pub(super) relayed_in: Counter,
    drops: [Counter; DropReason::COUNT],
    pub(super) samples: Samples,
}

impl DirectionCounters {
    fn new() -> Self {
        Self {
            received: Counter::default(),
            received_bytes: Counter::default(),
            generated: Counter::default(),
            forwarded: Counter::default(),
            forwarded_bytes: Counter::default(),
            to_host: Counter::default(),
            replies: Counter::default(),
            to_split: Counter::default(),
            to_wait: Counter::default(),
            to_join: Counter::default(),
            onward: Counter::default(),
            early: Counter::default(),
            relayed: Counter::default(),
            relayed_in: Counter::default(),
            drops: std::array::from_fn(|_| Counter::default()),
            samples: Samples::new(),
        }
    }

    #[inline]
    pub(super) fn drop(&self, reason: DropReason) {
        self.drop_many(reason, 1);
    }

    #[inline]
    pub(super) fn drop_many(&self, reason: DropReason, packets: u64) {
        if let Some(drops) = self.drops.get(reason as usize) {
            drops.add(packets);
        }
    }

    fn totals(&self) -> DirectionTotals {
        DirectionTotals {
            received: self.received.get(),
            received_bytes: self.received_bytes.get(),
            generated: self.generated.get(),
            forwarded: self.forwarded.get(),
            forwarded_bytes: self.forwarded_bytes.get(),
            to_host: self.to_host.get(),
            replies: self.replies.get(),
            to_split: self.to_split.get(),
            to_wait: self.to_wait.get(),
            to_join: self.to_join.get(),
            onward: self.onward.get(),
            early: self.early.get(),
            relayed: self.relayed.get(),
            relayed_in: self.relayed_in.get(),
            dropped: self.drops.iter().map(Counter::get).sum(),
        }
    }
}

/// Counters of one worker's pipeline.
#[derive(Debug)]
pub struct Counters {
    pub(super) outbound: DirectionCounters,
    pub(super) inbound: DirectionCounters,
    pub(super) icmp_suppressed: Counter,
    pub(super) mss_clamped: Counter,
    pub(super) inbound_sas: Counter,
    pub(super) outbound_sas: Counter,
    /// Packets that were relayed, of both directions, by shard.
    relayed_of: Box<[Counter; SHARDS]>,
}

/// One direction at one moment, in packets unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionTotals {
    /// Packets given to the pipeline. Pieces of a split packet, packets behind such pieces,
    /// reassembled packets, relayed packets, and early packets whose SA has come count again.
    pub received: u64,
    /// Octets of the received packets.
    pub received_bytes: u64,
    /// ICMP errors made in place of packets that count as dropped.
    pub generated: u64,
    /// To be routed on.
    pub forwarded: u64,
    /// Octets of the forwarded packets.
    pub forwarded_bytes: u64,
    /// For the kernel.
    pub to_host: u64,
    /// ICMP errors given back.
    pub replies: u64,
    /// Given back to be split, or to be sent behind pieces.
    pub to_split: u64,
    /// Given back to wait for their shard.
    pub to_wait: u64,
    /// Fragments given back to be reassembled.
    pub to_join: u64,
    /// Given back to be protected again, from one tunnel into another.
    pub onward: u64,
    /// Given back to wait for their SA, and not given up since.
    pub early: u64,
    /// Sent on to another node, which carries their shard.
    pub relayed: u64,
    /// Relayed by another node. They count again, as what they were there.
    pub relayed_in: u64,
    /// Dropped, for all reasons.
    pub dropped: u64,
}

impl DirectionTotals {
    /// True if every packet is accounted for. It holds between two bursts.
    pub fn is_balanced(&self) -> bool {
        self.received + self.generated
            == self.forwarded
                + self.to_host
                + self.replies
                + self.to_split
                + self.to_wait
                + self.to_join
                + self.onward
                + self.early
                + self.relayed
                + self.relayed_in
                + self.dropped
    }
}

/// All totals at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The packets of `outbound`.
    pub outbound: DirectionTotals,
    /// The packets of `inbound`.
    pub inbound: DirectionTotals,
    /// ICMP errors not sent, because the packet must not be answered or the rate is reached.
    pub icmp_suppressed: u64,
    /// TCP segments whose MSS was lowered.
    pub mss_clamped: u64,
    /// Inbound SAs.
    pub inbound_sas: u64,
    /// Outbound SAs.
    pub outbound_sas: u64,
}

impl Counters {
    pub(super) fn new() -> Self {
        Self {
            outbound: DirectionCounters::new(),
            inbound: DirectionCounters::new(),
            icmp_suppressed: Counter::default(),
            mss_clamped: Counter::default(),
            inbound_sas: Counter::default(),
            outbound_sas: Counter::default(),
            relayed_of: Box::new(std::array::from_fn(|_| Counter::default())),
        }
    }

    /// A packet of this shard goes to the node that carries it. One that another node has relayed
    /// does not count: the shard may follow its packets, and routers gave it to that node.
    pub(super) fn relays(&self, ingress: Ingress, shard: Shard) {
        if let Some(counter) = self.relayed_of.get(usize::from(shard.0))
            && !ingress.is_relayed()
        {
            counter.add(1);
        }
    }

    /// Packets of each shard that went to the node that carries it.
    pub fn relayed_by_shard(&self) -> impl Iterator<Item = u64> + '_ {
        self.relayed_of.iter().map(Counter::get)
    }

    /// The totals now. Those of a busy worker may be a burst apart from each other.
    pub fn totals(&self) -> Totals {
        Totals {
            outbound: self.outbound.totals(),
            inbound: self.inbound.totals(),
            icmp_suppressed: self.icmp_suppressed.get(),
            mss_clamped: self.mss_clamped.get(),
            inbound_sas: self.inbound_sas.get(),
            outbound_sas: self.outbound_sas.get(),
        }
    }

    /// Packets dropped by `outbound` for this reason.
    pub fn dropped_outbound(&self, reason: DropReason) -> u64 {
        self.outbound.drops.get(reason as usize).map_or(0, Counter::get)
    }

    /// Packets dropped by `inbound` for this reason.
    pub fn dropped_inbound(&self, reason: DropReason) -> u64 {
        self.inbound.drops.get(reason as usize).map_or(0, Counter::get)
    }

    /// Packets from outside that an attacker may have sent, by reason. Those without an SA count
    /// when they come, and are dropped later.
    pub fn suspicious(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        self.inbound.samples.seen()
    }

    /// Takes samples of the suspicious packets of a reason: a few since the last call.
    pub fn take_samples(&self, reason: DropReason) -> impl Iterator<Item = Sample> + '_ {
        self.inbound.samples.take(reason)
    }

    /// Packets dropped in both directions for this reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped_outbound(reason) + self.dropped_inbound(reason)
    }
}
