//! Which homes prefixes have, and what a change costs.

mod packets;

use super::{MAX_KINDS_COMPARED, UNKNOWN_HOME};
use crate::policies::homes::Homes;
use crate::policies::tests::{child, connection, new_sa, ts};
use crate::policies::*;
use crate::prefix_map::{PrefixMap, meter};
use std::net::IpAddr;
use testudo_base::prefix::Prefix;
use testudo_cluster::dispatch::PrefixHome;
use testudo_ipsec::packet_selector::PacketSelector;
use testudo_ipsec::selector::TrafficSelector;
use testudo_ipsec::spd::Decision;
use testudo_wire::ip::Protocol;

fn key() -> SipKey {
    SipKey::new([7; 16])
}

fn prefix(text: &str) -> Prefix {
    text.parse().expect(text)
}

fn addr(text: &str) -> IpAddr {
    text.parse().expect(text)
}

/// The policies of a node, and what its filter has been told.
struct Node {
    policies: Policies,
    named: PrefixMap<PrefixHome>,
    numbers: u64,
}

impl Node {
    fn new() -> Self {
        Self { policies: Policies::of_node(key()), named: PrefixMap::default(), numbers: 0 }
    }

    fn crowded(room: usize) -> Self {
        let policies = Policies { homes: Some(Homes::with_room(key(), room)), ..Policies::default() };
        Self { policies, ..Self::new() }
    }

    fn load(&mut self, name: &str, children: Vec<Child>) {
        self.policies.load(&Connection { name: name.to_owned(), ..connection(children) });
    }

    fn install(&mut self, local: &str, remote: &str, home: u8) -> ChildSaId {
        self.install_ts(&[ts(local)], &[ts(remote)], home)
    }

    fn install_ts(&mut self, local: &[TrafficSelector], remote: &[TrafficSelector], home: u8) -> ChildSaId {
        self.numbers += 1;
        let sa = ChildSaId(self.numbers);
        self.policies.install(sa, None, &SelectorPair::new(local, remote), Shard(home));
        sa
    }

    /// A Child SA whose packets are spread over the nodes.
    fn install_spread(&mut self, local: &str, remote: &str, home: u8, by: Spread) {
        self.numbers += 1;
        let selectors = SelectorPair::new(&[ts(local)], &[ts(remote)]);
        let sa = new_sa(self.numbers, ChildSaId(self.numbers), None, &selectors, Shard(home));
        self.policies.install_at(&NewSa { spread: Some(by), ..sa });
    }

    /// Tells the filter what is new. How many prefixes that concerns.
    fn tell(&mut self) -> usize {
        let new = self.policies.take_new_homes();
        for (prefix, home) in &new {
            match home {
                Some(home) => drop(self.named.insert(*prefix, *home)),
                None => drop(self.named.remove(prefix)),
            }
        }
        new.len()
    }

    fn home(&self, of: &str) -> PrefixHome {
        self.home_of(addr(of))
    }

    fn home_of(&self, addr: IpAddr) -> PrefixHome {
        self.named.longest(&Prefix::host(addr)).copied().unwrap_or(UNKNOWN_HOME)
    }
}

fn shard(shard: u8) -> PrefixHome {
    PrefixHome::Shard(Shard(shard))
}

fn of_name(name: &str) -> PrefixHome {
    PrefixHome::Shard(key().name(name))
}

const ANY: &str = "0.0.0.0/0";

#[test]
fn what_has_no_sa_is_at_home_with_its_connection_and_what_has_one_with_the_sa() {
    let mut node = Node::new();
    node.load("site", vec![child("net", ChildMode::Tunnel, ANY, "10.2.0.0/16")]);
    node.tell();
    assert_eq!(node.home("10.2.3.4"), of_name("site"));
    let sa = node.install(ANY, "10.2.0.0/16", 200);
    node.tell();
    assert_eq!(node.home("10.2.3.4"), shard(200));
    assert_eq!(node.home("10.3.0.1"), UNKNOWN_HOME);
    node.policies.remove(sa);
    node.tell();
    assert_eq!(node.home("10.2.3.4"), of_name("site"));
    node.policies.unload("site");
    node.tell();
    assert!(node.named.is_empty());
}

/// One node alone asks for the SA of a policy that has none.
#[test]
fn a_configured_child_is_at_home_with_its_connection() {
    let mut node = Node::new();
    node.load("site", vec![child("net", ChildMode::Tunnel, ANY, "10.2.0.0/16")]);
    let name = ChildName { connection: "site".into(), child: "net".into() };
    let id = node.policies.configured[&name];
    assert_eq!(node.policies.take_policy_homes(), [(id, key().name("site"))].into());
    node.install(ANY, "10.2.0.0/16", 1);
    assert!(node.policies.take_policy_homes().is_empty(), "it never stands without its SA");
    let mut alone = Policies::default();
    alone.load(&connection(vec![child("net", ChildMode::Tunnel, ANY, "10.2.0.0/16")]));
    assert!(alone.take_policy_homes().is_empty() && alone.take_new_homes().is_empty());
}

#[test]
fn an_sa_narrower_than_its_child_has_an_entry_of_its_own() {
    let mut node = Node::new();
    node.load("road", vec![child("net", ChildMode::Tunnel, "10.1.0.0/16", "10.2.0.0/16")]);
    node.install("10.1.0.0/16", "10.2.0.9/32", 3);
    let Shard(same) = key().name("road");
    node.install("10.1.0.0/16", "10.2.0.10/32", same);
    node.tell();
    assert_eq!([node.home("10.2.0.9"), node.home("10.2.0.10")], [shard(3), of_name("road")]);
    let named: Vec<&Prefix> = node.named.keys().collect();
    assert_eq!(named, [&prefix("10.2.0.0/16"), &prefix("10.2.0.9/32")]);
}

#[test]
fn several_homes_of_one_prefix_are_ambiguous_until_one_is_left() {
    let mut node = Node::new();
    let first = node.install("10.1.1.0/24", "10.2.0.0/16", 1);
    let second = node.install("10.1.2.0/24", "10.2.0.0/16", 2);
    node.tell();
    assert_eq!(node.home("10.2.0.1"), PrefixHome::Ambiguous);
    // Two of one home are no question.
    node.install("10.1.3.0/24", "10.2.0.0/16", 1);
    node.policies.remove(second);
    node.tell();
    assert_eq!(node.home("10.2.0.1"), shard(1));
    node.policies.remove(first);
    node.tell();
    assert_eq!(node.home("10.2.0.1"), shard(1));
}

/// Others of our side than the SA's are still to have an SA of their own, and its home is where
/// that begins.
#[test]
fn an_sa_that_leaves_something_to_a_child_without_one_does_not_speak_for_it() {
    let mut node = Node::new();
    node.load("a", vec![child("net", ChildMode::Tunnel, "10.1.1.0/24", "10.2.0.0/16")]);
    node.load("b", vec![child("net", ChildMode::Tunnel, "10.1.2.0/24", "10.2.0.0/16")]);
    node.install("10.1.1.0/24", "10.2.0.0/16", 9);
    node.tell();
    assert_eq!(node.home("10.2.0.1"), PrefixHome::Ambiguous);
    node.install("10.1.2.0/24", "10.2.0.0/16", 9);
    node.tell();
    assert_eq!(node.home("10.2.0.1"), shard(9));
    // A child that is looked at before the SA is asked in spite of it.
    node.load("c", vec![child("net", ChildMode::Tunnel, "10.1.0.0/16", "10.2.7.0/25")]);
    node.tell();
    assert_eq!([node.home("10.2.0.1"), node.home("10.2.7.1")], [shard(9), of_name("c")]);
}

/// The default route through one tunnel makes nothing ambiguous that has a narrower one.
#[test]
fn what_comes_first_wholly_is_not_asked_what_comes_after() {
    let mut node = Node::new();
    node.install("10.0.0.0/8", ANY, 1);
    node.install("10.0.0.0/8", "10.2.0.0/16", 2);
    node.install("10.1.0.0/16", "10.3.0.0/16", 3);
    node.install_ts(&[ts(ANY)], &[TrafficSelector { protocol: 6, ..ts("10.4.0.0/16") }], 4);
    node.tell();
    let homes = ["192.0.2.1", "10.2.0.1", "10.3.0.1", "10.4.0.1"].map(|addr| node.home(addr));
    assert_eq!(homes, [shard(1), shard(2), PrefixHome::Ambiguous, PrefixHome::Ambiguous]);
}

#[test]
fn what_is_dropped_or_passes_is_for_one_node_unless_an_sa_says_which() {
    let mut node = Node::new();
    node.load("drop", vec![child("all", ChildMode::Drop, ANY, ANY)]);
    node.tell();
    assert_eq!(node.home("192.0.2.1"), of_name("drop"));
    node.install("10.1.0.0/16", "10.2.0.0/16", 2);
    node.load("pass", vec![child("lan", ChildMode::Pass, "10.1.0.0/24", "10.2.9.0/24")]);
    node.tell();
    assert_eq!([node.home("10.2.0.1"), node.home("10.2.9.1")], [shard(2), shard(2)]);
}

#[test]
fn a_rekeyed_sa_keeps_its_policy_only_at_its_home_and_place() {
    let mut node = Node::new();
    let old = node.install(ANY, "10.2.0.0/16", 5);
    node.tell();
    let same = SelectorPair::new(&[ts(ANY)], &[ts("10.2.0.0/16")]);
    assert!(node.policies.inherit(&new_sa(old.0, ChildSaId(100), None, &same, Shard(5)), old).is_some());
    assert_eq!(node.tell(), 0);
    assert_eq!(node.policies.inherit(&new_sa(old.0, ChildSaId(101), None, &same, Shard(6)), old), None);
    assert_eq!(node.policies.inherit(&new_sa(old.0 + 1, ChildSaId(101), None, &same, Shard(5)), old), None);
    node.policies.remove(old);
    assert_eq!(node.tell(), 0);
    assert_eq!(node.home("10.2.0.1"), shard(5));
}

/// In a cluster a renewed SA has the place of the old one, also where it carries less and has a
/// policy of its own.
#[test]
fn an_sa_in_the_place_of_another_is_found_when_that_one_has_gone() {
    let mut node = Node::new();
    let mut install = |sa: u64, remote: &str, home: u8| {
        let selectors = SelectorPair::new(&[ts(ANY)], &[ts(remote)]);
        let urgent = Child { priority: 5, ..child("net", ChildMode::Tunnel, ANY, remote) };
        node.policies.install_at(&new_sa(7 << 32 | 5, ChildSaId(sa), Some(&urgent), &selectors, Shard(home)))
    };
    let (old, new) = (install(1, "10.2.0.0/16", 5), install(2, "10.2.0.0/17", 5));
    let takes = |node: &Node, remote: &str| {
        let ends = ["192.0.2.1", remote].map(addr);
        node.policies
            .spd()
            .unwrap()
            .lookup(&PacketSelector::new(ends[0], ends[1], Protocol::UDP, Some((1, 2))).unwrap())
    };
    assert_eq!(takes(&node, "10.2.0.1"), Decision::Act(Action::Protect(old)));
    node.policies.switch(ChildSaId(1), ChildSaId(2), true);
    assert_eq!(takes(&node, "10.2.0.1"), Decision::Act(Action::Protect(new)));
    node.policies.remove(ChildSaId(1));
    node.tell();
    assert_eq!(takes(&node, "10.2.0.1"), Decision::Act(Action::Protect(new)));
    assert_eq!(node.home("10.2.0.1"), shard(5));
    node.policies.remove(ChildSaId(2));
    assert!(node.policies.homes.as_ref().is_some_and(|homes| homes.standing.is_empty()));
}

#[test]
fn a_change_that_is_taken_back_is_none() {
    let mut node = Node::new();
    node.load("site", vec![child("net", ChildMode::Tunnel, ANY, "10.2.0.0/16")]);
    assert_eq!(node.policies.take_change(), Change::Protection);
    node.tell();
    node.policies.take_differences();
    let sa = node.install(ANY, "10.2.3.0/24", 5);
    assert_eq!(node.policies.take_change(), Change::Protection);
    node.policies.remove(sa);
    assert_eq!(node.tell(), 0);
    assert_eq!(node.policies.take_change(), Change::Spd);
    assert_eq!(node.policies.take_change(), Change::None);
}

#[test]
fn without_room_for_all_homes_every_node_looks() {
    let mut node = Node::crowded(8);
    node.load("road", vec![child("pool", ChildMode::Tunnel, ANY, "10.2.0.0/16")]);
    let sas: Vec<ChildSaId> = (0..8).map(|n| node.install(ANY, &format!("10.2.0.{n}/32"), 100 + n)).collect();
    node.tell();
    assert!(node.named.is_empty());
    // What comes and goes while there are too many is not forgotten.
    node.policies.remove(sas[7]);
    node.policies.remove(sas[6]);
    node.tell();
    assert!(node.named.is_empty());
    node.policies.remove(sas[5]);
    node.tell();
    assert_eq!([node.home("10.2.0.4"), node.home("10.2.0.5")], [shard(104), of_name("road")]);
}

#[test]
fn very_many_kinds_of_policies_are_one_home_or_all() {
    let mut node = Node::new();
    for n in 0..=MAX_KINDS_COMPARED as u8 {
        node.install(&format!("10.1.{n}.0/24"), "10.2.0.0/16", 4);
    }
    node.tell();
    assert_eq!(node.home("10.2.0.1"), shard(4));
    node.install("10.1.0.0/16", "10.2.0.0/17", 5);
    node.tell();
    assert_eq!([node.home("10.2.0.1"), node.home("10.2.200.1")], [PrefixHome::Ambiguous, shard(4)]);
}

/// What is looked at while `work` goes on.
fn cost<T>(work: impl FnOnce() -> T) -> (usize, T) {
    meter::take();
    let done = work();
    (meter::take(), done)
}

/// Road warriors, each with an address out of one pool; and as many connections that share the
/// pool.
#[test]
fn what_a_tunnel_costs_does_not_grow_with_how_many_there_are() {
    let mut node = Node::new();
    let pool = child("pool", ChildMode::Tunnel, "192.168.0.0/16", "10.0.0.0/8");
    node.load("road", vec![pool.clone()]);
    node.tell();
    let mut costs = Vec::new();
    for n in 0..5000u16 {
        let [high, low] = n.to_be_bytes();
        let remote = format!("10.0.{high}.{low}/32");
        let (up, (sa, told)) = cost(|| {
            let sa = node.install("192.168.0.0/16", &remote, low);
            (sa, node.tell())
        });
        assert!(told <= 1);
        let (again, _) = cost(|| {
            node.policies.remove(sa);
            node.tell();
            node.install("192.168.0.0/16", &remote, low);
            node.tell();
        });
        costs.push((up, again));
    }
    let most = |costs: &[(usize, usize)]| costs.iter().max().copied();
    assert_eq!(most(&costs[10..500]), most(&costs[500..]));
    assert!(costs.iter().all(|(up, again)| *up < 40 && *again < 100), "{:?}", most(&costs));
    // The third connection with the pool, and all after it, change nothing for those below.
    for n in 0..50 {
        let (one, told) = cost(|| {
            node.load(&format!("road{n}"), vec![pool.clone()]);
            node.tell()
        });
        assert!(n < 3 || one < 40 && told == 0, "{n}: {one}, {told}");
    }
}

/// Where only some of the policies of one home are spread, only the policies tell where a packet
/// goes.
#[test]
fn a_prefix_is_spread_if_all_policies_about_it_are_spread_alike() {
    let mut node = Node::new();
    node.install_spread("10.1.0.0/24", "10.2.0.0/16", 7, Spread::PacketHash);
    node.tell();
    assert_eq!(node.home("10.2.0.1"), PrefixHome::Spread(Shard(7), Spread::PacketHash));
    node.install_spread("10.1.1.0/24", "10.2.0.0/16", 7, Spread::PacketHash);
    node.tell();
    assert_eq!(node.home("10.2.0.1"), PrefixHome::Spread(Shard(7), Spread::PacketHash));
    node.install("10.1.2.0/24", "10.2.9.0/24", 7);
    node.install_spread("10.1.2.0/24", "10.2.10.0/24", 7, Spread::SessionHash);
    node.tell();
    let homes = ["10.2.0.1", "10.2.9.1", "10.2.10.1"].map(|addr| node.home(addr));
    let spread = PrefixHome::Spread(Shard(7), Spread::PacketHash);
    assert_eq!(homes, [spread, PrefixHome::Ambiguous, PrefixHome::Ambiguous]);
}
