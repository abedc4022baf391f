//! Seeds of the IKE targets: messages of strongSwan, and of an honest peer in every phase.

use super::{Seed, chunk};
use crate::ike::{Phase, chain};
use std::collections::BTreeMap;
use testudo_crypto::{AeadAlgorithm, AeadKey, Library};

/// Negotiations between two strongSwan daemons, with their keys.
const CAPTURES: [(&str, AeadAlgorithm, &str); 2] = [
    (
        "x25519",
        AeadAlgorithm::Aes128Gcm,
        include_str!("../../../../crates/ike/tests/fixtures/strongswan_x25519.txt"),
    ),
    (
        "ecp256",
        AeadAlgorithm::Aes256Gcm,
        include_str!("../../../../crates/ike/tests/fixtures/strongswan_ecp256.txt"),
    ),
];
const IN_CLEAR: [&str; 2] = ["ike_sa_init_request", "ike_sa_init_response"];
const SEALED: [(&str, &str); 4] = [
    ("ike_auth_request", "sk_ei"),
    ("ike_auth_response", "sk_er"),
    ("informational_request", "sk_ei"),
    ("informational_response", "sk_er"),
];

fn fields(text: &'static str) -> BTreeMap<&'static str, Vec<u8>> {
    let lines = text.lines().filter_map(|line| line.split_once(" = "));
    let octet = |pair: &[u8]| u8::from_str_radix(&String::from_utf8_lossy(pair), 16).expect("an octet");
    lines.map(|(name, hex)| (name, hex.as_bytes().chunks(2).map(octet).collect())).collect()
}

/// Type of the first payload, and the payloads, of a sealed message.
fn opened(message: &[u8], algorithm: AeadAlgorithm, material: &[u8]) -> Vec<u8> {
    let (key, salt) = material.split_last_chunk::<4>().expect("key and salt");
    let key = AeadKey::new(Library::AwsLc, algorithm, key, *salt).expect("a key");
    let (aad, body) = message.split_at(32);
    let (iv, body) = body.split_first_chunk::<8>().expect("an IV");
    let (text, tag) = body.split_last_chunk::<16>().expect("a tag");
    let mut text = text.to_vec();
    assert!(key.open(*iv, aad, &mut text, tag), "a captured message opens");
    let padding = text.pop().expect("a pad length");
    text.truncate(text.len() - usize::from(padding));
    [&[aad[28]], &text[..]].concat()
}

/// Messages in clear, then the contents of sealed ones.
fn captured() -> Vec<Seed> {
    let mut seeds = Vec::new();
    for (capture, algorithm, text) in CAPTURES {
        let fields = fields(text);
        seeds.extend(IN_CLEAR.map(|name| (format!("{capture}-{name}"), fields[name].clone())));
        seeds.extend(SEALED.map(|(name, key)| {
            (format!("{capture}-{name}"), opened(&fields[name], algorithm, &fields[key]))
        }));
    }
    seeds
}

/// Payloads by type and body.
type List = Vec<(u8, &'static [u8])>;

/// A datagram, or a type and content.
pub(super) fn message() -> Vec<Seed> {
    // An IPv4 range with ports, OPAQUE ports, an unknown type; then reversed ports.
    let selectors = b"\x03\0\0\0\x07\x06\0\x10\0\x50\0\x51\x0a\0\0\0\x0a\0\0\x09\
        \x07\0\0\x10\xff\xff\0\0\0\0\0\0\xff\xff\xff\xff\x09\0\0\x08\0\0\0\0";
    let reversed = b"\x01\0\0\0\x07\x06\0\x10\0\x51\0\x50\x0a\0\0\0\x0a\0\0\x09";
    let payloads: [(&str, List); 5] = [
        ("selectors", vec![(44, selectors), (45, selectors)]),
        ("reversed", vec![(44, reversed)]),
        ("deletes", vec![(42, &[3, 4, 0, 1, 0, 0, 1, 0]), (42, &[2, 4, 0, 0]), (42, &[1, 0, 0, 0])]),
        ("notifies", vec![(41, &[0, 0, 0, 17, 0, 19]), (41, &[3, 4, 0x40, 9, 0, 0, 1, 0]), (43, b"vendor")]),
        ("others", vec![(35, &[5, 0, 0, 0, 1]), (37, &[4, 1]), (47, &[1, 0, 0, 0]), (200, &[])]),
    ];
    let written = payloads.map(|(name, payloads)| {
        let (first, octets) = chain(&payloads);
        (name.to_owned(), [&[first], &octets[..]].concat())
    });
    captured().into_iter().chain(written).collect()
}

/// The next message of the honest peer, unchanged.
const HONEST: [u8; 2] = [1, 0];
/// Twenty seconds pass.
const WAIT: [u8; 3] = [5, 3, 0xe8];
const REPEAT: [u8; 1] = [7];
/// INFORMATIONAL and CREATE_CHILD_SA, as requests.
const INFORMATIONAL: [u8; 2] = [3, 0];
const CREATE_CHILD: [u8; 2] = [2, 0];

/// An honest message with one edit.
fn edited(offset: u16, removed: u8, inserted: &[u8]) -> Vec<u8> {
    [&[1, 1][..], &offset.to_be_bytes(), &[removed], &chunk(inserted)].concat()
}

/// `phase:8 | steps`.
pub(super) fn endpoint() -> Vec<Seed> {
    let mut seeds: Vec<Seed> = Vec::new();
    for (number, phase) in Phase::ALL.into_iter().enumerate() {
        let mut from = |name: &str, number: usize, steps: &[&[u8]]| {
            seeds.push((
                format!("{phase:?}-{name}").to_lowercase(),
                [&[number as u8], &steps.concat()[..]].concat(),
            ));
        };
        let on: [&[u8]; 6] = [&HONEST, &REPEAT, &HONEST, &HONEST, &WAIT, &HONEST];
        from("honest", number, &on);
        from("nat", number + Phase::ALL.len(), &on);
        // From another port: a NAT has changed its mapping.
        from("moved", number + Phase::ALL.len(), &[&HONEST, &HONEST, &[0x81, 0, 0], &HONEST]);
        from("silent", number, &[&WAIT.repeat(12)]);
        from("edited", number, &[&edited(40, 1, &[9]), &HONEST, &edited(9, 4, &[]), &HONEST]);
        let verbs: Vec<u8> = (0..8).flat_map(|verb| [6 | verb << 3, 1, 0]).collect();
        from("operator", number, &[&verbs]);
    }
    let deletes: &[(u8, &[u8])] = &[(42, &[3, 4, 0, 1, 0x50, 0x50, 1, 0]), (41, &[0, 0, 0x40, 0])];
    let listed = |payloads: &[(u8, &[u8])]| -> Vec<u8> {
        let each = payloads.iter().flat_map(|(kind, body)| [&[*kind][..], &chunk(body)].concat());
        each.chain([0]).collect()
    };
    // A peer without the key can send no more than this.
    let selector: &[u8] = &[1, 0, 0, 0, 7, 0, 0, 16, 0, 0, 255, 255, 10, 2, 0, 0, 10, 2, 255, 255];
    for (name, phase, response, id) in [("initiator", 1, 0, 35), ("responder", 4, 1, 36)] {
        let forged: &[(u8, &[u8])] = &[
            (id, b"\x02\0\0\0sun"),
            (39, &[2, 0, 0, 0, 1, 2, 3, 4]),
            (
                33,
                &[
                    0, 0, 0, 32, 1, 3, 4, 2, 9, 9, 9, 9, 3, 0, 0, 12, 1, 0, 0, 20, 128, 14, 0, 128, 0, 0, 0,
                    8, 5, 0, 0, 1,
                ],
            ),
            (44, selector),
            (45, selector),
        ];
        seeds.push((format!("forged-{name}"), [&[phase, 3, 1, response][..], &listed(forged)].concat()));
    }
    let up = Phase::ALL.iter().position(|phase| *phase == Phase::ResponderUp).expect("a phase") as u8;
    let mut more = |name: &str, steps: &[&[u8]]| {
        seeds.push((name.to_owned(), [&[up], &steps.concat()[..]].concat()));
    };
    more("delete-child", &[&[3], &INFORMATIONAL, &listed(deletes), &REPEAT]);
    more("delete-ike", &[&[3], &INFORMATIONAL, &listed(&[(42, &[1, 0, 0, 0])]), &REPEAT]);
    more("critical", &[&[4], &INFORMATIONAL, &[200, 0], &chunk(&[0, 0x80, 0, 4])]);
    more("malformed", &[&[4], &INFORMATIONAL, &[33, 3], &chunk(&[0, 0, 0, 9, 1, 0, 0, 0])]);
    more("no-such-spi", &[&[2], &[3, 1], &listed(&[(41, &[0, 0, 0, 4])])]);
    for (name, octets) in captured() {
        if octets.first() == Some(&0x10) || octets.len() > 28 && octets[17] == 0x20 {
            seeds.push((name, [&[0, 0][..], &chunk(&octets)].concat()));
        } else {
            let (first, content) = octets.split_first().expect("a type");
            let sealed = [&[up, 4][..], &CREATE_CHILD, &[*first, 0], &chunk(content)].concat();
            seeds.push((name, sealed));
        }
    }
    // Many strangers initiate: cookies are required.
    let (_, _, text) = CAPTURES[0];
    let init = &fields(text)["ike_sa_init_request"];
    let flood: Vec<u8> = (2..10)
        .flat_map(|number| {
            let mut init = init.clone();
            init[0] = number;
            [&[0x80, number], &chunk(&init)[..]].concat()
        })
        .collect();
    seeds.push(("flood".to_owned(), [&[0][..], &flood, &HONEST, &HONEST, &HONEST].concat()));
    seeds
}

/// Steps of two endpoints that communicate.
pub(super) fn conversation() -> Vec<Seed> {
    const NEXT: [u8; 1] = [0];
    const DROP: [u8; 2] = [2, 0];
    const DOUBLE: [u8; 2] = [3, 0];
    const LAST_FIRST: [u8; 2] = [1, 1];
    let operator = |side: u8, what: u8| [7 | what << 3 | side << 7];
    let wait = |seconds: u16| [&[6][..], &(seconds * 50).to_be_bytes()].concat();
    // IKE_SA_INIT, IKE_INTERMEDIATE and IKE_AUTH.
    let up = [&operator(0, 0)[..], &NEXT.repeat(6)].concat();
    let all = NEXT.repeat(12);
    let (child, ike, reauth) = (2, 4, 5);
    let settle = [&NEXT.repeat(40)[..], &wait(12), &NEXT.repeat(8)].concat();
    let both = |what: u8| [operator(0, what), operator(1, what)].concat();
    let crossed = [&LAST_FIRST[..], &DOUBLE, &NEXT, &DROP].concat().repeat(6);
    let shared: [(&str, &[&[u8]]); 12] = [
        ("up", &[&up]),
        ("two-children", &[&up, &operator(0, 1), &all]),
        ("both-initiate", &[&operator(0, 0), &operator(1, 0), &all]),
        ("rekey-child", &[&up, &operator(0, child), &all, &operator(1, child), &all]),
        ("rekey-ike", &[&up, &operator(0, ike), &all, &operator(1, ike), &all]),
        ("children-at-once", &[&up, &both(child), &all]),
        ("ikes-at-once", &[&up, &both(ike), &all]),
        ("ikes-at-once-crossed", &[&up, &both(ike), &crossed, &wait(60), &all]),
        ("children-at-once-crossed", &[&up, &both(child), &crossed, &wait(60), &all]),
        ("child-against-ike", &[&up, &operator(0, child), &operator(1, ike), &LAST_FIRST, &all]),
        ("rekey-against-delete", &[&up, &operator(0, child), &operator(1, 6), &LAST_FIRST, &all]),
        ("lost", &[&up, &both(child), &DROP.repeat(4), &wait(30), &DROP, &wait(200), &all]),
    ];
    let certified: [(&str, &[&[u8]]); 7] = [
        ("certified-up", &[&up]),
        ("certified-reauth", &[&up, &operator(0, reauth), &settle, &operator(1, reauth), &settle, &settle]),
        ("certified-reauth-at-once", &[&up, &both(reauth), &settle, &settle]),
        ("certified-begun-by-the-other", &[&operator(1, 0), &all, &both(reauth), &settle, &settle]),
        ("certified-rekey", &[&up, &operator(0, ike), &all, &operator(1, child), &all]),
        ("certified-reauth-crossed", &[&up, &both(reauth), &crossed, &crossed, &wait(60), &all]),
        ("certified-lost", &[&up, &operator(0, reauth), &DROP, &wait(5), &NEXT, &DROP, &wait(60), &all]),
    ];
    let seed = |kind: u8| {
        move |(name, steps): (&str, &[&[u8]])| (name.to_owned(), [&[kind], &steps.concat()[..]].concat())
    };
    shared.into_iter().map(seed(0)).chain(certified.into_iter().map(seed(1))).collect()
}
