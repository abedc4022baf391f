//! The packet pipeline of one worker. Bursts in, verdicts out; no allocation, lock or system call.
//!
//! The worker owns its [`Dataplane`]. Control changes it by [`Command`]s, which the worker applies
//! between bursts. What a command displaces goes back as [`Garbage`], and control frees it. Control
//! may read the [`Counters`], and those inside the SAs, at any time.

mod burst;
mod clear;
mod command;
mod counters;
mod event;
mod fence;
mod identification;
mod inbound;
mod limit;
mod local;
mod outbound;
mod relay;
mod reply;
mod sample;
mod shards;
mod table;
mod transit;
mod turn;

pub use burst::{BURST, Ingress, Item, Verdict};
pub use command::{Command, Garbage};
pub use counters::{Counters, DirectionTotals, Totals};
pub use event::Event;
pub use local::LocalAddrs;
pub use relay::{Relay, RelayParams};
pub use sample::{HEAD_OCTETS, Sample, SampleSlots};
pub use table::PolicyBlock;
pub use testudo_wire::icmp::Sources;
pub use transit::Note;
pub use turn::Turn;

use crate::flow::FlowCache;
use crate::number::{IvAllocator, RowClock, WorkerId};
use crate::sa::OutboundSa;
use crate::sad::Sad;
use crate::spd::{PolicyId, Spd};
use event::Events;
use identification::Identifications;
use limit::TokenBucket;
use std::net::IpAddr;
use std::sync::Arc;
use table::OutboundTable;
use testudo_base::shard::ShardSet;
use testudo_base::siphash::SipKey;
use testudo_base::spi::SenderId;
use testudo_planted::{Plant, planted};
use transit::Transit;

/// The settings of a worker's pipeline.
#[derive(Clone, Debug)]
pub struct Config {
    /// Number of the worker on its node.
    pub worker: WorkerId,
    /// Number of workers of the node.
    pub workers: u8,
    /// The sender ID of its IVs, which must never have been used under any key that is still in
    /// use. Without one the worker cannot send until [`Command::SetSenderId`] brings it.
    pub sender: Option<SenderId>,
    /// Our port of UDP-encapsulated ESP, usually 4500.
    pub udp_port: u16,
    /// A random number, so that outsiders cannot choose flows that collide in the cache.
    pub seed: u64,
    /// The flow cache holds `2^flow_bits` sets of two flows of 64 octets each; at most 20.
    pub flow_bits: u32,
    /// Bound on the ICMP errors that the worker sends in a second.
    pub icmp_per_second: u32,
}

impl Config {
    /// The usual settings of a single worker.
    pub fn new(worker: WorkerId, sender: impl Into<Option<SenderId>>, seed: u64) -> Self {
        Self {
            worker,
            workers: 1,
            sender: sender.into(),
            udp_port: 4500,
            seed,
            flow_bits: 12,
            icmp_per_second: 1000,
        }
    }
}

/// The pipeline of one worker.
#[derive(Debug)]
pub struct Dataplane {
    worker: WorkerId,
    spd: Arc<Spd>,
    outbound: OutboundTable,
    flows: FlowCache,
    ivs: IvAllocator,
    /// When control was last told that the IVs run low.
    iv_low_told: Option<u64>,
    sad: Sad,
    local: Arc<LocalAddrs>,
    /// Shards that this node carries.
    shards: ShardSet,
    /// Shards that come or go.
    transit: Transit,
    /// Set if packets reach one node only, so that those of other nodes are relayed.
    relay: Option<Arc<Relay>>,
    /// Key of the hashes by which this node keeps packets whose shard no SA shows, and finds the
    /// lanes of clear packets.
    pairs: SipKey,
    /// Clock of the rows of spread SAs.
    clock: Option<Arc<dyn RowClock>>,
    open: bool,
    udp_port: u16,
    icmp_limit: TokenBucket,
    /// Identifications of outer IPv4 headers.
    ids: Identifications,
    now: u64,
    counters: Arc<Counters>,
    events: Events,
}

impl Dataplane {
    /// A pipeline without policies and SAs: it drops everything.
    pub fn new(config: &Config) -> Self {
        Self {
            worker: config.worker,
            spd: Arc::new(Spd::empty()),
            outbound: OutboundTable::new(),
            flows: FlowCache::new(config.flow_bits, config.seed),
            ivs: IvAllocator::new(config.sender, config.worker),
            iv_low_told: None,
            sad: Sad::new(),
            local: Arc::new(LocalAddrs::default()),
            shards: ShardSet::ALL,
            transit: Transit::default(),
            relay: None,
            pairs: SipKey::new([0; 16]),
            clock: None,
            open: true,
            udp_port: config.udp_port,
            icmp_limit: TokenBucket::new(config.icmp_per_second),
            ids: Identifications::new(config.worker.get(), config.workers),
            now: 0,
            counters: Arc::new(Counters::new()),
            events: Events::new(),
        }
    }

    /// Sets the time, in milliseconds since any origin. To be called once per turn of the worker's
    /// loop.
    #[inline]
    pub fn set_now(&mut self, milliseconds: u64) {
        self.now = milliseconds;
        self.icmp_limit.refill(milliseconds);
    }

    /// Opens or shuts the pipeline. While shut it drops all packets in both directions: a node of a
    /// cluster must not touch a packet once others may have taken its shards. To be called before
    /// each burst, or once per turn of the worker's loop.
    #[inline]
    pub fn set_open(&mut self, open: bool) {
        self.open = open || planted(Plant::NoFence);
    }

    /// The policies in force.
    pub fn spd(&self) -> &Spd {
        &self.spd
    }

    /// The outer address of the peer to whom the policy's packets go. `None` while the policy has
    /// no SA.
    pub fn peer(&self, policy: PolicyId) -> Option<IpAddr> {
        self.outbound.sa(policy).map(OutboundSa::remote)
    }

    /// The counters. Any thread may read them.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Takes the events since the last call, oldest first.
    pub fn drain_events(&mut self) -> impl Iterator<Item = Event> + '_ {
        self.events.drain()
    }
}

#[cfg(test)]
mod tests;
