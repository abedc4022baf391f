//! Which of our addresses reach which prefixes, as policies come and go.

use crate::policies::tests::{HOME, child, connection, ts};
use crate::policies::*;
use std::collections::BTreeSet;
use testudo_ike::config::TsSpec;

/// What has been told so far: pairs of our range and the peer's prefix.
#[derive(Default)]
struct KnownSenders(BTreeSet<(AddrRange, Prefix)>);

impl KnownSenders {
    fn follow(&mut self, policies: &mut Policies) {
        for SenderDifference { prefix, range, is_there } in policies.take_senders() {
            let news = match is_there {
                true => self.0.insert((range, prefix)),
                false => self.0.remove(&(range, prefix)),
            };
            assert!(news, "{range:?} to {prefix}");
        }
    }

    fn is(&self, expected: &[(&str, &str)]) -> bool {
        let pair = |(local, remote): &(&str, &str)| (ts(local).addrs, remote.parse().unwrap());
        self.0 == expected.iter().map(pair).collect()
    }
}

fn net(name: &str, local: &str, remote: &str) -> Child {
    child(name, ChildMode::Tunnel, local, remote)
}

#[test]
fn each_prefix_has_the_senders_of_its_own_children() {
    let (mut policies, mut told) = (Policies::default(), KnownSenders::default());
    let one = net("one", "10.1.0.0/16", "10.2.0.0/16");
    let two = net("two", "10.11.0.0/16", "10.12.0.0/16");
    let drop = child("drop", ChildMode::Drop, "10.21.0.0/16", "10.2.0.0/16");
    let pass = child("pass", ChildMode::Pass, "10.21.0.0/16", "10.22.0.0/16");
    let any = net("any", "0.0.0.0/0", "10.32.0.0/16");
    policies.load(&connection(vec![one.clone(), two, drop, pass, any]));
    told.follow(&mut policies);
    assert!(told.is(&[("10.1.0.0/16", "10.2.0.0/16"), ("10.11.0.0/16", "10.12.0.0/16")]));
    policies.load(&connection(vec![one]));
    assert_eq!(policies.take_change(), Change::Protection);
    told.follow(&mut policies);
    assert!(told.is(&[("10.1.0.0/16", "10.2.0.0/16")]));
    policies.unload("gw");
    told.follow(&mut policies);
    assert!(told.is(&[]));
}

/// An SA tells what its child leaves open: a virtual IP, or what the peer has made of a range.
#[test]
fn an_sa_tells_what_its_child_does_not_name() {
    let (mut policies, mut told) = (Policies::default(), KnownSenders::default());
    let dynamic = TsSpec::Dynamic { protocol: 0, port_start: 0, port_end: u16::MAX };
    let road = Child { local_ts: vec![dynamic], ..net("road", "0.0.0.0/0", "0.0.0.0/0") };
    let site = net("site", "10.1.0.0/16", "10.2.0.0/16");
    policies.load(&connection(vec![road.clone(), site.clone()]));
    told.follow(&mut policies);
    assert!(told.is(&[("10.1.0.0/16", "10.2.0.0/16")]));
    let install = |policies: &mut Policies, number, child, [local, remote]: [&str; 2]| {
        let selectors = SelectorPair::new(&[ts(local)], &[ts(remote)]);
        policies.install(ChildSaId(number), Some(child), &selectors, HOME);
    };
    install(&mut policies, 1, &road, ["10.3.0.1/32", "0.0.0.0/0"]);
    install(&mut policies, 2, &site, ["10.1.0.0/16", "10.2.0.0/16"]);
    told.follow(&mut policies);
    assert!(told.is(&[("10.1.0.0/16", "10.2.0.0/16"), ("10.3.0.1/32", "0.0.0.0/0")]));
    policies.remove(ChildSaId(1));
    policies.remove(ChildSaId(2));
    told.follow(&mut policies);
    assert!(told.is(&[("10.1.0.0/16", "10.2.0.0/16")]));
    install(&mut policies, 3, &site, ["10.1.7.0/24", "10.2.0.0/16"]);
    told.follow(&mut policies);
    assert!(told.is(&[("10.1.0.0/16", "10.2.0.0/16"), ("10.1.7.0/24", "10.2.0.0/16")]));
}

/// Tens of thousands of tunnels to one pool say nothing that their child has not said.
#[test]
fn an_sa_of_a_pool_is_no_news_to_filter_and_routes() {
    let mut policies = Policies::default();
    let pool = net("pool", "10.1.0.0/16", "10.3.0.0/16");
    policies.load(&connection(vec![pool.clone()]));
    policies.take_differences();
    policies.take_senders();
    policies.take_change();
    let selectors = SelectorPair::new(&[ts("10.1.0.0/16")], &[ts("10.3.0.9/32")]);
    policies.install(ChildSaId(1), Some(&pool), &selectors, HOME);
    assert_eq!(policies.take_change(), Change::Spd);
}
