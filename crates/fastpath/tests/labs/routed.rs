//! Two nodes of a cluster and real hosts, where every packet reaches the wrong node: a tunnel works
//! all the same, in both directions.

use crate::streams::exchange;
use crate::support::ip;
use crate::support::routed::Routed;
use crate::support::tunnel::{CLIENT, SERVER};
use std::process::Command;
use testudo_fastpath::worker::WorkerDrop;

const OCTETS: usize = 8 << 20;

/// The first node has relayed all, and the carrier has worked on it.
fn check(routed: &Routed) {
    let [first, carrier] = [&routed.first, &routed.carrier].map(|node| node.pipeline.totals());
    let enough = (OCTETS / 1500) as u64;
    assert!(first.outbound.relayed > enough && first.inbound.relayed > enough, "{first:?}");
    assert_eq!((first.outbound.forwarded, first.inbound.forwarded), (0, 0));
    assert!(carrier.inbound.relayed_in >= carrier.outbound.forwarded + carrier.inbound.forwarded);
    assert!(carrier.outbound.forwarded > enough && carrier.inbound.forwarded > enough, "{carrier:?}");
    assert_eq!((carrier.outbound.relayed, carrier.inbound.relayed, first.inbound.relayed_in), (0, 0, 0));
}

fn stop(routed: Routed) {
    let Routed { first, carrier, right, .. } = routed;
    [first, carrier, right].into_iter().for_each(super::support::routed::Gateway::stop);
}

#[test]
fn a_stream_crosses_the_wrong_node_unharmed_both_ways() {
    let routed = Routed::new(1500);
    exchange(&routed.client, &routed.server, OCTETS);
    check(&routed);
    // ESP of the peer's full size does not fit the cluster network with another header.
    let [split, joined] = [&routed.first, &routed.carrier].map(|node| node.worker.counters().totals());
    assert!(split.split > 0 && joined.joined > 0, "{} split, {} joined", split.split, joined.joined);
    stop(routed);
}

/// The carrier does not know by which port a packet came: the node that received it checks that.
#[test]
fn a_forged_source_is_not_relayed() {
    let routed = Routed::new(1500);
    let ping = |from: &str| {
        routed.client.run(|| {
            let args = ["-I", from, "-c", "1", "-W", "1", SERVER];
            Command::new("ping").args(args).output().expect("ping").status.success()
        })
    };
    routed.client.run(|| ip("address add 10.1.77.2/32 dev lo"));
    assert!(!ping("10.1.77.2"));
    let first = &routed.first;
    assert_eq!(first.worker.counters().dropped(WorkerDrop::SpoofedSource), 1);
    assert_eq!(first.pipeline.totals().outbound.relayed, 0);
    assert!(ping(CLIENT));
    stop(routed);
}

/// The carrier alone knows the MTU of the tunnel.
#[test]
fn a_sender_learns_the_mtu_of_the_tunnel_from_the_carrier() {
    let routed = Routed::new(1500);
    let ping = |size: &str| {
        routed.client.run(|| {
            let args = ["-M", "do", "-s", size, "-c", "1", "-W", "30", SERVER];
            Command::new("ping").args(args).output().expect("ping")
        })
    };
    let refused = ping("1472");
    let text = [refused.stdout, refused.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("Frag needed") || text.contains("message too long"), "{text}");
    assert!(ping("1400").status.success());
    stop(routed);
}
