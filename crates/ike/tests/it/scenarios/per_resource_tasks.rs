//! Making a Child SA for each worker (RFC 9611): when one is requested, how often, and what else
//! may happen meanwhile.

use crate::scenarios::collisions::rekey_request;
use crate::scenarios::common::World;
use crate::scenarios::common::build::{child, esp_proposal};
use crate::scenarios::common::network::Weather;
use crate::scenarios::common::peer::{Peer, SPI, only_notify, status};
use crate::scenarios::common::responder::Responder;
use crate::scenarios::common::tunnels::assert_lossless;
use crate::scenarios::per_resource::{
    assert_tunnels, bound, established, hosts, like_strongswan, resource_info, with_peer, workers,
};
use crate::scenarios::reload::{both_ciphers, other_cipher, reload};
use testudo_base::spi::Spi;
use testudo_ike::endpoint::EndpointConfig;
use testudo_ike::message::{ExchangeType, MessageId, NotifyType, Payload};
use testudo_ike::output::ChildSaId;
use testudo_ike::suite::offer;
use testudo_ipsec::sa::{ChildSaParams, EspAlgorithm};

const NETS: [&str; 2] = ["10.50.0.0-10.50.0.255", "10.60.0.0-10.60.0.255"];

/// Its fallback SA comes by CREATE_CHILD_SA. Both sides have to agree all the same.
#[test]
fn a_further_child_has_one_for_each_worker_too() {
    for without in [None, Some(0), Some(1)] {
        let mut world = established([2, 2], |index, connection| {
            connection.children[0].per_cpu_sas = false;
            let mut more = child("more", NETS[index], NETS[1 - index]);
            more.per_cpu_sas = without != Some(index);
            connection.children.push(more);
        });
        let now = world.now;
        world.hosts[0].endpoint.initiate(now, None, "more").unwrap();
        world.settle(0);
        world.run_secs(200);
        assert_lossless(&world);
        let is_agreed = without.is_none();
        for host in 0..2 {
            assert_eq!(bound(&world, host), if is_agreed { vec![0, 1] } else { vec![] }, "{without:?}");
            let children = &world.hosts[host].sas()[0].children;
            assert_eq!(children.len(), if is_agreed { 4 } else { 2 });
            assert!(children.iter().all(|child| child.per_cpu == (is_agreed && child.name == "more")));
        }
        assert!(world.hosts[0].results().iter().all(Result::is_ok));
    }
}

/// The worker does without it then.
#[test]
fn a_peer_that_stays_busy_is_asked_five_times() {
    let mut world = hosts(1, Weather::FAIR, [workers(2), workers(2)], |_, _| {});
    world.hosts.remove(1);
    let mut sun = Responder::answer_init(&mut world);
    let mut payloads = sun.auth_payloads();
    payloads.push(status(NotifyType::SaResourceInfo));
    sun.answer(&mut world, ExchangeType::IkeAuth, 1, payloads);
    for id in 2..=6 {
        world.run_until(|world| sun.asked(world).0.message_id == MessageId(id));
        let (header, asked) = sun.asked(&world);
        assert_eq!(header.exchange, ExchangeType::CreateChildSa);
        assert!(resource_info(&asked).is_some_and(|identifier| !identifier.is_empty()), "{asked:?}");
        let busy = vec![status(NotifyType::TemporaryFailure)];
        assert!(sun.answer(&mut world, ExchangeType::CreateChildSa, id, busy).is_empty());
    }
    let sent = world.hosts[0].sent.len();
    world.run_secs(1000);
    assert_eq!(world.hosts[0].sent.len(), sent, "{:#?}", world.hosts[0].log());
    assert!(world.hosts[0].results().iter().all(Result::is_ok));
    assert_eq!((world.hosts[0].sending.len(), world.hosts[0].in_use.lock().unwrap().len()), (1, 1));
}

fn create(world: &mut World, peer: &mut Peer, request: Vec<Payload>) -> ChildSaId {
    let answer = peer.request(world, ExchangeType::CreateChildSa, request).unwrap();
    assert!(answer.iter().any(|payload| matches!(payload, Payload::Sa(_))), "{answer:?}");
    *world.hosts[0].installed.keys().next_back().unwrap()
}

/// What is no lack of room is not said to be one: the peer may ask again.
#[test]
fn a_host_that_is_busy_says_so_to_a_request_for_a_worker() {
    let (mut world, mut peer) = with_peer(EndpointConfig { child_limit: 2, ..workers(2) }, |_, _| {});
    // Renewals faster than deletions.
    for spi in SPI.0..SPI.0 + 3 {
        create(&mut world, &mut peer, rekey_request(Spi(spi), Spi(spi + 1)));
    }
    let answer = peer.request(&mut world, ExchangeType::CreateChildSa, like_strongswan(0x3000_0000, Some(0)));
    assert_eq!(only_notify(answer), NotifyType::TemporaryFailure);
}

/// The first renewal has carried nothing yet when the second comes.
#[test]
fn one_that_is_renewed_twice_sends_by_the_newest() {
    let (mut world, mut peer) = with_peer(workers(2), |_, _| {});
    let first = create(&mut world, &mut peer, like_strongswan(0x3000_0000, Some(0)));
    create(&mut world, &mut peer, rekey_request(Spi(0x3000_0000), Spi(0x3000_0001)));
    let newest = create(&mut world, &mut peer, rekey_request(Spi(0x3000_0001), Spi(0x3000_0002)));
    let sends = |world: &World, child| world.hosts[0].sending.contains(&child);
    assert!(sends(&world, first) && !sends(&world, newest));
    let now = world.now;
    world.hosts[0].endpoint.traffic_seen(now, newest);
    world.settle(0);
    assert!(!sends(&world, first) && sends(&world, newest), "{:#?}", world.hosts[0].log());
    assert_eq!(world.hosts[0].bound.get(&newest), Some(&0));
}

/// A replacement for the fallback SA is not taken for an SA of a worker, which would have to be like
/// the old one; and each worker gets its own beside the new one.
#[test]
fn other_algorithms_give_all_of_them_anew() {
    for (side, both) in [(0, false), (1, false), (0, true), (1, true)] {
        for made in [1, 2, 5] {
            let mut world = hosts(1, Weather::FAIR, [workers(4), workers(4)], |index, connection| {
                if index != side && !both {
                    both_ciphers(index, connection);
                }
            });
            world.initiate(0);
            world.run_until(|world| world.hosts[0].installed.len() == made);
            reload(&mut world, side, other_cipher);
            if both {
                reload(&mut world, 1 - side, other_cipher);
            }
            world.run_secs(600);
            assert_lossless(&world);
            for host in &world.hosts {
                assert_eq!(host.sas().len(), 1);
                let is_new = |params: &ChildSaParams| params.algorithm == EspAlgorithm::Aes256Gcm16;
                assert!(host.installed.values().all(is_new), "{side} {both} {made}: {:#?}", host.log());
            }
            assert_tunnels(&world, 5);
            assert_eq!((bound(&world, 0), bound(&world, 1)), (vec![0, 1, 2, 3], vec![0, 1, 2, 3]));
        }
    }
}

/// A peer whose configuration has changed may make the SA for all on another IKE SA; one for a
/// resource, with algorithms that nobody has, is still no more than that.
#[test]
fn no_room_for_another_fallback_sa_is_no_refusal_of_a_resource() {
    let (mut world, mut peer) =
        with_peer(EndpointConfig { child_limit: 1, ..workers(2) }, |_, connection| {
            connection.children[0].proposals.push(esp_proposal(EspAlgorithm::Aes256Gcm16));
        });
    for (identifier, algorithm, refusal) in [
        (None, EspAlgorithm::Aes256Gcm16, NotifyType::NoAdditionalSas),
        (Some(0), EspAlgorithm::Aes256Gcm16, NotifyType::TsMaxQueue),
        (Some(0), EspAlgorithm::ChaCha20Poly1305, NotifyType::TsMaxQueue),
        (None, EspAlgorithm::Aes128Gcm16, NotifyType::TsMaxQueue),
    ] {
        let mut request = like_strongswan(0x3000_0000, identifier);
        let offered = esp_proposal(algorithm);
        request[0] =
            Payload::Sa(offer::esp(&[offered], Spi(0x3000_0000), offer::ChildExchange::CreateChildSa));
        let answer = peer.request(&mut world, ExchangeType::CreateChildSa, request);
        assert_eq!(only_notify(answer), refusal, "{identifier:?} {algorithm:?}");
    }
}
