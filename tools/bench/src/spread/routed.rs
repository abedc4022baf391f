//! One tunnel over nodes behind routers, which bring each packet to one node.
//!
//! To the peer, that node sends the packet itself: no node pays for the packets of others, and the
//! routers' hash alone decides how evenly they are dealt out. From the peer, all packets of the
//! tunnel have the same two addresses, so routers bring them to one node. It relays those of the
//! lanes that others carry.

use super::balance::{Dealt, samples};
use super::costs::Model;
use super::filter::Filters;
use super::scheme::Scheme;
use super::traffic::Traffic;
use super::{Direction, SpreadArgs};
use crate::error::BenchError;
use crate::esp::Suite;
use crate::esp::gateway::Membership;
use crate::esp::relay::line::RelayLine;
use crate::esp::rig::Rig;
use crate::esp::traffic::Traffic as Sizes;
use crate::figures::{Aim, Row};
use crate::pin::pinned;
use crate::stopwatch::Stopwatch;
use std::time::Duration;
use testudo_base::lane::Spread;
use testudo_base::siphash::SipKey;
use testudo_base::spi::RelayKind;
use testudo_crypto::Library;
use testudo_terminal::progress::Progress;

/// The part of the ideal speed-up that six nodes reach, at least, with many sessions.
const EFFICIENCY: f64 = 0.97;
/// Equal sessions behind a large site.
const MANY: u32 = 100_000;
/// The pipelines alternate after this time.
const TURN: Duration = Duration::from_millis(2);

/// Nanoseconds of a packet, one value a round.
#[derive(Debug, Default)]
struct Costs {
    /// At the node that works on it, by direction: R.
    own: [Vec<f64>; 2],
    /// From the peer, at the node that relays it: F.
    relaying: Vec<f64>,
    /// And at its carrier: C.
    carrying: Vec<f64>,
}

pub(super) fn measure(args: &SpreadArgs, progress: &Progress) -> Result<Vec<Row>, BenchError> {
    let costs = pinned(args.cpu, || rounds(args, progress))?;
    Ok(rows(args, &costs, progress))
}

fn rounds(args: &SpreadArgs, progress: &Progress) -> Result<Costs, BenchError> {
    let (library, sizes) = (Library::detect(), Sizes::of(args.size));
    let mut rig = Rig::new(library, Suite::AES128GCM16, sizes, Membership::Routed(Spread::SessionHash))?;
    let mut line = RelayLine::new(library, Suite::AES128GCM16, sizes, &RelayKind::SAS)?;
    let filters = Filters::behind_routers(Scheme::SessionHash)?;
    let mut own = [const { Stopwatch::new() }; 2];
    let mut relayed = [const { [const { Stopwatch::new() }; 2] }; 2];
    let round = Duration::from_secs_f64(args.seconds / f64::from(args.rounds));
    let mut costs = Costs::default();
    progress.begin("spread, behind routers", u64::from(args.rounds) + 1);
    for number in 0..=args.rounds {
        while own[0].time() < round {
            let (own_end, relayed_end) = (own[0].time() + TURN, relayed[1][0].time() + TURN);
            while own[0].time() < own_end {
                let [out, back] = &mut own;
                rig.run(out, back)?;
            }
            while relayed[1][0].time() < relayed_end {
                line.run(&mut relayed)?;
            }
        }
        let filter = |direction| filters.cost(direction, args.size).map(|cost| cost.own);
        let [out, back] = [filter(Direction::Out)?, filter(Direction::In)?];
        // The first round warms up and does not count.
        if number > 0 {
            costs.own[0].push(own[0].median().ns + out);
            costs.own[1].push(own[1].median().ns + back);
            costs.relaying.push(relayed[1][0].median().ns + back);
            costs.carrying.push(relayed[1][1].median().ns + back);
        }
        own.iter_mut().chain(relayed.iter_mut().flatten()).for_each(Stopwatch::reset);
        progress.step();
    }
    Ok(costs)
}

fn rows(args: &SpreadArgs, costs: &Costs, progress: &Progress) -> Vec<Row> {
    let row = |name: &str, values: &Vec<f64>| Row::new(name, "ns", values.clone());
    let mut rows = vec![
        row("R out", &costs.own[0]),
        row("R in", &costs.own[1]),
        row("F in, the node that relays", &costs.relaying),
        row("C in, the carrier", &costs.carrying),
    ];
    let steps = (args.nodes.len() as u64) * (Traffic::ALL.len() as u64 + 1) * args.samples;
    progress.begin("spread, routers deal traffic out", steps);
    for nodes in &args.nodes {
        let name = |what: &str| format!("{nodes} nodes, {what}");
        let many = Row::new(
            name("out, 100 000 equal sessions"),
            "times",
            samples(args, progress, |seed| many(*nodes, seed)),
        );
        rows.push(if *nodes == 6 { many.aim(Aim::median_at_least(EFFICIENCY * 6.0)) } else { many });
        for traffic in Traffic::ALL {
            let values = samples(args, progress, |seed| dealt(traffic, *nodes, seed));
            rows.push(Row::new(name(&format!("out, {}", traffic.name())), "times", values));
        }
        let each = costs.own[1].iter().zip(&costs.relaying).zip(&costs.carrying);
        let values = each.map(|((own, relaying), carrying)| inward(*nodes, *own, *relaying, *carrying));
        rows.push(Row::new(name("in, one SA"), "times", values.collect()));
    }
    rows
}

/// The node to which routers bring the packets of a session: by a hash of its addresses and ports.
fn node_of(session: u32, nodes: u8, seed: u64) -> usize {
    let key =
        SipKey::new(u128::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_le_bytes());
    (key.hash(&session.to_be_bytes()) % u64::from(nodes)) as usize
}

/// All nodes together, relative to one, with many equal sessions.
fn many(nodes: u8, seed: u64) -> f64 {
    let mut sessions = vec![0_u32; nodes.into()];
    (0..MANY).for_each(|session| sessions[node_of(session, nodes, seed)] += 1);
    f64::from(MANY) / f64::from(sessions.into_iter().max().unwrap_or(MANY))
}

/// All nodes together, relative to one, with such traffic.
fn dealt(traffic: Traffic, nodes: u8, seed: u64) -> f64 {
    let mut dealt = Dealt::new(nodes.into());
    for session in traffic.sessions(seed) {
        let node = node_of(session.number(), nodes, seed);
        session.for_each(|_, octets| dealt.add(node, octets));
    }
    dealt.work(Model::behind_routers(), nodes.into(), |node| node).speed_up()
}

/// From the peer, all nodes together relative to one: all packets reach one node.
fn inward(nodes: u8, own: f64, relaying: f64, carrying: f64) -> f64 {
    let (nodes, others) = (f64::from(nodes), f64::from(nodes) - 1.0);
    let carrier = if others > 0.0 { carrying / nodes } else { 0.0 };
    own / (own / nodes + relaying * others / nodes).max(carrier)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spread::balance::SAMPLES;

    #[test]
    fn many_sessions_use_six_nodes_nearly_whole() {
        for seed in 1..=SAMPLES {
            assert!((EFFICIENCY * 6.0..6.0).contains(&many(6, seed)), "{}", many(6, seed));
        }
        assert_eq!(many(1, 1), 1.0);
        let one = dealt(Traffic::One, 6, 1);
        assert!((one - 1.0).abs() < 1e-9, "a stream stays on its node: {one}");
    }

    #[test]
    fn the_node_that_relays_decides_what_comes_from_the_peer() {
        assert_eq!(inward(1, 100.0, 110.0, 200.0), 1.0);
        assert!((inward(2, 100.0, 100.0, 200.0) - 1.0).abs() < 1e-9);
        // Were relaying free, the carriers' work would.
        assert_eq!(inward(4, 100.0, 0.0, 200.0), 2.0);
    }
}
