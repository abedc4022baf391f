//! The world of a seed: its size, its behaviour, and its faults.

use crate::clock::Clock;
use crate::config::{MAX_PEERS, Manners};
use crate::engine::{Detection, MILLI, Nanos, Votes};
use crate::random::Random;
use testudo_base::lane::Spread;
use testudo_cluster::group::GroupConfig;
use testudo_ike::config::Unique;

/// A permanent fault of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasting {
    /// None.
    None,
    /// Its process is stopped.
    Stopped,
    /// A port to peers or hosts fails, and the node sees that there is no carrier.
    Carrier,
    /// The same, but the node sees only the silence.
    Silent,
}

impl Lasting {
    /// One in three worlds with enough nodes has one.
    fn random(random: &mut Random, nodes: usize) -> Self {
        match random.below(if nodes > 2 { 12 } else { 20 }) {
            0 => Self::Carrier,
            1 if nodes > 2 => Self::Silent,
            2 | 3 if nodes > 2 => Self::Stopped,
            _ => Self::None,
        }
    }
}

/// Lets some peers lose their memory. The rest of the world is not changed by this.
fn forget(seed: u64, manners: &mut [Manners]) {
    let mut random = Random::new(seed ^ 0xf09e_7f09_e7f0_9e7f);
    for manners in manners {
        manners.unique = match random.below(10) {
            0 | 1 => [Unique::No, Unique::No],
            2 => [Unique::Replace, Unique::No],
            3 => [Unique::Replace, Unique::Never],
            _ => [Unique::Never, Unique::Never],
        };
    }
}

/// How routers give packets to nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routed {
    /// How long they take to learn that a node serves, or no longer.
    pub learns: Nanos,
    /// How long a node that gives its shards away waits for that.
    pub withdraw: Nanos,
    /// Set if all packets of a tunnel, in both directions, reach one node, and after each such time
    /// perhaps another. Otherwise the way of each kind of packet is one of its own, and stays.
    pub shifts: Option<Nanos>,
}

impl Routed {
    /// Routers that often learn later than nodes wait.
    pub fn random(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x7e1a_7e1a_7e1a_7e1a);
        let (learns, withdraw) = (random.between(1, 800) * MILLI, random.below(1000) * MILLI);
        let shifts = random.permille(500).then(|| random.between(200, 5000) * MILLI);
        Self { learns, withdraw, shifts }
    }
}

/// In some worlds routers give each packet to one node. The rest of the world is not changed by
/// this.
fn routed(seed: u64) -> Option<Routed> {
    let some = Random::new(seed ^ 0x40a7_ed40_a7ed_40a7).permille(250);
    some.then(|| Routed::random(seed))
}

/// Spreads some tunnels over the nodes in some worlds. The rest of the world is not changed by
/// this.
fn spread(seed: u64, peers: usize) -> Vec<Option<Spread>> {
    let mut random = Random::new(seed ^ 0x5b1e_ad00_5b1e_ad00);
    let some = random.permille(400);
    let mut one = || match random.below(3) {
        0 => Some(Spread::SessionHash),
        1 => Some(Spread::PacketHash),
        _ => None,
    };
    let spread = (0..peers).map(|_| one().filter(|_| some));
    let mut random = Random::new(seed ^ 0x7042_7042_7042_7042);
    let by_turns = |spread| match (spread, random.below(4)) {
        (Some(Spread::PacketHash), 0) => Some(Spread::PacketRr),
        (Some(Spread::PacketHash), 1) => Some(Spread::PacketSqf),
        (Some(Spread::SessionHash), 0) => Some(Spread::SessionRr),
        (Some(Spread::SessionHash), 1) => Some(Spread::SessionSqf),
        (other, _) => other,
    };
    spread.map(by_turns).collect()
}

/// Lets some nodes of some worlds speak an older version of the replication protocol at every other
/// start, as in upgrades and after them. The rest of the world is not changed by this.
fn versions(seed: u64, nodes: usize) -> Vec<u8> {
    let mut random = Random::new(seed ^ 0x01d0_01d0_01d0_01d0);
    let some = random.permille(250);
    let mut one = || match random.below(2) {
        0 if some => random.between(GroupConfig::CONTROL_PLANE.into(), GroupConfig::NEWEST.into()) as u8,
        _ => GroupConfig::NEWEST,
    };
    (0..nodes).map(|_| one()).collect()
}

/// One in so many worlds goes on after it has recovered.
const GOING_ON: u64 = 4;

/// The parameters of a world.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its seed.
    pub seed: u64,
    /// Number of nodes.
    pub nodes: usize,
    /// The peers' manners.
    pub manners: Vec<Manners>,
    /// The peers whose tunnels are spread over the nodes, and how.
    pub spread: Vec<Option<Spread>>,
    /// Routers give each packet to one node; otherwise all nodes see all packets.
    pub routed: Option<Routed>,
    /// The version that each node speaks at its first start, and then at every other one.
    pub versions: Vec<u8>,
    /// The nodes' clocks.
    pub clocks: Vec<Clock>,
    /// The rule for a tie of votes.
    pub votes: Votes,
    /// Without a quorum, nodes continue to forward for the shards that they own.
    pub forward: bool,
    /// Interval of heartbeats.
    pub heartbeat: Nanos,
    /// How long a node may send after the last proof that it is heard.
    pub fence: Nanos,
    /// How long the engine takes to detect a missing node.
    pub detection: Detection,
    /// Duration of the phase without faults at the beginning.
    pub calm: Nanos,
    /// Duration of the phase with faults.
    pub faults: Nanos,
    /// Time to recover afterwards.
    pub settle: Nanos,
    /// It goes on for all that time: what a fault has done may show late. Otherwise it ends when it
    /// has recovered.
    pub goes_on: bool,
    /// Time in which traffic is then watched.
    pub watch: Nanos,
    /// Mean time between faults.
    pub fault_pace: Nanos,
    /// Mean time between the packets of a tunnel, in each direction.
    pub probe_pace: Nanos,
    /// Machines may be restored to an earlier state.
    pub rollbacks: bool,
    /// The permanent fault, if there is one.
    pub lasting: Lasting,
    /// Number of trace lines that are kept.
    pub lines: usize,
    /// Operators add and remove nodes.
    pub changes: bool,
    /// Only faults of these kinds, unless empty.
    pub only: Vec<crate::faults::Kind>,
}

impl Scenario {
    /// The scenario of a seed.
    pub fn random(seed: u64) -> Self {
        let mut random = Random::new(seed);
        // One in fifty is large.
        let large = random.permille(20);
        let nodes = if large { 7 } else { *random.pick(&[2, 2, 3, 3, 3, 3, 4, 5]).unwrap_or(&3) };
        let peers = if large { random.between(20, MAX_PEERS as u64) } else { random.between(1, 6) };
        let mut manners: Vec<Manners> = (0..peers).map(|_| Manners::random(&mut random)).collect();
        forget(seed, &mut manners);
        let clocks = (0..nodes).map(|_| Clock::skewed(&mut random)).collect();
        let votes = match nodes % 2 {
            0 if nodes == 2 && random.permille(200) => Votes::TwoNode,
            0 if random.permille(800) => Votes::Witness,
            _ => Votes::Majority,
        };
        let shortest = random.between(100, 250) * MILLI;
        let second = 1000 * MILLI;
        Self {
            seed,
            nodes,
            spread: spread(seed, manners.len()),
            routed: routed(seed),
            versions: versions(seed, nodes),
            manners,
            clocks,
            votes,
            forward: random.permille(700),
            heartbeat: if large { 40 * MILLI } else { random.between(10, 20) * MILLI },
            fence: if large { 200 } else { 50 } * MILLI,
            detection: Detection { shortest, longest: shortest + random.below(200) * MILLI },
            calm: random.between(500, 2500) * MILLI,
            faults: if large { 4 * second } else { random.between(3, 9) * second },
            settle: 8 * second,
            goes_on: seed.is_multiple_of(GOING_ON),
            watch: 2 * second,
            fault_pace: random.between(100, 1500) * MILLI,
            probe_pace: if large { 400 * MILLI } else { random.between(20, 120) * MILLI },
            rollbacks: random.permille(250),
            lasting: Lasting::random(&mut random, nodes),
            lines: 100,
            changes: false,
            only: Vec::new(),
        }
    }

    /// The scenario of a seed in which operators add and remove nodes, of five at most. Machines
    /// that are set back are a matter of other worlds: they may have forgotten the nodes, and the
    /// exchange waits for others then.
    pub fn changing(seed: u64) -> Self {
        let random = Self::random(seed);
        let nodes = 5;
        Self {
            nodes,
            versions: vec![GroupConfig::NEWEST; nodes],
            clocks: random.clocks.iter().copied().cycle().take(nodes).collect(),
            votes: Votes::Majority,
            faults: random.faults.max(6000 * MILLI),
            settle: 16_000 * MILLI,
            rollbacks: false,
            lasting: Lasting::None,
            changes: true,
            ..random
        }
    }

    /// The version that a node speaks at this start of it.
    pub fn speaks(&self, index: usize, boot: u64) -> u8 {
        let own = self.versions.get(index).filter(|_| !boot.is_multiple_of(2));
        own.copied().unwrap_or(GroupConfig::NEWEST)
    }

    /// The row that the clocks of a node show when it starts: in some worlds the filters of nodes
    /// have counted what their former daemons carried.
    pub fn first_row(&self, index: usize) -> u64 {
        let mut random = Random::new(self.seed ^ 0x0c10_0c10_0c10_0c10 ^ (index as u64) << 56);
        if self.seed.is_multiple_of(3) { random.below(1 << 36) } else { 0 }
    }
}
