//! Signs of life: this node's heartbeats go out, and heartbeats of the others come in. A node that
//! is silent for too long becomes a suspect.

pub(super) mod peers;
mod ports;
mod rows;
mod suspicion;

use super::core::Core;
use super::datagram::{Body, Sender};
use super::heartbeat::{Heard, Heartbeat, age, half, mask, within};
use super::links::Links;
use super::roster::Rosters;
use super::views::Views;
use super::{GroupConfig, GroupOutput};
use crate::node::NodeId;
use peers::{Peer, Peers};
use ports::{Hearing, Ports};
use rows::RowClocks;
use std::time::Duration;
use testudo_base::session::Told;
use testudo_base::shard::ShardSet;
use testudo_base::spi::Shard;
use testudo_ike::output::Time;

/// A heartbeat is new if its sender has heard one of this node's that is no older than this.
const VOUCHED_WITHIN: Duration = Duration::from_secs(1);
/// A node that was heard on a link within this time is heard there.
const HEARD_WITHIN: Duration = Duration::from_millis(300);

/// Slots of sessions in a datagram: it fits an Ethernet frame.
const TOLD_AT_ONCE: usize = 192;

/// See the module.
pub(super) struct Vitals {
    pub(super) peers: Peers,
    pub(super) links: Links,
    ports: Ports,
    /// How much of one processor this node takes, in thousandths.
    load: u16,
    /// The shards whose packets it carries provisionally.
    provisional: ShardSet,
    /// How far the row clocks of shards with spread SAs have come.
    row_clocks: RowClocks,
    /// What goes with the next heartbeat of the slots of sessions, and the number of the last
    /// datagram with any.
    sessions: (u64, Vec<Told>),
    next_heartbeat: Time,
    /// Since when this node has done everything in time, and has been in its view.
    attentive: Time,
    /// The node is late. That has been counted, and no heartbeat has left since.
    is_late: bool,
}

/// What comes of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct News {
    /// It is the newest of its sender over any link.
    pub(super) is_newest: bool,
    /// Its sender has heard this node lately: it is no old heartbeat that somebody has kept.
    pub(super) is_recent: bool,
}

impl Vitals {
    /// At the start of a node.
    pub(super) fn new(config: &GroupConfig, rosters: &Rosters, now: Time) -> Self {
        Self {
            peers: Peers::new(config, rosters, now),
            links: Links::new(config.links),
            ports: Ports::WELL,
            load: 0,
            provisional: ShardSet::EMPTY,
            row_clocks: RowClocks::default(),
            sessions: (0, Vec::new()),
            next_heartbeat: now,
            attentive: now,
            is_late: false,
        }
    }

    /// A link is up, or down.
    pub(super) fn set_link(&mut self, core: &mut Core, now: Time, link: u8, up: bool) {
        self.links.set(link, up);
        self.look_at_ports(core, now);
    }

    /// What this node's heartbeats say of it from now on.
    pub(super) fn set_load(&mut self, load: u16, provisional: ShardSet) {
        (self.load, self.provisional) = (load, provisional);
    }

    /// The row clocks that go out with this node's heartbeats from now on.
    pub(super) fn set_row_clocks(&mut self, clocks: Vec<(Shard, u64)>) {
        self.row_clocks.set(clocks);
    }

    /// What goes to the other nodes with the next heartbeat, of the slots of sessions.
    pub(super) fn set_sessions(&mut self, told: Vec<Told>) {
        self.sessions.1 = told;
    }

    /// True if a heartbeat is due.
    pub(super) fn is_due(&self, now: Time) -> bool {
        self.next_heartbeat <= now
    }

    /// Notes if this node is late itself: paused, or starved. Then it has yet to read what has come
    /// meanwhile, and the others are not silent.
    pub(super) fn attend(&mut self, core: &mut Core, now: Time) {
        let bound = core.config.heartbeat.max(core.config.suspicion.floor / 2);
        if now.since(self.next_heartbeat) > bound && !self.is_late {
            core.counters.late += 1;
            (self.is_late, self.attentive) = (true, now);
            self.peers.grant_all(now);
        }
    }

    /// Since when this node has done everything in time, and has been in its view.
    pub(super) fn attentive_since(&self) -> Time {
        self.attentive
    }

    /// The view is over: what the others say in the next one is yet to come.
    pub(super) fn leave_view(&mut self, now: Time) {
        self.attentive = now;
    }

    /// The engine has a new view, or none: `members` is empty then.
    pub(super) fn change_ring(&mut self, core: &mut Core, now: Time, before: &[NodeId], members: &[NodeId]) {
        let trusted = self.peers.ring(now, before, members);
        core.outputs.extend(trusted.into_iter().map(GroupOutput::Trusted));
    }

    /// When a heartbeat or row clocks are due, or a member becomes a suspect if it stays silent.
    pub(super) fn next_timeout(&self, core: &Core, members: &[NodeId]) -> Time {
        let suspicion = &core.config.suspicion;
        let suspicions = members.iter().filter_map(|node| self.peers.all.get(node)?.listener.due(suspicion));
        suspicions.chain(self.row_clocks.next_timeout()).fold(self.next_heartbeat, Time::min)
    }

    /// Sends heartbeats if they are due. True if they were.
    pub(super) fn beat(&mut self, core: &mut Core, views: &Views, now: Time) -> bool {
        let due = self.is_due(now);
        if due {
            self.is_late = false;
            self.look_at_ports(core, now);
            self.send(core, views, now);
            let next = self.next_heartbeat.plus(core.config.heartbeat);
            self.next_heartbeat = if next > now { next } else { now.plus(core.config.heartbeat) };
        }
        due
    }

    /// Notes which members have been silent for too long.
    pub(super) fn suspect(&mut self, core: &mut Core, members: &[NodeId], now: Time) {
        let members = mask(members);
        for (node, peer) in &mut self.peers.all {
            if within(members, *node) && peer.listener.suspect(now, &core.config.suspicion) {
                core.counters.suspicions += 1;
                core.outputs.push_back(GroupOutput::Suspected(*node));
            }
        }
    }

    /// Sends a heartbeat to every node, over every link.
    pub(super) fn send(&mut self, core: &mut Core, views: &Views, now: Time) {
        if self.peers.all.is_empty() {
            return;
        }
        let heartbeat = Body::Heartbeat(Box::new(self.compose(core, views, now)));
        let to: Vec<NodeId> = self.peers.all.keys().copied().collect();
        core.send(&to, self.links.up(), &heartbeat);
        // Beside the heartbeat, whose form older versions know.
        let clocks = self.row_clocks.take(&core.config, to.len() + 1, now);
        if !clocks.is_empty() {
            core.send(&to, self.links.up(), &Body::RowClocks(clocks));
        }
        let (number, told) = &mut self.sessions;
        for told in std::mem::take(told).chunks(TOLD_AT_ONCE) {
            *number += 1;
            core.send(&to, self.links.up(), &Body::Sessions(*number, told.to_vec()));
        }
    }

    /// What another node says of the slots of sessions. Each datagram counts once, and none that is
    /// older than another. After a restart of this node none counts before a heartbeat that shows
    /// that it is of now: so nobody can set a node back by sending one again.
    pub(super) fn sessions_told(&mut self, core: &mut Core, sender: Sender, number: u64, told: Vec<Told>) {
        let peer = self.peers.all.get_mut(&sender.node);
        let Some(peer) = peer.filter(|peer| peer.boot == Some(sender.boot) && peer.proof != 0) else {
            core.counters.unproven += 1;
            return;
        };
        if number > peer.sessions {
            peer.sessions = number;
            core.outputs.push_back(GroupOutput::Sessions { from: sender.node, told });
        }
    }

    /// Sends the row clocks between two heartbeats, over one link, if they move fast.
    pub(super) fn tell_rows(&mut self, core: &mut Core, now: Time) {
        let nodes = self.peers.all.len() + 1;
        if let Some(clocks) = self.row_clocks.take_due(&core.config, nodes, now) {
            let to: Vec<NodeId> = self.peers.all.keys().copied().collect();
            core.send(&to, self.links.up().take(1), &Body::RowClocks(clocks));
        }
    }

    /// Row clocks of another node have come. Those of its earlier boots do not count.
    pub(super) fn row_clocks_told(&self, core: &mut Core, sender: Sender, clocks: Vec<(Shard, u64)>) {
        let peer = self.peers.all.get(&sender.node);
        match peer.is_some_and(|peer| peer.boot == Some(sender.boot)) {
            true => core.outputs.push_back(GroupOutput::RowClocks(clocks)),
            false => core.counters.unproven += 1,
        }
    }

    fn compose(&mut self, core: &Core, views: &Views, now: Time) -> Heartbeat {
        let seq = self.peers.send(now);
        let (lately, up) = (lately(&core.config, now), self.links.bits() as u8);
        let heard = |(node, peer): (&NodeId, &Peer)| {
            let (boot, at) = (half(peer.boot?), peer.at?);
            let links = ports::hearing(peer, lately) & up;
            let age = age(now.since(at));
            Some(Heard { node: node.get(), boot, seq: peer.seq, age, proof: peer.proof, links })
        };
        Heartbeat {
            seq,
            stance: views.stance(),
            ack: views.ack(),
            members: mask(views.members()),
            base: views.history.digest(),
            links: self.links.bits(),
            load: self.load,
            provisional: self.provisional,
            heard: self.peers.all.iter().filter_map(heard).collect(),
        }
    }

    /// A heartbeat has come. `None` if it does not count, which is counted.
    pub(super) fn heard(
        &mut self,
        core: &mut Core,
        now: Time,
        sender: Sender,
        heartbeat: &Heartbeat,
    ) -> Option<News> {
        let hears = core.heard_in(heartbeat);
        let sent = hears.and_then(|heard| self.peers.sent(heard.seq));
        let is_recent = sent.is_some_and(|sent| now.since(sent) <= VOUCHED_WITHIN);
        let Some(peer) = self.peers.all.get_mut(&sender.node) else {
            core.counters.unproven += 1;
            return None;
        };
        if peer.boot != Some(sender.boot) {
            match is_recent && heartbeat.stance.quorate {
                true => peer.quorate = Some(now),
                false => core.counters.unproven += 1,
            }
            return None;
        }
        if !peer.admit(now, sender.link, heartbeat.seq) {
            core.counters.replayed += 1;
            return None;
        }
        let is_newest = heartbeat.seq > peer.seq;
        if is_newest {
            let trusted = peer.listener.heard(now, &core.config.suspicion);
            let changed = (peer.up, peer.provisional) != (heartbeat.links, heartbeat.provisional);
            peer.note(now, core.node(), heartbeat, hears);
            if trusted {
                core.outputs.push_back(GroupOutput::Trusted(sender.node));
            }
            if changed {
                let Heartbeat { links, provisional, .. } = *heartbeat;
                core.outputs.push_back(GroupOutput::Told { from: sender.node, links, provisional });
            }
        }
        Some(News { is_newest, is_recent })
    }

    /// Looks at the ports, and tells what has changed.
    fn look_at_ports(&mut self, core: &mut Core, now: Time) {
        let since = lately(&core.config, now);
        let is_broken = self.links.lacks_port() || {
            // A node that was late itself, or has come into another view, has not heard yet what it
            // will.
            let hearing = match self.attentive < since {
                true => ports::heard_on_all(&core.config, &self.peers, since),
                false => Hearing::Unknown,
            };
            self.ports.hear(hearing, now, since)
        };
        if let Some(well) = self.ports.judge(is_broken, now) {
            core.outputs.push_back(GroupOutput::Ports { well });
        }
    }
}

/// What was heard since then was heard lately.
fn lately(config: &GroupConfig, now: Time) -> Time {
    let span = HEARD_WITHIN.max(config.heartbeat.saturating_mul(10));
    Time(now.0.saturating_sub(span))
}
