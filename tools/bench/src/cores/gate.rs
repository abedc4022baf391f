//! Where workers wait for each other, so that all of them begin a stretch at the same time.

use std::hint;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use std::time::Instant;

/// A barrier at which workers spin instead of sleeping: waking one up takes as long as hundreds of
/// packets. Each needs a processor of its own.
#[derive(Debug)]
pub(super) struct Gate {
    workers: usize,
    until: Instant,
    waiting: AtomicUsize,
    /// How often all have passed.
    passed: AtomicU32,
    is_over: AtomicBool,
    /// One has left, after the last pass or because it failed.
    is_left: AtomicBool,
}

/// What one worker passes by. When it is dropped, nobody waits for this worker any more.
pub(super) struct Place<'g>(&'g Gate);

impl Gate {
    /// For so many workers, each of which passes until then.
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
    /// Waits until all are here. The last one to come looks at the clock for all: the answer,
    /// whether there is time left, is the same for each.
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
    fn nobody_waits_for_a_worker_that_has_left() {
        let gate = Gate::of(2, Instant::now() + Duration::from_secs(3600));
        drop(gate.place());
        assert!(!gate.place().pass());
    }
}
