//! Numbers that must not repeat, at the ends of their ranges and between threads.

use super::*;
use std::collections::HashSet;

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
    assert_eq!(numbers.extend((1 << 32) + 1), Err(refused));
}

#[test]
fn low_is_told_from_the_middle_of_a_block_on() {
    let numbers = SequenceAllocator::new(SequenceBlock { next: 1, end: 1001 }, true).unwrap();
    let lows = |upto: u64| {
        let reserved = std::iter::repeat_with(|| numbers.reserve(7));
        reserved.take_while(|r| r.first < upto).filter(|r| r.low).map(|r| r.first).collect::<Vec<_>>()
    };
    assert_eq!(lows(900), (498..900).step_by(7).collect::<Vec<_>>());
    numbers.extend(3001).unwrap();
    assert_eq!(lows(2900)[0] / 10, 195, "the middle of what was left");
    assert_eq!(numbers.block().end, 3001);
}

#[test]
fn a_block_goes_on_where_it_is_extended() {
    let numbers = SequenceAllocator::new(SequenceBlock { next: 1, end: 11 }, true).unwrap();
    assert_eq!(numbers.reserve(64).count, 10);
    assert_eq!(numbers.reserve(64).count, 0);
    numbers.extend(1000).unwrap();
    let next = numbers.reserve(10);
    assert!(next.first >= 11 && next.count == 10, "{next:?}");
    // What is over is not taken back.
    numbers.extend(12).unwrap();
    assert_eq!(numbers.block().end, 1000);
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

#[test]
fn ivs_are_laid_out_and_count_up() {
    let mut ivs = IvAllocator::new(SenderId(0xabcd), WorkerId::new(63).unwrap());
    let first = 0xabcd_fc00_0000_0000;
    assert_eq!(ivs.reserve(3), ReservedIvs { first, count: 3, low: false });
    assert_eq!(ivs.reserve(64), ReservedIvs { first: first + 3, count: 64, low: false });
    assert!(WorkerId::new(64).is_none());
}

#[test]
fn ivs_end_instead_of_running_into_the_next_worker() {
    let mut ivs = IvAllocator::new(SenderId(1), WorkerId::new(2).unwrap());
    ivs.next = COUNTER_LOW - 1;
    assert!(!ivs.reserve(0).low);
    assert!(ivs.reserve(2).low);
    assert!(ivs.reserve(2).low, "until there is a new sender ID");
    ivs.next = COUNTER_END - 5;
    let last = ivs.reserve(64);
    assert_eq!(last.count, 5);
    assert_eq!((last.first + 4) >> COUNTER_BITS, 1 << WORKER_BITS | 2);
    assert_eq!((ivs.reserve(64).count, ivs.reserve(64).low), (0, true));
}

#[test]
fn a_sender_id_is_not_begun_again() {
    let mut ivs = IvAllocator::new(SenderId(1), WorkerId::new(0).unwrap());
    ivs.reserve(10);
    assert!(!ivs.set_sender(SenderId(1)));
    assert_eq!(ivs.reserve(1).first, 1 << 48 | 10);
    assert!(ivs.set_sender(SenderId(2)));
    assert_eq!((ivs.sender(), ivs.reserve(1).first), (SenderId(2), 2 << 48));
}
