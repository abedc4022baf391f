//! Workers that help each other: nothing is lost, and what comes by one queue leaves in its order.

use super::*;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};
use testudo_ipsec::dataplane::Ingress;

const PACKETS: u32 = 20_000;
/// Octets of packets whose cipher is worth asking others, and of others.
const LONG: usize = 600;
const SHORT: usize = 100;
/// Where a packet has its number, where the middle stage writes, and where the first one puts a number of its own.
const NUMBER: usize = 24;
const MARK: usize = 28;
const SEQUENCE: usize = 32;
/// Of so many packets that come by a port one goes through the pipeline twice.
const TWICE: u32 = 7;

/// Its middle stage marks each packet, and takes as long as a cipher.
#[derive(Default)]
struct Staged {
    sequence: u32,
}

fn read(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(octets[at..][..4].try_into().unwrap())
}

impl Pipeline for Staged {
    type Away = Vec<u8>;

    fn outbound(&mut self, burst: &mut [Item<'_>], sources: &Sources) {
        if let Some(mut away) = self.begin_outbound(burst, sources) {
            Self::work(&mut away, burst);
            self.end(&away, burst);
        }
    }

    fn inbound(&mut self, burst: &mut [Item<'_>]) {
        self.outbound(burst, &Sources::default());
    }

    fn begin_outbound(&mut self, burst: &mut [Item<'_>], _: &Sources) -> Option<Vec<u8>> {
        for item in &mut *burst {
            self.sequence += 1;
            item.buf.data_mut()[SEQUENCE..][..4].copy_from_slice(&self.sequence.to_be_bytes());
        }
        Some(vec![0; burst.len()])
    }

    fn work(away: &mut Vec<u8>, burst: &mut [Item<'_>]) {
        for (item, mark) in burst.iter_mut().zip(away) {
            (0..50).for_each(|_| std::hint::spin_loop());
            item.buf.data_mut()[MARK] = 0xaa;
            *mark = 0xaa;
        }
    }

    fn end(&mut self, away: &Vec<u8>, burst: &mut [Item<'_>]) {
        for (item, mark) in burst.iter_mut().zip(away) {
            assert_eq!((*mark, item.buf.data()[MARK]), (0xaa, 0xaa), "worked on before it ends");
            let twice = item.ingress == Ingress::Port && read(item.buf.data(), NUMBER).is_multiple_of(TWICE);
            item.verdict = if twice { Verdict::Onward } else { Verdict::Forward };
        }
    }

    fn give_up_early(&mut self, _packets: u64) {}

    fn set_now(&mut self, _milliseconds: u64) {}

    fn set_open(&mut self, _open: bool) {}

    fn apply(&mut self, _command: Command) -> Option<Garbage> {
        None
    }

    fn drain_events(&mut self, _sink: impl FnMut(Event)) {}
}

type StagedWorker = Worker<FakePort, FakeTun, Staged>;

fn staged(id: u8, ports: Vec<FakePort>, crew: &Arc<Crew<Vec<u8>>>) -> StagedWorker {
    let pool = FramePool::new(2 * FRAMES, ChunkSize::K2).unwrap();
    let worker =
        Worker::new(WorkerConfig::new(id), ports, None, pool, full_fib(), Staged::default()).unwrap();
    worker.joining(Arc::clone(crew), usize::from(id))
}

/// Lets as many packets arrive as the port and the pool take; returns the number of the next.
fn fill(worker: &mut StagedWorker, next: u32) -> u32 {
    fill_with(worker, next, LONG)
}

fn fill_with(worker: &mut StagedWorker, mut next: u32, octets: usize) -> u32 {
    let mut packet = ipv4(CLIENT, PEER, octets, false);
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
fn drain(worker: &mut StagedWorker, numbers: &mut Vec<(u32, u32)>) {
    while let Some(frame) = worker.port_mut(WAN).unwrap().sent() {
        let packet = &frame.data()[14..];
        assert_eq!(packet[MARK], 0xaa);
        numbers.push((read(packet, NUMBER), read(packet, SEQUENCE)));
        worker.pool_mut().give(frame);
    }
}

/// Turns the owner until all packets have passed, while helpers turn on threads of their own.
fn pass(helpers: u8) -> (StagedWorker, Vec<(u32, u32)>, u64) {
    let crew = Crew::new(usize::from(helpers) + 1);
    let mut owner = staged(0, vec![deep(0), deep(1)], &crew);
    let done = AtomicBool::new(false);
    let mut numbers = Vec::new();
    let helped = std::thread::scope(|scope| {
        let help = |id| {
            let mut helper = staged(id, Vec::new(), &crew);
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
    for helpers in [0, 1, 3] {
        let mut tried = 0;
        // A busy machine may not let a helper run in time.
        let (owner, numbers, helped) = loop {
            let passed = pass(helpers);
            tried += 1;
            if helpers == 0 || passed.2 > 0 || tried == 100 {
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
    let crew = Crew::new(2);
    let mut owner = staged(0, vec![deep(0), deep(1)], &crew);
    let mut helper = staged(1, Vec::new(), &crew);
    helper.turn(1);
    let frame = stamped(owner.pool_mut(), &ipv4(CLIENT, PEER, LONG, false), Class::Protect as u8);
    owner.port_mut(LAN).unwrap().deliver(frame).unwrap();
    owner.turn(1);
    assert!(!owner.is_sharing() && !helper.help());
    let mut numbers = Vec::new();
    drain(&mut owner, &mut numbers);
    assert_eq!(numbers.len(), 1);
    assert_eq!((owner.close(), helper.close()), (0, 0));
}

#[test]
fn short_packets_stay_with_their_owner() {
    let crew = Crew::new(2);
    let mut owner = staged(0, vec![deep(0), deep(1)], &crew);
    let mut helper = staged(1, Vec::new(), &crew);
    helper.turn(1);
    for (octets, is_shared) in [(SHORT, false), (LONG, true)] {
        fill_with(&mut owner, PACKETS - 128, octets);
        owner.receive(LAN);
        assert_eq!(owner.is_sharing(), is_shared, "{octets} octets");
        while owner.turn(1) {}
        drain(&mut owner, &mut Vec::new());
    }
    assert_eq!((owner.close(), helper.close()), (0, 0));
}

#[test]
fn commands_wait_for_what_has_begun() {
    let crew = Crew::new(2);
    let mut owner = staged(0, vec![deep(0), deep(1)], &crew);
    let mut helper = staged(1, Vec::new(), &crew);
    helper.turn(1);
    fill(&mut owner, PACKETS - 200);
    owner.receive(LAN);
    let (place, mut errand) = helper.seat.as_ref().and_then(|seat| seat.foreign()).expect("an errand");
    // A command comes while a burst is out.
    owner.delivery.channel.commands.push(WorkerCommand::Fib(full_fib())).unwrap();
    let channel = Arc::clone(&owner.delivery.channel);
    std::thread::scope(|scope| {
        let helper = &helper;
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            assert!(channel.garbage.is_empty(), "applied too early");
            errand.run(|items, away| Staged::work(away.as_mut().unwrap(), items));
            helper.seat.as_ref().unwrap().give_back(place, errand);
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
