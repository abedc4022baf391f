//! The index against a plain walk through all policies.

use super::*;
use crate::selector::AddrRange;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use testudo_wire::ip::Protocol;

/// A packet as the model sees it.
#[derive(Clone, Copy, Debug)]
struct Probe {
    local: IpAddr,
    remote: IpAddr,
    protocol: u8,
    ports: Option<(u16, u16)>,
}

impl Probe {
    fn selector(&self) -> PacketSelector {
        PacketSelector::new(self.local, self.remote, Protocol(self.protocol), self.ports).unwrap()
    }
}

/// RFC 4301 §4.4.1.1, written down once more.
fn side_matches(selector: &TrafficSelector, addr: IpAddr, protocol: u8, port: Option<u16>) -> bool {
    let any_port = (selector.port_start, selector.port_end) == (0, 65535);
    let opaque = selector.port_start > selector.port_end;
    selector.addrs.contains(addr)
        && [0, protocol].contains(&selector.protocol)
        && match port {
            Some(port) => !opaque && selector.port_start <= port && port <= selector.port_end,
            None => any_port || opaque,
        }
}

fn plain_walk(policies: &[Policy], probe: &Probe) -> Decision {
    let matches = |policy: &&Policy| {
        let (local, remote) = (probe.ports.map(|p| p.0), probe.ports.map(|p| p.1));
        policy.local.iter().any(|ts| side_matches(ts, probe.local, probe.protocol, local))
            && policy.remote.iter().any(|ts| side_matches(ts, probe.remote, probe.protocol, remote))
    };
    let first = policies.iter().filter(matches).min_by_key(|policy| policy.priority);
    first.map_or(Decision::NoPolicy, |policy| Decision::Act(policy.action))
}

fn v4(last: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 | last))
}

/// Few addresses, so that selectors overlap, touch and nest; the ends of the address space too.
fn address(v6: bool) -> BoxedStrategy<IpAddr> {
    if v6 {
        let v6 = |bits: u128| IpAddr::V6(Ipv6Addr::from_bits(bits));
        let near = (0u128..40).prop_map(move |last| v6(0x2001_0db8 << 96 | last));
        prop_oneof![8 => near, 1 => Just(v6(0)), 1 => Just(v6(u128::MAX)), 1 => Just(v6(0x0a00_0000))].boxed()
    } else {
        let ends = prop::sample::select(vec![Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST]);
        prop_oneof![8 => (0u32..40).prop_map(v4), 1 => ends.prop_map(IpAddr::V4)].boxed()
    }
}

fn selector() -> impl Strategy<Value = TrafficSelector> {
    let ports = prop_oneof![
        3 => Just((0, 65535)),
        1 => Just((65535, 0)),
        1 => Just((0, 0)),
        2 => (0u16..5, 0u16..5).prop_map(|(a, b)| (a.min(b), a.max(b))),
    ];
    let addrs = any::<bool>().prop_flat_map(|v6| (address(v6), address(v6)));
    (addrs, prop::sample::select(vec![0, 0, 6, 17]), ports).prop_map(
        |((a, b), protocol, (port_start, port_end))| {
            let addrs = AddrRange::new(a.min(b), a.max(b)).unwrap();
            TrafficSelector { addrs, protocol, port_start, port_end }
        },
    )
}

fn policies(max: usize) -> impl Strategy<Value = Vec<Policy>> {
    let list = || prop::collection::vec(selector(), 1..4);
    let policy = (0u32..6, list(), list(), 0u8..4);
    prop::collection::vec(policy, 0..max).prop_map(|all| {
        all.into_iter()
            .zip(0..)
            .map(|((priority, local, remote, action), number)| {
                let action = match action {
                    0 => Action::Bypass,
                    1 => Action::Discard,
                    _ => Action::Protect(PolicyId(number)),
                };
                Policy { priority, local, remote, action }
            })
            .collect()
    })
}

fn probe() -> impl Strategy<Value = Probe> {
    let addrs = any::<bool>().prop_flat_map(|v6| (address(v6), address(v6)));
    let protocol = prop::sample::select(vec![0, 6, 17, 50]);
    let ports = prop::option::of((0u16..6, 0u16..6));
    (addrs, protocol, ports).prop_map(|((local, remote), protocol, ports)| Probe {
        local,
        remote,
        protocol,
        ports,
    })
}

/// Whether a packet without ports is one that a policy which stands before its own would want, had
/// it certain ports.
fn plainly_needs_ports(policies: &[Policy], later: &Probe) -> bool {
    let mut ordered: Vec<&Policy> = policies.iter().collect();
    ordered.sort_by_key(|policy| policy.priority);
    let unknown = later.protocol == 0 && later.remote.is_ipv6();
    let takes = |side: &[TrafficSelector], addr, as_it_is: bool| {
        side.iter().any(|ts| match as_it_is {
            true => side_matches(ts, addr, later.protocol, None),
            false => ts.addrs.contains(addr) && (unknown || [0, later.protocol].contains(&ts.protocol)),
        })
    };
    let matches = |policy: &Policy, as_it_is| {
        takes(&policy.local, later.local, as_it_is) && takes(&policy.remote, later.remote, as_it_is)
    };
    let wants = |policy: &Policy| {
        let opaque =
            |ts: &TrafficSelector, addr| ts.is_opaque() && side_matches(ts, addr, later.protocol, None);
        policy.local.iter().any(|ts| opaque(ts, later.local))
            || policy.remote.iter().any(|ts| opaque(ts, later.remote))
    };
    let first = ordered.iter().position(|policy| matches(policy, true));
    let before = &ordered[..first.unwrap_or(ordered.len())];
    !first.is_some_and(|first| wants(ordered[first])) && before.iter().any(|policy| matches(policy, false))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn fragments_that_need_no_ports_go_the_way_of_their_datagram(
        policies in policies(24), probes in prop::collection::vec(probe(), 1..40)
    ) {
        let spd = Spd::new(policies.clone()).unwrap();
        for probe in &probes {
            let later = Probe { ports: None, ..*probe };
            let needs = spd.needs_ports(&later.selector());
            prop_assert_eq!(needs, plainly_needs_ports(&policies, &later), "{:?}", probe);
            let opaque = |policy: &Policy| policy.local.iter().chain(&policy.remote).any(|ts| ts.is_opaque());
            if !needs && !policies.iter().any(opaque) && probe.protocol != 0 {
                prop_assert_eq!(spd.lookup(&probe.selector()), spd.lookup(&later.selector()), "{:?}", probe);
            }
        }
        // Taking out what was put in leaves nothing that asks.
        let mut spd = spd;
        for (place, policy) in (0..).zip(&policies) {
            let selectors = SelectorPair::new(&policy.local, &policy.remote);
            let rank = Rank { priority: policy.priority, place, part: 0 };
            prop_assert!(spd.remove(rank, &selectors));
        }
        prop_assert_eq!(spd.with_ports, 0);
    }

    #[test]
    fn decides_like_the_plain_walk(
        policies in policies(24), probes in prop::collection::vec(probe(), 1..40)
    ) {
        let spd = Spd::new(policies.clone()).unwrap();
        for probe in &probes {
            prop_assert_eq!(spd.lookup(&probe.selector()), plain_walk(&policies, probe), "{:?}", probe);
        }
    }

    #[test]
    fn decides_like_the_plain_walk_when_most_policies_are_broad(
        narrow in 60u32..200, broad in policies(12), probes in prop::collection::vec(probe(), 1..40)
    ) {
        // Enough narrow policies that a broad one covers more segments than the index takes.
        let mut all = broad;
        let number = all.len() as u32;
        all.extend((0..narrow).map(|n| one_to_one(PolicyId(number + n), n % 40 + 100, n % 40)));
        let spd = Spd::new(all.clone()).unwrap();
        for probe in &probes {
            prop_assert_eq!(spd.lookup(&probe.selector()), plain_walk(&all, probe), "{:?}", probe);
        }
    }
}

/// A policy between two single addresses.
fn one_to_one(id: PolicyId, local: u32, remote: u32) -> Policy {
    let single = |addr: IpAddr| TrafficSelector::all(AddrRange::new(addr, addr).unwrap());
    Policy {
        priority: 3,
        local: vec![single(v4(local))],
        remote: vec![single(v4(remote))],
        action: Action::Protect(id),
    }
}

fn everything(priority: u32, action: Action) -> Policy {
    let addrs = AddrRange::new(Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into()).unwrap();
    let all = vec![TrafficSelector::all(addrs)];
    Policy { priority, local: all.clone(), remote: all, action }
}

#[test]
fn ten_thousand_road_warriors_behind_one_net() {
    const COUNT: u32 = 10_000;
    let mut policies: Vec<_> = (0..COUNT)
        .map(|n| Policy { local: everything(0, Action::Bypass).local, ..one_to_one(PolicyId(n), 0, n) })
        .collect();
    policies.push(everything(9, Action::Discard));
    let spd = Spd::new(policies).unwrap();
    assert_eq!(spd.len(), COUNT as usize + 1);
    assert!(spd.index.longest_walk() <= 2, "{}", spd.index.longest_walk());
    for remote in (0..COUNT).step_by(97) {
        let probe = Probe { local: v4(1 << 20), remote: v4(remote), protocol: 6, ports: Some((1, 2)) };
        assert_eq!(spd.lookup(&probe.selector()), Decision::Act(Action::Protect(PolicyId(remote))));
    }
    let probe = Probe { local: v4(1), remote: v4(COUNT), protocol: 6, ports: Some((1, 2)) };
    assert_eq!(spd.lookup(&probe.selector()), Decision::Act(Action::Discard));
}

#[test]
fn narrow_on_our_side_only() {
    const COUNT: u32 = 5_000;
    let everywhere = everything(0, Action::Bypass).remote;
    let policies = (0..COUNT).map(|n| Policy { remote: everywhere.clone(), ..one_to_one(PolicyId(n), n, 0) });
    // A policy cut on the remote side makes the others broad there.
    let finely_cut = (0..200).map(|n| one_to_one(PolicyId(COUNT + n), 1 << 21, n * 2));
    let spd = Spd::new(policies.chain(finely_cut).collect()).unwrap();
    assert!(spd.index.longest_walk() <= 2, "{}", spd.index.longest_walk());
    let probe = Probe { local: v4(4321), remote: v4(77), protocol: 6, ports: None };
    assert_eq!(spd.lookup(&probe.selector()), Decision::Act(Action::Protect(PolicyId(4321))));
}

/// Many tunnels to one address, or from one, that are equally narrow on both sides; then they go,
/// whatever stands where.
#[test]
fn many_share_one_address_and_differ_on_the_other_side() {
    const COUNT: u32 = 2_000;
    let to_one = |n| one_to_one(PolicyId(n), n, 1 << 20);
    let from_one = |n| one_to_one(PolicyId(COUNT + n), 1 << 21, n);
    let mut spd = Spd::empty();
    let policies: Vec<Policy> = (0..COUNT).flat_map(|n| [to_one(n), from_one(n)]).collect();
    for (place, policy) in (0..).zip(&policies) {
        let selectors = SelectorPair::new(&policy.local, &policy.remote);
        spd.insert(Rank { priority: policy.priority, place, part: 0 }, &selectors, policy.action).unwrap();
    }
    assert!(spd.index.longest_walk() <= 4, "{}", spd.index.longest_walk());
    let decision = |spd: &Spd, local, remote| {
        spd.lookup(&Probe { local: v4(local), remote: v4(remote), protocol: 6, ports: None }.selector())
    };
    for n in (0..COUNT).step_by(97) {
        assert_eq!(decision(&spd, n, 1 << 20), Decision::Act(Action::Protect(PolicyId(n))));
        assert_eq!(decision(&spd, 1 << 21, n), Decision::Act(Action::Protect(PolicyId(COUNT + n))));
    }
    for (place, policy) in (0..).zip(&policies) {
        let selectors = SelectorPair::new(&policy.local, &policy.remote);
        assert!(spd.remove(Rank { priority: policy.priority, place, part: 0 }, &selectors));
    }
    assert!(spd.is_empty() && spd.index.longest_walk() == 0);
}

#[test]
fn equals_keep_their_order() {
    let spd = Spd::new(vec![everything(5, Action::Bypass), everything(5, Action::Discard)]).unwrap();
    let probe = Probe { local: v4(1), remote: v4(2), protocol: 6, ports: None };
    assert_eq!(spd.lookup(&probe.selector()), Decision::Act(Action::Bypass));
}

#[test]
fn refuses_numbers_that_do_not_fit_and_sides_without_selectors() {
    let one = |id| one_to_one(PolicyId(id), 1, 2);
    assert_eq!(Spd::new(vec![one(4), one(5), one(4)]).unwrap_err(), Error::DuplicatePolicy(PolicyId(4)));
    let found = PolicyId(PolicyId::LIMIT);
    assert_eq!(Spd::new(vec![one(PolicyId::LIMIT)]).unwrap_err(), Error::PolicyNumber { found });
    let mut bare = one(1);
    bare.remote.clear();
    assert_eq!(Spd::new(vec![bare]).unwrap_err(), Error::NoSelectors { side: "remote" });
    assert!(Spd::empty().is_empty());
}
