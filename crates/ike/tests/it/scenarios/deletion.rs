//! SAs are taken down, by either side and by both at once (RFC 7296 §1.4.1).

use crate::scenarios::answers::sun;
use crate::scenarios::common::build::child;
use crate::scenarios::common::peer::{Peer, SPI};
use crate::scenarios::common::wire::sent;
use crate::scenarios::common::{Weather, World};
use std::time::Duration;
use testudo_ike::config::StartAction;
use testudo_ike::endpoint::{ChildSaState, IkeSaState, Target, TerminateError};
use testudo_ike::message::{Delete, ExchangeType, Payload};
use testudo_ike::output::{Event, Reason};

fn established(seed: u64) -> World {
    World::established(seed, |_, _| {})
}

fn terminate(world: &mut World, host: usize, target: &Target, force: bool) {
    let now = world.now;
    world.hosts[host].endpoint.terminate(now, target, force).unwrap();
    world.settle(host);
}

fn downs(world: &World, host: usize) -> Vec<Reason> {
    let down = |event: &Event| match event {
        Event::IkeDown(_, reason) => Some(reason.clone()),
        _ => None,
    };
    world.hosts[host].events.iter().filter_map(down).collect()
}

#[test]
fn either_side_deletes_the_ike_sa() {
    for host in 0..2 {
        let mut world = established(1);
        terminate(&mut world, host, &Target::Connection("site".into()), false);
        assert_eq!(world.hosts[host].sas()[0].state, IkeSaState::Deleting);
        assert!(!world.hosts[host].installed.is_empty(), "until the peer has answered");
        world.run_secs(1);
        assert_eq!(downs(&world, host), [Reason::Requested]);
        assert_eq!(downs(&world, 1 - host), [Reason::DeletedByPeer]);
        assert!(world.hosts.iter().all(|host| host.installed.is_empty() && host.sas().is_empty()));
        world.run_secs(60);
        world.assert_nothing_left();
    }
}

#[test]
fn either_side_deletes_the_child_and_the_ike_sa_stays() {
    for host in 0..2 {
        let mut world = established(2);
        let target = Target::ChildName { connection: None, child: "net".into() };
        terminate(&mut world, host, &target, false);
        assert_eq!(world.hosts[host].sas()[0].children[0].state, ChildSaState::Deleting);
        world.run_secs(1);
        for host in &world.hosts {
            assert!(host.installed.is_empty());
            assert_eq!(host.sas()[0].state, IkeSaState::Established);
        }
        let now = world.now;
        let again = world.hosts[host].endpoint.terminate(now, &target, false);
        assert_eq!(again, Err(TerminateError::NotFound));
        // And up again, on the IKE SA that carries nothing.
        world.establish();
        assert!(world.hosts.iter().all(|host| host.sas().len() == 1));
    }
}

#[test]
fn both_sides_delete_the_ike_sa_at_once() {
    let mut world = established(3);
    terminate(&mut world, 0, &Target::All, false);
    terminate(&mut world, 1, &Target::All, false);
    world.run_secs(1);
    for host in 0..2 {
        assert_eq!(downs(&world, host), [Reason::DeletedByPeer]);
        assert_eq!(sent(&world, host, ExchangeType::Informational, true).len(), 1, "each is answered");
    }
    world.run_secs(60);
    world.assert_nothing_left();
}

#[test]
fn both_sides_delete_the_child_at_once() {
    let mut world = established(4);
    for host in 0..2 {
        let id = world.hosts[host].sas()[0].children[0].id;
        terminate(&mut world, host, &Target::Child(id), false);
    }
    world.run_secs(1);
    for host in 0..2 {
        assert!(world.hosts[host].installed.is_empty());
        assert_eq!(world.hosts[host].sas()[0].state, IkeSaState::Established);
        // The answer to a delete that crossed ours names nothing: it is as long as that of a
        // liveness check.
        let answer = sent(&world, host, ExchangeType::Informational, true)[0].len();
        assert_eq!(answer, 28 + 4 + 8 + 1 + 16);
    }
}

#[test]
fn an_unreachable_peer_does_not_hold_a_delete_up_for_ever() {
    let mut world = established(5);
    world.network.up = false;
    terminate(&mut world, 0, &Target::All, false);
    world.run_secs(19);
    assert_eq!(world.hosts[0].sas().len(), 1);
    world.run_secs(2);
    assert!(world.hosts[0].installed.is_empty() && world.hosts[0].sas().is_empty());
    assert_eq!(downs(&world, 0), [Reason::Requested]);
}

/// The peer may still answer the first one.
#[test]
fn a_second_termination_does_not_end_the_wait_for_the_first() {
    let mut world = established(9);
    world.network.up = false;
    terminate(&mut world, 0, &Target::All, false);
    terminate(&mut world, 0, &Target::All, false);
    world.run_secs(10);
    assert_eq!(world.hosts[0].sas().len(), 1);
    world.network.up = true;
    world.run_secs(20);
    assert_eq!((downs(&world, 0), downs(&world, 1)), (vec![Reason::Requested], vec![Reason::DeletedByPeer]));
}

/// A child that was initiated long ago loses only its new keys.
#[test]
fn a_renewal_that_ends_with_its_ike_sa_is_no_failed_initiation() {
    let mut world = established(10);
    world.network.up = false;
    let (now, child) = (world.now, world.hosts[0].sas()[0].children[0].id);
    assert!(world.hosts[0].endpoint.rekey_child(now, child));
    world.settle(0);
    terminate(&mut world, 0, &Target::All, true);
    assert!(world.hosts[0].results().iter().all(Result::is_ok));
    assert!(!world.hosts[0].warned("establishing CHILD_SA net of site failed"), "{:?}", world.hosts[0].log());
    world.run_secs(60);
    assert!(world.hosts[0].in_use.lock().unwrap().is_empty());
}

/// A child that waits for its turn is told that its IKE SA ends.
#[test]
fn an_initiation_that_waits_fails_with_its_ike_sa() {
    for force in [false, true] {
        let mut world = World::established(12, |index, connection| {
            let nets = ["10.50.0.0", "10.60.0.0"];
            connection.children.push(child("more", nets[index], nets[1 - index]));
        });
        world.network.up = false;
        let (now, net) = (world.now, world.hosts[0].sas()[0].children[0].id);
        assert!(world.hosts[0].endpoint.rekey_child(now, net));
        world.hosts[0].endpoint.initiate(now, None, "more").unwrap();
        terminate(&mut world, 0, &Target::All, force);
        assert_eq!(world.hosts[0].results().iter().filter(|result| result.is_err()).count(), 1, "{force}");
    }
}

/// A Child SA that was renewed a moment ago only takes packets in that are under way: the traffic
/// does not go back to it.
#[test]
fn a_deleted_child_leaves_nothing_to_the_one_before_it() {
    let mut world = established(11);
    let (now, child) = (world.now, world.hosts[0].sas()[0].children[0].id);
    assert!(world.hosts[0].endpoint.rekey_child(now, child));
    world.settle(0);
    world.run_secs(1);
    assert!(world.hosts.iter().all(|host| host.installed.len() == 2));
    let new = *world.hosts[0].sending.first().unwrap();
    terminate(&mut world, 0, &Target::Child(new), false);
    world.run_secs(1);
    for host in &world.hosts {
        assert_eq!((host.installed.len(), host.sending.len()), (1, 0), "{:#?}", host.log());
    }
    world.run_secs(10);
    assert!(world.hosts.iter().all(|host| host.installed.is_empty()));
}

#[test]
fn the_lost_answer_to_the_delete_of_a_rekeyed_ike_sa_holds_nothing_up() {
    let mut world = established(8);
    let (now, id) = (world.now, world.hosts[0].sas()[0].id);
    assert!(world.hosts[0].endpoint.rekey_ike(now, id));
    world.settle(0);
    // Only what is under way arrives: the delete, but not its answer.
    world.run_until(|world| world.hosts[0].sas().len() == 2);
    world.network.up = false;
    world.run_secs(1);
    assert_eq!(world.hosts[1].sas().len(), 1);
    let old = world.hosts[0].sas().into_iter().find(|sa| sa.id == id).unwrap();
    assert_eq!(old.state, IkeSaState::Deleting);
    world.network.up = true;
    terminate(&mut world, 0, &Target::Connection("site".into()), false);
    assert!(world.hosts[0].sas().iter().all(|sa| sa.id != id), "the peer has been told");
    world.run_secs(1);
    assert_eq!(downs(&world, 0), [Reason::Rekeyed, Reason::Requested]);
    world.run_secs(60);
    world.assert_nothing_left();
}

#[test]
fn force_does_not_wait_and_tells_the_peer_once() {
    let mut world = established(6);
    terminate(&mut world, 0, &Target::All, true);
    assert!(world.hosts[0].installed.is_empty() && world.hosts[0].sas().is_empty());
    world.run_secs(1);
    assert!(world.hosts[1].installed.is_empty());
    assert_eq!(downs(&world, 1), [Reason::DeletedByPeer]);
    assert_eq!(sent(&world, 0, ExchangeType::Informational, false).len(), 1);

    let mut world = established(7);
    let child = world.hosts[0].sas()[0].children[0].id;
    terminate(&mut world, 0, &Target::Child(child), true);
    assert!(world.hosts[0].installed.is_empty());
    world.run_secs(1);
    assert!(world.hosts[1].installed.is_empty());
    assert!(world.hosts.iter().all(|host| host.sas()[0].state == IkeSaState::Established));
}

#[test]
fn half_open_ike_sas_are_terminated_too() {
    // In IKE_SA_INIT the peer has nothing to be told.
    let mut world = World::pair(8, Weather::FAIR);
    let id = world.initiate(0);
    terminate(&mut world, 0, &Target::Ike(id), false);
    assert_eq!(world.hosts[0].results(), [Err(Reason::Requested)]);
    assert_eq!(downs(&world, 0), [Reason::Requested]);
    world.run_secs(60);
    world.assert_nothing_left();
    // In IKE_AUTH it may have the SA already: it comes up, and goes.
    let mut world = World::pair(9, Weather::FAIR);
    let id = world.initiate(0);
    world.run_until(|world| !sent(world, 0, ExchangeType::IkeAuth, false).is_empty());
    terminate(&mut world, 0, &Target::Ike(id), false);
    assert_eq!(world.hosts[0].sas()[0].state, IkeSaState::Deleting);
    world.run_secs(1);
    assert_eq!(downs(&world, 0), [Reason::Requested]);
    assert_eq!(downs(&world, 1), [Reason::DeletedByPeer]);
    world.run_secs(60);
    world.assert_nothing_left();
}

#[test]
fn a_half_open_ike_sa_can_be_taken_down() {
    let mut world = World::pair(10, Weather::FAIR);
    world.initiate(0);
    world.run_until(|world| !sent(world, 1, ExchangeType::IkeSaInit, true).is_empty());
    assert_eq!(world.hosts[1].endpoint.half_open(), 1);
    assert_eq!(world.hosts[1].sas()[0].connection, None, "nobody knows yet whose it is");
    terminate(&mut world, 1, &Target::All, false);
    assert_eq!(downs(&world, 1), [Reason::Requested]);
    assert_eq!(world.hosts[1].sas(), []);
    // A stored answer for retransmissions needs memory, and counts.
    assert_eq!(world.hosts[1].endpoint.half_open(), 1);
    world.hosts[0].stopped = true;
    world.run_secs(11);
    assert_eq!(world.hosts[1].endpoint.half_open(), 0);
}

#[test]
fn a_lost_answer_to_a_delete_is_repeated() {
    let mut world = established(11);
    terminate(&mut world, 0, &Target::All, false);
    world.run_until(|world| !sent(world, 1, ExchangeType::Informational, true).is_empty());
    // The answer is lost.
    world.network.up = false;
    world.hosts[0].stopped = true;
    world.run(Duration::from_millis(100));
    world.network.up = true;
    world.hosts[0].stopped = false;
    world.run_secs(8);
    let answers = sent(&world, 1, ExchangeType::Informational, true);
    assert_eq!(answers.len(), 2);
    assert_eq!(answers[0], answers[1]);
    assert_eq!(downs(&world, 0), [Reason::Requested]);
    world.run_secs(60);
    world.assert_nothing_left();
}

#[test]
fn a_delete_waits_for_the_request_under_way() {
    let mut world = World::pair_with(12, Weather::FAIR, |index, connection| {
        if index == 0 {
            connection.dpd_delay = Duration::from_secs(30);
        }
    });
    world.initiate(0);
    world.run_secs(1);
    world.network.up = false;
    world.run_secs(31);
    assert_eq!(sent(&world, 0, ExchangeType::Informational, false).len(), 1, "a liveness check is under way");
    terminate(&mut world, 0, &Target::All, false);
    assert_eq!(sent(&world, 0, ExchangeType::Informational, false).len(), 1, "the window is one");
    world.network.up = true;
    world.run_secs(10);
    assert_eq!(downs(&world, 1), [Reason::DeletedByPeer]);
    world.run_secs(60);
    world.assert_nothing_left();
}

#[test]
fn a_start_child_that_was_taken_down_stays_down() {
    let mut world = World::pair_with(13, Weather::FAIR, |index, connection| {
        if index == 0 {
            connection.children[0].start_action = StartAction::Start;
        }
    });
    world.settle(0);
    world.run_secs(1);
    world.assert_tunnel();
    terminate(&mut world, 0, &Target::All, false);
    world.run_secs(600);
    world.assert_nothing_left();
}

/// Host 1 deletes the child, or the IKE SA with it.
fn deleted_by_peer(world: &mut World, child: bool) {
    let sa = &world.hosts[1].sas()[0];
    let target = if child { Target::Child(sa.children[0].id) } else { Target::Ike(sa.id) };
    terminate(world, 1, &target, false);
    world.run_secs(1);
}

/// A child that comes up by itself should be up: its deletion by the peer wakes an operator up. That
/// of a child which a peer or a packet brings up does not.
#[test]
fn a_deletion_by_the_peer_is_unexpected_where_the_child_starts_by_itself() {
    use StartAction::{None, Start, Trap, TrapStart};
    let cases = [
        (None, None, false),
        (Trap, Trap, false),
        (Start, None, true),
        (TrapStart, None, true),
        (None, Start, true),
    ];
    for (start, close, is_unexpected) in cases {
        for child in [true, false] {
            let mut world = World::established(16, |index, connection| {
                if index == 0 {
                    let child = &mut connection.children[0];
                    (child.start_action, child.close_action) = (start, close);
                }
            });
            deleted_by_peer(&mut world, child);
            let [host, peer] = &world.hosts[..] else { unreachable!() };
            let case = format!("{start:?} {close:?} {child}: {:#?}", host.log());
            assert!(host.logged("CHILD_SA net{1} closed: deleted by the peer"), "{case}");
            assert_eq!(host.warned("CHILD_SA net{1} closed: deleted by the peer"), is_unexpected, "{case}");
            assert_eq!(host.logged("IKE_SA site[1] closed: deleted by the peer"), !child, "{case}");
            assert_eq!(
                host.warned("IKE_SA site[1] closed: deleted by the peer"),
                is_unexpected && !child,
                "{case}"
            );
            assert!(!peer.warned(""), "{:#?}", peer.log());
        }
    }
}

/// The tunnel is not down if the peer deletes an SA that it has replaced, or if we delete it too.
#[test]
fn a_deletion_by_the_peer_is_expected_where_the_tunnel_stays_or_goes_at_our_request() {
    let edits: [fn(&mut World); 5] = [
        |world| {
            let (now, child) = (world.now, world.hosts[1].sas()[0].children[0].id);
            assert!(world.hosts[1].endpoint.rekey_child(now, child));
        },
        |world| {
            let (now, id) = (world.now, world.hosts[1].sas()[0].id);
            assert!(world.hosts[1].endpoint.rekey_ike(now, id));
        },
        |world| {
            let (now, id) = (world.now, world.hosts[1].sas()[0].id);
            assert!(world.hosts[1].endpoint.reauthenticate_ike(now, id));
        },
        |world| {
            for host in 0..2 {
                let id = world.hosts[host].sas()[0].children[0].id;
                terminate(world, host, &Target::Child(id), false);
            }
        },
        |world| (0..2).for_each(|host| terminate(world, host, &Target::All, false)),
    ];
    for (number, edit) in edits.into_iter().enumerate() {
        let mut world = World::established(17, |index, connection| {
            if index == 0 {
                connection.children[0].start_action = StartAction::Start;
            }
        });
        world.run_secs(1);
        edit(&mut world);
        world.settle(1);
        world.run_secs(60);
        for host in &world.hosts {
            assert!(host.logged("closed"), "{number}: {:#?}", host.log());
            assert!(!host.warned(""), "{number}: {:#?}", host.log());
        }
    }
}

#[test]
fn the_spi_of_a_deleted_child_rests() {
    let mut world = established(14);
    let spi = world.hosts[0].installed.values().next().unwrap().spi_in;
    terminate(&mut world, 0, &Target::All, false);
    world.run_secs(100);
    for _ in 0..50 {
        world.initiate(0);
        world.run_secs(1);
        let new = world.hosts[0].installed.values().next().unwrap().spi_in;
        assert_ne!((new.shard(), new.slot()), (spi.shard(), spi.slot()));
        terminate(&mut world, 0, &Target::All, false);
        world.run_secs(1);
    }
}

#[test]
fn a_child_that_the_peer_deletes_first_is_not_deleted_again() {
    let mut world = sun();
    let now = world.now;
    let mut asking = crate::scenarios::common::connection(("192.0.2.2", "sun"), ("192.0.2.1", "moon"));
    asking.dpd_delay = Duration::from_secs(30);
    world.hosts[0].load(now, asking);
    let mut peer = Peer::establish(&mut world, 15);
    world.run_secs(31);
    let checks = |world: &World| sent(world, 0, ExchangeType::Informational, false).len();
    assert_eq!(checks(&world), 1, "a liveness check is under way");
    let child = world.hosts[0].sas()[0].children[0].id;
    terminate(&mut world, 0, &Target::Child(child), false);
    let ours = world.hosts[0].installed.values().next().unwrap().spi_in;
    let delete = vec![Payload::Delete(Delete::Esp(vec![SPI]))];
    let answer = peer.request(&mut world, ExchangeType::Informational, delete).unwrap();
    assert_eq!(answer, [Payload::Delete(Delete::Esp(vec![ours]))], "our delete had not left");
    assert!(peer.answer(&mut world, ExchangeType::Informational, 0).is_empty(), "nothing is left to say");
    assert_eq!(checks(&world), 1);
}
