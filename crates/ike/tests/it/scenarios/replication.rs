//! The interface of an endpoint for a cluster: its changes, silent export and import of IKE SAs,
//! and homes.

use crate::scenarios::common::allocator::{INITIATING, RESPONDING, Watched};
use crate::scenarios::common::build::child;
use crate::scenarios::common::peer::{Peer, status};
use crate::scenarios::common::wire::assert_ivs_never_repeat;
use crate::scenarios::common::{PACKET, Weather, World};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;
use testudo_base::spi::{SenderId, Shard, Spi};
use testudo_ike::config::{ChildLifetime, Connection, IkeLifetime, Lifetime, StartAction, Unique};
use testudo_ike::endpoint::{Endpoint, EndpointConfig, Homes, InitiateError, Target};
use testudo_ike::message::{ExchangeType, NotifyType};
use testudo_ike::output::{ChildSaId, CommitId, Event, IkeSaId, Output};

const ADDRS: [&str; 2] = ["192.0.2.1", "192.0.2.2"];

fn tracking() -> EndpointConfig {
    EndpointConfig { track_changes: true, ..EndpointConfig::default() }
}

/// Renewals of all kinds, and liveness checks.
fn busy(index: usize, connection: &mut Connection) {
    if index == 0 {
        connection.dpd_delay = Duration::from_secs(30);
        connection.lifetime = IkeLifetime::new(700, None, None);
        let time = Lifetime::new(300, None, None);
        connection.children[0].lifetime = ChildLifetime { time, ..ChildLifetime::default() };
    }
}

/// A reader of the list of changes knows all states at any time.
#[test]
fn every_change_is_named_and_so_is_every_end() {
    let mut world = World::pair_of(ADDRS, 1, Weather::FOUL, tracking(), busy);
    world.restore = false;
    world.initiate(0);
    let mut known: [BTreeMap<IkeSaId, CommitId>; 2] = Default::default();
    let mut follow = |world: &mut World| {
        for (host, known) in world.hosts.iter_mut().zip(&mut known) {
            let changed = host.endpoint.replication_mut().take_changed();
            assert!(changed.is_sorted());
            for id in changed {
                match host.endpoint.replication().outline(id) {
                    Some(outline) => known.insert(id, outline.commit),
                    None => known.remove(&id),
                };
            }
            assert!(host.endpoint.states().eq(known.iter().map(|(id, commit)| (*id, *commit))));
            assert_eq!(host.endpoint.replication_mut().take_changed(), []);
        }
    };
    let end = world.now.plus(Duration::from_secs(2000));
    while world.step(end) {
        follow(&mut world);
    }
    let now = world.now;
    world.network.weather = Weather::FAIR;
    world.hosts[0].endpoint.terminate(now, &Target::All, false).unwrap();
    world.settle(0);
    let end = world.now.plus(Duration::from_secs(100));
    while world.step(end) {
        follow(&mut world);
    }
    assert!(known.iter().all(BTreeMap::is_empty));
}

#[test]
fn without_a_list_nothing_is_kept() {
    let mut world = World::pair(2, Weather::FAIR);
    world.initiate(0);
    world.run_secs(1);
    assert_eq!(world.hosts[0].endpoint.replication_mut().take_changed(), []);
}

/// A rekeyed IKE SA, or one set up in its place, stays in its shard.
#[test]
fn renewed_ike_sas_stay_at_home() {
    let mut world = World::pair_of(ADDRS, 3, Weather::FAIR, tracking(), busy);
    let id = world.initiate(0);
    world.run_secs(2000);
    let homes = |world: &World| -> Vec<Shard> {
        let shard = |endpoint: &Endpoint| {
            endpoint
                .states()
                .map(|(id, _)| endpoint.replication().outline(id).unwrap().spi.shard())
                .collect::<Vec<_>>()
        };
        world.hosts.iter().flat_map(|host| shard(&host.endpoint)).collect()
    };
    assert_eq!(homes(&world), [INITIATING, RESPONDING]);
    let [sa] = world.hosts[1].sas().try_into().expect("one IKE SA");
    assert!(world.hosts[0].sas()[0].id != id, "it was renewed");
    let now = world.now;
    assert!(world.hosts[1].endpoint.reauthenticate_ike(now, sa.id));
    world.settle(1);
    world.run_secs(100);
    // The other host initiates now; its peer cannot know that the new IKE SA replaces another.
    assert_eq!(homes(&world)[1], RESPONDING);
    world.assert_tunnel();
}

/// An attempt that begins again stays where the first was.
#[test]
fn another_attempt_has_the_same_home() {
    let mut world = World::pair_with(4, Weather::FAIR, |_, connection| connection.keyingtries = 0);
    world.network.up = false;
    let id = world.initiate(0);
    let spi = |world: &World| world.hosts[0].endpoint.replication().outline(id).unwrap().spi;
    let first = spi(&world);
    world.run_secs(600);
    assert!(spi(&world) != first && spi(&world).shard() == first.shard());
}

/// Between any two events an IKE SA leaves, and comes back from its octets under the numbers that
/// it had. No packet, no event, and the Child SAs stay what they are.
#[test]
fn an_ike_sa_leaves_without_a_word_and_comes_back_under_its_numbers() {
    for at in 0..40 {
        let mut world = World::pair_of(ADDRS, at, Weather::FAIR, tracking(), |index, connection| {
            busy(index, connection);
            let time = Lifetime::new(10, None, None);
            connection.children[0].lifetime = ChildLifetime { time, ..ChildLifetime::default() };
        });
        world.initiate(0);
        let end = world.now.plus(Duration::from_secs(20));
        (0..at).for_each(|_| {
            world.step(end);
        });
        for index in 0..2 {
            leave_and_return(&mut world, index);
        }
        world.run_secs(100);
        world.assert_tunnel();
        assert_ivs_never_repeat(&world);
    }
}

fn leave_and_return(world: &mut World, index: usize) {
    let now = world.now;
    let endpoint = &mut world.hosts[index].endpoint;
    let ids: Vec<IkeSaId> = endpoint.states().map(|(id, _)| id).collect();
    let before: Vec<_> = endpoint.sas().collect();
    let numbers: BTreeMap<Spi, ChildSaId> =
        before.iter().flat_map(|sa| &sa.children).map(|child| (child.spi_in, child.id)).collect();
    let mut states = BTreeMap::new();
    for id in ids {
        states.insert(id, endpoint.export_sa(now, id).unwrap());
        let half_open = endpoint.half_open();
        assert!(endpoint.replication_mut().evict(now, id) && !endpoint.replication_mut().evict(now, id));
        assert!(endpoint.half_open() <= half_open);
    }
    assert_eq!((endpoint.states().count(), endpoint.half_open(), endpoint.next_timeout()), (0, 0, None));
    let said: Vec<Output> = std::iter::from_fn(|| endpoint.poll_output()).collect();
    let is_result = |output: &Output| matches!(output, Output::Event(Event::InitiateDone { .. }));
    assert!(said.iter().all(is_result), "{said:?}");
    for (id, state) in &states {
        let taken =
            endpoint.replication_mut().import_sa_as(now, state, Some(*id), &|spi| numbers.get(&spi).copied());
        assert_eq!(taken, Ok(*id));
    }
    assert_eq!(endpoint.sas().collect::<Vec<_>>(), before);
}

/// Numbers that were drawn for others are not taken by an SA that happens to have them where it
/// comes from.
#[test]
fn drawn_numbers_stay_reserved() {
    let mut world = World::pair(5, Weather::FAIR);
    let id = world.initiate(0);
    world.run_secs(1);
    let state = world.hosts[0].endpoint.export_sa(world.now, id).unwrap();
    let mut other = Endpoint::new(tracking(), Box::new(Watched::new(9, SenderId(9)).0));
    assert_eq!(
        (other.replication_mut().new_ike_number(), other.replication_mut().new_child_number()),
        (IkeSaId(1), ChildSaId(1))
    );
    let taken = other.replication_mut().import_sa_as(world.now, &state, None, &|_| None).unwrap();
    assert_eq!(taken, IkeSaId(2));
    assert_eq!(other.sa(taken).unwrap().children[0].id, ChildSaId(2));
}

/// An address leased by another node is not assigned by this one until that node reports it free.
#[test]
fn spis_and_numbers_of_others_are_claimed() {
    let (alloc, in_use) = Watched::new(9, SenderId(9));
    let mut endpoint = Endpoint::new(tracking(), Box::new(alloc));
    let spi = Spi::from_parts(Shard(3), 7, 1).unwrap();
    endpoint.replication_mut().claim_spi(spi);
    assert!(in_use.lock().unwrap().contains(&spi));
    endpoint.replication_mut().release_spi(Default::default(), spi);
    assert!(in_use.lock().unwrap().is_empty());
}

/// Owns one shard.
struct Own(Shard);

impl Homes for Own {
    fn shard_of(&self, _: &str) -> Shard {
        INITIATING
    }

    fn owns(&self, shard: Shard) -> bool {
        self.0 == shard
    }

    fn leases(&self, _: IpAddr) -> bool {
        true
    }
}

#[test]
fn children_start_by_themselves_where_their_connection_is_at_home() {
    let mut world = World::new(6, Weather::FAIR);
    let ends = [(ADDRS[0], "moon"), (ADDRS[1], "sun")];
    for index in 0..2 {
        let now = world.now;
        let host = world.add(ends[index].0, tracking());
        host.endpoint.replication_mut().set_homes(now, Box::new(Own(RESPONDING)));
        host.load_secret(crate::scenarios::common::secret("psk", b"a shared key", &["moon", "sun"]));
        let mut connection = crate::scenarios::common::connection(ends[index], ends[1 - index]);
        if index == 0 {
            connection.children[0].start_action = StartAction::Start;
        }
        host.load(now, connection);
    }
    world.run_secs(100);
    assert!(world.hosts[0].sent.is_empty(), "its home is elsewhere");
    let now = world.now;
    let refused = world.hosts[0].endpoint.initiate(now, Some("site"), "net");
    assert_eq!(refused, Err(InitiateError::Elsewhere("site".into())));

    world.hosts[0].endpoint.replication_mut().set_homes(now, Box::new(Own(INITIATING)));
    world.run_secs(1);
    world.assert_tunnel();
    // It goes and comes again, with the tunnel up: that is not doubled.
    for shard in [RESPONDING, INITIATING] {
        world.hosts[0].endpoint.replication_mut().set_homes(now, Box::new(Own(shard)));
    }
    world.run_secs(1);
    world.assert_tunnel();
    assert_eq!(world.hosts[0].sas().len(), 1);
}

/// Traffic in a tunnel of this node asks for a child that goes with it, as AH goes with ESP: it
/// comes with the IKE SA that is here, wherever a new one would be made.
#[test]
fn a_further_child_comes_where_the_ike_sa_is() {
    let nets = ["10.50.0.0-10.50.0.255", "10.60.0.0-10.60.0.255"];
    let mut world = World::established(8, |index, connection| {
        connection.children.push(child("more", nets[index], nets[1 - index]));
    });
    let now = world.now;
    let host = &mut world.hosts[1];
    host.endpoint.replication_mut().set_homes(now, Box::new(Own(RESPONDING)));
    assert!(!host.endpoint.replication().is_home("site"));
    let ike = host.sas()[0].id;
    assert_eq!(host.endpoint.acquire_for(now, "site", "more", PACKET), Ok(ike));
    world.settle(1);
    world.run_secs(1);
    for host in &world.hosts {
        let shards = host.installed.values().map(|params| params.spi_in.shard()).collect::<Vec<_>>();
        assert!(shards.len() == 2 && shards[0] == shards[1], "{shards:?}");
    }
}

/// The peer initiated, in one of our shards, with a connection whose home is on another node: a
/// child that it deletes is restarted on this node nevertheless, because no other node knows of it;
/// but only while the shard is ours.
#[test]
fn a_child_lost_on_this_node_is_restarted_on_it() {
    for ours in [true, false] {
        let mut world = World::pair_with(7, Weather::FAIR, |index, connection| {
            if index == 1 {
                connection.children[0].close_action = StartAction::Start;
            }
        });
        let now = world.now;
        world.hosts[1].endpoint.replication_mut().set_homes(now, Box::new(Own(RESPONDING)));
        let id = world.initiate(0);
        world.run_secs(1);
        let now = world.now;
        if !ours {
            world.hosts[1].endpoint.replication_mut().set_homes(now, Box::new(Own(Shard(0))));
        }
        world.hosts[0].endpoint.terminate(now, &Target::Ike(id), false).unwrap();
        world.settle(0);
        world.run_secs(1);
        let up = world.hosts[1].sas().iter().filter(|sa| sa.initiator).count();
        assert_eq!(up, usize::from(ours));
    }
}

/// Other nodes have the peer's other IKE SAs: they are told of one that may be the only one.
#[test]
fn other_nodes_hear_of_an_ike_sa_that_replaces_others() {
    use Unique::{Keep, Never, No, Replace};
    for (unique, anew, expected) in [
        (No, false, None),
        (No, true, Some((true, false))),
        (Keep, false, None),
        (Never, true, None),
        (Replace, false, Some((false, true))),
        (Replace, true, Some((true, true))),
    ] {
        for track_changes in [true, false] {
            let config = EndpointConfig { track_changes, ..EndpointConfig::default() };
            let addrs = ["192.0.2.1", "192.0.2.2"];
            let mut world =
                World::pair_of(addrs, 9, Weather::FAIR, config, |_, connection| connection.unique = unique);
            world.hosts.remove(0);
            let mut peer = Peer::init(&mut world, 9, vec![]);
            let mut payloads = peer.auth_payloads();
            payloads.extend(anew.then(|| status(NotifyType::InitialContact)));
            peer.request(&mut world, ExchangeType::IkeAuth, payloads).unwrap();
            assert_eq!(world.hosts[0].installed.len(), 1);
            let told = world.hosts[0].endpoint.replication_mut().take_contacts();
            let told: Vec<_> = told.into_iter().map(|contact| (contact.anew, contact.alone)).collect();
            let expected: Vec<_> = expected.into_iter().filter(|_| track_changes).collect();
            assert_eq!(told, expected, "{unique:?} {anew}");
        }
    }
}
