//! What workers report of traffic: packets that need an SA, SAs that are nearly used up, and peers
//! that are alive.

use super::Gateway;
use crate::alarms::Lateness;
use crate::datapath::{SaPackets, WorkerEvent};
use std::net::IpAddr;
use testudo_cluster::member::Member;
use testudo_ike::endpoint::{InitiateError, PacketEnds};
use testudo_ike::output::{ChildSaId, LogLevel};
use testudo_ipsec::spd::PolicyId;

/// Child SAs that are looked at in one turn. Very many would make others wait for too long.
const MAX_SAS_PER_LOOK: usize = 2048;

/// What a Child SA had carried at the last look.
#[derive(Clone, Copy, Default)]
pub(super) struct Seen {
    received: u64,
    sent: u64,
    /// Packets that came behind later ones.
    late: u32,
    lateness: Lateness,
}

impl Gateway {
    /// Handles the events of workers.
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
        // Workers may have asked for very many.
        if self.ending.has_begun() || self.ending.is_called_for() {
            return;
        }
        let Some(name) = self.policies.child_of(policy).cloned() else { return };
        if !self.endpoint.is_trapped(&name.connection, &name.child) {
            return;
        }
        let ends = PacketEnds { local, remote };
        let begun = self.endpoint.acquire_for(self.now, &name.connection, &name.child, ends);
        if let Err(error) = begun {
            // Multicast and similar packets do not ask for a peer.
            let level = match error {
                InitiateError::NotBetweenHosts { .. } => LogLevel::Detail,
                _ => LogLevel::Warning,
            };
            let line = format!("traffic asks for child {}: {error}", name.child);
            self.log(None, Some(name.connection), level, line);
        }
    }

    /// A Child SA has reached a mark at which IKE may have to renew or end it. A look once a second
    /// would be too late: the two limits are often less than a second's traffic apart.
    fn note_use(&mut self, child: ChildSaId) {
        if let Some((inbound, outbound)) = self.data.carried(child) {
            let (bytes, packets) = (inbound.bytes.max(outbound.bytes), inbound.packets.max(outbound.packets));
            self.endpoint.child_used(self.now, child, bytes, packets);
            self.mark(child, bytes, packets);
        }
    }

    /// Sets the next mark at which IKE hears of a Child SA's traffic.
    pub(super) fn mark(&self, child: ChildSaId, bytes: u64, packets: u64) {
        let (bytes, packets) = self.endpoint.next_limit(child, bytes, packets);
        self.data.set_mark(child, packets, bytes);
    }

    fn renew_exhausted(&mut self, child: ChildSaId) {
        if self.endpoint.rekey_child(self.now, child) {
            let message =
                format!("half of the sequence numbers of CHILD_SA #{} are used: rekeying it", child.0);
            self.log(None, None, LogLevel::Notice, message);
        }
    }

    /// The peer wants sequence numbers skipped. If too few are left, the Child SA is rekeyed.
    pub(super) fn skip_numbers(&mut self, child: ChildSaId, by: u64) {
        if !self.data.skip_numbers(child, by) && self.endpoint.rekey_child(self.now, child) {
            let message =
                format!("CHILD_SA #{} has fewer than {by} sequence numbers left: rekeying it", child.0);
            self.log(None, None, LogLevel::Notice, message);
        }
    }

    /// True if there are Child SAs to look at.
    pub(crate) fn looks_at_traffic(&self) -> bool {
        self.looked_at.is_some()
    }

    /// True if one turn is enough to look at all Child SAs.
    pub(super) fn has_few_sas(&self) -> bool {
        self.data.child_sas() <= MAX_SAS_PER_LOOK
    }

    /// Begins a look at the traffic of all Child SAs, unless one is under way.
    pub(super) fn begin_look_at_traffic(&mut self) {
        self.looked_at.get_or_insert(None);
    }

    /// Looks at the next Child SAs. A peer whose packets authenticate is alive, and needs no
    /// liveness check.
    pub(crate) fn look_at_traffic(&mut self) {
        let Some(behind) = self.looked_at else { return };
        let some = self.data.packets_of_some(behind, MAX_SAS_PER_LOOK);
        for &SaPackets { child, shard, received, sent } in &some {
            // A new Child SA has carried nothing.
            let before = self.seen.get(&child).copied().unwrap_or_default();
            if (before.received, before.sent) == (received, sent) {
                continue;
            }
            // Only a packet that is received can be late.
            let late = if before.received == received { before.late } else { self.data.late(child) };
            let now = self.seen.entry(child).or_default();
            (now.received, now.sent, now.late) = (received, sent, late);
            let received = received.saturating_sub(before.received);
            if let Some(carried) = self.shard_packets.carried.get_mut(usize::from(shard.0)) {
                *carried += received + sent.saturating_sub(before.sent);
            }
            if received > 0 {
                let late = late.saturating_sub(before.late).into();
                self.alarms.ordered(child, &mut now.lateness, received, late);
                self.endpoint.traffic_seen(self.now, child);
            }
        }
        let more = some.len() == MAX_SAS_PER_LOOK;
        self.looked_at = some.last().filter(|_| more).map(|last| Some(last.child));
        self.settle();
    }

    /// Once a second: tries again what failed, tells the other nodes which replay marks have moved
    /// and which packets were relayed, and begins a look at the traffic of all Child SAs, which the
    /// watch does otherwise.
    pub(crate) fn report_traffic(&mut self) {
        if self.alarms.time_to_look().is_none() {
            self.begin_look_at_traffic();
        }
        self.protection_changed |= self.policies_failed;
        self.scripts_follow_owners();
        if let Some(member) = self.endpoint.member() {
            member.report_marks(self.now, &self.data.moved_high_water_marks());
            member.set_load(self.load.measure());
            member.set_neighbours(self.data.neighbours());
            if member.follows() {
                self.shard_packets.relayed = self.data.relayed_by_shard();
                member.report_packets(self.now, &self.shard_packets);
            }
            member.set_engine_nodes(self.node.as_ref().and_then(|node| node.engine_nodes()));
        }
        self.settle();
    }
}
