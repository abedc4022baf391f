//! What the worker tells of traffic: what asks for an SA, wears one out, or shows that a peer is
//! alive.

use super::Gateway;
use crate::datapath::WorkerEvent;
use std::net::IpAddr;
use testudo_cluster::member::Member;
use testudo_ike::endpoint::{PacketEnds, InitiateError};
use testudo_ike::output::{ChildSaId, LogLevel};
use testudo_ipsec::spd::PolicyId;

/// Child SAs that are looked at in one go: with very many others would wait for too long.
const MAX_SAS_PER_LOOK: usize = 2048;

impl Gateway {
    /// What workers have to tell.
    pub(crate) fn worker_events(&mut self) {
        for event in self.data.events() {
            match event {
                WorkerEvent::NoSa { policy, local, remote } => self.acquire(policy, local, remote),
                WorkerEvent::Source(child, remote) => self.endpoint.esp_source(self.now, child, remote),
                WorkerEvent::Warning(message) => self.log(None, None, LogLevel::Error, message),
                WorkerEvent::Exhausting(child) => self.renew_exhausted(child),
                WorkerEvent::Carried(child) => self.note_use(child),
                WorkerEvent::NumbersLow(spi, rate) => {
                    self.in_cluster(|member, now| member.numbers_low(now, spi, rate))
                }
                WorkerEvent::IvLow => self.in_cluster(Member::renew_sender),
                WorkerEvent::Flushed(flushed) => {
                    self.in_cluster(|member, now| member.flushed(now, &flushed));
                }
            }
        }
        self.settle();
    }

    fn acquire(&mut self, policy: PolicyId, local: IpAddr, remote: IpAddr) {
        if self.closing {
            return;
        }
        let Some(name) = self.policies.child_of(policy).cloned() else { return };
        if !self.endpoint.is_trapped(&name.connection, &name.child) {
            return;
        }
        let ends = PacketEnds { local, remote };
        let begun = self.endpoint.acquire_for(self.now, &name.connection, &name.child, ends);
        if let Err(error) = begun {
            // Multicast and the like go everywhere.
            let level = match error {
                InitiateError::NotBetweenHosts { .. } => LogLevel::Detail,
                _ => LogLevel::Warning,
            };
            let line = format!("traffic asks for child {}: {error}", name.child);
            self.log(None, Some(name.connection), level, line);
        }
    }

    /// A Child SA has carried as much as IKE wants to hear of: it may have to be renewed, or to
    /// end. By the second would be too late: what it may carry between the two is often less than a
    /// second's traffic.
    fn note_use(&mut self, child: ChildSaId) {
        if let Some((inbound, outbound)) = self.data.carried(child) {
            let (bytes, packets) = (inbound.bytes.max(outbound.bytes), inbound.packets.max(outbound.packets));
            self.endpoint.child_used(self.now, child, bytes, packets);
            self.mark(child, bytes, packets);
        }
    }

    /// Sees to it that IKE hears of what a Child SA carries, once it has carried so much.
    pub(super) fn mark(&self, child: ChildSaId, bytes: u64, packets: u64) {
        let (bytes, packets) = self.endpoint.next_limit(child, bytes, packets);
        self.data.set_mark(child, packets, bytes);
    }

    fn renew_exhausted(&mut self, child: ChildSaId) {
        if self.endpoint.rekey_child(self.now, child) {
            let message =
                format!("half of the sequence numbers of CHILD_SA #{} are used: it is renewed", child.0);
            self.log(None, None, LogLevel::Notice, message);
        }
    }

    /// The peer wants numbers left out. Where there are not so many, the Child SA gets new ones
    /// with new keys.
    pub(super) fn skip_numbers(&mut self, child: ChildSaId, by: u64) {
        if !self.data.skip_numbers(child, by) && self.endpoint.rekey_child(self.now, child) {
            let message = format!("CHILD_SA #{} has not {by} sequence numbers left: it is renewed", child.0);
            self.log(None, None, LogLevel::Notice, message);
        }
    }

    /// True if there are Child SAs to look at.
    pub(crate) fn looks_at_traffic(&self) -> bool {
        self.looked_at.is_some()
    }

    /// Looks at some Child SAs more: a peer whose packets authenticate is alive, which saves it the
    /// liveness checks.
    pub(crate) fn look_at_traffic(&mut self) {
        let Some(behind) = self.looked_at else { return };
        let some = self.data.packets_of_some(behind, MAX_SAS_PER_LOOK);
        for &(child, inbound, outbound) in &some {
            // A new Child SA has carried nothing.
            let now = (inbound, outbound);
            let before = self.seen.get(&child).copied().unwrap_or_default();
            if before == now {
                continue;
            }
            self.seen.insert(child, now);
            if before.0 < now.0 {
                self.endpoint.traffic_seen(self.now, child);
            }
        }
        let more = some.len() == MAX_SAS_PER_LOOK;
        self.looked_at = some.last().filter(|_| more).map(|(child, ..)| Some(*child));
        self.settle();
    }

    /// Once a second: tries again what failed, tells the other nodes what has moved, and begins to
    /// look at the traffic of all Child SAs.
    pub(crate) fn report_traffic(&mut self) {
        self.looked_at.get_or_insert(None);
        self.protection_changed |= self.policies_failed;
        self.scripts_follow_owners();
        if let Some(member) = self.endpoint.member() {
            member.report_marks(self.now, &self.data.moved_edges());
            member.set_load(self.load.measure());
            member.set_neighbours(self.data.neighbours());
        }
        self.settle();
    }
}
