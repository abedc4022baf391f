//! A child of ours of which the peer has made several Child SAs, each for a part: all of them
//! follow a change, and what one carries is carried at every moment.

use crate::scenarios::common::build::{child, esp_proposal, ts};
use crate::scenarios::common::responder::Responder;
use crate::scenarios::common::tunnels::assert_lossless;
use crate::scenarios::common::{Weather, World};
use crate::scenarios::reload::reload;
use std::time::Duration;
use testudo_base::spi::Spi;
use testudo_ike::config::{Connection, EspEncryption, TsSpec};
use testudo_ike::endpoint::ChildSaState;
use testudo_ike::message::{ExchangeType, Nonce, Payload, TsPayload};
use testudo_ike::suite::{offer, select};
use testudo_ipsec::sa::EspAlgorithm;
use testudo_ipsec::selector::TrafficSelector;

/// Host 0 calls the two `net`.
const PARTS: [(&str, &str); 2] =
    [("low", "10.109.0.0-10.109.127.255"), ("high", "10.109.128.0-10.109.255.255")];

fn parts() -> [TrafficSelector; 2] {
    PARTS.map(|(_, range)| ts(range))
}

fn in_parts(seed: u64) -> World {
    let mut world = World::pair_with(seed, Weather::FAIR, |index, connection| {
        if index == 1 {
            let whole = connection.children.remove(0);
            let TsSpec::Fixed(ours) = whole.local_ts[0] else { panic!("it is fixed") };
            for (name, range) in PARTS {
                let part = child(name, "10.115.0.0-10.115.255.255", range);
                assert_eq!(part.local_ts, [TsSpec::Fixed(ours)]);
                connection.children.push(part);
            }
            both_ciphers(connection);
        }
    });
    for (name, _) in PARTS {
        let now = world.now;
        world.hosts[1].endpoint.initiate(now, None, name).unwrap();
        world.settle(1);
        world.run_secs(5);
    }
    assert_carried(&world, 0);
    world
}

fn both_ciphers(connection: &mut Connection) {
    for child in &mut connection.children {
        let mut other = child.proposals[0].clone();
        other.encryption = vec![EspEncryption::Aes256Gcm16];
        child.proposals.push(other);
    }
}

fn other_cipher(_: usize, connection: &mut Connection) {
    for child in &mut connection.children {
        child.proposals.truncate(1);
        child.proposals[0].encryption = vec![EspEncryption::Aes256Gcm16];
    }
}

/// Each part goes out on either side.
fn assert_carried(world: &World, steps: usize) {
    for (index, host) in world.hosts.iter().enumerate() {
        for part in parts() {
            let carries = |selectors: &[TrafficSelector]| {
                selectors.iter().any(|wide| wide.intersection(&part) == Some(part))
            };
            let found = host.sending.iter().any(|child| {
                let params = &host.installed[child];
                carries(if index == 0 { &params.local_ts } else { &params.remote_ts })
            });
            assert!(found, "step {steps}: host {index} does not carry {part:?}: {:#?}", host.log());
        }
    }
}

fn run_carried(world: &mut World, time: Duration) {
    let end = world.now.plus(time);
    let mut steps = 0;
    while world.step(end) {
        steps += 1;
        assert_lossless(world);
        assert_carried(world, steps);
    }
    world.now = end;
}

/// Two Child SAs on each side, of the new configuration.
fn assert_followed(world: &World) {
    for host in &world.hosts {
        assert_eq!(host.sas().len(), 1);
        let children = &host.sas()[0].children;
        assert!(children.iter().all(|child| child.state == ChildSaState::Installed));
        assert_eq!((children.len(), host.sending.len()), (2, 2), "{:#?}", host.log());
        assert!(host.installed.values().all(|params| params.algorithm == EspAlgorithm::Aes256Gcm16));
        assert_eq!(host.in_use.lock().unwrap().len(), 2);
    }
}

#[test]
fn each_part_is_replaced_by_itself() {
    let mut world = in_parts(1);
    reload(&mut world, 0, other_cipher);
    run_carried(&mut world, Duration::from_secs(100));
    assert_followed(&world);
}

#[test]
fn the_peer_replaces_each_part_by_itself() {
    let mut world = in_parts(2);
    reload(&mut world, 0, |_, connection| both_ciphers(connection));
    run_carried(&mut world, Duration::from_secs(100));
    reload(&mut world, 1, other_cipher);
    run_carried(&mut world, Duration::from_secs(100));
    assert_followed(&world);
}

#[test]
fn both_replace_each_part_at_the_same_time() {
    for wait in [0, 1, 10, 30, 50, 100, 1000] {
        let mut world = in_parts(3 + wait);
        reload(&mut world, 0, other_cipher);
        run_carried(&mut world, Duration::from_millis(wait));
        reload(&mut world, 1, other_cipher);
        run_carried(&mut world, Duration::from_secs(300));
        assert_followed(&world);
    }
}

#[test]
fn a_part_that_is_not_configured_any_more_gives_way() {
    let mut world = in_parts(4);
    let keep = parts()[0];
    reload(&mut world, 1, |_, connection| _ = connection.children.pop());
    reload(&mut world, 0, |_, connection| connection.children[0].local_ts = vec![TsSpec::Fixed(keep)]);
    world.run_secs(100);
    assert_lossless(&world);
    for (index, host) in world.hosts.iter().enumerate() {
        let [params] = &host.installed.values().collect::<Vec<_>>()[..] else {
            panic!("{index}: {:#?}", host.log())
        };
        let found = if index == 0 { &params.local_ts } else { &params.remote_ts };
        assert_eq!(*found, [keep]);
    }
}

/// What the peer gives in answer to the request for a replacement lies beside what the old one
/// carries: both send.
#[test]
fn a_replacement_with_other_traffic_sends_beside_the_old_one() {
    let mut world = World::pair(5, Weather::FAIR);
    world.hosts.remove(1);
    let mut sun = Responder::establish(&mut world);
    let sent = world.hosts[0].sent.len();
    reload(&mut world, 0, |_, connection| {
        connection.children[0].remote_ts.push(TsSpec::Fixed(ts("10.116.0.0-10.116.255.255")));
    });
    world.run_until(|world| world.hosts[0].sent.len() > sent);
    let (header, asked) = sun.asked(&world);
    let offered = asked.iter().find_map(|payload| match payload {
        Payload::Sa(offered) => Some(offered),
        _ => None,
    });
    let esp = [esp_proposal(EspAlgorithm::Aes128Gcm16)];
    let choice = select::esp(offered.unwrap(), &esp, offer::ChildExchange::CreateChildSa).unwrap();
    let answer = vec![
        Payload::Sa(choice.answer(Spi(0x3000_0000))),
        Payload::Nonce(Nonce::new(vec![7; 32]).unwrap()),
        Payload::TsInitiator(TsPayload::new(vec![ts("10.109.0.0-10.109.255.255")])),
        Payload::TsResponder(TsPayload::new(vec![ts("10.116.0.0-10.116.255.255")])),
    ];
    sun.answer(&mut world, ExchangeType::CreateChildSa, header.message_id.0, answer);
    let host = &world.hosts[0];
    let carried: Vec<_> = host.sending.iter().map(|child| host.installed[child].remote_ts.clone()).collect();
    let expected = ["10.115.0.0-10.115.255.255", "10.116.0.0-10.116.255.255"].map(|range| vec![ts(range)]);
    assert_eq!(carried, expected, "{:#?}", host.log());
}
