//! A node that has lost a port carries no packet through: it gives its shards up to those who have all of theirs, and gets them
//! back when it has again.
//!
//! Each node says of itself in the total order how it is, so that all agree on who should own what; shards then change hands as
//! they always do among the living.

use super::Member;
use super::ownership::Changes;
use crate::node::NodeId;
use crate::update::Op;
use testudo_ike::output::{LogLevel, Time};

/// How this node is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fitness {
    fit: bool,
    /// What it has said last in this view.
    said: Option<bool>,
}

impl Default for Fitness {
    fn default() -> Self {
        Self { fit: true, said: None }
    }
}

impl Member {
    /// All ports of this node work, or one does not.
    pub(super) fn ports(&mut self, well: bool) {
        self.fitness.fit = well;
        let (level, line) = match well {
            true => (LogLevel::Notice, "all ports work: this node's shards may come back"),
            false => (
                LogLevel::Warning,
                "a port does not work: this node gives its shards up to those whose ports do",
            ),
        };
        self.log(level, line.to_owned());
        self.tell_fitness();
    }

    /// A view begins: what was said in another may not have come to all.
    pub(super) fn tell_fitness_anew(&mut self) {
        self.fitness.said = None;
        self.tell_fitness();
    }

    fn tell_fitness(&mut self) {
        let known = !self.table.unfit().contains(&self.node);
        self.say_fitness_unless(known);
    }

    /// A node has said how it is.
    pub(super) fn told_fitness(&mut self, now: Time, from: NodeId, fit: bool) {
        if let Some(unheard) = &mut self.unheard_of {
            unheard.fit.push((from, fit));
            return;
        }
        let changes = self.table.set_fit(from, fit);
        self.ranks_changed(now, changes);
        if from == self.node && fit != self.fitness.fit {
            return self.contradict();
        }
        self.hand_over(now);
    }

    /// Others may be standbys now of what this node owns, and it of what they do.
    pub(super) fn ranks_changed(&mut self, now: Time, changes: Changes) {
        self.became_standby(changes.standby);
        let owned = self.table.owned_by(self.node);
        self.grant_all(owned.intersection(changes.standby), false);
        self.provide(now);
    }

    /// What this node said before a view ended may be delivered in the next one, when it is no longer so. Unless what is so has been
    /// said in this view, and comes behind it, all would go on believing it.
    fn contradict(&mut self) {
        self.say_fitness_unless(!self.fitness.fit);
    }

    /// Says how this node is, unless it has said so in this view or, where it has said nothing, that is what all believe.
    fn say_fitness_unless(&mut self, believed: bool) {
        let Fitness { fit, said } = self.fitness;
        if self.running && said.unwrap_or(believed) != fit {
            self.fitness.said = Some(fit);
            self.publish(vec![Op::Fit { fit }]);
        }
    }
}
