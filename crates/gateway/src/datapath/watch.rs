//! The data plane, as the watch sees it.

use super::DataPath;
use crate::alarms::{PacketSource, SaView};
use std::collections::BTreeSet;
use std::net::IpAddr;
use testudo_base::spi::Spi;
use testudo_fastpath::filter::Reason;
use testudo_fastpath::mac::MacAddr;
use testudo_fastpath::worker::WorkerDrop;
use testudo_ipsec::dataplane::Sample;
use testudo_ipsec::drops::DropReason;

impl DataPath {
    /// The addresses of this host, and of the cluster.
    pub(crate) fn own_addresses(&self) -> &BTreeSet<IpAddr> {
        self.guard.addresses()
    }

    /// The cluster's addresses.
    pub(crate) fn vips(&self) -> BTreeSet<IpAddr> {
        self.guard.vips()
    }

    /// The MAC addresses of the ports, and of the cluster.
    pub(crate) fn own_macs(&self) -> BTreeSet<MacAddr> {
        self.guard.ports().iter().flat_map(|port| [Some(port.mac), port.cluster_mac]).flatten().collect()
    }
}

impl PacketSource for DataPath {
    fn suspicious(&self) -> Vec<(DropReason, u64)> {
        let mut sums: Vec<(DropReason, u64)> = Vec::new();
        for (reason, count) in self.workers.iter().flat_map(|worker| worker.pipeline.suspicious()) {
            match sums.iter_mut().find(|(of, _)| *of == reason) {
                Some((_, sum)) => *sum += count,
                None => sums.push((reason, count)),
            }
        }
        sums
    }

    fn take_samples(&self, reason: DropReason) -> Vec<Sample> {
        self.workers.iter().flat_map(|worker| worker.pipeline.take_samples(reason)).collect()
    }

    fn sa(&self, spi: Spi, reason: DropReason) -> Option<SaView> {
        self.sas.view(spi, reason)
    }

    fn clear_dropped(&self) -> Vec<(String, u64)> {
        let of_port = |port| self.guard.counter(port, Reason::DropClearInbound).ok();
        let ports = self.guard.ports().iter();
        ports.filter_map(|port| Some((port.name.clone(), of_port(port)?))).collect()
    }

    fn take_clear_dropped(&self, port: &str) -> Vec<Sample> {
        self.guard.take_clear(port)
    }

    fn overlaps(&self) -> u64 {
        let dropped =
            |worker: &super::workers::Running| worker.handle.counters().dropped(WorkerDrop::FragmentOverlap);
        self.workers.iter().map(dropped).sum()
    }

    fn take_overlaps(&self) -> Vec<Sample> {
        self.workers.iter().flat_map(|worker| worker.handle.counters().take_overlaps()).collect()
    }
}
