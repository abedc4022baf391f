//! A peer whose messages come from forged addresses: it gets no other host's traffic by them, and
//! sends none to others.

use crate::scenarios::common::build::{child, esp_proposal, fqdn, range, secret, ts};
use crate::scenarios::common::network::Nat;
use crate::scenarios::common::peer::{self, Peer, only_notify};
use crate::scenarios::common::{Weather, World};
use testudo_base::spi::Spi;
use testudo_ike::config::{Connection, TsSpec};
use testudo_ike::endpoint::{Discard, EndpointConfig, SnapshotVersion, Target};
use testudo_ike::message::{ExchangeType, Nonce, Notify, NotifyType, Payload, TsPayload};
use testudo_ike::output::Path;
use testudo_ike::suite::offer;
use testudo_ipsec::sa::EspAlgorithm;

/// Where peers of [`Peer::init`] are.
const OWN: &str = "192.0.2.1";
/// Prefixes of another site.
const OTHERS: &str = "10.2.0.53";

fn dynamic() -> Vec<TsSpec> {
    vec![TsSpec::Dynamic { protocol: 0, port_start: 0, port_end: u16::MAX }]
}

/// Host 0 is sun: moon gets its own outer address and nothing else.
fn sun(edit: impl Fn(&mut Connection)) -> World {
    let addrs = [OWN, "192.0.2.2"];
    let mut world = World::pair_of(addrs, 1, Weather::FAIR, EndpointConfig::default(), |_, connection| {
        connection.remote_addrs = vec![];
        connection.children[0].remote_ts = dynamic();
        edit(connection);
    });
    world.hosts.remove(0);
    world
}

/// "I am behind a NAT": a source hash that no address has.
fn lie() -> Vec<Payload> {
    let nowhere = |kind| Payload::Notify(Notify::new(kind, vec![0; 20]));
    vec![nowhere(NotifyType::NatDetectionSourceIp), nowhere(NotifyType::NatDetectionDestinationIp)]
}

fn from(addr: &str) -> Path {
    Path { local: addr.parse().unwrap(), remote: "192.0.2.2:4500".parse().unwrap() }
}

/// IKE_AUTH for a tunnel to that address.
fn auth_for(peer: &mut Peer, addr: &str) -> Vec<u8> {
    let mut payloads = peer.auth_payloads();
    payloads[3] = Payload::TsInitiator(TsPayload::new(vec![ts(addr)]));
    peer.seal(ExchangeType::IkeAuth, payloads)
}

fn has_notify(answer: &[Payload], kind: NotifyType) -> bool {
    answer.iter().any(|payload| matches!(payload, Payload::Notify(notify) if notify.kind == kind))
}

/// The addresses of the one tunnel: what it carries of the peer's side, and where it ends.
fn tunnel(world: &World) -> (String, String) {
    let sas: Vec<_> = world.hosts[0].installed.values().collect();
    let [sa] = sas[..] else { panic!("one tunnel, not {}", sas.len()) };
    let [remote_ts] = sa.remote_ts[..] else { panic!("{:?}", sa.remote_ts) };
    assert_eq!(remote_ts.addrs.start(), remote_ts.addrs.end());
    (remote_ts.addrs.start().to_string(), sa.remote.ip().to_string())
}

#[test]
fn dynamic_is_not_where_ike_auth_says_it_comes_from() {
    let mut world = sun(|_| {});
    let mut peer = Peer::init(&mut world, 61, lie());
    let bytes = auth_for(&mut peer, OTHERS);
    let answers = peer::exchange(&mut world, from("10.2.0.53:4500"), &bytes);
    let answer = peer.open(&answers[0]);
    assert!(has_notify(&answer, NotifyType::TsUnacceptable), "{answer:?}");
    assert!(world.hosts[0].installed.is_empty());

    // A NAT may have several addresses; the one that was answered counts.
    let mut peer = Peer::init(&mut world, 62, lie());
    let bytes = auth_for(&mut peer, OWN);
    peer::exchange(&mut world, from("203.0.113.9:4500"), &bytes);
    assert_eq!(tunnel(&world), (OWN.into(), "203.0.113.9".into()));
}

fn further_child(spi: Spi, addr: &str) -> Vec<Payload> {
    let esp = esp_proposal(EspAlgorithm::Aes128Gcm16);
    vec![
        Payload::Sa(offer::esp(&[esp], spi, offer::ChildExchange::CreateChildSa)),
        Payload::Nonce(Nonce::new(vec![7; 32]).unwrap()),
        Payload::TsInitiator(TsPayload::new(vec![ts(addr)])),
        Payload::TsResponder(TsPayload::new(vec![ts("10.115.0.0-10.115.255.255")])),
    ]
}

/// Not by the request itself, nor by an earlier one, nor after a failover.
#[test]
fn dynamic_stays_where_ike_sa_init_was_answered() {
    let mut world = sun(|_| {});
    let mut peer = Peer::init(&mut world, 63, lie());
    let bytes = auth_for(&mut peer, OWN);
    peer.request_bytes(&mut world, bytes).unwrap();
    let mut spi = Spi(0x3000_0000);
    let mut ask = |world: &mut World, peer: &mut Peer, addr: &str| {
        spi = Spi(spi.0 + 1);
        peer.request(world, ExchangeType::CreateChildSa, further_child(spi, addr))
    };
    peer.path = from("10.2.0.53:4500");
    for _ in 0..2 {
        assert_eq!(only_notify(ask(&mut world, &mut peer, OTHERS)), NotifyType::TsUnacceptable);
        assert_eq!(world.hosts[0].sas()[0].remote.to_string(), "10.2.0.53:4500", "it is followed");
    }
    let now = world.now;
    world.hosts[0].take_over(now);
    assert_eq!(only_notify(ask(&mut world, &mut peer, OTHERS)), NotifyType::TsUnacceptable);
    assert!(ask(&mut world, &mut peer, OWN).unwrap().iter().any(|p| matches!(p, Payload::Sa(_))));
}

/// A state in the form of an older build says nothing of where the peer began: it may have moved,
/// so where it is now proves nothing, and it gets no other address than those that it has.
#[test]
fn dynamic_is_nothing_new_where_it_is_not_known_where_the_peer_began() {
    for version in [SnapshotVersion::V26, SnapshotVersion::V27] {
        let mut world = sun(|_| {});
        let mut peer = Peer::init(&mut world, 69, lie());
        let bytes = auth_for(&mut peer, OWN);
        peer.request_bytes(&mut world, bytes).unwrap();
        peer.path = from("10.2.0.53:4500");
        peer.request(&mut world, ExchangeType::Informational, vec![]).expect("answered");
        let (now, endpoint) = (world.now, &mut world.hosts[0].endpoint);
        let id = endpoint.sas().next().unwrap().id;
        assert_eq!(endpoint.sa(id).unwrap().remote.to_string(), "10.2.0.53:4500", "it is followed");
        endpoint.replication_mut().export_as(version);
        let state = endpoint.export_sa(now, id).unwrap();
        endpoint.replication_mut().export_as(SnapshotVersion::NEWEST);
        endpoint.import_sa(now, &state).unwrap();
        let mut spi = Spi(0x3000_0000);
        let mut ask = |world: &mut World, peer: &mut Peer, addr: &str| {
            spi = Spi(spi.0 + 1);
            peer.request(world, ExchangeType::CreateChildSa, further_child(spi, addr))
        };
        assert_eq!(only_notify(ask(&mut world, &mut peer, OTHERS)), NotifyType::TsUnacceptable);
        // Nor does the newest form, made of that one, say more.
        world.hosts[0].take_over(now);
        assert_eq!(only_notify(ask(&mut world, &mut peer, OTHERS)), NotifyType::TsUnacceptable);
        assert!(ask(&mut world, &mut peer, OWN).unwrap().iter().any(|p| matches!(p, Payload::Sa(_))));
    }
}

/// New keys of the IKE SA do not change what it is.
#[test]
fn a_renewed_ike_sa_knows_where_the_first_one_began() {
    let addrs = ["10.0.0.1", "192.0.2.2"];
    let mut world =
        World::pair_of(addrs, 2, Weather::FAIR, EndpointConfig::default(), |index, connection| {
            let net = &mut connection.children[0];
            if index == 0 {
                *net = child("net", "198.51.100.7-198.51.100.8", "10.115.0.0-10.115.255.255");
            } else {
                connection.remote_addrs = vec![];
                net.remote_ts = dynamic();
            }
        });
    world.network.nat = Some(Nat::new("10.0.0.1", "198.51.100.7"));
    world.initiate(0);
    world.run_secs(1);
    world.network.nat = Some(Nat::new("10.0.0.1", "198.51.100.8"));
    let (now, ike) = (world.now, world.hosts[0].sas()[0].id);
    assert!(world.hosts[0].endpoint.rekey_ike(now, ike));
    world.settle(0);
    world.run_secs(5);
    let sa = world.hosts[0].sas()[0].clone();
    assert!(sa.id > ike, "it is renewed");
    let now = world.now;
    world.hosts[0].endpoint.terminate(now, &Target::Child(sa.children[0].id), false).unwrap();
    world.settle(0);
    world.run_secs(5);
    world.initiate(0);
    world.run_secs(5);
    assert_eq!(world.hosts[1].sas()[0].remote.ip().to_string(), "198.51.100.8");
    let new = world.hosts[1].installed.values().next().expect("a new child");
    assert_eq!(new.remote_ts, vec![ts("198.51.100.7")]);
    world.assert_tunnel();
}

/// Its port may change (RFC 7296 §2.23), as strongSwan's does; its address, or ours, cannot.
#[test]
fn without_a_nat_ike_auth_comes_from_where_ike_sa_init_came_from() {
    let mut world = sun(|_| {});
    let mut peer = Peer::init(&mut world, 64, vec![]);
    let bytes = auth_for(&mut peer, OWN);
    let to_another = Path { remote: "192.0.2.99:4500".parse().unwrap(), ..from("192.0.2.1:4500") };
    for (discarded, path) in (1..).zip([from("203.0.113.9:500"), to_another]) {
        assert_eq!(peer::exchange(&mut world, path, &bytes), Vec::<Vec<u8>>::new());
        let stats = world.hosts[0].endpoint.stats();
        assert_eq!(stats.discarded(Discard::Elsewhere), discarded);
    }
    peer.path = from("192.0.2.1:4500");
    peer.request_bytes(&mut world, bytes).expect("nothing has happened to it");
    assert_eq!(tunnel(&world), (OWN.into(), OWN.into()));
    assert_eq!(world.hosts[0].sas()[0].remote, peer.path.local);
}

/// Behind a NAT or not: a connection with `remote_addrs` has its tunnels end there.
#[test]
fn tunnels_end_within_remote_addrs() {
    let mut world = sun(|connection| connection.remote_addrs = vec![range("192.0.2.0-192.0.2.255")]);
    let mut peer = Peer::init(&mut world, 65, lie());
    let bytes = auth_for(&mut peer, OWN);
    peer.path = from("203.0.113.9:4500");
    assert_eq!(only_notify(peer.request_bytes(&mut world, bytes)), NotifyType::AuthenticationFailed);

    let mut peer = Peer::init(&mut world, 66, lie());
    let bytes = auth_for(&mut peer, OWN);
    peer.path = from("192.0.2.77:4500");
    peer.request_bytes(&mut world, bytes).unwrap();
    assert_eq!(tunnel(&world).1, "192.0.2.77");
    for (source, followed) in [("203.0.113.9:4500", false), ("192.0.2.78:4500", true)] {
        peer.path = from(source);
        peer.request(&mut world, ExchangeType::Informational, vec![]).expect("answered in any case");
        assert_eq!(world.hosts[0].sas()[0].remote == peer.path.local, followed, "{source}");
    }
    // Nor does ESP lead elsewhere.
    let (now, child) = (world.now, world.hosts[0].sas()[0].children[0].id);
    world.hosts[0].endpoint.esp_source(now, child, "203.0.113.9:4500".parse().unwrap());
    world.settle(0);
    assert_eq!(tunnel(&world).1, "192.0.2.78");
}

/// Behind a NAT, as it says, a guesser may send from any address. It is named where it has shown that
/// it receives, and nobody else for it.
#[test]
fn only_a_source_that_has_shown_itself_is_named_for_a_refusal() {
    let mut world = sun(|connection| connection.remote_addrs = vec![range("192.0.2.0-192.0.2.255")]);
    let named = |world: &mut World, reason| world.hosts[0].endpoint.stats_mut().take_sources(reason);
    let forged = "203.0.113.9:4500";
    for (seed, source, expected) in
        [(70, "192.0.2.1:4500", vec![(OWN.parse().unwrap(), 1)]), (71, forged, vec![])]
    {
        let mut peer = Peer::init(&mut world, seed, lie());
        let mut bytes = auth_for(&mut peer, OWN);
        *bytes.last_mut().unwrap() ^= 1;
        assert_eq!(peer::exchange(&mut world, from(source), &bytes), Vec::<Vec<u8>>::new());
        assert_eq!(named(&mut world, Discard::Integrity), expected, "{source}");
    }
    let mut peer = Peer::init(&mut world, 72, lie());
    let bytes = auth_for(&mut peer, OWN);
    peer.path = from(forged);
    assert_eq!(only_notify(peer.request_bytes(&mut world, bytes)), NotifyType::AuthenticationFailed);
    assert_eq!(world.hosts[0].endpoint.stats().discarded(Discard::Refused), 1);
    assert_eq!(named(&mut world, Discard::Refused), []);
}

/// Two peers at one place, or one that says it is where the other is, do not reauthenticate each
/// other's IKE SAs.
#[test]
fn the_place_alone_makes_nobody_a_successor() {
    let mut world = sun(|connection| {
        connection.remote.id = None;
        connection.children[0].remote_ts = vec![TsSpec::Fixed(ts("10.109.0.0-10.109.255.255"))];
    });
    world.hosts[0].load_secret(secret("all", b"everybody's key", &[]));
    let mut moon = Peer::establish(&mut world, 67);
    world.run_secs(1);
    let first = *world.hosts[0].sending.first().unwrap();
    let mut venus = Peer::init(&mut world, 68, vec![]);
    let payloads = venus.auth_as(&fqdn("venus"), b"everybody's key");
    venus.request(&mut world, ExchangeType::IkeAuth, payloads).unwrap();
    assert_eq!(world.hosts[0].sas().len(), 2);
    // A reauthentication would take over by this.
    venus.request(&mut world, ExchangeType::Informational, vec![]).unwrap();
    assert!(world.hosts[0].sending.contains(&first), "{:#?}", world.hosts[0].log());
    assert_eq!(world.hosts[0].sending.len(), 2);
    assert!(moon.request(&mut world, ExchangeType::Informational, vec![]).is_some());
}
