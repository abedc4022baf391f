//! Taking over, and refusing to take over, what another run has pinned.

#[path = "../../src/filter/tests/frames.rs"]
#[allow(dead_code, reason = "the filter's own tests need more of them")]
mod frames;

use crate::hosts::{eventually, sysctl};
use crate::support::ip;
use crate::support::namespace::Namespace;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};
use std::collections::BTreeSet;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use testudo_base::lane::Spread;
use testudo_base::spi::Shard;
use testudo_fastpath::fib::PortIndex;
use testudo_fastpath::filter::{
    self, BPFFS, ClusterFilter, CounterSet, Filter, FilterError, FilterPort, Instance, KeptShards,
    MAX_QUEUES, PrefixUse, PrefixUses, Reason, XdpMode,
};
use testudo_fastpath::mac::MacAddr;

fn instance(test: &str) -> Instance {
    Instance::new(&format!("ttbp-{test}-{}", std::process::id())).expect("instance name")
}

fn pins(instance: &Instance) -> PathBuf {
    Path::new(BPFFS).join(format!("testudo-{}", instance.name()))
}

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x11];

/// A port on a new veth, whose peer is `peer0`.
fn port(name: &str) -> FilterPort {
    port_with(name, "")
}

/// The same with options of the interface.
fn port_with(name: &str, options: &str) -> FilterPort {
    let mac = MacAddr(MAC);
    ip(&format!("link add {name} {options} address {mac} type veth peer name peer0"));
    for end in [name, "peer0"] {
        sysctl(&format!("ipv6/conf/{end}/disable_ipv6"), "1");
        ip(&format!("link set {end} up"));
    }
    FilterPort {
        index: PortIndex(3),
        name: name.to_owned(),
        ifindex: nix::net::if_::if_nametoindex(name).expect(name),
        mac,
        cluster_mac: None,
        check_source: true,
        allow_generic: false,
    }
}

/// Sweeps what a failed test leaves.
struct Sweep(Instance);

impl Drop for Sweep {
    fn drop(&mut self) {
        let _ = filter::cleanup(&self.0);
    }
}

fn in_namespace(test: &str, work: impl FnOnce(&Instance) + Send) {
    let instance = instance(test);
    let sweep = Sweep(instance.clone());
    Namespace::new().run(|| work(&instance));
    drop(sweep);
    assert!(!pins(&instance).exists());
}

#[test]
fn one_daemon_an_instance() {
    in_namespace("busy", |instance| {
        let _filter = Filter::open(instance).expect("filter");
        let error = Filter::open(instance).map(|_| ()).expect_err("a second one");
        assert!(matches!(error, FilterError::Busy { .. }), "{error}");
    });
}

#[test]
fn a_port_that_has_another_program_is_refused_by_name() {
    in_namespace("other", |instance| {
        let port = port("bp-other0");
        let other = self::instance("other2");
        let _sweep = Sweep(other.clone());
        let mut first = Filter::open(&other).expect("filter");
        first.attach(&port).expect("attach");
        let error = Filter::open(instance).expect("filter").attach(&port).expect_err("a second program");
        let text = error.to_string();
        assert!(text.contains("bp-other0") && text.contains("another XDP program"), "{text}");
    });
}

#[test]
fn an_interface_without_native_mode_needs_leave_for_the_generic_one() {
    in_namespace("generic", |instance| {
        ip("link add bp-dummy0 type bridge");
        let mut port = FilterPort { name: "bp-dummy0".to_owned(), ..port("bp-gen0") };
        port.ifindex = nix::net::if_::if_nametoindex("bp-dummy0").expect("bridge");
        let mut filter = Filter::open(instance).expect("filter");
        let error = filter.attach(&port).expect_err("a bridge has no native XDP").to_string();
        assert!(error.contains("bp-dummy0") && error.contains("generic mode"), "{error}");
        port.allow_generic = true;
        assert_eq!(filter.attach(&port).expect("generic"), XdpMode::Generic);
        assert_eq!(filter.attach(&port).expect("again"), XdpMode::Generic);
    });
}

/// Only the hash has those with a high number.
#[test]
fn a_port_is_known_whatever_the_number_of_its_interface() {
    for number in [4095, 4096, 70_000] {
        in_namespace("number", |instance| {
            let port = port_with("bp-number0", &format!("index {number}"));
            assert_eq!(port.ifindex, number);
            let mut filter = Filter::open(instance).expect("filter");
            let counted =
                |filter: &Filter, set| filter.counters(set).expect("counters").get(Reason::PassNotIp);
            filter.attach(&port).expect("attach");
            ip("address add 192.0.2.9/24 dev peer0");
            let socket = UdpSocket::bind("192.0.2.9:0").expect("socket");
            let asks = |filter: &Filter, set| {
                eventually("a request of ARP", || {
                    // The kernel gives up on a neighbour, and asks again for the next datagram.
                    let _ = socket.send_to(b"who is there", "192.0.2.10:7");
                    counted(filter, set) > 0
                });
            };
            asks(&filter, CounterSet::Port(port.index));
            assert_eq!(counted(&filter, CounterSet::Unknown), 0, "{number}");
            // The interface keeps the filter, but is no port any more.
            filter
                .attach(&FilterPort { name: "lo".into(), ifindex: 1, allow_generic: true, ..port })
                .expect("lo");
            asks(&filter, CounterSet::Unknown);
        });
    }
}

#[test]
fn an_interface_that_came_back_is_attached_anew() {
    in_namespace("back", |instance| {
        let first = port("bp-back0");
        let mut filter = Filter::open(instance).expect("filter");
        filter.attach(&first).expect("attach");
        assert_eq!(filter.attached().expect("attached"), [first.ifindex]);
        ip("link delete bp-back0");
        assert_eq!(filter.attached().expect("attached"), []);
        let second = port("bp-back0");
        filter.attach(&second).expect("attach");
        assert_eq!(filter.attached().expect("attached"), [second.ifindex]);
        filter.detach(second.ifindex).expect("detach");
        assert_eq!(filter.attached().expect("attached"), []);
        let shown = Command::new("ip").args(["link", "show", "bp-back0"]).output().expect("ip").stdout;
        assert!(!String::from_utf8_lossy(&shown).contains("xdp"));
    });
}

#[test]
fn pins_of_deleted_interfaces_are_removed_and_others_stay() {
    in_namespace("gone", |instance| {
        let first = port("bp-gone0");
        let mut filter = Filter::open(instance).expect("filter");
        filter.attach(&first).expect("attach");
        assert_eq!(filter.mode(&first).expect("mode"), Some(XdpMode::Native));
        // Under another name it is held back still.
        ip("link set bp-gone0 down");
        ip("link set bp-gone0 name bp-gone1");
        filter.forget_gone().expect("forget");
        assert_eq!(filter.mode(&first).expect("mode"), Some(XdpMode::Native));
        ip("link delete bp-gone1");
        assert_eq!(filter.mode(&first).expect("mode"), None);
        filter.forget_gone().expect("forget");
        let links = std::fs::read_dir(pins(instance).join("links")).expect("links");
        assert_eq!(links.count(), 0);
        // One that has the number of another is not taken for that.
        ip(&format!("link add bp-gone0 index {} type veth peer name peer0", first.ifindex));
        assert_eq!(filter.mode(&first).expect("mode"), None);
        assert_eq!(filter.attach(&first).expect("attach"), XdpMode::Native);
        assert_eq!(filter.mode(&first).expect("mode"), Some(XdpMode::Native));
    });
}

#[test]
fn maps_of_another_version_are_kept_while_they_protect() {
    in_namespace("layout", |instance| {
        let port = port("bp-layout0");
        let mut filter = Filter::open(instance).expect("filter");
        filter.attach(&port).expect("attach");
        drop(filter);
        let layout = MapHandle::from_pinned_path(pins(instance).join("maps/layout")).expect("map");
        let mut value = layout.lookup(&[0; 4], MapFlags::ANY).expect("read").expect("entry");
        value[0] = 99;
        layout.update(&[0; 4], &value, MapFlags::ANY).expect("write");
        let error = Filter::open(instance).map(|_| ()).expect_err("another version");
        assert!(matches!(error, FilterError::Layout { found: 99, .. }), "{error}");
        assert!(error.to_string().contains("--cleanup"), "{error}");
        ip("link delete bp-layout0");
        assert!(!Filter::open(instance).expect("nothing is protected any more").is_inherited());
    });
}

/// Layout 8 had no row clocks, and a number alone for each SPI.
#[test]
fn maps_of_the_layout_before_are_kept_while_they_protect_and_replaced_then() {
    in_namespace("before", |instance| {
        let port = port("bp-before0");
        Filter::open(instance).expect("filter").attach(&port).expect("attach");
        let maps = pins(instance).join("maps");
        ["seen", "clocks"].iter().for_each(|name| std::fs::remove_file(maps.join(name)).expect(name));
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            map_flags: libbpf_sys::BPF_F_NO_PREALLOC,
            ..Default::default()
        };
        let mut seen = MapHandle::create(MapType::Hash, Some("seen"), 4, 4, 262_144, &options).expect("map");
        seen.pin(maps.join("seen")).expect("pin");
        let layout = MapHandle::from_pinned_path(maps.join("layout")).expect("map");
        let mut value = layout.lookup(&[0; 4], MapFlags::ANY).expect("read").expect("entry");
        value[0] = 8;
        layout.update(&[0; 4], &value, MapFlags::ANY).expect("write");
        let error = Filter::open(instance).map(|_| ()).expect_err("layout 8");
        assert!(matches!(error, FilterError::Layout { found: 8, .. }), "{error}");
        ip("link delete bp-before0");
        let mut filter = Filter::open(instance).expect("nothing is protected any more");
        assert!(!filter.is_inherited());
        filter.track_spread(SPREAD, 5).expect("a spread SA");
        assert_eq!(filter.seen(SPREAD).expect("seen"), Some(5));
        assert_eq!(filter.clocks().expect("clocks").now(HOME), 0);
    });
}

const SPREAD: u32 = 0xc000_0001;
/// An SA that is not spread, of the same shard.
const HOMED: u32 = 0xc000_0002;
const HOME: Shard = Shard(0xc0);
/// Offset of the flags in the cluster's table, and one of them.
const CLUSTER_FLAGS: usize = 120;
const CLUSTER_SPREAD: u8 = 4;

/// A node that carries all shards, whose port is the loopback interface: there [`Filter::cost`]
/// runs a frame.
fn carrier(instance: &Instance) -> Filter {
    let mut filter = Filter::open(instance).expect("filter");
    let port = FilterPort {
        // Of two interfaces with one index, the filter keeps the one that came last.
        index: PortIndex(4),
        name: "lo".to_owned(),
        ifindex: 1,
        mac: MacAddr(frames::PORT_MAC),
        cluster_mac: Some(MacAddr(frames::CLUSTER_MAC)),
        check_source: true,
        allow_generic: false,
    };
    filter.set_port(&port).expect("port");
    let vips = [frames::US4.parse().expect("address")].into();
    filter.set_cluster(Some(&ClusterFilter { vips, key: [1, 2], routed: false })).expect("cluster");
    filter.set_shards(KeptShards { packets: [u64::MAX; 4], ..KeptShards::default() }).expect("shards");
    filter
}

fn receive(filter: &Filter, spi: u32, number: u32) {
    let esp = [&spi.to_be_bytes()[..], &number.to_be_bytes(), &[0; 40]].concat();
    let packet = frames::ipv4(frames::PEER4, frames::US4, frames::ESP).packet(&esp);
    filter.cost(&frames::ethernet_to(frames::CLUSTER_MAC, 0x0800, &packet), 1).expect("a test run");
}

/// The filter looks carried SAs up as long as one is spread, whatever else of its table changes.
#[test]
fn the_filter_looks_for_spread_sas_from_the_first_to_the_last() {
    in_namespace("spread", |instance| {
        let mut filter = carrier(instance);
        let seen = |filter: &Filter, spi| filter.seen(spi).expect("seen");
        let table = MapHandle::from_pinned_path(pins(instance).join("maps/cluster")).expect("map");
        let is_flagged = || {
            let value = table.lookup(&[0; 4], MapFlags::ANY).expect("read").expect("entry");
            value[CLUSTER_FLAGS] & CLUSTER_SPREAD != 0
        };
        assert!(!is_flagged());
        filter.track_spread(SPREAD, 1).expect("a spread SA");
        filter.track_spread(SPREAD + 8, 1).expect("another");
        filter.track(HOMED, 1).expect("an SA");
        [SPREAD, HOMED].iter().for_each(|spi| receive(&filter, *spi, 5));
        assert_eq!([SPREAD, HOMED].map(|spi| seen(&filter, spi)), [Some(5), Some(1)]);
        // Other changes of the table keep it so.
        let vips = filter.vips();
        filter.set_cluster(Some(&ClusterFilter { vips, key: [3, 4], routed: false })).expect("cluster");
        filter
            .set_shards(KeptShards { packets: [u64::MAX; 4], default_host: true, ..KeptShards::default() })
            .expect("shards");
        filter.set_fence(7).expect("fence");
        filter.untrack(SPREAD + 8).expect("untrack");
        receive(&filter, SPREAD, 6);
        assert_eq!(seen(&filter, SPREAD), Some(6));
        // Each way in which the last one ends.
        filter.track(SPREAD, 1).expect("it is spread no more");
        receive(&filter, SPREAD, 7);
        assert_eq!((seen(&filter, SPREAD), is_flagged()), (Some(1), false));
        filter.track_spread(SPREAD, 1).expect("again");
        assert!(is_flagged());
        filter.untrack(SPREAD).expect("untrack");
        assert_eq!((seen(&filter, SPREAD), is_flagged()), (None, false));
    });
}

/// A row that was used once must not come again.
#[test]
fn row_clocks_go_on_after_a_restart() {
    in_namespace("clocks", |instance| {
        let prefixes = || {
            let spread =
                PrefixUse { home: Some(HOME), spread: Some(Spread::PacketHash), ..PrefixUse::PROTECT };
            PrefixUses::from([("10.2.0.0/16".parse().expect("prefix"), spread)])
        };
        let clear = frames::ipv4(frames::CLIENT4, frames::REMOTE4, frames::TCP).packet(&[0; 20]);
        let clear = frames::ethernet_to(frames::CLUSTER_MAC, 0x0800, &clear);
        let mut filter = carrier(instance);
        filter.attach(&port("bp-clocks0")).expect("attach");
        filter.set_prefixes(&prefixes()).expect("prefixes");
        let earlier = filter.clocks().expect("clocks");
        filter.cost(&clear, 3).expect("test runs");
        assert_eq!((earlier.now(HOME), earlier.now(Shard(0))), (3, 0));
        drop(filter);
        assert_eq!(earlier.now(HOME), 3, "the handle is good without the filter");
        let filter = carrier(instance);
        assert_eq!(filter.prefixes().expect("prefixes"), prefixes());
        filter.cost(&clear, 2).expect("test runs");
        assert_eq!((filter.clocks().expect("clocks").now(HOME), earlier.now(HOME)), (5, 5));
    });
}

#[test]
fn the_clusters_addresses_are_known_to_who_comes_after() {
    in_namespace("vips", |instance| {
        let port = port("bp-vips0");
        let addresses = |list: &[&str]| list.iter().map(|a| a.parse().expect(a)).collect();
        let vips: BTreeSet<IpAddr> = addresses(&["192.0.2.1", "2001:db8::1"]);
        let mut filter = Filter::open(instance).expect("filter");
        filter
            .set_cluster(Some(&ClusterFilter { vips: vips.clone(), key: [1, 2], routed: false }))
            .expect("cluster");
        filter.set_addresses(&addresses(&["192.0.2.11", "192.0.2.1"])).expect("addresses");
        filter.attach(&port).expect("attach");
        drop(filter);
        let mut filter = Filter::open(instance).expect("filter");
        assert_eq!(filter.vips(), vips);
        // Others from now on; the former ones are addresses like any until the kernel has them no
        // more.
        let other = ClusterFilter { vips: addresses(&["192.0.2.7"]), key: [1, 2], routed: false };
        filter.set_cluster(Some(&other)).expect("cluster");
        assert_eq!(filter.vips(), other.vips);
        filter.set_addresses(&addresses(&["192.0.2.11"])).expect("addresses");
        assert_eq!(filter.addresses(), addresses(&["192.0.2.11", "192.0.2.7"]));
        drop(filter);
        let cleaned = filter::cleanup(instance).expect("cleanup");
        assert_eq!((cleaned.vips, cleaned.pins), (other.vips, true));
        let mut alone = Filter::open(instance).expect("filter");
        alone.set_cluster(None).expect("alone");
        assert_eq!(alone.vips(), addresses(&[]));
    });
}

/// Addresses that no policy selects are open to the host while no daemon runs, and known to the
/// next one.
#[test]
fn addresses_that_no_policy_selects_are_known_to_who_comes_after() {
    in_namespace("unselected", |instance| {
        let port = port("bp-unsel0");
        let addresses =
            |list: &[&str]| -> BTreeSet<IpAddr> { list.iter().map(|a| a.parse().expect(a)).collect() };
        let mut filter = Filter::open(instance).expect("filter");
        filter.set_addresses(&addresses(&["192.0.2.1", "10.1.0.1", "2001:db8::1"])).expect("addresses");
        assert_eq!(*filter.unselected(), addresses(&[]), "nobody knows yet");
        filter.set_unselected(&addresses(&["192.0.2.1", "10.1.0.1", "2001:db8::1"])).expect("unselected");
        filter.set_unselected(&addresses(&["192.0.2.1", "2001:db8::1"])).expect("unselected");
        filter.attach(&port).expect("attach");
        drop(filter);

        let mut filter = Filter::open(instance).expect("filter");
        assert_eq!(*filter.unselected(), addresses(&["192.0.2.1", "2001:db8::1"]));
        // The same for a cluster's.
        let cluster = ClusterFilter { vips: addresses(&["192.0.2.1"]), key: [1, 2], routed: false };
        filter.set_cluster(Some(&cluster)).expect("cluster");
        filter.set_addresses(&addresses(&["10.1.0.1", "192.0.2.9"])).expect("addresses");
        drop(filter);
        let filter = Filter::open(instance).expect("filter");
        assert_eq!(*filter.unselected(), addresses(&["192.0.2.1"]), "a new one may be selected");
        assert_eq!(filter.vips(), cluster.vips);
    });
}

#[test]
fn an_instance_belongs_to_one_network_namespace() {
    let instance = instance("netns");
    let _sweep = Sweep(instance.clone());
    let (one, other) = (Namespace::new(), Namespace::new());
    one.run(|| {
        Filter::open(&instance).expect("filter").attach(&port("bp-netns0")).expect("attach");
    });
    other.run(|| {
        let error = Filter::open(&instance).map(|_| ()).expect_err("another namespace");
        assert!(matches!(error, FilterError::OtherNetns { .. }), "{error}");
    });
    one.run(|| ip("link delete bp-netns0"));
    other.run(|| assert!(!Filter::open(&instance).expect("the other is gone").is_inherited()));
}

#[test]
fn numbers_out_of_range_are_refused() {
    in_namespace("range", |instance| {
        let mut port = port("bp-range0");
        port.index = PortIndex(64);
        let mut filter = Filter::open(instance).expect("filter");
        let error = filter.attach(&port).expect_err("port 64").to_string();
        assert!(error.contains("port index 64, expected at most 63"), "{error}");
        let input = std::io::stdin();
        let refused = filter.set_socket(PortIndex(0), MAX_QUEUES, input.as_fd());
        let error = refused.expect_err("queue 64").to_string();
        assert!(error.contains("queue 64, expected at most 63"), "{error}");
    });
}

#[test]
fn a_queue_beyond_the_last_drops_and_counts() {
    in_namespace("queue", |instance| {
        let queues = MAX_QUEUES + 1;
        ip(&format!(
            "link add bp-queue0 numrxqueues {queues} numtxqueues {queues} address {} type veth peer name peer0 \
             numrxqueues {queues} numtxqueues {queues}",
            MacAddr(MAC)
        ));
        for end in ["bp-queue0", "peer0"] {
            sysctl(&format!("ipv6/conf/{end}/disable_ipv6"), "1");
            ip(&format!("link set {end} up"));
        }
        let port = FilterPort {
            index: PortIndex(3),
            name: "bp-queue0".to_owned(),
            ifindex: nix::net::if_::if_nametoindex("bp-queue0").expect("veth"),
            mac: MacAddr(MAC),
            cluster_mac: None,
            check_source: true,
            allow_generic: false,
        };
        let mut filter = Filter::open(instance).expect("filter");
        filter.attach(&port).expect("attach");
        let prefix = "10.2.0.0/16".parse().expect("prefix");
        filter.set_prefixes(&PrefixUses::from([(prefix, PrefixUse::PROTECT)])).expect("prefixes");
        ip("address add 172.16.0.7/24 dev peer0");
        ip("route add 10.2.0.0/16 via 172.16.0.1");
        ip(&format!("neighbour add 172.16.0.1 lladdr {} dev peer0", MacAddr(MAC)));
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").expect("socket");
        // Each flow is hashed to a queue: that none of these meets the last one is less likely
        // than 1 in 10^6.
        for port in 1..=1000 {
            socket.send_to(b"x", ("10.2.0.5", port)).expect("send");
        }
        let counters = || filter.counters(CounterSet::Port(PortIndex(3))).expect("counters");
        eventually("all are counted", || counters().total() == 1000);
        let (beyond, within) = (counters().get(Reason::DropQueueRange), counters().get(Reason::DropNoSocket));
        assert!(beyond > 0 && beyond + within == 1000, "{:?}", counters());
    });
}
