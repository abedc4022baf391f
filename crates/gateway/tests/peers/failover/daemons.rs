//! A daemon of the node that carries the tunnel dies, or stands still.

use super::{FormerOwner, LIMIT, OUTAGE_LIMIT, Trial, behind, not_doubled, others, within};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use testudo_lab::bed::{Bed, BedOptions, Failure};
use testudo_lab::cluster::Net;
use testudo_lab::gateway::Kind;
use testudo_lab::iperf::Direction;
use testudo_lab::ping::Ping;
use testudo_lab::streams::Streams;
use testudo_lab::topology::{Family, Side};
use testudo_lab::wait_until;

/// During the event and after it no more datagrams are duplicated than the former owner allows,
/// traffic continues, and the tunnels are the same.
pub(super) fn carried_on(trial: &mut Trial, what: &str, former: FormerOwner, happen: impl FnOnce(&mut Bed)) {
    let seen = trial.under_traffic(what, happen);
    not_doubled(what, former, &seen);
    within(what, OUTAGE_LIMIT, &seen);
    trial.all_is_well(what);
}

/// SIGKILL of testudod: the others carry on what it had, and it comes back to what is its.
fn killed_and_back(name: &str, options: &BedOptions) {
    let mut trial = Trial::start(name, options);
    let owner = trial.bed.owner(1).unwrap();
    carried_on(&mut trial, "SIGKILL of testudod", FormerOwner::Silent, |bed| {
        bed.strike(owner, Failure::Testudod).unwrap();
    });
    assert!(
        trial.bed.owner_among(1, &others(owner)).unwrap().is_some(),
        "a survivor speaks IKE with the peer"
    );

    carried_on(&mut trial, "the return of testudod", FormerOwner::HandsOver, |bed| {
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

/// Each node has three workers, one of them without a queue: what is given up, and taken over,
/// waits for all of them.
#[test]
fn testudod_is_killed_and_its_workers_come_back() {
    let settings = "[worker]\ncount = 3\n".into();
    killed_and_back("kill-workers", &BedOptions { queues: 2, settings, ..BedOptions::default() });
}

/// TCP streams between the client and a host behind the peer go on when a node dies.
pub(super) fn outlive(trial: &mut Trial, node: u8, streams: Streams) {
    let cluster = trial.bed.cluster.clone();
    let all = u64::from(streams.count) * streams.octets;
    let received = &AtomicU64::new(0);
    let arrived = || received.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let carry = || streams.carry_counted(&cluster.client, &cluster.hosts[0], behind(1), received);
        let carrying = scope.spawn(carry);
        wait_until("octets of TCP", LIMIT, || {
            let (now, ended) = (arrived(), carrying.is_finished());
            Ok(if now >= all / 8 || ended { Ok(()) } else { Err(format!("{now} octets")) })
        })
        .unwrap();
        trial.bed.strike(node, Failure::Testudod).unwrap();
        assert!(arrived() < all, "all had arrived before the node died");
        carrying.join().unwrap().unwrap();
    });
}

/// Four TCP streams each way, between the client and a host behind the peer, outlive the node that
/// carries them.
#[test]
fn tcp_streams_outlive_their_node() {
    let mut trial = Trial::start("tcp", &BedOptions::default());
    for direction in [Direction::Up, Direction::Down] {
        let owner = trial.bed.owner(1).unwrap();
        outlive(&mut trial, owner, Streams { direction, count: 4, octets: 16 << 20 });
        trial.all_is_well("SIGKILL of testudod under TCP");
        trial.bed.mend(owner, Failure::Testudod).unwrap();
        trial.bed.await_all().unwrap();
    }
}

/// SIGKILL of corosync: the node is out of the view, hears that the others are in one, and leaves
/// its shards to them.
#[test]
fn corosync_is_killed_and_comes_back() {
    let mut trial = Trial::start("kill-corosync", &BedOptions::default());
    let owner = trial.bed.owner(1).unwrap();
    carried_on(&mut trial, "SIGKILL of corosync", FormerOwner::PassedOver, |bed| {
        bed.strike(owner, Failure::Corosync).unwrap();
    });

    carried_on(&mut trial, "the return of corosync", FormerOwner::HandsOver, |bed| {
        bed.mend(owner, Failure::Corosync).unwrap();
        bed.await_all().unwrap();
    });
}

/// A process that is stopped until others have taken over sends nothing after it continues before
/// it has heard from them.
#[test]
fn testudod_stands_still_and_goes_on() {
    let mut trial = Trial::start("pause-testudod", &BedOptions::default());
    let owner = trial.bed.owner(1).unwrap();
    let what = "SIGSTOP of testudod until others have taken over";
    let mut seen = trial.under_traffic(what, |bed| {
        bed.strike(owner, Failure::Pause).unwrap();
        // The tunnel does not wait for its owner: another node carries packets, and speaks IKE once
        // the owner is put out.
        wait_until("traffic while the owner stands still", LIMIT, || {
            Ok(if bed.carries(1)? { Ok(()) } else { Err("no replies".to_owned()) })
        })
        .unwrap();
        wait_until("a takeover", LIMIT, || {
            let taken = bed.owner_among(1, &others(owner))?.is_some();
            Ok(if taken { Ok(()) } else { Err("no other node has the tunnel".to_owned()) })
        })
        .unwrap();
        bed.mend(owner, Failure::Pause).unwrap();
    });
    // Its silence was no mistake, although it is heard again.
    seen.false_alarms.remove(&owner);
    not_doubled(what, FormerOwner::PassedOver, &seen);
    within(what, OUTAGE_LIMIT, &seen);
    trial.whole();
    trial.all_is_well(what);
}

/// The node that answers for the cluster's addresses dies: another answers, and neighbours need not
/// ask again.
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
        wait_until(&format!("answers of {address}"), LIMIT, || {
            let pong = Ping::new(address).brief().run(from)?;
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
    not_doubled(what, FormerOwner::Silent, &seen);
    all_answer();
    for host in [&client, &peer] {
        host.ip("neigh flush all").unwrap();
    }
    all_answer();
    trial.all_is_well(what);
}

/// A node that cannot write down what it must not forget says so and ends. Another carries on, and
/// what the node's filter held back stays held back.
#[test]
fn a_node_whose_disk_fails_ends_and_stays_shut() {
    let mut trial = Trial::start("disk", &BedOptions::default());
    let owner = trial.bed.owner(1).unwrap();
    let other = others(owner)[0];
    trial.bed.strike(other, Failure::Testudod).unwrap();
    trial.bed.await_members(&others(other)).unwrap();
    block_state(&trial, owner);
    let what = "a disk that takes nothing";
    let mut status = None;
    carried_on(&mut trial, what, FormerOwner::PassedOver, |bed| {
        // The view that begins with it has to be written down. It hears from the others what is
        // loaded.
        bed.node(other).restart().unwrap();
        status = Some(bed.node(owner).process().wait(LIMIT).unwrap());
    });
    assert_eq!(status.and_then(|status| status.code()), Some(1));
    let log = trial.bed.node(owner).log().unwrap();
    let said = log.lines().find(|line| line.contains("cannot go on: ")).unwrap_or_else(|| panic!("{log}"));
    assert!(said.contains("ERROR") && said.contains(": cannot write "), "{said}");
    assert!(log.contains("ended; protected prefixes stay closed"), "{log}");
    assert!(log.lines().any(|line| line.starts_with("testudod: ")), "{log}");
    let shown = trial.bed.cluster.node(owner).ip(&format!("link show dev {}", Net::Outer.interface()));
    assert!(shown.as_ref().unwrap().stdout.contains("xdp"), "{shown:?}");
}

/// Has a directory stand where the node's state is written before it takes the place of the old
/// one.
fn block_state(trial: &Trial, node: u8) {
    let lab = trial.bed.cluster.node(node).lab();
    let state = lab.dir().join(format!("node{node}-state"));
    let mut files = std::fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().path());
    let is_state = |path: &PathBuf| path.to_string_lossy().contains("/incarnation-");
    let file = files.find(is_state).unwrap();
    // The node may be writing right now.
    wait_until("the name to be free", LIMIT, || {
        let made = std::fs::create_dir(file.with_extension("new"));
        Ok(made.map_err(|error| error.to_string()))
    })
    .unwrap();
}
