//! What is followed step by step is what the whole comes to; nothing opens on the way; and what it
//! costs.

use super::super::inherited::{Inherited, Origin};
use super::*;
use crate::prefix::covers;
use crate::prefix_map::{PrefixMap, PrefixSet, meter};
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use testudo_base::spi::Shard;
use testudo_fastpath::filter::PrefixUse;
use testudo_fastpath::netlink::GuardUse;
use testudo_ike::output::UnixTime;
use testudo_ipsec::selector::AddrRange;
use testudo_vici::shut::Cause;

const TO_ALONE: PrefixUse = PrefixUse { protect_to: true, within: false, ..PrefixUse::PASS };
const JUDGED: PrefixUse = PrefixUse { judge_from: true, ..PrefixUse::PROTECT };
const OPEN: PrefixUse = PrefixUse { open_to_host: true, ..JUDGED };

/// What an earlier run has left.
const EARLIER: Origin = Origin { since: UnixTime(1), cause: Cause::EarlierRun };

/// What a connection has given up.
fn unloaded() -> Origin {
    Origin { since: UnixTime(2), cause: Cause::ConnectionUnloaded("hub".into()) }
}

fn prefix(text: &str) -> Prefix {
    text.parse().expect(text)
}

/// What filter and routes have to hold, worked out from everything.
struct Model {
    wanted: Protection,
    homes: BTreeMap<Prefix, PrefixHome>,
    shut: BTreeMap<Prefix, PrefixUse>,
    within: BTreeMap<Prefix, PrefixUse>,
    host: Host,
    /// Which of our ranges are carried to which prefixes.
    senders: BTreeSet<(Prefix, AddrRange)>,
}

fn longest<V: Copy>(map: &BTreeMap<Prefix, V>, prefix: &Prefix) -> Option<V> {
    (0..=prefix.length()).rev().find_map(|length| map.get(&Prefix::new(prefix.addr(), length)?).copied())
}

impl Model {
    fn plan(&self) -> ProtectionPlan {
        let Self { wanted, host, .. } = self;
        let named = |(prefix, usage): (&Prefix, &PrefixUse)| {
            let open_to_host = usage.open_to_host && prefix.is_default();
            (*prefix, PrefixUse { open_to_host, ..*usage })
        };
        let mut outlines: BTreeMap<Prefix, PrefixUse> = self.shut.iter().map(named).collect();
        let in_part = |prefix: &Prefix| wanted.passed_in_part.keys().any(|around| covers(around, prefix));
        let usage = |prefix: &Prefix| match wanted.both.contains_key(prefix) {
            true => TO_ALONE,
            false if prefix.is_default() => OPEN,
            false => PrefixUse { judge_from: in_part(prefix), ..PrefixUse::PROTECT },
        };
        outlines.extend(wanted.protected.keys().map(|prefix| (*prefix, usage(prefix))));
        let meets = |a: &Prefix, b: &Prefix| covers(a, b) || covers(b, a);
        let free = |passed: &&Prefix| !self.shut.keys().any(|left| meets(left, passed));
        let passed: Vec<Prefix> = wanted.passed.keys().filter(free).copied().collect();
        outlines.retain(|prefix, _| !passed.iter().any(|around| covers(around, prefix)));
        let mut exempt: Vec<Prefix> =
            passed.into_iter().filter(|prefix| longest(&outlines, prefix).is_some()).collect();
        outlines.extend(exempt.iter().map(|prefix| (*prefix, PrefixUse::PASS)));
        let lies_within = |prefix: &&Prefix| {
            !outlines.contains_key(prefix) && longest(&outlines, prefix).is_some_and(|usage| usage.protect_to)
        };
        let connected: PrefixSet = host.connected.keys().filter(lies_within).copied().collect();
        let answering = wanted.passed_in_part.keys().chain(wanted.local.keys()).filter(lies_within);
        let is_open = |prefix| longest(&outlines, prefix).is_some_and(|usage: PrefixUse| usage.open_to_host);
        let within = self.within.iter().map(|(prefix, usage)| {
            let open_to_host = usage.open_to_host && is_open(prefix);
            (*prefix, PrefixUse { open_to_host, ..*usage })
        });
        let mut uses: BTreeMap<Prefix, PrefixUse> = within.collect();
        uses.extend(answering.map(|prefix| {
            let judge_from = !wanted.local.contains_key(prefix);
            let open_to_host = judge_from && is_open(prefix);
            (*prefix, PrefixUse { within: true, judge_from, open_to_host, ..TO_ALONE })
        }));
        uses.extend(connected.keys().map(|prefix| (*prefix, PrefixUse::PASS)));
        uses.extend(&outlines);
        let around: Vec<_> = self.homes.keys().filter(|prefix| !uses.contains_key(prefix)).collect();
        let around = around.into_iter().filter_map(|prefix| Some((*prefix, longest(&uses, prefix)?)));
        let around: Vec<_> = around.filter(|(_, usage)| usage.protect_to).collect();
        uses.extend(around.into_iter().map(|(prefix, usage)| (prefix, PrefixUse { within: true, ..usage })));
        for (prefix, usage) in &mut uses {
            usage.home = match longest(&self.homes, prefix) {
                Some(PrefixHome::Shard(shard)) if usage.protect_to => Some(shard),
                _ => None,
            };
        }
        exempt.extend(connected.keys());
        let source = |prefix: &Prefix| {
            let owned = |range: &AddrRange| host.addresses.iter().copied().find(|addr| range.contains(*addr));
            let around = self.senders.iter().filter(|(to, _)| covers(to, prefix));
            let found = around.filter_map(|(to, range)| Some((to.length(), range, owned(range)?)));
            // Of the closest prefix the narrowest range: here all of them begin at its end.
            found
                .min_by_key(|(length, range, _)| (Reverse(*length), width(range), **range))
                .map(|(.., addr)| addr)
        };
        let shut = outlines.iter().filter(|(_, usage)| usage.protect_to).map(|(prefix, _)| *prefix);
        let mut routes: PrefixMap<GuardUse> =
            shut.map(|p| (p, GuardUse::Protect { mtu: None, source: source(&p) })).collect();
        for prefix in exempt {
            routes.insert(prefix, GuardUse::Exempt);
        }
        ProtectionPlan { uses: uses.into_iter().collect(), routes, connected }
    }

    fn keep(&mut self, abandoned: &[Prefix], now: &BTreeMap<Prefix, PrefixUse>) {
        let usage = |prefix| now.get(prefix).copied().unwrap_or(PrefixUse::PROTECT);
        self.shut.extend(abandoned.iter().map(|prefix| (*prefix, usage(prefix))));
        let inside = |prefix: &Prefix| abandoned.iter().any(|around| covers(around, prefix));
        let within = now.iter().filter(|(prefix, usage)| usage.within && inside(prefix));
        self.within.extend(within.map(|(prefix, usage)| (*prefix, *usage)));
    }

    fn let_go(&mut self, prefix: &Prefix) -> bool {
        let was_shut = self.shut.remove(prefix).is_some();
        let shut = &self.shut;
        self.within.retain(|inside, _| {
            !(was_shut && covers(prefix, inside)) || shut.keys().any(|around| covers(around, inside))
        });
        was_shut
    }

    fn claim(&mut self) -> bool {
        let (before, wanted) = (self.shut.len(), &self.wanted);
        let passed = |prefix: &Prefix| wanted.passed.keys().any(|around| covers(around, prefix));
        self.shut.retain(|prefix, _| !wanted.held.contains_key(prefix) && !passed(prefix));
        let shut = &self.shut;
        self.within.retain(|prefix, _| shut.keys().any(|around| covers(around, prefix)));
        self.shut.len() != before
    }
}

#[derive(Clone, Debug)]
enum Event {
    Name(Prefix, Option<PrefixHome>),
    Want(Group, Prefix, bool),
    Carry(Prefix, AddrRange, bool),
    Keep(Vec<Prefix>),
    Claim,
    /// An operator lets it go; and it is taken back, if filter and routes cannot follow.
    LetGo(Prefix, bool),
    Follow(Vec<Prefix>, Vec<IpAddr>),
    /// Filter and routes follow; or fail to, in the middle.
    Apply(bool),
}

fn arb_prefix() -> impl Strategy<Value = Prefix> {
    let lengths = prop::sample::select(vec![0u8, 27, 28, 29, 30, 31, 32]);
    (0u8..16, lengths).prop_map(|(host, len)| Prefix::new([10, 0, 0, host].into(), len).expect("at most 32"))
}

fn arb_home() -> impl Strategy<Value = PrefixHome> {
    prop_oneof![1 => Just(PrefixHome::Ambiguous), 3 => (0u8..3).prop_map(|shard| PrefixHome::Shard(Shard(shard)))]
}

fn width(range: &AddrRange) -> u32 {
    let [IpAddr::V4(start), IpAddr::V4(end)] = [range.start(), range.end()] else { panic!("{range:?}") };
    end.to_bits() - start.to_bits()
}

/// Ranges of one address, two, or four, that do not overlap unless they nest.
fn arb_range() -> impl Strategy<Value = AddrRange> {
    (0u8..4, 0u8..3).prop_map(|(at, bits)| {
        let first = (at << 2) & !((1 << bits) - 1);
        let [start, end] = [first, first + (1 << bits) - 1].map(|host| [10, 0, 0, host].into());
        AddrRange::new(start, end).expect("in order")
    })
}

fn arb_event() -> impl Strategy<Value = Event> {
    let part = prop::sample::select(vec![
        Group::Protected,
        Group::Held,
        Group::Local,
        Group::Both,
        Group::Passed,
        Group::PassedInPart,
    ]);
    let few = || prop::collection::vec(arb_prefix(), 0..3);
    let address = (0u8..16).prop_map(|host| IpAddr::from([10, 0, 0, host]));
    prop_oneof![
        10 => (part, arb_prefix(), any::<bool>()).prop_map(|(part, prefix, there)| Event::Want(part, prefix, there)),
        4 => (arb_prefix(), arb_range(), any::<bool>()).prop_map(|(to, range, there)| Event::Carry(to, range, there)),
        4 => (arb_prefix(), prop::option::of(arb_home())).prop_map(|(prefix, home)| Event::Name(prefix, home)),
        1 => few().prop_map(Event::Keep),
        2 => Just(Event::Claim),
        2 => (arb_prefix(), prop::bool::weighted(0.2)).prop_map(|(prefix, back)| Event::LetGo(prefix, back)),
        1 => (few(), prop::collection::vec(address, 0..2)).prop_map(|(p, a)| Event::Follow(p, a)),
        4 => prop::bool::weighted(0.8).prop_map(Event::Apply),
    ]
}

fn at<V: Copy>(map: &PrefixMap<V>, host: u8) -> Option<V> {
    map.longest(&Prefix::host([10, 0, 0, host].into())).copied()
}

proptest! {
    #[test]
    fn it_is_as_if_planned_anew_and_nothing_opens_on_the_way(
        left in prop::collection::btree_map(arb_prefix(), prop_oneof![
            Just(PrefixUse::PROTECT), Just(JUDGED), Just(OPEN), Just(TO_ALONE), Just(PrefixUse { within: true, ..TO_ALONE }),
            Just(PrefixUse { within: true, refuse_from: false, ..OPEN }), Just(PrefixUse::PASS),
            Just(PrefixUse { within: true, home: Some(Shard(1)), ..PrefixUse::PROTECT }),
        ], 0..4),
        events in prop::collection::vec(arb_event(), 1..40),
    ) {
        let (within, shut) = left.clone().into_iter().filter(|(_, to)| to.protect_to).partition(|(_, to)| to.within);
        let mut model = Model { wanted: Protection::default(), homes: BTreeMap::new(), shut, within, host: Host::default(), senders: BTreeSet::new() };
        let mut barrier = Barrier::new(left, [], EARLIER.since);
        for event in events {
            match event {
                Event::Want(part, prefix, is_there) => {
                    let difference = Difference { part, prefix, is_there };
                    model.wanted.apply(difference);
                    barrier.want([difference]);
                }
                Event::Carry(prefix, range, is_there) => {
                    let pair = (prefix, range);
                    if is_there { model.senders.insert(pair); } else { model.senders.remove(&pair); }
                    barrier.carry(&[SenderDifference { prefix, range, is_there }]);
                }
                Event::Name(prefix, home) => {
                    match home {
                        Some(home) => drop(model.homes.insert(prefix, home)),
                        None => drop(model.homes.remove(&prefix)),
                    }
                    barrier.name([(prefix, home)]);
                }
                Event::Keep(abandoned) => {
                    model.keep(&abandoned, &barrier.applied().uses);
                    barrier.keep(&Abandoned { remote: abandoned, local: Vec::new() }, &unloaded());
                }
                Event::Claim => prop_assert_eq!(barrier.claim(), model.claim()),
                Event::LetGo(prefix, back) => {
                    let gone = barrier.let_go(&prefix);
                    match gone {
                        Some(gone) if back => barrier.take_back(gone),
                        gone => prop_assert_eq!(gone.is_some(), model.let_go(&prefix)),
                    }
                }
                Event::Follow(connected, addresses) => {
                    model.host = Host { connected: connected.into_iter().collect(), addresses };
                    barrier.follow(model.host.clone());
                }
                Event::Apply(arrives) => {
                    let (before, after) = (barrier.applied().clone(), model.plan());
                    let way = barrier.way();
                    let mut between = before.clone();
                    way.steps().for_each(|(prefix, step)| between.set(*prefix, step.between));
                    for host in 0..16 {
                        let [then, now, later] = [&before, &between, &after].map(|plan| at(&plan.uses, host).unwrap_or_default());
                        prop_assert_eq!(now.protect_to, then.protect_to || later.protect_to);
                        prop_assert_eq!(now.refuse_from, then.refuse_from || later.refuse_from);
                        // From no address less is refused than both plans refuse, nor passes
                        // unseen.
                        let passes = |to: PrefixUse| !to.refuse_from && !to.judge_from;
                        let is_dropped = |to: PrefixUse| to.refuse_from && !to.judge_from;
                        prop_assert_eq!(passes(now), passes(then) && passes(later));
                        prop_assert_eq!(is_dropped(now), is_dropped(then) || is_dropped(later));
                        let lets_in = |to: PrefixUse| to.open_to_host || passes(to);
                        prop_assert_eq!(lets_in(now), lets_in(then) && lets_in(later));
                        prop_assert_eq!(now.home, later.home.filter(|home| then.home == Some(*home)));
                        let [then, now, later] = [&before, &between, &after]
                            .map(|plan| matches!(at(&plan.routes, host), Some(GuardUse::Protect { .. })));
                        prop_assert_eq!(now, then || later);
                    }
                    if arrives {
                        barrier.arrived(&way);
                        prop_assert_eq!(barrier.applied(), &after);
                        prop_assert!(barrier.way().steps().next().is_none());
                    }
                }
            }
            prop_assert_eq!(
                (&*barrier.inherited.shut, &*barrier.inherited.within), (&model.shut, &model.within)
            );
            let listed: Vec<&Prefix> = barrier.shut(None).map(|(prefix, ..)| prefix).collect();
            prop_assert_eq!(listed, model.shut.keys().collect::<Vec<_>>());
        }
    }
}

/// A configured child comes, or goes.
fn site(n: u16, is_there: bool) -> [Difference; 2] {
    let [high, low] = n.to_be_bytes();
    let prefix = Prefix::new([10, high, low, 0].into(), 24).expect("a prefix");
    [Group::Protected, Group::Held].map(|part| Difference { part, prefix, is_there })
}

#[test]
fn what_a_change_costs_does_not_grow_with_what_is_there() {
    let inherited = (0..5000).map(|n| (site(n, true)[0].prefix, PrefixUse::PROTECT)).collect();
    let mut barrier = Barrier::new(inherited, [], EARLIER.since);
    let local = Difference { part: Group::Local, prefix: prefix("192.168.0.0/16"), is_there: true };
    let lan = Difference { part: Group::Passed, prefix: prefix("192.168.0.0/16"), is_there: true };
    barrier.want([local, lan]);
    let way = barrier.way();
    barrier.arrived(&way);
    barrier.claim();
    let mut costs = Vec::new();
    for n in 0..5000 {
        meter::take();
        barrier.want(site(n, true));
        let way = barrier.way();
        barrier.arrived(&way);
        assert!(barrier.claim());
        let way = barrier.way();
        barrier.arrived(&way);
        let load = meter::take();
        barrier.keep(&Abandoned { remote: vec![site(n, true)[0].prefix], local: Vec::new() }, &unloaded());
        barrier.want(site(n, false));
        let way = barrier.way();
        barrier.arrived(&way);
        let unload = meter::take();
        barrier.want(site(n, true));
        barrier.claim();
        costs.push((load, unload));
    }
    assert_eq!(costs[10..500].iter().max(), costs[500..].iter().max());
    assert!(costs.iter().all(|(load, unload)| *load < 60 && *unload < 60), "{:?}", costs.iter().max());
    assert_eq!(barrier.inherited().count(), 0);
}

/// Road warriors with an address each out of one pool.
#[test]
fn a_home_within_a_prefix_costs_the_same_however_many_there_are() {
    let mut barrier = Barrier::default();
    let pool = prefix("10.0.0.0/8");
    barrier.want([Group::Protected, Group::Held].map(|part| Difference {
        part,
        prefix: pool,
        is_there: true,
    }));
    barrier.name([(pool, Some(PrefixHome::Shard(Shard(7))))]);
    let way = barrier.way();
    barrier.arrived(&way);
    let mut costs = Vec::new();
    for n in 0..5000u16 {
        let [high, low] = n.to_be_bytes();
        let host = Prefix::host([10, 0, high, low].into());
        meter::take();
        barrier.name([(host, Some(PrefixHome::Shard(Shard(low))))]);
        let way = barrier.way();
        assert!(way.steps().all(|(prefix, step)| *prefix == host && !step.is_routed()));
        barrier.arrived(&way);
        costs.push(meter::take());
        let usage = PrefixUse { within: true, home: Some(Shard(low)), ..PrefixUse::PROTECT };
        assert_eq!(barrier.applied().uses.get(&host), Some(&usage));
    }
    assert_eq!(costs[10..500].iter().max(), costs[500..].iter().max());
    assert!(costs.iter().all(|cost| *cost < 40), "{:?}", costs.iter().max());
}

/// What is bypassed stays so, whatever home the policies around it and inside have.
#[test]
fn a_home_opens_nothing_and_shuts_nothing() {
    let mut barrier = Barrier::default();
    let [wide, passed, host] = ["10.0.0.0/8", "10.5.0.0/16", "10.5.0.1/32"].map(prefix);
    let difference = |part, prefix| Difference { part, prefix, is_there: true };
    barrier.want([difference(Group::Protected, wide), difference(Group::Passed, passed)]);
    let home = |shard| Some(PrefixHome::Shard(Shard(shard)));
    barrier.name([(wide, home(1)), (passed, home(2)), (host, home(3)), (prefix("192.0.2.0/24"), home(4))]);
    let way = barrier.way();
    barrier.arrived(&way);
    let homed = PrefixUse { home: Some(Shard(1)), ..PrefixUse::PROTECT };
    assert_eq!(*barrier.applied().uses, [(wide, homed), (passed, PrefixUse::PASS)].into());
}

/// The last SA of a child that carries less now goes: what it alone held back was never allowed to
/// pass.
#[test]
fn an_sa_does_not_claim_what_no_child_holds_back_any_more() {
    let wide = prefix("10.2.0.0/24");
    let difference = |part, is_there| Difference { part, prefix: wide, is_there };
    let mut barrier = Barrier::default();
    barrier.want([difference(Group::Protected, true), difference(Group::Held, true)]);
    let way = barrier.way();
    barrier.arrived(&way);
    barrier.keep(&Abandoned { remote: vec![wide], local: Vec::new() }, &unloaded());
    barrier.want([difference(Group::Held, false)]);
    assert!(!barrier.claim(), "the SA is there still");
    barrier.want([difference(Group::Protected, false)]);
    let way = barrier.way();
    barrier.arrived(&way);
    assert_eq!(barrier.applied().uses.get(&wide), Some(&PrefixUse::PROTECT));
    barrier.want([difference(Group::Protected, true), difference(Group::Held, true)]);
    assert!(barrier.claim());
}

#[test]
fn what_is_left_is_taken_over_as_it_is() {
    let left = PrefixUses::from([(prefix("10.0.0.0/8"), PrefixUse::PROTECT)]);
    let mut barrier = Barrier::new(left.clone(), [], EARLIER.since);
    let way = barrier.way();
    barrier.arrived(&way);
    assert_eq!(*barrier.applied().uses, left);
    assert_eq!(Inherited::new(left, EARLIER.since).prefixes().count(), 1);
}

/// Filter and routes as they stand once they follow.
fn follow(barrier: &mut Barrier) -> BTreeMap<Prefix, PrefixUse> {
    let way = barrier.way();
    barrier.arrived(&way);
    (*barrier.applied().uses).clone()
}

#[test]
fn what_is_let_go_opens_and_nothing_else_does() {
    let [site, neighbour, wide, inside] =
        ["10.2.0.0/16", "10.3.0.0/16", "172.16.0.0/12", "172.16.1.0/24"].map(prefix);
    let mut barrier =
        Barrier::new([site, wide].map(|left| (left, PrefixUse::PROTECT)).into(), [], EARLIER.since);
    let protect =
        |prefix, is_there| [Group::Protected, Group::Held].map(|part| Difference { part, prefix, is_there });
    barrier.want([protect(neighbour, true), protect(inside, true)].into_iter().flatten());
    follow(&mut barrier);
    barrier.keep(&Abandoned { remote: vec![neighbour], local: Vec::new() }, &unloaded());
    barrier.want(protect(neighbour, false));
    let before = follow(&mut barrier);
    assert_eq!(before.keys().collect::<Vec<_>>(), [&site, &neighbour, &wide, &inside]);
    let listed = |barrier: &Barrier, behind: Option<Prefix>| -> Vec<(Prefix, Origin)> {
        barrier.shut(behind).map(|(prefix, _, origin)| (*prefix, origin.clone())).collect()
    };
    let all = [(site, EARLIER), (neighbour, unloaded()), (wide, EARLIER)];
    assert_eq!(listed(&barrier, None), all);
    assert_eq!(listed(&barrier, Some(site)), all[1..]);

    for not_shut in ["10.2.0.0/17", "10.0.0.0/8", "172.16.1.0/24", "::/0"].map(prefix) {
        assert!(!barrier.is_shut(&not_shut) && barrier.let_go(&not_shut).is_none());
    }
    assert_eq!(barrier.shut_around(&prefix("172.16.7.0/24")), Some(wide));
    assert_eq!((barrier.shut_around(&wide), barrier.shut_inside(&wide)), (None, 1));
    assert_eq!(follow(&mut barrier), before);

    // What does not open in the end is as it was.
    let gone = barrier.let_go(&wide).unwrap();
    assert_eq!(gone.origin, EARLIER);
    barrier.take_back(gone);
    assert_eq!((follow(&mut barrier), listed(&barrier, None)), (before, all.into()));

    barrier.let_go(&wide).unwrap();
    assert_eq!(follow(&mut barrier).keys().collect::<Vec<_>>(), [&site, &neighbour, &inside]);
    barrier.let_go(&neighbour).unwrap();
    let left = follow(&mut barrier);
    assert_eq!(left.keys().collect::<Vec<_>>(), [&site, &inside]);
    // The next run finds what is left in the filter, and no more.
    let next = Barrier::new(left, [], UnixTime(3));
    assert_eq!(next.inherited().collect::<Vec<_>>(), [&site, &inside]);
}

/// Ten thousand tunnels, each with a prefix of its own, and one more sender.
#[test]
fn another_source_of_a_prefix_concerns_what_lies_inside_it() {
    let addresses = vec![[10, 1, 0, 1].into(), [10, 11, 0, 1].into()];
    let mut barrier = Barrier::default();
    barrier.follow(Host { addresses, ..Host::default() });
    barrier.want((0..10_000).flat_map(|n| site(n, true)));
    let range = |first: [u8; 4], last: [u8; 4]| AddrRange::new(first.into(), last.into()).expect("in order");
    let carry = |barrier: &mut Barrier, prefix, range, is_there| {
        barrier.carry(&[SenderDifference { prefix, range, is_there }]);
        let way = barrier.way();
        let changed = way.steps().count();
        barrier.arrived(&way);
        changed
    };
    let (one, two) = (range([10, 1, 0, 0], [10, 1, 255, 255]), range([10, 11, 0, 0], [10, 11, 255, 255]));
    let way = barrier.way();
    barrier.arrived(&way);
    let net = site(7, true)[0].prefix;
    meter::take();
    assert_eq!(carry(&mut barrier, net, one, true), 1);
    assert_eq!(carry(&mut barrier, net, two, true), 0, "the first one serves");
    assert_eq!(carry(&mut barrier, net, one, false), 1);
    assert!(meter::take() < 100, "whatever else there is");
    let source = |barrier: &Barrier, prefix| match barrier.applied().routes.get(&prefix) {
        Some(GuardUse::Protect { source, .. }) => *source,
        other => panic!("{other:?}"),
    };
    assert_eq!(source(&barrier, net), Some([10, 11, 0, 1].into()));
    assert_eq!(
        carry(&mut barrier, prefix("10.0.0.0/8"), one, true),
        9_999,
        "all but the one that has its own"
    );
    assert_eq!(source(&barrier, site(8, true)[0].prefix), Some([10, 1, 0, 1].into()));
}

fn addresses(texts: &[&str]) -> BTreeSet<IpAddr> {
    texts.iter().map(|text| text.parse().expect(text)).collect()
}

/// This host's: of the outer link, two of networks inside, and one of IPv6.
const OWN: [&str; 4] = ["192.0.2.1", "10.1.0.1", "10.9.0.1", "2001:db8::1"];

fn selects(part: Group, text: &str, is_there: bool) -> Difference {
    Difference { part, prefix: prefix(text), is_there }
}

/// What policies for everything have on our side, be they SAs', is not open to what comes in clear.
#[test]
fn addresses_are_open_unless_a_policy_for_everything_selects_them() {
    let mut barrier = Barrier::default();
    let own = addresses(&OWN);
    let open = |barrier: &Barrier| barrier.unselected(&own, &BTreeSet::new());
    assert_eq!(open(&barrier), own);
    barrier.want([selects(Group::Selected, "10.1.0.0/16", true)]);
    assert_eq!(open(&barrier), addresses(&["192.0.2.1", "10.9.0.1", "2001:db8::1"]));
    barrier.want([selects(Group::SelectedBySas, "192.0.2.1/32", true)]);
    assert_eq!(open(&barrier), addresses(&["10.9.0.1", "2001:db8::1"]));
    barrier.want([selects(Group::SelectedBySas, "192.0.2.1/32", false)]);
    barrier.want([selects(Group::Selected, "::/0", true)]);
    assert_eq!(open(&barrier), addresses(&["192.0.2.1", "10.9.0.1"]));
}

/// Connections come one by one, and an operator may take one away by mistake.
#[test]
fn an_address_that_was_selected_stays_shut_until_it_is_claimed() {
    let own = addresses(&OWN);
    let left = PrefixUses::from([(prefix("0.0.0.0/0"), OPEN)]);
    let mut barrier = Barrier::new(left, addresses(&["10.1.0.1", "10.9.0.1", "2001:db8::1"]), EARLIER.since);
    // Until somebody claims that everything is shut, nothing opens that was not open before: be it
    // new.
    let before = addresses(&["192.0.2.9", "2001:db8::1"]);
    assert_eq!(barrier.unselected(&own, &before), addresses(&["2001:db8::1"]), "IPv6 was not shut");
    assert_eq!(
        barrier.unselected(&own, &addresses(&["192.0.2.1"])),
        addresses(&["192.0.2.1", "2001:db8::1"])
    );

    // The first of two connections.
    let everything = [Group::Protected, Group::Held].map(|part| selects(part, "0.0.0.0/0", true));
    barrier.want(everything);
    barrier.want([selects(Group::Selected, "10.1.0.0/16", true)]);
    assert!(barrier.claim());
    let open = |barrier: &Barrier| barrier.unselected(&own, &BTreeSet::new());
    assert_eq!(open(&barrier), addresses(&["192.0.2.1", "2001:db8::1"]), "the other one is not there yet");
    barrier.want([selects(Group::Selected, "10.9.0.0/16", true)]);
    barrier.claim();
    barrier.want([selects(Group::Selected, "10.9.0.0/16", false)]);
    assert_eq!(open(&barrier), addresses(&["192.0.2.1", "10.9.0.1", "2001:db8::1"]), "nothing was abandoned");

    barrier.keep(&Abandoned { remote: Vec::new(), local: vec![prefix("10.9.0.0/16")] }, &unloaded());
    assert_eq!(open(&barrier), addresses(&["192.0.2.1", "2001:db8::1"]));
    barrier.claim();
    assert_eq!(open(&barrier), addresses(&["192.0.2.1", "2001:db8::1"]), "nobody has it on its side");
    barrier.want([selects(Group::Selected, "10.0.0.0/8", true)]);
    barrier.claim();
    barrier.want([selects(Group::Selected, "10.0.0.0/8", false)]);
    assert_eq!(open(&barrier), addresses(&["192.0.2.1", "10.9.0.1", "2001:db8::1"]));
}
