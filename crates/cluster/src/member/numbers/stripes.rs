//! Numbers of spread Child SAs. All nodes send on such an SA, so the owner grants rows of numbers,
//! with one number for each node in each row.
//!
//! A *row clock* counts the clear packets for the spread tunnels of a shard. Every node sees all of
//! them, so the clocks of all nodes show about the same row, and their numbers stay close together:
//! the peer's replay window must hold all of them. Behind routers a clock shows how far the others
//! have come, and the nodes tell each other more often. A stripe begins at a row. So all nodes
//! change to it at the same packet, and not when each of them happens to learn of it.
//!
//! No two nodes have the same part of a stripe, and no two stripes have a number in common. A node
//! that joins uses only stripes that were granted after it came: its former self may have used more
//! of the others than anybody knows.

use super::Numbers;
use super::blocks::Ledger;
use super::marks::REKEY_RETRY_INTERVAL;
use crate::group::{Position, Ticket};
use crate::member::MemberOutput;
use crate::member::core::Core;
use crate::member::replication::replicas::{ChildReplica, Replicas, SpreadReplica};
use crate::node::NodeId;
use crate::update::{Op, Stripe};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use testudo_base::lane::Spread;
use testudo_base::shard::ShardSet;
use testudo_base::spi::{Shard, Spi};
use testudo_base::turn::InTurn;
use testudo_ike::config::EspProposal;
use testudo_ike::output::{ChildSaId, LogLevel, Time};
use testudo_ipsec::number::SequenceBlock;
use testudo_ipsec::sa::Mode;
use testudo_planted::{Plant, planted};

/// A stripe for other nodes than the last one begins this much later, so that all nodes know of it
/// by then.
pub(in crate::member) const NOTICE: Duration = Duration::from_millis(100);
/// The time over which the rate of a row clock is measured.
const RATE_SPAN: Duration = Duration::from_millis(500);

/// A row clock as this node knows it.
#[derive(Clone, Copy, Debug)]
struct RowClock {
    rows: u64,
    /// Rows a second.
    rate: u64,
    /// The clock at the beginning of the current measurement.
    measured: (u64, Time),
}

/// Stripes on their way to this node's data plane, and the row clocks.
#[derive(Debug, Default)]
pub(in crate::member) struct StripesUnderWay {
    /// Stripes of the update that is about to be published.
    new: Vec<Stripe>,
    /// Stripes that this node has granted, and those of other nodes, until all nodes know of them.
    own: VecDeque<(Ticket, Stripe)>,
    others: VecDeque<(Position, Stripe)>,
    clocks: BTreeMap<Shard, RowClock>,
    /// When this node last renewed its spread SAs because a member does not know them.
    gathered: Option<Time>,
}

impl StripesUnderWay {
    /// True if a stripe of this Child SA is on its way.
    pub(super) fn awaits(&self, spi: Spi) -> bool {
        let mut all = self.new.iter().chain(self.own.iter().map(|(_, stripe)| stripe));
        all.any(|stripe| stripe.spi == spi) || self.others.iter().any(|(_, stripe)| stripe.spi == spi)
    }

    pub(super) fn published(&mut self, ticket: Ticket) {
        self.own.extend(self.new.drain(..).map(|stripe| (ticket, stripe)));
    }

    pub(super) fn forget(&mut self, spi: Spi) {
        self.new.retain(|stripe| stripe.spi != spi);
        self.own.retain(|(_, stripe)| stripe.spi != spi);
        self.others.retain(|(_, stripe)| stripe.spi != spi);
    }

    /// This node's state is void. The row clocks stay: they only rise.
    pub(in crate::member) fn clear(&mut self) {
        self.new.clear();
        self.own.clear();
        self.others.clear();
    }

    fn own_stable(&mut self, stable: impl Fn(Ticket) -> bool) -> Vec<Stripe> {
        std::iter::from_fn(|| self.own.pop_front_if(|(ticket, _)| stable(*ticket)))
            .map(|(_, stripe)| stripe)
            .collect()
    }

    fn others_stable(&mut self, upto: Position) -> Vec<Stripe> {
        std::iter::from_fn(|| self.others.pop_front_if(|(at, _)| *at <= upto))
            .map(|(_, stripe)| stripe)
            .collect()
    }

    /// The row that the clock of a shard shows.
    fn row(&self, shard: Shard) -> u64 {
        self.clocks.get(&shard).map_or(0, |clock| clock.rows)
    }

    /// Rows a second.
    fn rate(&self, shard: Shard) -> u64 {
        self.clocks.get(&shard).map_or(0, |clock| clock.rate)
    }

    /// The rows that pass within [`NOTICE`].
    fn notice(&self, shard: Shard) -> u64 {
        let rows = u128::from(self.rate(shard)) * NOTICE.as_millis() / 1000;
        u64::try_from(rows).unwrap_or(u64::MAX)
    }

    fn clock_shows(&mut self, now: Time, shard: Shard, rows: u64) {
        let clock = self.clocks.entry(shard).or_insert(RowClock { rows, rate: 0, measured: (rows, now) });
        clock.rows = clock.rows.max(rows);
        let (from, since) = clock.measured;
        let span = now.since(since);
        if span >= RATE_SPAN {
            let passed = u128::from(clock.rows.saturating_sub(from)) * 1000 / span.as_millis();
            clock.rate = u64::try_from(passed).unwrap_or(u64::MAX);
            clock.measured = (clock.rows, now);
        }
    }
}

/// How a new Child SA of this node is spread: as its connection is configured. Logs that, or why an
/// SA of this kind cannot be spread.
pub(in crate::member) fn spread_of(core: &mut Core, child: &ChildReplica) -> Option<Spread> {
    let configured = *core.config.spread.get(&child.connection)?;
    let spread = if core.in_turn().knows(configured) { configured } else { configured.by_hash() };
    let what = format!("CHILD_SA {}{{{}}} of connection {}", child.name, child.id.0, child.connection);
    match unfit_to_spread(core, child) {
        Some(why) => {
            core.log(LogLevel::Warning, format!("{what} is not spread over the nodes: {why}"));
            None
        }
        None => {
            let why = if spread == configured { "" } else { unfit_for_turns(core) };
            core.log(LogLevel::Info, format!("{what} is spread over the nodes by {}{why}", spread.name()));
            Some(spread)
        }
    }
}

/// Why no lanes take turns, as the end of a sentence.
fn unfit_for_turns(core: &Core) -> &'static str {
    match core.is_routed() {
        true => ": behind routers nobody can count all packets",
        false => ": a node of the view runs an older version",
    }
}

/// Why a Child SA cannot be spread, if it cannot.
fn unfit_to_spread(core: &Core, child: &ChildReplica) -> Option<&'static str> {
    let params = &child.params;
    if params.algorithm.is_ah() {
        return Some("it is AH");
    }
    if params.mode != Mode::Tunnel {
        return Some("it is in transport mode");
    }
    if params.replay_window == 0 {
        return Some("replay_window is 0, and lanes need a window");
    }
    if has_ah(core, &child.connection) {
        return Some("its connection has an AH child too, and ESP inside AH stays where the AH is");
    }
    (!core.can_spread()).then_some("a node of the view runs an older version")
}

fn has_ah(core: &Core, connection: &str) -> bool {
    let mut children = core.endpoint.connection(connection).into_iter().flat_map(|found| &found.children);
    children.any(|child| child.proposals.iter().any(EspProposal::is_ah))
}

impl Numbers {
    /// The first stripe of a new Child SA of this node.
    pub(in crate::member) fn first_stripe(
        &mut self,
        core: &Core,
        child: &mut ChildReplica,
        by: Spread,
    ) -> Stripe {
        let spi = child.params.spi_in;
        let first_row = self.stripes.row(spi.shard());
        let rows = 1 << child.ledger.log2;
        let nodes = core.table.synced().to_vec();
        let stripe = Stripe { spi, by, first_row, rows, start: child.ledger.reserved, nodes };
        child.ledger.reserved = stripe.end();
        child.spread = Some(Box::new(SpreadReplica::new(stripe.clone())));
        self.stripes.new.push(stripe.clone());
        stripe
    }

    /// Grants the next stripe of a spread Child SA of this node, above `skipped` unused numbers.
    /// `at_once`: not only when the last one ends. `None`: no numbers are left, or a member of the
    /// view would not understand the stripe, and the SA must be rekeyed.
    pub(in crate::member) fn next_stripe(
        &mut self,
        core: &Core,
        replicas: &mut Replicas,
        spi: Spi,
        skipped: u64,
        at_once: bool,
    ) -> Option<Stripe> {
        let child = replicas.child_mut(spi).filter(|_| core.can_spread())?;
        let (row, notice) = (self.stripes.row(spi.shard()), self.stripes.notice(spi.shard()));
        let mut ledger = child.ledger;
        ledger.fit(self.stripes.rate(spi.shard()), child.params.esn);
        let last = &child.spread.as_ref()?.stripe;
        // The clock may be far beyond all stripes: it outlives the SAs of its shard, and daemons.
        let end = last.end_row().max(row);
        // It may begin before the last one, which has been granted ahead, and replaces that.
        let first_row = if at_once { row.saturating_add(notice).min(end) } else { end };
        let stripe = Stripe {
            spi,
            by: last.by,
            first_row,
            rows: 1 << ledger.log2,
            start: ledger.reserved.checked_add(skipped)?,
            nodes: core.table.synced().to_vec(),
        };
        if stripe.end() > SequenceBlock::whole(child.params.esn).end {
            return None;
        }
        child.ledger = Ledger { reserved: stripe.end(), ..ledger };
        replicas.set_stripe(stripe.clone());
        self.stripes.new.push(stripe.clone());
        Some(stripe)
    }

    /// Another node has granted a stripe, at this position.
    pub(in crate::member) fn stripe_granted(
        &mut self,
        core: &Core,
        replicas: &mut Replicas,
        at: Position,
        stripe: Stripe,
    ) {
        let Some(child) = replicas.child_mut(stripe.spi) else { return };
        child.ledger.reserved = child.ledger.reserved.max(stripe.end());
        let known = child.spread.as_ref().map_or(0, |spread| spread.stripe.start);
        if stripe.start < known {
            return;
        }
        child.ledger.log2 = stripe.rows.max(1).ilog2() as u8;
        replicas.set_stripe(stripe.clone());
        self.sends_with(core, at, stripe);
    }

    /// This node sends with its part of another node's stripe, if it has one, once all nodes know
    /// of it.
    pub(in crate::member) fn sends_with(&mut self, core: &Core, at: Position, stripe: Stripe) {
        if stripe.nodes.contains(&core.node) {
            self.stripes.others.push_back((at, stripe));
        }
    }

    /// Stripes for spread Child SAs in these shards in whose last stripe a node has no numbers, or
    /// only its former self has: that of a node that has joined. Also the Child SAs that have no
    /// numbers left, and must be rekeyed.
    pub(in crate::member) fn stripes_for_all(
        &mut self,
        core: &Core,
        replicas: &mut Replicas,
        shards: ShardSet,
        joined: &[NodeId],
    ) -> (Vec<Op>, Vec<ChildSaId>) {
        let synced = core.table.synced();
        let lacks =
            |stripe: &Stripe| synced.iter().any(|node| joined.contains(node) || !stripe.nodes.contains(node));
        let lacking: Vec<(Spi, ChildSaId)> = replicas
            .spread()
            .filter(|(spi, _, spread)| shards.contains(spi.shard()) && lacks(&spread.stripe))
            .map(|(spi, child, _)| (spi, child.id))
            .collect();
        let (mut ops, mut used_up) = (Vec::new(), Vec::new());
        for (spi, child) in lacking {
            match self.next_stripe(core, replicas, spi, 0, true) {
                Some(stripe) => ops.push(Op::Stripe(stripe)),
                None => used_up.push(child),
            }
        }
        (ops, used_up)
    }

    pub(in crate::member) fn own_stripes_stable(&mut self, core: &mut Core, replicas: &Replicas) {
        let commits = &core.commits;
        let stable = self.stripes.own_stable(|ticket| commits.is_stable(ticket));
        self.use_stripes(core, replicas, stable);
    }

    pub(in crate::member) fn stripes_stable(&mut self, core: &mut Core, replicas: &Replicas, upto: Position) {
        let stable = self.stripes.others_stable(upto);
        self.use_stripes(core, replicas, stable);
    }

    fn use_stripes(&mut self, core: &mut Core, replicas: &Replicas, stripes: Vec<Stripe>) {
        if stripes.is_empty() {
            return;
        }
        for stripe in stripes {
            let Some(child) = replicas.child(stripe.spi).map(|child| child.id) else { continue };
            let Some(part) = stripe.part_of(core.node) else { continue };
            core.outputs.push_back(MemberOutput::Stripe { child, spi_in: stripe.spi, stripe: part });
        }
        self.switch_with_numbers(core, replicas);
    }

    /// If a member of the view does not know spread Child SAs, or not those whose lanes take turns,
    /// this node renews its own: the new ones are not. Members of different versions would go on
    /// with different schemes once the older one is upgraded. To be called again and again: a Child
    /// SA that the peer has just made cannot be rekeyed before the peer sends on it.
    pub(in crate::member) fn gather_spread(&mut self, core: &mut Core, replicas: &Replicas, now: Time) {
        let just_done = |at: Time| now.since(at) < REKEY_RETRY_INTERVAL;
        let (none, in_turn) = (!core.can_spread(), core.in_turn());
        if !none && in_turn == InTurn::Sessions || self.stripes.gathered.is_some_and(just_done) {
            return;
        }
        self.stripes.gathered = Some(now);
        let owned = core.table.owned_by(core.node);
        for (_, child, spread) in replicas.spread().filter(|(spi, ..)| owned.contains(spi.shard())) {
            if none || !in_turn.knows(spread.stripe.by) {
                core.endpoint.rekey_child(now, child.id);
            }
        }
    }

    /// Spread Child SAs of this node whose last stripe has begun by the clock: one stripe is always
    /// granted ahead. Other nodes may send all of their packets, so the owner's own workers need not
    /// notice.
    pub(in crate::member) fn stripes_that_run_low(&self, core: &Core, replicas: &Replicas) -> Vec<Spi> {
        let is_low = |spi: Spi, spread: &SpreadReplica| {
            let clock = self.stripes.clocks.get(&spi.shard());
            core.table.owner(spi.shard()) == Some(core.node)
                && clock.is_some_and(|clock| clock.rows >= spread.stripe.first_row)
        };
        replicas.spread().filter(|(spi, _, spread)| is_low(*spi, spread)).map(|(spi, ..)| spi).collect()
    }

    /// The row clocks of this node, for the others: those of shards with spread Child SAs.
    pub(in crate::member) fn show_clocks(
        &mut self,
        core: &mut Core,
        replicas: &Replicas,
        now: Time,
        row_of: impl Fn(Shard) -> u64,
    ) {
        let homes: BTreeSet<Shard> = match core.can_spread() {
            true => replicas.spread().map(|(spi, ..)| spi.shard()).collect(),
            false => BTreeSet::new(),
        };
        let shown: Vec<(Shard, u64)> = homes.into_iter().map(|shard| (shard, row_of(shard))).collect();
        for (shard, rows) in &shown {
            self.stripes.clock_shows(now, *shard, *rows);
        }
        core.group.set_row_clocks(if planted(Plant::RowsNotTold) { Vec::new() } else { shown });
    }
}

#[cfg(test)]
mod tests;
