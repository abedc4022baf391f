//! The reservation of sequence numbers.

use crate::explore;
use crate::sequence::{SequenceAllocator, SequenceBlock};
use loom::sync::Arc;
use loom::thread;

/// Takes numbers so many times, three at a time.
fn take(numbers: &SequenceAllocator, times: usize) -> Vec<u64> {
    (0..times)
        .flat_map(|_| {
            let got = numbers.reserve(3);
            got.first..got.first + got.count
        })
        .collect()
}

/// Two workers take while control brings a block: what they have, in order. The second takes as
/// often as the first in `make test-all` only: it takes four times as many orders.
fn meet(bring: impl Fn(&SequenceAllocator, SequenceBlock) + Sync + Send + Copy + 'static) {
    let thorough = std::env::var_os("TESTUDO_THOROUGH").is_some();
    explore(2, move || {
        let numbers = Arc::new(SequenceAllocator::new(SequenceBlock { next: 1, end: 5 }, true).unwrap());
        let workers: Vec<_> = [2, if thorough { 2 } else { 1 }]
            .into_iter()
            .map(|times| {
                let numbers = Arc::clone(&numbers);
                thread::spawn(move || take(&numbers, times))
            })
            .collect();
        bring(&numbers, SequenceBlock { next: 20, end: 24 });
        let mut taken: Vec<u64> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
        taken.sort_unstable();
        let count = taken.len();
        taken.dedup();
        assert_eq!(taken.len(), count, "a number twice: {taken:?}");
        assert!(taken.iter().all(|number| (1..5).contains(number) || (20..24).contains(number)), "{taken:?}");
    });
}

#[test]
fn no_number_twice_and_none_between_two_blocks_while_a_block_is_jumped_to() {
    meet(|numbers, block| numbers.advance(block).unwrap());
}

#[test]
fn no_number_twice_and_none_between_two_blocks_while_a_block_is_to_follow() {
    meet(|numbers, block| numbers.follow(block).unwrap());
}

#[test]
fn a_block_is_given_out_whole() {
    explore(3, || {
        let numbers = Arc::new(SequenceAllocator::new(SequenceBlock { next: 1, end: 8 }, true).unwrap());
        let other = {
            let numbers = Arc::clone(&numbers);
            thread::spawn(move || take(&numbers, 3))
        };
        let mut taken = take(&numbers, 3);
        taken.extend(other.join().unwrap());
        taken.sort_unstable();
        assert_eq!(taken, (1..8).collect::<Vec<_>>());
    });
}
