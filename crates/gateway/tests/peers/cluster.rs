//! Three nodes as one gateway: corosync, Testudo on each, one address, and a peer that knows
//! nothing of it.

use crate::common::SOON;
use std::net::IpAddr;
use testudo_lab::bed::{Bed, BedOptions};
use testudo_lab::cluster::{Cluster, Net};
use testudo_lab::gateway::Kind;
use testudo_lab::iperf::Direction;
use testudo_lab::ping::Ping;
use testudo_lab::streams::Streams;
use testudo_lab::topology::{Family, Side};
use testudo_lab::{Lab, Namespace, wait_until};

/// All pings are answered, none of them twice. After a moment without a processor a node is behind
/// its fence, and the pings are repeated.
fn answered_once(from: &Namespace, to: IpAddr) {
    wait_until("an answer to each of 20 pings", SOON, || {
        let pong = Ping::new(to).count(20).brief().run(from)?;
        assert_eq!(pong.duplicates, 0, "{to}");
        Ok(if pong.received == 20 { Ok(()) } else { Err(format!("{pong:?}")) })
    })
    .unwrap();
}

#[test]
fn three_nodes_answer_a_peer_as_one() {
    let bed = Bed::start(&Lab::large("cluster", 2).unwrap(), &BedOptions::default()).unwrap();
    bed.bring_up(1).unwrap();
    for family in [Family::V4, Family::V6] {
        answered_once(&bed.cluster.hosts[0], Side::One.host(family));
        answered_once(&bed.cluster.client, Cluster::behind(1, family, 2));
    }
    let owner = bed.owner(1).unwrap();
    let others: Vec<u8> = (1..=3).filter(|node| *node != owner).collect();
    assert_eq!(bed.owner_among(1, &others).unwrap(), None, "one node speaks IKE with it");
}

/// Each node's own address is on the outer link, and no policy has it on our side: beside a tunnel
/// for everything, every node stays reachable there from off-link, whichever carries the tunnel.
#[test]
fn a_tunnel_for_everything_cuts_no_node_off() {
    let everything = || vec!["0.0.0.0/0".to_owned(), "::/0".to_owned()];
    let options = BedOptions { peers: vec![Kind::Testudo], ..BedOptions::default() };
    let bed =
        Bed::start_with(
            &Lab::large("cluster-full", 2).unwrap(),
            &options,
            |at_peer, connection| match at_peer {
                true => connection.local_ts = everything(),
                false => connection.remote_ts = everything(),
            },
        );
    let bed = bed.unwrap();
    bed.bring_up(1).unwrap();
    let host = &bed.cluster.hosts[0];
    for family in [Family::V4, Family::V6] {
        answered_once(&bed.cluster.client, Cluster::behind(1, family, 2));
        for node in 1..=3 {
            let own = Cluster::own(node, Net::Outer, family);
            answered_once(host, own);
            Streams::one(Direction::Up, 1 << 16).carry(host, bed.cluster.node(node), own).unwrap();
        }
    }
}
