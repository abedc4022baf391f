//! What filter and routes hold after each step is what a plan from everything comes to, and nothing
//! opens on the way.

use super::*;
use crate::prefix::covers;
use crate::prefix_map::PrefixSet;
use proptest::prelude::*;
use std::cmp::Reverse;
use testudo_base::lane::Spread;

const TO_ALONE: PrefixUse = PrefixUse { protect_to: true, within: false, ..PrefixUse::PASS };
const FOR_ANYBODY: PrefixUse = PrefixUse { for_anybody: true, ..PrefixUse::PROTECT };

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
        let were_for_anybody = self.shut.iter().filter(|(_, usage)| usage.for_anybody);
        let were_for_anybody: Vec<Prefix> = were_for_anybody.map(|(prefix, _)| *prefix).collect();
        for (prefix, usage) in &mut outlines {
            usage.for_anybody = wanted.anybody.contains_key(prefix) || were_for_anybody.contains(prefix);
        }
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
        let is_for_anybody = |prefix: &&Prefix| {
            wanted.anybody.keys().chain(&were_for_anybody).any(|around| covers(around, prefix))
        };
        let connected = host.connected.keys().filter(|prefix| lies_within(prefix) && !is_for_anybody(prefix));
        let connected: PrefixSet = connected.copied().collect();
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
        uses.extend(
            around
                .into_iter()
                .map(|(prefix, usage)| (prefix, PrefixUse { within: true, for_anybody: false, ..usage })),
        );
        for (prefix, usage) in &mut uses {
            (usage.home, usage.spread) = match longest(&self.homes, prefix) {
                Some(PrefixHome::Shard(shard)) if usage.protect_to => (Some(shard), None),
                Some(PrefixHome::Spread(shard, spread)) if usage.protect_to => (Some(shard), Some(spread)),
                _ => (None, None),
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
    let shard = || (0u8..3).prop_map(Shard);
    let spread = prop::sample::select(vec![Spread::SessionHash, Spread::PacketHash]);
    prop_oneof![
        1 => Just(PrefixHome::Ambiguous),
        3 => shard().prop_map(PrefixHome::Shard),
        1 => (shard(), spread).prop_map(|(shard, spread)| PrefixHome::Spread(shard, spread)),
    ]
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
        Group::Anybody,
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
            Just(PrefixUse::PROTECT), Just(JUDGED), Just(OPEN), Just(TO_ALONE), Just(FOR_ANYBODY), Just(PrefixUse { within: true, ..TO_ALONE }),
            Just(PrefixUse { within: true, refuse_from: false, ..OPEN }), Just(PrefixUse::PASS),
            Just(PrefixUse { within: true, home: Some(Shard(1)), ..PrefixUse::PROTECT }),
            Just(PrefixUse { within: true, home: Some(Shard(1)), spread: Some(Spread::PacketHash), ..PrefixUse::PROTECT }),
        ], 0..4),
        events in prop::collection::vec(arb_event(), 1..40),
    ) {
        let (within, shut) = left.clone().into_iter().filter(|(_, to)| to.protect_to).partition(|(_, to)| to.within);
        let mut model = Model { wanted: Protection::default(), homes: BTreeMap::new(), shut, within, host: Host::default(), senders: BTreeSet::new() };
        let mut barrier = Barrier::new(left, [], EARLIER.since);
        let mut told: BTreeSet<Prefix> = BTreeSet::new();
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
                        let home = |to: PrefixUse| (to.home, to.spread);
                        let stays = home(then) == home(later);
                        prop_assert_eq!(home(now), if stays { home(then) } else { (None, None) });
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
            prop_assert_eq!(&listed, &model.shut.keys().collect::<Vec<_>>());
            for (prefix, is_shut) in barrier.take_shut_changes() {
                if is_shut { told.insert(prefix); } else { told.remove(&prefix); }
            }
            prop_assert_eq!(told.iter().collect::<Vec<_>>(), model.shut.keys().collect::<Vec<_>>());
        }
    }
}
