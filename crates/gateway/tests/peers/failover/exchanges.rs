//! The node that speaks IKE dies during an exchange: its answer is lost, and a survivor repeats it.

use super::{LIMIT, Trial};
use testudo_lab::bed::{BedOptions, Failure};
use testudo_lab::gateway::Kind;
use testudo_lab::swanctl::IkeSa;
use testudo_lab::{Namespace, wait_until};

const IKE_AUTH: u8 = 35;
const CREATE_CHILD_SA: u8 = 36;
const TABLE: &str = "lost_answers";

/// Loses what some send in exchanges of a type: UDP's header has 8 octets, the marker of RFC 3948
/// 4, and the type is octet 18.
struct Lost {
    switch: Namespace,
}

impl Lost {
    /// Messages of nodes.
    fn answers(trial: &Trial, exchange: u8) -> Self {
        Self::begin(trial, &trial.bed.cluster.nodes, exchange)
    }

    /// Messages of peers.
    fn requests(trial: &Trial, exchange: u8) -> Self {
        Self::begin(trial, &trial.bed.cluster.peers, exchange)
    }

    fn begin(trial: &Trial, senders: &[Namespace], exchange: u8) -> Self {
        let switch = trial.bed.cluster.outer.clone();
        let chain = |sender: &Namespace| {
            let port = sender.role();
            format!(
                "chain {port} {{
                    type filter hook ingress device {port} priority 0; policy accept;
                    udp sport 4500 @th,64,32 0 @th,240,8 {exchange} counter name lost drop
                }}\n"
            )
        };
        let chains: String = senders.iter().map(chain).collect();
        switch.run("nft", [format!("table netdev {TABLE} {{ counter lost {{ }}\n{chains} }}")]).unwrap();
        Self { switch }
    }

    fn await_one(&self) {
        wait_until("a message that is lost", LIMIT, || {
            let shown = self.switch.run("nft", ["list", "counter", "netdev", TABLE, "lost"])?.stdout;
            Ok(if shown.contains("packets 0 ") { Err(shown) } else { Ok(()) })
        })
        .unwrap();
    }

    fn end(self) {
        self.switch.run("nft", ["delete", "table", "netdev", TABLE]).unwrap();
    }
}

/// Two peers: one whose tunnel is up, and one during an exchange.
fn peers() -> BedOptions {
    BedOptions { peers: vec![Kind::Strongswan; 2], ..BedOptions::default() }
}

/// The node that has the IKE SA with a peer, in any state.
fn speaker(trial: &Trial, peer: u8) -> u8 {
    let name = format!("peer{peer}");
    speaker_of(trial, |sa| sa.name == name)
}

fn speaker_of(trial: &Trial, sought: impl Fn(&IkeSa) -> bool) -> u8 {
    wait_until("a node with that IKE SA", LIMIT, || {
        for (node, testudod) in (1..).zip(&trial.bed.nodes) {
            let number = node.to_string();
            let sas = testudod.swanctl().list_sas()?;
            if sas.iter().any(|sa| sa.get("node") == Some(&*number) && sought(sa)) {
                return Ok(Ok(node));
            }
        }
        Ok(Err(String::new()))
    })
    .unwrap()
}

/// IKE_SA_INIT was answered, and the node dies before it hears of IKE_AUTH: another has the keys
/// that were agreed on, and answers.
#[test]
fn the_owner_dies_before_it_hears_of_ike_auth() {
    let mut trial = Trial::start("die-init", &peers());
    let peer = trial.bed.peers[1].swanctl().clone();
    peer.terminate("peer2").unwrap();
    let lost = Lost::requests(&trial, IKE_AUTH);
    let initiating = std::thread::spawn(move || peer.initiate("peer2", LIMIT).map(drop));
    lost.await_one();
    let owner = speaker_of(&trial, |sa| sa.state == "CONNECTING");
    trial.bed.strike(owner, Failure::Testudod).unwrap();
    lost.end();
    initiating.join().unwrap().unwrap();
    trial.established[1] += 1;
    trial.all_is_well("the end of the owner before it heard of IKE_AUTH");
}

/// The peer's IKE_AUTH was answered, and the answer is lost with the node: another repeats it.
#[test]
#[ignore = "make test-all: a combination of what others prove"]
fn the_owner_dies_behind_its_answer_to_ike_auth() {
    let mut trial = Trial::start("die-auth", &peers());
    let peer = trial.bed.peers[1].swanctl().clone();
    peer.terminate("peer2").unwrap();
    let lost = Lost::answers(&trial, IKE_AUTH);
    let initiating = std::thread::spawn(move || peer.initiate("peer2", LIMIT).map(drop));
    lost.await_one();
    let owner = speaker(&trial, 2);
    trial.bed.strike(owner, Failure::Testudod).unwrap();
    lost.end();
    initiating.join().unwrap().unwrap();
    // The only one that has come up since.
    trial.established[1] += 1;
    trial.all_is_well("the end of the owner behind its answer to IKE_AUTH");
}

/// The same with the answer to a request for new keys, first of the Child SA, then of the IKE SA.
#[test]
fn owners_die_behind_their_answers_to_rekeyings() {
    let mut trial = Trial::start("die-rekey", &BedOptions::default());
    for what in ["--child", "--ike"] {
        let peer = trial.bed.peers[0].swanctl().clone();
        let spis = || -> Vec<String> {
            let sas = peer.list_sas().unwrap();
            let of = |sa: &IkeSa| match what {
                "--ike" => vec![sa.get("initiator-spi").unwrap().to_owned()],
                _ => sa.children.iter().filter_map(|child| child.get("spi-in").map(str::to_owned)).collect(),
            };
            sas.iter().flat_map(of).collect()
        };
        let before = spis();
        let owner = trial.bed.owner(1).unwrap();
        let lost = Lost::answers(&trial, CREATE_CHILD_SA);
        peer.run(["--rekey", what, "peer1"]).unwrap();
        lost.await_one();
        trial.bed.strike(owner, Failure::Testudod).unwrap();
        lost.end();
        wait_until(&format!("new keys after --rekey {what}"), LIMIT, || {
            let now = spis();
            Ok(if now.iter().any(|spi| !before.contains(spi)) { Ok(()) } else { Err(format!("{now:?}")) })
        })
        .unwrap();
        trial.all_is_well(&format!("the end of the owner behind its answer to --rekey {what}"));
        trial.bed.mend(owner, Failure::Testudod).unwrap();
        trial.whole();
    }
}
