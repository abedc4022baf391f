//! A node that has lost a port carries no packet through: it gives its shards up to those who have
//! all of theirs, and gets them back when it has again.
//!
//! Each node says of itself in the total order how it is, so that all agree on who should own what;
//! shards then change hands as they always do among the living.

use super::Shards;
use super::ownership::Changes;
use crate::member::core::Core;
use crate::member::replication::Replication;
use crate::node::NodeId;
use crate::update::Op;
use testudo_ike::output::{LogLevel, Time};

/// How this node is.
#[derive(Clone, Copy, Debug)]
pub(in crate::member) struct Fitness {
    fit: bool,
    /// What it has said last in this view.
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
            true => (LogLevel::Notice, "all ports work: this node's shards may come back"),
            false => (
                LogLevel::Warning,
                "a port does not work: this node gives its shards up to those whose ports do",
            ),
        };
        core.log(level, line.to_owned());
        self.tell_fitness(core);
    }

    /// A view begins: what was said in another may not have come to all.
    pub(in crate::member) fn tell_fitness_anew(&mut self, core: &mut Core) {
        self.fitness.said = None;
        self.tell_fitness(core);
    }

    fn tell_fitness(&mut self, core: &mut Core) {
        let known = !core.table.unfit().contains(&core.node);
        self.say_fitness_unless(core, known);
    }

    /// A node has said how it is.
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

    /// Others may be standbys now of what this node owns, and it of what they do.
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

    /// What this node said before a view ended may be delivered in the next one, when it is no
    /// longer so. Unless what is so has been said in this view, and comes behind it, all would go
    /// on believing it.
    fn contradict(&mut self, core: &mut Core) {
        self.say_fitness_unless(core, !self.fitness.fit);
    }

    /// Says how this node is, unless it has said so in this view or, where it has said nothing,
    /// that is what all believe.
    fn say_fitness_unless(&mut self, core: &mut Core, believed: bool) {
        let Fitness { fit, said } = self.fitness;
        if core.view.running && said.unwrap_or(believed) != fit {
            self.fitness.said = Some(fit);
            core.publish(vec![Op::Fit { fit }]);
        }
    }
}
