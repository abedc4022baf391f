//! The TUN between the workers and the kernel.

use crate::hosts::{PATIENCE, SILENCE, eventually, sysctl};
use crate::support::namespace::Namespace;
use crate::support::{ip, receive};
use std::io::IoSlice;
use std::net::UdpSocket;
use testudo_fastpath::tun::{self, Tun};
use testudo_wire::checksum::Sum;
use testudo_wire::offload::{Offload, complete};

const TUN: &str = "ttbp1";

fn setting(name: &str) -> String {
    let path = format!("/proc/sys/net/{name}");
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}")).trim().to_owned()
}

/// A UDP datagram without checksum, in an IPv4 packet with one.
fn packet(src: [u8; 4], dst: [u8; 4], port: u16, text: &[u8]) -> Vec<u8> {
    let length = (28 + text.len()) as u16;
    let mut header = vec![0x45, 0];
    header.extend(length.to_be_bytes());
    header.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    header.extend(src);
    header.extend(dst);
    let words = header.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let sum = words.sum::<u32>();
    let sum = (sum & 0xffff) + (sum >> 16);
    header[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    let udp = [7u16, port, length - 20, 0].map(u16::to_be_bytes).concat();
    [header, udp, text.to_vec()].concat()
}

/// Waits until there is none in the namespace. What another test starts has a copy of each
/// descriptor between its fork and its exec, so that a TUN that was let go may be there, and busy,
/// for a moment still.
#[track_caller]
fn expect_none() {
    let shown = || std::process::Command::new("ip").args(["link", "show", TUN]).output().expect("ip");
    eventually("no TUN is left", || !shown().status.success());
}

/// True if the kernel takes a whole packet.
fn write(tun: &Tun, packet: &[u8]) -> bool {
    tun.write(Offload::None, &[IoSlice::new(packet)]).expect("write")
}

#[test]
fn packets_go_both_ways() {
    Namespace::new().run(|| {
        let tun = Tun::open(TUN, 1400).expect("TUN");
        assert_eq!(tun.read(&mut [0; 64]).expect("read"), None);
        ip(&format!("address add 10.9.0.1/32 dev {TUN}"));
        ip(&format!("route add 10.2.0.0/16 dev {TUN}"));
        let socket = UdpSocket::bind("10.9.0.1:7007").expect("socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
        assert!(write(&tun, &packet([10, 2, 0, 5], [10, 9, 0, 1], 7007, b"to the host")));
        let mut buffer = [0; 64];
        let (length, from) = receive(&socket, &mut buffer).expect("receive");
        assert_eq!((&buffer[..length], from.to_string().as_str()), (&b"to the host"[..], "10.2.0.5:7"));
        socket.send_to(b"from the host", from).expect("send");
        let mut sent = [0; 1500];
        let mut length = 0;
        eventually("the answer", || {
            length = tun.read(&mut sent).expect("read").map_or(0, |(length, _)| length);
            length > 0
        });
        assert_eq!(&sent[12..20], [10, 9, 0, 1, 10, 2, 0, 5]);
        assert!(sent[..length].ends_with(b"from the host"));
    });
}

#[test]
fn the_kernel_accepts_what_comes_from_another_way() {
    Namespace::new().run(|| {
        sysctl("ipv4/conf/default/rp_filter", "1");
        let tun = Tun::open(TUN, 1400).expect("TUN");
        ip("address add 10.9.0.1/32 dev lo");
        // The way back to the source leads elsewhere.
        ip("link add other0 type bridge");
        ip("link set other0 up");
        ip("route add 10.2.0.0/16 dev other0");
        let socket = UdpSocket::bind("10.9.0.1:7007").expect("socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
        assert!(write(&tun, &packet([10, 2, 0, 5], [10, 9, 0, 1], 7007, b"x")));
        receive(&socket, &mut [0; 8]).expect("receive");
    });
}

#[test]
fn a_reverse_path_check_for_all_interfaces_is_refused() {
    Namespace::new().run(|| {
        for value in ["1", "2"] {
            sysctl("ipv4/conf/all/rp_filter", value);
            let error = Tun::open(TUN, 1400).map(drop).expect_err("a check").to_string();
            assert!(
                error.contains(&format!("net.ipv4.conf.all.rp_filter is {value}, expected 0")),
                "{error}"
            );
            expect_none();
        }
    });
}

#[test]
fn the_tun_is_configured_to_be_silent() {
    Namespace::new().run(|| {
        let tun = Tun::open(TUN, 1380).expect("TUN");
        for (name, value) in [
            ("ipv4/conf/ttbp1/rp_filter", "0"),
            ("ipv4/conf/ttbp1/accept_local", "1"),
            ("ipv4/conf/ttbp1/send_redirects", "0"),
            ("ipv6/conf/ttbp1/addr_gen_mode", "1"),
            ("ipv6/conf/ttbp1/accept_ra", "0"),
            ("ipv6/conf/ttbp1/router_solicitations", "0"),
        ] {
            assert_eq!(setting(name), value, "{name}");
        }
        // The kernel's own packets depend on its timers: there is no later event to wait for.
        std::thread::sleep(SILENCE);
        let mut packet = [0; 128];
        let heard = tun.read(&mut packet).expect("read");
        assert_eq!(heard, None, "{packet:02x?}");
        let shown =
            std::process::Command::new("ip").args(["address", "show", TUN]).output().expect("ip").stdout;
        let shown = String::from_utf8_lossy(&shown).into_owned();
        assert!(shown.contains("mtu 1380") && shown.contains("UP") && !shown.contains("inet"), "{shown}");
    });
}

#[test]
fn the_tun_outlives_the_daemon_and_is_reused() {
    Namespace::new().run(|| {
        let first = Tun::open(TUN, 1400).expect("TUN");
        let ifindex = first.ifindex();
        let error = Tun::open(TUN, 1400).map(drop).expect_err("a second one").to_string();
        assert!(error.contains(TUN) && error.contains("another process holds it"), "{error}");
        drop(first);
        let mut second = None;
        eventually("the TUN is free", || {
            second = Tun::open(TUN, 1300).ok();
            second.is_some()
        });
        assert_eq!(second.as_ref().map(Tun::ifindex), Some(ifindex));
        assert!(tun::remove(TUN).is_err(), "it is in use");
        drop(second);
        eventually("the TUN is removed", || tun::remove(TUN).is_ok_and(|removed| removed));
        expect_none();
        assert!(!tun::remove(TUN).expect("there is none"));
    });
}

#[test]
fn each_worker_has_a_queue_of_its_own() {
    Namespace::new().run(|| {
        let first = Tun::open(TUN, 1400).expect("TUN");
        let second = first.another().expect("a second queue");
        assert_eq!((second.name(), second.ifindex()), (TUN, first.ifindex()));
        ip(&format!("address add 10.9.0.1/32 dev {TUN}"));
        ip(&format!("route add 10.2.0.0/16 dev {TUN}"));
        let socket = UdpSocket::bind("10.9.0.1:7007").expect("socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
        // The kernel keeps a flow to the queue by which it came last.
        for queue in [&second, &first, &second] {
            assert!(write(queue, &packet([10, 2, 0, 5], [10, 9, 0, 1], 7007, b"x")));
            let (_, from) = receive(&socket, &mut [0; 8]).expect("receive");
            socket.send_to(b"back", from).expect("send");
            let mut sent = [0; 1500];
            eventually("the answer", || queue.read(&mut sent).expect("read").is_some());
        }
        drop(first);
        assert!(Tun::open(TUN, 1400).is_err() && tun::remove(TUN).is_err(), "the other queue is in use");
    });
}

#[test]
fn one_that_an_earlier_version_left_gets_its_queues() {
    Namespace::new().run(|| {
        ip(&format!("tuntap add {TUN} mode tun"));
        let tun = Tun::open(TUN, 1400).expect("TUN");
        tun.another().expect("a second queue");
    });
}

/// One without a header before each packet.
#[test]
fn one_that_an_earlier_version_left_gets_its_offloads() {
    Namespace::new().run(|| {
        ip(&format!("tuntap add {TUN} mode tun multi_queue"));
        let tun = Tun::open(TUN, 1400).expect("TUN");
        ip(&format!("address add 10.9.0.1/32 dev {TUN}"));
        ip(&format!("route add 10.2.0.0/16 dev {TUN}"));
        let socket = UdpSocket::bind("10.9.0.1:7007").expect("socket");
        socket.send_to(b"from the host", "10.2.0.5:7").expect("send");
        let mut sent = [0; 1500];
        let mut found = None;
        eventually("the datagram", || {
            found = tun.read(&mut sent).expect("read");
            found.is_some()
        });
        // The checksum is left to us.
        assert_eq!(found, Some((41, Offload::Checksum { start: 20, offset: 6 })));
        complete(&mut sent[..41], 20, 6).expect("a UDP header");
        let addresses = Sum::new().pseudo_v4([10, 9, 0, 1].into(), [10, 2, 0, 5].into(), 17, 21);
        assert!(addresses.bytes(&sent[20..41]).is_valid());
    });
}

#[test]
fn its_mtu_follows() {
    Namespace::new().run(|| {
        let tun = Tun::open(TUN, 1400).expect("TUN");
        tun::set_mtu(tun.name(), 9000).expect("an MTU");
        let shown = std::process::Command::new("ip").args(["link", "show", TUN]).output().expect("ip").stdout;
        assert!(String::from_utf8_lossy(&shown).contains("mtu 9000"));
    });
}

/// A daemon that cannot start leaves things as they were.
#[test]
fn a_failure_leaves_no_tun_that_was_not_there() {
    Namespace::new().run(|| {
        let too_small = || Tun::open(TUN, 10).map(drop).expect_err("an MTU that IPv4 cannot live with");
        too_small();
        expect_none();
        drop(Tun::open(TUN, 1400).expect("TUN"));
        too_small();
        eventually("the TUN of an earlier run is removed", || tun::remove(TUN).is_ok_and(|removed| removed));
        expect_none();
    });
}

#[test]
fn an_interface_that_is_no_tun_is_left_alone() {
    Namespace::new().run(|| {
        ip(&format!("link add {TUN} type bridge"));
        let error = Tun::open(TUN, 1400).map(drop).expect_err("a bridge").to_string();
        assert!(error.contains("that is no TUN"), "{error}");
        assert!(tun::remove(TUN).is_err());
        ip(&format!("link show {TUN}"));
    });
}
