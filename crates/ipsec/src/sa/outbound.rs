//! The outbound half of a Child SA.

use super::counters::{SaCounters, SaTotals};
use super::{ChildSaParams, HeaderCopy, Mss, MssLimit, SaKey};
use crate::error::Error;
use crate::esp::Outer;
use crate::number::{Rows, SequenceAllocator, SequenceBlock};
use crate::packet_selector::Direction;
use crate::pmtu::TooBig;
use crate::selector::SelectorPair;
use crate::spd::PolicyId;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU16};
use testudo_base::lane::Spread;
use testudo_base::spi::Spi;
use testudo_crypto::{Library, prefetch};

/// An outbound SA, shared by workers and control. The fields that every packet touches come first.
#[derive(Debug)]
#[repr(C)]
pub struct OutboundSa {
    shared: Arc<OutboundState>,
    /// Set if the SA is spread over the nodes. Shared as `shared` is.
    spread: Option<Arc<SpreadState>>,
    /// The largest inner packet that fits the path.
    inner_mtu: AtomicU16,
    path_mtu: AtomicU16,
    pub(crate) copy: HeaderCopy,
    pub(crate) esn: bool,
    /// True if ICMP errors may pass by the packet that they quote.
    icmp: AtomicBool,
    pub(crate) mss: MssLimit,
    pub(crate) spi: Spi,
    pub(crate) key: SaKey,
    pub(crate) outer: Outer,
    pub(crate) selectors: SelectorPair,
    policy: PolicyId,
    /// SPI of the inbound half.
    pub(crate) pair: Spi,
}

/// The state that an SA shares with its former self after a move, so that no number is used twice
/// in between.
#[derive(Debug)]
#[repr(C)]
struct OutboundState {
    numbers: SequenceAllocator,
    counters: SaCounters,
}

/// The state of a spread SA in place of `numbers`, which it does not use.
#[derive(Debug)]
struct SpreadState {
    by: Spread,
    rows: Rows,
}

/// The state that must outlive a node: numbers, path MTU and counters as plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboundSnapshot {
    /// The unused numbers.
    pub numbers: SequenceBlock,
    /// The path MTU.
    pub path_mtu: u16,
    /// The counters.
    pub totals: SaTotals,
}

impl OutboundSa {
    /// Builds the SA for a policy. `path_mtu` is the MTU towards the peer's outer address.
    pub fn new(
        params: &ChildSaParams,
        policy: PolicyId,
        numbers: SequenceBlock,
        path_mtu: u16,
        library: Library,
    ) -> Result<Self, Error> {
        Self::counting(params, policy, numbers, path_mtu, SaCounters::new(Direction::Out), library)
    }

    fn counting(
        params: &ChildSaParams,
        policy: PolicyId,
        numbers: SequenceBlock,
        path_mtu: u16,
        counters: SaCounters,
        library: Library,
    ) -> Result<Self, Error> {
        let outer = Outer::new(params)?;
        let inner_mtu = outer.overhead().inner_mtu(path_mtu)?;
        let numbers = SequenceAllocator::new(numbers, params.esn)?;
        Ok(Self {
            shared: Arc::new(OutboundState { numbers, counters }),
            spread: None,
            inner_mtu: AtomicU16::new(inner_mtu),
            path_mtu: AtomicU16::new(path_mtu),
            copy: params.copy,
            esn: params.esn,
            icmp: AtomicBool::new(false),
            mss: MssLimit::new(Mss::Auto),
            spi: params.spi_out,
            key: SaKey::take(params.algorithm, &params.key_out, library)?,
            outer,
            selectors: params.selectors()?,
            policy,
            pair: params.spi_in,
        })
    }

    /// Shares the memory of equal selectors, and frees its own.
    #[must_use]
    pub fn sharing(mut self, selectors: &SelectorPair) -> Self {
        self.selectors.share(selectors);
        self
    }

    /// Spreads the SA: several nodes send by it, each the packets of the lanes that it carries. Its
    /// numbers come from stripes only ([`crate::dataplane::Command::SetStripes`]).
    #[must_use]
    pub fn spread(mut self, by: Spread) -> Self {
        self.spread = Some(Arc::new(SpreadState { by, rows: Rows::new() }));
        self
    }

    /// How its packets are spread, if the SA is spread.
    #[inline]
    pub fn spread_by(&self) -> Option<Spread> {
        self.spread.as_ref().map(|state| state.by)
    }

    /// The rows, if the SA is spread.
    #[inline]
    pub(crate) fn rows(&self) -> Option<&Rows> {
        self.spread.as_ref().map(|state| &state.rows)
    }

    /// Above all rows that this node has used of a spread SA.
    pub fn next_row(&self) -> u64 {
        self.rows().map_or(0, Rows::next_row)
    }

    /// True if both are one SA, and count the same rows: one of them is the other, moved.
    pub(crate) fn shares_rows(&self, other: &Self) -> bool {
        let rows = (&self.spread, &other.spread);
        self.pair == other.pair && matches!(rows, (Some(own), Some(others)) if Arc::ptr_eq(own, others))
    }

    /// Prefetches the SA itself.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch(self, size_of::<Self>());
    }

    /// Prefetches numbers, counters, and the key's schedule for this many octets of text. The SA
    /// should be in the cache by now.
    #[inline]
    pub(crate) fn prefetch_state(&self, len: usize) {
        prefetch(&*self.shared, size_of::<OutboundState>());
        self.key.prefetch(len);
    }

    /// Makes the key's schedule, unless it exists.
    pub fn expand_key(&self) -> Result<(), Error> {
        self.key.expand()
    }

    /// The SPI that the peer chose.
    pub fn spi(&self) -> Spi {
        self.spi
    }

    /// The policy that the SA serves.
    pub fn policy(&self) -> PolicyId {
        self.policy
    }

    /// The peer's outer address.
    pub fn remote(&self) -> IpAddr {
        self.outer.remote()
    }

    /// True if the packet that a router quotes was sent here, and recently. A packet that another
    /// node has sent is recognised by that node, which then publishes the path MTU.
    pub fn has_sent(&self, told: &TooBig) -> bool {
        let ends = (self.outer.local(), self.outer.remote(), self.outer.is_udp());
        self.spi == told.spi && ends == (told.local, told.remote, told.udp) && self.has_used(told)
    }

    fn has_used(&self, told: &TooBig) -> bool {
        let Some(rows) = self.rows() else { return told.is_recent(&self.numbers().used()) };
        let used = rows.used();
        told.is_recent(&used) && rows.is_own(told.sequence, used.end)
    }

    /// Octets that fit the path, outer header included.
    pub fn path_mtu(&self) -> u16 {
        self.path_mtu.load(Relaxed)
    }

    /// The largest inner packet that fits the path.
    #[inline]
    pub fn inner_mtu(&self) -> u16 {
        self.inner_mtu.load(Relaxed)
    }

    /// The largest inner packet, if another SA goes around this one and takes packets of `size`
    /// octets.
    pub(crate) fn inner_mtu_within(&self, size: u16) -> u16 {
        self.outer.overhead().inner_mtu_within(size)
    }

    /// Sets a new path MTU.
    pub fn set_path_mtu(&self, path_mtu: u16) -> Result<(), Error> {
        self.inner_mtu.store(self.outer.overhead().inner_mtu(path_mtu)?, Relaxed);
        self.path_mtu.store(path_mtu, Relaxed);
        Ok(())
    }

    /// Sets whether ICMP errors may pass by the packet that they quote (RFC 4301 §6.2).
    pub fn set_icmp(&self, icmp: bool) {
        self.icmp.store(icmp, Relaxed);
    }

    /// True if ICMP errors may pass by the packet that they quote.
    pub(crate) fn passes_icmp(&self) -> bool {
        self.icmp.load(Relaxed)
    }

    /// Sets how far the MSS of TCP connections is lowered.
    pub fn set_mss(&self, mss: Mss) {
        self.mss.set(mss);
    }

    /// Sequence numbers of the SA.
    #[inline]
    pub fn numbers(&self) -> &SequenceAllocator {
        &self.shared.numbers
    }

    /// The SA's counters.
    #[inline]
    pub fn counters(&self) -> &SaCounters {
        &self.shared.counters
    }

    /// The SA's changing state as plain data.
    pub fn snapshot(&self) -> OutboundSnapshot {
        OutboundSnapshot {
            numbers: self.numbers().block(),
            path_mtu: self.path_mtu(),
            totals: self.counters().totals(),
        }
    }

    /// Rebuilds the SA from its parameters and a snapshot. A node that takes an SA over passes a
    /// snapshot whose numbers are a new block.
    pub fn restore(
        params: &ChildSaParams,
        policy: PolicyId,
        snapshot: &OutboundSnapshot,
        library: Library,
    ) -> Result<Self, Error> {
        let mut counters = SaCounters::new(Direction::Out);
        counters.restore(&snapshot.totals);
        Self::counting(params, policy, snapshot.numbers, snapshot.path_mtu, counters, library)
    }

    /// The same SA with other outer addresses (RFC 7296 §2.23). A worker may still use the former
    /// one while the new one is on its way; both draw from the same numbers.
    pub fn moved(&self, local: SocketAddr, remote: SocketAddr, path_mtu: u16) -> Result<Self, Error> {
        let outer = self.outer.moved(local, remote, self.key.mac())?;
        let moved = Self {
            shared: Arc::clone(&self.shared),
            spread: self.spread.clone(),
            inner_mtu: AtomicU16::new(outer.overhead().inner_mtu(path_mtu)?),
            path_mtu: AtomicU16::new(path_mtu),
            copy: self.copy,
            esn: self.esn,
            icmp: AtomicBool::new(self.passes_icmp()),
            mss: self.mss.clone(),
            spi: self.spi,
            key: self.key.copy(),
            outer,
            selectors: self.selectors.clone(),
            policy: self.policy,
            pair: self.pair,
        };
        if self.key.is_expanded() {
            moved.expand_key()?;
        }
        Ok(moved)
    }
}
