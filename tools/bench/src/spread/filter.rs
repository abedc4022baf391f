//! The XDP filter, run on packets of the tunnel (BPF_PROG_TEST_RUN): on a node that works on them,
//! and on one that drops them.

use super::Direction;
use super::scheme::Scheme;
use crate::error::BenchError;
use crate::esp::gateway::Side;
use crate::esp::traffic::{self, Template};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use testudo_base::prefix::Prefix;
use testudo_base::spi::Spi;
use testudo_base::turn::InTurn;
use testudo_fastpath::fib::PortIndex;
use testudo_fastpath::filter::{
    ClusterFilter, Filter, FilterError, FilterPort, Instance, KeptShards, PrefixUse, cleanup,
    cost_of_a_test_run,
};
use testudo_fastpath::mac::MacAddr;
use testudo_wire::ethernet::{EtherType, Ethernet};
use testudo_wire::ip::Protocol;
use testudo_wire::{esp, ipv4};

/// Test runs come from the loopback interface.
const LOOPBACK: u32 = 1;
const PORT: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const CLUSTER: MacAddr = MacAddr([3, 0, 0, 0, 0, 9]);
const NEIGHBOUR: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
/// Runs of a measurement; the best of some is taken, so that few disturbances count.
const RUNS: u32 = 10_000;
const REPEATS: u32 = 5;
/// Octets that ESP with AES-GCM adds to an inner packet of 1446 octets.
const ESP_OVERHEAD: usize = esp::HEADER + 8 + 2 + 16;
const NO_SHARD: [u64; 4] = [0; 4];
const ALL_SHARDS: [u64; 4] = [u64::MAX; 4];

/// The filters of two nodes: one carries no shard, the other all.
pub(super) struct Filters {
    others: Filter,
    own: Filter,
    scheme: Scheme,
    /// Dropped after the filters: pins of an open filter cannot be removed.
    _pins: Pins,
}

/// Removes the pins of these instances when it is dropped.
struct Pins([Instance; 2]);

/// Nanoseconds that the filter takes for a packet, without the kernel's part of a test run.
#[derive(Clone, Copy, Debug)]
pub(super) struct FilterCost {
    pub(super) own: f64,
    pub(super) other: f64,
}

impl Filters {
    pub(super) fn new(scheme: Scheme) -> Result<Self, BenchError> {
        Self::with_ingress(scheme, false)
    }

    /// Behind routers: both nodes work on all packets that reach them.
    pub(super) fn behind_routers(scheme: Scheme) -> Result<Self, BenchError> {
        Self::with_ingress(scheme, true)
    }

    fn with_ingress(scheme: Scheme, routed: bool) -> Result<Self, BenchError> {
        let (process, kind) = (std::process::id(), scheme as u8 + 10 * u8::from(routed));
        let name = |node: &str| Instance::new(&format!("bench-{node}-{kind}-{process}"));
        let instances = [name("others")?, name("own")?];
        let pins = Pins(instances);
        let [others, own] = &pins.0;
        Ok(Self {
            others: open(others, scheme, NO_SHARD, routed)?,
            own: open(own, scheme, ALL_SHARDS, routed)?,
            scheme,
            _pins: pins,
        })
    }

    /// The cost of a packet of that many octets inside.
    pub(super) fn cost(&self, direction: Direction, size: u16) -> Result<FilterCost, BenchError> {
        let frame = match direction {
            Direction::Out => {
                let mut template = Template::new(size, traffic::TTL);
                framed(template.between(traffic::SOURCE, traffic::DESTINATION))
            }
            Direction::In => framed(&esp_packet(spi(self.scheme), size)),
        };
        let run = nanoseconds(cost_of_a_test_run(&frame, RUNS, REPEATS)?);
        let net = |filter: &Filter| best(|| filter.cost(&frame, RUNS)).map(|whole| whole - run);
        Ok(FilterCost { own: net(&self.own)?, other: net(&self.others)? })
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        for instance in &self.0 {
            // What the kernel refuses to remove stays; there is nobody to tell.
            let _left = cleanup(instance);
        }
    }
}

fn best(mut run: impl FnMut() -> Result<Duration, FilterError>) -> Result<f64, BenchError> {
    let mut best = f64::INFINITY;
    for _ in 0..REPEATS {
        best = best.min(nanoseconds(run()?));
    }
    Ok(best)
}

fn nanoseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

fn spi(scheme: Scheme) -> Spi {
    Spi(0xc0de_0001 + u32::from(scheme as u8))
}

/// A node with the tunnel that carries these shards.
fn open(instance: &Instance, scheme: Scheme, shards: [u64; 4], routed: bool) -> Result<Filter, BenchError> {
    let mut filter = Filter::open(instance)?;
    filter.set_port(&FilterPort {
        index: PortIndex(5),
        name: "lo".to_owned(),
        ifindex: LOOPBACK,
        mac: PORT,
        cluster_mac: Some(CLUSTER),
        check_source: true,
        allow_generic: false,
    })?;
    let own: BTreeSet<IpAddr> = [IpAddr::V4(Side::Near.address())].into();
    filter.set_addresses(&own)?;
    let [a, b, _, _] = traffic::DESTINATION.octets();
    let protected = Prefix::new(IpAddr::V4(Ipv4Addr::new(a, b, 0, 0)), 16);
    let to = PrefixUse { home: Some(spi(scheme).shard()), spread: scheme.spread(), ..PrefixUse::PROTECT };
    filter.set_prefixes(&protected.map(|prefix| (prefix, to)).into_iter().collect())?;
    filter.set_cluster(Some(&ClusterFilter { vips: own, key: [1, 2], routed }))?;
    filter.set_shards(KeptShards {
        packets: shards,
        ike: shards,
        default_host: shards != NO_SHARD,
        in_turn: InTurn::Sessions,
        ..KeptShards::default()
    })?;
    filter.set_fence(u64::MAX)?;
    match scheme.spread() {
        Some(_) => filter.track_spread(spi(scheme).0, 1)?,
        None => filter.track(spi(scheme).0, 1)?,
    }
    Ok(filter)
}

/// A frame as the switch floods it.
fn framed(packet: &[u8]) -> Vec<u8> {
    let header = Ethernet { dst: CLUSTER, src: NEIGHBOUR, ethertype: EtherType::IPV4 };
    [&header.to_bytes()[..], packet].concat()
}

/// ESP from the peer with an inner packet of that many octets.
fn esp_packet(spi: Spi, size: u16) -> Vec<u8> {
    let payload = usize::from(size) + ESP_OVERHEAD;
    let header = ipv4::Fields {
        tos: 0,
        total_len: (ipv4::HEADER + payload) as u16,
        id: 0,
        df: true,
        ttl: traffic::TTL,
        protocol: Protocol::ESP,
        src: Side::Far.address(),
        dst: Side::Near.address(),
    };
    let mut packet = header.to_bytes().to_vec();
    packet.extend(spi.0.to_be_bytes());
    packet.extend(7_u32.to_be_bytes());
    packet.resize(ipv4::HEADER + payload, 0xab);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use testudo_fastpath::filter::BPFFS;

    /// As root: the filter is loaded.
    #[test]
    fn nothing_stays_pinned() {
        let pinned = || {
            let names = std::fs::read_dir(BPFFS).expect("a BPF file system").flatten();
            let names = names.filter_map(|entry| entry.file_name().into_string().ok());
            let process = format!("-{}", std::process::id());
            names.filter(|name| name.contains("-bench-") && name.ends_with(&process)).count()
        };
        let filters = Filters::new(Scheme::PacketHash).expect("filters");
        assert_eq!(pinned(), 2);
        let cost = filters.cost(Direction::In, 1446).expect("test runs");
        assert!(cost.own > 0.0 && cost.other > 0.0, "{cost:?}");
        drop(filters);
        assert_eq!(pinned(), 0);
    }
}
