//! [FLAT]'s own schemes, as a model: every node counts all packets, and finds by itself which of
//! them are its own. A node that has missed one copy of a packet counts otherwise than the others
//! from then on. Testudo begins the count again with each mark ([`testudo_base::turn`]), and its nodes
//! tell each other of sessions ([`testudo_base::session`]).
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
use std::sync::atomic::AtomicU64;
use testudo_base::lane::{self, Spread};
use testudo_base::session::{SLOTS, Sessions};
use testudo_base::siphash::SipKey;
use testudo_base::spi::Shard;
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
/// Testudo's schemes in which something takes turns.
const OURS: [Spread; 4] = [Spread::PacketRr, Spread::PacketSqf, Spread::SessionRr, Spread::SessionSqf];
/// Packets in the time of a heartbeat, and in that after which a session without any is over.
const HEARTBEAT: u32 = 1000;
const LIFETIME: u32 = 50_000;

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
    rows.extend(rows_of_ours(args, costs, &traffic));
    rows
}

/// The same of Testudo's schemes.
fn rows_of_ours(args: &SpreadArgs, costs: &Costs, traffic: &[(u64, Vec<Packet>)]) -> Vec<Row> {
    let mut rows = Vec::new();
    for nodes in &args.nodes {
        for (spread, model) in
            [(Spread::SessionRr, Scheme::SessionRr), (Spread::SessionSqf, Scheme::SessionSqf)]
        {
            let model = costs.model(model, Direction::Out);
            let times =
                |(seed, packets): &(u64, Vec<Packet>)| balance_of_ours(spread, packets, *seed, model, *nodes);
            let what = format!("{}, {} as it comes, {nodes} nodes", Traffic::Campus.name(), spread.name());
            rows.push(Row::new(what, "times", traffic.iter().map(times).collect()));
        }
    }
    for spread in OURS {
        let per_mille = |(seed, packets): &(u64, Vec<Packet>)| {
            wrong_of_ours(spread, packets, *seed, ONE_LOST_OF) * 1000.0
        };
        let with = if spread.has_sessions() { "marks and tables that are told" } else { "marks" };
        let what = format!(
            "packets lost or doubled, {} with {with}, {NODES} nodes, one copy of {ONE_LOST_OF} lost",
            spread.name()
        );
        rows.push(Row::new(what, "per mille", traffic.iter().map(per_mille).collect()));
    }
    rows
}

/// What one node counts, and the sessions that it knows.
struct Node {
    turns: Turns,
    words: Vec<AtomicU64>,
}

impl Node {
    fn new() -> Self {
        let words = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        Self { turns: Turns::default(), words }
    }

    fn sessions(&self) -> Sessions<'_> {
        Sessions::of(&self.words)
    }

    /// The lane of a packet.
    fn count(&mut self, key: SipKey, spread: Spread, number: u32, (session, octets): Packet) -> Shard {
        let packet = datagram(session, number, octets);
        let lane = self.turns.count(key, spread, &packet, Sessions::of(&self.words));
        lane.unwrap_or_else(|| lane::of_packet(key, spread, &packet))
    }

    /// Forgets the sessions that were not seen since the last call.
    fn forget(&self) {
        let over = (0..SLOTS).filter(|slot| !self.sessions().was_seen(*slot));
        over.for_each(|slot| self.sessions().forget(slot));
    }
}

/// A heartbeat's time has passed: the first node tells the others of its sessions. In truth each of
/// them tells a part.
fn tell(nodes: &mut [Node]) {
    let Some((authority, others)) = nodes.split_first() else { return };
    authority.sessions().grow_older();
    for other in others {
        other.sessions().grow_older();
        let told = (0..SLOTS).filter_map(|slot| authority.sessions().tell(slot));
        for told in told {
            other.sessions().follow(told);
        }
    }
}

/// How many times as much as one node these carry, whose lanes are as even as shards.
fn balance_of_ours(spread: Spread, packets: &[Packet], seed: u64, model: Model, nodes: u8) -> f64 {
    let (key, carriers) = (SipKey::new(u128::from(seed).to_le_bytes()), Carriers::of(nodes));
    let (mut node, mut dealt) = (Node::new(), Dealt::new(nodes.into()));
    for (number, packet) in (0..).zip(packets) {
        dealt.add(carriers.place(node.count(key, spread, number, *packet)), packet.1);
        if number % LIFETIME == LIFETIME - 1 {
            node.forget();
        }
    }
    dealt.work(model, nodes.into(), |node| node).speed_up()
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
    share_of_wrong(nodes, count, |_, _| (), packets, seed, one_lost_of)
}

/// The same of ours, whose nodes carry lanes.
fn wrong_of_ours(spread: Spread, packets: &[Packet], seed: u64, one_lost_of: u64) -> f64 {
    let key = SipKey::new(u128::from(seed).to_le_bytes());
    let (nodes, carriers) = ((0..NODES).map(|_| Node::new()).collect(), Carriers::of(NODES as u8));
    let count = |node: &mut Node, number, packet| carriers.place(node.count(key, spread, number, packet));
    let pass = |nodes: &mut [Node], number: u32| {
        if spread.has_sessions() && number.is_multiple_of(HEARTBEAT) {
            tell(nodes);
        }
        if spread.has_sessions() && number % LIFETIME == LIFETIME - 1 {
            nodes.first().into_iter().for_each(Node::forget);
        }
    };
    share_of_wrong(nodes, count, pass, packets, seed, one_lost_of)
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
/// that works on a packet, by what one node has counted; with the packet's number. `pass`: what
/// happens after the packet.
fn share_of_wrong<N>(
    mut nodes: Vec<N>,
    count: impl Fn(&mut N, u32, Packet) -> usize,
    pass: impl Fn(&mut [N], u32),
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
        pass(&mut nodes, number);
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

    /// They carry what the paper's carry, although lanes stand in the place of nodes, the count begins
    /// again with each mark, and a session chooses among four lanes only.
    #[test]
    fn sessions_of_ours_are_balanced_as_well_as_the_papers() {
        let (packets, model) = (campus(1), Model::of(100.0, 1.0, 20.0));
        for (spread, papers) in
            [(Spread::SessionRr, Lockstep::SessionRr), (Spread::SessionSqf, Lockstep::SessionSqf)]
        {
            let papers = balance(papers, &packets, model, 6);
            let ours = balance_of_ours(spread, &packets, 1, model, 6);
            assert!(ours > 0.9 * papers, "{spread:?}: {ours}, {papers}");
        }
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
        for spread in OURS {
            assert_eq!(wrong_of_ours(spread, packets, 1, u64::MAX), 0.0);
            let wrong = wrong_of_ours(spread, packets, 1, ONE_LOST_OF);
            assert!(wrong > 0.0 && wrong < 0.01, "{spread:?}: {wrong}");
        }
    }
}
