//! Three nodes as one gateway: corosync, Testudo on each, one address, and a peer that knows nothing of it.

use testudo_lab::Lab;
use testudo_lab::bed::{Bed, BedOptions};
use testudo_lab::cluster::Cluster;
use testudo_lab::ping::Ping;
use testudo_lab::topology::{Family, Side};

#[test]
fn three_nodes_answer_a_peer_as_one() {
    let bed = Bed::start(&Lab::new("cluster").unwrap(), &BedOptions::default()).unwrap();
    bed.bring_up(1).unwrap();
    for family in [Family::V4, Family::V6] {
        let pong = Ping::new(Side::One.host(family)).count(20).run(&bed.cluster.hosts[0]).unwrap();
        assert_eq!((pong.received, pong.duplicates), (20, 0), "{family}");
        let behind = Cluster::behind(1, family, 2);
        let pong = Ping::new(behind).count(20).run(&bed.cluster.client).unwrap();
        assert_eq!((pong.received, pong.duplicates), (20, 0), "{family}");
    }
    let owner = bed.owner(1).unwrap();
    let others: Vec<u8> = (1..=3).filter(|node| *node != owner).collect();
    assert_eq!(bed.owner_among(1, &others).unwrap(), None, "one node speaks IKE with it");
}
