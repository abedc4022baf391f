//! What a stranger records of a spread tunnel and sends again is accepted by no node, whichever
//! nodes have come and gone meanwhile.

use super::spread::spread;
use super::{AROUND, LIMIT, Trial, others, spis_in};
use std::collections::HashSet;
use std::io::Write;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;
use testudo_lab::bed::{Bed, Failure, replay_window};
use testudo_lab::capture::Capture;
use testudo_lab::inject::Injector;
use testudo_lab::testudo::Testudo;
use testudo_lab::topology::{Family, OUTER, Side};
use testudo_lab::wait_until;

/// Datagrams that are recorded in each step: most lanes have one.
const RECORDED: usize = 400;
/// Frames that the stranger sends at once: the queues of the nodes have room for more.
const AT_ONCE: usize = 16;
const PAUSE: Duration = Duration::from_millis(1);
/// How long a suspect stands still: longer than the fence, so that it drops what waits in its
/// queues when it goes on, and others have accepted that.
const STANDS_STILL: Duration = Duration::from_millis(350);

/// How often a step is repeated because the peer has got new keys.
const MOST_KEYS: usize = 10;

/// What happens to a node.
#[derive(Clone, Copy, Debug)]
enum Event {
    Nothing,
    /// It is suspected, and goes on.
    StandsStill(u8),
    Dies(u8),
    Returns(u8),
    Drains(u8),
    TakesBack(u8),
}

impl Event {
    fn happens(self, bed: &mut Bed) {
        match self {
            Self::Nothing => {}
            Self::StandsStill(node) => {
                let suspected = |bed: &Bed| {
                    let logs = bed.nodes.iter().map(|node| node.log().unwrap());
                    logs.map(|log| log.matches(&format!("node {node} is suspected")).count()).sum::<usize>()
                };
                let before = suspected(bed);
                bed.strike(node, Failure::Pause).unwrap();
                wait_until("a suspicion", LIMIT, || {
                    let now = suspected(bed);
                    Ok(if now > before { Ok(()) } else { Err(now.to_string()) })
                })
                .unwrap();
                sleep(STANDS_STILL);
                bed.mend(node, Failure::Pause).unwrap();
                bed.await_all().unwrap();
                bed.await_balance().unwrap();
            }
            Self::Dies(node) => {
                bed.strike(node, Failure::Testudod).unwrap();
                bed.await_members(&others(node)).unwrap();
            }
            Self::Returns(node) => {
                bed.mend(node, Failure::Testudod).unwrap();
                bed.await_all().unwrap();
                bed.await_balance().unwrap();
            }
            Self::Drains(node) => drop(bed.node(node).drain(&[&node.to_string()]).unwrap()),
            Self::TakesBack(node) => {
                bed.node(node).drain(&[&node.to_string(), "--undo"]).unwrap();
                bed.await_balance().unwrap();
            }
        }
    }
}

/// Numbered datagrams from the host behind the peer to the client, whose socket is open all the
/// time.
struct Numbered {
    sender: UdpSocket,
    receiver: UdpSocket,
    sent: u64,
    arrived: HashSet<u64>,
}

/// Datagrams that have come since they were last counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Came {
    /// For the first time.
    first: u64,
    /// Again.
    again: u64,
}

impl Numbered {
    fn open(bed: &Bed) -> Self {
        let to = (Side::One.host(Family::V4), 0);
        let receiver = bed.cluster.client.enter(move || UdpSocket::bind(to).unwrap()).unwrap();
        receiver.set_nonblocking(true).unwrap();
        let to = receiver.local_addr().unwrap();
        let sender = bed.cluster.hosts[0].enter(|| UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
        sender.connect(to).unwrap();
        Self { sender, receiver, sent: 0, arrived: HashSet::new() }
    }

    /// Datagrams that have not come.
    fn missing(&self) -> u64 {
        self.sent - self.arrived.len() as u64
    }

    /// Takes what has come.
    fn take(&mut self) -> Came {
        let mut came = Came::default();
        let mut number = [0; 8];
        while self.receiver.recv(&mut number).is_ok() {
            match self.arrived.insert(u64::from_be_bytes(number)) {
                true => came.first += 1,
                false => came.again += 1,
            }
        }
        came
    }

    /// Until nothing more comes.
    fn settle(&mut self) {
        wait_until("the last datagrams", LIMIT, || {
            sleep(AROUND);
            let came = self.take();
            Ok(if came == Came::default() { Ok(()) } else { Err(format!("{came:?}")) })
        })
        .unwrap();
    }

    /// Sends until that many have arrived, one a millisecond.
    fn carry(&mut self, count: usize) {
        let enough = self.arrived.len() + count;
        wait_until(&format!("{count} datagrams"), LIMIT, || {
            for _ in 0..100 {
                self.sender.send(&self.sent.to_be_bytes()).unwrap();
                self.sent += 1;
                sleep(Duration::from_millis(1));
                self.take();
            }
            let arrived = self.arrived.len();
            Ok(if arrived >= enough { Ok(()) } else { Err(format!("{arrived} of {}", self.sent)) })
        })
        .unwrap();
    }
}

/// Packets that each node has accepted from the peer, and refused for their numbers. `None` for a
/// node that cannot tell.
fn counted(bed: &Bed) -> Vec<Option<[u64; 2]>> {
    let of = |node: &Testudo| {
        let counters = &node.status().ok()?["counters"];
        let drops = counters["drops"].as_object()?;
        let refused = drops.iter().filter(|(reason, _)| reason.starts_with("replay"));
        let refused = refused.filter_map(|(_, count)| count.as_u64()).sum();
        Some([counters["totals"]["in_forwarded"].as_u64()?, refused])
    };
    bed.nodes.iter().map(of).collect()
}

/// What all nodes have counted since.
fn since(before: &[Option<[u64; 2]>], bed: &Bed) -> [u64; 2] {
    let now = counted(bed);
    // A node that has come back counts from zero.
    let grown = before.iter().zip(now).filter_map(|(before, now)| {
        let before = before.unwrap_or_default();
        now.map(|now| std::array::from_fn(|what| now[what].saturating_sub(before[what])))
    });
    grown.fold([0, 0], |all, node: [u64; 2]| [all[0] + node[0], all[1] + node[1]])
}

/// Sends recorded frames again.
struct Stranger {
    /// From the peer's place, from which the switch floods them to all nodes, and behind the ports
    /// of the single nodes.
    places: Vec<Injector>,
    frames: Vec<Vec<u8>>,
    /// The keys of these frames.
    keys: Vec<String>,
}

impl Stranger {
    fn new(bed: &Bed) -> Self {
        let cluster = &bed.cluster;
        let ports = cluster.nodes.iter().map(|node| (&cluster.outer, node.role()));
        let places = [(&cluster.peers[0], OUTER)].into_iter().chain(ports);
        let places = places.map(|(host, interface)| Injector::open(host, interface).unwrap());
        Self { places: places.collect(), frames: Vec::new(), keys: spis_in(bed, 1) }
    }

    /// True if its frames are of keys that are no longer used: a node has taken over with a floor
    /// that was in doubt, and asked for new ones.
    fn is_late(&self, bed: &Bed) -> bool {
        spis_in(bed, 1) != self.keys
    }

    /// Records what the peer sends while that happens, under one key.
    fn records(&mut self, bed: &mut Bed, numbered: &mut Numbered, event: Event) {
        for _ in 0..MOST_KEYS {
            self.records_once(bed, numbered, event);
            if !self.is_late(bed) {
                return;
            }
            self.frames.clear();
            self.keys = spis_in(bed, 1);
        }
        panic!("new keys each time");
    }

    fn records_once(&mut self, bed: &mut Bed, numbered: &mut Numbered, event: Event) {
        let capture = Capture::all_esp(&bed.cluster.outer, &[bed.cluster.peers[0].role()], 0).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| numbered.carry(RECORDED));
            event.happens(bed);
        });
        self.frames.extend(capture.stop().unwrap().frames().unwrap());
        numbered.settle();
    }

    /// Sends each frame to all nodes, and to each alone.
    fn sends_all_again(&self) {
        for place in &self.places {
            for frames in self.frames.chunks(AT_ONCE) {
                frames.iter().for_each(|frame| place.send(frame).unwrap());
                sleep(PAUSE);
            }
        }
    }

    /// Sends all again while that happens. Meanwhile nobody else sends, so what arrives has been
    /// accepted again.
    fn attacks(&self, bed: &mut Bed, numbered: &mut Numbered, event: Event) {
        let (before, missing) = (counted(bed), numbered.missing());
        let (over, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let _ends = Ends(&over);
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    self.sends_all_again();
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
            wait_until("the first round of the stranger", LIMIT, || {
                Ok(if rounds.load(Ordering::Relaxed) > 0 { Ok(()) } else { Err("none".into()) })
            })
            .unwrap();
            event.happens(bed);
        });
        self.is_refused(bed);
        let (came, [accepted, _]) = (numbered.take(), since(&before, bed));
        assert_eq!(came.again, 0, "delivered twice");
        // What was lost before the event may be accepted now, once.
        assert!(accepted <= missing, "{accepted} packets accepted, {missing} datagrams were missing");
    }

    /// Sends all again until as many have been refused as are sent in a round: of all nodes that
    /// a frame reaches the one with its lane refuses it.
    fn is_refused(&self, bed: &Bed) {
        let (before, all) = (counted(bed), self.frames.len() as u64 * 2);
        wait_until(&format!("{all} frames to be refused"), LIMIT, || {
            if self.is_late(bed) {
                return Ok(Ok(()));
            }
            self.sends_all_again();
            let [_, refused] = since(&before, bed);
            Ok(if refused >= all { Ok(()) } else { Err(refused.to_string()) })
        })
        .unwrap();
    }
}

/// Sets a flag when it goes, also if that is because of a failure: otherwise the thread that asks
/// for it would go on for ever.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_recorded_stream_is_accepted_by_no_node_again() {
    let mut trial = Trial::start_with("spread-replay", &spread("packet-hash"), replay_window(1024));
    let owner = trial.bed.owner(1).unwrap();
    let other = others(owner)[0];
    let mut numbered = Numbered::open(&trial.bed);
    let mut stranger = Stranger::new(&trial.bed);
    let steps = [
        (Event::Nothing, Event::Nothing),
        (Event::StandsStill(other), Event::Nothing),
        (Event::Nothing, Event::Dies(owner)),
        (Event::Nothing, Event::Returns(owner)),
        (Event::Nothing, Event::Drains(other)),
        (Event::Nothing, Event::TakesBack(other)),
    ];
    let mut stderr = std::io::stderr();
    for (under_traffic, under_attack) in steps {
        writeln!(stderr, "{under_traffic:?} under traffic, {under_attack:?} under attack").unwrap();
        stranger.records(&mut trial.bed, &mut numbered, under_traffic);
        stranger.attacks(&mut trial.bed, &mut numbered, under_attack);
    }
    trial.all_is_well("the end");
}
