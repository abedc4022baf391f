//! Packets to protect: look-up, size, numbers, cipher, outer header. Each stage goes over the whole burst before the next
//! begins, so that the memory accesses of different packets overlap.

use super::burst::{BURST, Ingress, Item, Verdict};
use super::counters::{Counters, DirectionCounters};
use super::event::{Event, Events, LOW_INTERVAL, NO_BLOCK_INTERVAL, NO_SA_INTERVAL};
use super::reply::Replier;
use super::shares::Shares;
use super::table::{OutboundTable, Sample};
use super::{Dataplane, fence};
use crate::drops::DropReason;
use crate::esp::{Marks, Outer, tunnel};
use crate::flow::{FlowCache, Path};
use crate::inner::Inner;
use crate::number::IvAllocator;
use crate::packet_selector::{Direction, PacketSelector};
use crate::sa::OutboundSa;
use crate::siphash::HashKey;
use crate::spd::{Action, Decision, PolicyId, Spd};
use arrayvec::ArrayVec;
use testudo_crypto::{Aad, SealJob, TAG_LEN, seal_burst};
use testudo_wire::icmp::{Kind, Sources};
use testudo_wire::ip::Protocol;
use testudo_wire::packet::PacketBuf;
use testudo_wire::{esp, ipv6};

/// A packet whose headers have been read.
struct Parsed {
    inner: Inner,
    hash: u64,
    at: u8,
}

/// A packet that will be encrypted.
struct Plan<'s> {
    sa: &'s OutboundSa,
    sequence: u64,
    iv: u64,
    len: u16,
    at: u8,
    class: u8,
    df: bool,
    /// The largest piece, if the outer packet must be fragmented.
    pieces: Option<u16>,
    next_header: Protocol,
}

type Burst<T> = ArrayVec<T, BURST>;

impl Dataplane {
    /// Protects a burst of clear packets. Bursts longer than [`BURST`] are worked off in parts. ICMP errors about them come
    /// from `sources`: addresses of the interface that they came in by (RFC 1812 §4.3.2.4).
    pub fn outbound(&mut self, burst: &mut [Item<'_>], sources: &Sources) {
        if !self.open {
            return fence::refuse(burst, &self.counters.outbound);
        }
        for part in burst.chunks_mut(BURST) {
            self.outbound_part(part, sources);
        }
    }

    fn outbound_part(&mut self, burst: &mut [Item<'_>], sources: &Sources) {
        let counters = &*self.counters;
        let bytes: usize = burst.iter().map(|item| item.buf.len()).sum();
        counters.outbound.received.add(burst.len() as u64);
        counters.outbound.received_bytes.add(bytes as u64);

        let parsed = parse(burst, &self.flows, &counters.outbound);
        let paths = look_up(&parsed, &mut self.flows, &self.spd, &self.outbound);
        let mut planner = Planner {
            table: &self.outbound,
            shares: &self.shares,
            pairs: self.pairs,
            replier: Replier { sources, limit: &mut self.icmp_limit, counters },
            counters,
            events: &mut self.events,
            now: self.now,
        };
        let mut plans = Burst::new();
        for (parsed, path) in parsed.iter().zip(paths) {
            if let Some(item) = burst.get_mut(usize::from(parsed.at))
                && let Some(plan) = planner.plan(item, parsed, path)
            {
                plans.push(plan);
            }
        }
        let low = Low {
            table: &self.outbound,
            iv_told: &mut self.iv_low_told,
            events: &mut self.events,
            now: self.now,
        };
        number(&mut plans, &mut self.ivs, low);
        refuse_unnumbered(burst, &mut plans, &self.ivs, &counters.outbound);
        seal(burst, &plans, &mut self.next_id, &counters.outbound);
        want_keys(&plans, &mut self.events, self.now);
        finish(burst, &plans, &counters.outbound, &mut self.events, self.now);
    }
}

fn parse(burst: &mut [Item<'_>], flows: &FlowCache, counters: &DirectionCounters) -> Burst<Parsed> {
    let mut parsed = Burst::new();
    for (at, item) in burst.iter_mut().enumerate() {
        item.verdict = Verdict::Pending;
        match Inner::parse(item.buf.data(), Direction::Out) {
            Ok(inner) => {
                inner.trim(&mut item.buf);
                let hash = flows.hash(&inner.flow);
                parsed.push(Parsed { inner, hash, at: at as u8 });
            }
            Err(_) => refuse(item, DropReason::Malformed, counters),
        }
    }
    parsed
}

#[cold]
fn refuse(item: &mut Item<'_>, reason: DropReason, counters: &DirectionCounters) {
    counters.drop(reason);
    item.verdict = Verdict::Drop(reason);
}

fn look_up(parsed: &[Parsed], flows: &mut FlowCache, spd: &Spd, table: &OutboundTable) -> Burst<Path> {
    parsed.iter().map(|Parsed { inner, hash, .. }| path(*hash, &inner.flow, flows, spd, table)).collect()
}

/// What becomes of a flow: from the cache, or from the SPD and then the cache. `hash` is that of the flow.
#[inline]
pub(super) fn path(
    hash: u64,
    flow: &PacketSelector,
    flows: &mut FlowCache,
    spd: &Spd,
    table: &OutboundTable,
) -> Path {
    flows.get(hash, flow).unwrap_or_else(|| {
        let path = resolve(flow, spd, table);
        flows.insert(hash, flow, path);
        path
    })
}

#[cold]
fn resolve(flow: &PacketSelector, spd: &Spd, table: &OutboundTable) -> Path {
    match spd.lookup(flow) {
        Decision::Act(Action::Protect(policy)) => match table.sa(policy) {
            Some(sa) if !sa.selectors.accepts(flow) => Path::OutsideSa(policy),
            _ => Path::Protect(policy),
        },
        Decision::Act(Action::Bypass) => Path::Bypass,
        Decision::Act(Action::Discard) => Path::Discard,
        Decision::NoPolicy => Path::NoPolicy(spd.held_back(flow)),
    }
}

/// Decides what becomes of each packet, and prepares those that will be encrypted.
struct Planner<'s, 'd> {
    table: &'s OutboundTable,
    shares: &'d Shares,
    pairs: HashKey,
    replier: Replier<'d>,
    counters: &'d Counters,
    events: &'d mut Events,
    now: u64,
}

impl<'s> Planner<'s, '_> {
    #[inline]
    fn plan(&mut self, item: &mut Item<'_>, parsed: &Parsed, path: Path) -> Option<Plan<'s>> {
        let reason = match path {
            Path::Protect(policy) => match self.table.sa(policy) {
                Some(sa) if self.is_home(sa) => return self.protect(item, parsed, sa),
                Some(_) => DropReason::OtherNode,
                None => self.tell_no_sa(policy, &parsed.inner),
            },
            Path::Bypass if self.keeps_pair(item, &parsed.inner) => {
                self.bypass(item, &parsed.inner);
                return None;
            }
            Path::Bypass => DropReason::OtherNode,
            Path::OutsideSa(policy) => match self.table.sa(policy) {
                Some(sa) if self.is_home(sa) => {
                    sa.counters().add_drop(DropReason::OutsideSa);
                    DropReason::OutsideSa
                }
                Some(_) => DropReason::OtherNode,
                None => DropReason::OutsideSa,
            },
            Path::Discard => DropReason::PolicyDiscard,
            Path::NoPolicy(_) => DropReason::NoPolicy,
        };
        refuse(item, reason, &self.counters.outbound);
        None
    }

    /// True if this node carries the SA: what cannot be told apart before the policies are looked at comes to all nodes.
    #[inline]
    fn is_home(&self, sa: &OutboundSa) -> bool {
        self.shares.has(sa.pair.share())
    }

    /// True unless the packet has reached all nodes and another one lets it pass.
    fn keeps_pair(&self, item: &Item<'_>, inner: &Inner) -> bool {
        let share = || self.pairs.pair(inner.flow.local(), inner.flow.remote());
        item.ingress != Ingress::Shared || self.shares.has(share())
    }

    /// One node alone asks for the SA that is missing: several would set up several.
    #[cold]
    fn tell_no_sa(&mut self, policy: PolicyId, inner: &Inner) -> DropReason {
        let Some(place) = self.table.get(policy) else {
            return DropReason::NoSa;
        };
        if place.home.is_some_and(|home| !self.shares.has(home)) {
            return DropReason::OtherNode;
        }
        let due = place.told.get().is_none_or(|told| self.now.saturating_sub(told) >= NO_SA_INTERVAL);
        if due && self.events.raise(Event::NoSa { policy, packet: inner.flow }) {
            place.told.set(Some(self.now));
        }
        DropReason::NoSa
    }

    /// Takes a hop off packets that came through a port. False if there was none left; the packet is done with then.
    #[inline]
    fn take_hop(&mut self, item: &mut Item<'_>, inner: &Inner) -> bool {
        if item.ingress == Ingress::Host {
            return true;
        }
        if inner.ttl <= 1 {
            let (kind, reason) = (Kind::TimeExceeded, DropReason::TtlExceeded);
            self.replier.refuse(item, kind, reason, &self.counters.outbound);
            return false;
        }
        inner.decrement_ttl(item.buf.data_mut());
        true
    }

    fn bypass(&mut self, item: &mut Item<'_>, inner: &Inner) {
        if self.take_hop(item, inner) {
            self.counters.outbound.forwarded.add(1);
            self.counters.outbound.forwarded_bytes.add(u64::from(inner.len));
            item.verdict = Verdict::Forward;
        }
    }

    #[inline]
    fn protect(&mut self, item: &mut Item<'_>, parsed: &Parsed, sa: &'s OutboundSa) -> Option<Plan<'s>> {
        let inner = &parsed.inner;
        let mtu = sa.inner_mtu();
        let too_big = inner.len > mtu;
        if too_big && inner.df && inner.len > reported_mtu(inner, mtu) {
            let kind = Kind::TooBig { mtu: reported_mtu(inner, mtu) };
            sa.counters().add_drop(DropReason::TooBig);
            self.replier.refuse(item, kind, DropReason::TooBig, &self.counters.outbound);
            return None;
        }
        if !self.take_hop(item, inner) {
            return None;
        }
        if too_big && !inner.df && may_split(inner, sa) {
            self.counters.outbound.to_split.add(1);
            item.verdict = Verdict::Fragment { mtu };
            return None;
        }
        let behind = Outer::trailer_len(usize::from(inner.len)) + TAG_LEN;
        if item.buf.headroom() < sa.outer.prefix_len() || item.buf.tailroom() < behind {
            sa.counters().add_drop(DropReason::NoRoom);
            refuse(item, DropReason::NoRoom, &self.counters.outbound);
            return None;
        }
        if inner.clamp_mss(item.buf.data_mut(), mtu) {
            self.counters.mss_clamped.add(1);
        }
        Some(Plan {
            sa,
            sequence: 0,
            iv: 0,
            len: inner.len,
            at: parsed.at,
            class: tunnel::outer_class(sa.copy, inner.class),
            // What must pass whole although it is too big is fragmented outside, here or on its way.
            df: sa.copy.df && inner.df && !too_big,
            pieces: if too_big { pieces(sa, usize::from(inner.len) + behind) } else { None },
            next_header: inner.next_header(),
        })
    }
}

/// The largest piece of an outer packet that only its source may fragment, because it is IPv6 (RFC 8200 §5): one that is
/// larger than the path takes, and than every IPv6 link takes. `behind_prefix` are its octets behind the prefix.
#[cold]
fn pieces(sa: &OutboundSa, behind_prefix: usize) -> Option<u16> {
    let mtu = sa.path_mtu().max(ipv6::MIN_MTU);
    let total = sa.outer.prefix_len() + behind_prefix;
    (sa.outer.is_ipv6() && total > usize::from(mtu)).then_some(mtu)
}

/// True if the pieces of a packet may go through the SA too: where its selectors ask for ports, the later pieces have none
/// to show (RFC 4301 §7), and the packet is encrypted whole.
#[cold]
fn may_split(inner: &Inner, sa: &OutboundSa) -> bool {
    sa.selectors.accepts(&inner.flow.without_ports())
}

/// The MTU to tell a sender. No IPv6 sender can go below 1280 octets (RFC 8200 §5), so that packets up to that size must
/// pass whatever the path's MTU is.
#[inline]
fn reported_mtu(inner: &Inner, mtu: u16) -> u16 {
    if inner.is_ipv6() { mtu.max(ipv6::MIN_MTU) } else { mtu }
}

/// Gives each plan its sequence number and IV: one reservation per run of packets of one SA, and another where a block ends
/// within the run.
fn number(plans: &mut [Plan<'_>], ivs: &mut IvAllocator, mut low: Low<'_>) {
    for mut run in plans.chunk_by_mut(|a, b| std::ptr::eq(a.sa, b.sa)) {
        while let Some(sa) = run.first().map(|plan| plan.sa) {
            let numbered = number_some(run, sa, ivs, &mut low);
            if numbered == 0 {
                break;
            }
            run = run.get_mut(numbered..).unwrap_or_default();
        }
    }
}

/// Numbers as many packets of an SA as one reservation gives: from the front, none if there are no numbers.
#[inline]
fn number_some(run: &mut [Plan<'_>], sa: &OutboundSa, ivs: &mut IvAllocator, low: &mut Low<'_>) -> usize {
    // Without IVs no sequence number is used up.
    let wanted = ivs.left(run.len() as u32);
    if wanted == 0 {
        low.tell_ivs(ivs);
        return 0;
    }
    let numbers = sa.numbers().reserve(wanted);
    let reserved = ivs.reserve(numbers.count as u32);
    for (plan, offset) in run.iter_mut().zip(0..numbers.count) {
        plan.sequence = numbers.first + offset;
        plan.iv = reserved.first + offset;
    }
    if numbers.low {
        low.tell_sequence(sa, numbers.count == 0);
    }
    if reserved.low {
        low.tell_ivs(ivs);
    }
    numbers.count as usize
}

/// Tells control, now and then, that numbers run low.
struct Low<'d> {
    table: &'d OutboundTable,
    iv_told: &'d mut Option<u64>,
    events: &'d mut Events,
    now: u64,
}

impl Low<'_> {
    fn is_due(&self, told: Option<u64>, interval: u64) -> bool {
        told.is_none_or(|told| self.now.saturating_sub(told) >= interval)
    }

    #[cold]
    fn tell_sequence(&mut self, sa: &OutboundSa, out: bool) {
        let Some(place) = self.table.get(sa.policy()) else {
            return;
        };
        let interval = if out && !sa.numbers().is_last_block() { NO_BLOCK_INTERVAL } else { LOW_INTERVAL };
        // At once for each block; again after a time, because the event may have got lost.
        let news = sa.numbers().take_news();
        if !news && !self.is_due(place.told.get(), interval) {
            return;
        }
        let sample = Sample::now(sa, self.now);
        if self.events.raise(Event::SequenceLow { spi: sa.pair, rate: place.sampled.get().rate(sample) }) {
            place.told.set(Some(self.now));
            place.sampled.set(sample);
        } else if news {
            sa.numbers().give_news_back();
        }
    }

    #[cold]
    fn tell_ivs(&mut self, ivs: &IvAllocator) {
        if ivs.sender().is_some()
            && self.is_due(*self.iv_told, LOW_INTERVAL)
            && self.events.raise(Event::IvLow)
        {
            *self.iv_told = Some(self.now);
        }
    }
}

/// Takes out the packets for which there was no sequence number, or no IV.
#[inline]
fn refuse_unnumbered(
    burst: &mut [Item<'_>],
    plans: &mut Burst<Plan<'_>>,
    ivs: &IvAllocator,
    counters: &DirectionCounters,
) {
    if plans.iter().any(|plan| plan.sequence == 0) {
        refuse_unnumbered_of(burst, plans, ivs, counters);
    }
}

#[cold]
fn refuse_unnumbered_of(
    burst: &mut [Item<'_>],
    plans: &mut Burst<Plan<'_>>,
    ivs: &IvAllocator,
    counters: &DirectionCounters,
) {
    plans.retain(|plan| {
        let numbered = plan.sequence != 0;
        if !numbered && let Some(item) = burst.get_mut(usize::from(plan.at)) {
            let reason = match (ivs.sender(), ivs.left(1)) {
                (None, _) => DropReason::NoSender,
                (Some(_), 0) => DropReason::IvExhausted,
                _ if plan.sa.numbers().is_last_block() => DropReason::SequenceExhausted,
                _ => DropReason::NoBlock,
            };
            plan.sa.counters().add_drop(reason);
            refuse(item, reason, counters);
        }
        numbered
    });
}

/// Puts ESP around each planned packet and encrypts the burst. Only what is encrypted gets the verdict to be forwarded.
fn seal(burst: &mut [Item<'_>], plans: &[Plan<'_>], next_id: &mut u16, counters: &DirectionCounters) {
    let mut jobs = Burst::new();
    let mut plans = plans.iter().peekable();
    for (at, item) in burst.iter_mut().enumerate() {
        let Some(plan) = plans.next_if(|plan| usize::from(plan.at) == at) else {
            continue;
        };
        *next_id = next_id.wrapping_add(1);
        item.verdict = match encapsulate(&mut item.buf, plan, *next_id) {
            Some(job) => {
                jobs.push(job);
                plan.pieces.map_or(Verdict::Forward, |mtu| Verdict::ForwardInPieces { mtu })
            }
            None => {
                counters.drop(DropReason::NoRoom);
                Verdict::Drop(DropReason::NoRoom)
            }
        };
    }
    seal_burst(&mut jobs);
}

/// Writes outer header and trailer. `None` if there is no room, which the planner has ruled out.
#[inline]
fn encapsulate<'a>(buf: &'a mut PacketBuf<'_>, plan: &Plan<'a>, id: u16) -> Option<SealJob<'a>> {
    let Plan { sa, sequence, iv, .. } = *plan;
    let prefix_len = sa.outer.prefix_len();
    let trailer_len = Outer::trailer_len(usize::from(plan.len));
    if !(buf.grow_front(prefix_len) && buf.grow_back(trailer_len + TAG_LEN)) {
        return None;
    }
    let total = buf.len() as u16;
    let (prefix, rest) = buf.data_mut().split_at_mut_checked(prefix_len)?;
    let marks = Marks { class: plan.class, df: plan.df, id, sequence, iv };
    sa.outer.write(prefix, total, &marks);
    let (text, tag) = rest.split_last_chunk_mut::<TAG_LEN>()?;
    let (_, trailer) = text.split_at_mut_checked(usize::from(plan.len))?;
    if !esp::write_trailer(trailer, plan.next_header) {
        return None;
    }
    let aad = if sa.esn { Aad::esp_esn(sa.spi.0, sequence) } else { Aad::esp(sa.spi.0, sequence as u32) };
    Some(SealJob { key: &sa.key, iv: iv.to_be_bytes(), aad, text, tag })
}

/// Tells control of SAs that have come into use.
#[inline]
fn want_keys(plans: &[Plan<'_>], events: &mut Events, now: u64) {
    for run in plans.chunk_by(|a, b| std::ptr::eq(a.sa, b.sa)) {
        if let Some(Plan { sa, .. }) = run.first()
            && !sa.key.is_expanded()
            && sa.counters().is_unused_since(now)
        {
            events.raise(Event::KeyWanted { spi: sa.pair });
        }
    }
}

/// What remains after encryption: checksums over ciphertext, counters.
fn finish(
    burst: &mut [Item<'_>],
    plans: &[Plan<'_>],
    counters: &DirectionCounters,
    events: &mut Events,
    now: u64,
) {
    let (mut forwarded, mut forwarded_bytes) = (0, 0);
    for run in plans.chunk_by(|a, b| std::ptr::eq(a.sa, b.sa)) {
        let Some(sa) = run.first().map(|plan| plan.sa) else {
            continue;
        };
        let (mut packets, mut bytes) = (0, 0);
        for plan in run {
            let Some(item) = burst.get_mut(usize::from(plan.at)) else {
                continue;
            };
            if !matches!(item.verdict, Verdict::Forward | Verdict::ForwardInPieces { .. }) {
                continue;
            }
            if sa.outer.needs_checksum() {
                sa.outer.fill_checksum(item.buf.data_mut());
            }
            packets += 1;
            bytes += u64::from(plan.len);
            forwarded_bytes += item.buf.len() as u64;
        }
        sa.counters().add_shared(packets, bytes, now);
        events.note_mark(sa.counters(), sa.pair);
        forwarded += packets;
    }
    counters.forwarded.add(forwarded);
    counters.forwarded_bytes.add(forwarded_bytes);
}
