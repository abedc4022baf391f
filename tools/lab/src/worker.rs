//! A thread that is told to stop, and waited for, at the latest when its handle is dropped.

use crate::command::Cmd;
use crate::{Error, Result};
use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::unistd::{Pid, gettid};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

/// Above ordinary threads, below the kernel's own.
const PRIORITY: &str = "10";

/// A thread that works until it is done or told to stop.
#[derive(Debug)]
pub(crate) struct Worker<T> {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> Worker<T> {
    /// Starts it. The work must check the flag often, and end soon after it is set.
    pub(crate) fn start(name: &str, work: impl FnOnce(&AtomicBool) -> T + Send + 'static) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = Builder::new()
            .name(name.to_owned())
            .spawn(move || work(&flag))
            .map_err(Error::io(format!("start thread {name}")))?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Tells it to stop, and returns its result.
    pub(crate) fn stop(self) -> T {
        self.stop.store(true, Ordering::Relaxed);
        self.join()
    }

    /// Waits for its end.
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
            // A panic has already been printed; only a join returns it.
            let _ended = thread.join();
        }
    }
}

/// Gives the calling thread priority over ordinary ones, so that a busy machine disturbs a
/// measurement less. Has no effect without permission.
pub(crate) fn raise_priority() {
    let thread = gettid().to_string();
    let _refused = Cmd::new("chrt").args(["--fifo", "--pid", PRIORITY, &thread]).run();
}

/// Pins the calling thread to its current CPU. The kernel may queue packets per CPU, so this keeps
/// what it sends in order. Has no effect without permission.
pub(crate) fn stay_on_this_cpu() {
    let mut here = CpuSet::new();
    let _refused = sched_getcpu()
        .and_then(|cpu| here.set(cpu))
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &here));
}
