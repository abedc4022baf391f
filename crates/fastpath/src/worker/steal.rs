//! The work of a worker in a pool: it queues bursts, works on them, sends them in order, and takes
//! tasks of others.

use super::classify::{Arrived, Direction};
use super::deliver::Delivery;
use super::drops::WorkerDrop;
use super::origin::{Context, Copies, Source};
use super::pool::{PoolSlot, WorkerPool};
use super::task::{Fate, Task, TaskInput};
use super::{HostPort, Outcome, Pipeline, Worker};
use crate::frame::Frame;
use crate::port::{BURST, FrameBurst, Port};
use arrayvec::ArrayVec;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testudo_ipsec::dataplane::{Item, Turn, Verdict};

/// How long a worker that ends waits for its stolen tasks.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Consecutive turns in which a worker only waits for others, before it yields the processor to
/// them: about as long as they need for a burst.
const WAITING_TURNS_BEFORE_YIELD: u32 = 4096;
/// Checks for tasks that others have done, before the processor is yielded to them.
const SPINS_BEFORE_YIELD: u32 = 1000;

impl<P: Port, H: HostPort, D: Pipeline> Worker<P, H, D> {
    /// Puts the worker into a slot of a pool.
    ///
    /// # Panics
    /// If the pool has no such slot, or it is taken.
    #[must_use]
    pub fn in_pool(mut self, pool: Arc<WorkerPool>, index: usize) -> Self {
        let slot = PoolSlot::take(pool, index, &self.delivery.channel, self.delivery.pool.total());
        assert!(slot.is_some(), "slot {index} of the pool is not free");
        self.slot = slot;
        self
    }

    /// True while tasks of this worker are out.
    #[inline]
    pub(super) fn has_tasks(&self) -> bool {
        self.slot.as_ref().is_some_and(PoolSlot::has_tasks)
    }

    /// True if ports may be read: there is room for the packets, and they will not overtake pieces
    /// by far.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        let is_apart = self.has_tasks() && self.delivery.is_splitting();
        self.slot.as_ref().is_none_or(PoolSlot::has_room) && !is_apart
    }

    /// Queues a burst from a port as a task, unread, if others may help with it. Returns false if
    /// the burst is still there.
    #[inline]
    pub(super) fn offer(&mut self, received: &mut FrameBurst, place: usize) -> bool {
        let is_full = received.is_full() && !self.delivery.is_splitting();
        if !self.slot.as_mut().is_some_and(|slot| slot.wants_help(is_full)) {
            return false;
        }
        // There are at most `MAX_PORTS_PER_WORKER`.
        let (place, rules) = (place as u8, self.rules(place));
        self.enqueue(received, TaskInput::Received { place, rules })
    }

    /// Queues packets behind all tasks that are already out. There is room for them, except where
    /// most packets go through the pipeline twice: then they wait.
    pub(super) fn enqueue_behind(&mut self, frames: &mut FrameBurst, direction: Direction, source: Source) {
        let is_backed_up = self.slot.as_ref().is_some_and(PoolSlot::is_backed_up);
        if (is_backed_up || !self.enqueue(frames, TaskInput::Packets { source, direction }))
            && let Some(slot) = &mut self.slot
        {
            slot.defer(frames, source, direction);
        }
    }

    /// Queues packets that wait for a task, as far as tasks are free again.
    #[inline]
    fn enqueue_deferred(&mut self) {
        let mut burst = FrameBurst::new();
        while let Some((source, direction)) =
            self.slot.as_mut().and_then(|slot| slot.take_deferred(&mut burst))
        {
            self.enqueue(&mut burst, TaskInput::Packets { source, direction });
        }
    }

    fn enqueue(&mut self, frames: &mut FrameBurst, input: TaskInput) -> bool {
        let Some(slot) = &mut self.slot else { return false };
        let sources = self.delivery.error_sources(input.source());
        let Some(task) = slot.fill(frames, input, sources) else { return false };
        slot.enqueue(task);
        true
    }

    /// Works on tasks that others will hardly steal: the longer the queue, the less of it is still
    /// in this worker's caches.
    #[inline]
    pub(super) fn work_on_surplus(&mut self) {
        while let Some(task) = self.slot.as_ref().and_then(PoolSlot::dequeue_surplus) {
            self.work_on_own(task);
        }
    }

    /// Processes the tasks that were not stolen, and sends the packets of those whose turn it is.
    #[inline]
    pub(super) fn work_on_queue(&mut self) {
        if !self.has_tasks() {
            return;
        }
        while let Some(task) = self.slot.as_ref().and_then(PoolSlot::dequeue) {
            self.work_on_own(task);
        }
        self.deliver_done();
    }

    pub(super) fn work_on_own(&mut self, mut task: Box<Task>) {
        if let Some(slot) = &mut self.slot {
            work(&mut task, slot, slot.index(), &mut self.pipeline, &mut self.delivery);
            slot.finish(task);
        }
        self.deliver_done();
    }

    /// Delivers the packets of the tasks whose turn it is.
    fn deliver_done(&mut self) {
        let Some(slot) = &mut self.slot else { return };
        let by_others = slot.collect_done();
        self.delivery.counters.helped_by_others.add(by_others as u64);
        while let Some(mut task) = self.slot.as_mut().and_then(PoolSlot::next_done) {
            let (mut early, source) = (FrameBurst::new(), task.input.source());
            self.deliver_task(&mut task, &mut early);
            if let Some(slot) = &mut self.slot {
                slot.recycle(task);
            }
            self.enqueue_deferred();
            self.run_here(&mut early, Direction::Inbound, source);
            self.run_again();
        }
    }

    /// Delivers the packets of a task. `early` gets the packets whose SA another worker has not
    /// found: this worker does not know the SA either, but keeps and counts them.
    fn deliver_task(&mut self, task: &mut Task, early: &mut FrameBurst) {
        let Task { frames, fates, stolen, .. } = task;
        for (frame, fate) in frames.drain(..).zip(fates.drain(..)) {
            match fate {
                Fate::Lost(reason) => self.delivery.discard(frame, reason),
                Fate::Decided { verdict: Verdict::Early(_), .. } if *stolen => early.push(frame),
                Fate::Decided { verdict, context } => {
                    self.delivery.deliver(frame, verdict, context, &self.pipeline);
                }
            }
        }
    }

    /// Steals a task and works on it. Returns false if there is none.
    #[inline]
    pub(super) fn steal(&mut self) -> bool {
        let Some(slot) = &self.slot else { return false };
        let Some((owner, mut task)) = slot.steal() else { return false };
        work(&mut task, slot, owner, &mut self.pipeline, &mut self.delivery);
        if let Some((packets, octets)) = early_of(&task) {
            self.pipeline.pass_early(packets, octets);
        }
        self.delivery.counters.helped_others.add(task.frames.len() as u64);
        slot.give_back(owner, task);
        true
    }

    /// Waits for the workers that have all the tasks. From time to time it yields the processor,
    /// because they may have none.
    pub(super) fn wait_for_others(&mut self) {
        self.waiting_turns = self.waiting_turns.wrapping_add(1);
        if self.waiting_turns.is_multiple_of(WAITING_TURNS_BEFORE_YIELD) {
            std::thread::yield_now();
        }
    }

    /// Ends all tasks that have begun, before something happens that must not meet them. `timeout`
    /// bounds the wait if the worker is to go on.
    #[cold]
    pub(super) fn end_tasks(&mut self, timeout: Option<Duration>) {
        let begun = Instant::now();
        let mut spins = 0;
        while self.has_tasks() {
            // Tasks for others too: these may be waiting for their own to end, as this worker is.
            while let Some(task) = self.slot.as_ref().and_then(PoolSlot::dequeue_any) {
                self.work_on_own(task);
            }
            self.deliver_done();
            let stopped = self.delivery.channel.is_stopped();
            let limit = if stopped { Some(CLOSE_TIMEOUT) } else { timeout };
            if limit.is_some_and(|limit| begun.elapsed() > limit) {
                return;
            }
            spins += 1;
            match spins % SPINS_BEFORE_YIELD {
                0 => std::thread::yield_now(),
                _ => std::hint::spin_loop(),
            }
        }
    }

    /// Leaves the pool, with as many of the worker's packets as others give back in time.
    pub(super) fn leave_pool(&mut self) {
        self.end_tasks(Some(CLOSE_TIMEOUT));
        while let Some(frame) = self.slot.as_mut().and_then(PoolSlot::give_up_deferred) {
            self.delivery.discard(frame, WorkerDrop::Resubmitted);
        }
        self.slot = None;
    }
}

/// The number and octets of a task's packets whose SA the worker does not know: they wait at the
/// owner, which looks for the SA once more.
fn early_of(task: &Task) -> Option<(u64, u64)> {
    let is_early = |fate: &Fate| matches!(fate, Fate::Decided { verdict: Verdict::Early(_), .. });
    let early = task.frames.iter().zip(&task.fates).filter(|(_, fate)| is_early(fate));
    early.map(|(frame, _)| (1, u64::from(frame.len()))).reduce(|all, one| (all.0 + one.0, all.1 + one.1))
}

/// Takes a task from the queue with the index `owner` through a pipeline.
pub(super) fn work<P: Port, H: HostPort, D: Pipeline>(
    task: &mut Task,
    slot: &PoolSlot,
    owner: usize,
    pipeline: &mut D,
    delivery: &mut Delivery<P, H>,
) {
    sort(task, delivery);
    let [mut numbering, mut accepting] = slot.turns(owner, task.number);
    let Task { frames, fates, sources, .. } = task;
    let (mut outbound, mut inbound, mut clear) = (PerPacket::new(), PerPacket::new(), PerPacket::new());
    for (frame, fate) in frames.iter_mut().zip(fates.iter()) {
        match fate {
            Fate::Lost(_) => {}
            Fate::Decided { context: Context { source, direction, .. }, .. } => {
                let item = Item::new(frame.packet(), source.ingress());
                match direction {
                    Direction::Outbound => outbound.push(item),
                    Direction::Inbound => inbound.push(item),
                    Direction::Clear => clear.push(item),
                }
            }
        }
    }
    // A task with nothing to number or to accept waits for no other.
    if inbound.is_empty() {
        accepting.end();
    }
    if !outbound.is_empty() {
        pipeline.outbound_in_turn(&mut outbound, sources, &mut numbering);
    }
    numbering.end();
    if !inbound.is_empty() {
        pipeline.inbound_in_turn(&mut inbound, &mut accepting);
    }
    accepting.end();
    if !clear.is_empty() {
        pipeline.judge(&mut clear, sources);
    }
    let [mut outbound, mut inbound, mut clear] =
        [outbound, inbound, clear].map(|burst| outcomes(burst).into_iter());
    for (frame, fate) in frames.iter_mut().zip(fates) {
        let Fate::Decided { verdict, context } = fate else { continue };
        let outcome = match context.direction {
            Direction::Outbound => outbound.next(),
            Direction::Inbound => inbound.next(),
            Direction::Clear => clear.next(),
        };
        let Some(outcome) = outcome else { continue };
        context.source = outcome.source(context.source);
        context.clear = outcome.is_clear(frame);
        context.inside = context.source.inside(outcome.inside, context.clear);
        *verdict = outcome.verdict;
        let fits = frame.set_extent(outcome.start.into(), outcome.len.into());
        debug_assert!(fits, "the pipeline works inside the frame");
    }
}

type PerPacket<T> = ArrayVec<T, BURST>;

fn outcomes(items: PerPacket<Item<'_>>) -> PerPacket<Outcome> {
    items.iter().map(Outcome::of).collect()
}

/// Classifies each frame: its way through the pipeline.
fn sort<P: Port, H: HostPort>(task: &mut Task, delivery: &mut Delivery<P, H>) {
    let Task { frames, input, fates, .. } = task;
    let pending = |source, direction| {
        let context = Context { source, direction, clear: false, inside: None };
        Fate::Decided { verdict: Verdict::Pending, context }
    };
    *fates = match *input {
        TaskInput::Packets { source, direction } => {
            frames.iter().map(|_| pending(source, direction)).collect()
        }
        TaskInput::Received { place, rules } => {
            let from = |copies| Source::Port { place, copies, joined: false };
            let fate = |frame: &mut Frame| match delivery.admit(frame, rules) {
                Ok(Arrived::Inbound) => pending(from(Copies::Here), Direction::Inbound),
                Ok(Arrived::Clear) => pending(from(Copies::Here), Direction::Clear),
                Ok(Arrived::Outbound) => pending(from(Copies::Here), Direction::Outbound),
                Ok(Arrived::OutboundInTurn) => pending(from(Copies::InTurn), Direction::Outbound),
                Ok(Arrived::OutboundFlooded) => pending(from(Copies::Flooded), Direction::Outbound),
                Err(reason) => Fate::Lost(reason),
            };
            frames.iter_mut().map(fate).collect()
        }
    };
}
