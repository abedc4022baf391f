//! Requests come again, whether lost, doubled or replayed: the same octets get the same octets.

use crate::scenarios::answers::sun;
use crate::scenarios::common::peer::{self, Peer};
use crate::scenarios::common::wire::{assert_ivs_never_repeat, sent};
use crate::scenarios::common::{Random, Weather, World};
use std::time::Duration;
use testudo_ike::endpoint::Discard;
use testudo_ike::message::{ExchangeType, Header, Notify, NotifyType, Payload};
use testudo_ike::output::Path;

#[test]
fn a_repeated_ike_sa_init_gets_the_same_answer_from_the_same_half_open_sa() {
    let mut world = World::pair(1, Weather::FAIR);
    world.initiate(0);
    let request = world.hosts[0].sent[0].1.clone();
    world.hosts[0].stopped = true;
    for _ in 0..10 {
        world.forge("192.0.2.1:500", "192.0.2.2:500", &request);
    }
    world.run_secs(1);
    assert_eq!(world.hosts[1].endpoint.states().count(), 1);
    let answers = sent(&world, 1, ExchangeType::IkeSaInit, true);
    assert_eq!(answers.len(), 11);
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    assert_eq!(world.hosts[1].endpoint.stats().responses_repeated, 10);
    // The same from another port is somebody else behind the same NAT (RFC 7296 §2.1).
    world.forge("192.0.2.1:501", "192.0.2.2:500", &request);
    world.run_secs(1);
    assert_eq!(world.hosts[1].endpoint.states().count(), 2);
}

#[test]
fn the_same_spi_with_another_nonce_is_another_ike_sa() {
    let mut world = sun();
    let first = Peer::init(&mut world, 1, vec![]);
    let mut random = crate::scenarios::common::Random::new(99);
    let (payloads, _, _) = peer::init_payloads(&mut random);
    let header = Header {
        responder_spi: testudo_ike::message::IkeSpi::ZERO,
        ..first.header(ExchangeType::IkeSaInit, false, 0)
    };
    let request = peer::message(header, payloads).finish().unwrap();
    let answers = peer::exchange(&mut world, first.path, &request);
    let spi = Header::parse(&answers[0]).unwrap().responder_spi;
    assert_ne!(spi, first.spis.responder);
    assert_eq!(world.hosts[0].endpoint.half_open(), 2);
}

#[test]
fn a_replayed_ike_sa_init_does_not_disturb_what_came_of_it() {
    let mut world = World::pair(2, Weather::FAIR);
    world.initiate(0);
    world.run_secs(1);
    let request = sent(&world, 0, ExchangeType::IkeSaInit, false)[0].clone();
    let answered = world.hosts[1].sent.len();
    for _ in 0..10 {
        world.forge("192.0.2.1:500", "192.0.2.2:500", &request);
        world.run_secs(1);
    }
    assert_eq!(world.hosts[1].endpoint.states().count(), 1);
    assert_eq!(world.hosts[1].sent.len(), answered);
    assert_eq!(world.hosts[1].endpoint.stats().discarded(Discard::MessageId), 10);
    world.assert_tunnel();
}

#[test]
fn a_repeated_ike_auth_gets_the_same_octets_and_installs_nothing() {
    let mut world = sun();
    let mut peer = Peer::establish(&mut world, 2);
    let answer = world.hosts[0].sent.last().unwrap().1.clone();
    let installed = world.hosts[0].installed.clone();
    for _ in 0..10 {
        assert_eq!(peer::exchange(&mut world, peer.path, &peer.last), [answer.as_slice()]);
    }
    assert_eq!(world.hosts[0].installed, installed);
    // After the next request it is forgotten (RFC 7296 §2.1).
    let auth = peer.last.clone();
    peer.request(&mut world, ExchangeType::Informational, vec![]).unwrap();
    assert!(peer::exchange(&mut world, peer.path, &auth).is_empty());
    assert_ivs_never_repeat(&world);
}

#[test]
fn the_same_message_id_with_other_octets_is_no_repetition() {
    let mut world = sun();
    let mut peer = Peer::establish(&mut world, 3);
    peer.request(&mut world, ExchangeType::Informational, vec![]).unwrap();
    peer.next -= 1;
    assert_eq!(peer.request(&mut world, ExchangeType::Informational, vec![]), None);
}

#[test]
fn a_replay_is_not_answered_to_a_victims_address() {
    let mut world = sun();
    let peer = Peer::establish(&mut world, 4);
    let forged = Path { local: "203.0.113.5:500".parse().unwrap(), ..peer.path };
    assert!(peer::exchange(&mut world, forged, &peer.last).is_empty());
    // The peer itself may send from another port.
    let moved = Path { local: "192.0.2.1:4500".parse().unwrap(), ..peer.path };
    assert_eq!(peer::exchange(&mut world, moved, &peer.last).len(), 1);
    assert_eq!(world.hosts[0].sent.last().unwrap().0, Path { local: moved.remote, remote: moved.local });
    assert_eq!(world.hosts[0].sas()[0].remote, peer.path.local, "and is not followed for it");
}

/// How often `request` of a peer that seems to be behind a NAT is answered if it comes again a
/// hundred times.
fn repeated_from(world: &mut World, peer: &Peer, from: &str, request: &[u8]) -> usize {
    let path = Path { local: from.parse().unwrap(), ..peer.path };
    (0..100).map(|_| peer::exchange(world, path, request).len()).sum()
}

/// A peer that claims to be behind a NAT may have any address. The answer to its IKE_AUTH may be
/// much larger than the first fragment that repeats it: no third party may be flooded with it.
#[test]
fn a_peer_behind_a_nat_cannot_have_answers_repeated_without_end() {
    let mut world = sun();
    let elsewhere = Payload::Notify(Notify::new(NotifyType::NatDetectionSourceIp, vec![0; 20]));
    let other = Payload::Notify(Notify::new(NotifyType::NatDetectionDestinationIp, vec![0; 20]));
    let fragments = peer::status(NotifyType::FragmentationSupported);
    let mut peer = Peer::init(&mut world, 4, vec![elsewhere, other, fragments]);
    let request = peer::message(peer.header(ExchangeType::IkeAuth, false, 1), peer.auth_payloads());
    let pieces = peer.sealer.seal_fragments(&request, 110, &mut Random::new(1)).unwrap();
    for piece in &pieces {
        peer::exchange(&mut world, peer.path, piece);
    }
    assert!(world.hosts[0].sas()[0].nat.remote && world.hosts[0].installed.len() == 1);
    assert_eq!(repeated_from(&mut world, &peer, "203.0.113.5:500", &pieces[0]), 3);
    assert_eq!(repeated_from(&mut world, &peer, "203.0.113.6:500", &pieces[0]), 0, "all others count as one");
    // The peer still gets its answer, also from another port of its NAT.
    assert_eq!(repeated_from(&mut world, &peer, "192.0.2.1:4500", &pieces[0]), 13);
    world.run_secs(25);
    assert_eq!(repeated_from(&mut world, &peer, "192.0.2.1:500", &pieces[0]), 2, "one in ten seconds");
    assert!(world.hosts[0].logged("that was repeated too often"));
}

#[test]
fn retransmissions_are_the_same_octets_also_after_a_restore() {
    let mut world = World::pair_with(3, Weather::FAIR, |index, connection| {
        if index == 0 {
            connection.dpd_delay = Duration::from_secs(5);
        }
    });
    world.initiate(0);
    world.run_secs(1);
    world.hosts[1].stopped = true;
    world.run_secs(100);
    let requests = sent(&world, 0, ExchangeType::Informational, false);
    assert!(requests.len() >= 5);
    assert!(requests.iter().all(|request| *request == requests[0]));
    assert_ivs_never_repeat(&world);
}

#[test]
fn our_own_messages_coming_back_change_nothing() {
    let mut world = World::pair(4, Weather::FAIR);
    world.initiate(0);
    world.run_secs(1);
    let states: Vec<_> = world.hosts[0].endpoint.states().collect();
    let ours: Vec<Vec<u8>> = world.hosts[0].sent.iter().map(|(_, bytes)| bytes.clone()).collect();
    for bytes in ours.iter().skip(1) {
        world.forge("192.0.2.2:500", "192.0.2.1:500", bytes);
    }
    world.run_secs(1);
    assert_eq!(world.hosts[0].endpoint.states().collect::<Vec<_>>(), states);
    assert_eq!(world.hosts[0].endpoint.stats().discarded(Discard::UnknownSpi), 1);
    world.assert_tunnel();
}

/// After a takeover behind routers, the response may go to the node that is gone.
#[test]
fn where_losses_are_expected_the_first_repetition_comes_soon() {
    for (expected, first) in [(false, 4000), (true, 500)] {
        let mut world = World::established(31, |_, _| {});
        let (now, id) = (world.now, world.hosts[0].sas()[0].children[0].id);
        if expected {
            world.hosts[0].endpoint.expect_losses(now.plus(Duration::from_secs(1)));
        }
        world.network.up = false;
        assert!(world.hosts[0].endpoint.rekey_child(now, id));
        world.settle(0);
        let requests = |world: &World| sent(world, 0, ExchangeType::CreateChildSa, false).len();
        world.run(Duration::from_millis(first - 100));
        assert_eq!(requests(&world), 1, "{expected}");
        world.run(Duration::from_millis(200));
        assert_eq!(requests(&world), 2, "{expected}");
        // From then on it has the usual patience.
        world.run(Duration::from_millis(7000));
        assert_eq!(requests(&world), 2, "{expected}");
        world.run(Duration::from_millis(300));
        assert_eq!(requests(&world), 3, "{expected}");
    }
}
