//! What rivals our renewal of an SA, and what becomes of both (RFC 7296 §2.8, §2.25).

use crate::scenarios::answers::sun;
use crate::scenarios::collisions::{What, further_request, rekey_request, renew};
use crate::scenarios::common::build::{child, esp_proposal, ike_proposal, ts};
use crate::scenarios::common::peer::{Peer, SPI, only_notify};
use crate::scenarios::common::responder::Responder;
use crate::scenarios::common::{Random, Weather, World};
use crate::scenarios::reload::sa_of;
use std::time::Duration;
use testudo_base::spi::Spi;
use testudo_ike::config::KeyExchange::{Ecp256, X25519};
use testudo_ike::config::{EspProposal, IkeProposal};
use testudo_ike::message::{
    Delete, ExchangeType, IkeSpi, Nonce, Notify, NotifySa, NotifyType, Payload, Protocol, SaSpi, TsPayload,
};
use testudo_ike::suite::{self, KePrivate, offer, select};
use testudo_ipsec::sa::EspAlgorithm;

const CREATE: ExchangeType = ExchangeType::CreateChildSa;
const MORE: Spi = Spi(0x5555_5555);

/// §2.8.1: the peer's new SA is in use by the time that our own wins. Ours takes over from that, or
/// nothing would go out when the peer deletes it.
#[test]
fn the_winner_takes_over_from_the_loser() {
    let mut world = sun();
    let mut peer = Peer::establish(&mut world, 37);
    assert!(renew(&mut world, 0, What::Child));
    let asked = world.hosts[0].sent.last().unwrap().clone();
    let theirs = Spi(0x2222_2222);
    let mut request = rekey_request(SPI, theirs);
    request[2] = Payload::Nonce(Nonce::new(vec![0; 32]).unwrap());
    peer.request(&mut world, CREATE, request).unwrap();
    let (now, rival) = (world.now, *world.hosts[0].installed.keys().next_back().unwrap());
    world.hosts[0].endpoint.traffic_seen(now, rival);
    world.settle(0);
    assert_eq!(world.hosts[0].sending, [rival].into());
    world.hosts[0].sent.push(asked);
    let (spi, _) = peer.answer_child(&mut world, 0, (Spi(0x3333_3333), [0xff; 32]));
    // And the loser cannot be renewed: the peer deletes it.
    let again = rekey_request(theirs, Spi(0x4444_4444));
    let answer = peer.request(&mut world, CREATE, again);
    assert_eq!(only_notify(answer), NotifyType::TemporaryFailure);
    let delete = vec![Payload::Delete(Delete::Esp(vec![theirs]))];
    peer.request(&mut world, ExchangeType::Informational, delete).unwrap();
    let [sending] = world.hosts[0].sending.iter().collect::<Vec<_>>()[..] else {
        panic!("one carries what goes out: {:#?}", world.hosts[0].log())
    };
    assert_eq!(world.hosts[0].installed[sending].spi_in, spi);
}

/// §2.8.1: the new SA that goes takes packets in until the peer knows that it goes: the peer may
/// have begun to send, by this one or by its own.
#[test]
fn the_loser_takes_packets_in_as_long_as_it_is_known() {
    for used in [false, true] {
        let mut world = sun();
        let mut peer = Peer::establish(&mut world, 38);
        assert!(renew(&mut world, 0, What::Child));
        let asked = world.hosts[0].sent.last().unwrap().clone();
        let mut request = rekey_request(SPI, Spi(0x2222_2222));
        request[2] = Payload::Nonce(Nonce::new(vec![0xff; 32]).unwrap());
        peer.request(&mut world, CREATE, request).unwrap();
        if used {
            let (now, rival) = (world.now, *world.hosts[0].installed.keys().next_back().unwrap());
            world.hosts[0].endpoint.traffic_seen(now, rival);
            world.settle(0);
        }
        world.hosts[0].sent.push(asked);
        let (spi, _) = peer.answer_child(&mut world, 0, (Spi(0x3333_3333), [0; 32]));
        assert!(world.hosts[0].logged("the peer has renewed it too"));
        let taken = |world: &World| world.hosts[0].installed.values().any(|params| params.spi_in == spi);
        assert!(taken(&world));
        assert_eq!(world.hosts[0].sending.len(), 1);
        peer.answer(&mut world, ExchangeType::Informational, 1);
        world.run(Duration::from_millis(4900));
        assert!(taken(&world));
        world.run_secs(1);
        assert!(!taken(&world));
        assert_eq!(world.hosts[0].in_use.lock().unwrap().len(), 2);
    }
}

fn ke() -> Payload {
    Payload::Ke(KePrivate::generate(X25519, &mut Random::new(3)).unwrap().payload())
}

/// Two key exchanges.
fn esp_in_series() -> EspProposal {
    let mut proposal = esp_proposal(EspAlgorithm::Aes128Gcm16);
    proposal.ke = vec![X25519];
    proposal.additional[0] = vec![Some(Ecp256)];
    proposal
}

/// A request of the peer for the child `more`.
fn more_request(rekeys: Option<Spi>, new: Spi, in_series: bool) -> Vec<Payload> {
    let about = rekeys.map(|spi| NotifySa { protocol: Protocol::Esp, spi: SaSpi::Child(spi) });
    let rekey = |sa| Payload::Notify(Notify { sa: Some(sa), ..Notify::new(NotifyType::RekeySa, vec![]) });
    let esp = if in_series { esp_in_series() } else { esp_proposal(EspAlgorithm::Aes128Gcm16) };
    let mut payloads: Vec<Payload> = about.map(rekey).into_iter().collect();
    payloads.push(Payload::Sa(offer::esp(&[esp], new, offer::ChildExchange::CreateChildSa)));
    payloads.push(Payload::Nonce(Nonce::new(vec![7; 32]).unwrap()));
    payloads.extend(in_series.then(ke));
    payloads.push(Payload::TsInitiator(TsPayload::new(vec![ts("10.60.0.0-10.60.0.255")])));
    payloads.push(Payload::TsResponder(TsPayload::new(vec![ts("10.50.0.0-10.50.0.255")])));
    payloads
}

/// The peer renews another child than we do. Both renewals count, whatever their nonces.
#[test]
fn the_renewal_of_another_child_is_no_rival() {
    for in_series in [false, true] {
        let mut world = World::pair_with(42, Weather::FAIR, |_, connection| {
            let mut more = child("more", "10.50.0.0-10.50.0.255", "10.60.0.0-10.60.0.255");
            more.proposals = vec![esp_in_series(), esp_proposal(EspAlgorithm::Aes128Gcm16)];
            connection.children.push(more);
        });
        world.hosts.remove(0);
        let mut peer = Peer::establish(&mut world, 42);
        peer.request(&mut world, CREATE, more_request(None, MORE, false)).unwrap();
        let (now, net) = (world.now, sa_of(&world, 0, "net").0);
        assert!(world.hosts[0].endpoint.rekey_child(now, net));
        world.settle(0);
        let asked = world.hosts[0].sent.last().unwrap().clone();
        let request = more_request(Some(MORE), Spi(0x6666_6666), in_series);
        let answer = peer.request(&mut world, CREATE, request).unwrap();
        assert!(answer.iter().any(|payload| matches!(payload, Payload::Sa(_))), "{answer:?}");
        world.hosts[0].sent.push(asked);
        let (spi, _) = peer.answer_child(&mut world, 0, (Spi(0x3333_3333), [0; 32]));
        assert_eq!(sa_of(&world, 0, "net").1.spi_in, spi, "{:#?}", world.hosts[0].log());
    }
}

/// The peer makes a second SA of a child without naming the first, sends through it, and deletes
/// it: the first sends again.
#[test]
fn a_displaced_sa_sends_again() {
    let mut world = sun();
    let mut peer = Peer::establish(&mut world, 43);
    let first = *world.hosts[0].sending.first().unwrap();
    let second = Spi(0x2222_2222);
    peer.request(&mut world, CREATE, further_request(second)).unwrap();
    let (now, new) = (world.now, *world.hosts[0].installed.keys().next_back().unwrap());
    world.hosts[0].endpoint.traffic_seen(now, new);
    world.settle(0);
    assert_eq!(world.hosts[0].sending, [new].into());
    let delete = vec![Payload::Delete(Delete::Esp(vec![second]))];
    peer.request(&mut world, ExchangeType::Informational, delete).unwrap();
    assert_eq!(world.hosts[0].sending, [first].into(), "{:#?}", world.hosts[0].log());
}

fn ike_request(proposals: &[IkeProposal], spi: u64) -> Vec<Payload> {
    let nonce = Nonce::new(vec![0; 32]).unwrap();
    vec![Payload::Sa(offer::ike(proposals, Some(IkeSpi(spi)))), Payload::Nonce(nonce), ke()]
}

/// §2.25.2: the peer renews the IKE SA that we are renewing, and asks for another.
#[test]
fn an_ike_sa_has_one_rival() {
    let mut world = sun();
    let mut peer = Peer::establish(&mut world, 44);
    assert!(renew(&mut world, 0, What::Ike));
    let proposals = [ike_proposal(&[X25519])];
    let answer = peer.request(&mut world, CREATE, ike_request(&proposals, 7)).unwrap();
    assert!(answer.iter().any(|payload| matches!(payload, Payload::Sa(_))), "{answer:?}");
    let answer = peer.request(&mut world, CREATE, ike_request(&proposals, 8));
    assert_eq!(only_notify(answer), NotifyType::TemporaryFailure);
}

/// RFC 9370 §2.2.4: both renew the IKE SA by a series. The loser's ends as soon as the nonces have
/// decided, and the loser cannot begin another.
#[test]
fn the_series_of_the_loser_ends_when_ours_begins() {
    let plain = ike_proposal(&[X25519]);
    let mut series = plain.clone();
    series.additional[0] = vec![Some(Ecp256)];
    let mut world = World::pair_with(45, Weather::FAIR, |_, connection| {
        connection.proposals = vec![series.clone(), plain.clone()];
    });
    world.hosts.remove(1);
    let mut sun = Responder::establish(&mut world);
    assert!(renew(&mut world, 0, What::Ike));
    let (_, asked) = sun.asked(&world);
    let request = ike_request(std::slice::from_ref(&series), 7);
    let answer = sun.request(&mut world, CREATE, 0, request).unwrap();
    let link = answer.last().unwrap().clone();
    assert!(matches!(&link, Payload::Notify(notify) if notify.kind == NotifyType::AdditionalKeyExchange));
    let mut payloads = Vec::new();
    for payload in &asked {
        match payload {
            Payload::Sa(offered) => {
                let choice = select::ike(offered, std::slice::from_ref(&series)).unwrap();
                payloads.push(Payload::Sa(choice.answer(Some(IkeSpi(9)))));
            }
            Payload::Nonce(_) => payloads.push(Payload::Nonce(Nonce::new(vec![0xff; 32]).unwrap())),
            Payload::Ke(ke) => {
                payloads.push(Payload::Ke(suite::respond(X25519, ke, &mut Random::new(5)).unwrap().0));
            }
            _ => {}
        }
    }
    payloads.push(Payload::Notify(Notify::new(NotifyType::AdditionalKeyExchange, vec![1; 16])));
    let said = sun.answer(&mut world, CREATE, 2, payloads);
    assert_eq!(said[0].0.exchange, ExchangeType::IkeFollowupKe, "{:#?}", world.hosts[0].log());
    let half = KePrivate::generate(Ecp256, &mut Random::new(4)).unwrap().payload();
    let more = vec![Payload::Ke(half), link];
    let answer = sun.request(&mut world, ExchangeType::IkeFollowupKe, 1, more);
    assert_eq!(only_notify(answer), NotifyType::StateNotFound);
    let answer = sun.request(&mut world, CREATE, 2, ike_request(&[plain], 8));
    assert_eq!(only_notify(answer), NotifyType::TemporaryFailure);
}
