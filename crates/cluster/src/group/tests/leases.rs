//! Leases of sender IDs.

use super::net::{Net, id};
use super::views::{current_and_fresh, three};
use crate::group::Durable;

#[test]
fn a_lease_needs_a_majority_of_the_configured_nodes() {
    let mut net = Net::new(5);
    net.view(&[1, 2], true);
    net.settle();
    assert!(net.node(1).in_view && net.node(1).senders.is_empty());
    net.view(&[1, 2, 4], true);
    net.settle();
    assert_eq!(net.node(1).senders, [id(1).sender(1).unwrap()]);
    let now = net.now;
    net.node(1).group.renew_sender(now);
    net.settle();
    assert_eq!(net.node(1).senders, [1, 2].map(|n| id(1).sender(n).unwrap()));
}

#[test]
fn a_node_without_its_disk_leases_what_the_others_do_not_know_as_used() {
    let mut net = three();
    net.start(1, Durable::default());
    net.view(&[1, 2, 3], true);
    net.settle();
    assert_eq!(net.node(1).senders, [id(1).sender(2).unwrap()]);
}

#[test]
fn a_machine_that_has_gone_back_in_time_joins_anew() {
    let mut net = three();
    net.publish(1, b"state");
    net.settle();
    let now = net.now;
    net.node(1).group.rolled_back(now);
    net.settle();
    assert!(net.node(1).rejoin && !net.node(1).in_view);
    net.publish(2, b"more");
    net.settle();
    net.view(&[2, 3], true);
    net.settle();
    net.view(&[1, 2, 3], true);
    net.settle();
    assert_eq!(current_and_fresh(&net, 2), (vec![2, 3], vec![1]));
    assert_eq!(net.node(1).senders, [1, 2].map(|n| id(1).sender(n).unwrap()));
}
