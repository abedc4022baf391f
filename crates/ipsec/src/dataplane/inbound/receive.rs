//! Opened packets: the replay window, decapsulation, and the next step of each.

use super::{InboundPlan, accept};
use crate::dataplane::burst::{Item, Verdict};
use crate::dataplane::counters::Counters;
use crate::dataplane::event::{Event, Events};
use crate::dataplane::reply::Replier;
use crate::dataplane::{LocalAddrs, OutboundTable, outbound};
use crate::demux::{self, Form, FoundEsp};
use crate::drops::DropReason;
use crate::esp::{transport, tunnel};
use crate::flow::{FlowCache, Path};
use crate::inner::Inner;
use crate::packet_selector::{Direction, PacketSelector};
use crate::sa::{Encapsulation, InboundSa, OutboundSa, SaKey};
use crate::spd::Spd;
use std::net::IpAddr;
use testudo_wire::ip::Protocol;
use testudo_wire::ipv4::Likeness;
use testudo_wire::ipv6::MIN_MTU;
use testudo_wire::packet::PacketBuf;
use testudo_wire::{Error, esp, icmp};

/// The next step of a decrypted packet.
#[derive(Clone, Copy)]
enum Way {
    Host,
    Onward,
    Forward,
    /// It is routed on, and not towards the peer by default.
    Inside,
}

/// A packet that an SA's selectors accept, and its next step. Packets come in trains: the next
/// packet of the same flow takes the same step, and of a packet that is like this one in all but
/// length nothing else needs to be read.
#[derive(Clone, Copy)]
pub(super) struct InboundTrain {
    inside: Inside,
    way: Way,
}

/// The content of an opened packet.
#[derive(Clone, Copy)]
pub(super) struct Inside {
    pub(super) inner: Inner,
    like: Option<Likeness>,
    /// True if it is of the same flow as the one before.
    same_flow: bool,
}

/// Processes decrypted packets.
pub(super) struct Receiver<'d> {
    pub(super) local: &'d LocalAddrs,
    pub(super) flows: &'d mut FlowCache,
    pub(super) spd: &'d Spd,
    pub(super) outbound: &'d OutboundTable,
    pub(super) replier: Replier<'d>,
    pub(super) counters: &'d Counters,
    pub(super) events: &'d mut Events,
    pub(super) now: u64,
    /// The largest packet that the SAs of AH around these take; set while packets of ESP inside AH
    /// are processed.
    pub(super) within: Option<u16>,
}

impl Receiver<'_> {
    /// Processes opened packets in order. The window of each SA is asked at its turn, unless all
    /// packets have been accepted before.
    #[inline]
    pub(super) fn receive_all(
        &mut self,
        burst: &mut [Item<'_>],
        plans: &mut [InboundPlan<'_>],
        accepted: bool,
    ) {
        let same = |a: &InboundPlan<'_>, b: &InboundPlan<'_>| std::ptr::eq(a.sa, b.sa);
        for run in plans.chunk_by_mut(same) {
            if !accepted {
                accept(run);
            }
            self.receive_run(burst, run);
        }
    }

    /// Processes packets of one SA.
    #[inline]
    fn receive_run(&mut self, burst: &mut [Item<'_>], run: &[InboundPlan<'_>]) {
        let Some(sa) = run.first().map(|plan| plan.sa) else { return };
        let (mut packets, mut bytes) = (0, 0);
        let mut train = None;
        for plan in run {
            let Some(item) = burst.get_mut(usize::from(plan.at)) else { continue };
            let received = self.receive(item, plan, &mut train);
            match received.or_else(|reason| self.receive_by_quote(item, plan, reason)) {
                Ok(len) => {
                    packets += 1;
                    bytes += u64::from(len);
                }
                Err(reason) => {
                    sa.counters.add_drop(reason);
                    self.counters.inbound.samples.offer(reason, sa.spi, item.buf.data());
                    item.refuse(reason, &self.counters.inbound);
                }
            }
        }
        if packets > 0 {
            if !sa.key.is_expanded() && sa.counters.is_unused_since(self.now) {
                self.events.raise(Event::KeyWanted { spi: sa.spi });
            }
            sa.counters.add(packets, bytes, self.now);
            self.events.note_mark(&sa.counters, sa.spi);
        }
    }

    /// Returns the octets of the inner packet.
    #[inline]
    fn receive(
        &mut self,
        item: &mut Item<'_>,
        plan: &InboundPlan<'_>,
        train: &mut Option<InboundTrain>,
    ) -> Result<u16, DropReason> {
        plan.verdict?;
        self.note_source(item.buf.data(), plan);
        let (payload, next_header) = text_of(&mut item.buf, plan)?;
        if let Some(InboundTrain { inside, way }) = train
            && let Some(len) = inside.len_of_next(payload, next_header)
        {
            let inner = inside.inner.of_len(len);
            settle(&mut item.buf, plan, &inner)?;
            self.pass_on(item, plan, &inner, *way);
            return Ok(len);
        }
        let inside = look_inside(payload, next_header, plan.sa, train.as_ref())?;
        let inner = inside.inner;
        settle(&mut item.buf, plan, &inner)?;
        let way = match train {
            Some(train) if inside.same_flow => train.way,
            _ => self.way(plan.sa, &inner.flow),
        };
        *train = Some(InboundTrain { inside, way });
        self.pass_on(item, plan, &inner, way);
        Ok(inner.len)
    }

    /// Processes a packet that was refused for this reason. If it is the SA's selectors that refuse
    /// its own addresses, it passes as an ICMP error about a packet that went out through the SA,
    /// if the SA allows that (RFC 4301 §6.2). It goes the way of an answer to that packet. It never
    /// becomes a train: the next packet of its flow may quote another packet.
    #[cold]
    fn receive_by_quote(
        &mut self,
        item: &mut Item<'_>,
        plan: &InboundPlan<'_>,
        reason: DropReason,
    ) -> Result<u16, DropReason> {
        if reason != DropReason::SelectorMismatch || !plan.sa.passes_icmp() {
            return Err(reason);
        }
        let inner = Inner::parse(item.buf.data(), Direction::In).map_err(|_| reason)?;
        let quote = PacketSelector::quoted(item.buf.data(), &inner.flow, Direction::In)
            .filter(|quote| plan.sa.selectors.accepts(quote))
            .ok_or(reason)?;
        settle(&mut item.buf, plan, &inner)?;
        let way = self.way(plan.sa, &quote);
        self.pass_on(item, plan, &inner, way);
        Ok(inner.len)
    }

    /// Tells control that the peer sends from a new address, once a second until control knows.
    /// Only UDP-encapsulated SAs follow a NAT, and only the newest packet counts: a late one shows
    /// where the peer was before (RFC 7296 §2.23). Each worker may report it.
    #[inline]
    fn note_source(&mut self, outer: &[u8], plan: &InboundPlan<'_>) {
        let InboundPlan { sa, arrived, is_newest, .. } = plan;
        if arrived.form == Form::EspInUdp
            && sa.encapsulation == Encapsulation::Udp
            && let Some(source) = demux::source(outer, arrived)
            && sa.is_news(source, self.now)
            && *is_newest
            && self.events.raise(Event::AddressChanged { spi: sa.spi, remote: source })
        {
            sa.set_source_told(self.now);
        }
    }

    /// The largest packet that fits the path back.
    #[inline]
    fn way_back(&self, sa: &InboundSa) -> u16 {
        self.within.map_or_else(|| sa.inner_mtu(), |size| sa.inner_mtu_within(size))
    }

    /// The next step of a packet of this flow. Inlined, it would slow down trains, which need it once.
    #[inline(never)]
    fn way(&mut self, sa: &InboundSa, flow: &PacketSelector) -> Way {
        let for_us = match flow.local() {
            IpAddr::V4(addr) => self.local.has_v4(addr),
            IpAddr::V6(addr) => self.local.has_v6(addr),
        };
        if for_us {
            Way::Host
        } else if self.goes_onward(sa, flow) {
            Way::Onward
        } else if sa.has_inside(flow.is_ipv6()) {
            Way::Inside
        } else {
            Way::Forward
        }
    }

    /// Passes a packet to the kernel, or one hop on.
    #[inline]
    fn pass_on(&mut self, item: &mut Item<'_>, plan: &InboundPlan<'_>, inner: &Inner, way: Way) {
        let counters = &self.counters.inbound;
        if inner.clamp_mss(item.buf.data_mut(), &plan.sa.mss, || self.way_back(plan.sa)) {
            self.counters.mss_clamped.add(1);
        }
        if let Way::Host = way {
            counters.to_host.add(1);
            item.verdict = Verdict::ToHost;
            return;
        }
        if !item.ingress.is_host() {
            if inner.ttl <= 1 {
                plan.sa.counters.add_drop(DropReason::TtlExceeded);
                self.replier.refuse(item, icmp::Kind::TimeExceeded, DropReason::TtlExceeded, counters);
                return;
            }
            inner.decrement_ttl(item.buf.data_mut());
        }
        if let Way::Onward = way {
            counters.onward.add(1);
            // Reassembled, it may turn out to be bypassed.
            let is_guarded = inner.flow.is_fragment() && plan.sa.has_inside(inner.is_ipv6());
            item.inside = is_guarded.then(|| plan.sa.policy());
            item.verdict = Verdict::Onward;
            return;
        }
        item.inside = matches!(way, Way::Inside).then(|| plan.sa.policy());
        counters.forwarded.add(1);
        counters.forwarded_bytes.add(u64::from(inner.len));
        let is_large = inner.is_ipv6() && inner.len > MIN_MTU;
        item.verdict = if is_large { large(plan.sa) } else { Verdict::Forward };
    }

    /// True if the packet is not for this side of the gateway (RFC 4301 §5.1): a policy wants it in
    /// another tunnel, or dropped; or its address is held back by another policy, with a narrower
    /// range than our side of this SA. A packet that the SA's own policy would send back to the
    /// peer has arrived, unless the peer's side of the SA is the narrower one: routed on, it would
    /// leave in clear for the peer's own network.
    #[inline(always)]
    fn goes_onward(&mut self, sa: &InboundSa, flow: &PacketSelector) -> bool {
        let mut onward = flow.reversed();
        let mut undecided = false;
        if flow.is_fragment() {
            // All fragments of a datagram go one way. If ports might hold it back, the outbound
            // policies see the whole datagram.
            onward = onward.without_ports();
            undecided = self.spd.may_hold_back(&onward);
        }
        let hash = self.flows.hash(&onward);
        match outbound::path(hash, &onward, self.flows, self.spd, self.outbound) {
            Path::Protect(policy) => {
                let same = |out: &OutboundSa| out.selectors == sa.selectors;
                let own = policy == sa.policy() || self.outbound.sa(policy).is_some_and(same);
                !own || sa.selectors.remote_width(&onward) < sa.selectors.local_width(flow)
            }
            Path::OutsideSa(_) | Path::Discard | Path::Join => true,
            Path::Bypass => undecided,
            Path::NoPolicy(None) => false,
            Path::NoPolicy(Some(held)) => sa.selectors.local_width(flow).is_none_or(|own| held < own),
        }
    }
}

/// An SA for certain ports carries no later fragments of IPv6: packets that were sent in fragments
/// come whole, at any size.
#[cold]
fn large(sa: &InboundSa) -> Verdict {
    match sa.selectors.asks_for_ports() {
        true => Verdict::ForwardInPieces { mtu: u16::MAX },
        false => Verdict::Forward,
    }
}

impl Inside {
    /// The length of the next packet, if it is like this one.
    #[inline(always)]
    fn len_of_next(&self, payload: &[u8], next_header: Protocol) -> Option<u16> {
        self.like.as_ref().filter(|_| next_header == Protocol::IPV4)?.accepts(payload)
    }
}

/// Leaves only the inner packet in the buffer, checked and with its traffic class set.
pub(super) fn decapsulate(buf: &mut PacketBuf<'_>, plan: &InboundPlan<'_>) -> Result<Inner, DropReason> {
    let (payload, next_header) = text_of(buf, plan)?;
    let Inside { inner, .. } = look_inside(payload, next_header, plan.sa, None)?;
    settle(buf, plan, &inner)?;
    Ok(inner)
}

/// Leaves the decrypted text in the buffer, without padding and trailer, perhaps with octets behind
/// it. Returns it, and its next header.
#[inline(always)]
pub(super) fn text_of<'b>(
    buf: &'b mut PacketBuf<'_>,
    plan: &InboundPlan<'_>,
) -> Result<(&'b [u8], Protocol), DropReason> {
    if !plan.sa.is_esp_tunnel {
        let version = decapsulate_other(buf, plan.arrived, plan.sa)?;
        return Ok((buf.data(), version));
    }
    let (start, len) = (usize::from(plan.arrived.at), usize::from(plan.arrived.len));
    let text_end = start + len - usize::from(plan.sa.around.icv);
    let behind = buf.len().checked_sub(text_end).ok_or(DropReason::EspTooShort)?;
    if !(buf.shrink_back(behind) && buf.shrink_front(start + usize::from(plan.sa.around.before_text))) {
        return Err(DropReason::EspTooShort);
    }
    esp::split_trailer(buf.data()).map_err(|_| DropReason::BadPadding)
}

/// Reads the inner packet, and checks it against the SA's selectors, unless it is of the same flow
/// as the one before.
#[inline(always)]
fn look_inside(
    payload: &[u8],
    next_header: Protocol,
    sa: &InboundSa,
    train: Option<&InboundTrain>,
) -> Result<Inside, DropReason> {
    let inner = parse(payload, next_header)?;
    let same_flow = train.is_some_and(|train| train.inside.inner.flow == inner.flow);
    if !same_flow && !sa.selectors.accepts(&inner.flow) {
        return Err(DropReason::SelectorMismatch);
    }
    // From the second packet on: if each packet is of another flow, a comparison would be in vain.
    let like = same_flow.then(|| Likeness::of(payload)).flatten();
    Ok(Inside { inner, like, same_flow })
}

/// Cuts off octets behind the inner packet, and sets its traffic class.
#[inline(always)]
pub(super) fn settle(
    buf: &mut PacketBuf<'_>,
    plan: &InboundPlan<'_>,
    inner: &Inner,
) -> Result<(), DropReason> {
    inner.trim(buf);
    // In transport mode both are one, and stay unchanged.
    let class = tunnel::inner_class(plan.sa.copy, plan.arrived.class, inner.class)
        .ok_or(DropReason::EcnNotCapable)?;
    if class != inner.class {
        inner.set_class(buf.data_mut(), class);
    }
    Ok(())
}

/// Decapsulates a packet that is not ESP in tunnel mode.
#[cold]
fn decapsulate_other(
    buf: &mut PacketBuf<'_>,
    arrived: &FoundEsp,
    sa: &InboundSa,
) -> Result<Protocol, DropReason> {
    match &sa.key {
        SaKey::Mac(_) => crate::ah::decapsulate(buf, arrived, sa.mode),
        SaKey::Aead(_) | SaKey::Separate(_) | SaKey::Ccm(_) => {
            transport::decapsulate(buf, arrived, sa.around)
        }
    }
}

/// Parses the inner packet. Its version must match the trailer.
#[inline]
fn parse(payload: &[u8], next_header: Protocol) -> Result<Inner, DropReason> {
    let parsed: Result<Inner, Error> = match next_header {
        Protocol::IPV4 => Inner::parse_v4(payload, Direction::In),
        Protocol::IPV6 => Inner::parse_v6(payload, Direction::In),
        Protocol::NO_NEXT => return Err(DropReason::Dummy),
        _ => return Err(DropReason::BadNextHeader),
    };
    parsed.map_err(|_| DropReason::MalformedInner)
}
