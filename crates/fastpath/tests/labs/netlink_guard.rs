//! Packets of the gateway itself to protected prefixes do not leave in clear.

use crate::hosts::{
    self, Hosts, OPEN, OPEN6, PROTECTED, PROTECTED_PREFIX, PROTECTED6, PROTECTED6_PREFIX, eventually,
};
use crate::support::ip;
use nix::sys::socket::{setsockopt, sockopt::Mark};
use std::net::UdpSocket;
use std::process::Command;
use testudo_fastpath::netlink::{
    Guard, GuardChanges, GuardConfig, GuardRoutes, GuardUse, NetlinkError, remove_guard,
};
use testudo_fastpath::tun::{self, Tun};

const TUN: &str = "ttbp0";
const PROTECT: GuardUse = GuardUse::Protect { mtu: None, source: None };

fn protected() -> GuardRoutes {
    [PROTECTED_PREFIX, PROTECTED6_PREFIX].map(|p| (p.parse().expect(p), PROTECT)).into()
}

/// The output of `ip` in the gateway's namespace.
fn shown(hosts: &Hosts, arguments: &str) -> String {
    let output =
        hosts.gateway.run(|| Command::new("ip").args(arguments.split_whitespace()).output()).expect("ip");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn open_guard(hosts: &Hosts) -> (Guard, Tun) {
    hosts.gateway.run(|| {
        let tun = Tun::open(TUN, 1400).expect("TUN");
        (Guard::open(GuardConfig::default(), tun.ifindex()).expect("guard"), tun)
    })
}

#[track_caller]
fn expect_protected(hosts: &Hosts, when: &str) {
    for to in [PROTECTED, PROTECTED6] {
        assert!(hosts.stays_in(&hosts.gateway, to), "{to} in clear {when}");
    }
    for to in [OPEN, OPEN6] {
        assert!(hosts.arrives(&hosts.gateway, to), "{to} is none of our business {when}");
    }
}

/// The next packet that the kernel sends into the TUN to `destination`.
fn next(tun: &Tun, destination: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 2000];
    let mut length = 0;
    eventually("a packet in the TUN", || {
        length = tun.read(&mut packet).expect("read").map_or(0, |(length, _)| length);
        let at = if packet[0] >> 4 == 4 { 16 } else { 24 };
        length > 0 && packet[at..].starts_with(destination)
    });
    packet.truncate(length);
    packet
}

#[test]
fn packets_of_the_gateway_go_into_the_tun_or_nowhere() {
    let hosts = Hosts::new();
    assert!(hosts.arrives(&hosts.gateway, PROTECTED), "before anything was protected");
    let (mut guard, tun) = open_guard(&hosts);
    guard.set(&protected()).expect("routes");
    expect_protected(&hosts, "while the daemon reads the TUN");
    assert_eq!(next(&tun, &[10, 2, 0, 5])[9], 17);
    assert_eq!(next(&tun, &[0x20, 1, 0xd, 0xb8, 0, 2])[6], 17);
    drop((guard, tun));
    expect_protected(&hosts, "after the daemon has gone");
    let ping = |to, patience| {
        hosts.gateway.run(|| Command::new("ping").args(["-c1", patience, to]).output()).expect("ping")
    };
    assert!(ping(OPEN, "-W30").status.success());
    assert!(!ping(PROTECTED, "-W1").status.success());
    hosts.gateway.run(|| ip(&format!("link set {TUN} down")));
    expect_protected(&hosts, "with the TUN down");
    hosts.gateway.run(|| ip(&format!("link delete {TUN}")));
    expect_protected(&hosts, "without a TUN");
    hosts.gateway.run(|| remove_guard(&GuardConfig::default())).expect("removal");
    assert!(hosts.arrives(&hosts.gateway, PROTECTED) && hosts.arrives(&hosts.gateway, PROTECTED6));
    assert_eq!(shown(&hosts, "rule").lines().count(), 3);
    assert_eq!(shown(&hosts, "-6 rule").lines().count(), 2);
}

#[test]
fn our_own_ike_is_marked_and_goes_its_way() {
    let hosts = Hosts::new();
    let (mut guard, _tun) = open_guard(&hosts);
    guard.set(&protected()).expect("routes");
    for to in [PROTECTED, PROTECTED6] {
        let any = if to.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
        hosts.gateway.run(|| {
            let socket = UdpSocket::bind(any).expect("socket");
            setsockopt(&socket, Mark, &GuardConfig::default().mark).expect("mark");
            socket.send_to(b"IKE", (to, 7007)).expect("send");
        });
        assert!(hosts.hears(to, "IKE"), "{to}");
    }
}

#[test]
fn packets_that_the_kernel_forwards_are_guarded_too() {
    let hosts = Hosts::new();
    let (mut guard, _tun) = open_guard(&hosts);
    guard.set(&protected()).expect("routes");
    assert!(hosts.stays_in(&hosts.client, PROTECTED));
    assert!(hosts.arrives(&hosts.client, OPEN));
}

#[test]
fn the_table_becomes_exactly_what_is_asked_for() {
    let hosts = Hosts::new();
    let (mut guard, _tun) = open_guard(&hosts);
    let changed = guard.set(&protected()).expect("routes");
    assert_eq!(changed, GuardChanges { set: 4, removed: 0 });
    assert_eq!(guard.set(&protected()).expect("again"), GuardChanges::default());
    assert_eq!(guard.routes().expect("routes"), protected());
    let source = Some("172.16.0.1".parse().unwrap());
    let routes = GuardRoutes::from([
        ("10.2.0.0/15".parse().unwrap(), GuardUse::Protect { mtu: Some(1380), source }),
        ("10.2.0.0/24".parse().unwrap(), GuardUse::Exempt),
        (PROTECTED6_PREFIX.parse().unwrap(), GuardUse::Protect { mtu: Some(1360), source: None }),
        ("2001:db8:2::/64".parse().unwrap(), GuardUse::Exempt),
    ]);
    guard.set(&routes).expect("routes");
    assert_eq!(guard.routes().expect("routes"), routes);
    assert_eq!(guard.set(&routes).expect("again"), GuardChanges::default());
    let table = shown(&hosts, "route show table 220");
    assert!(table.contains("10.2.0.0/15 dev ttbp0") && table.contains("src 172.16.0.1"), "{table}");
    assert!(table.contains("mtu 1380") && table.contains("unreachable 10.2.0.0/15"), "{table}");
    assert!(table.contains("throw 10.2.0.0/24"), "{table}");
    assert_eq!(table.lines().count(), 3, "{table}");
    assert_eq!(shown(&hosts, "-6 route show table 220").lines().count(), 3);
    assert!(hosts.arrives(&hosts.gateway, PROTECTED), "the exception is exempt");
    assert!(hosts.stays_in(&hosts.gateway, OPEN));
}

#[test]
fn single_prefixes_change_without_a_look_at_the_others() {
    let hosts = Hosts::new();
    let (mut guard, _tun) = open_guard(&hosts);
    guard.set(&protected()).expect("routes");
    let mut routes = protected();
    let steps = [
        // More, and what never goes into a tunnel inside of it.
        ("0.0.0.0/0", Some(PROTECT)),
        ("10.2.0.0/24", Some(GuardUse::Exempt)),
        ("10.2.0.0/24", Some(PROTECT)),
        ("10.2.0.0/24", None),
        ("0.0.0.0/0", None),
        (PROTECTED6_PREFIX, Some(GuardUse::Exempt)),
        (PROTECTED6_PREFIX, None),
    ];
    for (prefix, to) in steps {
        let prefix = prefix.parse().expect("a prefix");
        match to {
            Some(to) => drop(routes.insert(prefix, to)),
            None => drop(routes.remove(&prefix)),
        }
        guard.change(&[prefix].into(), |prefix| routes.get(prefix).copied()).expect("change");
        assert_eq!(guard.set(&routes).expect("all"), GuardChanges::default(), "after {prefix}: {to:?}");
    }
    // A missing rule or route is no error, and is restored when all of them are set.
    hosts.gateway.run(|| ip(&format!("route del {PROTECTED_PREFIX} table 220 metric 16")));
    let taken = PROTECTED_PREFIX.parse().expect("a prefix");
    let kept = routes.remove(&taken).expect("protected");
    guard.change(&[taken].into(), |prefix| routes.get(prefix).copied()).expect("removal");
    routes.insert(taken, kept);
    assert_eq!(guard.set(&routes).expect("all"), GuardChanges { set: 2, removed: 0 });
}

#[test]
fn routes_of_others_stay() {
    let hosts = Hosts::new();
    let foreign = [
        ("-4", "10.77.0.0/16 via 192.0.2.2"),
        ("-6", "2001:db8:77::/48 via 2001:db8:1::2"),
        // The same prefixes as ours.
        ("-4", "10.2.0.0/16 via 192.0.2.2 metric 70000"),
        ("-6", "2001:db8:2::/48 via 2001:db8:1::2 metric 70000"),
    ];
    for (family, route) in foreign {
        hosts.gateway.run(|| ip(&format!("{family} route add {route} table 220 proto static")));
    }
    let tables = |hosts: &Hosts| {
        ["-4", "-6"].map(|family| shown(hosts, &format!("{family} route show table 220"))).concat()
    };
    let before = tables(&hosts);
    assert_eq!(before.lines().count(), foreign.len(), "{before}");
    let (mut guard, _tun) = open_guard(&hosts);
    assert_eq!(guard.set(&protected()).expect("routes"), GuardChanges { set: 4, removed: 0 });
    assert_eq!(tables(&hosts).lines().count(), foreign.len() + 4);
    assert_eq!(guard.set(&GuardRoutes::new()).expect("routes"), GuardChanges { set: 0, removed: 4 });
    assert_eq!(tables(&hosts), before);
    guard.set(&protected()).expect("routes");
    hosts.gateway.run(|| remove_guard(&GuardConfig::default())).expect("removal");
    assert_eq!(tables(&hosts), before);
}

#[test]
fn protecting_everything_leaves_the_links_working() {
    let hosts = Hosts::new();
    let (mut guard, _tun) = open_guard(&hosts);
    let mut routes: GuardRoutes = ["0.0.0.0/0", "::/0"].map(|p| (p.parse().unwrap(), PROTECT)).into();
    for connected in ["172.16.0.0/24", "192.0.2.0/24", "2001:db8:a::/64", "2001:db8:1::/64"] {
        routes.insert(connected.parse().unwrap(), GuardUse::Exempt);
    }
    guard.set(&routes).expect("routes");
    for to in [PROTECTED, OPEN, PROTECTED6, OPEN6] {
        assert!(hosts.stays_in(&hosts.gateway, to), "{to}");
    }
    let ping = |to: &str| {
        let words = ["-c1", "-W2", to];
        hosts.gateway.run(|| Command::new("ping").args(words).output()).expect("ping").status.success()
    };
    assert!(ping(hosts::CLIENT) && ping("2001:db8:a::7"));
    let link_local = hosts.client.run(|| {
        let shown =
            Command::new("ip").args(["-6", "-br", "address", "show", "client0", "scope", "link"]).output();
        String::from_utf8_lossy(&shown.expect("ip").stdout).into_owned()
    });
    let address = link_local.split_whitespace().find_map(|w| w.strip_suffix("/64")).expect(&link_local);
    assert!(ping(&format!("{address}%{}", hosts::INNER)), "{address}");
}

#[test]
fn rules_are_made_once_and_follow_the_configuration() {
    let hosts = Hosts::new();
    let (guard, tun) = open_guard(&hosts);
    drop(guard);
    let rules = |hosts: &Hosts| {
        let all = shown(hosts, "rule") + &shown(hosts, "-6 rule");
        all.lines().filter(|l| l.starts_with("220:")).map(str::to_owned).collect::<Vec<_>>()
    };
    let (guard, tun) =
        (hosts.gateway.run(|| Guard::open(GuardConfig::default(), tun.ifindex())).map(drop), tun);
    guard.expect("guard");
    let ours = rules(&hosts);
    assert!(
        ours.len() == 2 && ours.iter().all(|l| l.contains("not from all fwmark 0xdc lookup 220")),
        "{ours:?}"
    );
    let other = GuardConfig { mark: 7, ..GuardConfig::default() };
    hosts.gateway.run(|| Guard::open(other, tun.ifindex()).map(drop)).expect("guard");
    let ours = rules(&hosts);
    assert!(ours.len() == 2 && ours.iter().all(|l| l.contains("fwmark 0x7 ")), "{ours:?}");
}

#[test]
fn the_rule_of_another_daemon_is_not_taken_over() {
    let hosts = Hosts::new();
    hosts.gateway.run(|| ip("rule add pref 220 lookup 220"));
    let tun = hosts.gateway.run(|| Tun::open(TUN, 1400)).expect("TUN");
    let opened = hosts.gateway.run(|| Guard::open(GuardConfig::default(), tun.ifindex()).map(drop));
    let error = opened.expect_err("a foreign rule");
    assert!(matches!(error, NetlinkError::ForeignRule { priority: 220, family: "IPv4" }), "{error}");
    hosts.gateway.run(|| remove_guard(&GuardConfig::default())).expect("removal");
    assert!(shown(&hosts, "rule").contains("220:"), "it is not ours to remove");
    drop(tun);
    // Another test may be between the fork and the exec of a program, which has a copy of the
    // descriptor.
    eventually("the TUN is removed", || hosts.gateway.run(|| tun::remove(TUN).is_ok_and(|removed| removed)));
}
