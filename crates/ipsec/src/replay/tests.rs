//! The window against a plain model: a set of everything ever accepted.

use crate::drops::DropReason;
use crate::error::Error;
use crate::replay::{ReplayWindow, floor};
use proptest::prelude::*;
use std::collections::HashSet;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

/// RFC 4303's window as a set and a signed number line, as simple as possible.
struct Model {
    size: i128,
    esn: bool,
    top: i128,
    seen: HashSet<i128>,
    floor: i128,
}

impl Model {
    fn check(&self, low: u32) -> Result<u64, DropReason> {
        let low = i128::from(low);
        let sequence = if self.esn {
            // The one number with these low bits among the 2^32 that begin with the window's left
            // edge.
            let left = self.top - self.size + 1;
            left + (low - left).rem_euclid(1 << 32)
        } else {
            low
        };
        if sequence < 0 {
            return Err(DropReason::ReplayTooOld);
        }
        if sequence == 0 || sequence > i128::from(u64::MAX) {
            return Err(DropReason::SequenceInvalid);
        }
        if sequence <= self.top - self.size {
            return Err(DropReason::ReplayTooOld);
        }
        if self.seen.contains(&sequence) || sequence <= self.floor {
            return Err(DropReason::Replayed);
        }
        Ok(sequence as u64)
    }

    fn accept(&mut self, sequence: u64) {
        self.seen.insert(i128::from(sequence));
        self.top = self.top.max(i128::from(sequence));
    }

    fn raise(&mut self, floor: u64) {
        let floor = i128::from(if self.esn { floor } else { floor.min(u32::MAX.into()) });
        self.floor = self.floor.max(floor);
        self.top = self.top.max(floor);
    }
}

/// A window whose high-water mark is `top`, and its model.
fn at(size: u32, esn: bool, top: u64) -> (ReplayWindow, Model) {
    let mut window = ReplayWindow::new(size, esn).unwrap();
    let mut snapshot = window.snapshot();
    snapshot.high_water_mark = top;
    window.restore(&snapshot).unwrap();
    let size = i128::from(size.next_multiple_of(64));
    let mut model = Model { size, esn, top: 0, seen: HashSet::new(), floor: 0 };
    if top > 0 {
        model.accept(top);
    }
    (window, model)
}

fn step(window: &ReplayWindow, model: &mut Model, low: u32, authentic: bool) {
    let expected = model.check(low);
    assert_eq!(window.check(low), expected, "top {}, low {low}", model.top);
    if let Ok(sequence) = expected
        && authentic
    {
        assert_eq!(window.accept(sequence), Ok(()));
        assert_eq!(window.accept(sequence), Err(DropReason::Replayed), "at once again");
        model.accept(sequence);
    }
    assert_eq!(i128::from(window.high_water_mark()), model.top);
}

const SIZES: [u32; 9] = [1, 64, 65, 128, 192, 1024, 4096, 8128, 8192];

#[test]
fn every_number_once_in_order_and_backwards() {
    for size in SIZES {
        for esn in [false, true] {
            let (window, mut model) = at(size, esn, 0);
            let numbers = (0..3 * size + 200).chain((0..3 * size + 200).rev());
            for low in numbers {
                step(&window, &mut model, low, true);
            }
        }
    }
}

#[test]
fn edges_of_the_window_at_edges_of_a_subspace() {
    for size in SIZES {
        let rounded = u64::from(size.next_multiple_of(64));
        for subspace in [1u64 << 32, 5 << 32] {
            for offset in [0, 1, rounded - 2, rounded - 1, rounded, rounded + 1] {
                for top in [subspace - 1 - offset, subspace, subspace + offset] {
                    for probe in [-2i128, -1, 0, 1, 2] {
                        for edge in [i128::from(top), i128::from(top) - i128::from(rounded)] {
                            let (window, mut model) = at(size, true, top);
                            step(&window, &mut model, (edge + probe) as u32, true);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn the_last_numbers_are_the_last() {
    let (window, mut model) = at(64, false, u64::from(u32::MAX) - 1);
    for low in [u32::MAX, u32::MAX, 0, 1, u32::MAX - 10] {
        step(&window, &mut model, low, true);
    }
    let (window, mut model) = at(64, true, u64::MAX - 1);
    for low in [u32::MAX, 0, 1, u32::MAX - 10, 12345] {
        step(&window, &mut model, low, true);
    }
}

#[test]
fn a_jump_over_the_whole_ring_forgets_nothing_inside_the_window() {
    for size in [64, 8192] {
        for jump in [u64::from(size), u64::from(size) * 2, 1 << 20, 1 << 31] {
            let (window, mut model) = at(size, true, 1000);
            for low in [900, 990, 1000 + jump as u32, 1000, 1000 + jump as u32 - 1, 990] {
                step(&window, &mut model, low, true);
            }
        }
    }
}

#[test]
fn a_raised_window_takes_nothing_up_to_its_floor_and_everything_behind_it() {
    for size in SIZES {
        for esn in [false, true] {
            for (top, floor) in
                [(1000, 900), (1000, 1000), (1000, 1063), (1000, 1064), (1000, 99_999), (0, 7)]
            {
                let (window, mut model) = at(size, esn, top);
                for low in [990, 1007, 1100] {
                    step(&window, &mut model, low, true);
                }
                window.raise(floor);
                model.raise(floor);
                let mark = model.top as u32;
                for low in (mark.saturating_sub(9000)..mark + 200).chain(floor as u32..floor as u32 + 10_000)
                {
                    step(&window, &mut model, low, true);
                }
            }
        }
    }
}

#[test]
fn an_unchecked_window_only_learns_where_the_numbers_stand() {
    let window = ReplayWindow::new(0, true).unwrap();
    window.raise(7 << 32);
    assert_eq!(window.check(5), Ok(7 << 32 | 5));
    window.raise(3);
    assert_eq!(window.check(5), Ok(7 << 32 | 5));
}

#[test]
fn a_floor_beyond_32_bits_does_not_reach_an_sa_that_has_no_more() {
    let window = ReplayWindow::new(64, false).unwrap();
    window.raise(1 << 40);
    assert_eq!(window.high_water_mark(), u64::from(u32::MAX));
}

#[test]
fn a_floor_is_what_was_told_or_seen_within_reach() {
    let mark = (5 << 32) - 10;
    let low = |number: u64| Some(u64::from(number as u32));
    assert_eq!(floor(mark, None, 1000, true), mark);
    // Seen ahead, also beyond the end of a subspace; seen behind; and what cannot be.
    assert_eq!(floor(mark, low(mark + 5), 1000, true), mark + 5);
    assert_eq!(floor(mark, low(mark + 20), 1000, true), mark + 20);
    assert_eq!(floor(mark, low(mark - 500), 1000, true), mark);
    assert_eq!(floor(mark, low(mark + (1 << 30)), 1000, true), mark + 1000);
    assert_eq!(floor(mark, low(mark + (3 << 30)), 1000, true), mark, "this low it is behind");
    // All of it seen, since the SA began.
    assert_eq!(floor(mark, Some(mark + 20), 1000, true), mark + 20);
    assert_eq!(floor(3, Some(u64::from(u32::MAX)), 1000, true), 1003);
    assert_eq!(floor(mark, Some(mark + (1 << 32) - 2), 1000, true), mark + 1000, "led round the circle");
    assert_eq!(floor(u64::MAX - 2, low(5), 1000, true), u64::MAX);
    // Without ESN there is nothing to infer.
    assert_eq!(floor(100, Some(90), 1000, false), 100);
    assert_eq!(floor(100, Some(700), 1000, false), 700);
    assert_eq!(floor(100, low(u64::from(u32::MAX)), 1000, false), 1100);
}

#[test]
fn a_snapshot_read_while_the_window_is_raised_gives_no_number_away() {
    const STEP: u64 = 777;
    let window = ReplayWindow::new(1024, true).unwrap();
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for floor in (STEP..200_000 * STEP).step_by(STEP as usize) {
                window.raise(floor);
                window.accept(floor + 5).unwrap();
            }
            done.store(1, Release);
        });
        let mut restored = ReplayWindow::new(1024, true).unwrap();
        while done.load(Acquire) == 0 {
            // The mark goes first: the number at the mark itself may be accepted only while the
            // snapshot is taken.
            let mark = window.high_water_mark();
            let floor = mark - mark % STEP;
            restored.restore(&window.snapshot()).unwrap();
            for sequence in (1..=floor).rev().take(900) {
                assert!(restored.accept(sequence).is_err(), "{sequence}, floor {floor}");
            }
        }
    });
}

#[test]
fn without_a_window_everything_passes_and_high_bits_are_inferred() {
    let window = ReplayWindow::new(0, true).unwrap();
    for sequence in [5, 5, 3, (1 << 31) + 4, (1 << 32) - 1, (1 << 32) + 4, (1 << 32) - 9, (1 << 32) - 9] {
        assert_eq!(window.check(sequence as u32), Ok(sequence));
        assert_eq!(window.accept(sequence), Ok(()));
    }
    assert_eq!(window.check(0), Ok(1 << 32));
    let window = ReplayWindow::new(0, false).unwrap();
    assert_eq!(window.check(0), Err(DropReason::SequenceInvalid));
    assert_eq!(window.check(u32::MAX), Ok(u64::from(u32::MAX)));
}

#[test]
fn refuses_windows_that_are_too_large() {
    assert_eq!(ReplayWindow::new(8193, true).unwrap_err(), Error::ReplayWindow { found: 8193 });
}

#[test]
fn refuses_the_snapshot_of_another_window() {
    let snapshot = ReplayWindow::new(64, true).unwrap().snapshot();
    let mut window = ReplayWindow::new(8192, true).unwrap();
    assert_eq!(window.restore(&snapshot), Err(Error::Snapshot { found: 2, expected: 256 }));
}

#[test]
fn a_snapshot_read_while_the_window_moves_gives_no_number_away() {
    const STEP: usize = 3;
    let window = ReplayWindow::new(1024, true).unwrap();
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for sequence in (1..2_000_000).step_by(STEP) {
                window.accept(sequence).unwrap();
            }
            done.store(1, Release);
        });
        let mut restored = ReplayWindow::new(1024, true).unwrap();
        while done.load(Acquire) == 0 {
            // The mark goes first: the number at the mark itself may be accepted only while the
            // snapshot is taken. Those before it were accepted before.
            let mark = window.high_water_mark();
            restored.restore(&window.snapshot()).unwrap();
            for sequence in (1..=mark).rev().step_by(STEP).skip(1).take(1024 / STEP) {
                assert!(restored.accept(sequence).is_err(), "{sequence} of {restored:?}");
            }
        }
    });
}

/// Numbers from `first` on, with one missing now and then, each moved by less than `reach` places;
/// some come twice.
fn shuffled(first: u64, count: u64, reach: u64, seed: u64) -> Vec<u64> {
    let mut state = seed | 1;
    let mut random = move || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        state >> 33
    };
    let mut keyed: Vec<(u64, u64)> = Vec::new();
    for number in (first..first + count).filter(|number| number % 61 != 0) {
        for _ in 0..=u64::from(random() % 8 == 0) {
            keyed.push((number + random() % reach, number));
        }
    }
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, number)| number).collect()
}

/// Four workers take packets in turn, in runs; one falls behind another by less than the window
/// allows.
fn accepted_by_four(window: &ReplayWindow, numbers: &[u64]) -> Vec<u64> {
    let begun: [AtomicU64; 4] = std::array::from_fn(|_| AtomicU64::new(0));
    let runs: Vec<&[u64]> = numbers.chunks(7).collect();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let (begun, runs) = (&begun, &runs);
                scope.spawn(move || {
                    let mut accepted = Vec::new();
                    for (turn, run) in runs.iter().skip(worker).step_by(4).enumerate() {
                        begun[worker].store(turn as u64, Release);
                        while begun.iter().any(|other| other.load(Acquire) + 4 < turn as u64) {
                            std::thread::yield_now();
                        }
                        let mut run: Vec<(u64, bool)> = run.iter().map(|number| (*number, true)).collect();
                        window.accept_run(&mut run, |packet| Some(packet.0), |packet, _| packet.1 = false);
                        accepted.extend(run.into_iter().filter(|packet| packet.1).map(|packet| packet.0));
                    }
                    begun[worker].store(u64::MAX / 2, Release);
                    accepted
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

proptest! {
    // Each case has four threads wait for one another 700 times.
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn four_workers_accept_what_one_accepts(
        size in prop::sample::select(&[1024u32, 4096, 8192][..]),
        start in prop_oneof![1u64..10_000, (1u64 << 32) - 10_000..(1 << 32) + 10_000],
        seed in any::<u64>(),
    ) {
        // What is under way at the four at once and what is out of order stays within the window
        // together.
        let numbers = shuffled(start, 20_000, 700, seed);
        let (window, mut model) = at(size, true, start - 1);
        let mut expected = Vec::new();
        for number in &numbers {
            if model.check(*number as u32) == Ok(*number) {
                model.accept(*number);
                expected.push(*number);
            }
        }
        let mut accepted = accepted_by_four(&window, &numbers);
        accepted.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(accepted, expected);
        prop_assert_eq!(i128::from(window.high_water_mark()), model.top);
    }
}

proptest! {
    #[test]
    fn a_run_is_accepted_like_its_packets_one_by_one(
        size in prop::sample::select(&SIZES[..]),
        start in prop_oneof![0u64..10_000, (1u64 << 32) - 10_000..(1 << 32) + 10_000],
        runs in prop::collection::vec(prop::collection::vec((-120i64..120, 0u8..20), 1..64), 1..20),
    ) {
        let (together, mut model) = at(size, true, start);
        let (alone, _) = at(size, true, start);
        for run in runs {
            let mut run: Vec<(Option<u64>, Result<(), DropReason>)> = run
                .into_iter()
                .map(|(distance, kind)| {
                    let leap = if kind == 0 { 10 * distance.abs() } else { distance };
                    let number = (model.top as u64).saturating_add_signed(leap).max(1);
                    model.top = model.top.max(if kind < 3 { i128::from(number) } else { 0 });
                    ((kind != 1).then_some(number), Ok(()))
                })
                .collect();
            let expected: Vec<_> =
                run.iter().map(|(number, _)| number.map_or(Ok(()), |number| alone.accept(number))).collect();
            together.accept_run(&mut run, |packet| packet.0, |packet, reason| packet.1 = Err(reason));
            prop_assert_eq!(run.iter().map(|packet| packet.1).collect::<Vec<_>>(), expected);
            prop_assert_eq!(together.snapshot(), alone.snapshot());
        }
    }

    #[test]
    fn walks_like_the_model(
        size in prop::sample::select(&SIZES[..]),
        esn in any::<bool>(),
        start in prop_oneof![0u64..10_000, (1u64 << 32) - 10_000..(1 << 32) + 10_000, Just(u64::MAX - 20_000)],
        steps in prop::collection::vec(
            (prop_oneof![8 => -200i64..200, 2 => -9000i64..9000, 1 => any::<i64>()], any::<bool>()), 1..400
        ),
    ) {
        let start = if esn { start } else { start.min(u64::from(u32::MAX) - 9000) };
        let (window, mut model) = at(size, esn, start);
        for (distance, authentic) in steps {
            let number = (model.top as u64).wrapping_add_signed(distance);
            if distance % 16 == 0 && number < (model.top as u64).saturating_add(20_000) {
                window.raise(number);
                model.raise(number);
            }
            step(&window, &mut model, number as u32, authentic);
        }
    }

    #[test]
    fn a_restored_window_goes_on_like_the_first(
        size in prop::sample::select(&SIZES[..]),
        before in prop::collection::vec(1u32..10_000, 0..200),
        after in prop::collection::vec(1u32..10_000, 0..200),
    ) {
        let (first, mut model) = at(size, true, 0);
        for low in before {
            step(&first, &mut model, low, true);
        }
        let mut second = ReplayWindow::new(size, true).unwrap();
        second.restore(&first.snapshot()).unwrap();
        for low in after {
            step(&second, &mut model, low, true);
        }
    }
}
