//! The events of nodes, and their actions.

use super::slot::{Birth, Lived, MAX_RING_PACKETS, Pause, Slot};
use super::{Actor, Arrival, What, World};
use crate::checks::{Accepted, Invariant};
use crate::config;
use crate::engine::{MILLI, Nanos, Votes};
use crate::host::{Effect, Input, Sent, Taken};
use crate::network::Link;
use crate::probe;
use crate::random::HostEntropy;
use crate::trace::{Who, digest};
use std::net::IpAddr;
use testudo_base::spi::Shard;
use testudo_cluster::group::Durable;
use testudo_ike::output::{Event, Path, Reason};

/// Time after which an engine that refused may be tried again.
const ENGINE_RETRY_INTERVAL: Nanos = 10 * MILLI;
/// Time between two turns of a control thread that has more to do.
const TURN_INTERVAL: Nanos = MILLI / 10;
/// How many nodes relay a packet at most (`testudo_ipsec::dataplane::relay`).
const MAX_RELAYS: u8 = 2;

impl World {
    /// A node starts, with only its disk.
    pub(super) fn boot(&mut self, index: usize) {
        let seed = self.random.number();
        let slot = &mut self.slots[index];
        slot.boots += 1;
        let birth = Birth {
            index,
            id: slot.id,
            boot: slot.boots,
            now: slot.clock.at(self.schedule.now),
            disk: slot.disk.clone(),
            entropy: HostEntropy::new(seed),
        };
        slot.host = Some((self.make)(&self.scenario, &birth));
        slot.birth_at = self.schedule.now;
        (slot.birth, slot.empty, slot.refused, slot.pause) = (Some(birth), true, false, None);
        slot.history.clear();
        self.note(Who::Node(index), "starts", u64::from(self.slots[index].disk.incarnation), seed);
        self.engines.start(self.schedule.now, index);
        self.after(index);
    }

    /// A node dies.
    pub(super) fn crash(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        slot.host = None;
        slot.empty = true;
        slot.pause = None;
        slot.packets.clear();
        slot.inbox.clear();
        slot.history.clear();
        self.holders.forget(index, None);
        self.engines.freeze(self.schedule.now, index, false);
        // The process alone, or with its host.
        let alone = self.random.permille(300);
        match alone {
            true => self.engines.leave(self.schedule.now, index),
            false => self.engines.stop(self.schedule.now, index, false),
        }
        self.engines.serve(self.schedule.now, index, true);
        self.schedule.wake(Actor::Node(index), None);
        self.note(Who::Node(index), "dies", u64::from(alone), 0);
    }

    /// A node stops.
    pub(super) fn pause(&mut self, index: usize, pause: Pause) {
        self.slots[index].pause = Some(pause);
        match pause {
            Pause::Host => self.engines.freeze(self.schedule.now, index, true),
            Pause::Process => self.engines.serve(self.schedule.now, index, false),
        }
        self.schedule.wake(Actor::Node(index), None);
        self.note(Who::Node(index), "stands still", pause as u64, 0);
    }

    /// A node continues, with everything that has been queued.
    pub(super) fn resume(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        if slot.pause.take().is_none() {
            return;
        }
        let packets = std::mem::take(&mut slot.packets);
        let inbox = std::mem::take(&mut slot.inbox);
        self.engines.freeze(self.schedule.now, index, false);
        self.engines.serve(self.schedule.now, index, true);
        self.note(Who::Node(index), "goes on", packets.len() as u64, inbox.len() as u64);
        // Its threads wake up in any order.
        let worker_first = self.random.permille(500);
        if self.random.permille(300) {
            self.handle(index, Input::Timeout);
        }
        let [first, second] = if worker_first { [packets, inbox] } else { [inbox, packets] };
        first.into_iter().chain(second).for_each(|input| self.handle(index, input));
        self.after(index);
    }

    /// A machine is restored: its memory, and perhaps its disk, is that of an earlier time, and it
    /// notices at once.
    pub(super) fn roll_back(&mut self, index: usize, to: Nanos, with_disk: bool) {
        let seed = self.random.number();
        let slot = &mut self.slots[index];
        let Some(birth) = slot.birth.clone() else { return };
        let entropy = birth.entropy.begin_again();
        let mut host = (self.make)(&self.scenario, &Birth { entropy: entropy.clone(), ..birth });
        let mut disk = None;
        slot.history.retain(|(at, ..)| *at <= to);
        for (_, now, lived) in &slot.history {
            match lived {
                Lived::Input(input) => host.handle(*now, input.clone()),
                Lived::Filter(packet) => drop(host.filter_outer(packet)),
                Lived::SetBack(seed) => entropy.reseed(*seed),
            }
            for effect in host.take_effects() {
                if let Effect::Persist(durable) = effect {
                    disk = Some(durable);
                }
            }
        }
        entropy.reseed(seed);
        // After another rollback it goes through this one again.
        slot.history.push((self.schedule.now, slot.clock.at(self.schedule.now), Lived::SetBack(seed)));
        if let Some(disk) = disk.filter(|_| with_disk) {
            slot.disk = disk;
        }
        (slot.host, slot.empty, slot.pause, slot.refused) = (Some(host), true, None, false);
        slot.packets.clear();
        slot.inbox.clear();
        self.holders.forget(index, None);
        self.note(Who::Node(index), "is set back to", to, u64::from(with_disk));
        self.engines.freeze(self.schedule.now, index, false);
        self.engines.stop(self.schedule.now, index, true);
        self.engines.start(self.schedule.now, index);
        self.handle(index, Input::RolledBack);
        self.after(index);
    }

    /// Processes an arrival at a node.
    pub(super) fn arrive(&mut self, index: usize, arrival: Arrival) {
        let (rollbacks, routed) = (self.scenario.rollbacks, self.scenario.routed.is_some());
        let (arrival, relays) = match arrival {
            Arrival::Relayed(arrival, relays) => (*arrival, relays),
            arrival => (arrival, 0),
        };
        let slot = &mut self.slots[index];
        let Some(host) = &mut slot.host else { return };
        if slot.pause == Some(Pause::Host)
            && !matches!(arrival, Arrival::Input(_))
            && slot.packets.len() >= MAX_RING_PACKETS
        {
            return;
        }
        let input = match arrival {
            Arrival::Input(ref input) => Some(input.clone()),
            Arrival::Ike(path, ref bytes) => host.filter_ike(bytes).then(|| Input::Ike(path, bytes.clone())),
            Arrival::Outer(ref packet) | Arrival::Fragments(ref packet) => {
                if rollbacks {
                    let lived = Lived::Filter(packet.clone());
                    slot.history.push((self.schedule.now, slot.clock.at(self.schedule.now), lived));
                }
                let comes_in =
                    host.filter_outer(packet) || matches!(arrival, Arrival::Fragments(_)) && !routed;
                comes_in.then(|| Input::Esp(packet.clone()))
            }
            Arrival::Inner(ref packet) => host.filter_inner(packet).then(|| Input::Clear(packet.clone())),
            Arrival::Relayed(..) => None,
        };
        let Some(input) = input else {
            let now = slot.clock.at(self.schedule.now);
            let to = match &arrival {
                Arrival::Outer(packet) | Arrival::Fragments(packet) => {
                    host.relays_outer(now, packet, relays == 0)
                }
                Arrival::Inner(packet) => host.relays_inner(now, packet, relays == 0),
                _ => None,
            };
            let to = to.filter(|_| routed && relays < MAX_RELAYS && slot.pause.is_none());
            if let Some(to) = to.and_then(|to| self.slots.iter().position(|slot| slot.id == to)) {
                self.relay(index, to, Arrival::Relayed(Box::new(arrival), relays + 1));
            }
            return;
        };
        if slot.pause.is_some() {
            return slot.hold(input);
        }
        self.handle(index, input);
        self.after(index);
    }

    fn handle(&mut self, index: usize, input: Input) {
        let (what, detail) = describe(&input);
        self.note(Who::Node(index), what, detail, 0);
        let slot = &mut self.slots[index];
        let now = slot.clock.at(self.schedule.now);
        if self.scenario.rollbacks {
            slot.history.push((self.schedule.now, now, Lived::Input(input.clone())));
        }
        if let Some(host) = &mut slot.host {
            host.handle(now, input);
        }
        self.effects(index);
    }

    /// Executes a node's actions.
    fn effects(&mut self, index: usize) {
        loop {
            let Some(host) = &mut self.slots[index].host else { return };
            let effects = host.take_effects();
            if effects.is_empty() {
                break;
            }
            effects.into_iter().for_each(|effect| self.effect(index, effect));
        }
        self.check_accounts(index);
    }

    fn effect(&mut self, index: usize, effect: Effect) {
        let who = Who::Node(index);
        match effect {
            Effect::Multicast(bytes) => self.multicast(index, bytes),
            Effect::Heartbeat(to, link, bytes) => {
                let Some(to) = self.slots.iter().position(|slot| slot.id == to) else { return };
                let Some(network) = Link::ALL.get(usize::from(link)) else { return };
                for at in self.network.between(self.schedule.now, *network, index, to) {
                    self.schedule
                        .at(at, What::Node(to, Arrival::Input(Input::Heartbeat(link, bytes.clone()))));
                }
            }
            Effect::Ike(path, bytes) => {
                self.note(who, "sends IKE", digest(&bytes), 0);
                self.checks.ike_sent(self.schedule.now, who, &bytes);
                self.ike_to_peer(index, path, bytes);
            }
            Effect::Outer(sent) => self.sent(index, sent),
            Effect::Inner(packet) => {
                if !self.network.through(self.schedule.now, Link::Inner, index).is_empty() {
                    self.traffic.arrived_inside(&packet);
                }
            }
            Effect::Accepted(taken) => self.taken(index, &taken),
            Effect::Spent(key, numbers) => {
                self.note(who, "sends much", numbers.start, numbers.end);
                self.checks.esp_spent(self.schedule.now, who, key, numbers);
            }
            Effect::Unrested(spi) => {
                let what = format!("SPI {:08x} has the slot of one that must rest", spi.0);
                self.checks.violate(Invariant::Accepted, self.schedule.now, who, what);
            }
            Effect::RelayedAgain => {
                let what = "relays an IKE message that was relayed to it".to_owned();
                self.checks.violate(Invariant::Accounting, self.schedule.now, who, what);
            }
            Effect::Rejoin => {
                self.engines.stop(self.schedule.now, index, true);
                self.engines.start(self.schedule.now, index);
            }
            Effect::Persist(durable) => self.persist(index, durable),
            Effect::Leave => self.schedule.at(self.schedule.now, What::Left(index)),
            Effect::Majorities(number, nodes) if self.scenario.changes => {
                self.engines.count_by(index, number, nodes)
            }
            Effect::Majorities(..) => {}
            Effect::Event(event) => self.node_event(index, &event),
        }
    }

    fn multicast(&mut self, index: usize, bytes: Vec<u8>) {
        self.note(Who::Node(index), "multicasts", digest(&bytes), bytes.len() as u64);
        let Err(bytes) = self.engines.multicast(self.schedule.now, index, bytes) else { return };
        let slot = &mut self.slots[index];
        if !slot.refused {
            slot.refused = true;
            self.schedule.at(
                self.schedule.now + ENGINE_RETRY_INTERVAL,
                What::Node(index, Arrival::Input(Input::Ready)),
            );
        }
        let slot = &mut self.slots[index];
        let now = slot.clock.at(self.schedule.now);
        if self.scenario.rollbacks {
            slot.history.push((self.schedule.now, now, Lived::Input(Input::Refused(bytes.clone()))));
        }
        if let Some(host) = &mut slot.host {
            host.handle(now, Input::Refused(bytes));
        }
    }

    /// An incarnation is written at once, while the node waits; other writes take as long as disks
    /// take, and are lost if the node dies first.
    fn persist(&mut self, index: usize, durable: Durable) {
        self.note(Who::Node(index), "persists", u64::from(durable.incarnation), durable.begun.epoch);
        let disk = &self.slots[index].disk;
        if durable.incarnation != disk.incarnation {
            self.slots[index].disk = durable.clone().on_top_of(disk.clone());
        }
        let slow = if self.random.permille(100) { 300 } else { 10 };
        let at = self.schedule.now + self.random.below(slow * MILLI);
        let boot = self.slots[index].boots;
        self.schedule.at(at, What::Written(index, boot, durable));
    }

    /// A node's disk has completed a write.
    pub(super) fn written(&mut self, index: usize, boot: u64, durable: Durable) {
        let slot = &mut self.slots[index];
        if slot.boots == boot && slot.host.is_some() {
            slot.disk = durable.clone().on_top_of(slot.disk.clone());
            self.arrive(index, Arrival::Input(Input::Written(durable)));
        }
    }

    fn ike_to_peer(&mut self, index: usize, path: Path, bytes: Vec<u8>) {
        let IpAddr::V4(to) = path.remote.ip() else { return };
        let Some(peer) = config::peer_at(to).filter(|peer| *peer < self.peers.len()) else { return };
        let path = Path { local: path.remote, remote: path.local };
        for at in self.network.through(self.schedule.now, Link::Outer, index) {
            self.schedule.at(at, What::PeerIke(peer, path, bytes.clone()));
        }
    }

    fn sent(&mut self, index: usize, sent: Sent) {
        let who = Who::Node(index);
        let Sent { packet, key, shard, provisional } = sent;
        let (esp, to) = (probe::esp(&packet), probe::destination(&packet));
        self.checks.left_outside(self.schedule.now, who, esp.as_ref(), to);
        let (Some(esp), Some(key), Some(to)) = (esp, key, to) else { return };
        self.note(who, "sends ESP", u64::from(esp.spi), u64::from(esp.sequence));
        self.checks.esp_sent(self.schedule.now, who, key, &esp);
        if let Some(shard) = shard {
            self.check_owner(index, shard, provisional);
        }
        let Some(peer) = config::peer_at(to).filter(|peer| *peer < self.peers.len()) else { return };
        for at in self.network.through(self.schedule.now, Link::Outer, index) {
            self.schedule.at(at, What::PeerEsp(peer, packet.clone()));
        }
    }

    fn taken(&mut self, index: usize, taken: &Taken) {
        let Taken { key, sequence, shard, provisional, unseen } = *taken;
        self.note(Who::Node(index), "takes ESP in", u64::from(sequence), u64::from(provisional));
        let by = Accepted { node: index, boot: self.slots[index].boots, provisional, unseen };
        self.checks.accepted(self.schedule.now, key, sequence, by);
        self.check_owner(index, shard, provisional);
    }

    /// A suspect's shard may be carried only by the standby that the view names, whomever the node
    /// suspects besides. A shard has at most one owner; a node alone without a quorum continues
    /// with what it owned, if configured.
    fn check_owner(&mut self, index: usize, shard: Shard, provisional: bool) {
        if provisional && !self.slots[index].host.as_ref().is_some_and(|host| host.is_named(shard)) {
            let what = format!("carries shard {} and is not its standby", shard.0);
            self.checks.violate(Invariant::Accepted, self.schedule.now, Who::Node(index), what);
        }
        if provisional || !self.is_quorate(index) {
            return;
        }
        let owns = |(other, slot): &(usize, &Slot)| {
            let now = slot.clock.at(self.schedule.now);
            *other != index
                && slot.runs()
                && self.is_quorate(*other)
                && slot.host.as_ref().is_some_and(|host| host.owns(now, shard))
        };
        if let Some((other, _)) = self.slots.iter().enumerate().find(owns)
            && !self.fate.is_split_brain()
        {
            let what = format!("node {} owns shard {} too", other + 1, shard.0);
            self.checks.violate(Invariant::Accepted, self.schedule.now, Who::Node(index), what);
        }
    }

    /// True unless a node has no quorum and may continue without one.
    fn is_quorate(&self, index: usize) -> bool {
        let host = self.slots[index].host.as_ref();
        let standing = host.and_then(|host| host.standing());
        !self.scenario.forward || standing.map_or(self.slots.len() == 1, |standing| standing.quorate)
    }

    fn check_accounts(&mut self, index: usize) {
        let Some(host) = &self.slots[index].host else { return };
        let totals = host.plane().totals();
        if !(totals.inbound.is_balanced() && totals.outbound.is_balanced()) {
            self.checks.violate(
                Invariant::Accounting,
                self.schedule.now,
                Who::Node(index),
                format!("{totals:?}"),
            );
        }
    }

    fn node_event(&mut self, index: usize, event: &Event) {
        match event {
            Event::IkeUp(ike) => self.note(Who::Node(index), "IKE is up", ike.0, 0),
            Event::IkeDown(ike, reason) => {
                self.note(Who::Node(index), "IKE is down", ike.0, 0);
                if matches!(reason, Reason::Timeout { .. }) && self.fate.may_blame() {
                    let what = format!("gives a peer up: {reason}");
                    self.checks.violate(Invariant::Answered, self.schedule.now, Who::Node(index), what);
                }
            }
            Event::ChildRekeyed(..) => self.traffic.rekeys += 1,
            Event::IkeRekeyed(..) => self.traffic.ike_rekeys += 1,
            _ => {}
        }
    }

    /// After an action of a node: updates its next deadline and its position.
    fn after(&mut self, index: usize) {
        let slot = &self.slots[index];
        let at = match &slot.host {
            Some(host) if slot.pause.is_none() => {
                // What is due at once runs in the next turn of its thread: others take their turns
                // first.
                let turn =
                    |at: Nanos| if at <= self.schedule.now { self.schedule.now + TURN_INTERVAL } else { at };
                host.next_timeout().map(|local| turn(slot.clock.when(local, self.schedule.now)))
            }
            _ => None,
        };
        self.schedule.wake(Actor::Node(index), at);
        self.note_standing(index);
    }

    /// Records which nodes have the cluster's state.
    fn note_standing(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let Some(standing) = slot.host.as_ref().and_then(|host| host.standing()) else { return };
        if !standing.quorate {
            return;
        }
        let at = (standing.ring, standing.epoch);
        if !standing.synced {
            // It has discarded the state it had.
            return self.holders.forget(index, Some(at));
        }
        // Half of the nodes, with the witness's vote. If they stop, the other half gets the vote,
        // and they continue until their engine tells them: among themselves they cannot find out.
        // Where the last node may go on alone, the members have voted: nothing is excused.
        // Where operators change the nodes, their number differs.
        self.fate.split |= standing.members * 2 <= self.scenario.nodes
            && self.scenario.votes != Votes::LastManStanding
            && !self.scenario.changes;
        slot.empty = false;
        let lost = self.holders.holds(index, at, standing.members);
        self.fate.state_lost += u64::from(lost);
    }
}

fn describe(input: &Input) -> (&'static str, u64) {
    use testudo_cluster::engine::EngineEvent;
    match input {
        Input::Engine(EngineEvent::View(view)) => {
            ("gets a view", view.ring.seq << 1 | u64::from(view.quorate))
        }
        Input::Engine(EngineEvent::Message { bytes, .. }) => ("gets a message", digest(bytes)),
        Input::Engine(EngineEvent::PutOut) => ("was put out", 0),
        Input::Engine(EngineEvent::Down { .. }) => ("loses its engine", 0),
        Input::Engine(EngineEvent::Notice(_)) => ("is told by its engine", 0),
        Input::Refused(bytes) => ("is refused", digest(bytes)),
        Input::Ready => ("may multicast", 0),
        Input::Heartbeat(link, bytes) => {
            ("gets a heartbeat", u64::from(*link) << 32 | digest(bytes) & 0xffff_ffff)
        }
        Input::Ike(_, bytes) => ("gets IKE", digest(bytes)),
        Input::Esp(packet) => ("gets ESP", digest(packet)),
        Input::Clear(packet) => ("gets clear", digest(packet)),
        Input::Timeout => ("wakes up", 0),
        Input::IvLow => ("runs low on IVs", 0),
        Input::Burst(peer, left) => ("gets a burst", (*peer as u64) << 32 | left),
        Input::Written(durable) => ("has written", durable.begun.epoch),
        Input::Link(link, up) => ("has a link", u64::from(*link) << 1 | u64::from(*up)),
        Input::Operator(_) => ("is asked", 0),
        Input::Drain(node, drained) => ("is asked to drain", (*node as u64) << 1 | u64::from(*drained)),
        Input::Configure(piece, value) => ("is configured", piece << 32 | value.unwrap_or_default()),
        Input::Change(_) => ("is asked to change the nodes", 0),
        Input::RolledBack => ("was set back", 0),
    }
}
