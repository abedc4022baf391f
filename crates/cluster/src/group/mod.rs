//! The group: what nodes agree on before anything is said of IPsec. Sans-IO, and it knows nothing
//! of IKE.
//!
//! Over the engine's total order it makes views in which all members start from the same state,
//! seals what they say under a key that each view makes anew, and tells when it is *stable*:
//! acknowledged by every member. An engine that delivers a message to its sender has not shown that
//! anybody else holds it.

mod alone;
mod bulk;
mod config;
mod core;
mod datagram;
mod durable;
mod exchange;
mod fence;
mod frame;
mod heartbeat;
mod heartbeats;
mod keys;
mod lease;
mod links;
mod outbox;
mod output;
mod peers;
mod ports;
mod queue;
mod send;
mod stability;
mod status;
mod suspicion;
#[cfg(test)]
mod tests;
mod view;

pub use config::{ClusterKey, GroupConfig, NoQuorum, SuspicionConfig};
pub use durable::{Begun, Durable};
pub use outbox::Ticket;
pub use output::{GroupOutput, ViewStart};
pub use stability::Position;
pub use status::{Counters, GroupStatus, PeerStatus, Phase};

use self::core::Core;
use crate::engine::{EngineEvent, RingId};
use datagram::Body;
use exchange::Held;
use lease::Leases;
use links::Links;
use outbox::Outbox;
use peers::Peers;
use queue::EngineQueue;
use testudo_base::shard::ShardSet;
use testudo_ike::output::{LogLevel, Time};
use testudo_ike::suite::Entropy;
use view::Stage;
use zeroize::Zeroizing;

/// See the module. The host hands in events, datagrams and the time, calls [`Self::flush`] at the
/// end of each of its turns, and does what [`Self::poll_output`] asks for.
pub struct Group {
    core: Core,
    stage: Stage,
    /// What has come for a view that has begun at its sender, and not yet here.
    early: Vec<bulk::Early>,
    /// The others have gone on without this node, and no view has begun since.
    out: bool,
    held: Held,
    synced: bool,
    /// What the disk has, or is about to have; and up to which epoch it is known to.
    durable: Durable,
    on_disk: u64,
    /// The disk may say less than there was.
    doubtful: bool,
    /// Since the last view that has begun nobody else can have gone on alone.
    unbroken: bool,
    /// Since when this node, and others with it, have waited for who holds the state.
    waits_since: Option<Time>,
    outbox: Outbox,
    leases: Leases,
    queue: EngineQueue,
    /// When to say STATUS again, should the engine have lost it.
    repeat: Option<Time>,
    peers: Peers,
    next_heartbeat: Time,
    /// Since when this node has done everything in time.
    attentive: Time,
    /// That it is late has been noted, and it has not caught up yet.
    late: bool,
    /// Packets may leave until then.
    fence: Time,
    /// When it was last heard that a later quorate view goes on without this node.
    passed_over: Option<Time>,
    links: Links,
    ports: ports::Ports,
    /// What heartbeats tell of this node.
    load: u16,
    provisional: ShardSet,
    /// Something was delivered since the last acknowledgement.
    unacknowledged: bool,
}

impl Group {
    /// A node begins, with what it has written to its disk.
    pub fn new(
        config: GroupConfig,
        durable: Durable,
        entropy: Box<dyn Entropy + Send>,
        now: Time,
    ) -> Self {
        Self {
            leases: Leases::new(config.node, durable.incarnation),
            peers: Peers::new(&config, now),
            links: Links::new(config.links),
            core: Core::new(config, entropy),
            stage: Stage::Down,
            early: Vec::new(),
            out: false,
            held: Held::NOTHING,
            synced: false,
            durable,
            on_disk: durable.begun.epoch,
            doubtful: false,
            unbroken: false,
            waits_since: None,
            outbox: Outbox::default(),
            queue: EngineQueue::default(),
            repeat: None,
            next_heartbeat: now,
            attentive: now,
            late: false,
            fence: Time::default(),
            passed_over: None,
            ports: ports::Ports::WELL,
            load: 0,
            provisional: ShardSet::EMPTY,
            unacknowledged: false,
        }
    }

    /// The engine tells something.
    pub fn handle_event(&mut self, now: Time, event: EngineEvent) {
        self.attend(now);
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
        self.attend(now);
        match self.core.read_datagram(now, link, bytes) {
            Some((sender, Body::Ack(ack))) => self.acknowledged(sender.node, sender.boot, &ack),
            Some((sender, Body::Heartbeat(heartbeat))) => self.pulsed(now, sender, &heartbeat),
            Some((sender, Body::Rest(of, rest))) => self.rest_came(now, sender.node, of, rest),
            Some((sender, Body::Missing(_, of))) => self.rest_missing(now, sender, &of),
            None => {}
        }
        self.settle();
    }

    /// [`Self::next_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Time) {
        self.attend(now);
        self.tick(now);
        self.queue.handle_timeout(now);
        if self.repeat.is_some_and(|at| at <= now) {
            self.say_status(now);
        }
        self.look_after_rests(now);
        self.settle();
    }

    /// When [`Self::handle_timeout`] is wanted.
    pub fn next_timeout(&self) -> Option<Time> {
        let rest = match &self.stage {
            Stage::Running(running) => running.bulk.next_timeout(),
            _ => None,
        };
        [self.queue.next_timeout(), self.repeat, Some(self.next_heartbeat), self.next_suspicion(), rest]
            .into_iter()
            .flatten()
            .min()
    }

    /// Adds an update to the open batch. It leaves with [`Self::flush`], and waits while there is
    /// no quorate view.
    pub fn publish(&mut self, update: Vec<u8>) -> Ticket {
        self.outbox.publish(&Zeroizing::new(update))
    }

    /// True while a quorate view waits for what its members say of themselves, which is a matter of
    /// moments. It may turn out then that none of them holds the latest state: who waits for that
    /// waits for nodes that are not there.
    pub fn is_forming(&self) -> bool {
        matches!(&self.stage, Stage::Forming(exchange) if exchange.missing().next().is_some())
    }

    /// The layer above holds the whole state now: a node that was `fresh` has been brought up to
    /// date. To be said where the last of it is delivered, before any later event is handed in.
    pub fn synced(&mut self) {
        if matches!(self.stage, Stage::Running(_)) {
            (self.synced, self.doubtful) = (true, false);
        }
    }

    /// The disk has what [`GroupOutput::Persist`] told: what was delivered in that view is
    /// acknowledged from now on.
    pub fn persisted(&mut self, durable: &Durable) {
        self.on_disk = self.on_disk.max(durable.begun.epoch);
        self.unacknowledged = true;
        self.settle();
    }

    /// IVs run low: the next incarnation is wanted.
    pub fn renew_sender(&mut self, _now: Time) {
        self.leases.want();
        self.lease(false);
    }

    /// The machine has gone back to an earlier state: nothing that this node holds is valid any
    /// more. Packets stop until a new view and a new sender ID; the host must make the node join
    /// again.
    pub fn rolled_back(&mut self, now: Time) {
        self.core.draw_boot();
        (self.held, self.synced) = (Held::NOTHING, false);
        (self.doubtful, self.unbroken, self.waits_since) = (true, false, None);
        self.outbox.clear();
        self.leases.void();
        self.core.log(
            LogLevel::Warning,
            "the machine has gone back to an earlier state: joining the cluster anew".to_owned(),
        );
        self.leave(now);
        fence::forget(&mut self.peers, now, self.core.config.fence);
        self.fence = now;
        self.core.outputs.extend([GroupOutput::Fence(now), GroupOutput::Rejoin]);
    }

    /// What to do next.
    pub fn poll_output(&mut self) -> Option<GroupOutput> {
        let next = self.core.outputs.pop_front();
        next.or_else(|| self.queue.pop().map(GroupOutput::Multicast))
    }
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("node", &self.core.node()).finish_non_exhaustive()
    }
}
