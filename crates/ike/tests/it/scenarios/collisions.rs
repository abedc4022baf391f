//! Both sides renew or delete at once (RFC 7296 §2.8.1, §2.8.2, §2.25).

use crate::scenarios::answers::sun;
use crate::scenarios::common::build::{esp_proposal, ts};
use crate::scenarios::common::peer::{Peer, SPI, only_notify};
use crate::scenarios::common::tunnels::{
    assert_lossless, assert_one_tunnel, child_rekeys, ike_rekeys, run_lossless,
};
use crate::scenarios::common::wire::{assert_ivs_never_repeat, sent};
use crate::scenarios::common::{Weather, World};
use crate::scenarios::reload::reload;
use std::time::Duration;
use testudo_base::spi::Spi;
use testudo_ike::config::{KeyExchange, StartAction};
use testudo_ike::endpoint::{EndpointConfig, RetransmitPolicy, Target};
use testudo_ike::message::{
    ExchangeType, KePayload, Nonce, Notify, NotifySa, NotifyType, Payload, Protocol, SaSpi, TsPayload,
};
use testudo_ike::suite::offer;
use testudo_ipsec::sa::EspAlgorithm;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum What {
    Child,
    Ike,
}

pub(crate) fn renew(world: &mut World, host: usize, what: What) -> bool {
    let now = world.now;
    let Some(sa) = world.hosts[host].sas().pop() else { return false };
    let begun = match what {
        What::Ike => world.hosts[host].endpoint.rekey_ike(now, sa.id),
        What::Child => match sa.children.last() {
            Some(child) => world.hosts[host].endpoint.rekey_child(now, child.id),
            None => false,
        },
    };
    world.settle(host);
    begun
}

/// §2.8.1: the exchange with the lowest nonce was for nothing. Both sides agree on which that is.
#[test]
fn both_renew_the_child_at_once() {
    let mut won = [0, 0];
    for seed in 0..60 {
        let mut world = World::established(seed, |_, _| {});
        assert!(renew(&mut world, 0, What::Child) && renew(&mut world, 1, What::Child));
        run_lossless(&mut world, Duration::from_secs(1));
        assert_lossless(&world);
        run_lossless(&mut world, Duration::from_secs(10));
        assert_one_tunnel(&world);
        // Both answered, and each deleted one SA: the loser its own new one, the winner the old
        // one.
        for (host, won) in won.iter_mut().enumerate() {
            assert_eq!(sent(&world, host, ExchangeType::CreateChildSa, true).len(), 1);
            assert_eq!(sent(&world, host, ExchangeType::Informational, false).len(), 1);
            let lost = world.hosts[host].logged("the peer has renewed it too");
            *won += usize::from(!lost);
        }
        // Each has one by the other's request, and the winner its own: the loser's is no renewal.
        assert_eq!(world.hosts.iter().map(child_rekeys).sum::<usize>(), 3);
    }
    assert_eq!(won[0] + won[1], 60, "there is one winner each time");
    assert!(won[0] > 10 && won[1] > 10, "and not always the same: {won:?}");
}

/// §2.8.2.
#[test]
fn both_renew_the_ike_sa_at_once() {
    for seed in 0..60 {
        let mut world = World::established(seed, |_, _| {});
        assert!(renew(&mut world, 0, What::Ike) && renew(&mut world, 1, What::Ike));
        run_lossless(&mut world, Duration::from_secs(60));
        assert_one_tunnel(&world);
        for host in &world.hosts {
            assert_eq!(ike_rekeys(host), 1, "the children moved once: {:#?}", host.log());
            assert_eq!(host.endpoint.states().count(), 1);
        }
    }
}

/// Both renew the IKE SA at once, both answers are lost, and what is repeated comes in any order:
/// the winner's delete of the old IKE SA may come before its answer. Then the loser has forgotten
/// its request (§2.25.2), and only the winner has what came of it.
#[test]
fn an_sa_unknown_to_the_losing_side_is_deleted() {
    let mut redundant = 0;
    for seed in 0..60 {
        let mut world = World::established(seed, |_, _| {});
        assert!(renew(&mut world, 0, What::Ike) && renew(&mut world, 1, What::Ike));
        world.network.up = false;
        run_lossless(&mut world, Duration::from_secs(1));
        world.network.up = true;
        world.network.weather = Weather { jitter: Duration::from_secs(3), ..Weather::FAIR };
        // Requests are repeated after four seconds; what follows takes no more than five messages.
        run_lossless(&mut world, Duration::from_secs(20));
        let sas = |world: &World, host: usize| world.hosts[host].sas().len();
        redundant += usize::from(sas(&world, 0) + sas(&world, 1) > 2);
        run_lossless(&mut world, EndpointConfig::default().delete_timeout + Duration::from_secs(10));
        assert_one_tunnel(&world);
    }
    assert!(redundant > 0, "it has come to that");
}

/// §2.25.1 and §2.25.2: the second side gets TEMPORARY_FAILURE, and tries again.
#[test]
fn one_renews_the_child_and_the_other_the_ike_sa() {
    for seed in 0..20 {
        let mut world = World::established(seed, |_, _| {});
        renew(&mut world, 0, What::Child);
        renew(&mut world, 1, What::Ike);
        run_lossless(&mut world, Duration::from_secs(60));
        assert_one_tunnel(&world);
        for host in &world.hosts {
            assert_eq!((ike_rekeys(host), child_rekeys(host)), (1, 1), "{:#?}", host.log());
        }
    }
}

/// §2.25.1: a delete of what is being renewed goes through; the request to renew it comes too late.
#[test]
fn one_deletes_the_child_while_the_other_renews_it() {
    for seed in 0..20 {
        let mut world = World::established(seed, |_, _| {});
        let child = world.hosts[1].sas()[0].children[0].id;
        renew(&mut world, 0, What::Child);
        let now = world.now;
        world.hosts[1].endpoint.terminate(now, &Target::Child(child), false).unwrap();
        world.settle(1);
        world.run_secs(60);
        for host in &world.hosts {
            assert!(host.installed.is_empty(), "{:#?}", host.log());
            assert!(host.in_use.lock().unwrap().is_empty());
        }
    }
}

/// §2.25.2: a delete of the IKE SA that we are renewing ends it.
#[test]
fn one_deletes_the_ike_sa_while_the_other_renews_it() {
    for host in 0..2 {
        let mut world = World::established(21, |_, _| {});
        renew(&mut world, host, What::Ike);
        let now = world.now;
        world.hosts[1 - host].endpoint.terminate(now, &Target::All, false).unwrap();
        world.settle(1 - host);
        world.run_secs(300);
        world.assert_nothing_left();
    }
}

/// A network that loses, doubles and reorders, and two sides that renew whatever they like at any
/// time. What one side sends, the other takes, after every event; and in the end there is one
/// tunnel.
fn storm(seed: u64) {
    let weather = Weather {
        delay: Duration::from_millis(1),
        jitter: Duration::from_millis(3000),
        loss: 20,
        duplication: 20,
    };
    let retransmit = RetransmitPolicy { tries: 20, limit: Duration::from_secs(10), ..Default::default() };
    let config =
        EndpointConfig { retransmit, delete_timeout: Duration::from_secs(300), ..Default::default() };
    let mut world = World::pair_of(["192.0.2.1", "192.0.2.2"], seed, Weather::FAIR, config, |_, _| {});
    world.initiate(0);
    world.run_secs(1);
    world.network.weather = weather;
    for _ in 0..12 {
        let choice = world.network.random.below(6);
        let what = if choice.is_multiple_of(3) { What::Ike } else { What::Child };
        match choice {
            0 | 1 => _ = renew(&mut world, 0, what),
            2 | 3 => _ = renew(&mut world, 1, what),
            _ => {
                renew(&mut world, 0, what);
                renew(&mut world, 1, what);
            }
        }
        let pause = world.network.random.below(8000);
        run_lossless(&mut world, Duration::from_millis(pause));
    }
    world.network.weather = Weather::FAIR;
    run_lossless(&mut world, Duration::from_secs(400));
    assert_one_tunnel(&world);
    assert!(child_rekeys(&world.hosts[0]) + ike_rekeys(&world.hosts[0]) >= 2, "seed {seed}");
    assert_ivs_never_repeat(&world);
}

#[test]
fn both_renew_whatever_they_like_in_foul_weather() {
    for seed in 0..150 {
        storm(seed);
    }
}

pub(crate) fn rekey_request(spi: Spi, new: Spi) -> Vec<Payload> {
    let about = NotifySa { protocol: Protocol::Esp, spi: SaSpi::Child(spi) };
    let notify = Notify { sa: Some(about), ..Notify::new(NotifyType::RekeySa, Vec::new()) };
    let esp = esp_proposal(EspAlgorithm::Aes128Gcm16);
    let range = |range: &str| TsPayload::new(vec![ts(range)]);
    vec![
        Payload::Notify(notify),
        Payload::Sa(offer::esp(&[esp], new, offer::ChildExchange::CreateChildSa)),
        Payload::Nonce(Nonce::new(vec![7; 32]).unwrap()),
        Payload::TsInitiator(range("10.109.0.0-10.109.255.255")),
        Payload::TsResponder(range("10.115.0.0-10.115.255.255")),
    ]
}

pub(crate) fn further_request(spi: Spi) -> Vec<Payload> {
    rekey_request(spi, spi).split_off(1)
}

/// §2.25.1: what does not exist cannot be renewed, and the answer names it.
#[test]
fn an_unknown_child_is_not_found() {
    let mut world = sun();
    let mut peer = Peer::establish(&mut world, 31);
    let request = rekey_request(Spi(0x0bad_0bad), Spi(0x2222_2222));
    let answer = peer.request(&mut world, ExchangeType::CreateChildSa, request).unwrap();
    let [Payload::Notify(notify)] = &answer[..] else { panic!("{answer:?}") };
    assert_eq!(notify.kind, NotifyType::ChildSaNotFound);
    let about = NotifySa { protocol: Protocol::Esp, spi: SaSpi::Child(Spi(0x0bad_0bad)) };
    assert_eq!(notify.sa, Some(about));
    assert_eq!(world.hosts[0].installed.len(), 1);
}

/// §2.25: what the peer has made by an answer that we have not heard exists for the peer. It tries
/// again later, when we know it.
#[test]
fn a_child_whose_answer_is_lost_is_not_unknown() {
    let mut world = sun();
    let mut peer = Peer::establish(&mut world, 39);
    assert!(renew(&mut world, 0, What::Child));
    let asked = world.hosts[0].sent.last().unwrap().clone();
    let theirs = Spi(0x3333_3333);
    let request = rekey_request(theirs, Spi(0x4444_4444));
    let answer = peer.request(&mut world, ExchangeType::CreateChildSa, request.clone());
    assert_eq!(only_notify(answer), NotifyType::TemporaryFailure);
    world.hosts[0].sent.push(asked);
    peer.answer_child(&mut world, 0, (theirs, [0xff; 32]));
    let answer = peer.request(&mut world, ExchangeType::CreateChildSa, request).unwrap();
    assert!(answer.iter().any(|payload| matches!(payload, Payload::Sa(_))), "{answer:?}");
}

/// §2.8: both sides delete what was replaced, each by itself; what is under way through it comes in
/// all the same.
#[test]
fn an_sa_deleted_by_both_sides_lingers() {
    let mut world = World::established(36, |_, _| {});
    let [ours, theirs] = [0, 1].map(|host| world.hosts[host].sas()[0].children[0].id);
    assert!(renew(&mut world, 0, What::Child));
    world.run_until(|world| world.hosts[0].installed.len() == 2);
    let now = world.now;
    world.hosts[1].endpoint.terminate(now, &Target::Child(theirs), false).unwrap();
    world.settle(1);
    world.run(Duration::from_millis(4900));
    assert_eq!(sent(&world, 0, ExchangeType::Informational, false).len(), 1);
    assert_eq!(sent(&world, 1, ExchangeType::Informational, false).len(), 1);
    assert!(world.hosts[0].installed.contains_key(&ours));
    run_lossless(&mut world, Duration::from_secs(1));
    assert_one_tunnel(&world);
}

/// Terminating a tunnel while both sides rekey its IKE SA also terminates the results.
#[test]
fn a_termination_amid_both_renewals_ends_everything() {
    for (seed, steps) in (0..8).flat_map(|seed| (0..10).map(move |steps| (seed, steps))) {
        for all in [true, false] {
            let mut world = World::established(seed, |_, _| {});
            let old = world.hosts[0].sas()[0].id;
            assert!(renew(&mut world, 0, What::Ike) && renew(&mut world, 1, What::Ike));
            let end = world.now.plus(Duration::from_secs(1));
            (0..steps).for_each(|_| _ = world.step(end));
            let target = if all || ike_rekeys(&world.hosts[0]) > 0 { Target::All } else { Target::Ike(old) };
            let now = world.now;
            world.hosts[0].endpoint.terminate(now, &target, false).unwrap();
            world.settle(0);
            world.run_secs(300);
            world.assert_nothing_left();
        }
    }
}

/// And it ends in the time that a delete is given, also where the peer says nothing more.
#[test]
fn a_termination_amid_both_renewals_ends_in_time() {
    for (seed, steps) in (0..8).flat_map(|seed| (0..10).map(move |steps| (seed, steps))) {
        for force in [true, false] {
            let mut world = World::established(seed, |_, _| {});
            let old = world.hosts[0].sas()[0].id;
            assert!(renew(&mut world, 0, What::Ike) && renew(&mut world, 1, What::Ike));
            let end = world.now.plus(Duration::from_secs(1));
            (0..steps).for_each(|_| _ = world.step(end));
            if ike_rekeys(&world.hosts[0]) > 0 {
                break;
            }
            let now = world.now;
            world.hosts[0].endpoint.terminate(now, &Target::Ike(old), force).unwrap();
            world.settle(0);
            world.hosts[1].stopped = true;
            // The old one has its time, and then what the peer has made of it.
            world.run_secs(2 * EndpointConfig::default().delete_timeout.as_secs() + 1);
            let host = &world.hosts[0];
            assert!(host.sas().is_empty() && host.installed.is_empty(), "{seed} {steps} {:#?}", host.log());
        }
    }
}

/// The peer never answers our request to renew the IKE SA, but has renewed it itself: that one
/// carries on.
#[test]
fn a_rival_outlives_an_old_ike_sa_that_is_given_up() {
    let mut world = World::established(39, |_, _| {});
    assert!(renew(&mut world, 0, What::Ike) && renew(&mut world, 1, What::Ike));
    world.run_until(|world| world.hosts[0].sas().len() == 2);
    world.hosts[1].stopped = true;
    while world.network.arrive(world.now.plus(Duration::from_secs(1))).is_some() {}
    world.run_secs(400);
    let sas = world.hosts[0].sas();
    assert_eq!((sas.len(), sas[0].children.len()), (1, 1), "{:#?}", world.hosts[0].log());
    assert_eq!(world.hosts[0].sending.len(), 1);
    let now = world.now;
    world.hosts[0].endpoint.terminate(now, &Target::All, true).unwrap();
    world.settle(0);
    world.run_secs(60);
    assert_eq!(world.hosts[0].endpoint.states().count(), 0);
}

/// §3.3.6: what is chosen has no key exchange, so that the KE payload beside it means nothing.
#[test]
fn a_key_exchange_that_is_not_chosen_is_left_out() {
    let mut world = sun();
    let mut peer = Peer::establish(&mut world, 41);
    let mut request = rekey_request(SPI, Spi(0x2222_2222));
    request.insert(3, Payload::Ke(KePayload { method: KeyExchange::X25519.into(), data: vec![9; 32] }));
    let answer = peer.request(&mut world, ExchangeType::CreateChildSa, request).unwrap();
    assert!(answer.iter().any(|payload| matches!(payload, Payload::Sa(_))), "{answer:?}");
    assert!(!answer.iter().any(|payload| matches!(payload, Payload::Ke(_))), "{answer:?}");
    assert_eq!(world.hosts[0].installed.len(), 2);
}

/// §2.25.1: while we are at deleting it, it is not renewed either.
#[test]
fn a_child_on_its_way_out_is_a_temporary_failure() {
    let mut world = sun();
    let mut peer = Peer::establish(&mut world, 32);
    let child = world.hosts[0].sas()[0].children[0].id;
    let now = world.now;
    world.hosts[0].endpoint.terminate(now, &Target::Child(child), false).unwrap();
    world.settle(0);
    let answer = peer.request(&mut world, ExchangeType::CreateChildSa, rekey_request(SPI, Spi(0x2222_2222)));
    assert_eq!(only_notify(answer), NotifyType::TemporaryFailure);
}

/// A renewed child that the peer deletes instead of the old one: the old one serves on, and can be
/// renewed again.
#[test]
fn a_successor_that_the_peer_takes_back_changes_nothing() {
    let mut world = sun();
    reload(&mut world, 0, |_, connection| connection.children[0].close_action = StartAction::Start);
    let mut peer = Peer::establish(&mut world, 33);
    let old = *world.hosts[0].sending.first().unwrap();
    for round in 0..3 {
        let new = Spi(0x2222_2222 + round);
        let answer = peer.request(&mut world, ExchangeType::CreateChildSa, rekey_request(SPI, new)).unwrap();
        assert!(answer.iter().any(|payload| matches!(payload, Payload::Sa(_))), "{answer:?}");
        let again =
            peer.request(&mut world, ExchangeType::CreateChildSa, rekey_request(SPI, Spi(0x3333_3333)));
        assert_eq!(only_notify(again), NotifyType::TemporaryFailure, "it has a successor");
        let delete = vec![Payload::Delete(testudo_ike::message::Delete::Esp(vec![new]))];
        peer.request(&mut world, ExchangeType::Informational, delete).unwrap();
        assert_eq!(world.hosts[0].sending.iter().collect::<Vec<_>>(), [&old]);
        assert_eq!(world.hosts[0].installed.len(), 1);
        // Nothing is lost, so nothing is started again.
        assert_eq!(world.hosts[0].endpoint.children("site")[0].failure, None);
        assert!(!world.hosts[0].logged("restarting"), "{:#?}", world.hosts[0].log());
    }
}

/// A request without what makes keys new is refused, and everything stays.
#[test]
fn a_request_without_a_nonce_is_refused() {
    let mut world = sun();
    let mut peer = Peer::establish(&mut world, 34);
    let mut request = rekey_request(SPI, Spi(0x2222_2222));
    request.remove(2);
    for _ in 0..3 {
        let answer = peer.request(&mut world, ExchangeType::CreateChildSa, request.clone());
        assert_eq!(only_notify(answer), NotifyType::InvalidSyntax);
    }
    assert_eq!(world.hosts[0].installed.len(), 1);
    assert_eq!(world.hosts[0].in_use.lock().unwrap().len(), 1);
}

/// §2.25.2: nothing is made on an IKE SA that ends, or that we renew.
#[test]
fn a_child_of_an_ike_sa_on_its_way_out_is_a_temporary_failure() {
    for renews in [false, true] {
        let mut world = sun();
        let mut peer = Peer::establish(&mut world, 36);
        let now = world.now;
        if renews {
            assert!(renew(&mut world, 0, What::Ike));
        } else {
            world.hosts[0].endpoint.terminate(now, &Target::All, false).unwrap();
            world.settle(0);
        }
        for request in [rekey_request(SPI, Spi(0x2222_2222)), further_request(Spi(0x2222_2222))] {
            let answer = peer.request(&mut world, ExchangeType::CreateChildSa, request);
            assert_eq!(only_notify(answer), NotifyType::TemporaryFailure, "{renews}");
        }
        assert_eq!(world.hosts[0].installed.len(), 1);
    }
}

/// However many children a peer asks for, there is an end.
#[test]
fn children_are_limited() {
    let mut world = sun();
    let mut peer = Peer::establish(&mut world, 35);
    let request = further_request(SPI);
    let limit = EndpointConfig::default().child_limit;
    for number in 1..limit + 3 {
        let answer = peer.request(&mut world, ExchangeType::CreateChildSa, request.clone()).unwrap();
        let made = answer.iter().any(|payload| matches!(payload, Payload::Sa(_)));
        assert_eq!(made, number < limit, "{number}: {answer:?}");
    }
    assert_eq!(world.hosts[0].installed.len(), limit);
    // A replacement does not count as a further one. And this does not continue endlessly.
    world.run_secs(10);
    let mut spi = 0x4000_0000;
    let mut renewed = SPI;
    for number in limit..2 * limit + 3 {
        spi += 1;
        let answer = peer.request(&mut world, ExchangeType::CreateChildSa, rekey_request(renewed, Spi(spi)));
        let answer = answer.unwrap();
        let made = answer.iter().any(|payload| matches!(payload, Payload::Sa(_)));
        assert_eq!(made, number < 2 * limit, "{number}: {answer:?}");
        if !made {
            assert_eq!(only_notify(Some(answer)), NotifyType::TemporaryFailure);
        }
        renewed = Spi(spi);
    }
}
