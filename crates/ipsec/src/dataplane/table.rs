//! Outbound SAs by policy.

use crate::number::{RowClock, Rows, Stripes};
use crate::sa::OutboundSa;
use crate::spd::PolicyId;
use std::cell::Cell;
use std::sync::Arc;
use testudo_base::spi::Shard;
use testudo_crypto::prefetch;

/// Policies of a block.
const POLICIES_PER_BLOCK: usize = 1024;
const BLOCKS: usize = PolicyId::LIMIT as usize / POLICIES_PER_BLOCK;

/// Places for the outbound SAs of policies with consecutive numbers. Control allocates a block, and
/// a worker uses it: a worker has as many blocks as the used numbers need, and never moves all of
/// them.
#[derive(Clone, Debug)]
pub struct PolicyBlock {
    number: usize,
    places: Box<[PolicyPlace]>,
}

/// The SA of one policy.
#[derive(Clone, Debug, Default)]
pub(super) struct PolicyPlace {
    pub(super) sa: Option<Arc<OutboundSa>>,
    /// The SA for all workers, while `sa` is this worker's own (RFC 9611). Packets never look here.
    pub(super) fallback: Option<Arc<OutboundSa>>,
    /// `sa` is this worker's own.
    pub(super) is_own: bool,
    /// Numbers of the SA, if it is spread.
    pub(super) stripes: Option<Arc<Stripes>>,
    /// When control was last told that the SA is missing, or that its sequence numbers run low.
    pub(super) told: Cell<Option<u64>>,
    /// The start of the measurement of the SA's rate.
    pub(super) sampled: Cell<Sample>,
    /// Home shard of packets that find no SA.
    pub(super) home: Option<Shard>,
}

/// The numbers that an SA had used at some time; of a spread SA, its rows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    at: u64,
    packets: u64,
}

impl Sample {
    /// The sample at the time `now`, in milliseconds.
    pub(super) fn now(sa: &OutboundSa, clock: Option<&dyn RowClock>, now: u64) -> Self {
        // The clock moves the rows of a spread SA on even while other nodes send.
        let row = |rows: &Rows| rows.next_row().max(row_now(sa, clock));
        let packets = sa.rows().map_or_else(|| sa.counters().totals().packets, row);
        Self { at: now, packets }
    }

    /// Packets, or rows, a second from this sample to `later`. Less than a millisecond counts as one.
    pub(super) fn rate(self, later: Self) -> u64 {
        let milliseconds = later.at.saturating_sub(self.at).max(1);
        later.packets.saturating_sub(self.packets).saturating_mul(1000) / milliseconds
    }
}

/// The row of a spread SA, by the clock.
pub(super) fn row_now(sa: &OutboundSa, clock: Option<&dyn RowClock>) -> u64 {
    clock.map_or(0, |clock| clock.now(sa.pair.shard()))
}

impl PolicyBlock {
    /// The empty block with the place of this policy.
    pub fn of(policy: PolicyId) -> Self {
        let places = (0..POLICIES_PER_BLOCK).map(|_| PolicyPlace::default()).collect();
        Self { number: policy.index() / POLICIES_PER_BLOCK, places }
    }

    /// Policies of a block: the first one's number is a multiple of it.
    pub const LENGTH: u32 = POLICIES_PER_BLOCK as u32;
}

/// The outbound SAs of a worker.
#[derive(Debug)]
pub(crate) struct OutboundTable {
    blocks: Box<[Option<Box<PolicyBlock>>]>,
}

impl OutboundTable {
    /// A table without places.
    pub(super) fn new() -> Self {
        Self { blocks: (0..BLOCKS).map(|_| None).collect() }
    }

    /// Adds places. Returns the block if its places exist already.
    pub(super) fn add(&mut self, block: Box<PolicyBlock>) -> Option<Box<PolicyBlock>> {
        match self.blocks.get_mut(block.number) {
            Some(place) if place.is_none() => {
                *place = Some(block);
                None
            }
            _ => Some(block),
        }
    }

    #[inline]
    pub(super) fn get(&self, policy: PolicyId) -> Option<&PolicyPlace> {
        let block = self.blocks.get(policy.index() / POLICIES_PER_BLOCK)?.as_ref()?;
        block.places.get(policy.index() % POLICIES_PER_BLOCK)
    }

    /// Prefetches the SAs of policies, step by step: what the next step reads is on its way before
    /// the first of it is needed. Each policy comes with the octets of its packet.
    #[inline]
    pub(super) fn prefetch(&self, policies: &[(PolicyId, u16)]) {
        policies
            .iter()
            .filter_map(|(policy, _)| self.get(*policy))
            .for_each(|place| prefetch(place, size_of::<PolicyPlace>()));
        let sas = || policies.iter().filter_map(|(policy, len)| Some((self.sa(*policy)?, *len)));
        sas().for_each(|(sa, _)| sa.prefetch());
        sas().for_each(|(sa, len)| sa.prefetch_state(usize::from(len)));
    }

    #[inline]
    pub(super) fn sa(&self, policy: PolicyId) -> Option<&OutboundSa> {
        self.get(policy)?.sa.as_deref()
    }

    pub(super) fn get_mut(&mut self, policy: PolicyId) -> Option<&mut PolicyPlace> {
        let block = self.blocks.get_mut(policy.index() / POLICIES_PER_BLOCK)?.as_mut()?;
        block.places.get_mut(policy.index() % POLICIES_PER_BLOCK)
    }
}
