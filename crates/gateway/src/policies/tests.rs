//! The order of the SPD, from connections as an operator writes them.

use super::*;
use std::time::Duration;
use testudo_ike::config::{StartAction, TsSpec};
use testudo_ipsec::packet_selector::PacketSelector;
use testudo_ipsec::selector::TrafficSelector;
use testudo_ipsec::spd::{Action, Decision};
use testudo_wire::ip::Protocol;

/// Of SAs whose home does not matter.
pub(super) const HOME: Shard = Shard(7);

pub(super) fn ts(prefix: &str) -> TrafficSelector {
    let (addr, len) = prefix.split_once('/').unwrap();
    let start: std::net::Ipv4Addr = addr.parse().unwrap();
    let hosts = u32::MAX.checked_shr(len.parse().unwrap()).unwrap_or(0);
    let end = std::net::Ipv4Addr::from(u32::from(start) | hosts);
    let addrs = AddrRange::new(start.into(), end.into()).unwrap();
    TrafficSelector::all(addrs)
}

pub(super) fn child(name: &str, mode: ChildMode, local: &str, remote: &str) -> Child {
    Child {
        name: name.into(),
        local_ts: vec![TsSpec::Fixed(ts(local))],
        remote_ts: vec![TsSpec::Fixed(ts(remote))],
        mode,
        // A shunt is there when it is installed.
        start_action: StartAction::None.with_trap(!mode.is_negotiated()),
        replay_window: 128,
        ..Child::default()
    }
}

pub(super) fn connection(children: Vec<Child>) -> Connection {
    Connection { name: "gw".into(), children, ..Connection::default() }
}

/// A Child SA that hosts' packets go through.
pub(super) fn new_sa<'a>(
    place: u64,
    id: ChildSaId,
    child: Option<&'a Child>,
    selectors: &'a SelectorPair,
    home: Shard,
) -> NewSa<'a> {
    NewSa { place, id, child, selectors, home, is_around: false, spread: None }
}

/// One in the place of another.
fn renewing(number: u64, selectors: &SelectorPair) -> NewSa<'_> {
    new_sa(number, ChildSaId(number), None, selectors, HOME)
}

fn order(policies: &Policies) -> Vec<Action> {
    let spd = policies.spd().unwrap();
    let mut entries: Vec<(PolicyId, &PolicyEntry)> = policies.table.iter().collect();
    entries.sort_by_key(|(_, entry)| entry.rank);
    assert_eq!(spd.len(), entries.len());
    entries.iter().map(|(id, entry)| entry.action(*id)).collect()
}

fn id_of(policies: &Policies, child: &str) -> PolicyId {
    let name = ChildName { connection: "gw".into(), child: child.into() };
    policies.configured[&name]
}

#[test]
fn bypass_comes_before_protect_before_discard_and_the_specific_first() {
    let mut policies = Policies::default();
    policies.load(&connection(vec![
        child("drop", ChildMode::Drop, "10.1.0.0/16", "10.2.3.0/24"),
        child("wide", ChildMode::Tunnel, "10.1.0.0/16", "10.2.0.0/16"),
        child("narrow", ChildMode::Tunnel, "10.1.0.0/16", "10.2.9.0/24"),
        child("pass", ChildMode::Pass, "0.0.0.0/0", "0.0.0.0/0"),
    ]));
    let (wide, narrow) = (id_of(&policies, "wide"), id_of(&policies, "narrow"));
    let expected = [Action::Bypass, Action::Protect(narrow), Action::Protect(wide), Action::Discard];
    assert_eq!(order(&policies), expected);
}

#[test]
fn an_explicit_priority_comes_before_computed_ones() {
    let mut policies = Policies::default();
    let mut first = child("first", ChildMode::Drop, "10.1.0.0/16", "10.2.0.0/16");
    first.priority = 7;
    policies.load(&connection(vec![child("pass", ChildMode::Pass, "10.1.0.0/16", "10.2.0.0/16"), first]));
    assert_eq!(order(&policies), [Action::Discard, Action::Bypass]);
}

/// The table of docs/reference/swanctl.md, "How pass, protect and drop rank": what happens to
/// packets from 10.1.0.1.
#[test]
fn how_pass_protect_and_drop_rank() {
    let prioritized =
        |name, mode, remote, priority| Child { priority, ..child(name, mode, "10.1.0.0/16", remote) };
    let mut policies = Policies::default();
    policies.load(&connection(vec![
        child("wide", ChildMode::Tunnel, "10.1.0.0/16", "10.0.0.0/8"),
        child("narrow", ChildMode::Tunnel, "10.1.0.0/16", "10.2.0.0/16"),
        child("hole", ChildMode::Pass, "10.1.0.0/16", "10.2.3.0/24"),
        child("late", ChildMode::Drop, "10.1.0.0/16", "10.4.0.0/16"),
        child("rest", ChildMode::Drop, "10.1.0.0/16", "0.0.0.0/0"),
        prioritized("ban", ChildMode::Drop, "10.5.0.0/16", 10),
        prioritized("but", ChildMode::Pass, "10.5.6.0/24", 5),
        prioritized("vain", ChildMode::Pass, "10.5.7.0/24", 20),
    ]));
    let spd = policies.spd().unwrap();
    let decided = |remote: &str| {
        let (local, remote) = ("10.1.0.1".parse().unwrap(), remote.parse().unwrap());
        spd.lookup(&PacketSelector::new(local, remote, Protocol(6), None).unwrap())
    };
    let protect = |child| Decision::Act(Action::Protect(id_of(&policies, child)));
    let (pass, drop) = (Decision::Act(Action::Bypass), Decision::Act(Action::Discard));
    for (remote, expected) in [
        // The narrower of two tunnels, and any pass before them.
        ("10.9.0.1", protect("wide")),
        ("10.2.0.1", protect("narrow")),
        ("10.2.3.1", pass),
        // A drop without a priority has what no tunnel and no pass takes, however narrow it is.
        ("10.4.0.1", protect("wide")),
        ("192.0.2.1", drop),
        // By a priority, which comes before all that have none, and the lower one first.
        ("10.5.0.1", drop),
        ("10.5.6.1", pass),
        ("10.5.7.1", drop),
    ] {
        assert_eq!(decided(remote), expected, "{remote}");
    }
}

#[test]
fn the_newest_sa_comes_before_older_ones_and_the_configured_child() {
    let mut policies = Policies::default();
    let net = child("net", ChildMode::Tunnel, "10.1.0.0/16", "10.2.0.0/16");
    policies.load(&connection(vec![net.clone()]));
    let sides = SelectorPair::new(&[ts("10.1.0.0/16")], &[ts("10.2.0.0/16")]);
    let old = policies.install(ChildSaId(1), Some(&net), &sides, HOME);
    let new = policies.install(ChildSaId(2), Some(&net), &sides, HOME);
    let configured = id_of(&policies, "net");
    assert_eq!(order(&policies), [new, old, configured].map(Action::Protect));
    assert_eq!(policies.remove(ChildSaId(1)), Some(old));
    assert_eq!(order(&policies), [new, configured].map(Action::Protect));
    assert_eq!(policies.child_of(configured).unwrap().child, "net");
    assert_eq!(policies.child_of(new), None);
}

/// RFC 7296 §2.9 knows no order: a peer that renews may name the same selectors in another.
#[test]
fn a_renewed_sa_has_the_policy_of_the_old_one_whatever_the_order_of_its_selectors() {
    let mut policies = Policies::default();
    let sides = [ts("10.1.0.0/16"), ts("10.3.0.0/16")];
    let pair = |order: [usize; 2]| SelectorPair::new(&order.map(|at| sides[at]), &[ts("10.2.0.0/16")]);
    let old = policies.install(ChildSaId(1), None, &pair([0, 1]), HOME);
    assert_eq!(policies.inherit(&renewing(2, &pair([1, 0])), ChildSaId(1)), Some(old));
    assert_eq!(policies.inherit(&renewing(3, &pair([0, 0])), ChildSaId(1)), None, "it carries less");
}

#[test]
fn a_reload_keeps_the_numbers_of_children_that_stay() {
    let mut policies = Policies::default();
    policies.load(&connection(vec![child("a", ChildMode::Tunnel, "10.1.0.0/16", "10.2.0.0/16")]));
    let before = id_of(&policies, "a");
    policies.load(&connection(vec![
        child("a", ChildMode::Tunnel, "10.1.0.0/16", "10.2.0.0/24"),
        child("b", ChildMode::Tunnel, "10.1.0.0/16", "10.3.0.0/16"),
    ]));
    assert_eq!(id_of(&policies, "a"), before);
    assert_ne!(id_of(&policies, "b"), before);
    policies.unload("gw");
    assert!(policies.spd().unwrap().is_empty());
}

#[test]
fn loading_the_same_again_changes_nothing() {
    let mut policies = Policies::default();
    let same = connection(vec![
        child("a", ChildMode::Tunnel, "10.1.0.0/16", "10.2.0.0/16"),
        child("b", ChildMode::Pass, "10.1.0.0/16", "10.2.3.0/24"),
    ]);
    policies.load(&same);
    assert_eq!(policies.take_change(), Change::Protection);
    policies.take_differences();
    policies.take_senders();
    policies.load(&same);
    // What filter, routes and SPD do not depend on.
    policies.load(&Connection { dpd_delay: Duration::from_secs(7), ..same.clone() });
    assert_eq!(policies.take_change(), Change::None);

    // The same prefixes in another order: the SPD changes, and nothing else has to follow.
    let mut turned = same.clone();
    turned.children.reverse();
    policies.load(&turned);
    assert_eq!(policies.take_change(), Change::Spd);
    policies.unload("gw");
    assert_eq!(policies.take_change(), Change::Protection);
    policies.load(&turned);
    assert!(policies.take_differences().is_empty(), "it came back before anybody looked");
}

#[test]
fn numbers_are_used_again_so_that_tables_stay_small() {
    let mut policies = Policies::default();
    let side = [ts("10.1.0.0/16")];
    for n in 0..1000 {
        let id = policies.install(ChildSaId(n), None, &SelectorPair::new(&side, &side), HOME);
        assert!(id.0 < 2, "{id:?}");
        if n > 0 {
            policies.remove(ChildSaId(n - 1)).unwrap();
        }
        policies.applied();
    }
}

/// What goes to an address of a pool is held back also while nobody has it.
#[test]
fn dynamic_is_the_whole_pool_before_there_is_a_lease() {
    let road = Pool {
        name: "road".into(),
        base: "10.3.0.0".parse().unwrap(),
        addrs: AddrRange::new("10.3.0.1".parse().unwrap(), "10.3.0.254".parse().unwrap()).unwrap(),
        dns: vec![],
        subnets: vec![],
    };
    let mut net = child("net", ChildMode::Tunnel, "10.1.0.0/16", "10.2.0.0/16");
    net.remote_ts = vec![TsSpec::Dynamic { protocol: 0, port_start: 0, port_end: u16::MAX }];
    let users = Connection { pools: vec!["road".into()], ..connection(vec![net]) };
    let remote = |policies: &Policies| {
        policies.table.iter().next().and_then(|(_, entry)| entry.remote_ranges().next())
    };
    let mut policies = Policies::default();
    policies.load_pool(&road);
    policies.load(&users);
    assert_eq!(remote(&policies), Some(road.addrs));
    policies.unload_pool("road");
    policies.load(&users);
    assert_ne!(remote(&policies), Some(road.addrs));
}

#[test]
fn a_renewed_child_sa_shares_the_policy_with_the_new_one() {
    let mut policies = Policies::default();
    let sides = SelectorPair::new(&[ts("10.1.0.0/16")], &[ts("10.2.0.0/16")]);
    let first = policies.install(ChildSaId(1), None, &sides, HOME);
    let before = order(&policies);
    assert_eq!(policies.inherit(&renewing(2, &sides), ChildSaId(1)), Some(first));
    assert_eq!(order(&policies), before, "nothing changes for packets");
    assert_eq!(policies.inherit(&renewing(3, &sides), ChildSaId(2)), Some(first));
    assert_eq!(policies.remove(ChildSaId(1)), None);
    assert_eq!(policies.remove(ChildSaId(3)), None);
    assert_eq!(order(&policies), before);
    let other = SelectorPair::new(&[ts("10.1.0.0/16")], &[ts("10.3.0.0/16")]);
    assert_eq!(policies.inherit(&renewing(4, &other), ChildSaId(2)), None, "it carries something else");
    assert_eq!(policies.inherit(&renewing(4, &sides), ChildSaId(9)), None);
    assert_eq!(policies.remove(ChildSaId(2)), Some(first), "the last one takes it along");
    assert_eq!(order(&policies), []);
}

/// What the workers have, beside a tunnel for everything, while filter and routes follow.
#[test]
fn a_released_prefix_stays_shut_in_the_spd_until_filter_and_routes_have_opened_it() {
    let shut: Prefix = "10.9.0.0/16".parse().unwrap();
    let mut policies = Policies::default();
    policies.load(&connection(vec![child("all", ChildMode::Tunnel, "10.1.0.0/16", "0.0.0.0/0")]));
    // Of all addresses, 32 bits are open to the gateway itself; of the prefix, 16 bits are not.
    let width = |policies: &Policies| {
        let (local, remote) = ("192.0.2.1".parse().unwrap(), "10.9.0.1".parse().unwrap());
        let packet = PacketSelector::new(local, remote, Protocol::UDP, None).unwrap();
        policies.spd().unwrap().held_back(&packet)
    };
    policies.set_shut(&shut, true);
    assert_eq!(width(&policies), Some(16), "at once");
    policies.set_shut(&shut, false);
    assert_eq!(width(&policies), Some(16));
    // Filter and routes have failed to follow, and it was taken back.
    policies.set_shut(&shut, true);
    assert!(!policies.open_released());
    assert_eq!(width(&policies), Some(16));
    policies.set_shut(&shut, false);
    // Failing without being taken back changes nothing either.
    policies.set_shut(&shut, false);
    assert!(policies.open_released() && !policies.open_released());
    assert_eq!(width(&policies), Some(32));
    policies.set_shut(&shut, false);
    assert!(!policies.open_released(), "it was not shut");
    policies.set_shut(&shut, true);
    assert_eq!(width(&policies), Some(16), "again");
}
