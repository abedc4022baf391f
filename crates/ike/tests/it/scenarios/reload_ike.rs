//! A changed connection whose IKE SA must change: it is rekeyed or replaced, and no packet is lost.

use crate::scenarios::answers::sun;
use crate::scenarios::common::build::{child, esp_proposal, fqdn, ike_proposal, range, ts};
use crate::scenarios::common::network::Nat;
use crate::scenarios::common::peer::Peer;
use crate::scenarios::common::tunnels::{assert_lossless, ike_rekeys, run_lossless};
use crate::scenarios::common::wire::sent;
use crate::scenarios::common::{Weather, World};
use crate::scenarios::reload::{reload, sa_of, two_children};
use std::collections::BTreeSet;
use std::time::Duration;
use testudo_ike::config::{ChildLifetime, Connection, IkeLifetime, KeyExchange, Lifetime, Pool, TsSpec};
use testudo_ike::endpoint::{IkeSaState, Target};
use testudo_ike::message::{ExchangeType, Header};
use testudo_ipsec::sa::EspAlgorithm;

fn other_name(index: usize, connection: &mut Connection) {
    let id = Some(fqdn("luna"));
    if index == 0 { connection.local.id = id } else { connection.remote.id = id }
}

fn secret(world: &mut World) {
    for host in &mut world.hosts {
        host.load_secret(crate::scenarios::common::secret("other", b"another shared key", &["luna", "sun"]));
    }
}

fn assert_settled(world: &World) {
    assert_lossless(world);
    for host in &world.hosts {
        assert_eq!(host.sas().len(), 1, "{:#?}", host.log());
        assert_eq!(host.sas()[0].state, IkeSaState::Established);
        assert_eq!((host.installed.len(), host.sending.len()), (2, 2), "{:#?}", host.log());
        assert_eq!(host.in_use.lock().unwrap().len(), 2, "no SPI is forgotten");
    }
}

#[test]
fn another_identity_sets_the_ike_sa_up_anew() {
    for (side, weather) in [(0, Weather::FAIR), (1, Weather::FAIR), (0, Weather::FOUL), (1, Weather::FOUL)] {
        let mut world = two_children(1, weather, |_, _| {});
        secret(&mut world);
        let old = world.hosts[0].sas()[0].id;
        // The side that loads first is refused; the second, or a second attempt of the first,
        // succeeds.
        reload(&mut world, 1 - side, other_name);
        reload(&mut world, side, other_name);
        run_lossless(&mut world, Duration::from_secs(300));
        assert_settled(&world);
        assert!(world.hosts[0].sas()[0].id > old);
        assert_eq!(world.hosts[0].sas()[0].local_id, Some(fqdn("luna")));
        assert_eq!(world.hosts[1].sas()[0].remote_id, Some(fqdn("luna")));
        assert!(world.hosts[0].logged("connection site changed: IKE_SAs set up anew because of local"));
    }
}

/// Selectors and algorithms may change at the same time.
#[test]
fn children_change_with_it() {
    let edit = |index: usize, connection: &mut Connection| {
        other_name(index, connection);
        let net = &mut connection.children[0];
        let more = TsSpec::Fixed(ts("10.77.0.0-10.77.0.255"));
        if index == 0 { &mut net.local_ts } else { &mut net.remote_ts }.push(more);
        connection.children[1].proposals = vec![esp_proposal(EspAlgorithm::Aes256Gcm16)];
    };
    for side in 0..2 {
        let mut world = two_children(2, Weather::FAIR, |_, _| {});
        secret(&mut world);
        reload(&mut world, 1 - side, edit);
        reload(&mut world, side, edit);
        run_lossless(&mut world, Duration::from_secs(300));
        assert_settled(&world);
        assert_eq!(sa_of(&world, 0, "net").1.local_ts.len(), 2);
        assert_eq!(sa_of(&world, 0, "more").1.algorithm, EspAlgorithm::Aes256Gcm16);
    }
}

#[test]
fn a_peer_that_refuses_keeps_the_old_one() {
    for side in 0..2 {
        let mut world = two_children(3, Weather::FAIR, |_, connection| {
            connection.children[0].lifetime =
                ChildLifetime { time: Lifetime::new(600, None, None), ..ChildLifetime::default() };
        });
        secret(&mut world);
        let old = world.hosts[side].sas()[0].id;
        reload(&mut world, side, other_name);
        run_lossless(&mut world, Duration::from_secs(3000));
        assert_settled(&world);
        assert_eq!(world.hosts[side].sas()[0].id, old);
        let log = world.hosts[side].log();
        let tries = log.iter().filter(|line| line.contains("reauthenticating IKE_SA")).count();
        assert_eq!(tries, 3, "not for ever: {log:#?}");
        assert!(world.hosts[side].logged("stays as it was made until its time is over"));
    }
}

#[test]
fn other_proposals_rekey_the_ike_sa() {
    for side in 0..2 {
        let both = |_: usize, connection: &mut Connection| {
            connection.proposals = vec![ike_proposal(&[KeyExchange::Ecp384, KeyExchange::X25519])];
        };
        let mut world = two_children(4, Weather::FAIR, |_, _| {});
        let ids = ["net", "more"].map(|name| sa_of(&world, side, name).0);
        reload(&mut world, 1 - side, both);
        run_lossless(&mut world, Duration::from_secs(60));
        reload(&mut world, side, |_, connection| {
            connection.proposals = vec![ike_proposal(&[KeyExchange::Ecp384])];
        });
        run_lossless(&mut world, Duration::from_secs(60));
        assert_settled(&world);
        assert_eq!(["net", "more"].map(|name| sa_of(&world, side, name).0), ids);
        assert_eq!(world.hosts[side].sas()[0].ke.map(|ke| ke.name), Some("ECP_384"));
        assert!(ike_rekeys(&world.hosts[side]) >= 1);
    }
}

#[test]
fn proposals_that_the_peer_refuses_change_nothing() {
    let mut world = two_children(5, Weather::FAIR, |_, connection| connection.lifetime.rekey = 100_000);
    let old = world.hosts[0].sas()[0].id;
    reload(&mut world, 0, |_, connection| {
        connection.proposals = vec![ike_proposal(&[KeyExchange::Ecp384])];
    });
    run_lossless(&mut world, Duration::from_secs(1000));
    assert_settled(&world);
    assert_eq!(world.hosts[0].sas()[0].id, old);
    let log = world.hosts[0].log();
    let count = |part: &str| log.iter().filter(|line| line.contains(part)).count();
    assert_eq!((count("no new keys for IKE_SA"), count("reauthenticating IKE_SA")), (1, 3), "{log:#?}");
    assert!(world.hosts[0].sas()[0].rekey.is_some(), "its renewal is not forgotten");
}

/// The new IKE SA begins at the address that the new configuration names, whichever side began the
/// old one.
#[test]
fn another_address_of_the_peer_is_where_the_new_one_begins() {
    for host in 0..2 {
        let mut world = World::established(11, |_, _| {});
        reload(&mut world, host, |_, connection| connection.remote_addrs = vec![range("192.0.2.9")]);
        world.run_secs(60);
        let begun = world.hosts[host].sent.iter().filter(|(path, bytes)| {
            path.remote.ip() != world.hosts[1 - host].addr
                && Header::parse(bytes).unwrap().exchange == ExchangeType::IkeSaInit
        });
        let begun: Vec<_> = begun.map(|(path, _)| path.remote.to_string()).collect();
        assert!(begun.contains(&"192.0.2.9:500".to_owned()), "{begun:?} {:#?}", world.hosts[host].log());
    }
}

/// A road warrior: its address is unknown.
#[test]
fn a_peer_that_cannot_be_reached_keeps_the_old_one() {
    let mut world = two_children(6, Weather::FAIR, |index, connection| {
        if index == 1 {
            connection.remote_addrs = vec![range("192.0.2.0-192.0.2.255")];
        }
    });
    let old = world.hosts[1].sas()[0].id;
    reload(&mut world, 1, |_, connection| {
        connection.encap = true;
        connection.children[0].replay_window = 256;
    });
    run_lossless(&mut world, Duration::from_secs(100));
    assert_settled(&world);
    assert_eq!(world.hosts[1].sas()[0].id, old);
    assert!(
        world.hosts[1]
            .logged("stays as it was set up until the peer sets it up anew: remote_addrs names no address")
    );
    assert_eq!(sa_of(&world, 1, "net").1.replay_window, 256, "its children change all the same");
    let now = world.now;
    let ike = world.hosts[0].sas()[0].id;
    assert!(world.hosts[0].endpoint.reauthenticate_ike(now, ike));
    world.settle(0);
    run_lossless(&mut world, Duration::from_secs(60));
    assert_settled(&world);
    assert!(world.hosts[1].sas()[0].nat.fake);
}

/// Nor a client to which we assign an address, or which a NAT hides: its address alone does not
/// lead to it.
#[test]
fn a_client_is_left_to_set_its_ike_sa_up_anew() {
    const DYNAMIC: TsSpec = TsSpec::Dynamic { protocol: 0, port_start: 0, port_end: u16::MAX };
    let outer = "198.51.100.7";
    for (behind_nat, why) in [(false, "it has a virtual IP"), (true, "it is behind a NAT")] {
        let mut world = World::pair_with(10, Weather::FAIR, |index, connection| match index {
            0 if !behind_nat => {
                connection.vips = vec!["0.0.0.0".parse().unwrap()];
                connection.children[0].local_ts = vec![DYNAMIC];
            }
            1 if !behind_nat => {
                connection.pools = vec!["v4".into()];
                connection.children[0].remote_ts = vec![DYNAMIC];
            }
            1 => connection.remote_addrs = vec![range(outer)],
            _ => {}
        });
        world.network.nat = behind_nat.then(|| Nat::new("192.0.2.1", outer));
        let addrs = range("10.3.0.1-10.3.0.9");
        let pool = Pool { name: "v4".into(), base: addrs.start(), addrs, dns: vec![], subnets: vec![] };
        world.hosts[1].load_pool(pool);
        world.establish();
        let old = world.hosts[1].sas()[0].id;
        // The other side does not agree, so this one keeps what it has.
        reload(&mut world, 1, |_, connection| connection.encap = !behind_nat);
        reload(&mut world, 1, other_name);
        world.run_secs(100);
        let sun = &world.hosts[1];
        assert!(sun.logged(&format!("until the peer sets it up anew: {why}")), "{:#?}", sun.log());
        assert_eq!(sun.sas().iter().map(|sa| sa.id).collect::<Vec<_>>(), [old]);
    }
}

/// The change comes at every moment of the first exchanges, and of a reauthentication.
#[test]
fn during_other_exchanges() {
    for reauthenticates in [false, true] {
        for steps in 0..14 {
            let mut world = two_children(7, Weather::FAIR, |_, _| {});
            secret(&mut world);
            if reauthenticates {
                let (now, ike) = (world.now, world.hosts[0].sas()[0].id);
                world.hosts[0].endpoint.reauthenticate_ike(now, ike);
                world.settle(0);
            } else {
                let (now, ike) = (world.now, world.hosts[1].sas()[0].id);
                world.hosts[1].endpoint.rekey_ike(now, ike);
                world.settle(1);
            }
            let end = world.now.plus(Duration::from_secs(60));
            (0..steps).for_each(|_| {
                world.step(end);
                assert_lossless(&world);
            });
            reload(&mut world, 1, other_name);
            reload(&mut world, 0, other_name);
            run_lossless(&mut world, Duration::from_secs(400));
            assert_settled(&world);
            assert_eq!(world.hosts[0].sas()[0].local_id, Some(fqdn("luna")), "{steps}");
        }
    }
}

/// A half-open IKE SA is initiated again, or replaced as soon as it is established.
#[test]
fn during_the_first_exchanges() {
    for steps in 0..8 {
        let mut world = World::pair_with(8, Weather::FAIR, |_, _| {});
        secret(&mut world);
        world.initiate(0);
        let end = world.now.plus(Duration::from_secs(1));
        (0..steps).for_each(|_| _ = world.step(end));
        reload(&mut world, 1, other_name);
        reload(&mut world, 0, other_name);
        world.run_secs(100);
        if let [sa] = &world.hosts[0].sas()[..] {
            assert_eq!(sa.local_id, Some(fqdn("luna")), "{steps} {:#?}", world.hosts[0].log());
            world.assert_tunnel();
        } else {
            // Refused in IKE_AUTH, and the waiting requests were informed.
            assert!(world.hosts[0].results().iter().any(Result::is_err), "{steps}");
        }
    }
}

/// The peer does not answer yet. A change of what was asked for begins the attempt again at once,
/// and no other one does.
#[test]
fn an_attempt_begins_again_if_the_change_concerns_it() {
    type Edit = fn(usize, &mut Connection);
    let edits: [(bool, Edit); 4] = [
        (false, |_, connection| connection.dpd_delay = Duration::from_secs(77)),
        (false, |_, connection| connection.children[1].remote_ts = vec![TsSpec::Fixed(ts("10.70.0.1"))]),
        (true, |_, connection| connection.children[0].remote_ts = vec![TsSpec::Fixed(ts("10.70.0.1"))]),
        (true, |_, connection| connection.proposals = vec![ike_proposal(&[KeyExchange::Ecp256])]),
    ];
    for (number, (again, edit)) in edits.into_iter().enumerate() {
        let mut world = World::pair_with(9, Weather::FAIR, |_, connection| {
            connection.children.push(child("more", "10.50.0.0", "10.60.0.0"));
        });
        world.hosts[1].stopped = true;
        world.initiate(0);
        reload(&mut world, 0, edit);
        world.run_secs(1);
        let spi = |bytes: &&Vec<u8>| Header::parse(bytes).unwrap().initiator_spi;
        let spis: BTreeSet<_> = sent(&world, 0, ExchangeType::IkeSaInit, false).iter().map(spi).collect();
        assert_eq!(spis.len(), 1 + usize::from(again), "{number}");
    }
}

/// New keys that were asked for by the old proposals, by one side or the other, in one exchange or
/// several, are no answer to the new ones.
#[test]
fn other_proposals_during_a_rekey_are_not_forgotten() {
    let proposal = |methods: &[KeyExchange], series: bool| {
        let mut proposal = ike_proposal(methods);
        if series {
            proposal.additional[0] = vec![Some(KeyExchange::MlKem512)];
        }
        vec![proposal]
    };
    for (side, series) in [(0, false), (1, false), (0, true), (1, true)] {
        for steps in 0..8 {
            let mut world = two_children(9, Weather::FAIR, |_, connection| {
                connection.proposals = proposal(&[KeyExchange::X25519, KeyExchange::Ecp384], series);
            });
            let (now, ike) = (world.now, world.hosts[side].sas()[0].id);
            assert!(world.hosts[side].endpoint.rekey_ike(now, ike));
            world.settle(side);
            let end = world.now.plus(Duration::from_secs(60));
            (0..steps).for_each(|_| _ = world.step(end));
            reload(&mut world, 0, |_, connection| {
                connection.proposals = proposal(&[KeyExchange::Ecp384], series);
            });
            run_lossless(&mut world, Duration::from_secs(100));
            assert_settled(&world);
            let ke = world.hosts[0].sas()[0].ke.map(|ke| ke.name);
            assert_eq!(ke, Some("ECP_384"), "{side} {series} {steps} {:#?}", world.hosts[0].log());
        }
    }
}

/// Its reauthentication, once its time has come, goes where the peer is, as if nothing had been
/// loaded.
#[test]
fn a_peer_that_could_not_be_reached_is_reauthenticated_where_it_is() {
    let mut world = two_children(9, Weather::FAIR, |index, connection| {
        if index == 1 {
            connection.remote_addrs = vec![range("192.0.2.0-192.0.2.255")];
            connection.lifetime = IkeLifetime { rekey: 0, reauth: 1000, over: 500, rand: 0 };
        }
    });
    let old = world.hosts[1].sas()[0].id;
    reload(&mut world, 1, |_, connection| connection.encap = true);
    run_lossless(&mut world, Duration::from_secs(500));
    assert!(world.hosts[1].logged("stays as it was set up until the peer sets it up anew"));
    assert_eq!(world.hosts[1].sas()[0].id, old);
    run_lossless(&mut world, Duration::from_secs(600));
    assert_settled(&world);
    assert!(world.hosts[1].sas()[0].id > old, "{:#?}", world.hosts[1].log());
    assert!(!world.hosts[1].logged("not reauthenticated"));
}

/// Nothing is set up anew for a child that is on its way out.
#[test]
fn an_ike_sa_whose_only_child_is_being_deleted_ends() {
    let mut world = sun();
    Peer::establish(&mut world, 12);
    let (now, child) = (world.now, world.hosts[0].sas()[0].children[0].id);
    world.hosts[0].endpoint.terminate(now, &Target::Child(child), false).unwrap();
    world.settle(0);
    reload(&mut world, 0, |_, connection| connection.local.id = Some(fqdn("other")));
    world.run_secs(100);
    assert!(world.hosts[0].logged("it has none of the new traffic"), "{:#?}", world.hosts[0].log());
    assert_eq!(world.hosts[0].sas(), []);
    assert!(!world.hosts[0].logged("reauthenticat"));
}
