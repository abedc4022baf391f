//! What a packet meets while a Child SA is replaced by one with other selectors.

use crate::policies::tests::{HOME, child, connection, new_sa, ts};
use crate::policies::*;
use testudo_ipsec::packet_selector::PacketSelector;
use testudo_ipsec::spd::Decision;
use testudo_wire::ip::Protocol;

const OLD: ChildSaId = ChildSaId(1);
const NEW: ChildSaId = ChildSaId(2);

fn net(remote: &str) -> Child {
    child("net", ChildMode::Tunnel, "10.1.0.0/16", remote)
}

fn selectors(remote: &str) -> SelectorPair {
    SelectorPair::new(&[ts("10.1.0.0/16")], &[ts(remote)])
}

/// The numbers of the policies that stand, those that are looked at first in front.
fn standing(policies: &Policies) -> Vec<Action> {
    let all = policies.table.iter().filter(|(id, _)| !policies.resting.contains(id));
    let mut standing: Vec<(Rank, Action)> = all.map(|(id, entry)| (entry.rank, entry.action(id))).collect();
    standing.extend(policies.stand_ins.iter().map(|(id, place)| (place.rank, Action::Protect(id))));
    standing.sort_by_key(|(rank, _)| *rank);
    assert_eq!(policies.spd().unwrap().len(), standing.len());
    standing.into_iter().map(|(_, action)| action).collect()
}

fn of([local, remote]: [std::net::IpAddr; 2]) -> PacketSelector {
    PacketSelector::new(local, remote, Protocol::UDP, Some((1000, 53))).unwrap()
}

/// A packet to that address goes through the SA of that policy, or waits for it.
fn packet_takes(policies: &Policies, remote: &str, id: PolicyId) {
    let packet = of(["10.1.0.9".parse().unwrap(), remote.parse().unwrap()]);
    assert_eq!(policies.spd().unwrap().lookup(&packet), Decision::Act(Action::Protect(id)), "{remote}");
}

fn configured(policies: &Policies) -> Action {
    let id = *policies.configured.values().next().unwrap();
    policies.table.get(id).unwrap().action(id)
}

/// A tunnel to `before`, and then the child is one to `after`.
fn changed(before: &str, after: &str) -> (Policies, PolicyId) {
    let mut policies = Policies::default();
    policies.load(&connection(vec![net(before)]));
    let old = policies.install(OLD, Some(&net(before)), &selectors(before), HOME);
    policies.applied();
    policies.load(&connection(vec![net(after)]));
    policies.stand_in("gw", &[OLD]);
    (policies, old)
}

#[test]
fn a_narrower_child_does_not_cut_the_old_sa_off() {
    let (mut policies, old) = changed("10.2.0.0/16", "10.2.3.0/24");
    let now = configured(&policies);
    assert_eq!(standing(&policies), [Action::Protect(old), now, Action::Protect(old)]);
    let after = net("10.2.3.0/24");
    let new = policies.install(NEW, Some(&after), &selectors("10.2.3.0/24"), HOME);
    let both = [Action::Protect(new), Action::Protect(old), now, Action::Protect(old)];
    assert_eq!(standing(&policies), both, "the worker sends through the old one");
    policies.switch(OLD, NEW, true);
    assert_eq!(standing(&policies), [Action::Protect(new), now]);
    policies.remove(OLD);
    assert_eq!(standing(&policies), [Action::Protect(new), now]);
    policies.remove(NEW);
    assert_eq!(standing(&policies), [now], "held back without an SA");
}

#[test]
fn a_wider_child_comes_behind_the_old_sa() {
    let (mut policies, old) = changed("10.2.3.0/24", "10.2.0.0/16");
    let now = configured(&policies);
    assert_eq!(standing(&policies), [Action::Protect(old), now]);
    let after = net("10.2.0.0/16");
    let new = policies.install(NEW, Some(&after), &selectors("10.2.0.0/16"), HOME);
    policies.switch(OLD, NEW, true);
    // The old SA takes packets in for a while, and must not be in the way of what goes out.
    assert_eq!(standing(&policies), [Action::Protect(new), now]);
}

#[test]
fn only_what_the_old_sa_carries_goes_through_it() {
    let (mut policies, old) = changed("10.2.0.0/16", "10.3.0.0/24");
    let now = configured(&policies);
    assert_eq!(standing(&policies), [now, Action::Protect(old)], "they have nothing in common");
    policies.load(&connection(vec![
        net("10.2.0.0/24"),
        child("b", ChildMode::Tunnel, "10.1.0.0/16", "10.2.1.0/24"),
    ]));
    policies.stand_in("gw", &[OLD]);
    assert_eq!(standing(&policies).iter().filter(|action| **action == Action::Protect(old)).count(), 3);
    packet_takes(&policies, "10.2.0.5", old);
    packet_takes(&policies, "10.2.1.5", old);
    policies.unload("gw");
    assert!(policies.stand_ins.by_connection.is_empty());
    assert_eq!(standing(&policies), [Action::Protect(old)]);
    policies.remove(OLD);
    assert!(standing(&policies).is_empty());
}

/// Children for one network of the peer's, of equal priority: what stands in for them stands under
/// one prefix.
#[test]
fn what_stands_in_for_several_children_of_one_network_stands_and_goes() {
    let (mut policies, old) = changed("10.2.0.0/16", "10.2.0.0/24");
    let part = |name: &str, local: &str| child(name, ChildMode::Tunnel, local, "10.2.0.0/24");
    policies.load(&connection(vec![part("net", "10.1.0.0/24"), part("b", "10.1.1.0/24")]));
    policies.stand_in("gw", &[OLD]);
    for local in ["10.1.0.9", "10.1.1.9"] {
        let packet = of([local.parse().unwrap(), "10.2.0.5".parse().unwrap()]);
        assert_eq!(policies.spd().unwrap().lookup(&packet), Decision::Act(Action::Protect(old)), "{local}");
    }
    policies.remove(OLD);
    assert_eq!(policies.spd().unwrap().len(), 2);
}

/// What a child carries by itself it goes on carrying, whatever becomes of a wider one beside it.
#[test]
fn a_child_that_has_not_changed_keeps_its_traffic() {
    let narrow = || child("narrow", ChildMode::Tunnel, "10.1.0.0/16", "10.2.1.0/24");
    let mut policies = Policies::default();
    policies.load(&connection(vec![net("10.2.0.0/16"), narrow()]));
    let wide = ChildSaId(9);
    let own = policies.install(OLD, Some(&narrow()), &selectors("10.2.1.0/24"), HOME);
    let old = policies.install(wide, Some(&net("10.2.0.0/16")), &selectors("10.2.0.0/16"), HOME);
    policies.applied();
    // Other algorithms, which no policy knows of.
    policies.stand_in("gw", &[wide]);
    packet_takes(&policies, "10.2.1.5", own);
    // And other selectors.
    policies.load(&connection(vec![net("10.2.0.0/17"), narrow()]));
    policies.stand_in("gw", &[wide]);
    packet_takes(&policies, "10.2.1.5", own);
    packet_takes(&policies, "10.2.0.5", old);
}

/// The new SA has the policy of the old one, and a narrower child came beside it meanwhile.
#[test]
fn nothing_stands_in_behind_the_new_sa() {
    let mut policies = Policies::default();
    let wide = net("10.2.0.0/16");
    policies.load(&connection(vec![wide.clone()]));
    let old = policies.install(OLD, Some(&wide), &selectors("10.2.0.0/16"), HOME);
    policies.applied();
    let narrow = child("narrow", ChildMode::Tunnel, "10.1.0.0/16", "10.2.1.0/24");
    policies.load(&connection(vec![wide.clone(), narrow]));
    policies.stand_in("gw", &[OLD]);
    packet_takes(&policies, "10.2.1.5", old);
    assert_eq!(
        policies.inherit(&new_sa(NEW.0, NEW, Some(&wide), &selectors("10.2.0.0/16"), HOME), OLD),
        Some(old)
    );
    let before = standing(&policies);
    // As long as that one is outdated itself, all stays as it is.
    policies.switch(OLD, NEW, false);
    assert_eq!(standing(&policies), before);
    policies.switch(OLD, NEW, true);
    policies.remove(OLD);
    let traps =
        policies.configured.values().copied().find(|id| policies.child_of(*id).unwrap().child == "narrow");
    packet_takes(&policies, "10.2.1.5", traps.unwrap());
    packet_takes(&policies, "10.2.0.5", old);
    policies.stand_in("gw", &[NEW]);
    packet_takes(&policies, "10.2.1.5", traps.unwrap());
}

#[test]
fn another_priority_is_another_policy() {
    let mut policies = Policies::default();
    let first = net("10.2.0.0/16");
    let same = selectors("10.2.0.0/16");
    let old = policies.install(OLD, Some(&first), &same, HOME);
    let urgent = Child { priority: 5, ..first };
    assert_eq!(policies.inherit(&new_sa(NEW.0, NEW, Some(&urgent), &same, HOME), OLD), None);
    let new = policies.install(NEW, Some(&urgent), &same, HOME);
    assert_ne!(old, new);
    policies.switch(OLD, NEW, true);
    assert_eq!(standing(&policies), [Action::Protect(new)]);
}

/// An SA of the new policy is with the worker before the SPD is: a number that the worker's SPD
/// still names would send through it what is another's.
#[test]
fn a_number_rests_until_the_worker_has_forgotten_it() {
    let mut policies = Policies::default();
    let one = policies.install(ChildSaId(3), None, &selectors("10.3.0.0/16"), HOME);
    policies.install(OLD, None, &selectors("10.2.0.0/16"), HOME);
    policies.remove(ChildSaId(3));
    let new = policies.install(NEW, None, &selectors("10.2.3.0/24"), HOME);
    assert_ne!(new, one);
    policies.applied();
    assert_eq!(policies.install(ChildSaId(4), None, &selectors("10.4.0.0/16"), HOME), one);
}
