//! A responder's answers to unusual requests of a scripted initiator.

use crate::scenarios::common::build::{fqdn, ts};
use crate::scenarios::common::peer::{Peer, SPI, only_notify, status};
use crate::scenarios::common::{Weather, World};
use testudo_base::spi::Spi;
use testudo_ike::config::Identity;
use testudo_ike::endpoint::{Discard, EndpointConfig, IkeSaState};
use testudo_ike::message::{
    AuthMethodId, AuthPayload, CfgAttribute, CfgAttributeType, CfgType, Configuration, Delete, ExchangeType,
    IdPayload, IdType, Notify, NotifyType, Payload, PayloadType, TsPayload, UnknownPayload, UnknownSelector,
};
use testudo_ike::output::{Event, Reason};

/// Host 0 is sun, configured for moon.
pub(crate) fn sun() -> World {
    let mut world =
        World::pair_of(["192.0.2.1", "192.0.2.2"], 1, Weather::FAIR, EndpointConfig::default(), |_, _| {});
    world.hosts.remove(0);
    world
}

fn unknown(kind: u8) -> Payload {
    Payload::Unknown(UnknownPayload { kind: PayloadType::from(kind), body: vec![1, 2, 3] })
}

/// The first payload of a sealed request becomes critical: the bit stands in the first octet of the
/// plaintext, so the request is made by hand.
fn critical(peer: &mut Peer, exchange: ExchangeType, kind: u8) -> Vec<u8> {
    // A payload of type 33..48 that holds another generic header would be misread; so the unknown
    // payload is wrapped: the builder never sets the bit, the draft is edited before it is sealed
    // by the same AEAD.
    let header = peer.header(exchange, false, peer.next);
    crate::scenarios::common::seal::sealed_with(peer, header, vec![unknown(kind)], |plaintext| {
        plaintext[1] |= 0x80
    })
}

#[test]
fn additional_notifies_of_strongswan_are_ignored() {
    let mut world = sun();
    let status_notifies = [
        NotifyType::MobikeSupported,
        NotifyType::AdditionalIp4Address,
        NotifyType::EapOnlyAuthentication,
        NotifyType::MultipleAuthSupported,
        NotifyType::MessageIdSyncSupported,
        NotifyType::EspTfcPaddingNotSupported,
        NotifyType::NonFirstFragmentsAlso,
        NotifyType::UseTransportMode,
        NotifyType::IpcompSupported,
        NotifyType::Unknown(40_000),
    ];
    let in_init = [
        NotifyType::FragmentationSupported,
        NotifyType::SignatureHashAlgorithms,
        NotifyType::RedirectSupported,
        NotifyType::ChildlessIkev2Supported,
    ];
    let mut peer = Peer::init(&mut world, 2, in_init.map(status).to_vec());
    let mut payloads = peer.auth_payloads();
    payloads.extend(status_notifies.map(status));
    // CERTREQ, CP without a request for an address, and unknown payloads that are not critical.
    let attributes = vec![CfgAttribute::request(CfgAttributeType::Ip4Dns)];
    let servers = Payload::Configuration(Configuration { kind: CfgType::Request, attributes });
    payloads.extend([unknown(38), servers, unknown(200)]);
    let answer = peer.request(&mut world, ExchangeType::IkeAuth, payloads).unwrap();
    let notifies: Vec<&Payload> = answer.iter().filter(|p| matches!(p, Payload::Notify(_))).collect();
    let known = status(NotifyType::MessageIdSyncSupported);
    assert_eq!(notifies, [&known], "tunnel mode, and no word of it; of the rest we know this");
    assert_eq!(world.hosts[0].installed.len(), 1);
}

#[test]
fn an_unknown_critical_payload_refuses_the_request_and_no_more() {
    let mut world = sun();
    let mut peer = Peer::establish(&mut world, 3);
    let request = critical(&mut peer, ExchangeType::Informational, 200);
    let answer = peer.request_bytes(&mut world, request).unwrap();
    assert_eq!(answer, [Payload::Notify(Notify::unsupported_critical(PayloadType::from(200)))]);
    assert_eq!(world.hosts[0].installed.len(), 1);
    let request = critical(&mut peer, ExchangeType::Informational, 43);
    assert_eq!(peer.request_bytes(&mut world, request), Some(vec![]), "V is known: the bit says nothing");
}

#[test]
fn an_unknown_critical_payload_in_ike_auth_ends_the_negotiation() {
    let mut world = sun();
    let mut peer = Peer::init(&mut world, 4, vec![]);
    let request = critical(&mut peer, ExchangeType::IkeAuth, 200);
    let answer = peer.request_bytes(&mut world, request).unwrap();
    assert_eq!(answer, [Payload::Notify(Notify::unsupported_critical(PayloadType::from(200)))]);
    assert_eq!(world.hosts[0].sas(), []);
}

#[test]
fn a_malformed_protected_request_ends_the_ike_sa() {
    let mut world = sun();
    let mut peer = Peer::establish(&mut world, 5);
    let header = peer.header(ExchangeType::Informational, false, peer.next);
    // The payload says that it is longer than the message.
    let request =
        crate::scenarios::common::seal::sealed_with(&mut peer, header, vec![unknown(200)], |plaintext| {
            plaintext[3] = 99
        });
    let answer = peer.request_bytes(&mut world, request);
    assert_eq!(only_notify(answer), NotifyType::InvalidSyntax);
    assert!(world.hosts[0].installed.is_empty() && world.hosts[0].sas().is_empty());
    assert!(world.hosts[0].logged("the peer sent a malformed request"));
}

#[test]
fn ike_auth_without_its_payloads() {
    type Edit = fn(&mut Vec<Payload>);
    let cases: [(&str, Edit, NotifyType); 4] = [
        ("no IDi", |p| drop(p.remove(0)), NotifyType::InvalidSyntax),
        ("no AUTH: EAP", |p| drop(p.remove(1)), NotifyType::AuthenticationFailed),
        (
            "another method",
            |p| {
                p[1] =
                    Payload::Auth(AuthPayload { method: AuthMethodId::DigitalSignature, data: vec![0; 64] });
            },
            NotifyType::AuthenticationFailed,
        ),
        (
            "an identity of a kind that we do not know",
            |p| p[0] = Payload::IdInitiator(IdPayload::new(IdType::DerAsn1Dn, vec![0x30, 0])),
            NotifyType::AuthenticationFailed,
        ),
    ];
    for (index, (what, edit, expected)) in cases.into_iter().enumerate() {
        let mut world = sun();
        let mut peer = Peer::init(&mut world, 100 + index as u64, vec![]);
        let mut payloads = peer.auth_payloads();
        edit(&mut payloads);
        let answer = peer.request(&mut world, ExchangeType::IkeAuth, payloads);
        assert_eq!(only_notify(answer), expected, "{what}");
        assert_eq!(world.hosts[0].sas(), [], "{what}");
        world.run_secs(60);
        world.assert_nothing_left();
    }
}

#[test]
fn ike_auth_without_a_child_brings_the_ike_sa_up_alone() {
    let mut world = sun();
    let mut peer = Peer::init(&mut world, 6, vec![]);
    let mut payloads = peer.auth_payloads();
    payloads.truncate(2);
    let answer = peer.request(&mut world, ExchangeType::IkeAuth, payloads).unwrap();
    assert!(matches!(&answer[..], [Payload::IdResponder(_), Payload::Auth(_)]), "{answer:?}");
    assert_eq!(world.hosts[0].sas()[0].state, IkeSaState::Established);
    assert!(world.hosts[0].installed.is_empty());
}

#[test]
fn a_key_of_one_owner_does_not_prove_another() {
    let mut world = sun();
    let now = world.now;
    let mut anybody = crate::scenarios::common::connection(("192.0.2.2", "sun"), ("192.0.2.1", "moon"));
    anybody.remote.id = None;
    world.hosts[0].load(now, anybody);
    let mut peer = Peer::init(&mut world, 7, vec![]);
    let payloads = peer.auth_as(&fqdn("venus"), b"a shared key");
    let answer = peer.request(&mut world, ExchangeType::IkeAuth, payloads);
    assert_eq!(only_notify(answer), NotifyType::AuthenticationFailed);
    assert!(world.hosts[0].logged("no shared key is loaded for sun and venus"));
}

#[test]
fn the_asked_for_identity_must_be_ours() {
    for (asked, accepted) in [(fqdn("sun"), true), (Identity::KeyId(b"sun".to_vec()), false)] {
        let mut world = sun();
        let mut peer = Peer::init(&mut world, 8, vec![]);
        let mut payloads = peer.auth_payloads();
        payloads.insert(1, Payload::IdResponder(IdPayload::from(&asked)));
        let answer = peer.request(&mut world, ExchangeType::IkeAuth, payloads).unwrap();
        let refused = answer == [status(NotifyType::AuthenticationFailed)];
        assert_eq!(refused, !accepted);
    }
}

#[test]
fn selectors_of_unknown_kinds_are_narrowed_away() {
    let mut world = sun();
    let mut peer = Peer::init(&mut world, 9, vec![]);
    let mut payloads = peer.auth_payloads();
    let Payload::TsInitiator(offered) = &mut payloads[3] else { panic!("TSi") };
    offered.unknown.push(UnknownSelector { kind: 99, protocol: 0, body: vec![0; 12] });
    offered.selectors.insert(0, ts("10.109.1.1"));
    let answer = peer.request(&mut world, ExchangeType::IkeAuth, payloads).unwrap();
    let narrowed = TsPayload::new(vec![ts("10.109.0.0-10.109.255.255")]);
    assert!(answer.contains(&Payload::TsInitiator(narrowed)), "{answer:?}");
}

#[test]
fn a_delete_names_our_spis_in_the_answer() {
    let mut world = sun();
    let mut peer = Peer::establish(&mut world, 10);
    let ours = world.hosts[0].installed.values().next().unwrap().spi_in;
    let foreign = Payload::Delete(Delete::Esp(vec![Spi(0x0bad_0bad), SPI, SPI]));
    let others = Payload::Delete(Delete::Ah(vec![Spi(0x0bad_0bad)]));
    let answer = peer.request(&mut world, ExchangeType::Informational, vec![foreign, others]).unwrap();
    assert_eq!(answer, [Payload::Delete(Delete::Esp(vec![ours]))]);
    assert!(world.hosts[0].installed.is_empty());
    assert_eq!(world.hosts[0].sas()[0].state, IkeSaState::Established);
    let down = |event: &Event| matches!(event, Event::ChildDown(_, _, Reason::DeletedByPeer));
    assert_eq!(world.hosts[0].events.iter().filter(|event| down(event)).count(), 1);
}

#[test]
fn an_authentic_authentication_failed_ends_the_ike_sa() {
    let mut world = sun();
    let mut peer = Peer::establish(&mut world, 11);
    let notify = status(NotifyType::AuthenticationFailed);
    assert_eq!(peer.request(&mut world, ExchangeType::Informational, vec![notify]), Some(vec![]));
    assert!(world.hosts[0].installed.is_empty() && world.hosts[0].sas().is_empty());
}

#[test]
fn other_exchanges_are_not_for_this_ike_sa() {
    let mut world = sun();
    let mut peer = Peer::establish(&mut world, 12);
    let exchanges = [ExchangeType::IkeAuth, ExchangeType::IkeIntermediate, ExchangeType::Unknown(250)];
    for exchange in exchanges {
        assert_eq!(peer.request(&mut world, exchange, vec![]), None);
    }
    assert_eq!(world.hosts[0].endpoint.stats().discarded(Discard::WrongExchange), 3);
    assert_eq!(peer.request(&mut world, ExchangeType::Informational, vec![]), Some(vec![]));
}

#[test]
fn before_ike_auth_nothing_else_is_taken() {
    let mut world = sun();
    let mut peer = Peer::init(&mut world, 13, vec![]);
    assert_eq!(peer.request(&mut world, ExchangeType::Informational, vec![]), None);
    let payloads = vec![Payload::Delete(Delete::IkeSa)];
    assert_eq!(peer.request(&mut world, ExchangeType::Informational, payloads), None);
    let payloads = peer.auth_payloads();
    assert!(peer.request(&mut world, ExchangeType::IkeAuth, payloads).is_some());
    assert_eq!(world.hosts[0].installed.len(), 1);
}

#[test]
fn the_window_is_one() {
    let mut world = sun();
    let mut peer = Peer::establish(&mut world, 14);
    peer.next = 3;
    assert_eq!(peer.request(&mut world, ExchangeType::Informational, vec![]), None, "one ahead");
    peer.next = u32::MAX;
    assert_eq!(peer.request(&mut world, ExchangeType::Informational, vec![]), None, "far ahead");
    peer.next = 2;
    assert_eq!(peer.request(&mut world, ExchangeType::Informational, vec![]), Some(vec![]));
    assert_eq!(world.hosts[0].endpoint.stats().discarded(Discard::MessageId), 2);
}

/// RFC 7296 §2.20: our name and version are not revealed, and the answer then has no CP.
#[test]
fn the_version_is_not_revealed() {
    let mut world = sun();
    let mut peer = Peer::establish(&mut world, 40);
    // APPLICATION_VERSION.
    let version = CfgAttribute { kind: CfgAttributeType::from(7), value: Vec::new() };
    let request = Configuration { kind: CfgType::Request, attributes: vec![version] };
    let request = vec![Payload::Configuration(request)];
    assert_eq!(peer.request(&mut world, ExchangeType::Informational, request), Some(Vec::new()));
    assert_eq!(world.hosts[0].installed.len(), 1);
}
