//! Agreements against an order of joins, leaves, ring changes and late quorum.

use super::*;
use crate::group::Majorities;
use proptest::prelude::*;
use std::collections::{BTreeSet, VecDeque};

mod last;
mod nodes;
mod still;

/// Of this many nodes.
fn electorate(count: u32, rule: QuorumRule) -> Electorate {
    let nodes: Vec<NodeId> = (1..=count).filter_map(NodeId::new).collect();
    Electorate { nodes: Majorities::of(&nodes), number: 0, rule }
}

/// What a corosync says that counts by as many nodes as there are.
fn claim(quorate: bool) -> Option<Claim> {
    let options = testudo_corosync::VoteOptions::default();
    let (device_votes, device_casts) = (0, false);
    let info =
        testudo_corosync::VoteInfo { quorum: 2, highest_expected: 3, device_votes, device_casts, options };
    let daemons = (1..=31).filter_map(NodeId::new).collect();
    quorate.then_some(Claim { info, daemons })
}

fn of_three() -> Electorate {
    electorate(3, QuorumRule::Majority)
}

const R1: Ring = Ring { seq: 4, node: 1 };
const R2: Ring = Ring { seq: 8, node: 1 };

fn process(node: u32) -> Process {
    Process { node, pid: 100 + node }
}

/// Several processes and the one order that they all see.
#[derive(Default)]
struct Cluster {
    nodes: BTreeMap<Process, Agreement>,
    told: BTreeMap<Process, Vec<EngineEvent>>,
    /// Multicast and not delivered yet.
    under_way: BTreeMap<Process, VecDeque<Vec<u8>>>,
    ring: Ring,
    /// Number of configured nodes.
    configured: u32,
    rule: QuorumRule,
    /// Processes that stand still; their daemons keep them in the group.
    standing_still: BTreeSet<Process>,
    /// Events of processes that have been put out.
    gone: Vec<Vec<EngineEvent>>,
    /// First epoch number of the next connection.
    serial: u64,
}

impl Cluster {
    fn collect(&mut self) {
        for (process, node) in &mut self.nodes {
            let queue = self.under_way.entry(*process).or_default();
            queue.extend(node.take_announcements().iter().map(wire_of));
            self.told.entry(*process).or_default().extend(node.take_events());
        }
    }

    fn members(&mut self) {
        let members: Vec<Process> = self.nodes.keys().chain(&self.standing_still).copied().collect();
        self.nodes.values_mut().for_each(|node| node.members(members.clone()).unwrap());
        self.collect();
    }

    fn join(&mut self, process: Process) {
        self.serial += 1_000_000;
        let mut fresh = Agreement::new(process, electorate(self.configured, self.rule), self.serial);
        // A daemon lets nobody join before it has reported the quorum of its ring.
        fresh.quorum(self.ring, claim(true));
        self.nodes.insert(process, fresh);
        self.told.insert(process, Vec::new());
        self.members();
    }

    fn leave(&mut self, process: Process) {
        self.nodes.remove(&process);
        self.under_way.remove(&process);
        self.members();
    }

    fn change_ring(&mut self, ring: Ring) {
        self.ring = ring;
        self.nodes.values_mut().for_each(|node| node.ring(ring));
        self.collect();
    }

    fn quorum(&mut self, process: Process, quorate: bool) {
        let ring = self.ring;
        if let Some(node) = self.nodes.get_mut(&process) {
            node.quorum(ring, claim(quorate));
        }
        self.collect();
    }

    fn say(&mut self, process: Process, text: &str) {
        if self.nodes.contains_key(&process) {
            let framed = super::super::wire::message(text.as_bytes());
            self.under_way.entry(process).or_default().push_back(framed);
        }
    }

    /// Delivers the oldest message of a process.
    fn order(&mut self, from: Process) -> bool {
        use super::super::wire::{Incoming, read};
        let Some(framed) = self.under_way.get_mut(&from).and_then(VecDeque::pop_front) else { return false };
        for node in self.nodes.values_mut() {
            match read(&framed) {
                Incoming::Message(bytes) => node.message(from, bytes),
                Incoming::Standing(standing) => node.standing(from, standing),
                Incoming::Unknown => panic!("{framed:?}"),
            }
        }
        self.collect();
        let out: Vec<Process> =
            self.nodes.iter().filter(|(_, node)| node.is_out()).map(|(process, _)| *process).collect();
        for process in out {
            self.nodes.remove(&process);
            self.under_way.remove(&process);
            self.gone.extend(self.told.remove(&process));
            self.standing_still.insert(process);
        }
        true
    }

    /// An expelled process continues: it leaves, and joins again.
    fn wake_up(&mut self, process: Process) {
        if self.standing_still.remove(&process) {
            self.members();
            self.join(process);
        }
    }

    /// These nodes state that they are alive, this many times.
    fn alive(&mut self, nodes: &[u32], times: u32) {
        for _ in 0..times {
            for node in nodes {
                let queue = self.under_way.entry(process(*node)).or_default();
                queue.push_back(wire_of(&Standing::Alive));
            }
            self.settle();
        }
    }

    fn settle(&mut self) {
        let all: Vec<Process> = self.nodes.keys().copied().collect();
        while all.iter().any(|process| self.order(*process)) {}
    }

    fn views(&self, process: Process) -> Vec<&View> {
        let views = self.told[&process].iter().filter_map(|event| match event {
            EngineEvent::View(view) => Some(view),
            _ => None,
        });
        views.collect()
    }
}

fn wire_of(standing: &Standing) -> Vec<u8> {
    super::super::wire::standing(standing)
}

/// Three nodes with a view.
fn three() -> Cluster {
    three_of(3)
}

fn three_of(configured: u32) -> Cluster {
    let mut cluster = Cluster { ring: R1, configured, ..Cluster::default() };
    (1..=3).for_each(|node| cluster.join(process(node)));
    cluster.settle();
    cluster
}

fn numbers(view: &View) -> Vec<u8> {
    view.members.iter().map(|member| member.get()).collect()
}

#[test]
fn a_view_begins_with_the_last_that_is_ready_and_with_the_same_message_for_all() {
    let mut cluster = three();
    cluster.change_ring(R2);
    cluster.quorum(process(1), true);
    cluster.quorum(process(2), true);
    cluster.say(process(1), "of no view");
    cluster.settle();
    assert!((1..=3).all(|node| cluster.views(process(node)).last().unwrap().ring.seq >> 24 == R1.seq));
    cluster.quorum(process(3), true);
    cluster.settle();
    for node in 1..=3 {
        let view = *cluster.views(process(node)).last().unwrap();
        assert_eq!((numbers(view), view.quorate, view.ring.seq), (vec![1, 2, 3], true, R2.seq << 24 | 1));
        assert!(
            !cluster.told[&process(node)].iter().any(|event| matches!(event, EngineEvent::Message { .. }))
        );
    }
}

#[test]
fn quorum_may_come_before_the_ring_and_that_of_another_ring_counts_for_nothing() {
    let mut cluster = three();
    let before = cluster.views(process(1)).len();
    for node in 1..=3 {
        cluster.nodes.get_mut(&process(node)).unwrap().quorum(R2, claim(true));
    }
    cluster.collect();
    cluster.settle();
    assert_eq!(cluster.views(process(1)).len(), before, "the order is still in the ring before");
    cluster.change_ring(R2);
    cluster.settle();
    assert_eq!(cluster.views(process(1)).len(), before + 1);
}

#[test]
fn a_process_that_comes_back_makes_another_view_of_the_same_ring() {
    let mut cluster = three();
    cluster.leave(process(2));
    cluster.settle();
    cluster.join(process(2));
    cluster.settle();
    let views = cluster.views(process(1));
    let last: Vec<_> = views[views.len() - 3..].iter().map(|view| (numbers(view), view.ring)).collect();
    assert_eq!([&last[0].0, &last[1].0, &last[2].0], [&vec![1, 2, 3], &vec![1, 3], &vec![1, 2, 3]]);
    assert!(last[0].1 < last[1].1 && last[1].1 < last[2].1, "{last:?}");
    assert_eq!(cluster.views(process(2)).last(), views.last());
}

#[test]
fn a_minority_is_told_once_and_at_once() {
    let mut cluster = three();
    let views = |cluster: &Cluster| cluster.views(process(3)).into_iter().cloned().collect::<Vec<_>>();
    let before = views(&cluster).len();
    cluster.leave(process(1));
    cluster.leave(process(2));
    cluster.change_ring(R2);
    cluster.quorum(process(3), false);
    assert_eq!(views(&cluster).len(), before + 1);
    cluster.quorum(process(3), false);
    cluster.settle();
    let all = views(&cluster);
    assert_eq!((all.len(), numbers(&all[before]), all[before].quorate), (before + 1, vec![3], false));
}

#[test]
fn quorum_that_is_lost_within_a_ring_ends_the_view_at_one_place_and_its_return_begins_another() {
    let mut cluster = three();
    let first = cluster.views(process(1)).last().unwrap().ring;
    cluster.quorum(process(2), false);
    assert!(cluster.views(process(2)).last().unwrap().quorate, "the others do not know yet");
    cluster.say(process(1), "before");
    assert!(cluster.order(process(1)));
    cluster.settle();
    for node in 1..=3 {
        let told = &cluster.told[&process(node)];
        assert!(matches!(&told[told.len() - 2], EngineEvent::Message { .. }));
        assert!(!cluster.views(process(node)).last().unwrap().quorate);
    }
    cluster.quorum(process(2), true);
    cluster.settle();
    for node in 1..=3 {
        let view = *cluster.views(process(node)).last().unwrap();
        assert!(view.quorate && view.ring > first, "{view:?}");
    }
}

/// A process that stood still for a moment finds both reports about quorum before the ring that
/// they are about.
#[test]
fn half_of_the_nodes_hear_that_quorum_was_gone_before_it_came_back() {
    for (configured, told) in [(2, 2), (1, 1)] {
        let mut cluster = Cluster { ring: R1, configured, ..Cluster::default() };
        cluster.join(process(1));
        cluster.settle();
        let before = cluster.views(process(1)).len();
        cluster.ring = R2;
        cluster.quorum(process(1), false);
        cluster.quorum(process(1), true);
        cluster.change_ring(R2);
        cluster.settle();
        let quorate: Vec<bool> =
            cluster.views(process(1))[before..].iter().map(|view| view.quorate).collect();
        assert_eq!(quorate, [false, true][2 - told..]);
    }
}

#[test]
fn a_promise_under_way_counts_no_longer_when_members_have_come_and_gone() {
    let mut cluster = Cluster { ring: R1, configured: 3, ..Cluster::default() };
    cluster.join(process(1));
    cluster.join(process(2));
    // The epoch is opened, and both have promised. Then members change and change back, and node 2
    // has lost quorum.
    assert!(cluster.order(process(1)) && cluster.order(process(1)));
    assert!(cluster.order(process(2)) && cluster.order(process(1)));
    cluster.join(process(3));
    cluster.leave(process(3));
    cluster.quorum(process(2), false);
    cluster.settle();
    for node in 1..=2 {
        let quorate: Vec<bool> = cluster.views(process(node)).iter().map(|view| view.quorate).collect();
        assert!(!quorate.contains(&true), "{quorate:?}");
    }
    cluster.quorum(process(2), true);
    cluster.settle();
    assert!((1..=2).all(|node| cluster.views(process(node)).last().unwrap().quorate));
}

#[test]
fn the_second_process_of_a_node_yields_and_strangers_are_reported() {
    let one = Process { node: 1, pid: 1 };
    let other = Process { node: 1, pid: 2 };
    let mut late = Agreement::new(other, of_three(), 0);
    assert!(matches!(late.members(vec![one, other]), Err(Error::Twin { pid: 1 })));
    let mut early = Agreement::new(one, of_three(), 0);
    early.quorum(R1, claim(true));
    let mut promised = |members: Vec<Process>| {
        early.members(members).unwrap();
        let opened: Vec<_> = early.take_announcements();
        opened.into_iter().for_each(|standing| early.standing(one, standing));
        let said = early.take_announcements();
        let promises = said.iter().filter(|standing| matches!(standing, Standing::Ready(_)));
        (promises.count(), early.obstacle())
    };
    assert_eq!(promised(vec![one]), (1, None));
    let (said, why) = promised(vec![other, one]);
    assert!(said == 0 && why.unwrap().contains("processes 1 and 2 of node 1"));
    let (said, why) = promised(vec![one, Process { node: 1000, pid: 7 }]);
    assert!(said == 0 && why.unwrap().contains("nodeid 1000"));
    assert_eq!(promised(vec![one]), (1, None));
    assert!(matches!(early.members(vec![other]), Err(Error::Removed)));
}

#[test]
fn misplaced_messages_and_strangers_begin_no_view() {
    let mut cluster = three();
    let node = cluster.nodes.get_mut(&process(1)).unwrap();
    node.ring(R2);
    let ready = |epoch| Standing::Ready(Ready { epoch, ring: R2, generation: u32::MAX });
    let all = [1, 2, 3].map(process);
    all.iter().for_each(|member| node.standing(*member, ready(7)));
    node.standing(process(2), Standing::Open(7));
    node.standing(process(9), Standing::Open(7));
    all.iter().for_each(|member| node.standing(*member, ready(7)));
    node.standing(process(1), Standing::Open(8));
    node.standing(process(1), Standing::Open(7));
    all.iter().for_each(|member| node.standing(*member, ready(7)));
    node.standing(process(9), ready(8));
    node.message(process(9), vec![1]);
    all[..2].iter().for_each(|member| node.standing(*member, ready(8)));
    assert_eq!(node.take_events(), []);
    node.standing(process(3), ready(8));
    assert!(matches!(node.take_events()[..], [EngineEvent::View(_)]));
}

#[test]
fn a_stopped_process_is_expelled_at_one_place_and_returns() {
    for still in 1..=3_u32 {
        let mut cluster = three();
        let before = cluster.views(process(still)).last().unwrap().ring;
        let others: Vec<u32> = (1..=3).filter(|node| *node != still).collect();
        cluster.alive(&others, 4);
        cluster.say(process(still), "late, and in time");
        cluster.settle();
        assert!(cluster.standing_still.is_empty());
        cluster.alive(&others, 1);
        assert_eq!(cluster.standing_still, BTreeSet::from([process(still)]));
        // Statements that it makes when it wakes up, before it has read how far the others are, do
        // not count.
        for said in [Standing::Alive, Standing::NotQuorate, Standing::Open(99)] {
            cluster.nodes.values_mut().for_each(|node| node.standing(process(still), said));
        }
        cluster.nodes.values_mut().for_each(|node| node.message(process(still), vec![1]));
        cluster.settle();
        for node in &others {
            let view = *cluster.views(process(*node)).last().unwrap();
            let members: Vec<u32> = numbers(view).into_iter().map(u32::from).collect();
            assert_eq!((&members, view.quorate), (&others, true));
            assert!(view.ring > before);
            let messages = cluster.told[&process(*node)]
                .iter()
                .filter(|event| matches!(event, EngineEvent::Message { .. }));
            assert_eq!(messages.count(), 1);
        }
        cluster.wake_up(process(still));
        cluster.settle();
        assert!((1..=3).all(|node| numbers(cluster.views(process(node)).last().unwrap()) == [1, 2, 3]));
    }
}

#[test]
fn a_process_stopped_during_view_formation_delays_it_only_until_its_expulsion() {
    let mut cluster = three();
    cluster.ring = R2;
    for node in [1, 2] {
        let agreement = cluster.nodes.get_mut(&process(node)).unwrap();
        agreement.ring(R2);
        agreement.quorum(R2, claim(true));
    }
    cluster.collect();
    cluster.settle();
    let in_r2 = |cluster: &Cluster| cluster.views(process(1)).last().unwrap().ring.seq >> 24 == R2.seq;
    assert!(!in_r2(&cluster));
    cluster.alive(&[1, 2], 5);
    assert!(in_r2(&cluster));
    assert_eq!(numbers(cluster.views(process(2)).last().unwrap()), [1, 2]);
}

type Messages = Vec<Vec<u8>>;

/// For each quorate view that one process saw: its messages, and whether the process saw its end.
fn histories(told: &[EngineEvent]) -> Vec<(View, Messages, bool)> {
    let mut all: Vec<(View, Messages, bool)> = Vec::new();
    for event in told {
        match event {
            EngineEvent::View(view) => {
                if let Some(last) = all.last_mut() {
                    last.2 = true;
                }
                all.push((view.clone(), Vec::new(), false));
            }
            EngineEvent::Message { bytes, .. } => all.last_mut().unwrap().1.push(bytes.clone()),
            EngineEvent::PutOut | EngineEvent::Down { .. } | EngineEvent::Notice(_) => {}
        }
    }
    all.retain(|(view, ..)| view.quorate);
    all
}

proptest! {
    /// Whatever happens in whatever order: one name, one view, with the same messages for all that
    /// saw it to its end; and when nothing happens any more, all have the same view.
    #[test]
    fn views_and_their_messages_are_the_same_for_all(steps in prop::collection::vec((0_u8..20, 1_u32..=4), 1..300)) {
        let mut cluster = three_of(4);
        let mut gone: Vec<Vec<EngineEvent>> = Vec::new();
        for (n, (step, node)) in steps.into_iter().enumerate() {
            let process = process(node);
            match step {
                0 if cluster.standing_still.contains(&process) => cluster.wake_up(process),
                0 if !cluster.nodes.contains_key(&process) => cluster.join(process),
                12..=15 if cluster.nodes.contains_key(&process) => {
                    let queue = cluster.under_way.entry(process).or_default();
                    queue.push_back(wire_of(&Standing::Alive));
                }
                1 if cluster.nodes.len() > 1 && cluster.nodes.contains_key(&process) => {
                    gone.push(cluster.told.remove(&process).unwrap());
                    cluster.leave(process);
                }
                2 => cluster.change_ring(Ring { seq: cluster.ring.seq + 4, node: 1 }),
                3 => cluster.quorum(process, false),
                4 | 5 => cluster.quorum(process, true),
                6 | 7 => cluster.say(process, &format!("{n}")),
                _ => drop(cluster.order(process)),
            }
        }
        // Queued statements may put out more of them.
        cluster.settle();
        for node in 1..=4 {
            cluster.quorum(process(node), true);
            cluster.wake_up(process(node));
        }
        cluster.settle();
        gone.append(&mut cluster.gone);
        let mut seen: BTreeMap<RingId, (View, Option<Messages>)> = BTreeMap::new();
        for told in cluster.told.values().chain(&gone) {
            let mut names = BTreeSet::new();
            for (view, messages, complete) in histories(told) {
                prop_assert!(names.insert(view.ring), "{:?} twice", view.ring);
                let (same, whole) = seen.entry(view.ring).or_insert_with(|| (view.clone(), None));
                prop_assert_eq!(&*same, &view);
                if complete {
                    let whole = whole.get_or_insert_with(|| messages.clone());
                    prop_assert_eq!(&*whole, &messages);
                }
            }
            prop_assert!(names.iter().is_sorted());
        }
        let last: BTreeSet<_> = cluster.nodes.keys().map(|process| {
            let view = *cluster.views(*process).last().unwrap();
            (view.ring, view.quorate, view.members.len())
        }).collect();
        prop_assert_eq!(last.len(), 1);
        prop_assert!(last.first().is_some_and(|(_, quorate, members)| *quorate && *members == cluster.nodes.len()));
    }
}
