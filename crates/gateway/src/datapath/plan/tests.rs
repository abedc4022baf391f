//! What filter and routes hold, in the cases that matter.

use super::super::inherited::Origin;
use super::*;
use testudo_fastpath::filter::PrefixUses;
use testudo_ike::output::UnixTime;
use testudo_vici::shut::Cause;

impl ProtectionPlan {
    /// Everything that `wanted` and `inherited` ask for.
    fn new(wanted: &Protection, inherited: &Inherited, host: &Host) -> Self {
        let demand =
            Demand { wanted, homes: &PrefixMap::default(), inherited, host, sources: &Sources::default() };
        let sets =
            [&wanted.protected, &wanted.local, &wanted.passed, &wanted.passed_in_part, &host.connected];
        let left = [&inherited.shut, &inherited.within];
        let prefixes =
            sets.into_iter().flat_map(|set| set.keys()).chain(left.into_iter().flat_map(|map| map.keys()));
        let mut plan = Self::default();
        for prefix in prefixes {
            plan.set(*prefix, demand.at(prefix));
        }
        plan
    }
}

/// Lets policies claim what is inherited, wherever it is. True if that was anything.
fn claim(inherited: &mut Inherited, wanted: &Protection) -> bool {
    wanted.held.keys().chain(wanted.passed.keys()).for_each(|prefix| inherited.look_at(*prefix));
    !inherited.claim(wanted).shut.is_empty()
}

fn left_by(plan: &ProtectionPlan) -> PrefixUses {
    (*plan.uses).clone()
}

fn prefix(text: &str) -> Prefix {
    text.parse().expect(text)
}

fn set(prefixes: &[&str]) -> PrefixSet {
    prefixes.iter().map(|p| prefix(p)).collect()
}

fn tunnel(local: &[&str], remote: &[&str]) -> Protection {
    Protection { local: set(local), protected: set(remote), held: set(remote), ..Protection::default() }
}

fn connected_to(prefixes: &[&str]) -> Host {
    Host::from(&prefixes.iter().fold(Fib::builder(), |fib, p| fib.connected(prefix(p))).build())
}

const OURS: PrefixUse = PrefixUse { within: true, ..TO_ALONE };

#[test]
fn connected_prefixes_and_our_side_are_exceptions_of_their_own_kind() {
    let wanted = tunnel(&["10.1.0.0/16", "192.0.2.0/24"], &["10.0.0.0/8"]);
    let fib = connected_to(&["10.1.0.0/24", "10.0.0.0/8", "198.51.100.0/24"]);
    let plan = ProtectionPlan::new(&wanted, &Inherited::default(), &fib);
    let expected = [
        (prefix("10.0.0.0/8"), PrefixUse::PROTECT),
        (prefix("10.1.0.0/16"), OURS),
        (prefix("10.1.0.0/24"), PrefixUse::PASS),
    ];
    assert_eq!(plan.uses, expected.into());
    assert_eq!(plan.connected, set(&["10.1.0.0/24"]));
    let protect = GuardUse::Protect { mtu: None, source: None };
    let expected = [(prefix("10.0.0.0/8"), protect), (prefix("10.1.0.0/24"), GuardUse::Exempt)];
    assert_eq!(plan.routes, expected.into());
}

#[test]
fn a_prefix_on_both_sides_may_come_in_clear() {
    let both = Protection { both: set(&["0.0.0.0/0"]), ..tunnel(&["0.0.0.0/0"], &["0.0.0.0/0"]) };
    let plan = ProtectionPlan::new(&both, &Inherited::default(), &connected_to(&[]));
    assert_eq!(plan.uses, [(prefix("0.0.0.0/0"), TO_ALONE)].into());
}

#[test]
fn what_is_passed_opens_inside_what_is_protected() {
    let wanted = Protection {
        passed: set(&["10.5.0.0/16", "172.16.0.0/12", "198.51.100.0/24"]),
        passed_in_part: set(&["10.6.0.0/16", "203.0.113.0/24"]),
        ..tunnel(&["10.5.1.0/24"], &["10.0.0.0/8", "172.16.1.0/24"])
    };
    let fib = connected_to(&["10.5.2.0/24"]);
    let plan = ProtectionPlan::new(&wanted, &Inherited::default(), &fib);
    let expected = [
        (prefix("10.0.0.0/8"), PrefixUse::PROTECT),
        (prefix("10.5.0.0/16"), PrefixUse::PASS),
        (prefix("10.6.0.0/16"), PrefixUse { judge_from: true, ..OURS }),
    ];
    assert_eq!(plan.uses, expected.into());
    let protect = GuardUse::Protect { mtu: None, source: None };
    let expected = [(prefix("10.0.0.0/8"), protect), (prefix("10.5.0.0/16"), GuardUse::Exempt)];
    assert_eq!(plan.routes, expected.into());
    assert_eq!(plan.connected, set(&[]));
}

/// A tunnel for everything does not select what the gateway has to do with others, and of what is
/// passed in part some comes in clear: only the policies know which.
#[test]
fn what_comes_in_clear_is_judged_where_prefixes_do_not_say_enough() {
    let judged = PrefixUse { judge_from: true, ..PrefixUse::PROTECT };
    let open = PrefixUse { open_to_host: true, ..judged };
    let everything = tunnel(&["10.1.0.0/16"], &["0.0.0.0/0", "192.0.2.0/24"]);
    let plan = ProtectionPlan::new(&everything, &Inherited::default(), &connected_to(&[]));
    let expected = [
        (prefix("0.0.0.0/0"), open),
        (prefix("10.1.0.0/16"), OURS),
        (prefix("192.0.2.0/24"), PrefixUse::PROTECT),
    ];
    assert_eq!(plan.uses, expected.into());

    let in_part = Protection {
        passed_in_part: set(&["10.0.0.0/8", "10.6.0.0/16"]),
        ..tunnel(&["10.6.0.0/16"], &["10.0.0.0/8", "10.5.0.0/16", "172.16.0.0/12"])
    };
    let plan = ProtectionPlan::new(&in_part, &Inherited::default(), &connected_to(&[]));
    let expected = [
        (prefix("10.0.0.0/8"), judged),
        (prefix("10.5.0.0/16"), judged),
        (prefix("10.6.0.0/16"), OURS),
        (prefix("172.16.0.0/12"), PrefixUse::PROTECT),
    ];
    assert_eq!(plan.uses, expected.into());
}

/// What comes to this host itself is held back by policies that name a network, and not by those
/// for everything.
#[test]
fn everything_alone_is_open_to_the_host() {
    let judged = PrefixUse { judge_from: true, ..OURS };
    let open = PrefixUse { open_to_host: true, ..judged };
    let wanted = Protection {
        passed_in_part: set(&["10.6.0.0/16", "172.16.0.0/12"]),
        ..tunnel(&["10.1.0.0/16"], &["0.0.0.0/0", "10.0.0.0/8"])
    };
    let before = ProtectionPlan::new(&wanted, &Inherited::default(), &connected_to(&["192.0.2.0/24"]));
    let shut = |usage: PrefixUse| PrefixUse { refuse_from: true, within: false, ..usage };
    let expected = [
        (prefix("0.0.0.0/0"), shut(open)),
        (prefix("10.0.0.0/8"), PrefixUse::PROTECT),
        (prefix("10.1.0.0/16"), OURS),
        (prefix("10.6.0.0/16"), judged),
        (prefix("172.16.0.0/12"), open),
        (prefix("192.0.2.0/24"), PrefixUse::PASS),
    ];
    assert_eq!(before.uses, expected.into());

    // After a restart, inside of a policy that is new: it does not take what is open inside of
    // everything for its own.
    let inherited = Inherited::new(left_by(&before), UnixTime(0));
    let now =
        ProtectionPlan::new(&tunnel(&[], &["172.0.0.0/8"]), &inherited, &connected_to(&["192.0.2.0/24"]));
    let mut expected = expected.to_vec();
    expected[4].1 = judged;
    expected.push((prefix("172.0.0.0/8"), PrefixUse::PROTECT));
    assert_eq!(now.uses, expected.into_iter().collect());
}

/// The connection that makes the bypass harmless may be the one that is not loaded yet.
#[test]
fn what_is_passed_stays_shut_while_it_is_inherited() {
    let fib = connected_to(&[]);
    let before = ProtectionPlan::new(&tunnel(&[], &["10.0.0.0/8"]), &Inherited::default(), &fib);
    let bypass = Protection { passed: set(&["10.5.0.0/16"]), ..Protection::default() };
    let mut inherited = Inherited::new(left_by(&before), UnixTime(0));
    claim(&mut inherited, &bypass);
    assert_eq!(ProtectionPlan::new(&bypass, &inherited, &fib), before);
}

/// Until something claims it, everything is as it was; then nothing is left of it.
#[test]
fn what_an_earlier_run_left_stands_as_it_was_until_it_is_claimed() {
    let wanted = tunnel(&["10.1.0.0/16"], &["10.0.0.0/8", "192.0.2.0/24"]);
    let any = Protection { both: set(&["::/0"]), ..tunnel(&["::/0"], &["::/0"]) };
    let fib = connected_to(&["10.1.0.0/24"]);
    let mut left = left_by(&ProtectionPlan::new(&wanted, &Inherited::default(), &fib));
    left.extend(left_by(&ProtectionPlan::new(&any, &Inherited::default(), &fib)));

    let mut inherited = Inherited::new(left.clone(), UnixTime(0));
    assert_eq!(left_by(&ProtectionPlan::new(&Protection::default(), &inherited, &fib)), left);
    let shut = |inherited: &Inherited| inherited.prefixes().copied().collect::<PrefixSet>();
    assert_eq!(shut(&inherited), set(&["10.0.0.0/8", "192.0.2.0/24", "::/0"]));

    claim(&mut inherited, &wanted);
    assert_eq!(left_by(&ProtectionPlan::new(&wanted, &inherited, &fib)), left);
    assert_eq!(shut(&inherited), set(&["::/0"]));
    claim(&mut inherited, &any);
    assert_eq!(shut(&inherited), set(&[]));
    assert_eq!(ProtectionPlan::new(&Protection::default(), &inherited, &fib), ProtectionPlan::default());
}

/// Our side of one connection is the peer's of another, which is loaded later.
#[test]
fn what_was_shut_for_its_own_sake_stays_so_inside_another_connection() {
    let hub = Protection {
        protected: set(&["10.0.0.0/8", "10.1.0.0/16"]),
        local: set(&["10.1.0.0/16"]),
        ..Protection::default()
    };
    let fib = connected_to(&[]);
    let mut inherited =
        Inherited::new(left_by(&ProtectionPlan::new(&hub, &Inherited::default(), &fib)), UnixTime(0));
    claim(&mut inherited, &tunnel(&["10.1.0.0/16"], &["10.0.0.0/8"]));
    assert_eq!(inherited.prefixes().collect::<Vec<_>>(), [&prefix("10.1.0.0/16")]);
}

#[test]
fn on_the_way_from_one_plan_to_another_nothing_opens_that_either_holds_back() {
    let fib = connected_to(&["10.2.3.0/24", "10.9.1.0/24"]);
    let plan = |wanted: &Protection| ProtectionPlan::new(wanted, &Inherited::default(), &fib);
    let before = plan(&tunnel(&["10.1.0.0/16"], &["10.2.0.0/16", "10.2.3.0/25"]));
    let after = plan(&tunnel(&["10.2.0.0/16"], &["10.0.0.0/8", "192.0.2.0/24"]));
    let (wanted, host) = (tunnel(&["10.2.0.0/16"], &["10.0.0.0/8", "192.0.2.0/24"]), &fib);
    let (homes, inherited) = (PrefixMap::default(), Inherited::default());
    let sources = Sources::default();
    let demand = Demand { wanted: &wanted, homes: &homes, inherited: &inherited, host, sources: &sources };
    let way = Way::new(&before, demand, &before.prefixes().chain(after.prefixes()).copied().collect());
    let mut between = before.clone();
    way.steps().for_each(|(prefix, step)| between.set(*prefix, step.between));
    for addr in ["10.2.0.1/32", "10.2.3.1/32", "10.2.3.200/32", "10.9.1.1/32", "10.9.2.1/32", "192.0.2.1/32"]
    {
        let at = |plan: &ProtectionPlan| plan.uses.longest(&prefix(addr)).copied().unwrap_or_default();
        let (then, now, later) = (at(&before), at(&between), at(&after));
        assert_eq!(now.protect_to, then.protect_to || later.protect_to, "{addr}");
        assert_eq!(now.refuse_from, then.refuse_from || later.refuse_from, "{addr}");
        let into_tun = |plan: &ProtectionPlan| {
            matches!(plan.routes.longest(&prefix(addr)), Some(GuardUse::Protect { .. }))
        };
        assert_eq!(into_tun(&between), into_tun(&before) || into_tun(&after), "{addr}");
    }
}

#[test]
fn what_is_abandoned_stays_as_it_is_until_it_is_claimed() {
    let wanted = tunnel(&["10.1.0.0/16"], &["10.0.0.0/8", "172.16.0.0/12"]);
    let before = ProtectionPlan::new(&wanted, &Inherited::default(), &connected_to(&[]));
    let mut inherited = Inherited::default();
    let origin = Origin { since: UnixTime(7), cause: Cause::ConnectionUnloaded("hub".into()) };
    for prefix in wanted.protected.keys() {
        inherited.keep(*prefix, &before.uses, origin.clone());
    }
    let after = ProtectionPlan::new(&Protection::default(), &inherited, &connected_to(&[]));
    assert_eq!(after.uses, before.uses);

    // By a policy that protects it, or by one that lets all of it pass.
    assert!(!claim(&mut inherited, &tunnel(&[], &["10.0.0.0/9"])));
    let open = Protection { passed: set(&["172.16.0.0/12"]), ..tunnel(&[], &["10.0.0.0/8"]) };
    assert!(claim(&mut inherited, &open));
    assert_eq!(inherited.prefixes().count(), 0);
    let open = ProtectionPlan::new(&Protection::default(), &inherited, &connected_to(&[]));
    assert_eq!(left_by(&open), PrefixUses::new());
}

/// Any host may be a peer: one on our own link too.
#[test]
fn connected_prefixes_are_no_exceptions_where_anybody_may_be_a_peer() {
    let everything = tunnel(&[], &["0.0.0.0/0"]);
    let fib = connected_to(&["10.1.0.0/24"]);
    let plan = ProtectionPlan::new(&everything, &Inherited::default(), &fib);
    assert_eq!(plan.connected, set(&["10.1.0.0/24"]));
    let anybody = Protection { anybody: set(&["0.0.0.0/0"]), ..everything };
    let plan = ProtectionPlan::new(&anybody, &Inherited::default(), &fib);
    assert_eq!(plan.connected, set(&[]));
    let protect = GuardUse::Protect { mtu: None, source: None };
    assert_eq!(plan.routes, [(prefix("0.0.0.0/0"), protect)].into());

    // Nor after a restart, before a connection is loaded, or when it is unloaded.
    let inherited = Inherited::new(left_by(&plan), UnixTime(0));
    assert_eq!(ProtectionPlan::new(&Protection::default(), &inherited, &fib), plan);
    let mut kept = Inherited::default();
    kept.keep(
        prefix("0.0.0.0/0"),
        &plan.uses,
        Origin { since: UnixTime(7), cause: Cause::ConnectionUnloaded("trap".into()) },
    );
    assert_eq!(ProtectionPlan::new(&Protection::default(), &kept, &fib), plan);
    // The next connection for everything names a peer.
    assert!(claim(&mut kept, &tunnel(&[], &["0.0.0.0/0"])));
    let plan = ProtectionPlan::new(&tunnel(&[], &["0.0.0.0/0"]), &kept, &fib);
    assert_eq!(plan.connected, set(&["10.1.0.0/24"]));
}
