//! The replay window.

use crate::explore;
use crate::replay::{ReplayWindow, WindowSnapshot};
use loom::sync::Arc;
use loom::thread;

/// A window of 64 numbers, which has four words of 32.
fn window() -> Arc<ReplayWindow> {
    Arc::new(ReplayWindow::new(64, true).unwrap())
}

/// Each of the lists is accepted by a thread of its own; how many of each list were.
fn accept(window: &Arc<ReplayWindow>, lists: &[&'static [u64]]) -> Vec<Vec<u64>> {
    let run = |window: &ReplayWindow, list: &[u64]| -> Vec<u64> {
        list.iter().copied().filter(|number| window.accept(*number).is_ok()).collect()
    };
    let (first, others) = lists.split_first().unwrap();
    let threads: Vec<_> = others
        .iter()
        .map(|list| {
            let (window, list) = (Arc::clone(window), *list);
            thread::spawn(move || run(&window, list))
        })
        .collect();
    let mut accepted = vec![run(window, first)];
    accepted.extend(threads.into_iter().map(|thread| thread.join().unwrap()));
    accepted
}

fn sorted(accepted: &[Vec<u64>]) -> Vec<u64> {
    let mut all = accepted.concat();
    all.sort_unstable();
    all
}

/// Three threads, and so many preemptions.
fn each_number_once(preemptions: usize) {
    explore(preemptions, || {
        let window = window();
        // The same word, twice the same number, and the word of the next block.
        let accepted = accept(&window, &[&[5, 6, 40], &[6, 5], &[33, 6]]);
        assert_eq!(sorted(&accepted), [5, 6, 33, 40]);
        assert_eq!(window.high_water_mark(), 40);
    });
}

#[test]
fn a_number_is_accepted_once_and_all_within_the_window_are() {
    each_number_once(2);
}

#[test]
#[ignore = "make test-all: more orders of the same events"]
fn a_number_is_accepted_once_with_three_preemptions() {
    each_number_once(3);
}

#[test]
fn a_word_begins_a_new_round_under_threads_that_share_it() {
    explore(4, || {
        let window = window();
        window.accept(100).unwrap();
        // 133 and 140 take the word that stood for 5 to 12; both find it old.
        let accepted = accept(&window, &[&[133, 140], &[140, 133]]);
        assert_eq!(sorted(&accepted), [133, 140]);
    });
}

#[test]
fn a_late_number_meets_its_words_next_round() {
    explore(3, || {
        let window = window();
        // 4 may come in time or too late; if late, it must neither be taken nor put the word back.
        let accepted = accept(&window, &[&[132], &[4, 132], &[4]]);
        let all = sorted(&accepted);
        assert!(all == [132] || all == [4, 132], "{all:?}");
        assert!(window.accept(4).is_err() && window.accept(132).is_err());
        assert_eq!(window.accept(131), Ok(()));
    });
}

#[test]
fn nothing_below_a_floor_is_accepted_once_it_is_raised() {
    explore(3, || {
        let window = window();
        let late = {
            let window = Arc::clone(&window);
            thread::spawn(move || {
                [7, 50, 90].map(|number| window.accept(number)).map(|verdict| verdict.is_ok())
            })
        };
        window.raise(60);
        // Whatever the other thread is at, each of these is seen now.
        let after = [7, 50].map(|number| window.accept(number).is_ok());
        assert_eq!(after, [false, false]);
        let [_, _, above] = late.join().unwrap();
        assert!(above, "above the floor");
        for number in (1..=60).chain([90]) {
            assert!(window.accept(number).is_err(), "{number}");
        }
    });
}

#[test]
fn a_worker_that_stands_still_while_the_floor_is_raised_accepts_nothing_after_it() {
    explore(4, || {
        let window = window();
        let raised = Arc::new(loom::sync::atomic::AtomicBool::new(false));
        let late = {
            let (window, raised) = (Arc::clone(&window), Arc::clone(&raised));
            thread::spawn(move || {
                let before = !raised.load(loom::sync::atomic::Ordering::Acquire);
                (before, window.accept(5).is_ok())
            })
        };
        window.raise(1000);
        raised.store(true, loom::sync::atomic::Ordering::Release);
        let (before, accepted) = late.join().unwrap();
        assert!(before || !accepted);
        assert!(window.accept(5).is_err());
    });
}

#[test]
fn a_snapshot_gives_no_number_away_that_was_accepted_before() {
    explore(4, || {
        let window = window();
        window.accept(3).unwrap();
        let other = {
            let window = Arc::clone(&window);
            thread::spawn(move || [131, 100].map(|number| window.accept(number).is_ok()))
        };
        let own = window.accept(40).is_ok();
        let snapshot: WindowSnapshot = window.snapshot();
        other.join().unwrap();
        let mut restored = ReplayWindow::new(64, true).unwrap();
        restored.restore(&snapshot).unwrap();
        assert!(restored.accept(3).is_err() && (!own || restored.accept(40).is_err()), "{snapshot:?}");
    });
}
