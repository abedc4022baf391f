//! Numbers that must not repeat, at the ends of their ranges and between threads.

mod stripes;

use super::{Reserved, SequenceAllocator, SequenceBlock};
use crate::error::Error;
use proptest::prelude::*;
use std::collections::HashSet;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

#[test]
fn a_whole_sa_begins_at_one_and_stops_before_it_cycles() {
    let numbers = SequenceAllocator::new(SequenceBlock::whole(false), false).unwrap();
    assert_eq!(numbers.reserve(64), Reserved { first: 1, count: 64, low: false });
    let near = SequenceBlock { next: (1 << 32) - 10, end: 1 << 32 };
    let numbers = SequenceAllocator::new(near, false).unwrap();
    assert_eq!(numbers.reserve(64), Reserved { first: (1 << 32) - 10, count: 10, low: true });
    for _ in 0..3 {
        let none = numbers.reserve(64);
        assert_eq!((none.count, none.low), (0, true));
    }
}

#[test]
fn blocks_beyond_the_numbers_are_refused() {
    let beyond = SequenceBlock { next: 1, end: (1 << 32) + 1 };
    let refused = Error::SequenceNumbers { found: (1 << 32) + 1, limit: u64::from(u32::MAX) };
    assert_eq!(SequenceAllocator::new(beyond, false).unwrap_err(), refused);
    assert!(SequenceAllocator::new(beyond, true).is_ok());
    assert!(SequenceAllocator::new(SequenceBlock { next: 1, end: u64::MAX }, true).is_err());
    assert!(
        SequenceAllocator::new(SequenceBlock { next: 0, end: 9 }, true).is_err(),
        "no packet has number 0"
    );
    let numbers = SequenceAllocator::new(SequenceBlock::whole(false), false).unwrap();
    assert_eq!(numbers.advance(beyond), Err(refused.clone()));
    assert_eq!(numbers.follow(beyond), Err(refused));
}

#[test]
fn low_is_told_from_the_middle_of_a_block_on() {
    let numbers = SequenceAllocator::new(SequenceBlock { next: 1, end: 1001 }, true).unwrap();
    let lows = |upto: u64| {
        let reserved = std::iter::repeat_with(|| numbers.reserve(7));
        reserved.take_while(|r| r.first < upto).filter(|r| r.low).map(|r| r.first).collect::<Vec<_>>()
    };
    assert_eq!(lows(900), (498..900).step_by(7).collect::<Vec<_>>());
    numbers.advance(SequenceBlock { next: 1001, end: 3001 }).unwrap();
    assert_eq!(lows(2900)[0] / 10, 199, "the middle of the new block");
    assert_eq!(numbers.block().end, 3001);
}

fn block(next: u64, end: u64) -> SequenceBlock {
    SequenceBlock { next, end }
}

/// All numbers that are left, in the order in which they are given.
fn all(numbers: &SequenceAllocator, at_once: u32) -> Vec<u64> {
    let reserved = std::iter::repeat_with(|| numbers.reserve(at_once)).take_while(|r| r.count > 0);
    reserved.flat_map(|r| r.first..r.first + r.count).collect()
}

#[test]
fn an_sa_without_a_block_has_no_number_until_it_is_given_one() {
    let numbers = SequenceAllocator::new(SequenceBlock::EMPTY, true).unwrap();
    for _ in 0..3 {
        assert_eq!(numbers.reserve(64).count, 0);
    }
    numbers.advance(block(100, 103)).unwrap();
    assert_eq!(all(&numbers, 64), [100, 101, 102]);
    assert!(!numbers.is_last_block());
    numbers.advance(SequenceBlock { next: 200, ..SequenceBlock::whole(true) }).unwrap();
    assert!(numbers.is_last_block());
}

#[test]
fn a_later_block_begins_at_once_and_leaves_out_what_lies_between() {
    let numbers = SequenceAllocator::new(block(1, 100), true).unwrap();
    assert_eq!(numbers.reserve(10).first, 1);
    numbers.advance(block(300, 304)).unwrap();
    assert_eq!(all(&numbers, 3), [300, 301, 302, 303]);
    // A neighbour goes on where the other ends. The counter had gone beyond it.
    numbers.advance(block(304, 308)).unwrap();
    assert_eq!(all(&numbers, 1), [306, 307]);
}

#[test]
fn numbers_never_go_back() {
    let numbers = SequenceAllocator::new(block(500, 600), true).unwrap();
    assert_eq!(numbers.reserve(10).first, 500);
    for earlier in [block(1, 100), block(400, 600), block(590, 595), SequenceBlock::EMPTY, block(900, 900)] {
        numbers.advance(earlier).unwrap();
        numbers.follow(earlier).unwrap();
        assert_eq!(numbers.block(), block(510, 600));
    }
    assert_eq!(all(&numbers, 64).last(), Some(&599));
}

#[test]
fn the_block_that_waits_begins_when_the_present_one_is_used_up() {
    let numbers = SequenceAllocator::new(block(1, 5), true).unwrap();
    numbers.follow(block(20, 23)).unwrap();
    assert_eq!(all(&numbers, 3), [1, 2, 3, 4, 20, 21, 22]);
    // Of two that wait the later counts.
    numbers.follow(block(40, 42)).unwrap();
    numbers.follow(block(60, 62)).unwrap();
    assert_eq!(all(&numbers, 1), [60, 61]);
    // One that waits is passed over by one that begins at once and is later, not by one that is
    // earlier.
    numbers.follow(block(100, 102)).unwrap();
    numbers.advance(block(80, 82)).unwrap();
    assert_eq!(all(&numbers, 1), [80, 81, 100, 101]);
    numbers.follow(block(200, 202)).unwrap();
    numbers.advance(block(300, 302)).unwrap();
    assert_eq!(all(&numbers, 64), [300, 301]);
}

#[test]
fn while_a_block_waits_numbers_are_not_low() {
    let numbers = SequenceAllocator::new(block(1, 101), true).unwrap();
    assert!(!numbers.reserve(40).low);
    assert!(numbers.reserve(20).low && numbers.take_news() && !numbers.take_news());
    numbers.follow(block(1001, 1101)).unwrap();
    assert!(!numbers.reserve(30).low);
    assert_eq!(numbers.reserve(64), Reserved { first: 91, count: 10, low: false });
    assert!(!numbers.reserve(40).low);
    assert!(numbers.reserve(20).low && numbers.take_news(), "it is told again with the next block");
}

/// Two nodes take turns at blocks of the same numbers, as an owner and its standby do; the worker
/// threads of one of them must never have a number of the other's, however control and workers
/// meet.
#[test]
fn threads_never_get_a_number_between_two_blocks() {
    const STEP: u64 = 64;
    const BLOCKS: u64 = 4000;
    let own = |number: u64| (number / STEP).is_multiple_of(2);
    let numbers = SequenceAllocator::new(block(1, STEP), true).unwrap();
    let done = AtomicBool::new(false);
    let taken: Vec<u64> = std::thread::scope(|scope| {
        let take = |size: u32| {
            let mut taken = Vec::new();
            while !done.load(Acquire) {
                let got = numbers.reserve(size);
                taken.extend(got.first..got.first + got.count);
            }
            taken
        };
        let threads: Vec<_> = [1, 5, 64].map(|size| scope.spawn(move || take(size))).into_iter().collect();
        for number in 1..BLOCKS {
            let next = block(2 * number * STEP, (2 * number + 1) * STEP);
            if number % 3 == 0 {
                numbers.advance(next).unwrap()
            } else {
                numbers.follow(next).unwrap()
            }
            // Sometimes the workers use a block up, sometimes the next one comes first.
            while number % 8 == 0 && numbers.block().next < (2 * number + 1) * STEP {
                std::thread::yield_now();
            }
        }
        done.store(true, Release);
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(taken.len() > 1000, "{} numbers", taken.len());
    let foreign: Vec<_> = taken.iter().filter(|number| !own(**number)).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    assert_eq!(taken.iter().collect::<HashSet<_>>().len(), taken.len());
}

#[test]
fn threads_never_get_the_same_number() {
    let numbers = SequenceAllocator::new(SequenceBlock { next: 1, end: 40_001 }, true).unwrap();
    let taken: Vec<u64> = std::thread::scope(|scope| {
        let take = |size: u32| {
            let mut taken = Vec::new();
            loop {
                let got = numbers.reserve(size);
                if got.count == 0 {
                    return taken;
                }
                taken.extend(got.first..got.first + got.count);
            }
        };
        let threads: Vec<_> =
            [1, 7, 13, 64].map(|size| scope.spawn(move || take(size))).into_iter().collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(taken.len(), 40_000);
    assert_eq!(taken.into_iter().collect::<HashSet<_>>().len(), 40_000);
}

/// The operations on an allocator.
#[derive(Clone, Copy, Debug)]
enum Step {
    Reserve(u32),
    Advance(SequenceBlock),
    Follow(SequenceBlock),
}

/// Numbers still to be given, lowest first: a set without cleverness.
#[derive(Default)]
struct Model {
    present: Vec<u64>,
    end: u64,
    waiting: Option<SequenceBlock>,
    /// Where the counter stands: it may be beyond the end.
    next: u64,
}

impl Model {
    fn advance(&mut self, block: SequenceBlock) {
        if block.next < block.end && block.end > self.end {
            self.next = self.next.max(block.next);
            self.end = block.end;
            self.present = (self.next..self.end).collect();
        }
    }

    fn reserve(&mut self, count: u32) -> Vec<u64> {
        if self.present.is_empty()
            && let Some(block) = self.waiting.take()
        {
            self.advance(block);
        }
        if self.present.is_empty() {
            return Vec::new();
        }
        self.next += u64::from(count);
        let count = self.present.len().min(count as usize);
        self.present.drain(..count).collect()
    }

    fn follow(&mut self, block: SequenceBlock) {
        if block.next < block.end
            && block.end > self.end
            && self.waiting.is_none_or(|waiting| waiting.end <= block.end)
        {
            let next = self.waiting.map_or(0, |waiting| waiting.next).max(block.next);
            self.waiting = Some(SequenceBlock { next, ..block });
        }
    }
}

proptest! {
    #[test]
    fn gives_what_the_model_gives(steps in prop::collection::vec((0u8..4, 1u64..200, 0u64..40), 1..200)) {
        // Blocks come in ascending order, as they are granted; now and then one comes once more.
        let mut granted = vec![SequenceBlock { next: 1, end: 20 }];
        let numbers = SequenceAllocator::new(granted[0], true).unwrap();
        let mut model = Model { present: (1..20).collect(), end: 20, waiting: None, next: 1 };
        let mut given = HashSet::new();
        for (what, gap, len) in steps {
            let last = granted[granted.len() - 1];
            let fresh = SequenceBlock { next: last.end + gap, end: last.end + gap + len };
            let again = granted[gap as usize % granted.len()];
            let step = match what {
                0 | 1 => Step::Reserve(gap as u32),
                2 if len % 4 == 0 => Step::Advance(again),
                2 => Step::Advance(fresh),
                _ => Step::Follow(fresh),
            };
            match step {
                Step::Reserve(count) => {
                    let got = numbers.reserve(count);
                    let got: Vec<u64> = (got.first..got.first + got.count).collect();
                    prop_assert_eq!(&got, &model.reserve(count));
                    for number in got {
                        prop_assert!(given.insert(number), "{} twice", number);
                        prop_assert!(granted.iter().any(|b| (b.next..b.end).contains(&number)), "{}", number);
                    }
                }
                Step::Advance(block) => {
                    numbers.advance(block).unwrap();
                    model.advance(block);
                    granted.push(if block.end > last.end { block } else { last });
                }
                Step::Follow(block) => {
                    numbers.follow(block).unwrap();
                    model.follow(block);
                    granted.push(block);
                }
            }
        }
    }
}

#[test]
fn numbers_are_left_out_only_as_long_as_one_remains() {
    let numbers = SequenceAllocator::new(SequenceBlock::whole(false), false).unwrap();
    assert_eq!(numbers.reserve(1).first, 1);
    assert!(numbers.skip(1000));
    assert_eq!(numbers.reserve(1).first, 1002);
    assert!(!numbers.skip(u64::MAX) && !numbers.skip((1 << 32) - 1003));
    assert_eq!(numbers.reserve(1).first, 1003, "what cannot be left out changes nothing");
    assert!(numbers.skip((1 << 32) - 1005));
    let last = numbers.reserve(2);
    assert_eq!((last.first, last.count, last.low), ((1 << 32) - 1, 1, true));
    assert!(!numbers.skip(0), "none is left");
}
