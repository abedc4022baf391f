//! An impossible setup ends soon, with a clear reason on both sides, and only the notify for the
//! peer.

use crate::scenarios::common::build::{esp_proposal, fqdn, ike_proposal, ts};
use crate::scenarios::common::{Weather, World, secret};
use testudo_ike::config::{ChildMode, Identity, IkeEncryption, KeyExchange, TsSpec};
use testudo_ike::endpoint::{IkeSaState, Target};
use testudo_ike::output::{Event, Reason};
use testudo_ipsec::sa::EspAlgorithm;

/// Initiates, and gives the reason of the failure.
fn failure(world: &mut World) -> Reason {
    world.initiate(0);
    world.run_secs(5);
    let results = world.hosts[0].results();
    assert_eq!(results.len(), 1, "{:?}", world.hosts[0].log());
    results[0].clone().unwrap_err()
}

fn assert_said(reason: &Reason, parts: &[&str]) {
    let text = reason.to_string();
    for part in parts {
        assert!(text.contains(part), "{part} in {text}");
    }
}

fn assert_logged(world: &World, host: usize, parts: &[&str]) {
    let line = world.hosts[host].events.iter().any(|event| match event {
        Event::Log { level, message, .. } if level.charon() < 2 => {
            parts.iter().all(|part| message.contains(part))
        }
        _ => false,
    });
    assert!(line, "{parts:?} in {:#?}", world.hosts[host].log());
}

#[test]
fn a_wrong_shared_key() {
    let mut world = World::pair(1, Weather::FAIR);
    world.hosts[1].load_secret(secret("psk", b"not the shared key", &["moon", "sun"]));
    let reason = failure(&mut world);
    assert_said(&reason, &["AUTHENTICATION_FAILED", "shared key"]);
    assert_logged(&world, 0, &["establishing CHILD_SA net of site failed", "AUTHENTICATION_FAILED"]);
    assert_logged(&world, 1, &["moon does not hold our shared key"]);
    assert!(world.hosts.iter().all(|host| host.sas().is_empty()), "nothing stays");
    world.run_secs(60);
    world.assert_nothing_left();
}

#[test]
fn a_responder_that_is_not_who_it_should_be() {
    let mut world = World::pair_with(2, Weather::FAIR, |index, connection| {
        if index == 0 {
            connection.remote.id = None;
        }
    });
    // The initiator has another key for sun than for all others.
    world.hosts[0].load_secret(secret("any", b"a shared key", &[]));
    world.hosts[0].load_secret(secret("psk", b"what sun should have", &["sun"]));
    world.hosts[0].endpoint.load_secret(secret("psk", b"what sun should have", &["sun"]));
    let reason = failure(&mut world);
    assert_said(&reason, &["sun does not hold our shared key"]);
    assert_logged(&world, 1, &["closed", "AUTHENTICATION_FAILED"]);
    world.run_secs(60);
    world.assert_nothing_left();
}

/// The connection does not say how a peer authenticates: there is none.
#[test]
fn a_connection_of_bypasses_alone_answers_nobody() {
    let mut world = World::pair_with(4, Weather::FAIR, |index, connection| {
        if index == 1 {
            connection.children[0].mode = ChildMode::Pass;
        }
    });
    assert_said(&failure(&mut world), &["NO_PROPOSAL_CHOSEN"]);
    assert!(world.hosts[1].sas().is_empty(), "not even half open");
}

#[test]
fn a_responder_with_another_identity() {
    let mut world = World::pair_with(3, Weather::FAIR, |index, connection| {
        if index == 0 {
            connection.remote.id = Some(fqdn("pluto"));
        }
    });
    world.hosts[0].load_secret(secret("psk", b"a shared key", &[]));
    // The responder has no pluto to be, and says nothing more.
    assert_said(&failure(&mut world), &["AUTHENTICATION_FAILED"]);
    assert_logged(&world, 1, &["no connection is configured for pluto...moon"]);
    world.run_secs(60);
    world.assert_nothing_left();
}

#[test]
fn an_initiator_that_nobody_knows() {
    let mut world = World::pair_with(4, Weather::FAIR, |index, connection| {
        if index == 0 {
            connection.local.id = Some(Identity::Email("pluto@example.org".into()));
        }
    });
    world.hosts[0].load_secret(secret("psk", b"a shared key", &[]));
    assert_said(&failure(&mut world), &["AUTHENTICATION_FAILED"]);
    assert_logged(&world, 1, &["no connection is configured for sun...pluto@example.org"]);
}

#[test]
fn an_initiator_without_a_key_at_the_responder() {
    let mut world = World::pair(5, Weather::FAIR);
    world.hosts[1].endpoint.secrets_mut().clear();
    assert_said(&failure(&mut world), &["AUTHENTICATION_FAILED"]);
    assert_logged(&world, 1, &["no shared key is loaded for sun and moon"]);
}

#[test]
fn no_common_ike_proposal() {
    let mut world = World::pair_with(6, Weather::FAIR, |index, connection| {
        let mut proposal = ike_proposal(&[KeyExchange::X25519]);
        if index == 1 {
            proposal.encryption = vec![IkeEncryption::Aes256Gcm16];
        }
        connection.proposals = vec![proposal];
    });
    let reason = failure(&mut world);
    assert_said(&reason, &["NO_PROPOSAL_CHOSEN", "AES_GCM_16_128/PRF_HMAC_SHA2_256/CURVE_25519"]);
    assert_logged(&world, 1, &["no common IKE proposal", "AES_GCM_16_128", "AES_GCM_16_256"]);
    assert!(world.hosts[1].warned("no common IKE proposal"));
    world.assert_nothing_left();
}

/// Scanners reach every gateway: that wakes nobody up.
#[test]
fn no_connection_at_the_responder() {
    let mut world = World::pair(7, Weather::FAIR);
    assert!(world.hosts[1].endpoint.unload_connection("site"));
    assert!(!world.hosts[1].endpoint.unload_connection("site"));
    assert_said(&failure(&mut world), &["NO_PROPOSAL_CHOSEN"]);
    assert_logged(&world, 1, &["no connection is configured between 192.0.2.2:500 and 192.0.2.1:500"]);
    assert!(!world.hosts[1].warned(""), "{:#?}", world.hosts[1].log());
}

/// The IKE SA stays, without a child.
fn assert_childless(world: &World) {
    for host in &world.hosts {
        assert!(host.installed.is_empty());
        assert_eq!(host.sas()[0].state, IkeSaState::Established);
        assert_eq!(host.sas()[0].children, []);
    }
}

#[test]
fn no_common_esp_proposal() {
    let mut world = World::pair_with(8, Weather::FAIR, |index, connection| {
        if index == 1 {
            connection.children[0].proposals = vec![esp_proposal(EspAlgorithm::Aes256Gcm16)];
        }
    });
    assert_said(&failure(&mut world), &["NO_PROPOSAL_CHOSEN", "esp_proposals"]);
    assert_logged(&world, 1, &["no common ESP proposal", "AES_GCM_16_128", "AES_GCM_16_256"]);
    assert_childless(&world);
}

#[test]
fn no_common_selectors() {
    let mut world = World::pair_with(9, Weather::FAIR, |index, connection| {
        if index == 1 {
            connection.children[0].local_ts = vec![TsSpec::Fixed(ts("172.16.0.0-172.16.0.255"))];
        }
    });
    assert_said(&failure(&mut world), &["TS_UNACCEPTABLE", "remote_ts"]);
    assert_logged(&world, 1, &["no child carries 10.115.0.0/16 === 10.109.0.0/16"]);
    assert_childless(&world);
    // Another try uses the IKE SA that carries nothing.
    for _ in 0..3 {
        world.initiate(0);
        world.run_secs(5);
        assert_childless(&world);
        assert!(world.hosts.iter().all(|host| host.sas().len() == 1));
    }
    assert_eq!(world.hosts[0].results().len(), 4);
}

/// Renewed or not, an IKE SA that never has a child goes.
#[test]
fn an_ike_sa_that_never_has_a_child_is_deleted() {
    for renew in [false, true] {
        let mut world = World::pair_with(12, Weather::FAIR, |index, connection| {
            if index == 1 {
                connection.children[0].local_ts = vec![TsSpec::Fixed(ts("172.16.0.0-172.16.0.255"))];
            }
        });
        world.initiate(0);
        world.run_secs(15);
        assert_childless(&world);
        if renew {
            let (now, id) = (world.now, world.hosts[0].sas()[0].id);
            assert!(world.hosts[0].endpoint.rekey_ike(now, id));
            world.settle(0);
            world.run_secs(1);
            assert_childless(&world);
        }
        world.run_secs(30);
        assert!(world.hosts.iter().any(|host| host.logged("it carried no CHILD_SA")));
        world.assert_nothing_left();
    }
}

/// One whose last child was deleted stays, as charon's does.
#[test]
fn an_ike_sa_that_has_had_a_child_stays() {
    let mut world = World::pair(13, Weather::FAIR);
    world.initiate(0);
    world.run_secs(1);
    let (now, child) = (world.now, world.hosts[0].sas()[0].children[0].id);
    world.hosts[0].endpoint.terminate(now, &Target::Child(child), false).unwrap();
    world.settle(0);
    world.run_secs(600);
    assert_childless(&world);
}

#[test]
fn a_connection_unloaded_meanwhile() {
    let mut world = World::pair(10, Weather::FAIR);
    world.initiate(0);
    world.hosts[0].endpoint.unload_connection("site");
    world.run_secs(1);
    assert_said(&world.hosts[0].results()[0].clone().unwrap_err(), &["unloaded meanwhile"]);
    world.run_secs(60);
    world.assert_nothing_left();
}
