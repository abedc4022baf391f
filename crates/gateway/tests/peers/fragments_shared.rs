//! Fragments over several workers: what hosts send in fragments, what is split before it is
//! encrypted and what is after, and what is put together again, by whichever worker has it in hand.

use crate::common::{Pair, SOON, Scenario};
use crate::workers::{is_balanced, number};
use nix::sys::signal::Signal;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBufForce;
use std::net::UdpSocket;
use std::ops::Range;
use std::time::{Duration, Instant};
use testudo_lab::gateway::Kind;
use testudo_lab::topology::{Family, Side};
use testudo_lab::wait_until;

const SIDES: [Side; 2] = [Side::One, Side::Two];
const FAMILIES: [Family; 2] = [Family::V4, Family::V6];
/// The least that IPv6 crosses: its packets of that size are split outside, and those of IPv4
/// inside.
const OUTER_MTU: u16 = 1280;
/// Of a datagram: six fragments of each family.
const OCTETS: usize = 7000;
/// Datagrams that are on their way at a time: bursts that fill a port. A kernel gives a datagram up
/// when more than 64 fragments have come between two of its own (`ipfrag_max_dist`).
const AT_A_TIME: u32 = 24;
/// Datagrams that pile up: 450 fragments, and 900 pieces, for which the ports have frames. When 16
/// bursts more were full than were not, a worker that sleeps is woken: that takes three piles.
const PILE: u32 = 75;
const ROOM: usize = 16 << 20;
/// How long the hosts talk before somebody looks whether workers have helped each other.
const PHASE: Duration = Duration::from_secs(1);

/// Between two hosts, each with a socket of the same port.
struct Line {
    near: UdpSocket,
    far: UdpSocket,
}

impl Line {
    fn new(pair: &Pair, from: Side, family: Family) -> Self {
        let port = 5000 + from.index() as u16;
        let open = |side: Side| {
            let opened = pair.t.host(side).enter(move || {
                let socket = UdpSocket::bind((side.host(family), port))?;
                socket.connect((side.other().host(family), port))?;
                socket.set_read_timeout(Some(SOON))?;
                // Of a datagram each fragment takes a page.
                setsockopt(&socket, RcvBufForce, &ROOM)?;
                Ok::<_, std::io::Error>(socket)
            });
            opened.unwrap().unwrap()
        };
        Self { near: open(from), far: open(from.other()) }
    }

    fn is_v6(&self) -> bool {
        self.near.local_addr().unwrap().is_ipv6()
    }

    /// Until a datagram of the full size has arrived; from then on all know the fitting size.
    fn warm_up(&self) {
        self.far.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let sent = datagram(u32::MAX);
        let came = || {
            let _ = self.near.send(&sent);
            let found = self.far.recv(&mut [0; OCTETS]).map_err(|error| error.to_string());
            Ok(found.map(|_| ()))
        };
        wait_until("a first datagram", 2 * SOON, came).unwrap();
        while self.far.recv(&mut [0; OCTETS]).is_ok() {}
        self.far.set_read_timeout(Some(SOON)).unwrap();
    }

    fn send(&self, numbers: Range<u32>) {
        numbers.for_each(|number| assert_eq!(self.near.send(&datagram(number)).unwrap(), OCTETS));
    }

    /// Each once and as it was, and none has overtaken another.
    fn get(&self, pair: &Pair, numbers: Range<u32>) {
        let mut got = vec![0; OCTETS + 1];
        for number in numbers {
            let came = self.far.recv(&mut got);
            let found = came.as_ref().ok().map(|len| &got[..*len]);
            let dropped = || SIDES.map(|side| drops(pair, side));
            assert!(
                found == Some(&datagram(number)),
                "datagram {number}: {came:?}, {:?}, {:?}",
                &got[..4],
                dropped()
            );
        }
    }
}

fn datagram(number: u32) -> Vec<u8> {
    let rest = (4..OCTETS).map(|at| (at * 7 % 251) as u8);
    number.to_be_bytes().into_iter().chain(rest).collect()
}

fn total(pair: &Pair, side: Side, name: &str) -> u64 {
    number(&pair.status(side)["counters"]["totals"][name])
}

/// All drops at that side except those of the kernel's own packets, which do not matter.
fn drops(pair: &Pair, side: Side) -> Vec<(String, u64)> {
    let all = pair.drops(side).into_iter();
    all.filter(|(reason, count)| *count > 0 && !reason.starts_with("filter_")).collect()
}

/// All of them at once.
fn talk(pair: &Pair, lines: &[&Line]) {
    std::thread::scope(|scope| {
        for line in lines {
            scope.spawn(|| {
                let begun = Instant::now();
                let rounds = (0..).step_by(AT_A_TIME as usize).take_while(|_| begun.elapsed() < PHASE);
                rounds.map(|first| first..first + AT_A_TIME).for_each(|numbers| {
                    line.send(numbers.clone());
                    line.get(pair, numbers);
                });
            });
        }
    });
}

/// What has piled up in side one's port while its testudod stood still comes in full bursts, of
/// which a worker gives some away. What a socket sends while testudod takes it seldom fills one.
fn pile_up(pair: &mut Pair, line: &Line) {
    let mut signal = |signal| pair.one.process().signal(signal).unwrap();
    signal(Signal::SIGSTOP);
    line.send(0..PILE);
    signal(Signal::SIGCONT);
    line.get(pair, 0..PILE);
}

/// So many packets in which a worker had a part show that it has one.
const ENOUGH: u64 = 20;

/// Whether that many packets were helped with, joined or split at each of these sides.
fn have(pair: &Pair, what: &str, sides: &[Side]) -> Result<(), String> {
    let found: Vec<u64> = sides.iter().map(|side| total(pair, *side, what)).collect();
    let enough = found.iter().all(|found| *found >= ENOUGH);
    if enough { Ok(()) } else { Err(format!("{what} {found:?}")) }
}

/// One flow of each family in each direction. At side one, one worker has the packets and the other
/// helps; at side two both have some.
#[test]
fn large_datagrams_cross_two_workers() {
    // A kernel may deal the fragments of one flow out to all queues. Then each worker has its own
    // work, and on a busy machine none ever rests. So one worker of side one has no queue.
    let scenario = Scenario::new("frag-shared", Kind::Testudo).queues([1, 2]).outer(Family::V6);
    let scenario = scenario.outer_mtu(OUTER_MTU).settings("\n[worker]\ncount = 2\n").large();
    let mut pair =
        scenario.start_with(|_, connection| connection.more_child = vec!["replay_window = 8192".into()]);
    pair.up(Side::One);
    let lines: Vec<Line> =
        SIDES.iter().flat_map(|side| FAMILIES.map(|family| Line::new(&pair, *side, family))).collect();
    lines.iter().for_each(Line::warm_up);
    let before = SIDES.map(|side| drops(&pair, side));
    // Packets of IPv6 are split outside, which helpers do not mind; those of IPv4 inside, and then
    // each worker is on its own.
    let [six, four] =
        [true, false].map(|v6| lines.iter().filter(|line| line.is_v6() == v6).collect::<Vec<_>>());
    let help = || {
        pile_up(&mut pair, six[0]);
        Ok(have(&pair, "helped", &SIDES[..1]))
    };
    wait_until("help", SOON, help).unwrap();
    for (what, lines) in [("joined", &six), ("split", &four)] {
        let talked = || {
            talk(&pair, lines);
            Ok(have(&pair, what, &SIDES))
        };
        wait_until(what, SOON, talked).unwrap();
    }
    for side in SIDES {
        wait_until("balanced counters", SOON, || Ok(is_balanced(&pair, side))).unwrap();
        assert_eq!(drops(&pair, side), before[side.index()], "{side:?}");
    }
}
