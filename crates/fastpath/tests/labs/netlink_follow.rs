//! The forwarding table follows the kernel.

use crate::hosts::{eventually, sysctl};
use crate::support::ip;
use crate::support::namespace::Namespace;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use testudo_fastpath::fib::{Fib, NextHop, Out, PortIndex, Route};
use testudo_fastpath::mac::MacAddr;
use testudo_fastpath::netlink::{FibHandle, Follower, Interfaces};

const PORT: PortIndex = PortIndex(2);
/// Beside it; there only where a test makes it.
const SECOND: PortIndex = PortIndex(3);
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x21]);

fn addr(text: &str) -> IpAddr {
    text.parse().expect(text)
}

/// A namespace with a port whose other end is with a neighbour.
struct Link {
    here: Namespace,
    there: Namespace,
}

impl Link {
    fn new() -> Self {
        let (here, there) = (Namespace::new(), Namespace::new());
        here.run(|| {
            ip(&format!("link add port0 address {MAC} type veth peer name peer0"));
            sysctl("ipv6/conf/port0/accept_dad", "0");
            ip("link set port0 up");
            ip("address add 192.0.2.1/24 dev port0");
            ip("address add 2001:db8:1::1/64 dev port0 nodad");
            there.take("peer0", "192.0.2.2/24");
        });
        there.run(|| {
            sysctl("ipv6/conf/peer0/accept_dad", "0");
            sysctl("ipv6/conf/peer0/disable_ipv6", "0");
            ip("address add 2001:db8:1::2/64 dev peer0 nodad");
        });
        // The kernel makes this prefix itself, some time after the carrier has come.
        here.run(|| eventually("port0 has a link-local prefix", has_link_local_prefix));
        Self { here, there }
    }

    fn follow(&self) -> Follower {
        self.here.run(|| Follower::start(interfaces()).expect("follower"))
    }

    fn ip(&self, arguments: &str) {
        self.here.run(|| ip(arguments));
    }
}

/// True if the table of this network namespace leads fe80::/64 to port0.
fn has_link_local_prefix() -> bool {
    let routes = std::fs::read_to_string("/proc/thread-self/net/ipv6_route").expect("routes");
    routes.lines().any(|route| {
        route.starts_with("fe800000000000000000000000000000 40 ") && route.trim_end().ends_with("port0")
    })
}

fn interfaces() -> Interfaces {
    let ports = [(PORT, "port0".to_owned()), (SECOND, "port1".to_owned())];
    Interfaces { ports: ports.into(), tun: Some("tun0".to_owned()) }
}

fn on_link(mtu: u16) -> Route {
    Route::Forward(NextHop { out: Out::Port(PORT), gateway: None, mtu })
}

fn via(gateway: &str, mtu: u16) -> Route {
    Route::Forward(NextHop { out: Out::Port(PORT), gateway: Some(addr(gateway)), mtu })
}

#[track_caller]
fn leads(handle: &FibHandle, to: &str, expected: Route) {
    eventually(&format!("{to} leads to {expected:?}"), || handle.fib().lookup(addr(to)) == expected);
}

#[test]
fn the_first_table_is_complete() {
    let link = Link::new();
    link.ip("route add 10.0.0.0/8 via 192.0.2.2 mtu 1400");
    link.ip("-6 route add 2001:db8:2::/48 via 2001:db8:1::2");
    link.ip("route add 172.20.0.0/16 dev port0");
    let fib = link.follow().handle().fib();
    assert_eq!(fib.generation(), 1);
    for (to, route) in [
        ("192.0.2.1", Route::Local),
        ("192.0.2.255", Route::Local),
        ("127.0.0.1", Route::Local),
        ("2001:db8:1::1", Route::Local),
        ("fe80::1", Route::Local),
        ("192.0.2.2", on_link(1500)),
        ("2001:db8:1::2", on_link(1500)),
        ("10.1.2.3", via("192.0.2.2", 1400)),
        ("2001:db8:2::1", via("2001:db8:1::2", 1500)),
        ("198.51.100.1", Route::NoRoute),
    ] {
        assert_eq!(fib.lookup(addr(to)), route, "{to}");
    }
    let port = fib.port(PORT).expect("port");
    assert_eq!((port.name.as_str(), port.mac, port.mtu, port.up), ("port0", MAC, 1500, true));
    assert_eq!(fib.sources(PORT).v4.map(IpAddr::from), Some(addr("192.0.2.1")));
    assert_eq!(fib.sources(PORT).v6.map(IpAddr::from), Some(addr("2001:db8:1::1")));
    assert!(fib.addresses().contains(&addr("127.0.0.1")));
    let connected: Vec<_> = fib.connected().iter().map(ToString::to_string).collect();
    assert_eq!(connected, ["192.0.2.0/24", "2001:db8:1::/64", "fe80::/64"]);
}

/// Every host on the link can cause such routes and addresses: by Router Advertisements, or as a
/// DHCP server.
#[test]
fn prefixes_from_the_network_are_not_connected() {
    let link = Link::new();
    let follower = link.follow();
    let handle = follower.handle();
    link.ip("-6 route add fd00:2:0:1::/64 dev port0 proto kernel expires 100");
    link.ip("-6 route add fd00:2:0:2::/64 dev port0 proto kernel");
    link.ip("-6 address add fd00:2:0:3::1/64 dev port0 nodad valid_lft 100 preferred_lft 100");
    link.ip("address add 10.2.0.1/16 dev port0 valid_lft 100 preferred_lft 100");
    // What remains counts by its destination: the other side of a point-to-point link; nothing
    // without a route.
    link.ip("address add 10.3.0.1 peer 10.3.0.9/32 dev port0");
    link.ip("address add 10.4.0.1/24 dev port0 noprefixroute");
    for reached in ["fd00:2:0:1::9", "fd00:2:0:2::9", "fd00:2:0:3::9", "10.2.0.9", "10.3.0.9"] {
        leads(&handle, reached, on_link(1500));
    }
    let mut connected: Vec<_> = handle.fib().connected().iter().map(ToString::to_string).collect();
    connected.sort();
    assert_eq!(connected, ["10.3.0.9/32", "192.0.2.0/24", "2001:db8:1::/64", "fe80::/64"]);
}

#[test]
fn routes_are_followed() {
    let link = Link::new();
    let follower = link.follow();
    let handle = follower.handle();
    link.ip("route add 10.0.0.0/8 via 192.0.2.2");
    leads(&handle, "10.1.0.1", via("192.0.2.2", 1500));
    link.ip("route replace 10.0.0.0/8 via 192.0.2.3 mtu 1300");
    leads(&handle, "10.1.0.1", via("192.0.2.3", 1300));
    for (kind, route) in [
        ("blackhole", Route::Blackhole),
        ("unreachable", Route::Unreachable),
        ("prohibit", Route::Prohibit),
        ("throw", Route::NoRoute),
    ] {
        for prefix in ["10.1.0.0/16", "2001:db8:3::/48"] {
            let family = if prefix.contains(':') { "-6" } else { "-4" };
            link.ip(&format!("{family} route add {kind} {prefix}"));
            leads(&handle, &prefix.replace("0.0/16", "0.1").replace("::/48", "::1"), route);
            link.ip(&format!("{family} route del {kind} {prefix}"));
        }
    }
    leads(&handle, "10.1.0.1", via("192.0.2.3", 1300));
    leads(&handle, "2001:db8:3::1", Route::NoRoute);
    link.ip("route del 10.0.0.0/8");
    leads(&handle, "10.1.0.1", Route::NoRoute);
}

#[test]
fn the_lowest_metric_and_the_first_of_several_paths_count() {
    let link = Link::new();
    let follower = link.follow();
    let handle = follower.handle();
    link.ip("route add 10.0.0.0/8 via 192.0.2.9 metric 200");
    link.ip("route add 10.0.0.0/8 via 192.0.2.2 metric 100");
    leads(&handle, "10.0.0.1", via("192.0.2.2", 1500));
    link.ip("route del 10.0.0.0/8 metric 100");
    leads(&handle, "10.0.0.1", via("192.0.2.9", 1500));
    link.ip("route add 10.1.0.0/16 nexthop via 192.0.2.4 nexthop via 192.0.2.5");
    leads(&handle, "10.1.0.1", via("192.0.2.4", 1500));
    link.ip("route add 10.2.0.0/16 via inet6 fe80::9 dev port0");
    leads(&handle, "10.2.0.1", via("fe80::9", 1500));
    link.ip("nexthop add id 7 via 192.0.2.6 dev port0");
    link.ip("route add 10.3.0.0/16 nhid 7");
    leads(&handle, "10.3.0.1", via("192.0.2.6", 1500));
    link.ip("nexthop replace id 7 via 192.0.2.7 dev port0");
    leads(&handle, "10.3.0.1", via("192.0.2.7", 1500));
}

#[test]
fn a_source_may_be_behind_each_of_several_paths() {
    let link = Link::new();
    link.ip("link add port1 type veth peer name peer1");
    link.ip("link set peer1 up");
    link.ip("link set port1 up");
    link.ip("address add 198.51.100.1/24 dev port1");
    let follower = link.follow();
    let handle = follower.handle();
    link.ip("route add 10.1.0.0/16 nexthop via 192.0.2.4 nexthop via 198.51.100.5");
    link.ip("-6 route add 2001:db8:9::/48 nexthop via 2001:db8:1::2 nexthop via fe80::5 dev port1");
    link.ip("route add 10.2.0.0/16 via 192.0.2.4");
    for (from, behind) in
        [("10.1.0.1", [true, true]), ("2001:db8:9::1", [true, true]), ("10.2.0.1", [true, false])]
    {
        eventually(&format!("{from} is behind {behind:?}"), || {
            [PORT, SECOND].map(|port| handle.fib().leads_through(port, addr(from))) == behind
        });
    }
    link.ip("link set port1 down");
    eventually("a path that is down is none", || {
        let fib = handle.fib();
        fib.leads_through(PORT, addr("10.1.0.1")) && !fib.leads_through(SECOND, addr("10.1.0.1"))
    });
}

#[test]
fn other_tables_and_the_tun_are_ignored() {
    let link = Link::new();
    link.ip("tuntap add tun0 mode tun");
    link.ip("link set tun0 up");
    link.ip("link add other0 type bridge");
    link.ip("link set other0 up");
    let follower = link.follow();
    let handle = follower.handle();
    link.ip("route add 10.0.0.0/8 dev tun0");
    link.ip("route add 10.1.0.0/16 via 192.0.2.2 table 220");
    link.ip("route add 10.2.0.0/16 dev other0");
    eventually("the last of the three is there", || {
        matches!(
            handle.fib().lookup(addr("10.2.0.1")),
            Route::Forward(NextHop { out: Out::Other { .. }, .. })
        )
    });
    assert_eq!(handle.fib().lookup(addr("10.0.0.1")), Route::NoRoute);
    assert_eq!(handle.fib().lookup(addr("10.1.0.1")), Route::NoRoute);
}

#[test]
fn routes_that_fall_with_a_link_or_an_address_are_gone() {
    let link = Link::new();
    link.ip("route add 10.0.0.0/8 via 192.0.2.2");
    let follower = link.follow();
    let handle = follower.handle();
    link.ip("link set port0 down");
    // The kernel announces the link, and not one of the IPv4 routes.
    leads(&handle, "10.0.0.1", Route::NoRoute);
    assert!(!handle.fib().port(PORT).expect("port").up);
    link.ip("link set port0 up");
    link.ip("route add 10.0.0.0/8 via 192.0.2.2");
    leads(&handle, "10.0.0.1", via("192.0.2.2", 1500));
    link.ip("address del 192.0.2.1/24 dev port0");
    leads(&handle, "10.0.0.1", Route::NoRoute);
    leads(&handle, "192.0.2.1", Route::NoRoute);
    assert_eq!(handle.fib().sources(PORT).v4, None);
}

#[test]
fn links_are_followed() {
    let link = Link::new();
    let follower = link.follow();
    let handle = follower.handle();
    let port = |fib: &Fib| fib.port(PORT).cloned().expect("port");
    link.ip("link set port0 mtu 1400");
    eventually("the MTU", || port(&handle.fib()).mtu == 1400);
    leads(&handle, "192.0.2.2", on_link(1400));
    link.ip("link set port0 address 02:00:00:00:00:99");
    eventually("the address", || port(&handle.fib()).mac == MacAddr([2, 0, 0, 0, 0, 0x99]));
    link.there.run(|| ip("link set peer0 down"));
    eventually("the carrier", || !port(&handle.fib()).up);
    link.ip("link delete port0");
    eventually("the end", || port(&handle.fib()).ifindex == 0);
    leads(&handle, "192.0.2.2", Route::NoRoute);
    link.ip("link add port0 type veth peer name peer1");
    link.ip("link set peer1 up");
    link.ip("link set port0 up");
    eventually("a new one of that name", || port(&handle.fib()).up);
}

fn resolved(handle: &FibHandle, neighbour: &str) -> bool {
    handle.fib().neighbour(PORT, addr(neighbour)).is_some()
}

#[test]
fn a_missing_neighbour_is_asked_for() {
    let link = Link::new();
    let follower = link.follow();
    let handle = follower.handle();
    for neighbour in ["192.0.2.2", "2001:db8:1::2"] {
        assert!(!resolved(&handle, neighbour));
        handle.resolve(PORT, addr(neighbour));
        eventually(neighbour, || resolved(&handle, neighbour));
    }
    handle.resolve(PORT, addr("192.0.2.77"));
    handle.resolve(PortIndex(40), addr("192.0.2.2"));
    eventually("all are asked for that can be", || handle.statistics().probes == 3);
    // When what is wanted next has been found, what was wanted before it has been dealt with.
    link.there.run(|| ip("address add 192.0.2.3/24 dev peer0"));
    handle.resolve(PORT, addr("192.0.2.3"));
    eventually("192.0.2.3", || resolved(&handle, "192.0.2.3"));
    assert!(!resolved(&handle, "192.0.2.77"));
    assert_eq!(handle.statistics().probes, 4);
    assert_eq!(handle.statistics().errors, 0);
}

#[test]
fn a_neighbour_that_moves_or_goes_is_followed() {
    let link = Link::new();
    let follower = link.follow();
    let handle = follower.handle();
    let mac = |handle: &FibHandle| handle.fib().neighbour(PORT, addr("192.0.2.9"));
    link.ip("neighbour add 192.0.2.9 lladdr 02:00:00:00:00:31 dev port0");
    eventually("added", || mac(&handle) == Some(MacAddr([2, 0, 0, 0, 0, 0x31])));
    link.ip("neighbour replace 192.0.2.9 lladdr 02:00:00:00:00:32 dev port0");
    eventually("moved", || mac(&handle) == Some(MacAddr([2, 0, 0, 0, 0, 0x32])));
    link.ip("neighbour del 192.0.2.9 dev port0");
    eventually("gone", || mac(&handle).is_none());
}

#[test]
fn a_neighbour_in_use_is_made_sure_of() {
    let link = Link::new();
    let follower = link.follow();
    let handle = follower.handle();
    link.here.run(|| {
        // Seconds before it looks, and milliseconds between two looks.
        sysctl("ipv4/neigh/port0/delay_first_probe_time", "1");
        sysctl("ipv4/neigh/port0/retrans_time_ms", "50");
    });
    handle.resolve(PORT, addr("192.0.2.2"));
    eventually("resolved", || resolved(&handle, "192.0.2.2"));
    link.ip("neighbour replace 192.0.2.2 lladdr 02:00:00:00:00:55 dev port0 nud stale");
    let mac = || handle.fib().neighbour(PORT, addr("192.0.2.2"));
    let wrong = MacAddr([2, 0, 0, 0, 0, 0x55]);
    eventually("the wrong address", || mac() == Some(wrong));
    // The wrong address is in use, so the kernel is made to probe, and finds that it is not
    // answered.
    eventually("no longer the wrong address", || mac() != Some(wrong));
    handle.resolve(PORT, addr("192.0.2.2"));
    eventually("the right one", || mac().is_some_and(|m| m != wrong));
}

/// True if the descriptor becomes readable.
fn readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [nix::poll::PollFd::new(fd, nix::poll::PollFlags::POLLIN)];
    loop {
        match nix::poll::poll(&mut fds, 60_000u16) {
            // A machine that is stopped for a moment (signal(7)).
            Err(nix::Error::EINTR) => {}
            ready => return ready.expect("poll") == 1,
        }
    }
}

#[test]
fn a_change_is_told_once_and_many_make_few_tables() {
    let link = Link::new();
    let follower = link.follow();
    let handle = follower.handle();
    let mut batch = String::new();
    for i in 0..2000 {
        batch.push_str(&format!("route add 10.{}.{}.0/24 via 192.0.2.2\n", i / 250, i % 250));
    }
    let file = std::env::temp_dir().join(format!("ttbp-routes-{}", std::process::id()));
    std::fs::write(&file, batch).expect("batch");
    let (begun, before) = (Instant::now(), handle.fib().generation());
    link.ip(&format!("-batch {}", file.display()));
    std::fs::remove_file(&file).expect("batch");
    leads(&handle, "10.7.249.1", via("192.0.2.2", 1500));
    assert!(readable(handle.changed()));
    let (tables, took) = (handle.fib().generation() - before, begun.elapsed());
    // Each is at least five milliseconds behind the first change that it has.
    assert!(u128::from(tables) <= 1 + took.as_millis() / 5, "{tables} tables for 2000 routes in {took:?}");
    handle.acknowledge();
    link.ip("route add 10.200.0.0/16 via 192.0.2.2");
    assert!(readable(handle.changed()));
    leads(&handle, "10.200.0.1", via("192.0.2.2", 1500));
}

/// Two changes so far apart have a table each: a table waits for five milliseconds for what comes
/// behind its first change.
const APART: Duration = Duration::from_millis(200);

#[test]
fn a_change_that_changes_nothing_makes_no_table() {
    let link = Link::new();
    let follower = link.follow();
    let handle = follower.handle();
    let generation = || handle.fib().generation();
    // Until the kernel has nothing else to tell of the new link.
    let mut attempt = 0;
    eventually("the next table is that of the next change", || {
        attempt += 1;
        let before = generation();
        link.ip(&format!("route add 10.1.{attempt}.0/24 via 192.0.2.2 table 220"));
        // There is no sign that no table is made.
        std::thread::sleep(APART);
        link.ip(&format!("route add 10.2.{attempt}.0/24 via 192.0.2.2"));
        leads(&handle, &format!("10.2.{attempt}.1"), via("192.0.2.2", 1500));
        generation() == before + 1
    });
}
