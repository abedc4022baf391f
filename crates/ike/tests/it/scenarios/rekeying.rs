//! SAs are renewed before their lifetime ends, and no packet is lost (RFC 7296 §2.8).

use crate::scenarios::common::build::{child, esp_proposal, ts};
use crate::scenarios::common::tunnels::{
    assert_lossless, assert_one_tunnel, child_rekeys, ike_rekeys, run_lossless,
};
use crate::scenarios::common::wire::{assert_ivs_never_repeat, sent};
use crate::scenarios::common::{Weather, World};
use std::time::Duration;
use testudo_ike::config::{ChildLifetime, Connection, KeyExchange, Lifetime, StartAction, TsSpec};
use testudo_ike::endpoint::{ChildSaState, EndpointConfig, ExchangeCounter, Target};
use testudo_ike::message::ExchangeType;
use testudo_ike::output::{Event, Output, Path, Reason};
use testudo_ipsec::sa::EspAlgorithm;

/// Host `renewing` renews its children after `seconds`.
fn child_time(renewing: usize, seconds: u64) -> impl Fn(usize, &mut Connection) {
    move |index, connection| {
        if index == renewing {
            let time = Lifetime::new(seconds, None, None);
            connection.children[0].lifetime = ChildLifetime { time, ..ChildLifetime::default() };
        }
    }
}

#[test]
fn a_child_is_renewed_in_time_by_either_side() {
    for renewing in 0..2 {
        let mut world = World::established(1, child_time(renewing, 1000));
        let first = world.hosts[0].installed.values().next().unwrap().clone();
        let due = world.hosts[renewing].sas()[0].children[0].rekey.unwrap();
        run_lossless(&mut world, Duration::from_secs(9990));
        for host in &world.hosts {
            assert!((9..=11).contains(&child_rekeys(host)), "{}", child_rekeys(host));
            let lost =
                |event: &Event| matches!(event, Event::ChildDown(_, _, why) if *why != Reason::Rekeyed);
            assert!(!host.events.iter().any(lost));
            let counted = host.endpoint.stats().exchanges.total().get(ExchangeCounter::ChildRekey);
            assert_eq!(counted as usize, child_rekeys(host));
        }
        assert!(world.now > due);
        run_lossless(&mut world, Duration::from_secs(20));
        assert_one_tunnel(&world);
        let last = world.hosts[0].installed.values().next().unwrap();
        assert!(first.spi_in != last.spi_in && first.key_in != last.key_in);
        assert_eq!((&first.local_ts, &first.remote_ts), (&last.local_ts, &last.remote_ts));
        assert_ivs_never_repeat(&world);
    }
}

/// Not all at the same second: a gateway with a thousand tunnels has a life too.
#[test]
fn times_are_spread() {
    let mut dues = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let world = World::established(seed, child_time(0, 1000));
        let child = &world.hosts[0].sas()[0].children[0];
        let after = child.rekey.unwrap().since(child.installed);
        assert!((900..=1000).contains(&after.as_secs()), "{after:?}");
        assert_eq!(child.end.unwrap().since(child.installed), Duration::from_secs(1100));
        dues.insert(after);
    }
    assert!(dues.len() > 15);
}

/// The old one takes in what is under way for a while, on both sides, and is shown as what it is.
#[test]
fn the_old_one_lingers() {
    let mut world = World::established(2, |_, _| {});
    let (now, old) = (world.now, world.hosts[0].sas()[0].children[0].id);
    assert!(world.hosts[0].endpoint.rekey_child(now, old));
    world.settle(0);
    assert_eq!(world.hosts[0].sas()[0].children[0].state, ChildSaState::Rekeying);
    assert_eq!(world.hosts[0].sas()[0].tasks_active, ["CHILD_REKEY"]);
    run_lossless(&mut world, Duration::from_secs(4));
    for host in &world.hosts {
        let states: Vec<_> = host.sas()[0].children.iter().map(|child| child.state).collect();
        assert_eq!(states, [ChildSaState::Deleted, ChildSaState::Installed]);
        assert_eq!((host.installed.len(), host.sending.len()), (2, 1));
    }
    run_lossless(&mut world, Duration::from_secs(3));
    assert_one_tunnel(&world);
}

/// RFC 7296 §2.8: until the initiator of the exchange shows that it has the new SA, the responder
/// sends through the old.
#[test]
fn the_responder_waits_for_a_sign() {
    for by_traffic in [true, false] {
        let mut world = World::established(3, |_, _| {});
        let (now, old) = (world.now, world.hosts[0].sas()[0].children[0].id);
        world.hosts[0].endpoint.rekey_child(now, old);
        world.settle(0);
        world.run_until(|world| world.hosts[1].installed.len() == 2);
        let new = *world.hosts[1].installed.keys().next_back().unwrap();
        assert!(!world.hosts[1].sending.contains(&new), "not yet");
        if by_traffic {
            let now = world.now;
            world.hosts[1].endpoint.traffic_seen(now, new);
            world.settle(1);
            assert!(world.hosts[1].sending.contains(&new));
        }
        world.run_secs(1);
        assert!(world.hosts[1].sending.contains(&new), "the delete is a sign too");
        run_lossless(&mut world, Duration::from_secs(10));
        assert_one_tunnel(&world);
    }
}

fn with_ke(index: usize, connection: &mut Connection, methods: [&[KeyExchange]; 2]) {
    connection.children[0].proposals[0].ke = methods[index].to_vec();
}

#[test]
fn new_keys_may_come_from_a_key_exchange_of_their_own() {
    use KeyExchange::{Ecp256, X25519};
    for (methods, requests) in [
        ([&[X25519][..], &[X25519][..]], 1),
        ([&[Ecp256, X25519], &[X25519]], 2),
        ([&[X25519], &[Ecp256]], 1),
    ] {
        let mut world = World::established(4, |index, connection| with_ke(index, connection, methods));
        let (now, old) = (world.now, world.hosts[0].sas()[0].children[0].id);
        world.hosts[0].endpoint.rekey_child(now, old);
        world.settle(0);
        run_lossless(&mut world, Duration::from_secs(4));
        assert_eq!(sent(&world, 0, ExchangeType::CreateChildSa, false).len(), requests);
        let common = methods[1] == [X25519];
        assert_eq!(child_rekeys(&world.hosts[0]), usize::from(common), "{:#?}", world.hosts[1].log());
        run_lossless(&mut world, Duration::from_secs(3));
        assert_one_tunnel(&world);
    }
}

/// A rekeying that fails is tried again, and ends with the lifetime.
#[test]
fn an_sa_that_is_not_rekeyed_ends() {
    let mut world = World::established(5, |index, connection| {
        let time = Lifetime { rekey: 100, life: 140, rand: 10 };
        connection.children[0].lifetime.time = if index == 0 { time } else { Lifetime::default() };
        with_ke(index, connection, [&[KeyExchange::X25519], &[KeyExchange::Ecp256]]);
    });
    run_lossless(&mut world, Duration::from_secs(135));
    assert!(sent(&world, 0, ExchangeType::CreateChildSa, false).len() >= 2, "{:#?}", world.hosts[0].log());
    assert!(world.hosts[0].logged("no new keys for CHILD_SA net{1}: the peer answered NO_PROPOSAL_CHOSEN"));
    world.run_secs(10);
    assert!(world.hosts.iter().all(|host| host.installed.is_empty()));
    let downs: Vec<_> = world.hosts[0].events.iter().filter(|e| matches!(e, Event::ChildDown(..))).collect();
    assert!(matches!(downs[..], [Event::ChildDown(_, _, Reason::Expired)]), "{downs:?}");
}

#[test]
fn a_child_is_renewed_and_ended_by_what_it_carries() {
    for packets in [true, false] {
        let volume = Lifetime { rekey: 1000, life: 1100, rand: 100 };
        let mut world = World::established(6, |_, connection| {
            let lifetime = &mut connection.children[0].lifetime;
            *if packets { &mut lifetime.packets } else { &mut lifetime.bytes } = volume;
        });
        let used = |world: &mut World, amount| {
            let (now, id) = (world.now, world.hosts[0].sas()[0].children.last().unwrap().id);
            let (bytes, number) = if packets { (0, amount) } else { (amount, 0) };
            world.hosts[0].endpoint.child_used(now, id, bytes, number);
            world.settle(0);
            run_lossless(world, Duration::from_secs(1));
        };
        used(&mut world, 899);
        assert_eq!(child_rekeys(&world.hosts[0]), 0);
        used(&mut world, 1000);
        assert_eq!(child_rekeys(&world.hosts[0]), 1);
        // The limits of the new one are another matter; above its limit it is deleted at once, and
        // needs a replacement.
        let (now, id) = (world.now, world.hosts[0].sas()[0].children.last().unwrap().id);
        let (bytes, number) = if packets { (0, 1100) } else { (1100, 0) };
        assert_eq!(world.hosts[0].endpoint.next_limit(id, bytes, number), (u64::MAX, u64::MAX));
        world.hosts[0].endpoint.child_used(now, id, bytes, number);
        world.settle(0);
        assert!(!world.hosts[0].installed.contains_key(&id));
        world.run_secs(10);
        assert_eq!(child_rekeys(&world.hosts[0]), 2);
        assert_one_tunnel(&world);
    }
}

/// Faster than the exchange: the renewal is under way, its answer lost, when the volume is over.
/// The successor counts.
#[test]
fn a_volume_that_ends_before_the_answer_costs_no_tunnel() {
    for (lost, host) in [(true, 0), (false, 0), (true, 1)] {
        let volume = Lifetime { rekey: 1000, life: 1100, rand: 0 };
        let mut world =
            World::established(20, |_, connection| connection.children[0].lifetime.bytes = volume);
        let id = world.hosts[host].sas()[0].children[0].id;
        assert_eq!(world.hosts[host].endpoint.next_limit(id, 0, 0), (1000, u64::MAX));
        let used = |world: &mut World, bytes| {
            let now = world.now;
            world.hosts[host].endpoint.child_used(now, id, bytes, 0);
            world.settle(host);
        };
        if lost {
            used(&mut world, 1000);
            world.run_until(|world| world.hosts[1 - host].installed.len() == 2);
            // The answer is on its way, and does not arrive.
            while world.network.arrive(world.now.plus(Duration::from_secs(1))).is_some() {}
        }
        used(&mut world, 1100);
        assert_eq!(world.hosts[host].installed.len(), 0, "nothing is carried beyond the end");
        world.run_secs(30);
        assert_one_tunnel(&world);
        assert_eq!(child_rekeys(&world.hosts[host]), 1);
    }
}

/// A renewal that is refused when the volume is over: the child is made from scratch.
#[test]
fn an_sa_that_could_not_be_rekeyed_is_replaced() {
    let volume = Lifetime { rekey: 0, life: 1100, rand: 0 };
    let mut world = World::established(21, |index, connection| {
        connection.children[0].lifetime.bytes = volume;
        with_ke(index, connection, [&[KeyExchange::X25519], &[KeyExchange::Ecp256]]);
    });
    let (now, id) = (world.now, world.hosts[0].sas()[0].children[0].id);
    world.hosts[0].endpoint.child_used(now, id, 1100, 0);
    world.settle(0);
    world.run_until(|world| world.hosts[0].logged("no new keys for CHILD_SA"));
    let now = world.now;
    let mut common = world.hosts[1].endpoint.connections().next().unwrap().clone();
    common.children[0].proposals[0].ke = vec![KeyExchange::X25519];
    world.hosts[1].load(now, common);
    world.run_secs(10);
    assert_one_tunnel(&world);
    let downs: Vec<_> = world.hosts[0].events.iter().filter(|e| matches!(e, Event::ChildDown(..))).collect();
    assert!(matches!(downs[..], [Event::ChildDown(_, _, Reason::Expired)]), "{downs:?}");
}

/// The peer is busy for longer than a lost child is asked for: it is asked for again later, where
/// it is to be up.
#[test]
fn a_peer_that_is_busy_for_long_costs_no_tunnel_that_is_wanted() {
    for wanted in [true, false] {
        let config = EndpointConfig {
            creation_burst: 1,
            creation_pace: Duration::from_secs(300),
            ..EndpointConfig::default()
        };
        let addrs = ["192.0.2.1", "192.0.2.2"];
        let mut world = World::pair_of(addrs, 25, Weather::FAIR, config, |_, connection| {
            let child = &mut connection.children[0];
            child.lifetime.bytes = Lifetime { rekey: 1000, life: 1100, rand: 0 };
            if wanted {
                child.dpd_action = StartAction::Start;
            }
        });
        world.initiate(0);
        world.run_secs(1);
        let used = |world: &mut World, bytes| {
            let (now, id) = (world.now, world.hosts[0].sas()[0].children[0].id);
            world.hosts[0].endpoint.child_used(now, id, bytes, 0);
            world.settle(0);
            world.run_secs(10);
        };
        (0..2).for_each(|_| used(&mut world, 1000));
        assert_eq!(child_rekeys(&world.hosts[0]), 2);
        used(&mut world, 1100);
        world.run_secs(150);
        assert!(world.hosts[0].installed.is_empty());
        assert!(world.hosts[0].logged("establishing CHILD_SA net of site failed"));
        assert!(world.hosts[0].logged("CHILD_SA net is tried again"), "not given up at once");
        world.run_secs(300);
        assert_eq!(world.hosts[0].installed.len(), usize::from(wanted), "{:#?}", world.hosts[0].log());
        if wanted {
            assert_one_tunnel(&world);
        }
    }
}

/// RFC 7296 §2.8: what has expired is not used, also while the peer does not answer.
#[test]
fn an_expired_sa_carries_nothing() {
    let mut world = World::established(22, |index, connection| {
        let time = Lifetime { rekey: 100, life: 140, rand: 10 };
        connection.children[0].lifetime.time = if index == 0 { time } else { Lifetime::default() };
        with_ke(index, connection, [&[KeyExchange::X25519], &[KeyExchange::Ecp256]]);
    });
    run_lossless(&mut world, Duration::from_secs(138));
    assert_eq!(world.hosts[0].sending.len(), 1);
    world.network.up = false;
    world.run_secs(2);
    assert!(world.hosts[0].installed.is_empty() && world.hosts[0].sending.is_empty());
    assert!(world.hosts[0].endpoint.next_timeout() > Some(world.now));
    // Also where an operator wanted it gone, and the peer has not answered.
    let mut world = World::established(23, |_, connection| {
        connection.children[0].lifetime.time = Lifetime { rekey: 0, life: 100, rand: 0 };
    });
    world.network.up = false;
    let (now, id) = (world.now, world.hosts[0].sas()[0].children[0].id);
    world.hosts[0].endpoint.terminate(now, &Target::Child(id), false).unwrap();
    world.settle(0);
    world.run_secs(98);
    assert_eq!(world.hosts[0].installed.len(), 1);
    world.run_secs(2);
    assert!(world.hosts[0].installed.is_empty());
}

/// RFC 7296 §2.8: the initiator may send through the new SA as soon as it has the answer, so the
/// responder's data plane has the SA before the answer leaves; in IKE_AUTH and in CREATE_CHILD_SA.
#[test]
fn the_responder_installs_before_it_answers() {
    for exchange in [ExchangeType::IkeAuth, ExchangeType::CreateChildSa] {
        let mut world = World::pair_with(26, Weather::FAIR, |_, _| {});
        world.initiate(0);
        if exchange == ExchangeType::CreateChildSa {
            world.run_secs(1);
            let (now, id) = (world.now, world.hosts[0].sas()[0].children[0].id);
            assert!(world.hosts[0].endpoint.rekey_child(now, id));
            world.settle(0);
        }
        world.run_until(|world| !sent(world, 0, exchange, false).is_empty());
        world.now = world.now.plus(Duration::from_secs(1));
        let request = world.network.arrive(world.now).unwrap();
        let path = Path { local: request.to, remote: request.from };
        let responder = &mut world.hosts[1].endpoint;
        responder.handle_datagram(world.now, path, &request.bytes);
        let outputs: Vec<Output> = std::iter::from_fn(|| responder.poll_output()).collect();
        let place = |wanted: fn(&Output) -> bool| outputs.iter().position(wanted).unwrap();
        let installed = place(|output| matches!(output, Output::InstallChild { .. }));
        let answered = place(|output| matches!(output, Output::Send { .. }));
        assert!(installed < answered, "{outputs:?}");
    }
}

/// RFC 7296 §2.9.2: also where the configuration would allow more, or less than the peer would.
#[test]
fn a_renewed_child_carries_what_the_old_one_did() {
    for renewing in 0..2 {
        let mut world = World::established(27, |_, connection| {
            let wide = TsSpec::Fixed(ts("10.0.0.0-10.255.255.255"));
            let net = &mut connection.children[0];
            net.remote_ts = vec![wide];
        });
        let before = world.hosts[0].installed.values().next().unwrap().clone();
        let (now, id) = (world.now, world.hosts[renewing].sas()[0].children[0].id);
        assert!(world.hosts[renewing].endpoint.rekey_child(now, id));
        world.settle(renewing);
        run_lossless(&mut world, Duration::from_secs(10));
        assert_one_tunnel(&world);
        let after = world.hosts[0].installed.values().next().unwrap();
        assert_ne!(after.spi_in, before.spi_in);
        assert_eq!((&after.local_ts, &after.remote_ts), (&before.local_ts, &before.remote_ts));
    }
}

#[test]
fn a_further_child_shares_the_ike_sa() {
    let nets = ["10.50.0.0-10.50.0.255", "10.60.0.0-10.60.0.255"];
    for side in 0..2 {
        let mut world = World::established(7, |index, connection| {
            connection.children.push(child("more", nets[index], nets[1 - index]));
        });
        let now = world.now;
        let ike = world.hosts[side].endpoint.initiate(now, None, "more").unwrap();
        assert_eq!(ike, world.hosts[side].sas()[0].id);
        assert_eq!(world.hosts[side].endpoint.initiate(now, None, "more"), Ok(ike), "it is on its way");
        world.settle(side);
        world.run_secs(1);
        assert!(world.hosts[side].results().last().unwrap().is_ok());
        for host in &world.hosts {
            let names: Vec<_> = host.sas()[0].children.iter().map(|child| child.name.clone()).collect();
            assert_eq!(names, ["net", "more"]);
            assert_eq!((host.sas().len(), host.sending.len()), (1, 2));
        }
        assert_lossless(&world);
    }
}

#[test]
fn a_further_child_that_is_refused_leaves_everything_as_it_is() {
    let mut world = World::established(8, |index, connection| {
        if index == 0 {
            connection.children.push(child("more", "10.50.0.0-10.50.0.255", "10.60.0.0-10.60.0.255"));
        }
    });
    let now = world.now;
    world.hosts[0].endpoint.initiate(now, None, "more").unwrap();
    world.settle(0);
    run_lossless(&mut world, Duration::from_secs(1));
    let failure = world.hosts[0].results().pop().unwrap().unwrap_err().to_string();
    assert!(failure.contains("TS_UNACCEPTABLE"), "{failure}");
    assert_one_tunnel(&world);
}

/// A peer that makes no further child on an IKE SA is asked for another IKE SA.
#[test]
fn a_child_that_has_no_room_gets_an_ike_sa_of_its_own() {
    let nets = ["10.50.0.0-10.50.0.255", "10.60.0.0-10.60.0.255"];
    let config = testudo_ike::endpoint::EndpointConfig { child_limit: 1, ..Default::default() };
    let mut world =
        World::pair_of(["192.0.2.1", "192.0.2.2"], 9, Weather::FAIR, config, |index, connection| {
            connection.children.push(child("more", nets[index], nets[1 - index]));
        });
    let first = world.initiate(0);
    world.run_secs(1);
    let now = world.now;
    assert_eq!(world.hosts[0].endpoint.initiate(now, None, "more"), Ok(first));
    world.settle(0);
    world.run_secs(1);
    let second = world.hosts[0].sas()[1].id;
    let moved = Event::InitiateMoved { from: first, to: second, child: "more".into() };
    assert!(world.hosts[0].events.contains(&moved));
    assert!(world.hosts[0].results().last().unwrap().is_ok());
    assert!(world.hosts.iter().all(|host| host.sas().len() == 2 && host.sending.len() == 2));
}

/// A node that takes over in the middle continues.
#[test]
fn a_takeover_in_the_middle_of_it() {
    for ike in [false, true] {
        for moment in 0..40 {
            let mut world = World::established(13, |_, _| {});
            let (now, sa) = (world.now, world.hosts[0].sas()[0].clone());
            if ike {
                world.hosts[0].endpoint.rekey_ike(now, sa.id);
            } else {
                world.hosts[0].endpoint.rekey_child(now, sa.children[0].id);
            }
            world.settle(0);
            run_lossless(&mut world, Duration::from_millis(moment));
            let now = world.now;
            world.hosts.iter_mut().for_each(|host| host.take_over(now));
            run_lossless(&mut world, Duration::from_secs(10));
            assert_one_tunnel(&world);
            assert_eq!(
                (ike_rekeys(&world.hosts[0]), child_rekeys(&world.hosts[0])),
                if ike { (1, 0) } else { (0, 1) }
            );
        }
    }
}

#[test]
fn an_aead_with_a_longer_key_keeps_its_size() {
    let mut world = World::established(14, |_, connection| {
        connection.children[0].proposals = vec![esp_proposal(EspAlgorithm::Aes256Gcm16)];
    });
    let (now, id) = (world.now, world.hosts[1].sas()[0].children[0].id);
    world.hosts[1].endpoint.rekey_child(now, id);
    world.settle(1);
    run_lossless(&mut world, Duration::from_secs(10));
    assert_one_tunnel(&world);
    assert_eq!(world.hosts[0].installed.values().next().unwrap().key_in.0.len(), 36);
}
