//! IKE_INTERMEDIATE from peers with bad manners: what is out of order, what is malformed, what was
//! changed on the way.

use crate::scenarios::common::build::ike_proposal;
use crate::scenarios::common::peer::{Peer, exchange, message, only_notify, status};
use crate::scenarios::common::{Random, Weather, World};
use testudo_base::spi::SenderId;
use testudo_ike::config::IkeProposal;
use testudo_ike::config::KeyExchange::{self, Ecp256, MlKem768, X25519};
use testudo_ike::endpoint::Discard;
use testudo_ike::message::{ExchangeType, Header, KePayload, Message, Notify, NotifyType, Payload};
use testudo_ike::output::Path;
use testudo_ike::suite::{KePrivate, Role};

const INTERMEDIATE: ExchangeType = ExchangeType::IkeIntermediate;

fn proposal(methods: &[KeyExchange]) -> IkeProposal {
    let mut proposal = ike_proposal(&[X25519]);
    for (place, method) in proposal.additional.iter_mut().zip(methods) {
        *place = vec![Some(*method)];
    }
    proposal
}

/// Sun, and a moon that has agreed on these additional key exchanges and on fragments.
fn agreed(methods: &[KeyExchange]) -> (World, Peer) {
    let proposals = [proposal(methods)];
    let mut world =
        World::pair_with(1, Weather::FAIR, |_, connection| connection.proposals = proposals.to_vec());
    world.hosts.swap(0, 1);
    let extra =
        vec![status(NotifyType::IntermediateExchangeSupported), status(NotifyType::FragmentationSupported)];
    let peer = Peer::try_init_for(&mut world, 1, &proposals, extra).expect("an answer");
    (world, peer)
}

/// Our half of the next additional key exchange.
fn half(method: KeyExchange) -> KePrivate {
    KePrivate::generate(method, &mut Random::new(77)).unwrap()
}

/// An answer arrives: the peer takes note of it for AUTH and changes the keys.
fn heard(peer: &mut Peer, ke: &KePrivate, answer: &[u8]) {
    let request = message(peer.header(INTERMEDIATE, false, peer.next), vec![Payload::Ke(ke.payload())]);
    peer.int_auth.sent(&peer.keys, Role::Initiator, &request).unwrap();
    let encrypted = Message::parse(answer).unwrap().encrypted.unwrap();
    let opened = peer.opener.open(&encrypted).unwrap();
    peer.int_auth.received(&peer.keys, Role::Responder, &encrypted.head(), &opened).unwrap();
    let payloads = opened.payloads().unwrap();
    let shared = ke.agree(payloads.ke().expect("KE")).unwrap();
    peer.keys = peer.keys.derive_additional(&shared, &peer.nonces, peer.spis).unwrap();
    peer.sealer = peer.sealer.with_keys(&peer.keys, Role::Initiator);
    peer.opener = peer.keys.opener(Role::Responder);
    peer.next += 1;
}

/// The whole of an additional key exchange, with manners.
fn additional(world: &mut World, peer: &mut Peer, method: KeyExchange) {
    let ke = half(method);
    let request = peer.seal(INTERMEDIATE, vec![Payload::Ke(ke.payload())]);
    let answers = exchange(world, peer.path, &request);
    let [answer] = &answers[..] else { panic!("one answer, {:?}", world.hosts[0].log()) };
    heard(peer, &ke, answer);
}

fn authenticate(world: &mut World, peer: &mut Peer) -> Vec<Payload> {
    let payloads = peer.auth_payloads();
    peer.request(world, ExchangeType::IkeAuth, payloads).expect("an answer")
}

#[test]
fn auth_covers_every_exchange() {
    let (mut world, mut peer) = agreed(&[MlKem768, Ecp256]);
    additional(&mut world, &mut peer, MlKem768);
    additional(&mut world, &mut peer, Ecp256);
    authenticate(&mut world, &mut peer);
    assert_eq!(world.hosts[0].installed.len(), 1, "{:?}", world.hosts[0].log());
}

/// An attacker who could break X25519 is in the middle: each side does an exchange with the
/// attacker.
#[test]
fn an_exchange_that_the_peer_did_not_see_fails_in_ike_auth() {
    let (mut world, mut peer) = agreed(&[MlKem768]);
    let before = peer.int_auth.clone();
    additional(&mut world, &mut peer, MlKem768);
    peer.int_auth = before;
    let answer = authenticate(&mut world, &mut peer);
    assert_eq!(only_notify(Some(answer)), NotifyType::AuthenticationFailed);
    assert!(world.hosts[0].logged("moon does not hold our shared key"), "{:?}", world.hosts[0].log());
    assert!(world.hosts[0].installed.is_empty());
}

#[test]
fn ike_auth_has_to_wait_for_every_exchange() {
    let (mut world, mut peer) = agreed(&[MlKem768, Ecp256]);
    for method in [MlKem768, Ecp256] {
        let payloads = peer.auth_payloads();
        assert_eq!(peer.request(&mut world, ExchangeType::IkeAuth, payloads), None);
        assert_eq!(peer.request(&mut world, ExchangeType::Informational, vec![]), None);
        additional(&mut world, &mut peer, method);
    }
    assert_eq!(world.hosts[0].endpoint.stats().discarded(Discard::WrongExchange), 4);
    authenticate(&mut world, &mut peer);
    assert_eq!(world.hosts[0].installed.len(), 1);
}

#[test]
fn exactly_the_negotiated_number_of_intermediate_exchanges() {
    let (mut world, mut peer) = agreed(&[MlKem768]);
    additional(&mut world, &mut peer, MlKem768);
    let ke = half(MlKem768);
    assert_eq!(peer.request(&mut world, INTERMEDIATE, vec![Payload::Ke(ke.payload())]), None);
    assert_eq!(world.hosts[0].endpoint.stats().discarded(Discard::WrongExchange), 1);
    authenticate(&mut world, &mut peer);
    assert_eq!(peer.request(&mut world, INTERMEDIATE, vec![Payload::Ke(ke.payload())]), None);
    assert_eq!(world.hosts[0].endpoint.stats().discarded(Discard::WrongExchange), 2);
    assert_eq!(world.hosts[0].installed.len(), 1);

    let mut world = World::pair(1, Weather::FAIR);
    world.hosts.swap(0, 1);
    let supported = status(NotifyType::IntermediateExchangeSupported);
    let mut peer = Peer::init(&mut world, 1, vec![supported]);
    assert_eq!(peer.request(&mut world, INTERMEDIATE, vec![]), None, "nothing was agreed on");
    authenticate(&mut world, &mut peer);
    assert_eq!(world.hosts[0].installed.len(), 1);
}

#[test]
fn an_unusable_intermediate_is_answered_and_ends_the_negotiation() {
    let good = half(MlKem768).payload();
    let changed = |edit: &dyn Fn(&mut KePayload)| {
        let mut ke = good.clone();
        edit(&mut ke);
        vec![Payload::Ke(ke)]
    };
    let requests = [
        (vec![], "KE is missing"),
        (vec![Payload::Ke(half(Ecp256).payload())], "KE payload is for method ECP_256, expected ML_KEM_768"),
        (changed(&|ke| ke.data.truncate(1183)), "has 1183 octets, expected 1184"),
        (changed(&|ke| ke.data[..3].fill(0xff)), "public value for ML_KEM_768 is not valid"),
    ];
    for (payloads, why) in requests {
        let (mut world, mut peer) = agreed(&[MlKem768]);
        let answer = peer.request(&mut world, INTERMEDIATE, payloads);
        assert_eq!(only_notify(answer), NotifyType::InvalidSyntax, "{why}");
        assert!(world.hosts[0].logged(why), "{why}: {:?}", world.hosts[0].log());
        assert_eq!(world.hosts[0].endpoint.stats().discarded(Discard::Refused), 1);
        let payloads = peer.auth_payloads();
        assert_eq!(peer.request(&mut world, ExchangeType::IkeAuth, payloads), None, "{why}");
        world.run_secs(60);
        world.assert_nothing_left();
    }
}

#[test]
fn a_repeated_request_gets_the_same_octets_under_the_old_keys() {
    let (mut world, mut peer) = agreed(&[MlKem768]);
    let ke = half(MlKem768);
    let request = peer.seal(INTERMEDIATE, vec![Payload::Ke(ke.payload())]);
    let first = exchange(&mut world, peer.path, &request);
    assert_eq!(exchange(&mut world, peer.path, &request), first);
    heard(&mut peer, &ke, &first[0]);
    assert_eq!(exchange(&mut world, peer.path, &request), first);
    authenticate(&mut world, &mut peer);
    assert_eq!(exchange(&mut world, peer.path, &request), Vec::<Vec<u8>>::new(), "the window has moved on");
    assert_eq!(world.hosts[0].installed.len(), 1);
}

/// RFC 7383 §2.5.2: a sender may try smaller fragments. IntAuth is the same (RFC 9242 §3.3.2).
#[test]
fn a_request_that_comes_again_in_smaller_pieces_is_known_although_the_keys_have_changed() {
    let (mut world, mut peer) = agreed(&[MlKem768]);
    let ke = half(MlKem768);
    let request = message(peer.header(INTERMEDIATE, false, peer.next), vec![Payload::Ke(ke.payload())]);
    let send = |world: &mut World, peer: &mut Peer, limit| -> Vec<Vec<u8>> {
        let pieces = peer.sealer.seal_fragments(&request, limit, &mut Random::new(1)).unwrap();
        assert!(pieces.len() > 1);
        pieces.iter().flat_map(|piece| exchange(world, peer.path, piece)).collect()
    };
    let first = send(&mut world, &mut peer, 700);
    assert_eq!(first.len(), 1, "{:?}", world.hosts[0].log());
    let again = send(&mut world, &mut peer, 300);
    assert_eq!(again, first, "{:?}", world.hosts[0].log());
    heard(&mut peer, &ke, &again[0]);
    authenticate(&mut world, &mut peer);
    assert_eq!(world.hosts[0].installed.len(), 1);
    // Forged pieces of it are still refused.
    let forger = peer.keys.derive_additional(&ke_secret(), &peer.nonces, peer.spis).unwrap();
    let mut sealer = forger.sealer(Role::Initiator, SenderId(7));
    let pieces = sealer.seal_fragments(&request, 400, &mut Random::new(1)).unwrap();
    assert_eq!(exchange(&mut world, peer.path, &pieces[0]), Vec::<Vec<u8>>::new());
}

/// The peer is not authenticated: the answer, a large ciphertext, must not be usable to flood a
/// third party.
#[test]
fn the_answer_is_repeated_a_few_times_only() {
    let proposals = [proposal(&[MlKem768])];
    let mut world =
        World::pair_with(1, Weather::FAIR, |_, connection| connection.proposals = proposals.to_vec());
    world.hosts.swap(0, 1);
    let mut extra =
        vec![status(NotifyType::IntermediateExchangeSupported), status(NotifyType::FragmentationSupported)];
    let wrong = |kind| Payload::Notify(Notify::new(kind, vec![0; 20]));
    extra.extend([NotifyType::NatDetectionSourceIp, NotifyType::NatDetectionDestinationIp].map(wrong));
    let mut peer = Peer::try_init_for(&mut world, 1, &proposals, extra).expect("an answer");
    let payloads = vec![Payload::Ke(half(MlKem768).payload())];
    let request = message(peer.header(INTERMEDIATE, false, peer.next), payloads);
    let pieces = peer.sealer.seal_fragments(&request, 100, &mut Random::new(1)).unwrap();
    let answers: Vec<_> = pieces.iter().flat_map(|piece| exchange(&mut world, peer.path, piece)).collect();
    let [answer] = &answers[..] else { panic!("one answer, {:?}", world.hosts[0].log()) };
    assert!(answer.len() > 10 * pieces[0].len());
    let mut repeated = |from: &str| -> usize {
        let path = Path { local: from.parse().unwrap(), ..peer.path };
        (0..100).map(|_| exchange(&mut world, path, &pieces[0]).len()).sum()
    };
    assert_eq!((repeated("203.0.113.5:500"), repeated("192.0.2.1:4500")), (3, 13));
}

fn ke_secret() -> testudo_ike::suite::Secret {
    testudo_ike::suite::Secret::new(vec![1; 32])
}

/// A responder that says nothing of IKE_INTERMEDIATE cannot mean it (RFC 9370 §2.2.1).
#[test]
fn without_the_notify_there_are_no_additional_exchanges() {
    let proposals = [proposal(&[MlKem768])];
    let mut world =
        World::pair_with(1, Weather::FAIR, |_, connection| connection.proposals = proposals.to_vec());
    world.hosts.swap(0, 1);
    assert!(Peer::try_init_for(&mut world, 1, &proposals, vec![]).is_none());
    assert!(world.hosts[0].logged("no common IKE proposal"), "{:?}", world.hosts[0].log());

    // The other way round: a true answer from which the notify was taken on the way.
    let mut world =
        World::pair_with(2, Weather::FAIR, |_, connection| connection.proposals = proposals.to_vec());
    world.initiate(0);
    world.run_until(|world| !world.hosts[1].sent.is_empty());
    let (path, response) = world.hosts[1].sent[0].clone();
    let parsed = Message::parse(&response).unwrap();
    let kept = parsed.payloads.iter().filter(|payload| {
        !matches!(payload, Payload::Notify(n) if n.kind == NotifyType::IntermediateExchangeSupported)
    });
    let header: Header = parsed.header;
    let stripped = message(header, kept.cloned().collect()).finish().unwrap();
    world.network.up = false;
    let arrival = testudo_ike::output::Path { local: path.remote, remote: path.local };
    let now = world.now;
    world.hosts[0].endpoint.handle_datagram(now, arrival, &stripped);
    world.settle(0);
    assert_eq!(world.hosts[0].endpoint.stats().discarded(Discard::Unacceptable), 1);
    assert!(
        world.hosts[0]
            .sent
            .iter()
            .all(|(_, bytes)| { Message::parse(bytes).unwrap().header.exchange == ExchangeType::IkeSaInit })
    );
}
