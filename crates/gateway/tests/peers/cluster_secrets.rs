//! Keys go from node to node, and stay with the nodes: corosync and what it shares with its clients
//! never have one.

use std::path::Path;
use std::time::Duration;
use testudo_lab::Lab;
use testudo_lab::bed::{Bed, BedOptions, connection};
use testudo_lab::cluster::Cluster;
use testudo_lab::gateway::Gateway;
use testudo_lab::memory::{Needle, of_files, of_process};
use testudo_lab::ping::Ping;
use testudo_lab::strongswan::Strongswan;
use testudo_lab::topology::Family;
use testudo_lab::wait_until;

/// How a message of an update begins (`cluster::group::frame`: magic, version, kind): what follows
/// it is sealed.
const SEALED: &[u8] = b"Tg\x02\x02\0\0\0\0";
const LIMIT: Duration = Duration::from_secs(120);
const SHARED: &str = "/dev/shm";
/// Secrets that an SA needs as long as it lives, as charon calls them.
const KEPT: [&str; 5] =
    ["Sk_d secret", "Sk_ei secret", "Sk_er secret", "encryption initiator key", "encryption responder key"];

fn peer(bed: &Bed) -> &Strongswan {
    let Gateway::Strongswan(charon) = &bed.peers[0] else { panic!("the peer runs strongSwan") };
    charon
}

/// Every secret of an IKE SA and its Child SA, as known to the peer.
fn secrets(bed: &Bed) -> Vec<Needle> {
    let mut secrets = peer(bed).keys().unwrap();
    for name in KEPT {
        assert!(secrets.iter().any(|key| key.name == name), "{name} among {secrets:?}");
    }
    secrets.push(Needle::new("the shared key", connection(1).psk).unwrap());
    secrets.push(Needle::new("the cluster's key", bed.key.clone()).unwrap());
    secrets
}

#[test]
fn no_key_is_in_corosync_or_in_what_it_shares() {
    let mut bed = Bed::start(&Lab::large("secrets", 2).unwrap(), &BedOptions::default()).unwrap();
    peer(&bed).log_keys().unwrap();
    bed.bring_up(1).unwrap();
    // What a fence drops on a busy machine is another lab's.
    let ping = Ping::new(Cluster::behind(1, Family::V4, 2)).count(5);
    wait_until("the tunnel to carry packets", LIMIT, || {
        let pong = ping.run(&bed.cluster.client)?;
        Ok(if pong.received == pong.sent { Ok(()) } else { Err(format!("{pong:?}")) })
    })
    .unwrap();
    // The state sent to a joining node must also go through corosync, not only the updates that
    // set up the SAs.
    bed.nodes[2].process().kill();
    bed.nodes[2].restart().unwrap();

    // The states go to all nodes, and a search finds them where they may be: what it does not find
    // elsewhere is not there.
    let mut sought = secrets(&bed);
    sought.push(Needle::new("sealed", SEALED).unwrap());
    for node in &mut bed.nodes {
        wait_until("the keys on a node", LIMIT, || {
            let found = of_process(node.process().pid(), &sought)?;
            let there = KEPT.iter().all(|key| found.has(key));
            Ok(if there { Ok(()) } else { Err(format!("{found:?}")) })
        })
        .unwrap();
    }
    for daemon in &mut bed.corosyncs {
        let pid = daemon.process().pid();
        let (memory, shared) =
            (of_process(pid, &sought).unwrap(), of_files(pid, Path::new(SHARED), &sought).unwrap());
        assert_eq!(memory.unread, Vec::<String>::new(), "all of it is searched");
        for found in [memory, shared] {
            assert!(found.has("sealed"), "what the nodes tell each other went through here: {found:?}");
            let keys: Vec<_> = found.places.iter().filter(|(name, _)| name != "sealed").collect();
            assert!(keys.is_empty(), "{keys:?}");
        }
    }
}
