//! Traps for peers of any address, in transport mode: the packet determines the peer.

use crate::scenarios::common::{Weather, World};
use std::net::IpAddr;
use testudo_ike::config::{ChildMode, Connection, StartAction, TsSpec};
use testudo_ike::endpoint::{InitiateError, LoadError, PacketEnds};
use testudo_ipsec::sa::Mode;

const DYNAMIC: TsSpec = TsSpec::Dynamic { protocol: 0, port_start: 0, port_end: u16::MAX };

fn anybody(connection: &mut Connection) {
    connection.local_addrs.clear();
    connection.remote_addrs.clear();
    connection.remote.id = None;
    let child = &mut connection.children[0];
    (child.mode, child.start_action) = (ChildMode::Transport, StartAction::Trap);
    (child.local_ts, child.remote_ts) = (vec![DYNAMIC], vec![DYNAMIC]);
}

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Both ends accept any peer; `edit` changes the first.
fn world(seed: u64, edit: impl Fn(&mut Connection)) -> World {
    let mut world = World::pair_with(seed, Weather::FAIR, |index, connection| {
        anybody(connection);
        if index == 0 {
            edit(connection);
        }
    });
    for host in &mut world.hosts {
        let ours = host.addr;
        host.endpoint.set_local_addresses(vec![ours]);
        // Any peer that has the key.
        host.load_secret(crate::scenarios::common::secret("psk", b"a shared key", &[]));
    }
    world
}

fn ends(local: &str, remote: IpAddr) -> PacketEnds {
    PacketEnds { local: addr(local), remote }
}

fn packet(world: &mut World, to: &str) -> Result<testudo_ike::output::IkeSaId, InitiateError> {
    let now = world.now;
    let begun = world.hosts[0].endpoint.acquire_for(now, "site", "net", ends("192.0.2.1", addr(to)));
    world.settle(0);
    begun
}

#[test]
fn the_packet_says_who_the_peer_is() {
    let narrow = |connection: &mut Connection| {
        connection.children[0].remote_ts =
            vec![TsSpec::Fixed(crate::scenarios::common::build::ts("192.0.2.0-192.0.2.3"))];
    };
    for edit in [|_: &mut Connection| {}, narrow as fn(&mut Connection)] {
        let mut world = world(1, edit);
        assert!(world.hosts[0].endpoint.is_trapped("site", "net"));
        let first = packet(&mut world, "192.0.2.2").unwrap();
        assert_eq!(packet(&mut world, "192.0.2.2"), Ok(first), "it is on its way");
        world.run_secs(1);
        world.assert_tunnel();
        let params = world.hosts[0].installed.values().next().unwrap();
        assert_eq!((params.mode, params.remote.ip()), (Mode::Transport, addr("192.0.2.2")));
        assert_eq!(params.remote_ts, [crate::scenarios::common::build::ts("192.0.2.2")]);
        assert_eq!(packet(&mut world, "192.0.2.2"), Ok(first), "it is up");
        // Another peer has an IKE SA of its own; here it is silent, and is tried where the packet
        // went.
        assert_ne!(packet(&mut world, "192.0.2.3"), Ok(first));
        world.run_secs(1000);
        assert!(world.hosts[0].warned("no answer from 192.0.2.3"));
        world.assert_tunnel();
    }
}

#[test]
fn only_packets_between_hosts_trigger_an_initiation() {
    let mut world = world(2, |connection| {
        connection.remote_addrs = vec![crate::scenarios::common::build::range("192.0.2.0-192.0.2.255")];
    });
    for to in ["224.0.0.251", "255.255.255.255", "198.51.100.1"] {
        assert!(matches!(packet(&mut world, to), Err(InitiateError::NotBetweenHosts { .. })), "{to}");
    }
    let now = world.now;
    let forwarded = ends("10.1.0.1", addr("192.0.2.2"));
    let begun = world.hosts[0].endpoint.acquire_for(now, "site", "net", forwarded);
    assert!(matches!(begun, Err(InitiateError::NotBetweenHosts { .. })));
    assert!(world.hosts[0].sas().is_empty());
}

#[test]
fn packets_begin_so_many_at_once() {
    let mut world = world(3, |_| {});
    world.restore = false;
    let refused = (0..300_u32).filter(|n| {
        let to = IpAddr::V4((0xC633_6400 + n).into());
        let now = world.now;
        let begun = world.hosts[0].endpoint.acquire_for(now, "site", "net", ends("192.0.2.1", to));
        matches!(begun, Err(InitiateError::TooMany { .. }))
    });
    assert_eq!(refused.count(), 300 - 256);
}

/// A packet in tunnel mode does not determine the other end, and there is no peer to initiate to.
#[test]
fn a_tunnel_and_a_start_need_an_address() {
    let edits: [fn(&mut Connection); 3] = [
        |connection| connection.children[0].mode = ChildMode::Tunnel,
        |connection| connection.children[0].start_action = StartAction::TrapStart,
        |connection| connection.children[0].dpd_action = StartAction::Start,
    ];
    for edit in edits {
        let mut world = world(4, |_| {});
        let mut connection = world.hosts[0].endpoint.connections().next().unwrap().clone();
        edit(&mut connection);
        let now = world.now;
        let refused = world.hosts[0].endpoint.load_connection(now, connection).unwrap_err();
        assert!(matches!(refused, LoadError::NoPeer { .. }));
        assert!(refused.to_string().contains("only a trap in transport mode does without"));
    }
}

/// An operator gives a trap, and takes it away.
#[test]
fn a_trap_comes_and_goes() {
    let mut world = world(5, |connection| connection.children[0].start_action = StartAction::None);
    let endpoint = &mut world.hosts[0].endpoint;
    assert!(!endpoint.is_trapped("site", "net"));
    endpoint.set_trap("site", "net", true);
    assert!(endpoint.is_trapped("site", "net"));
    endpoint.set_trap("site", "net", false);
    assert!(!endpoint.is_trapped("site", "net"));
}
