//! Both sides renew at once, with additional key exchanges (RFC 9370 §2.2.4).

use crate::scenarios::common::build::ts;
use crate::scenarios::common::tunnels::{assert_one_tunnel, child_rekeys, ike_rekeys, run_lossless};
use crate::scenarios::common::wire::{assert_ivs_never_repeat, sent};
use crate::scenarios::common::{Weather, World};
use crate::scenarios::followup_ke::{BOTH, FOLLOWUP, What, established, followups, renew, renewals, with};
use crate::scenarios::reload::{assert_settled, reload, sa_of, two_children};
use std::time::Duration;
use testudo_ike::config::KeyExchange::{Ecp256, Ecp384, MlKem512, MlKem768, X25519};
use testudo_ike::config::TsSpec;
use testudo_ike::endpoint::{EndpointConfig, RetransmitPolicy};
use testudo_ike::message::ExchangeType;
use testudo_ike::output::ChildSaId;

/// RFC 9370 §2.2.4: the exchange with the lowest nonce ends before its first IKE_FOLLOWUP_KE.
#[test]
fn both_renew_at_once() {
    for what in BOTH {
        let mut won = [0, 0];
        for seed in 0..60 {
            let mut world = established(seed, &[MlKem768]);
            assert!(renew(&mut world, 0, what) && renew(&mut world, 1, what));
            run_lossless(&mut world, Duration::from_secs(60));
            assert_one_tunnel(&world);
            let [moon, sun] = [0, 1].map(|host| sent(&world, host, FOLLOWUP, false).len());
            assert!((moon == 0) != (sun == 0), "one goes on, and only one");
            won[usize::from(moon == 0)] += 1;
            for host in [0, 1] {
                assert_eq!(renewals(&world, host, what), 1, "{:#?}", world.hosts[host].log());
                assert_eq!(sent(&world, host, ExchangeType::CreateChildSa, true).len(), 1);
                assert_eq!(world.hosts[host].endpoint.states().count(), 1);
                let winner = (moon == 0) == (host == 1);
                assert_eq!(world.hosts[host].logged("too"), !winner, "{:#?}", world.hosts[host].log());
            }
        }
        assert!(won[0] > 10 && won[1] > 10, "{won:?}");
    }
}

/// One side's proposals have additional key exchanges, and the other's do not: the responder
/// prefers its own.
#[test]
fn both_renew_at_once_and_only_one_in_a_series() {
    for what in BOTH {
        for seed in 0..60 {
            let mut world = World::established(seed, |index, connection| {
                let (ike, child) = (connection.proposals[0].clone(), &mut connection.children[0].proposals);
                child[0].ke = vec![X25519];
                let esp = child[0].clone();
                with(connection, &[MlKem768]);
                let place = if index == 0 { 0 } else { 1 };
                connection.proposals.insert(place, ike);
                connection.children[0].proposals.insert(place, esp);
            });
            assert!(renew(&mut world, 0, what) && renew(&mut world, 1, what));
            run_lossless(&mut world, Duration::from_secs(60));
            assert_one_tunnel(&world);
            for host in [0, 1] {
                assert!(renewals(&world, host, what) >= 1, "{:#?}", world.hosts[host].log());
            }
            assert_ivs_never_repeat(&world);
        }
    }
}

/// The side with the series wins, and the peer forgets it: the old SA serves on, and is renewed
/// later all the same.
#[test]
fn a_series_that_has_won_and_comes_to_nothing_is_begun_once_more() {
    let mut won = 0;
    for seed in 0..30 {
        let mut world = World::established(seed, |index, connection| {
            let child = &mut connection.children[0].proposals;
            child[0].ke = vec![X25519];
            let esp = child[0].clone();
            with(connection, &[MlKem768]);
            connection.children[0].proposals.insert(index, esp);
        });
        let old = world.hosts[0].sas()[0].children[0].id;
        assert!(renew(&mut world, 0, What::Child) && renew(&mut world, 1, What::Child));
        run_lossless(&mut world, Duration::from_millis(25));
        if followups(&world, 0, false).is_empty() {
            continue;
        }
        won += 1;
        // The answer of the peer, which makes its Child SA in one exchange, has come; now nothing
        // gets through.
        let made = world.hosts[0].installed.keys().next_back().copied().unwrap();
        assert!(made > old && world.hosts[0].installed.len() == 2);
        while world.network.arrive(world.now.plus(Duration::from_secs(1))).is_some() {}
        world.network.up = false;
        run_lossless(&mut world, Duration::from_secs(25));
        world.network.up = true;
        run_lossless(&mut world, Duration::from_secs(200));
        assert!(world.hosts[0].logged("the peer answered STATE_NOT_FOUND"), "{:#?}", world.hosts[0].log());
        assert_one_tunnel(&world);
        let last = world.hosts[0].sas()[0].children[0].id;
        assert!(last > made, "{:#?}", world.hosts[0].log());
        assert_ivs_never_repeat(&world);
    }
    assert!(won > 5, "{won}");
}

/// The peer gives a series up whose first answer is lost, renews the same SA itself, and deletes the
/// old one. The answer comes after that, and the series has the lowest nonce of both; but the peer
/// does not know it any more. Its new SA is the one that serves.
#[test]
fn a_series_that_the_peer_has_given_up_leaves_the_peers_new_sa_alone() {
    let mut refused = 0;
    for seed in 0..40 {
        let mut world = established(seed, &[MlKem768]);
        renew(&mut world, 0, What::Child);
        world.run_until(|world| sent(world, 1, ExchangeType::CreateChildSa, true).len() == 1);
        while world.network.arrive(world.now.plus(Duration::from_secs(1))).is_some() {}
        world.network.up = false;
        run_lossless(&mut world, Duration::from_secs(25));
        assert!(world.hosts[1].logged("the peer does not go on"), "{:#?}", world.hosts[1].log());
        world.network.up = true;
        renew(&mut world, 1, What::Child);
        run_lossless(&mut world, Duration::from_secs(100));
        refused += usize::from(world.hosts[1].logged("no series is known"));
        assert_one_tunnel(&world);
        assert_eq!(world.hosts[0].sas()[0].children[0].id, ChildSaId(2), "{:#?}", world.hosts[0].log());
        assert_ivs_never_repeat(&world);
    }
    assert!((10..=30).contains(&refused), "{refused}");
}

/// A side that has answered such a request does not begin the same itself.
#[test]
fn no_initiation_during_the_series_of_the_peer() {
    for what in BOTH {
        let mut world = established(14, &[MlKem768, Ecp256]);
        renew(&mut world, 0, what);
        world.run_until(|world| followups(world, 0, false).len() == 1);
        let now = world.now;
        let sa = world.hosts[1].sas()[0].clone();
        match what {
            What::Ike => assert!(world.hosts[1].endpoint.rekey_ike(now, sa.id)),
            What::Child => assert!(world.hosts[1].endpoint.rekey_child(now, sa.children[0].id)),
        }
        world.settle(1);
        assert!(
            sent(&world, 1, ExchangeType::CreateChildSa, false).is_empty(),
            "it knows that moon is at it"
        );
        run_lossless(&mut world, Duration::from_secs(60));
        assert_eq!(renewals(&world, 0, what), 1);
        assert_one_tunnel(&world);
    }
}

/// A side that rekeys one kind of SA waits while the other kind is being rekeyed, or gets
/// TEMPORARY_FAILURE; at the end both are new.
#[test]
fn one_renews_the_child_and_the_other_the_ike_sa() {
    for seed in 0..20 {
        for moment in (0..80).step_by(10) {
            let mut world = established(seed, &[MlKem768, Ecp256]);
            renew(&mut world, 0, What::Child);
            run_lossless(&mut world, Duration::from_millis(moment));
            renew(&mut world, 1, What::Ike);
            run_lossless(&mut world, Duration::from_secs(90));
            assert_one_tunnel(&world);
            for host in &world.hosts {
                assert_eq!((ike_rekeys(host), child_rekeys(host)), (1, 1), "{moment} {:#?}", host.log());
            }
        }
    }
}

/// A network that loses, doubles and reorders, two sides that renew whatever they like at any time,
/// and nodes that take over. What one side sends, the other takes, after every event; and in the
/// end there is one tunnel.
fn storm(seed: u64) {
    let weather = Weather {
        delay: Duration::from_millis(1),
        jitter: Duration::from_millis(3000),
        loss: 20,
        duplication: 20,
    };
    let retransmit = RetransmitPolicy { tries: 20, limit: Duration::from_secs(10), ..Default::default() };
    let fragment_size = if seed.is_multiple_of(2) { 400 } else { 1280 };
    let delete_timeout = Duration::from_secs(300);
    let config = EndpointConfig { retransmit, delete_timeout, fragment_size, ..Default::default() };
    let mut world =
        World::pair_of(["192.0.2.1", "192.0.2.2"], seed, Weather::FAIR, config, |index, connection| {
            let plain = connection.clone();
            with(connection, if seed.is_multiple_of(3) { &[MlKem512] } else { &[Ecp256, Ecp384] });
            if seed.is_multiple_of(5) {
                // Only one side's choice is a series.
                let (ike, mut esp) = (plain.proposals[0].clone(), plain.children[0].proposals[0].clone());
                esp.ke = vec![X25519];
                connection.proposals.insert(index, ike);
                connection.children[0].proposals.insert(index, esp);
            }
        });
    world.initiate(0);
    world.run_secs(1);
    world.network.weather = weather;
    for _ in 0..12 {
        let choice = world.network.random.below(6);
        let what = if choice.is_multiple_of(3) { What::Ike } else { What::Child };
        for host in [0, 1] {
            if choice >= 4 || choice / 2 == host as u64 {
                renew(&mut world, host, what);
            }
        }
        if world.network.random.percent(20) {
            let (host, now) = (world.network.random.below(2) as usize, world.now);
            world.hosts[host].take_over(now);
        }
        let pause = world.network.random.below(8000);
        run_lossless(&mut world, Duration::from_millis(pause));
    }
    world.network.weather = Weather::FAIR;
    run_lossless(&mut world, Duration::from_secs(400));
    assert_one_tunnel(&world);
    assert!(child_rekeys(&world.hosts[0]) + ike_rekeys(&world.hosts[0]) >= 1, "seed {seed}");
    assert_ivs_never_repeat(&world);
}

#[test]
fn both_renew_whatever_they_like_in_foul_weather() {
    for seed in 0..150 {
        storm(seed);
    }
}

/// For the peer, a replacement of an outdated Child SA is a further one: its rekeying of the old
/// one is no rival of it.
#[test]
fn a_renewal_does_not_collide_with_a_replacement() {
    for seed in 0..40 {
        let mut world = established(seed, &[MlKem768]);
        assert!(renew(&mut world, 1, What::Child));
        let narrower = ts("10.109.0.0-10.109.127.255");
        reload(&mut world, 0, |_, connection| {
            connection.children[0].local_ts = vec![TsSpec::Fixed(narrower)];
        });
        run_lossless(&mut world, Duration::from_secs(60));
        assert_one_tunnel(&world);
        for host in &world.hosts {
            assert!(!host.logged("renewed it too") && !host.logged("STATE_NOT_FOUND"), "{:#?}", host.log());
        }
        assert!(world.hosts[0].installed.values().all(|sa| sa.local_ts == [narrower]));
    }
}

/// Sun loads another configuration of `net` in the middle of a series that moon begins, and does
/// what there is to do at once. Gives how many exchanges sun has begun for that.
fn reloaded_in_a_series(world: &mut World, begin: impl Fn(&mut World)) -> usize {
    let begun = |world: &World| sent(world, 1, ExchangeType::CreateChildSa, false).len();
    let (before, series) = (begun(world), followups(world, 0, false).len());
    begin(world);
    world.run_until(|world| followups(world, 0, false).len() > series);
    reload(world, 1, |_, connection| {
        connection.children[0].remote_ts = vec![TsSpec::Fixed(ts("10.109.0.0-10.109.127.255"))];
    });
    let now = world.now;
    while world.step(now) {}
    assert_eq!(followups(world, 0, false).len(), series + 1, "it is not over");
    begun(world) - before
}

fn assert_followed(world: &World) {
    let narrower = ts("10.109.0.0-10.109.127.255");
    let net = sa_of(world, 1, "net").1;
    assert_eq!(net.remote_ts, [narrower], "{:#?}", world.hosts[1].log());
}

/// The peer renews the IKE SA, which will have the child: what is to take the child's place is
/// asked for when that has come to its end.
#[test]
fn a_replacement_waits_for_the_renewal_of_its_ike_sa() {
    let mut world = established(15, &[MlKem768, Ecp256]);
    let asked = reloaded_in_a_series(&mut world, |world| assert!(renew(world, 0, What::Ike)));
    assert_eq!(asked, 0, "{:#?}", world.hosts[1].log());
    run_lossless(&mut world, Duration::from_secs(120));
    assert_one_tunnel(&world);
    assert_eq!(renewals(&world, 0, What::Ike), 1);
    assert_followed(&world);
}

/// A series for another child has nothing to do with it.
#[test]
fn a_replacement_does_not_wait_for_the_renewal_of_another_child() {
    let mut world = two_children(16, Weather::FAIR, |_, connection| {
        with(connection, &[MlKem768, Ecp256]);
        connection.children[1].proposals = connection.children[0].proposals.clone();
    });
    let other = sa_of(&world, 0, "more").0;
    let asked = reloaded_in_a_series(&mut world, |world| {
        let now = world.now;
        assert!(world.hosts[0].endpoint.rekey_child(now, other));
        world.settle(0);
    });
    assert_eq!(asked, 1, "{:#?}", world.hosts[1].log());
    run_lossless(&mut world, Duration::from_secs(120));
    assert_settled(&world);
    assert_ne!(sa_of(&world, 0, "more").0, other);
    assert_followed(&world);
}
