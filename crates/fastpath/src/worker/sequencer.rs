//! Orders the tasks of one queue: a later task waits until all earlier ones have passed.

use super::pool::TASKS_PER_WORKER;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use testudo_ipsec::dataplane::Turn;

/// Entries of the ring of passed tasks: at least as many as there are tasks at a time, so that each
/// has an entry of its own.
const RING_LEN: usize = TASKS_PER_WORKER.next_power_of_two();
/// Checks of a turn before the thread yields the processor, because the awaited worker may have
/// none: as long as several bursts take. A worker that yields earlier may wait for milliseconds to
/// get the processor back.
const SPINS_BEFORE_YIELD: u32 = 1000;

/// One step of the work on tasks, taken in the order of their numbers. A task that does not need
/// the step passes without waiting.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Sequencer {
    /// All tasks before this one have passed.
    next: AtomicU64,
    /// For each entry of the ring, the number after that of the last task that has passed.
    passed: [AtomicU64; RING_LEN],
}

impl Sequencer {
    pub(super) fn new() -> Self {
        Self { next: AtomicU64::new(0), passed: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// True if all tasks before this one have passed.
    fn has_come_to(&self, number: u64) -> bool {
        self.next.load(Acquire) == number
    }

    /// Marks a task as passed: it has taken the step, or does not need it.
    pub(super) fn pass(&self, number: u64) {
        self.passed[number as usize % RING_LEN].store(number + 1, SeqCst);
        // If two tasks pass at once, at least one of them sees both entries.
        let mut next = self.next.load(SeqCst);
        while self.passed[next as usize % RING_LEN].load(SeqCst) == next + 1 {
            next = match self.next.compare_exchange(next, next + 1, SeqCst, SeqCst) {
                Ok(_) => next + 1,
                Err(found) => found,
            };
        }
    }
}

/// The turn of one task. Dropping it marks the task as passed, if it has not passed before.
pub(super) struct TaskTurn<'s> {
    sequencer: &'s Sequencer,
    number: u64,
    has_passed: bool,
    /// A worker has panicked over a task, so waiting for that task would never end.
    broken: &'s AtomicBool,
}

impl<'s> TaskTurn<'s> {
    pub(super) fn new(sequencer: &'s Sequencer, number: u64, broken: &'s AtomicBool) -> Self {
        Self { sequencer, number, has_passed: false, broken }
    }
}

impl Turn for TaskTurn<'_> {
    fn begin(&mut self) {
        let mut spins = 0u32;
        while !self.has_passed && !self.sequencer.has_come_to(self.number) && !self.broken.load(Relaxed) {
            spins += 1;
            match spins % SPINS_BEFORE_YIELD {
                0 => std::thread::yield_now(),
                _ => std::hint::spin_loop(),
            }
        }
    }

    fn end(&mut self) {
        if !std::mem::replace(&mut self.has_passed, true) {
            self.sequencer.pass(self.number);
        }
    }
}

impl Drop for TaskTurn<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.broken.store(true, Relaxed);
        }
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;

    /// Threads take tasks as they come; every third task does not need the step.
    #[test]
    fn steps_are_taken_in_order() {
        const ALL: usize = 20_000;
        let (sequencer, broken) = (Sequencer::new(), AtomicBool::new(false));
        let (taken, seen) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    loop {
                        let number = taken.fetch_add(1, SeqCst);
                        if number >= ALL {
                            return;
                        }
                        let mut turn = TaskTurn::new(&sequencer, number as u64, &broken);
                        if number % 3 > 0 {
                            turn.begin();
                            seen.lock().unwrap().push(number);
                        }
                        turn.end();
                    }
                });
            }
        });
        let seen = seen.into_inner().unwrap();
        assert!(seen.into_iter().eq((0..ALL).filter(|number| number % 3 > 0)));
        assert!(sequencer.has_come_to(ALL as u64));
    }

    #[test]
    fn a_panicked_worker_does_not_block_the_others() {
        let (sequencer, broken) = (Sequencer::new(), AtomicBool::new(false));
        let ended = std::thread::scope(|scope| {
            let panics = || {
                let _turn = TaskTurn::new(&sequencer, 3, &broken);
                panic!("in the middle of something");
            };
            scope.spawn(panics).join()
        });
        assert!(ended.is_err());
        TaskTurn::new(&sequencer, 9, &broken).begin();
    }
}
