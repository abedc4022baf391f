//! The data path's counters, of filter, ports, workers and SAs, by name.

use super::DataPath;
use super::sas::SaPackets;
use super::workers::Running;
use nix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use testudo_base::shard::SHARDS;
use testudo_fastpath::fib::PortIndex;
use testudo_fastpath::filter::{FilterAction, FilterPort, Reason, XdpMode};
use testudo_fastpath::port::{PortStatistics, speed_of};
use testudo_fastpath::worker::{PortTotals, WorkerDrop, WorkerTotals};
use testudo_ike::output::ChildSaId;
use testudo_ipsec::dataplane::Totals;
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::sa::SaTotals;
use testudo_vici::counters::{Counters, Named, PortCounters, PortStatus, WorkerCounters};
use testudo_vici::view::{ChildUsage, Usage};

/// Packets for which the kernel found no room in the TUN. They never came to a worker.
const TUN_OVERFLOW: &str = "tun_overflow";

impl DataPath {
    /// All counters of `testudo-counters` but IKE's.
    pub(crate) fn counters(&self) -> Counters {
        let workers: Vec<WorkerCounters> = self.workers.iter().map(|worker| self.of_worker(worker)).collect();
        let queues: Vec<PortTotals> =
            self.workers.iter().flat_map(|worker| worker.handle.counters().totals().ports).collect();

        let mut ports = Vec::new();
        let mut drops: BTreeMap<String, u64> = BTreeMap::new();
        for port in self.guard.ports() {
            let of_port = || queues.iter().filter(|queue| queue.port == port.index);
            let sum = |of: fn(&PortTotals) -> u64| of_port().map(of).sum();
            let mut lost = below(&self.below(of_port(), port.index));
            match self.guard.counters(port) {
                Ok(filter) => lost.extend(
                    filter
                        .iter()
                        .filter(|(r, _)| r.action() == FilterAction::Drop)
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
                rx_packets: sum(|queue| queue.rx_packets),
                rx_bytes: sum(|queue| queue.rx_bytes),
                tx_packets: sum(|queue| queue.tx_packets),
                tx_bytes: sum(|queue| queue.tx_bytes),
                drops: lost,
                status: self.port_status(port),
            });
        }
        match self.tun.overflows() {
            Ok(count) => *drops.entry(TUN_OVERFLOW.into()).or_default() += count,
            Err(error) => tracing::warn!("cannot read how often the TUN was full: {error}"),
        }
        for (name, count) in workers.iter().flat_map(|worker| &worker.drops) {
            *drops.entry(name.clone()).or_default() += count;
        }
        Counters {
            totals: self.totals(),
            drops: drops.into_iter().collect(),
            ike: Named::new(),
            alarms: Named::new(),
            workers,
            ports,
            inherited: self.guard.inherited().map(ToString::to_string).collect(),
        }
    }

    /// Losses below a port: the kernel's counters as they are now, and the others as the workers
    /// last told them.
    fn below<'a>(&self, queues: impl Iterator<Item = &'a PortTotals>, port: PortIndex) -> PortStatistics {
        let told = queues.fold(PortStatistics::default(), |sum, queue| sum.plus(queue.below));
        let PortStatistics { tx_refused, stray, rx_not_joined, .. } = told;
        PortStatistics { tx_refused, stray, rx_not_joined, ..self.ports.losses(port) }
    }

    fn port_status(&self, port: &FilterPort) -> PortStatus {
        let now = Instant::now();
        let link = self.fib.port(port.index).filter(|link| link.ifindex != 0);
        let condition = self.ports.condition(port.index, now);
        let speed = link.and_then(|link| speed_of(&link.name).ok().flatten());
        let filter = self.guard.mode(port).map(|mode| match mode {
            XdpMode::Native => "native",
            XdpMode::Generic => "generic",
        });
        PortStatus {
            state: condition.as_ref().map_or("missing", |condition| condition.state).into(),
            seconds: condition.as_ref().map_or(0, |condition| condition.lasts.as_secs()),
            why: condition.and_then(|condition| condition.why.map(str::to_owned)),
            ifindex: link.map(|link| link.ifindex.into()),
            mtu: link.map(|link| link.mtu.into()),
            speed: speed.map(u64::from),
            queues: self.ports.sockets(port.index) as u64,
            routes: self.fib.routes_through(port.index) as u64,
            filter: filter.map(str::to_owned),
        }
    }

    fn of_worker(&self, worker: &Running) -> WorkerCounters {
        let counters = worker.handle.counters();
        let pipeline_drops = DropReason::ALL.map(|r| (r.name().to_owned(), worker.pipeline.dropped(r)));
        let worker_drops = WorkerDrop::ALL.map(|r| (r.name().to_owned(), counters.dropped(r)));
        let totals = counters.totals();
        WorkerCounters {
            index: worker.handle.id().into(),
            cpu: worker.cpu.map(|cpu| cpu as u32),
            cipher: self.library.name().into(),
            bursts: totals.turns,
            packets: received(&totals),
            drops: pipeline_drops.into_iter().chain(worker_drops).collect(),
        }
    }

    fn totals(&self) -> Named {
        let one = |worker: &Running| (worker.pipeline.totals(), worker.handle.counters().totals());
        let each: Vec<(Totals, WorkerTotals)> = self.workers.iter().map(one).collect();
        let pipelines = |of: fn(&Totals) -> u64| each.iter().map(|(pipeline, _)| of(pipeline)).sum::<u64>();
        let workers = |of: fn(&WorkerTotals) -> u64| each.iter().map(|(_, worker)| of(worker)).sum::<u64>();
        // Every worker has all SAs; some get them a little later.
        let sas = |of: fn(&Totals) -> u64| each.iter().map(|(pipeline, _)| of(pipeline)).min().unwrap_or(0);
        let rows = [
            ("out_received", pipelines(|pipeline| pipeline.outbound.received)),
            ("out_forwarded", pipelines(|pipeline| pipeline.outbound.forwarded)),
            ("in_received", pipelines(|pipeline| pipeline.inbound.received)),
            ("in_forwarded", pipelines(|pipeline| pipeline.inbound.forwarded)),
            ("in_to_host", pipelines(|pipeline| pipeline.inbound.to_host)),
            ("relayed", pipelines(|pipeline| pipeline.outbound.relayed + pipeline.inbound.relayed)),
            ("relayed_in", pipelines(|pipeline| pipeline.inbound.relayed_in)),
            ("icmp_sent", workers(|worker| worker.generated)),
            ("icmp_suppressed", pipelines(|pipeline| pipeline.icmp_suppressed)),
            ("mss_clamped", pipelines(|pipeline| pipeline.mss_clamped)),
            ("inbound_sas", sas(|pipeline| pipeline.inbound_sas)),
            ("outbound_sas", sas(|pipeline| pipeline.outbound_sas)),
            ("checksum_filled", workers(|worker| worker.checksum_filled)),
            ("split", workers(|worker| worker.split)),
            ("joined", workers(|worker| worker.joined)),
            ("merged", workers(|worker| worker.merged)),
            ("from_tun", workers(|worker| worker.from_tun)),
            ("to_tun", workers(|worker| worker.to_tun)),
            ("held", workers(|worker| worker.held)),
            ("away", workers(|worker| worker.away)),
            ("helped", workers(|worker| worker.helped_others)),
            ("sleeps", workers(|worker| worker.sleeps)),
            ("events_lost", workers(|worker| worker.events_lost)),
        ];
        rows.map(|(name, value)| (name.to_owned(), value)).into()
    }

    /// What a Child SA has carried.
    pub(crate) fn usage(&self, child: ChildSaId) -> ChildUsage {
        let now = milliseconds();
        let (inbound, outbound) = self.sas.totals(child).unwrap_or_default();
        ChildUsage { inbound: usage(&inbound, now), outbound: usage(&outbound, now) }
    }

    /// What came in and went out through a Child SA. Of one that is spread over the nodes, every
    /// node is taken to carry as much as this one.
    pub(crate) fn carried(&self, child: ChildSaId) -> Option<(SaTotals, SaTotals)> {
        let nodes = self.carriers(child);
        let all = |totals: SaTotals| SaTotals {
            packets: totals.packets.saturating_mul(nodes),
            bytes: totals.bytes.saturating_mul(nodes),
            ..totals
        };
        self.sas.totals(child).map(|(inbound, outbound)| (all(inbound), all(outbound)))
    }

    /// Packets received and sent, of at most `limit` Child SAs behind this one.
    pub(crate) fn packets_of_some(&self, behind: Option<ChildSaId>, most: usize) -> Vec<SaPackets> {
        self.sas.packets_of_some(behind, most)
    }

    /// The number of Child SAs.
    pub(crate) fn child_sas(&self) -> usize {
        self.sas.len()
    }

    /// Packets of a Child SA that came behind later ones.
    pub(crate) fn late(&self, child: ChildSaId) -> u32 {
        self.sas.late(child)
    }

    /// Packets of each shard that were relayed to the node that carries it.
    pub(crate) fn relayed_by_shard(&self) -> [u64; SHARDS] {
        let mut all = [0; SHARDS];
        for worker in self.workers.iter() {
            all.iter_mut().zip(worker.pipeline.relayed_by_shard()).for_each(|(sum, packets)| *sum += packets);
        }
        all
    }

    /// Names of the parts in use.
    pub(crate) fn parts(&self) -> Vec<String> {
        vec!["af-xdp".into(), self.library.name().into(), "aws-lc".into(), "vici".into()]
    }

    /// A line for the log.
    pub(crate) fn describe(&self) -> String {
        let name = |port: &FilterPort| match self.ports.is_in_use(port.index) {
            true => port.name.clone(),
            false => format!("{} (missing)", port.name),
        };
        let ports: Vec<String> = self.guard.ports().iter().map(name).collect();
        format!("ports {}, cipher library {}", ports.join(", "), self.library.name())
    }

    /// True if nothing has come in since the last call.
    pub(crate) fn is_idle(&self) -> bool {
        let packets = self.workers.iter().map(|worker| received(&worker.handle.counters().totals())).sum();
        self.packets_seen.replace(packets) == packets
    }
}

/// The workers' clock, by which SAs note their last use.
fn milliseconds() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE)
        .map_or(0, |now| now.tv_sec() as u64 * 1000 + now.tv_nsec() as u64 / 1_000_000)
}

/// Filter and workers have names of reasons in common, which must stay apart in one list.
fn filter_name(reason: Reason) -> String {
    format!("filter_{}", reason.name())
}

/// Losses below a port, of all its queues.
fn below(of_port: &PortStatistics) -> Named {
    let rows = [
        ("rx_dropped", of_port.rx_dropped),
        ("rx_ring_full", of_port.rx_ring_full),
        ("fill_ring_empty", of_port.fill_ring_empty),
        ("rx_invalid", of_port.rx_invalid),
        ("rx_not_joined", of_port.rx_not_joined),
        ("tx_invalid", of_port.tx_invalid),
        ("tx_refused", of_port.tx_refused),
    ];
    rows.map(|(name, value)| (name.to_owned(), value)).into()
}

/// Packets that came to a worker from outside.
fn received(totals: &WorkerTotals) -> u64 {
    totals.ports.iter().map(|queue| queue.rx_packets).sum::<u64>() + totals.from_tun
}

fn usage(totals: &SaTotals, now: u64) -> Usage {
    let idle = (totals.packets > 0).then(|| Duration::from_millis(now.saturating_sub(totals.last_use)));
    Usage { bytes: totals.bytes, packets: totals.packets, idle }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testudo_ike::endpoint::Discard;

    #[test]
    fn every_reason_is_explained_to_operators() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/counters.md");
        let text = std::fs::read_to_string(file).unwrap();
        let filter = Reason::ALL
            .iter()
            .copied()
            .filter(|reason| reason.action() == FilterAction::Drop)
            .map(filter_name);
        let pipeline = DropReason::ALL.into_iter().map(|reason| reason.name().to_owned());
        let worker = WorkerDrop::ALL.into_iter().map(|reason| reason.name().to_owned());
        let port = below(&PortStatistics::default()).into_iter().map(|(name, _)| name);
        let ike = Discard::ALL.into_iter().map(|reason| format!("discarded_{}", reason.name()));
        let tun = std::iter::once(TUN_OVERFLOW.to_owned());
        for name in filter.chain(pipeline).chain(worker).chain(port).chain(tun).chain(ike) {
            assert_eq!(text.matches(&format!("\n| `{name}` |")).count(), 1, "{name}");
        }
    }
}
