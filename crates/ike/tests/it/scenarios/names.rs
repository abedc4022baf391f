//! DNS names in the place of addresses: the host resolves them, before an initiation and now and
//! then.

use crate::scenarios::common::{Weather, World};
use std::net::IpAddr;
use testudo_ike::config::{Connection, HostName, StartAction};

const NAME: &str = "peer.lab.example";

/// The peer is known by its name alone.
fn by_name(connection: &mut Connection) {
    connection.remote_addrs.clear();
    connection.names.remote = vec![HostName { name: NAME.into(), place: 0, addrs: Vec::new() }];
}

/// That host knows the other by its name alone.
fn world(seed: u64, which: usize) -> World {
    World::pair_with(seed, Weather::FAIR, |index, connection| {
        if index == which {
            by_name(connection);
        }
    })
}

fn addrs(addrs: &[&str]) -> Result<Vec<IpAddr>, String> {
    Ok(addrs.iter().map(|addr| addr.parse().unwrap()).collect())
}

/// Resolves a host's names; returns the connections whose addresses change.
fn answer(world: &mut World, host: usize, result: Result<Vec<IpAddr>, String>) -> Vec<String> {
    assert_eq!(world.hosts[host].endpoint.take_names(), [NAME]);
    let now = world.now;
    let changed = world.hosts[host].endpoint.resolved(now, NAME, result);
    world.settle(host);
    changed
}

#[test]
fn an_initiation_waits_for_the_name() {
    let mut world = world(1, 0);
    let id = world.initiate(0);
    assert_eq!(world.initiate(0), id, "the second one waits with the first");
    assert!(world.hosts[0].sent.is_empty() && world.hosts[0].sas().is_empty());
    // The second address of a name is for those that reach it.
    assert_eq!(answer(&mut world, 0, addrs(&["2001:db8::2", "192.0.2.2"])), ["site"]);
    world.run_secs(1);
    world.assert_tunnel();
    assert_eq!(world.hosts[0].sas()[0].id, id);
    assert!(world.hosts[0].results().iter().all(Result::is_ok));
}

#[test]
fn a_name_is_looked_up_before_each_initiation_and_now_and_then() {
    let mut world = world(2, 0);
    answer(&mut world, 0, addrs(&["192.0.2.2"]));
    assert!(world.hosts[0].endpoint.take_names().is_empty(), "it was resolved when it was loaded");
    world.initiate(0);
    assert!(world.hosts[0].sent.is_empty());
    assert_eq!(answer(&mut world, 0, addrs(&["192.0.2.2"])), [""; 0], "nothing has changed");
    world.run_secs(1);
    world.assert_tunnel();
    world.run_secs(60);
    assert_eq!(answer(&mut world, 0, addrs(&["192.0.2.2"])), [""; 0]);
    world.hosts[0].endpoint.unload_connection("site");
    world.run_secs(600);
    assert!(world.hosts[0].endpoint.take_names().is_empty(), "nobody has the name any more");
}

#[test]
fn a_name_that_is_not_resolved_fails_the_initiation_which_is_tried_again() {
    let mut world = World::pair_with(3, Weather::FAIR, |index, connection| {
        if index == 0 {
            by_name(connection);
            connection.children[0].start_action = StartAction::Start;
        }
    });
    world.settle(0);
    answer(&mut world, 0, Err("no such name".into()));
    assert!(world.hosts[0].warned("cannot resolve peer.lab.example: no such name"));
    assert!(matches!(world.hosts[0].results()[..], [Err(_)]));
    world.run_secs(31);
    answer(&mut world, 0, addrs(&["192.0.2.2"]));
    world.run_secs(1);
    world.assert_tunnel();
    // A name that was resolved once stays in use.
    world.run_secs(61);
    answer(&mut world, 0, Err("the server is away".into()));
    assert!(world.hosts[0].warned("the server is away"));
    let now = world.now;
    world.hosts[0].endpoint.terminate(now, &testudo_ike::endpoint::Target::All, false).unwrap();
    world.settle(0);
    world.run_secs(5);
    world.initiate(0);
    answer(&mut world, 0, Err("the server is away".into()));
    world.run_secs(1);
    world.assert_tunnel();
}

/// Until it is resolved a name matches no peer; it never matches every peer.
#[test]
fn a_responder_takes_a_peer_by_its_name_when_it_knows_its_address() {
    let mut world = world(4, 1);
    world.initiate(0);
    world.run_secs(5);
    assert!(matches!(world.hosts[0].results()[..], [Err(_)]));
    assert!(world.hosts[1].logged("no connection is configured between"));
    answer(&mut world, 1, addrs(&["198.51.100.9", "0.0.0.0", "192.0.2.1"]));
    world.initiate(0);
    world.run_secs(1);
    world.assert_tunnel();

    let mut world = self::world(5, 1);
    answer(&mut world, 1, addrs(&["198.51.100.9"]));
    world.initiate(0);
    world.run_secs(5);
    assert!(matches!(world.hosts[0].results()[..], [Err(_)]), "the name is another host's");
    answer_again(&mut world, addrs(&["0.0.0.0", "224.0.0.1"]));
    assert!(world.hosts[1].warned("it has no address that a host can have"));
}

fn answer_again(world: &mut World, result: Result<Vec<IpAddr>, String>) {
    world.run_secs(61);
    answer(world, 1, result);
}

/// The peer does not answer where it was; its name says where it is now.
#[test]
fn an_attempt_follows_the_name() {
    let mut world = World::pair_with(6, Weather::FAIR, |index, connection| {
        if index == 0 {
            by_name(connection);
            connection.keyingtries = 0;
        }
    });
    world.initiate(0);
    answer(&mut world, 0, addrs(&["192.0.2.77"]));
    // The first attempt is given up, and the next begins with another look.
    world.run_until(|world| world.hosts[0].logged("trying again (2)"));
    answer(&mut world, 0, addrs(&["192.0.2.2"]));
    world.run_secs(1);
    assert!(world.hosts[0].logged("the peer has another address"));
    world.assert_tunnel();
}

/// The present address of a name is not a change by the operator.
#[test]
fn other_addresses_touch_no_sa() {
    let mut world = world(7, 0);
    world.initiate(0);
    answer(&mut world, 0, addrs(&["192.0.2.2"]));
    world.run_secs(1);
    world.assert_tunnel();
    let (now, before) = (world.now, world.hosts[0].sas()[0].id);
    let mut connection = world.hosts[0].endpoint.connections().next().unwrap().clone();
    connection.names.remote[0].addrs.clear();
    world.hosts[0].load(now, connection);
    world.settle(0);
    world.run_secs(61);
    answer(&mut world, 0, addrs(&["198.51.100.1"]));
    world.run_secs(60);
    world.assert_tunnel();
    assert_eq!(world.hosts[0].sas()[0].id, before);
    assert!(!world.hosts[0].logged("connection site changed"));
}
