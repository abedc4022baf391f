//! Shards that come and go: with views, with suspicion, and by handover.
//!
//! Packets and IKE are treated differently. The standby carries a suspect's packets at once: if the
//! suspicion is wrong, a packet is delivered twice, but no number is used twice. IKE has one owner,
//! whom the view names and no suspicion replaces.

use super::Shards;
use crate::group::Position;
use crate::member::MemberOutput;
use crate::member::core::Core;
use crate::member::replication::Replication;
use crate::node::NodeId;
use crate::update::Left;
use std::time::Duration;
use testudo_base::shard::ShardSet;
use testudo_base::spi::Shard;
use testudo_ike::output::{LogLevel, Time};

/// How long routers may go on giving packets to a node that is gone: BGP's usual hold time or less.
const ROUTERS_NOTICE: Duration = Duration::from_secs(90);

/// Shards that this node is about to take.
#[derive(Debug)]
pub(in crate::member) struct Take {
    pub(in crate::member) when: When,
    pub(in crate::member) shards: ShardSet,
}

/// When it takes them.
#[derive(Clone, Copy, Debug)]
pub(in crate::member) enum When {
    /// At this time: the departed owner's fence has run out by then.
    At(Time),
    /// Once all nodes know of the handover at this position.
    Stable(Position),
}

impl Take {
    pub(in crate::member) fn shards(&self) -> ShardSet {
        self.shards
    }

    /// The time of the take, if it depends on time.
    pub(in crate::member) fn at(&self) -> Option<Time> {
        match self.when {
            When::At(at) => Some(at),
            When::Stable(_) => None,
        }
    }
}

/// A shard that its owner has handed over.
pub(in crate::member) struct Handed {
    /// The former owner.
    pub(in crate::member) from: NodeId,
    pub(in crate::member) shard: Shard,
    /// The new owner.
    pub(in crate::member) to: NodeId,
    /// What the former owner leaves to the new one.
    pub(in crate::member) left: Left,
}

impl Shards {
    /// A SEG_DROP has been delivered: the shard has another owner.
    pub(in crate::member) fn dropped(
        &mut self,
        core: &mut Core,
        replication: &mut Replication,
        now: Time,
        at: Position,
        Handed { from, shard, to, left }: Handed,
    ) {
        if let Some(unheard) = &mut core.unheard_of {
            unheard.drops.push((from, shard, to));
            return;
        }
        let Some(changes) = core.table.drop(from, shard, to) else {
            if from == core.node {
                self.not_dropped(core, replication, now, shard);
            }
            return;
        };
        self.carriers.dropped(shard);
        if from == core.node {
            self.handover.done(shard);
            self.active.remove(shard);
            self.ike.remove(shard);
            self.update_homes(core, now);
            self.hand_over(core, replication, now);
        }
        let mut standbys = changes.standby;
        if to == core.node {
            self.arrivals.left(now, shard, left);
            let shards: ShardSet = [shard].into_iter().collect();
            // Until all nodes know of the handover, a view without those that do would leave the
            // shard with its former owner.
            self.takes.push(Take { when: When::Stable(at), shards });
            // Another node may have become its standby meanwhile, and the former owner could not
            // grant it anything.
            standbys.insert(shard);
        }
        replication.numbers.became_standby(core, &mut replication.replicas, changes.standby);
        let owned = core.table.owned_by(core.node);
        self.grant_all(core, replication, owned.intersection(standbys), false);
        // A node may have joined while neither owner could grant it anything.
        self.grant_to_all(core, replication, now, &[]);
        self.provide(core, replication, now);
    }

    /// Takes the shards that are due.
    pub(in crate::member) fn take_what_is_due(
        &mut self,
        core: &mut Core,
        replication: &mut Replication,
        now: Time,
    ) {
        let stable = core.view.stable_upto;
        let due = |take: &Take| match take.when {
            When::At(at) => at <= now,
            When::Stable(at) => at <= stable,
        };
        if !core.view.running {
            return;
        }
        let (taken, left): (Vec<Take>, Vec<Take>) =
            std::mem::take(&mut self.takes).into_iter().partition(due);
        self.takes = left;
        if taken.is_empty() {
            return self.show(core, replication, now);
        }
        // The numbers of shards that this node carried as standby lie above all that their owners
        // had.
        replication.numbers.use_blocks_of(
            core,
            &mut replication.replicas,
            taken.iter().fold(ShardSet::EMPTY, |all, take| all.union(take.shards)),
        );
        for Take { shards, when } in taken {
            if let When::At(_) = when {
                core.log(LogLevel::Info, format!("takes over {} shards", shards.len()));
                if core.is_routed() {
                    // Routers go on giving the dead node responses until they have noticed.
                    core.endpoint.expect_losses(now.plus(ROUTERS_NOTICE));
                }
                if core.config.message_id_sync {
                    self.syncs.departed(shards);
                }
            }
            self.active = self.active.union(shards);
            self.ike = self.ike.union(shards);
            for shard in shards.iter() {
                self.imports.extend(replication.replicas.readable(shard));
            }
            self.imported = self.imported.union(shards);
            self.inherited = self.inherited.without(shards);
            let (arrived, digests) = self.arrivals.arrived(shards);
            if !arrived.is_empty() {
                core.outputs.push_back(MemberOutput::Handled { shards: arrived, digests });
            }
        }
        self.provide(core, replication, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::Member;
    use crate::member::samples::{START, first, id, member, only, routed_member};
    use crate::update::Offer;

    /// The node that was to have it may own nothing any more.
    #[test]
    fn a_shard_that_cannot_be_given_away_goes_on_at_its_owner() {
        for (from, goes_on) in [(1, true), (2, false)] {
            let Member { mut core, mut replication, mut shards, .. } = member();
            let shard = first(core.table.owned_by(id(from)));
            let handed = Handed { from: id(from), shard, to: id(3), left: Left::default() };
            shards.dropped(&mut core, &mut replication, START, Position::default(), handed);
            assert_eq!(core.table.owner(shard), Some(id(from)));
            assert_eq!(shards.imported.contains(shard), goes_on, "it reads the shard's IKE SAs again");
        }
    }

    /// Otherwise they would go twice.
    #[test]
    fn packets_that_the_former_owner_has_worked_on_are_dropped_by_the_next() {
        for is_offered in [true, false] {
            let Member { mut core, mut replication, mut shards, .. } = routed_member();
            let shard = first(core.table.owned_by(id(2)));
            if is_offered {
                let epoch = core.view.epoch;
                let offer = Offer { shards: vec![(shard, id(1))], neighbours: Vec::new(), epoch };
                let at = Position::default();
                shards.offered(&mut core, &mut replication, START, at, (id(2), offer));
                shards.arrivals.left(START, shard, Left { is_exact: true, handled: vec![7] });
            }
            core.outputs.clear();
            shards.takes.push(Take { when: When::Stable(Position::default()), shards: only(shard) });
            shards.take_what_is_due(&mut core, &mut replication, START);
            let handled = |output| match output {
                MemberOutput::Handled { shards, digests } => Some((shards, digests)),
                _ => None,
            };
            let handled: Vec<_> = core.outputs.drain(..).filter_map(handled).collect();
            let expected = is_offered.then(|| (only(shard), vec![7]));
            assert_eq!(handled, Vec::from_iter(expected));
        }
    }
}
