//! IVs that must not repeat, at the ends of their ranges.

use super::*;

#[test]
fn ivs_are_laid_out_and_count_up() {
    let mut ivs = IvAllocator::new(Some(SenderId(0xabcd)), WorkerId::new(63).unwrap());
    let first = 0xabcd_fc00_0000_0000;
    assert_eq!(ivs.reserve(3), ReservedIvs { first, count: 3, low: false });
    assert_eq!(ivs.reserve(64), ReservedIvs { first: first + 3, count: 64, low: false });
    assert!(WorkerId::new(64).is_none());
}

#[test]
fn ivs_end_instead_of_running_into_the_next_worker() {
    let mut ivs = IvAllocator::new(Some(SenderId(1)), WorkerId::new(2).unwrap());
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
    let mut ivs = IvAllocator::new(Some(SenderId(1)), WorkerId::new(0).unwrap());
    ivs.reserve(10);
    assert!(!ivs.set_sender(SenderId(1)));
    assert_eq!(ivs.reserve(1).first, 1 << 48 | 10);
    assert!(ivs.set_sender(SenderId(2)));
    assert_eq!((ivs.sender(), ivs.reserve(1).first), (Some(SenderId(2)), 2 << 48));
    assert!(!ivs.set_sender(SenderId(1)), "nor after another");
}

#[test]
fn without_a_sender_id_there_are_no_ivs() {
    let mut ivs = IvAllocator::new(None, WorkerId::new(3).unwrap());
    assert_eq!((ivs.left(64), ivs.reserve(64).count, ivs.sender()), (0, 0, None));
    assert!(ivs.set_sender(SenderId(7)));
    assert_eq!((ivs.left(64), ivs.reserve(64).count), (64, 64));
    // Given up, it does not come back.
    ivs.forget_sender();
    assert_eq!((ivs.left(1), ivs.reserve(1).count, ivs.sender()), (0, 0, None));
    assert!(!ivs.set_sender(SenderId(7)));
    assert_eq!(ivs.left(1), 0);
    assert!(ivs.set_sender(SenderId(8)));
    assert_eq!((ivs.sender(), ivs.reserve(1).first), (Some(SenderId(8)), 8 << 48 | 3 << 42));
}
