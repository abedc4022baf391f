//! What is let go, kept, open and claimed; and what a change costs.

mod model;

use super::super::inherited::{Inherited, Origin};
use super::*;
use crate::prefix_map::meter;
use std::collections::BTreeMap;
use testudo_base::spi::Shard;
use testudo_fastpath::netlink::GuardUse;
use testudo_ipsec::selector::AddrRange;
use testudo_vici::shut::Cause;

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

/// Our own side is held back only beside a tunnel for everything, and goes with that.
#[test]
fn whoever_lets_everything_go_lets_our_own_side_go() {
    let own = addresses(&OWN);
    let left = [("0.0.0.0/0", OPEN), ("::/0", OPEN), ("10.7.0.0/16", PrefixUse::PROTECT)];
    let left = left.map(|(text, usage)| (prefix(text), usage)).into();
    let mut barrier = Barrier::new(left, addresses(&["10.1.0.1", "2001:db8::1"]), EARLIER.since);
    let open = |barrier: &Barrier| barrier.unselected(&own, &own);
    let shut = addresses(&["192.0.2.1", "10.9.0.1"]);
    assert_eq!(open(&barrier), shut);
    assert_eq!(barrier.own_sides(None).count(), 0, "a part of what is listed anyway");
    barrier.let_go(&prefix("10.7.0.0/16")).unwrap();
    assert_eq!(open(&barrier), shut);
    let gone = barrier.let_go(&prefix("0.0.0.0/0")).unwrap();
    assert_eq!(open(&barrier), addresses(&["192.0.2.1", "10.1.0.1", "10.9.0.1"]), "IPv6 stays");
    barrier.take_back(gone);
    assert_eq!(open(&barrier), shut);
}

/// Beside another tunnel for everything, the addresses that an operator names open, and no others.
#[test]
fn an_own_address_is_let_go_beside_another_tunnel_for_everything() {
    let own = addresses(&["10.1.0.1", "10.1.0.2", "10.2.0.1", "192.0.2.1"]);
    let mut barrier = Barrier::default();
    barrier.want([Group::Protected, Group::Held].map(|part| selects(part, "0.0.0.0/0", true)));
    barrier.want([selects(Group::Selected, "10.2.0.0/16", true)]);
    barrier.keep(&Abandoned { remote: Vec::new(), local: vec![prefix("10.1.0.0/16")] }, &unloaded());
    let open = |barrier: &Barrier| barrier.unselected(&own, &BTreeSet::new());
    assert_eq!(open(&barrier), addresses(&["192.0.2.1"]));

    let listed = |barrier: &Barrier| -> Vec<(Prefix, Origin)> {
        barrier.own_sides(None).map(|(own, _, origin)| (*own, origin.clone())).collect()
    };
    assert_eq!(listed(&barrier), [(prefix("10.1.0.0/16"), unloaded())]);
    assert_eq!(barrier.own_sides(Some(prefix("10.1.0.0/16"))).count(), 0);

    let host = prefix("10.1.0.1/32");
    assert!(barrier.is_own_side_shut(&host) && !barrier.is_selected(&host));
    let before = barrier.let_own_side_go(&host).unwrap();
    assert_eq!(open(&barrier), addresses(&["192.0.2.1", "10.1.0.1"]), "and not the other one of its side");
    assert!(!barrier.is_own_side_shut(&host) && barrier.let_own_side_go(&host).is_none());
    let rest = listed(&barrier);
    assert!(rest.len() == 16 && rest.iter().all(|(_, origin)| *origin == unloaded()), "{rest:?}");
    barrier.take_own_side_back(before);
    assert_eq!(open(&barrier), addresses(&["192.0.2.1"]));

    // All of its side. What is wider was never our side.
    assert!(!["10.0.0.0/8", "0.0.0.0/0"].map(prefix).iter().any(|wide| barrier.is_own_side_shut(wide)));
    barrier.let_own_side_go(&prefix("10.1.0.0/16")).unwrap();
    assert_eq!(listed(&barrier), []);
    assert_eq!(open(&barrier), addresses(&["192.0.2.1", "10.1.0.1", "10.1.0.2"]), "10.2.0.1 is selected");
    assert!(barrier.is_selected(&prefix("10.2.0.1/32")));
}

/// A prefix that is held back for another reason too is no matter of our own side alone.
#[test]
fn an_own_side_within_what_is_shut_or_protected_opens_with_that() {
    let side = Abandoned { remote: Vec::new(), local: vec![prefix("10.1.0.0/16")] };
    let host = prefix("10.1.0.1/32");
    let mut barrier = Barrier::default();
    barrier.keep(&side, &unloaded());
    assert!(barrier.is_own_side_shut(&host));
    barrier.want([selects(Group::Protected, "10.1.0.0/24", true)]);
    assert!(!barrier.is_own_side_shut(&host) && barrier.is_own_side_shut(&prefix("10.1.9.0/24")));

    let mut barrier = Barrier::default();
    barrier.keep(&Abandoned { remote: vec![prefix("0.0.0.0/0")], ..side }, &unloaded());
    assert!(!barrier.is_own_side_shut(&host));
}
