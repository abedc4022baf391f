//! What operators see of the cluster: the member's status, in plain numbers.

use super::diagnosis;
use std::time::Duration;
use testudo_cluster::group::{self, PeerStatus};
use testudo_cluster::member::ClusterStatus;
use testudo_cluster::node::NodeId;
use testudo_ike::output::Time;
use testudo_vici::cluster::{ClusterReport, NodeReport, NodeState, Phase, ViewReport};
use testudo_vici::counters::Named;

/// For `testudo cluster`. `witness`: whether it votes, if there is one.
/// `misfit`: what does not fit in corosync.conf.
pub(crate) fn report(
    status: &ClusterStatus,
    witness: Option<bool>,
    misfit: Option<String>,
    now: Time,
) -> ClusterReport {
    let group = &status.group;
    let mut nodes: Vec<_> = group.peers.iter().map(|peer| other(status, peer, now)).collect();
    nodes.push(this(status));
    nodes.sort_unstable_by_key(|node| node.id);
    ClusterReport {
        node: number(group.node),
        phase: match group.phase {
            group::Phase::Down => Phase::Down,
            group::Phase::NoQuorum => Phase::NoQuorum,
            group::Phase::Exchange => Phase::Exchange,
            group::Phase::Running => Phase::Running,
        },
        view: group.view.as_ref().map(|view| ViewReport {
            ring_node: view.ring.node.into(),
            ring_seq: view.ring.seq,
            quorate: view.quorate,
            members: view.members.iter().copied().map(number).collect(),
        }),
        witness,
        synced: group.synced,
        epoch: group.delivered.epoch,
        delivered: group.delivered.count,
        stable: group.stable.count,
        waiting: group.waiting as u64,
        held: status.held as u64,
        sender: group.sender.map(|sender| sender.0.into()),
        fence: millis(group.fence.since(now)),
        default_host: status.default_host,
        packets: status.packets.len() as u64,
        ike: status.ike.len() as u64,
        provisional: status.provisional.len() as u64,
        ike_sas: status.ike_sas as u64,
        child_sas: status.child_sas as u64,
        unread_states: status.unread_states as u64,
        protocol: status.version.into(),
        replicate_config: status.configuration.replicates,
        config_current: status.configuration.is_current,
        config_pieces: status.configuration.pieces as u64,
        roster: group.rosters.settled.number,
        changing: group.rosters.next.is_some(),
        configured: group.rosters.settled.ids().into_iter().map(number).collect(),
        engines_behind: status.engines_behind.iter().copied().map(number).collect(),
        why: diagnosis::sentences(status, witness, misfit, now),
        counters: counters(status),
        nodes,
    }
}

/// The node itself, which hears no heartbeats of its own.
fn this(status: &ClusterStatus) -> NodeReport {
    let group = &status.group;
    let member = group.view.as_ref().is_some_and(|view| view.members.contains(&group.node));
    NodeReport {
        id: number(group.node),
        state: state(status, group.node, member),
        shards: owned(status, group.node),
        provisional: status.provisional.len() as u64,
        followed: followed(status, group.node),
        addresses: addresses(status, group.node),
        incarnation: group.sender.map_or(0, |sender| sender.incarnation().into()),
        ..NodeReport::default()
    }
}

/// The node's addresses, by link.
fn addresses(status: &ClusterStatus, node: NodeId) -> Vec<String> {
    let nodes = status.group.rosters.nodes();
    nodes.get(&node).map(|addresses| addresses.iter().map(ToString::to_string).collect()).unwrap_or_default()
}

fn other(status: &ClusterStatus, peer: &PeerStatus, now: Time) -> NodeReport {
    // Nothing is known of the links of a node that was never heard.
    let down = if peer.heard.is_some() { !peer.links } else { 0 };
    NodeReport {
        id: number(peer.node),
        state: state(status, peer.node, peer.member),
        addresses: addresses(status, peer.node),
        shards: owned(status, peer.node),
        provisional: peer.provisional.len() as u64,
        followed: followed(status, peer.node),
        heard: peer.heard.map(|at| millis(now.since(at))),
        hears: peer.hears.map(millis),
        threshold: Some(millis(peer.threshold)),
        links_down: (0..u32::BITS).filter(|link| down >> link & 1 == 1).map(u64::from).collect(),
        load: peer.load.into(),
        acked: peer.acked,
        incarnation: peer.incarnation.into(),
    }
}

/// A silent node is a suspect, whatever it owns.
fn state(status: &ClusterStatus, node: NodeId, member: bool) -> NodeState {
    if !member {
        NodeState::Absent
    } else if status.suspects.contains(&node) {
        NodeState::Suspect
    } else if status.drained.contains(&node) {
        NodeState::Drained
    } else if status.unfit.contains(&node) {
        NodeState::NoPort
    } else if status.owners.iter().any(|(owner, _)| *owner == node) {
        NodeState::Owner
    } else {
        NodeState::Fresh
    }
}

pub(super) fn owned(status: &ClusterStatus, node: NodeId) -> u64 {
    let of = status.owners.iter().find(|(owner, _)| *owner == node);
    of.map_or(0, |(_, shards)| shards.len() as u64)
}

fn followed(status: &ClusterStatus, node: NodeId) -> u64 {
    let of = status.preferred.iter().find(|(preferred, _)| *preferred == node);
    of.map_or(0, |(_, shards)| *shards as u64)
}

fn counters(status: &ClusterStatus) -> Named {
    let (group, member) = (&status.group.counters, &status.counters);
    let all = [
        ("delivered", group.delivered),
        ("refused", group.refused),
        ("old_ring", group.old_ring),
        ("unopened", group.unopened),
        ("replayed", group.replayed),
        ("malformed", group.malformed),
        ("other_version", group.other_version),
        ("forged", group.forged),
        ("unproven", group.unproven),
        ("late", group.late),
        ("suspicions", group.suspicions),
        ("contradictions", group.contradictions),
        ("not_ours", member.not_ours),
        ("relayed_ike", member.relayed_ike),
        ("followed", member.followed),
        ("not_owner", member.not_owner),
        ("unread", member.unread),
        ("unfit", member.unfit),
    ];
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn number(node: NodeId) -> u64 {
    node.get().into()
}

pub(super) fn millis(span: Duration) -> u64 {
    span.as_millis().try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testudo_base::shard::ShardSet;
    use testudo_base::spi::Shard;
    use testudo_cluster::engine::{RingId, View};
    use testudo_cluster::group::{Counters, GroupStatus, Position, Rosters};
    use testudo_cluster::member::{Class, ConfigurationStatus, Difference, Found, MemberCounters, PieceName};

    fn node(number: u32) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn ms(millis: u64) -> Time {
        Time(Duration::from_millis(millis))
    }

    fn shards(of: std::ops::Range<u8>) -> ShardSet {
        of.map(Shard).collect()
    }

    fn peer(number: u32) -> PeerStatus {
        PeerStatus {
            node: node(number),
            member: true,
            heard: Some(ms(990)),
            hears: Some(Duration::from_millis(3)),
            threshold: Duration::from_millis(45),
            suspected: false,
            links: !0b10,
            load: 7,
            provisional: ShardSet::EMPTY,
            acked: Some(8),
            incarnation: 5,
        }
    }

    /// Node 2 of five: 1 is silent, 3 is being brought up to date, 4 owns shards, 5 has never been
    /// there.
    fn status() -> ClusterStatus {
        let members = [1, 2, 3, 4].map(node).to_vec();
        ClusterStatus {
            group: GroupStatus {
                node: node(2),
                phase: group::Phase::Running,
                obstacle: None,
                view: Some(View { ring: RingId { seq: 28, node: 1 }, members, quorate: true }),
                current: [1, 2, 4].map(node).to_vec(),
                synced: true,
                delivered: Position { epoch: 3, count: 10 },
                stable: Position { epoch: 3, count: 8 },
                waiting: 2,
                sender: node(2).sender(9),
                peers: vec![
                    peer(1),
                    peer(3),
                    peer(4),
                    PeerStatus { member: false, heard: None, hears: None, acked: None, links: 0, ..peer(5) },
                ],
                rosters: Rosters::first((1..=5).map(|number| (node(number), Vec::new()))),
                fence: ms(1240),
                counters: Counters { forged: 6, ..Counters::default() },
            },
            owners: vec![(node(1), shards(0..80)), (node(2), shards(80..170)), (node(4), shards(170..255))],
            packets: shards(0..170),
            ike: shards(80..170),
            provisional: shards(0..80),
            default_host: true,
            suspects: vec![node(1)],
            fresh: vec![node(3)],
            drained: Vec::new(),
            unfit: Vec::new(),
            handovers: Vec::new(),
            misplaced: Vec::new(),
            preferred: vec![(node(4), 7)],
            arrivals: ShardSet::EMPTY,
            takes: Vec::new(),
            untold: 0,
            engines_behind: Vec::new(),
            awaited: vec![node(4)],
            configuration: ConfigurationStatus::default(),
            version: group::GroupConfig::NEWEST,
            ike_sas: 100,
            child_sas: 200,
            held: 1,
            unread_states: 4,
            counters: MemberCounters { not_owner: 3, ..MemberCounters::default() },
        }
    }

    #[test]
    fn every_node_is_what_the_member_says() {
        let report = report(&status(), None, None, ms(1000));
        let states: Vec<_> = report.nodes.iter().map(|node| (node.id, node.state, node.shards)).collect();
        let expected = [
            (1, NodeState::Suspect, 80),
            (2, NodeState::Owner, 90),
            (3, NodeState::Fresh, 0),
            (4, NodeState::Owner, 85),
            (5, NodeState::Absent, 0),
        ];
        assert_eq!(states, expected);
        let followed: Vec<u64> = report.nodes.iter().map(|node| node.followed).collect();
        assert_eq!(followed, [0, 0, 0, 7, 0]);
        let [one, two, .., five] = report.nodes.as_slice() else { panic!("five nodes") };
        assert_eq!((one.heard, one.hears, one.threshold), (Some(10), Some(3), Some(45)));
        assert_eq!((one.links_down.as_slice(), one.acked, one.incarnation), (&[1][..], Some(8), 5));
        assert_eq!((two.heard, two.provisional, two.incarnation), (None, 80, 9));
        assert_eq!((five.heard, five.links_down.as_slice()), (None, &[][..]));
    }

    #[test]
    fn what_differs_between_nodes_is_named() {
        let mut status = status();
        let before = report(&status, None, None, ms(1000)).why.len();
        let name = |name: &str| PieceName { class: Class::Connection, name: format!("connection {name}") };
        let found = |found, piece: &str| Difference { node: node(4), found, name: name(piece) };
        status.version = 15;
        status.configuration = ConfigurationStatus {
            replicates: true,
            is_current: true,
            pieces: 7,
            differences: vec![
                found(Found::ThereOnly, "a"),
                found(Found::HereOnly, "b"),
                found(Found::Other, "c"),
            ],
            differ: vec![node(1), node(4)],
            refused: vec![(name("d"), "no proposal".into())],
        };
        let told = report(&status, None, None, ms(1000));
        assert_eq!((told.protocol, told.config_pieces, told.config_current), (15, 7, true));
        let why = &told.why[before..];
        assert!(why[0].contains("speak version 15 of the replication protocol"), "{why:?}");
        let expected = [
            "this node refuses connection d of the cluster's configuration: no proposal",
            "node 4 has connection a, which this node has not",
            "node 4 has no connection b, which this node has",
            "connection c of node 4 differs from this node's, or one of them refuses it",
            "the configuration of nodes 1 differs from this node's",
        ];
        assert_eq!(why[1..], expected);
    }

    #[test]
    fn what_does_not_fit_in_corosyncs_configuration_is_named() {
        let told = report(&status(), None, Some("corosync.conf lacks it".into()), ms(1000));
        assert!(told.why.contains(&"corosync.conf lacks it".to_owned()), "{:?}", told.why);
    }

    #[test]
    fn a_witness_that_does_not_vote_is_named() {
        let before = report(&status(), None, None, ms(1000)).why;
        let voting = report(&status(), Some(true), None, ms(1000));
        assert_eq!((&voting.why, voting.witness), (&before, Some(true)));
        let gone = report(&status(), Some(false), None, ms(1000));
        assert_eq!(gone.witness, Some(false));
        assert!(gone.why[0].contains("the witness gives this node no vote"), "{:?}", gone.why);
        assert_eq!(gone.why[1..], before);
    }

    #[test]
    fn the_view_is_told_as_it_is() {
        let mut status = status();
        let told = report(&status, None, None, ms(1000));
        assert_eq!((told.phase, told.fence, told.sender), (Phase::Running, 240, Some(0x1009)));
        assert_eq!((told.epoch, told.delivered, told.stable, told.waiting, told.held), (3, 10, 8, 2, 1));
        assert_eq!((told.packets, told.ike, told.provisional), (170, 90, 80));
        assert_eq!((told.ike_sas, told.child_sas, told.unread_states), (100, 200, 4));
        let count =
            |name: &str| told.counters.iter().find(|(found, _)| found == name).map(|(_, count)| *count);
        assert_eq!((count("forged"), count("not_owner"), count("late")), (Some(6), Some(3), Some(0)));
        let view = told.view.unwrap();
        assert_eq!((view.ring_node, view.ring_seq, view.members), (1, 28, vec![1, 2, 3, 4]));
        // Without a view there are only absent nodes, and what has run out has run out.
        status.group.view = None;
        status.group.peers.iter_mut().for_each(|peer| peer.member = false);
        let told = report(&status, None, None, ms(2000));
        assert!(told.nodes.iter().all(|node| node.state == NodeState::Absent));
        assert_eq!((told.view, told.fence), (None, 0));
    }

    #[test]
    fn every_counter_is_explained_to_operators() {
        let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/counters.md"));
        let (_, chapter) = page.split_once("\n## Cluster\n").expect("a chapter about the cluster");
        let counters = counters(&status());
        let missing: Vec<_> =
            counters.iter().filter(|(name, _)| !chapter.contains(&format!("`{name}`"))).collect();
        assert!(missing.is_empty(), "not in docs/reference/counters.md: {missing:?}");
    }
}
