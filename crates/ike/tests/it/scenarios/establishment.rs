//! Two endpoints set up a tunnel, in all the ways that a configuration can ask for.

use crate::scenarios::common::build::{child, esp_proposal, ike_proposal, range, ts};
use crate::scenarios::common::{PACKET, Weather, World};
use testudo_ike::config::{Identity, IkeEncryption, KeyExchange, Prf, StartAction, TsSpec};
use testudo_ike::endpoint::{EndpointConfig, IkeSaState, InitiateError};
use testudo_ike::output::Event;
use testudo_ipsec::sa::{Encapsulation, EspAlgorithm, Mac};

#[test]
fn two_endpoints_set_up_a_tunnel() {
    let mut world = World::pair(1, Weather::FAIR);
    let id = world.initiate(0);
    assert_eq!(world.hosts[0].sas()[0].state, IkeSaState::Connecting);
    world.run_secs(1);
    world.assert_tunnel();
    let [moon, sun] = [0, 1].map(|index| world.hosts[index].sas().remove(0));
    assert_eq!((moon.state, sun.state), (IkeSaState::Established, IkeSaState::Established));
    assert_eq!((moon.spi_i, moon.spi_r), (sun.spi_i, sun.spi_r));
    assert!(moon.initiator && !sun.initiator);
    assert_eq!((moon.local_id, moon.remote_id), (sun.remote_id, sun.local_id));
    assert_eq!((moon.encryption, moon.prf, moon.ke), (sun.encryption, sun.prf, sun.ke));
    assert_eq!(moon.encryption.unwrap().name, "AES_GCM_16");
    assert_eq!(moon.ke.unwrap().name, "CURVE_25519");
    assert_eq!(moon.children[0].installed, moon.established.unwrap());
    assert!(!moon.nat.any() && !sun.nat.any());
    assert!(world.hosts[0].events.contains(&Event::IkeUp(id)));
    assert_eq!(world.hosts[0].results(), [Ok(moon.children[0].id)]);
    let params = world.hosts[0].installed.values().next().unwrap();
    assert_eq!(params.encapsulation, Encapsulation::Plain);
    assert!(params.esn, "preferred by both");
    assert_eq!(params.spi_in.shard(), moon.spi_i.shard(), "the child lives where its IKE SA lives");
}

#[test]
fn ipv6_outside() {
    let addrs = ["2001:db8::1", "2001:db8::2"];
    let mut world = World::pair_of(addrs, 2, Weather::FAIR, EndpointConfig::default(), |_, _| {});
    world.establish();
}

#[test]
fn every_algorithm_that_can_be_configured() {
    let ike = [IkeEncryption::Aes128Gcm16, IkeEncryption::Aes256Gcm16];
    let algorithms = EspAlgorithm::all().chain(Mac::ALL.map(EspAlgorithm::Ah));
    for (esp, ike) in algorithms.zip(ike.into_iter().cycle()) {
        for prf in [Prf::HmacSha256, Prf::HmacSha384] {
            for ke in [KeyExchange::X25519, KeyExchange::Ecp256] {
                let world = World::established(3, |_, connection| {
                    connection.proposals = vec![ike_proposal(&[ke])];
                    connection.proposals[0].encryption = vec![ike];
                    connection.proposals[0].prf = vec![prf];
                    connection.children[0].proposals = vec![esp_proposal(esp)];
                });
                let [near, far] =
                    [0, 1].map(|host: usize| world.hosts[host].installed.values().next().unwrap());
                assert_eq!((near.algorithm, near.key_out.0.len()), (esp, esp.key_len()));
                assert_eq!((&near.key_out, &near.key_in), (&far.key_in, &far.key_out));
            }
        }
    }
}

#[test]
fn the_responders_selectors_narrow_the_initiators() {
    let world = World::established(4, |index, connection| {
        let [whole, part] = ["10.115.0.0-10.115.255.255", "10.115.7.0-10.115.7.255"];
        if index == 0 {
            connection.children[0].remote_ts = vec![TsSpec::Fixed(ts(whole))];
        } else {
            connection.children[0].local_ts = vec![TsSpec::Fixed(ts(part))];
        }
    });
    let params = world.hosts[0].installed.values().next().unwrap();
    assert_eq!(params.remote_ts, [ts("10.115.7.0-10.115.7.255")]);
}

#[test]
fn dynamic_selectors_are_the_outer_addresses() {
    let dynamic = TsSpec::Dynamic { protocol: 0, port_start: 0, port_end: u16::MAX };
    let world = World::established(5, |_, connection| {
        connection.children[0].local_ts = vec![dynamic.clone()];
        connection.children[0].remote_ts = vec![dynamic.clone()];
    });
    let params = world.hosts[0].installed.values().next().unwrap();
    assert_eq!(
        (&params.local_ts[..], &params.remote_ts[..]),
        (&[ts("192.0.2.1")][..], &[ts("192.0.2.2")][..])
    );
}

#[test]
fn without_identities_the_addresses_are_the_identities() {
    let mut world = World::pair_with(6, Weather::FAIR, |_, connection| {
        connection.local.id = None;
        connection.remote.id = None;
    });
    for host in &mut world.hosts {
        let mut secret = crate::scenarios::common::secret("by address", b"another key", &[]);
        secret.owners = ["192.0.2.1", "192.0.2.2"].map(|a| Identity::Addr(a.parse().unwrap())).to_vec();
        host.endpoint.secrets_mut().clear();
        host.load_secret(secret);
    }
    world.establish();
    assert_eq!(world.hosts[0].sas()[0].remote_id, Some(Identity::Addr("192.0.2.2".parse().unwrap())));
}

#[test]
fn names_count_alike_in_both_cases() {
    World::established(7, |index, connection| {
        if index == 0 {
            connection.remote.id = Some(crate::scenarios::common::build::fqdn("SUN"));
        }
    });
}

#[test]
fn the_responder_picks_the_connection_by_identity_and_the_child_by_selectors() {
    let mut world = World::pair(8, Weather::FAIR);
    let now = world.now;
    let mut anybody = crate::scenarios::common::connection(("192.0.2.2", "sun"), ("192.0.2.1", "moon"));
    anybody.name = "anybody".into();
    anybody.remote.id = None;
    anybody.remote_addrs = vec![];
    let mut venus = anybody.clone();
    venus.name = "a venus".into();
    venus.remote.id = Some(crate::scenarios::common::build::fqdn("venus"));
    // A second connection for just this peer, named before the first, with another child.
    let mut other = crate::scenarios::common::connection(("192.0.2.2", "sun"), ("192.0.2.1", "moon"));
    other.name = "a site".into();
    other.children = vec![child("elsewhere", "10.200.0.0-10.200.0.255", "10.201.0.0-10.201.0.255")];
    for connection in [anybody, venus, other] {
        world.hosts[1].load(now, connection);
    }
    world.establish();
    let sun = &world.hosts[1].sas()[0];
    assert_eq!((sun.connection.as_deref(), sun.children[0].name.as_str()), (Some("site"), "net"));
}

#[test]
fn a_connection_for_the_peers_identity_beats_one_for_its_address() {
    let mut world = World::pair_with(16, Weather::FAIR, |index, connection| {
        if index == 1 {
            connection.remote_addrs = vec![];
        }
    });
    let now = world.now;
    let mut by_address = crate::scenarios::common::connection(("192.0.2.2", "sun"), ("192.0.2.1", "moon"));
    by_address.name = "by address".into();
    by_address.remote.id = None;
    world.hosts[1].load(now, by_address);
    world.establish();
    assert_eq!(world.hosts[1].sas()[0].connection.as_deref(), Some("site"));
}

#[test]
fn a_child_that_is_up_is_not_doubled() {
    let mut world = World::pair(9, Weather::FAIR);
    let first = world.initiate(0);
    assert_eq!(world.initiate(0), first, "on its way");
    world.run_secs(1);
    assert_eq!(world.hosts[0].results().len(), 1);
    assert_eq!(world.initiate(0), first, "up");
    assert_eq!(world.hosts[0].results().len(), 2, "a waiting command hears of it");
    let now = world.now;
    assert_eq!(world.hosts[0].endpoint.acquire_for(now, "site", "net", PACKET), Ok(first));
    world.settle(0);
    assert_eq!(world.hosts[0].results().len(), 2, "traffic waits for no answer");
    world.run_secs(1);
    world.assert_tunnel();
}

#[test]
fn both_sides_initiate_at_once() {
    for seed in 0..50 {
        let weather = Weather { jitter: std::time::Duration::from_millis(40), ..Weather::FAIR };
        let mut world = World::pair(seed, weather);
        world.initiate(0);
        world.initiate(1);
        world.run_secs(10);
        for host in 0..2 {
            assert!(world.hosts[host].results()[0].is_ok(), "{:?}", world.hosts[host].log());
            for params in world.hosts[host].installed.values() {
                let other = world.hosts[1 - host].installed.values().find(|p| p.spi_in == params.spi_out);
                crate::scenarios::common::world::assert_fit(params, other.expect("each SA has two ends"));
            }
        }
    }
}

#[test]
fn start_action_start_initiates_when_loaded() {
    let mut world = World::pair_with(11, Weather::FAIR, |index, connection| {
        if index == 0 {
            connection.children[0].start_action = StartAction::Start;
        }
    });
    world.settle(0);
    world.run_secs(1);
    world.assert_tunnel();
    // The same configuration again changes nothing.
    let now = world.now;
    let mut again = crate::scenarios::common::connection(("192.0.2.1", "moon"), ("192.0.2.2", "sun"));
    again.children[0].start_action = StartAction::Start;
    world.hosts[0].load(now, again);
    world.settle(0);
    world.run_secs(100);
    world.assert_tunnel();
    assert_eq!(world.hosts[0].results().len(), 1);
}

#[test]
fn a_peer_that_lost_everything_replaces_its_old_sa() {
    let mut world = World::pair(12, Weather::FAIR);
    world.initiate(0);
    world.run_secs(1);
    let old = world.hosts[1].sas()[0].id;
    let lost: Vec<_> = world.hosts[0].sas().iter().map(|sa| sa.id).collect();
    // A restart: moon forgets without a word.
    world.network.up = false;
    for id in lost {
        let now = world.now;
        world.hosts[0].endpoint.terminate(now, &testudo_ike::endpoint::Target::Ike(id), true).unwrap();
        world.settle(0);
    }
    world.network.up = true;
    world.establish();
    assert_ne!(world.hosts[1].sas()[0].id, old);
    assert!(world.hosts[1].logged("the peer started again"), "{:?}", world.hosts[1].log());
}

#[test]
fn impossible_initiations_are_refused_at_once() {
    let mut world = World::pair(13, Weather::FAIR);
    let now = world.now;
    let mut open = crate::scenarios::common::connection(("192.0.2.1", "moon"), ("192.0.2.2", "sun"));
    open.name = "open".into();
    open.remote_addrs = vec![range("192.0.2.0-192.0.2.255")];
    open.children[0].name = "road".into();
    let mut foreign = crate::scenarios::common::connection(("192.0.2.1", "moon"), ("2001:db8::9", "sun"));
    foreign.name = "foreign".into();
    let mut keyless = crate::scenarios::common::connection(("192.0.2.1", "moon"), ("192.0.2.3", "pluto"));
    keyless.name = "keyless".into();
    for connection in [open, foreign, keyless] {
        world.hosts[0].load(now, connection);
    }
    let endpoint = &mut world.hosts[0].endpoint;
    let mut refused = |connection, child| endpoint.initiate(now, Some(connection), child).unwrap_err();
    assert_eq!(refused("nowhere", "net"), InitiateError::UnknownConnection("nowhere".into()));
    assert_eq!(refused("site", "nothing"), InitiateError::UnknownChild("nothing".into()));
    assert_eq!(refused("open", "road"), InitiateError::NoPeer("open".into()));
    assert_eq!(
        refused("foreign", "net"),
        InitiateError::NoLocalAddress { connection: "foreign".into(), peer: "2001:db8::9".parse().unwrap() }
    );
    assert_eq!(refused("keyless", "net"), InitiateError::NoSecret("keyless".into()));
    assert_eq!(world.hosts[0].endpoint.states().count(), 0);
}

#[test]
fn an_open_local_address_is_the_hosts_first_that_fits() {
    let mut world = World::pair_with(14, Weather::FAIR, |_, connection| connection.local_addrs = vec![]);
    let addrs = ["2001:db8::1", "192.0.2.1", "192.0.2.77"].map(|a| a.parse().unwrap());
    world.hosts[0].endpoint.set_local_addresses(addrs.to_vec());
    world.establish();
}
