//! Policies of AH for ESP of our own.

use super::*;
use crate::policies::tests::{HOME, child, connection, new_sa, ts};
use std::net::IpAddr;
use testudo_ike::config::{EspProposal, TsSpec};
use testudo_ipsec::packet_selector::PacketSelector;
use testudo_ipsec::sa::Mac;
use testudo_ipsec::selector::TrafficSelector;
use testudo_ipsec::spd::Decision;

const GATEWAYS: [&str; 2] = ["192.0.2.1/32", "192.0.2.2/32"];

fn esp_only(prefix: &str) -> TrafficSelector {
    TrafficSelector { protocol: 50, ..ts(prefix) }
}

fn ah() -> EspProposal {
    EspProposal {
        encryption: vec![],
        integrity: vec![Mac::HmacSha256_128],
        ke: vec![],
        additional: Default::default(),
        esn: vec![true],
    }
}

/// A child of AH between the gateways for nothing but ESP.
fn around(mode: ChildMode) -> Child {
    Child {
        local_ts: vec![TsSpec::Dynamic { protocol: 50, port_start: 0, port_end: u16::MAX }],
        remote_ts: vec![TsSpec::Fixed(esp_only(GATEWAYS[1]))],
        proposals: vec![ah()],
        ..child("outer", mode, GATEWAYS[0], GATEWAYS[1])
    }
}

fn sides() -> SelectorPair {
    SelectorPair::new(&[esp_only(GATEWAYS[0])], &[esp_only(GATEWAYS[1])])
}

fn ends() -> [IpAddr; 2] {
    ["192.0.2.1", "192.0.2.2"].map(|addr| addr.parse().unwrap())
}

/// What goes around ESP of our own.
fn found(policies: &Policies) -> Option<PolicyId> {
    let [local, remote] = ends();
    policies.spd().unwrap().around(local, remote)
}

/// What becomes of a packet of this host to the peer.
fn of_host(policies: &Policies, protocol: u8) -> Decision {
    let [local, remote] = ends();
    let packet = PacketSelector::new(local, remote, testudo_wire::ip::Protocol(protocol), None).unwrap();
    policies.spd().unwrap().lookup(&packet)
}

fn outer_sa(id: ChildSaId, selectors: &SelectorPair) -> NewSa<'_> {
    NewSa { is_around: true, ..new_sa(id.0, id, None, selectors, HOME) }
}

#[test]
fn it_is_for_esp_of_our_own_and_holds_nothing_back() {
    let mut policies = Policies::default();
    policies.load(&connection(vec![around(ChildMode::Transport)]));
    let id = found(&policies).expect("it stands");
    assert_eq!(policies.child_of(id).map(|name| name.child.as_str()), Some("outer"));
    let other = "192.0.2.3".parse().unwrap();
    assert_eq!(policies.spd().unwrap().around(ends()[0], other), None);
    // IKE, a ping, and ESP that is not ours.
    for protocol in [17, 1, 50] {
        assert_eq!(of_host(&policies, protocol), Decision::NoPolicy);
    }
    assert_eq!(policies.protection(), Protection::default());
    policies.unload("gw");
    assert!(found(&policies).is_none() && policies.spd().unwrap().is_empty());
}

/// What is not between the gateways themselves, or not AH, or not ESP alone, is for what hosts
/// send.
#[test]
fn others_are_for_what_hosts_send() {
    let all = Child { remote_ts: vec![TsSpec::Fixed(ts(GATEWAYS[1]))], ..around(ChildMode::Transport) };
    let esp = Child {
        proposals: vec![EspProposal {
            encryption: vec![testudo_ike::config::EspEncryption::Aes128Gcm16],
            ..ah()
        }],
        ..around(ChildMode::Transport)
    };
    for child in [around(ChildMode::Tunnel), all, esp] {
        let mut policies = Policies::default();
        policies.load(&connection(vec![child.clone()]));
        assert_eq!(found(&policies), None, "{child:?}");
        assert!(matches!(of_host(&policies, 50), Decision::Act(Action::Protect(_))), "{child:?}");
        assert!(!policies.protection().protected.is_empty());
    }
}

#[test]
fn the_newest_sa_comes_first_and_the_child_stands_behind() {
    let mut policies = Policies::default();
    policies.load(&connection(vec![around(ChildMode::Transport)]));
    let child = found(&policies);
    let (selectors, [first, second, third]) = (sides(), [1, 2, 3].map(ChildSaId));
    let id = policies.install_at(&outer_sa(first, &selectors));
    assert_eq!(found(&policies), Some(id));
    assert_eq!(policies.inherit(&outer_sa(second, &selectors), first), Some(id));
    // With the same selectors, but for what hosts send: the child has become another.
    assert_eq!(policies.inherit(&new_sa(third.0, third, None, &selectors, HOME), second), None);
    assert_eq!(policies.protection(), Protection::default());
    assert_eq!((policies.remove(first), policies.remove(second)), (None, Some(id)));
    assert_eq!(found(&policies), child);
    assert_eq!(policies.spd().unwrap().len(), 1);
}

/// In a cluster an SA and what renews it have one place, also where they do not carry the same.
#[test]
fn in_a_cluster_two_may_have_one_place() {
    let mut policies = Policies::of_node(SipKey::new([7; 16]));
    policies.load(&connection(vec![around(ChildMode::Transport)]));
    let wide = SelectorPair::new(&[esp_only("192.0.2.0/24")], &[esp_only(GATEWAYS[1])]);
    let selectors = sides();
    let place = |sa: NewSa<'_>| policies.install_at(&NewSa { place: 9, ..sa });
    let ids: Vec<PolicyId> =
        [outer_sa(ChildSaId(1), &selectors), outer_sa(ChildSaId(2), &selectors)].map(place).to_vec();
    assert_eq!(found(&policies), Some(ids[0]), "the older one");
    let other = policies.install_at(&NewSa { place: 9, ..outer_sa(ChildSaId(3), &wide) });
    policies.remove(ChildSaId(1));
    policies.remove(ChildSaId(2));
    policies.remove(ChildSaId(3));
    assert!(found(&policies).is_some_and(|id| id != other && !ids.contains(&id)), "the child's");
    assert!(policies.take_new_homes().is_empty(), "of what hosts send it has nothing");
    assert_eq!(policies.take_policy_homes().len(), 1);
}
