//! The commit rule: an IKE message leaves only once every member of the view holds the state that
//! it depends on, and the message's own octets. A survivor then repeats the stored message and
//! never encrypts an answered exchange again.
//!
//! IKE_SA_INIT is the exception: nobody is authenticated, nothing is encrypted, and strangers can
//! cause any number of them. Its state is published with the rest, but no message waits for it.

use super::Core;
use crate::group::{Group, Ticket};
use crate::member::MemberOutput;
use crate::update::{Op, cut, encode};
use std::collections::BTreeMap;
use testudo_ike::message::{ExchangeType, Header};
use testudo_ike::output::{CommitId, IkeSaId, Output, Path, Time};
use testudo_planted::{Plant, planted};

/// Approximate size at which an update is cut, in octets.
const UPDATE_OCTETS: usize = 12 << 10;

/// An IKE message: [`Output::Send`].
#[derive(Debug)]
pub(in crate::member) struct Message {
    pub(in crate::member) ike: Option<IkeSaId>,
    pub(in crate::member) after: CommitId,
    pub(in crate::member) path: Path,
    pub(in crate::member) bytes: Vec<u8>,
}

impl From<Message> for MemberOutput {
    fn from(Message { ike, after, path, bytes }: Message) -> Self {
        Self::Ike(Output::Send { ike, after, path, bytes })
    }
}

/// Messages that wait for stability.
#[derive(Debug, Default)]
pub(in crate::member) struct Commits {
    /// The update in which the present state of an IKE SA was published. No entry: all nodes have
    /// the present state.
    of_ike: BTreeMap<IkeSaId, Ticket>,
    /// Messages, by the update that they wait for and in their order.
    held: BTreeMap<(Ticket, u64), Message>,
    count: u64,
    /// The last stable update of this node, and the last published one.
    stable: Ticket,
    published: Ticket,
}

impl Commits {
    /// True if not all members are known to hold all updates of this node.
    pub(in crate::member) fn is_waiting(&self) -> bool {
        self.published > self.stable
    }

    /// Drops the waiting messages of these IKE SAs.
    pub(in crate::member) fn withhold(&mut self, ikes: &[IkeSaId]) {
        self.held.retain(|_, message| message.ike.is_none_or(|id| !ikes.contains(&id)));
    }

    /// All members hold the updates up to this one.
    pub(in crate::member) fn set_stable(&mut self, ticket: Ticket) {
        self.stable = self.stable.max(ticket);
    }

    /// True if all members hold this update.
    pub(in crate::member) fn is_stable(&self, ticket: Ticket) -> bool {
        ticket <= self.stable
    }

    pub(in crate::member) fn held(&self) -> usize {
        self.held.len()
    }

    /// These IKE SAs have changed, and their present state was published in this update.
    pub(in crate::member) fn changed(&mut self, ikes: &[IkeSaId], ticket: Ticket) {
        self.of_ike.extend(ikes.iter().map(|id| (*id, ticket)));
    }

    /// This node does not change this IKE SA any more.
    pub(in crate::member) fn forget(&mut self, id: IkeSaId) {
        self.of_ike.remove(&id);
    }

    /// The published updates are void, and so are the messages that wait for them.
    pub(in crate::member) fn clear(&mut self) {
        self.of_ike.clear();
        self.held.clear();
        self.stable = self.published;
    }
}

impl Core {
    /// Publishes changes of this node's shards. Returns the ticket of the last update.
    pub(in crate::member) fn publish(&mut self, ops: Vec<Op>) -> Option<Ticket> {
        self.publish_by(Group::publish, ops)
    }

    /// Publishes updates that all but the fresh nodes know.
    pub(in crate::member) fn publish_bulk(&mut self, ops: Vec<Op>) -> Option<Ticket> {
        self.publish_by(Group::publish_bulk, ops)
    }

    fn publish_by(&mut self, way: fn(&mut Group, Vec<u8>) -> Ticket, ops: Vec<Op>) -> Option<Ticket> {
        let mut last = None;
        for part in cut(ops, UPDATE_OCTETS) {
            last = Some(way(&mut self.group, encode(self.view.version, &part)));
        }
        if let Some(ticket) = last {
            self.commits.published = ticket;
        }
        last
    }

    /// Sends an IKE message once all members hold the state that it depends on.
    pub(in crate::member) fn hold(&mut self, now: Time, message: Message) {
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
            // All members hold a state that has not changed since, such as that of a repeated
            // answer.
            _ => self.outputs.push_back(message.into()),
        }
    }

    /// Sends the messages whose updates all members hold now.
    pub(in crate::member) fn release(&mut self, now: Time, ticket: Ticket) {
        while let Some(entry) = self.commits.held.first_entry().filter(|entry| entry.key().0 <= ticket) {
            let message = entry.remove();
            // Behind a fence another node may speak for the shard by now; the peer will ask again.
            if self.may_speak(now) {
                self.outputs.push_back(message.into());
            }
        }
    }
}

/// True for IKE_SA_INIT.
fn begins(message: &[u8]) -> bool {
    Header::parse(message).is_ok_and(|header| header.exchange == ExchangeType::IkeSaInit)
}
