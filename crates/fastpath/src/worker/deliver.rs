//! Carrying out verdicts: a packet goes out of a port, to the kernel, back to its sender, out in
//! pieces, or is dropped.

mod arriving;
mod pieces;
mod waiting;

use super::channel::{Channel, WorkerEvent};
use super::classify::Direction;
use super::config::WorkerConfig;
use super::counters::WorkerCounters;
use super::drops::WorkerDrop;
use super::early::EarlyQueue;
use super::egress::Egress;
use super::fence::Fence;
use super::hold::{HoldQueue, NeighbourWaiter};
use super::host::HostPort;
use super::join::Joining;
use super::origin::{Context, KeptPacket, Source};
use super::outbox::Outbox;
use super::pipeline::Pipeline;
use super::port_changes::PortChange;
use super::relayed::RelayedPackets;
use super::route::{Hop, Router};
use super::split::FragmentIds;
use super::transit::TransitQueue;
use crate::fib::{Fib, PortIndex, PortSet};
use crate::frame::{Frame, FramePool};
use crate::port::{BURST, FrameBurst, Port};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use testudo_ipsec::dataplane::{Ingress, Verdict};
use testudo_wire::icmp::Sources;

/// Bound on the packets that wait for their second way through the pipeline: one burst, each packet
/// of which has become a burst of pieces.
const MAX_RESUBMITTED: usize = BURST * BURST;
/// One in this many jumbo frames may wait for an SA, and one for a neighbour: there may be few.
const JUMBO_HELD_FRACTION: usize = 4;
/// Bound on the ICMP errors that the worker itself makes between two ticks.
const MAX_ANSWERS_PER_TICK: u32 = 100;

/// Without addresses of its own, an ICMP error takes the offending packet's destination as its
/// source.
const NO_SOURCES: Sources = Sources { v4: None, v6: None };

/// Everything that follows the pipeline.
#[derive(Debug)]
pub(super) struct Delivery<P, H> {
    pub(super) egress: Egress<P>,
    pub(super) host: Option<H>,
    pub(super) pool: FramePool,
    pub(super) counters: Arc<WorkerCounters>,
    pub(super) channel: Arc<Channel>,
    outbox: Outbox,
    router: Router,
    pub(super) clear_by_default: PortSet,
    hold: HoldQueue,
    early: EarlyQueue,
    joining: Joining,
    transit: TransitQueue,
    given_up: u64,
    again: VecDeque<Frame>,
    onward: VecDeque<KeptPacket>,
    relayed: RelayedPackets,
    ids: FragmentIds,
    answers_left: u32,
    told_too_big: bool,
    /// When packets that are to be protected were last split.
    split_at: Option<u64>,
    /// True if something was put into a queue that control reads.
    pub(super) told: bool,
    now: u64,
}

impl<P: Port, H: HostPort> Delivery<P, H> {
    pub(super) fn new(
        config: &WorkerConfig,
        ports: Vec<P>,
        host: Option<H>,
        pool: FramePool,
        fib: Arc<Fib>,
        channel: Arc<Channel>,
    ) -> Self {
        let infos = || ports.iter().map(Port::info);
        let counters = Arc::new(WorkerCounters::new(infos().map(|info| info.index)));
        let router = Router::new(fib, infos().map(|info| (info.index, info.limit)));
        let max_jumbo = pool.jumbo_total() / JUMBO_HELD_FRACTION;
        let early = EarlyQueue::new(max_jumbo);
        let hold = HoldQueue::new(pool.total(), max_jumbo.max(1));
        Self {
            egress: Egress::new(ports),
            joining: Joining::new(pool.total()),
            transit: TransitQueue::new(pool.total(), pool.jumbo_total()),
            host,
            pool,
            counters,
            channel,
            outbox: Outbox::default(),
            router,
            clear_by_default: config.clear_by_default,
            hold,
            early,
            given_up: 0,
            again: VecDeque::with_capacity(MAX_RESUBMITTED),
            onward: VecDeque::with_capacity(BURST),
            relayed: RelayedPackets::new(),
            ids: FragmentIds::new(config.id),
            answers_left: MAX_ANSWERS_PER_TICK,
            told_too_big: false,
            split_at: None,
            told: false,
            now: 0,
        }
    }

    /// The port at a place among the worker's ports.
    pub(super) fn port(&self, place: usize) -> Option<PortIndex> {
        self.router.port(place)
    }

    /// Source addresses for ICMP errors about clear packets: those of the port by which the packets
    /// came in (RFC 1812 §4.3.2.4). An error that takes a tunnel comes from the offending packet's
    /// destination, so that it fits the tunnel's selectors.
    #[inline]
    pub(super) fn error_sources(&self, source: Source) -> &Sources {
        match source {
            Source::Port { place, .. } | Source::Relayed { place, .. } => self.router.error_sources(place),
            _ => &NO_SOURCES,
        }
    }

    /// Carries out a verdict of the pipeline.
    #[inline]
    pub(super) fn deliver(
        &mut self,
        frame: Frame,
        verdict: Verdict,
        context: Context,
        pipeline: &impl Pipeline,
    ) {
        match verdict {
            Verdict::Forward => self.forward(frame, context, pipeline),
            Verdict::ForwardInPieces { mtu } => self.forward_in_pieces(frame, mtu, context, pipeline),
            Verdict::ToHost => self.give_to_host(frame, context),
            Verdict::Reply => {
                // The packet ended in the pipeline; the answer is a new packet.
                self.counters.dropped_by_pipeline.add(1);
                self.counters.generated.add(1);
                self.reply(frame, context);
            }
            Verdict::Onward => self.send_onward(frame, context),
            Verdict::Relayed { ingress, to_us } => self.take_from_node(frame, ingress, to_us, context),
            Verdict::Fragment { mtu } => self.resubmit_in_pieces(frame, mtu, context),
            Verdict::Behind if context.source == Source::Again => {
                self.discard(frame, WorkerDrop::Resubmitted)
            }
            Verdict::Behind => self.submit_again(frame),
            Verdict::Reassemble => self.join(frame, context),
            Verdict::Held => self.hold_for_shard(frame, context),
            Verdict::Early(spi) => self.hold_early(frame, spi, context.source),
            Verdict::Drop(_) | Verdict::Pending => {
                debug_assert_ne!(verdict, Verdict::Pending, "the pipeline gives every packet a verdict");
                self.counters.dropped_by_pipeline.add(1);
                self.pool.give(frame);
            }
        }
    }

    /// Returns a packet's frame to the pool and counts the reason.
    pub(super) fn discard(&mut self, frame: Frame, reason: WorkerDrop) {
        self.counters.count_drop(reason);
        self.pool.give(frame);
    }

    #[inline]
    fn forward(&mut self, frame: Frame, context: Context, pipeline: &impl Pipeline) {
        match self.router.hop_of(frame.data()) {
            Some(hop) if context.inside.is_some() && hop.is_by_default() => {
                let hop = *hop;
                match self.is_route_lost(&hop, context, pipeline) {
                    true => self.discard(frame, WorkerDrop::InnerRouteLost),
                    false => self.send_by(frame, Some(hop), context),
                }
            }
            Some(Hop::Send(hop)) if frame.len() <= hop.mtu => {
                self.egress.send(frame, hop, &mut self.pool, &self.counters);
            }
            hop => {
                let hop = hop.copied();
                self.send_by(frame, hop, context);
            }
        }
    }

    /// True if the only route for a decrypted packet is a default route out of the port by which
    /// its peer is reached, or by which it came: it would leave in clear there. A peer whose
    /// address is not known counts as reached by any port.
    #[cold]
    fn is_route_lost(&self, hop: &Hop, context: Context, pipeline: &impl Pipeline) -> bool {
        let (Some(inside), Some(port)) = (context.inside, self.router.default_port(hop)) else {
            return false;
        };
        let came_by = inside.place.and_then(|place| self.router.port(place.into()));
        let is_towards = |peer| self.router.leads_through(port, peer);
        !self.clear_by_default.contains(port)
            && (came_by == Some(port) || pipeline.peer(inside.policy).is_none_or(is_towards))
    }

    /// Sends a packet to the next hop of its route.
    fn send_on(&mut self, frame: Frame, context: Context) {
        let hop = self.router.hop_of(frame.data()).copied();
        self.send_by(frame, hop, context);
    }

    /// Sends a packet to this next hop, if the frame holds an IP packet.
    fn send_by(&mut self, frame: Frame, hop: Option<Hop>, context: Context) {
        match hop {
            Some(Hop::Send(hop)) if frame.len() <= hop.mtu => {
                self.egress.send(frame, &hop, &mut self.pool, &self.counters);
            }
            Some(Hop::Send(hop)) => self.too_big(frame, &hop, context),
            Some(Hop::Host) => self.give_to_host(frame, context),
            Some(Hop::Wait { port, neighbour, .. }) => {
                self.wait(NeighbourWaiter { frame, context }, port, neighbour)
            }
            Some(Hop::Discard(reason)) => self.discard(frame, reason),
            None => self.discard(frame, WorkerDrop::BadEthernet),
        }
    }

    fn give_to_host(&mut self, frame: Frame, context: Context) {
        // The kernel sent it here for want of a better route: it would only send it again.
        if context.source.is_tun() && context.clear && context.direction == Direction::Outbound {
            return self.discard(frame, WorkerDrop::TunLoop);
        }
        if self.host.is_none() {
            return self.discard(frame, WorkerDrop::NoTun);
        }
        if self.outbox.is_full() {
            self.flush_to_host();
        }
        self.outbox.push(frame);
    }

    /// Writes the packets collected for the kernel to the TUN.
    #[inline]
    fn flush_to_host(&mut self) {
        if self.outbox.is_empty() {
            return;
        }
        match &mut self.host {
            Some(host) if self.egress.is_open() => {
                self.outbox.flush(host, &mut self.pool, &self.counters);
            }
            Some(_) => self.outbox.discard(WorkerDrop::FencedLate, &mut self.pool, &self.counters),
            None => self.outbox.discard(WorkerDrop::NoTun, &mut self.pool, &self.counters),
        }
    }

    /// Sends an ICMP error back the way that the offending packet came.
    fn reply(&mut self, frame: Frame, context: Context) {
        let own = Context { source: Source::Again, ..context };
        match (context.source, context.direction) {
            (Source::Again, _) => self.discard(frame, WorkerDrop::Resubmitted),
            (_, Direction::Inbound) | (Source::Tunnel { .. }, _) => self.submit_again(frame),
            (Source::Port { .. } | Source::Relayed { .. }, Direction::Outbound | Direction::Clear) => {
                self.send_on(frame, own)
            }
            (Source::Tun | Source::TunJoined, Direction::Outbound | Direction::Clear) => {
                self.give_to_host(frame, own)
            }
        }
    }

    /// Has a packet protected in the worker's next turn.
    fn submit_again(&mut self, frame: Frame) {
        if self.again.len() == MAX_RESUBMITTED {
            return self.discard(frame, WorkerDrop::Resubmitted);
        }
        self.again.push_back(frame);
    }

    /// Keeps a packet that another node has relayed until the burst is done.
    #[inline]
    fn take_from_node(&mut self, frame: Frame, ingress: Ingress, to_us: bool, context: Context) {
        let direction = if to_us { Direction::Inbound } else { Direction::Outbound };
        let Some(source) = context.source.relayed(ingress) else {
            return self.discard(frame, WorkerDrop::Resubmitted);
        };
        if let Err(packet) = self.relayed.push(KeptPacket { frame, source, direction }) {
            self.discard(packet.frame, WorkerDrop::Resubmitted);
        }
    }

    /// Takes the next packet that another node has relayed.
    #[inline]
    pub(super) fn take_relayed(&mut self) -> Option<KeptPacket> {
        self.relayed.take()
    }

    /// Keeps a packet on its way from one tunnel into another until the burst is done.
    #[inline]
    fn send_onward(&mut self, frame: Frame, context: Context) {
        // A burst causes no more of these than it has packets, and they are taken before the next
        // burst.
        if self.onward.len() == BURST {
            return self.discard(frame, WorkerDrop::Resubmitted);
        }
        let source = Source::Tunnel { inside: context.inside, joined: false };
        self.onward.push_back(KeptPacket { frame, source, direction: Direction::Outbound });
    }

    /// Takes the next packet that goes from one tunnel into another.
    #[inline]
    pub(super) fn take_onward(&mut self) -> Option<KeptPacket> {
        self.onward.pop_front()
    }

    /// Takes the next packets for a second way through the outbound pipeline.
    #[inline]
    pub(super) fn take_again(&mut self, burst: &mut FrameBurst) {
        let count = self.again.len().min(burst.remaining_capacity());
        burst.extend(self.again.drain(..count));
    }

    /// Queues an event for control.
    pub(super) fn tell(&mut self, event: WorkerEvent) {
        self.told = true;
        if self.channel.events.push((Instant::now(), event)).is_err() {
            self.counters.events_lost.add(1);
        }
    }

    /// Installs a new forwarding table, and sends the packets whose neighbour it knows. Returns the
    /// former table.
    pub(super) fn set_fib(&mut self, fib: Arc<Fib>, pipeline: &impl Pipeline) -> Arc<Fib> {
        let former = self.router.replace(fib);
        loop {
            let router = &self.router;
            let Some(waiters) = self.hold.release(|port, neighbour| router.knows(port, neighbour)) else {
                break;
            };
            for NeighbourWaiter { frame, context } in waiters {
                self.forward(frame, context, pipeline);
            }
        }
        self.count_held();
        former
    }

    /// Closes a port, or opens one.
    #[cold]
    pub(super) fn change_port(&mut self, change: PortChange<P>) {
        let port = match change {
            PortChange::Close(index) => return self.egress.vacate(index, &mut self.pool, &self.counters),
            PortChange::Open { port, .. } => port,
        };
        let (index, limit) = (port.info().index, port.info().limit);
        match self.egress.occupy(port) {
            Ok(place) => {
                self.counters.name(place, index);
                self.router.set_port(place, index, limit);
            }
            Err(port) => port.close(&mut self.pool),
        }
    }

    /// Puts the worker behind a fence.
    pub(super) fn set_fence(&mut self, fence: Arc<Fence>) {
        self.egress.set_fence(fence);
    }

    /// True if packets may leave now.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.egress.is_open()
    }

    /// Sends what is staged and refills the ports.
    #[inline]
    pub(super) fn flush(&mut self) {
        self.flush_to_host();
        self.egress.flush(&mut self.pool, &self.counters);
    }

    /// Sets the time, in milliseconds.
    pub(super) fn set_now(&mut self, now: u64) {
        self.now = now;
    }

    /// Maintenance that is due about ten times a second.
    pub(super) fn tick(&mut self) {
        self.answers_left = MAX_ANSWERS_PER_TICK;
        self.told_too_big = false;
        self.egress.retry();
        self.hold.tick();
        while let Some(waiters) = self.hold.expire(self.now) {
            waiters.into_iter().for_each(|waiter| self.discard(waiter.frame, WorkerDrop::NeighbourTimeout));
        }
        while let Some(frame) = self.early.expire(self.now) {
            self.give_up_early(frame);
        }
        while let Some(frame) = self.transit.expire(self.now) {
            self.discard(frame, WorkerDrop::TransitTimeout);
        }
        let counters = &self.counters;
        self.joining.expire(self.now, &mut self.pool, &mut |reason, packet: &[u8]| {
            counters.count_lost_fragment(reason, packet)
        });
        self.count_held();
    }

    /// Maintenance that is due about once a second.
    pub(super) fn slow_tick(&mut self) {
        self.router.forget();
        self.egress.publish(&self.counters);
    }

    /// True if packets wait for a neighbour, for their SA, or for their remaining fragments.
    pub(super) fn is_holding(&self) -> bool {
        !self.hold.is_empty() || self.early.len() > 0 || !self.joining.is_empty() || self.transit.len() > 0
    }

    /// Drops the packets that wait, closes the ports, and returns the number of missing frames.
    pub(super) fn close(mut self) -> usize {
        while let Some(waiters) = self.hold.clear() {
            waiters.into_iter().for_each(|waiter| self.discard(waiter.frame, WorkerDrop::NeighbourTimeout));
        }
        while let Some(frame) = self.early.clear() {
            self.give_up_early(frame);
        }
        while let Some(packet) = self.transit.take() {
            self.discard(packet.frame, WorkerDrop::TransitTimeout);
        }
        let counters = &self.counters;
        self.joining
            .clear(&mut self.pool, &mut |reason, packet: &[u8]| counters.count_lost_fragment(reason, packet));
        self.count_held();
        self.egress.close(&mut self.pool);
        self.pool.total() - self.pool.available()
    }
}
