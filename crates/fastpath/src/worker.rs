//! Workers. Each worker is one thread that owns its ports, its frames and its pipeline. It shares
//! nothing but counters and queues.
//!
//! One turn of the loop applies commands, takes a burst from each port through the pipeline, reads
//! the TUN now and then, and sends all collected packets. A turn takes no lock and allocates
//! nothing. System calls are made per burst, not per packet, except for the TUN: it takes one call
//! for each packet, where TCP goes in segments of up to 64 kB.
#![cfg_attr(
    not(test),
    expect(
        clippy::indexing_slicing,
        reason = "places, numbers and lengths come from tables and buffers of that size, and a check would cost each packet"
    )
)]

mod channel;
mod classify;
mod config;
mod counters;
mod deliver;
mod drops;
mod early;
mod egress;
mod fence;
mod handing_over;
mod handle;
mod hold;
mod host;
mod inbox;
mod join;
mod origin;
mod outbox;
mod pipeline;
mod pool;
mod port_changes;
mod receive;
mod relayed;
mod route;
mod sequencer;
mod source;
mod split;
mod steal;
mod task;
#[cfg(test)]
mod tests;
mod transit;
mod wait;

pub use channel::{WorkerCommand, WorkerEvent, WorkerGarbage};
pub use config::WorkerConfig;
pub use counters::{PortTotals, WorkerCounters, WorkerTotals};
pub use drops::WorkerDrop;
pub use fence::{Fence, boottime};
pub use handle::WorkerHandle;
pub use host::HostPort;
pub use pipeline::Pipeline;
pub use pool::{Sharing, WorkerPool};
pub use port_changes::{PortChange, PortChanges};

use crate::error::{Error, Result};
use crate::fib::Fib;
use crate::frame::{Frame, FramePool};
use crate::port::{BURST, FrameBurst, Port};
use arrayvec::ArrayVec;
use channel::Channel;
use classify::Direction;
use deliver::Delivery;
use inbox::Inbox;
use origin::{Context, KeptPacket, Source};
use pool::PoolSlot;
use std::sync::Arc;
use testudo_base::shard::ShardSet;
use testudo_ipsec::dataplane::{Command, Garbage, Ingress, Item, Verdict};
use testudo_ipsec::spd::PolicyId;

/// Bound on the ports of a worker. A port here is one queue of an interface; its place among the
/// worker's ports fits one octet.
const MAX_PORTS_PER_WORKER: usize = 256;

/// Bound on the bursts that a worker takes from each port in one turn while others steal from it.
const MAX_BURSTS_PER_TURN: usize = 16;

/// Turns without work for which a worker stays awake after it has stolen a task or was woken: some
/// milliseconds. A worker that wants help looks for idle ones once a burst.
const AWAKE_TURNS: u32 = 20_000;

/// Milliseconds between two checks of timers.
const TICK_MS: u64 = 100;
/// Milliseconds between two slow ticks, which empty the next-hop cache and publish port losses.
const SLOW_TICK_MS: u64 = 1000;

/// A worker: its ports, TUN and pipeline, and the frames that circulate between them.
#[derive(Debug)]
pub struct Worker<P, H, D> {
    config: WorkerConfig,
    pipeline: D,
    slot: Option<PoolSlot>,
    /// Shards that are about to go to another node. The pipeline notes which of their packets it
    /// has worked on.
    leaving: ShardSet,
    /// True if shards have come or gone since the packets that wait for a shard were last checked.
    shards_moved: bool,
    /// Turns without work for which the worker still stays awake, because others may want help.
    awake_turns: u32,
    /// Consecutive turns in which other workers held all of this worker's tasks.
    waiting_turns: u32,
    delivery: Delivery<P, H>,
    changes: Option<Arc<PortChanges<P>>>,
    inbox: Inbox,
    turns_to_tun: u32,
    /// Turns for which the TUN is still left alone after it had no packet.
    tun_rest: u32,
    tick_due: u64,
    slow_tick_due: u64,
}

/// The pipeline's decision on one packet.
struct Outcome {
    start: u16,
    len: u16,
    verdict: Verdict,
    ingress: Ingress,
    inside: Option<PolicyId>,
}

impl Outcome {
    #[inline]
    fn of(item: &Item<'_>) -> Self {
        // A frame has at most 16384 octets, so that both numbers fit.
        let (start, len) = (item.buf.start() as u16, item.buf.len() as u16);
        Self { start, len, verdict: item.verdict, ingress: item.ingress, inside: item.inside }
    }

    /// The source of the packet, if this was that of its frame: the pipeline may have found out that
    /// another node has relayed it.
    #[inline]
    fn source(&self, of_frame: Source) -> Source {
        match self.ingress {
            ingress @ Ingress::Relayed => of_frame.relayed(ingress).unwrap_or(of_frame),
            _ => of_frame,
        }
    }

    /// True if the packet in the frame was not encrypted: that puts headers before it.
    #[inline]
    fn is_clear(&self, frame: &Frame) -> bool {
        self.start >= frame.start()
    }
}

impl<P: Port, H: HostPort, D: Pipeline> Worker<P, H, D> {
    /// Creates a worker over ports whose frames come from `pool`. There may be no port, and several
    /// ports may be queues of one interface; the worker sends by the first of these. The pool needs
    /// as many frames as the ports may hold, and some bursts more
    /// ([`crate::port::xdp::XdpConfig::frames`]).
    pub fn new(
        config: WorkerConfig,
        ports: Vec<P>,
        host: Option<H>,
        pool: FramePool,
        fib: Arc<Fib>,
        pipeline: D,
    ) -> Result<Self> {
        if ports.len() > MAX_PORTS_PER_WORKER {
            return Err(Error::TooManyPorts {
                worker: config.id,
                found: ports.len(),
                limit: MAX_PORTS_PER_WORKER,
            });
        }
        let channel = Arc::new(Channel::new()?);
        let inbox = Inbox::new(host.is_some());
        let delivery = Delivery::new(&config, ports, host, pool, fib, channel);
        let mut worker = Self {
            config,
            pipeline,
            slot: None,
            leaving: ShardSet::EMPTY,
            shards_moved: false,
            awake_turns: 0,
            waiting_turns: 0,
            delivery,
            changes: None,
            inbox,
            turns_to_tun: 0,
            tun_rest: 0,
            tick_due: 0,
            slow_tick_due: 0,
        };
        worker.delivery.flush();
        Ok(worker)
    }

    /// Puts the worker behind a fence.
    #[must_use]
    pub fn behind(mut self, fence: Arc<Fence>) -> Self {
        self.delivery.set_fence(fence);
        self
    }

    /// The counters. Any thread may read them.
    pub fn counters(&self) -> &Arc<WorkerCounters> {
        &self.delivery.counters
    }

    /// The port at this place in the list given to [`Worker::new`]. For tests and measurements that
    /// call [`Worker::turn`] themselves.
    pub fn port_mut(&mut self, place: usize) -> Option<&mut P> {
        self.delivery.egress.port_mut(place)
    }

    /// The TUN.
    #[cfg(test)]
    pub(crate) fn host_mut(&mut self) -> Option<&mut H> {
        self.delivery.host.as_mut()
    }

    /// The pipeline.
    pub fn pipeline(&self) -> &D {
        &self.pipeline
    }

    /// The pipeline, to be changed.
    #[cfg(test)]
    pub(crate) fn pipeline_mut(&mut self) -> &mut D {
        &mut self.pipeline
    }

    /// The free frames.
    pub fn pool_mut(&mut self) -> &mut FramePool {
        &mut self.delivery.pool
    }

    /// Runs one turn of the loop. `now` is in milliseconds since any origin. Returns false if there
    /// was nothing to do.
    pub fn turn(&mut self, now: u64) -> bool {
        self.pipeline.set_now(now);
        self.delivery.set_now(now);
        // Read the fence before the commands: they were sent before the fence opened, so a worker
        // that sees it open finds all of them in its queue.
        self.pipeline.set_open(self.delivery.is_open());
        let mut busy = self.apply_commands();
        if busy {
            // After all commands: policies and outbound packets may belong to the new SA.
            self.receive_early();
            self.receive_from_transit();
            // A packet that waited for a neighbour may cause an ICMP error, which takes the tunnel.
            self.run_again();
        }
        busy |= self.receive_all();
        if self.turns_to_tun > 0 {
            self.turns_to_tun -= 1;
        } else if self.has_room() {
            busy |= self.receive_from_host();
        }
        self.tick(now);
        match self.delivery.take_given_up() {
            0 => {}
            packets => self.pipeline.give_up_early(packets),
        }
        self.delivery.flush();
        self.tell_control();
        self.delivery.counters.turns.add(1);
        if let Some(slot) = &self.slot {
            self.delivery.counters.away.set(slot.packets() as u64);
        }
        debug_assert!(
            self.delivery.counters.totals().is_balanced(),
            "packets vanished: {:?}",
            self.counters().totals()
        );
        busy
    }

    /// Takes bursts from all ports. While others steal and there is room, it takes more of them: a
    /// stolen task costs this worker only the work around the cipher.
    fn receive_all(&mut self) -> bool {
        let mut any = false;
        for _ in 0..MAX_BURSTS_PER_TURN {
            let mut received = false;
            for place in 0..self.delivery.egress.len() {
                received |= self.has_room() && self.receive(place);
            }
            any |= received;
            if !received || !self.has_tasks() {
                break;
            }
            self.work_on_surplus();
        }
        let had_tasks = self.has_tasks();
        self.work_on_queue();
        let takes_any_turn = self.slot.as_ref().is_some_and(PoolSlot::takes_any_turn);
        let stole = (!any || takes_any_turn) && self.steal();
        self.awake_turns = if stole { AWAKE_TURNS } else { self.awake_turns.saturating_sub(1) };
        if let Some(slot) = &mut self.slot {
            slot.set_idle(!any);
        }
        if any || stole {
            self.waiting_turns = 0;
        } else if self.has_tasks() {
            self.wait_for_others();
        }
        any || stole || had_tasks
    }

    /// Applies the commands of control, as long as the garbage queue has room.
    fn apply_commands(&mut self) -> bool {
        let mut any = false;
        while !self.delivery.channel.garbage.is_full() {
            let Some(command) = self.delivery.channel.commands.pop() else { break };
            any = true;
            if self.gives_up(&command) {
                self.empty_ports();
            }
            if self.has_tasks() {
                self.end_tasks(None);
            }
            let garbage = match command {
                WorkerCommand::Ipsec(command) => self.apply(command).map(WorkerGarbage::Ipsec),
                WorkerCommand::Fib(fib) => {
                    Some(WorkerGarbage::Fib(self.delivery.set_fib(fib, &self.pipeline)))
                }
                WorkerCommand::Ports => {
                    self.change_ports();
                    None
                }
            };
            if let Some(slot) = &mut self.slot {
                slot.count_command();
            }
            if let Some(garbage) = garbage {
                self.delivery.told = true;
                // The loop has checked that there is room, and no other thread pushes.
                let _ = self.delivery.channel.garbage.push(garbage);
            }
        }
        any
    }

    fn apply(&mut self, command: Command) -> Option<Garbage> {
        match &command {
            Command::AddInbound(sa) => self.delivery.expect_early(sa.spi()),
            Command::SetRelay(relay) => relay.spis().for_each(|spi| self.delivery.expect_early(spi)),
            Command::SetShards(_) | Command::Hold(_) => self.shards_moved = true,
            Command::Note(shards, _) => self.leaving = *shards,
            Command::TakeNotes => self.leaving = ShardSet::EMPTY,
            _ => {}
        }
        self.pipeline.apply(command)
    }

    /// Takes the packets that the pipeline wants to see again through it: relayed packets, pieces
    /// of packets, and ICMP errors. The results are not submitted once more, so this ends.
    #[inline]
    fn run_again(&mut self) {
        let mut burst = FrameBurst::new();
        self.run_in_bursts(&mut burst, Delivery::take_joined);
        self.run_in_bursts(&mut burst, Delivery::take_relayed);
        self.run_in_bursts(&mut burst, Delivery::take_onward);
        // Fragments among these may have become whole packets, which wait for no further burst.
        self.run_in_bursts(&mut burst, Delivery::take_joined);
        loop {
            self.delivery.take_again(&mut burst);
            if burst.is_empty() {
                return;
            }
            self.run(&mut burst, Direction::Outbound, Source::Again);
        }
    }

    /// Runs kept packets in bursts of one source and direction.
    #[inline]
    fn run_in_bursts(
        &mut self,
        burst: &mut FrameBurst,
        mut next: impl FnMut(&mut Delivery<P, H>) -> Option<KeptPacket>,
    ) {
        let mut way = None;
        while let Some(KeptPacket { frame, source, direction }) = next(&mut self.delivery) {
            if let Some((source, direction)) = way
                .replace((source, direction))
                .filter(|last| *last != (source, direction) || burst.is_full())
            {
                self.run(burst, direction, source);
            }
            burst.push(frame);
        }
        if let Some((source, direction)) = way {
            self.run(burst, direction, source);
        }
    }

    /// Takes a burst of IP packets through the pipeline, after those that are in tasks.
    #[inline]
    fn run(&mut self, frames: &mut FrameBurst, direction: Direction, source: Source) {
        if frames.is_empty() {
            return;
        }
        if self.has_tasks() {
            self.enqueue_behind(frames, direction, source);
        } else {
            self.run_here(frames, direction, source);
        }
    }

    /// Takes a burst of IP packets through the whole pipeline, and carries out its verdicts.
    #[inline]
    fn run_here(&mut self, frames: &mut FrameBurst, direction: Direction, source: Source) {
        if frames.is_empty() {
            return;
        }
        let ingress = source.ingress();
        let mut items: ArrayVec<Item<'_>, BURST> =
            frames.iter_mut().map(|frame| Item::new(frame.packet(), ingress)).collect();
        match direction {
            Direction::Outbound => self.pipeline.outbound(&mut items, self.delivery.error_sources(source)),
            Direction::Inbound => self.pipeline.inbound(&mut items),
            Direction::Clear => self.pipeline.judge(&mut items, self.delivery.error_sources(source)),
        }
        let outcomes: ArrayVec<Outcome, BURST> = items.iter().map(Outcome::of).collect();
        drop(items);
        for (mut frame, outcome) in frames.drain(..).zip(outcomes) {
            let clear = outcome.is_clear(&frame);
            let fits = frame.set_extent(outcome.start.into(), outcome.len.into());
            debug_assert!(fits, "the pipeline works inside the frame");
            let source = outcome.source(source);
            let context = Context { source, direction, clear, inside: source.inside(outcome.inside, clear) };
            self.delivery.deliver(frame, outcome.verdict, context, &self.pipeline);
        }
    }

    #[inline]
    fn tick(&mut self, now: u64) {
        if now >= self.tick_due {
            self.tick_due = now + TICK_MS;
            self.delivery.tick();
        }
        if now >= self.slow_tick_due {
            self.slow_tick_due = now + SLOW_TICK_MS;
            self.delivery.slow_tick();
        }
    }

    /// Passes the pipeline's events to control, and wakes control if there is anything for it.
    #[inline]
    fn tell_control(&mut self) {
        let delivery = &mut self.delivery;
        self.pipeline.drain_events(|event| delivery.tell(WorkerEvent::Ipsec(event)));
        if std::mem::take(&mut self.delivery.told) {
            self.delivery.channel.wake_control();
        }
    }

    /// Ends the worker. Returns the number of frames that are missing then.
    pub fn close(mut self) -> usize {
        self.leave_pool();
        self.delivery.close()
    }
}
