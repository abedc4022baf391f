//! Peers, and the expected states of their tunnels.

use super::finish::Amiss;
use super::{Actor, Arrival, What, World};
use crate::checks::Invariant;
use crate::config::{VIP, peer_addr};
use crate::engine::{MILLI, Nanos};
use crate::host::{Input, Wish, established_with};
use crate::network::Link;
use crate::peer::{Effect, Peer};
use crate::trace::{Who, digest};
use std::net::IpAddr;
use testudo_ike::endpoint::{IkeSaState, IkeSaStatus};
use testudo_ike::message::{Header, IkeSpi, Message};
use testudo_ike::output::{Event, Path, Time};

/// Interval at which an operator checks a tunnel.
const CARE_INTERVAL: Nanos = 1000 * MILLI;
/// Time limit for an attempt to set a tunnel up.
const INITIATE_TIMEOUT: Nanos = 5000 * MILLI;
/// Time after the end of the faults until peers lose their memory for the last time.
const LAST_MEMORY_LOSS_AFTER: Nanos = 3500 * MILLI;

/// The expected state of a tunnel.
#[derive(Debug, Default)]
pub(super) struct Tunnel {
    /// It has been up, and no operator has taken it down since.
    pub(super) up: bool,
    /// An operator takes it down.
    pub(super) closing: bool,
    /// Time of the last attempt.
    pub(super) asked: Nanos,
    /// How often it came up.
    pub(super) ups: u64,
}

impl World {
    pub(super) fn begin_peers(&mut self) {
        for (index, manners) in self.scenario.manners.clone().iter().enumerate() {
            self.peers.push(Peer::new(Time::default(), index, manners, &mut self.random));
            self.tunnels.push(Tunnel::default());
            // Some begin during the faults.
            let late = if self.random.permille(300) { self.scenario.calm + self.scenario.faults } else { 1 };
            let at = 300 * MILLI + self.random.below(late.max(self.scenario.calm));
            self.schedule.at(at, What::Care(index));
            if manners.is_forgetful() {
                // Once more after the faults: no old SA may remain.
                self.schedule.at(
                    self.scenario.calm + self.scenario.faults + LAST_MEMORY_LOSS_AFTER,
                    What::Forget(index),
                );
            }
            for outward in [false, true] {
                let at = self.random.below(self.scenario.probe_pace);
                self.schedule.at(at, What::Probe(index, outward));
            }
        }
    }

    /// Lets a peer act.
    pub(super) fn with_peer(&mut self, index: usize, with: impl FnOnce(&mut Peer, Time)) {
        let now = Time(std::time::Duration::from_nanos(self.schedule.now));
        let peer = &mut self.peers[index];
        with(peer, now);
        for effect in peer.take_effects() {
            self.peer_effect(index, effect);
        }
        let at = self.peers[index].next_timeout();
        let at = at.map(|at| u64::try_from(at.0.as_nanos()).unwrap_or(u64::MAX).max(self.schedule.now));
        self.schedule.wake(Actor::Peer(index), at);
    }

    /// An IKE message reaches a peer.
    pub(super) fn peer_ike(&mut self, index: usize, path: Path, bytes: &[u8]) {
        self.note(Who::Peer(index), "gets IKE", digest(bytes), 0);
        self.check_answer(index, bytes);
        self.with_peer(index, |peer, now| peer.handle_ike(now, path, bytes));
    }

    /// Checks that every survivor knows an answer that a peer has seen.
    fn check_answer(&mut self, peer: usize, bytes: &[u8]) {
        let Ok(message) = Message::parse(bytes) else { return };
        let header = message.header;
        // Any node may say that there is no such IKE SA.
        if message.encrypted.is_none() || !header.response || !self.fate.may_blame() {
            return;
        }
        let Some(holder) = self.forgetful(&header) else { return };
        let what = format!(
            "does not know of the answer {} ({:?}) to peer {} in IKE SA {}",
            header.message_id,
            header.exchange,
            peer + 1,
            header.initiator_spi
        );
        self.checks.violate(Invariant::Answered, self.schedule.now, Who::Node(holder), what);
    }

    /// A node that would continue with the state and does not know of that answer.
    fn forgetful(&self, header: &Header) -> Option<usize> {
        let (at, holders) = self.holders.latest()?;
        let knows = |index: &usize| {
            let slot = &self.slots[*index];
            let Some(host) = &slot.host else { return true };
            let here = host
                .standing()
                .is_some_and(|standing| (standing.ring, standing.epoch) == at && standing.synced);
            let ours = if header.from_initiator { header.initiator_spi } else { header.responder_spi };
            !here || host.knows(ours, header.message_id.0)
        };
        holders.iter().copied().find(|index| !knows(index))
    }

    fn peer_effect(&mut self, index: usize, effect: Effect) {
        let who = Who::Peer(index);
        match effect {
            Effect::Ike(path, bytes) => {
                self.note(who, "sends IKE", digest(&bytes), 0);
                self.checks.ike_sent(self.schedule.now, who, &bytes);
                let path = Path { local: path.remote, remote: path.local };
                self.deliver(Link::Outer, index as u64, Arrival::Ike(path, bytes));
            }
            Effect::Esp(packet) => {
                let Some(esp) = crate::probe::esp(&packet) else {
                    return self.checks.left_outside(self.schedule.now, who, None, None);
                };
                self.note(who, "sends ESP", u64::from(esp.spi), u64::from(esp.sequence));
                if let Some(key) = self.peers[index].plane().key_out(esp.spi, esp.to) {
                    self.checks.esp_sent(self.schedule.now, who, key, &esp);
                }
                // Some are too long for the path.
                let arrival = match self.spice.permille(30) {
                    true => Arrival::Fragments(packet),
                    false => Arrival::Outer(packet),
                };
                // Routers choose IKE's way by other ports.
                self.deliver(Link::Outer, 1 << 32 | index as u64, arrival);
            }
            Effect::Arrived(number) => self.traffic.arrived(number),
            Effect::Event(event) => self.peer_event(index, &event),
        }
    }

    fn peer_event(&mut self, index: usize, event: &Event) {
        let who = Who::Peer(index);
        let established = self.is_established(index);
        let tunnel = &mut self.tunnels[index];
        match event {
            Event::IkeUp(ike) => {
                tunnel.ups += 1;
                tunnel.up = !tunnel.closing;
                self.note(who, "IKE is up", ike.0, 0);
            }
            Event::IkeDown(ike, reason) => {
                let lost = tunnel.up && !established;
                tunnel.up &= established;
                tunnel.closing &= established;
                self.note(who, "IKE is down", ike.0, u64::from(lost));
                if lost && self.fate.may_blame() {
                    let what = format!("has lost its tunnel: {reason}");
                    self.checks.violate(Invariant::Answered, self.schedule.now, who, what);
                }
            }
            _ => {}
        }
    }

    fn is_established(&self, index: usize) -> bool {
        let established =
            |sa: IkeSaStatus| matches!(sa.state, IkeSaState::Established | IkeSaState::Rekeying);
        self.peers[index].endpoint().sas().any(established)
    }

    /// An operator checks a tunnel: sets it up if it is down, and sometimes gives a command about
    /// it.
    pub(super) fn care(&mut self, index: usize) {
        let next = self.schedule.now + CARE_INTERVAL / 2 + self.random.below(CARE_INTERVAL);
        self.schedule.at(next, What::Care(index));
        if !self.is_established(index) {
            self.tunnels[index].closing = false;
            return self.bring_up(index);
        }
        if !self.fate.may_strike || !self.random.permille(150) {
            return;
        }
        if self.scenario.manners[index].is_forgetful() && self.spice.permille(300) {
            return self.forget(index);
        }
        let here = self.random.permille(500);
        let wish = match self.random.below(8) {
            0 | 1 => Wish::RekeyIke(index),
            2 => Wish::Terminate(index),
            _ => Wish::RekeyChild(index),
        };
        if matches!(wish, Wish::Terminate(_)) {
            (self.tunnels[index].closing, self.tunnels[index].up) = (true, false);
        }
        self.note(
            Who::Peer(index),
            "is looked after",
            digest(format!("{wish:?}").as_bytes()),
            u64::from(here),
        );
        match wish {
            _ if here => self.ask_nodes(wish),
            Wish::Terminate(_) => self.with_peer(index, |peer, now| peer.terminate(now, false)),
            Wish::RekeyIke(_) => self.with_peer(index, |peer, now| peer.rekey(now, true)),
            _ => self.with_peer(index, |peer, now| peer.rekey(now, false)),
        }
    }

    /// A peer starts again without memory.
    pub(super) fn forget(&mut self, index: usize) {
        self.note(Who::Peer(index), "loses its memory", 0, 0);
        let now = Time(std::time::Duration::from_nanos(self.schedule.now));
        let manners = self.scenario.manners[index];
        self.peers[index] = Peer::new(now, index, &manners, &mut self.spice);
        let tunnel = &mut self.tunnels[index];
        (tunnel.up, tunnel.closing, tunnel.asked) = (false, false, 0);
        self.bring_up(index);
    }

    /// Peers whose IKE SAs on the nodes differ from their own, although their old ones should be
    /// deleted.
    pub(super) fn relics(&self) -> Vec<usize> {
        let differs = |peer: &usize| {
            let addr = IpAddr::V4(peer_addr(*peer));
            let awake = self.slots.iter().enumerate().filter(|(node, _)| self.fate.stopped != Some(*node));
            let hosts = awake.filter_map(|(_, slot)| slot.host.as_ref());
            let mut ours: Vec<IkeSpi> = hosts.flat_map(|host| host.ikes_with(addr)).collect();
            let mut theirs = established_with(self.peers[*peer].endpoint(), IpAddr::V4(VIP));
            ours.sort_unstable();
            theirs.sort_unstable();
            ours != theirs
        };
        let unique = |peer: &usize| self.scenario.manners[*peer].is_unique();
        (0..self.peers.len()).filter(unique).filter(differs).collect()
    }

    /// Something that remains of SAs that a peer has forgotten.
    pub(super) fn relic(&self) -> Option<Amiss> {
        let peer = self.relics().first().copied()?;
        Some((Who::Peer(peer), "the nodes have other IKE SAs with it than it has".to_owned()))
    }

    fn bring_up(&mut self, index: usize) {
        let tunnel = &mut self.tunnels[index];
        // An attempt without result is given up: the other side may have lost its half-open SA.
        let asked = tunnel.asked;
        if asked != 0 && self.schedule.now - asked < INITIATE_TIMEOUT {
            return;
        }
        tunnel.asked = self.schedule.now;
        // The gateway initiates by itself where it should, except for tunnels that an operator has
        // taken down.
        let by_gateway = self.scenario.manners[index].gateway_starts && tunnel.ups == 0;
        if by_gateway && asked == 0 {
            return;
        }
        if asked != 0 {
            self.with_peer(index, |peer, now| peer.terminate(now, true));
        }
        self.with_peer(index, Peer::initiate);
    }

    fn ask_nodes(&mut self, wish: Wish) {
        for node in 0..self.slots.len() {
            self.arrive(node, Arrival::Input(Input::Operator(wish)));
        }
    }
}
