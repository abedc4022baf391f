//! What a seed makes of the world: how large it is, how it behaves, and which faults it has.

use crate::clock::Clock;
use crate::config::{MAX_PEERS, Manners};
use crate::engine::{MILLI, Nanos, Votes};
use crate::random::Random;
use testudo_ike::config::Unique;

/// A fault of one node that does not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasting {
    /// None.
    None,
    /// Its process stands still.
    Stopped,
    /// A port towards peers or hosts is dead, and the node sees that there is no carrier.
    Carrier,
    /// The same, but nothing but the silence tells it.
    Silent,
}

impl Lasting {
    /// With enough nodes, one world in three has one.
    fn random(random: &mut Random, nodes: usize) -> Self {
        match random.below(if nodes > 2 { 12 } else { 20 }) {
            0 => Self::Carrier,
            1 if nodes > 2 => Self::Silent,
            2 | 3 if nodes > 2 => Self::Stopped,
            _ => Self::None,
        }
    }
}

/// Some peers are such as lose their memory. The rest of the world is as it would be without.
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

/// A world to be.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its seed.
    pub seed: u64,
    /// How many nodes.
    pub nodes: usize,
    /// The peers' manners.
    pub manners: Vec<Manners>,
    /// The nodes' clocks.
    pub clocks: Vec<Clock>,
    /// Who decides in the case of a draw.
    pub votes: Votes,
    /// Without a quorum, nodes go on forwarding what they own.
    pub forward: bool,
    /// How often heartbeats are sent.
    pub heartbeat: Nanos,
    /// How long a node may send after the last proof that it is heard.
    pub fence: Nanos,
    /// How long the engine takes to find a node missing: shortest, longest.
    pub detection: (Nanos, Nanos),
    /// How long nothing goes wrong at first.
    pub calm: Nanos,
    /// How long faults come.
    pub faults: Nanos,
    /// How long there is time to recover.
    pub settle: Nanos,
    /// How long traffic is then watched.
    pub watch: Nanos,
    /// From one fault to the next, on average.
    pub fault_pace: Nanos,
    /// From one packet of a tunnel to the next, each way, on average.
    pub probe_pace: Nanos,
    /// Machines may be set back to an earlier state.
    pub rollbacks: bool,
    /// What does not end with the other faults: the others must do without it.
    pub lasting: Lasting,
    /// Lines of the trace that are kept.
    pub lines: usize,
    /// Only faults of these kinds, if any are named.
    pub only: Vec<crate::faults::Kind>,
}

impl Scenario {
    /// What the seed says.
    pub fn random(seed: u64) -> Self {
        let mut random = Random::new(seed);
        // One in fifty is as large as it gets.
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
            manners,
            clocks,
            votes,
            forward: random.permille(700),
            heartbeat: if large { 40 * MILLI } else { random.between(10, 20) * MILLI },
            fence: if large { 200 } else { 50 } * MILLI,
            detection: (shortest, shortest + random.below(200) * MILLI),
            calm: random.between(500, 2500) * MILLI,
            faults: if large { 4 * second } else { random.between(3, 9) * second },
            settle: 8 * second,
            watch: 2 * second,
            fault_pace: random.between(100, 1500) * MILLI,
            probe_pace: if large { 400 * MILLI } else { random.between(20, 120) * MILLI },
            rollbacks: random.permille(250),
            lasting: Lasting::random(&mut random, nodes),
            lines: 100,
            only: Vec::new(),
        }
    }
}
