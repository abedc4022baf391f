//! Delivery: a message that the engine has ordered is taken in when that of all before it has been.

use super::datagram::MessageName;
use super::frame::{self, Frame, Kind};
use super::lease::Lease;
use super::outbox::{Entry, entries};
use super::views::bulk::MESSAGES_PER_TURN;
use super::views::exchange::Heard;
use super::views::running::{Opened, Sealed};
use super::{Group, GroupOutput};
use crate::node::NodeId;
use testudo_ike::output::Time;
use zeroize::Zeroizing;

impl Group {
    /// The engine has delivered a message.
    pub(super) fn in_turn(&mut self, now: Time, from: NodeId, bytes: Vec<u8>) {
        if let Frame::This(header, rest) = frame::parse(&bytes) {
            if header.kind == Kind::Rest {
                if let Some(running) = self.views.running_at(&header.name())
                    && running.bulk.keep_needed(from, header.serial, rest)
                {
                    self.go_on(now);
                }
                return;
            }
            if let Some(running) = self.views.running_mut()
                && running.view.ring == header.ring
                && running.bulk.has_waiting()
            {
                return running.bulk.wait(from, bytes);
            }
        }
        if !self.message(now, from, &bytes)
            && let Some(running) = self.views.running_mut()
        {
            running.bulk.wait_first(now, from, bytes);
        }
    }

    /// The rest of a message has come as a datagram.
    pub(super) fn rest_came(&mut self, now: Time, from: NodeId, of: MessageName, rest: Vec<u8>) {
        if self.views.rest_came(from, of, rest) {
            self.go_on(now);
        }
    }

    /// The view is over. What was delivered in it to all nodes that go on together counts: takes in
    /// what is here as a whole.
    pub(super) fn go_on_to_the_end(&mut self, now: Time) {
        while self.views.running().is_some_and(|running| running.bulk.goes_on()) {
            self.go_on(now);
        }
    }

    /// Takes in the messages that have waited and are here as a whole, one turn's worth.
    pub(super) fn go_on(&mut self, now: Time) {
        let mut room = MESSAGES_PER_TURN;
        while room > 0 {
            let next = self.views.running_mut().and_then(|running| running.bulk.next());
            let Some((from, bytes, weight)) = next else { return };
            room = room.saturating_sub(weight);
            let taken = self.message(now, from, &bytes);
            let Some(running) = self.views.running_mut() else { return };
            match taken {
                true => running.bulk.taken_in(now),
                false => running.bulk.wait_first(now, from, bytes),
            }
        }
    }

    /// Goes on with what waits, asks for what has not come, and sends what others may have asked
    /// for in vain.
    pub(super) fn look_after_rests(&mut self, now: Time) {
        self.go_on(now);
        if let Some(running) = self.views.running_mut() {
            running.ask_for_rests(&mut self.core, self.vitals.links, now);
            running.send_rests_unasked(&mut self.queue, now);
        }
    }

    /// A message's turn has come. False if its rest is not here, and it must wait.
    fn message(&mut self, now: Time, from: NodeId, bytes: &[u8]) -> bool {
        let counters = &mut self.core.counters;
        let Some(view) = self.views.view().filter(|view| view.members.contains(&from)) else {
            counters.old_ring += 1;
            return true;
        };
        match frame::parse(bytes) {
            Frame::Malformed => counters.malformed += 1,
            Frame::OtherVersion => {
                counters.other_version += 1;
                self.heard(now, from, None);
            }
            Frame::This(header, _) if header.ring != view.ring => counters.old_ring += 1,
            Frame::This(header, body) if header.kind == Kind::Status => {
                let plain = frame::open_status(&self.core.config.key, from, &header, body);
                if plain.is_none() {
                    self.core.counters.unopened += 1;
                }
                self.heard(now, from, plain.and_then(|plain| Heard::read(&plain)));
            }
            Frame::This(header, body) => return self.batch(now, &Sealed { from, header, body }),
        }
        true
    }

    /// A message of the view: opened, counted, and handed on. False if its rest is not here.
    fn batch(&mut self, now: Time, message: &Sealed<'_>) -> bool {
        let Some(running) = self.views.running_mut() else {
            self.core.counters.old_ring += 1;
            return true;
        };
        let plain = match running.take(&mut self.core, now, message) {
            Opened::Plain(plain) => plain,
            Opened::NotYet => return false,
            Opened::Ignored => return true,
        };
        let (from, at) = (message.from, running.delivered());
        if from == self.core.node()
            && let Some(ticket) = self.outbox.delivered(message.header.serial)
        {
            running.own_delivered(now, message.header.serial, ticket);
        }
        let chain = running.stability.chain();
        self.views.history.delivered(at.count, chain);
        for entry in entries(&plain) {
            match entry {
                Some(Entry::Update(update)) => {
                    let update = Zeroizing::new(update.to_vec());
                    self.core.outputs.push_back(GroupOutput::Delivered { from, at, update });
                }
                Some(Entry::Lease(lease)) => {
                    if let Some(lease) = Lease::read(lease) {
                        self.leases.delivered(from, lease, self.core.boot(), at.count);
                    }
                }
                Some(Entry::Roster(step)) => self.roster_step(now, from, at, step),
                None => self.core.counters.malformed += 1,
            }
        }
        true
    }
}
