//! The handling of lost tunnels: `dpd_action`, `close_action`; and the number of SAs of a peer:
//! `unique`.

use crate::scenarios::common::{PACKET, Weather, World};
use std::time::Duration;
use testudo_ike::config::{Child, Connection, Identity, LocalAuth, StartAction, Unique};
use testudo_ike::endpoint::{LoadError, Target};

/// A tunnel from host 0, which asks after 30 seconds of silence.
fn tunnel(edit: impl Fn(&mut Child)) -> World {
    World::established(1, |index, connection| {
        if index == 0 {
            connection.dpd_delay = Duration::from_secs(30);
            edit(&mut connection.children[0]);
        }
    })
}

/// Host 1 is away for so long, and comes back without a memory.
fn away(world: &mut World, seconds: u64) {
    world.hosts[1].stopped = true;
    world.run_secs(seconds);
    let now = world.now;
    world.hosts[1].endpoint.terminate(now, &Target::All, true).unwrap();
    world.settle(1);
    world.hosts[1].stopped = false;
}

#[test]
fn a_restart_goes_on_until_the_peer_is_back() {
    let mut world = tunnel(|child| child.dpd_action = StartAction::Start);
    away(&mut world, 1000);
    assert!(world.hosts[0].logged("restarting CHILD_SA net"));
    world.run_secs(200);
    world.assert_tunnel();
}

#[test]
fn without_an_action_a_lost_tunnel_stays_down() {
    let mut world = tunnel(|child| child.close_action = StartAction::Start);
    away(&mut world, 1000);
    world.run_secs(600);
    world.assert_nothing_left();
    assert!(!world.hosts[0].endpoint.is_trapped("site", "net"));
}

#[test]
fn a_trap_waits_for_the_next_packet() {
    let mut world = tunnel(|child| child.dpd_action = StartAction::Trap);
    assert!(!world.hosts[0].endpoint.is_trapped("site", "net"), "not before it is lost");
    away(&mut world, 1000);
    world.run_secs(600);
    world.assert_nothing_left();
    assert!(world.hosts[0].endpoint.is_trapped("site", "net"));
    let now = world.now;
    world.hosts[0].endpoint.acquire_for(now, "site", "net", PACKET).unwrap();
    world.settle(0);
    world.run_secs(1);
    world.assert_tunnel();
    world.hosts[0].endpoint.unload_connection("site");
    assert!(!world.hosts[0].endpoint.is_trapped("site", "net"));
}

/// The object that host 1 deletes: only the child, or the IKE SA with it.
fn deletes(world: &mut World, child: bool) {
    let sa = &world.hosts[1].sas()[0];
    let target = if child { Target::Child(sa.children[0].id) } else { Target::Ike(sa.id) };
    let now = world.now;
    world.hosts[1].endpoint.terminate(now, &target, false).unwrap();
    world.settle(1);
}

#[test]
fn a_child_that_the_peer_closes_is_started_again() {
    for child in [true, false] {
        let mut world = tunnel(|child| child.close_action = StartAction::Start);
        let before = world.hosts[0].sas()[0].children[0].id;
        deletes(&mut world, child);
        world.run_secs(60);
        world.assert_tunnel();
        assert_ne!(world.hosts[0].sas().last().unwrap().children[0].id, before);
    }
}

#[test]
fn a_child_closed_locally_stays_closed() {
    let both = |child: &mut Child| {
        (child.dpd_action, child.close_action) = (StartAction::Start, StartAction::TrapStart);
    };
    let mut world = tunnel(both);
    let now = world.now;
    world.hosts[0].endpoint.terminate(now, &Target::All, false).unwrap();
    world.settle(0);
    world.run_secs(600);
    world.assert_nothing_left();
    // Also if the peer does not answer any more, or says the same at that moment.
    let mut world = tunnel(both);
    let now = world.now;
    world.hosts[0].endpoint.terminate(now, &Target::All, false).unwrap();
    deletes(&mut world, false);
    world.settle(0);
    world.run_secs(600);
    world.assert_nothing_left();
}

#[test]
fn trap_and_start_do_both() {
    let mut world = tunnel(|child| child.start_action = StartAction::TrapStart);
    assert!(world.hosts[0].endpoint.is_trapped("site", "net"));
    deletes(&mut world, false);
    world.run_secs(60);
    world.assert_nothing_left();
    assert!(world.hosts[0].endpoint.is_trapped("site", "net"));
}

/// A lost child that also waits for a packet by its `dpd_action` or `close_action`: a load that
/// turns the trap of its `start_action` off untraps it, and another load does not.
#[test]
fn a_load_that_turns_the_trap_off_untraps_a_lost_child() {
    for before in [StartAction::Trap, StartAction::None] {
        let mut world = tunnel(|child| {
            (child.start_action, child.dpd_action) = (before, StartAction::Trap);
        });
        away(&mut world, 1000);
        assert!(world.hosts[0].endpoint.is_trapped("site", "net"));
        let mut connection = world.hosts[0].endpoint.connections().next().unwrap().clone();
        connection.children[0].start_action = StartAction::None;
        connection.dpd_delay = Duration::from_secs(40);
        let now = world.now;
        world.hosts[0].endpoint.load_connection(now, connection).unwrap();
        let is_trapped = world.hosts[0].endpoint.is_trapped("site", "net");
        assert_eq!(is_trapped, before == StartAction::None, "{before:?}");
    }
}

#[test]
fn an_action_needs_somebody_to_initiate_to() {
    let mut world = tunnel(|_| {});
    let mut connection = world.hosts[0].endpoint.connections().next().unwrap().clone();
    connection.remote_addrs = vec![];
    connection.children[0].dpd_action = StartAction::Start;
    let now = world.now;
    let refused = world.hosts[0].endpoint.load_connection(now, connection);
    assert!(matches!(refused, Err(LoadError::NoPeer { key: "dpd_action", .. })), "{refused:?}");
}

/// Host 0 sets up a second IKE SA, by another connection between the same identities, its name in
/// capitals being the same; and from another port, because one from the same is taken for a
/// reauthentication.
fn twice(unique: Unique, theirs: Unique) -> World {
    let mut world = World::pair_with(1, Weather::FAIR, |index, connection| {
        connection.unique = if index == 0 { theirs } else { unique };
    });
    let now = world.now;
    let site = world.hosts[0].endpoint.connections().next().unwrap().clone();
    let local = LocalAuth::psk(Some(Identity::Fqdn("MOON".into())));
    world.hosts[0].load(now, Connection { name: "twin".into(), local, local_port: 4500, ..site });
    for connection in ["site", "twin"] {
        let now = world.now;
        world.hosts[0].endpoint.initiate(now, Some(connection), "net").unwrap();
        world.settle(0);
        world.run_secs(5);
    }
    world
}

/// Two connections to a peer that wants only one of them: each brings itself up when it has to go,
/// but not for ever at once.
#[test]
fn tunnels_that_displace_each_other_take_their_time() {
    let mut world = World::pair_with(1, Weather::FAIR, |index, connection| {
        if index == 0 {
            connection.children[0].close_action = StartAction::Start;
        } else {
            connection.unique = Unique::Replace;
        }
    });
    let now = world.now;
    let site = world.hosts[0].endpoint.connections().next().unwrap().clone();
    world.hosts[0].load(now, Connection { name: "twin".into(), ..site });
    for connection in ["site", "twin"] {
        world.hosts[0].endpoint.initiate(now, Some(connection), "net").unwrap();
        world.settle(0);
    }
    world.run_secs(60);
    let established = world.hosts[0].endpoint.stats().established;
    assert!((4..=24).contains(&established), "{established}");
}

/// Numbers of IKE SAs of both hosts.
fn counts(world: &World) -> [usize; 2] {
    [0, 1].map(|host| world.hosts[host].sas().len())
}

#[test]
fn a_peer_may_have_two_ike_sas() {
    assert_eq!(counts(&twice(Unique::No, Unique::No)), [2, 2]);
    assert_eq!(counts(&twice(Unique::Never, Unique::No)), [2, 2]);
}

#[test]
fn replace_deletes_the_older_one() {
    let world = twice(Unique::Replace, Unique::No);
    assert_eq!(counts(&world), [1, 1]);
    assert_eq!(world.hosts[1].sas()[0].children.len(), 1);
    assert!(world.hosts[0].logged("closed: deleted by the peer"));
    world.assert_tunnel();
}

#[test]
fn keep_refuses_the_newer_one() {
    let world = twice(Unique::Keep, Unique::No);
    assert_eq!(counts(&world), [1, 1]);
    assert!(world.hosts[0].results()[1].as_ref().unwrap_err().to_string().contains("AUTHENTICATION_FAILED"));
    assert!(world.hosts[1].logged("unique = keep"));
    world.assert_tunnel();
}

/// Host 0 forgets all, and says so, unless `theirs` is `never`.
fn anew(unique: Unique, theirs: Unique) -> World {
    let mut world = twice(unique, theirs);
    let now = world.now;
    world.hosts[0].stopped = true;
    world.hosts[0].endpoint.terminate(now, &Target::All, true).unwrap();
    world.settle(0);
    world.hosts[0].stopped = false;
    world.hosts[0].endpoint.initiate(now, Some("site"), "net").unwrap();
    world.settle(0);
    world.run_secs(5);
    world
}

#[test]
fn initial_contact_replaces_except_with_never() {
    for unique in [Unique::No, Unique::Replace, Unique::Keep] {
        assert_eq!(counts(&anew(unique, Unique::No)), [1, 1], "{unique:?}");
    }
    assert_eq!(counts(&anew(Unique::Never, Unique::No)), [1, 3], "it is not listened to");
    assert_eq!(counts(&anew(Unique::No, Unique::Never)), [1, 3], "it is not said");
}
