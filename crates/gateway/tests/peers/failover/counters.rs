//! After a takeover the peer is asked to set counters right (RFC 6311).

use super::{LIMIT, OUTAGE_LIMIT, Trial, within};
use crate::failover::others;
use std::net::{IpAddr, Ipv4Addr};
use testudo_lab::bed::{BedOptions, Failure};
use testudo_lab::cluster::{Cluster, Net};
use testudo_lab::gateway::Kind;
use testudo_lab::inject::Injector;
use testudo_lab::topology::{Family, OUTER};
use testudo_lab::wait_until;

/// Between liveness checks, on both sides.
const DPD: u32 = 1;
/// How far ahead of the peer a forged packet is: no further than an owner can have got in a second.
const AHEAD: u32 = 500_000;
const SYNCHRONIZED: &str = "Message IDs are synchronized";

impl Trial {
    /// How often that stands in a node's log.
    fn logged(&self, node: u8, part: &str) -> usize {
        let log = self.bed.nodes[usize::from(node) - 1].log().unwrap();
        log.lines().filter(|line| line.contains(part)).count()
    }

    /// How often that stands in the log of peer 1.
    fn peer_logged(&self, part: &str) -> usize {
        let log = self.bed.peers[0].log().unwrap();
        log.lines().filter(|line| line.contains(part)).count()
    }

    /// The cluster asks for new keys of the Child SA of peer 1.
    fn cluster_renews(&self, owner: u8) {
        let before = self.spis(1);
        self.bed.nodes[usize::from(owner) - 1].swanctl().run(["--rekey", "--child", "peer1"]).unwrap();
        wait_until("new keys by the cluster's wish", LIMIT, || {
            let now = self.spis(1);
            let fresh = now.iter().any(|spi| !before.contains(spi));
            Ok(if fresh { Ok(()) } else { Err(format!("{now:?}")) })
        })
        .unwrap();
    }
}

/// Takeovers one after the other: each asks, strongSwan answers, and afterwards both continue to
/// send requests.
#[test]
fn strongswan_synchronizes_message_ids_after_each_takeover() {
    let options = BedOptions { cluster: "message_id_sync = true".into(), ..BedOptions::default() };
    let mut trial = Trial::start_with("sync-ids", &options, |_, connection| {
        connection.dpd_delay = DPD;
        // charon's IVs of AEADs follow Message IDs and never go back. Where it has answered a
        // request with Message ID 0, it cannot encrypt another answer with that number, and gives
        // the IKE SA up without a word.
        connection.proposals = "aes128-sha256-x25519".into();
    });
    for round in 1..=2 {
        let owner = trial.bed.owner(1).unwrap();
        let what = format!("takeover {round} with a synchronization");
        let before: usize = others(owner).iter().map(|node| trial.logged(*node, SYNCHRONIZED)).sum();
        let seen = trial.under_traffic(&what, |bed| bed.strike(owner, Failure::Testudod).unwrap());
        within(&what, OUTAGE_LIMIT, &seen);
        wait_until("the peer's answer", LIMIT, || {
            let now: usize = others(owner).iter().map(|node| trial.logged(*node, SYNCHRONIZED)).sum();
            Ok(if now == before + 1 { Ok(()) } else { Err(format!("{now} after {before}")) })
        })
        .unwrap();
        assert_eq!(trial.peer_logged("responder requested MID sync"), round);
        let taker = trial.bed.owner_among(1, &others(owner)).unwrap().unwrap();
        trial.cluster_renews(taker);
        trial.all_is_well(&what);
        // Without traffic each side makes a liveness check. A side without an answer would connect
        // again. And a side that sends another request has received its answer: a window has room
        // for one request.
        let asked =
            || trial.peer_logged("sending DPD request") + trial.logged(taker, "sending a liveness check");
        let enough = asked() + 4;
        wait_until("liveness checks", LIMIT, || {
            let now = asked();
            Ok(if now >= enough { Ok(()) } else { Err(format!("{now} of {enough}")) })
        })
        .unwrap();
        trial.bed.mend(owner, Failure::Testudod).unwrap();
        trial.whole();
        trial.all_is_well("the return of the node");
    }
}

/// A forged number far ahead has been seen when the owner dies. The peer, a Testudo, leaves as many
/// out, and its tunnel carries on with the keys that it has.
#[test]
fn a_testudo_leaves_numbers_out_that_were_forged() {
    let options = BedOptions { peers: vec![Kind::Testudo], ..BedOptions::default() };
    let mut trial = Trial::start("sync-numbers", &options);
    let owner = trial.bed.owner(1).unwrap();
    let before = trial.spis(1);
    forge(&trial, AHEAD);
    trial.bed.strike(owner, Failure::Testudod).unwrap();
    trial.bed.await_members(&others(owner)).unwrap();
    wait_until("numbers that the peer leaves out", LIMIT, || {
        let told = trial.peer_logged("the peer asks to skip");
        Ok(if told > 0 { Ok(()) } else { Err(format!("{told}")) })
    })
    .unwrap();
    trial.await_traffic(1, "a forged number");
    assert_eq!(trial.spis(1), before, "no new keys were needed");
    trial.all_is_well("a forged number");
}

/// Sends a packet of the peer's Child SA with a wrong ICV and a number that far ahead.
fn forge(trial: &Trial, sequence: u32) {
    let sas = trial.bed.peers[0].swanctl().list_sas().unwrap();
    let child = sas.iter().flat_map(|sa| &sa.children).find(|child| child.state == "INSTALLED").unwrap();
    let spi = u32::from_str_radix(child.get("spi-out").unwrap(), 16).unwrap();
    let peer = &trial.bed.cluster.peers[0];
    let octets = |addr: IpAddr| match addr {
        IpAddr::V4(addr) => addr.octets(),
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED.octets(),
    };
    let shared = Cluster::shared(Net::Outer, Family::V4).unwrap();
    let neighbour = peer.ip(&format!("neigh show {shared} dev {OUTER}")).unwrap().stdout;
    let mac = neighbour.split_whitespace().skip_while(|word| *word != "lladdr").nth(1).unwrap();
    let mut frame: Vec<u8> = mac.split(':').map(|octet| u8::from_str_radix(octet, 16).unwrap()).collect();
    let injector = Injector::open(peer, OUTER).unwrap();
    frame.extend(injector.address());
    frame.extend([0x08, 0x00]);
    let mut header = vec![0x45, 0, 0, 100, 0, 0, 0x40, 0, 64, 50, 0, 0];
    header.extend(octets(Cluster::peer_address(1, Family::V4)));
    header.extend(octets(shared));
    let sum: u32 = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(header);
    frame.extend(spi.to_be_bytes());
    frame.extend(sequence.to_be_bytes());
    frame.resize(14 + 100, 0xa5);
    injector.send(&frame).unwrap();
}
