//! Publishing the changes of this node's IKE, and holding its messages until the other nodes have
//! them.

use super::Replication;
use super::replicas::ChildReplica;
use crate::member::MemberOutput;
use crate::member::core::Core;
use crate::member::core::commits::Message;
use crate::member::numbers::Switch;
use crate::member::numbers::blocks::Ledger;
use crate::member::numbers::stripes::spread_of;
use crate::update::{ChildState, Op, Stripe};
use std::collections::BTreeMap;
use testudo_base::spi::Spi;
use testudo_ike::output::{ChildSaId, IkeSaId, Output, Time};
use testudo_planted::{Plant, planted};

/// The updates of one turn, in the order in which they are published.
#[derive(Default)]
struct TurnUpdates {
    /// Updates that make or change Child SAs.
    children: Vec<Op>,
    ikes: Vec<Op>,
    /// Events of SAs, before and after the states that they refer to.
    before: Vec<Op>,
    behind: Vec<Op>,
    /// Child SAs that this turn has removed.
    removed: BTreeMap<ChildSaId, Spi>,
    /// Updates that remove Child SAs: last, so that no IKE SA names a missing one.
    gone: Vec<Op>,
    sends: Vec<Message>,
}

impl Replication {
    /// Called after every call of the endpoint: publishes its changes, and holds its messages until
    /// the other nodes have these.
    pub(in crate::member) fn turn(&mut self, core: &mut Core, now: Time) {
        let mut turn = TurnUpdates::default();
        while let Some(output) = core.endpoint.poll_output() {
            self.take_output(core, now, &mut turn, output);
        }
        let changed = core.endpoint.replication_mut().take_changed();
        for id in &changed {
            turn.ikes.extend(self.changed_ike(core, now, *id));
        }
        self.add_contacts(core, &mut turn.ikes);
        let TurnUpdates { children: mut ops, ikes, before, behind, gone, sends, .. } = turn;
        ops.extend(before.into_iter().chain(ikes).chain(behind).chain(gone));
        if let Some(ticket) = self.publish_grants(core, ops) {
            core.commits.changed(&changed, ticket);
        }
        for message in sends {
            core.hold(now, message);
        }
        // An IKE SA that is gone does not change any more.
        for id in changed {
            if self.replicas.spi_of_ike(id).is_none() {
                core.commits.forget(id);
            }
        }
    }

    /// The state of an IKE SA of this node has changed, or the IKE SA is gone.
    fn changed_ike(&mut self, core: &mut Core, now: Time, id: IkeSaId) -> Vec<Op> {
        let outline = core.endpoint.replication().outline(id);
        let before = self.replicas.spi_of_ike(id);
        // An attempt that began again has another SPI, in the same shard.
        let gone = before.filter(|spi| outline.as_ref().is_none_or(|outline| outline.spi != *spi));
        let mut ops = Vec::new();
        if let Some(spi) = gone {
            self.replicas.remove_ike(spi);
            ops.push(Op::IkeDelete { spi });
        }
        let kept_back = planted(Plant::UpdatesNotReplicated) && before.is_some();
        if let Some(outline) = outline.filter(|_| !kept_back) {
            ops.extend(self.tell_ike(core, now, id, outline));
        }
        ops
    }

    fn take_output(&mut self, core: &mut Core, now: Time, turn: &mut TurnUpdates, output: Output) {
        match output {
            Output::Send { ike, after, path, bytes } => {
                turn.sends.push(Message { ike, after, path, bytes });
            }
            Output::Keepalive { .. } => {
                if core.may_speak(now) {
                    core.outputs.push_back(MemberOutput::Ike(output));
                }
            }
            Output::InstallChild { ike, child, connection, name, params, replaces } => {
                let old = replaces.and_then(|id| self.replicas.spi_of_child(id));
                let renews = replaces.filter(|old| core.endpoint.ike_of(*old) == Some(ike)).and(old);
                let mut replica = ChildReplica {
                    id: child,
                    ike: core
                        .endpoint
                        .replication()
                        .outline(ike)
                        .map(|outline| outline.spi)
                        .unwrap_or_default(),
                    connection,
                    name,
                    place: self.replicas.new_place(params.spi_in, renews),
                    params,
                    replaces: old,
                    switched: false,
                    ledger: Ledger::NEW,
                    mark: 0,
                    mark_at: now,
                    rate: 0,
                    measured: (0, now),
                    order: 0,
                    stale: false,
                    outdated: false,
                    spread: None,
                };
                let stripe =
                    spread_of(core, &replica).map(|by| self.numbers.first_stripe(core, &mut replica, by));
                core.install(Some(ike), &replica, replaces);
                turn.children.push(match stripe {
                    Some(stripe) => self.added_spread(replica, stripe),
                    None => self.added(core, replica),
                });
            }
            Output::SwitchChild { from, to } => {
                let spis = self.replicas.spi_of_child(from).zip(self.replicas.spi_of_child(to));
                if let Some((from, to)) = spis {
                    if let Some(child) = self.replicas.child_mut(to) {
                        child.switched = true;
                    }
                    turn.children.push(Op::ChildSwitch { from, to });
                }
                self.numbers.switch(core, &self.replicas, Switch { from, to });
            }
            Output::StartChild { child } => {
                if let Some(spi) = self.replicas.spi_of_child(child) {
                    turn.children.push(Op::ChildStart { spi });
                    self.started(spi);
                }
                core.outputs.push_back(MemberOutput::Ike(output));
            }
            Output::UpdateChild { spi_in, path, .. } => {
                if let Some(replica) = self.replicas.child_mut(spi_in) {
                    (replica.params.local, replica.params.remote) = (path.local, path.remote);
                }
                turn.children.push(Op::ChildUpdate { spi: spi_in, path });
                core.outputs.push_back(MemberOutput::Ike(output));
            }
            Output::AdvanceSequence { child, by } => {
                turn.children.extend(self.numbers.skip_numbers(core, &mut self.replicas, now, child, by))
            }
            Output::RemoveChild { child, spi_in } => {
                // A switch that waits for this Child SA takes place now.
                self.numbers.switch_those(core, |switch| switch.from == child || switch.to == child);
                // The endpoint has given the SPI back already.
                self.replicas.remove_child(spi_in);
                turn.removed.insert(child, spi_in);
                self.numbers.forget(spi_in);
                turn.gone.push(Op::ChildDelete { spi: spi_in });
                core.outputs.push_back(MemberOutput::Ike(output));
            }
            Output::InstallAddress { .. } | Output::RemoveAddress { .. } | Output::BindChild { .. } => {
                core.outputs.push_back(MemberOutput::Ike(output));
            }
            Output::Event(ref event) => {
                match self.as_remote_event(core, event, &turn.removed) {
                    Some((true, op)) => turn.before.push(op),
                    Some((false, op)) => turn.behind.push(op),
                    None => {}
                }
                self.initiations.told(event, &mut turn.behind);
                core.outputs.push_back(MemberOutput::Ike(output));
            }
        }
    }

    /// The CHILD_ADD of a Child SA that this node has made, with the first numbers of this node and
    /// of the standby.
    fn added(&mut self, core: &Core, mut replica: ChildReplica) -> Op {
        let spi = replica.params.spi_in;
        let grant = replica.ledger.grant(spi, replica.params.esn);
        let standby = core.table.standby(spi.shard());
        let state = ChildState { standby, ..replica.state() };
        self.numbers.own.granted(grant, true);
        self.replicas.insert_child(replica);
        Op::Child(Box::new(state))
    }

    /// The CHILD_ADD of a spread Child SA that this node has made.
    fn added_spread(&mut self, replica: ChildReplica, stripe: Stripe) -> Op {
        let child = Box::new(replica.state());
        self.replicas.insert_child(replica);
        Op::SpreadChild { child, stripe }
    }

    /// A Child SA sends by now: it does not replace another one any more.
    pub(in crate::member) fn started(&mut self, spi: testudo_base::spi::Spi) {
        if let Some(child) = self.replicas.child_mut(spi) {
            child.replaces = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::Member;
    use crate::member::samples::{START, asked, member, waiting_switches};

    /// As on the nodes that hear of it. The data plane would not know the Child SA any more.
    #[test]
    fn a_switch_that_waits_takes_place_before_its_owner_removes_one_of_its_child_sas() {
        for gone in 0..2 {
            let member = &mut member();
            let spis = waiting_switches(member);
            let Member { core, replication, .. } = &mut *member;
            let child = replication.replicas.child(spis[gone]).unwrap().id;
            let removed = Output::RemoveChild { child, spi_in: spis[gone] };
            replication.take_output(core, START, &mut TurnUpdates::default(), removed);
            let switched = format!("switch {} to {}", spis[0].0, spis[1].0);
            assert_eq!(asked(member), [switched, format!("remove {}", spis[gone])]);
        }
    }
}
