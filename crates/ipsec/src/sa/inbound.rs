//! The inbound half of a Child SA.

use super::counters::{SaCounters, SaTotals};
use super::{Around, ChildSaParams, Encapsulation, HeaderCopy, Mode, Mss, MssLimit, SaKey};
use crate::error::Error;
use crate::esp::{Outer, Overhead};
use crate::packet_selector::Direction;
use crate::replay::{LaneFloor, Lanes, MAX_WINDOW, ReplayWindow, WindowSnapshot};
use crate::selector::SelectorPair;
use crate::spd::PolicyId;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64};
use testudo_base::lane;
use testudo_base::shard::ShardSet;
use testudo_base::spi::{Shard, Spi};
use testudo_crypto::{Library, prefetch};
use testudo_planted::{Plant, planted};

/// An inbound SA, shared by workers and control. The fields that every packet touches come first.
#[derive(Debug)]
#[repr(C)]
pub struct InboundSa {
    pub(crate) spi: Spi,
    pub(crate) encapsulation: Encapsulation,
    pub(crate) copy: HeaderCopy,
    pub(crate) esn: bool,
    pub(crate) mode: Mode,
    /// True for by far the most SAs.
    pub(crate) is_esp_tunnel: bool,
    /// Our side is every IPv4 address, or every IPv6 address, by negotiation or by configuration.
    is_everything: [bool; 2],
    /// True if ICMP errors may pass by the packet that they quote.
    icmp: AtomicBool,
    pub(crate) around: Around,
    /// The largest packet that fits the path back, for the MSS.
    inner_mtu: AtomicU16,
    pub(crate) mss: MssLimit,
    pub(crate) window: ReplayWindow,
    /// Set if the SA is spread over the nodes.
    lanes: Option<Box<Lanes>>,
    /// The window's high-water mark at the last report.
    told_high_water_mark: AtomicU64,
    pub(crate) key: SaKey,
    pub(crate) selectors: SelectorPair,
    pub(crate) counters: SaCounters,
    /// Digest of the outer source that control knows.
    known_source: AtomicU64,
    /// When control was last told of another source, in seconds from 1.
    source_told: AtomicU32,
    /// Octets that the outbound half adds.
    overhead: Overhead,
    policy: PolicyId,
}

/// The state that must outlive a node: window and counters as plain data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboundSnapshot {
    /// The replay window.
    pub window: WindowSnapshot,
    /// The counters.
    pub totals: SaTotals,
}

impl InboundSa {
    /// Builds the SA. `path_mtu` is the MTU towards the peer's outer address, as for the outbound
    /// half.
    pub fn new(
        params: &ChildSaParams,
        policy: PolicyId,
        path_mtu: u16,
        library: Library,
    ) -> Result<Self, Error> {
        let overhead = Outer::new(params)?.overhead();
        let selectors = params.selectors()?;
        Ok(Self {
            spi: params.spi_in,
            encapsulation: params.encapsulation,
            copy: params.copy,
            esn: params.esn,
            mode: params.mode,
            around: params.algorithm.sizes(params.local.is_ipv6()).around(),
            is_esp_tunnel: params.mode == Mode::Tunnel && !params.algorithm.is_ah(),
            is_everything: [false, true].map(|v6| selectors.is_local_everything(v6)),
            icmp: AtomicBool::new(false),
            inner_mtu: AtomicU16::new(overhead.inner_mtu(path_mtu)?),
            mss: MssLimit::new(Mss::Auto),
            window: ReplayWindow::new(params.replay_window, params.esn)?,
            lanes: None,
            told_high_water_mark: AtomicU64::new(0),
            key: SaKey::take(params.algorithm, &params.key_in, library)?,
            selectors,
            counters: SaCounters::new(Direction::In),
            known_source: AtomicU64::new(digest(params.remote)),
            source_told: AtomicU32::new(0),
            overhead,
            policy,
        })
    }

    /// The SPI that we chose.
    pub fn spi(&self) -> Spi {
        self.spi
    }

    /// Shares the memory of equal selectors, and frees its own.
    #[must_use]
    pub fn sharing(mut self, selectors: &SelectorPair) -> Self {
        self.selectors.share(selectors);
        self
    }

    /// Tells the SA the selectors that its child is configured with. If our side of them is all
    /// addresses, decrypted packets may leave by the default route, however little of it the peer
    /// has negotiated.
    #[must_use]
    pub fn configured(mut self, child: &SelectorPair) -> Self {
        for (is_everything, v6) in self.is_everything.iter_mut().zip([false, true]) {
            *is_everything |= child.is_local_everything(v6);
        }
        self
    }

    /// Spreads the SA: several nodes receive for it, each the numbers of the lanes that it carries.
    /// A window that is checked is as large as it can be, because packets of a lane wait while it
    /// comes from another node.
    #[must_use]
    pub fn spread(mut self) -> Self {
        if let Some(window) = self.window.is_checked().then(|| ReplayWindow::new(MAX_WINDOW, self.esn).ok()) {
            self.window = window.unwrap_or(self.window);
        }
        self.lanes = Some(Box::default());
        self
    }

    /// The lanes, if the SA is spread.
    #[inline]
    pub(crate) fn lanes(&self) -> Option<&Lanes> {
        self.lanes.as_deref()
    }

    /// The lane of a number, by its low bits, if the SA is spread.
    #[inline]
    pub(crate) fn lane(&self, low: u32) -> Option<Shard> {
        self.lanes.is_some().then(|| lane::of_number(self.spi, low))
    }

    /// The highest number of each of these lanes that was accepted here, or that the node was told
    /// of when it got the lane. Lanes without one are left out, and so are all of an SA that is not
    /// spread. Exact once all workers have stopped to carry the lanes.
    pub fn lane_tops(&self, lanes: ShardSet) -> Vec<(Shard, u64)> {
        self.lanes().map_or_else(Vec::new, |known| known.tops(lanes))
    }

    /// Makes all numbers of a lane up to its floor count as seen. Without a replay window no number
    /// ever does. The floor does not touch the other lanes of this node: by a floor above all that
    /// the peer has sent, the high bits of their numbers would be inferred wrongly.
    pub(crate) fn take_in_lane(&self, LaneFloor { lane, floor, known, .. }: LaneFloor) {
        let Some(lanes) = self.lanes().filter(|_| !planted(Plant::NoFloor)) else { return };
        self.window.follow(known);
        if self.window.is_checked() {
            lanes.raise(lane, floor);
        }
    }

    /// Prefetches the SA itself.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch(self, size_of::<Self>());
    }

    /// Prefetches window, selectors, and the key's schedule for this many octets of text. The SA
    /// should be in the cache by now.
    #[inline]
    pub(crate) fn prefetch_state(&self, len: usize) {
        self.window.prefetch();
        self.selectors.prefetch();
        self.key.prefetch(len);
    }

    /// Makes the key's schedule, unless it exists.
    pub fn expand_key(&self) -> Result<(), Error> {
        self.key.expand()
    }

    /// The policy that the SA serves.
    pub fn policy(&self) -> PolicyId {
        self.policy
    }

    /// True if our side leaves out some addresses of the family: a routed packet has then arrived
    /// only where our own routes lead further inside.
    #[inline]
    #[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "a truth value is 0 or 1"))]
    pub(crate) fn has_inside(&self, v6: bool) -> bool {
        !self.is_everything[usize::from(v6)]
    }

    /// The largest packet that fits the path back.
    #[inline]
    pub fn inner_mtu(&self) -> u16 {
        self.inner_mtu.load(Relaxed)
    }

    /// The largest packet that fits the path back, if another SA goes around this one and takes
    /// packets of `size` octets.
    pub(crate) fn inner_mtu_within(&self, size: u16) -> u16 {
        self.overhead.inner_mtu_within(size)
    }

    /// Sets a new path MTU of the path back.
    pub fn set_path_mtu(&self, path_mtu: u16) -> Result<(), Error> {
        self.inner_mtu.store(self.overhead.inner_mtu(path_mtu)?, Relaxed);
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

    /// True if packets come from another source than control knows, and control was not told within
    /// this second of the clock `now`, in milliseconds. An event may be lost, and a peer may have a
    /// new address with each packet.
    #[inline]
    pub(crate) fn is_news(&self, source: SocketAddr, now: u64) -> bool {
        self.known_source.load(Relaxed) != digest(source) && self.source_told.load(Relaxed) != second(now)
    }

    /// Control is being told the source of packets.
    pub(crate) fn set_source_told(&self, now: u64) {
        self.source_told.store(second(now), Relaxed);
    }

    /// Control knows this source now, whatever it does about it, and need not be told again.
    pub fn set_known_source(&self, source: SocketAddr) {
        self.known_source.store(digest(source), Relaxed);
    }

    /// The replay window.
    pub fn window(&self) -> &ReplayWindow {
        &self.window
    }

    /// The highest accepted number, if it has moved since the last call: the owner reports it to
    /// the other nodes of a cluster now and then.
    pub fn take_high_water_mark(&self) -> Option<u64> {
        let mark = self.window.high_water_mark();
        (self.told_high_water_mark.fetch_max(mark, Relaxed) < mark).then_some(mark)
    }

    /// The SA's counters.
    pub fn counters(&self) -> &SaCounters {
        &self.counters
    }

    /// The SA's changing state as plain data.
    pub fn snapshot(&self) -> InboundSnapshot {
        InboundSnapshot { window: self.window.snapshot(), totals: self.counters.totals() }
    }

    /// Rebuilds the SA from its parameters and a snapshot.
    pub fn restore(
        params: &ChildSaParams,
        policy: PolicyId,
        path_mtu: u16,
        snapshot: &InboundSnapshot,
        library: Library,
    ) -> Result<Self, Error> {
        let mut sa = Self::new(params, policy, path_mtu, library)?;
        sa.window.restore(&snapshot.window)?;
        sa.counters.restore(&snapshot.totals);
        Ok(sa)
    }
}

/// The second of a clock in milliseconds; never 0.
fn second(now: u64) -> u32 {
    ((now / 1000) as u32).wrapping_add(1).max(1)
}

/// Address and port in one word: exact for IPv4, mixed for IPv6.
#[inline]
fn digest(addr: SocketAddr) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    match addr {
        SocketAddr::V4(addr) => u64::from(addr.ip().to_bits()) << 16 | u64::from(addr.port()),
        SocketAddr::V6(addr) => {
            let bits = addr.ip().to_bits();
            let mixed = ((bits >> 64) as u64).wrapping_mul(ODD).rotate_left(32) ^ bits as u64;
            mixed.wrapping_mul(ODD) ^ u64::from(addr.port())
        }
    }
}
