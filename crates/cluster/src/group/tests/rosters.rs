//! Nodes are added and removed while the cluster runs.

use super::net::{Net, id};
use crate::group::{ChangeError, GroupConfig, NoQuorum, NodeChange, QuorumRule, Roster, Rosters};

/// Of three nodes in a view that has begun everywhere and is old enough for a change.
fn three() -> Net {
    let mut net = Net::new(3);
    begin(&mut net, &[1, 2, 3]);
    net
}

fn begin(net: &mut Net, members: &[u8]) {
    net.view(members, true);
    net.settle();
    net.pass(200);
}

fn add(node: u8) -> NodeChange {
    NodeChange::Add(id(node), vec![format!("10.99.0.{node}").parse().unwrap()])
}

fn remove(node: u8) -> NodeChange {
    NodeChange::Remove(id(node))
}

fn ask(net: &mut Net, node: u8, change: &NodeChange) -> Result<u64, ChangeError> {
    let now = net.now;
    let asked = net.node(node).group.change_nodes(now, change);
    net.collect();
    asked
}

fn change(net: &mut Net, node: u8, change: &NodeChange) -> u64 {
    let number = ask(net, node, change).unwrap();
    net.settle();
    number
}

fn rosters(net: &Net, node: u8) -> (u64, Vec<u8>, Option<u64>) {
    let Rosters { settled, next } = net.nodes[&node].group.rosters();
    (
        settled.number,
        settled.ids().iter().map(|node| node.get()).collect(),
        next.as_ref().map(|next| next.number),
    )
}

#[test]
fn a_change_settles_at_all_members_and_on_their_disks() {
    let mut net = three();
    assert_eq!(change(&mut net, 2, &add(4)), 1);
    for node in 1..=3 {
        assert_eq!(rosters(&net, node), (1, vec![1, 2, 3, 4], None));
        let disk = net.nodes[&node].disk.rosters.as_ref().unwrap();
        assert_eq!(disk.settled.nodes[&id(4)], ["10.99.0.4".parse::<std::net::IpAddr>().unwrap()]);
        net.restart(node);
        assert_eq!(rosters(&net, node), (1, vec![1, 2, 3, 4], None), "after a restart");
    }
    begin(&mut net, &[1, 2, 3]);
    assert_eq!(change(&mut net, 1, &remove(2)), 2);
    assert_eq!(rosters(&net, 3), (2, vec![1, 3, 4], None));
}

/// Nothing is acknowledged, so nothing is stable, before the disk has the next roster.
#[test]
fn a_roster_counts_once_it_is_on_every_disk() {
    let mut net = three();
    net.node(3).slow_disk = true;
    ask(&mut net, 1, &add(4)).unwrap();
    let ticket = net.publish(1, b"behind it");
    net.settle();
    assert_eq!(rosters(&net, 1), (0, vec![1, 2, 3], Some(1)));
    assert!(net.nodes[&1].stable < ticket);
    assert_eq!(ask(&mut net, 2, &add(5)), Err(ChangeError::Underway));
    net.write(3);
    assert_eq!((rosters(&net, 1), net.nodes[&1].stable), ((1, vec![1, 2, 3, 4], None), ticket));
    let ticket = net.publish(1, b"behind the second step");
    net.settle();
    assert!(net.nodes[&1].stable < ticket);
    net.write(3);
    assert_eq!((rosters(&net, 3), net.nodes[&1].stable), ((1, vec![1, 2, 3, 4], None), ticket));
}

/// The node that asked for a change ends with it, and the next view settles it.
#[test]
fn a_change_that_one_view_has_begun_is_settled_by_the_next() {
    let mut net = three();
    ask(&mut net, 1, &add(4)).unwrap();
    // All take the first step, and nobody's acknowledgement arrives.
    net.deliver();
    net.datagrams.clear();
    assert_eq!(rosters(&net, 2).2, Some(1));
    net.restart(1);
    begin(&mut net, &[1, 2, 3]);
    for node in 1..=3 {
        assert_eq!(rosters(&net, node), (1, vec![1, 2, 3, 4], None));
    }
}

/// Of two rosters that were told of, neither settled, the view goes on with that of the node that
/// was in the later view.
#[test]
fn of_two_changes_that_did_not_settle_the_later_one_goes_on() {
    let mut net = three();
    ask(&mut net, 1, &add(4)).unwrap();
    let (ring, _, from, bytes) = net.order.pop_front().unwrap();
    net.deliver_to(1, ring, from, &bytes);
    net.collect();
    assert_eq!(rosters(&net, 1).2, Some(1));
    net.view(&[1], false);
    begin(&mut net, &[2, 3]);
    ask(&mut net, 2, &remove(1)).unwrap();
    net.deliver();
    net.datagrams.clear();
    assert_eq!(rosters(&net, 2).2, Some(1));
    begin(&mut net, &[1, 2, 3]);
    for node in 1..=3 {
        assert_eq!(rosters(&net, node), (1, vec![2, 3], None));
    }
    assert!(net.nodes[&1].has_left);
}

#[test]
fn a_node_that_was_away_learns_the_roster_in_the_exchange() {
    let mut net = three();
    net.view(&[3], false);
    begin(&mut net, &[1, 2]);
    change(&mut net, 1, &remove(3));
    assert_eq!(change(&mut net, 1, &add(3)), 2, "with another disk, say");
    begin(&mut net, &[1, 2, 3]);
    assert_eq!(rosters(&net, 3), (2, vec![1, 2, 3], None));
    assert_eq!(net.nodes[&3].disk.rosters.as_ref().unwrap().settled.number, 2);
}

#[test]
fn a_new_node_joins_and_its_voice_counts() {
    let mut net = three();
    change(&mut net, 1, &add(4));
    net.all = vec![1, 2, 3, 4];
    net.start(4, crate::group::Durable::default());
    begin(&mut net, &[1, 2, 3, 4]);
    assert_eq!(net.nodes[&4].last_view().fresh, [id(4)]);
    assert!(net.nodes[&4].fence > net.now && net.nodes[&4].senders.len() == 1);
    // Two of four are no majority of the roster: a lease is not granted.
    begin(&mut net, &[1, 4]);
    let now = net.now;
    net.node(1).group.renew_sender(now);
    net.settle();
    assert_eq!(net.nodes[&1].senders.len(), 1);
}

/// It shuts its fence, leaves the engine, and does not continue alone, whatever `no_quorum` says.
#[test]
fn a_removed_node_takes_no_part_any_more() {
    let mut net = Net::tuned(3, |config| config.no_quorum = NoQuorum::Forward);
    begin(&mut net, &[1, 2, 3]);
    change(&mut net, 1, &remove(3));
    assert!(net.nodes[&3].has_left && net.nodes[&3].fence <= net.now);
    net.node(3).ring = None;
    begin(&mut net, &[1, 2]);
    net.pass(1000);
    assert!(net.nodes[&3].fence <= net.now);
    assert!(net.nodes[&1].fence > net.now);
}

/// It meets the others again: it is left out, and the view goes on.
#[test]
fn a_node_that_was_removed_while_it_was_away_is_left_out() {
    let mut net = three();
    net.view(&[3], false);
    begin(&mut net, &[1, 2]);
    change(&mut net, 2, &remove(3));
    begin(&mut net, &[1, 2, 3]);
    assert_eq!(net.nodes[&1].last_view().view.members, [id(1), id(2)]);
    assert!(net.nodes[&3].has_left && !net.nodes[&3].in_view);
    let log = net.nodes[&3].log.join("\n");
    assert!(log.contains("node 3 is not one of the cluster's nodes (1, 2)"), "{log}");
    let log = net.nodes[&1].log.join("\n");
    assert!(log.contains("nodes 3 are left out: they are not among the cluster's nodes"), "{log}");
}

#[test]
fn what_cannot_be_agreed_on_is_refused_with_the_reason() {
    let mut net = three();
    let refused = |net: &mut Net, change: &NodeChange| ask(net, 1, change).unwrap_err().to_string();
    let taken = refused(&mut net, &add(2));
    assert_eq!(taken, "found node 2, expected a number that no node has; the nodes are 1, 2, 3");
    assert_eq!(refused(&mut net, &remove(9)), "found node 9, expected one of the nodes 1, 2, 3");
    net.view(&[1, 2], true);
    net.settle();
    assert_eq!(ask(&mut net, 1, &add(4)), Err(ChangeError::TooSoon));
    net.pass(200);
    let few = refused(&mut net, &add(4));
    assert!(
        few.starts_with("the nodes that take part are 1, 2, expected more than half of 1, 2, 3"),
        "{few}"
    );
    assert!(few.contains("and of 1, 2, 3, 4 (the nodes then)"), "{few}");
    net.view(&[1], false);
    net.settle();
    assert_eq!(ask(&mut net, 1, &remove(3)), Err(ChangeError::NoView));

    let mut net = Net::tuned(3, |config| config.speaks = GroupConfig::ROSTERS - 1);
    begin(&mut net, &[1, 2, 3]);
    let old = ask(&mut net, 1, &add(4)).unwrap_err().to_string();
    assert!(old.starts_with("the nodes 1, 2, 3 agree on version 23 of the replication protocol"), "{old}");

    let mut net = Net::new(1);
    begin(&mut net, &[1]);
    assert_eq!(ask(&mut net, 1, &remove(1)), Err(ChangeError::Last(id(1))));
}

/// Where the members vote, even the last node may take a dead one out.
#[test]
fn the_last_node_changes_the_nodes_where_it_goes_on_alone() {
    let mut net = Net::tuned(3, |config| config.quorum = QuorumRule::LastManStanding);
    for members in [&[1, 2, 3][..], &[1, 2], &[1]] {
        begin(&mut net, members);
    }
    change(&mut net, 1, &remove(3));
    change(&mut net, 1, &remove(2));
    assert_eq!(rosters(&net, 1), (2, vec![1], None));
    net.restart(1);
    begin(&mut net, &[1]);
    assert!(net.nodes[&1].in_view, "all nodes are here");
}

/// Two nodes that were told of the change and did not settle it, of four then: the former three
/// count, and the four. So the node that was away and the new one cannot go on without them.
#[test]
fn an_electorate_has_the_former_roster_until_the_next_is_settled() {
    let mut net = three();
    ask(&mut net, 1, &add(4)).unwrap();
    net.deliver();
    let here = |net: &Net, nodes: &[u8]| {
        net.nodes[&1].group.rosters().majorities().have(|node| nodes.contains(&node.get()))
    };
    assert!(here(&net, &[1, 2, 4]) && !here(&net, &[1, 2]) && !here(&net, &[1, 4]));
    net.settle();
    assert!(!here(&net, &[1, 2]) && here(&net, &[1, 2, 4]));
    let durable = net.nodes[&1].disk.rosters.clone().unwrap();
    assert_eq!(durable.settled.ids(), Roster::of(1, [1, 2, 3, 4].map(id)).ids());
}

/// Node 1's process has ended, and its daemon is alone with node 3: a majority of the roster that
/// node 3 knows.
#[test]
fn a_node_that_was_away_while_it_was_removed_does_not_go_on_beside_a_daemon() {
    let mut net = three();
    net.view(&[3], false);
    begin(&mut net, &[1, 2]);
    assert_eq!(change(&mut net, 1, &remove(3)), 1);
    net.view(&[3], true);
    net.settle();
    let now = net.now;
    assert!(!net.node(3).in_view && net.node(3).fence <= now);
    assert_eq!(ask(&mut net, 3, &remove(1)), Err(ChangeError::NoView));
}

/// Another view may go on from the one before, and knows nothing of the change.
#[test]
fn nothing_is_changed_before_the_view_has_begun_at_all_members() {
    let mut net = Net::new(3);
    net.node(3).slow_disk = true;
    begin(&mut net, &[1, 2, 3]);
    net.pass(1000);
    assert!(net.nodes[&1].in_view && net.nodes[&2].in_view);
    assert_eq!(ask(&mut net, 1, &add(4)), Err(ChangeError::NoView));
    net.write(3);
    net.pass(100);
    assert_eq!(ask(&mut net, 1, &add(4)), Ok(1));
}

/// It is quorate only if the other cannot have gone on. Two of four are not.
#[test]
fn one_of_two_nodes_takes_the_other_out_and_two_of_four_take_none() {
    let mut net = Net::new(2);
    begin(&mut net, &[1, 2]);
    begin(&mut net, &[1]);
    assert_eq!(change(&mut net, 1, &remove(2)), 1);
    assert_eq!(rosters(&net, 1), (1, vec![1], None));
    let mut net = Net::new(4);
    begin(&mut net, &[1, 2, 3, 4]);
    begin(&mut net, &[1, 2]);
    assert!(net.nodes[&1].in_view);
    let few = ask(&mut net, 1, &remove(4));
    assert!(matches!(few, Err(ChangeError::NoMajority { .. })), "{few:?}");
}
