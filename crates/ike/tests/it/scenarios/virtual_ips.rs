//! An initiator's request for virtual addresses, and the assigned ones that it refuses.

use crate::scenarios::common::Random;
use crate::scenarios::common::World;
use crate::scenarios::common::build::{fqdn, range, ts};
use crate::scenarios::common::peer::exchange;
use crate::scenarios::common::responder::Responder;
use crate::scenarios::configuration::{addr, pool, road};
use crate::scenarios::strangers::init_request;
use testudo_ike::config::{Connection, TsSpec};
use testudo_ike::message::{CfgAttribute, CfgAttributeType, CfgType, Configuration, Payload};
use testudo_ike::output::Path;

/// A wished address is all that `dynamic` may become, and name servers are of its family.
#[test]
fn the_request_is_for_what_is_configured() {
    use CfgAttributeType::{Ip4Dns, Ip6Dns};
    for (vips, dynamic, servers) in [
        (&["10.3.0.7"][..], &["10.3.0.7"][..], &[Ip4Dns][..]),
        (&["fd00:3::7"], &["fd00:3::7"], &[Ip6Dns]),
        (&["0.0.0.0"], &["0.0.0.0-255.255.255.255"], &[Ip4Dns]),
        (&["fd00:3::7", "0.0.0.0"], &["fd00:3::7", "0.0.0.0-255.255.255.255"], &[Ip4Dns, Ip6Dns]),
    ] {
        let mut world = road(1, vips);
        world.hosts.remove(1);
        let sun = Responder::answer_init(&mut world);
        let asked = sun.auth.iter().find_map(|payload| match payload {
            Payload::Configuration(asked) => Some(asked.clone()),
            _ => None,
        });
        let addresses = vips.iter().map(|vip| CfgAttribute::inner_address(addr(vip)));
        let servers = servers.iter().map(|kind| CfgAttribute::request(*kind));
        let attributes = addresses.chain(servers).collect();
        assert_eq!(asked, Some(Configuration { kind: CfgType::Request, attributes }));
        let selectors = sun.auth.iter().find_map(|payload| match payload {
            Payload::TsInitiator(asked) => Some(asked.selectors.clone()),
            _ => None,
        });
        assert_eq!(selectors, Some(dynamic.iter().map(|range| ts(range)).collect()), "{vips:?}");
    }
}

/// Sun assigns this address to moon, which has another connection as `edit` makes it.
fn assigned(given: &str, edit: impl Fn(&mut Connection)) -> World {
    let mut world = road(2, &["0.0.0.0"]);
    world.hosts[1].endpoint.unload_pool("v4").unwrap();
    world.hosts[1].load_pool(pool("v4", given));
    let mut other = world.hosts[0].endpoint.connections().next().unwrap().clone();
    other.name = "other".into();
    other.children[0].name = "other".into();
    other.remote_addrs = vec![range("192.0.2.90-192.0.2.99")];
    edit(&mut other);
    let now = world.now;
    world.hosts[0].load(now, other);
    world
}

/// Not only a configured peer has its address, but also one that has come from anywhere in a range.
#[test]
fn the_address_of_a_peer_of_another_ike_sa_is_refused() {
    for is_there in [false, true] {
        let mut world = assigned("192.0.2.99", |other| other.remote.id = Some(fqdn("mars")));
        if is_there {
            let path =
                Path { local: "192.0.2.99:500".parse().unwrap(), remote: "192.0.2.1:500".parse().unwrap() };
            let said = exchange(&mut world, path, &init_request(&mut Random::new(3)));
            assert_eq!(said.len(), 1);
        }
        world.initiate(0);
        world.run_secs(1);
        let moon = &world.hosts[0];
        assert_eq!(moon.virtual_ips.is_empty(), is_there, "{:#?}", moon.log());
        assert_eq!(moon.logged("refused virtual IP 192.0.2.99: a peer has this address"), is_there);
    }
}

/// What another connection leads to is another peer's, unless it is for the same peer.
#[test]
fn an_address_behind_the_same_peer_by_another_connection_is_taken() {
    for (id, refused) in [(Some("mars"), true), (None, true), (Some("sun"), false)] {
        let mut world = assigned("10.99.0.7", |other| {
            other.remote.id = id.map(fqdn);
            other.children[0].remote_ts = vec![TsSpec::Fixed(ts("10.99.0.0-10.99.255.255"))];
        });
        world.initiate(0);
        world.run_secs(1);
        assert_eq!(world.hosts[0].virtual_ips.is_empty(), refused, "{id:?}: {:#?}", world.hosts[0].log());
    }
}
