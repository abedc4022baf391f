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
            sleep(Duration::from_micros(200));
        }
    };
    client.enter(send).unwrap();
    count.join().unwrap()
}

/// What the peer's window has refused, as the kernel counts it for each SA.
fn refused_by_window(trial: &Trial) -> u64 {
    let shown = trial.bed.cluster.peers[0].ip("-s xfrm state").unwrap().stdout;
    let words: Vec<&str> = shown.split_whitespace().collect();
    let counts = words.windows(2).filter(|pair| ["replay-window", "replay"].contains(&pair[0]));
    let counts = counts.filter_map(|pair| pair[1].parse::<u64>().ok());
    // The size of the window stands under the same name.
    counts.filter(|count| *count != 1024).sum()
}

#[test]
fn one_tunnel_uses_all_nodes_behind_routers_and_nothing_to_the_peer_is_relayed() {
    let mut trial = spread();
    trial.all_is_well("the start");
    send_to_many(&trial);
    let (before, relayed_before) = (sent(&trial), relayed(&trial.bed));
    trial.bed.cluster.hosts[0].ip("route del local 10.2.0.128/25 dev lo").unwrap();
    let came = send_to_many(&trial);
    let nodes: Vec<u64> = sent(&trial).iter().zip(&before).map(|(after, before)| after - before).collect();
    let all = (ROUNDS * HOSTS.count()) as u64;
    assert_eq!((nodes.iter().sum::<u64>(), came as u64), (all, all), "{nodes:?}");
    assert!(nodes.iter().all(|node| node * 6 > all), "{nodes:?}");
    assert_eq!(relayed(&trial.bed), relayed_before);
    assert_eq!(refused_by_window(&trial), 0);
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
