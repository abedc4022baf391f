//! Numbers of spread SAs: stripes, and the rows of several nodes.

use crate::error::Error;
use crate::number::{MAX_STRIPES, ReservedRows, Rows, Stripe, Stripes};
use proptest::prelude::*;
use std::collections::HashSet;

/// Class 1 of 3.
fn stripe(first_row: u64, rows: u64, start: u64) -> Stripe {
    Stripe { first_row, rows, start, classes: 3, class: 1 }
}

fn stripes(of: &[Stripe]) -> Stripes {
    of.iter().fold(Stripes::new(), |known, stripe| known.with(*stripe, true).unwrap())
}

/// The numbers of one reservation.
fn numbers(got: ReservedRows) -> Vec<u64> {
    (got.first..).step_by(got.step.into()).take(got.count as usize).collect()
}

#[test]
fn a_stripe_that_no_sa_can_use_is_refused() {
    let with = |stripe, esn| Stripes::new().with(stripe, esn).map(|_| ());
    for (classes, class) in [(0, 0), (3, 3), (1, 2)] {
        let refused = Err(Error::StripeClass { class, classes });
        assert_eq!(with(Stripe { classes, class, ..stripe(0, 1, 1) }, true), refused);
    }
    let refused = Err(Error::StripeRows { first_row: u64::MAX, rows: 1 });
    assert_eq!(with(stripe(u64::MAX, 1, 1), true), refused);
    let limit = u64::from(u32::MAX);
    for (rows, start, found) in [(1, 0, 3), (1, limit, limit + 3), (u64::MAX, 1, u64::MAX)] {
        assert_eq!(with(stripe(0, rows, start), false), Err(Error::SequenceNumbers { found, limit }));
    }
    assert_eq!(with(stripe(0, 1, limit - 2), false), Ok(()), "the last three numbers");
    assert!(with(stripe(0, 1, u64::MAX - (1 << 32)), true).is_err());
    assert_eq!(with(stripe(0, 1, limit), true), Ok(()));
}

#[test]
fn stripes_never_have_a_number_of_one_before() {
    let known = stripes(&[stripe(0, 100, 1), stripe(100, 100, 301)]);
    let with = |stripe| known.with(stripe, true);
    assert_eq!(with(stripe(200, 9, 600)), Err(Error::StripeOverlap { start: 600, expected: 601 }));
    assert_eq!(with(stripe(200, 9, 250)), Ok(known.clone()), "it is late");
    assert_eq!(with(stripe(200, 9, 300)), Err(Error::StripeOverlap { start: 300, expected: 601 }));
    assert_eq!(with(stripe(100, 100, 301)), Ok(known.clone()), "it came twice");
    assert_eq!(with(stripe(200, 0, 601)), Ok(known.clone()), "it is empty");
    let next = with(stripe(200, 9, 601)).unwrap();
    assert_eq!((next.iter().count(), next.latest()), (3, Some(&stripe(200, 9, 601))));
    // The owner that granted it counts fewer rows than the one before it.
    let next = with(stripe(50, 9, 601)).unwrap();
    assert_eq!(next.iter().copied().collect::<Vec<_>>(), [stripe(0, 100, 1), stripe(50, 9, 601)]);
}

#[test]
fn the_latest_few_stripes_are_kept() {
    let all: Vec<_> = (0..6).map(|at| stripe(10 * at, 10, 1 + 30 * at)).collect();
    let kept: Vec<_> = stripes(&all).iter().copied().collect();
    assert_eq!(kept, all[all.len() - MAX_STRIPES..]);
}

#[test]
fn stripes_cover_rows_from_the_first_that_has_begun_to_the_end_of_the_last() {
    let covered = |known: &Stripes| (0..40).filter(|row| known.cover(*row)).collect::<Vec<u64>>();
    assert_eq!(covered(&Stripes::new()), []);
    assert_eq!(covered(&stripes(&[stripe(5, 3, 1)])), [5, 6, 7]);
    // A node that is between two stripes goes on in the later one.
    let two = stripes(&[stripe(5, 3, 1), stripe(10, 2, 10)]);
    assert_eq!(covered(&two), (5..12).collect::<Vec<_>>());
}

#[test]
fn rows_follow_the_clock_and_never_go_back() {
    let (rows, known) = (Rows::new(), stripes(&[stripe(100, 1000, 1)]));
    assert_eq!(rows.next_row(), 0);
    // The first stripe has not begun by the clock.
    assert_eq!(numbers(rows.reserve(&known, 5, 3)), [2, 5, 8]);
    assert_eq!(rows.next_row(), 103);
    assert_eq!(numbers(rows.reserve(&known, 200, 2)), [302, 305]);
    assert_eq!(numbers(rows.reserve(&known, 150, 2)), [308, 311]);
    assert_eq!(numbers(rows.reserve(&known, 205, 1)), [317]);
    assert_eq!(rows.next_row(), 206);
}

#[test]
fn a_reservation_ends_where_a_stripe_ends_or_a_later_one_begins() {
    let (rows, known) = (Rows::new(), stripes(&[stripe(0, 10, 1), stripe(5, 4, 31), stripe(20, 3, 100)]));
    let mut all = Vec::new();
    let counts: Vec<_> = std::iter::repeat_with(|| rows.reserve(&known, 0, 4))
        .take_while(|got| got.count > 0)
        .map(|got| {
            all.extend(numbers(got));
            got.count
        })
        .collect();
    assert_eq!(counts, [4, 1, 4, 3]);
    assert_eq!(all, [2, 5, 8, 11, 14, 32, 35, 38, 41, 101, 104, 107]);
    assert_eq!((rows.next_row(), rows.reserve(&known, 0, 4)), (23, ReservedRows::NONE));
    assert_eq!(rows.reserve(&Stripes::new(), 0, 4), ReservedRows::NONE);
    assert_eq!(rows.next_row(), 23);
}

#[test]
fn rows_are_low_from_the_middle_of_the_latest_stripe_on() {
    let rows = Rows::new();
    let known = stripes(&[stripe(0, 100, 1)]);
    assert!(!rows.reserve(&known, 0, 49).low && !rows.take_news(0));
    // Other nodes have sent meanwhile.
    assert!(rows.reserve(&known, 60, 1).low && rows.take_news(1) && !rows.take_news(1));
    rows.give_news_back(1);
    assert!(rows.take_news(1));
    let known = known.with(stripe(100, 100, 301), true).unwrap();
    assert!(!rows.reserve(&known, 99, 1).low);
    assert!(rows.reserve(&known, 149, 1).low && rows.take_news(301) && !rows.take_news(301));
    rows.give_news_back(1);
    assert!(!rows.take_news(301), "what is given back is of the stripe before");
}

#[test]
fn own_numbers_are_those_of_the_class_in_the_used_rows() {
    let rows = Rows::new();
    let known = stripes(&[stripe(100, 100, 1000), stripe(200, 100, 2000)]);
    let own = |rows: &Rows| -> Vec<u64> {
        let used = rows.used();
        used.clone().filter(|number| rows.is_own(*number as u32, used.end)).collect()
    };
    assert!(own(&rows).is_empty());
    rows.reserve(&known, 0, 4);
    assert_eq!(own(&rows), [1001, 1004, 1007, 1010]);
    rows.reserve(&known, 201, 1);
    assert_eq!(own(&rows), [2001, 2004]);
    // A worker that does not know the later stripe yet.
    rows.reserve(&stripes(&[stripe(100, 200, 1000)]), 0, 1);
    assert_eq!(own(&rows), [2001, 2004, 2007]);
}

/// What may happen to a cluster of three.
#[derive(Clone, Debug)]
enum Step {
    /// The owner grants a stripe: how far its first row is from the end of the last one, its rows,
    /// numbers left out before it, and a shift of the classes.
    Grant {
        ahead: i64,
        rows: u64,
        gap: u64,
        shift: u8,
    },
    /// A node gets to know the next granted stripe.
    Learn {
        node: usize,
    },
    /// A node sends so many packets, with its clock so far from the common one.
    Send {
        node: usize,
        count: u32,
        late: u64,
    },
    Tick(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let grant = (-40_i64..20, 0_u64..60, 0_u64..9, 0_u8..3);
    let step = prop_oneof![
        2 => grant.prop_map(|(ahead, rows, gap, shift)| Step::Grant { ahead, rows, gap, shift }),
        4 => (0_usize..3).prop_map(|node| Step::Learn { node }),
        8 => (0_usize..3, 0_u32..40, 0_u64..30).prop_map(|(node, count, late)| Step::Send { node, count, late }),
        2 => (0_u64..20).prop_map(Step::Tick),
    ];
    prop::collection::vec(step, 1..200)
}

/// A node, with a plain model beside it: a list of stripes and the next row.
#[derive(Default)]
struct Node {
    rows: Rows,
    known: Stripes,
    learned: usize,
    list: Vec<Stripe>,
    next: u64,
    last: u64,
}

impl Node {
    fn learn(&mut self, stripe: Stripe) {
        self.known = self.known.with(stripe, true).unwrap();
        self.learned += 1;
        if stripe.rows > 0 {
            self.list.retain(|earlier| earlier.first_row < stripe.first_row);
            self.list.push(stripe);
            let surplus = self.list.len().saturating_sub(MAX_STRIPES);
            self.list.drain(..surplus);
        }
    }

    /// The next number by the model: the first row from here on that a stripe has, by the latest one
    /// that has begun in it.
    fn model(&mut self, clock: u64) -> Option<u64> {
        let end = self.list.iter().map(|stripe| stripe.first_row + stripe.rows).max()?;
        let number = |row: u64| {
            let stripe = self.list.iter().rfind(|stripe| stripe.first_row <= row)?;
            (row - stripe.first_row < stripe.rows)
                .then(|| stripe.start + (row - stripe.first_row) * 3 + u64::from(stripe.class))
        };
        let (row, number) = (self.next.max(clock)..end).find_map(|row| Some((row, number(row)?)))?;
        self.next = row + 1;
        Some(number)
    }
}

proptest! {
    /// Nodes learn of stripes early and late. Still no number is used twice, and those of a node
    /// rise.
    #[test]
    fn rows_give_what_the_model_gives(steps in steps()) {
        let mut nodes = [(); 3].map(|()| Node::default());
        let (mut granted, mut used) = (Vec::<(Stripe, u8)>::new(), HashSet::new());
        let mut clock = 0_u64;
        for step in steps {
            match step {
                Step::Tick(by) => clock += by,
                Step::Grant { ahead, rows, gap, shift } => {
                    let last = granted.last().map_or(stripe(0, 0, 1), |(last, _)| *last);
                    let first_row = (last.first_row + last.rows).saturating_add_signed(ahead);
                    granted.push((stripe(first_row, rows, last.end() + gap), shift));
                }
                Step::Learn { node } => {
                    let node_of = &mut nodes[node];
                    if let Some((stripe, shift)) = granted.get(node_of.learned) {
                        node_of.learn(Stripe { class: (node as u8 + shift) % 3, ..*stripe });
                    }
                }
                Step::Send { node, count, late } => {
                    let (node, clock) = (&mut nodes[node], clock.saturating_sub(late));
                    let mut left = count;
                    while left > 0 {
                        let got = numbers(node.rows.reserve(&node.known, clock, left));
                        left -= got.len() as u32;
                        for number in &got {
                            prop_assert_eq!(Some(*number), node.model(clock));
                            prop_assert!(used.insert(*number), "{} twice", number);
                            prop_assert!(*number > node.last, "{} after {}", number, node.last);
                            node.last = *number;
                        }
                        if got.is_empty() {
                            prop_assert_eq!(node.model(clock), None);
                            break;
                        }
                        prop_assert_eq!(node.rows.next_row(), node.next);
                    }
                }
            }
        }
    }
}
