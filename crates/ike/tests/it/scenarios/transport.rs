//! Transport mode: agreed on by both sides, for what they themselves exchange, and otherwise a
//! tunnel (RFC 7296 §1.3.1).

use crate::scenarios::common::build::{child, ts};
use crate::scenarios::common::network::Nat;
use crate::scenarios::common::peer::Peer;
use crate::scenarios::common::responder::Responder;
use crate::scenarios::common::tunnels::{assert_one_tunnel, child_rekeys, run_lossless};
use crate::scenarios::common::{Weather, World};
use std::time::Duration;
use testudo_ike::config::{ChildLifetime, ChildMode, Connection, Lifetime, TsSpec};
use testudo_ike::message::{ExchangeType, Notify, NotifyType, Payload, TsPayload};
use testudo_ipsec::sa::{Encapsulation, Mode};

const DYNAMIC: TsSpec = TsSpec::Dynamic { protocol: 0, port_start: 0, port_end: u16::MAX };

/// The child is for the two hosts, without another IP header.
fn between_hosts(connection: &mut Connection) {
    let child = &mut connection.children[0];
    child.mode = ChildMode::Transport;
    (child.local_ts, child.remote_ts) = (vec![DYNAMIC], vec![DYNAMIC]);
}

/// The addresses of the two hosts.
fn modes(world: &World) -> [Vec<Mode>; 2] {
    [0, 1].map(|index| world.hosts[index].installed.values().map(|sa| sa.mode).collect())
}

const TRANSPORT: [&[Mode]; 2] = [&[Mode::Transport]; 2];
const TUNNEL: [&[Mode]; 2] = [&[Mode::Tunnel]; 2];

#[test]
fn both_want_it_and_have_it_for_good() {
    for renewing in 0..2 {
        let mut world = World::established(renewing as u64, |index, connection| {
            between_hosts(connection);
            if index == renewing {
                let time = Lifetime::new(1000, None, None);
                connection.children[0].lifetime = ChildLifetime { time, ..ChildLifetime::default() };
            }
        });
        assert_eq!(modes(&world), TRANSPORT);
        assert_eq!(world.hosts[0].sas()[0].children[0].mode, Mode::Transport);
        run_lossless(&mut world, Duration::from_secs(4990));
        world.run_secs(20);
        assert!(child_rekeys(&world.hosts[renewing]) >= 4);
        assert_one_tunnel(&world);
        assert_eq!(modes(&world), TRANSPORT, "renewed, too");
    }
}

#[test]
fn a_peer_that_does_not_want_transport_mode_gets_a_tunnel() {
    for wants in 0..2 {
        let world = World::established(3, |index, connection| {
            between_hosts(connection);
            if index != wants {
                connection.children[0].mode = ChildMode::Tunnel;
            }
        });
        assert_eq!(modes(&world), TUNNEL, "host {wants} wants it alone");
        let said = "no transport mode, but a tunnel: the peer does not want it";
        assert!(world.hosts[wants].logged(said), "{:#?}", world.hosts[wants].log());
        assert!(!world.hosts[1 - wants].logged("no transport mode"));
    }
}

#[test]
fn networks_behind_the_hosts_get_a_tunnel() {
    let world = World::established(4, |_, connection| connection.children[0].mode = ChildMode::Transport);
    assert_eq!(modes(&world), TUNNEL);
    assert!(world.hosts[0].logged("the selectors are not the addresses of the two hosts"));
}

/// The host is at one end of a range, and others are in it.
#[test]
fn neighbours_of_a_host_get_a_tunnel() {
    for range in ["192.0.2.1-192.0.2.9", "192.0.2.0-192.0.2.1"] {
        let world = World::established(6, |index, connection| {
            between_hosts(connection);
            let child = &mut connection.children[0];
            let side = if index == 0 { &mut child.local_ts } else { &mut child.remote_ts };
            *side = vec![TsSpec::Fixed(ts(range))];
        });
        assert_eq!(modes(&world), TUNNEL, "{range}");
    }
}

/// A further child is asked for by CREATE_CHILD_SA.
#[test]
fn a_further_child_has_its_own_mode() {
    let mut world = World::established(5, |_, connection| {
        let mut hosts = child("hosts", "10.1.0.1", "10.1.0.1");
        hosts.mode = ChildMode::Transport;
        (hosts.local_ts, hosts.remote_ts) = (vec![DYNAMIC], vec![DYNAMIC]);
        connection.children.push(hosts);
    });
    assert_eq!(modes(&world), TUNNEL);
    let now = world.now;
    world.hosts[0].endpoint.initiate(now, Some("site"), "hosts").unwrap();
    world.settle(0);
    world.run_secs(1);
    assert_eq!(modes(&world), [(); 2].map(|()| vec![Mode::Tunnel, Mode::Transport]));
}

/// The packets of a transport mode SA have the addresses that its selectors name. A new port of the
/// peer is followed, and a new address is not: the checksums would not fit.
#[test]
fn transport_mode_follows_a_port_but_no_address() {
    for (to, follows) in [("192.0.2.1:50123", true), ("203.0.113.7:50123", false)] {
        let mut world = World::established(8, |index, connection| {
            between_hosts(connection);
            connection.encap = index == 0;
        });
        assert_eq!(modes(&world), TRANSPORT);
        let child = world.hosts[1].sas()[0].children[0].id;
        let before = world.hosts[1].installed[&child].remote;
        let (now, to) = (world.now, to.parse().unwrap());
        world.hosts[1].endpoint.esp_source(now, child, to);
        world.settle(1);
        let expected = if follows { to } else { before };
        assert_eq!(world.hosts[1].installed[&child].remote, expected, "{to}");
    }
}

/// UDP without a NAT: no address changes on the way, so that no checksum does.
#[test]
fn in_udp_where_the_addresses_stay() {
    for renewing in 0..2 {
        let mut world = World::established(6, |index, connection| {
            between_hosts(connection);
            connection.encap = index == 0;
            if index == renewing {
                let time = Lifetime::new(1000, None, None);
                connection.children[0].lifetime = ChildLifetime { time, ..ChildLifetime::default() };
            }
        });
        let check = |world: &World| {
            assert_eq!(modes(world), TRANSPORT);
            let sas = || world.hosts.iter().flat_map(|host| host.installed.values());
            assert!(sas().all(|sa| sa.encapsulation == Encapsulation::Udp));
        };
        check(&world);
        run_lossless(&mut world, Duration::from_secs(1990));
        world.run_secs(30);
        check(&world);
    }
}

/// The responder sees another address than the initiator names.
#[test]
fn behind_a_nat_it_is_a_tunnel() {
    let hidden = "10.0.0.1";
    for names in [hidden, "198.51.100.7"] {
        let addrs = [hidden, "192.0.2.2"];
        let mut world = World::pair_of(addrs, 7, Weather::FAIR, Default::default(), |index, connection| {
            between_hosts(connection);
            let named = |addr: &str| vec![TsSpec::Fixed(crate::scenarios::common::build::ts(addr))];
            if index == 1 {
                connection.remote_addrs = vec![];
                connection.children[0].remote_ts = named(names);
            } else {
                connection.children[0].local_ts = named(names);
            }
        });
        world.network.nat = Some(Nat::new(hidden, "198.51.100.7"));
        world.establish();
        assert_eq!(modes(&world), TUNNEL, "{names}");
    }
}

/// The responder seems to be behind a NAT: it would agree, and is not asked.
#[test]
fn a_peer_behind_a_nat_is_asked_for_a_tunnel() {
    let world = World::established(9, |index, connection| {
        between_hosts(connection);
        connection.encap = index == 1;
    });
    assert_eq!(modes(&world), TUNNEL);
}

/// A responder would agree although the initiator asks from behind a NAT, by what it sees: its
/// answer is what counts.
#[test]
fn a_responder_agrees_to_addresses_that_it_sees_only() {
    for (named, agreed) in [("192.0.2.1", true), ("10.0.0.1", false)] {
        let mut world = World::pair_with(8, Weather::FAIR, |_, connection| between_hosts(connection));
        world.hosts.remove(0);
        let now = world.now;
        let mut sun = crate::scenarios::common::connection(("192.0.2.2", "sun"), ("192.0.2.1", "moon"));
        between_hosts(&mut sun);
        sun.children[0].remote_ts = vec![TsSpec::Fixed(crate::scenarios::common::build::ts(named))];
        world.hosts[0].load(now, sun);
        let mut peer = Peer::init(&mut world, 9, vec![]);
        let mut payloads = peer.auth_payloads();
        for payload in &mut payloads {
            let ts = |addr| TsPayload::new(vec![crate::scenarios::common::build::ts(addr)]);
            match payload {
                Payload::TsInitiator(own) => *own = ts(named),
                Payload::TsResponder(other) => *other = ts("192.0.2.2"),
                _ => {}
            }
        }
        payloads.push(Payload::Notify(Notify::new(NotifyType::UseTransportMode, vec![])));
        let answer = peer.request(&mut world, ExchangeType::IkeAuth, payloads).unwrap();
        let says = |payload: &Payload| matches!(payload, Payload::Notify(notify) if notify.kind == NotifyType::UseTransportMode);
        assert_eq!(answer.iter().any(says), agreed, "{named}");
        let installed = world.hosts[0].installed.values().next().unwrap();
        assert_eq!(installed.mode == Mode::Transport, agreed);
    }
}

#[test]
fn an_answer_that_was_not_asked_for_is_refused_and_deleted() {
    let mut world = World::pair(1, Weather::FAIR);
    world.hosts.remove(1);
    let mut sun = Responder::answer_init(&mut world);
    let mut payloads = sun.auth_payloads();
    payloads.push(Payload::Notify(Notify::new(NotifyType::UseTransportMode, vec![])));
    let said = sun.answer(&mut world, ExchangeType::IkeAuth, 1, payloads);
    assert!(world.hosts[0].installed.is_empty());
    assert!(world.hosts[0].logged("USE_TRANSPORT_MODE, which was not asked for"));
    assert!(matches!(&said[0].1[..], [Payload::Delete(_)]), "{said:?}");
}

#[test]
fn another_mode_is_another_sa() {
    let mut world = World::established(10, |_, connection| between_hosts(connection));
    for mode in [ChildMode::Tunnel, ChildMode::Transport] {
        for (index, ends) in [
            (1, [("192.0.2.2", "sun"), ("192.0.2.1", "moon")]),
            (0, [("192.0.2.1", "moon"), ("192.0.2.2", "sun")]),
        ] {
            let now = world.now;
            let mut connection = crate::scenarios::common::connection(ends[0], ends[1]);
            between_hosts(&mut connection);
            connection.children[0].mode = mode;
            world.hosts[index].load(now, connection);
            world.settle(index);
        }
        world.run_secs(200);
        assert_one_tunnel(&world);
        let expected = if mode == ChildMode::Tunnel { TUNNEL } else { TRANSPORT };
        assert_eq!(modes(&world), expected);
    }
}
