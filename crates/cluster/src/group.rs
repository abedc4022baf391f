//! The group: what nodes agree on before anything is said of IPsec. It is sans-IO, and knows
//! nothing of IKE.
//!
//! Over the engine's total order it makes views in which all members start from the same state. It
//! seals their messages under a key that each view makes anew, and tells when a message is
//! *stable*: acknowledged by every member. An engine that delivers a message to its sender has not
//! shown that any other node holds it.
//!
//! `Group` routes between its parts. Each has its own fields, and is given the others that it
//! needs:
//!
//! - `Core`: settings, counters, outputs;
//! - `Views`: the view that the node is in, what it delivers and what is stable;
//! - `Outbox`, `EngineQueue`: updates on their way into batches, messages on theirs to the
//!   engine;
//! - `Leases`: sender IDs;
//! - `Vitals`: heartbeats, suspects, ports;
//! - `Fence`: until when packets may leave.

mod config;
mod core;
mod datagram;
mod delivery;
mod durable;
mod fence;
mod frame;
mod heartbeat;
mod keys;
mod lease;
mod links;
mod outbox;
mod output;
mod queue;
mod relays;
mod roster;
mod roster_change;
mod status;
#[cfg(test)]
mod tests;
mod view_change;
mod views;
mod vitals;

#[cfg(feature = "corosync")]
pub(crate) use config::is_most;
pub use config::{ClusterKey, GroupConfig, Ingress, NoQuorum, QuorumRule, SuspicionConfig};
pub use durable::{Begun, Durable};
pub use outbox::Ticket;
pub use output::{GroupOutput, ViewStart};
pub use relays::RelayKeys;
pub use roster::{Majorities, NodeChange, Roster, Rosters};
pub use roster_change::ChangeError;
pub use status::{Counters, GroupStatus, PeerStatus, Phase, Standing};
pub use views::obstacle::Obstacle;
pub use views::stability::Position;

use self::core::Core;
use crate::engine::{EngineEvent, RingId};
use crate::node::NodeId;
use datagram::{Body, Sender};
use fence::Fence;
use frame::Frame;
use heartbeat::Heartbeat;
use lease::Leases;
use outbox::Outbox;
use queue::EngineQueue;
use testudo_base::session::Told;
use testudo_base::shard::ShardSet;
use testudo_base::spi::Shard;
use testudo_ike::output::{LogLevel, Time};
use testudo_ike::suite::Entropy;
use views::Views;
use vitals::Vitals;
use zeroize::Zeroizing;

/// See the module. The host hands in events, datagrams and the time. It calls [`Self::flush`] at
/// the end of each of its turns, and does what [`Self::poll_output`] asks for.
pub struct Group {
    core: Core,
    views: Views,
    outbox: Outbox,
    leases: Leases,
    queue: EngineQueue,
    vitals: Vitals,
    fence: Fence,
    /// A step of a change of the roster is under way from this node.
    change_asked: bool,
}

impl Group {
    /// The most octets of [`Self::relay`]: they fit a UDP datagram with what is added to them.
    pub const MAX_RELAYED_OCTETS: usize = datagram::MAX_RELAYED_OCTETS;

    /// A node begins. `durable`: what it has written to its disk.
    pub fn new(config: GroupConfig, durable: Durable, entropy: Box<dyn Entropy + Send>, now: Time) -> Self {
        Self {
            leases: Leases::new(config.node, durable.incarnation),
            vitals: Vitals::new(&config, &durable.rosters_or(&config.roster), now),
            core: Core::new(config, &durable, entropy),
            views: Views::new(durable),
            outbox: Outbox::default(),
            queue: EngineQueue::default(),
            fence: Fence::default(),
            change_asked: false,
        }
    }

    /// The engine has a new view, a message, or something else to tell.
    pub fn handle_event(&mut self, now: Time, event: EngineEvent) {
        self.vitals.attend(&mut self.core, now);
        match event {
            EngineEvent::View(view) => {
                self.go_on_to_the_end(now);
                self.view(now, view);
            }
            EngineEvent::Message { from, bytes } => self.in_turn(now, from, bytes),
            EngineEvent::PutOut => self.put_out(now),
            EngineEvent::Down { reason } => self.down(now, &reason),
            EngineEvent::Notice(line) => self.core.log(LogLevel::Warning, line),
        }
        self.settle();
    }

    /// A datagram has come over a link.
    pub fn handle_datagram(&mut self, now: Time, link: u8, bytes: &[u8]) {
        self.vitals.attend(&mut self.core, now);
        match self.core.read_datagram(now, link, bytes) {
            Some((sender, Body::Ack(ack))) => {
                if let Some(running) = self.views.running_mut() {
                    running.acknowledged(sender.node, sender.boot, &ack);
                }
            }
            Some((sender, Body::Heartbeat(heartbeat))) => self.hear(now, sender, &heartbeat),
            Some((sender, Body::RowClocks(clocks))) => {
                self.vitals.row_clocks_told(&mut self.core, sender, clocks);
            }
            Some((sender, Body::Sessions(number, told))) => {
                self.vitals.sessions_told(&mut self.core, sender, number, told);
            }
            Some((sender, Body::Rest(of, rest))) => self.rest_came(now, sender.node, of, rest),
            Some((sender, Body::Missing(_, of))) => {
                if let Some(running) = self.views.running_at(&of)
                    && running.knows(sender.node, sender.boot)
                {
                    running.bulk.send_asked(&mut self.queue, now, of);
                }
            }
            Some((sender, Body::Relayed(octets))) => self.relayed(sender, octets),
            None => {}
        }
        self.settle();
    }

    /// The time of [`Self::next_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Time) {
        self.vitals.attend(&mut self.core, now);
        if self.vitals.beat(&mut self.core, &self.views, now) {
            self.fence.extend_alone(&mut self.core, &self.views, &self.vitals, now);
        }
        self.vitals.tell_rows(&mut self.core, now);
        self.vitals.suspect(&mut self.core, self.views.members(), now);
        self.queue.handle_timeout(now);
        if self.views.next_timeout().is_some_and(|at| at <= now) {
            self.say_status(now);
        }
        self.look_after_rests(now);
        self.settle();
    }

    /// When [`Self::handle_timeout`] is wanted.
    pub fn next_timeout(&self) -> Option<Time> {
        let rests = self.views.running().and_then(|running| running.bulk.next_timeout());
        let vitals = self.vitals.next_timeout(&self.core, self.views.members());
        let others = [self.queue.next_timeout(), self.views.next_timeout(), rests];
        Some(others.into_iter().flatten().fold(vitals, Time::min))
    }

    /// A link is up or down, by its carrier and driver. Nothing is sent over a link that is down.
    pub fn set_link(&mut self, now: Time, link: u8, up: bool) {
        self.vitals.set_link(&mut self.core, now, link, up);
    }

    /// What this node's heartbeats say of it: its load in thousandths of a processor, and the
    /// shards whose packets it carries provisionally.
    pub fn set_load(&mut self, load: u16, provisional: ShardSet) {
        self.vitals.set_load(load, provisional);
    }

    /// The row clocks that go out with this node's heartbeats: how many clear packets for spread
    /// tunnels it has counted, by home shard. Where routers give each packet to one node, they go
    /// out more often while they move fast. To be left empty while a member runs a version without
    /// spread tunnels.
    pub fn set_row_clocks(&mut self, clocks: Vec<(Shard, u64)>) {
        self.vitals.set_row_clocks(clocks);
    }

    /// True if [`Self::handle_timeout`] would send a heartbeat now.
    pub fn is_heartbeat_due(&self, now: Time) -> bool {
        self.vitals.is_due(now)
    }

    /// What goes to the other nodes beside the next heartbeat, of the slots of sessions. To be left
    /// empty while a member runs a version without them.
    pub fn set_sessions(&mut self, told: Vec<Told>) {
        self.vitals.set_sessions(told);
    }

    /// Adds an update to the open batch. It leaves with [`Self::flush`], and waits while there is
    /// no quorate view.
    pub fn publish(&mut self, update: Vec<u8>) -> Ticket {
        self.outbox.publish(&Zeroizing::new(update))
    }

    /// Adds an update for the fresh nodes of the view, which says nothing new to nodes that hold
    /// the state. It is not delivered to such nodes if all members know of bulk transfer.
    pub fn publish_bulk(&mut self, update: Vec<u8>) -> Ticket {
        self.outbox.publish_bulk(&Zeroizing::new(update))
    }

    /// True if updates of [`Self::publish_bulk`] go beside the engine.
    pub fn sends_bulk_directly(&self) -> bool {
        self.views.running().is_some_and(|running| running.bulk.takes(0))
    }

    /// Sends something to another member at once, beside the engine. It may be lost. False, and
    /// nothing is sent, if it is longer than [`Self::MAX_RELAYED_OCTETS`].
    pub fn relay(&mut self, to: &[NodeId], octets: Vec<u8>) -> bool {
        let fits = octets.len() <= Self::MAX_RELAYED_OCTETS;
        if fits {
            self.core.send(to, self.vitals.links.up().take(1), &Body::Relayed(octets));
        }
        fits
    }

    /// The host's turn ends: the open batch goes out, and what was delivered is acknowledged.
    pub fn flush(&mut self, _now: Time) {
        self.outbox.close();
        if let Some(running) = self.views.running_mut() {
            running.send(&mut self.core, &mut self.outbox, &mut self.queue, self.vitals.links);
        }
        if let Some(running) = self.views.recorded_mut() {
            running.acknowledge(&mut self.core, self.vitals.links);
        }
    }

    /// The engine did not take the message of [`GroupOutput::Multicast`]. It is kept, and offered
    /// again soon.
    pub fn multicast_refused(&mut self, now: Time, bytes: Vec<u8>) {
        self.core.counters.refused += 1;
        // A message of a view that is over is sealed anew from the outbox.
        if let (Frame::This(header, _), Some(view)) = (frame::parse(&bytes), self.views.view())
            && header.ring == view.ring
        {
            self.queue.refused(now, bytes);
        }
    }

    /// The engine takes messages again.
    pub fn multicast_ready(&mut self) {
        self.queue.ready();
    }

    /// True while a quorate view waits for the STATUS of its members, which takes a moment. It is
    /// not true while the members wait for other nodes, because none of them holds the latest
    /// state.
    pub fn is_forming(&self) -> bool {
        self.views.is_forming()
    }

    /// The layer above holds the whole state now: a node that was fresh has been brought up to
    /// date. The host says so when the last of it has been delivered, before it hands in any later
    /// event.
    pub fn synced(&mut self) {
        if self.views.running().is_some() {
            self.views.history.sync();
        }
    }

    /// The disk says what [`GroupOutput::Persist`] asked for. From now on what is delivered in that
    /// view is acknowledged.
    pub fn persisted(&mut self, durable: &Durable) {
        self.views.history.persisted(durable);
        self.settle();
    }

    /// IVs run low: the node wants another sender ID.
    pub fn renew_sender(&mut self, _now: Time) {
        self.leases.want();
        self.lease(false);
    }

    /// The machine has gone back to an earlier state, and nothing that this node holds is valid any
    /// more. Packets stop until there are a new view and a new sender ID. The host must have the
    /// node join again.
    pub fn rolled_back(&mut self, now: Time) {
        self.core.draw_boot();
        self.views.roll_back();
        self.outbox.clear();
        self.leases.void();
        self.core.log(
            LogLevel::Warning,
            "the machine has gone back to an earlier state: joining the cluster anew".to_owned(),
        );
        self.leave(now);
        self.vitals.peers.forget_promises(&self.core, now);
        self.fence.shut(&mut self.core, now);
        self.core.outputs.push_back(GroupOutput::Rejoin);
    }

    /// The next thing for the host to do.
    pub fn poll_output(&mut self) -> Option<GroupOutput> {
        let next = self.core.outputs.pop_front();
        next.or_else(|| self.queue.pop().map(GroupOutput::Multicast))
    }

    /// A member has sent something beside the engine. Of a node that is not in the view, or of its
    /// former life, it does not count.
    fn relayed(&mut self, sender: Sender, octets: Vec<u8>) {
        let is_member = |running: &views::running::Running| running.knows(sender.node, sender.boot);
        match self.views.running().is_some_and(is_member) {
            true => self.core.outputs.push_back(GroupOutput::Relayed { from: sender.node, octets }),
            false => self.core.counters.unproven += 1,
        }
    }

    /// A heartbeat has come.
    fn hear(&mut self, now: Time, sender: Sender, heartbeat: &Heartbeat) {
        let Some(news) = self.vitals.heard(&mut self.core, now, sender, heartbeat) else { return };
        let (peers, from) = (&mut self.vitals.peers, sender.node);
        if news.is_newest {
            peers.vouch(&self.core, &self.views, now, from, heartbeat);
            if news.is_recent {
                self.fence.look_for_successors(&mut self.core, &self.views.history, now, from, heartbeat);
            }
        }
        if heartbeat.stance.running
            && let Some(running) = self.views.running_mut()
        {
            running.acknowledged(from, sender.boot, &heartbeat.ack);
        }
        self.fence.echo(&mut self.core, &self.views, peers, from, heartbeat);
    }

    /// Tells the layer above what has become stable, and what follows from it.
    fn settle(&mut self) {
        let Some(running) = self.views.recorded_mut() else { return };
        running.settle(&mut self.core);
        let stability = &running.stability;
        let granted =
            self.leases.grant(|count| match self.core.config.quorum {
                QuorumRule::Majority => self.core.rosters.all().all(|roster| {
                    roster.is_majority(|node| stability.holds(self.core.config.node, node, count))
                }),
                // Where views are counted by the view before, each later view has one of its members.
                QuorumRule::LastManStanding => stability.all_hold(count),
            });
        if stability.has_begun_everywhere() {
            self.views.history.begun_everywhere();
        }
        if let Some(sender) = granted {
            self.core.outputs.push_back(GroupOutput::Sender(sender));
            self.lease(false);
        }
        self.settle_roster();
    }
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("node", &self.core.node()).finish_non_exhaustive()
    }
}
