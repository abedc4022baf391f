//! How evenly each scheme deals traffic out to the nodes: computed with the lanes of real code, and
//! with the measured costs of a packet.

use super::costs::{Costs, Model};
use super::lanes::Carriers;
use super::lockstep;
use super::scheme::Scheme;
use super::traffic::Traffic;
use super::{Direction, SpreadArgs};
use crate::figures::{Aim, Row, Source};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use testudo_base::lane::{self, Spread};
use testudo_base::session::{SLOTS, Sessions};
use testudo_base::shard::SHARDS;
use testudo_base::siphash::SipKey;
use testudo_base::spi::{Shard, Spi};
use testudo_base::turn::Turns;
use testudo_terminal::progress::Progress;

/// Samples of each traffic if nothing else is said.
pub(super) const SAMPLES: u64 = 5;

/// Sessions of which nodes know at the same time, where sessions take turns.
const KNOWN: usize = 512;

/// What each node has to do for some traffic, and what one node alone would have to.
pub(super) struct Work {
    alone: f64,
    nodes: Vec<f64>,
}

impl Work {
    pub(super) fn speed_up(&self) -> f64 {
        self.alone / self.nodes.iter().copied().fold(0.0, f64::max)
    }
}

/// Packets, and their octets. Their cost depends on nothing else.
#[derive(Clone, Copy, Default)]
struct Load {
    packets: f64,
    octets: f64,
}

impl Load {
    fn add(&mut self, more: Self) {
        self.packets += more.packets;
        self.octets += more.octets;
    }
}

/// Traffic that is dealt out: the load of each lane, or of each node.
pub(super) struct Dealt(Vec<Load>);

impl Dealt {
    /// Nothing yet, of so many lanes or nodes.
    pub(super) fn new(parts: usize) -> Self {
        Self(vec![Load::default(); parts])
    }

    /// One of them gets a packet of that many octets.
    pub(super) fn add(&mut self, part: usize, octets: u16) {
        self.0[part].add(Load { packets: 1.0, octets: octets.into() });
    }

    /// The work of these nodes, each of which works on the parts that have its place.
    pub(super) fn work(&self, model: Model, nodes: usize, place: impl Fn(usize) -> usize) -> Work {
        let (mut all, mut own) = (Load::default(), vec![Load::default(); nodes]);
        for (part, load) in self.0.iter().enumerate() {
            all.add(*load);
            own[place(part)].add(*load);
        }
        let cost = |load: &Load| model.own(load.packets, load.octets);
        let work = |own: &Load| cost(own) + (all.packets - own.packets) * model.other;
        Work { alone: cost(&all), nodes: own.iter().map(work).collect() }
    }

    /// The work of the nodes that carry these lanes.
    fn work_of(&self, model: Model, carriers: &Carriers) -> Work {
        self.work(model, carriers.nodes(), |lane| carriers.place(Shard(lane as u8)))
    }
}

/// The rows of all traffic, schemes and numbers of nodes.
pub(super) fn compute(args: &SpreadArgs, costs: &Costs, progress: &Progress) -> Vec<Row> {
    let steps = Traffic::ALL.len() as u64 * (Scheme::SPREAD.len() as u64 + 1) * args.samples;
    progress.begin("spread, dealing traffic out", steps);
    let mut rows = Vec::new();
    for traffic in Traffic::ALL {
        // The lanes of packets do not depend on the number of nodes.
        let out: Vec<(Scheme, Vec<Dealt>)> = Scheme::SPREAD
            .into_iter()
            .filter_map(|scheme| Some((scheme, scheme.spread()?)))
            .map(|(scheme, spread)| (scheme, samples(args, progress, |seed| outward(traffic, seed, spread))))
            .collect();
        let back = samples(args, progress, |seed| inward(traffic, seed));
        for nodes in &args.nodes {
            let carriers = Carriers::of(*nodes);
            let times = |dealt: &[Dealt], model| -> Vec<f64> {
                dealt.iter().map(|dealt| dealt.work_of(model, &carriers).speed_up()).collect()
            };
            for (scheme, dealt) in &out {
                let values = times(dealt, costs.model(*scheme, Direction::Out));
                let what = format!("{}, out by {}, {nodes} nodes", traffic.name(), scheme.name());
                rows.push(judged(Row::new(what, "times", values), traffic, *scheme, *nodes));
            }
            let values = times(&back, costs.model(Scheme::PacketHash, Direction::In));
            rows.push(Row::new(format!("{}, in, {nodes} nodes", traffic.name()), "times", values));
        }
    }
    rows.extend(lockstep::compute(args, costs, progress));
    rows
}

/// What `of` gives for each sample.
pub(super) fn samples<T>(args: &SpreadArgs, progress: &Progress, of: impl Fn(u64) -> T) -> Vec<T> {
    let sample = |seed| {
        let value = of(seed);
        progress.step();
        value
    };
    (1..=args.samples).map(sample).collect()
}

/// With the paper's figure for packets (its table 4-3, shortest queue) or sessions (the same), and
/// the goal.
fn judged(row: Row, traffic: Traffic, scheme: Scheme, nodes: u8) -> Row {
    match (traffic, scheme, nodes) {
        (Traffic::Campus, Scheme::SessionHash, 2) => row.others(Source::Flat, "1.94"),
        (Traffic::Campus, Scheme::SessionHash, 3) => row.others(Source::Flat, "2.76"),
        (Traffic::Campus, Scheme::SessionHash, 6) => row.others(Source::Flat, "4.34"),
        (Traffic::Campus, _, 2) => row.others(Source::Flat, "1.94"),
        (Traffic::Campus, _, 3) => row.others(Source::Flat, "2.82"),
        (Traffic::Campus, _, 6) => row.others(Source::Flat, "5.18").aim(Aim::median_at_least(5.5)),
        _ => row,
    }
}

/// The packets to the peer, by lane.
fn outward(traffic: Traffic, seed: u64, spread: Spread) -> Dealt {
    let key =
        SipKey::new(u128::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_le_bytes());
    let mut dealt = Dealt::new(SHARDS);
    let mut turns = Turns::default();
    let words: Vec<AtomicU64> = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
    for (number, session) in traffic.sessions(seed).into_iter().enumerate() {
        // Most of those before are over.
        if number % KNOWN == 0 {
            words.iter().for_each(|word| word.store(0, Relaxed));
        }
        // All packets of a session have one lane: it is computed once.
        let mut known = None;
        session.for_each(|packet, octets| {
            let hashed = || lane::of_packet(key, spread, packet);
            let lane = match spread.turns() {
                None if spread.is_by_session() => *known.get_or_insert_with(hashed),
                None => hashed(),
                Some(_) => turns.count(key, spread, packet, Sessions::of(&words)).unwrap_or_else(hashed),
            };
            dealt.add(lane.0.into(), octets);
        });
    }
    dealt
}

/// The peer sends the packets of all sessions on one SA, with one number after the other.
fn inward(traffic: Traffic, seed: u64) -> Dealt {
    let spi = Spi(0xc000_0000 | seed as u32);
    let mut dealt = Dealt::new(SHARDS);
    let mut number = 0_u32;
    for session in traffic.sessions(seed) {
        session.for_each(|_, octets| {
            number = number.wrapping_add(1);
            dealt.add(lane::of_number(spi, number).0.into(), octets);
        });
    }
    dealt
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> Model {
        Model::of(100.0, 1.0, 0.0)
    }

    /// The share of the busiest of three nodes bounds the speed-up.
    fn bound(nodes: u8) -> f64 {
        1.0 / Carriers::of(nodes).shares().into_iter().fold(0.0, f64::max)
    }

    #[test]
    fn one_stream_stays_on_one_node_by_session_and_uses_all_by_packet() {
        let carriers = Carriers::of(3);
        let of = |spread| outward(Traffic::One, 1, spread).work_of(model(), &carriers).speed_up();
        assert_eq!(of(Spread::SessionHash), 1.0);
        for spread in [Spread::SessionRr, Spread::SessionSqf] {
            assert_eq!(of(spread), 1.0);
        }
        for spread in [Spread::PacketHash, Spread::PacketRr, Spread::PacketSqf] {
            assert!((of(spread) / bound(3) - 1.0).abs() < 0.05, "{spread:?}: {}", of(spread));
        }
        let inward = inward(Traffic::One, 1).work_of(model(), &carriers).speed_up();
        assert!((inward / bound(3) - 1.0).abs() < 0.01, "{inward}");
    }

    #[test]
    fn many_sessions_use_all_nodes() {
        let carriers = Carriers::of(3);
        let equal = outward(Traffic::Equal, 1, Spread::SessionHash).work_of(model(), &carriers).speed_up();
        assert!(equal > 0.8 * bound(3) && equal <= 3.0, "{equal}");
    }

    #[test]
    fn a_node_pays_for_what_it_drops() {
        let carriers = Carriers::of(2);
        let work =
            outward(Traffic::One, 1, Spread::SessionHash).work_of(Model::of(0.0, 1.0, 150.0), &carriers);
        let idle = work.nodes.iter().copied().fold(f64::INFINITY, f64::min);
        assert!((idle / work.alone - 0.1).abs() < 1e-9, "150 of 1500 for each packet: {idle}");
    }
}
