//! Whatever happens to the policies, every packet finds the home of its policy.

use super::*;
use crate::prefix;
use proptest::prelude::*;
use std::collections::BTreeSet;
use testudo_ike::config::TsSpec;

/// What may happen to the policies of a node.
#[derive(Clone, Debug)]
enum Event {
    Load(u8, Vec<Child>),
    Unload(u8),
    Install(u64, Vec<TrafficSelector>, Vec<TrafficSelector>, u8),
    Renew(u64, u64, u8),
    Switch(u64, u64, bool),
    Remove(u64),
    Tell,
}

/// Ranges that nest, touch and overlap, some of them for a protocol or for ports only.
fn arb_ts() -> impl Strategy<Value = TrafficSelector> {
    let whole = TrafficSelector { addrs: prefix::whole(true), ..ts(ANY) };
    let range = (0u8..16, 0u8..16).prop_map(|(a, b)| {
        let [start, end] = [a.min(b), a.max(b)].map(|host| [10, 0, 0, host].into());
        TrafficSelector { addrs: AddrRange::new(start, end).expect("in order"), ..ts(ANY) }
    });
    let wide = prop::sample::select(vec!["10.0.0.0/28", "10.0.0.0/29", "10.0.0.8/29", "10.0.0.4/30", ANY]);
    let addrs = prop_oneof![4 => wide.prop_map(ts), 2 => range, 1 => Just(whole)];
    let limit = prop::sample::select(vec![
        (0, 0, u16::MAX),
        (0, 0, u16::MAX),
        (0, 0, u16::MAX),
        (6, 0, u16::MAX),
        (6, 80, 90),
        (6, 85, 85),
        (17, u16::MAX, 0),
    ]);
    (addrs, limit).prop_map(|(ts, (protocol, port_start, port_end))| TrafficSelector {
        protocol,
        port_start,
        port_end,
        ..ts
    })
}

fn arb_side() -> impl Strategy<Value = Vec<TrafficSelector>> {
    prop_oneof![2 => Just(vec![ts(ANY)]), 3 => prop::collection::vec(arb_ts(), 1..3)]
}

fn arb_child() -> impl Strategy<Value = Child> {
    let mode =
        prop::sample::select(vec![ChildMode::Tunnel, ChildMode::Tunnel, ChildMode::Pass, ChildMode::Drop]);
    let specs = |side: Vec<TrafficSelector>| side.into_iter().map(TsSpec::Fixed).collect();
    (mode, arb_side(), arb_side(), prop::sample::select(vec![0, 0, 5])).prop_map(
        move |(mode, local, remote, priority)| Child {
            local_ts: specs(local),
            remote_ts: specs(remote),
            priority,
            ..child("a", mode, ANY, ANY)
        },
    )
}

fn arb_event() -> impl Strategy<Value = Event> {
    let children = prop::collection::vec(arb_child(), 0..3).prop_map(|children| {
        let named = |(n, child)| Child { name: format!("child{n}"), ..child };
        children.into_iter().enumerate().map(named).collect()
    });
    prop_oneof![
        4 => (0u8..4, children).prop_map(|(n, children)| Event::Load(n, children)),
        1 => (0u8..4).prop_map(Event::Unload),
        6 => (0u64..6, arb_side(), arb_side(), 0u8..3)
            .prop_map(|(sa, local, remote, home)| Event::Install(sa, local, remote, home)),
        1 => (0u64..6, 0u64..6, 0u8..3).prop_map(|(sa, old, home)| Event::Renew(sa, old, home)),
        1 => (0u64..6, 0u64..6, any::<bool>()).prop_map(|(old, sa, current)| Event::Switch(old, sa, current)),
        2 => (0u64..6).prop_map(Event::Remove),
        2 => Just(Event::Tell),
    ]
}

/// Packets from here and there to one address: of any kind that selectors can tell from another.
fn packets(remote: IpAddr) -> Vec<PacketSelector> {
    let locals: Vec<IpAddr> = match remote {
        IpAddr::V4(_) => (0..17).map(|host| [10, 0, 0, host].into()).collect(),
        IpAddr::V6(_) => vec![addr("2001:db8::1")],
    };
    let kinds =
        [(1, None), (6, Some((85, 80))), (6, Some((80, 85))), (6, Some((7, 7))), (6, None), (17, None)];
    let packet = |(local, (protocol, ports)): (IpAddr, (u8, Option<(u16, u16)>))| {
        PacketSelector::new(local, remote, Protocol(protocol), ports).expect("one family")
    };
    locals.iter().flat_map(|local| kinds.map(|kind| (*local, kind))).map(packet).collect()
}

/// What all policies say that a packet to the address could meet, whatever comes first.
fn homes_about(policies: &Policies, remote: IpAddr) -> BTreeSet<Shard> {
    let homes = policies.homes.as_ref().expect("a node of a cluster");
    let standing = policies.table.iter().filter(|(id, _)| !policies.resting.contains(id));
    let alike = |range: &AddrRange| range.start().is_ipv4() == remote.is_ipv4();
    let about = standing.filter(|(_, entry)| {
        entry.mode == ChildMode::Tunnel
            && entry.remote_ranges().any(|range| range.contains(remote))
            && entry.local_ranges().any(|range| alike(&range))
    });
    about.map(|(_, entry)| homes.claim(entry).shard).collect()
}

proptest! {
    #[test]
    fn every_packet_finds_the_home_of_its_policy(events in prop::collection::vec(arb_event(), 1..30)) {
        let mut node = Node::new();
        let mut installed: BTreeMap<u64, (ChildSaId, SelectorPair)> = BTreeMap::new();
        let mut places: BTreeMap<ChildSaId, u64> = BTreeMap::new();
        for event in events.into_iter().chain([Event::Tell]) {
            match event {
                Event::Load(n, children) => {
                    node.load(&n.to_string(), children);
                    let outdated: Vec<ChildSaId> = installed.values().map(|(id, _)| *id).collect();
                    node.policies.stand_in(&n.to_string(), &outdated);
                }
                Event::Unload(n) => node.policies.unload(&n.to_string()),
                Event::Install(sa, local, remote, home) if !installed.contains_key(&sa) => {
                    let id = node.install_ts(&local, &remote, home);
                    installed.insert(sa, (id, SelectorPair::new(&local, &remote)));
                }
                Event::Renew(sa, old, home) if !installed.contains_key(&sa) && installed.contains_key(&old) => {
                    let (old, selectors) = installed[&old].clone();
                    node.numbers += 1;
                    let id = ChildSaId(node.numbers);
                    let place = places.get(&old).copied().unwrap_or(old.0);
                    places.insert(id, place);
                    if node.policies.inherit(&new_sa(place, id, None, &selectors, Shard(home)), old).is_some() {
                        installed.insert(sa, (id, selectors));
                    }
                }
                Event::Switch(old, sa, current) => {
                    if let [Some((old, _)), Some((sa, _))] = [installed.get(&old), installed.get(&sa)] {
                        node.policies.switch(*old, *sa, current);
                    }
                }
                Event::Remove(sa) => {
                    if let Some((id, _)) = installed.remove(&sa) {
                        node.policies.remove(id);
                    }
                }
                Event::Tell => {
                    node.tell();
                    check(&node)?;
                }
                Event::Install(..) | Event::Renew(..) => {}
            }
        }
    }
}

fn check(node: &Node) -> std::result::Result<(), TestCaseError> {
    let spd = node.policies.spd().expect("few policies");
    let homes = node.policies.homes.as_ref().expect("a node of a cluster");
    let v4 = (0..17).map(|host| IpAddr::from([10, 0, 0, host]));
    for remote in v4.chain([addr("192.0.2.1"), addr("2001:db8::1")]) {
        let (home, mut is_met) = (node.home_of(remote), false);
        for packet in packets(remote) {
            let Decision::Act(Action::Protect(id)) = spd.lookup(&packet) else { continue };
            let entry = node.policies.table.get(id).expect("a policy that stands");
            let own = PrefixHome::Shard(homes.claim(entry).shard);
            is_met = true;
            prop_assert!(home == own || home == PrefixHome::Ambiguous, "{packet:?}: {home:?}, not {own:?}");
        }
        let about = homes_about(&node.policies, remote);
        if let [only] = about.into_iter().collect::<Vec<_>>()[..]
            && is_met
        {
            prop_assert_eq!(home, PrefixHome::Shard(only), "{}", remote);
        }
    }
    Ok(())
}
