//! The filter and its reference model agree on the home of every packet.

use super::bench::Bench;
use super::cluster::table;
use super::frames::*;
use crate::filter::layout::{ADDRESS, CLUSTER_ON, CLUSTER_SPREAD, ClusterValue};
use crate::filter::{FilterAction, PrefixUse, Reason};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use testudo_base::lane::Spread;
use testudo_base::shard::ShardSet;
use testudo_base::siphash::SipKey;
use testudo_base::spi::{Shard, Spi};
use testudo_base::turn::InTurn;
use testudo_cluster::dispatch::{Arrival, Dispatch, Home, Ownership, PrefixHome};

const OWN4: &str = "192.0.2.11";
const OWN6: &str = "2001:db8:1::11";
const HOMED: PrefixUse = PrefixUse { home: Some(Shard(42)), ..PrefixUse::PROTECT };
const BY_SESSION: PrefixUse =
    PrefixUse { home: Some(Shard(43)), spread: Some(Spread::SessionHash), ..PrefixUse::PROTECT };
const BY_PACKET: PrefixUse =
    PrefixUse { home: Some(Shard(44)), spread: Some(Spread::PacketHash), ..PrefixUse::PROTECT };
/// Their home shards.
const CLOCKS: [Shard; 2] = [Shard(43), Shard(44)];
/// SAs that are spread; all others are not.
const SPREAD: [Spi; 2] = [Spi(0x0102_0304), Spi(0xc0de_0001)];
const PREFIXES: [(&str, u8, PrefixUse); 12] = [
    ("10.2.0.0", 16, HOMED),
    ("10.2.128.0", 17, PrefixUse::PROTECT),
    ("10.2.9.0", 24, PrefixUse::PASS),
    ("10.4.0.0", 14, PrefixUse { home: Some(Shard(200)), ..PrefixUse::PROTECT }),
    ("10.8.0.0", 16, BY_SESSION),
    ("10.9.0.0", 16, BY_PACKET),
    ("2001:db8:2::", 48, HOMED),
    ("2001:db8:2:8000::", 49, PrefixUse::PROTECT),
    ("2001:db8:2:9::", 64, PrefixUse::PASS),
    ("2001:db8:4::", 48, PrefixUse { home: Some(Shard(200)), ..PrefixUse::PROTECT }),
    ("2001:db8:8::", 48, BY_SESSION),
    ("2001:db8:9::", 48, BY_PACKET),
];

fn model(routed: bool) -> Dispatch {
    let addr = |text: &str| text.parse::<IpAddr>().unwrap();
    let home = |used: PrefixUse| match (used.protect_to, used.home, used.spread) {
        (false, ..) => PrefixHome::Pass,
        (true, Some(shard), None) => PrefixHome::Shard(shard),
        (true, Some(shard), Some(spread)) => PrefixHome::Spread(shard, spread),
        (true, None, _) => PrefixHome::Ambiguous,
    };
    Dispatch {
        vips: [US4, US6].map(addr).into(),
        addresses: [OWN4, OWN6].map(addr).into(),
        prefixes: PREFIXES.iter().map(|(a, length, used)| ((addr(a), *length), home(*used))).collect(),
        spread: SPREAD.into(),
        key: SipKey::new(*b"0123456789abcdef"),
        routed,
    }
}

/// A node that keeps nothing, of a cluster with spread SAs.
fn spread_table() -> ClusterValue {
    ClusterValue { flags: CLUSTER_ON | CLUSTER_SPREAD, ..table() }
}

/// A node of a cluster, or with an empty table a gateway that stands alone.
fn bench(table: &ClusterValue) -> Bench {
    let mut bench = Bench::clustered(table).with_socket();
    [OWN4, OWN6].iter().for_each(|addr| bench.set_address(addr, ADDRESS));
    SPREAD.iter().for_each(|spi| bench.track_spread(spi.0, 0));
    PREFIXES.iter().for_each(|(addr, length, used)| bench.set_prefix(&format!("{addr}/{length}"), *used));
    bench
}

fn arb_octets(lengths: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), lengths)
}

/// An IKE message in either direction, of either role, now and then cut.
fn arb_ike() -> impl Strategy<Value = Vec<u8>> {
    let spi = || prop_oneof![1 => Just([0; 8]), 3 => any::<[u8; 8]>()];
    let length = prop_oneof![1 => 0..40usize, 4 => Just(40)];
    (spi(), spi(), select(vec![0u8, 0x08, 0x20, 0x28]), length).prop_map(|(one, other, flags, length)| {
        let mut message = [&one[..], &other, &[0, 0x20, 34, flags], &[0; 20]].concat();
        message.truncate(length);
        message
    })
}

/// ESP from its SPI on, now and then cut.
fn arb_esp() -> impl Strategy<Value = Vec<u8>> {
    let spread = select(SPREAD.to_vec()).prop_map(|spi| spi.0);
    let spi = prop_oneof![1 => spread, 1 => any::<u32>()];
    (spi, arb_octets(0..20)).prop_map(|(spi, rest)| [&spi.to_be_bytes()[..], &rest].concat())
}

/// Protocol and payload.
fn arb_payload(icmp: u8) -> impl Strategy<Value = (u8, Vec<u8>)> {
    let marked = arb_ike().prop_map(|ike| [&[0; 4][..], &ike].concat());
    let natt = prop_oneof![marked, arb_octets(0..20), Just(vec![0xff])];
    let port = prop_oneof![Just(53u16), any::<u16>()];
    let natt = prop_oneof![3 => natt, 1 => arb_esp()];
    let ah = (any::<[u8; 4]>(), arb_esp()).prop_map(|(before, numbers)| [&before[..], &numbers].concat());
    prop_oneof![
        3 => arb_esp().prop_map(|esp| (ESP, esp)),
        2 => ah.prop_map(|ah| (AH, ah)),
        3 => arb_ike().prop_map(|ike| (UDP, udp(500, 500, &ike))),
        3 => natt.prop_map(|data| (UDP, udp(4500, 4500, &data))),
        1 => (port, arb_octets(0..20)).prop_map(|(port, data)| (UDP, udp(9, port, &data))),
        2 => (0..16u8, arb_octets(8..20)).prop_map(move |(kind, data)| (icmp, [&[kind][..], &data].concat())),
        1 => (128..138u8, arb_octets(24..25)).prop_map(move |(kind, data)| (icmp, [&[kind][..], &data].concat())),
        3 => (select(vec![TCP, SCTP, 47]), arb_octets(0..40)),
    ]
}

/// Whole mostly; else offset in units of 8 octets, and whether more follow.
fn arb_fragment() -> impl Strategy<Value = Option<(u16, bool)>> {
    let offset = prop_oneof![Just(0u16), 1..100u16];
    prop_oneof![3 => Just(None), 2 => (offset, any::<bool>()).prop_map(Some)]
}

fn arb_v4() -> impl Strategy<Value = Vec<u8>> {
    let net = |text: &'static str| {
        any::<u16>().prop_map(move |host| format!("{text}.{}.{}", host >> 8, host & 255))
    };
    let fixed =
        select(vec![US4, US4, US4, US4, US4, OWN4, REMOTE4, EXEMPT4, PEER4, "224.0.0.5", "255.255.255.255"]);
    let dst = prop_oneof![2 => fixed.prop_map(str::to_owned), 1 => net("10.2"), 1 => net("10.5"), 1 => net("10.8"), 1 => net("10.9"), 1 => net("172.16")];
    let src = prop_oneof![4 => net("198.51"), 1 => net("10.2")];
    let options = select(vec![&[][..], &[1; 4], &[1; 40]]);
    (src, dst, arb_payload(ICMP), arb_fragment(), 0..6u16, options).prop_map(
        |(src, dst, payload, cut, id, options)| {
            let (proto, payload) = payload;
            let fragment = cut.map_or(0, |(offset, more)| offset | if more { 0x2000 } else { 0 });
            Ipv4 { id, fragment, options, ..ipv4(&src, &dst, proto) }.packet(&payload)
        },
    )
}

fn arb_v6() -> impl Strategy<Value = Vec<u8>> {
    let net = |text: &'static str| {
        any::<(u16, u16)>().prop_map(move |(net, host)| format!("{text}:{net:x}::{host:x}"))
    };
    let fixed = select(vec![US6, US6, US6, US6, US6, OWN6, REMOTE6, EXEMPT6, PEER6, "ff02::5", "fe80::7"]);
    let dst = prop_oneof![2 => fixed.prop_map(str::to_owned), 1 => net("2001:db8:2"), 1 => net("2001:db8:4"), 1 => net("2001:db8:8"), 1 => net("2001:db8:9"), 1 => net("2001:db8:a")];
    let src = prop_oneof![4 => net("2001:db8:ffff"), 1 => net("2001:db8:2"), 1 => Just("fe80::9".to_owned())];
    let hops = select(vec![64u8, 255]);
    (src, dst, arb_payload(ICMPV6), arb_fragment(), 0..6u32, 0..3u8, hops).prop_map(
        |(src, dst, (proto, payload), cut, id, headers, hops)| {
            let behind = match cut {
                Some((offset, more)) => (FRAGMENT, fragment6(proto, offset, more, id, &payload)),
                None => (proto, payload),
            };
            let (next, payload) =
                (0..headers).fold(behind, |(next, rest), _| (OPTIONS, options(next, 1, &rest)));
            ipv6_packet(&src, &dst, next, hops, &payload)
        },
    )
}

fn arb_shards() -> impl Strategy<Value = [u64; 4]> {
    prop_oneof![any::<[u64; 4]>(), Just([0; 4]), Just([u64::MAX; 4])]
}

fn shard_set(words: [u64; 4]) -> ShardSet {
    (0..=255u8).map(Shard).filter(|s| words[usize::from(s.0) / 64] >> (s.0 % 64) & 1 == 1).collect()
}

/// The shard of the spread prefix that a packet is for.
fn clock_of(packet: &[u8]) -> Option<Shard> {
    match (packet[0] >> 4, &packet[16..18], packet.get(24..30)) {
        (4, [10, 8], _) | (6, _, Some([0x20, 1, 0x0d, 0xb8, 0, 8])) => Some(CLOCKS[0]),
        (4, [10, 9], _) | (6, _, Some([0x20, 1, 0x0d, 0xb8, 0, 9])) => Some(CLOCKS[1]),
        _ => None,
    }
}

fn kind(home: Home) -> &'static str {
    match home {
        Home::Packets(_) => "packets",
        Home::Ike(_) => "ike",
        Home::Pair(_) => "pair",
        Home::Ambiguous => "ambiguous",
        Home::Everybody => "everybody",
        Home::DefaultHost => "default host",
        Home::Own => "own",
    }
}

#[test]
fn filter_and_model_agree() {
    let models = [false, true].map(model);
    let (alone, member) = (bench(&ClusterValue::default()), bench(&spread_table()));
    let met = RefCell::new(BTreeMap::<_, BTreeSet<_>>::new());
    let case = (
        prop_oneof![arb_v4(), arb_v6()],
        any::<bool>(),
        [arb_shards(), arb_shards(), arb_shards()],
        (any::<bool>(), prop::bool::weighted(0.25)),
        prop_oneof![2 => Just(0), 1 => 1..30usize],
    );
    let clocks = member.clocks();
    let mut runner = TestRunner::new(Config { cases: 8000, failure_persistence: None, ..Config::default() });
    let result =
        runner.run(&case, |(packet, flooded, [packets, ike, held], (default_host, routed), padding)| {
            let kind_of_frame = if packet[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
            let packet = [packet, vec![0x5a; padding]].concat();
            let frame = |mac| ethernet_to(mac, kind_of_frame, &packet);
            let own = frame(PORT_MAC);
            let model = &models[usize::from(routed)];
            let table = spread_table().with_default_host(default_host).with_routed(routed);
            member.set_cluster(&ClusterValue { packets, ike, held, ..table });
            let rows = CLOCKS.map(|shard| clocks.now(shard));
            let before = alone.run(&own).reason;
            let received = if flooded { frame(CLUSTER_MAC) } else { own.clone() };
            let outcome = member.run(&received);
            let arrival = if flooded { Arrival::Flooded } else { Arrival::Own };
            let home = model.home(arrival, &packet);
            let [packets, ike, held] = [packets, ike, held].map(shard_set);
            let ownership = Ownership { packets, ike, held, default_host, in_turn: InTurn::Nothing };
            // A flooded packet to a protected prefix: only its carrier asks where it is from.
            let elsewhere =
                |home| matches!(home, Home::Packets(_)) && flooded && !model.keeps(&ownership, home);
            let expected = match home {
                Some(home) if before == Reason::DropClearInbound && elsewhere(home) => Reason::DropOtherNode,
                _ if before.action() == FilterAction::Drop => before,
                Some(Home::Ambiguous) if flooded => Reason::WorkerProtectFlooded,
                Some(home) if model.keeps(&ownership, home) => before,
                Some(_) => Reason::DropOtherNode,
                // A gateway without a cluster reassembles these; no node of a cluster could determine
                // their home.
                None => Reason::DropFragmentShort,
            };
            prop_assert_eq!(outcome.reason, expected, "{:?}, alone {:?}", home, before);
            let counts = [Reason::WorkerProtect, Reason::DropClearInbound].contains(&before);
            // Behind routers workers count.
            let counting = clock_of(&packet).filter(|_| counts && !routed);
            for (shard, earlier) in CLOCKS.into_iter().zip(rows) {
                let counted = clocks.now(shard) - earlier;
                prop_assert_eq!(
                    counted,
                    u64::from(counting == Some(shard)),
                    "{:?}, alone {:?}",
                    home,
                    before
                );
            }
            if outcome.reason.action() == FilterAction::Pass && home != Some(Home::Own) {
                prop_assert_eq!(&outcome.frame, &own, "what the kernel gets is for the port's own address");
            }
            if let (Some(home), true) = (home, before.action() != FilterAction::Drop) {
                met.borrow_mut().entry(kind(home)).or_default().insert((
                    model.keeps(&ownership, home),
                    flooded,
                    packet[0] >> 4,
                ));
            }
            Ok(())
        });
    result.unwrap();
    // The generator has met every home, kept and not kept, by both ways and in both families.
    let counts: BTreeMap<_, _> = met.borrow().iter().map(|(kind, ways)| (*kind, ways.len())).collect();
    let (both, kept, flooded) = (8, 4, 4);
    let all = [
        ("packets", both),
        ("ike", both),
        ("default host", both),
        ("ambiguous", kept),
        ("everybody", kept),
        ("own", kept),
        ("pair", flooded),
    ];
    assert_eq!(counts, all.into());
}
