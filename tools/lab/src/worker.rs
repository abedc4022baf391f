//! A thread with an end: told to stop, and waited for, at the latest when its handle goes.

use crate::command::Cmd;
use crate::{Error, Result};
use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::unistd::{Pid, gettid};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

/// Above every ordinary thread, below those of the kernel's own.
const PRIORITY: &str = "10";

/// A thread that works until it is done or told to stop.
#[derive(Debug)]
pub(crate) struct Worker<T> {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> Worker<T> {
    /// Starts it. The work looks at the flag often, and ends soon after it is set.
    pub(crate) fn start(name: &str, work: impl FnOnce(&AtomicBool) -> T + Send + 'static) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = Builder::new()
            .name(name.to_owned())
            .spawn(move || work(&flag))
            .map_err(Error::io(format!("start thread {name}")))?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Tells it to stop, and waits for what it has to say.
    pub(crate) fn stop(self) -> T {
        self.stop.store(true, Ordering::Relaxed);
        self.join()
    }

    /// Waits until it is done by itself.
    pub(crate) fn join(mut self) -> T {
        let thread = self.thread.take().expect("the thread is taken only here and by drop");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Whether it is done already.
    pub(crate) fn is_done(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl<T> Drop for Worker<T> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic has been printed; whoever wants its value joins.
            let _ended = thread.join();
        }
    }
}

/// Lets the calling thread run before ordinary ones, so that a busy machine disturbs a measurement
/// less. Where that is not allowed the measurement goes on without.
pub(crate) fn raise_priority() {
    let thread = gettid().to_string();
    let _refused = Cmd::new("chrt").args(["--fifo", "--pid", PRIORITY, &thread]).run();
}

/// Keeps the calling thread on the CPU where it is: what it sends then stays in order, for the
/// kernel may queue packets by CPU. Where that is not allowed the thread goes on without.
pub(crate) fn stay_on_this_cpu() {
    let mut here = CpuSet::new();
    let _refused = sched_getcpu()
        .and_then(|cpu| here.set(cpu))
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &here));
}
