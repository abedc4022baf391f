//! Heartbeats go out, and come in.

use super::datagram::{Body, Sender};
use super::heartbeat::{self, Heard, Heartbeat, mask};
use super::peers::Peer;
use super::ports;
use super::{Group, GroupOutput};
use crate::node::NodeId;
use std::time::Duration;
use testudo_base::shard::ShardSet;
use testudo_ike::output::Time;

/// What a node says of whose boot nobody has told us counts only if it has heard us so lately.
const VOUCHED_WITHIN: Duration = Duration::from_secs(1);

impl Group {
    /// The health of a port: carrier, driver. Nothing is sent over a link that is down.
    pub fn set_link(&mut self, now: Time, link: u8, up: bool) {
        self.links.set(link, up);
        self.look_at_ports(now);
    }

    /// What this node's heartbeats tell: its load in thousandths, and the shards whose packets it
    /// carries provisionally.
    pub fn set_load(&mut self, load: u16, provisional: ShardSet) {
        (self.load, self.provisional) = (load, provisional);
    }

    /// Notes if this node is late itself: paused, or starved. Then it has yet to read what has come
    /// meanwhile, and others are not silent.
    pub(super) fn attend(&mut self, now: Time) {
        let late = now.since(self.next_heartbeat)
            > self.core.config.heartbeat.max(self.core.config.suspicion.floor / 2);
        if late && !self.late {
            self.core.counters.late += 1;
            (self.late, self.attentive) = (true, now);
            self.peers.all.values_mut().for_each(|peer| peer.listener.grant(now));
        }
    }

    /// Sends heartbeats if it is time, and notes who has been silent for too long.
    pub(super) fn tick(&mut self, now: Time) {
        if self.next_heartbeat <= now {
            self.late = false;
            self.look_at_ports(now);
            self.heartbeat(now);
            let next = self.next_heartbeat.plus(self.core.config.heartbeat);
            self.next_heartbeat = if next > now { next } else { now.plus(self.core.config.heartbeat) };
            self.extend_alone(now);
        }
        let members = mask(self.views.members());
        for (node, peer) in &mut self.peers.all {
            if heartbeat::within(members, *node) && peer.listener.suspect(now, &self.core.config.suspicion) {
                self.core.counters.suspicions += 1;
                self.core.outputs.push_back(GroupOutput::Suspected(*node));
            }
        }
    }

    /// When the next member becomes a suspect, if it stays silent.
    pub(super) fn next_suspicion(&self) -> Option<Time> {
        let peers = self.views.members().iter().filter_map(|node| self.peers.all.get(node));
        peers.filter_map(|peer| peer.listener.due(&self.core.config.suspicion)).min()
    }

    pub(super) fn heartbeat(&mut self, now: Time) {
        if self.peers.all.is_empty() {
            return;
        }
        let heartbeat = Body::Heartbeat(Box::new(self.compose(now)));
        let to: Vec<NodeId> = self.peers.all.keys().copied().collect();
        self.core.send(&to, self.links.up(), &heartbeat);
    }

    fn compose(&mut self, now: Time) -> Heartbeat {
        let seq = self.peers.send(now);
        let (lately, up) = (self.lately(now), self.links.bits() as u8);
        let heard = |(node, peer): (&NodeId, &Peer)| {
            let (boot, at) = (heartbeat::half(peer.boot?), peer.at?);
            let age = heartbeat::age(now.since(at));
            let links = ports::hearing(peer, lately) & up;
            Some(Heard { node: node.get(), boot, seq: peer.seq, age, proof: peer.proof, links })
        };
        Heartbeat {
            seq,
            stance: self.views.stance(),
            ack: self.views.ack(),
            members: mask(self.views.members()),
            base: self.views.history.digest(),
            links: self.links.bits(),
            load: self.load,
            provisional: self.provisional,
            heard: self.peers.all.iter().filter_map(heard).collect(),
        }
    }

    /// A heartbeat has come.
    pub(super) fn pulsed(&mut self, now: Time, sender: Sender, heartbeat: &Heartbeat) {
        let from = sender.node;
        let hears = self.core.heard_in(heartbeat);
        // Else it might be an old heartbeat that somebody has kept.
        let sent = hears.and_then(|heard| self.peers.sent(heard.seq));
        let lately = sent.is_some_and(|sent| now.since(sent) <= VOUCHED_WITHIN);
        let Some(peer) = self.peers.all.get_mut(&from) else {
            self.core.counters.unproven += 1;
            return;
        };
        if peer.boot != Some(sender.boot) {
            match lately && heartbeat.stance.quorate {
                true => peer.quorate = Some(now),
                false => self.core.counters.unproven += 1,
            }
            return;
        }
        if !peer.admit(now, sender.link, heartbeat.seq) {
            self.core.counters.replayed += 1;
            return;
        }
        if heartbeat.seq > peer.seq {
            (peer.seq, peer.at) = (heartbeat.seq, Some(now));
            let told = (heartbeat.links, heartbeat.provisional);
            let trusted = peer.listener.heard(now, &self.core.config.suspicion);
            let changed = std::mem::replace(&mut peer.up, told.0) != told.0;
            let changed = std::mem::replace(&mut peer.provisional, told.1) != told.1 || changed;
            peer.load = heartbeat.load;
            peer.hearing = ports::of(&heartbeat.heard, self.core.node());
            peer.hears = hears.map(|heard| Duration::from_millis(heard.age.into()));
            peer.quorate = if heartbeat.stance.quorate { Some(now) } else { peer.quorate };
            if trusted {
                self.core.outputs.push_back(GroupOutput::Trusted(from));
            }
            if changed {
                let (links, provisional) = told;
                self.core.outputs.push_back(GroupOutput::Told { from, links, provisional });
            }
            self.vouch(now, from, heartbeat);
            if lately {
                self.look_for_successors(now, from, heartbeat);
            }
        }
        if heartbeat.stance.running
            && let Some(running) = self.views.running_mut()
        {
            running.acknowledged(from, sender.boot, &heartbeat.ack);
        }
        self.echo(from, heartbeat);
    }
}
