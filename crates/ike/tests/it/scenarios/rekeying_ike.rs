//! IKE SAs are renewed before their lifetime ends, and the Child SAs move (RFC 7296 §2.8).

use crate::scenarios::common::World;
use crate::scenarios::common::tunnels::{assert_one_tunnel, child_rekeys, ike_rekeys, run_lossless};
use crate::scenarios::common::wire::assert_ivs_never_repeat;
use std::time::Duration;
use testudo_ike::config::{IkeLifetime, KeyExchange};
use testudo_ike::endpoint::{ExchangeCounter, IkeSaState, Target};
use testudo_ike::output::{Event, Reason};

#[test]
fn the_ike_sa_is_renewed_in_time_by_either_side() {
    for renewing in 0..2 {
        let mut world = World::established(10, |index, connection| {
            if index == renewing {
                connection.lifetime = IkeLifetime::new(1000, None, None);
            }
            connection.dpd_delay = Duration::from_secs(30);
        });
        let before = world.hosts[0].installed.clone();
        let spis = world.hosts[0].sas()[0].spi_i;
        run_lossless(&mut world, Duration::from_secs(5000));
        for host in &world.hosts {
            assert!((4..=6).contains(&ike_rekeys(host)), "{}", ike_rekeys(host));
            assert_eq!(host.events.iter().filter(|e| matches!(e, Event::IkeUp(_))).count(), 1);
        }
        run_lossless(&mut world, Duration::from_secs(200));
        assert_one_tunnel(&world);
        assert_eq!(world.hosts[0].installed, before, "the child stays as it is");
        assert_ne!(world.hosts[0].sas()[0].spi_i, spis);
        let stats = |host: usize, counter| world.hosts[host].endpoint.stats().exchanges.total().get(counter);
        assert_eq!(stats(renewing, ExchangeCounter::IkeRekeyInit) as usize, ike_rekeys(&world.hosts[0]));
        assert_eq!(stats(1 - renewing, ExchangeCounter::IkeRekeyResp) as usize, ike_rekeys(&world.hosts[0]));
        // The keys of the new one are good: a child gets new keys by them, from the other side.
        let (now, id) = (world.now, world.hosts[1 - renewing].sas()[0].children[0].id);
        assert!(world.hosts[1 - renewing].endpoint.rekey_child(now, id));
        world.settle(1 - renewing);
        run_lossless(&mut world, Duration::from_secs(10));
        assert_eq!(child_rekeys(&world.hosts[0]), 1);
        assert_one_tunnel(&world);
        assert_ivs_never_repeat(&world);
    }
}

#[test]
fn an_ike_sa_that_is_not_renewed_ends() {
    let mut world = World::established(11, |index, connection| {
        if index == 0 {
            connection.lifetime = IkeLifetime::new(100, None, None);
        }
    });
    // The responder takes no new ones on that connection any more.
    world.hosts[1].endpoint.unload_connection("site");
    run_lossless(&mut world, Duration::from_secs(98));
    assert!(world.hosts[0].logged("no new keys for IKE_SA site[1]: the peer answered NO_PROPOSAL_CHOSEN"));
    world.run_secs(15);
    let downs: Vec<_> = world.hosts[0].events.iter().filter(|e| matches!(e, Event::IkeDown(..))).collect();
    assert!(matches!(downs[..], [Event::IkeDown(_, Reason::Expired)]), "{downs:?}");
    world.run_secs(60);
    world.assert_nothing_left();
}

/// An operator loads other proposals, or none, while the answer is on its way: the peer has moved
/// the Child SAs by then.
#[test]
fn a_renewed_ike_sa_is_judged_by_what_was_offered() {
    for unloaded in [true, false] {
        let mut world = World::established(24, |_, _| {});
        let (now, old) = (world.now, world.hosts[0].sas()[0].id);
        assert!(world.hosts[0].endpoint.rekey_ike(now, old));
        world.settle(0);
        let mut other = world.hosts[0].endpoint.connections().next().unwrap().clone();
        if unloaded {
            world.hosts[0].endpoint.unload_connection("site");
        } else {
            other.proposals[0].ke = vec![KeyExchange::Ecp256];
            world.hosts[0].load(now, other);
        }
        run_lossless(&mut world, Duration::from_secs(600));
        assert_one_tunnel(&world);
        assert_eq!(ike_rekeys(&world.hosts[0]), 1);
    }
}

#[test]
fn an_ike_sa_that_is_renewed_shows_it() {
    let mut world = World::established(12, |_, _| {});
    let (now, old) = (world.now, world.hosts[0].sas()[0].id);
    assert!(world.hosts[0].endpoint.rekey_ike(now, old));
    world.settle(0);
    assert_eq!(world.hosts[0].sas()[0].state, IkeSaState::Rekeying);
    assert_eq!(world.hosts[0].sas()[0].tasks_active, ["IKE_REKEY"]);
    world.run_until(|world| world.hosts[1].sas().len() == 2);
    assert_eq!(world.hosts[1].sas()[0].state, IkeSaState::Rekeyed);
    assert_eq!(world.hosts[1].sas()[0].children, []);
    run_lossless(&mut world, Duration::from_secs(1));
    assert_one_tunnel(&world);
    let downs = world.hosts.iter().flat_map(|host| &host.events);
    let downs: Vec<_> = downs.filter(|event| matches!(event, Event::IkeDown(..))).collect();
    assert!(downs.iter().all(|event| matches!(event, Event::IkeDown(_, Reason::Rekeyed))), "{downs:?}");
    // And it can be taken down like any other.
    let now = world.now;
    world.hosts[1].endpoint.terminate(now, &Target::All, false).unwrap();
    world.settle(1);
    world.run_secs(60);
    world.assert_nothing_left();
}
