//! [FLAT]'s own schemes, as a model: every node counts all packets, and finds by itself which of
//! them are its own. A node that has missed one copy of a packet counts otherwise than the others
//! from then on. Testudo begins the count again with each mark ([`testudo_base::turn`]), and has no
//! such scheme by session.
//!
//! [FLAT]: *A Clustered Architecture for High-Speed IPsec Gateway*, Shieh and Lai.

use super::balance::{Dealt, samples};
use super::costs::{Costs, Model};
use super::lanes::Carriers;
use super::scheme::Scheme;
use super::traffic::{Random, Session, Traffic};
use super::{Direction, SpreadArgs};
use crate::figures::{Row, Source};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::Ipv4Addr;
use testudo_base::lane::{self, Spread};
use testudo_base::siphash::SipKey;
use testudo_base::turn::Turns;
use testudo_terminal::progress::Progress;
use testudo_wire::ip::Protocol;
use testudo_wire::ipv4;

/// Sessions that have packets at the same time.
const AT_ONCE: usize = 256;
/// One copy of so many does not reach its node.
const ONE_LOST_OF: u64 = 100_000;
/// Nodes in the runs with losses.
const NODES: usize = 3;

/// One of the paper's four schemes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lockstep {
    PacketRr,
    PacketSqf,
    SessionRr,
    SessionSqf,
}

impl Lockstep {
    const ALL: [Self; 4] = [Self::PacketRr, Self::PacketSqf, Self::SessionRr, Self::SessionSqf];

    fn name(self) -> &'static str {
        match self {
            Self::PacketRr => "packet-rr",
            Self::PacketSqf => "packet-sqf",
            Self::SessionRr => "session-rr",
            Self::SessionSqf => "session-sqf",
        }
    }

    fn is_by_session(self) -> bool {
        matches!(self, Self::SessionRr | Self::SessionSqf)
    }

    fn is_shortest_queue(self) -> bool {
        matches!(self, Self::PacketSqf | Self::SessionSqf)
    }

    /// The scheme of ours whose filter costs the same: it looks at each packet, or at its session.
    fn like(self) -> Scheme {
        if self.is_by_session() { Scheme::SessionHash } else { Scheme::PacketHash }
    }

    /// The paper's table 4-3: throughput divided by that of one node, 83.4 Mb/s.
    fn in_the_paper(self, nodes: u8) -> Option<&'static str> {
        match (self, nodes) {
            (Self::PacketRr | Self::PacketSqf | Self::SessionSqf, 2) => Some("1.94"),
            (Self::PacketRr | Self::PacketSqf, 3) => Some("2.82"),
            (Self::PacketRr | Self::PacketSqf, 6) => Some("5.18"),
            (Self::SessionRr, 2) => Some("1.85"),
            (Self::SessionRr, 3) => Some("2.23"),
            (Self::SessionRr, 6) => Some("3.73"),
            (Self::SessionSqf, 3) => Some("2.76"),
            (Self::SessionSqf, 6) => Some("4.34"),
            _ => None,
        }
    }
}

/// The variables of the paper's pseudocode, as each node has them.
struct Counting {
    scheme: Lockstep,
    next_turn: usize,
    queues: Vec<u64>,
    sessions: HashMap<u32, usize>,
}

impl Counting {
    fn new(scheme: Lockstep, nodes: usize) -> Self {
        Self { scheme, next_turn: 0, queues: vec![0; nodes], sessions: HashMap::new() }
    }

    /// Counts a packet. Returns the place of the node that works on it.
    fn count(&mut self, session: u32, octets: u16) -> usize {
        let this_turn = self.next_turn;
        if self.scheme.is_by_session() {
            match self.sessions.entry(session) {
                Entry::Occupied(known) => {
                    let place = *known.get();
                    self.queues[place] += u64::from(octets);
                    return place;
                }
                Entry::Vacant(new) => new.insert(this_turn),
            };
        }
        self.queues[this_turn] += u64::from(octets);
        self.next_turn = (this_turn + 1) % self.queues.len();
        if self.scheme.is_shortest_queue() {
            let shortest = (0..self.queues.len()).min_by_key(|place| self.queues[*place]);
            self.next_turn = shortest.unwrap_or_default();
        }
        this_turn
    }
}

/// A packet: its session, and its octets.
type Packet = (u32, u16);

/// The packets of some sessions in the order in which they come: [`AT_ONCE`] sessions take turns by
/// chance.
fn interleaved(sessions: Vec<Session>, seed: u64) -> Vec<Packet> {
    let (mut random, mut packets) = (Random(seed), Vec::new());
    let mut waiting = sessions.into_iter().map(|session| {
        let mut sizes = Vec::new();
        session.for_each(|_, octets| sizes.push(octets));
        sizes.reverse();
        (session.number(), sizes)
    });
    let mut current: Vec<(u32, Vec<u16>)> = waiting.by_ref().take(AT_ONCE).collect();
    while !current.is_empty() {
        let place = (random.next() % current.len() as u64) as usize;
        let (session, sizes) = &mut current[place];
        match sizes.pop() {
            Some(octets) => packets.push((*session, octets)),
            None => match waiting.next() {
                Some(next) => current[place] = next,
                None => drop(current.swap_remove(place)),
            },
        }
    }
    packets
}

fn campus(seed: u64) -> Vec<Packet> {
    interleaved(Traffic::Campus.sessions(seed), seed)
}

/// The rows of the paper's schemes: balance, and what lost copies cost.
pub(super) fn compute(args: &SpreadArgs, costs: &Costs, progress: &Progress) -> Vec<Row> {
    progress.begin("spread, the paper's own schemes", args.samples);
    // All schemes get the same packets.
    let traffic = samples(args, progress, |seed| (seed, campus(seed)));
    let mut rows = Vec::new();
    for nodes in &args.nodes {
        for scheme in Lockstep::ALL {
            let model = costs.model(scheme.like(), Direction::Out);
            let values =
                traffic.iter().map(|(_, packets)| balance(scheme, packets, model, (*nodes).into())).collect();
            let what = format!("{}, model of {}, {nodes} nodes", Traffic::Campus.name(), scheme.name());
            let row = Row::new(what, "times", values);
            rows.push(match scheme.in_the_paper(*nodes) {
                Some(figure) => row.others(Source::Flat, figure),
                None => row,
            });
        }
    }
    for scheme in Lockstep::ALL {
        let per_mille =
            |(seed, packets): &(u64, Vec<Packet>)| wrong(scheme, packets, *seed, ONE_LOST_OF) * 1000.0;
        let what = format!(
            "packets lost or doubled, model of {}, {NODES} nodes, one copy of {ONE_LOST_OF} lost",
            scheme.name()
        );
        rows.push(Row::new(what, "per mille", traffic.iter().map(per_mille).collect()));
    }
    for spread in [Spread::PacketRr, Spread::PacketSqf] {
        let per_mille = |(seed, packets): &(u64, Vec<Packet>)| {
            wrong_of_ours(spread, packets, *seed, ONE_LOST_OF) * 1000.0
        };
        let what = format!(
            "packets lost or doubled, {} with marks, {NODES} nodes, one copy of {ONE_LOST_OF} lost",
            spread.name()
        );
        rows.push(Row::new(what, "per mille", traffic.iter().map(per_mille).collect()));
    }
    rows
}

/// How many times as much as one node all nodes carry.
fn balance(scheme: Lockstep, packets: &[Packet], model: Model, nodes: usize) -> f64 {
    let (mut counting, mut dealt) = (Counting::new(scheme, nodes), Dealt::new(nodes));
    for (session, octets) in packets {
        dealt.add(counting.count(*session, *octets), *octets);
    }
    dealt.work(model, nodes, |node| node).speed_up()
}

/// The share of packets on which no node works, or more than one, if one of so many copies does not
/// reach its node.
fn wrong(scheme: Lockstep, packets: &[Packet], seed: u64, one_lost_of: u64) -> f64 {
    let nodes = (0..NODES).map(|_| Counting::new(scheme, NODES)).collect();
    let count = |node: &mut Counting, _, (session, octets)| node.count(session, octets);
    share_of_wrong(nodes, count, packets, seed, one_lost_of)
}

/// The same of ours, whose nodes carry lanes.
fn wrong_of_ours(spread: Spread, packets: &[Packet], seed: u64, one_lost_of: u64) -> f64 {
    let key = SipKey::new(u128::from(seed).to_le_bytes());
    let (nodes, carriers) = ((0..NODES).map(|_| Turns::default()).collect(), Carriers::of(NODES as u8));
    let count = |node: &mut Turns, number, (session, octets)| {
        let packet = datagram(session, number, octets);
        let lane = node.count(key, spread, &packet);
        carriers.place(lane.unwrap_or_else(|| lane::of_packet(key, spread, &packet)))
    };
    share_of_wrong(nodes, count, packets, seed, one_lost_of)
}

/// The headers of a datagram with this number in it.
fn datagram(session: u32, number: u32, octets: u16) -> Vec<u8> {
    let header = ipv4::Fields {
        tos: 0,
        total_len: octets,
        id: number as u16,
        df: true,
        ttl: 64,
        protocol: Protocol::UDP,
        src: Ipv4Addr::from(0x0a01_0000 | session & 0xffff),
        dst: Ipv4Addr::new(10, 2, 0, 20),
    };
    let ports = [4242_u16, 443, octets - ipv4::HEADER as u16, 0].map(u16::to_be_bytes);
    [&header.to_bytes()[..], ports.as_flattened(), &number.to_be_bytes(), &[0; 4]].concat()
}

/// The share of packets on which no node works, or more than one. `count`: the place of the node
/// that works on a packet, by what one node has counted; with the packet's number.
fn share_of_wrong<N>(
    mut nodes: Vec<N>,
    count: impl Fn(&mut N, u32, Packet) -> usize,
    packets: &[Packet],
    seed: u64,
    one_lost_of: u64,
) -> f64 {
    let mut random = Random(!seed);
    let mut wrong = 0_u64;
    for (number, packet) in (0..).zip(packets) {
        let works = |(place, node): (usize, &mut N)| {
            let lost = random.next().is_multiple_of(one_lost_of);
            !lost && count(node, number, *packet) == place
        };
        let workers = nodes.iter_mut().enumerate().map(works).filter(|works| *works).count();
        wrong += u64::from(workers != 1);
    }
    wrong as f64 / packets.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spread::balance::SAMPLES;

    #[test]
    fn packets_take_turns_or_go_where_fewest_octets_wait() {
        let places = |scheme| {
            let mut counting = Counting::new(scheme, 3);
            [(1, 1500), (1, 100), (2, 100), (1, 100), (2, 1500), (3, 100)].map(|(s, o)| counting.count(s, o))
        };
        assert_eq!(places(Lockstep::PacketRr), [0, 1, 2, 0, 1, 2]);
        assert_eq!(places(Lockstep::PacketSqf), [0, 1, 2, 1, 2, 1]);
        assert_eq!(places(Lockstep::SessionRr), [0, 0, 1, 0, 1, 2]);
        assert_eq!(places(Lockstep::SessionSqf), [0, 0, 1, 0, 1, 2]);
    }

    #[test]
    fn all_packets_come_once() {
        let packets = interleaved(Traffic::Equal.sessions(1), 1);
        let octets: u64 = packets.iter().map(|(_, octets)| u64::from(*octets)).sum();
        assert_eq!((packets.len(), octets), (200_000, 200_000 * 1500));
    }

    #[test]
    fn the_shortest_queue_balances_sessions_better_than_turns() {
        // The octets of a few sessions are a large part of all: a single sample says little.
        let samples: Vec<Vec<Packet>> = (1..=SAMPLES).map(campus).collect();
        let mean = |scheme| {
            let speed_up = |packets: &Vec<Packet>| balance(scheme, packets, Model::of(100.0, 1.0, 20.0), 6);
            samples.iter().map(speed_up).sum::<f64>() / samples.len() as f64
        };
        let (queue, turns) = (mean(Lockstep::SessionSqf), mean(Lockstep::SessionRr));
        assert!(queue > turns, "{queue}, {turns}");
    }

    #[test]
    fn nodes_agree_until_one_of_them_misses_a_packet() {
        let packets = campus(1);
        let packets = &packets[..packets.len() / 4];
        // By sessions the turn depends on their first packets alone.
        for (scheme, one_lost_of) in [(Lockstep::PacketRr, ONE_LOST_OF), (Lockstep::SessionRr, 1000)] {
            assert_eq!(wrong(scheme, packets, 1, u64::MAX), 0.0);
            let wrong = wrong(scheme, packets, 1, one_lost_of);
            assert!(wrong > 0.1, "{scheme:?}: {wrong}");
        }
        for spread in [Spread::PacketRr, Spread::PacketSqf] {
            assert_eq!(wrong_of_ours(spread, packets, 1, u64::MAX), 0.0);
            let wrong = wrong_of_ours(spread, packets, 1, ONE_LOST_OF);
            assert!(wrong > 0.0 && wrong < 0.01, "{spread:?}: {wrong}");
        }
    }
}
