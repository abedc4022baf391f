//! Which ports work.

use super::net::Net;

/// One link for the cluster, and two ports.
fn running(count: u8) -> Net {
    let mut net = Net::tuned(count, |config| config.links = 3);
    let all = net.all.clone();
    net.view(&all, true);
    net.settle();
    net.pass(1000);
    net
}

fn ill(net: &Net) -> Vec<u8> {
    net.nodes.iter().filter(|(_, node)| !node.well).map(|(number, _)| *number).collect()
}

#[test]
fn a_port_without_carrier_is_told_at_once_and_well_again_after_a_while() {
    let mut net = running(2);
    let now = net.now;
    net.node(1).group.set_link(now, 2, false);
    net.pass(1);
    assert_eq!(ill(&net), [1]);
    net.pass(5000);
    let now = net.now;
    net.node(1).group.set_link(now, 2, true);
    net.pass(900);
    assert_eq!(ill(&net), [1], "a cable that is loose does not have shards go to and fro");
    net.pass(200);
    assert!(ill(&net).is_empty());
}

#[test]
fn a_port_that_swallows_everything_is_found_one_way_or_both() {
    for (deaf, mute) in [(true, true), (true, false), (false, true)] {
        let mut net = running(3);
        net.deaf.extend(deaf.then_some((2, 1)));
        net.mute.extend(mute.then_some((2, 1)));
        net.pass(1000);
        assert_eq!(ill(&net), [2], "deaf {deaf}, mute {mute}");
        net.deaf.clear();
        net.mute.clear();
        net.pass(1500);
        assert!(ill(&net).is_empty());
    }
}

/// A node that is late itself has no complaint: that does not prove that its port works again.
#[test]
fn a_port_that_was_silent_is_well_only_once_somebody_is_heard_there() {
    let mut net = running(3);
    net.deaf.insert((2, 1));
    net.mute.insert((2, 1));
    net.pass(1000);
    for _ in 0..20 {
        net.node(2).stopped = true;
        net.pass(100);
        net.wake(2);
        net.pass(200);
        assert_eq!(ill(&net), [2]);
    }
    net.deaf.clear();
    net.mute.clear();
    net.pass(1500);
    assert!(ill(&net).is_empty());
}

#[test]
fn where_nobody_hears_anybody_the_fault_is_nobodys() {
    let mut net = running(3);
    net.lost_links.insert(1);
    net.pass(2000);
    assert!(ill(&net).is_empty(), "the switch of all");
    net.lost_links.clear();
    // The cluster's own link is no port.
    net.deaf.insert((1, 0));
    net.mute.insert((1, 0));
    net.pass(2000);
    assert!(ill(&net).is_empty());
    let mut net = running(2);
    net.deaf.insert((1, 1));
    net.mute.insert((1, 1));
    net.pass(2000);
    assert!(ill(&net).is_empty(), "of two, neither knows whose fault it is");
}

#[test]
fn who_was_late_itself_or_has_just_come_has_no_complaint_yet() {
    let mut net = running(3);
    net.node(2).stopped = true;
    net.pass(3000);
    net.wake(2);
    for _ in 0..1000 {
        net.pass(1);
        assert!(ill(&net).is_empty());
    }
    net.restart(3);
    net.view(&[1, 2, 3], true);
    net.settle();
    for _ in 0..1000 {
        net.pass(1);
        assert!(ill(&net).is_empty());
    }
    // Nor does a node complain that remains alone.
    net.isolate(1);
    net.node(3).stopped = true;
    net.pass(2000);
    assert!(ill(&net).is_empty());
}

/// Seconds until the ports of a node work again, once the carrier is there.
fn seconds_until_well(net: &mut Net, node: u8) -> u64 {
    let now = net.now;
    net.node(node).group.set_link(now, 2, true);
    let seconds = (0..200).find(|_| {
        let well = ill(net).is_empty();
        net.pass(if well { 0 } else { 1000 });
        well
    });
    seconds.unwrap()
}

#[test]
fn a_port_that_fails_again_and_again_is_tried_for_longer_each_time() {
    let mut net = running(2);
    let fail = |net: &mut Net, after: u64| {
        net.pass(after * 1000);
        let now = net.now;
        net.node(1).group.set_link(now, 2, false);
        net.pass(100);
        assert_eq!(ill(net), [1]);
        seconds_until_well(net, 1)
    };
    // A second, and the time until the next look.
    let tried: Vec<u64> = (0..8).map(|_| fail(&mut net, 5)).collect();
    assert!(
        tried.is_sorted() && tried[0] <= 2 && tried[1] <= 3 && (16..=18).contains(&tried[4]),
        "{tried:?}"
    );
    assert!((60..=62).contains(&tried[7]), "{tried:?}");
    // A failure during the trial only makes the trial begin again.
    let now = net.now;
    net.node(1).group.set_link(now, 2, false);
    net.pass(1000);
    let now = net.now;
    net.node(1).group.set_link(now, 2, true);
    net.pass(30_000);
    let now = net.now;
    net.node(1).group.set_link(now, 2, false);
    net.pass(1000);
    assert!((60..=62).contains(&seconds_until_well(&mut net, 1)));
    assert!(fail(&mut net, 301) <= 2, "all of that is forgotten");
}

#[test]
fn a_port_that_flaps_stops_moving_shards() {
    let mut net = running(2);
    let mut moves = 0;
    for _ in 0..60 {
        for up in [false, true] {
            let now = net.now;
            net.node(1).group.set_link(now, 2, up);
            for _ in 0..30 {
                let before = net.node(1).well;
                net.pass(100);
                moves += usize::from(net.node(1).well != before);
            }
        }
    }
    assert!((1..=5).contains(&moves), "{moves} moves in six minutes");
    assert_eq!(ill(&net), [1]);
}
