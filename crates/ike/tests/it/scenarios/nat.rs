//! NATs on the way (RFC 7296 §2.23): found, crossed on port 4500, kept open, followed.

use crate::scenarios::answers::sun;
use crate::scenarios::common::build::range;
use crate::scenarios::common::network::{Datagram, Nat};
use crate::scenarios::common::peer::{self, Peer};
use crate::scenarios::common::wire::sent;
use crate::scenarios::common::{Weather, World};
use std::time::Duration;
use testudo_ike::endpoint::{Discard, NatStatus};
use testudo_ike::message::{ExchangeType, Notify, NotifyType, Payload};
use testudo_ike::output::Path;
use testudo_ipsec::sa::Encapsulation;

/// Host 0 is 10.0.0.1, and 198.51.100.7 to the outside.
fn behind_nat(seed: u64) -> World {
    let addrs = ["10.0.0.1", "192.0.2.2"];
    let mut world = World::pair_of(addrs, seed, Weather::FAIR, Default::default(), |index, connection| {
        if index == 1 {
            connection.remote_addrs = vec![];
        }
    });
    world.network.nat = Some(Nat::new("10.0.0.1", "198.51.100.7"));
    world
}

fn ports(world: &World, host: usize) -> (u16, u16) {
    let sa = &world.hosts[host].sas()[0];
    (sa.local.port(), sa.remote.port())
}

#[test]
fn a_nat_in_front_of_the_initiator() {
    let mut world = behind_nat(1);
    world.establish();
    assert_eq!(world.hosts[0].sas()[0].nat, NatStatus { local: true, remote: false, fake: false });
    assert_eq!(world.hosts[1].sas()[0].nat, NatStatus { local: false, remote: true, fake: false });
    assert_eq!(ports(&world, 0), (4500, 4500), "IKE_AUTH left on port 4500");
    let (local, remote) = ports(&world, 1);
    assert_eq!(local, 4500);
    assert!(remote > 40_000, "as the NAT made it");
    let sun = world.hosts[1].installed.values().next().unwrap();
    assert_eq!(sun.encapsulation, Encapsulation::Udp);
    assert_eq!(sun.remote, world.hosts[1].sas()[0].remote, "ESP shares the mapping with IKE");
    assert!(world.hosts[1].sas()[0].children[0].encap);
}

#[test]
fn the_side_behind_the_nat_sends_keepalives() {
    let mut world = behind_nat(2);
    world.initiate(0);
    world.run_secs(1);
    world.run_secs(200);
    assert_eq!(world.hosts[0].keepalives, 10, "one in 20 seconds");
    assert_eq!(world.hosts[1].keepalives, 0);
}

#[test]
fn the_peer_is_followed_when_the_nat_forgets() {
    let mut world = behind_nat(3);
    world.initiate(0);
    world.run_secs(1);
    let before = world.hosts[1].sas()[0].remote;
    world.network.nat.as_mut().unwrap().forget();
    // A forged message from elsewhere moves nothing.
    let auth = world.hosts[0].sent.last().unwrap().1.clone();
    world.forge("203.0.113.1:4500", "192.0.2.2:4500", &auth);
    let mut damaged = auth.clone();
    damaged[23] = 2; // the next Message ID
    *damaged.last_mut().unwrap() ^= 1;
    world.forge("203.0.113.1:4500", "192.0.2.2:4500", &damaged);
    world.run_secs(1);
    assert_eq!(world.hosts[1].sas()[0].remote, before);
    // An authentic one does: here the delete of a child, which is the next that host 0 says.
    let id = world.hosts[0].sas()[0].children[0].id;
    let now = world.now;
    world.hosts[0].endpoint.traffic_seen(now, id);
    world.hosts[0].endpoint.initiate(now, Some("site"), "net").unwrap();
    let child = testudo_ike::endpoint::Target::Child(id);
    world.hosts[0].endpoint.terminate(now, &child, false).unwrap();
    world.settle(0);
    world.run_secs(1);
    let after = world.hosts[1].sas()[0].remote;
    assert_ne!(before, after);
    assert!(world.hosts[0].installed.is_empty(), "the answer found its way");
    assert!(world.hosts[1].logged("the peer moved from"));
}

#[test]
fn the_children_move_with_the_peer() {
    let mut world = behind_nat(4);
    let now = world.now;
    let mut connection = crate::scenarios::common::connection(("10.0.0.1", "moon"), ("192.0.2.2", "sun"));
    connection.dpd_delay = Duration::from_secs(10);
    world.hosts[0].load(now, connection);
    world.initiate(0);
    world.run_secs(1);
    world.network.nat.as_mut().unwrap().forget();
    world.run_secs(60);
    let sun = world.hosts[1].installed.values().next().unwrap();
    assert_eq!(sun.remote, world.hosts[1].sas()[0].remote);
    assert_eq!(sun.remote.port(), 40_003, "the third mapping: after ports 500 and 4500, 4500 again");
    world.assert_tunnel();
}

#[test]
fn a_peer_without_nat_is_not_followed() {
    let mut world = World::pair_with(5, Weather::FAIR, |index, connection| {
        if index == 0 {
            connection.dpd_delay = Duration::from_secs(10);
        } else {
            // Its connection allows any address.
            connection.remote_addrs = vec![];
        }
    });
    world.initiate(0);
    world.run_secs(1);
    // From now on somebody on the way changes the source of what is authentic.
    world.network.nat = Some(Nat::new("192.0.2.1", "203.0.113.66"));
    let before = world.hosts[1].sas()[0].remote;
    world.run_secs(12);
    assert_eq!(world.hosts[1].sas()[0].remote, before);
    assert_eq!(world.hosts[1].endpoint.stats().discarded(Discard::Integrity), 0);
}

/// Nothing but ESP crosses the new mapping: the peer behind it has nothing to say in IKE.
#[test]
fn esp_alone_shows_that_the_peer_moved() {
    let mut world = behind_nat(8);
    world.initiate(0);
    world.run_secs(1);
    let child = world.hosts[1].sas()[0].children[0].clone();
    let to = "198.51.100.7:50123".parse().unwrap();
    let now = world.now;
    world.hosts[1].endpoint.esp_source(now, child.id, to);
    world.settle(1);
    assert_eq!(world.hosts[1].sas()[0].remote, to);
    assert_eq!(world.hosts[1].installed[&child.id].remote, to, "what goes out follows");
    assert_eq!(ports(&world, 1).0, 4500);
    assert!(world.hosts[1].logged("the peer moved from"));
    // An address that no host has belongs to none.
    world.hosts[1].endpoint.esp_source(
        now,
        testudo_ike::output::ChildSaId(0xdead_beef),
        "203.0.113.1:4500".parse().unwrap(),
    );
    assert_eq!(world.hosts[1].sas()[0].remote, to);
}

/// Only what something goes out through moves: what has a successor would take the place of that
/// again.
#[test]
fn a_replaced_child_stays_where_it_is() {
    let mut world = behind_nat(10);
    world.initiate(0);
    world.run_secs(1);
    let (now, ike) = (world.now, world.hosts[0].sas()[0].id);
    assert!(world.hosts[0].endpoint.reauthenticate_ike(now, ike));
    world.settle(0);
    world.run_secs(5);
    let children: Vec<_> = world.hosts[1].sas().into_iter().map(|sa| sa.children[0].clone()).collect();
    let [old, new] = &children[..] else { panic!("{children:#?}") };
    assert_eq!(world.hosts[1].sending, [new.id].into());
    let before = world.hosts[1].installed[&old.id].remote;
    let to = "198.51.100.7:50123".parse().unwrap();
    let now = world.now;
    for child in &children {
        world.hosts[1].endpoint.esp_source(now, child.id, to);
        world.settle(1);
    }
    assert_eq!(world.hosts[1].installed[&old.id].remote, before);
    assert_eq!(world.hosts[1].installed[&new.id].remote, to);
}

/// An initiator behind the NAT does not follow: packets from elsewhere do not show that we are
/// heard.
#[test]
fn esp_from_where_nobody_follows_is_no_sign_of_life() {
    let mut world = behind_nat(9);
    let now = world.now;
    let mut asking = crate::scenarios::common::connection(("10.0.0.1", "moon"), ("192.0.2.2", "sun"));
    asking.dpd_delay = Duration::from_secs(30);
    world.hosts[0].load(now, asking);
    world.initiate(0);
    world.run_secs(1);
    let child = world.hosts[0].sas()[0].children[0].clone();
    let home = world.hosts[0].installed[&child.id].remote;
    for (source, checked) in [("203.0.113.66:4500".parse().unwrap(), true), (home, false)] {
        let before = sent(&world, 0, ExchangeType::Informational, false).len();
        for second in 0..100 {
            let now = world.now;
            if second == 0 {
                world.hosts[0].endpoint.esp_source(now, child.id, source);
            }
            world.hosts[0].endpoint.traffic_seen(now, child.id);
            world.settle(0);
            world.run_secs(1);
        }
        let checks = sent(&world, 0, ExchangeType::Informational, false).len() - before;
        assert_eq!(checks >= 3, checked, "{checks} checks while ESP came from {source}");
        assert_eq!(world.hosts[0].installed[&child.id].remote, home);
    }
}

#[test]
fn encap_forces_udp_where_there_is_no_nat() {
    for forcing in 0..2 {
        let world = World::established(6, |index, connection| {
            connection.encap = index == forcing;
        });
        for host in 0..2 {
            assert_eq!(ports(&world, host), (4500, 4500));
            let params = world.hosts[host].installed.values().next().unwrap();
            assert_eq!(params.encapsulation, Encapsulation::Udp);
        }
        let fake = world.hosts[forcing].sas()[0].nat;
        assert_eq!(fake, NatStatus { local: false, remote: false, fake: true });
        assert!(world.hosts[1 - forcing].sas()[0].nat.remote, "so the peer believes");
    }
}

#[test]
fn a_conversation_on_port_4500_from_the_start() {
    let world = World::established(7, |_, connection| {
        connection.local_port = 4500;
        connection.remote_port = 4500;
    });
    assert!(world.hosts[0].sent.iter().all(|(path, _)| path.local.port() == 4500));
    assert!(!world.hosts[0].sas()[0].nat.any());
    let params = world.hosts[0].installed.values().next().unwrap();
    assert_eq!(params.encapsulation, Encapsulation::Plain, "no NAT, no UDP");
}

#[test]
fn foul_weather_behind_a_nat() {
    for seed in 0..100 {
        let mut world = behind_nat(seed);
        world.network.weather = Weather::FOUL;
        let now = world.now;
        let mut connection = crate::scenarios::common::connection(("10.0.0.1", "moon"), ("192.0.2.2", "sun"));
        connection.dpd_delay = Duration::from_secs(30);
        connection.keyingtries = 0;
        world.hosts[0].load(now, connection);
        world.initiate(0);
        for _ in 0..4 {
            world.run_secs(50);
            world.network.nat.as_mut().unwrap().forget();
        }
        world.network.weather = Weather::FAIR;
        world.run_secs(300);
        world.initiate(0);
        world.run_secs(10);
        let moon = world.hosts[0].installed.values().next().expect("a tunnel");
        let sun = world.hosts[1].installed.values().find(|p| p.spi_in == moon.spi_out).expect("of two ends");
        crate::scenarios::common::world::assert_fit(moon, sun);
        assert_eq!(sun.remote.ip(), "198.51.100.7".parse::<std::net::IpAddr>().unwrap());
    }
}

#[test]
fn replays_from_elsewhere_do_not_stop_keepalives() {
    let mut world = sun();
    // The peer saw other addresses on both sides: NATs in front of both.
    let elsewhere = |kind| Payload::Notify(Notify::new(kind, vec![0; 20]));
    let seen = [NotifyType::NatDetectionSourceIp, NotifyType::NatDetectionDestinationIp].map(elsewhere);
    let mut peer = Peer::init(&mut world, 9, seen.to_vec());
    let payloads = peer.auth_payloads();
    peer.request(&mut world, ExchangeType::IkeAuth, payloads).unwrap();
    let nat = world.hosts[0].sas()[0].nat;
    assert!(nat.local && nat.remote);
    let path = Path { local: "203.0.113.5:4500".parse().unwrap(), ..peer.path };
    for _ in 0..10 {
        world.run_secs(10);
        assert_eq!(peer::exchange(&mut world, path, &peer.last).len(), 1);
    }
    assert_eq!(world.hosts[0].keepalives, 5);
}

/// The responder knows where the peer is. Its configured address is that of the NAT, on whose
/// ordinary port nobody listens.
#[test]
fn the_responder_reauthenticates_a_peer_behind_a_nat_where_it_is() {
    let mut world = behind_nat(8);
    let mut connection = world.hosts[1].endpoint.connection("site").unwrap().clone();
    connection.remote_addrs = vec![range("198.51.100.7")];
    let now = world.now;
    world.hosts[1].load(now, connection);
    world.establish();
    let (now, old) = (world.now, world.hosts[1].sas()[0].id);
    assert!(world.hosts[1].endpoint.reauthenticate_ike(now, old));
    world.settle(1);
    world.run_secs(30);
    world.assert_tunnel();
    assert!(world.hosts[1].sas().iter().all(|sa| sa.id != old), "{:#?}", world.hosts[1].log());
}

/// A NAT may move the responder, and the initiator follows it. One that is behind a NAT itself does
/// not: somebody on the way could lead it anywhere (RFC 7296 §2.23).
#[test]
fn an_initiator_behind_a_nat_does_not_follow() {
    for behind in [false, true] {
        let addrs = [if behind { "10.0.0.1" } else { "192.0.2.1" }, "192.0.2.2"];
        let mut world = World::pair_of(addrs, 11, Weather::FAIR, Default::default(), |index, connection| {
            if index == 0 {
                connection.remote_addrs.push(range("192.0.2.0-192.0.2.255"));
            } else {
                // The responder looks as if it were behind a NAT.
                (connection.encap, connection.remote_addrs) = (true, vec![]);
                connection.dpd_delay = Duration::from_secs(10);
            }
        });
        world.network.nat = behind.then(|| Nat::new("10.0.0.1", "198.51.100.7"));
        world.establish();
        let moon = world.hosts[0].sas().swap_remove(0);
        assert_eq!((moon.nat.local, moon.nat.remote), (behind, true));
        world.network.up = false;
        world.run_secs(12);
        let bytes = world.hosts[1].sent.last().unwrap().1.clone();
        let from = "192.0.2.77:4500".parse().unwrap();
        world.deliver(&Datagram { from, to: moon.local, bytes });
        assert_eq!(world.hosts[0].sas()[0].remote == from, !behind);
    }
}

/// One of the two notifies says nothing: its sender does not support NAT traversal.
#[test]
fn one_notify_alone_detects_no_nat() {
    for kind in [NotifyType::NatDetectionSourceIp, NotifyType::NatDetectionDestinationIp] {
        let mut world = sun();
        let alone = Payload::Notify(Notify::new(kind, vec![0; 20]));
        let mut peer = Peer::init(&mut world, 12, vec![alone]);
        let payloads = peer.auth_payloads();
        peer.request(&mut world, ExchangeType::IkeAuth, payloads).unwrap();
        assert_eq!(world.hosts[0].sas()[0].nat, NatStatus::default(), "{kind}");
    }
}
