//! What the data path shows: counters of filter, ports, worker and SAs, by name.

use super::DataPath;
use nix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::time::Duration;
use testudo_fastpath::filter::{Action, Reason};
use testudo_fastpath::port::PortStatistics;
use testudo_fastpath::worker::WorkerDrop;
use testudo_ike::output::ChildSaId;
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::sa::SaTotals;
use testudo_vici::counters::{Counters, Named, PortCounters, WorkerCounters};
use testudo_vici::view::{ChildUsage, Usage};

impl DataPath {
    /// Everything that `testudo-counters` tells, but for IKE.
    pub(crate) fn counters(&self) -> Counters {
        let worker = self.worker.counters();
        let totals = worker.totals();
        let pipeline_drops = DropReason::ALL.map(|r| (r.name().to_owned(), self.pipeline.dropped(r)));
        let worker_drops = WorkerDrop::ALL.map(|r| (r.name().to_owned(), worker.dropped(r)));
        let own: Named = pipeline_drops.into_iter().chain(worker_drops).collect();

        let mut ports = Vec::new();
        let mut drops: BTreeMap<String, u64> = BTreeMap::new();
        for (port, moved) in self.guard.ports().iter().zip(&totals.ports) {
            let mut lost = below(&moved.below);
            match self.guard.counters(port) {
                Ok(filter) => lost.extend(
                    filter
                        .iter()
                        .filter(|(r, _)| r.action() == Action::Drop)
                        .map(|(r, n)| (filter_name(r), n)),
                ),
                Err(error) => tracing::warn!("cannot read the filter's counters of {}: {error}", port.name),
            }
            for (name, count) in &lost {
                *drops.entry(name.clone()).or_default() += count;
            }
            ports.push(PortCounters {
                name: port.name.clone(),
                kind: "xdp".into(),
                rx_packets: moved.rx_packets,
                rx_bytes: moved.rx_bytes,
                tx_packets: moved.tx_packets,
                tx_bytes: moved.tx_bytes,
                drops: lost,
            });
        }
        for (name, count) in &own {
            *drops.entry(name.clone()).or_default() += count;
        }
        Counters {
            totals: self.totals(),
            drops: drops.into_iter().collect(),
            ike: Named::new(),
            workers: vec![WorkerCounters {
                index: self.worker.id().into(),
                cpu: self.cpu.map(|cpu| cpu as u32),
                cipher: self.library.name().into(),
                bursts: totals.turns,
                packets: totals.ports.iter().map(|p| p.rx_packets).sum::<u64>() + totals.from_tun,
                drops: own,
            }],
            ports,
            inherited: self.guard.inherited().map(ToString::to_string).collect(),
        }
    }

    fn totals(&self) -> Named {
        let pipeline = self.pipeline.totals();
        let worker = self.worker.counters().totals();
        let rows = [
            ("out_received", pipeline.outbound.received),
            ("out_forwarded", pipeline.outbound.forwarded),
            ("in_received", pipeline.inbound.received),
            ("in_forwarded", pipeline.inbound.forwarded),
            ("in_to_host", pipeline.inbound.to_host),
            ("icmp_sent", worker.generated),
            ("icmp_suppressed", pipeline.icmp_suppressed),
            ("mss_clamped", pipeline.mss_clamped),
            ("inbound_sas", pipeline.inbound_sas),
            ("outbound_sas", pipeline.outbound_sas),
            ("split", worker.split),
            ("from_tun", worker.from_tun),
            ("to_tun", worker.to_tun),
            ("held", worker.held),
            ("sleeps", worker.sleeps),
            ("events_lost", worker.events_lost),
        ];
        rows.map(|(name, value)| (name.to_owned(), value)).into()
    }

    /// What a Child SA has carried.
    pub(crate) fn usage(&self, child: ChildSaId) -> ChildUsage {
        let now = milliseconds();
        let (inbound, outbound) = self.sas.totals(child).unwrap_or_default();
        ChildUsage { inbound: usage(&inbound, now), outbound: usage(&outbound, now) }
    }

    /// What came in and went out through a Child SA.
    pub(crate) fn carried(&self, child: ChildSaId) -> Option<(SaTotals, SaTotals)> {
        self.sas.totals(child)
    }

    /// What came in and went out, by Child SA.
    pub(crate) fn all_totals(&self) -> Vec<(ChildSaId, SaTotals, SaTotals)> {
        self.sas.all_totals()
    }

    /// Names of the parts in use.
    pub(crate) fn parts(&self) -> Vec<String> {
        vec!["af-xdp".into(), self.library.name().into(), "aws-lc".into(), "vici".into()]
    }

    /// A line for the log.
    pub(crate) fn describe(&self) -> String {
        let ports: Vec<&str> = self.guard.ports().iter().map(|p| p.name.as_str()).collect();
        format!("ports {}, cipher library {}", ports.join(", "), self.library.name())
    }

    /// True if nothing has come in since the last call.
    pub(crate) fn is_idle(&self) -> bool {
        let totals = self.worker.counters().totals();
        let packets: u64 = totals.ports.iter().map(|p| p.rx_packets).sum::<u64>() + totals.from_tun;
        self.packets_seen.replace(packets) == packets
    }
}

/// The worker's clock, in which SAs note their last use.
fn milliseconds() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE)
        .map_or(0, |now| now.tv_sec() as u64 * 1000 + now.tv_nsec() as u64 / 1_000_000)
}

/// Filter and worker name some reasons alike; in one list they must stay apart.
fn filter_name(reason: Reason) -> String {
    format!("filter_{}", reason.name())
}

fn below(statistics: &PortStatistics) -> Named {
    let rows = [
        ("rx_dropped", statistics.rx_dropped),
        ("rx_ring_full", statistics.rx_ring_full),
        ("fill_ring_empty", statistics.fill_ring_empty),
        ("rx_invalid", statistics.rx_invalid),
        ("tx_invalid", statistics.tx_invalid),
        ("tx_refused", statistics.tx_refused),
    ];
    rows.map(|(name, value)| (name.to_owned(), value)).into()
}

fn usage(totals: &SaTotals, now: u64) -> Usage {
    let idle = (totals.packets > 0).then(|| Duration::from_millis(now.saturating_sub(totals.last_use)));
    Usage { bytes: totals.bytes, packets: totals.packets, idle }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_explained_to_operators() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations.md");
        let text = std::fs::read_to_string(file).unwrap();
        let filter =
            Reason::ALL.iter().copied().filter(|reason| reason.action() == Action::Drop).map(filter_name);
        let pipeline = DropReason::ALL.into_iter().map(|reason| reason.name().to_owned());
        let worker = WorkerDrop::ALL.into_iter().map(|reason| reason.name().to_owned());
        for name in filter.chain(pipeline).chain(worker) {
            assert_eq!(text.matches(&format!("\n| `{name}` |")).count(), 1, "{name}");
        }
    }
}
