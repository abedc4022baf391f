//! Routers that give each packet to one node: to one of those that they believe to serve, chosen by
//! the packet's addresses. They learn late of what has changed. The node relays the packet to the
//! one that carries it.

use super::finish::Amiss;
use super::slot::Slot;
use super::{Arrival, What, World};
use crate::engine::Nanos;
use crate::network::Link;
use crate::scenario::Lasting;
use crate::trace::{Who, digest};
use std::collections::BTreeMap;
use testudo_base::spi::Shard;
use testudo_cluster::group::GroupConfig;

/// The part of a flow that names the peer.
const PEER: u64 = (1 << 32) - 1;

/// What routers know of the nodes on the networks to peers and hosts.
#[derive(Debug, Default)]
pub(super) struct Routers(BTreeMap<(Link, usize), Route>);

/// A way to a node.
#[derive(Clone, Copy, Debug, Default)]
struct Route {
    /// Routers use it.
    used: bool,
    /// Since when they should do otherwise.
    wrong_since: Option<Nanos>,
}

impl Route {
    /// Routers learn within that time what is right.
    fn learn(&mut self, now: Nanos, right: bool, within: Nanos) {
        if self.used == right {
            self.wrong_since = None;
        } else if now - *self.wrong_since.get_or_insert(now) >= within {
            (self.used, self.wrong_since) = (right, None);
        }
    }
}

impl World {
    /// A packet for the gateway: it reaches all nodes, or one. `flow`: what its addresses are.
    pub(super) fn deliver(&mut self, link: Link, flow: u64, arrival: Arrival) {
        match self.scenario.routed {
            None => self.flood(link, &arrival),
            Some(_) => {
                let Some(node) = self.route(link, flow) else { return };
                let mut copies = self.network.through(self.schedule.now, link, node).into_iter();
                if let Some(at) = copies.next() {
                    self.schedule.at(at, What::Node(node, arrival.clone()));
                }
                // Whoever repeats a packet later sends it to the routers.
                for at in copies {
                    self.schedule.at(at, What::Repeated(link, flow, arrival.clone()));
                }
            }
        }
    }

    /// A copy of a packet reaches the routers.
    pub(super) fn repeated(&mut self, link: Link, flow: u64, arrival: Arrival) {
        if let Some(node) = self.route(link, flow) {
            self.arrive(node, arrival);
        }
    }

    /// A packet reaches all nodes: every copy independently.
    pub(super) fn flood(&mut self, link: Link, arrival: &Arrival) {
        for node in 0..self.slots.len() {
            for at in self.network.through(self.schedule.now, link, node) {
                self.schedule.at(at, What::Node(node, arrival.clone()));
            }
        }
    }

    /// The node to which routers give a packet.
    fn route(&mut self, link: Link, flow: u64) -> Option<usize> {
        let within = self.scenario.routed.map(|routed| routed.learns).unwrap_or_default();
        let now = self.schedule.now;
        let mut used = Vec::new();
        for (node, slot) in self.slots.iter().enumerate() {
            // A host that stands still does not answer its routers.
            let serves =
                slot.runs() && slot.host.as_ref().is_some_and(|host| host.serves(slot.clock.at(now)));
            let route = self.routers.0.entry((link, node)).or_default();
            route.learn(now, serves && self.network.port(link, node), within);
            used.extend(route.used.then_some(node));
        }
        let mut octets = self.scenario.seed.to_be_bytes().to_vec();
        match self.scenario.routed.and_then(|routed| routed.shifts) {
            // Routes are stable once there are no faults any more.
            Some(shifts) => {
                let end = self.scenario.calm + self.scenario.faults;
                octets.extend((flow & PEER).to_be_bytes());
                octets.extend((now.min(end) / shifts).to_be_bytes());
            }
            None => {
                octets.extend(flow.to_be_bytes());
                octets.push(link.number());
            }
        }
        let place = digest(&octets).checked_rem(used.len() as u64)?;
        used.get(place as usize).copied()
    }

    /// A shard that is not at the node that its packets reach, if there is one such node.
    pub(super) fn not_followed(&mut self) -> Option<Amiss> {
        let all_know = |(index, slot): (usize, &Slot)| {
            self.scenario.speaks(index, slot.boots) == GroupConfig::NEWEST && slot.runs()
        };
        let shifts = self.scenario.routed.is_some_and(|routed| routed.shifts.is_some());
        let is_whole = self.scenario.lasting == Lasting::None && self.slots.iter().enumerate().all(all_know);
        if !shifts || !is_whole {
            return None;
        }
        let mut peers_of: BTreeMap<Shard, Vec<usize>> = BTreeMap::new();
        // A spread tunnel moves no shard.
        let homed = |(peer, _): &(usize, _)| self.scenario.spread[*peer].is_none();
        for (index, peer) in self.peers.iter().enumerate().filter(homed) {
            let sa = peer.sending().and_then(|child| peer.plane().outbound_sa(child));
            if let Some(sa) = sa {
                peers_of.entry(sa.spi().shard()).or_default().push(index);
            }
        }
        peers_of.into_iter().find_map(|(shard, peers)| {
            let [peer] = peers[..] else { return None };
            let reached = self.route(Link::Outer, peer as u64);
            let now = self.schedule.now;
            let owns =
                |slot: &Slot| slot.host.as_ref().is_some_and(|host| host.owns(slot.clock.at(now), shard));
            let owner = self.slots.iter().position(owns);
            let what =
                || format!("packets of shard {} reach node {reached:?}, and {owner:?} has it", shard.0);
            (owner != reached).then(|| (Who::Peer(peer), what()))
        })
    }

    /// A node relays a packet that another carries; it arrives there like this.
    pub(super) fn relay(&mut self, from: usize, to: usize, arrival: Arrival) {
        self.relayed += 1;
        for at in self.network.between(self.schedule.now, Link::Cluster, from, to) {
            self.schedule.at(at, What::Node(to, arrival.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routers_learn_late_and_not_what_has_changed_back() {
        let mut route = Route::default();
        route.learn(10, true, 5);
        route.learn(14, true, 5);
        assert!(!route.used);
        route.learn(15, true, 5);
        assert!(route.used);
        route.learn(16, false, 5);
        route.learn(18, true, 5);
        route.learn(21, false, 5);
        assert!(route.used, "they never learned of the first change");
        route.learn(26, false, 5);
        assert!(!route.used);
    }
}
