//! What is kept as policies come and go is what they come to when all are looked at; and what that
//! costs.

use crate::policies::addr_set::{AddrSet, overlap};
use crate::policies::table::PolicyEntry;
use crate::policies::tests::{HOME, child, connection, new_sa, ts};
use crate::policies::*;
use crate::prefix::{self, cover, cover_within, covers, last_address, whole};
use crate::prefix_map::meter;
use proptest::prelude::*;
use std::collections::BTreeSet;
use testudo_base::prefix::Prefix;
use testudo_ike::config::TsSpec;
use testudo_ipsec::selector::TrafficSelector;

/// The same from all policies, whatever has been before.
fn worked_out(policies: &Policies) -> Protection {
    let standing = policies.table.iter().filter(|(id, _)| !policies.resting.contains(id));
    let all: Vec<&PolicyEntry> = standing.map(|(_, entry)| entry).collect();
    let (sas, configured): (Vec<&PolicyEntry>, Vec<&PolicyEntry>) =
        all.iter().partition(|entry| entry.is_of_sa());
    let mut protection = Protection::default();
    let add = |set: &mut crate::prefix_map::PrefixSet, range: &AddrRange| {
        for prefix in cover(range) {
            set.insert(prefix, ());
        }
    };
    for entry in configured.iter().filter(|entry| entry.holds_back()) {
        let remote: BTreeSet<Prefix> = entry.remote_ranges().flat_map(|range| cover(&range)).collect();
        for prefix in entry.named().iter().flat_map(cover).filter(|prefix| remote.contains(prefix)) {
            protection.both.insert(prefix, ());
        }
        entry.remote_ranges().for_each(|range| add(&mut protection.protected, &range));
        entry.remote_ranges().for_each(|range| add(&mut protection.held, &range));
        entry.local_ranges().for_each(|range| add(&mut protection.local, &range));
        let is_wide = |own: &AddrRange| entry.remote_ranges().any(|r| r == whole(!own.start().is_ipv4()));
        entry.local_ranges().filter(is_wide).for_each(|range| add(&mut protection.selected, &range));
    }
    for (id, of) in &policies.outline.wide {
        let sa = policies.table.get(*id).expect("a policy");
        let counts = |range: &AddrRange| of[usize::from(!range.start().is_ipv4())];
        let ranges: Vec<AddrRange> = sa.local_ranges().filter(counts).collect();
        let limit = 64usize.checked_div(ranges.len()).unwrap_or_default();
        for prefix in ranges.iter().flat_map(|range| cover_within(range, limit)) {
            protection.selected_by_sas.insert(prefix, ());
        }
    }
    let held: AddrSet = configured
        .iter()
        .filter(|entry| entry.holds_back())
        .flat_map(|entry| entry.remote_ranges())
        .collect();
    for sa in sas {
        let more: Vec<AddrRange> = sa.remote_ranges().filter(|range| !held.holds(range)).collect();
        let limit = 64usize.checked_div(more.len()).unwrap_or_default();
        for prefix in more.iter().flat_map(|range| cover_within(range, limit)) {
            protection.protected.insert(prefix, ());
        }
    }
    for bypass in configured.iter().filter(|entry| !entry.holds_back()) {
        let unlimited = |ts: &TrafficSelector| ts.protocol == 0 && ts.is_any_port();
        let local: AddrSet =
            bypass.selectors.local_selectors().filter(unlimited).map(|ts| ts.addrs).collect();
        for ts in bypass.selectors.remote_selectors() {
            let sides = |entry: &PolicyEntry| {
                let v4 = ts.addrs.start().is_ipv4();
                entry.local_ranges().filter(|own| own.start().is_ipv4() == v4).all(|own| local.holds(&own))
            };
            let concerned =
                |entry: &&&PolicyEntry| entry.remote_ranges().any(|remote| overlap(&remote, &ts.addrs));
            let mut rivals = all.iter().filter(|entry| entry.holds_back()).filter(concerned);
            let wholly = rivals.all(|entry| bypass.rank.priority < entry.rank.priority && sides(entry));
            let is_limited = local.is_empty() || !unlimited(&ts);
            let set = match wholly && !is_limited {
                true => &mut protection.passed,
                false => &mut protection.passed_in_part,
            };
            add(set, &ts.addrs);
        }
    }
    protection
}

/// Our ranges and the prefixes that they are carried to, from all policies that stand.
fn all_senders(policies: &Policies) -> BTreeSet<(AddrRange, Prefix)> {
    let standing = policies.table.iter().filter(|(id, _)| !policies.resting.contains(id));
    let of = |(_, entry): (PolicyId, &PolicyEntry)| -> Vec<(AddrRange, Prefix)> {
        let everything = [prefix::whole(false), prefix::whole(true)];
        let local = entry.senders().filter(|range| !everything.contains(range));
        let pairs = local.flat_map(|range| {
            let remote = entry.remote_ranges().flat_map(|remote| cover(&remote));
            let alike = move |to: &Prefix| to.is_ipv4() == range.start().is_ipv4();
            remote.filter(alike).map(move |to| (range, to)).collect::<Vec<_>>()
        });
        pairs.collect()
    };
    standing.flat_map(of).collect()
}

/// What may happen to policies.
#[derive(Clone, Debug)]
enum Event {
    Load(u8, Vec<Child>, bool),
    Unload(u8),
    Install(u64, Vec<TrafficSelector>),
    Renew(u64, u64),
    Switch(u64, u64, bool),
    Remove(u64),
    Pool(bool),
    Look,
}

/// Ranges that nest, touch and overlap.
fn arb_ts() -> impl Strategy<Value = TrafficSelector> {
    let prefix =
        prop::sample::select(vec!["10.0.0.0/28", "10.0.0.0/29", "10.0.0.8/29", "10.0.0.4/30", "0.0.0.0/0"])
            .prop_map(ts);
    let range = (0u8..16, 0u8..16).prop_map(|(a, b)| {
        let [start, end] = [a.min(b), a.max(b)].map(|host| [10, 0, 0, host].into());
        TrafficSelector { addrs: AddrRange::new(start, end).expect("in order"), ..ts("0.0.0.0/0") }
    });
    let limited = Just(TrafficSelector { protocol: 6, ..ts("10.0.0.0/29") });
    prop_oneof![3 => prefix, 3 => range, 1 => limited, 1 => Just(TrafficSelector { addrs: prefix::whole(true), ..ts("0.0.0.0/0") })]
}

fn arb_child() -> impl Strategy<Value = Child> {
    let spec = || {
        let dynamic = TsSpec::Dynamic { protocol: 0, port_start: 0, port_end: u16::MAX };
        prop::collection::vec(prop_oneof![5 => arb_ts().prop_map(TsSpec::Fixed), 1 => Just(dynamic)], 1..3)
    };
    let mode =
        prop::sample::select(vec![ChildMode::Tunnel, ChildMode::Tunnel, ChildMode::Pass, ChildMode::Drop]);
    let name = prop::sample::select(vec!["a", "b"]);
    (name, mode, spec(), spec(), prop::sample::select(vec![0, 0, 5])).prop_map(
        |(name, mode, local, remote, priority)| Child {
            local_ts: local,
            remote_ts: remote,
            priority,
            ..child(name, mode, "0.0.0.0/0", "0.0.0.0/0")
        },
    )
}

fn arb_event() -> impl Strategy<Value = Event> {
    let children = prop::collection::vec(arb_child(), 0..3).prop_map(|mut children| {
        children.dedup_by(|a, b| a.name == b.name);
        children
    });
    prop_oneof![
        4 => (0u8..4, children, any::<bool>()).prop_map(|(n, children, pool)| Event::Load(n, children, pool)),
        2 => (0u8..4).prop_map(Event::Unload),
        4 => (0u64..6, prop::collection::vec(arb_ts(), 1..3)).prop_map(|(sa, remote)| Event::Install(sa, remote)),
        1 => (0u64..6, 0u64..6).prop_map(|(sa, old)| Event::Renew(sa, old)),
        1 => (0u64..6, 0u64..6, any::<bool>()).prop_map(|(old, sa, current)| Event::Switch(old, sa, current)),
        2 => (0u64..6).prop_map(Event::Remove),
        1 => any::<bool>().prop_map(Event::Pool),
        2 => Just(Event::Look),
    ]
}

proptest! {
    #[test]
    fn it_is_as_if_worked_out_anew(events in prop::collection::vec(arb_event(), 1..40)) {
        let mut policies = Policies::default();
        let mut followed = Protection::default();
        let mut senders = BTreeSet::new();
        let mut loaded = BTreeMap::new();
        let mut installed: BTreeMap<u64, (ChildSaId, SelectorPair)> = BTreeMap::new();
        // All that has been abandoned so far, and so stays shut.
        let mut shut = BTreeSet::new();
        // No two SAs ever have one number.
        let mut numbers = (1..).map(ChildSaId);
        let pool = Pool {
            name: "road".into(),
            base: "10.0.0.0".parse().expect("an address"),
            addrs: ts("10.0.0.8/29").addrs,
            dns: vec![],
            subnets: vec![],
        };
        for event in events {
            let held = |policies: &Policies| -> BTreeSet<Prefix> {
                let holding = policies.table.iter().filter(|(_, entry)| !entry.is_of_sa() && entry.holds_back());
                holding.flat_map(|(_, entry)| entry.remote_ranges()).flat_map(|range| cover(&range)).collect()
            };
            let before = held(&policies);
            let selected_before = policies.protection().selected;
            policies.take_abandoned();
            match event {
                Event::Load(n, children, pool) => {
                    let pools = if pool { vec!["road".to_owned()] } else { vec![] };
                    let connection = Connection { name: n.to_string(), pools, ..connection(children) };
                    policies.load(&connection);
                    let outdated: Vec<ChildSaId> = installed.values().map(|(id, _)| *id).collect();
                    policies.stand_in(&connection.name, &outdated);
                    loaded.insert(n, connection);
                }
                Event::Unload(n) => {
                    policies.unload(&n.to_string());
                    loaded.remove(&n);
                }
                Event::Install(sa, remote) if !installed.contains_key(&sa) => {
                    let selectors = SelectorPair::new(&[ts("10.0.0.0/29")], &remote);
                    let id = numbers.next().expect("without end");
                    policies.install(id, None, &selectors, HOME);
                    installed.insert(sa, (id, selectors));
                }
                Event::Renew(sa, old) if !installed.contains_key(&sa) && installed.contains_key(&old) => {
                    let (old, selectors) = installed[&old].clone();
                    let id = numbers.next().expect("without end");
                    prop_assert!(policies.inherit(&new_sa(id.0, id, None, &selectors, HOME), old).is_some());
                    installed.insert(sa, (id, selectors));
                }
                Event::Switch(old, sa, current) => {
                    if let [Some((old, _)), Some((sa, _))] = [installed.get(&old), installed.get(&sa)] {
                        policies.switch(*old, *sa, current);
                    }
                }
                Event::Remove(sa) => {
                    if let Some((id, _)) = installed.remove(&sa) {
                        policies.remove(id);
                    }
                }
                Event::Pool(there) => {
                    if there { policies.load_pool(&pool) } else { policies.unload_pool("road") }
                    loaded.values().for_each(|connection| policies.load(connection));
                }
                Event::Look => {
                    policies.take_differences().into_iter().for_each(|difference| followed.apply(difference));
                    prop_assert_eq!(&followed, &policies.protection());
                    for SenderDifference { prefix, range, is_there } in policies.take_senders() {
                        prop_assert_eq!(senders.replace((range, prefix)).is_none(), is_there);
                        if !is_there { senders.remove(&(range, prefix)); }
                    }
                    prop_assert_eq!(&senders, &all_senders(&policies));
                }
                Event::Install(..) | Event::Renew(..) => {}
            }
            prop_assert_eq!(policies.protection(), worked_out(&policies));
            let now = held(&policies);
            let range_of = |prefix: &Prefix| AddrRange::new(prefix.addr(), last_address(prefix)).expect("in order");
            let named: AddrSet = now.iter().filter(|prefix| !prefix.is_default()).map(range_of).collect();
            let Protection { local, selected, protected, .. } = policies.protection();
            let ours = |prefix: &Prefix| local.keys().any(|own| overlap(&range_of(own), &range_of(prefix)));
            let is_held =
                |prefix: &&Prefix| now.contains(*prefix) || named.holds(&range_of(prefix)) && !ours(prefix);
            let remote: Vec<Prefix> = before.iter().filter(|prefix| !is_held(prefix)).copied().collect();
            let is_selected = |prefix: &&Prefix| selected.keys().any(|around| covers(around, prefix));
            let local = selected_before.keys().filter(|prefix| !is_selected(prefix)).copied().collect();
            shut.extend(remote.clone());
            prop_assert_eq!(policies.take_abandoned(), Abandoned { remote, local });
            // What an SA carries is shut by a prefix that names a network, or our side of it
            // counts.
            let shut: AddrSet =
                shut.iter().chain(protected.keys()).filter(|prefix| !prefix.is_default()).map(range_of).collect();
            for (id, sa) in policies.table.iter().filter(|(id, sa)| sa.is_of_sa() && !policies.resting.contains(id)) {
                let counted = policies.outline.wide.get(&id).copied().unwrap_or_default();
                let is_counted = |range: &AddrRange| counted[usize::from(!range.start().is_ipv4())];
                prop_assert!(sa.remote_ranges().all(|range| is_counted(&range) || shut.holds(&range)));
            }
            prop_assert!(policies.spd().is_ok());
        }
    }
}

fn site(n: u16) -> Connection {
    let [high, low] = n.to_be_bytes();
    let net = child("net", ChildMode::Tunnel, "192.168.0.0/16", &format!("10.{high}.{low}.0/24"));
    Connection { name: format!("site{n}"), ..connection(vec![net]) }
}

/// What is looked at while `work` goes on.
fn cost(work: impl FnOnce()) -> usize {
    meter::take();
    work();
    meter::take()
}

#[test]
fn what_a_change_costs_does_not_grow_with_what_is_there() {
    let mut policies = Policies::default();
    let bypass = child("lan", ChildMode::Pass, "192.168.0.0/16", "192.168.0.0/16");
    policies.load(&Connection { name: "bypass".into(), ..connection(vec![bypass]) });
    let mut costs = Vec::new();
    for n in 0..5000 {
        let at = usize::from(n);
        let one = cost(|| {
            policies.load(&site(n));
            policies.take_differences();
        });
        // An SA with an address that nobody knew before.
        let [high, low] = n.to_be_bytes();
        let selectors = SelectorPair::new(&[ts("192.168.0.0/16")], &[ts(&format!("11.0.{high}.{low}/32"))]);
        let sa = cost(|| {
            policies.install(ChildSaId(at as u64), None, &selectors, HOME);
            policies.take_differences();
        });
        let again = cost(|| policies.load(&site(n)));
        let narrow = Connection {
            children: vec![child("net", ChildMode::Tunnel, "192.168.0.0/16", "12.0.0.0/8")],
            ..site(n)
        };
        let change = cost(|| {
            policies.load(&narrow);
            policies.load(&site(n));
        });
        costs.push((one, sa, again, change));
    }
    let most = |costs: &[(usize, usize, usize, usize)]| costs.iter().max().copied();
    assert_eq!(most(&costs[10..500]), most(&costs[500..]), "{:?}", most(&costs[500..]));
    assert!(
        costs.iter().all(|(one, sa, again, change)| *one < 40 && *sa < 40 && *again == 0 && *change < 80)
    );
}
