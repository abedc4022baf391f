//! IKE SAs that come up without a child (RFC 6023), in both roles.

use crate::scenarios::answers::sun;
use crate::scenarios::common::peer::{Peer, status};
use crate::scenarios::common::wire::sent;
use crate::scenarios::common::{Weather, World};
use testudo_ike::config::{Childless, Connection, KeyExchange};
use testudo_ike::endpoint::{IkeSaState, InitiateError};
use testudo_ike::message::{ExchangeType, NotifyType, Payload};
use testudo_ike::output::{Event, IkeSaId};

/// The setting of `childless` on each host.
fn pair(seed: u64, childless: [Childless; 2]) -> World {
    World::pair_with(seed, Weather::FAIR, |index, connection| connection.childless = childless[index])
}

fn initiate_alone(world: &mut World) -> IkeSaId {
    let now = world.now;
    let id = world.hosts[0].endpoint.initiate_alone(now, "site").unwrap();
    world.settle(0);
    id
}

/// One IKE SA without a child, and nothing else.
fn assert_alone(world: &World) {
    for host in &world.hosts {
        let sas = host.sas();
        assert_eq!(sas.len(), 1, "{:?}", host.log());
        assert_eq!((sas[0].state, sas[0].children.len()), (IkeSaState::Established, 0));
        assert!(host.installed.is_empty() && host.in_use.lock().unwrap().is_empty());
    }
}

fn exchanges(world: &World, exchange: ExchangeType) -> usize {
    sent(world, 0, exchange, false).len()
}

#[test]
fn an_ike_sa_alone_stays_and_takes_children_later() {
    for theirs in [Childless::Allow, Childless::Prefer, Childless::Force] {
        let mut world = pair(1, [Childless::Allow, theirs]);
        let id = initiate_alone(&mut world);
        world.run_secs(1);
        assert_alone(&world);
        assert!(world.hosts[0].events.contains(&Event::IkeUp(id)));
        // Much longer than one stays that failed to have a child.
        world.run_secs(600);
        assert_alone(&world);
        let now = world.now;
        assert_eq!(world.hosts[0].endpoint.initiate_alone(now, "site"), Ok(id), "it is there already");
        assert_eq!(world.initiate(0), id, "the child comes on it");
        world.run_secs(1);
        world.assert_tunnel();
        let made = [ExchangeType::IkeSaInit, ExchangeType::IkeAuth, ExchangeType::CreateChildSa];
        assert_eq!(made.map(|exchange| exchanges(&world, exchange)), [1, 1, 1]);
    }
}

#[test]
fn the_first_child_comes_by_an_exchange_of_its_own_where_that_is_preferred() {
    for ours in [Childless::Prefer, Childless::Force] {
        for additional in [false, true] {
            let mut world = World::pair_with(2, Weather::FAIR, |index, connection| {
                connection.childless = if index == 0 { ours } else { Childless::Allow };
                if additional {
                    connection.proposals[0].additional[0].push(Some(KeyExchange::MlKem768));
                }
            });
            world.initiate(0);
            world.run_secs(5);
            world.assert_tunnel();
            assert!(matches!(world.hosts[0].results()[..], [Ok(_)]));
            assert_eq!(exchanges(&world, ExchangeType::CreateChildSa), 1, "{ours:?}");
        }
    }
}

#[test]
fn without_the_peers_word_there_is_a_child_or_nothing() {
    let mut world = pair(3, [Childless::Prefer, Childless::Never]);
    world.establish();
    assert_eq!(exchanges(&world, ExchangeType::CreateChildSa), 0);

    let mut world = pair(4, [Childless::Force, Childless::Never]);
    world.initiate(0);
    world.run_secs(60);
    assert!(matches!(world.hosts[0].results()[..], [Err(_)]));
    assert!(world.hosts[0].warned("childless = force, but the peer takes no IKE_SA without a child"));
    world.assert_nothing_left();

    let mut world = pair(5, [Childless::Allow, Childless::Never]);
    let id = initiate_alone(&mut world);
    world.run_secs(60);
    let is_down = |event: &&Event| matches!(event, Event::IkeDown(down, _) if *down == id);
    assert!(world.hosts[0].events.iter().any(|event| is_down(&event)));
    assert!(world.hosts[0].warned("an IKE_SA alone is wanted, but the peer takes none without a child"));
    assert_eq!(exchanges(&world, ExchangeType::IkeAuth), 0, "the peer has said so in IKE_SA_INIT");
    world.assert_nothing_left();
}

/// The initiator asks for a child at once, and the responder wants none.
#[test]
fn a_responder_may_refuse_a_child_at_once() {
    let mut world = pair(6, [Childless::Allow, Childless::Force]);
    world.initiate(0);
    world.run_secs(1);
    assert!(matches!(world.hosts[0].results()[..], [Err(_)]));
    assert!(world.hosts[1].logged("the peer asks for one at once, and childless = force"));
    assert!(world.hosts.iter().all(|host| host.installed.is_empty()));
}

/// Its keys change, the peer is reauthenticated, and it is still without a child.
#[test]
fn an_ike_sa_alone_is_renewed_alone() {
    for reauth in [false, true] {
        let mut world = pair(7, [Childless::Allow; 2]);
        initiate_alone(&mut world);
        world.run_secs(60);
        let (now, id) = (world.now, world.hosts[0].sas()[0].id);
        let renewed = match reauth {
            true => world.hosts[0].endpoint.reauthenticate_ike(now, id),
            false => world.hosts[0].endpoint.rekey_ike(now, id),
        };
        assert!(renewed);
        world.settle(0);
        world.run_secs(600);
        assert_alone(&world);
        assert_ne!(world.hosts[0].sas()[0].id, id, "it is another one");
    }
}

#[test]
fn another_node_goes_on_whatever_has_happened() {
    let begin = |seed| {
        let mut world = pair(seed, [Childless::Prefer, Childless::Allow]);
        world.initiate(0);
        world
    };
    World::taken_over_at_each(8, begin, |world| {
        // The initiation is lost with its node before it is answered, or continues.
        let up = world.hosts.iter().filter(|host| !host.installed.is_empty()).count();
        assert!(up == 0 || up == 2, "{:?}", world.hosts[0].log());
    });
}

#[test]
fn a_connection_without_peers_has_no_ike_sa() {
    let mut world = pair(8, [Childless::Allow; 2]);
    let now = world.now;
    let unknown = world.hosts[0].endpoint.initiate_alone(now, "nowhere");
    assert_eq!(unknown, Err(InitiateError::UnknownConnection("nowhere".into())));
    let mut shunts: Connection = world.hosts[0].endpoint.connections().next().unwrap().clone();
    shunts.name = "shunts".into();
    shunts.children[0].mode = testudo_ike::config::ChildMode::Pass;
    world.hosts[0].load(now, shunts);
    let refused = world.hosts[0].endpoint.initiate_alone(now, "shunts");
    assert_eq!(refused, Err(InitiateError::NoIkeSa("shunts".into())));
}

/// A request that asks for a child in part is malformed, and none without a child.
#[test]
fn a_child_is_asked_for_as_a_whole_or_not_at_all() {
    let parts: [fn(&Payload) -> bool; 3] = [
        |payload| matches!(payload, Payload::Sa(_)),
        |payload| matches!(payload, Payload::TsInitiator(_)),
        |payload| matches!(payload, Payload::TsResponder(_)),
    ];
    for left_out in 1..8_usize {
        let mut world = sun();
        let mut peer = Peer::init(&mut world, 9, vec![]);
        let mut payloads = peer.auth_payloads();
        for (_, is_part) in parts.iter().enumerate().filter(|(bit, _)| left_out >> bit & 1 == 1) {
            payloads.retain(|payload| !is_part(payload));
        }
        let answer = peer.request(&mut world, ExchangeType::IkeAuth, payloads).unwrap();
        let malformed = answer.contains(&status(NotifyType::InvalidSyntax));
        assert_eq!(malformed, left_out != 7, "{left_out:03b}: {answer:?}");
        assert_eq!(world.hosts[0].sas()[0].state, IkeSaState::Established);
        assert!(world.hosts[0].installed.is_empty());
    }
}
