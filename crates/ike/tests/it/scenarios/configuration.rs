//! Virtual addresses by configuration payloads (RFC 7296 §2.19, §3.15).

use crate::scenarios::answers::sun;
use crate::scenarios::common::build::{esp_proposal, fqdn, range, ts};
use crate::scenarios::common::peer::{Peer, SPI, only_notify};
use crate::scenarios::common::{Weather, World};
use std::net::IpAddr;
use testudo_ike::config::{Pool, TsSpec};
use testudo_ike::endpoint::{LeaseStatus, Target};
use testudo_ike::message::{
    CfgAttribute, CfgAttributeType, CfgType, Configuration, ExchangeType, Nonce, NotifyType, Payload,
    TsPayload,
};
use testudo_ike::suite::offer;
use testudo_ipsec::sa::EspAlgorithm;

pub(crate) const DYNAMIC: TsSpec = TsSpec::Dynamic { protocol: 0, port_start: 0, port_end: u16::MAX };

pub(crate) fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn pool(name: &str, addrs: &str) -> Pool {
    let addrs = range(addrs);
    let dns = vec![addr("10.115.0.53"), addr("fd00:115::53")];
    Pool { name: name.into(), base: addrs.start(), addrs, dns, subnets: vec![(addr("10.115.0.0"), 16)] }
}

/// Moon asks for `vips`, sun has an IPv4 and an IPv6 pool.
pub(crate) fn road(seed: u64, vips: &[&str]) -> World {
    let vips: Vec<IpAddr> = vips.iter().map(|vip| addr(vip)).collect();
    let ends = ["192.0.2.1", "192.0.2.2"];
    let mut world = World::pair_of(ends, seed, Weather::FAIR, Default::default(), |index, connection| {
        if index == 0 {
            connection.vips = vips.clone();
            connection.children[0].local_ts = vec![DYNAMIC];
        } else {
            connection.pools = vec!["v4".into(), "v6".into()];
            connection.remote_addrs = vec![];
            connection.children[0].remote_ts = vec![DYNAMIC];
        }
        let both =
            ["10.115.0.0-10.115.255.255", "fd00:115::-fd00:115::ffff"].map(|net| TsSpec::Fixed(ts(net)));
        let side = &mut connection.children[0];
        if index == 0 { side.remote_ts = both.to_vec() } else { side.local_ts = both.to_vec() }
    });
    world.hosts[1].load_pool(pool("v4", "10.3.0.1-10.3.0.2"));
    world.hosts[1].load_pool(pool("v6", "fd00:3::1-fd00:3::ffff:ffff:ffff"));
    world
}

fn leases(world: &World, pool: &str) -> Vec<LeaseStatus> {
    world.hosts[1].endpoint.pools().leases(pool).collect()
}

#[test]
fn a_client_gets_an_address_of_each_family() {
    let mut world = road(1, &["0.0.0.0", "::"]);
    world.establish();
    let given = [addr("10.3.0.1"), addr("fd00:3::1")];
    let sa = &world.hosts[0].sas()[0];
    assert_eq!((&sa.local_vips[..], &sa.remote_vips[..]), (&given[..], &[][..]));
    let sa = &world.hosts[1].sas()[0];
    assert_eq!((&sa.local_vips[..], &sa.remote_vips[..]), (&[][..], &given[..]));
    assert_eq!(world.hosts[0].addresses(), given);
    let child = world.hosts[0].installed.values().next().unwrap();
    assert_eq!(child.local_ts, [ts("10.3.0.1"), ts("fd00:3::1")], "dynamic became the addresses");
    assert!(world.hosts[0].logged("DNS servers: 10.115.0.53 fd00:115::53"));
    let lease = |text: &str| LeaseStatus { addr: addr(text), identity: fqdn("moon"), online: true };
    assert_eq!(leases(&world, "v4"), [lease("10.3.0.1")]);
    assert_eq!(leases(&world, "v6"), [lease("fd00:3::1")]);
}

#[test]
fn leases_end_with_the_ike_sa_and_are_kept_for_their_owner() {
    let mut world = road(2, &["0.0.0.0"]);
    world.initiate(0);
    world.run_secs(1);
    let now = world.now;
    world.hosts[0].endpoint.terminate(now, &Target::All, false).unwrap();
    world.settle(0);
    world.run_secs(30);
    world.assert_nothing_left();
    assert!(matches!(&leases(&world, "v4")[..], [lease] if !lease.online));
    world.initiate(0);
    world.run_secs(1);
    assert_eq!(world.hosts[0].addresses(), [addr("10.3.0.1")]);
    assert!(leases(&world, "v4")[0].online);
}

/// After a rekeying of the IKE SA by either side, the addresses belong to the new one, and end with
/// it.
#[test]
fn addresses_move_to_the_renewed_ike_sa() {
    for renewing in 0..2 {
        let mut world = road(9, &["0.0.0.0", "::"]);
        world.initiate(0);
        world.run_secs(1);
        let (now, id) = (world.now, world.hosts[renewing].sas()[0].id);
        assert!(world.hosts[renewing].endpoint.rekey_ike(now, id));
        world.settle(renewing);
        world.run_secs(30);
        let new = world.hosts[0].sas()[0].id;
        let given = [(addr("10.3.0.1"), new), (addr("fd00:3::1"), new)];
        assert!(world.hosts[0].virtual_ips.iter().eq(&given), "{:?}", world.hosts[0].virtual_ips);
        assert!(leases(&world, "v4")[0].online);
        let now = world.now;
        world.hosts[0].endpoint.terminate(now, &Target::All, false).unwrap();
        world.settle(0);
        world.run_secs(30);
        world.assert_nothing_left();
        assert!(!leases(&world, "v4")[0].online);
    }
}

#[test]
fn an_imported_ike_sa_brings_its_lease() {
    let mut world = road(3, &["0.0.0.0", "::"]);
    world.initiate(0);
    world.run_secs(1);
    let before = leases(&world, "v4");
    let now = world.now;
    for host in &mut world.hosts {
        host.take_over(now);
    }
    assert_eq!(leases(&world, "v4"), before);
    world.hosts[1].endpoint.terminate(now, &Target::All, false).unwrap();
    world.settle(1);
    world.run_secs(30);
    world.assert_nothing_left();
    assert!(!leases(&world, "v4")[0].online);
}

/// A pool may come after the SAs that use it.
#[test]
fn a_pool_that_is_loaded_late_knows_who_has_its_addresses() {
    let mut world = road(4, &["0.0.0.0"]);
    world.initiate(0);
    world.run_secs(1);
    let state = {
        let id = world.hosts[1].sas()[0].id;
        world.hosts[1].endpoint.export_sa(world.now, id).unwrap()
    };
    let mut other = road(5, &["0.0.0.0"]);
    let host = &mut other.hosts[1].endpoint;
    host.unload_pool("v4").unwrap();
    host.import_sa(other.now, &state).unwrap();
    host.load_pool(pool("v4", "10.3.0.1-10.3.0.2")).unwrap();
    assert_eq!(
        host.pools().leases("v4").map(|lease| (lease.addr, lease.online)).collect::<Vec<_>>(),
        [(addr("10.3.0.1"), true)]
    );
}

/// RFC 7296 §3.15.4: the IKE SA is made all the same.
#[test]
fn an_empty_pool_makes_an_ike_sa_without_a_child() {
    let mut world = road(6, &["0.0.0.0"]);
    world.hosts[1].endpoint.unload_pool("v4").unwrap();
    world.initiate(0);
    world.run_secs(1);
    assert!(world.hosts.iter().all(|host| host.logged("IKE_SA site[1] established")));
    assert!(world.hosts.iter().all(|host| host.installed.is_empty()));
    let result = world.hosts[0].results().pop().unwrap().unwrap_err().to_string();
    assert!(result.contains("INTERNAL_ADDRESS_FAILURE"), "{result}");
    assert!(
        world.hosts[1].warned("no virtual IP is left for moon: pool v4 is not loaded"),
        "{:?}",
        world.hosts[1].log()
    );
    world.run_secs(30);
    world.assert_nothing_left();
}

/// RFC 7296 §2.19: where an address must be asked for, and is not.
#[test]
fn a_client_without_a_request_gets_failed_cp_required() {
    let mut world = road(7, &[]);
    world.initiate(0);
    world.run_secs(1);
    let result = world.hosts[0].results().pop().unwrap().unwrap_err().to_string();
    assert!(result.contains("FAILED_CP_REQUIRED"), "{result}");
    assert_eq!(leases(&world, "v4"), []);
}

/// A responder that knows no configuration payloads does not answer them; we cannot do without.
#[test]
fn no_address_is_no_child() {
    let mut world = World::pair_of(
        ["192.0.2.1", "192.0.2.2"],
        8,
        Weather::FAIR,
        Default::default(),
        |index, connection| {
            if index == 0 {
                connection.vips = vec![addr("0.0.0.0")];
            }
        },
    );
    world.initiate(0);
    world.run_secs(1);
    assert!(world.hosts[0].results().pop().unwrap().is_err());
    assert!(world.hosts[0].installed.is_empty() && world.hosts[0].virtual_ips.is_empty());
    world.run_secs(30);
    world.assert_nothing_left();
}

/// Moon asks, and sun gives this: an address of moon's own, or of some other peer.
#[test]
fn an_address_of_others_is_refused() {
    let bad = ["192.0.2.1", "192.0.2.2", "192.0.2.77", "192.0.2.99", "10.99.0.7", "127.0.0.1"];
    for (given, refused) in bad.map(|bad| (bad, true)).into_iter().chain([("10.3.0.7", false)]) {
        let mut world = road(10, &["0.0.0.0"]);
        world.hosts[1].endpoint.unload_pool("v4").unwrap();
        world.hosts[1].load_pool(pool("v4", given));
        let (now, host) = (world.now, &mut world.hosts[0]);
        host.endpoint.set_local_addresses(vec![addr("192.0.2.1"), addr("192.0.2.77")]);
        let mut other = host.endpoint.connections().next().unwrap().clone();
        other.name = "other".into();
        other.remote.id = Some(fqdn("mars"));
        other.remote_addrs = vec![range("192.0.2.99")];
        other.children[0].name = "mars".into();
        let remote = ["10.99.0.0-10.99.255.255", "0.0.0.0-255.255.255.255"];
        other.children[0].remote_ts = remote.map(|net| TsSpec::Fixed(ts(net))).to_vec();
        host.load(now, other);
        world.initiate(0);
        world.run_secs(1);
        assert_eq!(world.hosts[0].virtual_ips.is_empty(), refused, "{given}: {:#?}", world.hosts[0].log());
        assert_eq!(world.hosts[0].logged(&format!("refused virtual IP {given}")), refused, "{given}");
    }
}

/// Moon's neighbours, routers and name servers keep their addresses, unless its operator says from
/// where addresses come.
#[test]
fn addresses_come_from_where_the_connection_says() {
    let lan = "10.3.0.0-10.3.0.255";
    for (given, within, accepted) in [
        ("10.3.0.7", "", false),
        ("10.4.0.53", "", false),
        ("10.5.0.7", "", true),
        ("10.3.0.7", lan, true),
        ("10.4.0.53", "10.4.0.0-10.4.0.255", true),
        ("10.5.0.7", lan, false),
        ("192.0.2.1", "192.0.2.0-192.0.2.255", false),
    ] {
        let mut world = road(12, &["0.0.0.0"]);
        world.hosts[1].endpoint.unload_pool("v4").unwrap();
        world.hosts[1].load_pool(pool("v4", given));
        let (now, host) = (world.now, &mut world.hosts[0]);
        host.endpoint.set_reserved_addresses(vec![range(lan), range("10.4.0.53")]);
        let mut connection = host.endpoint.connections().next().unwrap().clone();
        connection.vips_within =
            Some(within).filter(|text| !text.is_empty()).map(range).into_iter().collect();
        host.load(now, connection);
        world.initiate(0);
        world.run_secs(1);
        let host = &world.hosts[0];
        assert_eq!(!host.virtual_ips.is_empty(), accepted, "{given} within {within:?}: {:#?}", host.log());
        assert_eq!(host.logged(&format!("refused virtual IP {given}")), !accepted, "{given}");
    }
}

/// An IKE SA that replaces another brings the address that this host has by then.
#[test]
fn an_address_that_is_ours_already_is_kept() {
    let mut world = road(13, &["0.0.0.0"]);
    world.establish();
    // On the TUN it makes a network of its own.
    world.hosts[0].endpoint.set_reserved_addresses(vec![range("10.3.0.1")]);
    let (now, id) = (world.now, world.hosts[0].sas()[0].id);
    assert!(world.hosts[0].endpoint.reauthenticate_ike(now, id));
    world.settle(0);
    world.run_secs(30);
    assert_eq!(world.hosts[0].addresses(), [addr("10.3.0.1")], "{:#?}", world.hosts[0].log());
    assert!(!world.hosts[0].logged("refused virtual IP"));
}

/// An imported state replaces one with another address: that one is free again.
#[test]
fn a_state_that_is_replaced_lets_its_lease_go() {
    // The same IKE SA twice, as two nodes could have it.
    let [mut here, there] = ["10.3.0.1-10.3.0.9", "10.3.0.5-10.3.0.9"].map(|addrs| {
        let mut world = road(11, &["0.0.0.0"]);
        world.hosts[1].load_pool(pool("v4", addrs));
        world.initiate(0);
        world.run_secs(1);
        world
    });
    let id = there.hosts[1].sas()[0].id;
    let state = there.hosts[1].endpoint.export_sa(there.now, id).unwrap();
    assert_eq!(leases(&here, "v4")[0].addr, addr("10.3.0.1"));
    assert_eq!(here.hosts[1].endpoint.import_sa(here.now, &state), Ok(id));
    let lease = LeaseStatus { addr: addr("10.3.0.5"), identity: fqdn("moon"), online: true };
    assert_eq!(leases(&here, "v4"), [lease]);
}

/// Sun, with a pool, for a hand-made peer.
fn sun_with_pool() -> World {
    let mut world = sun();
    let mut connection = world.hosts[0].endpoint.connections().next().unwrap().clone();
    connection.pools = vec!["v4".into()];
    connection.children[0].remote_ts = vec![DYNAMIC];
    let now = world.now;
    world.hosts[0].load(now, connection);
    world.hosts[0].load_pool(pool("v4", "10.3.0.1-10.3.0.9"));
    world
}

/// IKE_AUTH with this in its CP payload, for all traffic of whatever address is given.
fn ask(world: &mut World, seed: u64, attributes: Vec<CfgAttribute>) -> Vec<Payload> {
    ask_for(world, seed, attributes, "0.0.0.0-255.255.255.255").1
}

/// The same, for traffic of these addresses.
fn ask_for(world: &mut World, seed: u64, attributes: Vec<CfgAttribute>, range: &str) -> (Peer, Vec<Payload>) {
    let mut peer = Peer::init(world, seed, vec![]);
    let mut payloads = peer.auth_payloads();
    payloads.retain(|payload| !matches!(payload, Payload::TsInitiator(_)));
    payloads.push(Payload::Configuration(Configuration { kind: CfgType::Request, attributes }));
    payloads.push(Payload::TsInitiator(TsPayload::new(vec![ts(range)])));
    let answer = peer.request(world, ExchangeType::IkeAuth, payloads).unwrap();
    (peer, answer)
}

/// CREATE_CHILD_SA for a child with traffic of these addresses.
fn ask_child(world: &mut World, peer: &mut Peer, range: &str) -> Vec<Payload> {
    let proposal = esp_proposal(EspAlgorithm::Aes128Gcm16);
    let payloads = vec![
        Payload::Sa(offer::esp(&[proposal], SPI, offer::ChildExchange::CreateChildSa)),
        Payload::Nonce(Nonce::new(vec![7; 32]).unwrap()),
        Payload::TsInitiator(TsPayload::new(vec![ts(range)])),
        Payload::TsResponder(TsPayload::new(vec![ts("10.115.0.0-10.115.255.255")])),
    ];
    peer.request(world, ExchangeType::CreateChildSa, payloads).unwrap()
}

/// A peer without an address gets no child by another exchange either: `dynamic` is not its outer
/// address then.
#[test]
fn without_an_address_there_is_no_child_later() {
    let mut world = sun_with_pool();
    let (mut peer, answer) = ask_for(&mut world, 4, vec![], "192.0.2.1");
    assert!(answer.iter().any(|payload| matches!(payload, Payload::Auth(_))), "{answer:?}");
    let answer = ask_child(&mut world, &mut peer, "192.0.2.1");
    assert_eq!(only_notify(Some(answer)), NotifyType::FailedCpRequired);
    assert!(world.hosts[0].installed.is_empty());
    // With one it does.
    let mut world = sun_with_pool();
    let any = vec![CfgAttribute::request(CfgAttributeType::Ip4Address)];
    let (mut peer, _) = ask_for(&mut world, 5, any, "172.16.0.0-172.16.0.255");
    assert!(world.hosts[0].installed.is_empty());
    ask_child(&mut world, &mut peer, "10.3.0.1");
    assert_eq!(world.hosts[0].installed.len(), 1, "{:#?}", world.hosts[0].log());
}

/// An address is not reserved for a peer whose selectors match nothing.
#[test]
fn an_ike_sa_that_never_has_a_child_gives_its_address_back() {
    let mut world = sun_with_pool();
    let any = vec![CfgAttribute::request(CfgAttributeType::Ip4Address)];
    let (_, answer) = ask_for(&mut world, 6, any, "172.16.0.0-172.16.0.255");
    assert!(answer.iter().any(|payload| matches!(payload, Payload::Configuration(_))), "{answer:?}");
    let lease = |world: &World| world.hosts[0].endpoint.pools().leases("v4").next().unwrap().online;
    world.run_secs(19);
    assert!(lease(&world));
    world.run_secs(60);
    assert!(!lease(&world));
    assert!(world.hosts[0].logged("it carried no CHILD_SA"), "{:#?}", world.hosts[0].log());
    world.assert_nothing_left();
}

#[test]
fn the_reply_has_address_servers_and_subnets_and_ignores_what_it_does_not_know() {
    let mut world = sun_with_pool();
    let odd = CfgAttribute { kind: CfgAttributeType::Unknown(28_672), value: vec![1; 7] };
    let any = CfgAttribute::request(CfgAttributeType::Ip4Address);
    let answer = ask(&mut world, 1, vec![odd, any.clone(), any]);
    let reply = answer.iter().find_map(|payload| match payload {
        Payload::Configuration(reply) => Some(reply.clone()),
        _ => None,
    });
    let attributes = vec![
        CfgAttribute::inner_address(addr("10.3.0.1")),
        CfgAttribute::dns(addr("10.115.0.53")),
        CfgAttribute::dns(addr("fd00:115::53")),
        CfgAttribute::subnet(addr("10.115.0.0"), 16),
    ];
    assert_eq!(reply, Some(Configuration { kind: CfgType::Reply, attributes }));
    assert!(answer.iter().any(|payload| matches!(payload, Payload::TsInitiator(ts)
        if ts.selectors == [self::ts("10.3.0.1")])));
}

#[test]
fn an_address_may_be_wished_for() {
    let mut world = sun_with_pool();
    let answer = ask(&mut world, 2, vec![CfgAttribute::inner_address(addr("10.3.0.7"))]);
    assert!(answer.iter().any(|payload| matches!(payload, Payload::Configuration(reply)
        if reply.addresses().eq([addr("10.3.0.7")]))));
}

#[test]
fn an_address_of_a_family_without_pool_is_refused() {
    let mut world = sun_with_pool();
    let answer = ask(&mut world, 3, vec![CfgAttribute::request(CfgAttributeType::Ip6Address)]);
    let refused = |payload: &Payload| {
        matches!(payload, Payload::Notify(notify)
        if notify.kind == NotifyType::InternalAddressFailure)
    };
    assert!(answer.iter().any(refused), "{answer:?}");
    assert!(answer.iter().any(|payload| matches!(payload, Payload::Auth(_))), "the IKE SA stands");
    assert!(world.hosts[0].installed.is_empty());
}

/// Sun with the connections `first` and `site`, by which moon proves itself alike: the pools of
/// each.
fn sun_with_two(pools: [&[&str]; 2]) -> World {
    let mut world = sun();
    let now = world.now;
    let site = world.hosts[0].endpoint.connections().next().unwrap().clone();
    for (name, pools) in ["first", "site"].into_iter().zip(pools) {
        let mut connection = site.clone();
        connection.name = name.into();
        connection.pools = pools.iter().map(|name| (*name).into()).collect();
        connection.children[0].remote_ts = vec![DYNAMIC];
        world.hosts[0].load(now, connection);
    }
    world.hosts[0].load_pool(pool("v4", "10.3.0.1-10.3.0.9"));
    world
}

/// A connection with a pool is for a peer that asks for an address, and one without a pool for a
/// peer that does not.
#[test]
fn who_asks_is_served_by_a_connection_that_has_a_pool() {
    let asks = || vec![CfgAttribute::request(CfgAttributeType::Ip4Address)];
    for (pools, served) in [([&["v4"][..], &[]], ["first", "site"]), ([&[], &["v4"]], ["site", "first"])] {
        let all = "0.0.0.0-255.255.255.255";
        for (attributes, range, served) in [(asks(), all, served[0]), (vec![], "192.0.2.1", served[1])] {
            let has_asked = !attributes.is_empty();
            let mut world = sun_with_two(pools);
            ask_for(&mut world, 14, attributes, range);
            let (host, sa) = (&world.hosts[0], &world.hosts[0].sas()[0]);
            assert_eq!(sa.connection.as_deref(), Some(served), "{pools:?}: {:#?}", host.log());
            assert_eq!((sa.remote_vips.len(), host.installed.len()), (usize::from(has_asked), 1));
        }
    }
}

/// Both connections have a pool. The first serves the peer, although only the child of the other
/// fits its request yet: what `dynamic` means in the first follows from the address that it gets.
#[test]
fn of_two_connections_with_pools_the_first_serves_who_asks() {
    const INSIDE: &str = "10.3.0.0-10.3.0.255";
    let mut world = sun_with_two([&["v4"], &["v4"]]);
    let mut site = world.hosts[0].endpoint.connections().find(|found| found.name == "site").unwrap().clone();
    site.children[0].remote_ts = vec![TsSpec::Fixed(ts(INSIDE))];
    let now = world.now;
    world.hosts[0].load(now, site);
    ask_for(&mut world, 15, vec![CfgAttribute::request(CfgAttributeType::Ip4Address)], INSIDE);
    let (host, sa) = (&world.hosts[0], &world.hosts[0].sas()[0]);
    assert_eq!(sa.connection.as_deref(), Some("first"), "{:#?}", host.log());
    assert_eq!(sa.remote_vips, [addr("10.3.0.1")]);
    assert!(host.installed.values().all(|params| params.remote_ts == [ts("10.3.0.1")]));
}
