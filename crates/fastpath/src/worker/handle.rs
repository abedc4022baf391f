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
    /// Ends with the number of frames that are missing.
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

    /// Sends a command. It comes back if too many wait: collect the garbage and try again.
    pub fn send(&self, command: WorkerCommand) -> std::result::Result<(), WorkerCommand> {
        self.push(command)?;
        self.wake();
        Ok(())
    }

    /// The same, but a worker that sleeps goes on sleeping until [`WorkerHandle::wake`]: for many
    /// commands at once.
    pub fn push(&self, command: WorkerCommand) -> std::result::Result<(), WorkerCommand> {
        self.channel.commands.push(command)
    }

    /// Has the worker look at its commands.
    pub fn wake(&self) {
        self.channel.wake_worker();
    }

    /// Readable when there are events or garbage, or when the thread has ended.
    /// [`WorkerHandle::events`] and [`WorkerHandle::collect`] make it unreadable again, unless
    /// there is something left for the other.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.channel.control_fd()
    }

    /// Takes the events that have come up, oldest first, and when they did.
    pub fn events(&self) -> impl Iterator<Item = (Instant, WorkerEvent)> + '_ {
        self.channel.quiet_control();
        if !self.channel.garbage.is_empty() {
            self.channel.wake_control();
        }
        std::iter::from_fn(|| self.channel.events.pop())
    }

    /// Takes what the worker has put out of use; dropping it frees it.
    pub fn collect(&self) -> impl Iterator<Item = WorkerGarbage> + '_ {
        self.channel.quiet_control();
        if !self.channel.events.is_empty() {
            self.channel.wake_control();
        }
        std::iter::from_fn(|| {
            let garbage = self.channel.garbage.pop();
            // The worker takes no more commands while there is no room for what they put out of
            // use.
            if garbage.is_none() && !self.channel.commands.is_empty() {
                self.channel.wake_worker();
            }
            garbage
        })
    }

    /// True if the thread has ended, which it does by itself only by a panic:
    /// [`WorkerHandle::stop`] says which.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Processor time that the thread has used so far. What the kernel does in the thread's system
    /// calls and in interrupts on top of it counts too.
    pub fn cpu_time(&self) -> Duration {
        self.thread.as_ref().and_then(thread_time).unwrap_or_default()
    }

    /// Ends the worker and waits for it. Returns the number of frames that got lost while it ran, 0
    /// unless there is a fault; fails if the worker panicked.
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

/// Wakes control however the thread ends, so that a panic is not found out late.
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

/// For how long there was nothing to do.
#[derive(Default)]
struct Idle {
    turns: u32,
    /// When the time of polling began; it begins again only with work.
    since: Option<Instant>,
}

impl Idle {
    /// Counts a turn. True as long as the worker is to go on looking.
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

/// The coarse clock, a few nanoseconds to read: timers here are no finer than its 4 ms.
fn milliseconds() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE)
        .map_or(0, |now| now.tv_sec() as u64 * 1000 + now.tv_nsec() as u64 / 1_000_000)
}
