//! A changed connection is loaded: its Child SAs are replaced, no packet is lost, and what did not
//! change stays.

use crate::scenarios::common::build::{child, esp_proposal, ts};
use crate::scenarios::common::tunnels::{assert_lossless, assert_one_tunnel, child_rekeys, run_lossless};
use crate::scenarios::common::wire::sent;
use crate::scenarios::common::{Weather, World};
use std::time::Duration;
use testudo_ike::config::{
    Child, ChildLifetime, ChildMode, Connection, KeyExchange, Lifetime, StartAction, TsSpec,
};
use testudo_ike::endpoint::{ChildSaState, EndpointConfig, IkeSaState, RetransmitPolicy, Target};
use testudo_ike::message::ExchangeType;
use testudo_ike::output::{ChildSaId, Event, Reason};
use testudo_ipsec::sa::{ChildSaParams, EspAlgorithm};

const NETS: [&str; 2] = ["10.50.0.0-10.50.0.255", "10.60.0.0-10.60.0.255"];

/// A tunnel with two children, `net` and `more`, made by host 0.
pub(crate) fn two_children(seed: u64, weather: Weather, edit: impl Fn(usize, &mut Connection)) -> World {
    // Lost messages are retransmitted as long as necessary.
    let defaults = EndpointConfig::default();
    let retransmit = RetransmitPolicy { tries: 30, ..defaults.retransmit };
    two_children_of(EndpointConfig { retransmit, ..defaults }, seed, weather, edit)
}

/// The same, with any settings.
pub(crate) fn two_children_of(
    config: EndpointConfig,
    seed: u64,
    weather: Weather,
    edit: impl Fn(usize, &mut Connection),
) -> World {
    let mut world = World::pair_of(["192.0.2.1", "192.0.2.2"], seed, weather, config, |index, connection| {
        connection.children.push(child("more", NETS[index], NETS[1 - index]));
        edit(index, connection);
    });
    world.initiate(0);
    world.run_until(|world| world.hosts.iter().all(|host| host.installed.len() == 1));
    let now = world.now;
    world.hosts[0].endpoint.initiate(now, None, "more").unwrap();
    world.settle(0);
    world.run_until(|world| world.hosts.iter().all(|host| host.installed.len() == 2));
    world.run_secs(60);
    world
}

/// The host loads its connection as `edit` makes it.
pub(crate) fn reload(world: &mut World, host: usize, edit: impl Fn(usize, &mut Connection)) {
    let mut connection = world.hosts[host].endpoint.connections().next().unwrap().clone();
    edit(host, &mut connection);
    let now = world.now;
    world.hosts[host].load(now, connection);
    world.settle(host);
}

/// The Child SA of that name that a host uses.
pub(crate) fn sa_of(world: &World, host: usize, name: &str) -> (ChildSaId, ChildSaParams) {
    let sas = world.hosts[host].sas();
    let children: Vec<_> = sas
        .iter()
        .flat_map(|sa| &sa.children)
        .filter(|child| child.name == name && child.state == ChildSaState::Installed)
        .collect();
    assert_eq!(children.len(), 1, "{name}: {:#?}", world.hosts[host].log());
    (children[0].id, world.hosts[host].installed[&children[0].id].clone())
}

/// The peer has the new Child SA with its answer, whatever an operator has loaded meanwhile.
#[test]
fn an_answer_is_judged_by_what_was_offered() {
    let other = |_: usize, connection: &mut Connection| {
        connection.children[0].proposals = vec![esp_proposal(EspAlgorithm::Aes256Gcm16)];
    };
    for first in [true, false] {
        let mut world = World::pair_with(30, Weather::FAIR, |index, connection| {
            if index == 1 {
                connection.children[0].proposals.push(esp_proposal(EspAlgorithm::Aes256Gcm16));
            }
        });
        world.initiate(0);
        if first {
            world.run_until(|world| !sent(world, 0, ExchangeType::IkeAuth, false).is_empty());
        } else {
            world.run_secs(1);
            let (now, id) = (world.now, world.hosts[0].sas()[0].children[0].id);
            assert!(world.hosts[0].endpoint.rekey_child(now, id));
            world.settle(0);
        }
        reload(&mut world, 0, other);
        world.run_until(|world| world.hosts[0].installed.len() == if first { 1 } else { 2 });
        run_lossless(&mut world, Duration::from_secs(60));
        assert_one_tunnel(&world);
        let host = &world.hosts[0];
        assert!(!host.logged("no CHILD_SA") && !host.logged("by the new configuration"), "{:#?}", host.log());
        assert_eq!(child_rekeys(host), if first { 1 } else { 2 }, "{:#?}", host.log());
        assert_eq!(host.results().iter().filter(|result| result.is_err()).count(), 0);
        assert_eq!(sa_of(&world, 0, "net").1.algorithm, EspAlgorithm::Aes256Gcm16, "and then replaced");
    }
}

/// An answer does not set up a child that the operator has removed meanwhile.
#[test]
fn a_child_that_is_to_be_dropped_by_now_is_not_made() {
    let edit = |_: usize, connection: &mut Connection| {
        connection.children.push(child("more", NETS[0], NETS[1]));
    };
    for first in [true, false] {
        let mut world = World::pair_with(31, Weather::FAIR, edit);
        world.initiate(0);
        if first {
            world.run_until(|world| !sent(world, 0, ExchangeType::IkeAuth, false).is_empty());
        } else {
            world.run_secs(1);
            let now = world.now;
            world.hosts[0].endpoint.initiate(now, None, "more").unwrap();
            world.settle(0);
        }
        let dropped = if first { "net" } else { "more" };
        reload(&mut world, 0, |_, connection| {
            for child in connection.children.iter_mut().filter(|child| child.name == dropped) {
                (child.mode, child.proposals) = (ChildMode::Drop, Vec::new());
            }
        });
        world.run_secs(60);
        for host in &world.hosts {
            let children = host.sas().into_iter().flat_map(|sa| sa.children);
            assert!(children.into_iter().all(|child| child.name != dropped), "{:#?}", host.log());
            assert_eq!(host.installed.len(), if first { 0 } else { 1 }, "{:#?}", host.log());
        }
    }
}

/// One IKE SA on each side, with the two children, and nothing of what was before.
pub(crate) fn assert_settled(world: &World) {
    assert_lossless(world);
    for host in &world.hosts {
        assert_eq!(host.sas().len(), 1, "{:#?}", host.log());
        assert_eq!(host.sas()[0].state, IkeSaState::Established);
        assert_eq!((host.installed.len(), host.sending.len()), (2, 2), "{:#?}", host.log());
        assert_eq!(host.in_use.lock().unwrap().len(), 2, "no SPI is forgotten");
    }
}

/// Another network behind host 0, for child `net`.
fn wider(index: usize, connection: &mut Connection) {
    let more = TsSpec::Fixed(ts("10.77.0.0-10.77.0.255"));
    let net = &mut connection.children[0];
    if index == 0 { &mut net.local_ts } else { &mut net.remote_ts }.push(more);
}

pub(crate) fn other_cipher(_: usize, connection: &mut Connection) {
    connection.children[0].proposals = vec![esp_proposal(EspAlgorithm::Aes256Gcm16)];
}

pub(crate) fn both_ciphers(_: usize, connection: &mut Connection) {
    connection.children[0].proposals =
        vec![esp_proposal(EspAlgorithm::Aes128Gcm16), esp_proposal(EspAlgorithm::Aes256Gcm16)];
}

#[test]
fn the_same_again_is_nothing() {
    let mut world = two_children(1, Weather::FAIR, |index, connection| {
        if index == 0 {
            connection.children[0].start_action = StartAction::Start;
        }
    });
    let sent = world.hosts[0].sent.len();
    let events = world.hosts[0].events.len();
    reload(&mut world, 0, |_, _| {});
    world.run_secs(60);
    assert_eq!((world.hosts[0].sent.len(), world.hosts[0].events.len()), (sent, events));
    assert_settled(&world);
}

#[test]
fn other_selectors_replace_one_child_and_keep_the_other() {
    for first in 0..2 {
        let mut world = two_children(2, Weather::FAIR, |_, _| {});
        let kept = [0, 1].map(|host| sa_of(&world, host, "more").0);
        let before = sa_of(&world, 0, "net");
        // The peer has the new configuration first, as it must be to agree.
        reload(&mut world, 1 - first, wider);
        run_lossless(&mut world, Duration::from_secs(20));
        reload(&mut world, first, wider);
        run_lossless(&mut world, Duration::from_secs(60));
        assert_settled(&world);
        assert_eq!([0, 1].map(|host| sa_of(&world, host, "more").0), kept);
        let (id, after) = sa_of(&world, 0, "net");
        assert_ne!(before.0, id);
        assert_eq!(after.local_ts.len(), 2);
        assert!(world.hosts[first].logged("connection site changed: children net replaced, more kept"));
        let told = |event: &Event| matches!(event, Event::ChildDown(_, _, why) if *why != Reason::Rekeyed);
        let told: Vec<&Event> = world.hosts[first].events.iter().filter(|event| told(event)).collect();
        assert!(told.is_empty(), "{first} {told:?} {:#?}", world.hosts[first].log());
    }
}

/// The side that loads first is refused or narrowed by a peer with the old configuration; at the
/// end both have the new one.
#[test]
fn the_second_to_load_brings_the_change() {
    for first in 0..2 {
        let mut world = two_children(3, Weather::FAIR, |_, _| {});
        reload(&mut world, first, wider);
        run_lossless(&mut world, Duration::from_secs(200));
        assert_settled(&world);
        assert_eq!(sa_of(&world, 0, "net").1.local_ts.len(), 1, "narrowed");
        reload(&mut world, 1 - first, wider);
        run_lossless(&mut world, Duration::from_secs(60));
        assert_settled(&world);
        assert_eq!(sa_of(&world, 0, "net").1.local_ts.len(), 2);
    }
}

#[test]
fn other_algorithms_replace_the_child() {
    let mut world = two_children(4, Weather::FAIR, |index, connection| {
        if index == 1 {
            both_ciphers(index, connection);
        }
    });
    reload(&mut world, 0, other_cipher);
    run_lossless(&mut world, Duration::from_secs(60));
    assert_settled(&world);
    assert_eq!(sa_of(&world, 0, "net").1.algorithm, EspAlgorithm::Aes256Gcm16);
    assert_eq!(sa_of(&world, 0, "more").1.algorithm, EspAlgorithm::Aes128Gcm16);
}

#[test]
fn a_replacement_that_the_peer_refuses_keeps_the_old_sa() {
    for side in 0..2 {
        let mut world = two_children(5, Weather::FAIR, |_, connection| {
            connection.children[0].lifetime =
                ChildLifetime { time: Lifetime::new(0, Some(2000), None), ..ChildLifetime::default() };
        });
        let old = sa_of(&world, side, "net").0;
        reload(&mut world, side, other_cipher);
        run_lossless(&mut world, Duration::from_secs(1000));
        assert_settled(&world);
        assert_eq!(sa_of(&world, side, "net").0, old);
        let asked =
            world.hosts[side].log().iter().filter(|line| line.contains("replacing CHILD_SA net")).count();
        assert_eq!(asked, 3, "not for ever: {:#?}", world.hosts[side].log());
        assert!(
            world.hosts[side].logged("the peer answered NO_PROPOSAL_CHOSEN; it stays until its time is over")
        );
        world.run_secs(1000);
        assert!(world.hosts.iter().all(|host| host.installed.len() == 1), "its end has come");
    }
}

/// When the peer has followed, the next renewal brings it.
#[test]
fn a_renewal_asks_again() {
    let mut world = two_children(6, Weather::FAIR, |index, connection| {
        if index == 0 {
            connection.children[0].lifetime.time = Lifetime::new(2000, None, Some(0));
        }
    });
    reload(&mut world, 0, other_cipher);
    run_lossless(&mut world, Duration::from_secs(300));
    // Strongswan, say: it waits for us.
    let mut theirs = world.hosts[1].endpoint.connections().next().unwrap().clone();
    other_cipher(1, &mut theirs);
    world.hosts[1].endpoint.unload_connection("site");
    world.hosts[1].endpoint.load_connection(world.now, theirs).unwrap();
    run_lossless(&mut world, Duration::from_secs(2000));
    assert_settled(&world);
    assert_eq!(sa_of(&world, 0, "net").1.algorithm, EspAlgorithm::Aes256Gcm16);
}

#[test]
fn both_load_at_the_same_moment() {
    for seed in 0..24 {
        let weather = if seed % 2 == 0 { Weather::FAIR } else { Weather::FOUL };
        let mut world = two_children(seed, weather, |_, _| {});
        reload(&mut world, 0, wider);
        reload(&mut world, 1, wider);
        run_lossless(&mut world, Duration::from_secs(600));
        assert_settled(&world);
        assert_eq!(sa_of(&world, 0, "net").1.local_ts.len(), 2, "{:#?}", world.hosts[0].log());
    }
}

/// The change comes at every moment of a renewal by either side.
#[test]
fn during_a_renewal() {
    for renewing in 0..2 {
        for loading in 0..2 {
            for steps in 0..8 {
                for weather in [Weather::FAIR, Weather::FOUL] {
                    let mut world = two_children(7, weather, |_, _| {});
                    reload(&mut world, 1 - loading, wider);
                    run_lossless(&mut world, Duration::from_secs(300));
                    let (now, (id, _)) = (world.now, sa_of(&world, renewing, "net"));
                    assert!(world.hosts[renewing].endpoint.rekey_child(now, id));
                    world.settle(renewing);
                    let end = world.now.plus(Duration::from_secs(60));
                    (0..steps).for_each(|_| {
                        world.step(end);
                        assert_lossless(&world);
                    });
                    reload(&mut world, loading, wider);
                    run_lossless(&mut world, Duration::from_secs(600));
                    assert_settled(&world);
                    let found = sa_of(&world, 0, "net").1.local_ts.len();
                    assert_eq!(found, 2, "{renewing} {loading} {steps} {:#?}", world.hosts[loading].log());
                }
            }
        }
    }
}

#[test]
fn twice_within_a_moment() {
    for steps in 0..6 {
        let mut world = two_children(8, Weather::FAIR, |index, connection| {
            if index == 1 {
                both_ciphers(index, connection);
                wider(index, connection);
            }
        });
        reload(&mut world, 0, other_cipher);
        let end = world.now.plus(Duration::from_secs(1));
        (0..steps).for_each(|_| {
            world.step(end);
            assert_lossless(&world);
        });
        reload(&mut world, 0, |index, connection| {
            both_ciphers(index, connection);
            wider(index, connection);
        });
        run_lossless(&mut world, Duration::from_secs(100));
        assert_settled(&world);
        assert_eq!(sa_of(&world, 0, "net").1.local_ts.len(), 2, "{steps}");
    }
}

#[test]
fn a_child_that_is_removed_goes_and_a_new_one_starts() {
    for side in 0..2 {
        let mut world = two_children(9, Weather::FAIR, |_, _| {});
        let kept = sa_of(&world, side, "more").0;
        let third = |index: usize, connection: &mut Connection| {
            let nets = ["10.51.0.0-10.51.0.255", "10.61.0.0-10.61.0.255"];
            connection.children.push(child("third", nets[index], nets[1 - index]));
        };
        reload(&mut world, 1 - side, third);
        reload(&mut world, side, |index, connection| {
            third(index, connection);
            connection.children.remove(0);
            connection.children[1].start_action = StartAction::Start;
        });
        world.run_secs(10);
        assert_settled(&world);
        assert_eq!(sa_of(&world, side, "more").0, kept);
        assert!(sa_of(&world, side, "third").0 > kept);
    }
}

#[test]
fn other_times_count_from_now_on_and_replace_nothing() {
    let mut world = two_children(10, Weather::FAIR, |_, _| {});
    let (ids, now) = (["net", "more"].map(|name| sa_of(&world, 0, name).0), world.now);
    reload(&mut world, 0, |_, connection| {
        connection.dpd_delay = Duration::from_secs(30);
        connection.lifetime.rekey = 500;
        connection.lifetime.over = 100;
        // The SA is older than that already.
        connection.children[0].lifetime.time = Lifetime { rekey: 50, life: 100, rand: 20 };
        connection.children[1].lifetime.time = Lifetime { rekey: 1000, life: 1100, rand: 0 };
    });
    assert_eq!(ids, ["net", "more"].map(|name| sa_of(&world, 0, name).0));
    let sa = &world.hosts[0].sas()[0];
    let rekey = sa.children.iter().map(|child| child.rekey.unwrap().since(now).as_secs()).collect::<Vec<_>>();
    assert!(rekey[0] <= 20, "{rekey:?}");
    assert!((930..=940).contains(&rekey[1]), "{rekey:?}");
    assert!((430..=440).contains(&sa.rekey.unwrap().since(now).as_secs()));
    let sent = world.hosts[0].sent.len();
    run_lossless(&mut world, Duration::from_secs(35));
    assert!(world.hosts[0].sent.len() > sent, "liveness is checked");
    assert!(ids[0] < sa_of(&world, 0, "net").0 && ids[1] == sa_of(&world, 0, "more").0);
}

/// The configuration of before an unload is not forgotten while its SAs are there.
#[test]
fn changes_made_while_unloaded_are_applied_too() {
    let mut world = two_children(11, Weather::FAIR, |_, _| {});
    reload(&mut world, 1, wider);
    let mut connection = world.hosts[0].endpoint.connections().next().unwrap().clone();
    wider(0, &mut connection);
    assert!(world.hosts[0].endpoint.unload_connection("site"));
    run_lossless(&mut world, Duration::from_secs(100));
    let now = world.now;
    world.hosts[0].load(now, connection);
    world.settle(0);
    run_lossless(&mut world, Duration::from_secs(60));
    assert_settled(&world);
    assert_eq!(sa_of(&world, 0, "net").1.local_ts.len(), 2);
}

/// A key exchange that the peer wants otherwise, and a peer that is busy.
#[test]
fn a_replacement_handles_invalid_ke_and_temporary_failure() {
    let mut world = two_children(12, Weather::FAIR, |index, connection| {
        if index == 1 {
            connection.children[0].proposals[0].ke = vec![KeyExchange::Ecp384];
        }
    });
    reload(&mut world, 0, |_, connection| {
        connection.children[0].proposals[0].ke = vec![KeyExchange::X25519, KeyExchange::Ecp384];
    });
    run_lossless(&mut world, Duration::from_secs(60));
    assert_settled(&world);
    assert!(world.hosts[0].logged("the responder wants key exchange by"));
}

/// It was asked for by the old configuration, and comes when the new one is loaded.
#[test]
fn during_the_first_exchanges() {
    for steps in 0..8 {
        let mut world = World::pair_with(13, Weather::FAIR, |index, connection| {
            if index == 1 {
                wider(index, connection);
                both_ciphers(index, connection);
            }
        });
        world.initiate(0);
        let end = world.now.plus(Duration::from_secs(1));
        (0..steps).for_each(|_| _ = world.step(end));
        reload(&mut world, 0, wider);
        world.run_secs(60);
        world.assert_tunnel();
        assert_eq!(sa_of(&world, 0, "net").1.local_ts.len(), 2, "{steps} {:#?}", world.hosts[0].log());
        let created = world.hosts[0].endpoint.stats().exchanges.total();
        let created = created.get(testudo_ike::endpoint::ExchangeCounter::CreateChildOutReq);
        assert!(created <= 1, "{:?}", ExchangeType::CreateChildSa);
    }
}

/// An unloaded connection is remembered only as long as its SAs.
#[test]
fn an_unloaded_connection_is_forgotten_with_its_last_sa() {
    let mut world = two_children(15, Weather::FAIR, |_, _| {});
    let mut connection = world.hosts[0].endpoint.connections().next().unwrap().clone();
    wider(0, &mut connection);
    assert!(world.hosts[0].endpoint.unload_connection("site"));
    let now = world.now;
    world.hosts[0].endpoint.terminate(now, &Target::All, false).unwrap();
    world.settle(0);
    world.run_secs(60);
    let now = world.now;
    world.hosts[0].load(now, connection);
    world.settle(0);
    assert!(!world.hosts[0].logged("connection site changed"), "{:#?}", world.hosts[0].log());
}

/// A change that does not concern the peer only causes a rekeying, which cannot be refused, and in
/// which the peer waits before it sends through the new SA.
#[test]
fn local_changes_cause_a_rekeying() {
    let edits: [fn(&mut Child); 4] = [
        |child| child.replay_window = 256,
        |child| child.copy.df = !child.copy.df,
        |child| child.lifetime.bytes = Lifetime::new(1_000_000, None, None),
        |child| child.lifetime.packets = Lifetime::new(1_000_000, None, None),
    ];
    for (side, edit) in [0, 1].into_iter().flat_map(|side| edits.map(|edit| (side, edit))) {
        let mut world = two_children(14, Weather::FAIR, |_, _| {});
        let before = sa_of(&world, side, "net");
        reload(&mut world, side, |_, connection| edit(&mut connection.children[0]));
        run_lossless(&mut world, Duration::from_secs(60));
        assert_settled(&world);
        let (id, after) = sa_of(&world, side, "net");
        assert_eq!(child_rekeys(&world.hosts[side]), 1);
        assert!(
            id > before.0 && (&after.local_ts, after.algorithm) == (&before.1.local_ts, before.1.algorithm)
        );
        assert!(world.hosts[side].logged("connection site changed: children net rekeyed, more kept"));
        let child = world.hosts[side].endpoint.connections().next().unwrap().children[0].clone();
        assert_eq!((after.replay_window, after.copy), (child.replay_window, child.copy));
        let limit = world.hosts[side].endpoint.next_limit(id, 0, 0);
        let limited = child.lifetime.bytes.rekey > 0 || child.lifetime.packets.rekey > 0;
        assert_eq!(limit != (u64::MAX, u64::MAX), limited);
    }
}
