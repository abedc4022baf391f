use super::*;
use proptest::prelude::*;

const OWN: u32 = 1;

fn node(number: u32) -> NodeId {
    NodeId::new(number).unwrap()
}

fn seconds(of: u64) -> Duration {
    Duration::from_secs(of)
}

/// A shard, whichever node owns it: every node sees each change of the preference.
struct World {
    config: FollowConfig,
    dampers: [Damper; 3],
    owner: u32,
    preference: Preference,
    now: Time,
    /// When it moved.
    moves: Vec<Time>,
}

impl World {
    fn new() -> Self {
        Self {
            config: FollowConfig::default(),
            dampers: [Damper::default(); 3],
            owner: OWN,
            preference: Preference::default(),
            now: Time(seconds(1000)),
            moves: Vec::new(),
        }
    }

    /// A second in which so many packets reach each of the nodes 1 to 3.
    fn second(&mut self, reached: [u64; 3]) {
        self.now = self.now.plus(seconds(1));
        let others = (1..).zip(reached).filter(|(node, _)| *node != self.owner);
        let sample = Sample {
            carried: reached.iter().sum(),
            relayed: others.clone().map(|(_, packets)| packets).sum(),
            most: others.max_by_key(|(_, packets)| *packets).map(|(number, packets)| (node(number), packets)),
        };
        self.sample(&sample);
    }

    fn sample(&mut self, sample: &Sample) {
        let own = self.owner;
        for (number, damper) in (1..).zip(&mut self.dampers) {
            if number != own {
                damper.rest();
            }
        }
        let damper = &mut self.dampers[own as usize - 1];
        let Some(wanted) = damper.decide(self.now, node(own), &self.config, sample, self.preference) else {
            return;
        };
        self.dampers.iter_mut().for_each(|damper| damper.changed(self.now));
        self.preference = wanted;
        // The first rank is node 1.
        let next = wanted.node.map_or(OWN, |node| node.get().into());
        if next != self.owner {
            self.owner = next;
            self.moves.push(self.now);
        }
    }

    fn run(&mut self, seconds: u64, reached: [u64; 3]) {
        (0..seconds).for_each(|_| self.second(reached));
    }
}

#[test]
fn a_shard_moves_once_its_packets_have_reached_another_node_for_the_whole_wait() {
    let mut world = World::new();
    world.run(10, [0, 100, 0]);
    assert!(world.moves.is_empty());
    world.run(1, [0, 100, 0]);
    assert_eq!((world.owner, world.preference), (2, Preference { node: Some(node(2)), level: 1 }));
    world.run(3000, [0, 100, 0]);
    assert_eq!(world.moves.len(), 1);
}

#[test]
fn packets_that_reach_no_node_clearly_move_nothing() {
    for reached in [[100, 0, 0], [50, 50, 0], [35, 65, 0], [0, 50, 50], [0, 9, 0], [0, 0, 0]] {
        let mut world = World::new();
        world.run(2000, reached);
        assert!(world.moves.is_empty() && world.preference == Preference::default(), "{reached:?}");
    }
    let mut world = World::new();
    world.run(11, [10, 70, 20]);
    assert_eq!(world.owner, 2, "at least two thirds");
}

/// Other nodes relay forged packets too; the owner does not accept them.
#[test]
fn forged_packets_move_nothing() {
    let mut world = World::new();
    for _ in 0..2000 {
        world.now = world.now.plus(seconds(1));
        world.sample(&Sample { carried: 1000, relayed: 5000, most: Some((node(3), 5000)) });
    }
    assert!(world.moves.is_empty());
}

#[test]
fn routes_that_flap_within_the_wait_move_nothing() {
    for phase in 1..=10 {
        let mut world = World::new();
        for _ in 0..400 {
            world.run(phase, [0, 100, 0]);
            world.run(phase, [100, 0, 0]);
        }
        assert!(world.moves.is_empty(), "{phase} seconds");
    }
}

/// Slower flapping moves the shard ever more rarely.
#[test]
fn each_move_doubles_the_wait_and_calm_halves_it() {
    let mut world = World::new();
    for _ in 0..100 {
        world.run(100, [0, 100, 0]);
        world.run(100, [100, 0, 0]);
    }
    let begun = world.moves.iter().take(4).collect::<Vec<_>>();
    assert!(begun.windows(2).all(|pair| pair[1].since(*pair[0]) < seconds(220)), "{begun:?}");
    // 20000 seconds have 200 changes of the route, and one wait in 600 seconds that halves.
    assert!((6..45).contains(&world.moves.len()), "{}", world.moves.len());
    let level = world.preference.level;
    assert!(level > 2, "{level}");
    // It has been quiet since.
    world.run(6 * 600, [100, 0, 0]);
    world.run(11, [0, 0, 100]);
    assert_eq!((world.owner, world.preference.level), (3, 1));
}

/// A preference whose reason is gone would keep a shard from its rank for ever.
#[test]
fn a_preference_ends_when_its_reason_is_gone() {
    for reached in [[0, 0, 0], [100, 100, 100]] {
        let mut world = World::new();
        world.run(11, [0, 100, 0]);
        world.run(600, reached);
        assert_eq!(world.owner, 2);
        world.run(2, reached);
        assert_eq!((world.owner, world.preference.node), (1, None), "{reached:?}");
        world.run(3000, reached);
        assert_eq!(world.moves.len(), 2);
    }
}

/// It is not clear which node they reach, and so the shard stays.
#[test]
fn a_preference_lasts_while_half_of_the_packets_reach_the_preferred_node() {
    for (reached, lasts) in [([50, 50, 0], true), ([49, 51, 0], true), ([51, 49, 0], false)] {
        let mut world = World::new();
        world.run(11, [0, 100, 0]);
        assert_eq!(world.owner, 2);
        world.run(2000, reached);
        assert_eq!(world.owner == 2, lasts, "{reached:?}");
    }
}

/// The preferred node is away, and routers give its packets to the node that owns the shard now.
#[test]
fn a_node_that_its_packets_reach_keeps_the_shard_of_another_that_comes_back() {
    let mut world = World::new();
    world.preference = Preference { node: Some(node(3)), level: 1 };
    world.run(20, [100, 0, 0]);
    assert_eq!(world.preference.node, Some(node(3)));
    world.run(1, [100, 0, 0]);
    assert_eq!(world.preference, Preference { node: Some(node(1)), level: 1 });
    assert!(world.moves.is_empty());
}

/// The shard is about to go there, or that node cannot own shards.
#[test]
fn a_preference_that_is_not_met_yet_is_not_raised() {
    let mut world = World::new();
    world.preference = Preference { node: Some(node(2)), level: 1 };
    for _ in 0..3000 {
        world.second([0, 100, 0]);
        assert_eq!(world.preference, Preference { node: Some(node(2)), level: 1 });
    }
}

#[test]
fn what_was_seen_before_a_rest_does_not_count() {
    let mut world = World::new();
    world.run(10, [0, 100, 0]);
    world.dampers[0].rest();
    world.run(10, [0, 100, 0]);
    assert!(world.moves.is_empty());
}

proptest! {
    /// However the routes change, moves become rare, and each has its reason: for the wait before
    /// it, most packets had reached the node that the shard went to.
    #[test]
    fn moves_are_rare_and_have_reasons(
        phases in prop::collection::vec((1_u64..120, 0_usize..3, 0_u64..400), 1..60),
    ) {
        let mut world = World::new();
        let mut clear: Vec<(u64, Option<usize>)> = Vec::new();
        for (length, to, packets) in phases {
            for _ in 0..length {
                let mut reached = [20; 3];
                reached[to] += packets;
                let is_clear = (packets + 20) * 3 >= (packets + 60) * 2;
                let before = world.moves.len();
                clear.push((world.now.0.as_secs() + 1, is_clear.then_some(to)));
                world.second(reached);
                // The other moves are those to the first rank.
                if world.moves.len() > before && world.preference.node.is_some() {
                    let wait = 10 << (world.preference.level - 1);
                    let last = clear.iter().rev().take(wait + 1);
                    prop_assert!(last.clone().all(|(_, clear)| *clear == Some(world.owner as usize - 1)));
                }
            }
        }
        // In any 600 seconds no more than the waits 10, 20, ... 320 seconds have room for, and one
        // that has halved.
        for (at, first) in world.moves.iter().enumerate() {
            let within = world.moves[at..].iter().take_while(|then| then.since(*first) < seconds(600));
            prop_assert!(within.count() <= 7);
        }
    }
}

#[test]
fn a_node_is_reached_by_two_thirds_of_enough_packets_of_which_the_owner_accepts_half() {
    let reached = |carried, relayed, min_rate| {
        let sample = Sample { carried, relayed, most: Some((node(2), relayed)) };
        sample.reached(node(OWN), min_rate)
    };
    assert_eq!(reached(90, 60, 60), Some(node(2)));
    assert_eq!(reached(90, 60, 61), None, "too few");
    assert_eq!(reached(90, 59, 50), None, "less than two thirds");
    assert_eq!(reached(90, 30, 60), Some(node(OWN)));
    assert_eq!(reached(60, 120, 60), Some(node(2)));
    assert_eq!(reached(59, 120, 60), None, "the owner accepts less than half");
}
