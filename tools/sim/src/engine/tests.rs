use super::*;

/// Links that a test cuts.
#[derive(Default)]
struct Cuts(BTreeSet<(usize, usize)>);

impl Reach for Cuts {
    fn reaches(&self, from: usize, to: usize) -> bool {
        !self.0.contains(&(from, to))
    }
}

impl Cuts {
    fn both(&mut self, a: usize, b: usize) {
        self.0.extend([(a, b), (b, a)]);
    }
}

struct Bench {
    engines: Engines,
    cuts: Cuts,
    now: Nanos,
    seen: Vec<Vec<EngineEvent>>,
}

impl Bench {
    fn new(count: u32, votes: Votes, seed: u64) -> Self {
        let ids: Vec<NodeId> = (1..=count).filter_map(NodeId::new).collect();
        let engines = Engines::new(
            &ids,
            votes,
            Detection { shortest: 100 * MILLI, longest: 200 * MILLI },
            Random::new(seed),
        );
        let mut bench =
            Self { engines, cuts: Cuts::default(), now: 0, seen: vec![Vec::new(); count as usize] };
        (0..ids.len()).for_each(|node| bench.engines.start(0, node));
        bench.run(1000);
        bench
    }

    fn run(&mut self, millis: u64) {
        self.run_for(millis * MILLI);
    }

    fn run_for(&mut self, nanos: Nanos) {
        let end = self.now + nanos;
        while let Some(at) = self.engines.next().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.engines.step(self.now, &self.cuts);
            for (node, event) in self.engines.take_delivered() {
                self.seen[node].push(event);
            }
        }
        self.now = end;
    }

    fn send(&mut self, node: usize, number: u8) {
        while self.engines.multicast(self.now, node, vec![number]).is_err() {
            self.run(1);
        }
    }

    fn messages(&self, node: usize) -> Vec<u8> {
        let octet = |event: &EngineEvent| match event {
            EngineEvent::Message { bytes, .. } => bytes.first().copied(),
            _ => None,
        };
        self.seen[node].iter().filter_map(octet).collect()
    }

    /// A node's last view, sorted: the order of the members is not guaranteed.
    fn view(&self, node: usize) -> View {
        let view = |event: &EngineEvent| match event {
            EngineEvent::View(view) => Some(view.clone()),
            _ => None,
        };
        let mut view = self.seen[node].iter().rev().find_map(view).expect("a view");
        view.members.sort_unstable();
        view
    }
}

#[test]
fn all_members_see_all_messages_in_one_order() {
    let mut bench = Bench::new(3, Votes::Majority, 1);
    for number in 0..100 {
        bench.send(usize::from(number) % 3, number);
        bench.run(1);
    }
    bench.run(1000);
    assert_eq!(bench.messages(0).len(), 100);
    assert_eq!(bench.messages(1), bench.messages(0));
    assert_eq!(bench.messages(2), bench.messages(0));
    assert!(bench.view(0).quorate);
}

#[test]
fn messages_of_an_isolated_node_reach_only_itself_and_are_lost() {
    let mut bench = Bench::new(3, Votes::Majority, 2);
    bench.send(0, 1);
    bench.run(100);
    bench.cuts.both(0, 1);
    bench.cuts.both(0, 2);
    bench.engines.changed(bench.now);
    bench.send(0, 2);
    bench.run(1000);
    assert!(!bench.view(0).quorate && bench.view(1).quorate);
    bench.send(0, 3);
    bench.run(1000);
    bench.cuts = Cuts::default();
    bench.engines.changed(bench.now);
    bench.run(1000);
    assert_eq!(bench.messages(0), [1, 2, 3]);
    assert_eq!((bench.messages(1), bench.messages(2)), (vec![1], vec![1]));
    assert_eq!(bench.view(0), bench.view(2));
    assert!(bench.engines.lost > 0);
}

/// What a node received between two views, by the rings of both.
type Stretch = ((RingId, RingId), Vec<Vec<u8>>);

fn between(seen: &[EngineEvent]) -> Vec<Stretch> {
    let mut stretches = Vec::new();
    let (mut ring, mut messages) = (None, Vec::new());
    for event in seen {
        match event {
            EngineEvent::View(view) => {
                if let Some(old) = ring.replace(view.ring) {
                    stretches.push(((old, view.ring), std::mem::take(&mut messages)));
                }
            }
            EngineEvent::Message { bytes, .. } => messages.push(bytes.clone()),
            EngineEvent::PutOut | EngineEvent::Down { .. } => {
                ring = None;
                messages.clear();
            }
            EngineEvent::Notice(_) => {}
        }
    }
    stretches
}

#[test]
fn nodes_that_change_rings_together_have_seen_the_same_messages() {
    let mut changes = 0;
    for seed in 0..100 {
        let mut bench = Bench::new(5, Votes::Majority, seed);
        let mut random = Random::new(seed);
        for number in 0..200 {
            let (a, b) = (random.below(5) as usize, random.below(5) as usize);
            match random.below(40) {
                0 if a != b => bench.cuts.both(a, b),
                1 => bench.cuts = Cuts::default(),
                2 => {
                    bench.cuts.0.insert((a, b));
                }
                3 => bench.engines.freeze(bench.now, a, true),
                4 => bench.engines.freeze(bench.now, a, false),
                5 => bench.engines.stop(bench.now, a, true),
                6 => bench.engines.start(bench.now, a),
                7 => bench.engines.storm(bench.now),
                8 => bench.engines.slow(a, random.below(100) * MILLI),
                _ => drop(bench.engines.multicast(bench.now, a, vec![number, a as u8])),
            }
            bench.engines.changed(bench.now);
            bench.run(random.below(30));
        }
        let mut all: BTreeMap<(RingId, RingId), Vec<Vec<u8>>> = BTreeMap::new();
        for seen in &bench.seen {
            for (rings, messages) in between(seen) {
                let first = all.entry(rings).or_insert_with(|| messages.clone());
                assert_eq!(*first, messages, "seed {seed}: {rings:?}");
            }
        }
        changes += all.len();
    }
    assert!(changes > 1000, "{changes} changes of rings");
}

#[test]
fn no_message_is_delivered_without_the_earlier_ones_of_its_sender() {
    let mut cut_between = 0;
    for seed in 0..300 {
        let mut bench = Bench::new(3, Votes::Majority, seed);
        bench.send(0, 1);
        bench.send(0, 2);
        bench.run_for(seed * MILLI / 150);
        bench.engines.storm(bench.now);
        bench.run(1000);
        for node in 0..3 {
            let heard = bench.messages(node);
            assert!([&[][..], &[1], &[1, 2]].contains(&&heard[..]), "seed {seed}: {heard:?}");
            cut_between += usize::from(heard.len() == 1);
        }
    }
    assert!(cut_between > 0, "rings fall apart between the two");
}

#[test]
fn no_two_sides_have_the_quorum_unless_two_nodes_are_told_so() {
    for (count, votes, quorate) in [
        (2, Votes::Majority, 0),
        (2, Votes::Witness, 1),
        (2, Votes::TwoNode, 2),
        (3, Votes::Majority, 1),
        (4, Votes::Witness, 1),
    ] {
        let mut bench = Bench::new(count, votes, 3);
        let half = (count / 2) as usize;
        for (a, b) in (0..half).flat_map(|a| (half..count as usize).map(move |b| (a, b))) {
            bench.cuts.both(a, b);
        }
        bench.engines.changed(bench.now);
        bench.run(1000);
        let sides = [bench.view(0).quorate, bench.view(half).quorate];
        assert_eq!(sides.into_iter().filter(|side| *side).count(), quorate, "{count} nodes, {votes:?}");
    }
}

#[test]
fn the_witness_goes_with_who_lives() {
    let mut bench = Bench::new(2, Votes::Witness, 4);
    bench.engines.stop(bench.now, 0, false);
    bench.run(1000);
    assert!(bench.view(1).quorate);
    // The other one returns alone, and the witness stays where it is.
    bench.cuts.both(0, 1);
    bench.engines.start(bench.now, 0);
    bench.run(1000);
    assert!(!bench.view(0).quorate && bench.view(1).quorate);
}

#[test]
fn a_stopped_process_is_expelled_after_all_earlier_messages_and_returns() {
    let mut bench = Bench::new(3, Votes::Majority, 5);
    bench.engines.serve(bench.now, 1, false);
    bench.run(900);
    bench.send(0, 1);
    assert_eq!(bench.view(0).members.len(), 3);
    bench.run(200);
    bench.send(0, 2);
    bench.run(50);
    assert_eq!((bench.view(0).members.len(), bench.view(2).quorate), (2, true));
    assert_eq!((bench.seen[1].last(), bench.messages(1)), (Some(&EngineEvent::PutOut), vec![1]));
    bench.engines.serve(bench.now, 1, true);
    bench.run(1000);
    assert!(bench.view(1).members.len() == 3 && bench.view(0) == bench.view(1));
    assert_eq!(bench.messages(1), [1], "nothing of what it missed");
    // A node left alone by that has no majority.
    [0, 1].into_iter().for_each(|node| bench.engines.serve(bench.now, node, false));
    bench.run(1200);
    assert!(bench.view(2).members.len() == 1 && !bench.view(2).quorate);
}

/// Cuts all links between two sets of nodes.
fn part(bench: &mut Bench, one: &[usize], other: &[usize]) {
    for (a, b) in one.iter().flat_map(|a| other.iter().map(|b| (*a, *b))) {
        bench.cuts.both(a, b);
    }
    bench.engines.changed(bench.now);
}

#[test]
fn nodes_die_one_by_one_down_to_the_lower_of_the_last_two() {
    for (order, quorate) in [([3, 2, 1], true), ([0, 1, 3], true), ([0, 1, 2], false)] {
        let mut bench = Bench::new(4, Votes::LastManStanding, 6);
        for node in order {
            bench.engines.stop(bench.now, node, false);
            bench.run(3000);
        }
        let last = (0..4).find(|node| !order.contains(node)).unwrap();
        assert_eq!((bench.view(last).members.len(), bench.view(last).quorate), (1, quorate), "{order:?}");
    }
}

#[test]
fn before_the_window_has_ended_the_dead_count() {
    let mut bench = Bench::new(4, Votes::LastManStanding, 6);
    bench.engines.stop(bench.now, 0, false);
    bench.run(600);
    assert!(bench.view(3).quorate);
    bench.engines.stop(bench.now, 1, false);
    bench.run(600);
    assert!(!bench.view(3).quorate, "two of four, without the lowest");
}

#[test]
fn of_two_halves_the_one_with_the_lowest_node_goes_on() {
    let mut bench = Bench::new(4, Votes::LastManStanding, 7);
    part(&mut bench, &[0, 1], &[2, 3]);
    bench.run(1000);
    assert!(bench.view(0).quorate && !bench.view(2).quorate);
}

/// What the members' vote is for.
#[test]
fn nodes_that_left_before_count_as_they_did_then() {
    let mut bench = Bench::new(5, Votes::LastManStanding, 8);
    part(&mut bench, &[0, 1, 2], &[3, 4]);
    bench.run(3000);
    assert!(bench.view(2).quorate && !bench.view(3).quorate);
    part(&mut bench, &[0, 1], &[2]);
    [3, 4].into_iter().for_each(|node| {
        bench.cuts.0.remove(&(2, node));
        bench.cuts.0.remove(&(node, 2));
    });
    bench.run(3000);
    assert!(bench.view(0).quorate && bench.view(2).quorate, "both sides are");
}

#[test]
fn a_daemon_that_has_just_started_waits_for_all() {
    let mut bench = Bench::new(3, Votes::LastManStanding, 9);
    (0..3).for_each(|node| bench.engines.stop(bench.now, node, false));
    bench.run(1000);
    [0, 1].into_iter().for_each(|node| bench.engines.start(bench.now, node));
    bench.run(1000);
    assert!(!bench.view(0).quorate, "two of three");
    bench.engines.start(bench.now, 2);
    bench.run(1000);
    assert!(bench.view(0).quorate);
}
