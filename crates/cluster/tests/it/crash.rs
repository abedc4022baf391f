//! The owner dies between any two events of an exchange. What the peer has seen answered stays
//! answered, octet for octet: the world checks each message that is sent.

use crate::world::World;
use std::time::Duration;

/// Runs what `begin` begins for `events` events, then the owner of peer 0 is gone. A view without
/// it comes soon after.
fn crash_after(events: usize, lossy: bool, begin: impl Fn(&mut World), check: impl Fn(&mut World)) -> bool {
    // Few heartbeats: what is waited for is the peer, which repeats its requests for minutes.
    let mut world = World::begun(3, 1, 7, Duration::from_secs(2));
    begin(&mut world);
    let end = world.now.plus(Duration::from_secs(20));
    let mut last = None;
    for _ in 0..events {
        last = world.owner_of(0).or(last);
        if !world.step(end) {
            return false;
        }
    }
    let Some(owner) = world.owner_of(0).or(last) else { return true };
    world.crash(owner, lossy);
    world.run(Duration::from_millis(150));
    let others: Vec<usize> = (0..3).filter(|node| *node != owner).collect();
    world.view(&others);
    world.run(Duration::from_secs(400));
    check(&mut world);
    true
}

/// At every event: `make test-all` both with and without a loss of what was sent last, `make test`
/// by turns.
fn at_every_event(begin: impl Fn(&mut World), check: impl Fn(&mut World)) {
    let stride = if crate::is_thorough() { 1 } else { 2 };
    for (first, lossy) in [(0, false), (stride - 1, true)] {
        let mut crashes = first;
        while crash_after(crashes, lossy, &begin, &check) {
            crashes += stride;
            assert!(crashes < 2000, "it comes to an end");
        }
        assert!(crashes > 10, "only {crashes} events");
    }
}

#[test]
fn while_the_tunnel_comes_up() {
    at_every_event(|world| world.initiate(0), |world| world.assert_tunnel(0));
}

fn up(world: &mut World) {
    world.initiate(0);
    world.run(Duration::from_secs(1));
    world.assert_tunnel(0);
}

#[test]
fn while_the_peer_renews_a_child() {
    at_every_event(
        |world| {
            up(world);
            let (now, peer) = (world.now, &mut world.peers[0].endpoint);
            let child = peer.sas().next().unwrap().children[0].id;
            assert!(peer.rekey_child(now, child));
            world.settle();
        },
        |world| world.assert_tunnel(0),
    );
}

#[test]
fn while_the_peer_renews_the_ike_sa() {
    at_every_event(
        |world| {
            up(world);
            let (now, peer) = (world.now, &mut world.peers[0].endpoint);
            let ike = peer.sas().next().unwrap().id;
            assert!(peer.rekey_ike(now, ike));
            world.settle();
        },
        |world| {
            world.assert_tunnel(0);
            assert_eq!(world.peers[0].endpoint.sas().count(), 1);
        },
    );
}

#[test]
fn while_the_cluster_renews_a_child() {
    at_every_event(
        |world| {
            up(world);
            let (now, owner) = (world.now, world.owner_of(0).unwrap());
            let member = world.nodes[owner].member.as_mut().unwrap();
            let child = member.endpoint().sas().next().unwrap().children[0].id;
            assert!(member.endpoint_mut().rekey_child(now, child));
            world.settle();
        },
        |world| world.assert_tunnel(0),
    );
}
