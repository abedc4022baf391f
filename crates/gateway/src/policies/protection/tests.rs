//! What is held back, and what is not, from connections as an operator writes them.

use crate::policies::tests::{HOME, child, connection, ts};
use crate::policies::*;
use crate::prefix;
use crate::prefix_map::PrefixSet;
use std::net::{IpAddr, Ipv6Addr};
use testudo_base::prefix::Prefix;
use testudo_ike::config::TsSpec;
use testudo_ipsec::selector::TrafficSelector;

fn prefix(text: &str) -> Prefix {
    text.parse().expect(text)
}

fn prefixes(texts: &[&str]) -> PrefixSet {
    texts.iter().map(|text| prefix(text)).collect()
}

#[test]
fn what_is_loaded_is_held_back_before_there_is_an_sa() {
    let mut policies = Policies::default();
    policies.load(&connection(vec![
        child("net", ChildMode::Tunnel, "10.1.0.0/16", "10.0.0.0/8"),
        child("pass", ChildMode::Pass, "10.1.0.0/16", "192.0.2.0/24"),
    ]));
    let protection = policies.protection();
    assert_eq!(protection.protected, [prefix("10.0.0.0/8")].into());
    assert_eq!(protection.local, [prefix("10.1.0.0/16")].into());
    assert_eq!(protection.both, PrefixSet::default());
}

const DYNAMIC: TsSpec = TsSpec::Dynamic { protocol: 0, port_start: 0, port_end: u16::MAX };

/// swanctl's default for both selectors.
#[test]
fn dynamic_selectors_hold_back_too() {
    let mut policies = Policies::default();
    let mut net = child("net", ChildMode::Tunnel, "10.1.0.0/16", "10.2.0.0/16");
    net.local_ts = vec![DYNAMIC];
    let mut host = child("host", ChildMode::Tunnel, "10.1.0.0/16", "10.3.0.0/16");
    host.remote_ts = vec![DYNAMIC];
    let mut gw = connection(vec![net, host.clone()]);
    let peer = "192.0.2.2".parse().unwrap();
    gw.remote_addrs = vec![AddrRange::new(peer, peer).unwrap()];
    policies.load(&gw);
    let protection = policies.protection();
    assert_eq!(protection.protected, [prefix("10.2.0.0/16"), prefix("192.0.2.2/32")].into());
    assert!(protection.local.contains_key(&prefix("0.0.0.0/0")));
    assert_eq!(protection.both, PrefixSet::default());
    assert_eq!(policies.spd().unwrap().len(), 2);
    // A peer that may come from anywhere.
    gw.remote_addrs.clear();
    gw.children = vec![host];
    policies.load(&gw);
    assert!(policies.spd().unwrap().is_empty());
}

#[test]
fn a_prefix_on_both_sides_of_one_policy_is_known() {
    let mut policies = Policies::default();
    policies.load(&connection(vec![
        child("any", ChildMode::Tunnel, "0.0.0.0/0", "0.0.0.0/0"),
        child("a", ChildMode::Tunnel, "10.1.0.0/16", "10.2.0.0/16"),
        child("b", ChildMode::Tunnel, "10.2.0.0/16", "10.1.0.0/16"),
    ]));
    assert_eq!(policies.protection().both, [prefix("0.0.0.0/0")].into());
}

/// A peer narrows our side of an SA as it likes: that must open nothing.
#[test]
fn an_sa_adds_nothing_to_our_side() {
    let mut policies = Policies::default();
    policies.load(&connection(vec![child("net", ChildMode::Tunnel, "10.1.0.0/16", "10.2.0.0/16")]));
    let before = policies.protection().local;
    policies.install(
        ChildSaId(1),
        None,
        &SelectorPair::new(&[ts("10.2.5.0/24")], &[ts("10.3.0.0/16")]),
        HOME,
    );
    assert_eq!(policies.protection().local, before);
}

/// Which of our addresses are held back from everybody.
#[test]
fn our_side_of_policies_for_everything_is_known() {
    let mut policies = Policies::default();
    let mut full = child("full", ChildMode::Tunnel, "10.1.0.0/16", "0.0.0.0/0");
    full.local_ts.push(TsSpec::Fixed(TrafficSelector { addrs: prefix::whole(true), ..ts("0.0.0.0/0") }));
    policies.load(&connection(vec![
        full,
        child("site", ChildMode::Tunnel, "10.7.0.0/16", "10.2.0.0/16"),
        child("pass", ChildMode::Pass, "192.0.2.1/32", "0.0.0.0/0"),
    ]));
    let protection = policies.protection();
    assert_eq!(protection.selected, prefixes(&["10.1.0.0/16"]), "of IPv6 it takes nothing");
    assert_eq!(protection.selected_by_sas, PrefixSet::default());
    // What stands in its own prefix asks for none of our addresses; what stands on everything does.
    let host = |own: &str, remote: &str| SelectorPair::new(&[ts(own)], &[ts(remote)]);
    policies.install(ChildSaId(1), None, &host("10.7.0.1/32", "10.2.0.9/32"), HOME);
    policies.install(ChildSaId(2), None, &host("192.0.2.1/32", "198.51.100.7/32"), HOME);
    assert_eq!(policies.protection().selected_by_sas, prefixes(&["192.0.2.1/32"]));
    policies.remove(ChildSaId(2));
    assert_eq!(policies.protection().selected_by_sas, PrefixSet::default());
    let of_ipv6 = SelectorPair::new(&[ts("192.0.2.1/32")], &odd_ranges());
    policies.install(ChildSaId(3), None, &of_ipv6, HOME);
    assert_eq!(policies.protection().selected_by_sas, PrefixSet::default(), "IPv4 carries nothing");
}

/// What a connection has held back stays shut beside a tunnel for everything too: that holds
/// nothing back from this host itself.
#[test]
fn what_is_given_up_beside_a_tunnel_for_everything_is_abandoned() {
    let mut policies = Policies::default();
    let net = |local: &str, remote: &str| child("net", ChildMode::Tunnel, local, remote);
    let named = |name: &str, child: Child| Connection { name: name.into(), ..connection(vec![child]) };
    policies.load(&named("full", net("10.1.0.0/16", "0.0.0.0/0")));
    policies.load(&named("other", net("10.9.0.0/16", "0.0.0.0/0")));
    policies.load(&named("site", net("192.0.2.1/32", "198.51.100.7/32")));
    policies.take_abandoned();
    policies.unload("site");
    let of = |remote: &[&str], local: &[&str]| Abandoned {
        remote: remote.iter().map(|text| prefix(text)).collect(),
        local: local.iter().map(|text| prefix(text)).collect(),
    };
    assert_eq!(policies.take_abandoned(), of(&["198.51.100.7/32"], &[]));
    policies.unload("other");
    assert_eq!(policies.take_abandoned(), of(&[], &["10.9.0.0/16"]));
    // More of our side, then less.
    policies.load(&named("full", net("10.0.0.0/8", "0.0.0.0/0")));
    assert_eq!(policies.take_abandoned(), of(&[], &[]));
    policies.load(&named("full", net("10.1.0.0/16", "0.0.0.0/0")));
    assert_eq!(policies.take_abandoned(), of(&[], &["10.0.0.0/8"]));
}

/// 64 ranges of IPv6 whose ends fit no prefix: as many as a peer can put into the selectors of one
/// SA.
fn odd_ranges() -> Vec<TrafficSelector> {
    let addr =
        |n: u16, rest: u16| IpAddr::from(Ipv6Addr::new(n, rest, rest, rest, rest, rest, rest, rest ^ 1));
    let range = |n: u16| AddrRange::new(addr(n * 0x0400, 0), addr(n * 0x0400 + 0x3ff, 0xffff)).unwrap();
    (0..64).map(|n| TrafficSelector::all(range(n))).collect()
}

#[test]
fn what_a_peer_narrows_an_sa_to_needs_no_room_of_its_own() {
    let mut policies = Policies::default();
    let mut net = child("net", ChildMode::Tunnel, "10.1.0.0/16", "10.2.0.0/16");
    let everything = TrafficSelector { addrs: prefix::whole(true), ..ts("0.0.0.0/0") };
    net.remote_ts.push(TsSpec::Fixed(everything));
    policies.load(&connection(vec![net.clone()]));
    let before = policies.protection();
    policies.install(ChildSaId(1), Some(&net), &SelectorPair::new(&[ts("10.1.0.0/16")], &odd_ranges()), HOME);
    assert_eq!(policies.protection(), before);
    // The connection goes; what its SA carries stays held back, and takes little room.
    policies.unload("gw");
    let protected = policies.protection().protected;
    assert!((64..=128).contains(&protected.len()), "{}", protected.len());
    for range in odd_ranges() {
        for addr in [range.addrs.start(), range.addrs.end()] {
            assert!(protected.keys().any(|p| p.contains(addr)), "{addr}");
        }
    }
}

#[test]
fn an_sa_with_a_peer_that_was_not_known_before_is_held_back() {
    let mut policies = Policies::default();
    policies.load(&connection(vec![child("net", ChildMode::Tunnel, "10.1.0.0/16", "10.2.0.0/16")]));
    policies.install(
        ChildSaId(1),
        None,
        &SelectorPair::new(&[ts("10.1.0.0/16")], &[ts("10.2.3.0/24"), ts("198.51.100.7/32")]),
        HOME,
    );
    assert_eq!(policies.protection().protected, prefixes(&["10.2.0.0/16", "198.51.100.7/32"]));
}

/// All of it, and by whomever: by a child, by two that share it, and by an SA whose connection is
/// gone.
#[test]
fn who_protects_a_prefix_is_named() {
    let mut policies = Policies::default();
    let net = child("net", ChildMode::Tunnel, "10.1.0.0/16", "10.2.0.0/16");
    policies.load(&connection(vec![
        net.clone(),
        child("low", ChildMode::Drop, "10.1.0.0/16", "10.3.0.0/17"),
        child("high", ChildMode::Tunnel, "10.1.0.0/16", "10.3.128.0/17"),
        child("open", ChildMode::Pass, "10.1.0.0/16", "10.4.0.0/16"),
    ]));
    let by = |policies: &Policies, prefix: &str| {
        let prefix = prefix.parse().unwrap();
        let connections: Vec<String> = policies.connections_holding(&prefix).map(str::to_owned).collect();
        assert_eq!(policies.is_held_by_sas(&prefix), policies.sa_holding(&prefix).is_some());
        (connections.join(" "), policies.sa_holding(&prefix))
    };
    let (gw, both, nobody) = (("gw".to_owned(), None), ("gw gw".to_owned(), None), (String::new(), None));
    for prefix in ["10.2.0.0/16", "10.2.3.0/24", "10.3.1.0/24"] {
        assert_eq!(by(&policies, prefix), gw, "{prefix}");
    }
    assert_eq!(by(&policies, "10.3.0.0/16"), both);
    for prefix in ["10.0.0.0/8", "10.4.0.0/16", "10.4.1.0/24", "fd00::/8"] {
        assert_eq!(by(&policies, prefix), nobody, "{prefix}");
    }
    let sides = SelectorPair::new(&[ts("10.1.0.0/16")], &[ts("10.2.0.0/16")]);
    policies.install(ChildSaId(7), Some(&net), &sides, HOME);
    assert_eq!(by(&policies, "10.2.3.0/24"), gw);
    policies.unload("gw");
    assert_eq!(by(&policies, "10.2.3.0/24"), (String::new(), Some(ChildSaId(7))));
    policies.remove(ChildSaId(7));
    assert_eq!(by(&policies, "10.2.3.0/24"), nobody);
}

/// Wholly passed, and passed in part.
fn passed(children: Vec<Child>) -> [PrefixSet; 2] {
    let mut policies = Policies::default();
    policies.load(&connection(children));
    let protection = policies.protection();
    [protection.passed, protection.passed_in_part]
}

#[test]
fn a_bypass_counts_wholly_if_no_policy_about_its_prefix_goes_beyond_it() {
    let tunnel = child("tunnel", ChildMode::Tunnel, "10.1.0.0/16", "10.0.0.0/8");
    let pass = |local: &str| child("pass", ChildMode::Pass, local, "10.5.0.0/16");
    let [wholly, none] = [prefixes(&["10.5.0.0/16"]), prefixes(&[])];
    assert_eq!(passed(vec![tunnel.clone(), pass("10.1.0.0/16")]), [wholly.clone(), none.clone()]);
    assert_eq!(passed(vec![tunnel.clone(), pass("0.0.0.0/0")]), [wholly.clone(), none.clone()]);
    // Others than those who may pass are protected.
    assert_eq!(passed(vec![tunnel.clone(), pass("10.1.2.0/24")]), [none.clone(), wholly.clone()]);
    // Another policy comes first.
    let mut first = child("first", ChildMode::Drop, "10.1.0.0/16", "10.5.6.7/32");
    first.priority = 7;
    assert_eq!(passed(vec![tunnel.clone(), pass("10.1.0.0/16"), first]), [none.clone(), wholly.clone()]);
    // Prefixes cannot tell ports: the policies are asked.
    let mut web = pass("10.1.0.0/16");
    web.remote_ts = vec![TsSpec::Fixed(TrafficSelector { protocol: 6, ..ts("10.5.0.0/16") })];
    assert_eq!(passed(vec![tunnel.clone(), web]), [none.clone(), wholly.clone()]);
    let mut from_web = pass("10.1.0.0/16");
    from_web.local_ts = vec![TsSpec::Fixed(TrafficSelector { protocol: 6, ..ts("10.1.0.0/16") })];
    assert_eq!(passed(vec![tunnel, from_web]), [none, wholly]);
}

/// Where a packet says who the peer is, all hosts are held back, those on our own links too.
#[test]
fn a_trap_for_anybody_holds_everybody_back() {
    let mut net = child("net", ChildMode::Transport, "10.1.0.0/16", "10.2.0.0/16");
    (net.local_ts, net.remote_ts) = (vec![DYNAMIC], vec![DYNAMIC]);
    let mut policies = Policies::default();
    policies.load(&connection(vec![net.clone()]));
    assert_eq!(policies.protection(), Protection::default(), "without a trap nothing is known");
    net.start_action = net.start_action.with_trap(true);
    policies.load(&connection(vec![net.clone()]));
    let everything = prefixes(&["0.0.0.0/0", "::/0"]);
    let protection = policies.protection();
    assert_eq!((&protection.protected, &protection.anybody), (&everything, &everything));
    // With a peer of its own it is a trap like others.
    let mut single = connection(vec![net]);
    let peer: IpAddr = "192.0.2.9".parse().unwrap();
    single.remote_addrs = vec![AddrRange::new(peer, peer).unwrap()];
    policies.load(&single);
    let protection = policies.protection();
    assert_eq!(
        (protection.protected, protection.anybody),
        (prefixes(&["192.0.2.9/32"]), PrefixSet::default())
    );
}

/// A shunt that is not installed holds nothing back and opens nothing.
#[test]
fn shunts_stand_when_they_are_installed() {
    let mut shunts =
        [ChildMode::Pass, ChildMode::Drop].map(|mode| child("shunt", mode, "10.1.0.0/16", "10.2.0.0/16"));
    for shunt in &mut shunts {
        let mut policies = Policies::default();
        policies.load(&connection(vec![shunt.clone()]));
        assert_eq!(policies.spd().unwrap().len(), 1);
        shunt.start_action = shunt.start_action.with_trap(false);
        policies.load(&connection(vec![shunt.clone()]));
        assert_eq!(policies.spd().unwrap().len(), 0);
        assert_eq!(policies.protection(), Protection::default());
    }
}
