//! Wrong messages of an initiator between two rounds of authentication (RFC 4739): before the last
//! round it is not authenticated.

use crate::scenarios::answers::sun;
use crate::scenarios::common::Weather;
use crate::scenarios::common::World;
use crate::scenarios::common::build::{fqdn, range, secret};
use crate::scenarios::common::peer::{Peer, only_notify, status};
use crate::scenarios::common::responder::Responder;
use testudo_ike::config::{Connection, LocalAuth, Pool, RemoteAuth};
use testudo_ike::endpoint::{Discard, EndpointConfig, IkeSaState};
use testudo_ike::message::{
    CfgAttribute, CfgAttributeType, CfgType, Configuration, ExchangeType, Nonce, NotifyType, Payload,
};

/// Sun, which wants moon and alice to prove themselves one after the other.
fn sun_wants_two(edit: impl Fn(&mut Connection)) -> World {
    let mut world = sun();
    let mut connection: Connection = world.hosts[0].endpoint.connections().next().unwrap().clone();
    connection.rounds.remote = vec![RemoteAuth::psk(Some(fqdn("alice")))];
    edit(&mut connection);
    let now = world.now;
    world.hosts[0].load(now, connection);
    world.hosts[0].load_secret(secret("alice", b"the key of alice", &["alice", "sun"]));
    world
}

/// The first round of a moon that has another to come.
fn first(peer: &Peer) -> Vec<Payload> {
    let mut payloads = peer.auth_payloads();
    payloads.extend([NotifyType::MultipleAuthSupported, NotifyType::AnotherAuthFollows].map(status));
    payloads
}

/// The second round.
fn second(peer: &Peer) -> Vec<Payload> {
    peer.auth_as(&fqdn("alice"), b"the key of alice").into_iter().take(2).collect()
}

/// Up to the first round: the peer is not authenticated.
fn half_proven(world: &mut World, seed: u64) -> Peer {
    let mut peer = Peer::init(world, seed, vec![]);
    let payloads = first(&peer);
    let answer = peer.request(world, ExchangeType::IkeAuth, payloads).unwrap();
    assert!(
        answer.iter().all(|payload| !matches!(payload, Payload::Sa(_) | Payload::Notify(_))),
        "{answer:?}"
    );
    assert!(answer.iter().any(|payload| matches!(payload, Payload::Auth(_))), "{answer:?}");
    assert_half_proven(world);
    peer
}

fn assert_half_proven(world: &World) {
    assert!(world.hosts[0].installed.is_empty());
    assert!(
        world.hosts[0].sas().iter().all(|sa| sa.state != IkeSaState::Established || sa.connection.is_some())
    );
    let half: Vec<_> =
        world.hosts[0].sas().into_iter().filter(|sa| sa.state == IkeSaState::Connecting).collect();
    assert_eq!(half.len(), world.hosts[0].endpoint.half_open());
    assert!(half.iter().all(|sa| sa.connection.is_none() && sa.remote_id.is_none()), "{half:?}");
}

fn refused(world: &mut World, peer: &mut Peer, payloads: Vec<Payload>, kind: NotifyType, why: &str) {
    let answer = peer.request(world, ExchangeType::IkeAuth, payloads);
    assert_eq!(only_notify(answer), kind);
    assert!(world.hosts[0].logged(why), "{why}: {:#?}", world.hosts[0].log());
    assert!(world.hosts[0].sas().iter().all(|sa| sa.state != IkeSaState::Established));
    assert!(world.hosts[0].installed.is_empty());
}

#[test]
fn the_script_is_right() {
    let mut world = sun_wants_two(|_| {});
    let mut peer = half_proven(&mut world, 1);
    let payloads = second(&peer);
    let answer = peer.request(&mut world, ExchangeType::IkeAuth, payloads).unwrap();
    assert!(answer.iter().any(|payload| matches!(payload, Payload::Sa(_))), "{answer:?}");
    assert!(!answer.iter().any(|payload| matches!(payload, Payload::Auth(_) | Payload::IdResponder(_))));
    assert_eq!(world.hosts[0].sas()[0].remote_id, Some(fqdn("alice")));
    assert_eq!((world.hosts[0].installed.len(), world.hosts[0].endpoint.half_open()), (1, 0));
}

#[test]
fn sun_says_that_it_knows_of_rounds_where_a_connection_has_them() {
    for several in [true, false] {
        let mut world = if several { sun_wants_two(|_| {}) } else { sun() };
        Peer::init(&mut world, 1, vec![]);
        let answer = testudo_ike::message::Message::parse(&world.hosts[0].sent[0].1).unwrap();
        assert_eq!(answer.payloads.notify(NotifyType::MultipleAuthSupported).is_some(), several);
    }
}

#[test]
fn a_first_round_that_is_not_announced_as_it_should_be() {
    use NotifyType::{AnotherAuthFollows, AuthenticationFailed, MultipleAuthSupported};
    for (several, said, why) in [
        (true, &[][..], "moon does not know several authentications (RFC 4739)"),
        (true, &[MultipleAuthSupported], "moon announces no other authentication"),
        (true, &[AnotherAuthFollows], "has not said that it knows of that (RFC 4739)"),
        (false, &[AnotherAuthFollows], "has not said that it knows of that (RFC 4739)"),
        (
            false,
            &[MultipleAuthSupported, AnotherAuthFollows],
            "moon announces another authentication, which no connection asks for",
        ),
    ] {
        let mut world = if several { sun_wants_two(|_| {}) } else { sun() };
        let mut peer = Peer::init(&mut world, 1, vec![]);
        let mut payloads = peer.auth_payloads();
        payloads.extend(said.iter().map(|kind| status(*kind)));
        refused(&mut world, &mut peer, payloads, AuthenticationFailed, why);
    }
}

#[test]
fn a_second_round_that_is_wrong() {
    let failed = NotifyType::AuthenticationFailed;
    type Say = fn(&Peer) -> Vec<Payload>;
    let cases: [(NotifyType, &str, Say); 8] = [
        (failed, "alice does not hold our shared key", |peer| {
            peer.auth_as(&fqdn("alice"), b"a guess").into_iter().take(2).collect()
        }),
        // Moon again, which was enough for the first round.
        (failed, "no connection asks moon for this authentication", |peer| {
            peer.auth_as(&fqdn("moon"), b"a shared key").into_iter().take(2).collect()
        }),
        // The identity of one round with AUTH of another.
        (failed, "alice does not hold our shared key", |peer| {
            let mut payloads = second(peer);
            payloads[1] = peer.auth_payloads().swap_remove(1);
            payloads
        }),
        (failed, "alice wants EAP, which is not configured", |peer| {
            second(peer).into_iter().take(1).collect()
        }),
        (NotifyType::InvalidSyntax, "IDi is missing", |peer| second(peer).into_iter().skip(1).collect()),
        (NotifyType::InvalidSyntax, "IDi is missing", |_| Vec::new()),
        // A third round, which the connection does not require.
        (failed, "no connection asks alice for this authentication and another", |peer| {
            let mut payloads = second(peer);
            payloads.push(status(NotifyType::AnotherAuthFollows));
            payloads
        }),
        // It wants us to be somebody else than before, where we have nothing more to prove: no
        // matter.
        (failed, "alice does not hold our shared key", |peer| {
            peer.auth_as(&fqdn("alice"), b"another guess").into_iter().take(2).collect()
        }),
    ];
    for (kind, why, say) in cases {
        let mut world = sun_wants_two(|_| {});
        let mut peer = half_proven(&mut world, 1);
        let payloads = say(&peer);
        refused(&mut world, &mut peer, payloads, kind, why);
        // And no second try.
        let payloads = second(&peer);
        assert!(peer.request(&mut world, ExchangeType::IkeAuth, payloads).is_none());
        world.run_secs(60);
        world.assert_nothing_left();
    }
}

/// Sun, which has a second round of its own.
fn sun_proves_two() -> World {
    let mut world = sun_wants_two(|connection| {
        connection.rounds.remote.clear();
        connection.rounds.local = vec![LocalAuth::psk(Some(fqdn("bob")))];
    });
    world.hosts[0].load_secret(secret("bob", b"the key of bob", &["bob", "moon"]));
    world
}

/// Moon has proven all that it must, and waits for the second round of sun.
fn moon_waits(world: &mut World, seed: u64) -> Peer {
    let mut peer = Peer::init(world, seed, vec![]);
    let mut payloads = peer.auth_payloads();
    payloads.push(status(NotifyType::MultipleAuthSupported));
    let answer = peer.request(world, ExchangeType::IkeAuth, payloads).unwrap();
    assert!(answer.contains(&status(NotifyType::AnotherAuthFollows)), "{answer:?}");
    assert!(!answer.iter().any(|payload| matches!(payload, Payload::Sa(_))));
    assert!(world.hosts[0].installed.is_empty());
    peer
}

/// Sun has a second round of its own, and moon none: it must wait for it, and say nothing.
#[test]
fn a_round_that_was_not_announced() {
    let mut world = sun_proves_two();
    let why = "moon begins an authentication that it has not announced";
    let mut peer = moon_waits(&mut world, 1);
    let payloads = second(&peer);
    refused(&mut world, &mut peer, payloads, NotifyType::AuthenticationFailed, why);
    let mut peer = moon_waits(&mut world, 3);
    let payloads = vec![status(NotifyType::AnotherAuthFollows)];
    refused(&mut world, &mut peer, payloads, NotifyType::AuthenticationFailed, why);
    let mut peer = moon_waits(&mut world, 2);
    let answer = peer.request(&mut world, ExchangeType::IkeAuth, vec![]).unwrap();
    for kind in [|p: &Payload| matches!(p, Payload::Auth(_)), |p: &Payload| matches!(p, Payload::Sa(_))] {
        assert!(answer.iter().any(kind), "{answer:?}");
    }
    assert_eq!(world.hosts[0].sas().last().unwrap().local_id, Some(fqdn("bob")));
}

/// Neither a child nor a word of any other exchange before the last round.
#[test]
fn nothing_but_ike_auth_is_taken_before_the_last_round() {
    let mut world = sun_wants_two(|_| {});
    let mut peer = half_proven(&mut world, 1);
    let mut create = peer.auth_payloads().split_off(2);
    create.push(Payload::Nonce(Nonce::new(vec![7; 32]).unwrap()));
    for (exchange, payloads) in
        [(ExchangeType::CreateChildSa, create.clone()), (ExchangeType::Informational, vec![])]
    {
        assert!(peer.request(&mut world, exchange, payloads).is_none());
        assert_half_proven(&world);
    }
    assert!(world.hosts[0].endpoint.stats().discarded(Discard::WrongExchange) >= 2);
    // A child in the second round has no place there: the one of the first counts.
    let mut payloads = second(&peer);
    payloads.extend(create);
    let answer = peer.request(&mut world, ExchangeType::IkeAuth, payloads).unwrap();
    assert!(answer.iter().any(|payload| matches!(payload, Payload::Sa(_))));
    assert_eq!(world.hosts[0].installed.len(), 1);
}

#[test]
fn no_address_is_given_before_the_last_round() {
    let pool = || {
        let addrs = range("10.3.0.1-10.3.0.2");
        Pool { name: "v4".into(), base: addrs.start(), addrs, dns: vec![], subnets: vec![] }
    };
    let mut world = sun_wants_two(|connection| connection.pools = vec!["v4".into()]);
    world.hosts[0].load_pool(pool());
    let mut peer = Peer::init(&mut world, 1, vec![]);
    let mut payloads = first(&peer);
    payloads.push(Payload::Configuration(Configuration {
        kind: CfgType::Request,
        attributes: vec![CfgAttribute { kind: CfgAttributeType::Ip4Address, value: Vec::new() }],
    }));
    peer.request(&mut world, ExchangeType::IkeAuth, payloads).unwrap();
    assert_eq!(world.hosts[0].endpoint.pools().leases("v4").count(), 0);
    let payloads = second(&peer);
    let answer = peer.request(&mut world, ExchangeType::IkeAuth, payloads).unwrap();
    assert!(answer.iter().any(|payload| matches!(payload, Payload::Configuration(_))), "{answer:?}");
    let lease = world.hosts[0].endpoint.pools().leases("v4").next().unwrap();
    assert_eq!(lease.identity, fqdn("alice"));
}

/// INITIAL_CONTACT of a peer that has only succeeded in a part of the rounds ends no tunnel.
#[test]
fn other_tunnels_stay_until_the_last_round() {
    let mut world = sun_wants_two(|connection| connection.unique = testudo_ike::config::Unique::Replace);
    let mut peer = half_proven(&mut world, 1);
    let payloads = second(&peer);
    peer.request(&mut world, ExchangeType::IkeAuth, payloads).unwrap();
    let before = world.hosts[0].sas()[0].id;
    world.run_secs(1);
    let mut other = Peer::init(&mut world, 2, vec![]);
    let mut payloads = first(&other);
    payloads.push(status(NotifyType::InitialContact));
    other.request(&mut world, ExchangeType::IkeAuth, payloads).unwrap();
    assert!(world.hosts[0].sas().iter().any(|sa| sa.id == before && sa.state == IkeSaState::Established));
    assert_eq!(world.hosts[0].installed.len(), 1);
    let payloads = second(&other);
    other.request(&mut world, ExchangeType::IkeAuth, payloads).unwrap();
    assert!(!world.hosts[0].sas().iter().any(|sa| sa.id == before && sa.state == IkeSaState::Established));
    assert_eq!(world.hosts[0].installed.len(), 1);
}

/// A round does not restart the time limit of a half-open IKE SA, which counts as half-open until
/// the end.
#[test]
fn a_round_gives_no_more_time() {
    let mut world = sun_wants_two(|_| {});
    let timeout = EndpointConfig::default().half_open_timeout;
    let mut peer = Peer::init(&mut world, 1, vec![]);
    world.run(timeout / 2);
    let payloads = first(&peer);
    peer.request(&mut world, ExchangeType::IkeAuth, payloads).unwrap();
    assert_eq!(world.hosts[0].endpoint.half_open(), 1);
    world.run(timeout / 2 + std::time::Duration::from_millis(1));
    assert_eq!(world.hosts[0].endpoint.half_open(), 0);
    let payloads = second(&peer);
    let answer = peer.seal(ExchangeType::IkeAuth, payloads);
    crate::scenarios::common::peer::exchange(&mut world, peer.path, &answer);
    assert!(world.hosts[0].sas().is_empty() && world.hosts[0].installed.is_empty());
}

/// The rounds so far were judged by what the connection was.
#[test]
fn a_connection_that_changes_between_two_rounds() {
    type Edit = fn(&mut Connection);
    let edits: [(bool, Edit); 5] = [
        (false, |connection| connection.remote.id = Some(fqdn("mars"))),
        (false, |connection| connection.rounds.remote[0].id = Some(fqdn("mars"))),
        (false, |connection| connection.rounds.remote.clear()),
        (false, |connection| connection.local.id = Some(fqdn("mercury"))),
        (true, |connection| connection.keyingtries = 7),
    ];
    for (goes_on, edit) in edits {
        let mut world = sun_wants_two(|_| {});
        let mut peer = half_proven(&mut world, 1);
        let mut connection = world.hosts[0].endpoint.connections().next().unwrap().clone();
        edit(&mut connection);
        let now = world.now;
        world.hosts[0].load(now, connection);
        let payloads = second(&peer);
        let answer = peer.request(&mut world, ExchangeType::IkeAuth, payloads);
        assert_eq!(world.hosts[0].installed.len(), usize::from(goes_on), "{answer:?}");
    }
    let mut world = sun_wants_two(|_| {});
    let mut peer = half_proven(&mut world, 1);
    world.hosts[0].endpoint.unload_connection("site");
    let payloads = second(&peer);
    let why = "the connection of alice has changed meanwhile";
    refused(&mut world, &mut peer, payloads, NotifyType::AuthenticationFailed, why);
}

/// The peer has proven everything when its connection begins to ask for more.
#[test]
fn a_connection_that_asks_for_another_round_while_the_peer_waits_for_ours() {
    let mut world = sun_proves_two();
    let mut peer = moon_waits(&mut world, 1);
    let mut connection = world.hosts[0].endpoint.connections().next().unwrap().clone();
    connection.rounds.remote = vec![RemoteAuth::psk(Some(fqdn("alice")))];
    let now = world.now;
    world.hosts[0].load(now, connection);
    let why = "the connection of moon has changed meanwhile";
    refused(&mut world, &mut peer, vec![], NotifyType::AuthenticationFailed, why);
}

/// Moon, which asks two identities of the responder.
fn moon_wants_two() -> World {
    let mut world = World::pair_with(1, Weather::FAIR, |index, connection| {
        if index == 0 {
            connection.rounds.remote = vec![RemoteAuth::psk(Some(fqdn("bob")))];
        }
    });
    world.hosts.remove(1);
    world.hosts[0].load_secret(secret("bob", b"the key of bob", &["bob", "moon"]));
    world
}

/// The responder has proven to be sun, and another round follows.
fn sun_is_proven(world: &mut World) -> Responder {
    let mut sun = Responder::answer_init_saying(world, vec![status(NotifyType::MultipleAuthSupported)]);
    assert!(sun.auth.contains(&status(NotifyType::MultipleAuthSupported)));
    let mut payloads = sun.auth_payloads();
    payloads.push(status(NotifyType::AnotherAuthFollows));
    let said = sun.answer(world, ExchangeType::IkeAuth, 1, payloads);
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!((said[0].0.exchange, said[0].1.as_slice()), (ExchangeType::IkeAuth, &[][..]));
    // The child that came too early is none.
    assert!(world.hosts[0].installed.is_empty());
    assert!(world.hosts[0].sas().iter().all(|sa| sa.state == IkeSaState::Connecting));
    sun
}

#[test]
fn the_other_script_is_right() {
    let mut world = moon_wants_two();
    let mut sun = sun_is_proven(&mut world);
    let payloads = sun.auth_as("bob", b"the key of bob");
    assert!(sun.answer(&mut world, ExchangeType::IkeAuth, 2, payloads).is_empty());
    assert!(world.hosts[0].results()[0].is_ok(), "{:#?}", world.hosts[0].log());
    assert_eq!(world.hosts[0].sas()[0].remote_id, Some(fqdn("bob")));
}

#[test]
fn a_responder_that_goes_on_otherwise_than_it_should() {
    type Say = fn(&Responder) -> Vec<Payload>;
    let cases: [(&str, Say); 5] = [
        ("bob does not hold our shared key", |sun| sun.auth_as("bob", b"a guess")),
        ("the peer is sun, expected bob", Responder::auth_payloads),
        ("no IDr or no AUTH", |sun| sun.auth_payloads().split_off(2)),
        ("bob announces another authentication, which the connection does not ask for", |sun| {
            let mut payloads = sun.auth_as("bob", b"the key of bob");
            payloads.push(status(NotifyType::AnotherAuthFollows));
            payloads
        }),
        ("no IDr or no AUTH", |_| vec![]),
    ];
    for (why, say) in cases {
        let mut world = moon_wants_two();
        let mut sun = sun_is_proven(&mut world);
        let payloads = say(&sun);
        let said = sun.answer(&mut world, ExchangeType::IkeAuth, 2, payloads);
        let [(_, said)] = said.as_slice() else { panic!("{why}: {said:?}") };
        assert!(said.contains(&status(NotifyType::AuthenticationFailed)), "{said:?}");
        let reason = world.hosts[0].results()[0].clone().unwrap_err().to_string();
        assert!(reason.contains(why), "{reason}");
        assert!(world.hosts[0].installed.is_empty());
    }
    // One that stops after the first round.
    let mut world = moon_wants_two();
    let mut sun = Responder::answer_init_saying(&mut world, vec![status(NotifyType::MultipleAuthSupported)]);
    let payloads = sun.auth_payloads();
    sun.answer(&mut world, ExchangeType::IkeAuth, 1, payloads);
    let reason = world.hosts[0].results()[0].clone().unwrap_err().to_string();
    assert!(
        reason.contains("sun announces no other authentication, which the connection asks for"),
        "{reason}"
    );
    assert!(world.hosts[0].installed.is_empty());
}

/// Moon has a second round, and sun none: sun is proven, and the second round has been sent.
fn moon_proves_two() -> (World, Responder) {
    let mut world = World::pair_with(1, Weather::FAIR, |index, connection| {
        if index == 0 {
            connection.rounds.local = vec![LocalAuth::psk(Some(fqdn("alice")))];
        }
    });
    world.hosts.remove(1);
    world.hosts[0].load_secret(secret("alice", b"the key of alice", &["alice", "sun"]));
    let mut sun = Responder::answer_init_saying(&mut world, vec![status(NotifyType::MultipleAuthSupported)]);
    assert!(sun.auth.contains(&status(NotifyType::AnotherAuthFollows)));
    let payloads = sun.auth_payloads();
    let said = sun.answer(&mut world, ExchangeType::IkeAuth, 1, payloads);
    let kinds: Vec<_> = said[0].1.iter().map(Payload::kind).collect();
    use testudo_ike::message::PayloadType::{Authentication, IdInitiator};
    assert_eq!(kinds, [IdInitiator, Authentication]);
    assert!(world.hosts[0].installed.is_empty());
    (world, sun)
}

/// An error other than of the child ends the IKE SA, although nothing more is to be proven.
#[test]
fn a_responder_that_refuses_our_last_round() {
    let (mut world, mut sun) = moon_proves_two();
    let refusal = vec![status(NotifyType::AuthenticationFailed)];
    sun.answer(&mut world, ExchangeType::IkeAuth, 2, refusal);
    let reason = world.hosts[0].results()[0].clone().unwrap_err().to_string();
    assert!(reason.contains("AUTHENTICATION_FAILED"), "{reason}");
    assert!(world.hosts[0].sas().is_empty() && !world.hosts[0].logged("established between"));
}

#[test]
fn a_responder_that_begins_what_it_has_not_announced() {
    for signs in ["IDr and AUTH", "IDr", "AUTH", "another round"] {
        let (mut world, mut sun) = moon_proves_two();
        let mut payloads = sun.auth_payloads();
        match signs {
            "IDr" => drop(payloads.remove(1)),
            "AUTH" => drop(payloads.remove(0)),
            "another round" => drop(payloads.splice(..2, [status(NotifyType::AnotherAuthFollows)])),
            _ => {}
        }
        sun.answer(&mut world, ExchangeType::IkeAuth, 2, payloads);
        let reason = world.hosts[0].results()[0].clone().unwrap_err().to_string();
        assert!(reason.contains("begins an authentication that it has not announced"), "{signs}: {reason}");
    }
}
