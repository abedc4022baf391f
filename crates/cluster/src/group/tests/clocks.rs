//! No confirmed takeover begins before the old owner's fence has run out, whatever clocks, delays
//! and losses there are.

use super::net::{Numbers, id};
use crate::engine::{EngineEvent, RingId, View};
use crate::group::{ClusterKey, Durable, Group, GroupConfig, GroupOutput, NoQuorum};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use testudo_ike::output::Time;
use testudo_ike::suite::Entropy;

/// A node whose clock has an offset and a rate of its own. The world's times are in microseconds.
struct Node {
    group: Group,
    offset: u64,
    /// The rate, in thousandths.
    rate: u64,
    /// The engine's events, each with the time at which it comes.
    events: VecDeque<(u64, EngineEvent)>,
    stopped_until: u64,
    fence: Time,
    /// The ring of the last view that has begun here. Unlike epochs, rings count on when all nodes
    /// have been restarted.
    begun: u64,
    /// The engine's ring in which it sends.
    ring: (RingId, Vec<u8>),
}

impl Node {
    fn local(&self, at: u64) -> Time {
        Time(Duration::from_micros(self.offset + at * self.rate / 1000))
    }

    /// The world's time when this node's clock shows that.
    fn world(&self, local: Time) -> u64 {
        (local.0.as_micros() as u64).saturating_sub(self.offset) * 1000 / self.rate
    }
}

/// A takeover of a node's shards. It lasts until the taker is restarted or begins another view.
struct Takeover {
    by: u8,
    from: u8,
    ring: u64,
    at: u64,
}

struct World {
    at: u64,
    nodes: BTreeMap<u8, Node>,
    datagrams: Vec<(u64, u8, Vec<u8>)>,
    takeovers: Vec<Takeover>,
    random: Numbers,
    rings: u64,
    lost: Vec<(u8, u8)>,
    count: u8,
}

impl World {
    fn new(count: u8, seed: u64) -> Self {
        let mut world = Self {
            at: 0,
            nodes: BTreeMap::new(),
            datagrams: vec![],
            takeovers: vec![],
            random: Numbers(seed),
            rings: 0,
            lost: vec![],
            count,
        };
        (1..=count).for_each(|number| world.start(number));
        world
    }

    fn draw(&mut self, below: u64) -> u64 {
        let mut octets = [0; 4];
        self.random.fill(&mut octets);
        u64::from(u32::from_be_bytes(octets)) % below
    }

    fn start(&mut self, number: u8) {
        self.takeovers.retain(|takeover| takeover.by != number);
        let nodes = (1..=self.count).map(id).collect();
        let mut config = GroupConfig::new(id(number), nodes, ClusterKey::new([1; 32]));
        config.no_quorum = NoQuorum::Stop;
        let (offset, rate) = match self.nodes.get(&number) {
            Some(node) => (node.offset, node.rate),
            None => (1_000_000 + self.draw(1 << 30), 950 + self.draw(101)),
        };
        let entropy = Box::new(Numbers(self.draw(1 << 32)));
        let now = Time(Duration::from_micros(offset + self.at * rate / 1000));
        let node = Node {
            group: Group::new(config, Durable::default(), entropy, now),
            offset,
            rate,
            events: VecDeque::new(),
            stopped_until: 0,
            fence: Time::default(),
            begun: 0,
            ring: (RingId { seq: 0, node: 0 }, vec![]),
        };
        self.nodes.insert(number, node);
    }

    /// The engine tells of a view: some nodes at once, and others late.
    fn view(&mut self, members: &[u8], late: u64) {
        self.rings += 1;
        let ring = RingId { seq: self.rings, node: members[0].into() };
        let quorate = members.len() * 2 > usize::from(self.count);
        let view = View { ring, members: members.iter().map(|node| id(*node)).collect(), quorate };
        for number in members {
            let comes = self.at + self.draw(late);
            let node = self.nodes.get_mut(number).unwrap();
            node.ring = (ring, members.to_vec());
            let comes = comes.max(node.events.back().map_or(0, |(at, _)| *at));
            node.events.push_back((comes, EngineEvent::View(view.clone())));
        }
    }

    /// A millisecond passes.
    fn step(&mut self) {
        self.at += 1000;
        let mut due: Vec<(u8, Vec<u8>)> = Vec::new();
        let at = self.at;
        let stopped = |nodes: &BTreeMap<u8, Node>, to: &u8| nodes[to].stopped_until > at;
        self.datagrams.retain(|(comes, to, bytes)| {
            let now = *comes <= at && !stopped(&self.nodes, to);
            if now {
                due.push((*to, bytes.clone()));
            }
            !now
        });
        for (to, bytes) in due {
            let node = self.nodes.get_mut(&to).unwrap();
            let now = node.local(at);
            node.group.handle_datagram(now, 0, &bytes);
        }
        for number in 1..=self.count {
            let node = self.nodes.get_mut(&number).unwrap();
            if node.stopped_until > at {
                continue;
            }
            let now = node.local(at);
            while node.events.front().is_some_and(|(comes, _)| *comes <= at) {
                let (_, event) = node.events.pop_front().unwrap();
                node.group.handle_event(now, event);
            }
            if node.group.next_timeout().is_some_and(|due| due <= now) {
                node.group.handle_timeout(now);
            }
            node.group.flush(now);
            self.outputs(number);
        }
        self.check();
    }

    fn outputs(&mut self, number: u8) {
        let at = self.at;
        while let Some(output) = self.nodes.get_mut(&number).unwrap().group.poll_output() {
            match output {
                GroupOutput::Fence(until) => self.nodes.get_mut(&number).unwrap().fence = until,
                GroupOutput::Datagram { to, bytes, .. } => {
                    let delay = if self.draw(20) == 0 { self.draw(80_000) } else { self.draw(3000) };
                    if !self.lost.contains(&(number, to.get())) && self.draw(50) > 0 {
                        self.datagrams.push((at + delay, to.get(), bytes));
                    }
                }
                GroupOutput::Multicast(bytes) => {
                    let (ring, members) = self.nodes[&number].ring.clone();
                    for member in members {
                        let comes = at + self.draw(10_000);
                        let node = self.nodes.get_mut(&member).unwrap();
                        if node.ring.0 == ring {
                            let comes = comes.max(node.events.back().map_or(0, |(at, _)| *at));
                            let event = EngineEvent::Message { from: id(number), bytes: bytes.clone() };
                            node.events.push_back((comes, event));
                        }
                    }
                }
                GroupOutput::View(start) if start.view.quorate => {
                    self.takeovers.retain(|takeover| takeover.by != number);
                    let node = self.nodes.get_mut(&number).unwrap();
                    node.begun = start.view.ring.seq;
                    let begins = node.world(start.wait_until).max(at);
                    let others = (1..=self.count).filter(|other| !start.current.contains(&id(*other)));
                    self.takeovers.extend(others.map(|from| Takeover {
                        by: number,
                        from,
                        ring: start.view.ring.seq,
                        at: begins,
                    }));
                }
                _ => {}
            }
        }
    }

    /// A node whose shards have been taken over, and that has not seen that view or a later one,
    /// sends nothing.
    fn check(&self) {
        for takeover in self.takeovers.iter().filter(|takeover| takeover.at <= self.at) {
            let node = &self.nodes[&takeover.from];
            let ends = node.world(node.fence);
            assert!(
                node.begun >= takeover.ring || ends <= self.at,
                "at {} us node {} may send until {ends}, and was taken over from at {} in ring {}",
                self.at,
                takeover.from,
                takeover.at,
                takeover.ring,
            );
        }
    }

    fn run(&mut self, millis: u64) {
        (0..millis).for_each(|_| self.step());
    }

    /// One fault, or a view.
    fn fault(&mut self) {
        let node = 1 + self.draw(self.count.into()) as u8;
        let other = 1 + self.draw(self.count.into()) as u8;
        match self.draw(7) {
            0 => self.nodes.get_mut(&node).unwrap().stopped_until = self.at + self.random_span(300),
            1 => self.lost.push((node, other)),
            2 => self.lost.clear(),
            3 => {
                let all: Vec<u8> = (1..=self.count).collect();
                self.view(&all, 40_000);
            }
            4 | 5 => {
                // A split.
                let sides: Vec<bool> = (0..self.count).map(|_| self.draw(2) == 0).collect();
                for side in [true, false] {
                    let members: Vec<u8> =
                        (1..=self.count).filter(|node| sides[usize::from(*node) - 1] == side).collect();
                    if !members.is_empty() {
                        self.view(&members, 150_000);
                    }
                }
            }
            _ => {
                self.start(node);
                let rest: Vec<u8> = (1..=self.count).filter(|other| *other != node).collect();
                self.view(&rest, 40_000);
            }
        }
    }

    fn random_span(&mut self, millis: u64) -> u64 {
        self.draw(millis * 1000)
    }
}

#[test]
fn clocks_of_different_rates_fence_nobody_in_quiet_times() {
    for seed in 0..10 {
        let mut world = World::new(3, seed);
        world.view(&[1, 2, 3], 1000);
        world.run(500);
        for _ in 0..1000 {
            world.step();
            let fenced = world.nodes.values().filter(|node| node.fence <= node.local(world.at)).count();
            assert_eq!(fenced, 0, "seed {seed}, at {}", world.at);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn no_takeover_begins_before_the_fence_of_the_old_owner_has_run_out(
        seed in any::<u64>(),
        five in any::<bool>(),
        pauses in prop::collection::vec(1_u64..120, 1..25),
    ) {
        let mut world = World::new(if five { 5 } else { 3 }, seed);
        let all: Vec<u8> = (1..=world.count).collect();
        world.view(&all, 1000);
        world.run(100);
        for pause in pauses {
            world.fault();
            world.run(pause);
        }
    }
}
