//! Messages in fragments (RFC 7383): both ways, in all weathers, and with what a peer may make of
//! them.

use crate::scenarios::common::peer::{Peer, exchange, message};
use crate::scenarios::common::wire::{assert_ivs_never_repeat, sent};
use crate::scenarios::common::{Random, Weather, World};
use std::time::Duration;
use testudo_ike::config::{Connection, Fragmentation, IkeEncryption, Integrity};
use testudo_ike::endpoint::{Discard, EndpointConfig};
use testudo_ike::message::{ExchangeType, Notify, NotifyType, Payload, VendorId};

/// Small enough to cut every IKE_AUTH.
const SMALL: usize = 180;
/// Without IPv4, UDP and the non-ESP marker.
const LIMIT: usize = SMALL - 32;

fn pair(seed: u64, weather: Weather, edit: impl Fn(usize, &mut Connection)) -> World {
    let config = EndpointConfig { fragment_size: SMALL, ..EndpointConfig::default() };
    World::pair_of(["192.0.2.1", "192.0.2.2"], seed, weather, config, edit)
}

/// How many datagrams a host sent in IKE_AUTH.
fn auth_datagrams(world: &World, host: usize) -> usize {
    sent(world, host, ExchangeType::IkeAuth, host == 1).len()
}

#[test]
fn every_cipher_makes_fragments_that_fit() {
    for encryption in IkeEncryption::ALL {
        let mut world = pair(1, Weather::FAIR, |_, connection| {
            let proposal = &mut connection.proposals[0];
            proposal.encryption = vec![encryption];
            if !encryption.is_aead() {
                proposal.integrity = vec![Integrity::HmacSha384];
            }
        });
        world.establish();
        for host in [0, 1] {
            assert!(auth_datagrams(&world, host) >= 2, "{encryption:?}, host {host}");
            let auth = sent(&world, host, ExchangeType::IkeAuth, host == 1);
            assert!(auth.iter().all(|bytes| bytes.len() <= LIMIT), "{encryption:?}, host {host}");
            let (last, full) = auth.split_last().unwrap();
            assert!(full.iter().all(|bytes| bytes.len() > LIMIT - 16), "{encryption:?}, host {host}");
            assert!(last.len() > 60, "{encryption:?}, host {host}");
        }
    }
}

#[test]
fn messages_that_fit_are_not_fragmented() {
    let world = World::established(1, |_, _| {});
    assert_eq!((auth_datagrams(&world, 0), auth_datagrams(&world, 1)), (1, 1));
}

#[test]
fn fragmentation_needs_the_configuration_of_both_sides() {
    use Fragmentation::{Accept, No, Yes};
    for (moon, sun, cut_by_moon, cut_by_sun) in [
        (Yes, Yes, true, true),
        (Yes, Accept, true, false),
        (Accept, Yes, false, true),
        (Accept, Accept, false, false),
        (Yes, No, false, false),
        (No, Yes, false, false),
    ] {
        let mut world = pair(1, Weather::FAIR, |index, connection| {
            connection.fragmentation = [moon, sun][index];
        });
        world.establish();
        let cut = [0, 1].map(|host| auth_datagrams(&world, host) > 1);
        assert_eq!(cut, [cut_by_moon, cut_by_sun], "{moon:?} and {sun:?}");
    }
}

#[test]
fn in_foul_weather_the_tunnel_comes_up_in_the_end() {
    for seed in 0..100 {
        let mut world = pair(seed, Weather::FOUL, |_, connection| connection.keyingtries = 0);
        world.initiate(0);
        world.run_secs(300);
        world.network.weather = Weather::FAIR;
        world.run_secs(100);
        world.initiate(0);
        world.run_secs(30);
        assert!(!world.hosts[0].installed.is_empty(), "seed {seed}: {:#?}", world.hosts[0].log());
        assert_ivs_never_repeat(&world);
    }
}

/// A repetition is octet for octet the same, fragment by fragment.
#[test]
fn a_lost_fragment_is_repeated_with_the_others() {
    let mut world = pair(5, Weather::FAIR, |_, _| {});
    world.initiate(0);
    let first = |world: &World| auth_datagrams(world, 0) > 0;
    world.run_until(first);
    let count = auth_datagrams(&world, 0);
    // All but the first arrive.
    let flying = world.network.arrive(world.now.plus(Duration::from_secs(1))).expect("the first fragment");
    assert_eq!(flying.bytes, *sent(&world, 0, ExchangeType::IkeAuth, false)[0]);
    world.run_secs(1);
    assert!(world.hosts[1].installed.is_empty());
    world.run_secs(4);
    world.assert_tunnel();
    let all = sent(&world, 0, ExchangeType::IkeAuth, false);
    assert_eq!(all.len(), 2 * count);
    assert_eq!(all[..count], all[count..]);
}

#[test]
fn another_node_goes_on_between_any_two_fragments() {
    let begin = |seed| {
        let mut world = pair(seed, Weather::FAIR, |_, _| {});
        world.initiate(0);
        world
    };
    World::taken_over_at_each(24, begin, World::assert_tunnel);
}

/// Sun, and a moon that has agreed on fragments.
fn hostile(seed: u64) -> (World, Peer) {
    let mut world = World::pair(seed, Weather::FAIR);
    world.hosts.swap(0, 1);
    let supported = Payload::Notify(Notify::new(NotifyType::FragmentationSupported, vec![]));
    let peer = Peer::init(&mut world, seed, vec![supported]);
    (world, peer)
}

fn fragments(peer: &mut Peer, payloads: Vec<Payload>, limit: usize) -> Vec<Vec<u8>> {
    let header = peer.header(ExchangeType::IkeAuth, false, peer.next);
    peer.sealer.seal_fragments(&message(header, payloads), limit, &mut Random::new(1)).unwrap()
}

fn auth_fragments(peer: &mut Peer, limit: usize) -> Vec<Vec<u8>> {
    let payloads = peer.auth_payloads();
    fragments(peer, payloads, limit)
}

fn discarded(world: &World, reason: Discard) -> u64 {
    world.hosts[0].endpoint.stats().discarded(reason)
}

#[test]
fn fragments_come_in_any_order_and_more_than_once() {
    let (mut world, mut peer) = hostile(1);
    let fragments = auth_fragments(&mut peer, 110);
    assert!(fragments.len() > 2);
    let (last, others) = fragments.split_first().unwrap();
    for fragment in others.iter().rev().chain(others) {
        assert!(exchange(&mut world, peer.path, fragment).is_empty());
    }
    assert_eq!(discarded(&world, Discard::Fragment), others.len() as u64);
    assert_eq!(exchange(&mut world, peer.path, last).len(), 1);
    assert_eq!(world.hosts[0].installed.len(), 1);
}

/// RFC 7383 §2.6.1.
#[test]
fn only_a_repeated_first_fragment_repeats_the_answer() {
    let (mut world, mut peer) = hostile(2);
    let fragments = auth_fragments(&mut peer, 110);
    let smaller = auth_fragments(&mut peer, 90);
    let answers: Vec<_> = fragments.iter().flat_map(|f| exchange(&mut world, peer.path, f)).collect();
    let [answer] = &answers[..] else { panic!("one answer: {answers:?}") };
    for set in [&fragments, &smaller] {
        for (index, fragment) in set.iter().enumerate() {
            let again = exchange(&mut world, peer.path, fragment);
            assert_eq!(again, if index == 0 { vec![answer.clone()] } else { vec![] }, "fragment {index}");
        }
    }
    // A forged one gets nothing.
    let mut forged = smaller[0].clone();
    *forged.last_mut().unwrap() ^= 1;
    assert!(exchange(&mut world, peer.path, &forged).is_empty());
    assert_eq!(discarded(&world, Discard::Integrity), 1);
}

/// RFC 7383 §2.5.2: a peer that found its fragments too large cuts again.
#[test]
fn a_smaller_set_replaces_a_larger_one_and_not_the_other_way() {
    let (mut world, mut peer) = hostile(3);
    let large = auth_fragments(&mut peer, 125);
    let small = auth_fragments(&mut peer, 90);
    assert!(small.len() > large.len() && large.len() > 2);
    assert!(exchange(&mut world, peer.path, &large[0]).is_empty());
    for fragment in &small[..small.len() - 1] {
        assert!(exchange(&mut world, peer.path, fragment).is_empty());
    }
    for fragment in &large[1..] {
        assert!(exchange(&mut world, peer.path, fragment).is_empty(), "of the set that was given up");
    }
    assert_eq!(discarded(&world, Discard::Fragment), large.len() as u64 - 1);
    assert_eq!(exchange(&mut world, peer.path, &small[small.len() - 1]).len(), 1);
    assert_eq!(world.hosts[0].installed.len(), 1);
}

#[test]
fn forged_fragments_do_no_harm() {
    let (mut world, mut peer) = hostile(4);
    let fragments = auth_fragments(&mut peer, 110);
    let (last, others) = fragments.split_last().unwrap();
    for fragment in others {
        // With another place, with a place that is none, and damaged.
        for (at, value) in [(33, 9), (35, 0), (33, 0), (40, fragment[40] ^ 1)] {
            let mut forged = fragment.clone();
            forged[at] = value;
            assert!(exchange(&mut world, peer.path, &forged).is_empty());
        }
        assert!(exchange(&mut world, peer.path, fragment).is_empty());
    }
    assert!(discarded(&world, Discard::Integrity) > 0 && discarded(&world, Discard::Malformed) > 0);
    assert_eq!(exchange(&mut world, peer.path, last).len(), 1);
}

#[test]
fn fragments_that_nobody_agreed_on_are_ignored() {
    let mut world = World::pair(6, Weather::FAIR);
    world.hosts.swap(0, 1);
    let mut peer = Peer::init(&mut world, 6, vec![]);
    for fragment in auth_fragments(&mut peer, 110) {
        assert!(exchange(&mut world, peer.path, &fragment).is_empty());
    }
    assert!(discarded(&world, Discard::Fragment) > 2);
    assert!(world.hosts[0].installed.is_empty());
}

#[test]
fn a_message_has_a_bounded_number_of_fragments_and_octets() {
    let (mut world, mut peer) = hostile(7);
    let large = |octets: usize| vec![Payload::VendorId(VendorId(vec![7; octets]))];
    let many = fragments(&mut peer, large(64 * 70), 128);
    assert!(many.len() > 64);
    for fragment in &many {
        assert!(exchange(&mut world, peer.path, fragment).is_empty());
    }
    assert_eq!(discarded(&world, Discard::Fragment), many.len() as u64);
    let state = |world: &World| {
        let id = world.hosts[0].endpoint.states().next().unwrap().0;
        world.hosts[0].endpoint.export_sa(world.now, id).unwrap().len()
    };
    let empty = state(&world);
    let long = fragments(&mut peer, large(40_000), 2000);
    for fragment in &long {
        assert!(exchange(&mut world, peer.path, fragment).is_empty());
        assert!(state(&world) < empty + 17 * 1024);
    }
    assert!(discarded(&world, Discard::Fragment) > many.len() as u64);
}

#[test]
fn fragments_without_the_others_are_forgotten() {
    let config = EndpointConfig {
        fragment_timeout: Duration::from_secs(10),
        half_open_timeout: Duration::from_secs(100),
        ..EndpointConfig::default()
    };
    let mut world = World::pair_of(["192.0.2.1", "192.0.2.2"], 8, Weather::FAIR, config, |_, _| {});
    world.hosts.swap(0, 1);
    let supported = Payload::Notify(Notify::new(NotifyType::FragmentationSupported, vec![]));
    let mut peer = Peer::init(&mut world, 8, vec![supported]);
    let fragments = auth_fragments(&mut peer, 110);
    let (first, others) = fragments.split_first().unwrap();
    assert!(exchange(&mut world, peer.path, first).is_empty());
    world.run_secs(9);
    assert_eq!(discarded(&world, Discard::FragmentsExpired), 0);
    world.run_secs(2);
    assert_eq!(discarded(&world, Discard::FragmentsExpired), 1);
    for fragment in others {
        assert!(exchange(&mut world, peer.path, fragment).is_empty(), "the first is gone");
    }
    assert_eq!(exchange(&mut world, peer.path, first).len(), 1);
    assert_eq!(world.hosts[0].installed.len(), 1);
}
