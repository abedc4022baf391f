use super::*;
use proptest::prelude::*;
use testudo_base::prefix::Prefix;

fn prefix(text: &str) -> Prefix {
    text.parse().expect(text)
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect(text)
}

fn via(port: u16, gateway: Option<&str>) -> Route {
    Route::Forward(NextHop { out: Out::Port(PortIndex(port)), gateway: gateway.map(ip), mtu: 1500 })
}

#[test]
fn the_most_specific_route_wins() {
    let fib = Fib::builder()
        .route(prefix("0.0.0.0/0"), via(0, Some("192.0.2.1")))
        .route(prefix("10.0.0.0/8"), via(1, None))
        .route(prefix("10.1.0.0/16"), Route::Blackhole)
        .route(prefix("10.1.255.255/32"), Route::Prohibit)
        .route(prefix("2001:db8::/32"), via(1, Some("fe80::1")))
        .build();
    assert_eq!(fib.lookup(ip("8.8.8.8")), via(0, Some("192.0.2.1")));
    assert_eq!(fib.lookup(ip("10.0.255.255")), via(1, None));
    assert_eq!(fib.lookup(ip("10.1.0.0")), Route::Blackhole);
    assert_eq!(fib.lookup(ip("10.1.255.255")), Route::Prohibit);
    assert_eq!(fib.lookup(ip("10.2.0.0")), via(1, None));
    assert_eq!(fib.lookup(ip("2001:db8::1")), via(1, Some("fe80::1")));
    assert_eq!(fib.lookup(ip("2001:db9::")), Route::NoRoute);
    assert_eq!(fib.lookup(ip("::")), Route::NoRoute);
    assert_eq!(fib.lookup(ip("ff02::1")), Route::Local);
    assert_eq!(fib.lookup(ip("224.0.0.5")), Route::Local);
    assert_eq!(fib.lookup(ip("255.255.255.255")), Route::Local);
}

#[test]
fn the_local_table_stands_above_the_main_table() {
    let fib = Fib::builder()
        .route(prefix("127.0.0.1/32"), via(0, None))
        .local(prefix("127.0.0.0/8"), Route::Local)
        .build();
    assert_eq!(fib.lookup(ip("127.0.0.1")), Route::Local);
}

#[test]
fn a_source_fits_the_ports_of_its_next_hops() {
    let fib = Fib::builder()
        .route(prefix("10.0.0.0/8"), via(1, None))
        .multipath(prefix("10.1.0.0/16"), via(1, Some("192.0.2.1")), [PortIndex(2), PortIndex(63)])
        .route(prefix("10.2.0.0/16"), Route::Blackhole)
        .local(prefix("10.0.0.1/32"), Route::Local)
        .route(prefix("2001:db8::/32"), via(64, None))
        .build();
    let fitting = |addr: &str| {
        let ports = (0..70).filter(|port| fib.leads_through(PortIndex(*port), ip(addr)));
        ports.collect::<Vec<_>>()
    };
    assert_eq!(fitting("10.9.0.1"), [1]);
    assert_eq!(fitting("10.1.0.1"), [1, 2, 63]);
    for none in ["10.2.0.1", "10.0.0.1", "8.8.8.8", "224.0.0.5", "fe80::1"] {
        assert!(fitting(none).is_empty(), "{none}");
    }
    assert!(fitting("2001:db8::1").is_empty(), "there are no such ports");
    assert_eq!(fib.lookup(ip("10.1.0.1")), via(1, Some("192.0.2.1")));
    let through = [0, 1, 2, 3, 63, 64].map(|port| fib.routes_through(PortIndex(port)));
    assert_eq!(through, [0, 2, 1, 0, 1, 0], "routes through each port");
}

#[test]
fn an_empty_table_has_no_route() {
    let fib = Fib::builder().build();
    assert_eq!(fib.lookup(ip("10.0.0.1")), Route::NoRoute);
    assert_eq!(fib.lookup(ip("2001:db8::1")), Route::NoRoute);
}

#[test]
fn neighbours_belong_to_a_port_and_remember_their_use() {
    let mac = MacAddr([2, 0, 0, 0, 0, 1]);
    let shared = Arc::new(Neighbour::new(mac));
    let fib = Fib::builder()
        .shared_neighbour(PortIndex(1), ip("10.0.0.2"), Arc::clone(&shared))
        .neighbour(PortIndex(0), ip("fe80::1"), MacAddr([2, 0, 0, 0, 0, 2]))
        .build();
    assert!(!shared.take_used());
    assert_eq!(fib.neighbour(PortIndex(0), ip("10.0.0.2")), None);
    assert!(!shared.take_used());
    assert_eq!(fib.neighbour(PortIndex(1), ip("10.0.0.2")), Some(mac));
    assert!(shared.take_used());
    assert!(!shared.take_used());
    assert_eq!(fib.neighbour(PortIndex(0), ip("fe80::1")), Some(MacAddr([2, 0, 0, 0, 0, 2])));
}

#[test]
fn a_port_has_a_source_address_of_each_family() {
    let link = PortLink {
        index: PortIndex(3),
        name: "eth3".to_owned(),
        ifindex: 7,
        mac: MacAddr([2; 6]),
        mtu: 1500,
        up: true,
        addresses: vec![ip("fe80::1"), ip("10.0.0.1"), ip("10.0.0.9"), ip("2001:db8::1")],
    };
    let fib = Fib::builder().port(link).build();
    let Sources { v4, v6 } = fib.sources(PortIndex(3));
    assert_eq!(v4.map(IpAddr::from), Some(ip("10.0.0.1")));
    assert_eq!(v6.map(IpAddr::from), Some(ip("2001:db8::1")), "not the link-local one before it");
    assert_eq!(fib.sources(PortIndex(2)), Sources::default());
}

fn route_number(n: u32) -> Route {
    Route::Forward(NextHop { out: Out::Other { ifindex: n }, gateway: None, mtu: 1500 })
}

/// Prefixes that nest often: few distinct bits, all lengths.
fn arb_prefix() -> impl Strategy<Value = Prefix> {
    let v4 = (any::<u32>(), 0..=32u8).prop_map(|(bits, len)| {
        let bits = bits & 0xc000_0103;
        Prefix::new(IpAddr::V4(bits.into()), len)
    });
    let v6 = (any::<u128>(), 0..=128u8).prop_map(|(bits, len)| {
        let bits = bits & (3 << 126 | 1 << 64 | 0xf);
        Prefix::new(IpAddr::V6(bits.into()), len)
    });
    prop_oneof![v4, v6].prop_map(|p| p.expect("length within the family's width"))
}

fn near(prefix: Prefix, by: u8) -> IpAddr {
    match prefix.addr() {
        IpAddr::V4(a) => IpAddr::V4(u32::from(a).wrapping_add(by.into()).wrapping_sub(2).into()),
        IpAddr::V6(a) => IpAddr::V6(u128::from(a).wrapping_add(by.into()).wrapping_sub(2).into()),
    }
}

/// The expected answer of the table, found by a scan of all routes.
fn linear(routes: &[(bool, Prefix)], addr: IpAddr) -> Route {
    let kernels = ["224.0.0.0/4", "255.255.255.255/32", "ff00::/8", "fe80::/10"].map(prefix);
    let own = routes.iter().enumerate().map(|(i, (local, p))| (*local, *p, route_number(i as u32)));
    let all = own.chain(kernels.iter().map(|p| (true, *p, Route::Local)));
    let holding = all.filter(|(_, p, _)| p.contains(addr));
    let best = holding.fold(None, |best: Option<(bool, Prefix, Route)>, next| match best {
        Some(b) if (b.0, b.1.length()) >= (next.0, next.1.length()) => Some(b),
        _ => Some(next),
    });
    best.map_or(Route::NoRoute, |(_, _, route)| route)
}

proptest! {
    #[test]
    fn the_table_agrees_with_a_linear_search(
        routes in prop::collection::vec((prop::bool::weighted(0.2), arb_prefix()), 0..40),
        others in prop::collection::vec(arb_prefix(), 1..20),
        by in 0..5u8,
    ) {
        let mut builder = Fib::builder();
        for (i, (local, p)) in routes.iter().enumerate() {
            let route = route_number(i as u32);
            builder = if *local { builder.local(*p, route) } else { builder.route(*p, route) };
        }
        let fib = builder.build();
        for p in routes.iter().map(|(_, p)| *p).chain(others) {
            let addr = near(p, by);
            prop_assert_eq!(fib.lookup(addr), linear(&routes, addr), "{}", addr);
        }
    }
}
