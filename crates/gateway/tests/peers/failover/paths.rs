//! A learned path MTU survives the node that has learned it.

use super::{LIMIT, Trial, behind};
use crate::common::ANSWERED;
use std::time::Duration;
use testudo_lab::bed::{BedOptions, Failure};
use testudo_lab::cluster::Cluster;
use testudo_lab::nginx::Nginx;
use testudo_lab::router::Router;
use testudo_lab::topology::{Family, HOST, Side};
use testudo_lab::transfer::Transfer;

const MIB: u64 = 1 << 20;
/// Of the path, as a router says.
const PATH: u16 = 1300;

/// How often any node has learned it from the router.
fn learned(trial: &Trial) -> usize {
    let told = format!("takes packets of {PATH} octets");
    let logs = trial.bed.nodes.iter().map(|node| node.log().unwrap());
    logs.map(|log| log.lines().filter(|line| line.contains(&told)).count()).sum()
}

/// A host behind the peer gets a file from the client while a router on the way begins to take
/// less, and then the node that has heard of that is killed.
#[test]
fn a_path_mtu_outlives_the_node_that_learned_it() {
    let mut trial = Trial::start("path-mtu", &BedOptions::default());
    let cluster = trial.bed.cluster.clone();
    let (client, peer) = (&cluster.client, Cluster::peer_address(1, Family::V4));
    let router = Router::join(client.lab(), &cluster.outer).unwrap();
    for node in &cluster.nodes {
        router.put_before(node, peer).unwrap();
    }
    let nginx = Nginx::start(client).unwrap();
    let expected = nginx.add_file("file", 24 * MIB, 7).unwrap();
    let slow = format!("qdisc add dev {HOST} root tbf rate 20mbit burst 64k latency 100ms");
    client.run("tc", slow.split(' ')).unwrap();
    let transfer = Transfer::start(&cluster.hosts[0], Side::One.host(Family::V4), "file").unwrap();
    transfer.await_received(MIB, LIMIT).unwrap();
    assert_eq!(learned(&trial), 0);

    router.limit(peer, PATH).unwrap();
    transfer.await_received(transfer.received() + 4 * MIB, LIMIT).unwrap();
    let before = learned(&trial);
    assert!(before > 0, "the download goes on without a word of the router");

    let owner = trial.bed.owner(1).unwrap();
    trial.bed.strike(owner, Failure::Testudod).unwrap();
    let done = transfer.finish(Duration::from_secs(60)).unwrap();
    assert_eq!((done.bytes, done.sha256), (24 * MIB, expected));

    // A host that has forgotten the path MTU learns it from the cluster again, with the first
    // packet.
    client.ip("route flush cache").unwrap();
    let args = ["-n", "-M", "do", "-W", ANSWERED, "-c", "1", "-s", "1372"];
    let said = client.cmd("ping").args(args).arg(behind(1).to_string()).run_any().unwrap().stdout;
    // Outer IPv4 and UDP, and what ESP adds.
    let mtu = (PATH - 20 - 8 - 32) / 4 * 4 - 2;
    assert!(said.contains(&format!("Frag needed and DF set (mtu = {mtu})")), "{said}");
    assert_eq!(learned(&trial), before, "nobody had to learn it anew");
}
