//! Fitness: a node that has lost a port cannot forward. It gives its shards to nodes with all of
//! their ports, and gets them back when its ports work again.
//!
//! Each node publishes its own fitness in the total order, so that all nodes agree on the best
//! owner of each shard. Shards are then handed over as usual.

use super::Shards;
use super::ownership::Changes;
use crate::member::core::Core;
use crate::member::replication::Replication;
use crate::node::NodeId;
use crate::update::Op;
use testudo_ike::output::{LogLevel, Time};

/// The fitness of this node.
#[derive(Clone, Copy, Debug)]
pub(in crate::member) struct Fitness {
    fit: bool,
    /// The fitness last published in this view.
    said: Option<bool>,
}

impl Default for Fitness {
    fn default() -> Self {
        Self { fit: true, said: None }
    }
}

impl Shards {
    /// All ports of this node work, or one does not.
    pub(in crate::member) fn ports(&mut self, core: &mut Core, well: bool) {
        self.fitness.fit = well;
        let (level, line) = match well {
            true => (LogLevel::Notice, "all ports work: this node may own its shards again"),
            false => (
                LogLevel::Warning,
                "a port does not work: this node gives its shards to nodes whose ports all work",
            ),
        };
        core.log(level, line.to_owned());
        self.tell_fitness(core);
    }

    /// A view begins: what was published in another one may not have reached all nodes.
    pub(in crate::member) fn tell_fitness_anew(&mut self, core: &mut Core) {
        self.fitness.said = None;
        self.tell_fitness(core);
    }

    fn tell_fitness(&mut self, core: &mut Core) {
        let known = !core.table.unfit().contains(&core.node);
        self.say_fitness_unless(core, known);
    }

    /// A node has published its fitness.
    pub(in crate::member) fn told_fitness(
        &mut self,
        core: &mut Core,
        replication: &mut Replication,
        now: Time,
        from: NodeId,
        fit: bool,
    ) {
        if let Some(unheard) = &mut core.unheard_of {
            unheard.fit.push((from, fit));
            return;
        }
        let changes = core.table.set_fit(from, fit);
        self.ranks_changed(core, replication, now, changes);
        if from == core.node && fit != self.fitness.fit {
            return self.contradict(core);
        }
        self.hand_over(core, replication, now);
    }

    /// The ranks have changed: this node's shards may have other standbys, and it may be the
    /// standby of other shards.
    pub(in crate::member) fn ranks_changed(
        &mut self,
        core: &mut Core,
        replication: &mut Replication,
        now: Time,
        changes: Changes,
    ) {
        replication.numbers.became_standby(core, &mut replication.replicas, changes.standby);
        let owned = core.table.owned_by(core.node);
        self.grant_all(core, replication, owned.intersection(changes.standby), false);
        self.provide(core, replication, now);
    }

    /// A fitness that this node published before a view ended may be delivered in the next one,
    /// when it does not hold any more. All nodes would then go on believing it, unless the present
    /// one has been published in this view and comes after it.
    fn contradict(&mut self, core: &mut Core) {
        self.say_fitness_unless(core, !self.fitness.fit);
    }

    /// Publishes this node's fitness, unless it has done so in this view, or has published nothing
    /// and the others believe the right thing.
    fn say_fitness_unless(&mut self, core: &mut Core, believed: bool) {
        let Fitness { fit, said } = self.fitness;
        if core.view.running && said.unwrap_or(believed) != fit {
            self.fitness.said = Some(fit);
            core.publish(vec![Op::Fit { fit }]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::Member;
    use crate::member::samples::{START, child, first, has_published, id, insert, routed_member};
    use crate::shard::Ranking;
    use testudo_base::shard::ShardSet;

    #[test]
    fn a_node_publishes_its_fitness_in_each_view_unless_the_others_believe_the_right_thing() {
        for (running, fit, believed, publishes) in [
            (true, false, true, true),
            (true, true, false, true),
            (true, true, true, false),
            (true, false, false, false),
            (false, false, true, false),
        ] {
            let Member { mut core, mut shards, .. } = routed_member();
            core.view.running = running;
            core.table.set_fit(id(1), believed);
            shards.fitness = Fitness { fit, said: Some(fit) };
            shards.tell_fitness_anew(&mut core);
            assert_eq!(has_published(&mut core), publishes, "{running} {fit} {believed}");
        }
    }

    #[test]
    fn an_owner_grants_numbers_to_the_standby_that_replaces_an_unfit_one() {
        let Member { mut core, mut replication, mut shards, .. } = routed_member();
        core.table.view(&[id(1), id(2), id(3)], Ranking::Balanced);
        let own = core.table.owned_by(id(1)).intersection(core.table.standby_of(id(3)));
        insert(&mut replication.replicas, [child(first(own), 0)]);
        // It offers no shard beside.
        shards.active = ShardSet::EMPTY;
        shards.told_fitness(&mut core, &mut replication, START, id(3), false);
        assert!(has_published(&mut core));
    }
}
