//! A daemon of the node that carries the tunnel dies, or stands still.

use super::{LIMIT, OUTAGE_LIMIT, Trial, behind, not_doubled, others, within};
use std::thread::sleep;
use std::time::Duration;
use testudo_lab::bed::{Bed, BedOptions, Failure};
use testudo_lab::cluster::Net;
use testudo_lab::gateway::Kind;
use testudo_lab::iperf::{Direction, IperfServer, Throughput};
use testudo_lab::ping::Ping;
use testudo_lab::topology::{Family, Side};

/// While it happens and behind it nothing is doubled, traffic goes on soon, and the tunnels are what they were.
fn carried_on(trial: &mut Trial, what: &str, happen: impl FnOnce(&mut Bed)) {
    let seen = trial.under_traffic(what, happen);
    not_doubled(what, &seen);
    within(what, OUTAGE_LIMIT, &seen);
    trial.all_is_well(what);
}

/// SIGKILL of testudod: the others carry on what it had, and it comes back to what is its.
fn killed_and_back(name: &str, options: &BedOptions) {
    let mut trial = Trial::start(name, options);
    let owner = trial.bed.owner(1).unwrap();
    carried_on(&mut trial, "SIGKILL of testudod", |bed| bed.strike(owner, Failure::Testudod).unwrap());
    assert!(
        trial.bed.owner_among(1, &others(owner)).unwrap().is_some(),
        "a survivor speaks IKE with the peer"
    );

    carried_on(&mut trial, "the return of testudod", |bed| {
        bed.mend(owner, Failure::Testudod).unwrap();
        bed.await_all().unwrap();
    });
}

#[test]
fn testudod_is_killed_and_comes_back() {
    killed_and_back("kill-testudod", &BedOptions::default());
}

#[test]
#[ignore = "make test-all: the other peer"]
fn testudod_is_killed_with_testudo_as_the_peer() {
    killed_and_back("kill-peer-testudo", &BedOptions { peers: vec![Kind::Testudo], ..BedOptions::default() });
}

/// Each node has three workers, one of them without a queue: what is given up, and taken over, waits for all of them.
#[test]
#[ignore = "make test-all: a combination of what others prove"]
fn testudod_is_killed_and_its_workers_come_back() {
    let settings = "[worker]\ncount = 3\n".into();
    killed_and_back("kill-workers", &BedOptions { queues: 2, settings, ..BedOptions::default() });
}

/// Four streams of iperf3 each way, from the client to a server behind the peer, do not end with the node that carries them.
#[test]
#[ignore = "make test-all: a combination of what others prove"]
fn tcp_streams_outlive_their_node() {
    const LENGTH: Duration = Duration::from_secs(6);
    let mut trial = Trial::start("iperf", &BedOptions::default());
    let cluster = trial.bed.cluster.clone();
    let _server = IperfServer::start(&cluster.hosts[0]).unwrap();
    for way in [Direction::Up, Direction::Down] {
        let owner = trial.bed.owner(1).unwrap();
        let measured = std::thread::scope(|scope| {
            let run = || Throughput::run(&cluster.client, behind(1), way, LENGTH, 4);
            let streams = scope.spawn(run);
            sleep(LENGTH / 3);
            trial.bed.strike(owner, Failure::Testudod).unwrap();
            streams.join().unwrap()
        });
        // iperf3 fails if a stream breaks. What came before the failure came within a third of the time.
        let measured = measured.unwrap();
        assert!(measured.elapsed > LENGTH * 9 / 10 && measured.gigabits() > 0.01, "{way:?}: {measured:?}");
        trial.all_is_well("SIGKILL of testudod under iperf3");
        trial.bed.mend(owner, Failure::Testudod).unwrap();
        trial.bed.await_all().unwrap();
    }
}

/// SIGKILL of corosync: the node is out of the view, hears that the others are in one, and leaves its shares to them.
#[test]
fn corosync_is_killed_and_comes_back() {
    let mut trial = Trial::start("kill-corosync", &BedOptions::default());
    let owner = trial.bed.owner(1).unwrap();
    carried_on(&mut trial, "SIGKILL of corosync", |bed| bed.strike(owner, Failure::Corosync).unwrap());

    carried_on(&mut trial, "the return of corosync", |bed| {
        bed.mend(owner, Failure::Corosync).unwrap();
        bed.await_all().unwrap();
    });
}

/// A process that stands still for two seconds and goes on sends nothing before it has looked at the world.
#[test]
fn testudod_stands_still_and_goes_on() {
    let mut trial = Trial::start("pause-testudod", &BedOptions::default());
    let owner = trial.bed.owner(1).unwrap();
    let what = "SIGSTOP of testudod for two seconds";
    let seen = trial.under_traffic(what, |bed| {
        bed.strike(owner, Failure::Pause).unwrap();
        sleep(Duration::from_secs(2));
        bed.mend(owner, Failure::Pause).unwrap();
    });
    not_doubled(what, &seen);
    within(what, Duration::from_millis(1900), &seen);
    trial.whole();
    trial.all_is_well(what);
}

/// The node that answers for the cluster's addresses dies: another answers, and neighbours need not ask again.
#[test]
fn the_default_host_dies() {
    let mut trial = Trial::start("default-host", &BedOptions::default());
    let default = |trial: &Trial| {
        let is_default =
            |node: &u8| trial.bed.nodes[usize::from(*node) - 1].cluster().unwrap()["default_host"] == true;
        [1, 2, 3].into_iter().filter(is_default).collect::<Vec<u8>>()
    };
    assert_eq!(default(&trial), [1]);
    let (client, peer) = (trial.bed.cluster.client.clone(), trial.bed.cluster.peers[0].clone());
    let answers = |from: &testudo_lab::Namespace, family: Family, net: Net| {
        let address = if net == Net::Inner { Side::One.inner(family) } else { Side::One.outer(family) };
        testudo_lab::wait_until(&format!("answers of {address}"), LIMIT, || {
            let pong = Ping::new(address).run(from)?;
            let well = pong.received == pong.sent && pong.duplicates == 0;
            Ok(if well { Ok(()) } else { Err(format!("{pong:?}")) })
        })
        .unwrap();
    };
    let all_answer = || {
        for family in [Family::V4, Family::V6] {
            answers(&client, family, Net::Inner);
            answers(&peer, family, Net::Outer);
        }
    };
    all_answer();
    let what = "the end of the default host";
    let seen = trial.under_traffic(what, |bed| bed.strike(1, Failure::Testudod).unwrap());
    not_doubled(what, &seen);
    all_answer();
    for host in [&client, &peer] {
        host.ip("neigh flush all").unwrap();
    }
    all_answer();
    trial.all_is_well(what);
}
