//! What the nodes of a spread tunnel send, collected from the wire whatever fails: no sequence
//! number and no IV of an SA comes twice.

use super::daemons::carried_on;
use super::spread::spread;
use super::{
    FormerOwner, LIMIT, OUTAGE_LIMIT, Seen, Trial, behind, hardly_doubled, not_doubled, others, within,
};
use std::collections::{BTreeSet, HashMap};
use std::io::Write;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;
use testudo_lab::bed::{BedOptions, Failure, replay_window};
use testudo_lab::capture::{Capture, Captured, EspPacket};
use testudo_lab::cluster::{Cut, Net};
use testudo_lab::gateway::Kind;
use testudo_lab::{Namespace, wait_until};

/// Octets of a frame up to the end of the IV: Ethernet, IP, UDP, and ESP have no more than 78.
const BEGINNING: u16 = 96;
/// Datagrams of a burst.
const BURST: u64 = 48;
/// Between two bursts.
const PAUSE: Duration = Duration::from_millis(40);
/// Packets that the least busy node sends while all this happens, at least. A probe sends one
/// a millisecond.
const FEW: usize = 300;

/// What happens to the node that speaks for the tunnel.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// It is drained, and takes its lanes back.
    Drain,
    /// It fails, and comes back.
    Fails(Failure),
}

/// Bursts of datagrams to a port behind the peer where nobody listens: a worker gives all packets
/// of a burst their numbers at once.
struct Bursts {
    stop: Arc<AtomicBool>,
    sender: JoinHandle<()>,
}

impl Bursts {
    fn start(client: &Namespace) -> Self {
        let socket = client.enter(|| UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let sender = spawn(move || {
            for burst in (0_u64..).take_while(|_| !told.load(Ordering::Relaxed)) {
                // The lane of a datagram follows from its first octets.
                for number in burst * BURST..(burst + 1) * BURST {
                    let _refused = socket.send_to(&number.to_be_bytes(), (behind(1), 9));
                }
                sleep(PAUSE);
            }
        });
        Self { stop, sender }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.sender.join().unwrap();
    }
}

/// Each of these happens in turn, under traffic, and the peer gets new keys after each. The tunnel
/// lives, and all that the nodes send meanwhile is collected.
fn collected(name: &str, peer: Kind, events: &[Event]) {
    let options = BedOptions { peers: vec![peer], ..spread("packet-hash") };
    let mut trial = Trial::start_with(name, &options, replay_window(1024));
    // At the switch, because packet sockets of a node miss what AF_XDP sends. There each port
    // receives what its node sends, whether it is joined to the others or not.
    let switch = trial.bed.cluster.outer.clone();
    let ports: Vec<&str> = trial.bed.cluster.nodes.iter().map(Namespace::role).collect();
    let capture = Capture::all_esp(&switch, &ports, BEGINNING).unwrap();
    // The first keys whose packets are seen from the first one on.
    trial.all_is_well("the start");
    let bursts = Bursts::start(&trial.bed.cluster.client);
    for event in events {
        match event {
            Event::Drain => drained(&mut trial),
            Event::Fails(failure) => failed(&mut trial, *failure),
        }
    }
    bursts.stop();
    nothing_repeats(&capture.stop().unwrap(), events.len());
}

fn drained(trial: &mut Trial) {
    let node = trial.bed.owner(1).unwrap();
    let name = node.to_string();
    carried_on(trial, "a drain", FormerOwner::HandsOver, |bed| drop(bed.node(node).drain(&[&name]).unwrap()));
    carried_on(trial, "the end of a drain", FormerOwner::HandsOver, |bed| {
        bed.node(node).drain(&[&name, "--undo"]).unwrap();
        bed.await_balance().unwrap();
    });
}

fn failed(trial: &mut Trial, failure: Failure) {
    let node = trial.bed.owner(1).unwrap();
    let what = format!("{failure:?} of node {node}");
    let doubled = |what: &str, seen: &Seen| match failure {
        // It lives, and the others cannot tell it that they carry on (`links.rs`).
        Failure::Link(Net::Cluster, _) => hardly_doubled(what, 300, seen),
        _ => not_doubled(what, FormerOwner::PassedOver, seen),
    };
    let mut seen = trial.under_traffic(&what, |bed| {
        bed.strike(node, failure).unwrap();
        wait_until("another node that speaks for the tunnel", LIMIT, || {
            let taken = bed.owner_among(1, &others(node))?;
            Ok(taken.map(drop).ok_or_else(|| format!("none beside node {node}")))
        })
        .unwrap();
        if failure == Failure::Pause {
            // What it has in its queues, and sends if nothing holds it back.
            bed.mend(node, failure).unwrap();
        }
    });
    if failure == Failure::Pause {
        // Its silence was no mistake, although it is heard again.
        seen.false_alarms.remove(&node);
    }
    doubled(&what, &seen);
    within(&what, OUTAGE_LIMIT, &seen);
    if failure != Failure::Pause {
        trial.all_is_well(&what);
    }

    let what = format!("the end of {what}");
    let seen = trial.under_traffic(&what, |bed| {
        if failure != Failure::Pause {
            bed.mend(node, failure).unwrap();
        }
        bed.await_all().unwrap();
        bed.await_balance().unwrap();
    });
    doubled(&what, &seen);
    within(&what, OUTAGE_LIMIT, &seen);
    trial.all_is_well(&what);
}

/// Of all packets no two have an SPI and a sequence number in common, or an SPI and an IV. Nothing
/// escaped the capture, and all nodes have sent.
fn nothing_repeats(captured: &Captured, events: usize) {
    let read = |frame: &Vec<u8>| EspPacket::read(frame).unwrap_or_else(|| panic!("{frame:02x?}"));
    let frames = captured.frames_by_interface().unwrap();
    let nodes: Vec<Vec<EspPacket>> = frames.iter().map(|frames| frames.iter().map(read).collect()).collect();
    let spis: BTreeSet<u32> = nodes.iter().flatten().map(|packet| packet.spi).collect();
    let sent: Vec<usize> = nodes.iter().map(Vec::len).collect();
    let mut stderr = std::io::stderr();
    writeln!(stderr, "captured {sent:?} packets of each node, on {} SAs", spis.len()).unwrap();
    let again = repeats(&nodes);
    let first: Vec<_> = again.iter().take(10).collect();
    assert!(again.is_empty(), "{} of {sent:?} packets have numbers of others: {first:x?}", again.len());
    assert_eq!(captured.lost, 0, "the capture missed packets");
    assert!(sent.iter().all(|packets| *packets > FEW), "{sent:?}");
    // Before and after each event.
    assert!(spis.len() > events, "{spis:x?}");
}

/// A packet, and the number of the node that has sent it.
type Sent = (u8, EspPacket);

/// The packets with a number or an IV that another of their SA has, behind that one.
fn repeats(nodes: &[Vec<EspPacket>]) -> Vec<[Sent; 2]> {
    let (mut numbers, mut ivs) = (HashMap::new(), HashMap::new());
    let packets = (1..).zip(nodes).flat_map(|(node, packets)| packets.iter().map(move |p| (node, *p)));
    let again = packets.filter_map(|(node, packet)| {
        let number = numbers.insert((packet.spi, packet.sequence), (node, packet));
        let iv = ivs.insert((packet.spi, packet.iv), (node, packet));
        number.or(iv).map(|before| [before, (node, packet)])
    });
    again.collect()
}

#[test]
fn numbers_and_ivs_that_repeat_are_found() {
    let packet = |spi, sequence, iv| EspPacket { spi, sequence, iv: [iv; 8] };
    let (first, other_sa) = (packet(1, 1, 1), packet(2, 1, 1));
    assert!(repeats(&[vec![first, packet(1, 2, 2)], vec![other_sa, packet(1, 3, 3)]]).is_empty());
    for again in [packet(1, 1, 2), packet(1, 2, 1)] {
        assert_eq!(repeats(&[vec![first, other_sa], vec![again]]), [[(1, first), (2, again)]]);
        assert_eq!(repeats(&[vec![first, again]]), [[(1, first), (1, again)]]);
    }
}

/// A node is killed, drained, and stopped and woken.
#[test]
fn no_number_repeats_on_the_wire_whatever_becomes_of_a_node() {
    let events = [Event::Fails(Failure::Testudod), Event::Drain, Event::Fails(Failure::Pause)];
    collected("spread-wire", Kind::Testudo, &events);
}

#[test]
#[ignore = "make test-all: a combination of what others prove"]
fn no_number_repeats_on_the_wire_over_all_faults() {
    // A port that is down has no capture, so each cut is a silent one.
    let failures = [
        Failure::Testudod,
        Failure::Pause,
        Failure::Corosync,
        Failure::Link(Net::Cluster, Cut::Silent),
        Failure::Link(Net::Outer, Cut::Silent),
        Failure::AllLinks(Cut::Silent),
    ];
    let events = [Event::Drain].into_iter().chain(failures.map(Event::Fails));
    collected("spread-wire-all", Kind::Strongswan, &events.collect::<Vec<_>>());
}
