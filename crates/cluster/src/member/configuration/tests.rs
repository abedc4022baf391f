mod manifests;
mod replacements;

use super::*;
use crate::engine::{EngineEvent, RingId, View};
use crate::group::{ClusterKey, Durable, GroupConfig};
use crate::member::counter::Counter;
use crate::member::{Ask, AskError, MemberConfig};
use std::collections::VecDeque;
use std::time::Duration;
use testudo_ike::suite::Entropy;

fn id(number: u32) -> NodeId {
    NodeId::new(number).unwrap()
}

/// Members, an engine that orders their multicasts, and links that lose nothing.
struct Cluster {
    now: Time,
    members: BTreeMap<NodeId, Member>,
    here: Vec<NodeId>,
    /// The changes of the configuration that each member asked its host for.
    asked: BTreeMap<NodeId, Vec<String>>,
    configured: Vec<(NodeId, u64)>,
    outdated: Vec<(NodeId, u64)>,
    /// Multicasts that are not delivered yet.
    order: VecDeque<(NodeId, Vec<u8>)>,
    seq: u64,
    replicates: bool,
    speaks: BTreeMap<NodeId, u8>,
}

impl Cluster {
    fn new() -> Self {
        Self {
            now: Time(Duration::from_secs(100)),
            members: BTreeMap::new(),
            here: Vec::new(),
            asked: BTreeMap::new(),
            configured: Vec::new(),
            outdated: Vec::new(),
            order: VecDeque::new(),
            seq: 1,
            replicates: true,
            speaks: BTreeMap::new(),
        }
    }

    fn start(&mut self, number: u32) {
        let node = id(number);
        let nodes = (1..=3).map(id).collect();
        let speaks = self.speaks.get(&node).copied().unwrap_or(GroupConfig::NEWEST);
        let group = GroupConfig { speaks, ..GroupConfig::new(node, nodes, ClusterKey::new([7; 32])) };
        let config = MemberConfig { replicate_configuration: self.replicates, ..MemberConfig::new(group) };
        let entropy: [Box<dyn Entropy + Send>; 2] =
            [Box::new(Counter(number as u8 * 50)), Box::new(Counter(number as u8 * 50 + 9))];
        self.members.insert(node, Member::new(config, Durable::default(), entropy, self.now));
    }

    /// The engine forms a view of these nodes.
    fn view(&mut self, numbers: &[u32]) {
        self.begin(numbers);
        self.settle();
    }

    fn begin(&mut self, numbers: &[u32]) {
        self.order.clear();
        self.here = numbers.iter().copied().map(id).collect();
        self.seq += 4;
        let quorate = numbers.len() >= 2;
        let members = self.here.clone();
        let view = View { ring: RingId { seq: self.seq, node: 1 }, members, quorate };
        for node in self.here.clone() {
            let member = self.members.get_mut(&node).unwrap();
            member.handle_engine(self.now, EngineEvent::View(view.clone()));
        }
    }

    /// Node 3 begins again and joins the two others; it is not up to date yet.
    fn has_node_3_join(&mut self) {
        self.view(&[1, 2]);
        self.start(3);
        self.have_node_3_hear();
    }

    /// Node 3 comes into the view, and the others begin to tell it what they have.
    fn have_node_3_hear(&mut self) {
        self.begin(&[1, 2, 3]);
        while !self.members[&id(3)].core.view.running {
            assert!(self.step());
        }
        assert!(self.members[&id(3)].configuration.hearing.is_some());
    }

    /// Runs until nothing more happens for two seconds.
    fn settle(&mut self) {
        for _ in 0..400 {
            self.now = self.now.plus(Duration::from_millis(5));
            self.turn();
        }
    }

    fn turn(&mut self) {
        for node in self.here.clone() {
            let member = self.members.get_mut(&node).unwrap();
            member.handle_timeout(self.now);
            member.pump(self.now);
        }
        while self.step() {}
    }

    /// Delivers one message. False if there is none.
    fn step(&mut self) -> bool {
        let mut datagrams = Vec::new();
        for node in self.here.clone() {
            self.outputs(node, &mut datagrams);
        }
        for (to, link, bytes) in datagrams {
            if let Some(member) = self.members.get_mut(&to).filter(|_| self.here.contains(&to)) {
                member.handle_heartbeat(self.now, link, &bytes);
            }
        }
        let Some((from, bytes)) = self.order.pop_front() else { return false };
        for node in self.here.clone() {
            let member = self.members.get_mut(&node).unwrap();
            member.handle_engine(self.now, EngineEvent::Message { from, bytes: Vec::clone(&bytes) });
            member.pump(self.now);
        }
        true
    }

    fn outputs(&mut self, node: NodeId, datagrams: &mut Vec<(NodeId, u8, Vec<u8>)>) {
        let now = self.now;
        let member = self.members.get_mut(&node).unwrap();
        while let Some(output) = member.poll_output() {
            let text = |octets: &[u8]| String::from_utf8(octets.to_vec()).unwrap();
            let asked = self.asked.entry(node).or_default();
            match output {
                MemberOutput::Multicast(bytes) => self.order.push_back((node, bytes)),
                MemberOutput::Datagram { to, link, bytes } => datagrams.push((to, link, bytes)),
                MemberOutput::Persist(durable) => member.persisted(now, &durable),
                MemberOutput::Configure { effect: Effect::Set(name), octets, .. } => {
                    asked.push(text(&octets));
                    if text(&octets).starts_with("bad") {
                        member.refused(now, &name, "it is bad".into());
                    }
                }
                MemberOutput::Configure { effect: Effect::Unset(name), .. } => {
                    asked.push(format!("no {}", name.name))
                }
                MemberOutput::Configure { effect: Effect::ClearCredentials, .. } => {
                    asked.push("clear".into())
                }
                MemberOutput::Unconfigure { octets, .. } => asked.push(format!("not {}", text(&octets))),
                MemberOutput::Configured { job } => self.configured.push((node, job)),
                MemberOutput::Outdated { job } => self.outdated.push((node, job)),
                _ => {}
            }
        }
    }

    /// An operator gives a piece to a node. The octets describe it.
    fn give(&mut self, number: u32, job: u64, effect: Effect, octets: &str) -> bool {
        let now = self.now;
        let member = self.members.get_mut(&id(number)).unwrap();
        member.configure(now, job, effect, Zeroizing::new(octets.as_bytes().to_vec()))
    }

    /// Requests of the node to its host since the last call.
    fn asked(&mut self, number: u32) -> Vec<String> {
        self.asked.remove(&id(number)).unwrap_or_default()
    }

    fn pieces(&self, number: u32) -> Vec<String> {
        let pieces = self.members[&id(number)].configuration.pieces.values();
        pieces.map(|piece| String::from_utf8(piece.octets.octets().to_vec()).unwrap()).collect()
    }

    fn status(&self, number: u32) -> ConfigurationStatus {
        self.members[&id(number)].status().configuration
    }
}

fn connection(name: &str) -> PieceName {
    PieceName { class: Class::Connection, name: name.into() }
}

fn secret(name: &str) -> PieceName {
    PieceName { class: Class::Credential, name: name.into() }
}

fn three() -> Cluster {
    let mut cluster = Cluster::new();
    (1..=3).for_each(|number| cluster.start(number));
    cluster.view(&[1, 2, 3]);
    cluster
}

#[test]
fn configuration_loaded_on_one_node_reaches_all() {
    let mut cluster = three();
    let before = cluster.members[&id(1)].configuration.configuration_digest();
    assert!(cluster.give(2, 5, Effect::Set(connection("a")), "a1"));
    cluster.settle();
    assert_eq!(cluster.configured, [(id(2), 5)]);
    assert_eq!(
        (cluster.asked(1), cluster.asked(2), cluster.asked(3)),
        (vec!["a1".into()], vec![], vec!["a1".into()])
    );
    assert!(!cluster.give(3, 6, Effect::Set(connection("a")), "a1"), "all have it");
    let digests = [1, 2, 3].map(|number| cluster.members[&id(number)].configuration.configuration_digest());
    assert!(digests[0].is_some() && digests[0] != before && digests == [digests[0]; 3], "{digests:?}");
    assert!(cluster.give(3, 7, Effect::Unset(connection("a")), "-"));
    cluster.settle();
    assert_eq!(cluster.asked(1), ["no a"]);
    assert!((1..=3).all(|number| cluster.pieces(number).is_empty()));
}

#[test]
fn the_later_of_two_items_with_one_name_wins_everywhere() {
    let mut cluster = three();
    assert!(cluster.give(1, 1, Effect::Set(connection("a")), "a1"));
    assert!(cluster.give(2, 2, Effect::Set(connection("a")), "a2"));
    cluster.settle();
    let all: Vec<_> = (1..=3).map(|number| cluster.pieces(number)).collect();
    assert!(all.iter().all(|pieces| *pieces == all[0]), "{all:?}");
    // The node that was given the earlier piece is asked to load the later one. The node that was
    // given the later piece loads it again after the earlier one.
    let last = &all[0][0];
    for number in 1..=3 {
        let asked = cluster.asked(number);
        assert_eq!(asked.last(), Some(last), "node {number}: {asked:?}");
    }
}

#[test]
fn all_credentials_end_and_nothing_else_does() {
    let mut cluster = three();
    cluster.give(1, 1, Effect::Set(secret("s")), "s1");
    cluster.give(1, 2, Effect::Set(connection("a")), "a1");
    cluster.settle();
    assert!(cluster.give(1, 3, Effect::ClearCredentials, "clear"));
    cluster.settle();
    assert_eq!(cluster.pieces(3), ["a1"]);
    assert_eq!(cluster.asked(3), ["s1", "a1", "clear"]);
    assert!(!cluster.give(1, 4, Effect::ClearCredentials, "clear"), "there are none");
}

#[test]
fn items_loaded_before_a_view_reach_all() {
    let mut cluster = Cluster::new();
    (1..=3).for_each(|number| cluster.start(number));
    assert!(!cluster.give(3, 1, Effect::Set(connection("a")), "a1"), "there is nobody to tell");
    for number in 0..40 {
        let name = connection(&format!("many {number}"));
        cluster.give(1, 1, Effect::Set(name), &"x".repeat(9000));
    }
    cluster.view(&[1, 2, 3]);
    assert_eq!(cluster.pieces(2).len(), 41);
    assert_eq!((cluster.pieces(1), cluster.pieces(3)), (cluster.pieces(2), cluster.pieces(2)));
}

/// Between two views of which it is a member a node has no other node to inform, but its operators
/// continue to give commands.
#[test]
fn items_removed_between_two_views_are_removed_on_all() {
    let mut cluster = three();
    cluster.give(1, 1, Effect::Set(connection("a")), "a1");
    cluster.give(1, 2, Effect::Set(secret("s")), "s1");
    cluster.settle();
    let member = cluster.members.get_mut(&id(2)).unwrap();
    member.handle_engine(cluster.now, EngineEvent::Down { reason: "it was restarted".into() });
    assert!(!cluster.give(2, 3, Effect::Unset(connection("a")), "-"));
    assert!(!cluster.give(2, 4, Effect::ClearCredentials, "clear"));
    assert!(!cluster.give(2, 5, Effect::Set(secret("t")), "t1"));
    cluster.asked(1);
    cluster.view(&[1, 2, 3]);
    assert_eq!(cluster.asked(1), ["no a", "clear", "t1"]);
    assert!((1..=3).all(|number| cluster.pieces(number) == ["t1"]));
}

/// A command given to a node while it receives the others' pieces is carried out after them.
#[test]
fn a_command_to_a_node_that_comes_counts() {
    let mut cluster = three();
    cluster.give(1, 1, Effect::Set(connection("a")), "a1");
    cluster.settle();
    cluster.has_node_3_join();
    assert!(cluster.give(3, 7, Effect::Set(connection("a")), "a3"));
    cluster.settle();
    assert!((1..=3).all(|number| cluster.pieces(number) == ["a3"]));
    assert_eq!(cluster.asked(3).last().map(String::as_str), Some("a3"), "what the others had came between");
    assert!(cluster.configured.contains(&(id(3), 7)));
}

/// What its operators wanted comes last, although it had it already.
#[test]
fn a_command_that_repeats_what_only_this_node_has_counts() {
    let mut cluster = three();
    cluster.give(1, 1, Effect::Set(connection("a")), "a1");
    cluster.settle();
    cluster.view(&[1, 2]);
    cluster.start(3);
    assert!(!cluster.give(3, 1, Effect::Set(connection("a")), "a3"), "it is a file");
    cluster.have_node_3_hear();
    assert!(cluster.give(3, 7, Effect::Set(connection("a")), "a3"));
    cluster.settle();
    assert!((1..=3).all(|number| cluster.pieces(number) == ["a3"]));
    assert!(cluster.configured.contains(&(id(3), 7)));
}

#[test]
fn a_command_that_undoes_one_under_way_counts() {
    let mut cluster = three();
    cluster.give(1, 1, Effect::Set(connection("a")), "a1");
    cluster.settle();
    assert!(cluster.give(1, 2, Effect::Unset(connection("a")), "-"));
    assert!(cluster.give(1, 3, Effect::Set(connection("a")), "a1"), "all have it, and not for long");
    cluster.settle();
    assert!((1..=3).all(|number| cluster.pieces(number) == ["a1"]));
}

/// Its host has removed one piece and loaded another one since the command.
#[test]
fn a_node_that_comes_back_carries_out_a_command_again_behind_what_it_adopts() {
    let mut cluster = three();
    cluster.give(1, 1, Effect::Set(connection("a")), "a1");
    cluster.give(1, 2, Effect::Set(connection("b")), "b1");
    cluster.settle();
    cluster.view(&[1, 2]);
    cluster.give(1, 3, Effect::Set(connection("a")), "a2");
    cluster.give(1, 4, Effect::Unset(connection("b")), "-");
    cluster.settle();
    cluster.asked(3);
    cluster.have_node_3_hear();
    assert!(cluster.give(3, 7, Effect::Set(connection("a")), "a3"));
    cluster.settle();
    assert_eq!(cluster.asked(3), ["not b1", "a2", "a3"]);
    assert!((1..=3).all(|number| cluster.pieces(number) == ["a3"]));
}

/// Without a view a piece is loaded twice.
#[test]
fn of_what_was_loaded_without_a_view_the_others_get_the_last() {
    let mut cluster = three();
    let member = cluster.members.get_mut(&id(2)).unwrap();
    member.handle_engine(cluster.now, EngineEvent::Down { reason: "it was restarted".into() });
    assert!(!cluster.give(2, 1, Effect::Set(connection("a")), "a1"));
    assert!(!cluster.give(2, 2, Effect::Set(connection("a")), "a2"));
    cluster.view(&[1, 2, 3]);
    assert_eq!((cluster.asked(1), cluster.asked(3)), (vec!["a2".into()], vec!["a2".into()]));
}

#[test]
fn a_joining_node_takes_the_clusters_items_and_adds_its_new_ones() {
    let mut cluster = three();
    cluster.give(1, 1, Effect::Set(connection("a")), "a1");
    cluster.give(1, 2, Effect::Set(connection("b")), "b1");
    cluster.settle();
    cluster.view(&[1, 2]);
    cluster.give(1, 3, Effect::Set(connection("a")), "a2");
    cluster.give(2, 4, Effect::Unset(connection("b")), "-");
    cluster.settle();
    // It has been away, and has the old pieces.
    cluster.asked(3);
    cluster.view(&[1, 2, 3]);
    assert_eq!(cluster.asked(3), ["not b1", "a2"]);
    // A restarted node has files: two are older than the cluster's pieces, and one is unknown to
    // the cluster.
    cluster.view(&[1, 2]);
    cluster.start(3);
    cluster.give(3, 1, Effect::Set(connection("a")), "a1");
    cluster.give(3, 2, Effect::Set(connection("c")), "c1");
    cluster.asked(3);
    cluster.view(&[1, 2, 3]);
    assert_eq!(cluster.asked(3), ["a2"]);
    for number in 1..=3 {
        assert_eq!(cluster.pieces(number), ["a2", "c1"], "node {number}");
        assert_eq!(cluster.status(number).differ, [], "node {number}");
    }
}

#[test]
fn an_item_that_a_node_refuses_is_reported_on_all() {
    let mut cluster = three();
    cluster.give(1, 1, Effect::Set(connection("a")), "bad");
    cluster.settle();
    cluster.settle();
    // Nodes 2 and 3 were asked, and refuse it; node 1 has carried it out itself.
    assert_eq!(cluster.status(2).refused, [(connection("a"), "it is bad".into())]);
    let found = |node| Difference { node: id(node), found: Found::Other, name: connection("a") };
    assert_eq!(cluster.status(1).differences, [found(2), found(3)]);
    assert_eq!(cluster.status(2).differences, [found(1)]);
    // The piece is corrected.
    cluster.give(1, 2, Effect::Set(connection("a")), "good");
    cluster.settle();
    cluster.settle();
    assert!((1..=3).all(|number| cluster.status(number).differ.is_empty()));
}

#[test]
fn nodes_that_are_configured_by_themselves_name_what_differs() {
    let mut cluster = Cluster::new();
    cluster.replicates = false;
    (1..=3).for_each(|number| cluster.start(number));
    cluster.view(&[1, 2, 3]);
    for number in 1..=3 {
        assert!(!cluster.give(number, 1, Effect::Set(connection("a")), "a1"));
    }
    cluster.settle();
    assert!((1..=3).all(|number| cluster.status(number).differ.is_empty()));
    cluster.give(2, 2, Effect::Set(connection("a")), "a2");
    cluster.give(2, 2, Effect::Set(connection("b")), "b1");
    cluster.give(1, 2, Effect::Set(connection("c")), "c1");
    cluster.settle();
    cluster.settle();
    let found = |node, found, name| Difference { node: id(node), found, name: connection(name) };
    assert_eq!(
        cluster.status(1).differences,
        [
            found(2, Found::Other, "a"),
            found(2, Found::HereOnly, "c"),
            found(2, Found::ThereOnly, "b"),
            found(3, Found::HereOnly, "c"),
        ]
    );
    assert_eq!((cluster.pieces(3), cluster.asked(3)), (vec!["a1".to_owned()], vec![]));
}

/// The digest of all pieces differs if one of them differs, however many there are.
#[test]
fn one_piece_among_many_that_differs_is_found() {
    let mut cluster = Cluster::new();
    cluster.replicates = false;
    (1..=3).for_each(|number| cluster.start(number));
    cluster.view(&[1, 2, 3]);
    for (number, piece) in (1..=3).flat_map(|number| (0..200).map(move |piece| (number, piece))) {
        cluster.give(number, 1, Effect::Set(connection(&format!("c{piece}"))), "1");
    }
    cluster.settle();
    cluster.settle();
    assert!((1..=3).all(|number| cluster.status(number).differ.is_empty()));
    cluster.give(2, 2, Effect::Set(connection("c77")), "2");
    cluster.settle();
    cluster.settle();
    let found = Difference { node: id(2), found: Found::Other, name: connection("c77") };
    assert_eq!((cluster.status(1).differences, cluster.status(1).differ), (vec![found], vec![id(2)]));
}

#[test]
fn beside_a_node_of_an_older_version_each_has_its_own() {
    let mut cluster = Cluster::new();
    cluster.speaks.insert(id(3), 15);
    (1..=3).for_each(|number| cluster.start(number));
    cluster.view(&[1, 2, 3]);
    assert_eq!(cluster.members[&id(1)].status().version, 15);
    assert!(!cluster.give(1, 1, Effect::Set(connection("a")), "a1"));
    cluster.settle();
    assert_eq!((cluster.pieces(1).len(), cluster.pieces(2).len()), (1, 0));
    let (now, rekey) = (cluster.now, Ask::Rekey { sas: Vec::new(), reauth: false });
    let refused = cluster.members.get_mut(&id(1)).unwrap().ask(now, 1, rekey);
    assert_eq!(refused, Err(AskError::OldVersion));
    // The node is upgraded: a piece loaded on one node reaches all.
    cluster.view(&[1, 2]);
    cluster.speaks.clear();
    cluster.start(3);
    cluster.view(&[1, 2, 3]);
    assert_eq!(cluster.members[&id(1)].status().version, GroupConfig::NEWEST);
    assert!((1..=3).all(|number| cluster.pieces(number) == ["a1"]));
}
