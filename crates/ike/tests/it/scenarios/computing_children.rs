//! Key exchanges of CREATE_CHILD_SA and IKE_FOLLOWUP_KE that the host computes, while other things
//! happen.

use crate::scenarios::common::tunnels::{assert_one_tunnel, assert_weathered};
use crate::scenarios::common::wire::{assert_ivs_never_repeat, sent};
use crate::scenarios::common::world::handing_out;
use crate::scenarios::common::{Weather, World, connection, secret};
use crate::scenarios::computing::{MOMENT, finish, job};
use crate::scenarios::followup_ke::{BOTH, FOLLOWUP, What, renew, renewals, with};
use std::time::Duration;
use testudo_ike::config::KeyExchange::{self, MlKem512, MlKem768};
use testudo_ike::endpoint::{Discard, EndpointConfig, Job, Target};
use testudo_ike::message::ExchangeType;

const ADDRS: [&str; 2] = ["192.0.2.1", "192.0.2.2"];

/// A tunnel whose SAs are rekeyed with X25519 and these; from now on the test runs the jobs.
fn tunnel(methods: &[KeyExchange]) -> World {
    let mut world =
        World::pair_of(ADDRS, 1, Weather::FAIR, handing_out(), |_, connection| with(connection, methods));
    world.initiate(0);
    world.run_secs(60);
    assert_one_tunnel(&world);
    // A restored SA has no jobs.
    (world.hold_jobs, world.restore) = (true, false);
    world
}

/// Host 0 renews, and job number `lost`, if there is one, is lost in that way. Gives the number of
/// jobs.
fn renewal(what: What, lost: Option<u64>, lose: impl Fn(&mut World, usize, Job)) -> u64 {
    let mut world = tunnel(&[MlKem768]);
    assert!(renew(&mut world, 0, what));
    let mut number = 0;
    for _ in 0..1000 {
        world.run(MOMENT);
        for host in 0..2 {
            while let Some(job) = world.hosts[host].endpoint.take_job() {
                number += 1;
                if lost == Some(number) {
                    lose(&mut world, host, job);
                } else {
                    finish(&mut world, host, job);
                }
            }
        }
    }
    assert_eq!([0, 1].map(|host| renewals(&world, host, what)), [1, 1], "{:#?}", world.hosts[0].log());
    assert_one_tunnel(&world);
    assert_ivs_never_repeat(&world);
    number
}

/// Two key exchanges, of which each side has its part to compute.
#[test]
fn any_job_of_a_renewal_may_be_lost_once() {
    for what in BOTH {
        assert_eq!(renewal(what, None, |_, _, _| {}), 4, "{what:?}");
        for lost in 1..=4 {
            let failed = renewal(what, Some(lost), |world, host, job| {
                let now = world.now;
                world.hosts[host].endpoint.job_failed(now, job.id(), "lost");
            });
            assert_eq!(failed, 5, "{what:?}: job {lost} is made again");
            let node_died = renewal(what, Some(lost), |world, host, _| {
                let now = world.now;
                world.hosts[host].take_over(now);
            });
            assert_eq!(node_died, 5, "{what:?}: job {lost} is made again");
            let came_back = renewal(what, Some(lost), |world, host, job| {
                world.run_secs(15);
                finish(world, host, job);
            });
            assert_eq!(came_back, 4, "{what:?}: job {lost} is late");
        }
    }
}

/// A peer that asks again and again has one computation, and its other requests wait.
#[test]
fn a_request_that_comes_again_is_not_computed_again() {
    let mut world = tunnel(&[]);
    assert!(renew(&mut world, 0, What::Child));
    let before = world.hosts[1].endpoint.stats().discarded(Discard::Repeated);
    world.run_secs(15);
    assert!(sent(&world, 0, ExchangeType::CreateChildSa, false).len() > 2);
    assert!(sent(&world, 1, ExchangeType::CreateChildSa, true).is_empty());
    let repeated = world.hosts[1].endpoint.stats().discarded(Discard::Repeated) - before;
    assert!(repeated >= 2, "{repeated}");
    let late = job(&mut world, 1);
    finish(&mut world, 1, late);
    world.run(MOMENT);
    let response = job(&mut world, 0);
    finish(&mut world, 0, response);
    world.run_secs(20);
    assert_one_tunnel(&world);
}

#[test]
fn an_ike_sa_that_goes_meanwhile_makes_the_job_void() {
    for what in BOTH {
        let mut world = tunnel(&[]);
        assert!(renew(&mut world, 0, what));
        world.run(MOMENT);
        let job = job(&mut world, 1);
        let now = world.now;
        world.hosts[1].endpoint.terminate(now, &Target::All, true).unwrap();
        world.settle(1);
        assert_eq!(world.hosts[1].endpoint.jobs_out(), 0);
        let before = world.hosts[1].sent.len();
        finish(&mut world, 1, job);
        assert_eq!((world.hosts[1].sent.len(), world.hosts[1].installed.len()), (before, 0));
    }
}

/// An unacceptable request is refused without a computation.
#[test]
fn a_key_exchange_that_is_not_configured_is_not_computed() {
    let mut world = tunnel(&[]);
    let mut connection = world.hosts[1].endpoint.connection("site").unwrap().clone();
    connection.children[0].proposals[0].ke = vec![KeyExchange::Ecp384];
    let now = world.now;
    world.hosts[1].endpoint.load_connection(now, connection).unwrap();
    world.settle(1);
    assert!(renew(&mut world, 0, What::Child));
    world.run(MOMENT);
    assert_eq!(sent(&world, 1, ExchangeType::CreateChildSa, true).len(), 1, "{:#?}", world.hosts[1].log());
}

/// Both sides renew the same at once; the computations come back in whatever order.
#[test]
fn both_sides_renew_and_either_computes_first() {
    for what in BOTH {
        for first in 0..2 {
            let mut world = tunnel(&[]);
            assert!(renew(&mut world, 0, what) && renew(&mut world, 1, what));
            for _ in 0..20 {
                world.run(MOMENT);
                for host in [first, 1 - first] {
                    while let Some(job) = world.hosts[host].endpoint.take_job() {
                        finish(&mut world, host, job);
                        world.run(MOMENT);
                    }
                }
            }
            world.hold_jobs = false;
            // A delete may come before the answer is computed: then the redundant IKE SA goes by
            // its time (RFC 7296 §2.25.2).
            world.run_secs(200);
            assert_one_tunnel(&world);
        }
    }
}

/// Jobs take their time, come back in another order, fail or are lost, and so do messages.
#[test]
fn renewals_in_foul_weather() {
    let mut followups = 0;
    for seed in 0..100 {
        let mut world = World::pair_of(ADDRS, seed, Weather::FOUL, handing_out(), |_, connection| {
            with(connection, &[MlKem512]);
            connection.keyingtries = 0;
            connection.dpd_delay = Duration::from_secs(30);
        });
        world.initiate(0);
        world.run_secs(60);
        for _ in 0..6 {
            let random = &mut world.network.random;
            let (host, what) = (random.below(2) as usize, BOTH[random.below(2) as usize]);
            let wait = Duration::from_millis(random.below(8000));
            renew(&mut world, host, what);
            world.run(wait);
        }
        assert_weathered(&mut world, seed);
        followups += sent(&world, 0, FOLLOWUP, true).len();
    }
    assert!(followups > 100, "{followups}");
}

/// A tunnel between hosts 0 and 1, and host 2 in the midst of a handshake with host 1, which has
/// room for one computation of each kind.
#[test]
fn a_handshake_and_a_renewal_do_not_take_the_place_of_each_other() {
    let config = EndpointConfig { job_limit: 1, ..handing_out() };
    let mut world = World::pair_of(ADDRS, 1, Weather::FAIR, config.clone(), |_, connection| {
        with(connection, &[MlKem768])
    });
    let (now, ends) = (world.now, [("192.0.2.2", "sun"), ("192.0.2.3", "mars")]);
    world.add(ends[1].0, config);
    for (host, number) in [(1, 0), (2, 1)] {
        let mut other = connection(ends[number], ends[1 - number]);
        with(&mut other, &[MlKem768]);
        if host == 1 {
            other.name = "mars".into();
        }
        world.hosts[host].load_secret(secret("of mars", b"another key", &["mars", "sun"]));
        world.hosts[host].load(now, other);
    }
    world.initiate(0);
    world.run_secs(60);
    assert_eq!(world.hosts[0].installed.len(), 1, "{:#?}", world.hosts[0].log());
    (world.hold_jobs, world.restore) = (true, false);

    world.initiate(2);
    for host in [1, 2] {
        world.run(MOMENT);
        let of_init = job(&mut world, host);
        finish(&mut world, host, of_init);
    }
    world.run(MOMENT);
    let of_intermediate = job(&mut world, 1);
    assert_eq!((world.hosts[1].endpoint.half_open(), world.hosts[1].endpoint.jobs_out()), (1, 1));
    assert!(renew(&mut world, 0, What::Child));
    world.run(MOMENT);
    let of_renewal = job(&mut world, 1);
    assert_eq!(world.hosts[1].endpoint.stats().discarded(Discard::Overload), 0);
    finish(&mut world, 1, of_intermediate);
    finish(&mut world, 1, of_renewal);
    world.hold_jobs = false;
    world.run_secs(60);
    assert_eq!([0, 1, 2].map(|host| world.hosts[host].installed.len()), [1, 2, 1]);
}
