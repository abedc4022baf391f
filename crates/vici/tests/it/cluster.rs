//! `testudo-cluster`: the cluster as the node tells it.

use crate::support::{TestServer, message};
use std::time::Duration;
use testudo_vici::client::Client;
use testudo_vici::cluster::{ClusterReport, NodeReport, NodeState, Phase, ViewReport};
use testudo_vici::control::{ChangeNodes, Drain};
use testudo_vici::message::Message;

/// Every field has a value of its own, and what may be missing is once there and once not.
fn report() -> ClusterReport {
    ClusterReport {
        node: 1,
        phase: Phase::NoQuorum,
        view: Some(ViewReport { ring_node: 2, ring_seq: 28, quorate: true, members: vec![1, 2] }),
        witness: Some(false),
        synced: true,
        epoch: 3,
        delivered: 40,
        stable: 39,
        waiting: 5,
        held: 6,
        sender: Some(0x0802),
        fence: 240,
        default_host: true,
        packets: 171,
        ike: 86,
        provisional: 85,
        ike_sas: 10,
        child_sas: 20,
        unread_states: 7,
        protocol: 16,
        replicate_config: true,
        config_current: false,
        config_pieces: 12,
        roster: 13,
        changing: true,
        configured: vec![1, 2, 5],
        engines_behind: vec![2],
        why: vec!["node 2 is silent".to_owned(), "and so on".to_owned()],
        counters: vec![("suspicions".to_owned(), 1), ("forged".to_owned(), 0)],
        nodes: vec![
            NodeReport { id: 1, state: NodeState::Fresh, ..NodeReport::default() },
            NodeReport {
                id: 2,
                state: NodeState::Suspect,
                shards: 84,
                provisional: 11,
                followed: 5,
                heard: Some(1031),
                hears: Some(12),
                threshold: Some(45),
                links_down: vec![0, 1],
                load: 123,
                acked: Some(38),
                incarnation: 9,
                addresses: vec!["10.99.0.2".to_owned(), "2001:db8::2".to_owned()],
            },
        ],
    }
}

#[test]
fn a_report_survives_encoding_and_decoding() {
    let mut told = report();
    for phase in [Phase::Down, Phase::NoQuorum, Phase::Exchange, Phase::Running] {
        for state in [
            NodeState::Owner,
            NodeState::Drained,
            NodeState::NoPort,
            NodeState::Fresh,
            NodeState::Suspect,
            NodeState::Absent,
        ] {
            told.phase = phase;
            told.nodes[1].state = state;
            let read = ClusterReport::from_message(&ClusterReport::answer(Some(&told))).unwrap();
            assert_eq!(read.as_ref(), Some(&told));
        }
    }
    let told = ClusterReport::default();
    let read = ClusterReport::from_message(&ClusterReport::answer(Some(&told))).unwrap();
    assert_eq!(read, Some(told));
    assert_eq!(ClusterReport::from_message(&ClusterReport::answer(None)).unwrap(), None);
}

#[test]
fn a_wrong_report_is_refused_with_its_key() {
    let told = ClusterReport::answer(Some(&report()));
    let without = |key: &str| {
        let mut message = Message::new();
        let rest = told.elements().iter().filter(|element| element.name() != key);
        rest.for_each(|element| message.push(element.clone()));
        message
    };
    let with = |key: &str, value: &str| without(key).with(key, value);
    let with_node = |id: &str, state: &str| {
        without("nodes").with_section("nodes", Message::new().with_section(id, message(&[("state", state)])))
    };
    for (answer, complaint) in [
        (without("clustered"), "clustered"),
        (with("clustered", "maybe"), "yes or no"),
        (with("phase", "asleep"), "asleep"),
        (with("epoch", "-1"), "epoch"),
        (with("sender", "x"), "sender"),
        (without("nodes"), "nodes"),
        (with_node("one", "owner"), "one"),
        (with_node("1", "dead"), "dead"),
        (with_node("1", "owner"), "shares"),
    ] {
        let read = ClusterReport::from_message(&answer);
        let error = read.expect_err(complaint).to_string();
        assert!(error.contains(complaint), "{error}, expected {complaint}");
    }
}

#[test]
fn the_server_tells_what_the_gateway_knows() {
    let server = TestServer::start();
    let mut client = Client::connect(&server.socket()).unwrap();
    client.set_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut ask = || client.request("testudo-cluster", Message::new()).unwrap();
    assert_eq!(ClusterReport::from_message(&ask()).unwrap(), None);
    server.gateway.lock().unwrap().cluster = Some(report());
    assert_eq!(ClusterReport::from_message(&ask()).unwrap(), Some(report()));
    let refused = client.request("testudo-cluster", message(&[("node", "1")])).unwrap();
    assert_eq!(refused.text("success"), Some("no"));
}

#[test]
fn the_gateway_gets_the_node_to_drain() {
    let server = TestServer::start();
    let mut client = Client::connect(&server.socket()).unwrap();
    client.set_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut drain = |pairs: &[(&str, &str)]| client.request("testudo-drain", message(pairs)).unwrap();
    for (pairs, expected) in [
        (&[][..], Drain { node: None, drained: true }),
        (&[("node", "3")], Drain { node: Some(3), drained: true }),
        (&[("node", "3"), ("drained", "no")], Drain { node: Some(3), drained: false }),
    ] {
        assert_eq!(drain(pairs).text("success"), Some("yes"));
        assert_eq!(server.gateway.lock().unwrap().drains.pop(), Some(expected));
    }
    for (pairs, complaint) in [
        (&[("node", "x")][..], "node"),
        (&[("drained", "maybe")], "drained"),
        (&[("who", "1")], "who"),
        (&[("node", "9")], "no node 9"),
    ] {
        let refused = drain(pairs);
        assert_eq!(refused.text("success"), Some("no"), "{pairs:?}");
        assert!(refused.text("errmsg").unwrap_or_default().contains(complaint), "{refused:?}");
    }
    assert!(server.gateway.lock().unwrap().drains.is_empty());
}

#[test]
fn the_gateway_gets_the_node_to_add_or_remove() {
    let server = TestServer::start();
    let mut client = Client::connect(&server.socket()).unwrap();
    client.set_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut change = |message: Message| client.request("testudo-nodes", message).unwrap();
    let node = |number: &str| Message::new().with("node", number);
    let with = |addresses: &[&str]| {
        node("4").with_list("addresses", addresses.iter().map(|text| (*text).to_owned()))
    };
    let addresses = ["10.99.0.4", "2001:db8::4"];
    let added = ChangeNodes {
        node: 4,
        addresses: Some(addresses.iter().map(|text| text.parse().unwrap()).collect()),
    };
    for (asked, expected) in
        [(with(&addresses), added), (node("4"), ChangeNodes { node: 4, addresses: None })]
    {
        let answer = change(asked);
        assert_eq!((answer.text("success"), answer.text("roster")), (Some("yes"), Some("12")));
        assert_eq!(server.gateway.lock().unwrap().changes.pop(), Some(expected));
    }
    for (asked, complaint) in [
        (Message::new(), "node"),
        (node("x"), "node"),
        (node("9"), "node 9 is taken"),
        (with(&["10.99.0"]), "an IP address"),
        (node("4").with("addresses", "10.99.0.4"), "a list"),
        (node("4").with("port", "1"), "port"),
    ] {
        let refused = change(asked);
        assert_eq!(refused.text("success"), Some("no"));
        assert!(refused.text("errmsg").unwrap_or_default().contains(complaint), "{refused:?}");
    }
    assert!(server.gateway.lock().unwrap().changes.is_empty());
}
