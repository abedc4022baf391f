//! Answers in IKE_AUTH that an initiator refuses from a scripted responder.

use crate::scenarios::common::build::{ike_proposal, ts};
use crate::scenarios::common::network::Datagram;
use crate::scenarios::common::peer::message;
use crate::scenarios::common::responder::{Responder, SPI, with_spi};
use crate::scenarios::common::{Weather, World};
use std::time::Duration;
use testudo_base::spi::Spi;
use testudo_ike::config::{KeyExchange, Prf};
use testudo_ike::endpoint::{Discard, IkeSaState};
use testudo_ike::message::{
    Attribute, Delete, ExchangeType, Header, Message, Nonce, Notify, NotifyType, Payload, PayloadType,
    SaPayload, TsPayload, UnknownSelector,
};
use testudo_ike::output::Reason;
use testudo_ike::suite::select;

/// Host 0 is moon, alone.
fn moon() -> World {
    let mut world = World::pair(1, Weather::FAIR);
    world.hosts.remove(1);
    world
}

#[test]
fn ike_auth_says_what_it_must() {
    let mut world = moon();
    let mut sun = Responder::answer_init(&mut world);
    let kinds: Vec<PayloadType> = sun.auth.iter().map(Payload::kind).collect();
    let expected = [
        PayloadType::IdInitiator,
        PayloadType::Notify,
        PayloadType::IdResponder,
        PayloadType::Authentication,
        PayloadType::SecurityAssociation,
        PayloadType::TsInitiator,
        PayloadType::TsResponder,
        PayloadType::Notify,
        PayloadType::Notify,
    ];
    assert_eq!(kinds, expected);
    let syncs = [NotifyType::MessageIdSyncSupported, NotifyType::ReplayCounterSyncSupported];
    assert_eq!(sun.auth[7..], syncs.map(|kind| Payload::Notify(Notify::new(kind, Vec::new()))));
    let notify = Notify::new(NotifyType::InitialContact, Vec::new());
    assert_eq!(sun.auth[1], Payload::Notify(notify));
    let payloads = sun.auth_payloads();
    assert!(sun.answer(&mut world, ExchangeType::IkeAuth, 1, payloads).is_empty(), "nothing more to say");
    assert_eq!(world.hosts[0].installed.values().next().unwrap().spi_out, SPI);
    assert!(world.hosts[0].results()[0].is_ok());
}

#[test]
fn a_responder_that_fails_to_authenticate_is_notified_and_dropped() {
    type Edit = fn(&Responder, &mut Vec<Payload>);
    let cases: [(&str, Edit); 4] = [
        ("sun does not hold our shared key", |sun, payloads| *payloads = sun.auth_as("sun", b"guessed")),
        ("the peer is venus, expected sun", |sun, payloads| {
            *payloads = sun.auth_as("venus", b"a shared key")
        }),
        ("no IDr or no AUTH", |_, payloads| drop(payloads.remove(0))),
        ("no IDr or no AUTH", |_, payloads| drop(payloads.remove(1))),
    ];
    for (expected, edit) in cases {
        let mut world = moon();
        let mut sun = Responder::answer_init(&mut world);
        let mut payloads = sun.auth_payloads();
        edit(&sun, &mut payloads);
        let said = sun.answer(&mut world, ExchangeType::IkeAuth, 1, payloads);
        let notify = Payload::Notify(Notify::new(NotifyType::AuthenticationFailed, Vec::new()));
        assert_eq!(said.len(), 1);
        let (Header { exchange, response, .. }, content) = &said[0];
        assert_eq!((*exchange, *response), (ExchangeType::Informational, false));
        assert_eq!(content, &[notify]);
        let Some(Err(Reason::Refused(text))) = world.hosts[0].results().pop() else { panic!("it fails") };
        assert!(text.contains(expected), "{text}");
        assert!(world.hosts[0].installed.is_empty());
        // The answer, or its absence, ends it.
        sun.answer(&mut world, ExchangeType::Informational, 2, vec![]);
        world.assert_nothing_left();
    }
}

#[test]
fn a_rejection_that_nobody_answers_ends_too() {
    let mut world = moon();
    let mut sun = Responder::answer_init(&mut world);
    let payloads = sun.auth_as("sun", b"guessed");
    sun.answer(&mut world, ExchangeType::IkeAuth, 1, payloads);
    assert_eq!(world.hosts[0].sas()[0].state, IkeSaState::Deleting);
    world.run_secs(21);
    world.assert_nothing_left();
}

#[test]
fn a_child_that_was_not_offered_is_refused_and_deleted() {
    type Edit = fn(&mut Vec<Payload>);
    let cases: [(&str, Edit); 7] = [
        ("do not lie within ours", |p| {
            p[3] = Payload::TsInitiator(TsPayload::new(vec![ts("10.0.0.0-10.255.255.255")]));
        }),
        ("do not lie within ours", |p| {
            p[4] = Payload::TsResponder(TsPayload::new(vec![ts("10.115.0.1"), ts("10.116.0.1")]));
        }),
        ("do not lie within ours", |p| {
            let Payload::TsResponder(selectors) = &mut p[4] else { panic!("TSr") };
            selectors.unknown.push(UnknownSelector { kind: 99, protocol: 0, body: vec![0; 12] });
        }),
        ("no SA, TSi or TSr", |p| drop(p.remove(4))),
        ("no SA, TSi or TSr", |p| drop(p.remove(2))),
        ("a reserved one", |p| with_spi(&mut p[2], Spi(255))),
        ("was not offered", |p| {
            let Payload::Sa(sa) = &mut p[2] else { panic!("SA") };
            sa.proposals[0].transforms[0].attributes = vec![Attribute::KeyLength(256)];
        }),
    ];
    for (expected, edit) in cases {
        let mut world = moon();
        let mut sun = Responder::answer_init(&mut world);
        let mut payloads = sun.auth_payloads();
        edit(&mut payloads);
        let said = sun.answer(&mut world, ExchangeType::IkeAuth, 1, payloads);
        let Some(Err(Reason::Refused(text))) = world.hosts[0].results().pop() else { panic!("it fails") };
        assert!(text.contains(expected), "{text}");
        assert!(matches!(&said[0].1[..], [Payload::Delete(Delete::Esp(spis))] if spis.len() == 1));
        sun.answer(&mut world, ExchangeType::Informational, 2, vec![]);
        assert!(world.hosts[0].installed.is_empty() && world.hosts[0].in_use.lock().unwrap().is_empty());
        assert_eq!(world.hosts[0].sas()[0].state, IkeSaState::Established, "the peer is who it should be");
    }
}

#[test]
fn narrower_selectors_are_taken() {
    let mut world = moon();
    let mut sun = Responder::answer_init(&mut world);
    let mut payloads = sun.auth_payloads();
    payloads[4] = Payload::TsResponder(TsPayload::new(vec![ts("10.115.3.3"), ts("10.115.4.0-10.115.4.7")]));
    assert!(sun.answer(&mut world, ExchangeType::IkeAuth, 1, payloads).is_empty());
    let params = world.hosts[0].installed.values().next().unwrap();
    assert_eq!(params.remote_ts, [ts("10.115.3.3"), ts("10.115.4.0-10.115.4.7")]);
}

#[test]
fn an_authentic_error_in_ike_auth_ends_the_attempt() {
    for kind in [NotifyType::AuthenticationFailed, NotifyType::InvalidSyntax, NotifyType::Unknown(8000)] {
        let mut world = moon();
        let mut sun = Responder::answer_init(&mut world);
        let notify = Payload::Notify(Notify::new(kind, Vec::new()));
        assert!(sun.answer(&mut world, ExchangeType::IkeAuth, 1, vec![notify]).is_empty());
        assert!(matches!(world.hosts[0].results()[0], Err(Reason::Notify(_))));
        world.assert_nothing_left();
    }
}

#[test]
fn a_fatal_error_in_a_later_answer_ends_the_ike_sa() {
    let mut world = moon();
    let mut sun = Responder::establish(&mut world);
    let now = world.now;
    let child = testudo_ike::endpoint::Target::ChildName { connection: None, child: "net".into() };
    world.hosts[0].endpoint.terminate(now, &child, false).unwrap();
    world.settle(0);
    let notify = Payload::Notify(Notify::new(NotifyType::InvalidSyntax, Vec::new()));
    sun.answer(&mut world, ExchangeType::Informational, 2, vec![notify]);
    assert!(world.hosts[0].installed.is_empty() && world.hosts[0].sas().is_empty());
}

/// An SA that the peer does not know is deleted, and set up again (RFC 7296 §2.25).
#[test]
fn a_child_that_the_peer_does_not_know_is_made_anew() {
    let mut world = moon();
    let mut sun = Responder::establish(&mut world);
    let (now, old) = (world.now, world.hosts[0].sas()[0].children[0].id);
    assert!(world.hosts[0].endpoint.rekey_child(now, old));
    world.settle(0);
    let notify = Payload::Notify(Notify::new(NotifyType::ChildSaNotFound, Vec::new()));
    let said = sun.answer(&mut world, ExchangeType::CreateChildSa, 2, vec![notify]);
    assert!(world.hosts[0].installed.is_empty(), "{:#?}", world.hosts[0].log());
    let [(header, asked)] = &said[..] else { panic!("{said:?}") };
    assert_eq!(header.exchange, ExchangeType::CreateChildSa);
    let rekeys = |payload: &Payload| matches!(payload, Payload::Notify(n) if n.kind == NotifyType::RekeySa);
    assert!(!asked.iter().any(rekeys), "{asked:?}");
}

/// Anybody may answer IKE_SA_INIT: an answer that does not fit its own choice of algorithms is passed
/// over, and the right one still comes.
#[test]
fn an_answer_that_does_not_fit_its_choice_is_passed_over() {
    type Edit = fn(&SaPayload, &mut Payload);
    let edits: [Edit; 2] = [
        |_, payload| {
            if let Payload::Nonce(nonce) = payload {
                *nonce = Nonce::new(vec![7; 31]).unwrap();
            }
        },
        |offered, payload| {
            if let Payload::Sa(chosen) = payload {
                let mut proposal = ike_proposal(&[KeyExchange::Ecp256]);
                proposal.prf = vec![Prf::HmacSha512];
                *chosen = select::ike(offered, &[proposal]).unwrap().answer(None);
            }
        },
    ];
    for edit in edits {
        let mut world = World::pair_with(2, Weather::FAIR, |_, connection| {
            connection.proposals = vec![ike_proposal(&[KeyExchange::X25519, KeyExchange::Ecp256])];
            connection.proposals[0].prf = vec![Prf::HmacSha512];
        });
        world.initiate(0);
        world.run(Duration::from_millis(10));
        let offered = Message::parse(&world.hosts[0].sent[0].1).unwrap().payloads.sa().unwrap().clone();
        let right = world.hosts[1].sent[0].1.clone();
        let right = Message::parse(&right).unwrap();
        let mut payloads: Vec<Payload> = right.payloads.iter().cloned().collect();
        payloads.iter_mut().for_each(|payload| edit(&offered, payload));
        let bytes = message(right.header, payloads).finish().unwrap();
        let datagram =
            Datagram { from: "192.0.2.2:500".parse().unwrap(), to: "192.0.2.1:500".parse().unwrap(), bytes };
        world.deliver(&datagram);
        assert_eq!(world.hosts[0].sent.len(), 1, "{:#?}", world.hosts[0].log());
        assert_eq!(world.hosts[0].endpoint.stats().discarded(Discard::Unacceptable), 1);
        world.run_secs(1);
        world.assert_tunnel();
    }
}
