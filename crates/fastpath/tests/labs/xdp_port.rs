//! AF_XDP ports over real veth pairs.

use crate::support::port::receive;
use crate::support::redirect::Redirect;
use crate::support::{in_namespace, ip, veth, veth_with};
use std::net::{TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use testudo_fastpath::fib::PortIndex;
use testudo_fastpath::frame::{ChunkSize, Frame, FramePool, HEADROOM};
use testudo_fastpath::port::xdp::{XdpConfig, XdpPort};
use testudo_fastpath::port::{
    Flushed, FrameBurst, Port, PortStatistics, Queues, driver_of, leaves_checksums_open, queues_of, speed_of,
};
use testudo_wire::checksum::Sum;
use testudo_wire::ipv4::Ipv4;
use testudo_wire::offload::fill_open;

const STAMP: [u8; 4] = [0x54, 1, 7, 0];

/// The kernel releases a queue by deferred work, which may get no processor for seconds.
const PATIENCE: Duration = Duration::from_secs(60);

fn config(name: &str, index: u16) -> XdpConfig {
    let usual = XdpConfig::new(PortIndex(index), name);
    XdpConfig { rx_ring: 256, tx_ring: 256, patience: PATIENCE, ..usual }
}

fn open(name: &str, index: u16, pool: &FramePool) -> (XdpPort, Redirect) {
    let port = XdpPort::open(&config(name, index), pool.memory()).unwrap();
    let redirect = Redirect::attach(port.info().ifindex, STAMP);
    redirect.set(0, port.fd().unwrap());
    (port, redirect)
}

/// An Ethernet frame with an IPv4 EtherType and a number that tells it from others.
fn numbered(pool: &mut FramePool, number: u32, len: usize) -> Frame {
    let mut bytes = vec![0xa5; len];
    bytes[12..14].copy_from_slice(&[0x08, 0x00]);
    bytes[14..18].copy_from_slice(&number.to_be_bytes());
    let mut frame = pool.take().expect("frame");
    assert!(frame.fill(&bytes));
    frame
}

fn number(frame: &Frame) -> u32 {
    u32::from_be_bytes(frame.data()[14..18].try_into().unwrap())
}

fn send(port: &mut XdpPort, pool: &mut FramePool, frames: impl IntoIterator<Item = Frame>) {
    let mut burst = FrameBurst::new();
    for frame in frames {
        if burst.is_full() {
            port.tx(&mut burst);
            port.flush();
            port.reclaim(pool);
        }
        burst.push(frame);
    }
    port.tx(&mut burst);
    assert!(burst.is_empty(), "TX ring full");
    port.flush();
}

#[test]
fn each_queue_of_an_interface_is_a_port() {
    in_namespace(|| {
        veth_with(("ttxq0", "numrxqueues 2 numtxqueues 2"), ("ttxq1", "numrxqueues 2 numtxqueues 1"));
        assert_eq!(queues_of("ttxq0").unwrap(), Queues { receive: 2, send: 2 });
        assert_eq!(queues_of("ttxq1").unwrap(), Queues { receive: 2, send: 1 });
        // The speed that the driver of virtual links reports; the loopback's reports none.
        assert_eq!(["ttxq0", "lo"].map(|name| speed_of(name).unwrap()), [Some(10_000), None]);
        assert!(speed_of("nowhere").is_err());
        assert_eq!(queues_of("lo").unwrap(), Queues { receive: 1, send: 1 });
        let mut pool = FramePool::new(4096, ChunkSize::K2).unwrap();
        let of_queue = |queue| XdpConfig { queue, ..config("ttxq0", 0) };
        let error = XdpPort::open(&of_queue(2), pool.memory()).unwrap_err().to_string();
        assert_eq!(error, "interface ttxq0: receive queue 2, expected one of 0 to 1");

        let open = |config: &XdpConfig| XdpPort::open(config, pool.memory()).unwrap();
        let mut senders: Vec<XdpPort> = (0..2).map(|queue| open(&of_queue(queue))).collect();
        let mut receivers: Vec<XdpPort> =
            (0..2).map(|queue| open(&XdpConfig { queue, ..config("ttxq1", 1) })).collect();
        let redirect = Redirect::attach(receivers[0].info().ifindex, STAMP);
        for (queue, receiver) in receivers.iter_mut().enumerate() {
            redirect.set(queue as u32, receiver.fd().unwrap());
            receiver.refill(&mut pool);
        }
        // By the queue of a veth that a packet leaves by it arrives at the other end.
        for (queue, sender) in senders.iter_mut().enumerate() {
            let frames: Vec<Frame> =
                (0..50).map(|n| numbered(&mut pool, 100 * queue as u32 + n, 60)).collect();
            send(sender, &mut pool, frames);
        }
        for (queue, receiver) in receivers.iter_mut().enumerate() {
            for (n, frame) in receive(receiver, &mut pool, 50).into_iter().enumerate() {
                assert_eq!(number(&frame), 100 * queue as u32 + n as u32);
                pool.give(frame);
            }
        }
        senders.extend(receivers);
        close_all(senders, pool);
    });
}

#[test]
fn frames_cross_with_their_stamp_and_headroom() {
    in_namespace(|| {
        veth("ttxda0", "ttxda1");
        let mut pool = FramePool::new(1024, ChunkSize::K2).unwrap();
        let (mut one, _redirect) = open("ttxda0", 0, &pool);
        let (mut other, _redirect) = open("ttxda1", 1, &pool);
        other.refill(&mut pool);
        assert_eq!(other.held(), 256);

        let frames: Vec<Frame> = (0..200).map(|n| numbered(&mut pool, n, 60 + n as usize)).collect();
        send(&mut one, &mut pool, frames);
        for (n, frame) in receive(&mut other, &mut pool, 200).into_iter().enumerate() {
            assert_eq!((number(&frame), frame.len()), (n as u32, 60 + n as u16));
            assert_eq!(frame.start(), HEADROOM);
            let start = usize::from(frame.start());
            assert_eq!(frame.bytes()[start - 4..start], STAMP, "what XDP wrote before the packet");
            assert!(frame.data()[18..].iter().all(|&octet| octet == 0xa5));
            pool.give(frame);
        }
        close_all(vec![one, other], pool);
    });
}

#[test]
fn packets_without_a_frame_are_counted_once() {
    in_namespace(|| {
        veth("ttxda0", "ttxda1");
        let mut pool = FramePool::new(1024, ChunkSize::K2).unwrap();
        let mut few = FramePool::new(64, ChunkSize::K2).unwrap();
        let (mut one, _redirect) = open("ttxda0", 0, &pool);
        let (mut other, _redirect) = open("ttxda1", 1, &few);
        other.refill(&mut few);
        let room = other.held();
        assert!((1..200).contains(&room), "{room}");
        let frames: Vec<Frame> = (0..200).map(|n| numbered(&mut pool, n, 60)).collect();
        send(&mut one, &mut pool, frames);
        for frame in receive(&mut other, &mut few, room) {
            few.give(frame);
        }
        let statistics = other.statistics();
        let lost = [statistics.fill_ring_empty, statistics.rx_dropped, statistics.rx_ring_full];
        assert_eq!(lost, [200 - room as u64, 0, 0]);
        close_all(vec![one], pool);
        close_all(vec![other], few);
    });
}

/// Every frame must come home when the ports close.
fn close_all(ports: Vec<XdpPort>, mut pool: FramePool) {
    for port in ports {
        let statistics = port.statistics();
        assert_eq!((statistics.stray, statistics.tx_invalid, statistics.rx_dropped), (0, 0, 0));
        port.close(&mut pool);
    }
    assert_eq!(pool.available(), pool.total(), "frames leaked");
}

#[test]
fn a_frame_received_on_one_port_leaves_on_another_from_the_same_memory() {
    in_namespace(|| {
        veth("ttxda0", "ttxda1");
        veth("ttxdb0", "ttxdb1");
        let mut pool = FramePool::new(2048, ChunkSize::K2).unwrap();
        let mut ends = FramePool::new(2048, ChunkSize::K2).unwrap();
        let (mut source, _redirect) = open("ttxda1", 0, &ends);
        let (mut left, _redirect) = open("ttxda0", 0, &pool);
        let (mut right, _redirect) = open("ttxdb0", 1, &pool);
        let (mut sink, _redirect) = open("ttxdb1", 1, &ends);
        left.refill(&mut pool);
        sink.refill(&mut ends);

        let memory = Arc::clone(pool.memory());
        for round in 0..50u32 {
            let frames: Vec<Frame> = (0..100).map(|n| numbered(&mut ends, round * 100 + n, 1514)).collect();
            send(&mut source, &mut ends, frames);
            let passing = receive(&mut left, &mut pool, 100);
            assert_eq!(pool.memory().chunks(), memory.chunks());
            send(&mut right, &mut pool, passing);
            for (n, frame) in receive(&mut sink, &mut ends, 100).into_iter().enumerate() {
                assert_eq!((number(&frame), frame.len()), (round * 100 + n as u32, 1514));
                ends.give(frame);
            }
            source.reclaim(&mut ends);
            right.reclaim(&mut pool);
            assert_eq!(pool.available() + left.held() + right.held(), pool.total());
        }
        assert_eq!(right.held(), 0, "all sent frames have completed");
        close_all(vec![left, right], pool);
        close_all(vec![source, sink], ends);
    });
}

/// A worker that is behind finds both rings full, and those towards the device too.
#[test]
fn a_port_holds_no_more_frames_than_it_says() {
    in_namespace(|| {
        veth("ttxda0", "ttxda1");
        let mut ends = FramePool::new(1024, ChunkSize::K2).unwrap();
        let mut pool = FramePool::new(2048, ChunkSize::K2).unwrap();
        let (mut one, _redirect) = open("ttxda0", 0, &ends);
        let (mut other, _redirect) = open("ttxda1", 1, &pool);
        one.refill(&mut ends);
        other.refill(&mut pool);
        let frames: Vec<Frame> = (0..256).map(|n| numbered(&mut ends, n, 60)).collect();
        send(&mut one, &mut ends, frames);
        let deadline = Instant::now() + Duration::from_secs(60);
        while other.held() < 512 {
            assert!(Instant::now() < deadline, "{} frames", other.held());
            other.refill(&mut pool);
        }
        // Sent, and not brought home.
        for _ in 0..4 {
            let mut burst: FrameBurst = (0..64).map(|n| numbered(&mut pool, n, 60)).collect();
            other.tx(&mut burst);
            assert!(burst.is_empty());
            other.flush();
        }
        assert_eq!(other.held(), 768);
        assert!(other.held() <= config("ttxda1", 1).frames());
        receive(&mut other, &mut pool, 256).into_iter().for_each(|frame| pool.give(frame));
        close_all(vec![other], pool);
        close_all(vec![one], ends);
    });
}

#[test]
fn a_full_transmit_ring_keeps_the_frames_it_cannot_take() {
    in_namespace(|| {
        veth("ttxda0", "ttxda1");
        let mut pool = FramePool::new(1024, ChunkSize::K2).unwrap();
        let (mut port, _redirect) = open("ttxda0", 0, &pool);
        let mut refused = 0;
        for start in (0..320).step_by(64) {
            let mut burst: FrameBurst = (start..start + 64).map(|n| numbered(&mut pool, n, 60)).collect();
            port.tx(&mut burst);
            refused += burst.len();
            burst.into_iter().for_each(|frame| pool.give(frame));
        }
        assert_eq!((refused, port.held()), (64, 256), "a ring of 256 entries holds 256 frames");
        close_all(vec![port], pool);
    });
}

#[test]
fn a_queue_can_be_bound_again_at_once() {
    in_namespace(|| {
        veth("ttxda0", "ttxda1");
        let mut pool = FramePool::new(1024, ChunkSize::K2).unwrap();
        let (mut other, _redirect) = open("ttxda1", 1, &pool);
        for round in 0..5 {
            let (mut one, redirect) = open("ttxda0", 0, &pool);
            one.refill(&mut pool);
            let frames: Vec<Frame> = (0..10).map(|n| numbered(&mut pool, n, 100)).collect();
            send(&mut other, &mut pool, frames);
            let frames = receive(&mut one, &mut pool, 10);
            frames.into_iter().for_each(|frame| pool.give(frame));
            drop(redirect);
            one.close(&mut pool);
            other.reclaim(&mut pool);
            assert_eq!(pool.available() + other.held(), pool.total(), "round {round}");
        }
        close_all(vec![other], pool);
    });
}

#[test]
fn two_sockets_of_one_queue_are_refused() {
    in_namespace(|| {
        veth("ttxda0", "ttxda1");
        let pool = FramePool::new(1024, ChunkSize::K2).unwrap();
        let (_port, _redirect) = open("ttxda0", 0, &pool);
        let error = XdpPort::open(&XdpConfig::new(PortIndex(1), "ttxda0"), pool.memory()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("interface ttxda0: bind(AF_XDP): ") && text.contains("busy"), "{text}");
    });
}

/// Nobody lets the queue go, and an hour is not waited for.
#[test]
fn a_wait_for_a_queue_can_be_called_off() {
    in_namespace(|| {
        veth("ttxcl0", "ttxcl1");
        let pool = FramePool::new(1024, ChunkSize::K2).unwrap();
        let (_port, _redirect) = open("ttxcl0", 0, &pool);
        let called_off = Some(Arc::new(AtomicBool::new(true)));
        let waiting = XdpConfig { patience: Duration::from_secs(3600), called_off, ..config("ttxcl0", 1) };
        let error = XdpPort::open(&waiting, pool.memory()).unwrap_err().to_string();
        assert!(error.contains("busy"), "{error}");
    });
}

#[test]
fn an_unusable_interface_is_refused_with_the_reason() {
    in_namespace(|| {
        veth("ttxda0", "ttxda1");
        ip("link set ttxda1 mtu 1601");
        let pool = FramePool::new(1024, ChunkSize::K2).unwrap();
        let refused = |config: XdpConfig| XdpPort::open(&config, pool.memory()).unwrap_err().to_string();
        let config = |name: &str| XdpConfig::new(PortIndex(0), name);
        assert_eq!(
            refused(config("ttxda1")),
            "interface ttxda1: MTU 1601, expected at most 1600 with frames of 2048 octets"
        );
        assert_eq!(refused(config("lo")), "interface lo: link type 772, expected Ethernet (1)");
        assert!(refused(config("ttxdnone")).starts_with("interface ttxdnone: ioctl(SIOCGIFINDEX): "));
        assert!(refused(config("a-name-that-is-too-long")).contains("name longer than 15 octets"));
        assert_eq!(
            refused(XdpConfig { tx_ring: 100, ..config("ttxda0") }),
            "interface ttxda0: ring of 100 entries, expected a power of two from 64 to 32768"
        );
        let zero_copy = refused(XdpConfig { zero_copy: true, ..config("ttxda0") });
        assert!(zero_copy.starts_with("interface ttxda0: bind(AF_XDP): "), "{zero_copy}");
    });
}

#[test]
fn losses_below_the_port_are_counted() {
    in_namespace(|| {
        veth("ttxda0", "ttxda1");
        let mut pool = FramePool::new(1024, ChunkSize::K2).unwrap();
        let (mut one, _redirect) = open("ttxda0", 0, &pool);
        let (other, _redirect) = open("ttxda1", 1, &pool);
        // No frame was lent for receiving.
        let frames: Vec<Frame> = (0..20).map(|n| numbered(&mut pool, n, 100)).collect();
        send(&mut one, &mut pool, frames);
        let deadline = Instant::now() + Duration::from_secs(60);
        while other.statistics().fill_ring_empty < 20 {
            assert!(Instant::now() < deadline, "{:?}", other.statistics());
            std::thread::yield_now();
        }
        let statistics = other.statistics();
        assert_eq!((statistics.fill_ring_empty, statistics.rx_ring_full, statistics.stray), (20, 0, 0));
    });
}

/// The kernel leaves the checksum to a veth, and AF_XDP does not say so beside the packet.
#[test]
fn a_veth_hands_over_checksums_that_are_open() {
    in_namespace(|| {
        veth("ttxda0", "ttxda1");
        assert_eq!(driver_of("ttxda1").unwrap().as_deref(), Some("veth"));
        assert!(leaves_checksums_open("veth").is_some());
        ip("address add 10.9.0.1/24 dev ttxda0");
        ip("neighbour add 10.9.0.2 lladdr 02:00:00:00:00:02 dev ttxda0 nud permanent");
        let mut pool = FramePool::new(1024, ChunkSize::K2).unwrap();
        let (mut port, _redirect) = open("ttxda1", 0, &pool);
        port.refill(&mut pool);
        let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
        let send_udp = || socket.send_to(b"a datagram", "10.9.0.2:9").map(drop).unwrap();
        let send_tcp = || {
            // There is no answer.
            let refused =
                TcpStream::connect_timeout(&"10.9.0.2:9".parse().unwrap(), Duration::from_millis(1));
            assert!(refused.is_err());
        };
        send_udp();
        assert_eq!(fill_next(&mut port, &mut pool), [false, true, true]);
        send_tcp();
        assert_eq!(fill_next(&mut port, &mut pool), [false, true, true]);
        let status = Command::new("ethtool").args(["-K", "ttxda0", "tx", "off"]).status().unwrap();
        assert!(status.success());
        send_udp();
        // A SYN that is sent again may come before.
        while fill_next(&mut port, &mut pool) != [true, false, true] {}
        close_all(vec![port], pool);
    });
}

/// Whether the checksum of the next packet is right, is filled in, and is right then.
fn fill_next(port: &mut XdpPort, pool: &mut FramePool) -> [bool; 3] {
    let mut frame = receive(port, pool, 1).remove(0);
    let packet = &mut frame.data_mut()[14..];
    let is_right = |packet: &[u8]| {
        let ip = Ipv4::parse(packet).unwrap();
        let len = ip.payload().len() as u16;
        let pseudo = Sum::new().pseudo_v4(ip.src(), ip.dst(), ip.protocol().0, len);
        pseudo.bytes(ip.payload()).is_valid()
    };
    let found = [is_right(packet), fill_open(packet), is_right(packet)];
    pool.give(frame);
    found
}

#[test]
fn kernel_drops_are_readable_until_the_port_closes() {
    in_namespace(|| {
        veth("ttxda0", "ttxda1");
        let mut pool = FramePool::new(1024, ChunkSize::K2).unwrap();
        let (mut one, _redirect) = open("ttxda0", 0, &pool);
        let (other, _redirect) = open("ttxda1", 1, &pool);
        let losses = other.losses();
        assert_eq!(losses.read(), Some(PortStatistics::default()));
        // No frame was lent for receiving.
        let frames: Vec<Frame> = (0..20).map(|n| numbered(&mut pool, n, 100)).collect();
        send(&mut one, &mut pool, frames);
        let deadline = Instant::now() + Duration::from_secs(60);
        let reader = std::thread::spawn(move || {
            while losses.read().unwrap().fill_ring_empty < 20 {
                assert!(Instant::now() < deadline, "{:?}", losses.read());
                std::thread::yield_now();
            }
            losses
        });
        let losses = reader.join().unwrap();
        assert_eq!(losses.read(), Some(other.statistics()));
        other.close(&mut pool);
        assert_eq!(losses.read(), None);
    });
}

#[test]
fn a_port_gives_its_frames_back_when_its_interface_is_deleted_and_another_takes_them() {
    in_namespace(|| {
        let mut pool = FramePool::new(2048, ChunkSize::K2).unwrap();
        for _ in 0..3 {
            veth("ttxda0", "ttxda1");
            let (mut one, _redirect) = open("ttxda0", 0, &pool);
            let (mut other, _redirect) = open("ttxda1", 1, &pool);
            one.refill(&mut pool);
            other.refill(&mut pool);
            let frames: Vec<Frame> = (0..100).map(|n| numbered(&mut pool, n, 100)).collect();
            send(&mut one, &mut pool, frames);
            ip("link delete ttxda0");
            // Packets sent from then on are lost.
            let mut late: FrameBurst = (0..10).map(|n| numbered(&mut pool, n, 100)).collect();
            one.tx(&mut late);
            assert_eq!(one.flush(), Flushed::Down);
            one.close(&mut pool);
            other.close(&mut pool);
            assert_eq!(pool.available(), pool.total(), "frames leaked");
        }
    });
}
