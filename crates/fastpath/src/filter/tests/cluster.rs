//! A node of a cluster: what it keeps, until when, and what it remembers of what others keep.

use super::bench::{Bench, XDP_PASS, XDP_REDIRECT};
use super::frames::*;
use crate::filter::layout::{
    ADDRESS, CLUSTER_DEFAULT_HOST, CLUSTER_ON, CLUSTER_ROUTED, ClusterValue, UNSELECTED, VIP,
};
use crate::filter::{Class, FilterAction, PrefixUse, Reason};
use testudo_base::shard::ShardSet;
use testudo_base::spi::Shard;

/// A deadline that no test lives to see.
const ALIVE: u64 = u64::MAX;

const ALL: [u64; 4] = [u64::MAX; 4];
/// The shard of the tests' ESP packets, in a set.
const ESP_SHARE: [u64; 4] = [0, 0, 0, 1];
const ESP_SPI: u32 = 0xc000_0001;

/// A node that keeps nothing.
pub(super) fn table() -> ClusterValue {
    let word = |text: &[u8; 8]| u64::from_le_bytes(*text);
    ClusterValue {
        key: [word(b"01234567"), word(b"89abcdef")],
        deadline: ALIVE,
        flags: CLUSTER_ON,
        ..ClusterValue::default()
    }
}

impl ClusterValue {
    pub(super) fn with_default_host(self, default_host: bool) -> Self {
        let set = if default_host { CLUSTER_DEFAULT_HOST } else { 0 };
        Self { flags: self.flags & !CLUSTER_DEFAULT_HOST | set, ..self }
    }

    pub(super) fn with_routed(self, routed: bool) -> Self {
        let set = if routed { CLUSTER_ROUTED } else { 0 };
        Self { flags: self.flags & !CLUSTER_ROUTED | set, ..self }
    }
}

fn everything() -> ClusterValue {
    ClusterValue { packets: ALL, ike: ALL, ..table().with_default_host(true) }
}

fn flooded4(packet: &[u8]) -> Vec<u8> {
    ethernet_to(CLUSTER_MAC, 0x0800, packet)
}

fn esp_to_us(number: u32) -> Vec<u8> {
    let payload = [&ESP_SPI.to_be_bytes()[..], &number.to_be_bytes(), &[0xab; 40]].concat();
    ipv4(PEER4, US4, ESP).packet(&payload)
}

fn echo() -> Vec<u8> {
    ipv4(CLIENT4, US4, ICMP).packet(&[8, 0, 0, 0, 0, 1, 0, 1])
}

#[test]
fn a_new_table_is_the_next_packets() {
    let bench = Bench::clustered(&table()).with_socket();
    let frame = flooded4(&esp_to_us(1));
    assert_eq!(bench.run(&frame).reason, Reason::DropOtherNode);
    bench.set_cluster(&ClusterValue { packets: ESP_SHARE, ..table() });
    let outcome = bench.run(&frame);
    assert_eq!((outcome.action, outcome.reason), (XDP_REDIRECT, Reason::WorkerEsp));
    // Speaking for a shard is not carrying its packets.
    bench.set_cluster(&ClusterValue { ike: ALL, ..table() });
    assert_eq!(bench.run(&frame).reason, Reason::DropOtherNode);
}

/// Only a worker can keep a packet back: the kernel would answer or forward while another node
/// still carries the shard.
#[test]
fn packets_of_a_shard_to_come_go_to_the_worker() {
    let bench = Bench::clustered(&table()).with_socket();
    let esp = flooded4(&esp_to_us(1));
    let bypassed = flooded4(&ipv4(CLIENT4, PEER4, TCP).packet(&[0; 20]));
    bench.set_cluster(&ClusterValue { held: ALL, ..table() });
    let outcome = bench.run(&esp);
    assert_eq!((outcome.action, outcome.reason), (XDP_REDIRECT, Reason::WorkerEsp));
    assert_eq!(bench.run(&bypassed).reason, Reason::DropOtherNode);
}

#[test]
fn nothing_goes_up_beyond_the_deadline() {
    let bench = Bench::clustered(&everything()).with_socket();
    let bypassed = ipv4(CLIENT4, PEER4, TCP).packet(&[0; 20]);
    let later = Ipv4 { id: 1, fragment: 5, ..ipv4(PEER4, US4, UDP) }.packet(&[0; 9]);
    let frames = [
        ipv4(PEER4, US4, UDP).packet(&udp(500, 500, &ike())),
        echo(),
        ipv4(PEER4, US4, ICMP).packet(&[3, 4, 0, 0, 0, 0, 5, 0]),
        later,
        bypassed.clone(),
    ];
    for frame in frames.iter().map(|packet| flooded4(packet)) {
        assert_ne!(bench.run(&frame).reason, Reason::DropFenced);
        bench.set_cluster(&ClusterValue { deadline: 1, ..everything() });
        assert_eq!(bench.run(&frame).reason, Reason::DropFenced);
        bench.set_cluster(&everything());
    }
    // A packet to this node only belongs to no other.
    bench.set_cluster(&ClusterValue { deadline: 1, ..everything() });
    assert_eq!(bench.run(&ethernet(0x0800, &bypassed)).reason, Reason::PassOther);
    // A worker looks at the clock itself, and without a daemon there is none.
    assert_eq!(bench.run(&flooded4(&esp_to_us(1))).reason, Reason::WorkerEsp);
    // To a VIP nothing is answered, whatever way it came.
    assert_eq!(bench.run(&ethernet(0x0800, &echo())).reason, Reason::DropFenced);
}

/// Where routers choose the node, another node never sees what this one drops.
#[test]
fn a_node_keeps_what_routers_have_brought_to_it_alone() {
    let routed = || table().with_routed(true);
    let bench = Bench::clustered(&routed()).with_socket();
    bench.set_prefix("10.2.0.0/16", PrefixUse { home: Some(Shard(42)), ..PrefixUse::PROTECT });
    bench.track(ESP_SPI, 0);
    let protected = ipv4(CLIENT4, "10.2.0.7", TCP).packet(&[0; 20]);
    let cases = [
        (esp_to_us(7), Reason::WorkerEsp),
        (protected, Reason::WorkerProtect),
        (ipv4(PEER4, US4, UDP).packet(&udp(500, 500, &ike())), Reason::PassIke),
        (echo(), Reason::PassLocal),
    ];
    for (packet, kept) in cases {
        let frame = ethernet(0x0800, &packet);
        assert_eq!(bench.run(&frame).reason, kept);
        bench.set_cluster(&table());
        assert_eq!(bench.run(&frame).reason, Reason::DropOtherNode);
        // A worker looks at the clock itself; the kernel of a dead daemon would answer for ever.
        bench.set_cluster(&ClusterValue { deadline: 1, ..routed() });
        let late = if kept.action() == FilterAction::Pass { Reason::DropFenced } else { kept };
        assert_eq!(bench.run(&frame).reason, late);
        bench.set_cluster(&routed());
    }
    // Numbers are recorded as ever: the carrier may fail, and this node may take its SAs over.
    assert_eq!(bench.seen(ESP_SPI), Some(7));
}

/// Beside a tunnel for everything, what comes in clear to a VIP that no policy selects is the
/// default host's, while it may answer.
#[test]
fn clear_packets_to_a_vip_that_no_policy_selects_are_the_default_hosts() {
    let mut bench = Bench::clustered(&everything()).with_socket();
    let open = PrefixUse { judge_from: true, open_to_host: true, ..PrefixUse::PROTECT };
    bench.set_prefix("0.0.0.0/0", open);
    let frame = flooded4(&echo());
    assert_eq!(bench.run(&frame).reason, Reason::WorkerClear);
    bench.set_address(US4, ADDRESS | VIP | UNSELECTED);
    assert_eq!(bench.run(&frame).reason, Reason::PassLocal);
    bench.set_cluster(&ClusterValue { deadline: 1, ..everything() });
    assert_eq!(bench.run(&frame).reason, Reason::DropFenced);
    bench.set_cluster(&everything().with_default_host(false));
    assert_eq!(bench.run(&frame).reason, Reason::DropOtherNode);
}

#[test]
fn packets_to_the_kernel_get_the_ports_own_address() {
    let bench = Bench::clustered(&everything());
    let bypassed = ipv4(CLIENT4, PEER4, TCP).packet(&[0; 20]);
    for (kind, packet) in [(0x0800, echo()), (0x0800, bypassed), (0x0806, vec![0; 46])] {
        let outcome = bench.run(&ethernet_to(CLUSTER_MAC, kind, &packet));
        assert_eq!((outcome.action, outcome.frame), (XDP_PASS, ethernet(kind, &packet)));
    }
}

#[test]
fn without_a_cluster_its_address_is_another_hosts() {
    let bench = Bench::new().with_socket();
    assert_eq!(bench.run(&flooded4(&esp_to_us(1))).reason, Reason::DropOtherHost);
    let echo = flooded4(&echo());
    assert_eq!(bench.run(&echo).frame, echo);
}

#[test]
fn a_frame_for_another_host_is_not_kept_by_a_node() {
    let bench = Bench::clustered(&everything()).with_socket();
    bench.track(ESP_SPI, 5);
    let frame = ethernet_to([2, 0, 0, 0, 0, 7], 0x0800, &esp_to_us(9));
    assert_eq!(bench.run(&frame).reason, Reason::DropOtherHost);
    assert_eq!(bench.seen(ESP_SPI), Some(5));
}

/// Of a packet that a worker has to judge, and that is for a protected prefix, the carrier of that
/// prefix is the judge: the others have dropped it before they knew where it is from.
#[test]
fn a_flooded_packet_between_two_protected_prefixes_is_judged_by_the_carrier_of_the_second() {
    let (from, to) = (Shard(7), Shard(8));
    let judged = |home| PrefixUse { judge_from: true, home: Some(home), ..PrefixUse::PROTECT };
    let bench = Bench::clustered(&everything()).with_socket();
    bench.set_prefix("10.7.0.0/16", judged(from));
    bench.set_prefix("10.8.0.0/16", judged(to));
    bench.set_prefix("2001:db8:7::/48", judged(from));
    bench.set_prefix("2001:db8:8::/48", judged(to));
    let frames = [
        flooded4(&ipv4("10.7.0.1", "10.8.0.1", TCP).packet(&[0; 20])),
        ethernet_to(CLUSTER_MAC, 0x86dd, &ipv6_packet("2001:db8:7::1", "2001:db8:8::1", TCP, 64, &[0; 20])),
    ];
    for frame in frames {
        let judges = ShardSet::ALL.iter().filter(|shard| {
            let packets = *[*shard].into_iter().collect::<ShardSet>().words();
            bench.set_cluster(&ClusterValue { packets, ..everything() });
            match bench.run(&frame).reason {
                Reason::WorkerClear => true,
                Reason::DropOtherNode => false,
                other => panic!("{other:?}"),
            }
        });
        assert_eq!(judges.collect::<Vec<_>>(), [to]);
    }
}

#[test]
fn every_other_node_remembers_the_highest_number_of_an_sa() {
    let bench = Bench::clustered(&table()).with_socket();
    let receive = |number| bench.run(&flooded4(&esp_to_us(number))).reason;
    assert_eq!(receive(7), Reason::DropOtherNode);
    assert_eq!(bench.seen(ESP_SPI), None, "a stranger's SPI takes no room");
    bench.track(ESP_SPI, 5);
    // With ESN the lower half starts again.
    let (half, whole) = (1 << 31, u64::from(u32::MAX));
    let numbers = [
        (7, 7),
        (6, 7),
        (5, 7),
        (9, 9),
        (1 << 31, half),
        (u32::MAX, whole),
        (1, whole + 2),
        (u32::MAX, whole + 2),
    ];
    for (number, highest) in numbers {
        assert_eq!(receive(number), Reason::DropOtherNode);
        assert_eq!(bench.seen(ESP_SPI), Some(highest), "after {number}");
    }
    let in_udp = udp(4500, 4500, &[&ESP_SPI.to_be_bytes()[..], &[0, 0, 0, 40], &[0; 20]].concat());
    bench.run(&flooded4(&ipv4(PEER4, US4, UDP).packet(&in_udp)));
    assert_eq!(bench.seen(ESP_SPI), Some(whole + 41));
    // The node that carries the shard has the SA's replay window.
    bench.set_cluster(&ClusterValue { packets: ESP_SHARE, ..table() });
    assert_eq!(receive(41), Reason::WorkerEsp);
    assert_eq!(bench.seen(ESP_SPI), Some(whole + 41));
    bench.set_cluster(&table());
    assert_eq!(receive(42), Reason::DropOtherNode);
    assert_eq!(bench.seen(ESP_SPI), Some(whole + 43));
}

/// A stranger leads the record round the circle of 32 bits: that must not lower it.
#[test]
fn no_forged_number_lowers_the_highest() {
    let bench = Bench::clustered(&table()).with_socket();
    bench.track(ESP_SPI, 0);
    let receive = |number: u32| bench.run(&flooded4(&esp_to_us(number)));
    let genuine = 1_000_000_u32;
    receive(genuine);
    let mut highest = u64::from(genuine);
    for step in 1..=8_u32 {
        receive(genuine.wrapping_add(step.wrapping_mul(0x7fff_ffff)));
        let now = bench.seen(ESP_SPI).unwrap();
        assert!(now > highest, "{now} after {highest}");
        highest = now;
    }
}

#[test]
fn a_prefix_changes_hands_with_its_entry() {
    let bench = Bench::clustered(&ClusterValue { packets: ESP_SHARE, ..table() }).with_socket();
    let frame = flooded4(&ipv4(CLIENT4, REMOTE4, TCP).packet(&[0; 20]));
    let all_nodes = bench.run(&frame);
    assert_eq!(all_nodes.reason, Reason::WorkerProtectFlooded, "nobody knows its home yet");
    assert_eq!(all_nodes.stamp.map(|stamp| stamp.class), Some(Class::ProtectFlooded));
    // A packet to this node only is decided on this node.
    let own = bench.run(&ethernet(0x0800, &ipv4(CLIENT4, REMOTE4, TCP).packet(&[0; 20])));
    assert_eq!(own.reason, Reason::WorkerProtect);
    assert_eq!(own.stamp.map(|stamp| stamp.class), Some(Class::Protect));
    bench.set_prefix("10.2.0.0/16", PrefixUse { home: Some(Shard(1)), ..PrefixUse::PROTECT });
    assert_eq!(bench.run(&frame).reason, Reason::DropOtherNode);
    bench.set_prefix("10.2.0.0/16", PrefixUse { home: Some(Shard(192)), ..PrefixUse::PROTECT });
    assert_eq!(bench.run(&frame).reason, Reason::WorkerProtect);
}

/// Packets that must be protected do not pass in clear, whichever node owns them.
#[test]
fn no_table_lets_a_protected_packet_pass() {
    let bench = Bench::clustered(&table());
    for table in [table(), everything(), ClusterValue { deadline: 0, ..everything() }] {
        bench.set_cluster(&table);
        for mac in [PORT_MAC, CLUSTER_MAC, [0xff; 6]] {
            let packet = ipv4(CLIENT4, REMOTE4, TCP).packet(&[0; 20]);
            let (action, _) = bench.run_uncounted(&ethernet_to(mac, 0x0800, &packet));
            assert_ne!(action, XDP_PASS);
            let packet = ipv6_packet(CLIENT6, REMOTE6, TCP, 64, &[0; 20]);
            let (action, _) = bench.run_uncounted(&ethernet_to(mac, 0x86dd, &packet));
            assert_ne!(action, XDP_PASS);
        }
    }
}
