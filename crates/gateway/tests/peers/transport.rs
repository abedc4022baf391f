//! Transport mode between the gateways themselves: the IP header that is on the wire is the host's
//! own.

use crate::common::{ANSWERED, Pair, SOON, Scenario, Watch, each_ping};
use crate::mtu::headers;
use crate::rekeying::renew;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;
use testudo_lab::capture::Capture;
use testudo_lab::gateway::{Gateway, Kind};
use testudo_lab::guest::Guest;
use testudo_lab::iperf::Direction;
use testudo_lab::nginx::Nginx;
use testudo_lab::ping::Ping;
use testudo_lab::streams::Streams;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, Side};
use testudo_lab::transfer::Transfer;
use testudo_lab::wait_until;

const SIDES: [Side; 2] = [Side::One, Side::Two];
const LIMIT: Duration = Duration::from_secs(60);
const FILE: u64 = 16 << 20;

pub(crate) fn guest(pair: &Pair) -> &Guest {
    match &pair.two {
        Gateway::Guest(guest) => guest,
        _ => panic!("side two runs a guest"),
    }
}

/// The gateways' own addresses, and nothing behind them.
pub(crate) fn between_hosts(outer: Family, side: Side, connection: &mut Connection) {
    connection.mode = "transport".into();
    connection.local_ts = vec![side.outer(outer).to_string()];
    connection.remote_ts = vec!["dynamic".into()];
}

/// Both sides say what the child is.
fn is_in(pair: &Pair, mode: &str) {
    for side in SIDES {
        let sas = pair.sas(side);
        let used = sas[0].children.iter().find(|child| child.state == "INSTALLED");
        assert_eq!(used.and_then(|child| child.get("mode")), Some(mode), "{side:?}: {sas:?}");
    }
}

/// Packets that leave whole.
pub(crate) const SMALL: &[u32] = &[1, 56, 1200, 1300];
/// Packets that leave in fragments, of which the later ones have no ports; or that the host's
/// kernel sends in fragments.
pub(crate) const LARGE: &[u32] = &[1400, 1450, 1472, 4000];

pub(crate) fn pings_are_answered(pair: &Pair, outer: Family, (from, sizes): (&[Side], &[u32])) {
    for from in from {
        for &size in sizes {
            let to = from.other().outer(outer);
            // The first of a size may be answered with what fits.
            Ping::new(to).size(size).count(3).brief().run(pair.t.gateway(*from)).unwrap();
            let pong = Ping::new(to).size(size).run(pair.t.gateway(*from)).unwrap();
            let drops = (pair.drops(Side::One), pair.drops(Side::Two));
            assert_eq!(pong.received, pong.sent, "{outer}, {size} octets, from {from:?}: {drops:?}");
        }
    }
}

/// A large file from each gateway to the other, and streams.
pub(crate) fn tcp_flows(pair: &Pair, outer: Family) {
    for from in SIDES {
        let nginx = Nginx::start(pair.t.gateway(from)).unwrap();
        let sent = nginx.add_file("file", FILE, 7).unwrap();
        let transfer = Transfer::start(pair.t.gateway(from.other()), from.outer(outer), "file").unwrap();
        let got = transfer.finish(LIMIT).unwrap();
        assert_eq!((got.bytes, &got.sha256), (FILE, &sent), "{outer} from {from:?}");
    }
    for direction in [Direction::Up, Direction::Down] {
        let to = Side::Two.outer(outer);
        let streams = Streams { direction, count: 2, octets: 1 << 20 };
        streams.carry(&pair.t.gw1, &pair.t.gw2, to).unwrap();
    }
}

fn hosts_talk(outer: Family, encap: bool) {
    let adjust = |side, connection: &mut Connection| {
        between_hosts(outer, side, connection);
        connection.encap = encap && side == Side::One;
    };
    let pair = Scenario::new("transport", Kind::Testudo).outer(outer).start_with(adjust);
    let watch = Watch::start(&pair.t);
    let first = Capture::everything(&pair.t.wire, 60).unwrap();
    pair.up(Side::One);
    is_in(&pair, "TRANSPORT");
    pings_are_answered(&pair, outer, (&SIDES, SMALL));
    tcp_flows(&pair, outer);
    let wire = first.stop().unwrap().show(60).unwrap();
    let named = if encap { "UDP-encap: ESP(spi=0x" } else { ": ESP(spi=0x" };
    assert!(wire.contains(named), "{wire}");
    // New keys by either side, and the mode stays.
    for side in SIDES {
        renew(&pair, side, &["--child", "lab"]);
        is_in(&pair, "TRANSPORT");
        pings_are_answered(&pair, outer, (&[side], SMALL));
    }
    watch.saw_nothing();
    pings_are_answered(&pair, outer, (&SIDES, LARGE));
    for side in SIDES {
        let drops = pair.drops(side);
        assert_eq!((drops["auth_failed"], drops["selector_mismatch"], drops["fragment_inside"]), (0, 0, 0));
    }
}

#[test]
fn hosts_talk_in_transport_mode_over_ipv4() {
    hosts_talk(Family::V4, false);
}

#[test]
#[ignore = "make test-all: the other family"]
fn hosts_talk_in_transport_mode_over_ipv6() {
    hosts_talk(Family::V6, false);
}

#[test]
fn hosts_talk_in_transport_mode_in_udp() {
    hosts_talk(Family::V4, true);
}

#[test]
#[ignore = "make test-all: the other family"]
fn hosts_talk_in_transport_mode_in_udp_over_ipv6() {
    hosts_talk(Family::V6, true);
}

/// Fragments of the hosts' own packets come by one queue each, and meet.
#[test]
#[ignore = "make test-all: a combination of what others prove"]
fn hosts_talk_in_transport_mode_through_many_workers() {
    let settings = "\n[worker]\ncount = 2\n";
    let scenario = Scenario::new("transport", Kind::Testudo).queues([2, 2]).settings(settings);
    let pair = scenario.start_with(|side, connection| between_hosts(Family::V4, side, connection));
    pair.up(Side::Two);
    is_in(&pair, "TRANSPORT");
    pings_are_answered(&pair, Family::V4, (&SIDES, SMALL));
    pings_are_answered(&pair, Family::V4, (&SIDES, LARGE));
    tcp_flows(&pair, Family::V4);
}

/// Three requests by ping(8) from one gateway to the other; what it says of one without a reply.
fn pings_of(
    pair: &Pair,
    from: Side,
    outer: Family,
    (size, fragmentation): (u32, &str),
) -> Result<(), String> {
    let to = from.other().outer(outer).to_string();
    each_ping(pair.t.gateway(from), 3, &["-M", fragmentation, "-s", &size.to_string(), &to])
}

/// The host's kernel learns what fits, to the octet: what ESP adds, and not another IP header.
fn hosts_learn_sizes(outer: Family) {
    const OUTER_MTU: u32 = 1400;
    let scenario = Scenario::new("transport", Kind::Testudo).outer(outer).outer_mtu(OUTER_MTU as u16);
    let pair = scenario.start_with(|side, connection| between_hosts(outer, side, connection));
    let watch = Watch::start(&pair.t);
    pair.up(Side::One);
    let mtu = (OUTER_MTU - 32) / 4 * 4 - 2;
    let fitting = mtu - headers(outer);
    for from in SIDES {
        assert_eq!(pings_of(&pair, from, outer, (fitting, "do")), Ok(()), "{outer} from {from:?}");
        for _ in 0..2 {
            let said = pings_of(&pair, from, outer, (fitting + 1, "do")).unwrap_err();
            assert!(said.contains(&mtu.to_string()), "{outer} from {from:?}: {said}");
        }
    }
    // Then the kernel knows.
    pair.await_dropped("too_big", 1);
    watch.saw_nothing();
    for from in SIDES {
        assert_eq!(pings_of(&pair, from, outer, (3000, "want")), Ok(()), "{outer} from {from:?}");
    }
}

#[test]
fn hosts_learn_what_fits_in_transport_mode_over_ipv4() {
    hosts_learn_sizes(Family::V4);
}

#[test]
#[ignore = "make test-all: the other family"]
fn hosts_learn_what_fits_in_transport_mode_over_ipv6() {
    hosts_learn_sizes(Family::V6);
}

/// The first packet of a host brings the SA up, and until then none leaves in clear.
#[test]
fn the_first_packet_asks_for_transport_mode() {
    let adjust = |side, connection: &mut Connection| {
        between_hosts(Family::V6, side, connection);
        connection.more_child = vec!["start_action = trap".into()];
    };
    let pair = Scenario::new("transport", Kind::Testudo).outer(Family::V6).start_with(adjust);
    let watch = Watch::start(&pair.t);
    let to = Side::Two.outer(Family::V6);
    wait_until("an answer to a ping", LIMIT, || {
        let pong = Ping::new(to).count(3).brief().run(&pair.t.gw1)?;
        Ok(if pong.received == pong.sent { Ok(()) } else { Err(format!("{pong:?}")) })
    })
    .unwrap();
    is_in(&pair, "TRANSPORT");
    watch.saw_nothing();
}

/// Of two ends only one wants it.
#[test]
fn a_peer_without_transport_mode_gets_a_tunnel() {
    for wants in SIDES {
        let adjust = |side, connection: &mut Connection| {
            between_hosts(Family::V4, side, connection);
            if side != wants {
                connection.mode = "tunnel".into();
            }
        };
        let pair = Scenario::new("transport", Kind::Testudo).start_with(adjust);
        pair.up(Side::One);
        is_in(&pair, "TUNNEL");
        pings_are_answered(&pair, Family::V4, (&[Side::One], SMALL));
    }
}

/// Octets that the guest's shell sends over TCP, as many as it is asked for.
fn stream_from_guest(pair: &Pair, outer: Family) {
    const OCTETS: usize = 256 << 10;
    let shell = SocketAddr::new(Side::Two.outer(outer), 7);
    let talk = || -> std::io::Result<usize> {
        let mut stream = TcpStream::connect_timeout(&shell, LIMIT)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.write_all(format!("head -c {OCTETS} /dev/zero; exit\n").as_bytes())?;
        let mut said = Vec::new();
        stream.read_to_end(&mut said)?;
        Ok(said.len())
    };
    assert_eq!(pair.t.gw1.enter(talk).unwrap().unwrap(), OCTETS);
}

fn ping_from_guest(pair: &Pair, to: IpAddr, size: usize) {
    // Each by a ping of its own, as in `each_ping`.
    for _ in 0..3 {
        let said = guest(pair).run(&format!("ping -c 1 -W {ANSWERED} -s {size} {to}")).unwrap();
        assert!(said.contains(" 0% packet loss"), "{said}");
    }
}

/// The peer's ESP is that of a Linux kernel: transport mode of either side's asking, with both
/// kinds of numbers.
fn a_kernel_agrees(outer: Family) {
    let pair = Scenario::new("transport-kernel", Kind::Guest).outer(outer).start_empty();
    let proposals = ["aes128gcm16-esn", "aes128gcm16-noesn", "aes256-sha256-esn"];
    for (proposal, initiator) in proposals.into_iter().zip([Side::One, Side::Two, Side::One]) {
        for side in SIDES {
            let mut connection = Connection::of(side, outer);
            between_hosts(outer, side, &mut connection);
            connection.esp_proposals = proposal.into();
            pair.swanctl(side).load(&connection.to_string()).unwrap();
        }
        pair.up(initiator);
        is_in(&pair, "TRANSPORT");
        let states = guest(&pair).run("ip xfrm state").unwrap();
        assert_eq!(states.matches("mode transport").count(), 2, "{states}");
        for size in [56, 1400, 4000] {
            Ping::new(Side::Two.outer(outer)).size(size).count(3).brief().run(&pair.t.gw1).unwrap();
            let pong = Ping::new(Side::Two.outer(outer)).size(size).run(&pair.t.gw1).unwrap();
            assert_eq!(pong.received, pong.sent, "{size}: {:?}", pair.drops(Side::One));
            ping_from_guest(&pair, Side::One.outer(outer), size as usize);
        }
        let watch = Watch::start(&pair.t);
        stream_from_guest(&pair, outer);
        renew(&pair, initiator, &["--child", "lab"]);
        ping_from_guest(&pair, Side::One.outer(outer), 1000);
        is_in(&pair, "TRANSPORT");
        watch.saw_nothing();
        pair.swanctl(initiator).terminate("lab").unwrap();
        wait_until("the end of the kernel's SAs", SOON, || {
            let states = guest(&pair).run("ip xfrm state")?;
            Ok(if states.trim().is_empty() { Ok(()) } else { Err(states) })
        })
        .unwrap();
    }
}

#[test]
fn a_linux_kernel_talks_in_transport_mode_over_ipv4() {
    a_kernel_agrees(Family::V4);
}

#[test]
#[ignore = "make test-all: the other family"]
fn a_linux_kernel_talks_in_transport_mode_over_ipv6() {
    a_kernel_agrees(Family::V6);
}
