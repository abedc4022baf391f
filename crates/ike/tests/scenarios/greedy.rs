//! A peer that is authenticated, and wants more than its share.

use crate::answers::sun;
use crate::common::World;
use crate::common::build::{esp_proposal, ts};
use crate::common::peer::{Peer, only_notify};
use testudo_ike::endpoint::EndpointConfig;
use testudo_ike::message::{Delete, ExchangeType, Nonce, NotifyType, Payload, TsPayload};
use testudo_ike::suite::offer;
use testudo_ipsec::sa::EspAlgorithm;
use testudo_ipsec::spi::Spi;

/// A further Child SA, whose selectors of the peer's side are these.
fn further_child(spi: Spi, remote: TsPayload) -> Vec<Payload> {
    let esp = esp_proposal(EspAlgorithm::Aes128Gcm16);
    vec![
        Payload::Sa(offer::esp(&[esp], spi, offer::ChildExchange::CreateChildSa)),
        Payload::Nonce(Nonce::new(vec![7; 32]).unwrap()),
        Payload::TsInitiator(remote),
        Payload::TsResponder(TsPayload::new(vec![ts("10.115.0.0-10.115.255.255")])),
    ]
}

/// Asks for Child SAs and deletes each at once, that many times; how many there were.
fn take_and_drop(world: &mut World, peer: &mut Peer, first: u32, times: u32) -> u32 {
    let whole = TsPayload::new(vec![ts("10.109.0.0-10.109.255.255")]);
    let mut made = 0;
    for spi in (first..first + times).map(Spi) {
        let request = further_child(spi, whole.clone());
        let answer = peer.request(world, ExchangeType::CreateChildSa, request).unwrap();
        if answer.iter().any(|payload| matches!(payload, Payload::Sa(_))) {
            made += 1;
            let delete = vec![Payload::Delete(Delete::Esp(vec![spi]))];
            peer.request(world, ExchangeType::Informational, delete).unwrap();
        } else {
            assert_eq!(only_notify(Some(answer)), NotifyType::TemporaryFailure);
        }
    }
    made
}

/// A slot that was used rests for minutes: who takes and drops Child SAs without end would leave none to others.
#[test]
fn slots_are_not_used_up_by_one_peer() {
    let mut world = sun();
    let mut peer = Peer::establish(&mut world, 61);
    let began = world.now;
    let EndpointConfig { creation_burst, .. } = EndpointConfig::default();
    let made = take_and_drop(&mut world, &mut peer, 0x3000_0000, creation_burst + 200);
    let passed = |world: &World| u32::try_from(world.now.since(began).as_secs()).unwrap();
    let allowed = creation_burst + passed(&world);
    assert!((allowed..=allowed + 1).contains(&made), "{made} of {allowed}");
    world.run_secs(30);
    let more = take_and_drop(&mut world, &mut peer, 0x4000_0000, 100);
    let allowed = creation_burst + passed(&world);
    assert!((allowed..=allowed + 1).contains(&(made + more)), "{made} and {more} of {allowed}");
    assert_eq!(world.hosts[0].installed.len(), 1);
}

/// A packet may have to be compared with all of them.
#[test]
fn selectors_are_limited() {
    let mut world = sun();
    let mut peer = Peer::establish(&mut world, 62);
    let EndpointConfig { selector_limit, .. } = EndpointConfig::default();
    for number in 0..40_u32 {
        let single = |n: u32| format!("10.109.{}.{n}-10.109.{}.{n}", number % 256, number % 256);
        let scattered = (0..60).map(|n| ts(&single(2 * n))).collect();
        let request = further_child(Spi(0x3000_0000 + number), TsPayload::new(scattered));
        peer.request(&mut world, ExchangeType::CreateChildSa, request).unwrap();
    }
    let installed = world.hosts[0].installed.values();
    let selectors: usize = installed.map(|sa| sa.local_ts.len() + sa.remote_ts.len()).sum();
    assert!((selector_limit..selector_limit + 64).contains(&selectors), "{selectors}");
}
