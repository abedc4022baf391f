//! Clients that follow events: `swanctl --monitor-sa`, `--log`, and the habits of the Python
//! package `vici`.

use crate::support::{TestServer, message, net_sa};
use testudo_ike::output::Time;
use testudo_vici::client::Client;
use testudo_vici::message::Message;
use testudo_vici::server::Server;
use testudo_vici::{codec::Deframer, codec::Packet};

/// The package asks for the event, sends the command, reads to the answer, and then wants its
/// unregistration confirmed although events may still come.
#[test]
fn every_streamed_command_ends_with_a_confirmed_unregistration() {
    let server = TestServer::start();
    server.gateway.lock().unwrap().sas = (1..=50).map(net_sa).collect();
    let mut client = Client::connect(&server.socket()).unwrap();
    for (command, event, items) in [
        ("list-sas", "list-sa", 50),
        ("list-conns", "list-conn", 0),
        ("list-policies", "list-policy", 0),
        ("list-certs", "list-cert", 0),
        ("list-authorities", "list-authority", 0),
        ("testudo-children", "testudo-child", 0),
    ] {
        let events = client.stream(command, event, Message::new()).unwrap();
        assert_eq!(events.len(), items, "{command}");
    }
    client.register("control-log").unwrap();
    client.command("initiate", message(&[("child", "net")])).unwrap();
    assert_eq!(client.next_event().unwrap().0, "control-log");
    client.unregister("control-log").unwrap();
}

/// `Session.listen` registers several events, and unregisters each.
#[test]
fn every_event_can_be_followed_and_left() {
    let server = TestServer::start();
    let mut client = Client::connect(&server.socket()).unwrap();
    let events = ["log", "ike-updown", "child-updown", "ike-rekey", "child-rekey"];
    events.iter().for_each(|event| client.register(event).unwrap());
    events.iter().for_each(|event| client.unregister(event).unwrap());
}

/// Commands that answer with one message: none is unknown, and each has content.
#[test]
fn every_query_has_content() {
    let server = TestServer::start();
    let mut client = Client::connect(&server.socket()).unwrap();
    for (command, key) in [
        ("version", "daemon"),
        ("stats", "uptime"),
        ("get-algorithms", "aead"),
        ("get-conns", "conns"),
        ("get-shared", "keys"),
        ("get-keys", "keys"),
        ("get-authorities", "authorities"),
        ("get-counters", "counters"),
    ] {
        let answer = client.request(command, Message::new()).unwrap();
        assert!(answer.elements().iter().any(|element| element.name() == key), "{command}: {answer:?}");
    }
}

#[test]
fn rekeying_shows_the_old_and_the_new() {
    let mut server = Server::new();
    let gateway = crate::support::Gateway::default();
    let mut control = crate::support::Gateway::default();
    let client = server.connect().unwrap();
    let now = Time::default();
    for event in ["ike-rekey", "child-rekey"] {
        let mut bytes = Vec::new();
        Packet::EventRegister(event.to_owned()).encode(&mut bytes).unwrap();
        server.receive(client, &bytes, now, &mut control).unwrap();
    }
    let (old, new) = (net_sa(1), net_sa(2));
    server.ike_rekey(&old, &new, now);
    server.child_rekey(&old, &old.children[0], &new.children[0], now, &gateway);
    let mut input = Deframer::default();
    input.push(server.poll_output(client, now, &mut control).unwrap()).unwrap();
    let mut events = Vec::new();
    while let Some(bytes) = input.next_packet().unwrap() {
        if let Packet::Event(name, message) = Packet::parse(&bytes).unwrap() {
            events.push((name, message));
        }
    }
    let [(ike, ikes), (child, children)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((ike.as_str(), child.as_str()), ("ike-rekey", "child-rekey"));
    let number = |section: Option<&Message>| section.and_then(|s| s.text("uniqueid")).map(str::to_owned);
    let gw = ikes.section("gw").unwrap();
    assert_eq!(number(gw.section("old")), Some("1".to_owned()));
    assert_eq!(number(gw.section("new")), Some("2".to_owned()));
    let net = children.section("gw").and_then(|gw| gw.section("child-sas")?.section("net-1")).unwrap();
    assert_eq!(number(net.section("old")), Some("1".to_owned()));
    assert_eq!(number(net.section("new")), Some("2".to_owned()));
}
