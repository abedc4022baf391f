//! Several rounds of authentication (RFC 4739), each with another identity, with strongSwan.

use crate::common::{Pair, SOON, Scenario, UP_LIMIT, give_key};
use testudo_lab::gateway::Kind;
use testudo_lab::pki::{KeyKind, Pki};
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, Side};

/// A round: by shared key, or by the public key of that name.
#[derive(Clone, Copy)]
enum Round {
    Psk(&'static str),
    Key(&'static str),
}

use Round::{Key, Psk};

impl Round {
    fn id(self) -> String {
        match self {
            Psk(name) | Key(name) => format!("{name}.lab.example"),
        }
    }

    fn lines(self) -> String {
        let id = self.id();
        match self {
            Psk(_) => format!("            auth = psk\n            id = {id}\n"),
            Key(name) => {
                format!(
                    "            auth = pubkey\n            pubkeys = {name}.pub\n            id = {id}\n"
                )
            }
        }
    }
}

/// The connection of a side, where these are the rounds of side one and of side two. The order in
/// the file is not that of the rounds.
fn conf(side: Side, rounds: [&[Round]; 2]) -> String {
    let connection = Connection::of(side, Family::V4).to_string();
    let (ours, theirs) = match side {
        Side::One => (rounds[0], rounds[1]),
        Side::Two => (rounds[1], rounds[0]),
    };
    let sections = |name: &str, rounds: &[Round]| -> String {
        let section = |(number, round): (usize, &Round)| {
            format!("        {name}-{number} {{\n            round = {number}\n{}        }}\n", round.lines())
        };
        rounds.iter().enumerate().rev().map(section).collect()
    };
    let (head, rest) = connection.split_once("        local {").unwrap();
    let (_, rest) = rest.split_once("        children {").unwrap();
    let (children, _) = rest.split_once("secrets {").unwrap();
    let secret = |(one, other): (&Round, &Round)| {
        let (one, other) = (one.id(), other.id());
        // strongSwan takes no dot in the name of a section.
        let name = format!("{one}-{other}").replace('.', "-");
        format!(
            "    ike-{name} {{\n        id-1 = {one}\n        id-2 = {other}\n        secret = \"{one} {other}\"\n    }}\n"
        )
    };
    let pairs = rounds[0].iter().flat_map(|one| rounds[1].iter().map(move |other| (one, other)));
    format!(
        "{head}{}{}        children {{{children}secrets {{\n{}}}\n",
        sections("local", ours),
        sections("remote", theirs),
        pairs.map(secret).collect::<String>()
    )
}

/// Loads the connections of both sides, each with the rounds that it knows of.
fn load(pair: &Pair, one: [&[Round]; 2], two: [&[Round]; 2]) {
    for (side, rounds) in [(Side::One, one), (Side::Two, two)] {
        let swanctl = pair.swanctl(side);
        swanctl.write_conf(&conf(side, rounds)).unwrap();
        swanctl.run(["--load-all", "--noprompt", "--clear"]).unwrap();
    }
}

fn come_and_go(pair: &Pair, initiator: Side, rounds: [&[Round]; 2]) {
    pair.up(initiator);
    pair.ping_from(initiator, Family::V4, 56);
    // Both are known by their last round.
    let sa = pair.sas(Side::One).pop().unwrap();
    let last = |rounds: &[Round]| rounds.last().map(|round| round.id());
    assert_eq!(sa.get("local-id").map(str::to_owned), last(rounds[0]));
    assert_eq!(sa.get("remote-id").map(str::to_owned), last(rounds[1]));
    pair.swanctl(initiator).terminate("lab").unwrap();
    for side in [Side::One, Side::Two] {
        pair.await_sas(side, 0, SOON);
    }
}

fn every_combination(name: &'static str, peer: Kind, initiator: Side, combinations: [[&[Round]; 2]; 3]) {
    let pair = Scenario::new(name, peer).impatient().start_empty();
    let pki = Pki::new(pair.t.gw1.lab()).unwrap();
    for (key, owner) in [("gw1", Side::One), ("alice", Side::One), ("gw2", Side::Two), ("bob", Side::Two)] {
        give_key(&pair, &pki, (key, KeyKind::Ecdsa("P-256")), owner);
    }
    for rounds in combinations {
        load(&pair, rounds, rounds);
        come_and_go(&pair, initiator, rounds);
    }
}

/// A second round of the initiator, of the responder, and of both.
const WE_BEGIN: [[&[Round]; 2]; 3] = [
    [&[Psk("gw1"), Key("alice")], &[Psk("gw2")]],
    [&[Psk("gw1")], &[Key("gw2"), Psk("bob")]],
    [&[Key("gw1"), Psk("alice")], &[Psk("gw2"), Key("bob")]],
];

#[test]
fn we_initiate_and_both_prove_two_identities() {
    every_combination("rounds", Kind::Strongswan, Side::One, WE_BEGIN);
}

/// An initiating charon that proves itself by a shared key wants all of the peer's rounds to be
/// over then.
#[test]
#[ignore = "make test-all: the other role"]
fn strongswan_initiates_and_both_prove_two_identities() {
    every_combination(
        "roundsback",
        Kind::Strongswan,
        Side::Two,
        [
            [&[Psk("gw1")], &[Key("gw2"), Psk("bob")]],
            [&[Psk("gw1"), Key("alice")], &[Key("gw2")]],
            [&[Key("gw1"), Psk("alice")], &[Key("gw2"), Psk("bob")]],
        ],
    );
}

#[test]
#[ignore = "make test-all: the other peer"]
fn two_gateways_prove_two_identities() {
    every_combination("roundsown", Kind::Testudo, Side::One, WE_BEGIN);
}

/// One side requires a second round that the other does not have: there is no tunnel, whichever
/// initiates.
#[test]
fn a_round_that_one_side_lacks() {
    let mut pair = Scenario::new("roundless", Kind::Strongswan).impatient().start_empty();
    let plain: [&[Round]; 2] = [&[Psk("gw1")], &[Psk("gw2")]];
    for (one, two) in [
        ([&[Psk("gw1")][..], &[Psk("gw2"), Psk("bob")][..]], plain),
        (plain, [&[Psk("gw1"), Psk("alice")], &[Psk("gw2")]]),
    ] {
        load(&pair, one, two);
        for initiator in [Side::One, Side::Two] {
            assert!(pair.swanctl(initiator).initiate("lab", UP_LIMIT).is_err(), "{initiator:?}");
            for side in [Side::One, Side::Two] {
                pair.await_sas(side, 0, SOON);
            }
        }
    }
    pair.await_log("gw2.lab.example announces no other authentication");
}
