//! AH in ESP's place (RFC 7296 §3.3.1, §3.11): named as what it is in every payload.

use crate::scenarios::common::build::esp_proposal;
use crate::scenarios::common::network::Nat;
use crate::scenarios::common::tunnels::{assert_one_tunnel, run_lossless};
use crate::scenarios::common::{Weather, World};
use std::time::Duration;
use testudo_ike::config::{ChildLifetime, Connection, Lifetime};
use testudo_ike::endpoint::{AlgorithmName, Target};
use testudo_ipsec::sa::{EspAlgorithm, Mac};

const AH: EspAlgorithm = EspAlgorithm::Ah(Mac::HmacSha256_128);

fn with_ah(_: usize, connection: &mut Connection) {
    connection.children[0].proposals = vec![esp_proposal(AH)];
}

#[test]
fn a_child_of_ah_is_shown_as_one() {
    let world = World::established(1, with_ah);
    for host in &world.hosts {
        let child = &host.sas()[0].children[0];
        assert!(child.ah && child.esn);
        assert_eq!(
            (child.encryption, child.integrity),
            (None, Some(AlgorithmName::from(Mac::HmacSha256_128)))
        );
    }
}

#[test]
fn ah_sas_are_rekeyed_and_deleted_by_either_side() {
    for host in 0..2 {
        let mut world = World::established(2, |index, connection| {
            with_ah(index, connection);
            if index == host {
                let time = Lifetime::new(1000, None, None);
                connection.children[0].lifetime = ChildLifetime { time, ..ChildLifetime::default() };
            }
        });
        let first = world.hosts[0].installed.values().next().unwrap().spi_in;
        run_lossless(&mut world, Duration::from_secs(1020));
        assert_one_tunnel(&world);
        let last = world.hosts[0].installed.values().next().unwrap();
        assert!(last.spi_in != first && last.algorithm == AH);
        let now = world.now;
        let target = Target::ChildName { connection: None, child: "net".into() };
        world.hosts[host].endpoint.terminate(now, &target, false).unwrap();
        world.settle(host);
        world.run_secs(1);
        assert!(world.hosts.iter().all(|host| host.installed.is_empty()));
    }
}

/// Where both are offered, ours that comes first is chosen.
#[test]
fn esp_is_chosen_where_the_peer_has_no_ah() {
    let both = vec![esp_proposal(AH), esp_proposal(EspAlgorithm::Aes128Gcm16)];
    for host in 0..2 {
        let world = World::established(4, |index, connection| {
            connection.children[0].proposals = if index == host { both.clone() } else { both[1..].to_vec() };
        });
        assert_eq!(world.hosts[0].installed.values().next().unwrap().algorithm, EspAlgorithm::Aes128Gcm16);
    }
}

/// It covers the addresses that a NAT changes: no child, and the reason is told.
#[test]
fn ah_is_refused_across_a_nat() {
    let addrs = ["10.0.0.1", "192.0.2.2"];
    let mut world = World::pair_of(addrs, 5, Weather::FAIR, Default::default(), |index, connection| {
        with_ah(index, connection);
        if index == 1 {
            connection.remote_addrs = vec![];
        }
    });
    world.network.nat = Some(Nat::new("10.0.0.1", "198.51.100.7"));
    world.initiate(0);
    world.run_secs(10);
    assert!(world.hosts.iter().all(|host| host.installed.is_empty()));
    let told = |line: &&str| line.contains("AH cannot cross a NAT");
    assert!(world.hosts[1].log().iter().any(told), "{:#?}", world.hosts[1].log());
    let reason = world.hosts[0].results()[0].clone().unwrap_err().to_string();
    assert!(reason.contains("NO_PROPOSAL_CHOSEN"), "{reason}");
}
