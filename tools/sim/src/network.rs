//! The networks between the hosts: the cluster link, the outer and the inner network, each with
//! loss, delay, duplication and cuts.

use crate::engine::{MILLI, Nanos, Reach};
use crate::random::Random;
use std::collections::BTreeSet;

/// A network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Link {
    /// Between the nodes only: the engine's messages and heartbeats.
    Cluster,
    /// To the peers; nodes also hear each other on it.
    Outer,
    /// To the protected hosts; nodes also hear each other on it.
    Inner,
}

impl Link {
    /// All of them, by their numbers.
    pub const ALL: [Self; 3] = [Self::Cluster, Self::Outer, Self::Inner];

    /// Its number among a node's links.
    pub fn number(self) -> u8 {
        self as u8
    }
}

/// The quality of the networks.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// In thousandths.
    pub loss: u64,
    /// In thousandths.
    pub duplication: u64,
    /// In thousandths: a packet is repeated much later.
    pub echo: u64,
    /// The shortest delay.
    pub delay: Nanos,
    /// Its variation, which reorders packets.
    pub jitter: Nanos,
}

impl Weather {
    /// Nothing is lost.
    pub const FAIR: Self = Self { loss: 0, duplication: 0, echo: 0, delay: MILLI / 10, jitter: MILLI / 10 };

    /// Random weather.
    pub fn random(random: &mut Random) -> Self {
        let bad = random.permille(300);
        Self {
            loss: if bad { random.below(150) } else { random.below(5) },
            duplication: if bad { random.below(150) } else { random.below(5) },
            echo: random.below(10),
            delay: random.between(MILLI / 20, if bad { 5 * MILLI } else { MILLI }),
            jitter: random.below(if bad { 20 * MILLI } else { MILLI }),
        }
    }
}

/// The networks between the nodes, and between nodes and the world.
#[derive(Debug)]
pub struct Network {
    /// Their present quality.
    pub weather: Weather,
    /// Packets of the first node do not reach the second on that network.
    cuts: BTreeSet<(Link, usize, usize)>,
    /// The engine's messages of the first node do not reach the second.
    engine_cuts: BTreeSet<(usize, usize)>,
    /// Ports that are down: nothing passes in either direction.
    down: BTreeSet<(Link, usize)>,
    random: Random,
    /// Lost packets, counting each copy.
    pub lost: u64,
    /// Carried packets, counting each copy.
    pub carried: u64,
}

impl Network {
    /// Networks with fair weather.
    pub fn new(random: Random) -> Self {
        Self {
            weather: Weather::FAIR,
            cuts: BTreeSet::new(),
            engine_cuts: BTreeSet::new(),
            down: BTreeSet::new(),
            random,
            lost: 0,
            carried: 0,
        }
    }

    /// Cuts a network from one node to another.
    pub fn cut(&mut self, link: Link, from: usize, to: usize) {
        self.cuts.insert((link, from, to));
    }

    /// Cuts only the engine's messages from one node to another.
    pub fn cut_engine(&mut self, from: usize, to: usize) {
        self.engine_cuts.insert((from, to));
    }

    /// A port goes down, or up.
    pub fn set_port(&mut self, link: Link, node: usize, up: bool) {
        if up {
            self.down.remove(&(link, node))
        } else {
            self.down.insert((link, node))
        };
    }

    /// True if a port is not known to be down.
    pub fn port(&self, link: Link, node: usize) -> bool {
        !self.down.contains(&(link, node))
    }

    /// Removes all cuts.
    pub fn heal(&mut self) {
        self.cuts.clear();
        self.engine_cuts.clear();
        self.down.clear();
    }

    /// Arrival times of the copies of a packet from one node to another.
    pub fn between(&mut self, now: Nanos, link: Link, from: usize, to: usize) -> Vec<Nanos> {
        if self.passes(link, from, to) { self.fly(now) } else { self.lose() }
    }

    /// Arrival times of the copies of a packet between a node and the world.
    pub fn through(&mut self, now: Nanos, link: Link, node: usize) -> Vec<Nanos> {
        if self.port(link, node) { self.fly(now) } else { self.lose() }
    }

    fn passes(&self, link: Link, from: usize, to: usize) -> bool {
        self.port(link, from) && self.port(link, to) && !self.cuts.contains(&(link, from, to))
    }

    fn lose(&mut self) -> Vec<Nanos> {
        self.lost += 1;
        Vec::new()
    }

    fn fly(&mut self, now: Nanos) -> Vec<Nanos> {
        let Weather { loss, duplication, echo, delay, jitter } = self.weather;
        if self.random.permille(loss) {
            return self.lose();
        }
        let mut arrivals = vec![now + delay + self.random.below(jitter + 1)];
        if self.random.permille(duplication) {
            arrivals.push(now + delay + self.random.below(jitter + 1));
        }
        // A recorded packet is replayed.
        if self.random.permille(echo) {
            arrivals.push(now + delay + self.random.below(3000 * MILLI));
        }
        self.carried += arrivals.len() as u64;
        arrivals
    }
}

impl Reach for Network {
    fn reaches(&self, from: usize, to: usize) -> bool {
        from == to || self.passes(Link::Cluster, from, to) && !self.engine_cuts.contains(&(from, to))
    }
}
