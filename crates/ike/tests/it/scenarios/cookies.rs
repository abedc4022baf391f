//! Cookies (RFC 7296 §2.6): a responder under load keeps no state for those whose address may be
//! forged.

use crate::scenarios::common::wire::sent;
use crate::scenarios::common::{Weather, World};
use std::time::Duration;
use testudo_ike::endpoint::{Discard, EndpointConfig};
use testudo_ike::message::{ExchangeType, Header, Message, MessageBuilder, Notify, NotifyType, Payload};

fn under_load() -> World {
    let config = EndpointConfig { cookie_threshold: 0, ..EndpointConfig::default() };
    World::pair_of(["192.0.2.1", "192.0.2.2"], 1, Weather::FAIR, config, |_, _| {})
}

#[test]
fn a_responder_under_load_demands_a_cookie_and_the_initiator_returns_it() {
    let mut world = under_load();
    world.establish();
    assert_eq!(world.hosts[1].endpoint.stats().cookies_demanded, 1);
    let requests = sent(&world, 0, ExchangeType::IkeSaInit, false);
    assert_eq!(requests.len(), 2);
    let [first, second] = [0, 1].map(|index| Message::parse(requests[index]).unwrap());
    assert!(first.payloads.notify(NotifyType::Cookie).is_none());
    assert_eq!(
        second.payloads.iter().next(),
        second.payloads.notify(NotifyType::Cookie).cloned().map(Payload::Notify).as_ref(),
        "the cookie stands first"
    );
    assert_eq!(first.header, second.header);
    assert_eq!((first.payloads.sa(), first.payloads.ke()), (second.payloads.sa(), second.payloads.ke()));
    assert_eq!(first.payloads.nonce(), second.payloads.nonce());
}

#[test]
fn a_demand_leaves_no_state_and_is_smaller_than_the_request() {
    let mut world = under_load();
    world.hosts[0].stopped = true;
    for _ in 0..100 {
        world.hosts[0].stopped = false;
        world.initiate(0);
        world.hosts[0].stopped = true;
        world.run(Duration::from_millis(50));
        let now = world.now;
        world.hosts[0].endpoint.terminate(now, &testudo_ike::endpoint::Target::All, true).unwrap();
        world.settle(0);
    }
    assert_eq!(world.hosts[1].endpoint.states().count(), 0);
    assert_eq!(world.hosts[1].endpoint.stats().cookies_demanded, 100);
    let largest_answer = world.hosts[1].sent.iter().map(|(_, bytes)| bytes.len()).max();
    let smallest_request = world.hosts[0].sent.iter().map(|(_, bytes)| bytes.len()).min();
    assert!(largest_answer < smallest_request);
}

#[test]
fn a_cookie_is_good_for_its_address_its_spi_and_its_time_only() {
    let mut world = under_load();
    world.initiate(0);
    world.run_secs(1);
    let with_cookie = sent(&world, 0, ExchangeType::IkeSaInit, false)[1].clone();
    let wrong = || Discard::BadCookie;
    let demanded = |world: &World| world.hosts[1].endpoint.stats().cookies_demanded;
    // From elsewhere.
    world.forge("192.0.2.9:500", "192.0.2.2:500", &with_cookie);
    world.run_secs(1);
    assert_eq!(world.hosts[1].endpoint.stats().discarded(wrong()), 1);
    assert_eq!(demanded(&world), 2);
    // With another SPI.
    let mut other = with_cookie.clone();
    other[3] ^= 1;
    world.forge("192.0.2.1:500", "192.0.2.2:500", &other);
    world.run_secs(1);
    assert_eq!(world.hosts[1].endpoint.stats().discarded(wrong()), 2);
    // Octet for octet it repeats a request that is answered, and changes nothing.
    let states = world.hosts[1].endpoint.states().count();
    world.forge("192.0.2.1:500", "192.0.2.2:500", &with_cookie);
    world.run_secs(1);
    assert_eq!(world.hosts[1].endpoint.states().count(), states);
    // Two lives of the secret later, once the IKE SA is gone, it is good for nothing.
    let now = world.now;
    world.hosts[0].endpoint.terminate(now, &testudo_ike::endpoint::Target::All, false).unwrap();
    world.settle(0);
    world.run_secs(200);
    world.assert_nothing_left();
    world.forge("192.0.2.1:500", "192.0.2.2:500", &with_cookie);
    world.run_secs(1);
    assert_eq!(world.hosts[1].endpoint.stats().discarded(wrong()), 3);
    world.assert_nothing_left();
}

#[test]
fn the_secret_changes_while_a_cookie_is_under_way() {
    let config = EndpointConfig { cookie_threshold: 0, ..EndpointConfig::default() };
    for millis in (59_900..60_100).step_by(10) {
        let addrs = ["192.0.2.1", "192.0.2.2"];
        let mut world = World::pair_of(addrs, 1, Weather::FAIR, config.clone(), |_, connection| {
            connection.dpd_delay = Duration::from_secs(3600);
        });
        world.initiate(0);
        world.run(Duration::from_millis(millis));
        let now = world.now;
        world.hosts[0].endpoint.terminate(now, &testudo_ike::endpoint::Target::All, true).unwrap();
        world.settle(0);
        world.establish();
    }
}

/// A demand in answer to the host's first request, which anybody may have sent.
fn demand(world: &mut World, cookie: Vec<u8>) {
    let request = sent(world, 0, ExchangeType::IkeSaInit, false)[0].clone();
    let header = Header { response: true, from_initiator: false, ..Header::parse(&request).unwrap() };
    let cookie = Payload::Notify(Notify::new(NotifyType::Cookie, cookie));
    let answer = MessageBuilder::new(header).with(cookie).finish().unwrap();
    world.forge("192.0.2.2:500", "192.0.2.1:500", &answer);
    world.run(Duration::from_millis(20));
}

#[test]
fn an_initiator_does_not_follow_cookies_in_circles() {
    let mut world = World::pair(2, Weather::FAIR);
    world.hosts[1].stopped = true;
    world.initiate(0);
    for octet in 0..50 {
        demand(&mut world, vec![octet; 16]);
    }
    assert_eq!(sent(&world, 0, ExchangeType::IkeSaInit, false).len(), 5);
    world.hosts[1].stopped = false;
    world.run_secs(10);
    world.assert_tunnel();
}

/// It has 1 to 64 octets.
#[test]
fn a_cookie_of_another_size_is_not_returned() {
    for (size, is_returned) in [(0, false), (1, true), (64, true), (65, false)] {
        let mut world = World::pair(3, Weather::FAIR);
        world.hosts[1].stopped = true;
        world.initiate(0);
        demand(&mut world, vec![7; size]);
        let requests = sent(&world, 0, ExchangeType::IkeSaInit, false).len();
        assert_eq!(requests, 1 + usize::from(is_returned), "{size} octets");
    }
}
