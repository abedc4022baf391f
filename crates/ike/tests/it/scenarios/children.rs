//! The operator's view of configured children: which are up, and why others are not.

use crate::scenarios::common::build::child;
use crate::scenarios::common::{PACKET, Weather, World, secret};
use std::time::Duration;
use testudo_ike::config::{ChildLifetime, ChildMode, Connection, IkeLifetime, Lifetime, StartAction};
use testudo_ike::endpoint::{
    ChildState, ChildStatus, EndpointConfig, InitiateError, RetransmitPolicy, Target,
};
use testudo_ike::output::Time;

const ADDRS: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
/// How long a failed initiation rests.
const RETRY: u64 = 30;

/// Two hosts that give a silent peer up after two seconds.
fn impatient(edit: impl Fn(usize, &mut Connection)) -> World {
    let retransmit = RetransmitPolicy {
        timeout: Duration::from_secs(1),
        base_milli: 1000,
        tries: 1,
        ..RetransmitPolicy::default()
    };
    let start_retry = Duration::from_secs(RETRY);
    let config = EndpointConfig { retransmit, start_retry, ..EndpointConfig::default() };
    World::pair_of(ADDRS, 1, Weather::FAIR, config, edit)
}

/// Host 0 starts its child by itself.
fn starting(edit: impl Fn(&mut Connection)) -> World {
    impatient(|index, connection| {
        connection.keyingtries = 1;
        if index == 0 {
            connection.children[0].start_action = StartAction::Start;
            edit(connection);
        }
    })
}

/// The first child of host 0.
fn net(world: &World) -> ChildStatus {
    world.hosts[0].endpoint.children("site").swap_remove(0)
}

fn why(status: &ChildStatus) -> &str {
    status.failure.as_ref().map_or("", |failure| &failure.why)
}

fn later(begin: Time, seconds: u64) -> Option<Time> {
    Some(begin.plus(Duration::from_secs(seconds)))
}

#[test]
fn a_child_whose_peer_is_silent_waits_and_comes_up() {
    let mut world = starting(|_| {});
    world.network.up = false;
    let begin = world.now;
    let status = net(&world);
    assert_eq!((status.state, status.expected, status.failure), (ChildState::Establishing, true, None));
    world.settle(0);
    world.run_secs(3);
    let status = net(&world);
    assert_eq!(why(&status), "no answer from 192.0.2.2:500 after 2 transmissions");
    assert_eq!(status.failure.as_ref().map(|failure| failure.at), later(begin, 2));
    assert_eq!((status.state, status.expected), (ChildState::Waiting, true));
    assert_eq!(status.next_try, later(begin, 2 + RETRY));
    assert_eq!(status.since, Some(begin), "not up since it was loaded");
    world.network.up = true;
    world.run_secs(RETRY);
    let status = net(&world);
    assert_eq!((status.state, status.expected, status.sas), (ChildState::Up, true, 1));
    assert_eq!((status.next_try, status.heard), (None, status.since));
    assert!(status.since > later(begin, 1 + RETRY));
    assert_eq!(why(&status), "no answer from 192.0.2.2:500 after 2 transmissions", "what failed last");
}

/// Attempts follow each other, and each tells why it came to nothing.
#[test]
fn a_child_that_is_tried_for_ever_tells_of_its_last_attempt() {
    let mut world = starting(|connection| connection.keyingtries = 0);
    world.network.up = false;
    let begin = world.now;
    world.settle(0);
    world.run_secs(60);
    let status = net(&world);
    assert_eq!((status.state, status.since), (ChildState::Establishing, Some(begin)));
    assert!(why(&status).starts_with("no answer from 192.0.2.2:500"), "{status:?}");
    assert!(status.failure.unwrap().at > begin.plus(Duration::from_secs(50)));
}

#[test]
fn a_refusal_of_the_peer_is_reported() {
    let mut world = starting(|_| {});
    world.hosts[1].load_secret(secret("psk", b"not the shared key", &["moon", "sun"]));
    world.settle(0);
    world.run_secs(5);
    let status = net(&world);
    assert!(why(&status).contains("AUTHENTICATION_FAILED"), "{status:?}");
    assert_eq!((status.state, status.expected), (ChildState::Waiting, true));
}

/// The IKE SA is there, and the child is not.
#[test]
fn a_child_that_the_peer_does_not_take_is_told_by_its_notify() {
    let mut world = starting(|connection| {
        let mut other = child("other", "10.7.0.0-10.7.0.255", "10.8.0.0-10.8.0.255");
        other.start_action = StartAction::Start;
        connection.children.push(other);
    });
    world.settle(0);
    world.run_secs(5);
    let [net, other] = world.hosts[0].endpoint.children("site").try_into().unwrap();
    assert_eq!((net.state, other.state), (ChildState::Up, ChildState::Waiting));
    assert!(why(&other).contains("TS_UNACCEPTABLE"), "{other:?}");
    assert!(other.next_try > Some(world.now));
}

#[test]
fn a_local_obstacle_to_initiation_is_reported() {
    let mut world = impatient(|_, _| {});
    let now = world.now;
    world.hosts[0].endpoint.secrets_mut().clear();
    let mut connection = world.hosts[0].endpoint.connections().next().unwrap().clone();
    connection.children[0].start_action = StartAction::Start;
    world.hosts[0].load(now, connection);
    let status = net(&world);
    assert_eq!(why(&status), InitiateError::NoSecret("site".into()).to_string());
    assert_eq!((status.state, status.next_try), (ChildState::Waiting, later(now, RETRY)));
}

#[test]
fn a_child_that_an_operator_ends_is_down() {
    let mut world = starting(|_| {});
    world.settle(0);
    world.run_secs(5);
    let now = world.now;
    world.hosts[0].endpoint.terminate(now, &Target::All, false).unwrap();
    world.settle(0);
    world.run_secs(5);
    let status = net(&world);
    assert_eq!((status.state, status.expected, status.sas), (ChildState::Down, true, 0));
    assert_eq!((why(&status), status.heard, status.next_try), ("terminated by request", None, None));
    assert!(status.since >= Some(now));
}

#[test]
fn a_child_that_the_peer_closes_reports_it() {
    let mut world = impatient(|_, _| {});
    world.establish();
    let closed = later(world.now, 10);
    world.run_secs(10);
    let now = world.now;
    world.hosts[1].endpoint.terminate(now, &Target::All, false).unwrap();
    world.settle(1);
    world.run_secs(5);
    let status = net(&world);
    assert_eq!((status.state, status.expected), (ChildState::Passive, false), "nobody is to bring it up");
    assert_eq!(why(&status), "deleted by the peer");
    assert!(status.since >= closed && status.since < later(now, 5));
}

#[test]
fn a_child_that_is_lost_and_started_again_is_expected() {
    let mut world = impatient(|index, connection| {
        connection.keyingtries = 1;
        connection.dpd_delay = Duration::from_secs(10);
        if index == 0 {
            connection.children[0].dpd_action = StartAction::Start;
        }
    });
    assert_eq!((net(&world).state, net(&world).expected), (ChildState::Passive, false));
    world.establish();
    assert!(!net(&world).expected);
    world.network.up = false;
    world.run_secs(16);
    let status = net(&world);
    assert_eq!((status.state, status.expected), (ChildState::Waiting, true), "{status:?}");
    assert!(why(&status).contains("no answer"));
}

#[test]
fn a_child_stays_up_through_all_rekeyings() {
    let mut world = impatient(|index, connection| {
        if index == 0 {
            connection.lifetime = IkeLifetime::new(170, None, None);
            let time = Lifetime::new(50, None, None);
            connection.children[0].lifetime = ChildLifetime { time, ..ChildLifetime::default() };
        }
    });
    world.establish();
    let (since, before) = (net(&world).since, world.hosts[0].sas()[0].children[0].id);
    for _ in 0..60 {
        world.run_secs(10);
        let status = net(&world);
        assert_eq!((status.state, status.since, status.sas), (ChildState::Up, since, 1));
        assert!(status.failure.is_none(), "{status:?}");
    }
    let [sa] = world.hosts[0].sas().try_into().expect("one IKE SA");
    let id = sa.id;
    assert!(sa.children[0].id > before, "it was renewed");
    let now = world.now;
    assert!(world.hosts[0].endpoint.reauthenticate_ike(now, id));
    world.settle(0);
    world.run_secs(60);
    let status = net(&world);
    assert_eq!((status.state, status.since), (ChildState::Up, since), "{status:?}");
}

#[test]
fn children_without_an_sa_are_what_they_are() {
    let mut world = impatient(|_, connection| {
        connection.children[0].start_action = StartAction::Trap;
        for (name, mode) in [("pass", ChildMode::Pass), ("drop", ChildMode::Drop)] {
            let mut open = child(name, "10.7.0.0-10.7.0.255", "10.8.0.0-10.8.0.255");
            (open.mode, open.start_action) = (mode, StartAction::Trap);
            connection.children.push(open);
        }
    });
    let states = |world: &World| -> Vec<ChildState> {
        world.hosts[0].endpoint.children("site").iter().map(|child| child.state).collect()
    };
    assert_eq!(states(&world), [ChildState::Trapped, ChildState::Pass, ChildState::Drop]);
    let now = world.now;
    world.hosts[0].endpoint.acquire_for(now, "site", "net", PACKET).unwrap();
    assert_eq!(states(&world)[0], ChildState::Establishing);
    world.settle(0);
    world.run_secs(1);
    assert_eq!(states(&world), [ChildState::Up, ChildState::Pass, ChildState::Drop]);
    assert!(!net(&world).expected, "it came up for a packet");
    assert_eq!(world.hosts[0].endpoint.children("unknown"), []);
}

/// A connection that is loaded again with a change: what is known of its children stays.
#[test]
fn a_reload_forgets_nothing_but_what_is_gone() {
    let mut world = starting(|_| {});
    world.network.up = false;
    let begin = world.now;
    world.settle(0);
    world.run_secs(3);
    let now = world.now;
    let mut connection = world.hosts[0].endpoint.connections().next().unwrap().clone();
    connection.children.insert(0, child("new", "10.7.0.0-10.7.0.255", "10.8.0.0-10.8.0.255"));
    world.hosts[0].load(now, connection);
    let [new, known] = world.hosts[0].endpoint.children("site").try_into().unwrap();
    assert_eq!((new.name.as_str(), new.since, new.failure), ("new", Some(now), None));
    assert_eq!((known.name.as_str(), known.since), ("net", Some(begin)));
    assert!(why(&known).contains("no answer"));
    world.hosts[0].endpoint.unload_connection("site");
    assert_eq!(world.hosts[0].endpoint.children("site"), []);
}

/// Another node continues with the IKE SA.
#[test]
fn a_child_on_another_node_is_not_up_on_this_one() {
    let mut world = impatient(|_, _| {});
    let id = world.establish();
    world.run_secs(5);
    let now = world.now;
    let (up, state) = (net(&world), world.hosts[0].endpoint.export_sa(now, id).unwrap());
    assert!(world.hosts[0].endpoint.replication_mut().evict(now, id));
    let status = net(&world);
    assert_eq!((status.state, status.since, status.failure), (ChildState::Passive, Some(now), None));
    world.hosts[0].endpoint.import_sa(now, &state).unwrap();
    assert_eq!(net(&world), up, "it comes back as it was");
}

/// A child that needs no narrowing is better than one that does, wherever it stands.
#[test]
fn a_child_for_exactly_the_requested_traffic_serves_it() {
    let world = World::established(12, |index, connection| {
        if index == 1 {
            connection
                .children
                .insert(0, child("wide", "10.0.0.0-10.255.255.255", "10.0.0.0-10.255.255.255"));
        }
    });
    assert_eq!(world.hosts[1].sas()[0].children[0].name, "net");
}
