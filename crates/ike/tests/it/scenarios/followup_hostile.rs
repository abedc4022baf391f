//! IKE_FOLLOWUP_KE from initiators with bad manners: what belongs to nothing, what is malformed,
//! what comes too late or too often.

use crate::scenarios::common::build::{child, esp_proposal, ike_proposal, ts};
use crate::scenarios::common::peer::{Peer, SPI, only_notify};
use crate::scenarios::common::wire::sent;
use crate::scenarios::common::{Random, Weather, World};
use crate::scenarios::reload::reload;
use std::time::Duration;
use testudo_base::spi::{SenderId, Spi};
use testudo_ike::config::KeyExchange::{self, Ecp256, MlKem512, MlKem768, X25519};
use testudo_ike::config::{EspProposal, TsSpec};
use testudo_ike::message::{
    Delete, ExchangeType, IkeSpi, KePayload, Nonce, Notify, NotifySa, NotifyType, Payload, Protocol, SaSpi,
    TsPayload,
};
use testudo_ike::suite::{KePrivate, Nonces, Role, Secret, accept, offer};
use testudo_ipsec::sa::EspAlgorithm;

const CREATE: ExchangeType = ExchangeType::CreateChildSa;
const FOLLOWUP: ExchangeType = ExchangeType::IkeFollowupKe;
const NEW: Spi = Spi(0x2222_2222);
/// Of both kinds of SA, beside X25519.
const METHODS: [KeyExchange; 2] = [MlKem768, Ecp256];

fn esp() -> EspProposal {
    let mut proposal = esp_proposal(EspAlgorithm::Aes128Gcm16);
    proposal.ke = vec![X25519];
    for (place, method) in proposal.additional.iter_mut().zip(METHODS) {
        *place = vec![Some(method)];
    }
    proposal
}

/// Sun, which rekeys with METHODS, and a moon whose tunnel is up.
fn established(seed: u64) -> (World, Peer) {
    established_with(seed, vec![esp()])
}

/// The same with these proposals for the child.
fn established_with(seed: u64, proposals: Vec<EspProposal>) -> (World, Peer) {
    let mut world = World::pair_with(seed, Weather::FAIR, |_, connection| {
        let mut series = ike_proposal(&[X25519]);
        series.additional = esp().additional;
        connection.proposals.insert(0, series);
        connection.children[0].proposals = proposals.clone();
        let mut more = child("more", "10.50.0.0-10.50.0.255", "10.60.0.0-10.60.0.255");
        more.proposals = vec![esp()];
        connection.children.push(more);
    });
    world.hosts.swap(0, 1);
    let peer = Peer::establish(&mut world, seed);
    (world, peer)
}

fn half(method: KeyExchange) -> KePrivate {
    KePrivate::generate(method, &mut Random::new(77)).unwrap()
}

/// A series that is under way.
struct Series {
    nonces: Nonces,
    shared: Vec<Secret>,
    /// The link that the next IKE_FOLLOWUP_KE must contain.
    link: Vec<u8>,
    /// Of the new IKE SA, if it is one.
    spi: Option<IkeSpi>,
}

fn named(link: &[u8]) -> Payload {
    Payload::Notify(Notify::new(NotifyType::AdditionalKeyExchange, link.to_vec()))
}

fn link_of(payloads: &[Payload]) -> Option<Vec<u8>> {
    payloads.iter().find_map(|payload| match payload {
        Payload::Notify(notify) if notify.kind == NotifyType::AdditionalKeyExchange => {
            Some(notify.data.clone())
        }
        _ => None,
    })
}

fn ke_of(payloads: &[Payload]) -> &KePayload {
    let ke = |payload: &'_ Payload| matches!(payload, Payload::Ke(_));
    match payloads.iter().find(|payload| ke(payload)) {
        Some(Payload::Ke(ke)) => ke,
        _ => panic!("KE in {payloads:?}"),
    }
}

/// A CREATE_CHILD_SA request for the child at these addresses.
fn request(rekeys: Option<Spi>, new: Spi, nets: [&str; 2]) -> Vec<Payload> {
    let about = rekeys.map(|spi| NotifySa { protocol: Protocol::Esp, spi: SaSpi::Child(spi) });
    let notify =
        about.map(|sa| Payload::Notify(Notify { sa: Some(sa), ..Notify::new(NotifyType::RekeySa, vec![]) }));
    let [initiator, responder] = nets.map(|net| TsPayload::new(vec![ts(net)]));
    let rest = vec![
        Payload::Sa(offer::esp(&[esp()], new, offer::ChildExchange::CreateChildSa)),
        Payload::Nonce(Nonce::new(vec![7; 32]).unwrap()),
        Payload::Ke(half(X25519).payload()),
        Payload::TsInitiator(initiator),
        Payload::TsResponder(responder),
    ];
    notify.into_iter().chain(rest).collect()
}

const NET: [&str; 2] = ["10.109.0.0-10.109.255.255", "10.115.0.0-10.115.255.255"];
const MORE: [&str; 2] = ["10.60.0.0-10.60.0.255", "10.50.0.0-10.50.0.255"];

fn begun(answer: &[Payload]) -> Series {
    let mut spi = None;
    let mut nonces = None;
    for payload in answer {
        match payload {
            Payload::Sa(sa) => {
                spi = match sa.proposals[0].spi {
                    SaSpi::Ike(spi) => Some(spi),
                    _ => None,
                }
            }
            Payload::Nonce(nonce) => nonces = Some(nonce.clone()),
            _ => {}
        }
    }
    let initiator = Nonce::new(vec![7; 32]).unwrap();
    let nonces = Nonces { initiator, responder: nonces.expect("Nr") };
    let shared = vec![half(X25519).agree(ke_of(answer)).unwrap()];
    Series { nonces, shared, link: link_of(answer).expect("a link"), spi }
}

/// The CREATE_CHILD_SA of a series that renews the Child SA.
fn begin(world: &mut World, peer: &mut Peer) -> Series {
    let answer = peer.request(world, CREATE, request(Some(SPI), NEW, NET)).unwrap();
    begun(&answer)
}

/// The same for the IKE SA.
fn begin_ike(world: &mut World, peer: &mut Peer) -> Series {
    let proposals = world.hosts[0].endpoint.connections().next().unwrap().proposals.clone();
    let payloads = vec![
        Payload::Sa(offer::ike(&proposals[..1], Some(IkeSpi(0x0707)))),
        Payload::Nonce(Nonce::new(vec![7; 32]).unwrap()),
        Payload::Ke(half(X25519).payload()),
    ];
    let answer = peer.request(world, CREATE, payloads).unwrap();
    begun(&answer)
}

/// The next exchange, with manners. True if there is another to come.
fn go_on(world: &mut World, peer: &mut Peer, series: &mut Series) -> bool {
    let ke = half(METHODS[series.shared.len() - 1]);
    let answer = peer.request(world, FOLLOWUP, vec![Payload::Ke(ke.payload()), named(&series.link)]).unwrap();
    series.shared.push(ke.agree(ke_of(&answer)).unwrap());
    let next = link_of(&answer);
    assert_eq!(answer.len(), 1 + usize::from(next.is_some()), "{answer:?}");
    series.link = next.clone().unwrap_or_default();
    next.is_some()
}

fn refused(world: &mut World, peer: &mut Peer, payloads: Vec<Payload>) -> NotifyType {
    only_notify(peer.request(world, FOLLOWUP, payloads))
}

/// The host has what it had before, and holds no more.
fn assert_unchanged(world: &World) {
    assert_eq!(world.hosts[0].sas().len(), 1);
    assert_eq!(world.hosts[0].installed.len(), 1);
    assert_eq!(world.hosts[0].in_use.lock().unwrap().len(), 1);
}

/// KEYMAT = prf+ (SK_d, SK(0) | Ni | Nr | SK(1) | SK(2)), as another implementation would have it.
#[test]
fn the_keys_of_a_child_sa_are_those_of_every_exchange() {
    let (mut world, mut peer) = established(1);
    let mut series = begin(&mut world, &mut peer);
    assert!(go_on(&mut world, &mut peer, &mut series));
    assert_eq!(world.hosts[0].installed.len(), 1, "not yet");
    assert!(!go_on(&mut world, &mut peer, &mut series));
    let made = world.hosts[0].installed.values().find(|params| params.spi_out == NEW).unwrap();
    let keys = peer.keys.child(EspAlgorithm::Aes128Gcm16, &series.shared, &series.nonces).unwrap();
    assert_eq!((&made.key_in, &made.key_out), (&keys.from_initiator, &keys.from_responder));
    let first = peer.keys.child(EspAlgorithm::Aes128Gcm16, &series.shared[..1], &series.nonces).unwrap();
    assert_ne!(made.key_in, first.from_initiator);
}

#[test]
fn the_keys_of_an_ike_sa_are_those_of_every_exchange() {
    let (mut world, mut peer) = established(2);
    let mut series = begin_ike(&mut world, &mut peer);
    assert!(go_on(&mut world, &mut peer, &mut series));
    assert_eq!(world.hosts[0].sas().len(), 1, "not yet");
    assert!(!go_on(&mut world, &mut peer, &mut series));
    let spis = testudo_ike::suite::IkeSpis { initiator: IkeSpi(0x0707), responder: series.spi.unwrap() };
    let proposals = world.hosts[0].endpoint.connections().next().unwrap().proposals.clone();
    let offered = offer::ike(&proposals[..1], Some(spis.initiator));
    let choice = testudo_ike::suite::select::ike(&offered, &proposals[..1]).unwrap();
    let (suite, _) = accept::ike(&offered, &proposals[..1], &choice.answer(Some(spis.responder))).unwrap();
    peer.keys = peer.keys.derive_rekeyed(suite, &series.shared, &series.nonces, spis).unwrap();
    (peer.spis, peer.next) = (spis, 0);
    peer.sealer = peer.keys.sealer(Role::Initiator, SenderId(0xffff));
    peer.opener = peer.keys.opener(Role::Responder);
    assert_eq!(peer.request(&mut world, ExchangeType::Informational, vec![]), Some(vec![]));
}

/// RFC 9370 §2.2.4: STATE_NOT_FOUND, which is not the end of anything.
#[test]
fn a_followup_without_state_gets_state_not_found() {
    let (mut world, mut peer) = established(3);
    let ke = || Payload::Ke(half(MlKem768).payload());
    for payloads in [vec![], vec![ke()], vec![ke(), named(b"")], vec![ke(), named(&[0; 16])]] {
        assert_eq!(refused(&mut world, &mut peer, payloads), NotifyType::StateNotFound);
    }
    let mut series = begin(&mut world, &mut peer);
    let [mut wrong, long] = [series.link.clone(), [&series.link[..], b"x"].concat()];
    wrong[0] ^= 1;
    for link in [&wrong[..], &long, &series.link[1..], b""] {
        assert_eq!(refused(&mut world, &mut peer, vec![ke(), named(link)]), NotifyType::StateNotFound);
    }
    assert_eq!(refused(&mut world, &mut peer, vec![ke()]), NotifyType::StateNotFound);
    // None of that has ended the series.
    let first = series.link.clone();
    assert!(go_on(&mut world, &mut peer, &mut series));
    assert_ne!(first, series.link, "each has its own");
    assert_eq!(refused(&mut world, &mut peer, vec![ke(), named(&first)]), NotifyType::StateNotFound);
    let last = series.link.clone();
    assert!(!go_on(&mut world, &mut peer, &mut series));
    assert_eq!(
        refused(&mut world, &mut peer, vec![ke(), named(&last)]),
        NotifyType::StateNotFound,
        "it is over"
    );
    assert_eq!(world.hosts[0].installed.len(), 2);
}

#[test]
fn an_unusable_followup_ends_the_series() {
    let good = half(MlKem768).payload();
    let cut = KePayload { data: good.data[1..].to_vec(), ..good.clone() };
    let above = KePayload { data: vec![0xff; good.data.len()], ..good.clone() };
    let empty = KePayload { data: vec![], ..good.clone() };
    let another = half(MlKem512).payload();
    let later = half(Ecp256).payload();
    for (ike, bad) in
        [cut, above, empty, another, later].into_iter().flat_map(|bad| [(false, bad.clone()), (true, bad)])
    {
        let (mut world, mut peer) = established(4);
        let series = if ike { begin_ike(&mut world, &mut peer) } else { begin(&mut world, &mut peer) };
        let payloads = vec![Payload::Ke(bad), named(&series.link)];
        assert_eq!(refused(&mut world, &mut peer, payloads), NotifyType::InvalidSyntax);
        assert_unchanged(&world);
        let payloads = vec![Payload::Ke(good.clone()), named(&series.link)];
        assert_eq!(refused(&mut world, &mut peer, payloads), NotifyType::StateNotFound);
        // The next attempt is as good as the first.
        let mut series = if ike { begin_ike(&mut world, &mut peer) } else { begin(&mut world, &mut peer) };
        assert!(go_on(&mut world, &mut peer, &mut series) && !go_on(&mut world, &mut peer, &mut series));
        assert_eq!(
            (world.hosts[0].sas().len(), world.hosts[0].installed.len()),
            if ike { (2, 1) } else { (1, 2) }
        );
    }
    let (mut world, mut peer) = established(4);
    let series = begin(&mut world, &mut peer);
    assert_eq!(refused(&mut world, &mut peer, vec![named(&series.link)]), NotifyType::InvalidSyntax);
    assert_unchanged(&world);
}

/// A request comes again: it gets the same answer, and nothing is made twice.
#[test]
fn a_repeated_request_gets_the_same_answer() {
    let (mut world, mut peer) = established(5);
    let mut series = begin(&mut world, &mut peer);
    for _ in METHODS {
        go_on(&mut world, &mut peer, &mut series);
        let before = world.hosts[0].sent.last().unwrap().1.clone();
        let again = crate::scenarios::common::peer::exchange(&mut world, peer.path, &peer.last.clone());
        assert_eq!(again, [before]);
    }
    assert_eq!(world.hosts[0].installed.len(), 2);
}

#[test]
fn a_peer_that_does_not_go_on_leaves_nothing_behind() {
    for ike in [false, true] {
        let (mut world, mut peer) = established(6);
        let mut series = if ike { begin_ike(&mut world, &mut peer) } else { begin(&mut world, &mut peer) };
        world.run_secs(19);
        assert!(go_on(&mut world, &mut peer, &mut series), "each has its own twenty seconds");
        world.run_secs(19);
        assert!(!world.hosts[0].logged("does not go on"));
        world.run_secs(2);
        assert!(world.hosts[0].logged("the peer does not go on with its key exchanges"));
        assert_unchanged(&world);
        let payloads = vec![Payload::Ke(half(Ecp256).payload()), named(&series.link)];
        assert_eq!(refused(&mut world, &mut peer, payloads), NotifyType::StateNotFound);
    }
}

/// However many a peer begins, one is remembered.
#[test]
fn only_one_series_is_open_at_a_time() {
    let (mut world, mut peer) = established(7);
    let mut series = begin(&mut world, &mut peer);
    for number in 0..20 {
        let answer = peer.request(&mut world, CREATE, request(None, Spi(0x3333_0000 + number), MORE));
        assert_eq!(only_notify(answer), NotifyType::TemporaryFailure);
        assert_eq!(world.hosts[0].in_use.lock().unwrap().len(), 2);
    }
    // The same once more: the peer has forgotten the first.
    let before = series.link.clone();
    for _ in 0..20 {
        series = begin(&mut world, &mut peer);
        assert_eq!(world.hosts[0].in_use.lock().unwrap().len(), 2);
    }
    let payloads = vec![Payload::Ke(half(MlKem768).payload()), named(&before)];
    assert_eq!(refused(&mut world, &mut peer, payloads), NotifyType::StateNotFound);
    assert!(go_on(&mut world, &mut peer, &mut series) && !go_on(&mut world, &mut peer, &mut series));
    assert_eq!(world.hosts[0].installed.len(), 2);
    let answer = peer.request(&mut world, CREATE, request(None, Spi(0x3333_3333), MORE)).unwrap();
    let mut series = begun(&answer);
    assert!(go_on(&mut world, &mut peer, &mut series) && !go_on(&mut world, &mut peer, &mut series));
    assert_eq!(world.hosts[0].installed.len(), 3);
}

/// A new IKE SA and a Child SA are not set up at the same time: the child's IKE SA would be
/// ambiguous.
#[test]
fn one_kind_has_to_wait_for_the_other() {
    let (mut world, mut peer) = established(8);
    let mut series = begin_ike(&mut world, &mut peer);
    let answer = peer.request(&mut world, CREATE, request(Some(SPI), NEW, NET));
    assert_eq!(only_notify(answer), NotifyType::TemporaryFailure);
    assert!(go_on(&mut world, &mut peer, &mut series) && !go_on(&mut world, &mut peer, &mut series));
    let (mut world, mut peer) = established(8);
    let mut series = begin(&mut world, &mut peer);
    let proposals = world.hosts[0].endpoint.connections().next().unwrap().proposals.clone();
    // In a series, or in one exchange.
    for proposals in [&proposals[..], &proposals[1..]] {
        let payloads = vec![
            Payload::Sa(offer::ike(proposals, Some(IkeSpi(0x0707)))),
            Payload::Nonce(Nonce::new(vec![7; 32]).unwrap()),
            Payload::Ke(half(X25519).payload()),
        ];
        assert_eq!(only_notify(peer.request(&mut world, CREATE, payloads)), NotifyType::TemporaryFailure);
    }
    assert!(go_on(&mut world, &mut peer, &mut series) && !go_on(&mut world, &mut peer, &mut series));
}

/// A deleted SA is not rekeyed, and one that is not complete yet can be cancelled.
#[test]
fn a_delete_ends_the_series() {
    for spi in [SPI, NEW] {
        let (mut world, mut peer) = established(9);
        let series = begin(&mut world, &mut peer);
        let delete = vec![Payload::Delete(Delete::Esp(vec![spi]))];
        peer.request(&mut world, ExchangeType::Informational, delete).unwrap();
        let left = usize::from(spi == NEW);
        assert_eq!(world.hosts[0].installed.len(), left);
        assert_eq!(world.hosts[0].in_use.lock().unwrap().len(), left);
        let payloads = vec![Payload::Ke(half(MlKem768).payload()), named(&series.link)];
        assert_eq!(refused(&mut world, &mut peer, payloads), NotifyType::StateNotFound);
    }
}

/// A peer that thinks better of it has the SA in one exchange, and its series is over.
#[test]
fn a_series_ends_with_the_sa_that_it_renews() {
    let mut plain = esp();
    plain.additional = Default::default();
    let (mut world, mut peer) = established_with(11, vec![esp(), plain.clone()]);
    let series = begin(&mut world, &mut peer);
    let mut payloads = request(Some(SPI), Spi(0x3333_3333), NET);
    payloads[1] = Payload::Sa(offer::esp(&[plain], Spi(0x3333_3333), offer::ChildExchange::CreateChildSa));
    let answer = peer.request(&mut world, CREATE, payloads).unwrap();
    assert_eq!(link_of(&answer), None);
    assert_eq!(world.hosts[0].installed.len(), 2);
    assert_eq!(world.hosts[0].in_use.lock().unwrap().len(), 2);
    let payloads = vec![Payload::Ke(half(MlKem768).payload()), named(&series.link)];
    assert_eq!(refused(&mut world, &mut peer, payloads), NotifyType::StateNotFound);
}

/// Whatever an initiator sends in the middle of it, the answer is one of few, and nothing is left
/// over.
#[test]
fn whatever_comes_in_the_middle_of_a_series_leaves_nothing_behind() {
    for seed in 0..200 {
        let (mut world, mut peer) = established(seed);
        let mut random = Random::new(seed);
        let mut series =
            if random.percent(50) { begin_ike(&mut world, &mut peer) } else { begin(&mut world, &mut peer) };
        for _ in 0..6 {
            let link =
                if random.percent(70) { series.link.clone() } else { vec![0; random.below(40) as usize] };
            let method = [MlKem768, Ecp256, MlKem512, X25519][random.below(4) as usize];
            let mut ke = half(method).payload();
            if random.percent(20) {
                ke.data.truncate(random.below(2000) as usize);
            }
            let mut payloads = vec![Payload::Ke(ke), named(&link)];
            payloads.retain(|_| !random.percent(10));
            match random.below(8) {
                0 => drop(peer.request(&mut world, CREATE, request(Some(SPI), NEW, NET))),
                1 => drop(peer.request(&mut world, CREATE, request(None, Spi(0x3333_3333), MORE))),
                2 => world.run_secs(random.below(30)),
                _ => {
                    let answer = peer.request(&mut world, FOLLOWUP, payloads).expect("an answer");
                    if let Some(link) = link_of(&answer) {
                        series.link = link;
                    }
                }
            }
        }
        world.run_secs(30);
        let host = &world.hosts[0];
        assert_eq!(host.in_use.lock().unwrap().len(), host.installed.len(), "seed {seed}");
    }
}

#[test]
fn payloads_are_as_they_should_be() {
    let (mut world, mut peer) = established(10);
    let answer = peer.request(&mut world, CREATE, request(Some(SPI), NEW, NET)).unwrap();
    let kinds: Vec<_> = answer.iter().map(Payload::kind).collect();
    use testudo_ike::message::PayloadType as P;
    let expected =
        [P::SecurityAssociation, P::Nonce, P::KeyExchange, P::TsInitiator, P::TsResponder, P::Notify];
    assert_eq!(kinds, expected);
}

/// An SA negotiated under a configuration that has changed since is not set up.
#[test]
fn a_series_ends_with_the_configuration_that_it_was_agreed_by() {
    let (mut world, mut peer) = established(13);
    let answer = peer.request(&mut world, CREATE, request(None, NEW, MORE)).unwrap();
    let series = begun(&answer);
    reload(&mut world, 0, |_, connection| {
        connection.children[1].remote_ts = vec![TsSpec::Fixed(ts("10.60.0.0-10.60.0.127"))];
    });
    let payloads = vec![Payload::Ke(half(METHODS[0]).payload()), named(&series.link)];
    assert_eq!(refused(&mut world, &mut peer, payloads), NotifyType::StateNotFound);
    assert_unchanged(&world);
}

/// The peer begins a series for the SA that we are rekeying, and does not continue: then ours
/// counts, whatever the nonces.
#[test]
fn a_series_that_is_given_up_is_no_rival() {
    let (mut world, mut peer) = established_with(14, vec![esp_proposal(EspAlgorithm::Aes128Gcm16), esp()]);
    let (now, child) = (world.now, world.hosts[0].sas()[0].children[0].id);
    assert!(world.hosts[0].endpoint.rekey_child(now, child));
    world.settle(0);
    begin(&mut world, &mut peer);
    world.run_secs(22);
    assert!(world.hosts[0].logged("the peer does not go on with its key exchanges"));
    let (_, said) = peer.answer_child(&mut world, 0, (Spi(0x5555_5555), [0; 32]));
    assert_eq!(said.len(), 1, "the old one is deleted");
    let host = &world.hosts[0];
    let used: Vec<Spi> = host.sending.iter().map(|id| host.installed[id].spi_out).collect();
    assert_eq!(used, [Spi(0x5555_5555)], "{:#?}", host.log());
}

/// The peer begins to renew a Child SA whose configuration has changed, before we could ask for a
/// replacement: we ask for that of the new Child SA, when the series has come to its end.
#[test]
fn a_replacement_waits_for_a_series_that_has_begun_after_the_change() {
    let (mut world, mut peer) = established(15);
    // A request that the peer does not answer yet leaves no room for another.
    reload(&mut world, 0, |_, connection| connection.dpd_delay = Duration::from_secs(10));
    world.run_secs(11);
    let narrower = ts("10.109.0.0-10.109.127.255");
    reload(&mut world, 0, |_, connection| connection.children[0].remote_ts = vec![TsSpec::Fixed(narrower)]);
    let mut series = begin(&mut world, &mut peer);
    peer.answer(&mut world, ExchangeType::Informational, 0);
    while go_on(&mut world, &mut peer, &mut series) {
        world.run_secs(1);
        assert_eq!(sent(&world, 0, CREATE, false).len(), 0, "{:#?}", world.hosts[0].log());
    }
    world.run_secs(60);
    let replaced: Vec<&str> =
        world.hosts[0].log().into_iter().filter(|line| line.starts_with("replacing ")).collect();
    assert_eq!(replaced, ["replacing CHILD_SA net{2}: its configuration has changed"]);
}
