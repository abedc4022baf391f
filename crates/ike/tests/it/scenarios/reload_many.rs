//! Changed connections where there are many: what one costs does not grow with the others, and one
//! with many peers asks them one after the other.

use crate::scenarios::common::allocator::Watched;
use crate::scenarios::common::wire::sent;
use crate::scenarios::common::{Weather, World, connection, secret};
use crate::scenarios::reload::{both_ciphers, other_cipher, reload};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use testudo_base::spi::SenderId;
use testudo_ike::config::{Connection, StartAction};
use testudo_ike::endpoint::{Endpoint, EndpointConfig};
use testudo_ike::message::ExchangeType;
use testudo_ike::output::Time;
use testudo_ipsec::sa::EspAlgorithm;

const GATEWAY: &str = "192.0.2.254";

fn site(number: u32) -> Connection {
    let addr = Ipv4Addr::from_bits(0x0a00_0000 + number).to_string();
    let mut site = connection((GATEWAY, "gw"), (&addr, "host"));
    site.name = format!("site{number}");
    site.children[0].start_action = StartAction::Start;
    site
}

/// So many connections, each with an IKE SA on its way.
fn gateway(sites: u32) -> Endpoint {
    let (alloc, _) = Watched::new(1, SenderId(1));
    let mut endpoint = Endpoint::new(EndpointConfig::default(), Box::new(alloc));
    endpoint.load_secret(secret("all", b"everybody's key", &[]));
    for number in 0..sites {
        endpoint.load_connection(Time::default(), site(number)).unwrap();
        while endpoint.poll_output().is_some() {}
    }
    assert_eq!(endpoint.names().count(), sites as usize);
    endpoint
}

/// Something that is done with one of the connections.
type Work = fn(&mut Endpoint, u32);

/// How long this thread has had a processor: what else the machine does takes none of that.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split_whitespace().next().unwrap().parse().unwrap())
}

/// The least time of some.
fn least(endpoint: &mut Endpoint, work: impl Fn(&mut Endpoint, u32)) -> Duration {
    let times = (0..50).map(|number| {
        let begun = Instant::now();
        work(endpoint, number);
        let took = begun.elapsed();
        while endpoint.poll_output().is_some() {}
        took
    });
    times.min().unwrap_or_default()
}

#[test]
fn the_cost_of_a_connection_does_not_grow_with_their_number() {
    let works: [(&str, Work); 5] = [
        ("a tunnel that is asked for", |endpoint, number| {
            let (connection, child) = (site(number).name, &site(number).children[0].name);
            endpoint.initiate(Time::default(), Some(&connection), child).unwrap();
        }),
        ("a changed one", |endpoint, number| {
            let changed = Connection { dpd_delay: Duration::from_secs(30), ..site(number) };
            endpoint.load_connection(Time::default(), changed).unwrap();
        }),
        ("its outdated children", |endpoint, number| {
            assert_eq!(endpoint.outdated_children(&site(number).name), []);
        }),
        ("one that goes", |endpoint, number| assert!(endpoint.unload_connection(&site(number).name))),
        ("one that comes back", |endpoint, number| {
            endpoint.load_connection(Time::default(), site(number)).unwrap();
        }),
    ];
    let (mut few, mut many) = (gateway(250), gateway(8000));
    for (what, work) in works {
        let (few, many) = (least(&mut few, work), least(&mut many, work));
        assert!(many < few * 6, "{what}: {few:?} among 250, {many:?} among 8000");
    }
}

/// A time limit of a few seconds, whatever their number: a walk through all of them for each would
/// take far longer.
#[test]
fn the_end_of_many_takes_no_time() {
    let mut endpoint = gateway(3000);
    let begun = processor_time();
    endpoint.shut_down(Time::default(), Duration::from_secs(3));
    let took = processor_time() - begun;
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(endpoint.sas().count(), 0);
}

/// One connection for many peers, of which `gateway` knows none by address.
fn peers(count: usize) -> World {
    let mut world = World::new(2, Weather::FAIR);
    world.restore = false;
    let now = world.now;
    let mut everybody = connection((GATEWAY, "gw"), ("192.0.2.1", "host"));
    everybody.remote_addrs.clear();
    everybody.remote.id = None;
    let host = world.add(GATEWAY, EndpointConfig::default());
    host.load_secret(secret("all", b"everybody's key", &[]));
    host.load(now, everybody);
    for number in 1..=count {
        let (addr, name) = (format!("192.0.2.{number}"), format!("host{number}"));
        let mut to_gateway = connection((&addr, &name), (GATEWAY, "gw"));
        both_ciphers(number, &mut to_gateway);
        let host = world.add(&addr, EndpointConfig::default());
        host.load_secret(secret("all", b"everybody's key", &[]));
        host.load(now, to_gateway);
        world.initiate(number);
    }
    world.run_secs(10);
    assert_eq!(world.hosts[0].installed.len(), count);
    world
}

/// The gateway's requests so far.
fn asked(world: &World) -> usize {
    sent(world, 0, ExchangeType::CreateChildSa, false).len()
}

#[test]
fn many_peers_of_one_connection_are_asked_one_after_the_other() {
    let mut world = peers(40);
    let before = world.hosts[0].sent.len();
    reload(&mut world, 0, other_cipher);
    assert_eq!(world.hosts[0].sent.len(), before, "nothing is computed while it is loaded");
    let end = world.now.plus(Duration::from_secs(60));
    let (mut now, mut at_once, mut most, mut last) = (world.now, 0, 0, world.now);
    loop {
        let before = asked(&world);
        if !world.step(end) {
            break;
        }
        if world.now > now {
            (now, at_once) = (world.now, 0);
        }
        let more = asked(&world) - before;
        at_once += more;
        most = most.max(at_once);
        if more > 0 {
            last = now;
        }
    }
    assert_eq!((asked(&world), most), (40, 1));
    assert!(last < end, "{last:?}");
    assert!(world.hosts[0].installed.values().all(|params| params.algorithm == EspAlgorithm::Aes256Gcm16));
    assert_eq!(world.hosts[0].installed.len(), 40);
}

/// Nor is a child that goes deleted everywhere at once.
#[test]
fn a_child_that_is_removed_goes_from_one_peer_after_the_other() {
    let mut world = peers(40);
    let before = world.hosts[0].sent.len();
    reload(&mut world, 0, |_, connection| connection.children[0].name = "another".into());
    assert_eq!(world.hosts[0].sent.len(), before);
    world.run_secs(60);
    assert!(world.hosts.iter().all(|host| host.installed.is_empty()));
}

#[test]
fn one_peer_is_asked_at_once() {
    let mut world = peers(1);
    reload(&mut world, 0, other_cipher);
    let end = world.now;
    while world.step(end) {}
    assert_eq!(asked(&world), 1);
}
