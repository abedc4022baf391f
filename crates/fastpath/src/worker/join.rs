//! Reassembly: fragments that wait for the rest of their datagram, and the whole packets, each in a
//! frame of its own.

use super::classify::Direction;
use super::drops::WorkerDrop;
use super::origin::{Context, Copies, KeptPacket, Source};
use crate::frame::{Frame, FramePool, HEADROOM, JUMBO_MTU};
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use testudo_base::siphash::SipKey;
use testudo_ipsec::reassembly::{Limits, Loss, Reassembler, Whole};
use testudo_wire::fragment::Fragment;

/// Bound on the datagrams that wait at a time. A flood of forged fragments displaces them as fast
/// as it arrives: fragments are a poor way to send ESP, and only traffic that can bear the loss
/// should rely on them.
const MAX_DATAGRAMS: usize = 256;
/// Bound on the waiting datagrams of one source.
const MAX_DATAGRAMS_PER_SOURCE: usize = 32;
/// One source may have one in this many of the fragments.
const SOURCE_FRACTION: usize = 4;
/// Bound on the fragments that wait at a time; in a small pool an eighth of its frames.
const MAX_FRAGMENTS: usize = 512;
/// How long fragments wait, in milliseconds. RFC 791 §3.2 proposes 15 seconds, in which a fast peer
/// of today uses every IPv4 identification many times (RFC 4963). No path keeps the fragments of
/// one packet apart for two seconds.
const REASSEMBLY_TIMEOUT_MS: u64 = 2000;
/// After this many milliseconds a first fragment counts as another packet's than the fragments that
/// wait. No peer whose packets we could carry uses all identifications in less, and few networks
/// let fragments overtake each other by more.
const STALE_AFTER_MS: u64 = 100;
/// Bound on the packets of one burst whose last fragment has come.
const MAX_WHOLE: usize = 64;

/// A fragment's packet in its frame.
#[derive(Debug)]
struct WaitingFragment(Frame);

impl AsRef<[u8]> for WaitingFragment {
    fn as_ref(&self) -> &[u8] {
        self.0.data()
    }
}

/// All waiting fragments.
#[derive(Debug)]
pub(super) struct Joining {
    reassembler: Reassembler<WaitingFragment>,
    whole: VecDeque<KeptPacket>,
}

impl Joining {
    pub(super) fn new(frames: usize) -> Self {
        let fragments = MAX_FRAGMENTS.min(frames / 8).max(1);
        let limits = Limits {
            datagrams: MAX_DATAGRAMS,
            per_source: MAX_DATAGRAMS_PER_SOURCE,
            fragments,
            fragments_per_source: fragments.div_ceil(SOURCE_FRACTION),
            octets: JUMBO_MTU as usize,
            patience: REASSEMBLY_TIMEOUT_MS,
            stale: STALE_AFTER_MS,
        };
        let key =
            u128::from(RandomState::new().hash_one(())) << 64 | u128::from(RandomState::new().hash_one(1));
        let reassembler = Reassembler::new(limits, SipKey::new(key.to_le_bytes()));
        Self { reassembler, whole: VecDeque::with_capacity(MAX_WHOLE) }
    }

    /// The number of waiting fragments.
    pub(super) fn len(&self) -> usize {
        self.reassembler.held()
    }

    /// True if nothing waits, neither a fragment nor a whole packet.
    pub(super) fn is_empty(&self) -> bool {
        self.reassembler.is_empty()
    }

    /// Keeps a fragment, or drops it. Returns how many fragments have become one packet, if they
    /// have. `lost` is called for each dropped fragment, with its packet.
    pub(super) fn add(
        &mut self,
        frame: Frame,
        context: Context,
        now: u64,
        pool: &mut FramePool,
        lost: &mut impl FnMut(WorkerDrop, &[u8]),
    ) -> Option<u64> {
        let Ok(Some(fragment)) = Fragment::parse(frame.data()) else {
            lost(WorkerDrop::FragmentInvalid, frame.data());
            pool.give(frame);
            return None;
        };
        let (packet, way) = (WaitingFragment(frame), way(context));
        let whole = self.reassembler.add(packet, fragment, way, now, &mut |waiting: WaitingFragment, why| {
            lost(reason(why), waiting.as_ref());
            pool.give(waiting.0);
        });
        let whole = whole?;
        let fragments = whole.fragments();
        let frame = if self.whole.len() < MAX_WHOLE { copy(&whole, pool) } else { None };
        whole.into_packets().for_each(|waiting| pool.give(waiting.0));
        let Some(frame) = frame else {
            (0..fragments).for_each(|_| lost(WorkerDrop::NoFrame, &[]));
            return None;
        };
        let Context { source, direction, .. } = context;
        self.whole.push_back(KeptPacket { frame, source: source.joined(), direction });
        Some(fragments as u64)
    }

    /// Takes the next whole packet.
    #[inline]
    pub(super) fn take(&mut self) -> Option<KeptPacket> {
        self.whole.pop_front()
    }

    /// Drops fragments that have waited for too long.
    pub(super) fn expire(
        &mut self,
        now: u64,
        pool: &mut FramePool,
        lost: &mut impl FnMut(WorkerDrop, &[u8]),
    ) {
        self.reassembler.expire(now, &mut |waiting: WaitingFragment, why| {
            lost(reason(why), waiting.as_ref());
            pool.give(waiting.0);
        });
    }

    /// Drops everything.
    pub(super) fn clear(&mut self, pool: &mut FramePool, lost: &mut impl FnMut(WorkerDrop, &[u8])) {
        self.reassembler.clear(&mut |waiting: WaitingFragment, why| {
            lost(reason(why), waiting.as_ref());
            pool.give(waiting.0);
        });
    }
}

/// Copies the packet into the smallest frame that it fits.
fn copy(whole: &Whole<WaitingFragment>, pool: &mut FramePool) -> Option<Frame> {
    let len = whole.packet_len();
    let mut frame = pool.take_for(len)?;
    let start = usize::from(HEADROOM);
    let written = frame.set_extent(start, len) && whole.write(frame.data_mut());
    if written {
        return Some(frame);
    }
    pool.give(frame);
    None
}

/// Clear fragments belong together only if they came the same way, because the whole packet gets
/// the rights of that way. ESP needs no such check: its ICV protects it.
fn way(context: Context) -> u32 {
    match (context.direction, context.source) {
        (Direction::Inbound, _) => 0,
        (Direction::Outbound, Source::Port { place, copies, .. }) => {
            (1 << 16) | (u32::from(copies == Copies::Flooded) << 8) | u32::from(place)
        }
        (Direction::Outbound, Source::Relayed { place, .. }) => (7 << 16) | u32::from(place),
        (Direction::Outbound, Source::Tun | Source::TunJoined) => 2 << 16,
        (Direction::Outbound, Source::Tunnel { inside, .. }) => (3 << 16) | u32::from(inside.is_some()),
        (Direction::Outbound, Source::Again) => 4 << 16,
        (Direction::Clear, Source::Port { place, .. }) => (5 << 16) | u32::from(place),
        (Direction::Clear, _) => 6 << 16,
    }
}

fn reason(why: Loss) -> WorkerDrop {
    match why {
        Loss::Duplicate => WorkerDrop::FragmentDuplicate,
        Loss::Invalid => WorkerDrop::FragmentInvalid,
        Loss::Tiny => WorkerDrop::FragmentTiny,
        Loss::Overlap => WorkerDrop::FragmentOverlap,
        Loss::TooLarge => WorkerDrop::FragmentTooLarge,
        Loss::Ecn => WorkerDrop::FragmentEcn,
        Loss::Displaced => WorkerDrop::FragmentDisplaced,
        Loss::Timeout => WorkerDrop::FragmentTimeout,
    }
}
