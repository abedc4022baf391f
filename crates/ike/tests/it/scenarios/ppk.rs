//! Post-quantum pre-shared keys (RFC 8784): which side uses one, does without, or refuses.

use crate::pki::cert;
use crate::scenarios::certificates_hostile::{hashes, said, sun_by_certificate};
use crate::scenarios::common::build::{fqdn, ike_proposal, ppk};
use crate::scenarios::common::peer::{Peer, only_notify, status};
use crate::scenarios::common::responder::Responder;
use crate::scenarios::common::wire::{assert_ivs_never_repeat, sent};
use crate::scenarios::common::{Weather, World};
use testudo_ike::cert::Hashes;
use testudo_ike::config::KeyExchange::{MlKem768, X25519};
use testudo_ike::config::{Connection, PpkPolicy, Prf};
use testudo_ike::endpoint::InitiateError;
use testudo_ike::message::{AuthPayload, ExchangeType, Message, Notify, NotifyType, Payload};
use testudo_ike::output::{Event, Reason};
use testudo_ike::suite::SuiteError;

/// The settings of a host: `ppk_id`, `ppk_required`, and whether the PPK of that name is loaded.
#[derive(Clone, Copy, Debug)]
struct Side {
    id: Option<&'static str>,
    required: bool,
    loaded: bool,
}

const NOTHING: Side = Side { id: None, required: false, loaded: false };
const OPTIONAL: Side = Side { id: Some("quantum"), required: false, loaded: true };
const REQUIRED: Side = Side { required: true, ..OPTIONAL };
/// Knows of PPKs, but has another.
const OTHER: Side = Side { id: None, required: false, loaded: false };

/// `other`: hosts that have the PPK of another name.
fn pair(seed: u64, weather: Weather, sides: [Side; 2], other: [bool; 2]) -> World {
    let mut world = World::pair_with(seed, weather, |index, connection| {
        let Side { id, required, .. } = sides[index];
        connection.ppk = PpkPolicy { id: id.map(fqdn), required };
    });
    for index in 0..2 {
        if sides[index].loaded {
            world.hosts[index].load_secret(ppk("quantum", b"32 octets that no curve protects", &["quantum"]));
        }
        if other[index] {
            world.hosts[index].load_secret(ppk("other", b"another", &["other"]));
        }
    }
    world
}

/// Both hosts have a tunnel, with or without a PPK.
fn assert_up(world: &World, with_ppk: bool) {
    world.assert_tunnel();
    for host in &world.hosts {
        assert_eq!(host.sas()[0].ppk, with_ppk, "{:?}", host.log());
    }
}

/// The initiator's log about its PPK.
fn important(world: &World) -> Vec<&str> {
    important_of(world, 0)
}

fn important_of(world: &World, host: usize) -> Vec<&str> {
    let lines = world.hosts[host].events.iter().filter_map(|event| match event {
        Event::Log { level, message, .. } if level.charon() == 0 && message.contains("PPK") => {
            Some(message.as_str())
        }
        _ => None,
    });
    lines.collect()
}

/// A tunnel that was meant to have a PPK and has none must not look like any other.
#[test]
fn an_initiator_says_why_its_tunnel_has_no_ppk() {
    let not_loaded = Side { loaded: false, ..OPTIONAL };
    for (sides, other, why) in [
        ([not_loaded, OPTIONAL], [false; 2], "no PPK of that name is loaded"),
        ([OPTIONAL, NOTHING], [false; 2], "the peer has no PPK to use"),
        ([OPTIONAL, OTHER], [false, true], "the peer does not use it"),
    ] {
        let mut world = pair(3, Weather::FAIR, sides, other);
        world.initiate(0);
        world.run_secs(5);
        assert_up(&world, false);
        assert_eq!(important(&world), [format!("going on without PPK 'quantum': {why}")]);
    }
}

/// Nor that of a responder.
#[test]
fn a_responder_says_why_its_tunnel_has_no_ppk() {
    let not_loaded = Side { loaded: false, ..OPTIONAL };
    for (sides, why) in [
        ([NOTHING, OPTIONAL], Some("the peer has no PPK to use")),
        ([OPTIONAL, not_loaded], Some("no PPK of that name is loaded")),
        ([NOTHING, NOTHING], None),
        ([OPTIONAL, OPTIONAL], None),
    ] {
        let mut world = pair(4, Weather::FAIR, sides, [false; 2]);
        world.initiate(0);
        world.run_secs(5);
        world.assert_tunnel();
        let expected: Vec<String> =
            why.map(|why| format!("going on without PPK 'quantum': {why}")).into_iter().collect();
        assert_eq!(important_of(&world, 1), expected);
    }
}

/// RFC 8784 §3, table 1, from both sides: what each has, and whether there is a tunnel, and with a
/// PPK.
#[test]
fn the_use_of_a_ppk_for_each_combination() {
    let unknown = [false, true];
    for (sides, other, expected) in [
        ([NOTHING, NOTHING], [false; 2], Some(false)),
        ([OPTIONAL, OPTIONAL], [false; 2], Some(true)),
        ([REQUIRED, REQUIRED], [false; 2], Some(true)),
        ([OPTIONAL, REQUIRED], [false; 2], Some(true)),
        ([REQUIRED, OPTIONAL], [false; 2], Some(true)),
        // The responder has the PPK, but its connection names none: any will do.
        ([REQUIRED, Side { id: None, ..OPTIONAL }], [false; 2], Some(true)),
        ([OPTIONAL, Side { id: None, ..REQUIRED }], [false; 2], Some(true)),
        // Only one side knows of PPKs.
        ([OPTIONAL, NOTHING], [false; 2], Some(false)),
        ([NOTHING, OPTIONAL], [false; 2], Some(false)),
        ([REQUIRED, NOTHING], [false; 2], None),
        ([NOTHING, REQUIRED], [false; 2], None),
        // The responder has another PPK.
        ([OPTIONAL, OTHER], unknown, Some(false)),
        ([REQUIRED, OTHER], unknown, None),
        ([OPTIONAL, Side { required: true, ..OTHER }], unknown, None),
        // It has this one, too, but the connection demands the other.
        ([OPTIONAL, Side { id: Some("other"), ..OPTIONAL }], unknown, Some(false)),
        ([OPTIONAL, Side { id: Some("other"), ..REQUIRED }], unknown, None),
    ] {
        let mut world = pair(1, Weather::FAIR, sides, other);
        world.initiate(0);
        world.run_secs(5);
        match expected {
            Some(with_ppk) => {
                assert_up(&world, with_ppk);
                let named = sides[0].id.is_some();
                assert_eq!(important(&world).len(), usize::from(named && !with_ppk), "{sides:?} {other:?}");
            }
            None => {
                assert!(world.hosts.iter().all(|host| host.installed.is_empty()), "{sides:?} {other:?}");
                assert!(world.hosts[0].results()[0].is_err(), "{sides:?} {other:?}");
                world.run_secs(60);
                world.assert_nothing_left();
            }
        }
    }
}

#[test]
fn ppks_that_differ_are_no_tunnel() {
    for required in [false, true] {
        let side = Side { required, ..OPTIONAL };
        let mut world = pair(2, Weather::FAIR, [side; 2], [false; 2]);
        world.hosts[1].load_secret(ppk("quantum", b"32 octets that no curve protectz", &["quantum"]));
        world.initiate(0);
        world.run_secs(60);
        assert!(world.hosts[1].logged("moon does not hold our shared key"), "{:?}", world.hosts[1].log());
        world.assert_nothing_left();
    }
}

#[test]
fn every_prf_and_foul_weather() {
    for (seed, prf) in
        (0..40).zip([Prf::HmacSha256, Prf::HmacSha384, Prf::HmacSha512, Prf::AesXcbc].iter().cycle())
    {
        let mut world = World::pair_with(seed, Weather { loss: 10, ..Weather::FOUL }, |_, connection| {
            let mut proposal = ike_proposal(&[X25519]);
            proposal.prf = vec![*prf];
            if seed % 2 == 0 {
                proposal.additional[0] = vec![Some(MlKem768)];
            }
            connection.proposals = vec![proposal];
            connection.ppk = PpkPolicy { id: Some(fqdn("quantum")), required: true };
            connection.keyingtries = 0;
        });
        for host in &mut world.hosts {
            host.load_secret(ppk("quantum", b"a PPK", &["quantum"]));
        }
        world.initiate(0);
        world.run_secs(300);
        world.network.weather = Weather::FAIR;
        world.run_secs(100);
        world.initiate(0);
        world.run_secs(30);
        assert!(!world.hosts[0].installed.is_empty(), "seed {seed}: {:#?}", world.hosts[0].log());
        assert!(world.hosts[0].sas().iter().all(|sa| sa.ppk || sa.established.is_none()));
        assert_ivs_never_repeat(&world);
    }
}

#[test]
fn another_node_goes_on_between_any_two_events() {
    let begin = |seed| {
        let mut world = pair(seed, Weather::FAIR, [OPTIONAL, REQUIRED], [false; 2]);
        world.initiate(0);
        world
    };
    World::taken_over_at_each(14, begin, |world| assert_up(world, true));
}

#[test]
fn the_notifies_of_a_ppk_exchange() {
    let mut world = pair(3, Weather::FAIR, [OPTIONAL; 2], [false; 2]);
    world.initiate(0);
    world.run_secs(1);
    assert_up(&world, true);
    for (host, response) in [(0, false), (1, true)] {
        let init = sent(&world, host, ExchangeType::IkeSaInit, response)[0];
        let notify = Message::parse(init).unwrap().payloads.notify(NotifyType::UsePpk).cloned();
        assert_eq!(notify, Some(Notify::new(NotifyType::UsePpk, vec![])));
        assert!(world.hosts[host].logged("using PPK for PPK_ID 'quantum'"), "{:?}", world.hosts[host].log());
        assert!(!world.hosts[host].log().concat().contains("no curve protects"), "no secret in a log");
    }
    // A side without a usable PPK announces nothing.
    let mut world = pair(3, Weather::FAIR, [Side { loaded: false, ..OPTIONAL }, NOTHING], [false; 2]);
    world.initiate(0);
    world.run_secs(1);
    assert_up(&world, false);
    let init = sent(&world, 0, ExchangeType::IkeSaInit, false)[0];
    assert!(Message::parse(init).unwrap().payloads.notify(NotifyType::UsePpk).is_none());
}

#[test]
fn a_required_ppk_that_is_missing_prevents_initiation() {
    for side in [Side { loaded: false, ..REQUIRED }, Side { id: None, ..REQUIRED }] {
        let mut world = pair(4, Weather::FAIR, [side, OPTIONAL], [false; 2]);
        let now = world.now;
        let refused = world.hosts[0].endpoint.initiate(now, Some("site"), "net");
        assert_eq!(refused, Err(InitiateError::NoPpk("site".into())));
    }
}

/// Somebody on the way takes USE_PPK out of the answer: the true one may still come; without it the
/// attempt ends.
#[test]
fn an_answer_without_use_ppk_is_not_taken_where_one_is_required() {
    let mut world = pair(5, Weather::FAIR, [REQUIRED, NOTHING], [false; 2]);
    world.initiate(0);
    world.run_secs(1);
    assert!(
        world.hosts[0].logged("PPK is required, but the peer has none to use"),
        "{:?}",
        world.hosts[0].log()
    );
    assert!(sent(&world, 0, ExchangeType::IkeAuth, false).is_empty());
    world.run_secs(10);
    let results = world.hosts[0].results();
    let [Err(Reason::Notify(text))] = &results[..] else { panic!("a failure, not {results:?}") };
    assert!(text.contains("PPK is required"), "{text}");
}

/// Sun with the PPK, and a moon that speaks of PPKs.
fn sun(side: Side) -> (World, Peer) {
    let mut world = pair(6, Weather::FAIR, [NOTHING, side], [false; 2]);
    world.hosts.swap(0, 1);
    let peer = Peer::init(&mut world, 6, vec![status(NotifyType::UsePpk)]);
    (world, peer)
}

fn named(kind: u8, id: &[u8]) -> Payload {
    Payload::Notify(Notify::new(NotifyType::PpkIdentity, [&[kind], id].concat()))
}

#[test]
fn a_peer_that_spoke_of_a_ppk_must_name_one_that_is_understood() {
    for (extra, why) in [
        (vec![], "the peer has a PPK, but names none"),
        (vec![named(1, b"quantum")], "by an identity of unknown type"),
        (
            vec![Payload::Notify(Notify::new(NotifyType::PpkIdentity, vec![]))],
            "by an identity of unknown type",
        ),
        (
            vec![named(2, b"unheard-of")],
            "no PPK for 'unheard-of' is loaded and allowed, and the peer requires one",
        ),
    ] {
        let (mut world, mut peer) = sun(OPTIONAL);
        let mut payloads = peer.auth_payloads();
        payloads.extend(extra);
        let answer = peer.request(&mut world, ExchangeType::IkeAuth, payloads);
        assert_eq!(only_notify(answer), NotifyType::AuthenticationFailed, "{why}");
        assert!(world.hosts[0].logged(why), "{why}: {:?}", world.hosts[0].log());
    }
}

/// RFC 8784 §3: the data of NO_PPK_AUTH is AUTH without the PPK, and must be right, too.
#[test]
fn auth_without_the_ppk_is_verified() {
    let auth_of = |payloads: &[Payload]| -> AuthPayload {
        payloads
            .iter()
            .find_map(|p| if let Payload::Auth(auth) = p { Some(auth.clone()) } else { None })
            .unwrap()
    };
    for (forged, accepted) in [(false, true), (true, false)] {
        let (mut world, mut peer) = sun(OPTIONAL);
        let mut payloads = peer.auth_payloads();
        let mut without = auth_of(&payloads);
        without.data[0] ^= u8::from(forged);
        payloads.push(named(2, b"unheard-of"));
        payloads.push(Payload::Notify(Notify::new(NotifyType::NoPpkAuth, without.data)));
        let answer = peer.request(&mut world, ExchangeType::IkeAuth, payloads).unwrap();
        assert_eq!(world.hosts[0].installed.len(), usize::from(accepted), "{:?}", world.hosts[0].log());
        let identity =
            answer.iter().any(|p| matches!(p, Payload::Notify(n) if n.kind == NotifyType::PpkIdentity));
        assert!(!identity, "no PPK is used");
    }
    // If the PPK is known, only AUTH with it counts: NO_PPK_AUTH cannot bypass it.
    let (mut world, mut peer) = sun(OPTIONAL);
    let mut payloads = peer.auth_payloads();
    let without = auth_of(&payloads);
    payloads.push(named(2, b"quantum"));
    payloads.push(Payload::Notify(Notify::new(NotifyType::NoPpkAuth, without.data)));
    let answer = peer.request(&mut world, ExchangeType::IkeAuth, payloads);
    assert_eq!(only_notify(answer), NotifyType::AuthenticationFailed);
}

/// A peer that computes as we do, with the PPK; `suite_keys` has the formulas.
#[test]
fn a_peer_with_the_ppk_is_told_that_it_is_used() -> Result<(), SuiteError> {
    let (mut world, mut peer) = sun(REQUIRED);
    peer.keys = peer.keys.with_ppk(b"32 octets that no curve protects")?;
    let mut payloads = peer.auth_payloads();
    payloads.push(named(2, b"quantum"));
    let answer = peer.request(&mut world, ExchangeType::IkeAuth, payloads).unwrap();
    let identity = answer.iter().find_map(|p| match p {
        Payload::Notify(n) if n.kind == NotifyType::PpkIdentity => Some(n.data.clone()),
        _ => None,
    });
    assert_eq!(identity, Some(vec![]), "{answer:?}");
    assert_eq!(world.hosts[0].installed.len(), 1);
    Ok(())
}

/// RFC 8784 §3: the responder may go on without the PPK if it is sent AUTH without it.
#[test]
fn an_initiator_that_requires_its_ppk_sends_no_auth_without_it() {
    for (side, optional) in [(OPTIONAL, true), (REQUIRED, false)] {
        let mut world = pair(7, Weather::FAIR, [side, NOTHING], [false; 2]);
        world.hosts.remove(1);
        let sun = Responder::answer_init_saying(&mut world, vec![status(NotifyType::UsePpk)]);
        let has = |kind| sun.auth.iter().any(|p| matches!(p, Payload::Notify(notify) if notify.kind == kind));
        assert!(has(NotifyType::PpkIdentity));
        assert_eq!(has(NotifyType::NoPpkAuth), optional);
    }
}

/// A signature that one connection has verified without a PPK is no proof for another that requires
/// the PPK, although its key and its octets are the same.
#[test]
fn a_signature_without_the_ppk_is_no_proof_where_the_ppk_is_required() {
    let mut world = sun_by_certificate();
    world.hosts[0].load_secret(ppk("quantum", b"32 octets that no curve protects", &["quantum"]));
    let mut site = world.hosts[0].endpoint.connections().next().unwrap().clone();
    // This one goes without, and trusts another CA.
    let mut other = Connection { name: "a-first".into(), ..site.clone() };
    other.ppk.id = Some(fqdn("other"));
    other.remote.cacerts = vec![cert("other")];
    site.ppk = PpkPolicy { id: Some(fqdn("quantum")), required: true };
    let now = world.now;
    world.hosts[0].load(now, other);
    world.hosts[0].load(now, site);
    let mut peer = Peer::init(&mut world, 8, vec![hashes(Hashes::ALL), status(NotifyType::UsePpk)]);
    let mut payloads = said(&peer, |payloads, auth| {
        let without = Notify::new(NotifyType::NoPpkAuth, auth.data.clone());
        payloads.push(Payload::Notify(without));
    });
    payloads.push(named(2, b"quantum"));
    let answer = peer.request(&mut world, ExchangeType::IkeAuth, payloads);
    assert_eq!(only_notify(answer), NotifyType::AuthenticationFailed);
    assert!(world.hosts[0].logged("is not trusted here"), "{:#?}", world.hosts[0].log());
}
