//! A spread SA at three nodes whose lanes change, whatever comes in whatever order.

use crate::cluster::{OTHER_NODE, back, peer, verdicts};
use crate::harness::{Gateway, SPI_A, Tunnel, Way, forwarded, run};
use crate::spread::{Clock, floor, in_session, member, set_stripes, stripe};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use testudo_base::lane::{self, Spread};
use testudo_base::shard::ShardSet;
use testudo_base::spi::Shard;
use testudo_ipsec::dataplane::{Command, Ingress, Verdict};
use testudo_ipsec::number::Stripe;
use testudo_ipsec::replay::ReplayWindow;

const NODES: usize = 3;
/// What the harness's tunnel has.
const WINDOW: u64 = 64;

/// The nodes, and which of them carries each lane.
struct Cluster {
    nodes: [Gateway; NODES],
    owners: [usize; 256],
}

impl Cluster {
    fn new(tunnel: &Tunnel, by: Spread, owners: &[usize]) -> Self {
        let owners: [usize; 256] = owners.try_into().unwrap();
        let nodes = [0, 1, 2].map(|node| member(tunnel, by, of(&owners, node)));
        Self { nodes, owners }
    }

    /// Gives lanes to a node, as control does: first their former nodes stop, then the new one
    /// learns their tops.
    fn give(&mut self, lanes: ShardSet, to: usize) {
        let mut floors = Vec::new();
        for (from, node) in self.nodes.iter_mut().enumerate().filter(|(from, _)| *from != to) {
            let lost = of(&self.owners, from).intersection(lanes);
            node.plane.apply(Command::SetShards(of(&self.owners, from).without(lanes)));
            let tops = node.inbound.lane_tops(lost);
            floors.extend(tops.into_iter().map(|(lane, top)| floor(lane, top)));
        }
        lanes.iter().for_each(|lane| self.owners[usize::from(lane.0)] = to);
        self.nodes[to].plane.apply(Command::TakeInLanes(floors.into()));
        self.nodes[to].plane.apply(Command::SetShards(of(&self.owners, to)));
    }
}

fn of(owners: &[usize; 256], node: usize) -> ShardSet {
    (0..=255).filter(|lane| owners[usize::from(*lane)] == node).map(Shard).collect()
}

#[derive(Clone, Debug)]
enum Step {
    /// The next packets of the peer, a burst, in another order.
    Fresh(Vec<usize>),
    /// Packets so far back for the second time.
    Replay(Vec<usize>),
    Give {
        lanes: [u64; 4],
        to: usize,
    },
}

fn inbound_steps() -> impl Strategy<Value = Vec<Step>> {
    let lanes = prop_oneof![any::<[u64; 4]>(), Just([u64::MAX; 4])];
    let step = prop_oneof![
        4 => prop::collection::vec(0_usize..40, 1..50).prop_map(Step::Fresh),
        3 => prop::collection::vec(0_usize..200, 1..80).prop_map(Step::Replay),
        2 => (lanes, 0..NODES).prop_map(|(lanes, to)| Step::Give { lanes, to }),
    ];
    prop::collection::vec(step, 1..30)
}

fn owners() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0..NODES, 256)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    /// No number is accepted twice, at whichever nodes; and none is lost that is in order within its
    /// lane and within the window.
    #[test]
    fn each_number_is_accepted_once(owners in owners(), steps in inbound_steps(), esn in any::<bool>()) {
        let tunnel = Tunnel { esn, ..Tunnel::default() };
        let mut cluster = Cluster::new(&tunnel, Spread::PacketHash, &owners);
        let mut peer = peer(&tunnel);
        // The packet with number n is at n - 1.
        let mut sent: Vec<Vec<u8>> = Vec::new();
        let mut accepted = Vec::new();
        let (mut highest, mut of_lane) = (0, [0; 256]);
        for step in steps {
            let numbers: Vec<usize> = match step {
                Step::Give { lanes, to } => {
                    cluster.give(ShardSet::from_words(lanes), to);
                    continue;
                }
                Step::Fresh(moves) => {
                    let first = sent.len() + 1;
                    sent.extend(forwarded(peer.outbound(&back(moves.len()))));
                    accepted.resize(sent.len() + 1, false);
                    let mut numbers: Vec<_> = moves.iter().enumerate().map(|(at, by)| (at + by, first + at)).collect();
                    numbers.sort_unstable();
                    numbers.into_iter().map(|(_, number)| number).collect()
                }
                Step::Replay(back) => {
                    back.into_iter().filter_map(|back| sent.len().checked_sub(back)).filter(|n| *n > 0).collect()
                }
            };
            let packets: Vec<_> = numbers.iter().map(|number| sent[number - 1].clone()).collect();
            let found = cluster.nodes.each_mut().map(|node| verdicts(&node.inbound(&packets)));
            for (at, number) in numbers.into_iter().enumerate() {
                let lane = usize::from(lane::of_number(SPI_A, number as u32).0);
                let takers: Vec<_> = (0..NODES).filter(|node| found[*node][at] == Verdict::Forward).collect();
                prop_assert!(takers.iter().all(|node| *node == cluster.owners[lane]), "{} at {:?}", number, takers);
                let is_in_order = number as u64 > of_lane[lane] && number as u64 + WINDOW > highest;
                prop_assert!(!(takers.len() == 1 && accepted[number]), "{} twice", number);
                prop_assert!(takers.len() == 1 || !is_in_order, "{} is lost", number);
                accepted[number] |= !takers.is_empty();
                highest = highest.max(number as u64);
                of_lane[lane] = of_lane[lane].max(number as u64);
            }
        }
        for node in &cluster.nodes {
            prop_assert!(node.plane.counters().totals().inbound.is_balanced());
        }
    }

    /// Each packet that all nodes get leaves once, with a number of its own; and the peer, whose
    /// window has 128 packets, accepts all of them as they come.
    #[test]
    fn each_flooded_packet_is_sent_once_and_within_the_peers_window(
        owners in owners(),
        by in prop::sample::select(vec![Spread::SessionHash, Spread::PacketHash]),
        bursts in prop::collection::vec((1_usize..20, 0_u16..8, 0..NODES, any::<[u64; 4]>(), any::<bool>()), 1..60),
        rows in 40_u64..200,
    ) {
        let mut cluster = Cluster::new(&Tunnel::default(), by, &owners);
        let clock = Arc::new(Clock::default());
        for node in &mut cluster.nodes {
            node.plane.apply(Command::SetClock(clock.clone()));
        }
        let window = ReplayWindow::new(128, true).unwrap();
        let mut granted = Vec::new();
        let mut number = 0;
        for (count, session, first, lanes, gives) in bursts {
            let row = clock.0.load(Relaxed);
            // The owner grants the next stripe in time.
            while granted.last().is_none_or(|last: &Stripe| row + 100 > last.first_row + last.rows) {
                let (first_row, start) =
                    granted.last().map_or((0, 1), |last: &Stripe| (last.first_row + last.rows, last.end()));
                granted.push(stripe(first_row, rows, start));
                for (class, node) in cluster.nodes.iter_mut().enumerate() {
                    let own: Vec<_> = granted.iter().map(|stripe| Stripe { class: class as u8, ..*stripe }).collect();
                    set_stripes(node, &own);
                }
            }
            if gives {
                cluster.give(ShardSet::from_words(lanes), first);
            }
            // All filters count the burst before any node works on it.
            clock.0.store(row + count as u64, Relaxed);
            let packets: Vec<_> = (0..count as u64).map(|at| in_session(session, number + at, 100)).collect();
            number += count as u64;
            let mut sent = vec![0; count];
            for turn in 0..NODES {
                let node = &mut cluster.nodes[(first + turn) % NODES];
                let found = run(&mut node.plane, Way::Outbound, Ingress::Flooded, &packets);
                for ((verdict, packet), sent) in found.iter().zip(&mut sent) {
                    if *verdict != Verdict::Forward {
                        prop_assert_eq!(*verdict, OTHER_NODE);
                        continue;
                    }
                    *sent += 1;
                    let number = u32::from_be_bytes(packet[24..28].try_into().unwrap());
                    prop_assert_eq!(window.accept(number.into()), Ok(()), "{} behind {}", number, window.high_water_mark());
                }
            }
            prop_assert_eq!(sent, vec![1; count]);
        }
    }
}
