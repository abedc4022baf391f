//! Updates of an IKE SA: complete once, then only changes.

use crate::config::{of_cluster, of_peer};
use crate::world::World;
use std::time::Duration;
use testudo_cluster::member::{IkeUpdateCounts, MessageCount};
use testudo_ike::config::Connection;

const EVERY: Duration = Duration::from_secs(10);
/// A liveness check: a Message ID, some times, the octets kept for a repetition.
const LIVENESS: u64 = 320;

/// One tunnel, on which the cluster or the peer asks whether the other lives.
fn tunnel(cluster_asks: bool) -> (World, usize) {
    let mut world = World::begun(3, 1, 11, Duration::from_millis(50));
    let now = world.now;
    let asking = |connection: Connection, asks: bool| Connection {
        dpd_delay: if asks { EVERY } else { Duration::ZERO },
        ..connection
    };
    for node in &mut world.nodes {
        let endpoint = node.member.as_mut().unwrap().endpoint_mut();
        endpoint.load_connection(now, asking(of_cluster(0), cluster_asks)).unwrap();
    }
    world.peers[0].endpoint.load_connection(now, asking(of_peer(0), !cluster_asks)).unwrap();
    world.initiate(0);
    world.run(Duration::from_secs(1));
    world.assert_tunnel(0);
    let owner = world.owner_of(0).unwrap();
    (world, owner)
}

fn told(world: &World, node: usize) -> IkeUpdateCounts {
    world.nodes[node].member.as_ref().unwrap().status().counters.told
}

fn mean(count: MessageCount) -> u64 {
    count.octets / count.messages.max(1)
}

/// The tunnel continues at another node, which has received no complete state since the changes
/// began.
fn goes_on_elsewhere(world: &mut World, owner: usize) {
    let id = world.peers[0].endpoint.sas().next().unwrap().id;
    world.crash(owner, false);
    world.run(Duration::from_millis(600));
    world.view(&(0..3).filter(|node| *node != owner).collect::<Vec<_>>());
    world.run(Duration::from_secs(1));
    world.assert_tunnel(0);
    let now = world.now;
    assert!(world.peers[0].endpoint.rekey_ike(now, id));
    world.run(Duration::from_secs(12));
    world.assert_tunnel(0);
}

#[test]
fn a_liveness_check_of_the_peer_is_a_message_id_and_a_response() {
    let (mut world, owner) = tunnel(false);
    let before = told(&world, owner);
    world.run(EVERY * 21);
    let after = told(&world, owner);
    assert_eq!(after.states, before.states, "no whole state is told again");
    assert_eq!((after.mid_i, after.updates), (before.mid_i, before.updates));
    assert!((20..=25).contains(&(after.mid_r.messages - before.mid_r.messages)), "{after:?}");
    assert!(mean(after.mid_r) < LIVENESS, "{after:?}");
    goes_on_elsewhere(&mut world, owner);
}

#[test]
fn a_liveness_check_of_ours_is_a_request_and_its_end() {
    let (mut world, owner) = tunnel(true);
    let before = told(&world, owner);
    world.run(EVERY * 21);
    let after = told(&world, owner);
    assert_eq!((after.states, after.mid_r), (before.states, before.mid_r));
    assert!(after.mid_i.messages - before.mid_i.messages >= 20, "{after:?}");
    assert!(mean(after.mid_i) < LIVENESS && mean(after.updates) < LIVENESS, "{after:?}");
    goes_on_elsewhere(&mut world, owner);
}
