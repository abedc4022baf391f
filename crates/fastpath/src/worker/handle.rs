//! A worker's thread, as control sees it.

use super::channel::{Channel, WorkerCommand, WorkerEvent, WorkerGarbage};
use super::{HostPort, Pipeline, Worker, WorkerConfig, WorkerCounters};
use crate::error::{Error, Result};
use crate::port::Port;
use crate::sys::thread::cpu_clock;
use crate::thread;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use std::any::Any;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// A running worker. Dropping the handle ends it.
#[derive(Debug)]
pub struct WorkerHandle {
    id: u8,
    channel: Arc<Channel>,
    counters: Arc<WorkerCounters>,
    /// Returns the number of missing frames when it ends.
    thread: Option<JoinHandle<usize>>,
}

impl WorkerHandle {
    /// Starts a worker on a thread of its own.
    pub fn spawn<P, H, D>(worker: Worker<P, H, D>) -> Result<Self>
    where
        P: Port + Send + 'static,
        H: HostPort + Send + 'static,
        D: Pipeline + Send + 'static,
    {
        let id = worker.config.id;
        let channel = Arc::clone(&worker.delivery.channel);
        let counters = Arc::clone(&worker.delivery.counters);
        let thread = Builder::new()
            .name(format!("worker-{id}"))
            .spawn(move || run(worker))
            .map_err(|source| Error::System { call: "spawning a worker", source })?;
        Ok(Self { id, channel, counters, thread: Some(thread) })
    }

    /// Number of the worker.
    pub fn id(&self) -> u8 {
        self.id
    }

    /// The worker's counters.
    pub fn counters(&self) -> &Arc<WorkerCounters> {
        &self.counters
    }

    /// Sends a command. Returns it if the queue is full: collect the garbage and try again.
    pub fn send(&self, command: WorkerCommand) -> std::result::Result<(), WorkerCommand> {
        self.push(command)?;
        self.wake();
        Ok(())
    }

    /// Queues a command without waking the worker. Call [`WorkerHandle::wake`] after many of them.
    pub fn push(&self, command: WorkerCommand) -> std::result::Result<(), WorkerCommand> {
        self.channel.commands.push(command)
    }

    /// Wakes the worker, which then applies its commands.
    pub fn wake(&self) {
        self.channel.wake_worker();
    }

    /// A descriptor that is readable when there are events or garbage, or when the thread has
    /// ended. [`WorkerHandle::events`] and [`WorkerHandle::collect`] make it unreadable again,
    /// unless something is left for the other of the two.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.channel.control_fd()
    }

    /// Takes the events since the last call, oldest first, each with its time.
    pub fn events(&self) -> impl Iterator<Item = (Instant, WorkerEvent)> + '_ {
        self.channel.quiet_control();
        if !self.channel.garbage.is_empty() {
            self.channel.wake_control();
        }
        std::iter::from_fn(|| self.channel.events.pop())
    }

    /// Takes what the worker's commands have displaced; dropping it frees it.
    pub fn collect(&self) -> impl Iterator<Item = WorkerGarbage> + '_ {
        self.channel.quiet_control();
        if !self.channel.events.is_empty() {
            self.channel.wake_control();
        }
        std::iter::from_fn(|| {
            let garbage = self.channel.garbage.pop();
            // The worker applies no more commands while the garbage queue is full.
            if garbage.is_none() && !self.channel.commands.is_empty() {
                self.channel.wake_worker();
            }
            garbage
        })
    }

    /// True if the thread has ended. It ends by itself only by a panic; [`WorkerHandle::stop`] has
    /// the message.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Processor time that the thread has used so far, including the kernel's work in its system
    /// calls and in interrupts on top of it.
    pub fn cpu_time(&self) -> Duration {
        self.thread.as_ref().and_then(thread_time).unwrap_or_default()
    }

    /// Ends the worker and waits for it. Returns the number of frames that were lost while it ran:
    /// 0 unless there is a fault. Fails if the worker panicked.
    pub fn stop(mut self) -> Result<usize> {
        self.end()
    }

    fn end(&mut self) -> Result<usize> {
        self.channel.stop();
        let Some(thread) = self.thread.take() else { return Ok(0) };
        thread.join().map_err(|panic| Error::WorkerPanicked { worker: self.id, message: message(&*panic) })
    }
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(%error, "a worker had failed");
        }
    }
}

fn thread_time(thread: &JoinHandle<usize>) -> Option<Duration> {
    Some(clock_gettime(cpu_clock(thread)?).ok()?.into())
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned()
}

/// Wakes control when the thread ends, for whatever reason, so that a panic is noticed at once.
struct Bell(Arc<Channel>);

impl Drop for Bell {
    fn drop(&mut self) {
        self.0.wake_control();
    }
}

fn run<P: Port, H: HostPort, D: Pipeline>(mut worker: Worker<P, H, D>) -> usize {
    let channel = Arc::clone(&worker.delivery.channel);
    let _bell = Bell(Arc::clone(&channel));
    if let Some(cpu) = worker.config.cpu {
        pin(worker.config.id, cpu);
    }
    be_prompt(&worker.config);
    let mut idle = Idle::default();
    while !channel.is_stopped() {
        if worker.turn(milliseconds()) {
            idle = Idle::default();
        } else if idle.goes_on(&worker.config) || worker.awake_turns > 0 {
            worker.look();
            std::hint::spin_loop();
        } else {
            worker.sleep();
        }
    }
    worker.close()
}

/// Measures how long there has been no work.
#[derive(Default)]
struct Idle {
    turns: u32,
    /// When polling without work began; only work ends it.
    since: Option<Instant>,
}

impl Idle {
    /// Counts a turn. Returns true as long as the worker should continue to poll.
    fn goes_on(&mut self, config: &WorkerConfig) -> bool {
        if self.turns < config.idle_turns {
            self.turns += 1;
            return true;
        }
        !config.busy_poll.is_zero()
            && self.since.get_or_insert_with(Instant::now).elapsed() < config.busy_poll
    }
}

fn pin(worker: u8, cpu: usize) {
    let mut set = CpuSet::new();
    if let Err(error) = set.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set)) {
        tracing::warn!(worker, cpu, %error, "worker not pinned");
    }
}

fn be_prompt(config: &WorkerConfig) {
    if let Err(error) = thread::be_prompt(config.priority) {
        tracing::warn!(worker = config.id, priority = config.priority, %error, "cannot raise worker priority");
    }
}

/// The coarse clock, which takes a few nanoseconds to read. Timers here are no finer than its 4 ms.
fn milliseconds() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE)
        .map_or(0, |now| now.tv_sec() as u64 * 1000 + now.tv_nsec() as u64 / 1_000_000)
}
