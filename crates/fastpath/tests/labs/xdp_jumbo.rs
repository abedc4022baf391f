//! Packets of several chunks through AF_XDP ports over real veth pairs.

use crate::support::port::receive;
use crate::support::redirect::Redirect;
use crate::support::{in_namespace, ip, veth};
use std::time::{Duration, Instant};
use testudo_fastpath::fib::PortIndex;
use testudo_fastpath::frame::{Frame, FramePool, JUMBO_MTU};
use testudo_fastpath::port::xdp::{XdpConfig, XdpPort};
use testudo_fastpath::port::{FrameBurst, Port};

const STAMP: [u8; 4] = [0x54, 1, 7, 0];
const ETHERNET: usize = 14;

/// Both ends of a veth pair.
fn pair(pool: &mut FramePool, mtu: usize, rx_ring: u32) -> [(XdpPort, Redirect); 2] {
    veth("ttxdj0", "ttxdj1");
    for name in ["ttxdj0", "ttxdj1"] {
        ip(&format!("link set {name} mtu {mtu}"));
    }
    let open = |name, index, pool: &mut FramePool| {
        let config = XdpConfig { rx_ring, tx_ring: 256, ..XdpConfig::new(PortIndex(index), name) };
        let mut port = XdpPort::open(&config, pool.memory()).unwrap();
        let redirect = Redirect::attach(port.info().ifindex, STAMP);
        redirect.set(0, port.fd().unwrap());
        port.refill(pool);
        (port, redirect)
    };
    [open("ttxdj0", 0, pool), open("ttxdj1", 1, pool)]
}

/// An IPv4 frame of that many octets, each of them known.
fn frame(pool: &mut FramePool, number: usize, len: usize) -> Frame {
    let mut frame = pool.take_for(len).expect("a frame");
    assert!(frame.fill(&octets(number, len)));
    frame
}

fn octets(number: usize, len: usize) -> Vec<u8> {
    let mut octets: Vec<u8> = (0..len).map(|at| (at * 7 % 251) as u8).collect();
    octets[12..14].copy_from_slice(&[0x08, 0x00]);
    octets[14..18].copy_from_slice(&(number as u32).to_be_bytes());
    octets
}

fn send(port: &mut XdpPort, pool: &mut FramePool, frames: Vec<Frame>) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut burst: FrameBurst = frames.into_iter().collect();
    while !burst.is_empty() {
        assert!(Instant::now() < deadline, "{} frames left", burst.len());
        port.tx(&mut burst);
        port.flush();
        port.reclaim(pool);
    }
}

fn close_all(ports: [(XdpPort, Redirect); 2], mut pool: FramePool) {
    for (port, _redirect) in ports {
        let statistics = port.statistics();
        assert_eq!((statistics.stray, statistics.tx_invalid), (0, 0), "{statistics:?}");
        port.close(&mut pool);
    }
    assert_eq!(pool.available(), pool.total(), "frames leaked");
}

/// All sizes around the ends of chunks, on the way out (4096 octets from the frame's start) and in
/// (3712 behind the headroom).
#[test]
fn packets_of_every_number_of_chunks_cross_unchanged() {
    in_namespace(|| {
        let mut pool = FramePool::for_mtu(9000, 2048, 256).unwrap();
        let [mut one, mut other] = pair(&mut pool, 9000, 512);
        let around = [60, 1514, 3712, 4096 - 384, 2 * 3712, 2 * 4096 - 384, 9000, 9013];
        let lens: Vec<usize> = around.iter().flat_map(|&len| [len - 1, len, len + 1]).collect();
        for round in 0..20 {
            let frames = lens.iter().enumerate().map(|(n, &len)| frame(&mut pool, n + round, len)).collect();
            send(&mut one.0, &mut pool, frames);
            for (n, frame) in receive(&mut other.0, &mut pool, lens.len()).into_iter().enumerate() {
                assert!(frame.data() == octets(n + round, lens[n]), "packet {n} of {} octets", lens[n]);
                let start = usize::from(frame.start());
                assert_eq!(frame.bytes()[start - 4..start], STAMP, "what XDP wrote before the packet");
                pool.give(frame);
            }
        }
        assert_eq!(other.0.statistics().rx_not_joined, 0);
        close_all([one, other], pool);
    });
}

#[test]
fn the_largest_mtu_passes() {
    in_namespace(|| {
        let mtu = JUMBO_MTU as usize;
        let mut pool = FramePool::for_mtu(JUMBO_MTU, 2048, 64).unwrap();
        let [mut one, mut other] = pair(&mut pool, mtu, 512);
        let frames = vec![frame(&mut pool, 1, mtu)];
        send(&mut one.0, &mut pool, frames);
        let mut received = receive(&mut other.0, &mut pool, 1);
        assert!(received[0].data() == octets(1, mtu));
        pool.give(received.remove(0));
        // One octet more than an MTU is for IP, and Ethernet's header on top of it.
        ip(&format!("link set ttxdj1 mtu {}", mtu + 1));
        let config = XdpConfig::new(PortIndex(1), "ttxdj1");
        let refused = XdpPort::open(&config, pool.memory()).unwrap_err().to_string();
        assert!(refused.contains("MTU 15937, expected at most 15936"), "{refused}");
        close_all([one, other], pool);
    });
}

/// How many whole packets have come.
fn receive_flood(port: &mut XdpPort, pool: &mut FramePool, len: usize) -> usize {
    let mut burst = FrameBurst::new();
    port.rx(&mut burst, pool);
    let count = burst.len();
    for frame in burst {
        let number = u32::from_be_bytes(*frame.data()[14..].first_chunk().unwrap());
        assert!(frame.data() == octets(number as usize, len), "{} octets", frame.len());
        pool.give(frame);
    }
    port.refill(pool);
    count
}

/// More descriptors than the rings have: a burst may end in the middle of a packet, and packets are
/// lost whole or not at all.
#[test]
fn a_flood_loses_packets_only_whole_and_counted() {
    in_namespace(|| {
        let mut pool = FramePool::for_mtu(9000, 2048, 100).unwrap();
        let [mut one, mut other] = pair(&mut pool, 9000, 64);
        let len = 9000 + ETHERNET;
        let (mut sent, mut received) = (0, 0);
        for round in 0..50 {
            // Fewer and fewer jumbo frames are left to receive into.
            let frames: Vec<Frame> = (0..60).map(|n| frame(&mut pool, n, len)).collect();
            let hoard: Vec<Frame> = (0..round % 40).filter_map(|_| pool.take_jumbo()).collect();
            sent += frames.len();
            send(&mut one.0, &mut pool, frames);
            let quiet = Instant::now() + Duration::from_millis(20);
            while Instant::now() < quiet {
                received += receive_flood(&mut other.0, &mut pool, len);
                one.0.reclaim(&mut pool);
            }
            hoard.into_iter().for_each(|frame| pool.give(frame));
        }
        // Packets that a busy kernel has not delivered by the end of a round.
        let lost = |port: &XdpPort| {
            let lost = port.statistics();
            lost.rx_dropped + lost.fill_ring_empty + lost.rx_ring_full + lost.rx_not_joined
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        while received + (lost(&other.0) as usize) < sent && Instant::now() < deadline {
            received += receive_flood(&mut other.0, &mut pool, len);
        }
        let lost = other.0.statistics();
        let below = lost.rx_dropped + lost.fill_ring_empty + lost.rx_ring_full + lost.rx_not_joined;
        assert_eq!(received + below as usize, sent, "{lost:?}");
        assert!(received > 0 && below > 0, "{received} received, {lost:?}");
        close_all([one, other], pool);
    });
}

/// A port with the usual MTU in a memory that has jumbo frames sends a packet from anywhere in one.
#[test]
fn a_small_packet_in_a_jumbo_frame_leaves_by_a_port_without_scatter() {
    in_namespace(|| {
        let mut pool = FramePool::for_mtu(9000, 2048, 64).unwrap();
        let [mut one, mut other] = pair(&mut pool, 1500, 512);
        let mut frame = pool.take_jumbo().unwrap();
        assert!(frame.set_extent(4000, 1514));
        frame.data_mut().copy_from_slice(&octets(3, 1514));
        send(&mut one.0, &mut pool, vec![frame]);
        let mut received = receive(&mut other.0, &mut pool, 1);
        assert!(received[0].data() == octets(3, 1514));
        pool.give(received.remove(0));
        close_all([one, other], pool);
    });
}
