//! The rows of a spread SA.

use crate::explore;
use crate::stripes::{Rows, Stripe, Stripes};
use loom::sync::Arc;
use loom::thread;

fn stripe(first_row: u64, rows: u64, start: u64) -> Stripe {
    Stripe { first_row, rows, start, classes: 2, class: 0 }
}

fn with(stripes: &Stripes, stripe: Stripe) -> Stripes {
    stripes.with(stripe, true).unwrap()
}

/// Takes rows so many times, three at a time.
fn take(rows: &Rows, stripes: &Stripes, clock: u64, times: usize) -> Vec<u64> {
    let mut taken = Vec::new();
    for _ in 0..times {
        let got = rows.reserve(stripes, clock, 3);
        taken.extend((0..got.count).map(|at| got.first + at * u64::from(got.step)));
    }
    taken
}

/// What two workers and this thread have, in order. Each may know other stripes, and read the clock
/// at another time.
fn meet(lists: [(Stripes, u64); 3]) -> (Vec<u64>, u64) {
    let rows = Arc::new(Rows::new());
    let [(own, clock), others @ ..] = lists;
    let workers: Vec<_> = others
        .into_iter()
        .map(|(stripes, clock)| {
            let rows = Arc::clone(&rows);
            thread::spawn(move || take(&rows, &stripes, clock, 2))
        })
        .collect();
    let mut taken = take(&rows, &own, clock, 1);
    taken.extend(workers.into_iter().flat_map(|worker| worker.join().unwrap()));
    taken.sort_unstable();
    (taken, rows.next_row())
}

#[test]
fn no_row_twice_among_workers_that_know_other_stripes() {
    explore(2, || {
        let early = with(&Stripes::new(), stripe(0, 20, 1));
        let late = with(&early, stripe(4, 20, 101));
        let (mut taken, _) = meet([(early.clone(), 0), (early, 2), (late, 3)]);
        let count = taken.len();
        taken.dedup();
        assert_eq!(taken.len(), count, "a number twice: {taken:?}");
        assert!(taken.iter().all(|number| number % 2 == 1), "of another class: {taken:?}");
    });
}

#[test]
fn a_stripe_is_given_out_whole() {
    explore(2, || {
        let stripes = with(&Stripes::new(), stripe(7, 8, 1));
        let (taken, next) = meet([(); 3].map(|()| (stripes.clone(), 0)));
        assert_eq!((taken, next), ((0..8).map(|row| 1 + 2 * row).collect(), 15));
    });
}
