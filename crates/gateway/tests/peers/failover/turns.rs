//! One tunnel over all nodes whose lanes take turns: every node counts all packets.

use super::spread::{each_node_in_turn, fails_and_returns, shares, spread, worked_on};
use super::{LIMIT, Trial, behind};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::Duration;
use testudo_lab::bed::Failure;
use testudo_lab::cluster::Cut;
use testudo_lab::iperf::Direction;
use testudo_lab::probe::Summary;
use testudo_lab::streams::Streams;
use testudo_lab::wait_until;

fn nodes_count_alike(name: &str, scheme: &str) {
    let mut trial = Trial::start(name, &spread(scheme));
    let before = worked_on(&trial);
    // What nodes that disagree have lost or doubled until the first mark does not count.
    let mut well_before = false;
    wait_until("hardly any packet is lost, none is doubled, and it stays so", LIMIT, || {
        let seen = trial.under_traffic("calm", |_| std::thread::sleep(Duration::from_secs(2)));
        let is_well = |probe: &Summary| probe.lost * 1000 <= probe.sent && probe.duplicates == 0;
        let well = seen.probes.iter().all(is_well);
        let stays = std::mem::replace(&mut well_before, well) && well;
        Ok(if stays { Ok(()) } else { Err(format!("{:?}", seen.probes)) })
    })
    .unwrap();
    let shares = shares(&before, &worked_on(&trial));
    assert!(shares.iter().flatten().all(|share| *share > 150), "{shares:?}");
    each_node_in_turn(&mut trial);
}

#[test]
fn a_packet_goes_where_few_octets_went_and_nodes_may_die() {
    nodes_count_alike("turns-sqf", "packet-sqf");
}

#[test]
#[ignore = "make test-all: the other way of taking turns"]
fn packets_go_from_lane_to_lane_and_nodes_may_die() {
    nodes_count_alike("turns-rr", "packet-rr");
}

/// Sessions through the tunnel, each of one socket.
struct Sessions(Vec<UdpSocket>);

impl Sessions {
    fn open(trial: &Trial, count: usize) -> Self {
        let open = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let client = &trial.bed.cluster.client;
        Self((0..count).map(|_| client.enter(open).unwrap()).collect())
    }

    /// Each of them sends a datagram to a port on which nobody listens, the last one first.
    fn send(&self) {
        for socket in self.0.iter().rev() {
            socket.send_to(&[0; 100], (behind(1), 9)).unwrap();
        }
    }
}

/// How many sessions a node has learned from others, or had in another lane.
fn followed(trial: &Trial, node: u8) -> u64 {
    let counters = trial.bed.nodes[usize::from(node) - 1].cluster().unwrap()["counters"].clone();
    let of = |name| counters[name].as_u64().unwrap();
    of("sessions_learned") + of("sessions_put_right")
}

/// Sessions begin while a node is cut off. When it is back, it does not know their lanes, or finds
/// others for them because it sees them in another order, and then hears of them.
fn comes_back_to_other_sessions(trial: &mut Trial, node: u8) {
    let cut = Failure::AllLinks(Cut::Silent);
    trial.bed.strike(node, cut).unwrap();
    let others: Vec<u8> = (1..=3).filter(|other| *other != node).collect();
    trial.bed.await_members(&others).unwrap();
    let (mut sessions, before) = (Sessions::open(trial, 32), followed(trial, node));
    sessions.send();
    sessions.0.reverse();
    trial.bed.mend(node, cut).unwrap();
    wait_until("the node that is back hears of the sessions", LIMIT, || {
        sessions.send();
        let followed = followed(trial, node) - before;
        Ok(if followed > 8 { Ok(()) } else { Err(format!("{followed} of 32")) })
    })
    .unwrap();
    trial.whole();
    trial.bed.await_balance().unwrap();
    trial.all_is_well("its return");
}

fn sessions_take_turns(name: &str, scheme: &str) {
    let mut trial = Trial::start(name, &spread(scheme));
    let before = worked_on(&trial);
    let (client, host) = (&trial.bed.cluster.client, &trial.bed.cluster.hosts[0]);
    let to: IpAddr = behind(1);
    Streams { count: 16, ..Streams::one(Direction::Up, 1 << 18) }.carry(client, host, to).unwrap();
    let after = worked_on(&trial);
    let outward: Vec<u64> = before.iter().zip(&after).map(|(b, a)| a[0] - b[0]).collect();
    assert!(outward.iter().all(|packets| *packets > 0), "{outward:?}");
    fails_and_returns(&mut trial, 2);
    comes_back_to_other_sessions(&mut trial, 3);
}

#[test]
fn a_session_goes_where_few_octets_went_and_nodes_tell_each_other() {
    sessions_take_turns("turns-session-sqf", "session-sqf");
}

#[test]
#[ignore = "make test-all: the other way of taking turns"]
fn sessions_go_from_lane_to_lane_and_nodes_tell_each_other() {
    sessions_take_turns("turns-session-rr", "session-rr");
}
