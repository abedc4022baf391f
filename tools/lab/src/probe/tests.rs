use super::trace::{Arrival, Trace};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// A trace of datagrams sent at these milliseconds; arrivals are (number, millisecond).
fn trace(
    sent: impl IntoIterator<Item = u32>,
    arrivals: impl IntoIterator<Item = (u64, u32)>,
) -> (Instant, Trace) {
    let zero = Instant::now();
    let sent = sent.into_iter().map(|at| zero + MS * at).collect();
    let arrivals = arrivals.into_iter().map(|(number, at)| Arrival { number, at: zero + MS * at }).collect();
    (zero, Trace::new(MS, sent, arrivals))
}

#[test]
fn all_arrive_in_order() {
    let (_, trace) = trace(0..100, (0..100).map(|n| (n, n as u32)));
    let summary = trace.summary();
    assert_eq!((summary.sent, summary.received, summary.lost), (100, 100, 0));
    assert_eq!((summary.duplicates, summary.reordered), (0, 0));
    assert_eq!((summary.outage.length, summary.outage.silence), (MS, Duration::ZERO));
    assert!(trace.lost().is_empty());
}

#[test]
fn loss_makes_an_outage_and_is_known_by_number() {
    let arrivals = (0..300).filter(|n| !(50..250).contains(n) && *n != 10).map(|n| (n, n as u32));
    let (zero, trace) = trace(0..300, arrivals);
    let summary = trace.summary();
    assert_eq!((summary.sent, summary.received, summary.lost), (300, 99, 201));
    assert_eq!((summary.outage.from, summary.outage.length), (zero + MS * 49, MS * 201));
    assert_eq!((summary.outage.lost, summary.outage.silence), (200, Duration::ZERO));
    assert_eq!(trace.lost(), [10..11, 50..250]);
    let lengths: Vec<_> = trace.outages(MS * 2).iter().map(|o| o.length).collect();
    assert_eq!(lengths, [MS * 2, MS * 201]);
}

#[test]
fn arrivals_after_the_end_are_counted_if_they_are_the_second_ones() {
    let zero = Instant::now();
    let at = |(number, at)| Arrival { number, at: zero + MS * at };
    // Number 1 is lost, and arrives by a replay; 2 is doubled before, 0 and 3 by a replay.
    let arrivals = [(0, 0), (2, 2), (2, 3), (3, 3), (0, 60), (1, 61), (3, 62), (9, 63)].map(at).to_vec();
    let (trace, again) = Trace::until(zero + MS * 50, MS, vec![zero; 4], arrivals);
    let summary = trace.summary();
    assert_eq!((summary.received, summary.lost, summary.duplicates, again), (3, 1, 1, 2));
}

#[test]
fn datagrams_kept_back_are_an_outage_without_loss() {
    // Sent once a millisecond; those from 20 to 69 wait until 70.
    let (_, trace) = trace(0..100, (0..100).map(|n| (n, if (20..70).contains(&n) { 70 } else { n as u32 })));
    let summary = trace.summary();
    assert_eq!((summary.lost, summary.outage.lost, summary.outage.length), (0, 0, MS * 51));
}

#[test]
fn a_sender_without_cpu_is_no_outage() {
    // After number 9 the sender sleeps for 80 ms.
    let sent = |n: u32| if n < 10 { n } else { n + 80 };
    let (_, trace) = trace((0..20).map(sent), (0..20).map(|n| (n, sent(n as u32))));
    let summary = trace.summary();
    assert_eq!((summary.lost, summary.outage.length), (0, MS));
    assert_eq!(trace.sender_pause(), MS * 81);
}

#[test]
fn silence_at_the_edge_of_an_outage_is_taken_off_and_told() {
    // Number 9 arrives, then the sender sleeps for 30 ms; numbers 10 to 29 are lost.
    let sent = |n: u32| if n < 10 { n } else { n + 30 };
    let arrivals = (0..50).filter(|n| !(10..30).contains(n)).map(|n| (n, sent(n as u32)));
    let (_, trace) = trace((0..50).map(sent), arrivals);
    let outage = trace.summary().outage;
    assert_eq!((outage.length, outage.silence, outage.lost), (MS * 21, MS * 30, 20));
}

#[test]
fn silence_within_an_outage_is_part_of_it() {
    // Numbers 10 to 29 are lost, and the sender sleeps for 30 ms after number 20.
    let sent = |n: u32| if n <= 20 { n } else { n + 30 };
    let arrivals = (0..50).filter(|n| !(10..30).contains(n)).map(|n| (n, sent(n as u32)));
    let (_, trace) = trace((0..50).map(sent), arrivals);
    let outage = trace.summary().outage;
    assert_eq!((outage.length, outage.silence), (MS * 51, Duration::ZERO));
}

#[test]
fn duplicates_and_reordering_are_counted_apart() {
    let (_, trace) = trace(0..6, [(0, 0), (2, 2), (1, 2), (1, 3), (3, 3), (5, 5), (0, 5), (4, 6)]);
    let summary = trace.summary();
    assert_eq!((summary.received, summary.lost), (6, 0));
    assert_eq!((summary.duplicates, summary.reordered), (2, 2));
}

#[test]
fn a_duplicate_does_not_end_an_outage() {
    let (_, trace) = trace(0..100, [(0, 0), (1, 1), (0, 50), (99, 99)]);
    assert_eq!(trace.summary().outage.length, MS * 98);
}

#[test]
fn an_outage_may_reach_to_the_end_or_from_the_beginning() {
    let (zero, to_end) = trace(0..100, (0..30).map(|n| (n, n as u32)));
    let outage = to_end.summary().outage;
    assert_eq!((outage.from, outage.length, outage.lost), (zero + MS * 29, MS * 71, 70));
    let (zero, from_beginning) = trace(0..100, (60..100).map(|n| (n, n as u32)));
    let outage = from_beginning.summary().outage;
    assert_eq!((outage.from, outage.length, outage.lost), (zero, MS * 60, 60));
    let (_, nothing) = trace(0..100, []);
    assert_eq!((nothing.summary().outage.length, nothing.summary().lost), (MS * 100, 100));
}

#[test]
fn an_empty_trace_has_no_figures() {
    let (_, trace) = trace([], [(3, 3)]);
    let summary = trace.summary();
    assert_eq!((summary.sent, summary.received, summary.lost, summary.duplicates), (0, 0, 0, 0));
    assert_eq!(summary.outage.length, Duration::ZERO);
    assert!(trace.received_over_time(MS).is_none());
}

#[test]
fn arrivals_over_time_show_the_hole() {
    let (_, trace) = trace(0..40, (0..40).filter(|n| *n < 10 || *n >= 35).map(|n| (n, n as u32)));
    assert_eq!(trace.received_over_time(MS * 10).unwrap().amounts(), [10, 0, 0, 5]);
}
