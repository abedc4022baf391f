//! Sizes: an untrusted network that takes less than the protected ones. What must not be fragmented
//! is answered with the size that would have fitted; the rest is fragmented; TCP never gets that
//! far.

use crate::common::{ANSWERED, Arrivals, Pair, SOON, Scenario, Watch, each_ping};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use testudo_lab::gateway::Kind;
use testudo_lab::nginx::Nginx;
use testudo_lab::router::Router;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, HOST, Side};
use testudo_lab::transfer::Transfer;
use testudo_lab::wait_until;

const OUTER_MTU: u16 = 1400;

/// The largest packet that fits into one ESP packet of [`OUTER_MTU`] octets: 8 octets of header, 8
/// of IV, 16 of ICV, and 2 of trailer after padding to a multiple of 4 (RFC 4303 §2.4, RFC 4106).
fn largest(outer: Family) -> u32 {
    let header = match outer {
        Family::V4 => 20,
        Family::V6 => 40,
    };
    (u32::from(OUTER_MTU) - header - 32) / 4 * 4 - 2
}

/// IP and ICMP header of an echo request.
pub(crate) fn headers(inner: Family) -> u32 {
    match inner {
        Family::V4 => 28,
        Family::V6 => 48,
    }
}

fn start(outer: Family) -> Pair {
    let pair = Scenario::new("mtu", Kind::Testudo).outer(outer).outer_mtu(OUTER_MTU).start();
    pair.up(Side::One);
    pair
}

/// What `ping` says of one request of that many octets, fragmented as `-M` has it.
pub(crate) fn ping(pair: &Pair, from: Side, inner: Family, size: u32, fragmentation: &str) -> String {
    ping_within(ANSWERED, pair, from, inner, size, fragmentation)
}

/// Seconds for an answer that may not come.
const BRIEF: &str = "2";

/// Like [`ping`], with that many seconds for an answer.
fn ping_within(
    seconds: &str,
    pair: &Pair,
    from: Side,
    inner: Family,
    size: u32,
    fragmentation: &str,
) -> String {
    let (to, size) = (from.other().host(inner).to_string(), size.to_string());
    let args = ["-n", "-c", "1", "-W", seconds, "-M", fragmentation, "-s", &size, &to];
    let done = pair.t.host(from).cmd("ping").args(args).run_any().unwrap();
    format!("{}{}", done.stdout, done.stderr)
}

/// Several of them, each of which is answered.
pub(crate) fn pings_pass(pair: &Pair, from: Side, inner: Family, size: u32, fragmentation: &str) {
    let (to, size) = (from.other().host(inner).to_string(), size.to_string());
    let answered = each_ping(pair.t.host(from), 3, &["-M", fragmentation, "-s", &size, &to]);
    assert_eq!(answered, Ok(()), "{inner}, {size} octets, from {from:?}; drops {:?}", pair.all_dropped());
}

/// Before anyone has learnt a path MTU: whole packets of 1500 octets, and datagrams of several.
fn what_may_be_fragmented_passes(pair: &Pair) {
    for from in [Side::One, Side::Two] {
        for size in [1472, 4000] {
            pings_pass(pair, from, Family::V4, size, "dont");
        }
    }
}

/// The boundary itself passes, one octet more is answered.
fn what_must_not_is_answered(pair: &Pair, outer: Family) {
    let mtu = largest(outer);
    for from in [Side::One, Side::Two] {
        for inner in [Family::V4, Family::V6] {
            let fitting = mtu - headers(inner);
            pings_pass(pair, from, inner, fitting, "do");
            let said = ping(pair, from, inner, fitting + 1, "do");
            let expected = match inner {
                Family::V4 => format!("Frag needed and DF set (mtu = {mtu})"),
                Family::V6 => format!("Packet too big: mtu={mtu}"),
            };
            assert!(said.contains(&expected), "{inner} from {from:?}: {said}");
            let source = format!("From {} ", from.inner(inner));
            assert!(said.contains(&source), "{inner} from {from:?}: {said}");
            // The host's kernel remembers the learned MTU: it refuses by itself, or fragments.
            let said = ping(pair, from, inner, fitting + 1, "do");
            assert!(
                said.contains("message too long, mtu") && said.contains(&mtu.to_string()),
                "{inner} from {from:?}: {said}"
            );
        }
    }
}

fn who_has_learnt_fragments(pair: &Pair) {
    for from in [Side::One, Side::Two] {
        for inner in [Family::V4, Family::V6] {
            pings_pass(pair, from, inner, 3000, "want");
        }
    }
}

fn sizes(outer: Family) {
    let pair = start(outer);
    let watch = Watch::start(&pair.t);
    what_may_be_fragmented_passes(&pair);
    let too_big = pair.dropped("too_big");
    what_must_not_is_answered(&pair, outer);
    who_has_learnt_fragments(&pair);
    // One for each family from the client's side.
    pair.await_dropped("too_big", too_big + 2);
    let counters = &pair.one.status().unwrap()["counters"];
    assert!(counters["totals"]["split"].as_u64() > Some(0), "{counters}");
    watch.saw_nothing();
}

#[test]
fn sizes_over_ipv4() {
    sizes(Family::V4);
}

#[test]
#[ignore = "make test-all: the other family"]
fn sizes_over_ipv6() {
    sizes(Family::V6);
}

/// An inner IPv6 packet of 1280 octets must pass (RFC 8200 §5), also where the outer path takes no
/// more: the outer packet is fragmented, and the kernel at the other end puts it together. It
/// answers with fragments of its own, which we put together.
#[test]
fn the_smallest_ipv6_mtu_passes_a_path_of_the_same() {
    let pair = Scenario::new("mtu", Kind::Strongswan).outer(Family::V6).outer_mtu(1280).start();
    pair.up(Side::One);
    let arrivals = Arrivals::count(&pair.t.server, HOST, &[]);
    pings_pass(&pair, Side::One, Family::V6, 1280 - headers(Family::V6), "do");
    assert_eq!(arrivals.packets(), 3);
    let totals = &pair.one.status().unwrap()["counters"]["totals"];
    assert_eq!(totals["split"], 3, "{totals}");
    assert_eq!(totals["joined"], 3, "{totals}");
    assert_eq!(pair.dropped("link_too_big"), 0);
}

/// A router on the way takes less than the port does, and says so: the first packet is lost, the
/// next is answered.
#[test]
fn a_path_mtu_is_learned_from_a_router() {
    let pair = Scenario::new("pmtu", Kind::Strongswan).nat(Side::One).start();
    pair.up(Side::One);
    let ping = |size: u32| ping(&pair, Side::One, Family::V4, size, "do");
    let perhaps = |size: u32| ping_within(BRIEF, &pair, Side::One, Family::V4, size, "do");
    let said = ping(1372);
    assert!(said.contains("1 received"), "nothing is in its way yet: {said}");
    pair.t.nat.as_ref().unwrap().limit(1300).unwrap();
    let said = perhaps(1372);
    assert!(said.contains("0 received") && !said.contains("Frag needed"), "the first is lost: {said}");
    // Outer IPv4 and UDP, and what ESP adds.
    let mtu = (1300 - 20 - 8 - 32) / 4 * 4 - 2;
    wait_until("the path MTU to be learned", SOON, || {
        let said = perhaps(1372);
        let told = said.contains(&format!("Frag needed and DF set (mtu = {mtu})"));
        Ok(if told { Ok(()) } else { Err(said) })
    })
    .unwrap();
    let said = ping(mtu - headers(Family::V4));
    assert!(said.contains("1 received"), "{said}");
    pair.await_said("takes packets of 1300 octets");
}

/// A router's message about an ESP packet with that SPI and number, which was never sent.
fn made_up(spi: u32, number: u32, protocol: u8) -> Vec<u8> {
    let mut message = vec![3, 4, 0, 0, 0, 0, 5, 0, 0x45, 0, 0x05, 0xdc, 0, 0, 0x40, 0, 64, protocol, 0, 0];
    for side in [Side::One, Side::Two] {
        let IpAddr::V4(addr) = side.outer(Family::V4) else { unreachable!("asked for IPv4") };
        message.extend(addr.octets());
    }
    message.extend([spi.to_be_bytes(), number.to_be_bytes()].concat());
    let sum: u32 = message.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    message[2..4].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    message
}

/// Somebody makes up many thousand such messages a second, as they quote ESP or something else,
/// while a router has something to say.
#[test]
fn junk_does_not_keep_a_router_from_being_heard() {
    let pair = Scenario::new("pmtu-junk", Kind::Strongswan).start();
    let peer = Side::Two.outer(Family::V4);
    let router = Router::join(pair.t.client.lab(), &pair.t.wire).unwrap();
    router.put_before(&pair.t.gw1, peer).unwrap();
    pair.up(Side::One);
    let (ended, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
    let flood = || {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)).unwrap();
        let to = SocketAddr::new(Side::One.outer(Family::V4), 0).into();
        for turn in 1_u32.. {
            if ended.load(Relaxed) {
                break;
            }
            for number in 0..40 {
                let protocol = if number % 2 == 0 { 50 } else { 6 };
                let message = made_up(turn, number, protocol);
                // A queue that is full is as good.
                let _ = socket.send_to(&message, &to);
            }
            sent.fetch_add(40, Relaxed);
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| pair.t.gw2.enter(flood).unwrap());
        let learned = std::panic::catch_unwind(AssertUnwindSafe(|| {
            wait_until("the flood", SOON, || {
                let sent = sent.load(Relaxed);
                Ok(if sent > 5000 { Ok(()) } else { Err(format!("{sent} messages")) })
            })
            .unwrap();
            router.limit(peer, 1300).unwrap();
            let told = || pair.one.log().unwrap().contains("takes packets of 1300 octets");
            wait_until("the path MTU to be learned", 3 * SOON, || {
                let said = ping_within(BRIEF, &pair, Side::One, Family::V4, 1372, "do");
                Ok(if told() { Ok(()) } else { Err(said) })
            })
        }));
        ended.store(true, Relaxed);
        flood.join().unwrap();
        learned.unwrap().unwrap();
    });
}

/// During a download the path MTU decreases: TCP is informed, and continues.
fn a_download_goes_on(pair: &Pair, becomes_smaller: impl FnOnce()) {
    const MIB: u64 = 1 << 20;
    let nginx = Nginx::start(&pair.t.client).unwrap();
    let expected = nginx.add_file("file", 16 * MIB, 7).unwrap();
    let slow = format!("qdisc add dev {HOST} root tbf rate 40mbit burst 64k latency 100ms");
    pair.t.client.run("tc", slow.split(' ')).unwrap();
    let transfer = Transfer::start(&pair.t.server, Side::One.host(Family::V4), "file").unwrap();
    transfer.await_received(MIB, SOON).unwrap();
    assert_eq!(pair.dropped("too_big"), 0, "nothing is in its way yet");
    becomes_smaller();
    let done = transfer.finish(Duration::from_secs(60)).unwrap();
    assert_eq!((done.bytes, done.sha256), (16 * MIB, expected));
    pair.await_said("takes packets of 1300 octets");
    assert!(pair.dropped("too_big") > 0);
}

fn a_download_passes_a_router(outer: Family) {
    let pair = Scenario::new("pmtu", Kind::Testudo).outer(outer).start();
    let peer = Side::Two.outer(outer);
    let router = Router::join(pair.t.client.lab(), &pair.t.wire).unwrap();
    router.put_before(&pair.t.gw1, peer).unwrap();
    pair.up(Side::One);
    a_download_goes_on(&pair, || router.limit(peer, 1300).unwrap());
    // A packet that may be split is, and its fragments fit.
    pings_pass(&pair, Side::One, Family::V4, 4000, "dont");
}

#[test]
fn a_download_passes_a_smaller_path_over_ipv4() {
    a_download_passes_a_router(Family::V4);
}

#[test]
#[ignore = "make test-all: the other family"]
fn a_download_passes_a_smaller_path_over_ipv6() {
    a_download_passes_a_router(Family::V6);
}

#[test]
fn a_download_passes_a_smaller_path_in_udp() {
    let pair = Scenario::new("pmtu", Kind::Strongswan).nat(Side::One).start();
    pair.up(Side::One);
    a_download_goes_on(&pair, || pair.t.nat.as_ref().unwrap().limit(1300).unwrap());
}

/// The MSS of a new connection is made to fit, in both directions, so that nothing has to be
/// refused or fragmented.
#[test]
fn tcp_is_clamped_to_what_fits() {
    for outer in [Family::V4, Family::V6] {
        let pair = start(outer);
        for inner in [Family::V4, Family::V6] {
            pair.tcp_both_ways(inner);
        }
        for side in [Side::One, Side::Two].map(|side| pair.status(side)) {
            let totals = &side["counters"]["totals"];
            // Two families, two directions: four connections.
            assert!(totals["mss_clamped"].as_u64() >= Some(4), "{totals}");
            assert_eq!(totals["split"], 0, "{totals}");
            assert_eq!(side["counters"]["drops"]["too_big"], 0, "{side}");
        }
    }
}

/// Octets of each segment for the option that Linux always sends (RFC 7323 §3.2).
const TIMESTAMPS: u32 = 12;

/// The MSS that each end of a new connection has got from the other: the side that connects, and
/// the one that accepts.
fn mss_got(pair: &Pair, from: Side, inner: Family) -> [u32; 2] {
    let to = SocketAddr::new(from.other().host(inner), 7777);
    let listener = pair.t.host(from.other()).enter(|| TcpListener::bind(to).unwrap()).unwrap();
    let client = pair.t.host(from).enter(|| TcpStream::connect_timeout(&to, SOON).unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    [client, server].map(|end| SockRef::from(&end).tcp_mss().unwrap() + TIMESTAMPS)
}

/// A child's `mss` holds in both directions, and a change of it for the SA that there is.
#[test]
fn a_child_sets_the_mss_of_tcp() {
    let scenario = Scenario::new("mss", Kind::Testudo).outer_mtu(OUTER_MTU);
    // The other side leaves the MSS alone, so that this one is seen in both directions.
    let pair = scenario.start_with(|side, connection| {
        if side == Side::Two {
            connection.more_child.push("mss = off".into());
        }
    });
    pair.up(Side::One);
    let spi = || pair.sas(Side::One)[0].children[0].get("spi-in").unwrap().to_owned();
    let first = spi();
    let fits = |headers| largest(Family::V4) - headers;
    for (mss, expected) in [
        ("auto", [fits(40), fits(60)]),
        ("1000", [1000, 1000]),
        ("9000", [fits(40), fits(60)]),
        ("off", [1460, 1440]),
        ("auto", [fits(40), fits(60)]),
    ] {
        let mut connection = Connection::of(Side::One, Family::V4);
        connection.more_child.push(format!("mss = {mss}"));
        pair.swanctl(Side::One).load(&connection.to_string()).unwrap();
        for from in [Side::One, Side::Two] {
            for (inner, expected) in [Family::V4, Family::V6].into_iter().zip(expected) {
                assert_eq!(mss_got(&pair, from, inner), [expected; 2], "{mss}: {inner} from {from:?}");
            }
        }
    }
    assert_eq!(spi(), first, "the SA is the one from before");
    assert_eq!(pair.status(Side::Two)["counters"]["totals"]["mss_clamped"], 0);
}
