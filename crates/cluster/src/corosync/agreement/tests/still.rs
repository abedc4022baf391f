//! Processes that stand still, and those that only seem to.

use super::*;

#[test]
fn whoever_speaks_now_and_then_stays_and_those_who_remain_must_be_more_than_half() {
    let mut cluster = three_of(4);
    for _ in 0..10 {
        cluster.alive(&[1, 2], 4);
        cluster.alive(&[3], 1);
    }
    assert!(cluster.standing_still.is_empty());
    // One of three, in a cluster of four nodes: the others stand still, and may wake up as the
    // majority that they are.
    cluster.alive(&[2], 5);
    assert_eq!(cluster.standing_still, BTreeSet::from([process(1), process(3)]));
    let view = *cluster.views(process(2)).last().unwrap();
    assert_eq!((numbers(view), view.quorate), (vec![2], false));
    cluster.wake_up(process(3));
    cluster.settle();
    assert!(!cluster.views(process(3)).iter().any(|view| view.quorate), "node 1 is waited for");
    cluster.alive(&[2, 3], 5);
    let view = *cluster.views(process(3)).last().unwrap();
    assert_eq!((numbers(view), view.quorate), (vec![2, 3], false), "half of four");
    cluster.wake_up(process(1));
    cluster.settle();
    assert!(cluster.views(process(1)).last().unwrap().quorate);
}
