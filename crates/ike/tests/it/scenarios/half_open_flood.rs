//! Hosts without any right to a tunnel return their cookies, and leave IKE SAs half open, as many
//! as they can.

use crate::scenarios::common::peer::{self, Peer};
use crate::scenarios::common::{Random, Weather, World};
use crate::scenarios::strangers;
use testudo_ike::endpoint::{Discard, EndpointConfig};
use testudo_ike::message::{ExchangeType, Message, NotifyType, Payload};

const LIMIT: usize = 40;

/// Sun with little room. Anybody may come; with `fixed`, moon's address is configured too.
fn small(fixed: bool) -> World {
    let config = EndpointConfig {
        cookie_threshold: 4,
        source_half_open_limit: 4,
        network_half_open_limit: 8,
        half_open_limit: LIMIT,
        ..EndpointConfig::default()
    };
    let mut world = World::pair_of(["192.0.2.1", "192.0.2.2"], 1, Weather::FAIR, config, |_, connection| {
        connection.remote_addrs = vec![];
    });
    world.hosts.remove(0);
    world.restore = false;
    if fixed {
        let mut moon = crate::scenarios::common::connection(("192.0.2.2", "sun"), ("192.0.2.1", "moon"));
        moon.name = "moon".into();
        let now = world.now;
        world.hosts[0].load(now, moon);
    }
    world
}

/// Begins a handshake from that address, with a cookie if one is demanded. True if it was answered.
fn begin(world: &mut World, seed: u64, from: &str) -> bool {
    let mut random = Random::new(seed);
    let (mut payloads, _, _) = peer::init_payloads(&mut random);
    let header = peer::init_header(&mut random);
    let path = strangers::from(from);
    let mut request = |payloads| {
        let bytes = peer::message(header, payloads).finish().unwrap();
        peer::exchange(world, path, &bytes).first().cloned()
    };
    let Some(answer) = request(payloads.clone()) else { return false };
    let answer = Message::parse(&answer).unwrap();
    let Some(cookie) = answer.payloads.notify(NotifyType::Cookie) else {
        return answer.payloads.sa().is_some();
    };
    payloads.insert(0, Payload::Notify(cookie.clone()));
    request(payloads).is_some_and(|answer| Message::parse(&answer).unwrap().payloads.sa().is_some())
}

fn establish(world: &mut World, mut peer: Peer) {
    let payloads = peer.auth_payloads();
    let answer = peer.request(world, ExchangeType::IkeAuth, payloads).expect("an answer");
    assert!(answer.iter().any(|payload| matches!(payload, Payload::Sa(_))), "{answer:?}");
}

/// The flood comes from as many networks as there are places, and does not end while the peer's
/// handshake continues.
#[test]
fn a_peer_gets_through_from_anywhere() {
    for fixed in [false, true] {
        let mut world = small(fixed);
        let flood = |world: &mut World, sites: std::ops::Range<u64>| {
            for site in sites {
                assert!(begin(world, site, &format!("[2001:db8:{site:x}::1]:500")), "site {site}");
                assert!(world.hosts[0].endpoint.half_open() <= LIMIT);
            }
        };
        flood(&mut world, 1..100);
        let peer = Peer::init(&mut world, 100_000, vec![]);
        flood(&mut world, 100..110);
        establish(&mut world, peer);
        let stats = world.hosts[0].endpoint.stats();
        assert!(stats.discarded(Discard::HalfOpenEvicted) > 0);
        assert!(world.hosts[0].warned("for a newcomer: 30 are half open"), "{:#?}", world.hosts[0].log());
        assert_eq!(stats.discarded(Discard::HalfOpenLimit), 0);
        world.hosts[0].sent.clear();
        world.run_secs(31);
        assert_eq!((world.hosts[0].endpoint.half_open(), world.hosts[0].sas().len()), (0, 1));
    }
}

/// A peer that a connection names is accepted and stays, however long the flood lasts.
#[test]
fn half_open_sas_of_strangers_never_displace_configured_peers() {
    let mut world = small(true);
    for site in 1..100 {
        assert!(begin(&mut world, site, &format!("[2001:db8:{site:x}::1]:500")));
    }
    let peer = Peer::init(&mut world, 100_000, vec![]);
    for site in 100..400 {
        assert!(begin(&mut world, site, &format!("[2001:db8:{site:x}::1]:500")));
    }
    establish(&mut world, peer);
}

/// While there is room a network is served, however many peers it has (carrier NAT). It may use all
/// of the room; then it is refused, and a peer from elsewhere replaces its oldest.
#[test]
fn neighbouring_prefixes_are_one_network() {
    let mut world = small(false);
    let admitted = |world: &mut World, nets: &mut dyn Iterator<Item = u64>| {
        nets.filter(|net| begin(world, 1 + net, &format!("[2001:db8:0:{net:x}::1]:500"))).count()
    };
    let (forgeable, of_strangers) = (4, LIMIT - LIMIT / 4);
    assert_eq!(admitted(&mut world, &mut (0..100)), forgeable + 4, "the /64s of one /56");
    let sites = admitted(&mut world, &mut (1..100).map(|net| net << 8));
    assert_eq!(forgeable + 4 + sites, of_strangers, "the /56s of one /48");
    assert_eq!(world.hosts[0].endpoint.half_open(), of_strangers);
    let discarded = |world: &World, what| world.hosts[0].endpoint.stats().discarded(what);
    assert!(discarded(&world, Discard::SourceLimit) > 0);
    assert!(world.hosts[0].warned(": 8 IKE SAs are half open"), "{:#?}", world.hosts[0].log());
    assert_eq!(discarded(&world, Discard::HalfOpenEvicted), 0);
    for site in 1..20 {
        assert!(begin(&mut world, 100_000 + site, &format!("[2001:db8:{site:x}::1]:500")));
        assert_eq!(discarded(&world, Discard::HalfOpenEvicted), site);
    }
    assert_eq!(
        admitted(&mut world, &mut (100..150).map(|net| net << 8)),
        0,
        "it still has more than its part"
    );
    assert_eq!(discarded(&world, Discard::HalfOpenEvicted), 19);
    let peer = Peer::init(&mut world, 200_000, vec![]);
    establish(&mut world, peer);
}

/// A peer that does not go on fails a tunnel if a connection names it, else it may be a scanner.
/// Scanners do not suppress the line about a peer.
#[test]
fn a_peer_that_does_not_authenticate_is_reported() {
    let line = |addr: &str| format!("deleted a half open IKE_SA: no valid IKE_AUTH came from {addr}:500");
    for named in [false, true] {
        let mut world = small(named);
        assert!(begin(&mut world, 1, "198.51.100.1:500"));
        assert!(begin(&mut world, 2, "192.0.2.1:500"));
        world.run_secs(31);
        let host = &world.hosts[0];
        assert!(host.logged(&line("198.51.100.1")) && !host.warned(&line("198.51.100.1")), "{named}");
        assert_eq!(host.warned(&line("192.0.2.1")), named, "{:#?}", host.log());
        assert_eq!(host.endpoint.stats().discarded(Discard::HalfOpenExpired), 2);
    }
}
