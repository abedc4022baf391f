//! One tunnel over all nodes whose lanes take turns: every node counts all packets.

use super::spread::{each_node_in_turn, shares, spread, worked_on};
use super::{LIMIT, Trial};
use std::time::Duration;
use testudo_lab::probe::Summary;
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
