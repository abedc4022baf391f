//! Two endpoints set their counters right after a failover of one of them (RFC 6311).

use crate::scenarios::common::network::Datagram;
use crate::scenarios::common::wire::{assert_ivs_never_repeat, sent};
use crate::scenarios::common::{Weather, World};
use crate::scenarios::reload::two_children;
use std::time::Duration;
use testudo_ike::endpoint::{ChildSaState, Discard, EndpointConfig, Target};
use testudo_ike::message::{ExchangeType, Header, MessageId};
use testudo_ike::output::{ChildSaId, IkeSaId};

/// The cluster.
const SUN: usize = 1;
const MOON: usize = 0;

fn established(seed: u64) -> World {
    World::established(seed, |_, _| {})
}

pub(crate) fn ike_of(world: &World, host: usize) -> IkeSaId {
    world.hosts[host].sas()[0].id
}

fn message_ids(world: &World, host: usize) -> (MessageId, MessageId) {
    world.hosts[host].endpoint.replication().message_ids(ike_of(world, host)).unwrap()
}

/// Each expects what the other sends next.
pub(crate) fn assert_windows_fit(world: &World) {
    let ((next, expected), (of_sun, by_sun)) = (message_ids(world, MOON), message_ids(world, SUN));
    assert_eq!((next, expected), (by_sun, of_sun));
}

/// Another node has the cluster's SAs, and synchronizes.
pub(crate) fn fail_over(world: &mut World) {
    let now = world.now;
    world.hosts[SUN].take_over(now);
    let ike = ike_of(world, SUN);
    assert!(world.hosts[SUN].endpoint.replication_mut().sync_message_ids(now, ike));
    world.settle(SUN);
}

fn discarded(world: &World, host: usize, reason: Discard) -> u64 {
    world.hosts[host].endpoint.stats().discarded(reason)
}

/// Requests and responses with Message ID 0 that a host has sent by INFORMATIONAL.
fn beside(world: &World, host: usize, response: bool) -> Vec<Vec<u8>> {
    let all = sent(world, host, ExchangeType::Informational, response);
    let beside = |bytes: &&Vec<u8>| Header::parse(bytes).unwrap().message_id == MessageId(0);
    all.into_iter().filter(beside).cloned().collect()
}

/// Either side still reaches the other, and both keep one tunnel.
fn assert_goes_on(world: &mut World) {
    for host in [MOON, SUN] {
        let (now, child) = (world.now, world.hosts[host].sas()[0].children[0].id);
        let before = world.hosts[host].sas()[0].children[0].spi_in;
        assert!(world.hosts[host].endpoint.rekey_child(now, child), "{:?}", world.hosts[host].log());
        world.settle(host);
        world.run_secs(10);
        world.assert_tunnel();
        assert_ne!(world.hosts[host].sas()[0].children[0].spi_in, before);
    }
    assert_windows_fit(world);
    assert_ivs_never_repeat(world);
}

#[test]
fn a_synchronization_moves_both_windows_and_both_go_on() {
    let mut world = established(1);
    let (next, expected) = message_ids(&world, SUN);
    fail_over(&mut world);
    world.run_secs(1);
    let (after, expects) = message_ids(&world, SUN);
    assert!(after > next && expects == expected, "ours has room for what nobody knows of: {after} {expects}");
    assert_windows_fit(&world);
    assert_eq!((beside(&world, SUN, false).len(), beside(&world, MOON, true).len()), (1, 1));
    assert_goes_on(&mut world);
}

#[test]
fn either_side_can_be_the_cluster_and_both_at_once() {
    let mut world = established(2);
    let now = world.now;
    for host in [MOON, SUN] {
        let ike = ike_of(&world, host);
        assert!(world.hosts[host].endpoint.replication_mut().sync_message_ids(now, ike));
    }
    world.settle(MOON);
    world.settle(SUN);
    world.run_secs(10);
    assert_windows_fit(&world);
    assert_goes_on(&mut world);
}

#[test]
fn counter_sync_needs_the_announcement_of_both() {
    for (moon, sun) in [(true, false), (false, true), (false, false), (true, true)] {
        let mut world = World::new(3, Weather::FAIR);
        for (host, (able, ends)) in [(moon, ["moon", "sun"]), (sun, ["sun", "moon"])].into_iter().enumerate()
        {
            let addrs = ["192.0.2.1", "192.0.2.2"];
            let config = EndpointConfig { counter_sync: able, ..EndpointConfig::default() };
            let now = world.now;
            let connection =
                crate::scenarios::common::connection((addrs[host], ends[0]), (addrs[1 - host], ends[1]));
            let added = world.add(addrs[host], config);
            added.load_secret(crate::scenarios::common::secret("psk", b"a shared key", &["moon", "sun"]));
            added.load(now, connection);
        }
        world.establish();
        for host in [MOON, SUN] {
            let (now, ike) = (world.now, ike_of(&world, host));
            let child = world.hosts[host].sas()[0].children[0].id;
            let endpoint = &mut world.hosts[host].endpoint;
            assert_eq!(endpoint.replication().replay_sync_of(child), (moon && sun).then_some(ike));
            assert_eq!(
                endpoint.replication_mut().sync_message_ids(now, ike),
                moon && sun,
                "{host}: {moon} {sun}"
            );
            assert_eq!(endpoint.replication_mut().sync_replay_counters(now, ike, 1), moon && sun);
        }
    }
}

/// Nothing is left to do twice: a request of the peer that the former node has answered, or has
/// never seen, is asked again.
#[test]
fn counter_sync_does_not_wait_for_open_requests() {
    type Asks = fn(&mut World);
    let child: Asks = |world| {
        let (now, child) = (world.now, world.hosts[MOON].sas()[0].children[0].id);
        assert!(world.hosts[MOON].endpoint.rekey_child(now, child));
    };
    let ike: Asks = |world| {
        let (now, ike) = (world.now, ike_of(world, MOON));
        assert!(world.hosts[MOON].endpoint.rekey_ike(now, ike));
    };
    let delete: Asks = |world| {
        let (now, child) = (world.now, world.hosts[MOON].sas()[0].children[0].id);
        world.hosts[MOON].endpoint.terminate(now, &Target::Child(child), false).unwrap();
    };
    let all: Asks = |world| {
        let now = world.now;
        world.hosts[MOON].endpoint.terminate(now, &Target::All, false).unwrap();
    };
    for (what, asks) in [("child", child), ("ike", ike), ("delete", delete), ("all", all)] {
        // An IKE SA that the cluster has created without informing the others costs the old one
        // (RFC 6311 §8.3).
        for answered in [false, true].into_iter().filter(|answered| what != "ike" || !answered) {
            let mut world = established(4);
            world.hosts[SUN].stopped = !answered;
            asks(&mut world);
            world.settle(MOON);
            world.hosts[MOON].stopped = true;
            world.run_secs(1);
            (world.hosts[MOON].stopped, world.hosts[SUN].stopped) = (false, false);
            let states = world.hosts[SUN].sas().len();
            if states > 0 {
                fail_over(&mut world);
            }
            world.run_secs(40);
            match (what, states) {
                ("child" | "ike", _) => {
                    world.assert_tunnel();
                    assert_eq!(world.hosts[MOON].sas().len(), 1, "{:?}", world.hosts[MOON].log());
                    assert_goes_on(&mut world);
                }
                ("delete", _) => {
                    assert!(world.hosts.iter().all(|host| host.installed.is_empty()), "{what} {answered}");
                    assert_windows_fit(&world);
                }
                _ => world.assert_nothing_left(),
            }
        }
    }
}

/// A Child SA that we have requested and whose answer nobody will receive: the cluster's half is
/// deleted, and another is set up.
#[test]
fn a_further_child_is_asked_for_again() {
    for answered in [false, true] {
        let mut world = established(5);
        let now = world.now;
        world.hosts[SUN].stopped = !answered;
        world.hosts[MOON]
            .endpoint
            .terminate(now, &Target::ChildName { connection: None, child: "net".into() }, true)
            .unwrap();
        world.settle(MOON);
        world.hosts[SUN].stopped = false;
        world.run_secs(5);
        world.hosts[SUN].stopped = !answered;
        world.hosts[MOON].endpoint.initiate(world.now, Some("site"), "net").unwrap();
        world.settle(MOON);
        world.hosts[MOON].stopped = true;
        world.run_secs(1);
        (world.hosts[MOON].stopped, world.hosts[SUN].stopped) = (false, false);
        fail_over(&mut world);
        world.run_secs(30);
        world.assert_tunnel();
        assert_goes_on(&mut world);
    }
}

#[test]
fn a_request_that_comes_again_gets_the_same_octets_and_an_old_one_nothing() {
    let mut world = established(6);
    fail_over(&mut world);
    world.run_secs(1);
    let first = beside(&world, SUN, false)[0].clone();
    let ids = message_ids(&world, MOON);
    for _ in 0..3 {
        world.forge("192.0.2.2:500", "192.0.2.1:500", &first);
        world.run_secs(1);
    }
    let answers = beside(&world, MOON, true);
    assert_eq!(answers.len(), 4);
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    assert_eq!(message_ids(&world, MOON), ids);
    // Repeated answers match no open request.
    assert_eq!(discarded(&world, SUN, Discard::UnexpectedResponse), 3);

    fail_over(&mut world);
    world.run_secs(1);
    world.forge("192.0.2.2:500", "192.0.2.1:500", &first);
    world.run_secs(1);
    assert_eq!(beside(&world, MOON, true).len(), 5, "an older one counts no more");
    assert_eq!(discarded(&world, MOON, Discard::CounterSync), 1);
    assert_goes_on(&mut world);
}

/// An answer to an earlier request has another nonce.
#[test]
fn an_answer_to_an_earlier_request_is_dropped() {
    let mut world = established(7);
    fail_over(&mut world);
    world.run_secs(1);
    let old = beside(&world, MOON, true)[0].clone();
    world.hosts[MOON].stopped = true;
    fail_over(&mut world);
    let ids = message_ids(&world, SUN);
    world.forge("192.0.2.1:500", "192.0.2.2:500", &old);
    world.run_secs(1);
    assert_eq!(discarded(&world, SUN, Discard::CounterSync), 1);
    assert_eq!(message_ids(&world, SUN), ids);
    world.hosts[MOON].stopped = false;
    world.run_secs(10);
    assert_windows_fit(&world);
    assert_goes_on(&mut world);
}

/// The node that has asked dies before the answer comes. The next one asks for more: the peer takes
/// none twice.
#[test]
fn a_second_failover_asks_for_more() {
    for heard in [false, true] {
        let mut world = established(8);
        world.hosts[MOON].stopped = !heard;
        fail_over(&mut world);
        if heard {
            // The peer has answered, and that is lost.
            let end = world.now.plus(Duration::from_secs(1));
            while beside(&world, MOON, true).is_empty() {
                assert!(world.step(end));
            }
            world.hosts[SUN].stopped = true;
        }
        world.run_secs(1);
        (world.hosts[MOON].stopped, world.hosts[SUN].stopped) = (false, false);
        fail_over(&mut world);
        world.run_secs(10);
        let requests = beside(&world, SUN, false);
        assert_eq!(requests.len(), 2, "{heard}");
        assert_ne!(requests[0], requests[1]);
        assert_eq!(discarded(&world, MOON, Discard::CounterSync), 0);
        assert_windows_fit(&world);
        assert_goes_on(&mut world);
    }
}

/// Until it is answered it is repeated like any request, the same octets, also by the next node.
#[test]
fn counter_sync_is_retransmitted_unchanged() {
    let mut world = established(9);
    world.hosts[MOON].stopped = true;
    fail_over(&mut world);
    world.run_secs(5);
    let now = world.now;
    world.hosts[SUN].take_over(now);
    world.run_secs(10);
    let requests = beside(&world, SUN, false);
    assert_eq!(requests.len(), 3);
    assert!(requests.iter().all(|request| *request == requests[0]));
    world.hosts[MOON].stopped = false;
    world.run_secs(30);
    assert_goes_on(&mut world);
}

/// It waits for the request that is under way already: that one is known exactly, and is answered.
#[test]
fn a_request_under_way_comes_first() {
    let mut world = established(10);
    let (now, child) = (world.now, world.hosts[SUN].sas()[0].children[0].id);
    let before = world.hosts[SUN].sas()[0].children[0].spi_in;
    assert!(world.hosts[SUN].endpoint.rekey_child(now, child));
    world.settle(SUN);
    fail_over(&mut world);
    assert!(beside(&world, SUN, false).is_empty());
    world.run_secs(10);
    assert_eq!(beside(&world, SUN, false).len(), 1);
    assert_ne!(world.hosts[SUN].sas()[0].children[0].spi_in, before);
    world.assert_tunnel();
    assert_goes_on(&mut world);
}

/// Of a new IKE SA nothing has been asked yet: Message ID 0 is of its window too.
#[test]
fn a_renewed_ike_sa_can_be_synchronized_and_its_message_id_0_is_a_request() {
    for first_asks in [false, true] {
        let mut world = established(11);
        let (now, ike) = (world.now, ike_of(&world, MOON));
        assert!(world.hosts[MOON].endpoint.rekey_ike(now, ike));
        world.settle(MOON);
        world.run_secs(20);
        assert_eq!(message_ids(&world, SUN), (MessageId(0), MessageId(0)));
        if first_asks {
            // A delete is by INFORMATIONAL, and Message ID 0.
            let (now, name) = (world.now, Target::ChildName { connection: None, child: "net".into() });
            world.hosts[SUN].endpoint.terminate(now, &name, false).unwrap();
            world.settle(SUN);
            world.run_secs(5);
            assert!(world.hosts.iter().all(|host| host.installed.is_empty()));
            assert_eq!(message_ids(&world, MOON), (MessageId(0), MessageId(1)));
            let first = beside(&world, SUN, false)[0].clone();
            world.forge("192.0.2.2:500", "192.0.2.1:500", &first);
            world.run_secs(1);
            assert_eq!(beside(&world, MOON, true).len(), 2, "it is repeated");
            world.hosts[MOON].endpoint.initiate(world.now, Some("site"), "net").unwrap();
            world.settle(MOON);
            world.run_secs(5);
        }
        fail_over(&mut world);
        world.run_secs(5);
        assert_windows_fit(&world);
        assert_goes_on(&mut world);
    }
}

#[test]
fn numbers_are_left_out_in_every_child() {
    let mut world = two_children(12, Weather::FAIR, |_, _| {});
    let ike = ike_of(&world, SUN);
    let ask = |world: &mut World, by| {
        let now = world.now;
        let asked = world.hosts[SUN].endpoint.replication_mut().sync_replay_counters(now, ike, by);
        world.settle(SUN);
        asked
    };
    let asked_before = message_ids(&world, SUN).0.0;
    assert!(ask(&mut world, 100_000));
    world.run_secs(10);
    let children = |world: &World, by| -> Vec<(ChildSaId, u64)> {
        let sas = world.hosts[MOON].sas();
        let children = sas[0].children.iter().filter(|child| child.state == ChildSaState::Installed);
        children.map(|child| (child.id, by)).collect()
    };
    let both = children(&world, 100_000);
    assert_eq!((both.len(), &world.hosts[MOON].skipped), (2, &both));
    assert!(world.hosts[SUN].skipped.is_empty());
    assert_eq!(message_ids(&world, SUN).0, MessageId(asked_before + 1), "it is an ordinary request");
    // A deleted one only takes packets in that are under way, and has no numbers any more.
    let (now, child) = (world.now, both[0].0);
    assert!(world.hosts[MOON].endpoint.rekey_child(now, child));
    world.settle(MOON);
    world.run_secs(1);
    assert!(world.hosts[MOON].installed.contains_key(&child));
    assert!(ask(&mut world, 7));
    world.run_secs(1);
    assert!(world.hosts[MOON].installed.contains_key(&child));
    assert_eq!(world.hosts[MOON].skipped[2..], children(&world, 7));
    // Numbers of 32 bits cannot be left out by more.
    let esn = world.hosts[SUN].installed.values().next().unwrap().esn;
    assert_eq!(ask(&mut world, 1 << 32), esn);
}

/// Both are asked for, and both are done: the numbers first, or the Message IDs.
#[test]
fn a_repeated_request_leaves_numbers_out_once() {
    let mut world = established(13);
    let (now, ike) = (world.now, ike_of(&world, SUN));
    assert!(world.hosts[SUN].endpoint.replication_mut().sync_message_ids(now, ike));
    assert!(world.hosts[SUN].endpoint.replication_mut().sync_replay_counters(now, ike, 7));
    world.settle(SUN);
    world.run_secs(2);
    assert_eq!(world.hosts[MOON].skipped.len(), 1);
    let last = sent(&world, SUN, ExchangeType::Informational, false).last().unwrap().to_vec();
    let end = Datagram {
        from: "192.0.2.2:500".parse().unwrap(),
        to: "192.0.2.1:500".parse().unwrap(),
        bytes: last,
    };
    world.deliver(&end);
    world.run_secs(2);
    assert_eq!(world.hosts[MOON].skipped.len(), 1);
    assert_goes_on(&mut world);
}
