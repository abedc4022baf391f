//! Is the peer alive (RFC 7296 §2.4)?

use crate::scenarios::common::wire::sent;
use crate::scenarios::common::{Weather, World};
use std::time::Duration;
use testudo_ike::endpoint::Discard;
use testudo_ike::message::{ExchangeType, Header, MessageBuilder, Notify, NotifyType, Payload};
use testudo_ike::output::{Event, Reason};

/// Host 0 asks after 30 seconds of silence.
fn established() -> World {
    World::established(1, |index, connection| {
        if index == 0 {
            connection.dpd_delay = Duration::from_secs(30);
        }
    })
}

fn checks(world: &World) -> usize {
    sent(world, 0, ExchangeType::Informational, false).len()
}

#[test]
fn a_silent_peer_is_asked_and_answers() {
    let mut world = established();
    world.run_secs(300);
    assert!((9..=10).contains(&checks(&world)), "{}", checks(&world));
    world.assert_tunnel();
    assert_eq!(sent(&world, 1, ExchangeType::Informational, true).len(), checks(&world));
}

#[test]
fn a_dead_peer_is_given_up_with_all_its_children() {
    let mut world = established();
    world.hosts[1].stopped = true;
    world.run_secs(400);
    let requests = sent(&world, 0, ExchangeType::Informational, false);
    assert_eq!(requests.len(), 6);
    assert!(requests.iter().all(|request| *request == requests[0]));
    let reason = Reason::Timeout { remote: "192.0.2.2:500".parse().unwrap(), transmissions: 6 };
    let down = |event: &Event| matches!(event, Event::IkeDown(_, why) if *why == reason);
    assert_eq!(world.hosts[0].events.iter().filter(|event| down(event)).count(), 1);
    let down = |event: &Event| matches!(event, Event::ChildDown(_, _, why) if *why == reason);
    assert_eq!(world.hosts[0].events.iter().filter(|event| down(event)).count(), 1);
    assert!(world.hosts[0].installed.is_empty());
    assert_eq!(world.hosts[0].endpoint.states().count(), 0);
}

#[test]
fn traffic_shows_that_the_peer_lives() {
    let mut world = established();
    let child = world.hosts[0].sas()[0].children[0].id;
    for _ in 0..30 {
        world.run_secs(20);
        let now = world.now;
        world.hosts[0].endpoint.traffic_seen(now, child);
        world.settle(0);
    }
    assert_eq!(checks(&world), 0);
}

#[test]
fn without_dpd_delay_nobody_asks() {
    let mut world = World::pair(2, Weather::FAIR);
    world.initiate(0);
    world.run_secs(3600);
    assert_eq!(checks(&world), 0);
    assert_eq!(world.hosts[0].endpoint.next_timeout(), None);
}

#[test]
fn a_message_in_clear_is_a_hint_and_no_more() {
    let mut world = World::pair(3, Weather::FAIR);
    world.initiate(0);
    world.run_secs(1);
    let auth = sent(&world, 0, ExchangeType::IkeAuth, false)[0].clone();
    let header = Header::parse(&auth).unwrap();
    let forged = |kind, exchange| {
        let header = Header { exchange, response: true, from_initiator: false, ..header };
        let notify = Payload::Notify(Notify::new(kind, Vec::new()));
        MessageBuilder::new(header).with(notify).finish().unwrap()
    };
    // To a request that is answered already: nothing waits for it.
    world.forge("192.0.2.2:500", "192.0.2.1:500", &forged(NotifyType::InvalidIkeSpi, ExchangeType::IkeAuth));
    world.run_secs(1);
    assert_eq!(world.hosts[0].endpoint.stats().discarded(Discard::UnexpectedResponse), 1);
    assert_eq!(checks(&world), 0);
    // As a separate request, by a sender that knows the Message ID: it causes at most one check in
    // ten seconds, and one that says something else none.
    for number in 0..101 {
        let header = Header {
            exchange: ExchangeType::Informational,
            response: false,
            from_initiator: false,
            message_id: testudo_ike::message::MessageId(0),
            ..header
        };
        let kind = if number == 0 { NotifyType::InvalidSyntax } else { NotifyType::InvalidIkeSpi };
        let notify = Payload::Notify(Notify::new(kind, Vec::new()));
        let message = MessageBuilder::new(header).with(notify).finish().unwrap();
        world.forge("192.0.2.2:500", "192.0.2.1:500", &message);
        world.run(Duration::from_millis(150));
        assert!(number > 0 || checks(&world) == 0);
    }
    assert_eq!(checks(&world), 2);
    assert_eq!(world.hosts[0].endpoint.stats().discarded(Discard::Unprotected), 101);
    world.assert_tunnel();
}
