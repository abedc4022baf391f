//! Workers that help each other: nothing is lost, and what comes by one queue leaves in its order.

use super::*;
use crate::worker::pool::PoolSlot;
use crate::worker::steal::work;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::{Duration, Instant};
use testudo_base::spi::Spi;
use testudo_ipsec::dataplane::{Ingress, Turn};
use testudo_wire::ipv4::MIN_MTU;

const PACKETS: u32 = 20_000;
const OCTETS: usize = 100;
/// Where a packet has its number, and where the pipeline puts one of its own.
const NUMBER: usize = 24;
const SEQUENCE: usize = 32;
/// One in this many packets of a port goes through the pipeline twice.
const TWICE: u32 = 7;

/// Numbers packets at its turn, and takes as long for each as a cipher. All workers' have the
/// numbers in common.
#[derive(Default)]
pub(super) struct Numbering {
    next: Arc<AtomicU32>,
    /// Packets from outside have an SA that it has not heard of.
    knows_nothing: bool,
    /// Packets from outside have been relayed by another node.
    unwraps: bool,
    /// Packets from outside are too large.
    pub(super) splits: bool,
    passed_on: u64,
}

impl Numbering {
    fn number(&self, burst: &mut [Item<'_>]) {
        let first = self.next.load(Relaxed);
        for (item, sequence) in burst.iter_mut().zip(first..) {
            item.buf.data_mut()[SEQUENCE..][..4].copy_from_slice(&sequence.to_be_bytes());
        }
        // Not one step, so that two at once would be found out.
        self.next.store(first + burst.len() as u32, Relaxed);
    }
}

fn read(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(octets[at..][..4].try_into().unwrap())
}

fn decide(burst: &mut [Item<'_>], splits: bool) {
    for item in burst {
        (0..50).for_each(|_| std::hint::spin_loop());
        if splits && item.ingress == Ingress::Port {
            item.verdict = Verdict::Fragment { mtu: MIN_MTU };
            continue;
        }
        let twice = item.ingress == Ingress::Port && read(item.buf.data(), NUMBER).is_multiple_of(TWICE);
        item.verdict = if twice { Verdict::Onward } else { Verdict::Forward };
    }
}

impl Pipeline for Numbering {
    fn outbound(&mut self, burst: &mut [Item<'_>], _: &Sources) {
        self.number(burst);
        decide(burst, self.splits);
    }

    fn inbound(&mut self, burst: &mut [Item<'_>]) {
        self.number(burst);
        let verdict = match (self.knows_nothing, self.unwraps) {
            (true, _) => Verdict::Early(Spi(0x1234)),
            (false, true) => Verdict::Relayed { ingress: Ingress::Relayed, to_us: false },
            (false, false) => Verdict::Forward,
        };
        burst.iter_mut().for_each(|item| item.verdict = verdict);
    }

    fn judge(&mut self, burst: &mut [Item<'_>], _: &Sources) {
        let refused = Verdict::Drop(DropReason::ClearButProtected);
        burst.iter_mut().for_each(|item| item.verdict = refused);
    }

    fn outbound_in_turn(&mut self, burst: &mut [Item<'_>], _: &Sources, turn: &mut dyn Turn) {
        turn.begin();
        self.number(burst);
        turn.end();
        decide(burst, self.splits);
    }

    fn pass_early(&mut self, packets: u64, octets: u64) {
        assert_eq!(octets, packets * OCTETS as u64);
        self.passed_on += packets;
    }

    fn give_up_early(&mut self, _packets: u64) {}

    fn set_now(&mut self, _milliseconds: u64) {}

    fn set_open(&mut self, _open: bool) {}

    fn apply(&mut self, _command: Command) -> Option<Garbage> {
        None
    }

    fn drain_events(&mut self, _sink: impl FnMut(Event)) {}
}

pub(super) type NumberingWorker = Worker<FakePort, FakeTun, Numbering>;

/// The pool, and the numbers that its workers have in common.
pub(super) type Numbered = (Arc<WorkerPool>, Arc<AtomicU32>);

pub(super) fn numbered(workers: usize) -> Numbered {
    numbered_by(workers, Sharing::Steal)
}

fn numbered_by(workers: usize, sharing: Sharing) -> Numbered {
    (WorkerPool::new(workers, sharing), Arc::new(AtomicU32::new(1)))
}

fn member(id: u8, ports: Vec<FakePort>, pool: &Numbered) -> NumberingWorker {
    member_with(2 * FRAMES, id, ports, pool)
}

/// As `member`, with `frames` frames.
pub(super) fn member_with(
    frames: usize,
    id: u8,
    ports: Vec<FakePort>,
    (workers, next): &Numbered,
) -> NumberingWorker {
    let pool = FramePool::new(frames, ChunkSize::K2).unwrap();
    let pipeline = Numbering { next: Arc::clone(next), ..Numbering::default() };
    let worker = Worker::new(WorkerConfig::new(id), ports, None, pool, full_fib(), pipeline).unwrap();
    worker.in_pool(Arc::clone(workers), usize::from(id))
}

/// Lets as many packets arrive as the port and the pool take; returns the number of the next.
fn fill(worker: &mut NumberingWorker, mut next: u32) -> u32 {
    let mut packet = ipv4(CLIENT, PEER, OCTETS, false);
    while next < PACKETS && worker.pool_mut().available() > FRAMES {
        packet[NUMBER..][..4].copy_from_slice(&next.to_be_bytes());
        let frame = stamped(worker.pool_mut(), &packet, Class::Protect as u8);
        if let Err(frame) = worker.port_mut(LAN).unwrap().deliver(frame) {
            worker.pool_mut().give(frame);
            break;
        }
        next += 1;
    }
    next
}

/// The numbers of what has been sent, the packet's and the pipeline's.
pub(super) fn drain(worker: &mut NumberingWorker, numbers: &mut Vec<(u32, u32)>) {
    while let Some(frame) = worker.port_mut(WAN).unwrap().sent() {
        let packet = &frame.data()[14..];
        numbers.push((read(packet, NUMBER), read(packet, SEQUENCE)));
        worker.pool_mut().give(frame);
    }
}

/// Turns the owner until all packets have passed, while helpers turn on threads of their own.
fn pass(helpers: u8, sharing: Sharing) -> (NumberingWorker, Vec<(u32, u32)>, u64) {
    let pool = numbered_by(usize::from(helpers) + 1, sharing);
    let mut owner = member(0, vec![deep(0), deep(1)], &pool);
    let done = AtomicBool::new(false);
    let mut numbers = Vec::new();
    let helped = std::thread::scope(|scope| {
        let help = |id| {
            let mut helper = member(id, Vec::new(), &pool);
            let done = &done;
            scope.spawn(move || {
                while !done.load(Acquire) {
                    helper.turn(1);
                }
                let helped = helper.counters().totals().helped_others;
                assert_eq!(helper.close(), 0);
                helped
            })
        };
        let threads: Vec<_> = (1..=helpers).map(help).collect();
        let (mut next, begun) = (0, Instant::now());
        while numbers.len() < PACKETS as usize {
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", owner.counters().totals());
            next = fill(&mut owner, next);
            owner.turn(1);
            drain(&mut owner, &mut numbers);
        }
        done.store(true, Release);
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    (owner, numbers, helped)
}

#[test]
fn order_is_kept_however_many_help() {
    let by_hash = |over| Sharing::Hash { over };
    let ways = [0, 1, 3].map(|helpers| (helpers, Sharing::Steal));
    for (helpers, sharing) in ways.into_iter().chain([(1, by_hash(2)), (3, by_hash(4)), (3, by_hash(2))]) {
        let begun = Instant::now();
        // A busy machine may not let a helper run in time.
        let (owner, numbers, helped) = loop {
            let passed = pass(helpers, sharing);
            if helpers == 0 || passed.2 > 0 || begun.elapsed() > Duration::from_secs(60) {
                break passed;
            }
        };
        let mut packets: Vec<u32> = numbers.iter().map(|(number, _)| *number).collect();
        let once = packets.iter().copied().filter(|number| !number.is_multiple_of(TWICE));
        assert!(once.is_sorted(), "{helpers} helpers: a flow out of order");
        assert!(numbers.is_sorted_by_key(|(_, sequence)| *sequence), "{helpers} helpers: an SA out of order");
        packets.sort_unstable();
        assert!(packets.into_iter().eq(0..PACKETS), "{helpers} helpers: lost or doubled");
        let totals = owner.counters().totals();
        assert_eq!(totals.helped_by_others, helped);
        assert_eq!(helped > 0, helpers > 0, "{helpers} helpers: {helped} packets");
        assert!(totals.is_balanced() && totals.away == 0, "{totals:?}");
        assert_eq!(owner.close(), 0, "frames leaked");
    }
}

#[test]
fn a_burst_that_is_not_full_stays_with_its_owner() {
    let pool = numbered(2);
    let mut owner = member(0, vec![deep(0), deep(1)], &pool);
    let mut helper = member(1, Vec::new(), &pool);
    helper.turn(1);
    let frame = stamped(owner.pool_mut(), &ipv4(CLIENT, PEER, OCTETS, false), Class::Protect as u8);
    owner.port_mut(LAN).unwrap().deliver(frame).unwrap();
    owner.turn(1);
    assert!(!owner.has_tasks() && !helper.steal());
    let mut numbers = Vec::new();
    drain(&mut owner, &mut numbers);
    assert_eq!(numbers.len(), 1);
    assert_eq!((owner.close(), helper.close()), (0, 0));
}

/// Lets that many numbered packets arrive for the inbound way.
fn deliver_from_outside(owner: &mut NumberingWorker, count: u32) {
    for number in 0..count {
        let mut packet = ipv4(CLIENT, PEER, OCTETS, false);
        packet[NUMBER..][..4].copy_from_slice(&number.to_be_bytes());
        let frame = stamped(owner.pool_mut(), &packet, Class::Esp as u8);
        owner.port_mut(WAN).unwrap().deliver(frame).unwrap();
    }
}

#[test]
fn packets_unknown_to_a_helper_go_to_the_owner() {
    let pool = numbered(2);
    let mut owner = member(0, vec![deep(0), deep(1)], &pool);
    let mut helper = member(1, Vec::new(), &pool);
    helper.pipeline_mut().knows_nothing = true;
    helper.turn(1);
    let count = BURST as u32;
    deliver_from_outside(&mut owner, count);
    owner.receive(WAN);
    assert!(owner.has_tasks() && helper.steal());
    owner.turn(1);
    let mut numbers = Vec::new();
    drain(&mut owner, &mut numbers);
    assert!(numbers.iter().map(|(number, _)| *number).eq(0..count), "{numbers:?}");
    assert_eq!(helper.pipeline().passed_on, u64::from(count));
    let totals = owner.counters().totals();
    assert!(totals.is_balanced() && totals.held == 0, "{totals:?}");
    assert_eq!((owner.close(), helper.close()), (0, 0));
}

/// Bursts that a helper has opened come out of their relay SAs at the owner, in their order.
#[test]
fn relayed_packets_that_a_helper_has_opened_keep_their_order() {
    let pool = numbered(2);
    let mut owner = member(0, vec![deep(0), deep(1)], &pool);
    let mut helper = member(1, Vec::new(), &pool);
    for pipeline in [owner.pipeline_mut(), helper.pipeline_mut()] {
        pipeline.unwraps = true;
    }
    helper.turn(1);
    let count = 3 * BURST as u32;
    deliver_from_outside(&mut owner, count);
    owner.receive(WAN);
    owner.receive(WAN);
    assert!(owner.has_tasks() && helper.steal());
    (0..3).for_each(|_| {
        owner.turn(1);
    });
    let mut numbers = Vec::new();
    drain(&mut owner, &mut numbers);
    assert!(numbers.iter().map(|(number, _)| *number).eq(0..count), "{numbers:?}");
    assert!(numbers.is_sorted_by_key(|(_, sequence)| *sequence));
    let totals = owner.counters().totals();
    assert!(totals.is_balanced() && totals.away == 0, "{totals:?}");
    assert_eq!((owner.close(), helper.close()), (0, 0));
}

#[test]
fn the_owner_drops_packets_that_do_not_reach_the_pipeline() {
    let pool = numbered(2);
    let mut owner = member(0, vec![deep(0), deep(1)], &pool);
    let mut helper = member(1, Vec::new(), &pool);
    helper.turn(1);
    for number in 0..BURST {
        // No stamp, a source that is behind the other port, in clear, or as it should be.
        let (class, source) = [
            (0xff, CLIENT),
            (Class::Protect as u8, PEER),
            (Class::Clear as u8, PEER),
            (Class::Protect as u8, CLIENT),
        ][number % 4];
        let frame = stamped(owner.pool_mut(), &ipv4(source, PEER, OCTETS, false), class);
        owner.port_mut(LAN).unwrap().deliver(frame).unwrap();
    }
    owner.receive(LAN);
    assert!(owner.has_tasks() && helper.steal());
    owner.turn(1);
    let dropped = |reason| owner.counters().dropped(reason);
    assert_eq!((dropped(WorkerDrop::NoStamp), dropped(WorkerDrop::SpoofedSource)), (16, 16));
    assert_eq!(owner.counters().totals().dropped_by_pipeline, 16);
    let mut numbers = Vec::new();
    drain(&mut owner, &mut numbers);
    assert_eq!(numbers.len(), 16);
    assert!(owner.counters().totals().is_balanced());
    assert_eq!((owner.close(), helper.close()), (0, 0));
}

#[test]
fn commands_wait_for_what_has_begun() {
    let pool = numbered(2);
    let mut owner = member(0, vec![deep(0), deep(1)], &pool);
    let mut helper = member(1, Vec::new(), &pool);
    helper.turn(1);
    fill(&mut owner, PACKETS - 200);
    owner.receive(LAN);
    let (place, mut task) = helper.slot.as_ref().and_then(|slot| slot.steal()).expect("a task");
    // A command comes while a burst is out.
    owner.delivery.channel.commands.push(WorkerCommand::Fib(full_fib())).unwrap();
    let channel = Arc::clone(&owner.delivery.channel);
    std::thread::scope(|scope| {
        let helper = &mut helper;
        scope.spawn(move || {
            // The owner has taken the command, and could apply it.
            let begun = Instant::now();
            while !channel.commands.is_empty() {
                assert!(begun.elapsed() < Duration::from_secs(60), "the command is not taken");
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(20));
            assert!(channel.garbage.is_empty(), "applied too early");
            let slot = helper.slot.as_ref().unwrap();
            work(&mut task, slot, place, &mut helper.pipeline, &mut helper.delivery);
            slot.give_back(place, task);
        });
        owner.turn(1);
    });
    assert!(!owner.delivery.channel.garbage.is_empty(), "applied in the end");
    let mut numbers = Vec::new();
    while numbers.len() < 200 {
        owner.turn(1);
        drain(&mut owner, &mut numbers);
    }
    assert_eq!((owner.close(), helper.close()), (0, 0));
}

/// A pool of two by hash, with this many full bursts of the first worker in tasks.
fn two_by_hash(bursts: usize) -> (NumberingWorker, NumberingWorker) {
    let pool = numbered_by(2, Sharing::Hash { over: 2 });
    let mut owner = member(0, vec![deep(0), deep(1)], &pool);
    let mut other = member(1, Vec::new(), &pool);
    other.turn(1);
    for _ in 0..bursts {
        for _ in 0..BURST {
            let frame = stamped(owner.pool_mut(), &ipv4(CLIENT, PEER, OCTETS, false), Class::Protect as u8);
            owner.port_mut(LAN).unwrap().deliver(frame).unwrap();
        }
        owner.receive(LAN);
    }
    (owner, other)
}

/// Turns until every packet has left.
fn finish(owner: &mut NumberingWorker, other: &mut NumberingWorker, packets: usize) {
    let (mut numbers, begun) = (Vec::new(), Instant::now());
    while numbers.len() < packets {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", owner.counters().totals());
        owner.turn(1);
        other.turn(1);
        drain(owner, &mut numbers);
    }
    assert!(numbers.is_sorted_by_key(|(_, sequence)| *sequence));
}

#[test]
fn a_hash_chooses_the_worker_of_each_burst() {
    const BURSTS: usize = 8;
    let takers = |asks_first: bool| {
        let (mut owner, mut other) = two_by_hash(BURSTS);
        let mut takers = Vec::new();
        while takers.len() < BURSTS {
            if asks_first && other.steal() {
                takers.push(1);
            } else if let Some(task) = owner.slot.as_ref().and_then(PoolSlot::dequeue) {
                owner.work_on_own(task);
                takers.push(0);
            } else {
                assert!(other.steal(), "nobody takes the next burst: {takers:?}");
                takers.push(1);
            }
        }
        finish(&mut owner, &mut other, BURSTS * BURST);
        assert_eq!((owner.close(), other.close()), (0, 0));
        takers
    };
    assert_eq!(takers(true), takers(false), "not by who comes first");
    assert!(takers(true).contains(&0) && takers(true).contains(&1));
}

/// Otherwise a worker that sleeps, or that has applied a command before its owner, would block all
/// that follows.
#[test]
fn a_burst_whose_worker_cannot_take_it_stays_with_its_owner() {
    type Hinder = fn(&mut NumberingWorker);
    let asleep: Hinder = |other| other.slot.as_mut().unwrap().set_asleep(true);
    let ahead: Hinder = |other| other.slot.as_mut().unwrap().count_command();
    let gone: Hinder = |other| other.leave_pool();
    for hinder in [asleep, ahead, gone] {
        let (mut owner, mut other) = two_by_hash(4);
        hinder(&mut other);
        owner.work_on_queue();
        assert!(!owner.has_tasks());
        assert_eq!(owner.counters().totals().helped_by_others, 0);
        drain(&mut owner, &mut Vec::new());
        assert_eq!((owner.close(), other.close()), (0, 0));
    }
}

#[test]
fn a_worker_that_applies_a_command_does_not_wait_for_who_is_chosen() {
    let (mut owner, other) = two_by_hash(4);
    owner.work_on_queue();
    assert!(owner.has_tasks(), "the other worker is chosen for some");
    owner.delivery.channel.commands.push(WorkerCommand::Fib(full_fib())).unwrap();
    owner.turn(1);
    assert!(!owner.delivery.channel.garbage.is_empty());
    drain(&mut owner, &mut Vec::new());
    assert_eq!((owner.close(), other.close()), (0, 0));
}

/// Each of them works on bursts of the other, and both get on.
#[test]
fn two_workers_with_traffic_of_their_own_share_by_hash() {
    let pool = numbered_by(2, Sharing::Hash { over: 2 });
    let done = AtomicU32::new(0);
    let helped: u64 = std::thread::scope(|scope| {
        let run = |id| {
            let mut worker = member(id, vec![deep(0), deep(1)], &pool);
            let done = &done;
            scope.spawn(move || {
                let (mut next, mut numbers, begun) = (0, Vec::new(), Instant::now());
                while numbers.len() < PACKETS as usize {
                    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", worker.counters().totals());
                    next = fill(&mut worker, next);
                    worker.turn(1);
                    drain(&mut worker, &mut numbers);
                }
                done.fetch_add(1, Release);
                while done.load(Acquire) < 2 {
                    worker.turn(1);
                }
                let mut packets: Vec<u32> = numbers.into_iter().map(|(number, _)| number).collect();
                let once = packets.iter().copied().filter(|number| !number.is_multiple_of(TWICE));
                assert!(once.is_sorted(), "a flow out of order");
                packets.sort_unstable();
                assert!(packets.into_iter().eq(0..PACKETS), "lost or doubled");
                let helped = worker.counters().totals().helped_others;
                assert_eq!(worker.close(), 0, "frames leaked");
                helped
            })
        };
        let threads = [0, 1].map(run);
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(helped > 0);
}
