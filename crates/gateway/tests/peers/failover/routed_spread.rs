//! One tunnel over nodes behind routers: each node sends what routers give to it.

use super::routed::{nothing_is_lost, options, relayed};
use super::{LIMIT, Trial, behind, hardly_doubled, others};
use nix::sys::signal::Signal;
use std::net::UdpSocket;
use std::thread::sleep;
use std::time::Duration;
use testudo_lab::bed::{BedOptions, replay_window};
use testudo_lab::cluster::Cluster;
use testudo_lab::gateway::Kind;
use testudo_lab::topology::Family;
use testudo_lab::wait_until;

/// Datagrams to each of the addresses behind the peer.
const ROUNDS: usize = 20;
/// Addresses behind the peer: each is a flow for the router.
const HOSTS: std::ops::RangeInclusive<u8> = 129..=250;

fn spread() -> Trial {
    let options = BedOptions {
        settings: "[[spread]]\nconnection = \"peer1\"\nscheme = \"session-hash\"\n".into(),
        // On one machine with everything else nodes take longer for a view than a fence lasts.
        cluster: "fence_ms = 300".into(),
        ..options(vec![Kind::Strongswan])
    };
    // A row has a number for each node, and the nodes are some rows apart.
    let trial = Trial::start_with("routed-spread", &options, replay_window(1024));
    trial.bed.cluster.await_served_by(&[1, 2, 3]).unwrap();
    trial
}

/// Packets that each node has sent to the peer.
fn sent(trial: &Trial) -> Vec<u64> {
    let of = |node: &testudo_lab::testudo::Testudo| {
        node.status().unwrap()["counters"]["totals"]["out_forwarded"].as_u64().unwrap()
    };
    trial.bed.nodes.iter().map(of).collect()
}

/// Sends to many addresses behind the peer, where a host takes all of it. How many have come.
fn send_to_many(trial: &Trial) -> usize {
    let (client, host) = (&trial.bed.cluster.client, &trial.bed.cluster.hosts[0]);
    host.ip("route add local 10.2.0.128/25 dev lo").unwrap();
    let sink = host.enter(|| UdpSocket::bind("0.0.0.0:7").unwrap()).unwrap();
    sink.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    let count = std::thread::spawn(move || {
        std::iter::repeat_with(|| sink.recv(&mut [0; 64])).take_while(Result::is_ok).count()
    });
    let send = || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        for host in (0..ROUNDS).flat_map(|_| HOSTS) {
            socket.send_to(b"to one of many", (Cluster::behind(1, Family::V4, host), 7)).unwrap();
            sleep(Duration::from_millis(1));
        }
    };
    client.enter(send).unwrap();
    let came = count.join().unwrap();
    host.ip("route del local 10.2.0.128/25 dev lo").unwrap();
    came
}

/// What the peer's window has refused.
fn refused_by_window(trial: &Trial) -> u64 {
    trial.bed.peers[0].replays().unwrap()
}

#[test]
fn one_tunnel_uses_all_nodes_behind_routers_and_nothing_to_the_peer_is_relayed() {
    let mut trial = spread();
    trial.all_is_well("the start");
    send_to_many(&trial);
    let all = (ROUNDS * HOSTS.count()) as u64;
    let relayed_before = relayed(&trial.bed);
    // A node that has waited for a processor among other labs has not heard how far the others have
    // come, and the peer's window refuses what it sends then.
    wait_until("all packets within the peer's window", LIMIT, || {
        let (before, refused) = (sent(&trial), refused_by_window(&trial));
        let came = send_to_many(&trial) as u64;
        let nodes: Vec<u64> =
            sent(&trial).iter().zip(&before).map(|(after, before)| after - before).collect();
        assert!(nodes.iter().all(|node| node * 6 > all), "{nodes:?}");
        let refused = refused_by_window(&trial) - refused;
        let seen = format!("of {all} packets {came} came, {refused} refused by the peer's window: {nodes:?}");
        Ok(if (nodes.iter().sum(), came, refused) == (all, all, 0) { Ok(()) } else { Err(seen) })
    })
    .unwrap();
    assert_eq!(relayed(&trial.bed), relayed_before);
    // From the peer all packets take one node, which relays those of the others' lanes.
    let seen = trial.under_traffic("traffic", |_| {});
    nothing_is_lost(&seen);
    hardly_doubled("traffic", 0, &seen);
    assert!(relayed(&trial.bed)[0] > relayed_before[0]);
    trial.all_is_well("traffic");
}

/// Another node than the one that speaks for the tunnel: that one has the peer get new keys.
#[test]
fn a_tunnel_over_nodes_behind_routers_outlives_one_of_them() {
    let mut trial = spread();
    trial.all_is_well("the start");
    let owner = trial.bed.owner(1).unwrap();
    let before = trial.spis(1);
    let dies = others(owner)[0];
    let left: Vec<u8> = others(dies);
    let seen = trial.under_traffic("SIGKILL of a node", |bed| {
        bed.node(dies).process().signal(Signal::SIGKILL).unwrap();
        bed.cluster.await_served_by(&left).unwrap();
    });
    assert!(seen.probes.iter().all(|probe| probe.duplicates == 0), "{:?}", seen.probes);
    wait_until("new keys after the death of a node", LIMIT, || {
        let now = trial.spis(1);
        let is_new = !now.is_empty() && now.iter().all(|spi| !before.contains(spi));
        Ok(if is_new { Ok(()) } else { Err(format!("{now:?}")) })
    })
    .unwrap();
    assert_eq!(trial.bed.owner_among(1, &left).unwrap(), Some(owner), "to {}", behind(1));
    trial.await_traffic(1, "SIGKILL of a node");
    trial.renews(1, "SIGKILL of a node");
}
