//! Workers that steal work from each other: one SA on many cores.
//!
//! Packets of one SA and one flow come by one queue of the port to one worker, their *owner*. Only
//! the owner takes them from the port and sends them. Any worker may do the work in between. When a
//! whole burst waits at the port and some worker is idle, the owner puts bursts into its queue as
//! *tasks*, unread, takes the next burst from the port, and works on the tasks that nobody has
//! stolen. An idle worker searches the queues of the others and takes a task through its own
//! pipeline: look-up, cipher and all. Sequence numbers and replay windows are used in the order in
//! which tasks were queued (see [`sequencer`](super::sequencer)), and the owner sends the packets
//! in that order too. Packets that enter the pipeline meanwhile, from the TUN or for the second
//! time, are queued last, or wait if all tasks are in use.
//!
//! If one worker knew an SA and another did not, packets of one task would be put off while later
//! ones are accepted. So an owner queues tasks only while all others have applied as many commands
//! as it has, and a worker that has applied more steals nothing. All workers get the same commands,
//! and none is applied while tasks are out, so the worker that works on a task knows what its owner
//! knows.
//!
//! Traffic that is spread over queues therefore costs nothing more, and one flow gets every idle
//! worker. Tasks circulate: nothing is allocated, and a queue has room for all tasks of its worker.
//!
//! With [`Sharing::Hash`] a hash of the task's number chooses the worker, idle or not. Tasks are
//! taken from a queue in their order all the same. So of all tasks that were taken and are not done,
//! the first of each queue waits for none, and workers cannot wait for each other in a circle.

use super::channel::Channel;
use super::classify::Direction;
use super::origin::{KeptPacket, Source};
use super::sequencer::{Sequencer, TaskTurn};
use super::task::{Task, TaskInput};
use crate::frame::Frame;
use crate::port::FrameBurst;
use arrayvec::ArrayVec;
use crossbeam_queue::ArrayQueue;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};
use testudo_ipsec::dataplane::Sources;

/// Tasks of one worker.
pub(super) const TASKS_PER_WORKER: usize = 24;
/// Tasks that a burst from a port becomes, as a rule, at most: one for each way through the
/// pipeline, and some more for packets that go through it a second time.
const MAX_TASKS_PER_BURST: usize = 8;
/// Queued tasks that an owner leaves to each idle worker.
const TASKS_LEFT_PER_IDLE_WORKER: usize = 4;
/// Full bursts that found no idle worker must outnumber other bursts by this many before a sleeping
/// worker is woken.
const FULL_BURSTS_BEFORE_WAKING: u32 = 16;
/// Odd, and close to 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Which worker takes a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// An idle one, or its owner.
    Steal,
    /// One of this many, beginning with its owner, by a hash of the task's number.
    Hash {
        /// How many; of fewer workers, all.
        over: usize,
    },
}

/// The task queues of workers that share their work.
#[derive(Debug)]
pub struct WorkerPool {
    queues: Box<[TaskQueue]>,
    sharing: Sharing,
    /// Number of workers that are awake and have no work of their own.
    idle: AtomicUsize,
    /// True if a worker has panicked over a task.
    broken: AtomicBool,
}

/// What one worker shares with the others.
struct TaskQueue {
    /// Tasks that any worker may take.
    open: ArrayQueue<Box<Task>>,
    /// Tasks that others have done.
    done: ArrayQueue<Box<Task>>,
    /// Wakes the worker.
    channel: OnceLock<Arc<Channel>>,
    asleep: AtomicBool,
    /// Number of the task that is taken next, with [`Sharing::Hash`].
    next: AtomicU64,
    /// Commands that the worker has applied. `u64::MAX` if there is no worker, so that none waits
    /// for it.
    applied: AtomicU64,
    /// Orders the numbering of its tasks' packets.
    numbering: Sequencer,
    /// Orders the replay checks of its tasks' packets.
    accepting: Sequencer,
}

impl std::fmt::Debug for TaskQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TaskQueue({} open, {} done)", self.open.len(), self.done.len())
    }
}

impl WorkerPool {
    /// Creates the queues of this many workers.
    pub fn new(workers: usize, sharing: Sharing) -> Arc<Self> {
        let queue = || TaskQueue {
            open: ArrayQueue::new(TASKS_PER_WORKER),
            done: ArrayQueue::new(TASKS_PER_WORKER),
            channel: OnceLock::new(),
            asleep: AtomicBool::new(false),
            next: AtomicU64::new(0),
            applied: AtomicU64::new(u64::MAX),
            numbering: Sequencer::new(),
            accepting: Sequencer::new(),
        };
        let queues = (0..workers).map(|_| queue()).collect();
        Arc::new(Self { queues, sharing, idle: AtomicUsize::new(0), broken: AtomicBool::new(false) })
    }

    /// The worker that a hash chooses for a task; `None` if the first one that comes takes it.
    #[inline]
    fn chosen(&self, owner: usize, task: u64) -> Option<usize> {
        let Sharing::Hash { over } = self.sharing else { return None };
        let over = over.clamp(1, self.queues.len());
        Some((owner + (task.wrapping_mul(GOLDEN) >> 32) as usize % over) % self.queues.len())
    }

    /// Takes the next task from a queue, if `may_take` allows the worker that is chosen for it.
    #[inline]
    fn take(&self, index: usize, may_take: impl FnOnce(usize) -> bool) -> Option<Box<Task>> {
        let queue = self.queues.get(index)?;
        match self.chosen(index, queue.next.load(Acquire)) {
            None => queue.open.pop(),
            Some(chosen) if may_take(chosen) => {
                let task = queue.open.pop()?;
                queue.next.store(task.number + 1, Release);
                Some(task)
            }
            Some(_) => None,
        }
    }

    /// Wakes this worker, if it sleeps. From now on it does not count as asleep.
    #[inline]
    fn wake(&self, index: usize) {
        let Some(queue) = self.queues.get(index) else { return };
        if queue.asleep.load(Relaxed)
            && queue.asleep.swap(false, AcqRel)
            && let Some(channel) = queue.channel.get()
        {
            channel.wake_worker();
        }
    }

    /// Wakes a sleeping worker other than the one with this index.
    #[cold]
    fn wake_one(&self, index: usize) {
        let others = self.queues.iter().enumerate().filter(|(other, _)| *other != index);
        let asleep = others.map(|(_, queue)| queue).find(|queue| queue.asleep.load(Acquire));
        if let Some(channel) = asleep.and_then(|queue| queue.channel.get()) {
            channel.wake_worker();
        }
    }
}

/// A worker's slot in a pool: its queue, and the tasks that it owns.
pub(super) struct PoolSlot {
    pool: Arc<WorkerPool>,
    /// Index of its queue in the pool.
    index: usize,
    /// Unused tasks.
    free: ArrayVec<Box<Task>, TASKS_PER_WORKER>,
    /// Tasks that have begun and not ended, in order: `None` while one is not done.
    begun: VecDeque<Option<Box<Task>>>,
    /// Number of the first of these tasks.
    first: u64,
    /// Packets in these tasks.
    packets: usize,
    is_idle: bool,
    /// By how many the full bursts that found no idle worker outnumber other bursts.
    full_bursts: u32,
    /// Commands that the worker has applied, and whether all others are known to have applied as
    /// many.
    applied: u64,
    is_in_step: bool,
    /// Packets that wait for a free task; at most as many as there are frames.
    waiting: VecDeque<KeptPacket>,
}

impl std::fmt::Debug for PoolSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PoolSlot({}: {} tasks)", self.index, self.begun.len())
    }
}

impl PoolSlot {
    /// Takes a slot before the first command comes, for a worker with `frames` frames. `None` if
    /// the pool has no such slot, or it is taken.
    pub(super) fn take(
        pool: Arc<WorkerPool>,
        index: usize,
        channel: &Arc<Channel>,
        frames: usize,
    ) -> Option<Self> {
        let queue = pool.queues.get(index)?;
        queue.channel.set(Arc::clone(channel)).ok()?;
        queue.applied.store(0, Release);
        Some(Self {
            pool,
            index,
            free: (0..TASKS_PER_WORKER).map(|_| Task::empty()).collect(),
            begun: VecDeque::with_capacity(TASKS_PER_WORKER),
            first: 0,
            packets: 0,
            is_idle: false,
            full_bursts: 0,
            applied: 0,
            is_in_step: false,
            waiting: VecDeque::with_capacity(frames),
        })
    }

    /// True while tasks of this worker are queued, being worked on, or waiting for their turn.
    #[inline]
    pub(super) fn has_tasks(&self) -> bool {
        !self.begun.is_empty()
    }

    /// Packets in tasks, and packets that wait for a task.
    pub(super) fn packets(&self) -> usize {
        self.packets + self.waiting.len()
    }

    /// True if there is room for another burst from a port.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.free.len() >= MAX_TASKS_PER_BURST
    }

    /// Moves packets into a free task. `None` if all tasks are in use.
    pub(super) fn fill(
        &mut self,
        frames: &mut FrameBurst,
        input: TaskInput,
        sources: &Sources,
    ) -> Option<Box<Task>> {
        let mut task = self.free.pop()?;
        (task.input, task.sources, task.stolen) = (input, *sources, false);
        std::mem::swap(&mut task.frames, frames);
        Some(task)
    }

    /// True if a burst should be queued: earlier ones are queued, or more packets wait behind it
    /// and some worker is idle.
    #[inline]
    pub(super) fn wants_help(&mut self, is_full: bool) -> bool {
        if self.has_tasks() {
            return true;
        }
        if !is_full {
            self.full_bursts = self.full_bursts.saturating_sub(1);
            return false;
        }
        if self.takes_any_turn() || self.pool.idle.load(Relaxed) > 0 {
            return self.is_in_step();
        }
        self.full_bursts += 1;
        if self.full_bursts >= FULL_BURSTS_BEFORE_WAKING {
            self.full_bursts = 0;
            self.pool.wake_one(self.index);
        }
        false
    }

    /// True if all others have applied as many commands as this worker.
    #[inline]
    fn is_in_step(&mut self) -> bool {
        if !self.is_in_step {
            self.is_in_step =
                self.pool.queues.iter().all(|queue| queue.applied.load(Acquire) >= self.applied);
        }
        self.is_in_step
    }

    /// Counts a command that was applied while no tasks were out.
    pub(super) fn count_command(&mut self) {
        self.applied += 1;
        self.is_in_step = false;
        self.queue().applied.store(self.applied, Release);
    }

    /// True if packets wait for a task. Later packets must then wait behind them.
    #[inline]
    pub(super) fn is_backed_up(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Has packets wait for a task.
    #[cold]
    pub(super) fn defer(&mut self, frames: &mut FrameBurst, source: Source, direction: Direction) {
        self.waiting.extend(frames.drain(..).map(|frame| KeptPacket { frame, source, direction }));
    }

    /// Takes the next waiting packets of one source and direction, if there is a free task.
    pub(super) fn take_deferred(&mut self, burst: &mut FrameBurst) -> Option<(Source, Direction)> {
        if self.free.is_empty() {
            return None;
        }
        let &KeptPacket { source, direction, .. } = self.waiting.front()?;
        let same = |next: &mut KeptPacket| (next.source, next.direction) == (source, direction);
        while !burst.is_full()
            && let Some(packet) = self.waiting.pop_front_if(same)
        {
            burst.push(packet.frame);
        }
        Some((source, direction))
    }

    /// Takes a waiting packet that will not find a task any more.
    pub(super) fn give_up_deferred(&mut self) -> Option<Frame> {
        self.waiting.pop_front().map(|packet| packet.frame)
    }

    /// Puts a task at the end of the queue.
    pub(super) fn enqueue(&mut self, mut task: Box<Task>) {
        task.number = self.first + self.begun.len() as u64;
        self.packets += task.frames.len();
        if let Some(chosen) = self.pool.chosen(self.index, task.number) {
            self.pool.wake(chosen);
        }
        self.begun.push_back(None);
        // A queue has room for all tasks of its worker.
        if let Err(task) = self.queue().open.push(task) {
            self.finish(task);
        }
    }

    fn queue(&self) -> &TaskQueue {
        &self.pool.queues[self.index]
    }

    /// True if workers take tasks of others while they have work of their own.
    #[inline]
    pub(super) fn takes_any_turn(&self) -> bool {
        self.pool.sharing != Sharing::Steal
    }

    /// The next queued task, if there are more tasks than the idle workers will need soon.
    pub(super) fn dequeue_surplus(&self) -> Option<Box<Task>> {
        let enough = TASKS_LEFT_PER_IDLE_WORKER * self.pool.idle.load(Relaxed);
        if self.queue().open.len() > enough { self.dequeue() } else { None }
    }

    /// The next queued task, whoever is chosen for it.
    pub(super) fn dequeue_any(&self) -> Option<Box<Task>> {
        self.pool.take(self.index, |_| true)
    }

    /// The next queued task, unless another worker is chosen for it and can take it: it has a slot,
    /// does not sleep, and has not applied a command that this worker has not.
    pub(super) fn dequeue(&self) -> Option<Box<Task>> {
        let can_take = |chosen: usize| {
            let queue = &self.pool.queues[chosen];
            queue.applied.load(Acquire) <= self.applied && !queue.asleep.load(Acquire)
        };
        self.pool.take(self.index, |chosen| chosen == self.index || !can_take(chosen))
    }

    /// A task from the queue of another worker that has applied all commands that this worker has,
    /// and the index of that queue.
    pub(super) fn steal(&self) -> Option<(usize, Box<Task>)> {
        let others = self.pool.queues.iter().enumerate().filter(|(index, _)| *index != self.index);
        // Read first: this worker had applied whatever the owner has applied since, before the
        // owner queued the task.
        let known = others.filter(|(_, queue)| queue.applied.load(Acquire) >= self.applied);
        let mut known = known.map(|(index, _)| index);
        let take = |index| self.pool.take(index, |chosen| chosen == self.index);
        let (index, task) = known.find_map(|index| Some((index, take(index)?)))?;
        task.prefetch();
        Some((index, task))
    }

    /// The turns of a task from the queue with this index: one for numbering its packets, one for
    /// accepting them.
    pub(super) fn turns(&self, index: usize, number: u64) -> [TaskTurn<'_>; 2] {
        let TaskQueue { numbering, accepting, .. } = &self.pool.queues[index];
        [numbering, accepting].map(|sequencer| TaskTurn::new(sequencer, number, &self.pool.broken))
    }

    /// Index of this worker's queue.
    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// Gives a stolen task back to the queue with this index, done.
    pub(super) fn give_back(&self, index: usize, mut task: Box<Task>) {
        task.stolen = true;
        // A queue has room for all tasks of its worker.
        let refused = self.pool.queues[index].done.push(task);
        debug_assert!(refused.is_ok(), "more tasks than there are");
    }

    /// Records a done task of this worker at its place in the order.
    pub(super) fn finish(&mut self, task: Box<Task>) {
        let at = task.number - self.first;
        if let Some(begun) = self.begun.get_mut(at as usize) {
            *begun = Some(task);
        }
    }

    /// Takes back the tasks that others have done. Returns the number of packets in them.
    pub(super) fn collect_done(&mut self) -> usize {
        let mut packets = 0;
        while let Some(task) = self.queue().done.pop() {
            packets += task.frames.len();
            task.prefetch();
            self.finish(task);
        }
        packets
    }

    /// The task whose turn it is, if it is done.
    pub(super) fn next_done(&mut self) -> Option<Box<Task>> {
        self.begun.front()?.as_ref()?;
        let task = self.begun.pop_front()??;
        self.first += 1;
        self.packets -= task.frames.len();
        Some(task)
    }

    /// Returns a task to the free ones.
    pub(super) fn recycle(&mut self, mut task: Box<Task>) {
        task.frames.clear();
        task.fates.clear();
        self.free.push(task);
    }

    /// Publishes whether this worker has no work of its own.
    #[inline]
    pub(super) fn set_idle(&mut self, is_idle: bool) {
        if self.is_idle != is_idle {
            self.is_idle = is_idle;
            match is_idle {
                true => self.pool.idle.fetch_add(1, AcqRel),
                false => self.pool.idle.fetch_sub(1, AcqRel),
            };
        }
    }

    /// Publishes that this worker is about to sleep, or has woken up.
    pub(super) fn set_asleep(&mut self, is_asleep: bool) {
        if is_asleep {
            self.set_idle(false);
        }
        self.queue().asleep.store(is_asleep, Release);
    }
}

impl Drop for PoolSlot {
    fn drop(&mut self) {
        self.set_idle(false);
        self.queue().applied.store(u64::MAX, Release);
    }
}
