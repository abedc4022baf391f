//! The commit rule: an IKE message leaves only once every member of the view holds the state that it depends on, and its own
//! octets. A survivor then repeats what is stored; it never encrypts an answered exchange again.
//!
//! IKE_SA_INIT is the exception: nobody is authenticated, nothing is encrypted, and strangers can make any number of them. What
//! it makes is told to the others with the rest, but not waited for.

use super::{Member, MemberOutput};
use crate::group::{Group, Ticket};
use crate::update::{ChildState, Op, cut, encode};
use std::collections::BTreeMap;
use testudo_ike::message::{ExchangeType, Header};
use testudo_ike::output::{ChildSaId, CommitId, IkeSaId, Output, Path, Time};
use testudo_ipsec::spi::Spi;
use testudo_planted::{Plant, planted};

use super::blocks::Ledger;
use super::numbers::Switch;
use super::replicas::ChildReplica;

/// An update is cut at about this size.
const LARGEST: usize = 12 << 10;

/// An IKE message: [`Output::Send`].
#[derive(Debug)]
struct Message {
    ike: Option<IkeSaId>,
    after: CommitId,
    path: Path,
    bytes: Vec<u8>,
}

impl From<Message> for MemberOutput {
    fn from(Message { ike, after, path, bytes }: Message) -> Self {
        Self::Ike(Output::Send { ike, after, path, bytes })
    }
}

/// What waits for stability.
#[derive(Debug, Default)]
pub(super) struct Commits {
    /// The update in which the present state of an IKE SA left this node. None: nothing has changed since all had it.
    of_ike: BTreeMap<IkeSaId, Ticket>,
    /// Messages, by what they wait for and in their order.
    held: BTreeMap<(Ticket, u64), Message>,
    count: u64,
    /// The last of ours that is stable, and the last that was published.
    stable: Ticket,
    published: Ticket,
}

impl Commits {
    /// True if something was said that not all members are known to hold.
    pub(super) fn is_waiting(&self) -> bool {
        self.published > self.stable
    }

    /// What waits of these is not sent any more.
    pub(super) fn withhold(&mut self, ikes: &[IkeSaId]) {
        self.held.retain(|_, message| message.ike.is_none_or(|id| !ikes.contains(&id)));
    }

    /// True if all members hold what was published by then.
    pub(super) fn is_stable(&self, ticket: Ticket) -> bool {
        ticket <= self.stable
    }

    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// This node changes it no more.
    pub(super) fn forget(&mut self, id: IkeSaId) {
        self.of_ike.remove(&id);
    }

    /// What was published is void, and so is what waits for it.
    pub(super) fn clear(&mut self) {
        self.of_ike.clear();
        self.held.clear();
        self.stable = self.published;
    }
}

/// What one event has led to, in the order in which others are to be told.
#[derive(Default)]
struct Turn {
    /// What makes or changes Child SAs.
    children: Vec<Op>,
    ikes: Vec<Op>,
    /// What is going to happen to SAs, and what has happened.
    before: Vec<Op>,
    behind: Vec<Op>,
    /// Child SAs that this turn has taken away.
    removed: BTreeMap<ChildSaId, Spi>,
    /// What takes them away: last, so that no IKE SA names what is not there.
    gone: Vec<Op>,
    sends: Vec<Message>,
}

impl Member {
    /// After every call of the endpoint: tells the others what it has changed, and keeps its messages until they know.
    pub(super) fn turn(&mut self, now: Time) {
        let mut turn = Turn::default();
        while let Some(output) = self.endpoint.poll_output() {
            self.take_output(now, &mut turn, output);
        }
        let changed = self.endpoint.take_changed();
        for id in &changed {
            turn.ikes.extend(self.changed_ike(now, *id));
        }
        self.add_contacts(&mut turn.ikes);
        let Turn { children: mut ops, ikes, before, behind, gone, sends, .. } = turn;
        ops.extend(before.into_iter().chain(ikes).chain(behind).chain(gone));
        let ticket = self.publish(ops);
        if let Some(ticket) = ticket {
            self.commits.of_ike.extend(changed.iter().map(|id| (*id, ticket)));
        }
        for message in sends {
            self.hold(now, message);
        }
        // Who is gone changes no more.
        for id in changed {
            if self.replicas.spi_of_ike(id).is_none() {
                self.commits.of_ike.remove(&id);
            }
        }
    }

    /// Publishes changes of this node's shards. Gives the ticket of the last update.
    pub(super) fn publish(&mut self, ops: Vec<Op>) -> Option<Ticket> {
        self.publish_by(Group::publish, ops)
    }

    /// The same for what all but the fresh nodes know.
    pub(super) fn publish_aside(&mut self, ops: Vec<Op>) -> Option<Ticket> {
        self.publish_by(Group::publish_aside, ops)
    }

    fn publish_by(&mut self, way: fn(&mut Group, Vec<u8>) -> Ticket, ops: Vec<Op>) -> Option<Ticket> {
        let mut last = None;
        for part in cut(ops, LARGEST) {
            last = Some(way(&mut self.group, encode(self.version, &part)));
        }
        if let Some(ticket) = last {
            self.commits.published = ticket;
            self.own_blocks.published(ticket);
            if planted(Plant::BlockBeforeStable) {
                self.own_blocks_stable();
            }
        }
        last
    }

    /// An IKE message leaves when all hold what it depends on.
    fn hold(&mut self, now: Time, message: Message) {
        if !self.may_speak(now) {
            return;
        }
        let waits = message.ike.filter(|_| !begins(&message.bytes));
        let waits_for = waits.and_then(|id| self.commits.of_ike.get(&id).copied());
        match waits_for {
            Some(ticket) if !self.commits.is_stable(ticket) && !planted(Plant::AnswerBeforeStable) => {
                self.commits.count += 1;
                self.commits.held.insert((ticket, self.commits.count), message);
            }
            // What has not changed since, such as an answer that is repeated, is held by all.
            _ => self.outputs.push_back(message.into()),
        }
    }

    /// All members hold what was published up to there.
    pub(super) fn stable(&mut self, now: Time, ticket: Ticket) {
        self.commits.stable = self.commits.stable.max(ticket);
        self.own_blocks_stable();
        while let Some(entry) = self.commits.held.first_entry().filter(|entry| entry.key().0 <= ticket) {
            let message = entry.remove();
            // Fenced, another may speak for the shard by now; the peer asks again.
            if self.may_speak(now) {
                self.outputs.push_back(message.into());
            }
        }
    }

    /// The state of an IKE SA of this node has changed, or it is gone.
    fn changed_ike(&mut self, now: Time, id: IkeSaId) -> Vec<Op> {
        let outline = self.endpoint.outline(id);
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
            ops.extend(self.tell_ike(now, id, outline));
        }
        ops
    }

    fn take_output(&mut self, now: Time, turn: &mut Turn, output: Output) {
        match output {
            Output::Send { ike, after, path, bytes } => {
                turn.sends.push(Message { ike, after, path, bytes });
            }
            Output::Keepalive { .. } => {
                if self.may_speak(now) {
                    self.outputs.push_back(MemberOutput::Ike(output));
                }
            }
            Output::InstallChild { ike, child, connection, name, params, replaces } => {
                let old = replaces.and_then(|id| self.replicas.spi_of_child(id));
                let renews = replaces.filter(|old| self.endpoint.ike_of(*old) == Some(ike)).and(old);
                let replica = ChildReplica {
                    id: child,
                    ike: self.endpoint.outline(ike).map(|outline| outline.spi).unwrap_or_default(),
                    connection,
                    name,
                    place: self.replicas.new_place(params.spi_in, renews),
                    params,
                    replaces: old,
                    switched: false,
                    ledger: Ledger::NEW,
                    edge: 0,
                    edge_at: now,
                    rate: 0,
                    measured: (0, now),
                    order: 0,
                    stale: false,
                    outdated: false,
                };
                self.install(Some(ike), &replica, replaces);
                turn.children.push(self.added(replica));
            }
            Output::SwitchChild { from, to } => {
                let spis = self.replicas.spi_of_child(from).zip(self.replicas.spi_of_child(to));
                if let Some((from, to)) = spis {
                    if let Some(child) = self.replicas.child_mut(to) {
                        child.switched = true;
                    }
                    turn.children.push(Op::ChildSwitch { from, to });
                }
                self.switch(Switch { from, to });
            }
            Output::StartChild { child } => {
                if let Some(spi) = self.replicas.spi_of_child(child) {
                    turn.children.push(Op::ChildStart { spi });
                    self.started(spi);
                }
                self.outputs.push_back(MemberOutput::Ike(output));
            }
            Output::UpdateChild { spi_in, path, .. } => {
                if let Some(replica) = self.replicas.child_mut(spi_in) {
                    (replica.params.local, replica.params.remote) = (path.local, path.remote);
                }
                turn.children.push(Op::ChildUpdate { spi: spi_in, path });
                self.outputs.push_back(MemberOutput::Ike(output));
            }
            Output::AdvanceSequence { child, by } => turn.children.extend(self.skip_numbers(now, child, by)),
            Output::RemoveChild { child, spi_in } => {
                // What was to follow it does so now.
                self.switch_those(|_, switch| switch.from == child || switch.to == child);
                // The endpoint has given the SPI back already.
                self.replicas.remove_child(spi_in);
                turn.removed.insert(child, spi_in);
                self.own_blocks.forget(spi_in);
                turn.gone.push(Op::ChildDelete { spi: spi_in });
                self.outputs.push_back(MemberOutput::Ike(output));
            }
            Output::InstallAddress { .. } | Output::RemoveAddress { .. } => {
                self.outputs.push_back(MemberOutput::Ike(output));
            }
            Output::Event(ref event) => {
                match self.happening(event, &turn.removed) {
                    Some((true, op)) => turn.before.push(op),
                    Some((false, op)) => turn.behind.push(op),
                    None => self.tell_who_asked(event, &mut turn.behind),
                }
                self.outputs.push_back(MemberOutput::Ike(output));
            }
        }
    }

    /// CHILD_ADD of a Child SA that this node has made, with its first numbers and its standby's.
    fn added(&mut self, mut replica: ChildReplica) -> Op {
        let spi = replica.params.spi_in;
        let grant = replica.ledger.grant(spi, replica.params.esn);
        let standby = self.table.standby(spi.shard());
        let state = ChildState { standby, ..replica.state() };
        self.own_blocks.granted(grant, true);
        self.replicas.insert_child(replica);
        Op::Child(Box::new(state))
    }

    /// Gives a Child SA to the data plane.
    pub(super) fn install(
        &mut self,
        ike: Option<IkeSaId>,
        replica: &ChildReplica,
        replaces: Option<ChildSaId>,
    ) {
        self.outputs.push_back(MemberOutput::InstallChild {
            ike,
            child: replica.id,
            connection: replica.connection.clone(),
            name: replica.name.clone(),
            params: replica.params.clone(),
            replaces,
            place: replica.place,
        });
    }

    /// It carries by itself: it waits for nobody's place.
    pub(super) fn started(&mut self, spi: testudo_ipsec::spi::Spi) {
        if let Some(child) = self.replicas.child_mut(spi) {
            child.replaces = None;
        }
    }
}

/// True for IKE_SA_INIT.
fn begins(message: &[u8]) -> bool {
    Header::parse(message).is_ok_and(|header| header.exchange == ExchangeType::IkeSaInit)
}
