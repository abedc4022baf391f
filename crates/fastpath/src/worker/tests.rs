//! The worker on ports of memory, with a scripted pipeline and a TUN of queues.

mod accounting;
mod changing;
mod checksums;
mod early;
mod fenced;
mod forwarding;
mod handing_over;
mod holding;
mod host;
mod in_step;
mod inner_route;
mod joining;
mod pool;
mod queues;
mod relayed;
mod replay;
mod slow_path;
mod stealing;
mod threads;
mod twice;

use super::*;
use crate::fib::{NextHop, Out, PortIndex, PortLink, Route};
use crate::filter::{Class, STAMP_MAGIC};
use crate::frame::{ChunkSize, Frame};
use crate::mac::MacAddr;
use crate::port::PortInfo;
use crate::port::fake::FakePort;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::BorrowedFd;
use testudo_ipsec::dataplane::{Command, Event, Garbage, Sources};
use testudo_ipsec::drops::DropReason;
use testudo_wire::checksum::Sum;
use testudo_wire::ipv4::Ipv4;
use testudo_wire::offload::Offload;

/// The port towards the clients, 10.0.0.0/24.
const LAN: usize = 0;
/// The port towards the peers, 192.0.2.0/24 and by default all else.
const WAN: usize = 1;
const FRAMES: usize = 512;

const CLIENT: &str = "10.0.0.7";
const PEER: &str = "192.0.2.9";
const ROUTER: &str = "192.0.2.254";

/// Does to each packet what the test says.
#[derive(Default)]
struct Scripted {
    outbound: Option<fn(&mut Item<'_>) -> Verdict>,
    inbound: Option<fn(&mut Item<'_>) -> Verdict>,
    judged: Option<fn(&mut Item<'_>) -> Verdict>,
    /// From when no shard is its own any more.
    shardless: Option<fn(&mut Item<'_>) -> Verdict>,
    events: Vec<Event>,
    /// Packets that do not wait for their SA any longer.
    given_up: u64,
    /// The destination of packets of any policy.
    peer: Option<IpAddr>,
    /// Of the ICMP errors about each burst of clear packets.
    sources: Vec<Sources>,
    now: u64,
    shut: bool,
}

fn refuse(_: &mut Item<'_>) -> Verdict {
    Verdict::Drop(DropReason::Fenced)
}

impl Pipeline for Scripted {
    fn outbound(&mut self, burst: &mut [Item<'_>], sources: &Sources) {
        self.sources.push(*sources);
        let script = if self.shut { refuse } else { self.outbound.unwrap_or(|_| Verdict::Forward) };
        burst.iter_mut().for_each(|item| item.verdict = script(item));
    }

    fn inbound(&mut self, burst: &mut [Item<'_>]) {
        let script = if self.shut { refuse } else { self.inbound.unwrap_or(|_| Verdict::Forward) };
        burst.iter_mut().for_each(|item| item.verdict = script(item));
    }

    fn judge(&mut self, burst: &mut [Item<'_>], _: &Sources) {
        let script = if self.shut { refuse } else { self.judged.unwrap_or(|_| Verdict::ToHost) };
        burst.iter_mut().for_each(|item| item.verdict = script(item));
    }

    fn give_up_early(&mut self, packets: u64) {
        self.given_up += packets;
    }

    fn peer(&self, _policy: PolicyId) -> Option<IpAddr> {
        self.peer
    }

    fn set_now(&mut self, milliseconds: u64) {
        self.now = milliseconds;
    }

    fn set_open(&mut self, open: bool) {
        self.shut = !open;
    }

    fn apply(&mut self, command: Command) -> Option<Garbage> {
        match command {
            Command::SetSenderId(sender) => Some(Garbage::SenderId(sender)),
            Command::SetShards(shards) if shards.is_empty() => {
                self.outbound = self.shardless.or(self.outbound);
                None
            }
            _ => None,
        }
    }

    fn drain_events(&mut self, sink: impl FnMut(Event)) {
        self.events.drain(..).for_each(sink);
    }
}

/// A TUN made of two queues.
#[derive(Default)]
struct FakeTun {
    to_read: VecDeque<Vec<u8>>,
    /// Of the packet that is read next, if it is not whole.
    offloads: VecDeque<Offload>,
    written: Vec<Vec<u8>>,
    left: Vec<Offload>,
    broken: bool,
}

impl HostPort for FakeTun {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<(usize, Offload)>> {
        let Some(packet) = self.to_read.pop_front() else { return Ok(None) };
        buffer[..packet.len()].copy_from_slice(&packet);
        Ok(Some((packet.len(), self.offloads.pop_front().unwrap_or_default())))
    }

    fn write(&mut self, offload: Offload, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        if self.broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.written.push(pieces.iter().flat_map(|piece| piece.iter().copied()).collect());
        self.left.push(offload);
        Ok(())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

type TestWorker = Worker<FakePort, FakeTun, Scripted>;

/// With room for all that may be sent in one turn.
fn deep(index: u16) -> FakePort {
    FakePort::new(port(index).info().clone(), 2 * FRAMES)
}

fn mac(last: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, last])
}

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn port(index: u16) -> FakePort {
    let info = PortInfo {
        index: PortIndex(index),
        name: format!("fake{index}"),
        ifindex: 10 + u32::from(index),
        mac: mac(index as u8),
        mtu: 1500,
        limit: 1500,
    };
    FakePort::new(info, 256)
}

fn next_hop(port: u16, gateway: Option<&str>) -> Route {
    Route::Forward(NextHop { out: Out::Port(PortIndex(port)), gateway: gateway.map(addr), mtu: 1500 })
}

fn link(index: u16) -> PortLink {
    PortLink {
        index: PortIndex(index),
        name: format!("fake{index}"),
        ifindex: 10 + u32::from(index),
        mac: mac(index as u8),
        mtu: 1500,
        up: true,
        addresses: vec![addr(["10.0.0.1", "192.0.2.1"][usize::from(index)])],
    }
}

/// Both links, a default route, our addresses, and these neighbours.
fn fib(neighbours: &[(u16, &str, u8)]) -> Arc<Fib> {
    let mut builder = Fib::builder()
        .port(link(0))
        .port(link(1))
        .route("10.0.0.0/24".parse().unwrap(), next_hop(0, None))
        .route("2001:db8::/64".parse().unwrap(), next_hop(0, None))
        .route("192.0.2.0/24".parse().unwrap(), next_hop(1, None))
        .route(
            "172.16.0.0/16".parse().unwrap(),
            Route::Forward(NextHop { out: Out::Other { ifindex: 99 }, gateway: None, mtu: 1500 }),
        )
        .route("172.17.0.0/16".parse().unwrap(), next_hop(7, None))
        .route("198.51.100.0/24".parse().unwrap(), Route::Unreachable)
        .route("198.51.101.0/24".parse().unwrap(), Route::Prohibit)
        .route("198.51.102.0/24".parse().unwrap(), Route::Blackhole)
        .route("203.0.113.0/24".parse().unwrap(), next_hop(1, Some(ROUTER)))
        .local("10.0.0.1/32".parse().unwrap(), Route::Local)
        .local("192.0.2.1/32".parse().unwrap(), Route::Local);
    for &(port, address, last) in neighbours {
        builder = builder.neighbour(PortIndex(port), addr(address), mac(last));
    }
    Arc::new(builder.build())
}

/// All neighbours known.
fn full_fib() -> Arc<Fib> {
    fib(&[(0, CLIENT, 0x77), (0, "2001:db8::7", 0x76), (1, PEER, 0x99), (1, ROUTER, 0xfe)])
}

fn worker(fib: Arc<Fib>) -> TestWorker {
    let pool = FramePool::new(FRAMES, ChunkSize::K2).unwrap();
    let ports = vec![port(0), port(1)];
    Worker::new(WorkerConfig::new(0), ports, Some(FakeTun::default()), pool, fib, Scripted::default())
        .unwrap()
}

/// A valid IPv4 packet of `len` octets.
fn ipv4(src: &str, dst: &str, len: usize, dont_fragment: bool) -> Vec<u8> {
    let mut packet = vec![0x5a; len];
    packet[..12].copy_from_slice(&[0x45, 0, 0, 0, 0, 1, 0, 0, 64, 17, 0, 0]);
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    packet[6] = if dont_fragment { 0x40 } else { 0 };
    packet[12..16].copy_from_slice(&src.parse::<Ipv4Addr>().unwrap().octets());
    packet[16..20].copy_from_slice(&dst.parse::<Ipv4Addr>().unwrap().octets());
    let checksum = Sum::new().bytes(&packet[..20]).finish();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// From behind the tunnel.
fn ipv6(dst: &str, len: usize) -> Vec<u8> {
    let mut packet = vec![0x5a; len];
    packet[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 0, 17, 64]);
    packet[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
    packet[8..24].copy_from_slice(&"2001:db8:1::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
    packet[24..40].copy_from_slice(&dst.parse::<std::net::Ipv6Addr>().unwrap().octets());
    packet
}

/// Puts a packet into a frame as the filter and the kernel would.
fn stamped(pool: &mut FramePool, packet: &[u8], class: u8) -> Frame {
    let ethertype: [u8; 2] = if packet[0] >> 4 == 6 { [0x86, 0xdd] } else { [0x08, 0x00] };
    let bytes = [&[2, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0x55][..], &ethertype, packet].concat();
    let mut frame = pool.take().expect("a frame");
    assert!(frame.fill(&bytes));
    let start = usize::from(frame.start());
    frame.bytes_mut()[start - 4..start].copy_from_slice(&[STAMP_MAGIC, class, 0, 0]);
    frame
}

/// Lets a packet arrive at a port.
fn arrive(worker: &mut TestWorker, place: usize, packet: &[u8], class: Class) {
    let frame = stamped(worker.pool_mut(), packet, class as u8);
    worker.port_mut(place).unwrap().deliver(frame).unwrap();
}

/// Tells the worker something that the pipeline is to do.
fn tell(worker: &mut TestWorker, command: Command) {
    worker.delivery.channel.commands.push(WorkerCommand::Ipsec(command)).unwrap();
}

/// Frames that a port has sent: Ethernet header and packet.
fn sent(worker: &mut TestWorker, place: usize) -> Vec<([u8; 14], Vec<u8>)> {
    let mut frames = Vec::new();
    while let Some(frame) = worker.port_mut(place).unwrap().sent() {
        let (header, packet) = frame.data().split_first_chunk::<14>().unwrap();
        frames.push((*header, packet.to_vec()));
        worker.pool_mut().give(frame);
    }
    frames
}

fn dropped(worker: &TestWorker, reason: WorkerDrop) -> u64 {
    worker.counters().dropped(reason)
}

/// Every packet is accounted for, and every frame comes home.
fn check_and_close(worker: TestWorker) {
    assert!(worker.counters().totals().is_balanced(), "{:?}", worker.counters().totals());
    assert_eq!(worker.close(), 0, "frames leaked");
}
