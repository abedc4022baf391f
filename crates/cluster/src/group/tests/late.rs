//! A node that was late, or has come into another view, has yet to hear the others.

use super::heartbeats::{forward, stop};

/// Its sockets hold nothing of what was sent to it meanwhile.
#[test]
fn who_was_stopped_and_has_lost_all_datagrams_suspects_nobody() {
    let mut net = stop(3);
    net.node(1).stopped = true;
    net.pass(2000);
    net.node(1).kept.clear();
    net.wake(1);
    net.pass(500);
    assert_eq!(net.node(1).suspicions, 0);
    assert_eq!(net.node(1).group.status().counters.late, 1);
}

/// Heartbeats are due every 10 ms. A node is a suspect after 25 ms at the earliest.
#[test]
fn a_node_is_late_if_its_heartbeat_is_by_more_than_half_the_floor_of_suspicion() {
    for (millis, late) in [(12, 0), (13, 1)] {
        let mut net = stop(2);
        net.node(1).stopped = true;
        net.pass(9 + millis);
        net.wake(1);
        net.pass(1);
        assert_eq!(net.node(1).group.status().counters.late, late, "{millis} ms");
    }
}

/// Its next heartbeat is due 2 ms after the view has begun.
#[test]
fn who_goes_on_without_quorum_looks_first_from_the_new_view_on() {
    let mut net = forward(3);
    net.isolate(3);
    net.pass(208);
    net.view(&[3], false);
    net.pass(3);
    assert!(net.nodes[&3].fence <= net.now, "nobody can have been heard in that view yet");
    net.pass(10);
    assert!(net.nodes[&3].fence > net.now);
}
