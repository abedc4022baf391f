//! Additional key exchanges in IKE_INTERMEDIATE (RFC 9242, RFC 9370): two endpoints, in all
//! weathers.

use crate::scenarios::common::build::ike_proposal;
use crate::scenarios::common::tunnels::assert_weathered;
use crate::scenarios::common::wire::{assert_ivs_never_repeat, sent};
use crate::scenarios::common::{Weather, World};
use std::time::Duration;
use testudo_ike::config::KeyExchange::{self, Ecp256, MlKem512, MlKem768, MlKem1024, Modp2048, X25519};
use testudo_ike::config::{Connection, Fragmentation, IkeProposal};
use testudo_ike::endpoint::{EndpointConfig, IkeSaState};
use testudo_ike::message::{ExchangeType, Message, NotifyType, TransformType};
use testudo_ike::output::Reason;

/// A proposal with X25519 and these additional key exchanges, from the first on.
fn with(additional: &[&[Option<KeyExchange>]]) -> IkeProposal {
    let mut proposal = ike_proposal(&[X25519]);
    for (place, methods) in proposal.additional.iter_mut().zip(additional) {
        *place = methods.to_vec();
    }
    proposal
}

/// Both ends propose this.
fn pair(seed: u64, weather: Weather, proposals: &[IkeProposal]) -> World {
    World::pair_with(seed, weather, |_, connection| connection.proposals = proposals.to_vec())
}

/// The additional key exchanges of the one IKE SA of a host, as operators see them.
fn shown(world: &World, host: usize) -> Vec<Option<&'static str>> {
    let sas = world.hosts[host].sas();
    assert_eq!(sas.len(), 1, "{:?}", world.hosts[host].log());
    let methods = sas[0].additional_ke.map(|method| method.map(|method| method.name));
    methods.to_vec()
}

#[test]
fn each_method_makes_a_tunnel_in_six_messages() {
    for (method, name) in [
        (MlKem512, "ML_KEM_512"),
        (MlKem768, "ML_KEM_768"),
        (MlKem1024, "ML_KEM_1024"),
        (Ecp256, "ECP_256"),
        (Modp2048, "MODP_2048"),
    ] {
        let mut world = pair(1, Weather::FAIR, &[with(&[&[Some(method)]])]);
        world.establish();
        for host in [0, 1] {
            assert_eq!(shown(&world, host), [Some(name), None, None, None, None, None, None]);
            let exchanges = [ExchangeType::IkeSaInit, ExchangeType::IkeIntermediate, ExchangeType::IkeAuth];
            for (id, exchange) in (0..).zip(exchanges) {
                for bytes in sent(&world, host, exchange, host == 1) {
                    assert_eq!(Message::parse(bytes).unwrap().header.message_id.0, id, "{exchange}");
                }
            }
        }
        assert!(world.hosts[0].logged(&format!("CURVE_25519/KE1_{name}")), "{:?}", world.hosts[0].log());
        assert!(world.hosts[0].logged(&format!("additional key exchange 1 by {name}")));
        assert_ivs_never_repeat(&world);
    }
}

#[test]
fn seven_exchanges_one_after_the_other() {
    let methods = [MlKem512, MlKem768, MlKem1024, Ecp256, Modp2048, KeyExchange::Ecp384, KeyExchange::Ecp521];
    let places = methods.map(|method| [Some(method)]);
    let all: Vec<_> = places.iter().map(<[_; 1]>::as_slice).collect();
    let mut world = pair(2, Weather::FAIR, &[with(&all)]);
    world.establish();
    assert!(shown(&world, 1).iter().all(Option::is_some));
    let request = &sent(&world, 0, ExchangeType::IkeAuth, false)[0];
    assert_eq!(Message::parse(request).unwrap().header.message_id.0, 8);
    assert_ivs_never_repeat(&world);
}

#[test]
fn places_need_not_be_consecutive() {
    let proposal = with(&[&[], &[Some(MlKem768)], &[], &[], &[Some(Ecp256)]]);
    let mut world = pair(3, Weather::FAIR, &[proposal]);
    world.establish();
    let expected = [None, Some("ML_KEM_768"), None, None, Some("ECP_256"), None, None];
    assert_eq!(shown(&world, 0), expected);
    assert_eq!(shown(&world, 1), expected);
}

#[test]
fn ml_kem_in_the_place_of_the_first_exchange() {
    for method in [MlKem512, MlKem768, MlKem1024] {
        let mut world = pair(4, Weather::FAIR, &[ike_proposal(&[method])]);
        world.establish();
        let [request] = sent(&world, 0, ExchangeType::IkeSaInit, false)[..] else { panic!("one request") };
        let [response] = sent(&world, 1, ExchangeType::IkeSaInit, true)[..] else { panic!("one response") };
        // CHILDLESS_IKEV2_SUPPORTED stands in the response alone.
        assert!(response.len() <= request.len() + 8, "{method:?}");
    }
}

#[test]
fn large_messages_are_cut_and_small_ones_are_not() {
    for (fragmentation, cut) in [(Fragmentation::Yes, true), (Fragmentation::No, false)] {
        let world = World::established(5, |_, connection| {
            connection.proposals = vec![with(&[&[Some(MlKem1024)]])];
            connection.fragmentation = fragmentation;
        });
        for host in [0, 1] {
            let messages = sent(&world, host, ExchangeType::IkeIntermediate, host == 1);
            assert_eq!(messages.len(), if cut { 2 } else { 1 }, "{fragmentation:?}");
            assert!(!cut || messages.iter().all(|bytes| bytes.len() <= 1280 - 32));
            assert_eq!(sent(&world, host, ExchangeType::IkeAuth, host == 1).len(), 1);
        }
    }
}

#[test]
fn foul_weather_with_and_without_fragments() {
    for seed in 0..120 {
        let fragment_size = if seed % 2 == 0 { 400 } else { 1280 };
        let config = EndpointConfig { fragment_size, ..EndpointConfig::default() };
        let proposal = with(&[&[Some(MlKem768)], &[Some(Ecp256)]]);
        let addrs = ["192.0.2.1", "192.0.2.2"];
        let weather = Weather { loss: 10, ..Weather::FOUL };
        let mut world = World::pair_of(addrs, seed, weather, config, |_, connection| {
            connection.proposals = vec![proposal.clone()];
            connection.keyingtries = 0;
            connection.dpd_delay = Duration::from_secs(30);
        });
        world.initiate(0);
        if seed % 3 == 0 {
            world.initiate(1);
        }
        assert_weathered(&mut world, seed);
    }
}

#[test]
fn another_node_goes_on_between_any_two_events() {
    let begin = |seed| {
        let mut world = pair(seed, Weather::FAIR, &[with(&[&[Some(MlKem768)], &[Some(MlKem1024)]])]);
        world.initiate(0);
        world
    };
    World::taken_over_at_each(20, begin, World::assert_tunnel);
}

#[test]
fn with_a_cookie_and_another_first_method() {
    let config = EndpointConfig { cookie_threshold: 0, ..EndpointConfig::default() };
    let addrs = ["192.0.2.1", "192.0.2.2"];
    let mut world = World::pair_of(addrs, 6, Weather::FAIR, config, |index, connection| {
        let ke = if index == 0 { vec![X25519, Ecp256] } else { vec![Ecp256] };
        connection.proposals = vec![IkeProposal { ke, ..with(&[&[Some(MlKem768)]]) }];
    });
    world.establish();
    assert_eq!(shown(&world, 0)[0], Some("ML_KEM_768"));
    let answers = sent(&world, 1, ExchangeType::IkeSaInit, true);
    let notifies = |kind| {
        answers.iter().filter(|bytes| Message::parse(bytes).unwrap().payloads.notify(kind).is_some()).count()
    };
    assert!(notifies(NotifyType::Cookie) >= 1);
    assert_eq!(notifies(NotifyType::InvalidKePayload), 1);
}

#[test]
fn behind_a_nat_they_take_place_on_port_4500() {
    let world = World::established(7, |_, connection| {
        connection.proposals = vec![with(&[&[Some(MlKem768)]])];
        connection.encap = true;
    });
    let is = |bytes: &[u8]| Message::parse(bytes).unwrap().header.exchange == ExchangeType::IkeIntermediate;
    for host in &world.hosts {
        let mut paths = host.sent.iter().filter(|(_, bytes)| is(bytes)).map(|(path, _)| path);
        assert!(paths.all(|path| path.local.port() == 4500 && path.remote.port() == 4500));
    }
}

#[test]
fn a_peer_that_has_none_gets_the_proposal_without() {
    let wanted = with(&[&[Some(MlKem768)]]);
    let optional = with(&[&[Some(MlKem768), None]]);
    let plain = ike_proposal(&[X25519]);
    for ours in [vec![wanted, plain.clone()], vec![optional]] {
        for initiator in [0, 1] {
            let mut world = World::pair_with(8, Weather::FAIR, |index, connection| {
                connection.proposals = if index == 0 { ours.clone() } else { vec![plain.clone()] };
            });
            world.initiate(initiator);
            world.run_secs(1);
            world.assert_tunnel();
            assert_eq!(shown(&world, 0), [None; 7]);
            assert!(sent(&world, initiator, ExchangeType::IkeIntermediate, false).is_empty());
        }
    }
}

#[test]
fn required_key_exchanges_are_enforced() {
    for initiator in [0, 1] {
        let mut world = World::pair_with(9, Weather::FAIR, |index, connection| {
            let additional: &[&[_]] = if index == 0 { &[&[Some(MlKem768)]] } else { &[] };
            connection.proposals = vec![with(additional)];
        });
        world.initiate(initiator);
        world.run_secs(10);
        let results = world.hosts[initiator].results();
        let [Err(Reason::Notify(text))] = &results[..] else { panic!("a refusal, not {results:?}") };
        assert!(text.contains("NO_PROPOSAL_CHOSEN"), "{text}");
        world.assert_nothing_left();
    }
}

/// A peer between the same addresses with another connection, which asks for more: what IKE_SA_INIT
/// agreed on is not enough for it.
#[test]
fn a_connection_that_insists_is_not_had_by_the_exchanges_of_another() {
    let mut world = World::pair_with(10, Weather::FAIR, |_, _| {});
    let now = world.now;
    let mut strict: Connection = world.hosts[1].endpoint.connections().next().unwrap().clone();
    strict.proposals = vec![with(&[&[Some(MlKem768)]])];
    let mut lax = strict.clone();
    lax.name = "another".into();
    lax.proposals = vec![ike_proposal(&[X25519])];
    lax.remote.id = Some(crate::scenarios::common::build::fqdn("venus"));
    world.hosts[1].load(now, strict);
    world.hosts[1].load(now, lax);
    world.initiate(0);
    world.run_secs(10);
    assert!(
        world.hosts[1].logged("no connection is configured for sun...moon"),
        "{:?}",
        world.hosts[1].log()
    );
    assert!(world.hosts[0].installed.is_empty() && world.hosts[1].installed.is_empty());
}

#[test]
fn an_exchange_under_way_is_listed_and_can_be_ended() {
    let mut world = pair(11, Weather::FAIR, &[with(&[&[Some(MlKem768)]])]);
    let id = world.initiate(0);
    world.run_until(|world| !sent(world, 0, ExchangeType::IkeIntermediate, false).is_empty());
    let sas = world.hosts[0].sas();
    assert_eq!(sas[0].state, IkeSaState::Connecting);
    assert_eq!(sas[0].tasks_active, ["IKE_INIT", "IKE_AUTH", "CHILD_CREATE"]);
    let now = world.now;
    assert_eq!(world.initiate(0), id, "on its way already");
    world.hosts[0].endpoint.terminate(now, &testudo_ike::endpoint::Target::Ike(id), false).unwrap();
    world.settle(0);
    assert_eq!(world.hosts[0].sas(), []);
    world.run_secs(60);
    world.assert_nothing_left();
}

#[test]
fn a_silent_peer_is_tried_again_from_the_start() {
    let mut world = World::pair_with(12, Weather::FAIR, |_, connection| {
        connection.proposals = vec![with(&[&[Some(MlKem768)]])];
        connection.keyingtries = 2;
    });
    world.initiate(0);
    world.run_until(|world| !sent(world, 0, ExchangeType::IkeIntermediate, false).is_empty());
    world.network.up = false;
    world.run_until(|world| world.hosts[0].logged("trying again (2/2)"));
    world.network.up = true;
    world.run_secs(60);
    world.assert_tunnel();
}

#[test]
fn proposals_say_what_they_add() {
    let mut world = pair(13, Weather::FAIR, &[with(&[&[Some(MlKem768), None]])]);
    world.initiate(0);
    let request = Message::parse(&world.hosts[0].sent[0].1).unwrap();
    assert!(request.payloads.notify(NotifyType::IntermediateExchangeSupported).is_some());
    let transforms = &request.payloads.sa().unwrap().proposals[0].transforms;
    let offered: Vec<_> =
        transforms.iter().filter(|t| t.kind == TransformType::AdditionalKe1).map(|t| t.id.0).collect();
    assert_eq!(offered, [36, 0]);
    let mut plain = World::pair(13, Weather::FAIR);
    plain.initiate(0);
    let request = Message::parse(&plain.hosts[0].sent[0].1).unwrap();
    assert!(request.payloads.notify(NotifyType::IntermediateExchangeSupported).is_none());
}
