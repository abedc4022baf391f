//! Packets addressed to us: demultiplexing, look-up, replay check, cipher, and the checks of RFC
//! 4301 §5.2 and RFC 4303 §3.4 on the inner packet. Each stage goes over the whole burst, as in
//! `outbound`.

mod ah;
mod bundle;
mod ccm;
mod foresight;
mod heads;
mod lanes;
mod others;
mod receive;
mod relay;
mod separate;

use super::burst::{BURST, Item, Verdict};
use super::counters::DirectionCounters;
use super::outbound::Foreign;
use super::reply::Replier;
use super::shards::is_carried;
use super::turn::Turn;
use super::{Dataplane, LocalAddrs, fence};
use crate::demux::{self, Form, FoundEsp, OuterKind};
use crate::drops::DropReason;
use crate::sa::{Encapsulation, InboundSa, SaKey};
use crate::sad::Sad;
use arrayvec::ArrayVec;
use heads::Uncoverer;
use receive::Receiver;
use relay::Neighbours;
use testudo_base::shard::ShardSet;
use testudo_base::spi::Spi;
use testudo_crypto::{Aad, AeadKey, IV_LEN, OpenJob, TAG_LEN, open_burst};
use testudo_planted::{Plant, planted};
use testudo_wire::esp;
use testudo_wire::icmp::Sources;
use testudo_wire::ipv4::Likeness;

/// Octets of ESP before the ciphertext of an AEAD.
const TEXT_OFFSET: usize = esp::HEADER + IV_LEN;
/// Padding and trailer take at least a word.
const MIN_TEXT_LEN: usize = 4;

/// An ESP packet whose SA is known and whose number may be accepted.
struct InboundPlan<'s> {
    sa: &'s InboundSa,
    arrived: &'s FoundEsp,
    sequence: u64,
    at: u8,
    /// The result of cipher and replay window.
    verdict: Result<(), DropReason>,
    /// True if its number was the highest of all when the window accepted it. Set only for SAs that
    /// follow a NAT.
    is_newest: bool,
}

type Burst<T> = ArrayVec<T, BURST>;

impl Dataplane {
    /// Processes a burst of packets addressed to us. A burst longer than [`BURST`] is processed in
    /// parts.
    pub fn inbound(&mut self, burst: &mut [Item<'_>]) {
        if !self.open {
            return fence::refuse(burst, &self.counters.inbound);
        }
        for part in burst.chunks_mut(BURST) {
            self.inbound_part(part, None);
        }
    }

    /// [`Self::inbound`] while other workers have earlier and later bursts in hand: the steps that
    /// depend on the order wait for `turn`.
    pub fn inbound_in_turn(&mut self, burst: &mut [Item<'_>], turn: &mut dyn Turn) {
        if !self.open {
            return fence::refuse(burst, &self.counters.inbound);
        }
        for part in burst.chunks_mut(BURST) {
            self.inbound_part(part, Some(turn));
        }
    }

    /// Packets with the verdict [`Verdict::Early`] do not wait any longer: no SA has got their SPI.
    pub fn give_up_early(&mut self, packets: u64) {
        self.counters.inbound.early.subtract(packets);
        self.counters.inbound.drop_many(DropReason::UnknownSpi, packets);
    }

    /// Packets with the verdict [`Verdict::Early`], and their octets, go through another worker's
    /// data plane instead.
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
        let mut arrived = sort(burst, &self.local, self.udp_port, &mut any_ah, &counters.inbound);
        if let Some(relay) = self.relay.as_deref()
            && arrived.iter().any(|(_, arrived)| heads::kind_of(arrived).is_some())
        {
            let uncoverer =
                Uncoverer { relay, local: &self.local, udp_port: self.udp_port, counters: &counters.inbound };
            any_ah |= uncoverer.uncover(burst, &mut arrived);
        }
        self.pass(burst, &arrived, Pass { any_ah, is_inside: false, within: None }, turn);
    }

    /// Processes the sorted packets to their end, and once more if there is ESP inside AH.
    fn pass(
        &mut self,
        burst: &mut [Item<'_>],
        arrived: &[(u8, FoundEsp)],
        pass: Pass,
        mut turn: Option<&mut dyn Turn>,
    ) {
        let counters = &*self.counters;
        let mut neighbours = Neighbours {
            transit: &self.transit,
            relay: self.relay.as_deref(),
            counters: &counters.inbound,
            foreign: Burst::new(),
            any_relayed: false,
        };
        let mut plans = admit(burst, arrived, &self.sad, &self.shards, &mut neighbours);
        let Neighbours { foreign, any_relayed, .. } = neighbours;
        if pass.any_ah || self.spd.has_around() {
            let known = bundle::BundleContext {
                sad: &self.sad,
                local: &self.local,
                udp_port: self.udp_port,
                spd: &self.spd,
                outbound: &self.outbound,
            };
            bundle::sort_out(burst, &mut plans, pass, &known, &counters.inbound);
        }
        open(burst, &mut plans);
        let mut receiver = Receiver {
            local: &self.local,
            flows: &mut self.flows,
            spd: &self.spd,
            outbound: &self.outbound,
            // ICMP errors come from the offending packet's destination, so that they fit the tunnel
            // through which it came.
            replier: Replier {
                sources: &Sources { v4: None, v6: None },
                limit: &mut self.icmp_limit,
                counters,
            },
            counters,
            events: &mut self.events,
            now: self.now,
            within: pass.within,
        };
        receiver.foresee(burst, &plans);
        if let Some(turn) = &mut turn
            && !pass.is_inside
        {
            turn.begin();
        }
        let is_early = turn.is_some() || pass.any_ah || any_relayed;
        if is_early {
            accept_all(&mut plans);
        }
        let (mut inside, mut within) = (Burst::new(), None);
        if pass.any_ah {
            receiver.unwrap(burst, &mut plans, self.udp_port, &mut inside, &mut within);
        }
        if any_relayed {
            receiver.take_relayed(burst, &mut plans, self.udp_port);
        }
        // The windows of both SAs of a bundle are asked in one turn.
        if let Some(turn) = &mut turn
            && inside.is_empty()
        {
            turn.end();
        }
        receiver.receive_all(burst, &mut plans, is_early);
        drop(plans);
        if !foreign.is_empty() {
            self.relay_inbound(burst, &foreign);
        }
        if !inside.is_empty() {
            self.pass(burst, &inside, Pass { any_ah: false, is_inside: true, within }, turn);
        }
    }
}

/// The properties of packets before their SAs are known.
#[derive(Clone, Copy, Debug)]
struct Pass {
    /// True if there are packets with AH.
    any_ah: bool,
    /// True if all packets came inside AH.
    is_inside: bool,
    /// The largest packet that the SAs of AH around them take.
    within: Option<u16>,
}

/// Finds the packets with ESP, and with AH: if there are any of AH, `any_ah` is set.
fn sort(
    burst: &mut [Item<'_>],
    local: &LocalAddrs,
    udp_port: u16,
    any_ah: &mut bool,
    counters: &DirectionCounters,
) -> Burst<(u8, FoundEsp)> {
    let mut found: Burst<(u8, FoundEsp)> = Burst::new();
    let mut train = EspTrain::default();
    for (at, item) in burst.iter_mut().enumerate() {
        item.verdict = Verdict::Pending;
        let packet = item.buf.data();
        if let Some(arrived) = train.next(packet) {
            found.push((at as u8, arrived));
            continue;
        }
        found.push((at as u8, FoundEsp::default()));
        let Some((_, arrived)) = found.last_mut() else {
            continue;
        };
        match demux::sort(packet, local, udp_port, arrived) {
            Ok(OuterKind::Esp) => {
                train.follow(packet, arrived);
                continue;
            }
            Ok(OuterKind::Ike) => {
                counters.to_host.add(1);
                item.verdict = Verdict::ToHost;
            }
            Ok(OuterKind::Fragment) => {
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

/// Packets of one SA come in trains too. The SPI follows the outer header of ESP over IPv4.
#[derive(Default)]
struct EspTrain {
    spi: Option<u32>,
    last: Option<(Likeness, FoundEsp)>,
}

impl EspTrain {
    /// ESP in this packet, if it is the next of the train.
    #[inline(always)]
    fn next(&self, packet: &[u8]) -> Option<FoundEsp> {
        let (like, before) = self.last.as_ref()?;
        demux::next_of_train(packet, like.accepts(packet)?, before)
    }

    /// Begins a train with the second packet of an SA: if each packet is of another SA, a comparison
    /// would be in vain.
    #[inline(always)]
    fn follow(&mut self, packet: &[u8], arrived: &FoundEsp) {
        let is_train = arrived.form == Form::Esp && self.spi == Some(arrived.spi);
        self.spi = Some(arrived.spi);
        self.last = is_train.then(|| Likeness::of(packet)).flatten().map(|like| (like, *arrived));
    }
}

/// Finds the SA of each packet that is carried here, and checks its replay window. The packets of a
/// spread SA are carried by their lanes.
fn admit<'s, 'a: 's>(
    burst: &mut [Item<'_>],
    arrived: &'a [(u8, FoundEsp)],
    sad: &'s Sad,
    shards: &ShardSet,
    neighbours: &mut Neighbours<'s, 'a, '_>,
) -> Burst<InboundPlan<'s>> {
    fetch(arrived, sad);
    let mut plans = Burst::new();
    let mut last: Option<(Spi, Option<&InboundSa>, bool)> = None;
    for (at, arrived) in arrived {
        let spi = Spi(arrived.spi);
        let look = || {
            let sa = sad.get(spi);
            // Of a spread SA, each packet is asked below.
            (spi, sa, is_carried(spi.shard(), shards) && sa.is_none_or(|sa| sa.lanes().is_none()))
        };
        let (_, sa, here) = *match &mut last {
            Some(known) if known.0 == spi => known,
            other => other.insert(look()),
        };
        // Whatever the SA sends, in UDP or not, it accepts both at any time (RFC 7296 §2.23).
        let checked = sa.map(|sa| (sa, sa.window.check(arrived.sequence)));
        if let Some((sa, Ok(sequence))) = checked
            && here
        {
            plans.push(InboundPlan { sa, arrived, sequence, at: *at, verdict: Ok(()), is_newest: false });
            continue;
        }
        let (checked, here) = match checked {
            None => neighbours.look_up(spi, arrived.sequence, here),
            known => (known, here),
        };
        let (shard, here) = match sa.and_then(|sa| sa.lane(arrived.sequence)) {
            Some(lane) => (lane, is_carried(lane, shards) || planted(Plant::LaneOwnedTwice)),
            None => (spi.shard(), here),
        };
        let Some(item) = burst.get_mut(usize::from(*at)) else { continue };
        match checked.map(|(sa, checked)| (sa, checked.and_then(|number| sa.check_lane(shard, number)))) {
            _ if !here => neighbours.leave(item, Foreign { at: *at, shard, arrived }),
            Some((sa, Ok(sequence))) => {
                plans.push(InboundPlan { sa, arrived, sequence, at: *at, verdict: Ok(()), is_newest: false });
            }
            Some((sa, Err(reason))) => {
                sa.counters.add_drop(reason);
                neighbours.counters.samples.offer(reason, spi, item.buf.data());
                item.refuse(reason, neighbours.counters);
            }
            None => put_off(item, spi, neighbours.counters),
        }
    }
    plans
}

/// Prefetches the SAs of a burst, if there are several.
#[inline]
fn fetch(arrived: &[(u8, FoundEsp)], sad: &Sad) {
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

/// Puts a packet off whose SA is unknown. The two sides get the keys of an SA at different times:
/// the responder has them first, and may send before its response has been processed here (RFC 7296
/// §2.8).
#[cold]
fn put_off(item: &mut Item<'_>, spi: Spi, counters: &DirectionCounters) {
    counters.early.add(1);
    counters.samples.offer(DropReason::UnknownSpi, spi, item.buf.data());
    item.verdict = Verdict::Early(spi);
}

/// Verifies and decrypts.
fn open(burst: &mut [Item<'_>], plans: &mut [InboundPlan<'_>]) {
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
    let aead = |plan: &&mut InboundPlan<'_>| plan.verdict.is_ok() && matches!(plan.sa.key, SaKey::Aead(_));
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
fn accept(run: &mut [InboundPlan<'_>]) {
    let Some(sa) = run.first().map(|plan| plan.sa) else { return };
    if let Some(lanes) = sa.lanes() {
        lanes::accept(sa, lanes, run);
    } else {
        let number = |plan: &InboundPlan<'_>| plan.verdict.is_ok().then_some(plan.sequence);
        sa.window.accept_run(run, number, |plan, reason| plan.verdict = Err(reason));
    }
    if sa.encapsulation == Encapsulation::Udp {
        find_newest(run, sa.window.high_water_mark());
    }
}

/// Finds the newest packet. To be called while no other worker accepts numbers: others do as soon
/// as the turn is over.
fn find_newest(run: &mut [InboundPlan<'_>], top: u64) {
    let is_newest = |plan: &&mut InboundPlan<'_>| plan.sequence == top && plan.verdict.is_ok();
    if let Some(newest) = run.iter_mut().rfind(is_newest) {
        newest.is_newest = true;
    }
}

/// Takes the authentic packets of all SAs into their windows.
#[cold]
fn accept_all(plans: &mut [InboundPlan<'_>]) {
    plans.chunk_by_mut(|a, b| std::ptr::eq(a.sa, b.sa)).for_each(accept);
}

/// The cipher's job. `None` if the packet is too short: demultiplexing has only ruled out lengths
/// that are too short for all algorithms.
#[inline]
fn job<'a>(packet: &'a mut [u8], plan: &InboundPlan<'a>, key: &'a AeadKey) -> Option<OpenJob<'a>> {
    let InboundPlan { sa, sequence, arrived, .. } = plan;
    let (start, len) = (usize::from(arrived.at), usize::from(arrived.len));
    let esp = packet.get_mut(start..start + len)?;
    let (head, body) = esp.split_first_chunk_mut::<TEXT_OFFSET>()?;
    let (_, iv) = head.split_last_chunk::<IV_LEN>()?;
    let (text, tag) =
        body.split_last_chunk_mut::<TAG_LEN>().filter(|(text, _)| text.len() >= MIN_TEXT_LEN)?;
    let aad = Aad::of_esp(sa.spi.0, *sequence, sa.esn);
    Some(OpenJob { key, iv: *iv, aad, text, tag, ok: false })
}
