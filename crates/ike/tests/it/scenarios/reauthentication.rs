//! A new IKE SA from scratch replaces the old one, and no packet is lost (RFC 7296 §2.8.3).

use crate::scenarios::answers::sun;
use crate::scenarios::common::build::child;
use crate::scenarios::common::peer::Peer;
use crate::scenarios::common::tunnels::{assert_lossless, assert_one_tunnel, run_lossless};
use crate::scenarios::common::wire::{assert_ivs_never_repeat, sent};
use crate::scenarios::common::{Weather, World};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;
use testudo_base::spi::Spi;
use testudo_ike::config::{Connection, IkeLifetime, Pool, StartAction, Unique};
use testudo_ike::endpoint::{EndpointConfig, Target};
use testudo_ike::message::{Delete, ExchangeType, Payload};
use testudo_ike::output::{Event, IkeSaId, Reason};

const NETS: [&str; 2] = ["10.50.0.0-10.50.0.255", "10.60.0.0-10.60.0.255"];

/// Both hosts have a second child.
fn with_more(index: usize, connection: &mut Connection) {
    connection.children.push(child("more", NETS[index], NETS[1 - index]));
}

/// A tunnel with two children, made by host 0.
fn two_children(seed: u64, edit: impl Fn(usize, &mut Connection)) -> World {
    let mut world = World::established(seed, |index, connection| {
        with_more(index, connection);
        edit(index, connection);
    });
    let now = world.now;
    world.hosts[0].endpoint.initiate(now, None, "more").unwrap();
    world.settle(0);
    world.run_secs(1);
    world
}

fn reauthenticate(world: &mut World, host: usize) {
    let (now, ike) = (world.now, world.hosts[host].sas()[0].id);
    assert!(world.hosts[host].endpoint.reauthenticate_ike(now, ike));
    assert!(!world.hosts[host].endpoint.reauthenticate_ike(now, ike), "once is enough");
    world.settle(host);
}

/// One IKE SA on each side, with children of these names that are used.
fn assert_children(world: &World, names: &[&str]) {
    for host in &world.hosts {
        let sas = host.sas();
        assert_eq!(sas.len(), 1, "{:#?}", host.log());
        let mut found: Vec<_> = sas[0].children.iter().map(|child| child.name.as_str()).collect();
        found.sort_unstable();
        assert_eq!(found, names);
        assert_eq!((host.installed.len(), host.sending.len()), (names.len(), names.len()));
        assert_eq!(host.in_use.lock().unwrap().len(), names.len(), "no SPI is forgotten");
    }
    assert_lossless(world);
}

fn downs(world: &World, host: usize) -> Vec<(IkeSaId, Reason)> {
    let down = |event: &Event| match event {
        Event::IkeDown(id, reason) => Some((*id, reason.clone())),
        _ => None,
    };
    world.hosts[host].events.iter().filter_map(down).collect()
}

#[test]
fn either_side_reauthenticates_with_all_children() {
    for side in 0..2 {
        let mut world = two_children(1, |_, _| {});
        let before = world.hosts[0].installed.clone();
        reauthenticate(&mut world, side);
        run_lossless(&mut world, Duration::from_secs(60));
        assert_children(&world, &["more", "net"]);
        let reused = |params: &testudo_ipsec::sa::ChildSaParams| {
            before.values().any(|old| old.key_in == params.key_in)
        };
        assert!(!world.hosts[0].installed.values().any(reused));
        assert!(world.hosts[side].sas()[0].initiator);
        let first = world.hosts[side].sas()[0].id;
        assert_eq!(downs(&world, side).len(), 1);
        assert!(downs(&world, side)[0].0 < first && downs(&world, side)[0].1 == Reason::Reauthenticated);
        assert_eq!(downs(&world, 1 - side)[0].1, Reason::DeletedByPeer);
        assert!(!world.hosts[1 - side].logged("INITIAL_CONTACT"));
        assert_ivs_never_repeat(&world);
    }
}

#[test]
fn the_time_comes_again_and_again_in_any_weather() {
    for (seed, weather) in [(1, Weather::FAIR), (2, Weather::FOUL), (3, Weather::FOUL)] {
        let mut world = World::pair_with(seed, weather, |index, connection| {
            connection.lifetime =
                IkeLifetime::with_reauth(0, if index == 0 { 1000 } else { 0 }, Some(600), None);
        });
        world.initiate(0);
        world.run_until(|world| world.hosts.iter().all(|host| host.installed.len() == 1));
        let due = world.hosts[0].sas()[0].reauth.unwrap().since(world.hosts[0].sas()[0].established.unwrap());
        assert!((500..=1000).contains(&due.as_secs()), "{due:?}");
        run_lossless(&mut world, Duration::from_secs(5000));
        let ups = world.hosts[0].events.iter().filter(|event| matches!(event, Event::IkeUp(_))).count();
        assert!((5..=11).contains(&ups), "{ups}");
    }
}

/// Rekeying does not postpone the reauthentication.
#[test]
fn rekeying_does_not_put_it_off() {
    let mut world = World::established(4, |index, connection| {
        if index == 0 {
            connection.lifetime = IkeLifetime::with_reauth(300, 1000, Some(100), Some(0));
        }
    });
    let due = world.hosts[0].sas()[0].reauth;
    run_lossless(&mut world, Duration::from_secs(950));
    assert_eq!(world.hosts[0].sas()[0].reauth, due);
    run_lossless(&mut world, Duration::from_secs(100));
    assert_one_tunnel(&world);
    assert!(world.hosts[0].sas()[0].reauth > due);
}

#[test]
fn if_it_fails_the_old_one_stays_and_it_is_tried_again() {
    let mut world = two_children(5, |index, connection| {
        if index == 0 {
            connection.lifetime = IkeLifetime::with_reauth(0, 1000, Some(300), Some(0));
        }
    });
    let old = world.hosts[0].sas()[0].id;
    let theirs = world.hosts[1].endpoint.connections().next().unwrap().clone();
    world.hosts[1].endpoint.unload_connection("site");
    run_lossless(&mut world, Duration::from_secs(1060));
    assert!(world.hosts[0].logged("not reauthenticated: the peer answered NO_PROPOSAL_CHOSEN"));
    assert_children(&world, &["more", "net"]);
    assert_eq!(world.hosts[0].sas()[0].id, old);
    let now = world.now;
    world.hosts[1].load(now, theirs);
    run_lossless(&mut world, Duration::from_secs(60));
    assert_children(&world, &["more", "net"]);
    assert!(world.hosts[0].sas()[0].id > old);
}

#[test]
fn a_reauthentication_that_never_succeeds_ends_the_ike_sa() {
    let mut world = World::established(6, |index, connection| {
        if index == 0 {
            connection.lifetime = IkeLifetime::with_reauth(0, 1000, Some(100), Some(0));
        }
    });
    world.hosts[1].endpoint.unload_connection("site");
    run_lossless(&mut world, Duration::from_secs(1090));
    world.run_secs(60);
    assert!(downs(&world, 0).iter().any(|(_, reason)| *reason == Reason::Expired));
    world.assert_nothing_left();
}

/// The old IKE SA stays until the last child is made: the peer may be busy for a while.
#[test]
fn a_busy_peer_gets_time_for_all_children() {
    const NAMES: [&str; 3] = ["more", "third", "fourth"];
    let config = EndpointConfig {
        creation_burst: 1,
        creation_pace: Duration::from_secs(5),
        rekey_retry: Duration::from_secs(60),
        ..EndpointConfig::default()
    };
    let mut world =
        World::pair_of(["192.0.2.1", "192.0.2.2"], 14, Weather::FAIR, config, |index, connection| {
            for (subnet, name) in (50..).zip(NAMES) {
                let nets = [1, 2].map(|end| format!("10.{subnet}.{end}.0-10.{subnet}.{end}.255"));
                connection.children.push(child(name, &nets[index], &nets[1 - index]));
            }
        });
    world.establish();
    for name in NAMES {
        let now = world.now;
        world.hosts[0].endpoint.initiate(now, None, name).unwrap();
        world.settle(0);
        world.run_secs(20);
    }
    reauthenticate(&mut world, 0);
    let end = world.now.plus(Duration::from_secs(200));
    while world.step(end) {
        assert_lossless(&world);
        for host in &world.hosts {
            let children = host.sas().into_iter().flat_map(|sa| sa.children);
            let sending = children.filter(|child| host.sending.contains(&child.id)).map(|child| child.name);
            assert_eq!(sending.collect::<BTreeSet<_>>().len(), 4, "{:#?}", host.log());
        }
    }
    assert!(world.hosts[1].logged("refused with TEMPORARY_FAILURE"));
    assert_children(&world, &["fourth", "more", "net", "third"]);
}

/// `unique` does not end the old one before its time, nor refuse the new one; INITIAL_CONTACT is
/// not said (RFC 7296 §2.4).
#[test]
fn unique_leaves_it_its_time() {
    for unique in [Unique::Never, Unique::No, Unique::Replace, Unique::Keep] {
        let mut world = two_children(7, |_, connection| connection.unique = unique);
        reauthenticate(&mut world, 0);
        run_lossless(&mut world, Duration::from_secs(60));
        assert_children(&world, &["more", "net"]);
    }
}

/// The responder sends through the old Child SA until the other side shows that it has the new one.
#[test]
fn the_responder_waits_for_a_sign() {
    let mut world = World::established(8, |_, _| {});
    reauthenticate(&mut world, 0);
    world.run_until(|world| world.hosts[1].installed.len() == 2);
    let new = *world.hosts[1].installed.keys().next_back().unwrap();
    assert!(!world.hosts[1].sending.contains(&new), "not yet");
    let now = world.now;
    world.hosts[1].endpoint.traffic_seen(now, new);
    world.settle(1);
    assert!(world.hosts[1].sending.contains(&new));
    run_lossless(&mut world, Duration::from_secs(30));
    assert_one_tunnel(&world);
}

/// In a cluster the old IKE SA may move to another node before the peer shows that it has the new
/// one.
#[test]
fn a_sign_counts_where_another_node_has_the_old_one() {
    for by_packet in [true, false] {
        let mut world = World::established(8, |_, _| {});
        let old = world.hosts[1].sas()[0].id;
        reauthenticate(&mut world, 0);
        world.run_until(|world| world.hosts[1].installed.len() == 2);
        let new = *world.hosts[1].installed.keys().next_back().unwrap();
        let now = world.now;
        assert!(world.hosts[1].endpoint.replication_mut().evict(now, old));
        world.settle(1);
        assert!(!world.hosts[1].sending.contains(&new), "not yet");
        if by_packet {
            world.hosts[1].endpoint.traffic_seen(now, new);
            world.settle(1);
        } else {
            world.run_secs(5);
        }
        assert!(world.hosts[1].sending.contains(&new), "{by_packet}: {:#?}", world.hosts[1].log());
    }
}

/// A replacement for a Child SA that is rekeyed meanwhile replaces its successor: the peer deletes
/// the old IKE SA as soon as the new one is up.
#[test]
fn a_renewal_meanwhile_leaves_nobody_waiting() {
    let mut world = sun();
    let mut old = Peer::establish(&mut world, 15);
    let (now, child) = (world.now, world.hosts[0].sas()[0].children[0].id);
    assert!(world.hosts[0].endpoint.rekey_child(now, child));
    world.settle(0);
    let asked = world.hosts[0].sent.last().unwrap().clone();
    world.run_secs(1);
    Peer::establish(&mut world, 16);
    assert_eq!(world.hosts[0].sending, [child].into(), "the new one waits");
    world.hosts[0].sent.push(asked);
    old.answer_child(&mut world, 0, (Spi(0x3333_3333), [7; 32]));
    assert!(!world.hosts[0].sending.contains(&child) && world.hosts[0].sending.len() == 1);
    old.request(&mut world, ExchangeType::Informational, vec![Payload::Delete(Delete::IkeSa)]).unwrap();
    assert_eq!(world.hosts[0].sas().len(), 1);
    let new = world.hosts[0].sas()[0].children[0].id;
    assert_eq!(world.hosts[0].sending, [new].into(), "{:#?}", world.hosts[0].log());
}

/// Several new ones may wait for the same place. A sign of one ends the wait of those before it.
#[test]
fn of_several_that_wait_the_newest_with_a_sign_sends() {
    for shown in [[1, 2], [2, 1]] {
        let mut world = sun();
        let mut old = Peer::establish(&mut world, 15);
        world.run_secs(1);
        Peer::establish(&mut world, 16);
        world.run_secs(1);
        Peer::establish(&mut world, 17);
        let children: Vec<_> = world.hosts[0].installed.keys().copied().collect();
        let sign = |world: &mut World, at: usize| {
            let now = world.now;
            world.hosts[0].endpoint.traffic_seen(now, children[at]);
            world.settle(0);
        };
        assert_eq!(world.hosts[0].sending, [children[0]].into(), "both wait");
        sign(&mut world, shown[0]);
        assert_eq!(world.hosts[0].sending, [children[shown[0]]].into());
        old.request(&mut world, ExchangeType::Informational, vec![Payload::Delete(Delete::IkeSa)]).unwrap();
        sign(&mut world, shown[1]);
        assert_eq!(world.hosts[0].sending, [children[2]].into(), "{:#?}", world.hosts[0].log());
    }
}

/// A peer that sets up a second IKE SA and is silent on it: after a while what goes out goes
/// through that.
#[test]
fn the_wait_for_a_sign_ends() {
    let mut world = World::established(9, |_, _| {});
    let now = world.now;
    let site = world.hosts[0].endpoint.connections().next().unwrap().clone();
    world.hosts[0].load(now, Connection { name: "twin".into(), ..site });
    world.hosts[0].endpoint.initiate(now, Some("twin"), "net").unwrap();
    world.settle(0);
    world.run_secs(150);
    let new = *world.hosts[1].installed.keys().next_back().unwrap();
    assert!(!world.hosts[1].sending.contains(&new));
    world.run_secs(30);
    assert!(world.hosts[1].sending.contains(&new));
}

/// An answer within the new IKE SA is a sign, as a request of the peer is.
#[test]
fn the_answer_to_a_liveness_check_is_a_sign() {
    let mut world = World::established(9, |index, connection| {
        if index == 1 {
            connection.dpd_delay = Duration::from_secs(20);
        }
    });
    let now = world.now;
    let site = world.hosts[0].endpoint.connections().next().unwrap().clone();
    world.hosts[0].load(now, Connection { name: "twin".into(), ..site });
    world.hosts[0].endpoint.initiate(now, Some("twin"), "net").unwrap();
    world.settle(0);
    world.run_secs(15);
    let new = *world.hosts[1].installed.keys().next_back().unwrap();
    assert!(!world.hosts[1].sending.contains(&new));
    world.run_secs(10);
    assert!(world.hosts[1].sending.contains(&new), "{:#?}", world.hosts[1].log());
}

/// Terminating the tunnel includes the new IKE SA.
#[test]
fn a_termination_ends_both() {
    for steps in 1..8 {
        let mut world = World::established(10, |_, connection| {
            connection.children[0].close_action = StartAction::None;
        });
        reauthenticate(&mut world, 0);
        let end = world.now.plus(Duration::from_secs(1));
        (0..steps).for_each(|_| _ = world.step(end));
        let now = world.now;
        world.hosts[0].endpoint.terminate(now, &Target::Connection("site".into()), false).unwrap();
        world.settle(0);
        world.run_secs(100);
        world.assert_nothing_left();
    }
}

/// While new keys are on their way nothing is set up: the renewed IKE SA is reauthenticated.
#[test]
fn a_renewal_under_way_only_delays_it() {
    let mut world = World::established(13, |_, _| {});
    let (now, ike) = (world.now, world.hosts[0].sas()[0].id);
    assert!(world.hosts[0].endpoint.rekey_ike(now, ike));
    assert!(!world.hosts[0].endpoint.reauthenticate_ike(now, ike), "not at once");
    world.settle(0);
    assert_eq!(sent(&world, 0, ExchangeType::IkeSaInit, false).len(), 1);
    run_lossless(&mut world, Duration::from_secs(100));
    assert_one_tunnel(&world);
    assert_eq!(downs(&world, 0).last().unwrap().1, Reason::Reauthenticated, "{:#?}", world.hosts[0].log());
}

/// An operator who terminates the old one does not want the new one either, however far that is. If
/// the peer takes the old one down, the new one has its traffic.
#[test]
fn the_end_of_the_old_one_ends_the_new_one_if_an_operator_wants_it() {
    for (host, force) in [(0, false), (0, true), (1, false)] {
        let mut world = World::established(12, |_, connection| {
            connection.children[0].close_action = StartAction::None;
        });
        reauthenticate(&mut world, 0);
        let (now, old) = (world.now, world.hosts[host].sas()[0].id);
        world.hosts[host].endpoint.terminate(now, &Target::Ike(old), force).unwrap();
        world.settle(host);
        world.run_secs(100);
        if host == 0 {
            world.assert_nothing_left();
        } else {
            assert_one_tunnel(&world);
        }
    }
}

/// At whichever moment the operator terminates the old one, as long as it has not been replaced.
#[test]
fn the_old_one_is_terminated_at_any_moment() {
    let mut replaced = 0;
    for steps in 0..30 {
        let mut world = World::established(12, |_, connection| {
            connection.children[0].close_action = StartAction::None;
        });
        let old = world.hosts[0].sas()[0].id;
        reauthenticate(&mut world, 0);
        let end = world.now.plus(Duration::from_secs(5));
        (0..steps).for_each(|_| _ = world.step(end));
        let is_replaced = world.hosts[0].logged("reauthenticated: it is");
        let now = world.now;
        world.hosts[0].endpoint.terminate(now, &Target::Ike(old), false).unwrap();
        world.settle(0);
        world.run_secs(100);
        if is_replaced {
            replaced += 1;
            assert_one_tunnel(&world);
        } else {
            world.assert_nothing_left();
        }
    }
    assert!((1..29).contains(&replaced), "{replaced}");
}

/// Nobody has terminated the old one: the new one stays.
#[test]
fn the_time_of_the_old_one_is_over_at_any_moment() {
    for before in (1..40).map(|number| Duration::from_millis(number * 5)) {
        let mut world = World::established(12, |index, connection| {
            connection.children[0].close_action = StartAction::None;
            if index == 0 {
                connection.lifetime = IkeLifetime::with_reauth(0, 1000, Some(0), Some(0));
            }
        });
        let due = world.hosts[0].sas()[0].reauth.unwrap();
        world.run(due.since(world.now) - before);
        reauthenticate(&mut world, 0);
        world.run_secs(100);
        assert_one_tunnel(&world);
    }
}

/// `close_action` is for what is lost, and nothing is.
#[test]
fn nothing_is_started_again() {
    let mut world = World::established(11, |_, connection| {
        connection.children[0].close_action = StartAction::Start;
    });
    reauthenticate(&mut world, 0);
    run_lossless(&mut world, Duration::from_secs(60));
    assert_one_tunnel(&world);
    assert!(!world.hosts[1].logged("restarting CHILD_SA"));
    assert_eq!(sent(&world, 1, ExchangeType::IkeSaInit, false).len(), 0);
}

/// A client keeps its virtual address; a gateway that assigns addresses cannot reauthenticate for
/// it.
#[test]
fn a_virtual_address_stays() {
    let mut world = World::new(12, Weather::FAIR);
    let ends = [("192.0.2.1", "moon"), ("192.0.2.2", "sun")];
    for index in 0..2 {
        let now = world.now;
        let mut connection = crate::scenarios::common::connection(ends[index], ends[1 - index]);
        let dynamic =
            vec![testudo_ike::config::TsSpec::Dynamic { protocol: 0, port_start: 0, port_end: u16::MAX }];
        if index == 0 {
            connection.vips = vec!["0.0.0.0".parse::<IpAddr>().unwrap()];
            connection.children[0].local_ts = dynamic;
        } else {
            connection.pools = vec!["pool".into()];
            connection.children[0].remote_ts = dynamic;
        }
        let host = world.add(ends[index].0, Default::default());
        host.load_secret(crate::scenarios::common::secret("psk", b"a shared key", &["moon", "sun"]));
        if index == 1 {
            host.load_pool(Pool {
                name: "pool".into(),
                base: "10.9.0.1".parse().unwrap(),
                addrs: crate::scenarios::common::build::range("10.9.0.1-10.9.0.9"),
                dns: vec![],
                subnets: vec![],
            });
        }
        host.load(now, connection);
    }
    world.initiate(0);
    world.run_secs(1);
    let addresses =
        |world: &World| world.hosts[0].virtual_ips.iter().map(|(addr, _)| *addr).collect::<Vec<_>>();
    let before = addresses(&world);
    assert_eq!(before.len(), 1);
    let (now, theirs) = (world.now, world.hosts[1].sas()[0].id);
    assert!(!world.hosts[1].endpoint.reauthenticate_ike(now, theirs));
    world.settle(1);
    reauthenticate(&mut world, 0);
    run_lossless(&mut world, Duration::from_secs(60));
    assert_one_tunnel(&world);
    assert_eq!(addresses(&world), before);
}
