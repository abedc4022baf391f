//! One gateway of the benchmark: a worker with two in-memory ports.

use super::gateway::{Membership, Side, dataplane, worker_of};
use super::{BURST, BURSTS, Suite};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;
use testudo_base::prefix::Prefix;
use testudo_crypto::Library;
use testudo_fastpath::error::Error as FastpathError;
use testudo_fastpath::fib::{Fib, FibBuilder, NextHop, Out, PortIndex, PortLink, Route};
use testudo_fastpath::filter::{Class, STAMP_LEN, STAMP_MAGIC};
use testudo_fastpath::frame::FramePool;
use testudo_fastpath::mac::MacAddr;
use testudo_fastpath::port::fake::FakePort;
use testudo_fastpath::port::{Port, PortInfo};
use testudo_fastpath::tun::Tun;
use testudo_fastpath::worker::{Fence, Worker, WorkerConfig, WorkerPool, boottime};
use testudo_ipsec::dataplane::{Command, Dataplane};
use testudo_wire::ethernet::{self, EtherType, Ethernet};

/// MTU of links without jumbo frames.
pub(crate) const MTU: u16 = 1500;
/// Packets that a port can hold.
const DEPTH: usize = BURST * BURSTS;
/// MTU of links with jumbo frames.
const JUMBO: u16 = 9000;
/// Longer than any run: the fence is checked and always open.
const OPEN: Duration = Duration::from_secs(1 << 20);
/// The MAC address of every neighbour; each link has one.
const NEIGHBOUR: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

/// A port of the node.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Link {
    /// The link to the host.
    Lan = 0,
    /// The link to the other gateway.
    Wan = 1,
}

impl Link {
    const ALL: [Self; 2] = [Self::Lan, Self::Wan];

    fn index(self) -> PortIndex {
        PortIndex(self as u16)
    }

    fn mac(self) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, self as u8])
    }

    fn name(self) -> &'static str {
        match self {
            Self::Lan => "lan",
            Self::Wan => "wan",
        }
    }

    /// The filter's class for packets that arrive here.
    fn class(self) -> Class {
        match self {
            Self::Lan => Class::Protect,
            Self::Wan => Class::Esp,
        }
    }

    /// The only neighbour.
    fn neighbour(self, side: Side) -> Ipv4Addr {
        match self {
            Self::Lan => side.host(),
            Self::Wan => side.other().address(),
        }
    }
}

/// A worker whose tunnel is up and whose neighbours are resolved.
pub(crate) struct Node {
    worker: Worker<FakePort, Tun, Dataplane>,
    now: u64,
}

/// A node could not be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetupError {
    /// The tunnel.
    #[error("cannot set up the tunnel: {0}")]
    Tunnel(#[from] testudo_ipsec::Error),
    /// The worker.
    #[error("cannot set up a worker: {0}")]
    Worker(#[from] FastpathError),
}

impl Node {
    /// A gateway that is not in a cluster, or a member that carries the tunnel: behind a fence,
    /// with granted sequence numbers.
    pub(crate) fn new(
        side: Side,
        library: Library,
        suite: Suite,
        membership: Membership,
        is_jumbo: bool,
    ) -> Result<Self, SetupError> {
        let mtu = if is_jumbo { JUMBO } else { MTU };
        let pipeline = dataplane(side, library, suite, membership, mtu)?;
        let node = Self::with_mtu(fib(side, mtu), pipeline, mtu, DEPTH)?;
        Ok(if membership.is_member() { node.behind_a_fence() } else { node })
    }

    /// A node of a cluster, with this neighbour on the link to the other gateway and links that take
    /// relayed packets whole.
    pub(crate) fn relaying(pipeline: Dataplane, neighbour: Ipv4Addr) -> Result<Self, SetupError> {
        let fib = routes_of(JUMBO, [Link::Lan.neighbour(Side::Near), neighbour], &[]).build();
        Ok(Self::with_mtu(fib, pipeline, JUMBO, DEPTH)?.behind_a_fence())
    }

    fn behind_a_fence(self) -> Self {
        let fence = Fence::shut();
        fence.extend(boottime() + OPEN);
        Self { worker: self.worker.behind(Arc::new(fence)), ..self }
    }

    /// A gateway with these routes and tunnels.
    pub(crate) fn of(fib: Fib, pipeline: Dataplane) -> Result<Self, SetupError> {
        Self::with_mtu(fib, pipeline, MTU, DEPTH)
    }

    /// A worker that has processed these commands, with ports that hold that many packets.
    pub(crate) fn with_depth(side: Side, tunnel: &[Command], depth: usize) -> Result<Self, SetupError> {
        Self::with_mtu(fib(side, MTU), worker_of(0, tunnel), MTU, depth)
    }

    /// A worker without ports.
    pub(crate) fn without_ports(side: Side, tunnel: &[Command], number: u8) -> Result<Self, SetupError> {
        let pool = FramePool::for_mtu(MTU.into(), BURST, 0)?;
        let (config, fib) = (WorkerConfig::new(number), Arc::new(fib(side, MTU)));
        Ok(Self {
            worker: Worker::new(config, Vec::new(), None, pool, fib, worker_of(number, tunnel))?,
            now: 1,
        })
    }

    /// Puts the node's worker into a slot of a pool that is not used yet.
    #[must_use]
    pub(crate) fn in_pool(self, pool: Arc<WorkerPool>, index: usize) -> Self {
        Self { worker: self.worker.in_pool(pool, index), ..self }
    }

    fn with_mtu(fib: Fib, pipeline: Dataplane, mtu: u16, depth: usize) -> Result<Self, SetupError> {
        // Waiting and sent packets, with bursts to spare.
        let pool = FramePool::for_mtu(mtu.into(), 4 * depth, 4 * depth)?;
        let ports = Link::ALL.map(|link| FakePort::new(info(link, mtu), depth)).into();
        let worker = Worker::new(WorkerConfig::new(0), ports, None, pool, Arc::new(fib), pipeline)?;
        Ok(Self { worker, now: 1 })
    }

    /// Lets an IP packet arrive. Returns false if the port or the pool is full.
    #[must_use]
    pub(crate) fn arrive(&mut self, link: Link, packet: &[u8]) -> bool {
        let Some(mut frame) = self.worker.pool_mut().take_for(packet.len()) else { return false };
        let start = usize::from(frame.start());
        let [port_0, port_1] = link.index().0.to_ne_bytes();
        let stamp: [u8; STAMP_LEN] = [STAMP_MAGIC, link.class() as u8, port_0, port_1];
        let header = Ethernet { dst: link.mac(), src: NEIGHBOUR, ethertype: EtherType::IPV4 }.to_bytes();
        let (before, rest) = frame.bytes_mut().split_at_mut(start);
        before[start - STAMP_LEN..].copy_from_slice(&stamp);
        rest[..header.len()].copy_from_slice(&header);
        rest[header.len()..][..packet.len()].copy_from_slice(packet);
        let inside = frame.set_extent(start, header.len() + packet.len());
        inside && self.worker.port_mut(link as usize).is_some_and(|port| port.deliver(frame).is_ok())
    }

    /// One turn of the worker's loop: at most a burst from each port.
    #[inline]
    pub(crate) fn turn(&mut self) {
        self.worker.turn(self.now);
    }

    /// One turn of a worker in a pool: it may process several bursts, or those of another worker.
    /// Returns false if there was nothing to do.
    #[inline]
    pub(crate) fn turn_in_pool(&mut self) -> bool {
        self.worker.turn(self.now)
    }

    /// Packets that have been sent through a port and not taken yet.
    pub(crate) fn sent(&mut self, link: Link) -> usize {
        self.worker.port_mut(link as usize).map_or(0, |port| port.held() - port.waiting())
    }

    /// Packets that another worker has processed in the pipeline.
    pub(crate) fn helped(&self) -> u64 {
        self.worker.counters().totals().helped_by_others
    }

    /// Passes every IP packet sent through a port to `look`, oldest first, and returns its frame to
    /// the pool.
    pub(crate) fn take_sent<E>(
        &mut self,
        link: Link,
        mut look: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(frame) = self.worker.port_mut(link as usize).and_then(FakePort::sent) {
            let seen = look(frame.data().get(ethernet::HEADER..).unwrap_or(&[]));
            self.worker.pool_mut().give(frame);
            seen?;
        }
        Ok(())
    }
}

fn info(link: Link, mtu: u16) -> PortInfo {
    let PortLink { index, name, ifindex, mac, mtu, .. } = port_link(link, mtu);
    PortInfo { index, name, ifindex, mac, mtu, limit: mtu }
}

fn port_link(link: Link, mtu: u16) -> PortLink {
    PortLink {
        index: link.index(),
        name: link.name().to_owned(),
        ifindex: 1 + link as u32,
        mac: link.mac(),
        mtu,
        up: true,
        addresses: Vec::new(),
    }
}

/// Routes to both neighbours.
fn fib(side: Side, mtu: u16) -> Fib {
    let neighbours = Link::ALL.map(|link| link.neighbour(side));
    routes_of(mtu, neighbours, &[]).local(Prefix::host(IpAddr::V4(side.address())), Route::Local).build()
}

/// Routes to the neighbours on both links, and through them to these prefixes.
pub(crate) fn routes(neighbours: [Ipv4Addr; 2], behind: &[(Link, Prefix)]) -> FibBuilder {
    routes_of(MTU, neighbours, behind)
}

fn routes_of(mtu: u16, neighbours: [Ipv4Addr; 2], behind: &[(Link, Prefix)]) -> FibBuilder {
    let hop = |link: Link, gateway| NextHop { out: Out::Port(link.index()), gateway, mtu };
    let mut builder = Fib::builder();
    for (link, neighbour) in Link::ALL.into_iter().zip(neighbours) {
        let neighbour = IpAddr::V4(neighbour);
        builder = builder
            .port(port_link(link, mtu))
            .route(Prefix::host(neighbour), Route::Forward(hop(link, None)))
            .neighbour(link.index(), neighbour, NEIGHBOUR);
        let own = behind.iter().filter(|(of, _)| *of as usize == link as usize);
        for (link, prefix) in own {
            builder = builder.route(*prefix, Route::Forward(hop(*link, Some(neighbour))));
        }
    }
    builder
}
