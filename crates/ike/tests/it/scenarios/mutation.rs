//! Real conversations with damaged copies among them: nothing panics, nothing comes up with wrong
//! keys.

use crate::scenarios::common::network::Datagram;
use crate::scenarios::common::world::assert_fit;
use crate::scenarios::common::{Random, Weather, World};
use std::time::Duration;
use testudo_base::spi::SenderId;
use testudo_ike::alloc::SingleNodeAllocator;
use testudo_ike::endpoint::{Endpoint, EndpointConfig, Target};

/// Damages a message in one of the ways that a network or an attacker would.
fn damage(random: &mut Random, bytes: &[u8], others: &[Vec<u8>]) -> Vec<u8> {
    let mut damaged = bytes.to_vec();
    let position = |random: &mut Random, length: usize| random.below(length.max(1) as u64) as usize;
    match random.below(6) {
        0 => {
            for _ in 0..=random.below(4) {
                let at = position(random, damaged.len());
                damaged[at] ^= 1 << random.below(8);
            }
        }
        1 => damaged.truncate(position(random, bytes.len())),
        2 => damaged.extend((0..random.below(64)).map(|i| i as u8)),
        3 => {
            let at = position(random, damaged.len());
            damaged[at] = random.next() as u8;
        }
        4 => {
            // The head of one message, the tail of another.
            let other = &others[position(random, others.len())];
            let at = position(random, damaged.len().min(other.len()));
            damaged.truncate(at);
            damaged.extend_from_slice(&other[at..]);
        }
        _ => {
            let at = position(random, damaged.len());
            let end = (at + position(random, 40)).min(damaged.len());
            damaged.drain(at..end);
        }
    }
    // Often with a length that agrees, so that it is read further.
    if damaged.len() >= 28 && random.percent(70) {
        let length = u32::try_from(damaged.len()).unwrap();
        damaged[24..28].copy_from_slice(&length.to_be_bytes());
    }
    damaged
}

/// Before each true datagram come damaged copies; with `instead`, sometimes the true one is lost.
fn conversation(seed: u64, instead: bool) {
    let mut world = World::pair_with(seed, Weather::FAIR, |_, connection| {
        connection.dpd_delay = Duration::from_secs(20);
        connection.keyingtries = 0;
    });
    let mut random = Random::new(seed ^ 0xdead);
    let mut heard: Vec<Vec<u8>> = Vec::new();
    world.initiate(0);
    let end = world.now.plus(Duration::from_secs(if instead { 300 } else { 60 }));
    while world.now < end {
        if let Some(datagram) = world.network.arrive(world.now) {
            heard.push(datagram.bytes.clone());
            for _ in 0..8 {
                let bytes = damage(&mut random, &datagram.bytes, &heard);
                if bytes != datagram.bytes {
                    world.deliver(&Datagram { bytes, ..datagram.clone() });
                }
            }
            if !instead || random.percent(70) {
                world.deliver(&datagram);
            }
        } else if !world.step(end) {
            break;
        }
    }
    for params in world.hosts[0].installed.values() {
        if let Some(other) = world.hosts[1].installed.values().find(|p| p.spi_in == params.spi_out) {
            assert_fit(params, other);
        }
    }
    if !instead {
        world.assert_tunnel();
    }
    let now = world.now;
    if world.hosts[0].endpoint.terminate(now, &Target::All, false).is_ok() {
        world.settle(0);
    }
    world.run_secs(400);
    assert!(world.hosts[0].installed.is_empty());
}

#[test]
fn damaged_copies_beside_the_true_messages_change_nothing() {
    for seed in 0..150 {
        conversation(seed, false);
    }
}

#[test]
fn damaged_copies_in_the_place_of_true_messages_do_no_harm() {
    for seed in 0..150 {
        conversation(seed, true);
    }
}

#[test]
fn damaged_states_do_not_panic() {
    let mut world = World::pair(1, Weather::FAIR);
    let id = world.initiate(0);
    let mut states = Vec::new();
    let end = world.now.plus(Duration::from_secs(2));
    while world.step(end) {
        for host in &world.hosts {
            let export = |(id, _)| host.endpoint.export_sa(world.now, id);
            states.extend(host.endpoint.states().filter_map(export));
        }
    }
    assert!(states.len() > 6 && world.hosts[0].endpoint.export_sa(world.now, id).is_some());
    let mut random = Random::new(77);
    let mut taken = 0;
    for round in 0..20_000 {
        let mut state = states[round % states.len()].to_vec();
        for _ in 0..=random.below(3) {
            let at = random.below(state.len() as u64) as usize;
            state[at] = random.next() as u8;
        }
        let alloc = SingleNodeAllocator::new(Random::new(5), SenderId(9));
        let mut endpoint = Endpoint::new(EndpointConfig::default(), Box::new(alloc));
        if endpoint.import_sa(world.now, &state).is_ok() {
            taken += 1;
            let now = world.now.plus(Duration::from_secs(1000));
            endpoint.handle_timeout(now);
            while endpoint.poll_output().is_some() {}
            let _ = endpoint.terminate(now, &Target::All, true);
        }
    }
    assert!(taken > 100, "most of a state is keys and numbers, where any octet is as good: {taken}");
}
