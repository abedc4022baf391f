//! What needs order and completeness crosses a spread tunnel too: one TCP stream, and a download
//! over HTTP. All nodes do the work, and one of them may die.

use super::daemons::outlive;
use super::spread::spread;
use super::{LIMIT, Trial, behind};
use std::io::Write;
use std::time::Duration;
use testudo_lab::bed::{BedOptions, Failure, replay_window};
use testudo_lab::gateway::Kind;
use testudo_lab::iperf::Direction;
use testudo_lab::nginx::Nginx;
use testudo_lab::streams::Streams;
use testudo_lab::transfer::Transfer;
use testudo_lab::wait_until;

const MIB: u64 = 1 << 20;
/// Octets of a stream, and of the file: far more than arrives until the node is dead.
const OCTETS: u64 = 64 * MIB;
/// For a whole transfer.
const DONE: Duration = Duration::from_secs(600);
/// CPU time of all nodes that is enough to compare them.
const ENOUGH_SECONDS: f64 = 1.0;

/// CPU time of each node so far, in seconds.
fn cpu(trial: &Trial) -> Vec<f64> {
    trial.bed.nodes.iter().map(|node| node.cpu().unwrap().seconds()).collect()
}

/// One stream and many, both ways, until the nodes have worked long enough: each has had its part.
fn all_nodes_work(trial: &Trial) {
    let (client, host) = (&trial.bed.cluster.client, &trial.bed.cluster.hosts[0]);
    let before = cpu(trial);
    let spent = wait_until("nodes that have worked", LIMIT, || {
        for direction in [Direction::Up, Direction::Down] {
            for count in [1, 16] {
                let streams = Streams { direction, count, octets: OCTETS / 4 / u64::from(count) };
                streams.carry(client, host, behind(1))?;
            }
        }
        let spent: Vec<f64> = cpu(trial).iter().zip(&before).map(|(now, before)| now - before).collect();
        let enough = spent.iter().sum::<f64>() > ENOUGH_SECONDS;
        Ok(if enough { Ok(spent) } else { Err(format!("{spent:?}")) })
    })
    .unwrap();
    let mut stderr = std::io::stderr();
    writeln!(stderr, "{spent:.2?} seconds of CPU time").unwrap();
    let all: f64 = spent.iter().sum();
    assert!(spent.iter().all(|node| node * 10.0 >= all), "{spent:?} seconds of CPU time");
}

/// A download of the client's from the host behind the peer goes on when a node dies.
fn a_download_outlives(trial: &mut Trial, node: u8) {
    let nginx = Nginx::start(&trial.bed.cluster.hosts[0]).unwrap();
    let expected = nginx.add_file("file", OCTETS, 7).unwrap();
    let transfer = Transfer::start(&trial.bed.cluster.client, behind(1), "file").unwrap();
    transfer.await_received(OCTETS / 8, LIMIT).unwrap();
    trial.bed.strike(node, Failure::Testudod).unwrap();
    assert!(transfer.received() < OCTETS, "all had arrived before the node died");
    let done = transfer.finish(DONE).unwrap();
    assert_eq!((done.bytes, done.sha256), (OCTETS, expected));
}

fn back(trial: &mut Trial, node: u8) {
    trial.all_is_well("the death of a node under TCP");
    trial.bed.mend(node, Failure::Testudod).unwrap();
    trial.whole();
    trial.bed.await_balance().unwrap();
}

#[test]
#[ignore = "make test-all: a combination of what others prove"]
fn a_stream_and_a_download_use_all_nodes_and_outlive_one() {
    let options = BedOptions { peers: vec![Kind::Testudo], ..spread("packet-hash") };
    let mut trial = Trial::start_with("spread-tcp", &options, replay_window(1024));
    all_nodes_work(&trial);
    outlive(&mut trial, 1, Streams::one(Direction::Up, OCTETS));
    back(&mut trial, 1);
    a_download_outlives(&mut trial, 2);
    back(&mut trial, 2);
}
