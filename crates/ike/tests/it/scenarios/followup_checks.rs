//! Answers that an initiator refuses from a scripted responder that sets up SAs in several
//! exchanges.

use crate::scenarios::common::build::ts;
use crate::scenarios::common::responder::{Responder, SPI};
use crate::scenarios::common::{Random, Weather, World};
use testudo_base::spi::Spi;
use testudo_ike::config::KeyExchange::{self, Ecp256, Ecp384, MlKem768, X25519};
use testudo_ike::message::{
    Delete, ExchangeType, KePayload, Nonce, Notify, NotifySa, NotifyType, Payload, Protocol, SaPayload,
    SaSpi, Transform, TransformType, TsPayload,
};
use testudo_ike::suite::{self, KePrivate, Secret, offer, select};

const CREATE: ExchangeType = ExchangeType::CreateChildSa;
const FOLLOWUP: ExchangeType = ExchangeType::IkeFollowupKe;
const NEW: Spi = Spi(0x0222_2222);
/// Octets that mean something to the responder alone.
const LINK: &[u8] = b"whatever this may mean";

fn responds(method: KeyExchange, payloads: &[Payload]) -> (KePayload, Secret) {
    let ke = payloads.iter().find_map(|payload| match payload {
        Payload::Ke(ke) => Some(ke),
        _ => None,
    });
    suite::respond(method, ke.expect("KE"), &mut Random::new(5)).unwrap()
}

fn offered(payloads: &[Payload]) -> &SaPayload {
    let sa = payloads.iter().find_map(|payload| match payload {
        Payload::Sa(sa) => Some(sa),
        _ => None,
    });
    sa.expect("SA")
}

fn linked(data: &[u8]) -> Payload {
    Payload::Notify(Notify::new(NotifyType::AdditionalKeyExchange, data.to_vec()))
}

/// Moon renews its child with X25519 and, one after the other, two ECP groups. Gives what it asks.
fn moon() -> (World, Responder, Vec<Payload>) {
    let mut world = World::pair_with(1, Weather::FAIR, |_, connection| {
        let esp = &mut connection.children[0].proposals[0];
        esp.ke = vec![X25519];
        (esp.additional[0], esp.additional[2]) = (vec![Some(Ecp256)], vec![Some(Ecp384), Some(Ecp256)]);
    });
    world.hosts.remove(1);
    let sun = Responder::establish(&mut world);
    let (now, child) = (world.now, world.hosts[0].sas()[0].children[0].id);
    assert!(world.hosts[0].endpoint.rekey_child(now, child));
    world.settle(0);
    let (header, asked) = sun.asked(&world);
    assert_eq!((header.exchange, header.message_id.0), (CREATE, 2));
    (world, sun, asked)
}

/// The answer of a correct sun.
fn created(world: &World, asked: &[Payload]) -> Vec<Payload> {
    let proposals = &world.hosts[0].endpoint.connections().next().unwrap().children[0].proposals;
    let choice = select::esp(offered(asked), proposals, offer::ChildExchange::CreateChildSa).unwrap();
    let range = |range: &str| TsPayload::new(vec![ts(range)]);
    vec![
        Payload::Sa(choice.answer(NEW)),
        Payload::Nonce(Nonce::new(vec![9; 32]).unwrap()),
        Payload::Ke(responds(X25519, asked).0),
        Payload::TsInitiator(range("10.109.0.0-10.109.255.255")),
        Payload::TsResponder(range("10.115.0.0-10.115.255.255")),
        linked(LINK),
    ]
}

/// As far as the first IKE_FOLLOWUP_KE of moon.
fn in_series() -> (World, Responder, Vec<Payload>) {
    let (mut world, mut sun, asked) = moon();
    let answer = created(&world, &asked);
    let said = sun.answer(&mut world, CREATE, 2, answer);
    let [(header, content)] = &said[..] else { panic!("{said:?} {:#?}", world.hosts[0].log()) };
    assert_eq!((header.exchange, header.message_id.0, header.response), (FOLLOWUP, 3, false));
    (world, sun, content.clone())
}

/// The old child serves on, and the SPI that was for the new one is given back.
fn assert_given_up(world: &World, why: &str) {
    let host = &world.hosts[0];
    assert!(host.logged(why), "{why}: {:#?}", host.log());
    assert_eq!(host.installed.values().map(|params| params.spi_out).collect::<Vec<_>>(), [SPI]);
    assert_eq!(host.sending.len(), 1);
    assert_eq!(host.in_use.lock().unwrap().len(), 1);
    assert!(!host.sas()[0].tasks_active.contains(&"CHILD_REKEY"));
}

#[test]
fn each_link_is_given_back_as_it_came() {
    for link in [LINK.to_vec(), Vec::new(), vec![0; 1000]] {
        let (mut world, mut sun, asked) = moon();
        let mut answer = created(&world, &asked);
        answer.pop();
        answer.push(linked(&link));
        let said = sun.answer(&mut world, CREATE, 2, answer);
        let [(_, first)] = &said[..] else { panic!("{said:?}") };
        assert_eq!(first[1..], [linked(&link)]);
        let other = [&link[..], b"x"].concat();
        let answer = vec![Payload::Ke(responds(Ecp256, first).0), linked(&other)];
        let said = sun.answer(&mut world, FOLLOWUP, 3, answer);
        let [(header, second)] = &said[..] else { panic!("{said:?}") };
        assert_eq!((header.exchange, header.message_id.0), (FOLLOWUP, 4));
        assert_eq!(second[1..], [linked(&other)]);
        assert_eq!(world.hosts[0].installed.len(), 1, "not yet");
        let said = sun.answer(&mut world, FOLLOWUP, 4, vec![Payload::Ke(responds(Ecp384, second).0)]);
        let [(_, delete)] = &said[..] else { panic!("{said:?}") };
        assert!(matches!(&delete[..], [Payload::Delete(Delete::Esp(_))]), "the old one goes: {delete:?}");
        assert!(world.hosts[0].installed.values().any(|params| params.spi_out == NEW));
    }
}

/// Otherwise the exchange of an IKE_FOLLOWUP_KE would be ambiguous.
#[test]
fn an_answer_without_a_link_is_no_answer() {
    let (mut world, mut sun, asked) = moon();
    let mut answer = created(&world, &asked);
    answer.pop();
    let said = sun.answer(&mut world, CREATE, 2, answer);
    let [(header, content)] = &said[..] else { panic!("{said:?}") };
    assert_eq!(header.exchange, ExchangeType::Informational);
    assert!(matches!(&content[..], [Payload::Delete(Delete::Esp(_))]), "{content:?}");
    assert_given_up(&world, "the answer has no ADDITIONAL_KEY_EXCHANGE, and one is to follow");

    let (mut world, mut sun, asked) = in_series();
    sun.answer(&mut world, FOLLOWUP, 3, vec![Payload::Ke(responds(Ecp256, &asked).0)]);
    assert_given_up(&world, "the answer has no ADDITIONAL_KEY_EXCHANGE, and one is to follow");
}

#[test]
fn no_more_followups_than_negotiated() {
    let (mut world, mut sun, asked) = in_series();
    let answer = vec![Payload::Ke(responds(Ecp256, &asked).0), linked(LINK)];
    let said = sun.answer(&mut world, FOLLOWUP, 3, answer);
    let answer = vec![Payload::Ke(responds(Ecp384, &said[0].1).0), linked(LINK)];
    sun.answer(&mut world, FOLLOWUP, 4, answer);
    assert_given_up(&world, "the peer wants more key exchanges than agreed on");

    // Nor any where none was agreed on.
    let (mut world, mut sun, asked) = moon();
    let mut answer = created(&world, &asked);
    let Payload::Sa(sa) = &mut answer[0] else { panic!("SA") };
    sa.proposals[0].transforms.retain(|t| u8::from(t.kind) < 6);
    sun.answer(&mut world, CREATE, 2, answer);
    assert_given_up(&world, "it leaves out a transform type");
}

/// RFC 9370 §2.2.1: IKE_FOLLOWUP_KE must not begin.
#[test]
fn a_method_that_is_chosen_twice_is_the_end_of_it() {
    let (mut world, mut sun, asked) = moon();
    let mut answer = created(&world, &asked);
    let Payload::Sa(sa) = &mut answer[0] else { panic!("SA") };
    let kind = TransformType::AdditionalKe3;
    for transform in sa.proposals[0].transforms.iter_mut().filter(|t| t.kind == kind) {
        *transform = Transform::new(kind, testudo_ike::message::TransformId(19));
    }
    let said = sun.answer(&mut world, CREATE, 2, answer);
    assert!(said.iter().all(|(header, _)| header.exchange != FOLLOWUP), "{said:?}");
    assert_given_up(&world, "it names one method for two key exchanges");
}

#[test]
fn an_answer_that_cannot_be_used_is_the_end_of_it() {
    let (_, _, asked) = in_series();
    let good = responds(Ecp256, &asked).0;
    let half = |method| KePrivate::generate(method, &mut Random::new(3)).unwrap().payload();
    let cut = KePayload { data: good.data[1..].to_vec(), ..good.clone() };
    let off = KePayload { data: vec![1; good.data.len()], ..good.clone() };
    for (answer, why) in [
        (vec![linked(LINK)], "the answer has no KE"),
        (vec![Payload::Ke(cut), linked(LINK)], "public value for ECP_256 has 63 octets, expected 64"),
        (vec![Payload::Ke(off), linked(LINK)], "public value for ECP_256 is not valid"),
        (vec![Payload::Ke(half(Ecp384)), linked(LINK)], "KE payload is for method ECP_384, expected ECP_256"),
        (vec![Payload::Ke(half(MlKem768)), linked(LINK)], "KE payload is for method ML_KEM_768"),
        (vec![], "the answer has no KE"),
    ] {
        let (mut world, mut sun, _) = in_series();
        let said = sun.answer(&mut world, FOLLOWUP, 3, answer);
        // Whatever sun may have of it is taken back.
        assert!(matches!(&said[0].1[..], [Payload::Delete(Delete::Esp(_))]), "{said:?}");
        assert_given_up(&world, why);
    }
}

#[test]
fn an_error_is_the_end_of_the_series_and_of_nothing_else() {
    for kind in [
        NotifyType::TemporaryFailure,
        NotifyType::StateNotFound,
        NotifyType::NoProposalChosen,
        NotifyType::InvalidSyntax,
        NotifyType::NoAdditionalSas,
    ] {
        let (mut world, mut sun, _) = in_series();
        let said = sun.answer(&mut world, FOLLOWUP, 3, vec![Payload::Notify(Notify::new(kind, vec![]))]);
        assert!(said.is_empty(), "{said:?}");
        assert_given_up(&world, &format!("the peer answered {kind}"));
        // It is tried again.
        world.run_secs(15);
        assert_eq!(sun.asked(&world).0.exchange, CREATE, "{kind}");
    }
}

/// RFC 9370 §2.2.4: our CREATE_CHILD_SA is answered, and the peer comes with one for the same SA.
#[test]
fn a_request_for_what_is_being_renewed_is_a_temporary_failure() {
    let (mut world, mut sun, _) = in_series();
    let esp = world.hosts[0].endpoint.connections().next().unwrap().children[0].proposals.clone();
    let about = NotifySa { protocol: Protocol::Esp, spi: SaSpi::Child(SPI) };
    let notify = Notify { sa: Some(about), ..Notify::new(NotifyType::RekeySa, Vec::new()) };
    let range = |range: &str| TsPayload::new(vec![ts(range)]);
    let child = vec![
        Payload::Notify(notify),
        Payload::Sa(offer::esp(&esp, Spi(0x0333_3333), offer::ChildExchange::CreateChildSa)),
        Payload::Nonce(Nonce::new(vec![7; 32]).unwrap()),
        Payload::Ke(KePrivate::generate(X25519, &mut Random::new(3)).unwrap().payload()),
        Payload::TsInitiator(range("10.115.0.0-10.115.255.255")),
        Payload::TsResponder(range("10.109.0.0-10.109.255.255")),
    ];
    let ike = vec![
        Payload::Sa(offer::ike(
            &world.hosts[0].endpoint.connections().next().unwrap().proposals.clone(),
            Some(testudo_ike::message::IkeSpi(7)),
        )),
        Payload::Nonce(Nonce::new(vec![7; 32]).unwrap()),
        Payload::Ke(KePrivate::generate(X25519, &mut Random::new(3)).unwrap().payload()),
    ];
    let failure = vec![Payload::Notify(Notify::new(NotifyType::TemporaryFailure, vec![]))];
    for (id, request) in [child, ike].into_iter().enumerate() {
        assert_eq!(sun.request(&mut world, CREATE, id as u32, request), Some(failure.clone()));
    }
    assert_eq!(world.hosts[0].in_use.lock().unwrap().len(), 2);
}
