//! Packets addressed to us: demultiplexing, look-up, replay check, cipher, and all that RFC 4301 §5.2 and RFC 4303 §3.4 ask
//! of the packet inside. Stage by stage over the whole burst, as in `outbound`.

mod ah;
mod ccm;
mod foresight;
mod separate;

use super::burst::{BURST, Item, Verdict};
use super::counters::{Counters, DirectionCounters};
use super::event::{Event, Events};
use super::reply::Replier;
use super::shares::is_carried;
use super::turn::Turn;
use super::{Dataplane, LocalAddrs, OutboundTable, fence, outbound};
use crate::demux::{self, Arrived, Form, Kind};
use crate::drops::DropReason;
use crate::esp::{transport, tunnel};
use crate::flow::{FlowCache, Path};
use crate::inner::Inner;
use crate::packet_selector::{Direction, PacketSelector};
use crate::sa::{Encapsulation, InboundSa, OutboundSa, SaKey};
use crate::sad::Sad;
use crate::share::ShareSet;
use crate::spd::Spd;
use crate::spi::Spi;
use arrayvec::ArrayVec;
use std::net::IpAddr;
use testudo_crypto::{Aad, AeadKey, IV_LEN, OpenJob, TAG_LEN, open_burst};
use testudo_wire::icmp::{self, Sources};
use testudo_wire::ip::Protocol;
use testudo_wire::ipv6::MIN_MTU;
use testudo_wire::packet::PacketBuf;
use testudo_wire::{Error, esp};

/// Octets of ESP before the ciphertext of an AEAD.
const BEFORE_TEXT: usize = esp::HEADER + IV_LEN;
/// Padding and trailer take a word at least.
const MIN_TEXT: usize = 4;

/// An ESP packet whose SA is known and whose number may be accepted.
struct Plan<'s> {
    sa: &'s InboundSa,
    arrived: &'s Arrived,
    sequence: u64,
    at: u8,
    /// What cipher and replay window have said.
    verdict: Result<(), DropReason>,
    /// Its number was the highest of all when the window took it in. Asked for SAs that follow a NAT alone.
    is_newest: bool,
}

/// Where a decrypted packet goes.
#[derive(Clone, Copy)]
enum Way {
    Host,
    Onward,
    Forward,
}

/// A flow that an SA's selectors take, and where it goes. Packets come in trains: for the next of the same flow this is known.
#[derive(Clone, Copy)]
struct Train {
    flow: PacketSelector,
    way: Way,
}

type Burst<T> = ArrayVec<T, BURST>;

impl Dataplane {
    /// Works on a burst of packets addressed to us. Bursts longer than [`BURST`] are worked off in parts.
    pub fn inbound(&mut self, burst: &mut [Item<'_>]) {
        if !self.open {
            return fence::refuse(burst, &self.counters.inbound);
        }
        for part in burst.chunks_mut(BURST) {
            self.inbound_part(part, None);
        }
    }

    /// The same while other workers have bursts in hand that came before and after: what depends on their order comes in turn.
    pub fn inbound_in_turn(&mut self, burst: &mut [Item<'_>], turn: &mut dyn Turn) {
        if !self.open {
            return fence::refuse(burst, &self.counters.inbound);
        }
        for part in burst.chunks_mut(BURST) {
            self.inbound_part(part, Some(turn));
        }
    }

    /// So many packets with the verdict [`Verdict::Early`] do not wait any longer: nobody has their SPI.
    pub fn give_up_early(&mut self, packets: u64) {
        self.counters.inbound.early.subtract(packets);
        self.counters.inbound.drop_many(DropReason::UnknownSpi, packets);
    }

    /// So many packets with the verdict [`Verdict::Early`], of so many octets, go through another worker's data plane instead.
    pub fn pass_early(&mut self, packets: u64, octets: u64) {
        let counters = &self.counters.inbound;
        counters.early.subtract(packets);
        counters.received.subtract(packets);
        counters.received_bytes.subtract(octets);
    }

    fn inbound_part(&mut self, burst: &mut [Item<'_>], turn: Option<&mut dyn Turn>) {
        let counters = &*self.counters;
        let bytes: usize = burst.iter().map(|item| item.buf.len()).sum();
        counters.inbound.received.add(burst.len() as u64);
        counters.inbound.received_bytes.add(bytes as u64);

        let mut any_ah = false;
        let arrived = sort(burst, &self.local, self.udp_port, &mut any_ah, &counters.inbound);
        let mut plans = admit(burst, &arrived, (&self.sad, &self.shares), &counters.inbound);
        if any_ah {
            ah::refuse_others(burst, &mut plans, &counters.inbound);
        }
        open(burst, &mut plans);
        let mut receiver = Receiver {
            local: &self.local,
            flows: &mut self.flows,
            spd: &self.spd,
            outbound: &self.outbound,
            // From the offending packet's destination, so that the errors fit the tunnel that it came through.
            replier: Replier {
                sources: &Sources { v4: None, v6: None },
                limit: &mut self.icmp_limit,
                counters,
            },
            counters,
            events: &mut self.events,
            now: self.now,
        };
        receiver.foresee(burst, &plans);
        receiver.receive_all(burst, &mut plans, turn);
    }
}

/// Finds the packets of the burst with ESP, and with AH: if there are such, `any_ah` is set.
fn sort(
    burst: &mut [Item<'_>],
    local: &LocalAddrs,
    udp_port: u16,
    any_ah: &mut bool,
    counters: &DirectionCounters,
) -> Burst<(u8, Arrived)> {
    let mut found = Burst::new();
    for (at, item) in burst.iter_mut().enumerate() {
        item.verdict = Verdict::Pending;
        found.push((at as u8, Arrived::default()));
        let Some((_, arrived)) = found.last_mut() else {
            continue;
        };
        match demux::sort(item.buf.data(), local, udp_port, arrived) {
            Ok(Kind::Esp) => continue,
            Ok(Kind::Ike) => {
                counters.to_host.add(1);
                item.verdict = Verdict::ToHost;
            }
            Ok(Kind::Fragment) => {
                counters.to_join.add(1);
                item.verdict = Verdict::Reassemble;
            }
            Err(DropReason::NotEsp) => match demux::sort_ah(item.buf.data(), arrived) {
                Ok(()) => {
                    *any_ah = true;
                    continue;
                }
                Err(reason) => item.refuse(reason, counters),
            },
            Err(reason) => item.refuse(reason, counters),
        }
        found.pop();
    }
    found
}

/// Finds the SA of each packet that is carried here, and asks its replay window.
fn admit<'s>(
    burst: &mut [Item<'_>],
    arrived: &'s [(u8, Arrived)],
    (sad, shares): (&'s Sad, &ShareSet),
    counters: &DirectionCounters,
) -> Burst<Plan<'s>> {
    fetch(arrived, sad);
    let found: Burst<Option<&InboundSa>> =
        arrived.iter().map(|(_, arrived)| sad.get(Spi(arrived.spi))).collect();
    let mut plans = Burst::new();
    for ((at, arrived), sa) in arrived.iter().zip(found) {
        let here = is_carried(Spi(arrived.spi).share(), shares);
        // Whatever the SA sends, in UDP or not, it accepts both at any time (RFC 7296 §2.23).
        let checked = sa.map(|sa| (sa, sa.window.check(arrived.sequence)));
        if let Some((sa, Ok(sequence))) = checked
            && here
        {
            plans.push(Plan { sa, arrived, sequence, at: *at, verdict: Ok(()), is_newest: false });
            continue;
        }
        let Some(item) = burst.get_mut(usize::from(*at)) else { continue };
        match checked {
            _ if !here => item.refuse(DropReason::OtherNode, counters),
            Some((sa, Err(reason))) => {
                sa.counters.add_drop(reason);
                item.refuse(reason, counters);
            }
            _ => put_off(item, Spi(arrived.spi), counters),
        }
    }
    plans
}

/// Asks for the SAs of a burst, where they are several.
#[inline]
fn fetch(arrived: &[(u8, Arrived)], sad: &Sad) {
    let mut spis: Burst<(Spi, u16)> = Burst::new();
    for (_, arrived) in arrived {
        if spis.last().is_none_or(|(last, _)| last.0 != arrived.spi) {
            spis.push((Spi(arrived.spi), arrived.len));
        }
    }
    if spis.len() > 1 {
        sad.prefetch(&spis);
    }
}

/// Both sides have the keys of an SA at different times: the one that answers has them first, and may send before its answer
/// has been worked on here (RFC 7296 §2.8).
#[cold]
fn put_off(item: &mut Item<'_>, spi: Spi, counters: &DirectionCounters) {
    counters.early.add(1);
    item.verdict = Verdict::Early(spi);
}

/// Verifies and decrypts.
fn open(burst: &mut [Item<'_>], plans: &mut [Plan<'_>]) {
    let mut jobs: Burst<OpenJob<'_>> = Burst::new();
    let mut others = false;
    let mut left = plans.iter_mut().peekable();
    for (at, item) in burst.iter_mut().enumerate() {
        let Some(plan) = left.next_if(|plan| usize::from(plan.at) == at) else {
            continue;
        };
        let SaKey::Aead(key) = &plan.sa.key else {
            others = true;
            continue;
        };
        match job(item.buf.data_mut(), plan, key) {
            Some(job) => jobs.push(job),
            None => plan.verdict = Err(DropReason::EspTooShort),
        }
    }
    open_burst(&mut jobs);
    let aead = |plan: &&mut Plan<'_>| plan.verdict.is_ok() && matches!(plan.sa.key, SaKey::Aead(_));
    for (plan, job) in plans.iter_mut().filter(aead).zip(&jobs) {
        if !job.ok {
            plan.verdict = Err(plan.sa.window.blame(plan.sequence));
        }
    }
    drop(jobs);
    if others {
        separate::open(burst, plans);
        ccm::open(burst, plans);
        ah::open(burst, plans);
    }
}

/// Takes the authentic packets of one SA into its window.
#[inline(always)]
fn accept(run: &mut [Plan<'_>]) {
    let Some(sa) = run.first().map(|plan| plan.sa) else { return };
    let number = |plan: &Plan<'_>| plan.verdict.is_ok().then_some(plan.sequence);
    sa.window.accept_run(run, number, |plan, reason| plan.verdict = Err(reason));
    if sa.encapsulation == Encapsulation::Udp {
        find_newest(run, sa.window.top());
    }
}

/// To be found while nobody else takes numbers in: other workers do as soon as the turn is over.
fn find_newest(run: &mut [Plan<'_>], top: u64) {
    let is_newest = |plan: &&mut Plan<'_>| plan.sequence == top && plan.verdict.is_ok();
    if let Some(newest) = run.iter_mut().rfind(is_newest) {
        newest.is_newest = true;
    }
}

/// The same with packets of any SAs.
#[cold]
fn accept_all(plans: &mut [Plan<'_>]) {
    plans.chunk_by_mut(|a, b| std::ptr::eq(a.sa, b.sa)).for_each(accept);
}

/// The cipher's job. `None` if the packet is too short: demultiplexing has only ruled out what is so for all algorithms.
#[inline]
fn job<'a>(packet: &'a mut [u8], plan: &Plan<'a>, key: &'a AeadKey) -> Option<OpenJob<'a>> {
    let Plan { sa, sequence, arrived, .. } = plan;
    let (start, len) = (usize::from(arrived.at), usize::from(arrived.len));
    let esp = packet.get_mut(start..start + len)?;
    let (head, body) = esp.split_first_chunk_mut::<BEFORE_TEXT>()?;
    let (_, iv) = head.split_last_chunk::<IV_LEN>()?;
    let (text, tag) = body.split_last_chunk_mut::<TAG_LEN>().filter(|(text, _)| text.len() >= MIN_TEXT)?;
    let aad = if sa.esn { Aad::esp_esn(sa.spi.0, *sequence) } else { Aad::esp(sa.spi.0, arrived.sequence) };
    Some(OpenJob { key, iv: *iv, aad, text, tag, ok: false })
}

/// Works on decrypted packets.
struct Receiver<'d> {
    local: &'d LocalAddrs,
    flows: &'d mut FlowCache,
    spd: &'d Spd,
    outbound: &'d OutboundTable,
    replier: Replier<'d>,
    counters: &'d Counters,
    events: &'d mut Events,
    now: u64,
}

impl Receiver<'_> {
    /// Packets that were opened, in order. Windows are asked about all of them in one turn, where there are turns.
    #[inline]
    fn receive_all(&mut self, burst: &mut [Item<'_>], plans: &mut [Plan<'_>], turn: Option<&mut dyn Turn>) {
        let same = |a: &Plan<'_>, b: &Plan<'_>| std::ptr::eq(a.sa, b.sa);
        let in_turn = turn.is_some();
        if let Some(turn) = turn {
            turn.begin();
            accept_all(plans);
            turn.end();
        }
        for run in plans.chunk_by_mut(same) {
            if !in_turn {
                accept(run);
            }
            self.receive_run(burst, run);
        }
    }

    /// Packets of one SA.
    #[inline]
    fn receive_run(&mut self, burst: &mut [Item<'_>], run: &[Plan<'_>]) {
        let Some(sa) = run.first().map(|plan| plan.sa) else { return };
        let (mut packets, mut bytes) = (0, 0);
        let mut train = None;
        for plan in run {
            let Some(item) = burst.get_mut(usize::from(plan.at)) else { continue };
            match self.receive(item, plan, &mut train) {
                Ok(len) => {
                    packets += 1;
                    bytes += u64::from(len);
                }
                Err(reason) => {
                    sa.counters.add_drop(reason);
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

    /// Octets of the inner packet.
    #[inline]
    fn receive(
        &mut self,
        item: &mut Item<'_>,
        plan: &Plan<'_>,
        train: &mut Option<Train>,
    ) -> Result<u16, DropReason> {
        plan.verdict?;
        self.note_source(item.buf.data(), plan);
        let (inner, same) = decapsulate(&mut item.buf, plan, train.as_ref())?;
        let way = match train {
            Some(train) if same => train.way,
            _ => self.way(plan.sa, &inner),
        };
        *train = Some(Train { flow: inner.flow, way });
        self.pass_on(item, plan, &inner, way);
        Ok(inner.len)
    }

    /// Tells control, once a second until it knows, that the peer sends from a new address. Only UDP-encapsulated SAs follow a NAT, and only the
    /// newest packet: a late one tells where the peer was (RFC 7296 §2.23). Each worker may tell it.
    #[inline]
    fn note_source(&mut self, outer: &[u8], plan: &Plan<'_>) {
        let Plan { sa, arrived, is_newest, .. } = plan;
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

    #[inline]
    fn way(&mut self, sa: &InboundSa, inner: &Inner) -> Way {
        let for_us = match inner.flow.local() {
            IpAddr::V4(addr) => self.local.has_v4(addr),
            IpAddr::V6(addr) => self.local.has_v6(addr),
        };
        if for_us {
            Way::Host
        } else if self.goes_onward(sa, inner) {
            Way::Onward
        } else {
            Way::Forward
        }
    }

    /// To the kernel, or one hop on.
    #[inline]
    fn pass_on(&mut self, item: &mut Item<'_>, plan: &Plan<'_>, inner: &Inner, way: Way) {
        let counters = &self.counters.inbound;
        if inner.clamp_mss(item.buf.data_mut(), plan.sa.inner_mtu()) {
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
            item.verdict = Verdict::Onward;
            return;
        }
        counters.forwarded.add(1);
        counters.forwarded_bytes.add(u64::from(inner.len));
        let is_large = inner.is_ipv6() && inner.len > MIN_MTU;
        item.verdict = if is_large { large(plan.sa) } else { Verdict::Forward };
    }

    /// True if the packet is not for this side of the gateway (RFC 4301 §5.1): a policy wants it in another tunnel, or
    /// nowhere; or the address is one that another policy holds back, and nearer than our side of this SA is. What the
    /// SA's own policy would carry back has arrived, unless the peer's side of it is the nearer one: routed on, it would
    /// leave in clear for the peer's own network.
    #[inline]
    fn goes_onward(&mut self, sa: &InboundSa, inner: &Inner) -> bool {
        let mut onward = inner.flow.reversed();
        let mut undecided = false;
        if inner.flow.is_fragment() {
            // All of a datagram go one way. Where ports might hold it back, the outbound policies see the whole of it.
            onward = onward.without_ports();
            undecided = self.spd.may_hold_back(&onward);
        }
        let hash = self.flows.hash(&onward);
        match outbound::path(hash, &onward, self.flows, self.spd, self.outbound) {
            Path::Protect(policy) => {
                let same = |out: &OutboundSa| out.selectors == sa.selectors;
                let own = policy == sa.policy() || self.outbound.sa(policy).is_some_and(same);
                !own || sa.selectors.remote_width(&onward) < sa.selectors.local_width(&inner.flow)
            }
            Path::OutsideSa(_) | Path::Discard | Path::Join => true,
            Path::Bypass => undecided,
            Path::NoPolicy(None) => false,
            Path::NoPolicy(Some(held)) => sa.selectors.local_width(&inner.flow).is_none_or(|own| held < own),
        }
    }
}

/// Of IPv6 an SA for certain ports carries no later fragments: what was sent in such comes whole, as large as it may be.
#[cold]
fn large(sa: &InboundSa) -> Verdict {
    match sa.selectors.asks_for_ports() {
        true => Verdict::ForwardInPieces { mtu: u16::MAX },
        false => Verdict::Forward,
    }
}

/// Leaves nothing but the inner packet in the buffer, checked and with its traffic class set. True if it is of that train.
#[inline]
fn decapsulate(
    buf: &mut PacketBuf<'_>,
    plan: &Plan<'_>,
    train: Option<&Train>,
) -> Result<(Inner, bool), DropReason> {
    let (payload, next_header) = if !plan.sa.is_esp_tunnel {
        let version = decapsulate_other(buf, plan.arrived, plan.sa)?;
        (buf.data(), version)
    } else {
        let (start, len) = (usize::from(plan.arrived.at), usize::from(plan.arrived.len));
        let text_end = start + len - usize::from(plan.sa.around.icv);
        let behind = buf.len().checked_sub(text_end).ok_or(DropReason::EspTooShort)?;
        if !(buf.shrink_back(behind) && buf.shrink_front(start + usize::from(plan.sa.around.before_text))) {
            return Err(DropReason::EspTooShort);
        }
        esp::split_trailer(buf.data()).map_err(|_| DropReason::BadPadding)?
    };
    let inner = parse(payload, next_header)?;
    let same = train.is_some_and(|train| train.flow == inner.flow);
    if !same && !plan.sa.selectors.accepts(&inner.flow) {
        return Err(DropReason::SelectorMismatch);
    }
    inner.trim(buf);
    // In transport mode both are one, and stay as they are.
    let class = tunnel::inner_class(plan.sa.copy, plan.arrived.class, inner.class)
        .ok_or(DropReason::EcnNotCapable)?;
    if class != inner.class {
        inner.set_class(buf.data_mut(), class);
    }
    Ok((inner, same))
}

/// The same up to the packet inside, for what is not ESP in tunnel mode.
#[cold]
fn decapsulate_other(
    buf: &mut PacketBuf<'_>,
    arrived: &Arrived,
    sa: &InboundSa,
) -> Result<Protocol, DropReason> {
    match &sa.key {
        SaKey::Mac(_) => crate::ah::decapsulate(buf, arrived, sa.mode),
        SaKey::Aead(_) | SaKey::Separate(_) | SaKey::Ccm(_) => {
            transport::decapsulate(buf, arrived, sa.around)
        }
    }
}

/// The packet inside. Its version must be what the trailer says.
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
