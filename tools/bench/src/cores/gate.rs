//! A barrier for workers, so that all of them begin a stretch at the same time.

use std::hint;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use std::time::Instant;

/// A barrier at which workers spin instead of sleeping: waking one up takes as long as hundreds of
/// packets. Each worker needs its own processor.
#[derive(Debug)]
pub(super) struct Gate {
    workers: usize,
    until: Instant,
    waiting: AtomicUsize,
    /// Number of times that all workers have passed.
    passed: AtomicU32,
    is_over: AtomicBool,
    /// A worker has left, after the last pass or because it failed.
    is_left: AtomicBool,
}

/// The place of one worker. When it is dropped, the others no longer wait for this worker.
pub(super) struct Place<'g>(&'g Gate);

impl Gate {
    /// A gate for that many workers, which they pass until the given time.
    pub(super) fn of(workers: usize, until: Instant) -> Self {
        Self {
            workers,
            until,
            waiting: AtomicUsize::new(0),
            passed: AtomicU32::new(0),
            is_over: AtomicBool::new(false),
            is_left: AtomicBool::new(false),
        }
    }

    pub(super) fn place(&self) -> Place<'_> {
        Place(self)
    }
}

impl Place<'_> {
    /// Waits until all workers are here. The last one reads the clock for all, so that the answer
    /// is the same for each: whether there is time left.
    pub(super) fn pass(&self) -> bool {
        let gate = self.0;
        if gate.workers == 1 {
            return Instant::now() < gate.until;
        }
        let before = gate.passed.load(Acquire);
        if gate.waiting.fetch_add(1, AcqRel) + 1 == gate.workers {
            gate.is_over.store(Instant::now() >= gate.until, Relaxed);
            gate.waiting.store(0, Relaxed);
            gate.passed.store(before.wrapping_add(1), Release);
        } else {
            while gate.passed.load(Acquire) == before {
                if gate.is_left.load(Acquire) {
                    return false;
                }
                hint::spin_loop();
            }
        }
        !gate.is_over.load(Relaxed)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.is_left.store(true, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn all_pass_equally_often() {
        let gate = Gate::of(2, Instant::now() + Duration::from_millis(20));
        let count = || {
            let place = gate.place();
            let mut count = 1;
            while place.pass() {
                count += 1;
            }
            count
        };
        let counts: Vec<u32> = thread::scope(|scope| {
            let threads = [(); 2].map(|()| scope.spawn(count));
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert!(counts[0] > 0 && counts[0] == counts[1], "{counts:?}");
    }

    #[test]
    fn a_worker_that_has_left_does_not_block_the_others() {
        let gate = Gate::of(2, Instant::now() + Duration::from_secs(3600));
        drop(gate.place());
        assert!(!gate.place().pass());
    }
}
