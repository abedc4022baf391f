//! Ingress by routers: what a routing daemon learns of a node.

use super::LIMIT;
use std::time::{Duration, Instant};
use testudo_lab::bed::{Bed, BedOptions, Failure};
use testudo_lab::cluster::routed::{ANNOUNCED, Liveness};
use testudo_lab::cluster::{Cluster, Ingress, Net, Options};
use testudo_lab::topology::Family;
use testudo_lab::{Lab, wait_until};

const WITHDRAW: Duration = Duration::from_millis(2000);

fn options() -> BedOptions {
    let keys = ["ingress = \"routed\"", "announce_table = 5406", "fence_ms = 300"].join("\n");
    let cluster = format!("{keys}\nwithdraw_ms = {}", WITHDRAW.as_millis());
    BedOptions { cluster, ..BedOptions::default() }
}

/// True if a node has the routes that a routing daemon announces.
fn is_announced(bed: &Bed, node: u8) -> bool {
    let namespace = &bed.cluster.nodes[usize::from(node) - 1];
    // Without any route there is no such table.
    let shown = namespace.cmd("ip").args(["route", "show", "table", "5406"]).run_any().unwrap();
    shown.stdout.contains("-bgp proto 84 scope link")
}

fn await_announced(bed: &Bed, node: u8, announced: bool) {
    wait_until(&format!("node {node} announced: {announced}"), LIMIT, || {
        Ok(if is_announced(bed, node) == announced { Ok(()) } else { Err("the opposite".to_owned()) })
    })
    .unwrap();
}

/// The number of shards that a node carries.
fn carried(bed: &mut Bed, node: u8) -> u64 {
    bed.node(node).cluster().unwrap()["packets"].as_u64().unwrap()
}

#[test]
fn a_node_is_announced_while_it_serves_and_withdrawn_before_it_gives_shards_away() {
    let lab = Lab::large("announced", 2).unwrap();
    let mut bed = Bed::start(&lab, &options()).unwrap();
    (1..=3).for_each(|node| await_announced(&bed, node, true));
    // In this lab the nodes hear each other on a network that is no port.
    let why = bed.node(1).cluster().unwrap()["why"].to_string();
    assert!(why.contains("relayed packets cannot come here") && why.contains("is on no [[port]]"), "{why}");
    assert!(!why.contains("routers are not told"), "{why}");

    let ordered = Instant::now();
    std::thread::scope(|scope| {
        let drain = scope.spawn(|| bed.nodes[0].drain(&["2"]).unwrap());
        await_announced(&bed, 2, false);
        // Proves nothing on a machine that took so long to look.
        if ordered.elapsed() < WITHDRAW {
            let packets = bed.nodes[1].cluster().unwrap()["packets"].as_u64().unwrap();
            assert!(packets > 0 || ordered.elapsed() >= WITHDRAW, "withdrawn too late");
        }
        drain.join().unwrap();
    });
    assert!(ordered.elapsed() >= WITHDRAW);
    assert_eq!(carried(&mut bed, 2), 0);
    let why = bed.node(2).cluster().unwrap()["why"].to_string();
    assert!(why.contains("routers are not told of this node"), "{why}");
    bed.node(2).drain(&["--undo"]).unwrap();
    await_announced(&bed, 2, true);

    // However the daemon dies.
    bed.strike(3, Failure::Testudod).unwrap();
    await_announced(&bed, 3, false);
    bed.await_members(&[1, 2]).unwrap();
    bed.mend(3, Failure::Testudod).unwrap();
    await_announced(&bed, 3, true);
}

/// The routing daemon of a node stands still, as if its host did, and closes no connection. BGP's
/// own timer takes four minutes.
#[test]
fn routers_notice_a_silent_node_by_bfd() {
    let lab = Lab::new("announced-bfd").unwrap();
    let options = Options { peers: 0, ingress: Ingress::Routed, ..Options::default() };
    let cluster = Cluster::build(&lab, &options).unwrap();
    for node in &cluster.nodes {
        for net in [Net::Outer, Net::Inner] {
            let shared = Cluster::shared(net, Family::V4).unwrap();
            node.ip(&format!("route add {shared}/32 dev lo table {ANNOUNCED} proto 84")).unwrap();
        }
    }
    let mut routing = cluster.start_routing(Liveness::Bfd).unwrap();
    cluster.await_served_by(&[1, 2, 3]).unwrap();
    routing.nodes[1].pause().unwrap();
    cluster.await_served_by(&[1, 3]).unwrap();
    routing.nodes[1].resume().unwrap();
    cluster.await_served_by(&[1, 2, 3]).unwrap();
}
