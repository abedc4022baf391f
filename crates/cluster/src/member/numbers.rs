//! Sequence numbers on their way: granted, stable, given to the data plane.

pub(super) mod blocks;
pub(super) mod lane_floors;
pub(super) mod line_rates;
pub(super) mod marks;
pub(super) mod stripes;
#[cfg(test)]
mod tests;

use super::MemberOutput;
use super::core::Core;
use super::replication::replicas::Replicas;
use crate::group::{Position, Ticket};
use crate::update::{Grant, Grants, Op};
use blocks::{owners, standbys};
use lane_floors::LaneFloors;
use line_rates::LineRates;
use marks::HighWaterMarks;
use std::collections::{BTreeMap, VecDeque};
use stripes::StripesUnderWay;
use testudo_base::shard::ShardSet;
use testudo_base::spi::{Shard, Spi};
use testudo_ike::output::{ChildSaId, Output, Time};
use testudo_ipsec::number::SequenceBlock;
use testudo_planted::{Plant, planted};

/// Bound on the grants of one update, so that it fits about one batch.
const MAX_GRANTS_PER_UPDATE: usize = 512;

/// A block that this node will have.
#[derive(Clone, Copy, Debug)]
struct Coming {
    spi: Spi,
    block: SequenceBlock,
    at_once: bool,
    /// It is one of very many, granted to all SAs of a shard.
    bulk: bool,
    /// This node has granted it to itself.
    own: bool,
}

/// Blocks on their way to this node's data plane.
#[derive(Debug, Default)]
pub(super) struct OwnBlocks {
    /// Blocks of the update that is about to be published.
    new: Vec<Coming>,
    waiting: VecDeque<(Ticket, Coming)>,
    /// Blocks that all nodes know of and the data plane has not been given, including those granted
    /// to this node as a standby.
    due: VecDeque<Coming>,
    /// How many of these the data plane may still be given in this turn.
    budget: usize,
    /// Child SAs with waiting blocks, and the number of these blocks.
    spis: BTreeMap<Spi, usize>,
    /// Switches to Child SAs that may still lack numbers.
    switches: Vec<Switch>,
}

/// Outbound traffic moves from one Child SA to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Switch {
    pub(super) from: ChildSaId,
    pub(super) to: ChildSaId,
}

impl OwnBlocks {
    pub(super) fn granted(&mut self, grant: Option<Grant>, at_once: bool) {
        self.add(grant, at_once, false);
    }

    fn add(&mut self, grant: Option<Grant>, at_once: bool, bulk: bool) {
        let coming = |grant: Grant| Coming { spi: grant.spi, block: owners(grant), at_once, bulk, own: true };
        self.new.extend(grant.map(coming));
    }

    pub(super) fn published(&mut self, ticket: Ticket) {
        for coming in self.new.drain(..) {
            *self.spis.entry(coming.spi).or_default() += 1;
            self.waiting.push_back((ticket, coming));
        }
    }

    /// True if a block of this Child SA is on its way.
    pub(super) fn is_asked(&self, spi: Spi) -> bool {
        self.spis.contains_key(&spi)
    }

    /// True if blocks of this Child SA are not in use yet.
    fn awaits(&self, spi: Spi) -> bool {
        self.spis.contains_key(&spi) || self.new.iter().any(|coming| coming.spi == spi)
    }

    pub(super) fn forget(&mut self, spi: Spi) {
        self.spis.remove(&spi);
        self.waiting.retain(|(_, coming)| coming.spi != spi);
        self.due.retain(|due| due.spi != spi);
        self.new.retain(|coming| coming.spi != spi);
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Makes the blocks due that all nodes know of. Returns those that need not wait behind very
    /// many others: blocks that are not bulk, unless an earlier block of their SA waits.
    fn stable(&mut self, stable: impl Fn(Ticket) -> bool) -> Vec<Coming> {
        let mut now = Vec::new();
        while let Some((_, coming)) = self.waiting.pop_front_if(|(ticket, _)| stable(*ticket)) {
            match coming.bulk || self.due.iter().any(|earlier| earlier.spi == coming.spi) {
                true => self.due.push_back(coming),
                false => now.push(coming),
            }
        }
        self.taken(now)
    }

    fn take(&mut self) -> Vec<Coming> {
        let most = self.budget.min(self.due.len());
        self.budget -= most;
        let taken: Vec<Coming> = self.due.drain(..most).collect();
        self.taken(taken)
    }

    /// Takes the due blocks of some shards, wherever they are in the queue.
    fn take_of(&mut self, shards: ShardSet) -> Vec<Coming> {
        let of_them = |due: &Coming| shards.contains(due.spi.shard());
        let (taken, left): (Vec<Coming>, Vec<Coming>) =
            std::mem::take(&mut self.due).into_iter().partition(of_them);
        self.due = left.into();
        self.taken(taken)
    }

    fn taken(&mut self, taken: Vec<Coming>) -> Vec<Coming> {
        for coming in taken.iter().filter(|coming| coming.own) {
            if let Some(count) = self.spis.get_mut(&coming.spi) {
                *count -= 1;
                if *count == 0 {
                    self.spis.remove(&coming.spi);
                }
            }
        }
        taken
    }
}

/// Blocks that an owner has granted to this node as its standby, until all nodes know of them.
type StandbyBlocks = VecDeque<(Position, Spi, SequenceBlock)>;

/// The sequence numbers of all Child SAs: the blocks that may be sent with here, and the inbound
/// high-water marks.
#[derive(Debug)]
pub(super) struct Numbers {
    pub(super) own: OwnBlocks,
    pub(super) standby: StandbyBlocks,
    pub(super) stripes: StripesUnderWay,
    pub(super) marks: HighWaterMarks,
    pub(super) lane_floors: LaneFloors,
    pub(super) line_rates: LineRates,
}

impl Numbers {
    /// `line_rate`: the most packets a second that this node's ports can receive.
    pub(super) fn new(line_rate: u64) -> Self {
        Self {
            own: OwnBlocks::default(),
            standby: StandbyBlocks::new(),
            stripes: StripesUnderWay::default(),
            marks: HighWaterMarks::default(),
            lane_floors: LaneFloors::default(),
            line_rates: LineRates::new(line_rate),
        }
    }
}

impl Numbers {
    /// Skips numbers of a Child SA of this node at its peer's request (RFC 6311 §5.2): the next
    /// block lies above them. If there are not that many numbers left, the Child SA is rekeyed.
    pub(super) fn skip_numbers(
        &mut self,
        core: &mut Core,
        replicas: &mut Replicas,
        now: Time,
        child: ChildSaId,
        by: u64,
    ) -> Option<Op> {
        let spi = replicas.spi_of_child(child)?;
        let replica = replicas.child_mut(spi)?;
        if replica.spread.is_some() {
            let stripe = self.next_stripe(core, replicas, spi, by, true);
            if stripe.is_none() {
                core.endpoint.rekey_child(now, child);
            }
            return stripe.map(Op::Stripe);
        }
        let Some(grant) = replica.ledger.skip(spi, by, replica.params.esn) else {
            core.endpoint.rekey_child(now, child);
            return None;
        };
        self.own.granted(Some(grant), true);
        let (shard, standby) = (spi.shard(), core.table.standby(spi.shard()));
        // A BUMP would tell the standby that all SAs of the shard have moved on.
        Some(Op::Renew(Grants { shard, standby, grants: vec![grant] }))
    }

    /// This node has become the standby of some of these shards. The owner may vanish before it has
    /// granted this node any block; blocks from an earlier time as standby lie below others that
    /// have been used since.
    pub(super) fn became_standby(&mut self, core: &Core, replicas: &mut Replicas, changed: ShardSet) {
        let shards = changed.intersection(core.table.standby_of(core.node));
        // Blocks of that time that have not reached the data plane are of no use either.
        self.standby.retain(|(_, spi, _)| !shards.contains(spi.shard()));
        self.own.due.retain(|due| due.own || !shards.contains(due.spi.shard()));
        for shard in shards.iter() {
            replicas.children_mut_of(shard).for_each(|(_, child)| child.outdated = true);
        }
    }

    pub(super) fn grant_shard(
        &mut self,
        replicas: &mut Replicas,
        shard: Shard,
        standby: Option<crate::node::NodeId>,
        at_once: bool,
        ops: &mut Vec<Op>,
    ) {
        let mut all = Vec::new();
        // All nodes have numbers of spread Child SAs, whoever owns the shard.
        for (spi, child) in replicas.children_mut_of(shard).filter(|(_, child)| child.spread.is_none()) {
            let grant = child.ledger.grant(*spi, child.params.esn);
            self.own.add(grant, at_once, true);
            all.extend(grant);
        }
        for grants in all.chunks(MAX_GRANTS_PER_UPDATE) {
            let grants = Grants { shard, standby, grants: grants.to_vec() };
            ops.push(if at_once { Op::Bump(grants) } else { Op::Renew(grants) });
        }
    }

    /// An owner's grants have been delivered at this position.
    pub(super) fn granted(
        &mut self,
        core: &mut Core,
        replicas: &mut Replicas,
        at: Position,
        grants: &Grants,
    ) {
        for grant in &grants.grants {
            let Some(child) = replicas.child_mut(grant.spi) else { continue };
            child.ledger.noted(*grant);
            if grants.standby == Some(core.node) {
                self.standby.push_back((at, grant.spi, standbys(*grant)));
            }
        }
        if planted(Plant::BlockBeforeStable) {
            self.standby_blocks_stable(core, replicas, at);
        }
    }

    /// The latest grants have been published in this update.
    pub(super) fn blocks_published(&mut self, core: &mut Core, replicas: &mut Replicas, ticket: Ticket) {
        self.own.published(ticket);
        self.stripes.published(ticket);
        if planted(Plant::BlockBeforeStable) {
            self.own_blocks_stable(core, replicas);
        }
    }

    /// Gives the data plane this node's own grants that all nodes know of.
    pub(super) fn own_blocks_stable(&mut self, core: &mut Core, replicas: &mut Replicas) {
        let commits = &core.commits;
        let stable = |ticket| commits.is_stable(ticket) || planted(Plant::BlockBeforeStable);
        let now = self.own.stable(stable);
        self.use_blocks(core, replicas, now);
        self.use_some_blocks(core, replicas);
        self.own_stripes_stable(core, replicas);
    }

    /// Makes the blocks due that were granted to this node as standby up to `upto`. A standby does
    /// not send, so only its latest block counts: it lies above all numbers that the owner may use.
    pub(super) fn standby_blocks_stable(&mut self, core: &mut Core, replicas: &mut Replicas, upto: Position) {
        while let Some((_, spi, block)) = self.standby.pop_front_if(|(at, _, _)| *at <= upto) {
            self.own.due.push_back(Coming { spi, block, at_once: true, bulk: true, own: false });
        }
        self.use_some_blocks(core, replicas);
        self.stripes_stable(core, replicas, upto);
    }

    /// Gives the data plane due blocks, in their order. After the loss of a node there are tens of
    /// thousands of them, and heartbeats wait meanwhile, so the number in one turn is bounded.
    fn use_some_blocks(&mut self, core: &mut Core, replicas: &mut Replicas) {
        let due = self.own.take();
        self.use_blocks(core, replicas, due);
    }

    /// A new turn begins: gives the data plane the next due blocks.
    pub(super) fn use_more_blocks(&mut self, core: &mut Core, replicas: &mut Replicas) {
        self.own.budget = core.config.blocks_at_once;
        self.use_some_blocks(core, replicas);
    }

    /// Gives the data plane all due blocks of some shards, because their packets are about to leave
    /// with them.
    pub(super) fn use_blocks_of(&mut self, core: &mut Core, replicas: &mut Replicas, shards: ShardSet) {
        let due = self.own.take_of(shards);
        self.use_blocks(core, replicas, due);
    }

    /// True if due blocks are left.
    pub(super) fn has_blocks(&self) -> bool {
        !self.own.due.is_empty()
    }

    /// True if numbers of this Child SA are on their way.
    pub(super) fn is_asked(&self, spi: Spi) -> bool {
        self.own.is_asked(spi) || self.stripes.awaits(spi)
    }

    /// A Child SA is gone.
    pub(super) fn forget(&mut self, spi: Spi) {
        self.own.forget(spi);
        self.stripes.forget(spi);
    }

    fn use_blocks(&mut self, core: &mut Core, replicas: &mut Replicas, blocks: Vec<Coming>) {
        for Coming { spi, block, at_once, .. } in blocks {
            if let Some(child) = replicas.child_mut(spi) {
                let (child, at_once) = (child.id, std::mem::take(&mut child.outdated) || at_once);
                core.outputs.push_back(MemberOutput::Numbers { child, spi_in: spi, block, at_once });
            }
        }
        self.switch_with_numbers(core, replicas);
    }

    /// Has one Child SA send in another's place. It begins once it has numbers; until then the
    /// other one sends.
    pub(super) fn switch(&mut self, core: &mut Core, replicas: &Replicas, switch: Switch) {
        self.own.switches.push(switch);
        self.switch_with_numbers(core, replicas);
    }

    /// Carries out the switches to Child SAs that have numbers.
    fn switch_with_numbers(&mut self, core: &mut Core, replicas: &Replicas) {
        let to = self.own.switches.iter().map(|switch| switch.to);
        let waiting: Vec<ChildSaId> = to.filter(|to| self.awaits_numbers(replicas, *to)).collect();
        self.switch_those(core, |switch| !waiting.contains(&switch.to));
    }

    /// Carries out those of the waiting switches for which `due` holds, in their order.
    pub(super) fn switch_those(&mut self, core: &mut Core, due: impl Fn(&Switch) -> bool) {
        let (now, later) = std::mem::take(&mut self.own.switches).into_iter().partition(|switch| due(switch));
        self.own.switches = later;
        let told = |Switch { from, to }| MemberOutput::Ike(Output::SwitchChild { from, to });
        core.outputs.extend(Vec::into_iter(now).map(told));
    }

    fn awaits_numbers(&self, replicas: &Replicas, child: ChildSaId) -> bool {
        let spi = replicas.spi_of_child(child);
        spi.is_some_and(|spi| self.own.awaits(spi) || self.stripes.awaits(spi))
    }
}
