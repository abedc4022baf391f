//! Turns of the errands of one desk: who has a later one waits until all earlier ones have passed.

use super::crew::ERRANDS;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use testudo_ipsec::dataplane::Turn;

/// More than there are errands at a time, so that each has a place of its own.
const PLACES: usize = ERRANDS.next_power_of_two();
/// Looks before the processor is left to others, because the one that is waited for may have none: as long as several bursts take. Who
/// leaves it earlier may wait for milliseconds to have it back.
const LOOKS: u32 = 1000;

/// One step of the work on errands, taken in the order of their numbers. Those that need not take it pass without waiting.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Order {
    /// All errands before this one have passed.
    next: AtomicU64,
    /// The number after that of the last errand that has passed, for each place.
    passed: [AtomicU64; PLACES],
}

impl Order {
    pub(super) fn new() -> Self {
        Self { next: AtomicU64::new(0), passed: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// True if all errands before this one have passed.
    fn has_come_to(&self, number: u64) -> bool {
        self.next.load(Acquire) == number
    }

    /// An errand has taken the step, or need not take it.
    pub(super) fn pass(&self, number: u64) {
        self.passed[number as usize % PLACES].store(number + 1, SeqCst);
        // Of two that pass at once at least one sees both.
        let mut next = self.next.load(SeqCst);
        while self.passed[next as usize % PLACES].load(SeqCst) == next + 1 {
            next = match self.next.compare_exchange(next, next + 1, SeqCst, SeqCst) {
                Ok(_) => next + 1,
                Err(found) => found,
            };
        }
    }
}

/// The turn of one errand. It passes when it is dropped, if it has not before.
pub(super) struct Place<'o> {
    order: &'o Order,
    number: u64,
    has_passed: bool,
    /// A worker has ended in the middle of something: waiting for it would not end.
    broken: &'o AtomicBool,
}

impl<'o> Place<'o> {
    pub(super) fn new(order: &'o Order, number: u64, broken: &'o AtomicBool) -> Self {
        Self { order, number, has_passed: false, broken }
    }
}

impl Turn for Place<'_> {
    fn begin(&mut self) {
        let mut looks = 0u32;
        while !self.has_passed && !self.order.has_come_to(self.number) && !self.broken.load(Relaxed) {
            looks += 1;
            match looks % LOOKS {
                0 => std::thread::yield_now(),
                _ => std::hint::spin_loop(),
            }
        }
    }

    fn end(&mut self) {
        if !std::mem::replace(&mut self.has_passed, true) {
            self.order.pass(self.number);
        }
    }
}

impl Drop for Place<'_> {
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

    /// Threads that take errands as they come, of which every third need not wait.
    #[test]
    fn steps_are_taken_in_order() {
        const ALL: usize = 20_000;
        let (order, broken) = (Order::new(), AtomicBool::new(false));
        let (taken, seen) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    loop {
                        let number = taken.fetch_add(1, SeqCst);
                        if number >= ALL {
                            return;
                        }
                        let mut place = Place::new(&order, number as u64, &broken);
                        if number % 3 > 0 {
                            place.begin();
                            seen.lock().unwrap().push(number);
                        }
                        place.end();
                    }
                });
            }
        });
        let seen = seen.into_inner().unwrap();
        assert!(seen.into_iter().eq((0..ALL).filter(|number| number % 3 > 0)));
        assert!(order.has_come_to(ALL as u64));
    }

    #[test]
    fn nobody_waits_for_a_worker_that_has_panicked() {
        let (order, broken) = (Order::new(), AtomicBool::new(false));
        let ended = std::thread::scope(|scope| {
            let panics = || {
                let _place = Place::new(&order, 3, &broken);
                panic!("in the middle of something");
            };
            scope.spawn(panics).join()
        });
        assert!(ended.is_err());
        Place::new(&order, 9, &broken).begin();
    }
}
