//! A Child SA for each worker, beside one for all (RFC 9611).

use crate::scenarios::common::build::{esp_proposal, ts};
use crate::scenarios::common::network::Weather;
use crate::scenarios::common::peer::{Peer, only_notify, status};
use crate::scenarios::common::responder::Responder;
use crate::scenarios::common::tunnels::{assert_lossless, child_rekeys, run_lossless};
use crate::scenarios::common::wire::assert_ivs_never_repeat;
use crate::scenarios::common::world::assert_fit;
use crate::scenarios::common::{World, connection, secret};
use std::collections::BTreeSet;
use std::time::Duration;
use testudo_base::spi::Spi;
use testudo_ike::config::{ChildLifetime, Connection, IkeLifetime, KeyExchange, Lifetime};
use testudo_ike::endpoint::{ChildState, EndpointConfig, Target};
use testudo_ike::message::{
    Delete, ExchangeType, MessageId, Nonce, Notify, NotifyType, Payload, SaPayload, SaSpi, TsPayload,
};
use testudo_ike::output::{ChildSaId, Event};
use testudo_ike::suite::{offer, select};
use testudo_ipsec::sa::EspAlgorithm;

const ENDS: [(&str, &str); 2] = [("192.0.2.1", "moon"), ("192.0.2.2", "sun")];

/// Two hosts with these numbers of workers, whose child has an SA for each.
pub(crate) fn hosts(
    seed: u64,
    weather: Weather,
    configs: [EndpointConfig; 2],
    edit: impl Fn(usize, &mut Connection),
) -> World {
    let mut world = World::new(seed, weather);
    for (index, config) in configs.into_iter().enumerate() {
        let now = world.now;
        let mut connection = connection(ENDS[index], ENDS[1 - index]);
        connection.children[0].per_cpu_sas = true;
        edit(index, &mut connection);
        let host = world.add(ENDS[index].0, config);
        host.load_secret(secret("psk", b"a shared key", &["moon", "sun"]));
        host.load(now, connection);
    }
    world
}

pub(crate) fn workers(number: u16) -> EndpointConfig {
    EndpointConfig { resource_workers: number, ..EndpointConfig::default() }
}

/// With a tunnel, a second later.
pub(crate) fn established(numbers: [u16; 2], edit: impl Fn(usize, &mut Connection)) -> World {
    let mut world = hosts(1, Weather::FAIR, numbers.map(workers), edit);
    world.initiate(0);
    world.run_secs(1);
    world
}

/// The workers with an SA of their own; each once for each of its SAs.
pub(crate) fn bound(world: &World, host: usize) -> Vec<u16> {
    let mut bound: Vec<u16> = world.hosts[host].bound.values().copied().collect();
    bound.sort_unstable();
    bound
}

/// Both sides have this many Child SAs, and each has two ends. One on each side is for all workers.
pub(crate) fn assert_tunnels(world: &World, count: usize) {
    let [moon, sun] = [0, 1].map(|index| &world.hosts[index].installed);
    assert_eq!((moon.len(), sun.len()), (count, count), "{:#?}", world.hosts[0].log());
    for params in moon.values() {
        let other = sun.values().find(|other| other.spi_in == params.spi_out);
        assert_fit(params, other.expect("each SA has two ends"));
    }
    for host in &world.hosts {
        let for_all: Vec<&ChildSaId> =
            host.sending.iter().filter(|child| !host.bound.contains_key(child)).collect();
        assert_eq!(for_all.len(), 1, "{:?} {:?}", host.sending, host.bound);
        assert_eq!(host.in_use.lock().unwrap().len(), count, "no SPI is forgotten");
        let listed = host.sas().into_iter().flat_map(|sa| sa.children);
        let listed: Vec<(ChildSaId, Option<u16>)> = listed.map(|child| (child.id, child.worker)).collect();
        let expected: Vec<_> =
            host.installed.keys().map(|child| (*child, host.bound.get(child).copied())).collect();
        let waiting = |child: &ChildSaId| !host.sending.contains(child);
        for ((id, worker), (_, bound)) in listed.iter().zip(&expected) {
            assert!(worker == bound || waiting(id), "{id:?} is for {worker:?}, and bound to {bound:?}");
        }
    }
    assert_ivs_never_repeat(world);
}

#[test]
fn each_worker_gets_its_own_and_one_is_for_all() {
    for (numbers, count) in [([4, 4], 5), ([4, 2], 5), ([2, 4], 3), ([3, 1], 4)] {
        let mut world = established(numbers, |_, _| {});
        assert_lossless(&world);
        // The last one waits until the peer has shown that it has it.
        let last = *world.hosts[1].installed.keys().next_back().unwrap();
        assert!(!world.hosts[1].sending.contains(&last));
        world.hosts[1].endpoint.traffic_seen(world.now, last);
        world.settle(1);
        assert_tunnels(&world, count);
        assert_eq!(bound(&world, 0), (0..numbers[0]).collect::<Vec<_>>());
        assert_eq!(world.hosts[0].results().len(), 1, "nobody has asked for those of workers");
        let mut expected: Vec<u16> = (0..numbers[0]).map(|number| number % numbers[1]).collect();
        expected.sort_unstable();
        assert_eq!(bound(&world, 1), expected, "the least used workers come first");
        let spis: BTreeSet<Spi> = world.hosts[0].installed.values().map(|params| params.spi_in).collect();
        assert_eq!(spis.len(), count);
        let status = world.hosts[0].endpoint.children("site").swap_remove(0);
        assert_eq!((status.state, status.sas), (ChildState::Up, 1));
        assert!(world.hosts[0].sas()[0].children.iter().all(|child| child.per_cpu));
        world.run_secs(1000);
        assert_tunnels(&world, count);
        assert!(!world.hosts[0].warned(""), "{:#?}", world.hosts[0].log());
    }
}

/// Without a packet from the peer, and without another request of it.
#[test]
fn the_last_one_waits_no_longer_than_an_answer_is_repeated() {
    let mut world = established([2, 2], |_, _| {});
    assert_eq!(bound(&world, 1), [0]);
    world.run_secs(180);
    assert_eq!(bound(&world, 1), [0, 1]);
    assert_tunnels(&world, 3);
}

#[test]
fn a_single_worker_asks_for_none() {
    for numbers in [[1, 4], [0, 4]] {
        let world = established(numbers, |_, _| {});
        assert_tunnels(&world, 1);
        // A host without workers does not offer it.
        assert!(world.hosts.iter().all(|host| host.sas()[0].children[0].per_cpu == (numbers[0] > 0)));
    }
}

/// The peer does not know the notify, or is not configured for it: it ignores the notify.
#[test]
fn a_peer_without_it_has_one_for_all() {
    for without in 0..2 {
        let world = established([4, 4], |index, connection| {
            connection.children[0].per_cpu_sas = index != without;
        });
        assert_tunnels(&world, 1);
        assert!(world.hosts.iter().all(|host| host.sas().iter().all(|sa| !sa.children[0].per_cpu)));
        assert!(!world.hosts[0].logged("for worker"));
    }
}

#[test]
fn a_full_peer_is_not_asked_again() {
    let full = EndpointConfig { resource_limit: 2, ..workers(8) };
    let mut world = hosts(1, Weather::FAIR, [workers(8), full], |_, _| {});
    world.initiate(0);
    world.run_secs(1);
    assert_tunnels(&world, 3);
    assert!(world.hosts[0].logged("no CHILD_SA net for worker 2: the peer answered TS_MAX_QUEUE"));
    assert!(world.hosts[1].logged("net has 2 CHILD_SAs for workers already; refused with TS_MAX_QUEUE"));
    let asked = |world: &World| {
        world.hosts[0].log().iter().filter(|line| line.contains("establishing CHILD_SA net for")).count()
    };
    assert_eq!(asked(&world), 3);
    world.run_secs(3000);
    assert_tunnels(&world, 3);
    assert_eq!(asked(&world), 3);
}

fn child_lifetime(seconds: u64) -> ChildLifetime {
    ChildLifetime { time: Lifetime::new(seconds, None, None), ..ChildLifetime::default() }
}

#[test]
fn a_renewed_one_stays_with_its_worker() {
    for renewing in 0..2 {
        let mut world = established([3, 3], |index, connection| {
            if index == renewing {
                connection.children[0].lifetime = child_lifetime(1000);
            }
        });
        let first: Vec<Spi> = world.hosts[0].installed.values().map(|params| params.spi_in).collect();
        run_lossless(&mut world, Duration::from_secs(5500));
        world.run_secs(300);
        for host in 0..2 {
            assert!(child_rekeys(&world.hosts[host]) >= 16, "{}", child_rekeys(&world.hosts[host]));
            assert_eq!(bound(&world, host), [0, 1, 2]);
        }
        assert_tunnels(&world, 4);
        assert!(world.hosts[0].installed.values().all(|params| !first.contains(&params.spi_in)));
    }
}

/// Both sides renew all at the same time.
#[test]
fn collisions_leave_one_for_each_worker() {
    for seed in 0..6 {
        let mut world = hosts(seed, Weather::FAIR, [workers(3), workers(3)], |_, connection| {
            connection.children[0].lifetime =
                ChildLifetime { time: Lifetime::new(500, None, Some(0)), ..ChildLifetime::default() };
        });
        world.initiate(0);
        world.run_secs(200);
        run_lossless(&mut world, Duration::from_secs(2500));
        world.run_secs(200);
        assert_tunnels(&world, 4);
        assert_eq!((bound(&world, 0), bound(&world, 1)), (vec![0, 1, 2], vec![0, 1, 2]), "seed {seed}");
    }
}

#[test]
fn they_move_to_a_renewed_ike_sa() {
    let mut world = established([3, 3], |index, connection| {
        if index == 0 {
            connection.lifetime = IkeLifetime::with_reauth(400, 0, None, None);
            connection.children[0].lifetime = child_lifetime(1500);
        }
    });
    world.run_secs(180);
    run_lossless(&mut world, Duration::from_secs(4000));
    world.run_secs(60);
    let renewed = world.hosts[0].events.iter().filter(|event| matches!(event, Event::IkeRekeyed(..))).count();
    assert!(renewed > 8 && child_rekeys(&world.hosts[0]) >= 8);
    assert_tunnels(&world, 4);
    assert_eq!((bound(&world, 0), bound(&world, 1)), (vec![0, 1, 2], vec![0, 1, 2]));
}

#[test]
fn reauthentication_makes_all_anew() {
    let mut world = established([3, 3], |_, _| {});
    world.run_secs(180);
    let first: Vec<Spi> = world.hosts[0].installed.values().map(|params| params.spi_in).collect();
    let (now, ike) = (world.now, world.hosts[0].sas()[0].id);
    assert!(world.hosts[0].endpoint.reauthenticate_ike(now, ike));
    world.settle(0);
    run_lossless(&mut world, Duration::from_secs(400));
    assert_tunnels(&world, 4);
    assert_eq!((bound(&world, 0), bound(&world, 1)), (vec![0, 1, 2], vec![0, 1, 2]));
    assert!(world.hosts[0].installed.values().all(|params| !first.contains(&params.spi_in)));
}

/// The one for all is terminated by either side: another takes its place, and its worker does
/// without.
#[test]
fn without_the_one_for_all_that_of_a_worker_is_for_all() {
    for host in 0..2 {
        let mut world = established([3, 3], |_, _| {});
        world.run_secs(180);
        let for_all = *world.hosts[host].installed.keys().next().unwrap();
        let now = world.now;
        world.hosts[host].endpoint.terminate(now, &Target::Child(for_all), false).unwrap();
        world.settle(host);
        run_lossless(&mut world, Duration::from_secs(60));
        assert_tunnels(&world, 3);
        assert_eq!(bound(&world, 0).len(), 2);
        assert!(world.hosts.iter().all(|host| host.logged("serves all workers from now on")));
        // The worker gets one again when the one for all is renewed.
        let now = world.now;
        let for_all = world.hosts[0].sending.iter().find(|child| !world.hosts[0].bound.contains_key(child));
        let for_all = *for_all.unwrap();
        world.hosts[0].endpoint.rekey_child(now, for_all);
        world.settle(0);
        run_lossless(&mut world, Duration::from_secs(250));
        assert_tunnels(&world, 4);
        assert_eq!(bound(&world, 0), [0, 1, 2]);
    }
}

/// One of a worker that the peer deletes is not made again at once.
#[test]
fn a_deleted_one_does_not_come_back_at_once() {
    let mut world = established([3, 3], |_, _| {});
    world.run_secs(180);
    let last = *world.hosts[1].installed.keys().next_back().unwrap();
    let now = world.now;
    world.hosts[1].endpoint.terminate(now, &Target::Child(last), false).unwrap();
    world.settle(1);
    run_lossless(&mut world, Duration::from_secs(600));
    assert_tunnels(&world, 3);
    assert_eq!(bound(&world, 0).len(), 2);
}

/// An operator takes the key away: the tunnel stays, with one SA.
#[test]
fn another_configuration_ends_them() {
    let mut world = established([3, 3], |_, _| {});
    world.run_secs(180);
    for host in [0, 1] {
        let now = world.now;
        let mut plain = connection(ENDS[host], ENDS[1 - host]);
        plain.children[0].per_cpu_sas = false;
        world.hosts[host].load(now, plain);
        world.settle(host);
    }
    run_lossless(&mut world, Duration::from_secs(120));
    assert_tunnels(&world, 1);
}

/// Additional key exchanges make each of them in several exchanges.
#[test]
fn several_key_exchanges_make_each() {
    let mut world = established([3, 3], |_, connection| {
        let proposal = &mut connection.children[0].proposals[0];
        proposal.ke = vec![KeyExchange::X25519];
        proposal.additional[0] = vec![Some(KeyExchange::MlKem768)];
    });
    world.run_secs(200);
    assert_tunnels(&world, 4);
    assert_eq!((bound(&world, 0), bound(&world, 1)), (vec![0, 1, 2], vec![0, 1, 2]));
}

#[test]
fn bad_weather_leaves_no_half_of_one() {
    for seed in 0..12 {
        let mut world = hosts(seed, Weather::FOUL, [workers(3), workers(2)], |_, connection| {
            connection.children[0].lifetime = child_lifetime(120);
        });
        world.initiate(0);
        world.run_secs(400);
        world.network.weather = Weather::FAIR;
        world.run_secs(900);
        let [moon, sun] = [0, 1].map(|index| &world.hosts[index].installed);
        for params in moon.values() {
            let other = sun.values().find(|other| other.spi_in == params.spi_out);
            assert_fit(params, other.unwrap_or_else(|| panic!("seed {seed}: one end of {params:?}")));
        }
        assert_eq!(moon.len(), sun.len(), "seed {seed}");
        assert_ivs_never_repeat(&world);
    }
}

/// A strongSwan with `per_cpu_sas = encap` sends by each of them from a port where nobody listens. A
/// packet through the one for all shows where the peer is.
#[test]
fn a_port_of_one_alone_is_no_move_of_the_peer() {
    let mut world = established([2, 2], |_, connection| connection.encap = true);
    let children: Vec<ChildSaId> = world.hosts[1].installed.keys().copied().collect();
    let remote = |world: &World| world.hosts[1].sas()[0].remote;
    let before = remote(&world);
    let source = "192.0.2.1:5555".parse().unwrap();
    for (child, expected) in [(children[1], before), (children[0], source)] {
        let now = world.now;
        world.hosts[1].endpoint.esp_source(now, child, source);
        world.settle(1);
        assert_eq!(remote(&world), expected);
    }
}

/// As strongSwan 6 asks for one: the identifier is the number of its processor.
pub(crate) fn like_strongswan(spi: u32, cpu: Option<u32>) -> Vec<Payload> {
    let esp = esp_proposal(EspAlgorithm::Aes128Gcm16);
    let identifier = cpu.map(|cpu| cpu.to_be_bytes().to_vec()).unwrap_or_default();
    vec![
        Payload::Sa(offer::esp(&[esp], Spi(spi), offer::ChildExchange::CreateChildSa)),
        Payload::Nonce(Nonce::new(vec![7; 32]).unwrap()),
        Payload::TsInitiator(TsPayload::new(vec![ts("10.109.0.0-10.109.255.255")])),
        Payload::TsResponder(TsPayload::new(vec![ts("10.115.0.0-10.115.255.255")])),
        Payload::Notify(Notify::new(NotifyType::SaResourceInfo, identifier)),
    ]
}

pub(crate) fn resource_info(answer: &[Payload]) -> Option<Vec<u8>> {
    answer.iter().find_map(|payload| match payload {
        Payload::Notify(notify) if notify.kind == NotifyType::SaResourceInfo => Some(notify.data.clone()),
        _ => None,
    })
}

/// Sun alone, with a peer that has authenticated.
pub(crate) fn with_peer(config: EndpointConfig, edit: impl Fn(usize, &mut Connection)) -> (World, Peer) {
    let mut world = hosts(1, Weather::FAIR, [config.clone(), config], edit);
    world.hosts.remove(0);
    let mut peer = Peer::init(&mut world, 7, vec![]);
    let mut payloads = peer.auth_payloads();
    payloads.push(Payload::Notify(Notify::new(NotifyType::SaResourceInfo, Vec::new())));
    let answer = peer.request(&mut world, ExchangeType::IkeAuth, payloads).unwrap();
    assert_eq!(resource_info(&answer), Some(Vec::new()));
    (world, peer)
}

#[test]
fn a_peer_like_strongswan_gets_one_for_each_of_its_processors() {
    let (mut world, mut peer) = with_peer(EndpointConfig { resource_limit: 3, ..workers(2) }, |_, _| {});
    let mut identifiers = BTreeSet::new();
    for cpu in 0..3 {
        let request = like_strongswan(0x3000_0000 + cpu, Some(cpu));
        let answer = peer.request(&mut world, ExchangeType::CreateChildSa, request).unwrap();
        assert!(answer.iter().any(|payload| matches!(payload, Payload::Sa(_))), "{answer:?}");
        identifiers.insert(resource_info(&answer).expect("the notify"));
    }
    assert_eq!(identifiers.len(), 3, "each has an identifier of its own");
    assert_eq!(world.hosts[0].installed.len(), 4);
    assert_eq!(bound(&world, 0), [0, 1], "the third waits for a sign");
    let request = like_strongswan(0x3000_0009, Some(9));
    let answer = peer.request(&mut world, ExchangeType::CreateChildSa, request);
    assert_eq!(only_notify(answer), NotifyType::TsMaxQueue);
    assert_eq!(bound(&world, 0), [0, 0, 1]);
    // A deleted one makes room.
    let delete = vec![Payload::Delete(Delete::Esp(vec![Spi(0x3000_0000)]))];
    peer.request(&mut world, ExchangeType::Informational, delete).unwrap();
    world.run_secs(10);
    let request = like_strongswan(0x3000_000a, Some(0));
    let answer = peer.request(&mut world, ExchangeType::CreateChildSa, request).unwrap();
    assert!(resource_info(&answer).is_some_and(|identifier| !identifiers.contains(&identifier)));
}

/// The bound on all Child SAs of the IKE SA must not look like a refusal of others.
#[test]
fn no_room_is_no_refusal_of_others() {
    let (mut world, mut peer) = with_peer(EndpointConfig { child_limit: 2, ..workers(2) }, |_, _| {});
    let answer = peer.request(&mut world, ExchangeType::CreateChildSa, like_strongswan(0x3000_0000, Some(0)));
    assert!(resource_info(&answer.unwrap()).is_some());
    let answer = peer.request(&mut world, ExchangeType::CreateChildSa, like_strongswan(0x3000_0001, None));
    assert_eq!(only_notify(answer), NotifyType::TsMaxQueue);
    let mut other = like_strongswan(0x3000_0002, None);
    other.pop();
    let answer = peer.request(&mut world, ExchangeType::CreateChildSa, other);
    assert_eq!(only_notify(answer), NotifyType::NoAdditionalSas);
}

/// All of a group have the same algorithms (RFC 9611 §3).
#[test]
fn one_with_other_algorithms_is_refused() {
    let (mut world, mut peer) =
        with_peer(EndpointConfig { resource_limit: 1, ..workers(2) }, |_, connection| {
            connection.children[0].proposals.push(esp_proposal(EspAlgorithm::Aes256Gcm16));
        });
    let mut request = like_strongswan(0x3000_0000, Some(0));
    let esp = esp_proposal(EspAlgorithm::Aes256Gcm16);
    request[0] = Payload::Sa(offer::esp(&[esp], Spi(0x3000_0000), offer::ChildExchange::CreateChildSa));
    let answer = peer.request(&mut world, ExchangeType::CreateChildSa, request);
    assert_eq!(only_notify(answer), NotifyType::NoProposalChosen);
    assert_eq!(world.hosts[0].installed.len(), 1);
    assert_eq!(world.hosts[0].in_use.lock().unwrap().len(), 1);
    // It does not count as one of those that a peer may have.
    let request = like_strongswan(0x3000_0001, Some(0));
    let answer = peer.request(&mut world, ExchangeType::CreateChildSa, request).unwrap();
    assert!(resource_info(&answer).is_some(), "{answer:?}");
}

/// A peer without time for one is asked again. One that leaves the notify out has made a Child SA
/// for all, which we have already: it is deleted.
#[test]
fn a_busy_peer_is_asked_again_and_one_without_the_notify_has_made_another() {
    let mut world = hosts(1, Weather::FAIR, [workers(2), workers(2)], |_, _| {});
    world.hosts.remove(1);
    let mut sun = Responder::answer_init(&mut world);
    let mut payloads = sun.auth_payloads();
    payloads.push(status(NotifyType::SaResourceInfo));
    let said = sun.answer(&mut world, ExchangeType::IkeAuth, 1, payloads);
    assert!(resource_info(&said[0].1).is_some_and(|identifier| !identifier.is_empty()), "{said:?}");
    let busy = vec![status(NotifyType::TemporaryFailure)];
    assert!(sun.answer(&mut world, ExchangeType::CreateChildSa, 2, busy).is_empty());
    let sent = world.hosts[0].sent.len();
    world.run_until(|world| world.hosts[0].sent.len() > sent);
    let (header, asked) = sun.asked(&world);
    assert_eq!((header.exchange, header.message_id), (ExchangeType::CreateChildSa, MessageId(3)));
    let offered = asked.iter().find_map(|payload| match payload {
        Payload::Sa(offered) => Some(offered),
        _ => None,
    });
    let esp = [esp_proposal(EspAlgorithm::Aes128Gcm16)];
    let choice = select::esp(offered.unwrap(), &esp, offer::ChildExchange::CreateChildSa).unwrap();
    let mut payloads = vec![Payload::Sa(choice.answer(Spi(0x3000_0000)))];
    payloads.push(Payload::Nonce(Nonce::new(vec![7; 32]).unwrap()));
    payloads.extend(
        asked.iter().filter(|p| matches!(p, Payload::TsInitiator(_) | Payload::TsResponder(_))).cloned(),
    );
    let said = sun.answer(&mut world, ExchangeType::CreateChildSa, 3, payloads);
    assert_eq!(said[0].1, [Payload::Delete(Delete::Esp(vec![spi_of(offered.unwrap())]))]);
    assert!(world.hosts[0].logged("the peer's answer lacks SA_RESOURCE_INFO"), "{:#?}", world.hosts[0].log());
    assert_eq!((world.hosts[0].installed.len(), world.hosts[0].in_use.lock().unwrap().len()), (1, 1));
    assert!(world.hosts[0].results().iter().all(Result::is_ok));
}

/// The SPI of an offer of one proposal.
fn spi_of(offered: &SaPayload) -> Spi {
    match offered.proposals[0].spi {
        SaSpi::Child(spi) => spi,
        _ => panic!("{offered:?}"),
    }
}
