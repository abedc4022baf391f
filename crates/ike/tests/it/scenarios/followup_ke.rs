//! Additional key exchanges of Child SAs and of renewed IKE SAs, in IKE_FOLLOWUP_KE (RFC 9370
//! §2.2.4): two endpoints, in all weathers.

use crate::scenarios::common::tunnels::{assert_one_tunnel, child_rekeys, ike_rekeys, run_lossless};
use crate::scenarios::common::wire::{assert_ivs_never_repeat, sent};
use crate::scenarios::common::{Weather, World};
use std::time::Duration;
use testudo_ike::config::KeyExchange::{self, Ecp256, MlKem512, MlKem768, MlKem1024, X25519};
use testudo_ike::config::{Connection, Fragmentation, StartAction};
use testudo_ike::endpoint::{ChildSaState, EndpointConfig, IkeSaState, Target};
use testudo_ike::message::{ExchangeType, Message};

pub(crate) const FOLLOWUP: ExchangeType = ExchangeType::IkeFollowupKe;

/// Message IDs of the IKE_FOLLOWUP_KE requests or responses that a host has sent, each once.
pub(crate) fn followups(world: &World, host: usize, response: bool) -> Vec<u32> {
    let messages = sent(world, host, FOLLOWUP, response).into_iter();
    let mut ids: Vec<_> = messages.map(|bytes| Message::parse(bytes).unwrap().header.message_id.0).collect();
    ids.dedup();
    ids
}

/// Gives all SAs of a connection X25519 and these additional key exchanges.
pub(crate) fn with(connection: &mut Connection, methods: &[KeyExchange]) {
    let ike = &mut connection.proposals[0].additional;
    for (place, method) in ike.iter_mut().zip(methods) {
        *place = vec![Some(*method)];
    }
    let additional = ike.clone();
    let esp = &mut connection.children[0].proposals[0];
    (esp.ke, esp.additional) = (vec![X25519], additional);
}

/// A tunnel whose SAs are rekeyed with these.
pub(crate) fn established(seed: u64, methods: &[KeyExchange]) -> World {
    World::established(seed, |_, connection| with(connection, methods))
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum What {
    Child,
    Ike,
}

pub(crate) const BOTH: [What; 2] = [What::Child, What::Ike];

pub(crate) fn renew(world: &mut World, host: usize, what: What) -> bool {
    let now = world.now;
    let Some(sa) = world.hosts[host].sas().pop() else { return false };
    let begun = match (what, sa.children.last()) {
        (What::Ike, _) => world.hosts[host].endpoint.rekey_ike(now, sa.id),
        (What::Child, Some(child)) => world.hosts[host].endpoint.rekey_child(now, child.id),
        (What::Child, None) => false,
    };
    world.settle(host);
    begun
}

/// How often SAs of that kind were renewed.
pub(crate) fn renewals(world: &World, host: usize, what: What) -> usize {
    let host = &world.hosts[host];
    if what == What::Ike { ike_rekeys(host) } else { child_rekeys(host) }
}

/// The methods that made the one SA of that kind.
fn methods(world: &World, host: usize, what: What) -> Vec<&'static str> {
    let sa = world.hosts[host].sas().pop().unwrap();
    let child = &sa.children[0];
    let (first, more) =
        if what == What::Ike { (sa.ke, sa.additional_ke) } else { (child.ke, child.additional_ke) };
    first.into_iter().chain(more.into_iter().flatten()).map(|method| method.name).collect()
}

#[test]
fn each_method_makes_new_sas_in_a_series_of_exchanges() {
    for (method, name) in
        [(MlKem512, "ML_KEM_512"), (MlKem768, "ML_KEM_768"), (MlKem1024, "ML_KEM_1024"), (Ecp256, "ECP_256")]
    {
        for host in [0, 1] {
            let mut world = established(1, &[method]);
            assert_eq!(methods(&world, 0, What::Child), [""; 0], "IKE_AUTH has no key exchange");
            for what in BOTH {
                assert!(renew(&mut world, host, what));
                run_lossless(&mut world, Duration::from_secs(10));
                assert_one_tunnel(&world);
                for side in [0, 1] {
                    assert_eq!(renewals(&world, side, what), 1, "{:#?}", world.hosts[side].log());
                    assert_eq!(methods(&world, side, what), ["CURVE_25519", name]);
                }
            }
            assert!(world.hosts[host].logged(&format!("additional key exchange 1 by {name}")));
            assert_ivs_never_repeat(&world);
        }
    }
}

#[test]
fn seven_exchanges_one_after_the_other() {
    let all = [MlKem512, MlKem768, MlKem1024, Ecp256, KeyExchange::Modp2048, KeyExchange::Ecp384]
        .into_iter()
        .chain([KeyExchange::Ecp521])
        .collect::<Vec<_>>();
    for what in BOTH {
        let mut world = established(2, &all);
        renew(&mut world, 0, what);
        run_lossless(&mut world, Duration::from_secs(10));
        assert_one_tunnel(&world);
        let [ours, theirs] = [0, 1].map(|host| methods(&world, host, what));
        assert_eq!(ours.len(), 8);
        assert_eq!(ours, theirs);
        // Behind IKE_SA_INIT, seven IKE_INTERMEDIATE, IKE_AUTH and CREATE_CHILD_SA.
        let expected: Vec<u32> = (10..17).collect();
        assert_eq!(followups(&world, 0, false), expected);
        assert_eq!(followups(&world, 1, true), expected);
        assert_ivs_never_repeat(&world);
    }
}

/// Nothing is there before the last exchange, on neither side.
#[test]
fn the_sa_is_there_after_the_last_exchange() {
    for what in BOTH {
        let mut world = established(3, &[MlKem768, Ecp256]);
        renew(&mut world, 0, what);
        while followups(&world, 1, true).len() < 2 {
            let (ikes, children) = (world.hosts[1].sas().len(), world.hosts[1].installed.len());
            assert_eq!((ikes, children), (1, 1), "not yet");
            let sa = &world.hosts[0].sas()[0];
            if what == What::Ike {
                assert_eq!((sa.state, &sa.tasks_active[..]), (IkeSaState::Rekeying, &["IKE_REKEY"][..]));
            } else {
                assert_eq!(sa.children[0].state, ChildSaState::Rekeying);
                assert_eq!(sa.tasks_active, ["CHILD_REKEY"]);
            }
            let end = world.now.plus(Duration::from_secs(1));
            assert!(world.step(end));
        }
        let (ikes, children) = (world.hosts[1].sas().len(), world.hosts[1].installed.len());
        assert_eq!((ikes, children), if what == What::Ike { (2, 1) } else { (1, 2) });
        run_lossless(&mut world, Duration::from_secs(10));
        assert_one_tunnel(&world);
    }
}

#[test]
fn a_further_child_has_them_too() {
    let nets = ["10.50.0.0-10.50.0.255", "10.60.0.0-10.60.0.255"];
    for side in [0, 1] {
        let mut world = World::established(4, |index, connection| {
            with(connection, &[MlKem768]);
            let mut more = crate::scenarios::common::build::child("more", nets[index], nets[1 - index]);
            more.proposals = connection.children[0].proposals.clone();
            connection.children.push(more);
        });
        let now = world.now;
        let ike = world.hosts[side].endpoint.initiate(now, None, "more").unwrap();
        assert_eq!(world.hosts[side].endpoint.initiate(now, None, "more"), Ok(ike), "it is on its way");
        world.settle(side);
        world.run_secs(1);
        assert!(world.hosts[side].results().last().unwrap().is_ok());
        for host in &world.hosts {
            let children = &host.sas()[0].children;
            assert_eq!((children.len(), host.sending.len()), (2, 2));
            assert_eq!(children[1].additional_ke[0].unwrap().name, "ML_KEM_768");
        }
    }
}

#[test]
fn large_messages_are_cut() {
    for (fragmentation, datagrams) in [(Fragmentation::Yes, 2), (Fragmentation::No, 1)] {
        for what in BOTH {
            let mut world = World::established(5, |_, connection| {
                with(connection, &[MlKem1024]);
                connection.fragmentation = fragmentation;
            });
            renew(&mut world, 0, what);
            run_lossless(&mut world, Duration::from_secs(10));
            assert_one_tunnel(&world);
            for host in [0, 1] {
                let messages = sent(&world, host, FOLLOWUP, host == 1);
                assert_eq!(messages.len(), datagrams);
                assert!(datagrams == 1 || messages.iter().all(|bytes| bytes.len() <= 1280 - 32));
            }
        }
    }
}

/// A new tunnel once more by each kind of rekeying; another node can continue at any point.
#[test]
fn another_node_goes_on_between_any_two_events() {
    for what in BOTH {
        for host in [0, 1] {
            let begin = |seed| {
                let mut world = established(seed, &[MlKem768, MlKem1024]);
                renew(&mut world, host, what);
                world
            };
            World::taken_over_at_each(24, begin, |world| {
                assert_one_tunnel(world);
                assert_eq!((0..2).map(|side| renewals(world, side, what)).collect::<Vec<_>>(), [1, 1]);
            });
        }
    }
}

#[test]
fn peers_without_get_the_proposal_without() {
    for what in BOTH {
        for host in [0, 1] {
            let mut world = World::established(6, |index, connection| {
                let (ike, child) = (connection.proposals[0].clone(), &mut connection.children[0].proposals);
                child[0].ke = vec![X25519];
                let esp = child[0].clone();
                if index == 0 {
                    with(connection, &[MlKem768]);
                    connection.proposals.push(ike);
                    connection.children[0].proposals.push(esp);
                }
            });
            renew(&mut world, host, what);
            run_lossless(&mut world, Duration::from_secs(10));
            assert_one_tunnel(&world);
            assert_eq!(methods(&world, 0, what), ["CURVE_25519"]);
            assert!(sent(&world, host, FOLLOWUP, false).is_empty());
        }
    }
}

/// A side that requires them gets no SA without them, and keeps the old one.
#[test]
fn required_followup_exchanges_are_enforced() {
    for host in [0, 1] {
        let mut world = World::established(7, |index, connection| {
            let ike = connection.proposals.clone();
            with(connection, &[MlKem768]);
            connection.proposals = ike;
            if index == 1 {
                connection.children[0].proposals[0].additional = Default::default();
            }
        });
        renew(&mut world, host, What::Child);
        run_lossless(&mut world, Duration::from_secs(5));
        assert!(
            world.hosts[host].logged("the peer answered NO_PROPOSAL_CHOSEN"),
            "{:#?}",
            world.hosts[host].log()
        );
        assert!(world.hosts[1 - host].logged("KE1_ML_KEM_768"), "{:#?}", world.hosts[1 - host].log());
        assert_eq!(child_rekeys(&world.hosts[0]), 0);
        assert_one_tunnel(&world);
    }
}

/// The other method is asked for before the additional ones begin.
#[test]
fn with_another_first_method() {
    let mut world = World::established(8, |index, connection| {
        with(connection, &[MlKem768]);
        let ke = if index == 0 { vec![Ecp256, X25519] } else { vec![X25519] };
        connection.children[0].proposals[0].ke = ke;
    });
    renew(&mut world, 0, What::Child);
    run_lossless(&mut world, Duration::from_secs(10));
    assert_one_tunnel(&world);
    assert_eq!(sent(&world, 0, ExchangeType::CreateChildSa, false).len(), 2);
    assert_eq!(methods(&world, 1, What::Child), ["CURVE_25519", "ML_KEM_768"]);
}

/// The responder waits for a while; then it has no state with which the initiator could continue,
/// and the initiator begins once more.
#[test]
fn a_series_that_took_too_long_is_begun_once_more() {
    for what in BOTH {
        for answered in [0, 1] {
            let mut world = established(9, &[MlKem768, Ecp256]);
            renew(&mut world, 0, what);
            world.run_until(|world| {
                !sent(world, 1, ExchangeType::CreateChildSa, true).is_empty()
                    && followups(world, 1, true).len() == answered
            });
            // This answer arrives, and nothing after it.
            world.network.up = false;
            let held = if what == What::Child { 2 } else { 1 };
            run_lossless(&mut world, Duration::from_secs(19));
            assert_eq!(world.hosts[1].in_use.lock().unwrap().len(), held);
            run_lossless(&mut world, Duration::from_secs(2));
            assert!(world.hosts[1].logged("the peer does not go on with its key exchanges"));
            assert_eq!(world.hosts[1].in_use.lock().unwrap().len(), 1, "its SPI is free again");
            world.network.up = true;
            run_lossless(&mut world, Duration::from_secs(60));
            assert!(
                world.hosts[0].logged("the peer answered STATE_NOT_FOUND"),
                "{:#?}",
                world.hosts[0].log()
            );
            assert_eq!(renewals(&world, 0, what), 1);
            assert_one_tunnel(&world);
        }
    }
}

/// RFC 9370 §2.2.4: several in a row that the peer forgets are the end of the IKE SA.
#[test]
fn a_peer_that_always_forgets_is_left() {
    for what in BOTH {
        let config = EndpointConfig { followup_timeout: Duration::ZERO, ..EndpointConfig::default() };
        let addrs = ["192.0.2.1", "192.0.2.2"];
        let mut world = World::pair_of(addrs, 10, Weather::FAIR, config, |_, connection| {
            with(connection, &[MlKem768]);
        });
        // IKE_INTERMEDIATE is not IKE_FOLLOWUP_KE.
        world.initiate(0);
        world.run_secs(1);
        renew(&mut world, 0, what);
        world.run_until(|world| world.hosts[0].sas().is_empty());
        assert_eq!(followups(&world, 0, false).len(), 4);
        assert!(
            world.hosts[0].logged("closed: the peer answered STATE_NOT_FOUND"),
            "{:#?}",
            world.hosts[0].log()
        );
        world.run_secs(60);
        world.assert_nothing_left();
    }
}

/// A child that an operator wants comes up again: the IKE SA was broken, but the peer is alive.
#[test]
fn a_tunnel_that_is_left_so_is_started_again() {
    for (what, action) in BOTH.into_iter().flat_map(|what| [(what, true), (what, false)]) {
        let config = EndpointConfig { followup_timeout: Duration::ZERO, ..EndpointConfig::default() };
        let addrs = ["192.0.2.1", "192.0.2.2"];
        let mut world = World::pair_of(addrs, 10, Weather::FAIR, config, |_, connection| {
            with(connection, &[MlKem768]);
            if action {
                connection.children[0].dpd_action = StartAction::Start;
            }
        });
        let first = world.initiate(0);
        world.run_secs(1);
        renew(&mut world, 0, what);
        world.run_until(|world| world.hosts[0].logged("closed: the peer answered STATE_NOT_FOUND"));
        world.run_secs(60);
        let now = world.hosts[0].sas().pop().map(|sa| sa.id);
        assert_eq!(now.is_some_and(|now| now > first), action, "{:#?}", world.hosts[0].log());
        if action {
            assert_one_tunnel(&world);
        }
    }
}

#[test]
fn an_sa_terminated_during_the_series_stays_terminated() {
    for what in BOTH {
        for (host, moment) in
            [0, 1].into_iter().flat_map(|host| (0..70).step_by(10).map(move |at| (host, at)))
        {
            let mut world = established(11, &[MlKem768, Ecp256]);
            renew(&mut world, 0, what);
            world.run(Duration::from_millis(moment));
            let now = world.now;
            world.hosts[host].endpoint.terminate(now, &Target::All, false).unwrap();
            world.settle(host);
            world.run_secs(300);
            world.assert_nothing_left();
        }
    }
}

/// A delete of the child that is being renewed goes through, and nothing comes after it.
#[test]
fn a_child_that_is_deleted_is_not_renewed() {
    for (host, moment) in [0, 1].into_iter().flat_map(|host| (0..50).step_by(5).map(move |at| (host, at))) {
        let mut world = established(12, &[MlKem768, Ecp256]);
        let old = world.hosts[host].sas()[0].children[0].id;
        renew(&mut world, 0, What::Child);
        world.run(Duration::from_millis(moment));
        let now = world.now;
        world.hosts[host].endpoint.terminate(now, &Target::Child(old), false).unwrap();
        world.settle(host);
        world.run_secs(100);
        for host in &world.hosts {
            assert!(host.installed.is_empty(), "{moment} {:#?}", host.log());
            assert!(host.in_use.lock().unwrap().is_empty());
        }
    }
}

#[test]
fn a_child_that_is_unloaded_meanwhile_is_not_made() {
    for host in [0, 1] {
        let mut world = established(13, &[MlKem768]);
        renew(&mut world, 0, What::Child);
        world.run_until(|world| !sent(world, 0, FOLLOWUP, false).is_empty());
        world.hosts[host].endpoint.unload_connection("site");
        run_lossless(&mut world, Duration::from_secs(5));
        assert_eq!(child_rekeys(&world.hosts[0]), 0);
        assert_one_tunnel(&world);
    }
}
