//! Several rounds of authentication (RFC 4739) between two endpoints: what brings a tunnel up, and
//! what does not.

use crate::pki::{NOVEMBER_2026, cert, key, public_key};
use crate::scenarios::common::build::{child, fqdn, ike_proposal, ppk, secret};
use crate::scenarios::common::tunnels::assert_weathered;
use crate::scenarios::common::wire::{assert_ivs_never_repeat, sent};
use crate::scenarios::common::{Weather, World};
use testudo_ike::config::KeyExchange::{MlKem768, X25519};
use testudo_ike::config::{
    AuthMethod, Childless, Connection, Identity, LocalAuth, PpkPolicy, RemoteAuth, SendCert,
};
use testudo_ike::endpoint::{EndpointConfig, IkeSaState};
use testudo_ike::message::{ExchangeType, NotifyType};

/// A round: its identity and its authentication: a shared key, or the public key or certificate of
/// that file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Round {
    Psk(&'static str),
    Key(&'static str, &'static str),
    Cert(&'static str, &'static str),
}

use Round::{Cert, Key, Psk};

/// The identities that moon must prove, and those that sun has.
pub(crate) type Rounds = [&'static [Round]; 2];

impl Round {
    fn id(self) -> Identity {
        match self {
            Psk(name) | Key(name, _) | Cert(name, _) => fqdn(name),
        }
    }

    fn local(self) -> LocalAuth {
        match self {
            Psk(_) => LocalAuth::psk(Some(self.id())),
            Key(_, file) => LocalAuth::by_public_key(Some(self.id()), vec![public_key(file)]),
            Cert(_, file) => LocalAuth::by_certificate(Some(self.id()), vec![cert(file)]),
        }
    }

    fn remote(self) -> RemoteAuth {
        let mut remote = RemoteAuth::psk(Some(self.id()));
        if let Key(..) | Cert(..) = self {
            remote.method = AuthMethod::PUBKEY;
        }
        if let Key(_, file) = self {
            remote.pubkeys = vec![public_key(file)];
        }
        remote
    }
}

pub(crate) const MOON: Round = Psk("moon");
pub(crate) const SUN: Round = Psk("sun");
pub(crate) const ALICE: Round = Psk("alice");
pub(crate) const BOB: Round = Psk("bob");

/// Sets what both sides have to prove.
fn set(index: usize, connection: &mut Connection, rounds: [&[Round]; 2]) {
    let mut locals = rounds[index].iter().map(|round| round.local());
    let mut remotes = rounds[1 - index].iter().map(|round| round.remote());
    connection.local = locals.next().unwrap();
    connection.remote = remotes.next().unwrap();
    connection.rounds.local = locals.collect();
    connection.rounds.remote = remotes.collect();
}

/// Each has what it needs for its rounds, and every pair of names has a key of its own.
fn equip(world: &mut World, rounds: [&[Round]; 2]) {
    for (index, host) in world.hosts.iter_mut().enumerate() {
        host.endpoint.set_unix_time(world.now, NOVEMBER_2026);
        for round in rounds[index] {
            if let Key(_, file) | Cert(_, file) = round {
                host.endpoint.credentials_mut().load_key(key(file));
            }
        }
        for one in rounds[0] {
            for other in rounds[1] {
                let (one, other) = (one.id().to_string(), other.id().to_string());
                let name = format!("{one} and {other}");
                host.load_secret(secret(&name, name.as_bytes(), &[&one, &other]));
            }
        }
    }
}

pub(crate) fn pair_in(
    seed: u64,
    weather: Weather,
    config: EndpointConfig,
    rounds: [&[Round]; 2],
    edit: impl Fn(usize, &mut Connection),
) -> World {
    let mut world = World::pair_of(["192.0.2.1", "192.0.2.2"], seed, weather, config, |index, connection| {
        set(index, connection, rounds);
        edit(index, connection);
    });
    equip(&mut world, rounds);
    world
}

pub(crate) fn pair(rounds: [&[Round]; 2], edit: impl Fn(usize, &mut Connection)) -> World {
    pair_in(1, Weather::FAIR, EndpointConfig::default(), rounds, edit)
}

/// Both sides have a tunnel, and know each other by the last round.
fn assert_up(world: &World, rounds: [&[Round]; 2]) {
    world.assert_tunnel();
    for index in [0, 1] {
        let sa = &world.hosts[index].sas()[0];
        assert_eq!(sa.local_id, rounds[index].last().map(|round| round.id()), "{index}");
        assert_eq!(sa.remote_id, rounds[1 - index].last().map(|round| round.id()), "{index}");
    }
    assert_eq!(world.hosts[1].endpoint.half_open(), 0);
    assert_ivs_never_repeat(world);
}

#[test]
fn every_combination_takes_as_many_exchanges_as_the_longer_side_has_rounds() {
    let key = |name, file| Key(name, file);
    let combinations: [[&[Round]; 2]; 8] = [
        [&[MOON, ALICE], &[SUN]],
        [&[MOON], &[SUN, BOB]],
        [&[MOON, ALICE], &[SUN, BOB]],
        [&[key("moon", "moon-P-256"), ALICE], &[key("sun", "sun-ed25519")]],
        [&[MOON, key("alice", "moon-rsa")], &[SUN]],
        [&[MOON], &[key("sun", "sun-P-256"), key("bob", "sun-P-384")]],
        [&[MOON, ALICE, key("carol", "moon-ed25519")], &[SUN, key("bob", "sun-P-256")]],
        [&[MOON], &[SUN, BOB, Psk("dave"), Psk("erin")]],
    ];
    for rounds in combinations {
        let mut world = pair(rounds, |_, _| {});
        world.establish();
        assert_up(&world, rounds);
        let exchanges = rounds[0].len().max(rounds[1].len());
        assert_eq!(sent(&world, 0, ExchangeType::IkeAuth, false).len(), exchanges, "{rounds:?}");
        assert_eq!(sent(&world, 1, ExchangeType::IkeAuth, true).len(), exchanges, "{rounds:?}");
        // Later keys come from the same as ever.
        world.run_secs(5);
    }
}

/// An IKE SA without a child (RFC 6023), or whose child has a separate exchange.
#[test]
fn without_a_child() {
    let combinations: [[&[Round]; 2]; 3] =
        [[&[MOON, ALICE], &[SUN]], [&[MOON], &[SUN, BOB]], [&[MOON, ALICE], &[SUN, BOB]]];
    for rounds in combinations {
        let mut world = pair(rounds, |_, _| {});
        let now = world.now;
        let id = world.hosts[0].endpoint.initiate_alone(now, "site").unwrap();
        assert_eq!(world.hosts[0].endpoint.initiate_alone(now, "site"), Ok(id), "it is on its way");
        world.settle(0);
        world.run_secs(60);
        for host in &world.hosts {
            let sas = host.sas();
            let states: Vec<_> = sas.iter().map(|sa| (sa.state, sa.children.len())).collect();
            assert_eq!(states, [(IkeSaState::Established, 0)], "{:?}", host.log());
        }
        assert_eq!(world.initiate(0), id, "the child comes on it");
        world.run_secs(1);
        assert_up(&world, rounds);

        let prefer = |_, connection: &mut Connection| connection.childless = Childless::Prefer;
        let mut world = pair(rounds, prefer);
        world.initiate(0);
        world.run_secs(5);
        assert_up(&world, rounds);
        assert!(matches!(world.hosts[0].results()[..], [Ok(_)]));
        assert_eq!(sent(&world, 0, ExchangeType::CreateChildSa, false).len(), 1, "{rounds:?}");
    }
}

/// Whoever forces it: children come by exchanges of their own, or not at all, and the IKE SA does
/// not depend on that.
#[test]
fn where_a_child_must_have_an_exchange_of_its_own() {
    let combinations: [[&[Round]; 2]; 3] =
        [[&[MOON, ALICE], &[SUN]], [&[MOON], &[SUN, BOB]], [&[MOON, ALICE], &[SUN, BOB]]];
    for rounds in combinations {
        for ours in [Childless::Prefer, Childless::Force] {
            for theirs in [Childless::Allow, Childless::Force] {
                let mut world = pair(rounds, |index, connection| {
                    connection.childless = if index == 0 { ours } else { theirs };
                });
                world.initiate(0);
                world.run_secs(60);
                assert_up(&world, rounds);
                assert!(matches!(world.hosts[0].results()[..], [Ok(_)]));
            }
        }
        // The initiator asks for a child at once all the same.
        let mut world = pair(rounds, |index, connection| {
            connection.childless = if index == 0 { Childless::Allow } else { Childless::Force };
        });
        world.initiate(0);
        world.run_secs(1);
        let reason = world.hosts[0].results()[0].clone().unwrap_err().to_string();
        let states = world.hosts.iter().map(|host| host.sas().iter().map(|sa| sa.state).collect::<Vec<_>>());
        let states: Vec<_> = states.collect();
        assert_eq!(states, vec![vec![IkeSaState::Established]; 2], "{rounds:?}: {reason}");
    }
}

#[test]
fn one_round_says_nothing_of_several() {
    let mut world = World::pair(1, Weather::FAIR);
    world.establish();
    for (host, response) in [(0, false), (1, true)] {
        for bytes in sent(&world, host, ExchangeType::IkeSaInit, response) {
            let message = testudo_ike::message::Message::parse(bytes).unwrap();
            assert!(message.payloads.notify(NotifyType::MultipleAuthSupported).is_none());
        }
    }
}

#[test]
fn a_wrong_key_in_any_round() {
    let rounds: [&[Round]; 2] = [&[MOON, ALICE], &[SUN, BOB]];
    for (names, host) in
        [("moon and sun", 0), ("alice and bob", 0), ("moon and sun", 1), ("alice and bob", 1)]
    {
        let mut world = pair(rounds, |_, _| {});
        let (one, other) = names.split_once(" and ").unwrap();
        world.hosts[host].load_secret(secret(names, b"a slip of the pen", &[one, other]));
        world.initiate(0);
        world.run_secs(5);
        assert!(world.hosts[0].results()[0].is_err(), "{names}");
        let who = &format!("{one} does not hold our shared key");
        assert!(world.hosts[1].logged(who), "{who}: {:#?}", world.hosts[1].log());
        world.run_secs(60);
        world.assert_nothing_left();
    }
}

/// The initiator proves both, and the responder not: it is told, and nothing is left.
#[test]
fn a_responder_that_fails_in_its_second_round_is_told_so() {
    let rounds: [&[Round]; 2] = [&[MOON], &[SUN, Key("bob", "sun-P-256")]];
    let mut world = pair(rounds, |index, connection| {
        if index == 0 {
            connection.rounds.remote[0].pubkeys = vec![public_key("sun-P-384")];
        }
    });
    world.initiate(0);
    world.run_secs(5);
    let why = world.hosts[0].results()[0].clone().unwrap_err().to_string();
    assert!(why.contains("which is not allowed by the connection") || why.contains("was not made"), "{why}");
    world.run_secs(60);
    world.assert_nothing_left();
}

#[test]
fn a_side_that_asks_for_more_or_less() {
    let cases: [(Rounds, Rounds, usize, &str); 4] = [
        // The initiator's setting, the responder's setting, which side refuses, and why.
        (
            [&[MOON], &[SUN]],
            [&[MOON, ALICE], &[SUN]],
            1,
            "moon does not know several authentications (RFC 4739), which its connection asks for",
        ),
        (
            [&[MOON, ALICE], &[SUN]],
            [&[MOON], &[SUN]],
            0,
            "several authentications are asked for, but the peer does not know of that (RFC 4739)",
        ),
        (
            [&[MOON, ALICE], &[SUN]],
            [&[MOON, ALICE, Psk("carol")], &[SUN]],
            1,
            "no connection asks alice for this authentication and no other",
        ),
        (
            [&[MOON, ALICE], &[SUN]],
            [&[MOON, ALICE], &[SUN, BOB]],
            0,
            "sun announces another authentication, which the connection does not ask for",
        ),
    ];
    for (initiator, responder, refuser, why) in cases {
        let mut world = World::pair_with(1, Weather::FAIR, |index, connection| {
            set(index, connection, [initiator, responder][index]);
        });
        equip(&mut world, initiator);
        equip(&mut world, responder);
        world.initiate(0);
        world.run_secs(60);
        let reason = world.hosts[0].results()[0].clone().unwrap_err().to_string();
        assert!(
            world.hosts[refuser].logged(why) || reason.contains(why),
            "{why}: {reason} {:#?}",
            world.hosts[refuser].log()
        );
        world.run_secs(60);
        world.assert_nothing_left();
    }
}

/// The first round fits both connections; the second tells which one it is.
#[test]
fn connections_are_told_apart_by_a_later_round() {
    for (name, file) in [("alice", "moon-P-256"), ("carol", "moon-ed25519")] {
        let rounds: [&[Round]; 2] = [&[MOON, Key(name, file)], &[SUN]];
        let mut world = pair(rounds, |_, _| {});
        let now = world.now;
        let site = world.hosts[1].endpoint.connections().next().unwrap().clone();
        world.hosts[1].endpoint.unload_connection("site");
        for (number, (name, file)) in
            [("alice", "moon-P-256"), ("bob", "moon-rsa"), ("carol", "moon-ed25519")].into_iter().enumerate()
        {
            let mut other = Connection { name: format!("for {name}"), ..site.clone() };
            other.rounds.remote = vec![Key(name, file).remote()];
            other.children[0].name = format!("net-{number}");
            world.hosts[1].load(now, other);
        }
        // One that asks for no more is not what the peer means.
        let mut other = Connection { name: "a single round".into(), ..site.clone() };
        other.rounds.remote.clear();
        world.hosts[1].load(now, other);
        world.establish();
        assert_up(&world, rounds);
        assert_eq!(world.hosts[1].sas()[0].connection, Some(format!("for {name}")));
    }
}

/// Alice is asked for by several connections, in ways that differ. Among those that ask for what
/// she proves, the one with the child that she wants is taken.
#[test]
fn a_later_round_that_several_connections_ask_for() {
    let alice = Key("alice", "moon-P-256");
    for (file, bob) in [("moon-P-256", BOB), ("moon-rsa", BOB), ("moon-P-256", Psk("dave"))] {
        // The requirements of the other connections, and sun's own rounds there.
        let rounds: [&[Round]; 2] = [&[MOON, alice], &[SUN, BOB]];
        let mut world = pair(rounds, |_, _| {});
        let now = world.now;
        let site = world.hosts[1].endpoint.connections().next().unwrap().clone();
        world.hosts[1].endpoint.unload_connection("site");
        let elsewhere = || vec![child("net", "10.200.0.0-10.200.0.255", "10.201.0.0-10.201.0.255")];
        let mut load = |name: &str, remote: Round, local: Round, children| {
            let mut other = Connection { name: name.into(), children, ..site.clone() };
            other.rounds.remote = vec![remote.remote()];
            other.rounds.local = vec![local.local()];
            world.hosts[1].load(now, other);
        };
        load("a, by a shared key", Psk("alice"), BOB, site.children.clone());
        load("b, in another way", Key("alice", file), bob, elsewhere());
        load("c, alike", alice, BOB, elsewhere());
        load("d, alike with the child", alice, BOB, site.children.clone());
        world.establish();
        assert_up(&world, rounds);
        assert_eq!(world.hosts[1].sas()[0].connection.as_deref(), Some("d, alike with the child"));
    }
}

/// What Alice proves to one connection opens no child of another that asks for something else.
#[test]
fn a_later_round_opens_no_child_of_another_connection() {
    let rounds: [&[Round]; 2] = [&[MOON, Key("alice", "moon-P-256")], &[SUN, BOB]];
    let differences =
        ["nothing", "her key", "our name", "our proof", "how well her name fits", "who gets certificates"];
    for differs in differences {
        let mut world = pair(rounds, |_, _| {});
        let site = world.hosts[1].endpoint.connection("site").unwrap().clone();
        let mut wanted = site.clone();
        match differs {
            "her key" => wanted.rounds.remote[0].pubkeys = vec![public_key("moon-rsa")],
            "our name" => wanted.rounds.local[0].id = Some(fqdn("dave")),
            "our proof" => wanted.rounds.local[0] = Key("bob", "sun-P-256").local(),
            "how well her name fits" => wanted.rounds.remote[0].id = None,
            "who gets certificates" => wanted.send_cert = SendCert::Never,
            _ => {}
        }
        let children = vec![child("net", "10.200.0.0-10.200.0.255", "10.201.0.0-10.201.0.255")];
        let now = world.now;
        world.hosts[1].load(now, Connection { name: "first".into(), children, ..site });
        world.hosts[1].load(now, wanted);
        world.initiate(0);
        world.run_secs(2);
        let made = world.hosts[1].installed.len();
        assert_eq!(made, usize::from(differs == "nothing"), "{differs}: {:#?}", world.hosts[1].log());
    }
}

#[test]
fn with_a_ppk_and_an_additional_key_exchange() {
    let rounds: [&[Round]; 2] = [&[MOON, Key("alice", "moon-P-256")], &[SUN, BOB]];
    for loaded in [true, false] {
        let mut world = pair(rounds, |_, connection| {
            let mut proposal = ike_proposal(&[X25519]);
            proposal.additional[0] = vec![Some(MlKem768)];
            connection.proposals = vec![proposal];
            connection.ppk = PpkPolicy { id: Some(fqdn("quantum")), required: loaded };
        });
        world.hosts[0].load_secret(ppk("quantum", b"32 octets that no curve protects", &["quantum"]));
        let name = if loaded { "quantum" } else { "other" };
        world.hosts[1].load_secret(ppk(name, b"32 octets that no curve protects", &[name]));
        world.establish();
        assert_up(&world, rounds);
        assert!(world.hosts.iter().all(|host| host.sas()[0].ppk == loaded));
    }
}

/// All is proven, and the child is refused: the IKE SA stays for a while (RFC 7296 §1.2).
#[test]
fn a_child_that_is_refused_with_the_last_round() {
    for rounds in [[&[MOON, ALICE][..], &[SUN][..]], [&[MOON], &[SUN, BOB]]] {
        let mut world = pair(rounds, |index, connection| {
            if index == 1 {
                connection.children =
                    vec![child("net", "10.200.0.0-10.200.0.255", "10.201.0.0-10.201.0.255")];
            }
        });
        world.initiate(0);
        world.run_secs(2);
        let reason = world.hosts[0].results()[0].clone().unwrap_err().to_string();
        assert!(reason.contains("TS_UNACCEPTABLE"), "{reason}");
        assert_eq!(world.hosts.iter().map(|host| host.sas().len()).collect::<Vec<_>>(), [1, 1]);
        world.run_secs(60);
        world.assert_nothing_left();
    }
}

#[test]
fn another_node_goes_on_between_any_two_events() {
    let rounds: [&[Round]; 2] = [&[MOON, ALICE], &[SUN, Key("bob", "sun-P-256")]];
    World::taken_over_at_each(
        10,
        |seed| {
            let mut world = pair_in(seed + 1, Weather::FAIR, EndpointConfig::default(), rounds, |_, _| {});
            world.initiate(0);
            world
        },
        |world| assert_up(world, rounds),
    );
}

#[test]
fn in_foul_weather() {
    let rounds: [&[Round]; 2] = [&[MOON, ALICE], &[SUN, Key("bob", "sun-P-256")]];
    for seed in 0..60 {
        let config = match seed % 2 {
            0 => EndpointConfig::default(),
            _ => crate::scenarios::common::world::handing_out(),
        };
        let mut world = pair_in(seed, Weather::FOUL, config, rounds, |_, connection| {
            connection.keyingtries = 0;
            connection.dpd_delay = std::time::Duration::from_secs(30);
        });
        world.initiate(0);
        assert_weathered(&mut world, seed);
        let sa = &world.hosts[0].sas()[0];
        assert_eq!((&sa.local_id, &sa.remote_id), (&Some(fqdn("alice")), &Some(fqdn("bob"))), "{seed}");
    }
}

#[test]
fn the_sa_is_set_up_anew_with_all_rounds() {
    let rounds: [&[Round]; 2] = [&[MOON, ALICE], &[SUN, BOB]];
    let mut world = pair(rounds, |index, connection| {
        if index == 0 {
            connection.lifetime.reauth = 100;
            connection.lifetime.over = 60;
        }
    });
    world.establish();
    world.run_secs(150);
    assert_up(&world, rounds);
    assert_eq!(sent(&world, 0, ExchangeType::IkeSaInit, false).len(), 2);
}
