//! Keys go from node to node, and stay with the nodes: corosync and what it shares with its clients never have one.

use crate::cluster::{KEY, LIMIT, Rig};
use std::path::Path;
use testudo_lab::memory::{Needle, of_files, of_process};
use testudo_lab::ping::Ping;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, Side};
use testudo_lab::wait_until;

/// How a message of an update begins (`cluster::group::frame`): what follows it is sealed.
const SEALED: &[u8] = b"Tg\x01\x02\0\0\0\0";
const SHARED: &str = "/dev/shm";
/// Secrets that an SA needs as long as it lives, as charon calls them.
const KEPT: [&str; 5] =
    ["Sk_d secret", "Sk_ei secret", "Sk_er secret", "encryption initiator key", "encryption responder key"];

fn cluster_key() -> Vec<u8> {
    let digits = KEY.trim().as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Every secret of an IKE SA and its Child SA, from who knows them: the peer.
fn secrets(rig: &Rig) -> Vec<Needle> {
    let mut secrets = rig.peer.keys().unwrap();
    for name in KEPT {
        assert!(secrets.iter().any(|key| key.name == name), "{name} among {secrets:?}");
    }
    secrets.push(Needle::new("the shared key", Connection::of(Side::One, Family::V4).psk).unwrap());
    secrets.push(Needle::new("the cluster's key", cluster_key()).unwrap());
    secrets
}

#[test]
fn no_key_is_in_corosync_or_in_what_it_shares() {
    let mut rig = Rig::start("secrets");
    rig.peer.log_keys().unwrap();
    rig.up();
    let pong = Ping::new(Side::Two.host(Family::V4)).count(5).run(&rig.t.client).unwrap();
    assert_eq!(pong.received, 5);
    // So that what brings a node up to date is among what went through corosync, and not only what made the SAs.
    rig.nodes[2].process().kill();
    rig.nodes[2].restart().unwrap();

    // The states go to all nodes, and a search finds them where they may be: what it does not find elsewhere is not there.
    let mut sought = secrets(&rig);
    sought.push(Needle::new("sealed", SEALED).unwrap());
    for node in &mut rig.nodes {
        wait_until("the keys on a node", LIMIT, || {
            let found = of_process(node.process().pid(), &sought)?;
            let there = KEPT.iter().all(|key| found.has(key));
            Ok(if there { Ok(()) } else { Err(format!("{found:?}")) })
        })
        .unwrap();
    }
    for daemon in &mut rig.daemons {
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
