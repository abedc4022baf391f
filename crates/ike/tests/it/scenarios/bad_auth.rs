//! Peers that repeatedly get as far as a failing IKE_AUTH, from an address that is not forged.

use crate::scenarios::answers::sun;
use crate::scenarios::common::peer::Peer;
use std::time::Duration;
use testudo_ike::endpoint::{Discard, EndpointConfig};
use testudo_ike::message::ExchangeType;

#[test]
fn failures_in_ike_auth_do_not_fill_the_table() {
    let mut world = sun();
    world.restore = false;
    let config = EndpointConfig::default();
    let (mut most, mut refused) = (0, 0);
    for seed in 0..20_000 {
        world.run(Duration::from_millis(1));
        let before = world.hosts[0].endpoint.half_open();
        let Some(mut peer) = Peer::try_init(&mut world, seed, vec![]) else { continue };
        let payloads = peer.auth_as(&crate::scenarios::common::build::fqdn("moon"), b"a guess");
        peer.request(&mut world, ExchangeType::IkeAuth, payloads).expect("a refusal");
        refused += 1;
        assert_eq!(world.hosts[0].endpoint.half_open(), before + 1, "it counts until it is forgotten");
        most = most.max(world.hosts[0].endpoint.states().count());
    }
    let stats = world.hosts[0].endpoint.stats();
    assert_eq!(stats.discarded(Discard::Refused), refused);
    assert!(stats.cookies_demanded > 0, "whoever goes on must return a cookie");
    assert!(stats.discarded(Discard::SourceLimit) > 0);
    let limit = config.source_cookie_threshold + config.source_half_open_limit;
    assert!(most <= limit, "{most} states, expected {limit} at most");
    world.hosts[0].sent.clear();
    world.run_secs(11);
    world.assert_nothing_left();
}

/// A peer that guesses keys must not hide the log lines about another peer's failure.
#[test]
fn each_reason_is_told_although_another_comes_all_the_time() {
    let mut world = sun();
    for (seed, name, key) in [(1, "moon", "a guess"), (2, "moon", "another"), (3, "mars", "a guess")] {
        let mut peer = Peer::init(&mut world, seed, vec![]);
        let payloads = peer.auth_as(&crate::scenarios::common::build::fqdn(name), key.as_bytes());
        peer.request(&mut world, ExchangeType::IkeAuth, payloads).expect("a refusal");
    }
    let log = world.hosts[0].log();
    let refusals: Vec<_> = log.iter().filter(|line| line.starts_with("refused IKE_AUTH")).collect();
    let [guess, stranger] = refusals.as_slice() else { panic!("{log:#?}") };
    assert!(guess.contains("moon") && stranger.contains("mars"), "{refusals:?}");
}
