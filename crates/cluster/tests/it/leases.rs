//! Virtual addresses: every node knows every lease, whichever node granted it.

use crate::world::World;
use std::net::IpAddr;
use std::time::Duration;
use testudo_ike::config::{Pool, TsSpec};
use testudo_ike::endpoint::{LeaseStatus, Target};
use testudo_ipsec::selector::AddrRange;

const DYNAMIC: TsSpec = TsSpec::Dynamic { protocol: 0, port_start: 0, port_end: u16::MAX };

/// Three nodes, and six peers that have an address of a pool each.
fn leased(seed: u64) -> World {
    let addr = |last| IpAddr::from([10, 3, 0, last]);
    let mut world = World::begun(3, 6, seed, Duration::from_millis(50));
    for member in world.nodes.iter_mut().filter_map(|node| node.member.as_mut()) {
        let addrs = AddrRange::new(addr(1), addr(254)).unwrap();
        let pool = Pool { name: "pool".into(), base: addr(1), addrs, dns: vec![], subnets: vec![] };
        member.endpoint_mut().load_pool(pool).unwrap();
    }
    world.configure(
        |here| {
            here.pools = vec!["pool".into()];
            here.children[0].remote_ts = vec![DYNAMIC];
        },
        |there| {
            there.vips = vec![[0, 0, 0, 0].into()];
            there.children[0].local_ts = vec![DYNAMIC];
        },
    );
    world.establish();
    world
}

/// What a node knows of the pool.
fn leases(world: &World, node: usize) -> Vec<LeaseStatus> {
    world.nodes[node].member.as_ref().unwrap().endpoint().pools().leases("pool").collect()
}

/// The address that a peer has.
fn addr_of(world: &World, peer: usize) -> IpAddr {
    world.peers[peer].endpoint.sas().next().unwrap().local_vips[0]
}

/// These nodes know that each peer has its address, but for those whose peers are gone.
fn assert_known(world: &World, nodes: &[usize], gone: &[IpAddr]) {
    for &node in nodes {
        let known = leases(world, node);
        assert_eq!(known.len(), 6, "node {node}: {known:?}");
        assert_eq!(known, leases(world, nodes[0]), "node {node}");
        for lease in known {
            assert_eq!(lease.online, !gone.contains(&lease.addr), "node {node}: {lease:?}");
        }
    }
    let twice = world.logs().into_iter().filter(|line| line.contains("leased to two peers"));
    assert_eq!(twice.count(), 0);
}

#[test]
fn all_nodes_know_of_a_lease() {
    let mut world = leased(1100);
    assert_known(&world, &[0, 1, 2], &[]);
    let (before, owner) = (addr_of(&world, 0), world.owner_of(0).unwrap());
    world.crash(owner, false);
    let left: Vec<usize> = (0..3).filter(|node| *node != owner).collect();
    world.view(&left);
    world.run(Duration::from_secs(2));
    assert_known(&world, &left, &[]);
    let (now, peer) = (world.now, &mut world.peers[0].endpoint);
    let ike = peer.sas().next().unwrap().id;
    assert!(peer.rekey_ike(now, ike));
    world.run(Duration::from_secs(2));
    assert_eq!(addr_of(&world, 0), before);
    assert_known(&world, &left, &[]);
}

/// A renewed IKE SA takes the address from the old one: it is free when the new one ends.
#[test]
fn a_lease_ends_with_the_last_ike_sa_on_every_node() {
    let mut world = leased(1101);
    let addr = addr_of(&world, 0);
    let (now, peer) = (world.now, &mut world.peers[0].endpoint);
    let ike = peer.sas().next().unwrap().id;
    assert!(peer.rekey_ike(now, ike));
    world.run(Duration::from_secs(2));
    assert_known(&world, &[0, 1, 2], &[]);
    let (now, peer) = (world.now, &mut world.peers[0].endpoint);
    peer.terminate(now, &Target::All, false).unwrap();
    world.run(Duration::from_secs(2));
    assert_known(&world, &[0, 1, 2], &[addr]);
}
