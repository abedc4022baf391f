//! What members relay to each other where routers give each packet to one of them.

use super::net::{Net, id};
use crate::group::{Group, Ingress, RelayKeys};
use crate::update::RELAYED_HEADS;
use testudo_base::spi::RelayKind;

fn running(count: u8) -> Net {
    let mut net = Net::tuned(count, |config| config.ingress = Ingress::Routed);
    let all = net.all.clone();
    net.view(&all, true);
    net.settle();
    net
}

fn keys(net: &Net, kind: RelayKind, node: u8, of: u8) -> Option<&RelayKeys> {
    let last = net.nodes[&node].relay_keys.last().unwrap();
    let is_of = |keys: &&RelayKeys| keys.node == id(of) && keys.spi_out.relay_kind() == Some(kind);
    last.iter().find(is_of)
}

/// Every key with which a node has sent in any view.
fn sent_with(net: &Net, node: u8) -> impl Iterator<Item = &[u8]> {
    net.nodes[&node].relay_keys.iter().flatten().map(|keys| keys.key_out.as_slice())
}

#[test]
fn what_one_member_sends_with_the_other_expects() {
    let net = running(3);
    for kind in RelayKind::SAS {
        let keys = |node, of| keys(&net, kind, node, of).unwrap();
        for (from, to) in [(1, 2), (2, 1), (1, 3), (3, 1), (2, 3), (3, 2)] {
            let (sender, receiver) = (keys(from, to), keys(to, from));
            assert_eq!((sender.spi_out, &sender.key_out), (receiver.spi_in, &receiver.key_in));
            assert_ne!(sender.key_in, sender.key_out, "each key has one sender");
        }
        assert_ne!(keys(1, 2).key_out, keys(1, 3).key_out, "and one receiver");
        assert!(!format!("{:?}", keys(1, 2)).contains("key"), "no key in a log");
    }
    let [whole, head] = RelayKind::SAS.map(|kind| keys(&net, kind, 1, 2).unwrap());
    assert_ne!(whole.key_out, head.key_out, "and one kind");
}

/// A member of the version before could not read them.
#[test]
fn beside_an_older_member_no_heads_are_relayed() {
    let mut net = running(3);
    net.tune = |config| (config.ingress, config.speaks) = (Ingress::Routed, RELAYED_HEADS - 1);
    net.restart(3);
    net.view(&[1, 2, 3], true);
    net.settle();
    let known = |net: &Net| RelayKind::SAS.map(|kind| keys(net, kind, 1, 2).is_some());
    assert_eq!(known(&net), [true, false]);
    net.tune = |config| (config.ingress, config.speaks) = (Ingress::Routed, RELAYED_HEADS);
    net.restart(3);
    net.view(&[1, 2, 3], true);
    net.settle();
    assert_eq!(known(&net), [true, true]);
}

/// Numbers begin from 1 under each key.
#[test]
fn no_view_has_a_key_of_another() {
    let mut net = running(3);
    let mut before: Vec<Vec<u8>> = sent_with(&net, 2).map(<[u8]>::to_vec).collect();
    // The node forgets everything, and joins again.
    net.restart(2);
    net.view(&[1, 2, 3], true);
    net.settle();
    // A view that is void, because the disk of node 3 never has it, and the next.
    net.node(3).slow_disk = true;
    net.view(&[2, 3], true);
    net.settle();
    net.view(&[1, 2, 3], true);
    net.settle();
    before.extend(sent_with(&net, 2).map(<[u8]>::to_vec));
    assert_eq!(before.len(), (2 + 2 + 1 + 2) * RelayKind::SAS.len());
    let count = before.len();
    before.sort_unstable();
    before.dedup();
    assert_eq!(before.len(), count);
}

#[test]
fn only_members_of_the_view_relay() {
    let mut net = running(3);
    let relay = |net: &mut Net, from: u8, to: u8| {
        assert!(net.node(from).group.relay(&[id(to)], vec![from, to]));
        net.collect();
        net.settle();
        std::mem::take(&mut net.node(to).relayed)
    };
    assert_eq!(relay(&mut net, 1, 2), [(1, vec![1, 2])]);
    net.view(&[2, 3], true);
    net.settle();
    assert_eq!(relay(&mut net, 1, 2), []);
    assert_eq!(relay(&mut net, 3, 2), [(3, vec![3, 2])]);
    net.restart(3);
    assert_eq!(relay(&mut net, 3, 2), [], "another life of it is in the view");
    let relays = |net: &mut Net, octets| net.node(2).group.relay(&[id(3)], vec![0; octets]);
    assert!(relays(&mut net, Group::MAX_RELAYED_OCTETS));
    assert!(!relays(&mut net, Group::MAX_RELAYED_OCTETS + 1));
}

#[test]
fn a_node_with_another_ingress_is_left_out() {
    let mut net = running(3);
    net.tune = |config| config.ingress = Ingress::Flood;
    net.restart(3);
    net.view(&[1, 2, 3], true);
    net.settle();
    assert_eq!(net.node(1).last_view().view.members, [id(1), id(2)]);
    assert!(!net.node(3).in_view && net.node(3).relay_keys.is_empty());
    let expected = "`ingress` in testudo.toml of node 3 is \"flood\", and \"routed\" here";
    assert!(net.node(1).log.iter().any(|line| line.contains(expected)), "{:?}", net.node(1).log);
}
