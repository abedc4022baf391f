//! INVALID_KE_PAYLOAD (RFC 7296 §1.2): the responder wants another method, and an attacker cannot
//! downgrade the two to a weaker one.

use crate::scenarios::common::build::ike_proposal;
use crate::scenarios::common::wire::sent;
use crate::scenarios::common::{Weather, World};
use testudo_ike::config::KeyExchange::{Ecp256, X25519};
use testudo_ike::message::{
    ExchangeType, Header, KeMethod, Message, MessageBuilder, Notify, NotifyType, Payload,
};
use testudo_ike::output::Reason;

#[test]
fn the_initiator_changes_to_the_method_that_the_responder_wants() {
    let world = World::established(1, |index, connection| {
        connection.proposals = vec![ike_proposal(if index == 0 { &[X25519, Ecp256] } else { &[Ecp256] })];
    });
    assert_eq!(world.hosts[0].sas()[0].ke.unwrap().name, "ECP_256");
    let requests = sent(&world, 0, ExchangeType::IkeSaInit, false);
    let [first, second] = [0, 1].map(|index| Message::parse(requests[index]).unwrap());
    assert_eq!(first.payloads.sa(), second.payloads.sa(), "the offer stays whole");
    assert_eq!(second.payloads.ke().unwrap().method, KeMethod::Ecp256);
}

#[test]
fn a_refusal_leaves_no_state() {
    let mut world = World::pair_with(2, Weather::FAIR, |index, connection| {
        connection.proposals = vec![ike_proposal(if index == 0 { &[X25519, Ecp256] } else { &[Ecp256] })];
    });
    world.initiate(0);
    world.hosts[0].stopped = true;
    world.run(std::time::Duration::from_millis(100));
    assert_eq!(world.hosts[1].sent.len(), 1);
    assert_eq!(world.hosts[1].endpoint.states().count(), 0);
}

/// A forged demand for `method`, in answer to the last request of host 0.
fn demand(world: &mut World, method: KeMethod) {
    let request = sent(world, 0, ExchangeType::IkeSaInit, false).last().unwrap().to_vec();
    let header = Header { response: true, from_initiator: false, ..Header::parse(&request).unwrap() };
    let notify = Payload::Notify(Notify::invalid_ke(method));
    let answer = MessageBuilder::new(header).with(notify).finish().unwrap();
    world.forge("192.0.2.2:500", "192.0.2.1:500", &answer);
    world.run(std::time::Duration::from_millis(100));
}

#[test]
fn a_demand_for_what_is_not_configured_does_not_stop_the_true_answer() {
    let mut world = World::pair(3, Weather { delay: std::time::Duration::from_millis(500), ..Weather::FAIR });
    world.hosts[1].stopped = true;
    world.initiate(0);
    world.network.weather.delay = std::time::Duration::from_millis(1);
    // One that we do not know, and one that we know but that the operator did not name.
    demand(&mut world, KeMethod::Modp2048);
    demand(&mut world, KeMethod::Ecp256);
    assert_eq!(sent(&world, 0, ExchangeType::IkeSaInit, false).len(), 1, "nothing weaker is sent");
    world.hosts[1].stopped = false;
    world.run_secs(10);
    world.assert_tunnel();
    assert_eq!(world.hosts[0].sas()[0].ke.unwrap().name, "CURVE_25519");
}

#[test]
fn a_demand_that_stands_is_a_clear_error() {
    let mut world = World::pair(4, Weather::FAIR);
    world.hosts[1].stopped = true;
    world.initiate(0);
    demand(&mut world, KeMethod::Modp2048);
    world.run_secs(10);
    let Some(Err(Reason::Notify(text))) = world.hosts[0].results().pop() else { panic!("it fails") };
    assert!(text.contains("INVALID_KE_PAYLOAD") && text.contains("MODP_2048"), "{text}");
    world.assert_nothing_left();
}

#[test]
fn the_same_method_is_not_sent_twice() {
    let mut world = World::pair_with(5, Weather::FAIR, |_, connection| {
        connection.proposals = vec![ike_proposal(&[X25519, Ecp256])];
    });
    world.hosts[1].stopped = true;
    world.initiate(0);
    for method in [KeMethod::Ecp256, KeMethod::X25519, KeMethod::Ecp256, KeMethod::X25519] {
        demand(&mut world, method);
    }
    assert_eq!(sent(&world, 0, ExchangeType::IkeSaInit, false).len(), 2);
    world.hosts[1].stopped = false;
    world.run_secs(10);
    // The responder prefers its first method, which the initiator has tried already.
    assert!(world.hosts[0].results()[0].is_err());
    assert!(world.hosts[0].logged(&NotifyType::InvalidKePayload.to_string()));
}
