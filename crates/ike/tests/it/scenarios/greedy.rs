//! A peer that is authenticated, and wants more than its shard.

use crate::scenarios::answers::sun;
use crate::scenarios::common::build::{esp_proposal, ts};
use crate::scenarios::common::peer::{Peer, only_notify};
use crate::scenarios::common::wire::sent;
use crate::scenarios::common::{Weather, World};
use std::num::NonZeroUsize;
use testudo_base::spi::Spi;
use testudo_ike::endpoint::EndpointConfig;
use testudo_ike::message::{
    Delete, ExchangeType, Nonce, Notify, NotifySa, NotifyType, Payload, Protocol, SaSpi, TsPayload,
};
use testudo_ike::suite::offer;
use testudo_ipsec::sa::EspAlgorithm;
use testudo_ipsec::selector::TrafficSelector;

/// A further Child SA, with these selectors of the peer's side.
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

/// A used slot rests for minutes: a peer that creates and deletes Child SAs endlessly would leave
/// none to others.
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

/// Sun with these limits.
fn limited(config: EndpointConfig) -> World {
    let mut world = World::pair_of(["192.0.2.1", "192.0.2.2"], 1, Weather::FAIR, config, |_, _| {});
    world.hosts.remove(0);
    world
}

/// Child SAs with a selector each are renewed by some with many, which mean the same packets.
#[test]
fn selectors_are_limited_in_renewals_too() {
    let mut world = limited(EndpointConfig { selector_limit: 100, ..EndpointConfig::default() });
    let mut peer = Peer::establish(&mut world, 63);
    let whole = ts("10.109.0.0-10.109.255.255");
    let udp = |port: u16| TrafficSelector { protocol: 17, port_start: port, port_end: port, ..whole };
    for number in 0..20 {
        let request = further_child(Spi(0x3000_0000 + number), TsPayload::new(vec![whole]));
        peer.request(&mut world, ExchangeType::CreateChildSa, request).unwrap();
    }
    let mut renew = |old: u32, new: u32, selectors| {
        let about = NotifySa { protocol: Protocol::Esp, spi: SaSpi::Child(Spi(old)) };
        let notify = Notify { sa: Some(about), ..Notify::new(NotifyType::RekeySa, Vec::new()) };
        let mut request = further_child(Spi(new), TsPayload::new(selectors));
        request.insert(0, Payload::Notify(notify));
        let answer = peer.request(&mut world, ExchangeType::CreateChildSa, request).unwrap();
        let made = answer.iter().any(|payload| matches!(payload, Payload::Sa(_)));
        assert!(made || only_notify(Some(answer)) == NotifyType::TsUnacceptable);
        made
    };
    let slices = || (0..60).map(|n| udp(1000 + 2 * n)).collect();
    let cut = (0..20).filter(|n| renew(0x3000_0000 + n, 0x4000_0000 + n, slices())).count();
    assert_eq!(cut, 1, "42 there were, and 61 came");
    assert!(renew(0x3000_0013, 0x5000_0000, vec![whole]), "what was there is renewed");
}

/// An IKE SA may have its limit once, not repeatedly.
#[test]
fn ike_sas_of_a_peer_are_limited() {
    let mut world = limited(EndpointConfig { twin_limit: NonZeroUsize::new(3), ..EndpointConfig::default() });
    let set_up = |world: &mut World, seed| {
        let mut peer = Peer::init(world, seed, vec![]);
        let payloads = peer.auth_payloads();
        let answer = peer.request(world, ExchangeType::IkeAuth, payloads).unwrap();
        let made = answer.iter().any(|payload| matches!(payload, Payload::Sa(_)));
        assert!(made || only_notify(Some(answer)) == NotifyType::AuthenticationFailed);
        made.then_some(peer)
    };
    let mut peers: Vec<Peer> = (70..75).filter_map(|seed| set_up(&mut world, seed)).collect();
    assert_eq!((peers.len(), world.hosts[0].sas().len()), (3, 3));
    assert!(world.hosts[0].logged("it has 3 IKE_SAs already"));
    assert_eq!(world.hosts[0].endpoint.half_open(), 2, "refused ones count as such");
    let delete = vec![Payload::Delete(Delete::IkeSa)];
    peers[0].request(&mut world, ExchangeType::Informational, delete).unwrap();
    assert!(set_up(&mut world, 75).is_some(), "for one that is gone there is room");

    // The three are not answered any more. Two were asked before, and a third is asked now.
    world.run_secs(11);
    let checks = |world: &World| sent(world, 0, ExchangeType::Informational, false).len();
    let before = checks(&world);
    assert!(set_up(&mut world, 76).is_none());
    assert_eq!(checks(&world) - before, 1);
    world.run_secs(400);
    assert_eq!(world.hosts[0].sas().len(), 0);
    assert!(set_up(&mut world, 77).is_some(), "nor for those that are dead");
}
