//! The beginning of a view: the order in which the parts learn of it.

use super::Member;
use super::core::Unheard;
use super::shards::handover::Arrivals;
use super::shards::syncs::Syncs;
use super::shards::takeover::{Take, When};
use crate::group::ViewStart;
use testudo_base::shard::ShardSet;
use testudo_ike::output::{IkeSaId, Time};

impl Member {
    /// Begins a view.
    pub(super) fn view(&mut self, now: Time, start: ViewStart) {
        (self.core.view.running, self.core.view.no_view) = (start.view.quorate, None);
        self.core.view.quorate = start.view.quorate;
        let before = std::mem::replace(&mut self.core.view.members, start.view.members.clone());
        self.core.log_view(&start, &before);
        self.replication.resync.stop();
        self.shards.stop_handover(&mut self.core);
        // Pending takes are void: the new view names them again if they still hold.
        self.shards.takes.clear();
        self.replication.wanted.clear();
        let standby_gone = self.core.table.standby_not_of(&start.current);
        let standby_of =
            std::mem::take(&mut self.shards.inherited).union(self.core.table.standby_of(self.core.node));
        if !start.view.quorate {
            // The suspects may be the majority, and then the shards carried for them are theirs.
            return self.shards.provide(&mut self.core, &mut self.replication, now);
        }
        self.core.view.epoch = start.epoch;
        if start.reset || start.fresh.contains(&self.core.node) {
            self.void(now, start.reset);
        }
        self.core.view.version = start.version;
        self.sessions.tell_all();
        self.core.endpoint.replication_mut().export_as(crate::update::states(self.core.view.version));
        self.core.view.by_grace =
            start.view.members.len() * 2 <= self.core.group.rosters().settled.nodes.len();
        self.core.unheard_of = None;
        let held_before = !start.reset && !start.fresh.contains(&self.core.node);
        if start.reset {
            self.core.table.reset();
        } else if start.fresh.contains(&self.core.node) {
            self.core.unheard_of = Some(Unheard::default());
        }
        if !self.core.can_follow() {
            self.core.table.forget_preferences();
        }
        self.shards.suspects.retain(|node| start.view.members.contains(node));
        self.shards.yielded = ShardSet::EMPTY;
        let changes = self.core.table.view(&start.current, crate::update::ranking(self.core.view.version));
        self.replication.numbers.became_standby(&self.core, &mut self.replication.replicas, changes.standby);
        let owned = self.core.table.owned_by(self.core.node);
        let gained = owned.without(self.shards.active).without(self.shards.handover.held());
        if held_before {
            // The standby need not wait until the departed owner's fence has run out: it did not
            // wait when it only suspected the owner.
            self.shards.inherited = gained.intersection(standby_of);
        }
        if !gained.is_empty() {
            self.shards.takes.push(Take { when: When::At(start.wait_until), shards: gained });
        }
        self.configuration.begin_configuration(
            &self.core,
            now,
            start.fresh.contains(&self.core.node),
            start.reset,
        );
        self.replication.numbers.begin_line_rates(&mut self.core, &start);
        self.engine_nodes.begin(&mut self.core);
        self.replication.numbers.gather_spread(&mut self.core, &self.replication.replicas, now);
        self.replication.begin_resync(&mut self.core, &self.configuration, now, &start);
        self.shards.tell_fitness_anew(&mut self.core);
        self.replication.paths.tell_untold_paths(&mut self.core, now);
        // New numbers for every shard that has a new owner or standby. An owner goes on with its
        // numbers for as long as they last. So does a standby that takes over: its numbers lie
        // above its owner's. If another node was the standby and is gone or passed over, that node
        // may have sent above all of these without a report, so the new numbers are used at once.
        let changed = owned.intersection(changes.owner.union(changes.standby));
        let behind = changed.intersection(standby_gone.union(changes.owner.without(standby_of)));
        self.shards.grant_all(&mut self.core, &mut self.replication, behind, true);
        self.shards.grant_all(&mut self.core, &mut self.replication, changed.without(behind), false);
        self.shards.grant_to_all(&mut self.core, &mut self.replication, now, &[]);
        self.shards.leave_anew(&mut self.core);
        self.shards.take_what_is_due(&mut self.core, &mut self.replication, now);
        self.shards.provide(&mut self.core, &mut self.replication, now);
        self.shards.hand_over(&mut self.core, &mut self.replication, now);
    }

    /// Voids this node's state: the others have gone on without it and will send their state.
    /// `reset`: no node holds any state.
    pub(super) fn void(&mut self, now: Time, reset: bool) {
        if self.core.commits.is_waiting() || self.core.view.by_grace {
            // This node has encrypted messages that never left, or that left while the other half
            // of the cluster went on as well. The states that it will receive do not know their
            // IVs, and the blocks do not know which numbers it has sent.
            self.core.sender = None;
            self.core.group.renew_sender(now);
        }
        let ids: Vec<IkeSaId> = self.core.endpoint.states().map(|(id, _)| id).collect();
        for id in ids {
            self.core.endpoint.replication_mut().evict(now, id);
        }
        self.core.endpoint.replication_mut().take_changed();
        self.core.commits.clear();
        // The next owner of these Child SAs sends through the newer ones.
        self.replication.numbers.switch_those(&mut self.core, |_| true);
        self.replication.numbers.own.clear();
        self.replication.numbers.standby.clear();
        self.replication.numbers.stripes.clear();
        self.shards.bumping.clear();
        self.shards.imports.clear();
        self.shards.imported = ShardSet::EMPTY;
        self.shards.handover.clear();
        self.shards.arrivals = Arrivals::default();
        self.replication.numbers.void_marks();
        self.asks.clear();
        self.forget_sessions();
        self.replication.initiations.clear();
        self.shards.syncs = Syncs::default();
        (self.shards.active, self.shards.ike) = (ShardSet::EMPTY, ShardSet::EMPTY);
        self.shards.update_homes(&mut self.core, now);
        self.replication.replicas.doubt();
        if reset {
            self.replication.forget_stale(&mut self.core, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::samples::{START, first, id, routed_member, view_start};
    use crate::update::{FOLLOWING, NEWEST, Preference};

    /// A node that begins with nothing does not know what the departed owner has sent.
    #[test]
    fn a_standby_carries_the_shards_of_a_departed_owner_at_once_if_it_held_their_state() {
        for reset in [false, true] {
            let mut member = routed_member();
            let theirs = member.core.table.owned_by(id(2));
            member.view(START, ViewStart { reset, ..view_start(&[1]) });
            let expected = if reset { ShardSet::EMPTY } else { theirs };
            assert_eq!(member.shards.inherited, expected, "{reset}");
        }
    }

    #[test]
    fn preferences_last_as_long_as_all_members_know_them() {
        for (version, known) in [(NEWEST, true), (FOLLOWING - 1, false)] {
            let mut member = routed_member();
            let shard = first(member.core.table.owned_by(id(1)));
            member.core.table.prefer(shard, Preference { node: Some(id(2)), level: 1 });
            member.view(START, ViewStart { version, ..view_start(&[1, 2]) });
            assert_eq!(member.core.table.preference(shard).node.is_some(), known);
        }
    }
}
