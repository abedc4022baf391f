//! After the faults: the final checks, and the outcome.

use super::World;
use super::traffic::Flow;
use crate::checks::{Invariant, Violation};
use crate::engine::Nanos;
use crate::trace::{Line, Who};
use std::collections::BTreeMap;
use std::fmt;
use testudo_base::spi::Shard;
use testudo_cluster::group::Standing;

/// Interval of the checks whether nodes agree.
const AGREEMENT_INTERVAL: Nanos = 7_000_000;
/// How far the rows of nodes may be apart: more than the packets of all tunnels with one home during
/// some heartbeats.
const MAX_ROWS_APART: u64 = 32;

/// What is not as it was before the faults, and whose it is.
pub(super) type Amiss = (Who, String);

/// The outcome of a seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Nodes and peers.
    pub size: (usize, usize),
    /// Steps made.
    pub steps: u64,
    /// Digest of all events.
    pub digest: u64,
    /// Faults, by name.
    pub faults: BTreeMap<&'static str, u64>,
    /// Violations.
    pub violations: Vec<Violation>,
    /// The last lines of the trace.
    pub trace: Vec<Line>,
    /// The counters.
    pub counters: BTreeMap<&'static str, u64>,
    /// Time of its end.
    pub at: Nanos,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (nodes, peers) = self.size;
        writeln!(f, "seed {}: {nodes} nodes, {peers} peers, {} steps", self.seed, self.steps)?;
        for line in &self.trace {
            writeln!(f, "  {line}")?;
        }
        for violation in &self.violations {
            writeln!(f, "seed {}, step {}: {violation}", self.seed, self.steps)?;
        }
        Ok(())
    }
}

impl World {
    /// All nodes except a permanently stopped one are in one quorate view, have the state, and
    /// agree on it.
    pub(super) fn do_nodes_agree(&self) -> bool {
        let standings = self.standings();
        let agree = standings.windows(2).all(|pair| pair.first() == pair.last());
        let well = standings.iter().all(|(standing, _)| standing.quorate && standing.synced);
        let all = self.alive() - usize::from(self.fate.stopped.is_some());
        let whole = standings.iter().all(|(standing, _)| standing.members == all);
        standings.len() == all && whole && agree && well || self.is_alone()
    }

    /// True if a node stands still for good, and the others are together and wait for it.
    pub(super) fn is_state_awaited(&self) -> bool {
        let standings = self.standings();
        let all = self.slots.len() - usize::from(self.fate.stopped.is_some());
        let waits = |(standing, _): &(Standing, u64)| standing.members == all && standing.waits;
        self.fate.stopped.is_some() && standings.len() == all && standings.iter().all(waits)
    }

    /// Positions of all nodes, and their digests of the state.
    fn standings(&self) -> Vec<(Standing, u64)> {
        let awake = self.slots.iter().enumerate().filter(|(node, _)| self.fate.stopped != Some(*node));
        let hosts = awake.filter_map(|(_, slot)| slot.host.as_ref());
        hosts.filter_map(|host| Some((host.standing()?, host.state()))).collect()
    }

    /// The number of nodes that have not died.
    fn alive(&self) -> usize {
        self.slots.iter().filter(|slot| slot.host.is_some()).count()
    }

    /// True for a gateway that is not in a cluster.
    fn is_alone(&self) -> bool {
        self.slots.len() == 1 && self.standings().is_empty()
    }

    /// Watches the traffic for a while. Returns the first thing that is not as it was before the
    /// faults.
    pub(super) fn watch(&mut self) -> Option<Amiss> {
        self.deal_anew();
        self.traffic.watch(self.schedule.now);
        let disagreement = self.watch_agreement();
        disagreement
            .or_else(|| self.poor_flow())
            .or_else(|| self.counted_apart())
            .or_else(|| self.rows_apart())
            .or_else(|| self.not_followed())
    }

    /// Watches whether the nodes agree, with each other and with peers about their SAs.
    pub(super) fn watch_agreement(&mut self) -> Option<Amiss> {
        let tail = self.schedule.now + self.scenario.watch;
        // At any single moment something may be in transit, but not always.
        while self.schedule.now < tail && !(self.do_nodes_agree() && self.relics().is_empty()) {
            self.run_until(self.schedule.now + AGREEMENT_INTERVAL);
        }
        let disagreement = self.disagreement().or_else(|| self.relic());
        self.run_until(tail);
        disagreement
    }

    /// The world has not recovered, unless something else was wrong before.
    pub(super) fn blame(&mut self, (who, what): Amiss) {
        if self.checks.violations().is_empty() {
            self.checks.violate(Invariant::Recovery, self.schedule.now, who, what);
        }
    }

    pub(super) fn disagreement(&self) -> Option<Amiss> {
        let what = || format!("the nodes do not agree: {:x?}", self.standings());
        (!self.do_nodes_agree()).then(|| (Who::World, what()))
    }

    /// Nodes that are far apart with the rows of spread SAs: each tells the others.
    fn rows_apart(&self) -> Option<Amiss> {
        let mut rows: BTreeMap<Shard, Vec<u64>> = BTreeMap::new();
        for host in self.slots.iter().filter(|slot| slot.runs()).filter_map(|slot| slot.host.as_ref()) {
            host.rows().into_iter().for_each(|(home, row)| rows.entry(home).or_default().push(row));
        }
        let apart = |rows: &[u64]| Some(rows.iter().max()? - rows.iter().min()?);
        let (home, rows) = rows.into_iter().find(|(_, rows)| apart(rows) > Some(MAX_ROWS_APART))?;
        Some((Who::World, format!("rows of shard {} are apart: {rows:?}", home.0)))
    }

    /// A tunnel through which the traffic that is watched does not flow in both directions.
    pub(super) fn poor_flow(&self) -> Option<Amiss> {
        let ways = (0..self.peers.len()).flat_map(|peer| [(peer, false), (peer, true)]);
        let flows =
            ways.map(|(peer, outward)| (peer, outward, self.traffic.flow(peer, outward, self.schedule.now)));
        let is_poor = |flow: &Flow| flow.arrived * 10 < flow.sent * 8 || flow.sent > 0 && flow.arrived == 0;
        let (peer, outward, flow) = flows.into_iter().find(|(_, _, flow)| is_poor(flow))?;
        let way = if outward { "to" } else { "from" };
        let drops = self.peers[peer].plane().drops();
        let what =
            format!("of {} packets {way} it {} have arrived; drops {drops:?}", flow.sent, flow.arrived);
        Some((Who::Peer(peer), what))
    }

    /// A tunnel whose lanes take turns, and of which a node counts otherwise than the others: some
    /// packets go out twice, and others not at all. One that overtakes another may do so.
    fn counted_apart(&self) -> Option<Amiss> {
        let spread = self.scenario.spread.iter().enumerate();
        let in_turn = spread.filter(|(_, by)| by.is_some_and(|by| by.turns().is_some()));
        let flows = in_turn.map(|(peer, _)| (peer, self.traffic.flow(peer, true, self.schedule.now)));
        let is_apart = |flow: &Flow| (flow.sent - flow.arrived).max(flow.doubled) > 1 + flow.sent / 20;
        let (peer, flow) = flows.into_iter().find(|(_, flow)| is_apart(flow))?;
        Some((Who::Peer(peer), format!("nodes count its packets apart: {flow:?}")))
    }

    /// Checks that peers account for each packet.
    pub(super) fn check_peers_accounts(&mut self) {
        if !self.checks.violations().is_empty() {
            return;
        }
        for (peer, totals) in self.peers.iter().map(|peer| peer.plane().totals()).enumerate() {
            if !(totals.inbound.is_balanced() && totals.outbound.is_balanced()) {
                let (now, who) = (self.schedule.now, Who::Peer(peer));
                self.checks.violate(Invariant::Accounting, now, who, format!("{totals:?}"));
            }
        }
    }

    pub(super) fn outcome(self) -> Outcome {
        let mut counters = BTreeMap::from([
            ("views", self.engines.views),
            ("messages lost with their senders", self.engines.lost),
            ("packets sent", self.traffic.sent()),
            ("packets delivered", self.traffic.delivered),
            ("packets delivered twice", self.traffic.doubles),
            ("ESP packets", self.checks.esp_packets),
            ("IKE messages", self.checks.ike_messages),
            ("tunnels", self.tunnels.iter().map(|tunnel| tunnel.ups).sum()),
            ("rekeyings", self.traffic.rekeys + self.traffic.ike_rekeys),
            ("provisional doubles", self.checks.provisional_doubles),
            ("unseen doubles", self.checks.unseen_doubles),
            ("losses of the whole state", self.fate.state_lost),
            ("copies lost", self.network.lost),
            ("packets relayed", self.relayed),
        ]);
        for host in self.slots.iter().filter_map(|slot| slot.host.as_ref()) {
            for (name, count) in host.counters() {
                *counters.entry(name).or_insert(0) += count;
            }
        }
        Outcome {
            seed: self.scenario.seed,
            size: (self.scenario.nodes, self.peers.len()),
            steps: self.trace.steps,
            digest: self.trace.digest(),
            faults: self.fate.counts.iter().map(|(kind, count)| (kind.name(), *count)).collect(),
            violations: self.checks.violations().to_vec(),
            trace: self.trace.lines().copied().collect(),
            counters,
            at: self.schedule.now,
        }
    }
}
